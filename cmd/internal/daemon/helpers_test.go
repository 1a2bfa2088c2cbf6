package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// ReadingCommands writes the output of the commands of berth that read a repository.
var ReadingCommands func(ctx context.Context, dir string, out io.Writer) error

// serveProcess starts a daemon in a process of its own.
func serveProcess(t *testing.T, config string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), "BERTH_TEST_SERVE="+config), os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// lastLines returns the end of a daemon's log, for a wait that says what it saw instead.
func lastLines(log fmt.Stringer) string {
	lines := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

func pathOf(t testing.TB, key schema.Key) string {
	t.Helper()
	p, err := key.Path()
	require.NoError(t, err)
	return p
}

func condition(st plan.Status, typ plan.ConditionType) plan.Condition {
	if c := st.Condition(typ); c != nil {
		return *c
	}
	return plan.Condition{}
}

func settled(st plan.Status) bool {
	return condition(st, "Reconciling").Status == "False" && condition(st, "Stalled").Status == "False"
}

func countRunning(s *plan.Status) int {
	n := 0
	for _, m := range s.Members {
		if m.State == plan.Running {
			n++
		}
	}
	return n
}

// reconciled is how often a task was done.
func reconciled(t require.TestingT, s *Daemon, task reconciler.Task) (n float64) {
	families, err := s.reg.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, m := range family.Metric {
			for _, l := range m.Label {
				if family.GetName() == "berth_reconciles_total" && l.GetName() == "task" && l.GetValue() == string(task) {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// show is a value as a person reads it in a failure.
func show(v any) string {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// onceAll runs Once, and returns the errors of the estates with their names.
func onceAll(t *testing.T, d *Daemon) (err error) {
	t.Helper()
	d.Once(t.Context(), await.Limit, nil, func(o Outcome) {
		if o.Err != nil {
			err = errors.Join(err, fmt.Errorf("estate %s: %w", o.Estate, o.Err))
		}
	})
	return err
}

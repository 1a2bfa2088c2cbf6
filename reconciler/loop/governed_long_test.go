//go:build long

package loop_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
)

// A grace period that ends while no daemon runs is reported once after the start. The
// same holds for policies that a newer version of Berth interprets differently.
func TestLongGraceThatEndsWithoutDaemonIsReportedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	on := func(day int) *daemon {
		begin, started := time.Date(2026, 3, day, 12, 0, 0, 0, time.UTC), time.Now()
		return w.start(func(o *loop.Options) {
			o.Now = func() time.Time { return begin.Add(time.Since(started)) }
		})
	}
	d := on(1)
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	w.put(map[string]string{"tenants/physics/policy.yaml": "apiVersion: berth/v1\nkind: Policy\nmetadata: {name: policy}\nspec:\n  " +
		"max_gpus_per_instance: 0\n  noncompliant: {action: stop, grace_until: \"2026-03-03\"}\n"})
	w.eventually("warned", func() bool {
		return strings.Contains(message(w.status("train"), "PolicyCompliant"), "goes on until 2026-03-03")
	})
	for _, day := range []int{3, 3, 4} {
		require.NoError(t, d.stop())
		d = on(day)
		w.eventually("stopped", w.phase("train", plan.PhaseStopped))
		w.eventually("stop reported", func() bool {
			return strings.Contains(message(w.status("train"), "PolicyCompliant"), "its grace ended on 2026-03-03")
		})
	}
	require.NoError(t, d.stop())
	reported := func() (actions []string) {
		for _, r := range w.audited() {
			if r.Key == trainKey && r.Source == "tenants/physics/policy.yaml:6" {
				actions = append(actions, r.Action)
			}
		}
		return actions
	}
	require.Equal(t, []string{"policy.stopping", "policy.stopped", "runtime.stop"}, reported())

	// An earlier version let a suspended instance run and recorded that.
	document, err := w.git.Read(reconciler.BranchStatus, path)
	require.NoError(t, err)
	w.git.MustCommit(t, reconciler.BranchStatus, gittest.Commit{Message: "forged", Files: map[string]string{
		path: strings.Replace(document, "conditions:\n", "conditions:\n- reason: Declared\n  status: \"True\"\n  type: Suspended\n", 1)}})
	on(4)
	w.eventually("new state reported", func() bool { return len(reported()) == 4 })
	w.eventually("set right", func() bool { return condition(w.status("train"), "Suspended") == "False" })
	require.Equal(t, "policy.stopped", reported()[3])
}

package loop_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"berth/reconciler"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/memory"
)

// failsFor is a runtime whose actions fail for one named instance.
type failsFor struct {
	runtimes.Runtime
	name string
}

func (f failsFor) Apply(ctx context.Context, c runtimes.Change) error {
	if c.Plan.Key.Name == f.name {
		return errors.New("no space left")
	}
	return f.Runtime.Apply(ctx, c)
}

// Requirement E5: berth/status is a read view. Its README.md lists the number of
// instances by phase, required attention and held documents. The file of an instance
// shows the node and state of each member. Both follow the observation, not only the
// declaration.
func TestStatusBranchIsAReadView(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(func(o *loop.Options) {
		o.Runtimes = map[string]runtimes.Runtime{"bare_metal": failsFor{memory.New(w.world), "bad"}}
	})
	good, goodText := instance("train", 1)
	bad, badText := instance("bad", 1)
	broken, brokenText := instance("typo", 1)
	w.put(map[string]string{good: goodText, bad: badText, broken: strings.Replace(brokenText, "display_name", "dislpay_name", 1)})
	view := func() string {
		text, _ := w.git.Read(reconciler.BranchStatus, "README.md") // "" before the first commit
		return text
	}
	shows := func(lines ...string) func() bool {
		return func() bool {
			text := view()
			for _, line := range lines {
				if !strings.Contains(text, line) {
					return false
				}
			}
			return true
		}
	}
	w.eventually("summary", shows("| Instances | 2 |\n| … failed | 1 |\n| … running | 1 |\n", "| Documents held | 1 |\n"))
	require.Contains(t, view(), "- [Instance physics.lab/bad](tenants/physics/projects/lab/instances/bad.yaml): `create : no space left`\n")
	require.Contains(t, view(), "dislpay_name")
	require.NotContains(t, view(), "physics.lab/train", "a healthy instance needs no attention")

	type member struct{ Name, Node, State, Placed string }
	var file struct {
		Phase   string
		Members []member
	}
	members := func() []member {
		text, err := w.git.Read(reconciler.BranchStatus, statusOfTrain)
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal([]byte(text), &file))
		for i := range file.Members {
			require.NotEmpty(t, file.Members[i].Placed, "reason of the assignment")
			file.Members[i].Placed = ""
		}
		return file.Members
	}
	require.Equal(t, []member{{"controller-0", "ctl", "running", ""}, {"worker-0", members()[1].Node, "running", ""}}, members())
	require.Contains(t, members()[1].Node, "gpu-")

	node := members()[1].Node
	w.world.SetReachable(node, false)
	w.eventually("worker unreachable", func() bool { return members()[1].State == string(plan.Unreachable) })
	w.world.SetReachable(node, true)
	w.put(nil, bad, broken)
	w.eventually("instance and held document removed", shows("| Instances | 1 |\n| … running | 1 |\n| Documents held | 0 |\n"))
	require.NotContains(t, view(), "Need attention")
}

// Requirement E7: segments of events and of the audit log are only ever added.
func TestSegmentsAreOnlyAdded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.start()
	path := w.run(1)
	require.NoError(t, d.stop())
	w.start()
	w.put(nil, path)
	w.eventually("gone", func() bool { return w.status("train") == nil })
	changes := func(filter string) []string {
		out, err := w.git.Git("log", "--format=", "--name-only", "--no-renames", "--diff-filter="+filter, reconciler.BranchStatus, "--",
			"events", "audit")
		require.NoError(t, err)
		return strings.Fields(out)
	}
	require.GreaterOrEqual(t, len(changes("A")), 4)
	require.Empty(t, changes("MDT"), "a segment was changed or removed")
}

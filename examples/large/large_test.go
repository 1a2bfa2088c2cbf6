package large_test

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/examples/large"
	"berth/reconciler/plan"
	"berth/schema/estate"
	"berth/schema/policy"
)

// The measurements use estates as people have them: valid, permitted, and
// with a node for everything.
func TestEstateIsClean(t *testing.T) {
	shape := large.Shape{Tenants: 20, Projects: 1, Instances: 10, Nodes: 20}
	definitions, err := os.ReadFile("../../runtimes/slurm/cluster/config.cue")
	require.NoError(t, err)
	l, err := estate.New(estate.Options{Backends: map[string]string{"slurm": string(definitions)}})
	require.NoError(t, err)
	files := large.Estate(1000)
	require.Equal(t, files, large.Estate(1000))
	require.InDelta(t, 1000, len(files), 100)
	require.Contains(t, files, large.Instance(0, 0, 0))
	require.NotEqual(t, files[large.Instance(0, 0, 0)], large.Change(files[large.Instance(0, 0, 0)], 1))
	for _, files := range []map[string]string{files, shape.Estate()} {
		r, err := l.Load(context.Background(), estate.Files(files))
		require.NoError(t, err)
		require.Empty(t, r.Diagnostics)
		eff := policy.Evaluate(r.Desired)
		require.Empty(t, policy.Findings(eff.Decisions()))
		placed := plan.Place(eff, plan.Memory{})
		units := 0
		for key := range placed.All() {
			units++
			require.Empty(t, placed.Unplaced(key))
		}
		require.GreaterOrEqual(t, units, shape.Tenants*shape.Instances)
	}
}

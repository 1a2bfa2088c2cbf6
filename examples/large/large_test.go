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

// The measurements use an estate as people have them: valid, permitted, and
// with a node for everything.
func TestEstateIsClean(t *testing.T) {
	definitions, err := os.ReadFile("../../runtimes/slurm/cluster/config.cue")
	require.NoError(t, err)
	l, err := estate.New(estate.Options{Backends: map[string]string{"slurm": string(definitions)}})
	require.NoError(t, err)
	files := large.Estate(1000)
	require.Equal(t, files, large.Estate(1000))
	require.InDelta(t, 1000, len(files), 100)
	r, err := l.Load(context.Background(), estate.Files(files))
	require.NoError(t, err)
	require.Empty(t, r.Diagnostics)
	require.Contains(t, files, large.Instance(0, 0, 0))
	require.NotEqual(t, files[large.Instance(0, 0, 0)], large.Change(files[large.Instance(0, 0, 0)], 1))
	eff := policy.Evaluate(r.Desired)
	require.Empty(t, policy.Findings(eff.Decisions()))
	placed := plan.Place(eff, plan.Memory{})
	for key := range placed.All() {
		require.Empty(t, placed.Unplaced(key))
	}
}

package estate_test

import (
	"context"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema/estate"
)

func newLoader(t testing.TB) *estate.Loader { return estate.NewLabLoader(t) }

func testBackends(t testing.TB) map[string]string {
	t.Helper()
	slurm, err := os.ReadFile("../../runtimes/slurm/cluster/config.cue")
	require.NoError(t, err)
	return map[string]string{
		"slurm":      string(slurm),
		"bare_metal": "#Config: {...}\n#Parameters: {...}",
	}
}

func TestLabHasNoFindings(t *testing.T) {
	snap, err := estate.Dir("../../examples/lab")
	require.NoError(t, err)
	r, err := newLoader(t).Load(context.Background(), snap)
	require.NoError(t, err)
	require.Empty(t, r.Diagnostics)
	require.Empty(t, r.Needs)
	require.Len(t, r.Desired.Tenants, 2)
	require.NotEmpty(t, r.Desired.Platform.Nodes)
	version := r.Desired.Version("", "slurm", "22-05")
	parameters := string(version.Spec.Manifest.Parameters)
	require.Contains(t, parameters, `"identity":"managed"`)
	require.Contains(t, parameters, `"partitions":[{"default":true,"max_time_minutes":1440,"name":"main"}]`)
	require.Contains(t, parameters, `"interval_seconds":30`, "a default")
	train := r.Desired.Tenants["physics"].Projects["lattice"].Instances["train"]
	require.Equal(t, "tenant_dedicated", train.Spec.OperatingMode)
	require.EqualValues(t, "running", train.Spec.DesiredState)
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

package schema_test

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/estate"
)

// Every document of an estate is found by its key, and none by a key that is
// not there.
func TestHeaderOfEveryKind(t *testing.T) {
	config, err := os.ReadFile("../runtimes/slurm/cluster/config.cue")
	require.NoError(t, err)
	loader, err := estate.New(estate.Options{Backends: map[string]string{"slurm": string(config)}})
	require.NoError(t, err)
	snap, err := estate.Dir("../examples/campus")
	require.NoError(t, err)
	r, err := loader.Load(context.Background(), snap)
	require.NoError(t, err)
	kinds := map[string]bool{}
	for file, key := range r.Documents() {
		h := r.Desired.Header(key)
		require.NotNil(t, h, key)
		require.Equal(t, file, h.File)
		require.Equal(t, key, h.Key)
		path, err := key.Path()
		require.NoError(t, err)
		require.Equal(t, file, path)
		kinds[string(key.Kind)] = true
		for _, another := range []schema.Key{
			{Kind: key.Kind, Tenant: key.Tenant, Project: key.Project, Parent: key.Parent, Name: "nobody"},
			{Kind: key.Kind, Tenant: key.Tenant, Project: key.Project, Parent: key.Parent + "x", Name: key.Name},
			{Kind: key.Kind, Tenant: key.Tenant, Project: key.Project + "x", Parent: key.Parent, Name: key.Name},
			{Kind: key.Kind, Tenant: key.Tenant + "x", Project: key.Project, Parent: key.Parent, Name: key.Name},
			{Kind: schema.KindPause, Tenant: key.Tenant, Project: key.Project, Parent: key.Parent, Name: key.Name},
		} {
			require.Nil(t, r.Desired.Header(another), another)
		}
	}
	require.Len(t, kinds, 21, "every kind but Pause")
}

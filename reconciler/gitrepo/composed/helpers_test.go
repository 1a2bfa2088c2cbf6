package composed_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/schema"
)

// contents reads a whole snapshot, part by part.
func contents(t testing.TB, r reconciler.Repo, id string) map[string]string {
	t.Helper()
	s, err := r.Snapshot(t.Context(), id)
	require.NoError(t, err)
	parts, err := s.Parts(t.Context())
	require.NoError(t, err)
	require.True(t, slices.IsSortedFunc(parts, func(a, b schema.Part) int { return strings.Compare(a.Name, b.Name) }))
	out := map[string]string{}
	for _, p := range parts {
		files, err := s.Files(t.Context(), p)
		require.NoError(t, err, p.Name)
		for _, f := range files {
			data, more, err := s.Read(t.Context(), f, 1<<20)
			require.NoError(t, err)
			require.False(t, more)
			out[f.Path] = string(data)
		}
	}
	return out
}

func paths(cs []reconciler.PathChange) []string {
	var out []string
	for _, c := range cs {
		out = append(out, c.Path)
	}
	return out
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

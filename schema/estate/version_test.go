package estate_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema/estate"
)

// Of two documents for one version of an app, the one in force stays, for any
// names. Two that are already in force both stay, and no instance stops.
func TestOneDocumentForOneVersionOfAnApp(t *testing.T) {
	l := newLoader(t)
	const first, last = "platform/catalog/slurm/21-00.yaml", "platform/catalog/slurm/99-00.yaml"
	copyAs := func(name string) string { return strings.Replace(lab(t)[version], "name: 22-05", "name: "+name, 1) }
	for _, file := range []string{first, last} {
		name := strings.TrimSuffix(file[len("platform/catalog/slurm/"):], ".yaml")
		both := with(t, map[string]string{file: copyAs(name)})
		f := inForce(t, l, both, lab(t))
		require.Equal(t, "invalid "+file+": not there\n", told(f))
		require.Contains(t, f.Held[0].Message, "22-05 is version 22.05.8 of slurm already (platform/catalog/slurm/22-05.yaml:")

		// A new estate takes the first by name and the documents that it needs.
		f = inForce(t, l, both, nil)
		require.NotEmpty(t, told(f))

		// An estate in which an earlier Berth brought both into force continues.
		f = inForce(t, l, with(t, map[string]string{file: copyAs(name), "README.md": "x"}), both)
		require.Empty(t, told(f))
		require.Len(t, f.Result.Desired.Platform.Versions["slurm"], 2)
		require.Len(t, f.Result.Desired.Tenants, 2)
		r, err := l.Load(t.Context(), estate.Files(both))
		require.NoError(t, err)
		require.Len(t, r.Diagnostics, 1)
		require.Equal(t, "conflict.version", r.Diagnostics[0].Code)
	}
}

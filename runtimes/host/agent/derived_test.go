package agent

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
)

// Paths below /run count without existing, as the start of a service makes them.
func TestOnlyExistingDerivedPathsCount(t *testing.T) {
	dir := t.TempDir()
	there, gone := filepath.Join(dir, "there"), filepath.Join(dir, "gone")
	require.NoError(t, os.Mkdir(there, 0o700))
	a := New(Options{StateDir: t.TempDir(), EtcDir: t.TempDir(),
		Profiles: []runtimes.Profile{{DerivePaths: func(fs.FS) []runtimes.DerivedPath {
			return []runtimes.DerivedPath{{Path: there, Own: true}, {Path: gone}, {Path: "/run/berth-none", Own: true},
				{Path: "/run/berth-none-file"}}
		}}}})
	rec, err := a.paths.read()
	require.NoError(t, err)
	require.Equal(t, pathRecord{there: kindTree, "/run/berth-none": kindTree, "/run/berth-none-file": kindFile}, rec)
	require.True(t, rec.has(filepath.Join(there, "below", "it")))
	require.False(t, rec.has(there+"-beside"))
}

package lab_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth/runtimes/host/lab"
)

// unpack is a mmdebstrap that installs every package of --include in version 1:2.3-4.
const unpack = `root=$(eval echo \${$(($# - 1))})
mkdir -p "$root/var/lib/dpkg/updates" "$root/var/lib/dpkg/info"
for a in "$@"; do case $a in --include=*) echo "${a#--include=}" | tr , '\n' | while read -r p; do
	printf 'Package: %s\nStatus: install ok installed\nArchitecture: all\nMaintainer: x <x@example.com>\nDescription: x\nVersion: 1:2.3-4\n\n' "$p"
done >"$root/var/lib/dpkg/status";; esac; done
`

// mmdebstrap puts a program with that name before others, and returns the file with a
// line for each of its runs.
func mmdebstrap(t *testing.T, script string) (runs string) {
	t.Helper()
	bin := t.TempDir()
	runs = filepath.Join(bin, "runs")
	require.NoError(t, os.WriteFile(filepath.Join(bin, "mmdebstrap"),
		[]byte("#!/bin/sh\nset -e\necho begin >>"+runs+"\n"+script+"\necho end >>"+runs+"\n"), 0o755))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return runs
}

func lines(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	return strings.Join(strings.Fields(string(data)), " ")
}

func TestImageIsBuiltOnce(t *testing.T) {
	runs := mmdebstrap(t, unpack+"sleep 0.3")
	images := filepath.Join(t.TempDir(), "images")
	t.Setenv(lab.MirrorVariable, "http://mirror.example/debian")
	g := errgroup.Group{}
	for range 3 {
		g.Go(func() error {
			_, err := lab.BuildImage(t.Context(), images, "trixie", []string{"slurmctld", "slurmd"}, nil)
			return err
		})
	}
	require.NoError(t, g.Wait())
	i, err := lab.BuildImage(t.Context(), images, "trixie", []string{"slurmctld", "slurmd"}, nil)
	require.NoError(t, err)
	require.Equal(t, "begin end", lines(t, runs))
	require.Equal(t, "trixie", i.Suite)
	require.Equal(t, "http://mirror.example/debian", i.Mirror)
	require.Equal(t, "1:2.3-4", i.Packages["slurmctld"])
	require.False(t, i.Built.IsZero())
	other, err := lab.BuildImage(t.Context(), images, "forky", []string{"slurmctld", "slurmd"}, nil)
	require.NoError(t, err)
	require.Equal(t, "forky", other.Suite)
	require.Equal(t, "begin end begin end", lines(t, runs))
}

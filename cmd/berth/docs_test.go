package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"berth/cmd/internal/cli"
	"berth/runtimes/backends"
)

// The committed reference pages are those that the program makes. UPDATE_DOCS=1 writes
// them again.
func TestReferencePagesAreCurrent(t *testing.T) {
	pages := map[string]string{"docs commands": "commands.md", "docs configuration": "configuration.md", "docs slurm": "slurm-options.md",
		"schema docs": "kinds.md"}
	for _, backend := range backends.Names() {
		pages["schema docs "+backend] = backend + "-config.md"
	}
	makefile, err := os.ReadFile(filepath.Join(moduleRoot, "Makefile"))
	require.NoError(t, err)
	for command, page := range pages {
		require.Contains(t, string(makefile), "berth "+command+" > deploy/reference/"+page+"\n")
		want, code := said(t, newRoot(), strings.Fields(command)...)
		require.Zero(t, code, want)
		file := filepath.Join(moduleRoot, "deploy/reference", page)
		if os.Getenv("UPDATE_DOCS") != "" {
			require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
		}
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, want, string(got), "make reference writes deploy/reference/%s again", page)
	}
}

// The page of a runtime's fields says where a field may stand, and an unknown runtime is an error
// that names the others.
func TestConfigReference(t *testing.T) {
	page, code := said(t, newRoot(), "schema", "docs", "slurm")
	require.Zero(t, code, page)
	for _, part := range []string{
		"| `scheduler.interval_seconds` | whole number from 5 to 600 | seconds between two runs of the backfill scheduler (bf_interval) " +
			"(default `30`) |",
		"| `qos[].name` | a name of letters", "unique among", "**(required)**",
		"\n## jobs\n\n```yaml\n# A job without", "**(only in `manifest.parameters`)**",
	} {
		require.Contains(t, page, part)
	}
	out, code := said(t, newRoot(), "schema", "docs", "slrum")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, `no backend "slrum"; the backends are slurm`)
}

func TestEveryCommandHasAnExample(t *testing.T) {
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		if cmd.Name() == "completion" { // its commands are cobra's
			return
		}
		if !cli.IsGroup(cmd) {
			require.NotEmpty(t, cmd.Example, cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(newRoot())
}

func TestManPages(t *testing.T) {
	dir := t.TempDir()
	out, code := said(t, newRoot(), "docs", "man", dir)
	require.Zero(t, code, out)
	page, err := os.ReadFile(filepath.Join(dir, "berth-serve.1"))
	require.NoError(t, err)
	require.Contains(t, string(page), ".SH EXAMPLE")
}

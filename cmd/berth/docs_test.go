package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"berth/cmd/internal/cli"
)

// The committed reference pages are those that the program makes. UPDATE_DOCS=1 writes
// them again.
func TestReferencePagesAreCurrent(t *testing.T) {
	for name, page := range map[string]string{"commands": "commands.md", "configuration": "configuration.md", "slurm": "slurm-options.md"} {
		want, code := said(t, newRoot(), "docs", name)
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

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// README's "Ten-minute tour" sets up an estate. The test runs its
// commands as they are written there.
func TestReadmeFirstUse(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(moduleRoot, "README.md"))
	require.NoError(t, err)
	_, use, ok := strings.Cut(string(text), "\n## Ten-minute tour\n")
	require.True(t, ok)
	blocks := regexp.MustCompile("(?s)```\n(.*?)```").FindAllStringSubmatch(use, 2)
	require.Len(t, blocks, 2)
	const build = "make build && PATH=$PWD/bin:$PATH "
	require.True(t, strings.HasPrefix(blocks[0][1], build), "the first command is not the build")
	_, commands, _ := strings.Cut(blocks[0][1]+blocks[1][1], "\n") // berth is in PATH already

	home := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[user]\n\tname = Ada\n\temail = ada@example.org\n"), 0o600))
	cmd := exec.Command("bash", "-eu", "-o", "pipefail", "-c", commands)
	cmd.Dir, cmd.Env = home, append(os.Environ(), "HOME="+home, "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `(?m)^converged at [0-9a-f]{10}: 1 instance running; created physics\.lattice/train \(`, string(out))
	require.Regexp(t, `(?m)^physics\.lattice/train +running`, string(out))
	require.Regexp(t, `(?m)^converged at [0-9a-f]{10}: 1 instance running; changed physics\.lattice/train \(`, string(out))
}

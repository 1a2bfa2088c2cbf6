//go:build long

package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/reconciler/gitrepo/gittest"
)

// A configuration that an estate was kept by is not left for the one before when
// trouble comes later.
func TestLongStartedConfigurationIsNotRolledBack(t *testing.T) {
	t.Parallel()
	k := newKept(t, "north", "", map[string]any{"forge": nil, "api": nil, "workers": 2, "poll": "100ms",
		"authority": map[string]any{"trust_main": true}})
	said := &sink{}
	s, err := New([]string{k.path}, slog.New(slog.NewTextHandler(said, nil)))
	require.NoError(t, err)
	e := s.all[0]
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.follow(ctx, false) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		if t.Failed() {
			t.Log(said.String())
		}
	})
	until := func(what string, ok func() bool) {
		t.Helper()
		await.True(t, what, ok, func() any { return lastLines(said) })
	}
	until("begun", func() bool { return s.ready() == nil })
	world := filepath.Join(k.dir, "another-world")
	replace(t, k.path, edited(t, k.path,
		map[string]any{"workers": 3, "memory_runtime": map[string]any{"directory": world, "backends": []string{"slurm"}}}))
	next, err := ReadConfig(k.path)
	require.NoError(t, err)
	e.next <- next
	until("gone on with", func() bool { return e.config.Load() == next && s.ready() == nil })
	// Another process takes leadership while a file that it needs is missing.
	require.NoError(t, os.RemoveAll(world))
	require.NoError(t, os.WriteFile(world, nil, 0o600))
	other := filepath.Join(k.dir, "other.yaml")
	require.NoError(t, os.WriteFile(other, edited(t, k.path, map[string]any{
		"repository":     map[string]any{"url": k.git.URL, "directory": filepath.Join(k.dir, "mirror2")},
		"memory_runtime": map[string]any{"directory": filepath.Join(k.dir, "world3"), "backends": []string{"slurm"}},
	}), 0o600))
	o, err := New([]string{other}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, onceAll(t, o))
	k.git.MustCommit(t, "main", gittest.Commit{Message: "words", Files: map[string]string{"README.md": "north\n"}})
	until("the start fails", func() bool { return strings.Contains(said.String(), "another-world") && e.running.Load() == nil })
	require.NoError(t, os.Remove(world))
	until("begun again", func() bool { return s.ready() == nil })
	require.Same(t, next, e.config.Load())
	require.NotContains(t, said.String(), "using the previous one")
}

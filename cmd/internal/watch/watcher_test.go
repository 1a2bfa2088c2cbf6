package watch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"

	"berth/examples/await"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

// watching is a running watcher, with its reports and its log.
type watching struct {
	t       *testing.T
	reports chan []string
	log     chan string
}

// start watches the estate in dir. The first report is over when it returns.
func start(t *testing.T, dir string, change func(*Watcher)) *watching {
	t.Helper()
	o := &watching{t: t, reports: make(chan []string, 100), log: make(chan string, 100)}
	w := New(func() (Files, error) { return Estate(dir) }, func(line string) { o.log <- line })
	w.safety = time.Hour // each report comes from a notification
	if change != nil {
		change(w)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx, func(changed []string) error { o.reports <- changed; return nil }) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	o.reported(func([]string) bool { return true })
	return o
}

// reported waits for a report that is wanted.
func (o *watching) reported(wanted func([]string) bool) {
	o.t.Helper()
	var others [][]string
	for {
		got := await.Receive(o.t, "the report of a change", o.reports, func() any { return others })
		if wanted(got) {
			return
		}
		others = append(others, got)
	}
}

func (o *watching) changed(path string) {
	o.t.Helper()
	o.reported(func(got []string) bool { return slices.Contains(got, path) })
}

func (o *watching) logged(part string) {
	o.t.Helper()
	got := await.Receive(o.t, "a line with "+part, o.log, func() any { return "no line" })
	require.Contains(o.t, got, part)
}

func TestWatcherReportsEveryKindOfChange(t *testing.T) {
	dir := t.TempDir()
	node, tenant := filepath.Join(dir, "platform/nodes/n.yaml"), filepath.Join(dir, "tenants/x/tenant.yaml")
	write(t, node, "a\n")
	write(t, tenant, "a\n")
	o := start(t, dir, nil)

	write(t, node, "bb\n")
	o.changed("platform/nodes/n.yaml")

	// As editors save: a new file replaces the old one, twice.
	for _, content := range []string{"ccc\n", "dddd\n"} {
		write(t, node+".swp", content)
		require.NoError(t, os.Rename(node, node+"~"))
		require.NoError(t, os.Rename(node+".swp", node))
		require.NoError(t, os.Remove(node+"~"))
		o.changed("platform/nodes/n.yaml")
	}

	require.NoError(t, os.Chmod(node, 0o755))
	o.changed("platform/nodes/n.yaml")

	// New directories, filled at once and later.
	write(t, filepath.Join(dir, "tenants/y/projects/p/project.yaml"), "a\n")
	o.changed("tenants/y/projects/p/project.yaml")
	write(t, filepath.Join(dir, "tenants/y/projects/p/instances/i.yaml"), "a\n")
	o.changed("tenants/y/projects/p/instances/i.yaml")
	write(t, filepath.Join(dir, "tenants/y/projects/p/instances/i.yaml"), "bb\n")
	o.changed("tenants/y/projects/p/instances/i.yaml")

	// A directory moves with its files; the new place is watched.
	require.NoError(t, os.Rename(filepath.Join(dir, "tenants/y"), filepath.Join(dir, "tenants/z")))
	o.changed("tenants/z/projects/p/instances/i.yaml")
	write(t, filepath.Join(dir, "tenants/z/projects/p/instances/i.yaml"), "ccc\n")
	o.changed("tenants/z/projects/p/instances/i.yaml")

	require.NoError(t, os.RemoveAll(filepath.Join(dir, "tenants/z")))
	o.changed("tenants/z/projects/p/instances/i.yaml")
	write(t, filepath.Join(dir, "tenants/z/tenant.yaml"), "back\n")
	o.changed("tenants/z/tenant.yaml")

	require.NoError(t, os.Remove(tenant))
	o.changed("tenants/x/tenant.yaml")

	// A file outside the estate is not reported.
	write(t, filepath.Join(dir, "notes.txt"), "a\n")
	write(t, filepath.Join(dir, ".git/index"), "a\n")
	write(t, node, "last\n")
	o.reported(func(got []string) bool {
		require.Equal(t, []string{"platform/nodes/n.yaml"}, got)
		return true
	})
}

// A burst is reported once, at its end; an endless burst is reported now and then.
func TestWatcherDebouncesBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, events := New(nil, nil), make(chan fsnotify.Event)
		n := &notifier{Watcher: w, fs: &fsnotify.Watcher{Events: events, Errors: make(chan error)}}
		reported := func(changes int, distance time.Duration) (after time.Duration) {
			ctx, end := context.WithCancel(t.Context())
			var sender sync.WaitGroup
			sender.Go(func() {
				for range changes {
					select {
					case events <- fsnotify.Event{}:
					case <-ctx.Done():
						return
					}
					time.Sleep(distance)
				}
			})
			began := time.Now()
			require.True(t, n.wait(ctx, false))
			after = time.Since(began)
			end()
			sender.Wait()
			return after
		}
		require.Equal(t, w.quiet, reported(40, 0))
		require.Equal(t, 390*time.Millisecond+w.quiet, reported(40, 10*time.Millisecond))
		require.Equal(t, w.longest, reported(1000, 10*time.Millisecond))
	})
}

// Without notifications of the system, the watcher polls, and logs that.
func TestWatcherPollsWithoutNotifications(t *testing.T) {
	for name, open := range map[string]func() (*fsnotify.Watcher, error){
		"no instance left": func() (*fsnotify.Watcher, error) { return nil, syscall.EMFILE },
		"no watch left": func() (*fsnotify.Watcher, error) {
			w, err := fsnotify.NewWatcher()
			if err != nil {
				return nil, err
			}
			return w, w.Close() // so that nothing can be added
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "platform/nodes/n.yaml"), "a")
			o := start(t, dir, func(w *Watcher) { w.open, w.poll = open, 10*time.Millisecond })
			o.logged("scanning every 10ms instead")
			write(t, filepath.Join(dir, "platform/nodes/n.yaml"), "bb")
			o.changed("platform/nodes/n.yaml")
			write(t, filepath.Join(dir, "tenants/x/tenant.yaml"), "a")
			o.changed("tenants/x/tenant.yaml")
			require.Empty(t, o.log, "it is logged once")
		})
	}
}

// An estate that disappears, as when a branch is switched, may come back.
func TestWatcherSurvivesRemovalOfItsDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "estate")
	write(t, filepath.Join(dir, "platform/nodes/n.yaml"), "a")
	o := start(t, dir, func(w *Watcher) { w.poll = 10 * time.Millisecond })
	require.NoError(t, os.Rename(dir, dir+"-away"))
	o.logged("no such file")
	require.NoError(t, os.Rename(dir+"-away", dir))
	write(t, filepath.Join(dir, "platform/nodes/n.yaml"), "bb")
	o.changed("platform/nodes/n.yaml")
	write(t, filepath.Join(dir, "platform/nodes/n.yaml"), "ccc")
	o.changed("platform/nodes/n.yaml")
}

func TestWatcherEndsWhenReportFails(t *testing.T) {
	dir := t.TempDir()
	wrong := errors.New("wrong")
	w := New(func() (Files, error) { return Estate(dir) }, func(string) {})
	require.ErrorIs(t, w.Run(t.Context(), func([]string) error { return wrong }), wrong)
}

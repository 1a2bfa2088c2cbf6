package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
)

// noticed is how long a test waits for what must happen; it is over at once
// when it does.
const noticed = 30 * time.Second

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

// watching is a watcher at work: what it told of, and what it said.
type watching struct {
	t     *testing.T
	looks chan []string
	says  chan string
}

// start watches the estate in dir. The first look is over when it returns.
func start(t *testing.T, dir string, change func(*watcher)) *watching {
	t.Helper()
	o := &watching{t: t, looks: make(chan []string, 100), says: make(chan string, 100)}
	w := newWatcher(func() (sight, error) { return seeEstate(dir) }, func(f string, a ...any) { o.says <- fmt.Sprintf(f, a...) })
	w.safety = time.Hour // what is told must have been noticed
	if change != nil {
		change(w)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.run(ctx, func(changed []string) error { o.looks <- changed; return nil }) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	o.told(func([]string) bool { return true })
	return o
}

// told waits for a look that says what is wanted.
func (o *watching) told(wanted func([]string) bool) {
	o.t.Helper()
	timeout := time.After(noticed)
	for {
		select {
		case got := <-o.looks:
			if wanted(got) {
				return
			}
		case <-timeout:
			o.t.Fatal("was not told of the change")
		}
	}
}

func (o *watching) changed(path string) {
	o.t.Helper()
	o.told(func(got []string) bool { return slices.Contains(got, path) })
}

func (o *watching) said(part string) {
	o.t.Helper()
	select {
	case got := <-o.says:
		require.Contains(o.t, got, part)
	case <-time.After(noticed):
		o.t.Fatalf("nothing was said of %q", part)
	}
}

func TestWatchTellsOfEveryWayToChange(t *testing.T) {
	dir := t.TempDir()
	node, tenant := filepath.Join(dir, "platform/nodes/n.yaml"), filepath.Join(dir, "tenants/x/tenant.yaml")
	write(t, node, "a\n")
	write(t, tenant, "a\n")
	o := start(t, dir, nil)

	write(t, node, "bb\n")
	o.changed("platform/nodes/n.yaml")

	// As editors save: a new file takes the old one's place; and once more.
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

	// A directory moves, with what is below it; what is there now is watched.
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

	// What is none of the estate's is no news.
	write(t, filepath.Join(dir, "notes.txt"), "a\n")
	write(t, filepath.Join(dir, ".git/index"), "a\n")
	write(t, node, "last\n")
	o.told(func(got []string) bool {
		require.Equal(t, []string{"platform/nodes/n.yaml"}, got)
		return true
	})
}

// A burst is told of once, when it is over; one that does not end, now and then.
func TestWatchGathersBursts(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "platform/nodes/n.yaml"), "0")
	o := start(t, dir, func(w *watcher) { w.quiet, w.longest = 400*time.Millisecond, 2*time.Second })
	for i := range 40 {
		write(t, filepath.Join(dir, fmt.Sprintf("platform/nodes/n%d.yaml", i)), "0")
	}
	o.told(func(got []string) bool {
		require.Len(t, got, 40)
		return true
	})

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ctx.Err() == nil; i++ {
			_ = os.WriteFile(filepath.Join(dir, "platform/nodes/n.yaml"), []byte(strings.Repeat("x", i)), 0o644)
			time.Sleep(20 * time.Millisecond)
		}
	}()
	o.changed("platform/nodes/n.yaml")
	stop()
	<-ended
}

// Where the system does not tell, it is asked; and that is said.
func TestWatchPollsWhereItIsNotTold(t *testing.T) {
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
			o := start(t, dir, func(w *watcher) { w.open, w.poll = open, 10*time.Millisecond })
			o.said("looking every 10ms instead")
			write(t, filepath.Join(dir, "platform/nodes/n.yaml"), "bb")
			o.changed("platform/nodes/n.yaml")
			write(t, filepath.Join(dir, "tenants/x/tenant.yaml"), "a")
			o.changed("tenants/x/tenant.yaml")
			require.Empty(t, o.says, "it is said once")
		})
	}
}

// An estate that goes away, as with a change of branch, may come back.
func TestWatchOutlivesItsDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "estate")
	write(t, filepath.Join(dir, "platform/nodes/n.yaml"), "a")
	o := start(t, dir, func(w *watcher) { w.poll = 10 * time.Millisecond })
	require.NoError(t, os.Rename(dir, dir+"-away"))
	o.said("no such file")
	require.NoError(t, os.Rename(dir+"-away", dir))
	write(t, filepath.Join(dir, "platform/nodes/n.yaml"), "bb")
	o.changed("platform/nodes/n.yaml")
	write(t, filepath.Join(dir, "platform/nodes/n.yaml"), "ccc")
	o.changed("platform/nodes/n.yaml")
}

func TestWatchEndsWithItsLook(t *testing.T) {
	dir := t.TempDir()
	wrong := errors.New("wrong")
	w := newWatcher(func() (sight, error) { return seeEstate(dir) }, func(string, ...any) {})
	require.ErrorIs(t, w.run(t.Context(), func([]string) error { return wrong }), wrong)
}

// process is berth, running.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
}

func berth(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command("berth", args...), lines: make(chan string, 1000)}
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.cmd.Stderr = p.cmd.Stdout
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// prints waits for a line.
func (p *process) prints(pattern string) {
	p.t.Helper()
	timeout := time.After(noticed)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("it ended without printing %s", pattern)
			}
			if regexp.MustCompile(pattern).MatchString(line) {
				return
			}
		case <-timeout:
			p.t.Fatalf("it did not print %s", pattern)
		}
	}
}

// interrupt ends it as Ctrl-C does.
func (p *process) interrupt() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(os.Interrupt))
	for range p.lines { // to its end
	}
	require.NoError(p.t, p.cmd.Wait(), "it ends with status 0")
}

func TestValidateWatch(t *testing.T) {
	dir, _ := estateRepo(t, "../../examples/lab")
	node := filepath.Join(dir, "platform/nodes/dev-gpu-1.yaml")
	right, err := os.ReadFile(node)
	require.NoError(t, err)
	p := berth(t, "validate", "--watch", dir)
	p.prints(`^\d\d:\d\d:\d\d watching ` + regexp.QuoteMeta(dir) + `; interrupt to end$`)
	p.prints(`^\d+ documents, all valid$`)
	write(t, node, strings.Replace(string(right), "address:", "adress:", 1))
	p.prints(`^\d\d:\d\d:\d\d platform/nodes/dev-gpu-1\.yaml changed$`)
	p.prints(`^platform/nodes/dev-gpu-1\.yaml:\d+:\d+: error: spec\.adress: no such field`)
	write(t, node, string(right))
	p.prints(`^\d+ documents, all valid$`)
	p.interrupt()
}

func TestPlanWatch(t *testing.T) {
	dir, git := estateRepo(t, "../../examples/lab")
	change, err := filepath.Abs("../../examples/lab-changes/add.patch")
	require.NoError(t, err)

	// The work tree: new files count, and a commit makes them the base.
	p := berth(t, "plan", "--watch", "--repo", dir)
	p.prints(`^\d\d:\d\d:\d\d watching the work tree `)
	p.prints(`^No instance changes\.$`)
	git("apply", change)
	p.prints(`sweep\.yaml changed$`)
	p.prints(`^\+ physics\.lattice/sweep  \(create\)$`)
	git("add", ".")
	git("commit", "-q", "-m", "sweeps")
	p.prints(`refs/heads/main changed$`)
	p.prints(`^No instance changes\.$`)
	p.interrupt()

	// A patch, which somebody is still editing.
	file := filepath.Join(t.TempDir(), "a.patch")
	write(t, file, "not yet\n")
	require.Error(t, exec.Command("berth", "plan", "--watch", "--repo", dir, "--patch", file).Run(), "what is wrong at first is wrong usage")
	write(t, file, "")
	p = berth(t, "plan", "--watch", "--repo", dir, "--base", "main~1", "--patch", file, "-o", "markdown")
	p.prints(`^\*\*Nothing of the estate changes\.\*\*`)
	write(t, file, "not yet\n")
	p.prints(`^\d\d:\d\d:\d\d plan: --patch: .*there is no patch in it`)
	f, err := os.Open(change)
	require.NoError(t, err)
	defer f.Close()
	text, err := io.ReadAll(f)
	require.NoError(t, err)
	write(t, file, string(text))
	p.prints("physics\\.lattice/sweep")
	p.interrupt()

	// A branch.
	git("branch", "next", "main~1")
	p = berth(t, "plan", "--watch", "--repo", dir, "--base", "main~1", "--head", "next")
	p.prints(`watching next;`)
	p.prints(`^No instance changes\.$`)
	git("branch", "-f", "next", "main")
	p.prints(`refs/heads/next changed$`)
	p.prints(`^\+ physics\.lattice/sweep  \(create\)$`)
	p.interrupt()
}

package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"berth/examples/await"
	"github.com/stretchr/testify/require"
)

// process is a running berth.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
	seen  []string // since the last line that a test waited for
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
	line, open, want := "", true, regexp.MustCompile(pattern)
	for p.seen = nil; open; {
		line = await.Receive(p.t, "a line like "+pattern, p.lines, func() any { return p.seen })
		if want.MatchString(line) {
			return
		}
		p.seen = append(p.seen, line)
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

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
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
	p.prints(`^Ready to merge\. No instance changes\.$`)
	git("apply", change)
	p.prints(`sweep\.yaml changed$`)
	p.prints(`^\+ physics\.lattice/sweep  \(create\)$`)
	git("add", ".")
	git("commit", "-q", "-m", "sweeps")
	p.prints(`refs/heads/main changed$`)
	p.prints(`^Ready to merge\. No instance changes\.$`)
	p.interrupt()

	// A patch that is still being edited.
	file := filepath.Join(t.TempDir(), "a.patch")
	write(t, file, "not yet\n")
	require.Error(t, exec.Command("berth", "plan", "--watch", "--repo", dir, "--patch", file).Run(),
		"an initially invalid patch is a usage error")
	write(t, file, "")
	p = berth(t, "plan", "--watch", "--repo", dir, "--base", "main~1", "--patch", file, "-o", "markdown")
	p.prints(`^\*\*Ready to merge\.\*\* No file of the estate changes\.`)
	write(t, file, "not yet\n")
	p.prints(`^\d\d:\d\d:\d\d plan: --patch: .*it contains no patch`)
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
	p.prints(`^Ready to merge\. No instance changes\.$`)
	git("branch", "-f", "next", "main")
	p.prints(`refs/heads/next changed$`)
	p.prints(`^\+ physics\.lattice/sweep  \(create\)$`)
	p.interrupt()
}

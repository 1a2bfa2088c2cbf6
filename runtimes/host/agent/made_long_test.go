//go:build long

package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
)

// join and leave are small versions of a runtime's actions.
func join(dir string) []runtimes.Op {
	p := func(parts ...string) string { return filepath.Join(append([]string{dir, "open"}, parts...)...) }
	return []runtimes.Op{
		makeDir(p("shared"), 0o755, false), makeDir(p("there"), 0o700, false), makeDir(p("own"), 0o700, true),
		write(p("shared", "conf"), "text"), write(p("there", "key"), "key"), secretOp(p("there", "secret")), write(p("own", "state"), "x"),
		{Link: &runtimes.MakeLink{Path: p("link"), Target: "shared"}},
		user("berthtest", 7742001, false), user("berthtest1", 7742002, false),
	}
}

func hostIsAsBeforeAfterKills(t *testing.T, phase string) {
	kills := 0
	for n := 1; ; n++ {
		f := newFar(t)
		require.NoError(t, os.Mkdir(f.path("open", "there"), 0o750))
		require.NoError(t, os.WriteFile(f.path("open", "there", "munge.key"), []byte("the host's own"), 0o600))
		host, accounts := tree(t, f.dir), contents(t, f.etc)
		killed := false
		if phase == "join" {
			killed = f.killedAfter(n, join(f.dir))
		} else {
			f.do(join(f.dir)...)
		}
		if n%2 == 0 {
			f.do(join(f.dir)...) // joined again, or left at once
			f.do(join(f.dir)...)
		}
		if phase == "leave" {
			killed = f.killedAfter(n, leave(f.dir))
		}
		f.do(leave(f.dir)...)
		f.do(leave(f.dir)...)
		require.Equal(t, host, tree(t, f.dir), "%s, killed after %d changes", phase, n)
		require.Equal(t, accounts, contents(t, f.etc), "%s, killed after %d changes", phase, n)
		if !killed {
			break
		}
		kills++
		require.Less(t, n, 200)
	}
	t.Logf("%s: killed at %d places", phase, kills)
	require.Greater(t, kills, 15)
}

// contents returns the contents of files without inodes, as account files get new ones.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, what := range tree(t, dir) {
		before, rest, _ := strings.Cut(what, " inode ")
		_, content, _ := strings.Cut(rest, " ")
		if name != dir && filepath.Base(name) != ".pwd.lock" { // useradd leaves the lock too
			out[name] = before + content
		}
	}
	return out
}

// After a kill at any point, join and leave restore the host: existing paths keep
// mode, owner, inode and content.
func TestLongHostIsAsBeforeAfterKills(t *testing.T) {
	t.Parallel()
	for _, phase := range []string{"join", "leave"} {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			hostIsAsBeforeAfterKills(t, phase)
		})
	}
}

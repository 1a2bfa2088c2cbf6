package agent_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/runtimes"
	"berth/runtimes/host/agent"
)

func remove(path string) runtimes.Op { return runtimes.Op{Remove: &runtimes.Remove{Path: path}} }

func removeTree(path string) runtimes.Op {
	return runtimes.Op{Remove: &runtimes.Remove{Path: path, Tree: true}}
}

func removeEmpty(path string) runtimes.Op {
	return runtimes.Op{Remove: &runtimes.Remove{Path: path, IfEmpty: true}}
}

func makeDir(path string, mode uint32, own bool) runtimes.Op {
	return runtimes.Op{Dir: &runtimes.MakeDir{Path: path, Mode: mode, Own: own}}
}

func secretOp(path string) runtimes.Op {
	return runtimes.Op{Secret: &runtimes.MakeSecret{Path: path, Bytes: 32, Mode: 0o400}}
}

// tree describes each path below dir: type, mode, owner, inode and content.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		st, err := os.Lstat(name)
		require.NoError(t, err)
		sys := st.Sys().(*syscall.Stat_t)
		content := ""
		if st.Mode().IsRegular() {
			b, err := os.ReadFile(name)
			require.NoError(t, err)
			content = fmt.Sprintf("%x", sha256.Sum256(b))
		} else if st.Mode()&os.ModeSymlink != 0 {
			content, err = os.Readlink(name)
			require.NoError(t, err)
		}
		out[name] = fmt.Sprintf("%s %d:%d inode %d %s", st.Mode(), sys.Uid, sys.Gid, sys.Ino, content)
		return nil
	}))
	return out
}

// The whole request has no effect.
func TestForeignPathsAreSpared(t *testing.T) {
	f := newFar(t)
	file, dir, link := f.path("open", "key"), f.path("open", "data"), f.path("open", "link")
	require.NoError(t, os.WriteFile(file, []byte("the host's own"), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "below"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "below", "file"), nil, 0o600))
	require.NoError(t, os.Symlink(file, link))
	require.NoError(t, os.WriteFile(f.path("log-plaina"), []byte("old lines\n"), 0o600))
	require.NoError(t, os.WriteFile(f.path("state-forka"), nil, 0o600))
	before := tree(t, f.dir)
	for what, op := range map[string]runtimes.Op{
		"write a file":                           write(file, "x"),
		"write the same again":                   {Write: &runtimes.WriteFile{Path: file, Data: []byte("the host's own"), Mode: 0o600}},
		"write over a link":                      write(link, "x"),
		"make a secret":                          secretOp(file),
		"make a link":                            {Link: &runtimes.MakeLink{Path: link, Target: "data"}},
		"make a directory of one's own":          makeDir(dir, 0o755, true),
		"remove a file":                          remove(file),
		"remove a link":                          remove(link),
		"remove a directory":                     remove(dir),
		"remove a tree":                          removeTree(dir),
		"remove a file in a directory":           remove(filepath.Join(dir, "below", "file")),
		"start a service with a foreign log":     service("plain", "a", "start"),
		"restart a service with a foreign state": service("fork", "a", "restart"),
	} {
		r := f.ask(f.stamp(), write(f.path("open", "first"), "x"), op)
		require.NotNil(t, r.Fault, what)
		require.Equal(t, runtimes.CodeForeign, r.Fault.Code, "%s: %v", what, r.Fault)
		require.Contains(t, r.Fault.Error(), "was not made by Berth; move it away, then try again", what)
		require.Empty(t, r.Results, what)
		require.Equal(t, before, tree(t, f.dir), what)
	}
	r := f.ask(f.stamp(), read(file))
	require.Equal(t, runtimes.CodeRefused, r.Fault.Code)
	require.Contains(t, r.Fault.Message, "reads only its own files")
	require.False(t, f.one(removeEmpty(dir)).Changed, "a directory that is shared stays")
	require.False(t, f.one(service("plain", "a", "stop")).Changed)
	require.Equal(t, before, tree(t, f.dir))
	require.False(t, f.one(runtimes.Op{Stat: &runtimes.Stat{Paths: []string{file}}}).Stats[0].Made)
}

// An existing directory is used and kept. One that Berth made is removed only when
// it is empty.
func TestSharedDirectoriesAreKept(t *testing.T) {
	f := newFar(t)
	there, made := f.path("open", "there"), f.path("open", "made")
	require.NoError(t, os.Mkdir(there, 0o750))
	before := tree(t, f.dir)[there]
	res := f.do(makeDir(there, 0o700, false), makeDir(made, 0o700, false), write(filepath.Join(there, "a"), "x"),
		write(filepath.Join(made, "a"), "x"))
	require.False(t, res[0].Changed)
	require.True(t, res[1].Changed)
	require.Equal(t, before, tree(t, f.dir)[there], "mode and owner are the host's")
	foreign := filepath.Join(made, "notes")
	require.NoError(t, os.WriteFile(foreign, []byte("a person's"), 0o600))
	f.fails("refused", removeTree(made))
	f.do(remove(filepath.Join(there, "a")), remove(filepath.Join(made, "a")), removeEmpty(there), removeEmpty(made))
	require.DirExists(t, there)
	require.FileExists(t, foreign)
	require.NoError(t, os.Remove(foreign))
	require.True(t, f.one(removeEmpty(made)).Changed)
	require.NoDirExists(t, made)
	require.False(t, f.one(removeEmpty(made)).Changed)
	require.NoFileExists(t, filepath.Join(f.state, "paths.json"), "nothing is Berth's any more")

	// A directory of Berth's own goes with what its daemon made there.
	own := f.path("open", "own")
	f.do(makeDir(own, 0o700, true))
	require.NoError(t, os.WriteFile(filepath.Join(own, "database"), nil, 0o600))
	f.do(write(filepath.Join(own, "database"), "x"), remove(filepath.Join(own, "database")))
	require.NoError(t, os.WriteFile(filepath.Join(own, "database"), nil, 0o600))
	require.True(t, f.one(removeTree(own)).Changed)
	require.NoDirExists(t, own)
	// A later file of a person is foreign.
	require.NoError(t, os.Mkdir(own, 0o700))
	f.fails("foreign", removeTree(own))
}

// A request that removes a directory keeps the claims of other requests inside it.
func TestClaimOutlivesTheRemovalOfItsDirectory(t *testing.T) {
	f := newFar(t)
	shared := f.path("open", "shared")
	own := filepath.Join(shared, "own")
	f.do(makeDir(shared, 0o755, false), makeDir(own, 0o755, true))
	require.NoError(t, os.Remove(own)) // claimed and not made yet
	require.True(t, f.one(removeEmpty(shared)).Changed)
	require.NoError(t, os.MkdirAll(own, 0o755)) // the other request makes it
	f.do(write(filepath.Join(own, "state"), "x"), removeTree(own))
	require.NoDirExists(t, own)
}

func TestFailedRequestKeepsOnlyClaimsOfMadePaths(t *testing.T) {
	f := newFar(t)
	a, b := f.path("open", "a"), f.path("open", "b")
	r := f.ask(f.stamp(), write(a, "x"), runtimes.Op{Run: &runtimes.Run{Program: "sh", Args: []string{"-c", "exit 1"}}}, write(b, "x"))
	require.Equal(t, runtimes.CodeExit, r.Fault.Code)
	require.NoError(t, os.WriteFile(b, []byte("somebody's"), 0o600))
	f.fails("foreign", write(b, "x"))
	require.True(t, f.one(write(a, "y")).Changed)
}

// Without the helper's record of paths, the instances' records give the paths that Berth made.
func TestLostRecordOfPathsIsDerived(t *testing.T) {
	f := newFar(t)
	key, foreign := f.path("open", "key"), f.path("open", "foreign")
	require.NoError(t, os.WriteFile(key, []byte("Berth's"), 0o600))
	require.NoError(t, os.WriteFile(foreign, []byte("the host's"), 0o600))
	f.fails("foreign", write(key, "x"))
	f.adopt(key, f.path("open", "gone"))
	f.fails("foreign", write(foreign, "x"))
	require.True(t, f.one(runtimes.Op{Stat: &runtimes.Stat{Paths: []string{key}}}).Stats[0].Made)
	require.True(t, f.one(write(key, "new")).Changed)
	f.do(write(f.path("open", "more"), "x")) // a record is kept from here on
	f.derived = nil
	f.agent = f.again()
	require.True(t, f.one(write(key, "newer")).Changed)
	require.True(t, f.one(remove(key)).Changed)
	require.NoError(t, os.WriteFile(f.path("open", "gone"), nil, 0o600))
	f.fails("foreign", remove(f.path("open", "gone")))
	require.FileExists(t, foreign)

	// A damaged record is renamed, and rebuilt from the instances' records.
	f.do(write(key, "newest"))
	require.NoError(t, os.WriteFile(filepath.Join(f.state, "paths.json"), []byte("{"), 0o600))
	f.adopt(key)
	f.fails("foreign", write(foreign, "x"))
	require.True(t, f.one(write(key, "x")).Changed)
	require.FileExists(t, filepath.Join(f.state, "paths.json.damaged"))
}

// The error lists all conflicts with the commands that help.
func TestPreflight(t *testing.T) {
	f := newFar(t)
	self, err := os.Executable()
	require.NoError(t, err)
	program, err := os.ReadFile(self)
	require.NoError(t, err)
	f.program = filepath.Join(t.TempDir(), "berthtestd") // that nobody else runs
	require.NoError(t, os.WriteFile(f.program, program, 0o755))
	f.agent = f.again()
	f.stops("plain", "a")
	pre := func(services ...string) runtimes.Op {
		p := &runtimes.Preflight{Paths: []string{f.path("open", "key"), f.path("one-x")}}
		for _, s := range services {
			p.Services = append(p.Services, runtimes.Service{Name: s, Unit: "a"})
		}
		return runtimes.Op{Preflight: p}
	}
	before := tree(t, f.dir)
	f.one2(pre("plain", "fork")) // needs no leader
	f.do(service("plain", "a", "start"))
	f.one2(pre("plain", "fork")) // Berth's own daemon is not in the way
	f.do(service("plain", "a", "stop"), write(f.path("open", "key"), "x"))
	f.one2(pre("plain"))
	f.do(remove(f.path("open", "key")))
	require.NoError(t, os.Remove(f.path("log-plaina")))
	require.NoError(t, os.Remove(f.path("link-plaina")))
	require.NoError(t, os.Remove(f.path("run-plaina")))
	require.Len(t, tree(t, f.dir), len(before))

	daemon := exec.Command(f.program, "daemon-plain", "nowhere")
	require.NoError(t, daemon.Start())
	defer func() { _ = daemon.Process.Kill(); _ = daemon.Wait() }()
	require.NoError(t, os.WriteFile(f.path("open", "key"), []byte("the host's"), 0o600))
	require.NoError(t, os.WriteFile(f.path("log-forka"), nil, 0o600))
	// Paths without a record are foreign, also those that a test makes.
	before = tree(t, f.dir)
	f.derived = nil
	f.state = t.TempDir()
	f.agent = f.again()
	var msg string
	await.True(t, "the process among what is foreign", func() bool {
		msg = f.fails("foreign", pre("plain", "fork"))
		return strings.Contains(msg, "process")
	}, func() any { return msg })
	require.Contains(t, msg, fmt.Sprintf("(process %d) runs and was not started by Berth; run `kill %[1]d`, then try again",
		daemon.Process.Pid))
	require.Contains(t, msg, f.path("open", "key")+" exists and was not made by Berth")
	require.Contains(t, msg, f.path("log-forka")+" exists and was not made by Berth")
	require.Equal(t, before, tree(t, f.dir))
	require.NoFileExists(t, filepath.Join(f.state, "ledger.jsonl"), "a look leaves no line")
	f.fails("refused", runtimes.Op{Preflight: &runtimes.Preflight{Paths: []string{"/etc/passwd"}}})
	f.fails("refused", runtimes.Op{Preflight: &runtimes.Preflight{Services: []runtimes.Service{{Name: "unknown"}}}})
}

func leave(dir string) []runtimes.Op {
	p := func(parts ...string) string { return filepath.Join(append([]string{dir, "open"}, parts...)...) }
	return []runtimes.Op{
		user("berthtest", 7742001, true), user("berthtest1", 7742002, true),
		remove(p("link")), remove(p("there", "key")), remove(p("there", "secret")), remove(p("shared", "conf")), removeTree(p("own")),
		removeEmpty(p("shared")), removeEmpty(p("there")),
	}
}

// helper serves one request in a process that is killed after a number of changes:
// DIRECTORY STATE ETC CHANGES.
func helper(args []string) error {
	left, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	agent.SetAfterStep(func() {
		if left--; left == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	a := agent.New(agent.Options{Profiles: []runtimes.Profile{profileOf("/proc/self/exe", args[0], nil)}, StateDir: args[1],
		EtcDir: args[2]})
	return a.Serve(context.Background(), os.Stdin, os.Stdout)
}

// killedAfter sends a request to a helper that is killed after n changes, and reports
// whether it was.
func (f *far) killedAfter(n int, ops []runtimes.Op) bool {
	f.Helper()
	line, err := json.Marshal(agent.Request{ID: 1, Stamp: f.stamp(), TimeoutMS: await.Limit.Milliseconds(), Ops: ops})
	require.NoError(f, err)
	cmd := exec.Command(ownProgram, "helper", f.dir, f.state, f.etc, strconv.Itoa(n))
	cmd.Stdin = strings.NewReader(string(line) + "\n")
	out, err := cmd.Output()
	if err == nil {
		require.NotContains(f, string(out), `"fault"`)
		return false
	}
	require.Equal(f, syscall.SIGKILL, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(), "%v: %s", err, out)
	return true
}

func TestLeaveWithoutJoinChangesNothing(t *testing.T) {
	f := newFar(t)
	require.NoError(t, os.Mkdir(f.path("open", "there"), 0o750))
	before := tree(t, f.dir)
	for _, res := range f.do(leave(f.dir)...) {
		require.False(t, res.Changed)
	}
	require.Equal(t, before, tree(t, f.dir))
}

package agent_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/examples/need"
	"berth/runtimes"
	"berth/runtimes/host/agent"
)

func run(program string, args ...string) runtimes.Op {
	return runtimes.Op{Run: &runtimes.Run{Program: program, Args: args, TimeoutMS: serviceTimeout}}
}

// No shell interprets the arguments.
func TestRunArguments(t *testing.T) {
	f := newFar(t)
	hostile := []string{"$(id)", "`id`", "; rm -rf /", "a b", "", "'", `"`, "\\", "*", "~", "|", "&&", "\n", "-v", "--", "é", "\x01", "%s"}
	res := f.one(run("argv", append([]string{`%s\0`}, hostile...)...))
	require.Equal(t, strings.Join(hostile, "\x00")+"\x00", string(res.Data))

	f.fails("refused", run("no-such"))
	f.fails("refused", run("/bin/sh"))
	f.fails("refused", run("../sh"))
	require.Contains(t, f.fails("refused", run("argv")), "no format")
	f.fails("refused", run("sh", "-c", "a\x00b"))
	f.fails("invalid", run("sh", make([]string, 5000)...))
	f.fails("io", run("gone"))
}

func TestRunHasNoInheritedEnvironment(t *testing.T) {
	t.Setenv("BERTH_CANARY", "leaked")
	f := newFar(t)
	res := f.one(runtimes.Op{Run: &runtimes.Run{Program: "sh",
		Args: []string{"-c", "env -u PWD -u _ -u SHLVL -u OLDPWD env | sort; pwd; id -u"}, Env: map[string]string{"ALLOWED": "x y"}}})
	require.Equal(t, "ALLOWED=x y\nHOME=/\nLANG=C.UTF-8\nLC_ALL=C.UTF-8\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\n/\n"+
		strconv.Itoa(os.Geteuid())+"\n", string(res.Data))
	for _, name := range []string{"LD_PRELOAD", "PATH", "", "ALLOWED=x"} {
		f.fails("refused", runtimes.Op{Run: &runtimes.Run{Program: "sh", Env: map[string]string{name: "x"}}})
	}
	for _, value := range []string{"X", "x\n", "x\x00", "/x"} {
		f.fails("refused", runtimes.Op{Run: &runtimes.Run{Program: "sh", Env: map[string]string{"ALLOWED": value}}})
	}
}

// A program whose configuration is missing ends at once: some wait a minute for theirs.
func TestRunWithoutItsConfigurationEndsAtOnce(t *testing.T) {
	f := newFar(t)
	conf := f.path("open", "client.conf")
	run := func(allowExit bool) runtimes.Op {
		return runtimes.Op{Run: &runtimes.Run{Program: "client", Args: []string{"-c", "echo started"},
			Env: map[string]string{"CONFIG": conf}, AllowExit: allowExit}}
	}
	res := f.one(run(true))
	require.Equal(t, []string{"", conf + " is missing"}, []string{string(res.Data), string(res.Stderr)})
	require.Equal(t, 1, res.Exit)
	f.fails("exit", run(false))
	require.NoError(t, os.WriteFile(conf, nil, 0o644))
	require.Equal(t, "started\n", string(f.one(run(false)).Data))
}

func TestRunInputIsChecked(t *testing.T) {
	f := newFar(t)
	in := func(program, stdin string) runtimes.Op {
		return runtimes.Op{Run: &runtimes.Run{Program: program, Args: []string{"-c", "cat"}, Stdin: []byte(stdin)}}
	}
	require.Equal(t, "fine", string(f.one(in("sh", "fine")).Data))
	require.Contains(t, f.fails("refused", in("sh", "x \\e")), "a command of the client")
	require.Contains(t, f.fails("refused", in("look", "x")), "input not allowed")
}

func TestRunAsAPersonHasTheirRightsOnly(t *testing.T) {
	f := newFar(t)
	as := func(program, name string, uid int) runtimes.Op {
		return runtimes.Op{Run: &runtimes.Run{Program: program, Args: []string{"-c", "id -u; id -g; id -G"}, Stdin: []byte("script"),
			As: &runtimes.Person{Name: name, UID: uid}}}
	}
	marie, group := ownUID(0), ownUID(1)
	f.add("passwd", fmt.Sprintf("marie:x:%d:%d::/:/bin/sh\n", marie, group)+
		"boss:x:7742002:7742002::/:/bin/sh\nowner:x:7742003:0::/:/bin/sh\nwheeler:x:7742004:27::/:/bin/sh\n")
	f.add("group", "sudo:x:27:boss\nvideo:x:2600:marie\n")
	require.Contains(t, f.fails("refused", run("person", "-c", "id")), "names none")
	require.Contains(t, f.fails("refused", as("sh", "marie", marie)), "another account")
	require.Contains(t, f.fails("refused", as("person", "marie", marie+1)), fmt.Sprintf("uid %d", marie))
	require.Contains(t, f.fails("refused", as("person", "boss", 7742002)), "sudo")
	require.Contains(t, f.fails("refused", as("person", "wheeler", 7742004)), "sudo")
	require.Contains(t, f.fails("refused", as("person", "owner", 7742003)), "group of root")
	f.fails("refused", as("person", "root", 0))
	f.fails("refused", as("person", "alice", 1500))
	f.fails("notfound", as("person", "nobody-here", 7742009))
	need.Root(t)
	require.Equal(t, fmt.Sprintf("%d\n%d\n%[2]d\n", marie, group), string(f.one(as("person", "marie", marie)).Data))
}

// A program has its script as a file of the person, with a name that it may keep. Afterwards nothing of it is left.
func TestRunGivesAScriptByItsName(t *testing.T) {
	f := newFar(t)
	marie := ownUID(0)
	f.add("passwd", fmt.Sprintf("marie:x:%d:%d::/:/bin/sh\n", marie, ownUID(1)))
	submit := func(change func(*runtimes.Run)) runtimes.Op {
		op := runtimes.Op{Run: &runtimes.Run{
			Program: "submit", Stdin: []byte("cat /proc/self/fd/3 /proc/self/fd/3 | tr '\\0' '\\n'; stat -c '%a %u %n' $0; cat $0 > " +
				"/dev/null && echo read; cat\n"), As: &runtimes.Person{Name: "marie", UID: marie},
			Script: f.path("open", "scripts", "one", "job.sh"), Export: map[string]string{"PLACE": "/tmp"}, TimeoutMS: serviceTimeout,
		}}
		if change != nil {
			change(op.Run)
		}
		return op
	}
	for what, change := range map[string]func(*runtimes.Run){
		"script": func(r *runtimes.Run) { r.Script = "" },
		"not":    func(r *runtimes.Run) { r.Script = f.path("open", "scripts", "one", "..", "job.sh") },
		"PLACE":  func(r *runtimes.Run) { r.Export["PLACE"] = "/tmp\x00PATH=/x" },
		"PATH":   func(r *runtimes.Run) { r.Export["PATH"] = "/tmp" },
		"export": func(r *runtimes.Run) { r.Program, r.Script = "person", "" },
		"job.sh": func(r *runtimes.Run) { r.Program = "person" },
	} {
		require.Contains(t, f.fails("refused", submit(change)), what)
	}
	need.Root(t)
	for dir := f.path("open"); dir != os.TempDir(); dir = filepath.Dir(dir) { // the person finds the file by its name
		require.NoError(t, os.Chmod(dir, 0o711))
	}
	left := f.path("open", "scripts", "one")
	require.NoError(t, os.MkdirAll(filepath.Join(left, "job.sh", "of a killed helper"), 0o755))
	old, young := f.path("open", "scripts", "old"), f.path("open", "scripts", "young")
	for dir, age := range map[string]time.Duration{old: time.Hour, young: time.Minute} {
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.Chtimes(dir, time.Time{}, time.Now().Add(-age)))
	}
	want := fmt.Sprintf("PLACE=/tmp\nPLACE=/tmp\n400 %d %s\nread\n", marie, f.path("open", "scripts", "one", "job.sh"))
	require.Equal(t, want, string(f.one(submit(nil)).Data))
	require.NoDirExists(t, left)
	require.NoDirExists(t, old, "of a helper that was killed long ago")
	require.DirExists(t, young, "its program may still run")
}

func TestRunResults(t *testing.T) {
	f := newFar(t)
	res := f.one(runtimes.Op{Run: &runtimes.Run{Program: "sh", Args: []string{"-c", "cat; echo oops >&2; exit 3"}, Stdin: []byte("in"),
		AllowExit: true}})
	require.Equal(t, runtimes.Result{Data: []byte("in"), Stderr: []byte("oops\n"), Exit: 3}, res)

	r := f.ask(f.stamp(), runtimes.Op{Run: &runtimes.Run{Program: "sh", Args: []string{"-c", "echo oops >&2; exit 3"}}})
	require.Equal(t, &agent.Fault{Op: "run sh -c echo oops >&2; exit 3", Code: "exit", Message: "oops", Exit: 3}, r.Fault)
	require.Contains(t, f.fails("io", run("sh", "-c", "kill -9 $$")), "killed")
	require.Contains(t, f.fails("output", run("sh", "-c", "head -c 9000000 /dev/zero")), "more than 8 MiB")
	require.Len(t, f.one(run("sh", "-c", "head -c 8000000 /dev/zero")).Data, 8000000)
	require.LessOrEqual(t, len(f.fails("exit", run("sh", "-c", "head -c 50000 /dev/zero | tr '\\0' x >&2; exit 1"))), 3000)
	// Control characters cannot forge a line of a log.
	require.Contains(t, f.fails("exit", run("sh", "-c", `printf 'a\033[2Jb\r' >&2; exit 1`)), "a?[2Jb")
}

// The error contains the output. A child outside the group does not delay the answer.
func TestRunTimeoutEndsProgramAndChildren(t *testing.T) {
	f := newFar(t)
	pid := f.path("open", "child")
	// Until the timeout there has to be some output; the next attempt has more time.
	for ms := 200; ; ms *= 2 {
		said := f.fails("timeout", runtimes.Op{Run: &runtimes.Run{Program: "sh",
			Args: []string{"-c", "sleep 3600 & echo $! > " + pid + "; echo so far; wait"}, TimeoutMS: ms}})
		if strings.Contains(said, "so far") {
			break
		}
		require.Less(t, ms, serviceTimeout, said)
	}
	gone(t, pid)
	f.one(run("sh", "-c", "setsid sleep 3600 & echo $! > "+pid)) // an answer that waits for it fails
	kill(t, pid)
	f.fails("invalid", runtimes.Op{Run: &runtimes.Run{Program: "sh", TimeoutMS: -1}})
}

// No program continues for an epoch that its agent no longer holds.
func TestRunEndsWithTheAgent(t *testing.T) {
	f := newFar(t)
	pid := f.path("open", "child")
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer out.Close()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^TestServeForTest$")
	cmd.Env = append(os.Environ(), "AGENT_DIR="+f.dir, "AGENT_STATE="+f.state, "AGENT_ETC="+f.etc)
	cmd.Stdout = out
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := json.Marshal(agent.Request{ID: 1, Stamp: f.stamp(), TimeoutMS: serviceTimeout,
		Ops: []runtimes.Op{{Run: &runtimes.Run{Program: "sh", Args: []string{"-c", "echo $$ > " + pid + "; exec sleep 3600"},
			TimeoutMS: serviceTimeout}}}})
	require.NoError(t, err)
	_, err = in.Write(append(line, '\n'))
	require.NoError(t, err)
	await.True(t, "the pid of the program", func() bool { st, err := os.Stat(pid); return err == nil && st.Size() > 0 },
		func() any { return cmd.ProcessState })
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	gone(t, pid)
	// And its lock is free: the next leader may act.
	f.epoch = 2
	f.do(write(f.path("open", "next"), "x"))
}

// TestServeForTest is the agent process of TestRunEndsWithTheAgent.
func TestServeForTest(t *testing.T) {
	if os.Getenv("AGENT_DIR") == "" {
		f := newFar(t) // run by itself it checks that a session without requests ends well
		require.Empty(t, f.session(f.agent, ""))
		return
	}
	f := &far{T: t, dir: os.Getenv("AGENT_DIR"), state: os.Getenv("AGENT_STATE"), etc: os.Getenv("AGENT_ETC")}
	require.NoError(t, f.again().Serve(t.Context(), os.Stdin, os.Stdout))
}

func pidOf(t *testing.T, file string) int {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	require.NoError(t, err)
	return pid
}

// gone waits until the process in a file has ended or is a zombie.
func gone(t *testing.T, file string) {
	t.Helper()
	pid := pidOf(t, file)
	await.Equal(t, "process "+strconv.Itoa(pid)+" running", false, func() bool { return running(pid) })
}

func running(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(data), ") Z ")
}

func kill(t *testing.T, file string) {
	t.Helper()
	require.NoError(t, syscall.Kill(pidOf(t, file), syscall.SIGKILL))
}

func TestProtocolRefusesInvalidRequests(t *testing.T) {
	f := newFar(t)
	info := `{"id":3,"stamp":{"epoch":0,"commit":"","correlation_id":""},"timeout_ms":1000,"ops":[{"info":{}}]}` + "\n"
	// An invalid request is answered, and the session continues.
	for _, bad := range []string{
		"", "{}", "[]", "null", "garbage", `{"id":1,"ops":[]}`, `{"id":1,"ops":[{}]}`, `{"id":1,"ops":[{"info":{},"list":{"path":"/"}}]}`,
		`{"id":1,"ops":[{"explode":{}}]}`, `{"id":1,"ops":[{"info":{}}],"more":1}`,
		`{"id":1,"ops":[` + strings.Repeat(`{"info":{}},`, agent.MaxOps) + `{"info":{}}]}`,
	} {
		answers := f.session(f.agent, bad+"\n"+info)
		require.Len(t, answers, 2, bad)
		require.Equal(t, runtimes.CodeInvalid, answers[0].Fault.Code, bad)
		require.Nil(t, answers[1].Fault)
		require.Equal(t, "test", answers[1].Results[0].Info.Version)
	}
	// A line without end was cut off: nothing of it is done.
	line, err := json.Marshal(agent.Request{ID: 1, Stamp: f.stamp(), Ops: []runtimes.Op{write(f.path("open", "a"), "x")}})
	require.NoError(t, err)
	require.Error(t, f.agent.Serve(t.Context(), strings.NewReader(string(line)), new(strings.Builder)))
	require.NoFileExists(t, f.path("open", "a"))
	require.ErrorIs(t, f.agent.Serve(t.Context(), strings.NewReader(strings.Repeat("x", agent.MaxRequest+1)+"\n"), new(strings.Builder)),
		agent.ErrTooLong)

	// The results of a request are bounded.
	big := f.path("open", "big")
	f.do(write(big, "x")) // Berth made it
	require.NoError(t, os.WriteFile(big, make([]byte, 4<<20), 0o600))
	whole := runtimes.Op{Read: &runtimes.ReadFile{Path: big, Max: 4 << 20}}
	require.Len(t, f.do(whole, whole), 2)
	r := f.ask(f.stamp(), whole, whole, whole)
	require.Equal(t, runtimes.CodeInvalid, r.Fault.Code)
	require.Len(t, r.Results, 2)
	// Operations after the timeout are skipped.
	line, err = json.Marshal(agent.Request{ID: 1, Stamp: f.stamp(), TimeoutMS: 100,
		Ops: []runtimes.Op{sleep("5"), write(f.path("open", "late"), "x")}})
	require.NoError(t, err)
	require.Equal(t, runtimes.CodeTimeout, f.session(f.agent, string(line)+"\n")[0].Fault.Code)
	require.NoFileExists(t, f.path("open", "late"))
}

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	target, digest := filepath.Join(dir, "berth-host"), filepath.Join(dir, "digest")
	require.NoError(t, os.WriteFile(target, []byte("old"), 0o755))
	sum := sha256.Sum256([]byte("new"))
	require.NoError(t, os.WriteFile(digest, []byte(hex.EncodeToString(sum[:])+"  berth-host\n"), 0o644))
	content := func() string {
		data, err := os.ReadFile(target)
		require.NoError(t, err)
		return string(data)
	}
	if os.Geteuid() != 0 { // the file that decides is not root's
		require.ErrorContains(t, agent.Replace(strings.NewReader("new"), target, digest), "has to belong to root")
		return
	}
	require.ErrorContains(t, agent.Replace(strings.NewReader("evil"), target, digest), "want "+hex.EncodeToString(sum[:]))
	require.NoError(t, os.Chmod(digest, 0o666))
	require.ErrorContains(t, agent.Replace(strings.NewReader("new"), target, digest), "writable by root only")
	require.NoError(t, os.Chmod(digest, 0o644))
	require.ErrorContains(t, agent.Replace(strings.NewReader("new"), target, digest+".none"), "no such file")
	require.Equal(t, "old", content())
	require.NoError(t, agent.Replace(strings.NewReader("new"), target, digest))
	require.Equal(t, "new", content())
	st, err := os.Stat(target)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), st.Mode().Perm())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 2)
}

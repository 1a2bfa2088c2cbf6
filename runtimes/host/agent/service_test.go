package agent_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/examples/need"
	"berth/runtimes"
	"berth/runtimes/host/agent"
	"berth/runtimes/host/hosttest"
)

// serviceTimeout is longer than a request of these tests lasts (await.Limit): an operation
// that waits for it fails.
const serviceTimeout = 600_000

func service(name, unit, verb string) runtimes.Op {
	return runtimes.Op{Service: &runtimes.Service{Name: name, Unit: unit, Verb: verb, TimeoutMS: serviceTimeout}}
}

// stops stops the services of a test.
func (f *far) stops(name string, units ...string) {
	f.Cleanup(func() {
		for _, u := range units {
			f.one(service(name, u, "kill"))
		}
	})
}

func TestServiceLife(t *testing.T) {
	for _, name := range []string{"plain", "fork"} {
		t.Run(name, func(t *testing.T) {
			f := newFar(t)
			f.stops(name, "a")
			require.Equal(t, &runtimes.ServiceStatus{}, f.one(service(name, "a", "state")).Service)
			require.False(t, f.one(service(name, "a", "stop")).Changed, "nothing to stop")

			begun := time.Now()
			up := f.one(service(name, "a", "start"))
			require.True(t, up.Changed)
			require.True(t, up.Service.Running)
			require.Equal(t, pidOf(t, f.path("run-"+name+"a", "pid")), up.Service.PID)
			const resolution = 5 * time.Second // of the start of a process in /proc
			require.WithinRange(t, up.Service.Since, begun.Add(-resolution), time.Now().Add(resolution))
			link, err := os.Readlink(f.path("link-" + name + "a"))
			require.NoError(t, err)
			require.Equal(t, f.path("run-"+name+"a"), link)
			sid, err := sessionOf(up.Service.PID)
			require.NoError(t, err)
			require.Equal(t, up.Service.PID, sid, "in a session of its own")

			again := f.one(service(name, "a", "start"))
			require.False(t, again.Changed, "it runs already")
			require.Equal(t, up.Service.PID, again.Service.PID)

			// Killed: dead at once, and started again past its stale pid file.
			require.NoError(t, syscall.Kill(up.Service.PID, syscall.SIGKILL))
			await.Equal(t, "the service running", false, func() bool { return f.one(service(name, "a", "state")).Service.Running })
			up = f.one(service(name, "a", "start"))
			require.True(t, up.Changed && up.Service.Running)
			next := f.one(service(name, "a", "restart"))
			require.True(t, next.Changed && next.Service.Running)
			require.NotEqual(t, up.Service.PID, next.Service.PID)

			down := f.one(service(name, "a", "stop"))
			require.True(t, down.Changed)
			require.False(t, down.Service.Running)
			require.False(t, running(next.Service.PID))
			require.NoFileExists(t, f.path("run-"+name+"a", "pid"))
		})
	}
}

func sessionOf(pid int) (int, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	var state string
	var parent, group, session int
	_, rest, _ := strings.Cut(string(data), ") ")
	_, err = fmt.Sscan(rest, &state, &parent, &group, &session)
	return session, err
}

// Another unit of the service is not stopped.
func TestServiceThatIgnoresSIGTERMIsKilled(t *testing.T) {
	for _, name := range []string{"stubborn", "fork-stubborn"} {
		f := newFar(t)
		f.stops(name, "a", "b")
		a, b := f.one(service(name, "a", "start")).Service.PID, f.one(service(name, "b", "start")).Service.PID
		begun := time.Now()
		f.do(runtimes.Op{Service: &runtimes.Service{Name: name, Unit: "a", Verb: "stop", TimeoutMS: 200}})
		require.Greater(t, time.Since(begun), 200*time.Millisecond)
		require.False(t, running(a))
		require.True(t, running(b))
		require.True(t, f.one(service(name, "b", "kill")).Changed, "it waits for no SIGTERM")
		require.False(t, running(b))
	}
}

// A stopped process ends by itself, in time to write its state.
func TestStoppedServiceIsNotKilled(t *testing.T) {
	f := newFar(t)
	f.stops("saves", "a")
	pid := f.one(service("saves", "a", "start")).Service.PID
	exists := func(what string) bool {
		_, err := os.Stat(f.path("run-savesa", "pid."+what))
		return err == nil
	}
	await.Equal(t, "the daemon ready for signals", true, func() bool { return exists("ready") })
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	require.True(t, f.one(service("saves", "a", "stop")).Changed)
	require.True(t, exists("saved"))
	require.False(t, running(pid))
}

// A pid file with another process, after a reuse of the id or a forgery, does not
// count as the service, and that process gets no signal.
func TestServiceSparesOtherProcesses(t *testing.T) {
	f := newFar(t)
	f.stops("plain", "a", "b")
	b := f.one(service("plain", "b", "start")).Service.PID
	other := exec.Command("sleep", "3600")
	require.NoError(t, other.Start())
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	require.NoError(t, os.MkdirAll(f.path("run-plaina"), 0o755))
	for _, pid := range []int{other.Process.Pid, b, os.Getpid(), 1, 0, -1} {
		require.NoError(t, os.WriteFile(f.path("run-plaina", "pid"), fmt.Appendln(nil, pid), 0o644))
		require.False(t, f.one(service("plain", "a", "state")).Service.Running, "%d", pid)
		require.False(t, f.one(service("plain", "a", "stop")).Changed)
		require.False(t, f.one(service("plain", "a", "kill")).Changed)
	}
	require.True(t, running(other.Process.Pid) && running(b))
	// One of the same program, which the distribution may have started: say so.
	require.NoError(t, os.WriteFile(f.path("run-plaina", "pid"), fmt.Appendln(nil, b), 0o644))
	require.Contains(t, f.fails("refused", service("plain", "a", "start")), "stop the distribution's own service first")
	// A stale file of a number that is now something else does not keep it down.
	require.NoError(t, os.WriteFile(f.path("run-plaina", "pid"), fmt.Appendln(nil, other.Process.Pid), 0o644))
	require.True(t, f.one(service("plain", "a", "start")).Service.Running)
}

// Without its pid file, for example after a cleanup of /run, the daemon is ended before
// the next one starts.
func TestServiceWithoutItsPidFile(t *testing.T) {
	f := newFar(t)
	f.stops("fork", "a")
	first := f.one(service("fork", "a", "start")).Service.PID
	require.NoError(t, os.Remove(f.path("run-forka", "pid")))
	second := f.one(service("fork", "a", "start")).Service.PID
	require.NotEqual(t, first, second)
	require.False(t, running(first))
	require.NoError(t, os.Remove(f.path("run-forka", "pid")))
	require.True(t, f.one(service("fork", "a", "stop")).Changed)
	require.False(t, running(second))
}

// A daemon that replaces itself by another process runs all the time, and is not started.
func TestServiceThatReplacesItself(t *testing.T) {
	f := newFar(t)
	f.times.ReplaceTime = await.Limit
	f.agent = f.again()
	f.stops("fork", "a")
	first := f.one(service("fork", "a", "start")).Service.PID
	require.NoError(t, syscall.Kill(first, syscall.SIGHUP))
	second := first
	await.True(t, "the pid file of the next process", func() bool {
		second = pidOf(t, f.path("run-forka", "pid"))
		require.True(t, f.one(service("fork", "a", "state")).Service.Running)
		return second != first
	}, func() any { return second })
	require.NoError(t, syscall.Kill(second, syscall.SIGHUP))
	await.Equal(t, "the second process running", false, func() bool { return running(second) })
	require.False(t, f.one(service("fork", "a", "start")).Changed)
	require.NotEqual(t, second, f.one(service("fork", "a", "state")).Service.PID)
}

func TestServiceThatDoesNotStart(t *testing.T) {
	f := newFar(t)
	require.NoError(t, os.WriteFile(f.path("log-short"), []byte("an earlier line\n"), 0o600))
	require.NoError(t, os.WriteFile(f.path("log-fork-dies"), []byte("fatal: the state is locked\n"), 0o600))
	f.times.StartTime = await.Limit // the process needs some time to begin and to end
	f.adopt(f.path("log-short"), f.path("log-fork-dies"))
	msg := f.fails("io", service("short", "", "start"))
	require.Contains(t, msg, "short did not start: ended right after its start")
	require.Contains(t, msg, "line 7 is wrong", "its log explains it")
	require.NoFileExists(t, f.path("run-short", "pid"))

	require.Contains(t, f.fails("io", service("fork-dies", "", "start")), "fatal: the state is locked", "not waited for to the end")

	slow := runtimes.Op{Service: &runtimes.Service{Name: "slow", Verb: "start", TimeoutMS: 200}}
	require.Contains(t, f.fails("io", slow), "did not daemonize within 200ms")
	require.Empty(t, hosttest.Processes(t, f.path("run-slow")), "nothing of it stays")

	f.fails("refused", service("unknown", "", "start"))
	f.fails("refused", service("plain", "../x", "start"))
	f.fails("refused", runtimes.Op{Service: &runtimes.Service{Name: "plain", Params: map[string]string{"x": "y"}, Verb: "start"}})
	f.fails("invalid", service("plain", "a", "explode"))
	f.fails("invalid", runtimes.Op{Service: &runtimes.Service{Name: "plain", Verb: "start", TimeoutMS: -1}})
}

// Only clear ends processes of a daemon, which may be jobs. Those of another unit stay.
func TestClearEndsWhatADaemonLeft(t *testing.T) {
	f := newFar(t)
	a, b := ownUnit("a"), ownUnit("b")
	f.stops("parent", a, b)
	f.do(service("parent", a, "start"), service("parent", b, "start"))
	left := func(unit string) []int {
		return marked(t, "BERTH_SERVICE=parent/"+unit, "sleep")
	}
	await.True(t, "a child of each daemon", func() bool { return len(left(a)) == 1 && len(left(b)) == 1 },
		func() any { return [][]int{left(a), left(b)} })
	f.do(service("parent", a, "stop"))
	require.Len(t, left(a), 1)
	require.True(t, f.one(service("parent", a, "clear")).Changed)
	require.Empty(t, left(a))
	require.Len(t, left(b), 1)
	require.False(t, f.one(service("parent", a, "clear")).Changed)
	f.do(service("parent", b, "clear"))
	require.Empty(t, left(b))
}

// marked returns the processes of a program with entry in their environment.
func marked(t *testing.T, entry, program string) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	var pids []int
	for _, name := range files {
		env, _ := os.ReadFile(name) // it may have ended
		comm, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "comm"))
		if strings.TrimSpace(string(comm)) == program && strings.Contains("\x00"+string(env), "\x00"+entry+"\x00") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// Concurrent starts make one daemon.
func TestServiceStartedOnce(t *testing.T) {
	f := newFar(t)
	f.stops("fork", "a")
	changed := make(chan bool, 6)
	var wait sync.WaitGroup
	for range 6 {
		a := f.again()
		wait.Go(func() {
			r := f.askOf(a, f.stamp(), service("fork", "a", "start"))
			changed <- r.Fault == nil && r.Results[0].Changed
		})
	}
	wait.Wait()
	n := 0
	for range 6 {
		if <-changed {
			n++
		}
	}
	require.Equal(t, 1, n)
	require.Len(t, hosttest.Processes(t, f.path("run-forka")), 1)
}

func TestServiceOutlivesTheAgentAsItsAccount(t *testing.T) {
	need.Root(t)
	f := newFar(t)
	// Where the account can write its pid file and read the program.
	require.NoError(t, os.Chmod(f.dir, 0o755))
	pid := "/run/berth-test-" + fmt.Sprint(os.Getpid())
	a := agent.New(agent.Options{StateDir: f.state, EtcDir: f.etc,
		Profiles: []runtimes.Profile{{Services: map[string]func(string, map[string]string) (runtimes.ServiceSpec, error){
			"sleep": func(string, map[string]string) (runtimes.ServiceSpec, error) {
				return runtimes.ServiceSpec{Path: "/usr/bin/sleep", Args: []string{"3600"}, User: "daemon", PIDFile: pid + "/pid",
					LogFile: pid + "/log", RunDirs: []runtimes.MakeDir{{Path: pid, Mode: 0o750, Owner: "daemon"}}}, nil
			},
			"nobody": func(string, map[string]string) (runtimes.ServiceSpec, error) {
				return runtimes.ServiceSpec{Path: "/usr/bin/sleep", User: "missing", PIDFile: pid + "/pid2"}, nil
			},
		}}}})
	t.Cleanup(func() {
		require.Nil(t, f.askVersionless(a, service("sleep", "", "kill")).Fault)
		require.NoError(t, os.RemoveAll(pid))
	})
	r := f.askVersionless(a, service("sleep", "", "start"))
	require.Nil(t, r.Fault, "%v", r.Fault)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.Results[0].Service.PID))
	require.NoError(t, err)
	require.Contains(t, string(status), "Uid:\t1\t1\t1\t1\n")
	require.Contains(t, string(status), "Gid:\t1\t1\t1\t1\n")
	require.Contains(t, string(status), "Groups:\t4 \n", "and its further groups, none of root's")
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", r.Results[0].Service.PID))
	require.NoError(t, err)
	require.Equal(t, "PATH=/usr/sbin:/usr/bin:/sbin:/bin\x00LANG=C.UTF-8\x00LC_ALL=C.UTF-8\x00HOME=/\x00BERTH_SERVICE=sleep/\x00",
		string(env))
	require.Equal(t, runtimes.CodeNotFound, f.askVersionless(a, service("nobody", "", "start")).Fault.Code)
}

// askVersionless sends a request to an agent without a version.
func (f *far) askVersionless(a *agent.Agent, op runtimes.Op) agent.Response {
	f.Helper()
	return exchange(f.T, a, agent.Request{ID: 1, Stamp: f.stamp(), TimeoutMS: await.Limit.Milliseconds(), Ops: []runtimes.Op{op}})
}

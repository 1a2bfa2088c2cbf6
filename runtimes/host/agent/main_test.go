package agent_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/runtimes"
	"berth/runtimes/host/agent"
)

// TestMain acts as a daemon if a test starts the program as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "helper" {
		if err := helper(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "daemon-") {
		if err := daemon(os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(runTests(m))
}

// ownProgram is a copy of this program. A helper finds the processes of a service by program,
// name and unit, also those of another run of these tests on this machine. Its name is unique.
var ownProgram string

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "program")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	text, err := os.ReadFile("/proc/self/exe")
	ownProgram = filepath.Join(dir, fmt.Sprintf("a%d", os.Getpid()))
	if err := errors.Join(err, os.WriteFile(ownProgram, text, 0o755)); err != nil {
		panic(err)
	}
	return m.Run()
}

// ownUnit returns the name of a unit that no other run of these tests uses: clear ends all processes
// of a unit, with any program.
func ownUnit(name string) string { return fmt.Sprintf("%s%d", name, os.Getpid()) }

// ownUID returns a uid that no other run of these tests uses: the processes of an account that
// is removed are ended.
func ownUID(n int) int { return 10_000_000 + os.Getpid()*10 + n }

// lifetime limits a daemon that its test has left running: it is far longer than a test.
const lifetime = time.Hour

// daemon runs a kind of daemon: the first argument is the kind, the second its pid file.
func daemon(mode string, args []string) error {
	live := func() error {
		time.Sleep(lifetime)
		return nil
	}
	switch mode {
	case "daemon-plain":
		return live()
	case "daemon-saves": // writes its state when it is asked to end
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		if err := os.WriteFile(args[0]+".ready", nil, 0o644); err != nil {
			return err
		}
		<-asked
		return os.WriteFile(args[0]+".saved", nil, 0o644)
	case "daemon-parent": // leaves a process behind when it ends
		child := exec.Command("/bin/sleep", "3600")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			return err
		}
		return live()
	case "daemon-stubborn":
		signal.Ignore(syscall.SIGTERM)
		return live()
	case "daemon-short":
		return fmt.Errorf("configuration: line 7 is wrong")
	case "daemon-slow": // never gets into the background
		return live()
	case "daemon-fork", "daemon-fork-dies", "daemon-fork-stubborn":
		// As daemon(3): the parent leaves at once, the child writes the pid file.
		cmd := exec.Command("/proc/self/exe", strings.Replace(mode, "fork", "child", 1), args[0])
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return cmd.Start()
	case "daemon-child-dies":
		return nil
	case "daemon-child-stubborn":
		signal.Ignore(syscall.SIGTERM)
		fallthrough
	case "daemon-child", "daemon-child-late":
		time.Sleep(map[bool]time.Duration{false: 30, true: 300}[mode == "daemon-child-late"] * time.Millisecond)
		reload := make(chan os.Signal, 1)
		signal.Notify(reload, syscall.SIGHUP)
		if err := os.WriteFile(args[0], fmt.Appendln(nil, os.Getpid()), 0o644); err != nil {
			return err
		}
		select {
		case <-reload: // a new process takes over
			return exec.Command("/proc/self/exe", "daemon-child-late", args[0]).Start()
		case <-time.After(lifetime):
			return nil
		}
	}
	return fmt.Errorf("no daemon %s", mode)
}

// far is an agent with a profile over a temporary directory.
type far struct {
	*testing.T
	dir     string // what the profile allows
	state   string
	etc     string
	agent   *agent.Agent
	epoch   uint64
	derived []runtimes.DerivedPath
	program string        // of the daemons; empty: ownProgram
	times   agent.Options // its StartTime and ReplaceTime
}

// adopt adds paths to the record, as if Berth had made them.
func (f *far) adopt(paths ...string) {
	for _, p := range paths {
		f.derived = append(f.derived, runtimes.DerivedPath{Path: p, Own: true})
	}
	f.agent = f.again()
}

func newFar(t *testing.T) *far {
	t.Helper()
	f := &far{T: t, dir: filepath.Join(t.TempDir(), "host"), state: filepath.Join(t.TempDir(), "state"), etc: t.TempDir(), epoch: 1}
	require.NoError(t, os.MkdirAll(filepath.Join(f.dir, "open"), 0o755))
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(f.etc, name), []byte(text), 0o644))
	}
	write("passwd", "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/:/bin/false\nalice:x:1500:1500::/home/alice:/bin/sh\n+nis\n")
	write("group", "root:x:0:\ndaemon:x:1:\nadm:x:4:daemon\nalice:x:1500:\nlonely:x:1700:\n")
	write("shadow", "root:*:1:0:99999:7:::\n")
	f.agent = f.again()
	return f
}

// add adds lines to a table of accounts.
func (f *far) add(table, lines string) {
	f.Helper()
	name := filepath.Join(f.etc, table)
	old, err := os.ReadFile(name)
	require.NoError(f, err)
	require.NoError(f, os.WriteFile(name, append(old, lines...), 0o644))
}

// again returns another agent on the same machine.
func (f *far) again() *agent.Agent {
	return agent.New(agent.Options{Profiles: []runtimes.Profile{f.profile()}, StateDir: f.state, EtcDir: f.etc, Version: "test",
		StartTime: f.times.StartTime, ReplaceTime: f.times.ReplaceTime})
}

func (f *far) profile() runtimes.Profile {
	return profileOf(cmp.Or(f.program, ownProgram), f.dir, f.derived)
}

// profileOf returns a profile for a directory, with the program self as daemon.
func profileOf(self, dir string, derived []runtimes.DerivedPath) runtimes.Profile {
	service := func(mode string, forks bool) func(string, map[string]string) (runtimes.ServiceSpec, error) {
		return func(unit string, params map[string]string) (runtimes.ServiceSpec, error) {
			if strings.ContainsAny(unit, "/. ") || len(params) > 0 {
				return runtimes.ServiceSpec{}, fmt.Errorf("unit %q", unit)
			}
			run := filepath.Join(dir, "run-"+mode+unit)
			pid := filepath.Join(run, "pid")
			return runtimes.ServiceSpec{
				Path: self, Args: []string{"daemon-" + mode, pid}, Env: []string{"UNIT=" + unit}, PIDFile: pid, Forks: forks,
				LogFile: filepath.Join(dir, "log-"+mode+unit),
				RunDirs: []runtimes.MakeDir{{Path: run, Mode: 0o755}},
				Links:   []runtimes.MakeLink{{Path: filepath.Join(dir, "link-"+mode+unit), Target: run}},
				Files:   []string{filepath.Join(dir, "state-"+mode+unit)}, DistributionUnit: "berth-test-" + mode,
			}, nil
		}
	}
	return runtimes.Profile{
		Name:      "test",
		Paths:     []string{dir + "/open", dir + "/open/**", dir + "/one-*", dir + "/*/fixed"},
		UserDirs:  dir + "/open/jobs",
		StatPaths: []string{"/dev/**"},
		HashPaths: []string{dir + "/hashed/*"}, SecretPaths: []string{dir + "/open/s"},
		Programs: map[string]runtimes.Program{
			"sh": {Path: "/bin/sh", Env: map[string]*regexp.Regexp{"ALLOWED": regexp.MustCompile(`[a-z ]*`)},
				CheckStdin: func(in []byte) error {
					if strings.Contains(string(in), "\\e") {
						return fmt.Errorf("a command of the client")
					}
					return nil
				}},
			"client": {Path: "/bin/sh", Env: map[string]*regexp.Regexp{"CONFIG": regexp.MustCompile(dir + `/open/[a-z.]+`)},
				Config: "CONFIG"},
			"person": {Path: "/bin/sh", AsPerson: true},
			"submit": {
				Path: "/bin/sh", AsPerson: true, Scripts: regexp.MustCompile(dir + `/open/scripts/[a-z]+/[a-z.]+`),
				Export: map[string]*regexp.Regexp{"PLACE": regexp.MustCompile(`/[a-z]+`)},
			},
			"argv": {Path: "/usr/bin/printf", Check: func(args []string) error {
				if len(args) == 0 {
					return fmt.Errorf("no format")
				}
				return nil
			}},
			"look": {Path: "/bin/sh", Reads: func(args []string) bool { return len(args) == 2 }},
			"gone": {Path: dir + "/no-such-program"},
		},
		Services: map[string]func(string, map[string]string) (runtimes.ServiceSpec, error){
			"plain": service("plain", false), "stubborn": service("stubborn", false), "short": service("short", false),
			"parent": service("parent", false), "saves": service("saves", false),
			"fork": service("fork", true), "fork-dies": service("fork-dies", true), "fork-stubborn": service("fork-stubborn", true),
			"slow": service("slow", true),
		},
		CheckMake: func(m runtimes.Making) error {
			if strings.HasSuffix(m.Path, "-never") || strings.Contains(string(m.Data), "PluginDir") {
				return fmt.Errorf("no %s like this", m.Kind)
			}
			return nil
		},
		DerivePaths: func(fs.FS) []runtimes.DerivedPath { return derived },
		IsUID:       func(uid int) bool { return uid >= 7742000 && uid <= ownUID(9)+1 },
	}
}

// ask sends a request in a new session and returns the answer.
func (f *far) ask(stamp runtimes.Stamp, ops ...runtimes.Op) agent.Response {
	f.Helper()
	return f.askOf(f.agent, stamp, ops...)
}

func (f *far) askOf(a *agent.Agent, stamp runtimes.Stamp, ops ...runtimes.Op) agent.Response {
	f.Helper()
	line, err := json.Marshal(agent.Request{ID: 7, Stamp: stamp, TimeoutMS: await.Limit.Milliseconds(), Ops: ops})
	require.NoError(f, err)
	lines := f.session(a, string(line)+"\n")
	require.Len(f, lines, 1)
	require.Equal(f, uint64(7), lines[0].ID)
	return lines[0]
}

// session sends bytes to an agent and returns its answers after the hello.
func (f *far) session(a *agent.Agent, input string) []agent.Response {
	f.Helper()
	var out bytes.Buffer
	err := a.Serve(context.Background(), strings.NewReader(input), &out)
	require.NoError(f, err)
	dec := json.NewDecoder(&out)
	var hello agent.Hello
	require.NoError(f, dec.Decode(&hello))
	require.Equal(f, agent.Hello{Berth: agent.Protocol, Version: "test"}, hello)
	var all []agent.Response
	for dec.More() {
		var r agent.Response
		require.NoError(f, dec.Decode(&r))
		all = append(all, r)
	}
	return all
}

func (f *far) stamp() runtimes.Stamp {
	return runtimes.Stamp{Epoch: f.epoch, Commit: "c0ffee", CorrelationID: "corr", ActionID: "action-1", Verb: "create"}
}

// do runs operations that have to succeed.
func (f *far) do(ops ...runtimes.Op) []runtimes.Result {
	f.Helper()
	r := f.ask(f.stamp(), ops...)
	require.Nil(f, r.Fault, "%v", r.Fault)
	require.Len(f, r.Results, len(ops))
	return r.Results
}

func (f *far) one(op runtimes.Op) runtimes.Result {
	f.Helper()
	return f.do(op)[0]
}

// fails runs an operation that has to fail with a code.
func (f *far) fails(code runtimes.OpCode, op runtimes.Op) string {
	f.Helper()
	r := f.ask(f.stamp(), op)
	require.NotNil(f, r.Fault, "%+v", r.Results)
	require.Equal(f, code, r.Fault.Code, "%v", r.Fault)
	require.Empty(f, r.Results)
	return r.Fault.Error()
}

func (f *far) path(parts ...string) string {
	return filepath.Join(append([]string{f.dir}, parts...)...)
}

// exchange sends a request in a new session.
func exchange(t *testing.T, a *agent.Agent, req agent.Request) agent.Response {
	t.Helper()
	line, err := json.Marshal(req)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, a.Serve(context.Background(), bytes.NewReader(append(line, '\n')), &out))
	_, answer, found := strings.Cut(out.String(), "\n")
	require.True(t, found)
	var r agent.Response
	require.NoError(t, json.Unmarshal([]byte(answer), &r))
	return r
}

package host_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/host"
	"berth/runtimes/host/hosttest"
	"berth/runtimes/host/lab"
)

// place is a host with a transport, and the directory that its profile allows.
type place struct {
	hosts runtimes.Hosts
	host  runtimes.Host
	dir   string
}

// directory makes the files of a host on this machine.
func directory(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "etc"), 0o755))
	for name, text := range map[string]string{"passwd": "root:x:0:0:root:/root:/bin/sh\n", "group": "root:x:0:\n",
		"shadow": "root:*:1::::::\n", "hosts": ""} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "etc", name), []byte(text), 0o644))
	}
	return dir
}

func closed(t testing.TB, h runtimes.Hosts) runtimes.Hosts {
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return h
}

func inProcess(t testing.TB) place {
	t.Helper()
	dir := directory(t)
	hosts := host.NewInProcess(newAgent(dir, filepath.Join(dir, "state"), filepath.Join(dir, "etc")))
	return place{closed(t, hosts), hosts.Host(plan.Member{Node: "here"}), dir}
}

func subprocess(t testing.TB) place {
	t.Helper()
	dir := directory(t)
	self, err := os.Executable()
	require.NoError(t, err)
	hosts := host.NewSubprocess(self, "serve", dir)
	return place{closed(t, hosts), hosts.Host(plan.Member{Node: "here"}), dir}
}

// stand makes a lab whose hosts run this test binary as berth-host.
func stand(t testing.TB, names ...string) *lab.Lab {
	t.Helper()
	hosttest.NeedLab(t)
	self, err := os.Executable()
	require.NoError(t, err)
	c := lab.Config{Dir: filepath.Join(t.TempDir(), "lab"), Helper: self, Auto: true}
	for i, name := range names {
		c.Nodes = append(c.Nodes, lab.Node{Name: name, Address: fmt.Sprintf("10.77.0.%d", 10+i)})
	}
	l, err := lab.Up(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Down(context.Background())) })
	for _, n := range l.Nodes {
		_, err := l.Run(t.Context(), n.Name, "mkdir", "-p", base)
		require.NoError(t, err)
	}
	return l
}

// reach returns hosts over SSH; change modifies the options.
func reach(t testing.TB, l *lab.Lab, change ...func(*host.SSHOptions)) runtimes.Hosts {
	t.Helper()
	o := host.SSHOptions{User: l.User(), KeyFile: l.KeyFile(), KnownHosts: l.KnownHosts(), Log: slog.New(slog.DiscardHandler),
		DialTimeout: await.Limit, KeepAlive: await.Limit, Margin: await.Limit}
	for _, c := range change {
		c(&o)
	}
	hosts, err := host.NewSSH(o)
	require.NoError(t, err)
	return closed(t, hosts)
}

func member(t testing.TB, l *lab.Lab, name string) plan.Member {
	t.Helper()
	n, ok := l.Node(name)
	require.True(t, ok)
	return plan.Member{Node: name, Address: n.Address, SSHPort: 22}
}

func stamp() runtimes.Stamp {
	return runtimes.Stamp{Epoch: 1, Leader: "leader-a", Commit: "c0ffee", CorrelationID: "corr", ActionID: "act", Verb: "create"}
}

func info() runtimes.Op { return runtimes.Op{Info: &runtimes.Info{}} }

// timeout is longer than await.Limit: a call that lasts until it fails its test.
const timeout = 600_000

func shell(script string) runtimes.Op {
	return runtimes.Op{Run: &runtimes.Run{Program: "sh", Args: []string{"-c", script}, TimeoutMS: timeout}}
}

func write(path, text string) runtimes.Op {
	return runtimes.Op{Write: &runtimes.WriteFile{Path: path, Data: []byte(text), Mode: 0o600}}
}

func TestTransportsBehaveTheSame(t *testing.T) {
	t.Run("in process", func(t *testing.T) {
		t.Parallel()
		conform(t, inProcess(t))
	})
	t.Run("subprocess", func(t *testing.T) {
		t.Parallel()
		conform(t, subprocess(t))
	})
	t.Run("ssh", func(t *testing.T) {
		t.Parallel()
		l := stand(t, "w1")
		hosts := reach(t, l)
		conform(t, place{hosts, hosts.Host(member(t, l, "w1")), base})
	})
}

func conform(t *testing.T, p place) {
	ctx := t.Context()
	file := filepath.Join(p.dir, "file")
	// The helper finds a service's processes by its name and unit, also those of another helper on
	// this machine.
	digest := fnv.New32a()
	_, _ = digest.Write([]byte(p.dir))
	unit := fmt.Sprintf("u%x", digest.Sum32())
	do := func(ops ...runtimes.Op) []runtimes.Result {
		t.Helper()
		res, err := p.host.Do(ctx, stamp(), ops...)
		require.NoError(t, err)
		require.Len(t, res, len(ops))
		return res
	}
	t.Run("a batch runs in order", func(t *testing.T) {
		res := do(write(file, "content"), runtimes.Op{Read: &runtimes.ReadFile{Path: file}},
			shell("cat "+file), runtimes.Op{Service: &runtimes.Service{Name: "sleeper", Unit: unit, Verb: "start"}},
			runtimes.Op{User: &runtimes.User{Name: "marie", UID: 2001}})
		require.True(t, res[0].Changed)
		require.Equal(t, "content", string(res[1].Data))
		require.Equal(t, "content", string(res[2].Data))
		require.True(t, res[3].Service.Running)
		require.False(t, do(write(file, "content"))[0].Changed)
		require.Equal(t, res[3].Service.PID,
			do(runtimes.Op{Service: &runtimes.Service{Name: "sleeper", Unit: unit, Verb: "start"}})[0].Service.PID)
		do(runtimes.Op{Service: &runtimes.Service{Name: "sleeper", Unit: unit, Verb: "kill"}},
			runtimes.Op{User: &runtimes.User{Name: "marie", UID: 2001, Absent: true}})
	})
	t.Run("a batch stops at the first failure", func(t *testing.T) {
		never := filepath.Join(p.dir, "never")
		res, err := p.host.Do(ctx, stamp(), write(file, "x"), shell("echo why >&2; exit 4"), write(never, "x"))
		require.Len(t, res, 1)
		var op *runtimes.OpError
		require.ErrorAs(t, err, &op)
		require.Equal(t, runtimes.OpError{Host: p.host.Name(), Op: "run sh -c echo why >&2; exit 4", Message: "why", Code: "exit", Exit: 4},
			*op)
		require.True(t, do(runtimes.Op{Read: &runtimes.ReadFile{Path: never}})[0].Missing)
	})
	t.Run("operations outside the profile are refused", func(t *testing.T) {
		for _, op := range []runtimes.Op{write("/etc/passwd", "x"), {Read: &runtimes.ReadFile{Path: p.dir + "/../x"}},
			{Run: &runtimes.Run{Program: "bash"}}} {
			_, err := p.host.Do(ctx, stamp(), op)
			var failed *runtimes.OpError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, runtimes.CodeRefused, failed.Code)
		}
		_, err := p.host.Do(ctx, stamp())
		require.Error(t, err)
		_, err = p.host.Do(ctx, stamp(), runtimes.Op{})
		require.ErrorContains(t, err, "exactly one field")
		_, err = p.host.Do(ctx, stamp(), write(file, strings.Repeat("x", 8<<20)))
		require.ErrorContains(t, err, "larger than")
	})
	t.Run("an earlier leader is refused", func(t *testing.T) {
		late, old := stamp(), stamp()
		late.Epoch, old.Epoch = 9, 8
		_, err := p.host.Do(ctx, late, write(file, "late"))
		require.NoError(t, err)
		_, err = p.host.Do(ctx, old, write(file, "old"))
		require.ErrorIs(t, err, runtimes.ErrStaleEpoch)
		require.ErrorContains(t, err, "epoch 8 of this daemon is older than 9")
		other := late
		other.Leader = "another-" + late.Leader
		_, err = p.host.Do(ctx, other, write(file, "other"))
		require.ErrorIs(t, err, runtimes.ErrStaleEpoch)
		require.ErrorContains(t, err, "epoch 9 belongs to another leader")
		res, err := p.host.Do(ctx, runtimes.Stamp{}, runtimes.Op{Read: &runtimes.ReadFile{Path: file}}, info(),
			runtimes.Op{Run: &runtimes.Run{Program: "look", Args: []string{"-c", "echo seen"}}})
		require.NoError(t, err)
		require.Equal(t, "late", string(res[0].Data))
		require.Equal(t, uint64(9), res[1].Info.Epoch)
		require.Equal(t, "seen\n", string(res[2].Data))
	})
	leader := stamp()
	leader.Epoch = 9
	t.Run("large answers and requests pass", func(t *testing.T) {
		big := strings.Repeat("0123456789abcdef", 1<<18) // 4 MiB
		res, err := p.host.Do(ctx, leader, write(file, big), runtimes.Op{Read: &runtimes.ReadFile{Path: file, Max: 4 << 20}})
		require.NoError(t, err)
		require.Equal(t, big, string(res[1].Data))
	})
	t.Run("calls run side by side", func(t *testing.T) {
		// Each of the first calls ends when as many run.
		together := filepath.Join(p.dir, "together")
		errs := make(chan error, 12)
		for range 12 {
			go func() {
				_, err := p.host.Do(ctx, leader,
					shell(fmt.Sprintf("echo >>%s; until test $(wc -l <%[1]s) -ge %d; do sleep 0.01; done", together, host.MaxSessions)))
				errs <- err
			}()
		}
		for range 12 {
			require.NoError(t, await.Receive(t, "a call beside others", errs, func() any { return "calls that wait" }))
		}
	})
	t.Run("a call ends at its deadline and reports an uncertain outcome", func(t *testing.T) {
		for limit := 300 * time.Millisecond; ; limit *= 2 {
			short, cancel := context.WithTimeout(ctx, limit) // the moment of the deadline
			ended := make(chan error, 1)
			go func() {
				_, err := p.host.Do(short, leader, shell("sleep 3600"))
				ended <- err
			}()
			err := await.Receive(t, "the call at its deadline", ended, func() any { return limit })
			cancel()
			if errors.Is(err, runtimes.ErrUnreachable) {
				continue // it had no time to begin
			}
			// The helper may have reported the timeout in time, or not.
			var op *runtimes.OpError
			require.True(t, asTimeout(err, &op), "%v", err)
			break
		}
		gone, cancel := context.WithCancel(ctx)
		cancel()
		_, err := p.host.Do(gone, leader, shell("true"))
		require.ErrorIs(t, err, runtimes.ErrUnreachable, "nothing was sent")
		do9 := func() {
			_, err := p.host.Do(ctx, leader, shell("true"))
			require.NoError(t, err)
		}
		do9() // the slot of that call is free again

		// The helper stops working for a client that has given up.
		begunFile, late := filepath.Join(p.dir, "begun"), filepath.Join(p.dir, "late")
		ctx, cancel := context.WithCancel(ctx)
		go func() {
			defer cancel()
			for ctx.Err() == nil {
				res, err := p.host.Do(ctx, runtimes.Stamp{}, runtimes.Op{Stat: &runtimes.Stat{Paths: []string{begunFile}}})
				if err == nil && res[0].Stats[0].Exists {
					return
				}
			}
		}()
		goOn := filepath.Join(p.dir, "go-on")
		_, err = p.host.Do(ctx, leader, shell("touch "+begunFile+"; until test -e "+goOn+"; do sleep 0.01; done; touch "+late),
			write(late+"2", "x"))
		require.ErrorIs(t, err, runtimes.ErrUncertain)
		await.Equal(t, "the processes of the call", 0, func() int { return len(hosttest.Processes(t, "touch "+begunFile)) })
		_, err = p.host.Do(t.Context(), leader, write(goOn, ""), shell("true"))
		require.NoError(t, err)
		res, err := p.host.Do(t.Context(), leader, runtimes.Op{Stat: &runtimes.Stat{Paths: []string{late, late + "2"}}},
			shell("rm "+begunFile))
		require.NoError(t, err)
		require.False(t, res[0].Stats[0].Exists || res[0].Stats[1].Exists)
	})
}

func asTimeout(err error, op **runtimes.OpError) bool {
	return isUncertain(err) || asOp(err, op) && (*op).Code == "timeout"
}

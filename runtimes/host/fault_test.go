package host_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
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

func isUncertain(err error) bool { return errors.Is(err, runtimes.ErrUncertain) }

func asOp(err error, op **runtimes.OpError) bool { return errors.As(err, op) }

// script is a host whose helper is a shell script.
func script(t *testing.T, text string) runtimes.Host {
	t.Helper()
	path := filepath.Join(t.TempDir(), "far")
	// A child of another test that is forked meanwhile would have it open for writing, and it
	// could not be executed.
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755)
	syscall.ForkLock.RUnlock()
	require.NoError(t, err)
	hosts := host.NewSubprocess(path)
	return closed(t, hosts).Host(plan.Member{Node: "odd"})
}

const hello = `echo '{"berth_host":3,"version":"x"}'` + "\n"

// A program that is not a helper is detected before the first request. A helper that
// fails afterwards leaves the outcome uncertain.
func TestFaultyHelperIsUnreachableOrUncertain(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	ctx := await.Context(t)
	for name, c := range map[string]struct {
		far       string
		uncertain bool
		answers   bool // the error is the answer of the host
		says      string
	}{
		"garbage instead of a hello": {"echo 'Welcome to Debian'; exec sleep 5", false, true, `it printed "Welcome to Debian"`},
		"ends at once":               {"echo 'sudo: a password is required' >&2; exit 1", false, false, "a password is required"},
		"an older protocol": {`echo '{"berth_host":1,"version":"v0.0.9"}'; exec sleep 5`, false, true,
			"berth-host v0.0.9 has protocol 1, and this daemon needs 3: install"},
		"garbage as an answer":  {hello + "read r; echo lecture; exec sleep 5", true, false, `"lecture"`},
		"the answer to another": {hello + `read r; echo '{"id":99}'; exec sleep 5`, true, false, "not that of the request"},
		"dies in the middle":    {hello + "read r; echo killed >&2; exit 1", true, false, "killed"},
		"half an answer":        {hello + `read r; printf '{"id":1'; exit 0`, true, false, "ended"},
		"endless answer":        {hello + "read r; exec tr '\\0' x </dev/zero", true, false, "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := script(t, c.far)
			_, err := h.Do(ctx, stamp(), write("/x", "canary"))
			require.ErrorContains(t, err, c.says)
			require.Equal(t, c.uncertain, errors.Is(err, runtimes.ErrUncertain), "%v", err)
			require.Equal(t, !c.uncertain, errors.Is(err, runtimes.ErrUnreachable), "%v", err)
			require.NotContains(t, err.Error(), "canary")
			// Without an effect the outcome is never uncertain.
			_, err = h.Do(ctx, runtimes.Stamp{}, info())
			require.ErrorIs(t, err, runtimes.ErrUnreachable)
			require.Equal(t, c.answers, runtimes.IsAnswer(err))
		})
	}
	t.Run("silent", func(t *testing.T) {
		t.Parallel()
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond) // the moment at which the caller gives up
		defer cancel()
		_, err := script(t, "exec tail --pid=$PPID -f /dev/null").Do(short, stamp(), write("/x", "y"))
		require.ErrorIs(t, err, runtimes.ErrUnreachable)
		_, err = script(t, hello+"exec tail --pid=$PPID -f /dev/null").Do(short, stamp(), write("/x", "y"))
		require.Error(t, err)
	})
	t.Run("no program", func(t *testing.T) {
		t.Parallel()
		hosts := host.NewSubprocess(self + ".none")
		_, err = closed(t, hosts).Host(plan.Member{Node: "odd"}).Do(ctx, stamp(), info())
		require.ErrorIs(t, err, runtimes.ErrUnreachable)
	})
	t.Run("does not read the request", func(t *testing.T) {
		t.Parallel()
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond) // the moment at which the caller gives up
		defer cancel()
		_, err := script(t, hello+"exec tail --pid=$PPID -f /dev/null").Do(short, stamp(), write("/x", strings.Repeat("y", 1<<20)))
		require.Error(t, err)
	})
}

// A helper of a later protocol knows what an earlier daemon sends: helpers are replaced first.
func TestHelperOfALaterProtocolAnswers(t *testing.T) {
	t.Parallel()
	h := script(t, `echo '{"berth_host":3,"version":"next"}'; read r; echo '{"id":1,"results":[{}]}'; exec sleep 5`)
	_, err := h.Do(t.Context(), stamp(), write("/x", "y"))
	require.NoError(t, err)
}

func TestForeignFaultIsErrForeign(t *testing.T) {
	t.Parallel()
	h := script(t, hello+`read r; echo '{"id":1,"fault":{"op":"preflight","code":"foreign","message":"munge.service is running"}}'; exec sleep 5`)
	_, err := h.Do(t.Context(), stamp(), runtimes.Op{Preflight: &runtimes.Preflight{}})
	require.ErrorIs(t, err, runtimes.ErrForeign)
	require.EqualError(t, err, "host odd: preflight: munge.service is running")
}

// ended waits until h has noticed that its session is over.
func ended(t *testing.T, h runtimes.Host) {
	t.Helper()
	await.Equal(t, "the end of the session", true, func() bool { return host.SessionsEnded(h) })
}

func TestHelperThatEndedWhileIdleIsReplaced(t *testing.T) {
	p := subprocess(t)
	for range 3 {
		res, err := p.host.Do(t.Context(), stamp(), shell("echo $PPID"))
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(res[0].Data)))
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		ended(t, p.host)
	}
	_, err := p.host.Do(t.Context(), stamp(), shell("kill -9 $PPID; sleep 3600"))
	require.ErrorIs(t, err, runtimes.ErrUncertain, "killed during an effect")
	_, err = p.host.Do(t.Context(), runtimes.Stamp{},
		runtimes.Op{Run: &runtimes.Run{Program: "look", Args: []string{"-c", "kill -9 $PPID; sleep 3600"}, TimeoutMS: timeout}})
	require.ErrorIs(t, err, runtimes.ErrUnreachable, "killed during a query")
}

func TestCloseEndsHelpersDuringACall(t *testing.T) {
	dir := directory(t)
	self, err := os.Executable()
	require.NoError(t, err)
	hosts := host.NewSubprocess(self, "serve", dir)
	h := hosts.Host(plan.Member{Node: "here"})
	_, err = h.Do(t.Context(), stamp(), shell("true"))
	require.NoError(t, err)
	result := make(chan error, 1)
	go func() {
		_, err := h.Do(context.Background(), stamp(),
			runtimes.Op{Run: &runtimes.Run{Program: "sh", Args: []string{"-c", "touch " + dir + "/begun; sleep 3600"}, TimeoutMS: timeout}})
		result <- err
	}()
	await.NoError(t, "the call", func() (os.FileInfo, error) { return os.Stat(filepath.Join(dir, "begun")) })
	require.NoError(t, hosts.Close())
	require.ErrorIs(t, <-result, runtimes.ErrUncertain)
	_, err = h.Do(t.Context(), stamp(), shell("true"))
	require.ErrorIs(t, err, runtimes.ErrUnreachable)
	_, err = hosts.Host(plan.Member{Node: "other"}).Do(t.Context(), stamp(), shell("true"))
	require.ErrorIs(t, err, runtimes.ErrUnreachable)
	require.Empty(t, hosttest.Processes(t, "serve "+dir))
}

// TestSSHFaults uses a real sshd.
func TestSSHFaults(t *testing.T) {
	l := stand(t, "w1", "w2")
	w1, w2 := member(t, l, "w1"), member(t, l, "w2")
	w2Key := hostKey(t, l, "w2")

	t.Run("host keys are pinned", func(t *testing.T) {
		for name, change := range map[string]func(*host.SSHOptions){
			"of the node":        func(o *host.SSHOptions) { o.HostKey = func(string) string { return w2Key } },
			"in the known_hosts": func(o *host.SSHOptions) { o.KnownHosts = file(t, w1.Address+" "+w2Key+"\n") },
		} {
			_, err := reach(t, l, change).Host(w1).Do(t.Context(), stamp(), info())
			require.ErrorIs(t, err, runtimes.ErrUnreachable, name)
			require.ErrorIs(t, err, runtimes.ErrNeedsPerson, name)
			require.ErrorContains(t, err, "host w1: ")
			found := regexp.MustCompile(
				`has host key (ssh-ed25519 SHA256:\S+), want (ssh-ed25519 SHA256:\S+) \(`,
			).FindStringSubmatch(err.Error())
			require.Len(t, found, 3, err.Error())
			require.NotEqual(t, found[1], found[2])
		}
		_, err := reach(t, l, func(o *host.SSHOptions) {
			o.HostKey = func(string) string { return hostKey(t, l, "w1") }
			o.KnownHosts = ""
		}).Host(w1).Do(t.Context(), stamp(), info())
		require.NoError(t, err)
		for name, change := range map[string]func(*host.SSHOptions){
			"no host key of " + w1.Address + ":22 is pinned": func(o *host.SSHOptions) { o.KnownHosts = file(t, "") },
			"no known_hosts file is configured": func(o *host.SSHOptions) {
				o.KnownHosts = ""
				o.HostKey = func(string) string { return "" }
			},
			"is not an SSH key": func(o *host.SSHOptions) { o.HostKey = func(string) string { return "nonsense" } },
			"revoked": func(o *host.SSHOptions) {
				o.KnownHosts = file(t, w1.Address+" "+hostKey(t, l, "w1")+"\n@revoked * "+hostKey(t, l, "w1")+"\n")
			},
		} {
			_, err := reach(t, l, change).Host(w1).Do(t.Context(), stamp(), info())
			require.ErrorIs(t, err, runtimes.ErrUnreachable)
			require.ErrorContains(t, err, name)
			require.Equal(t, name != "revoked", errors.Is(err, runtimes.ErrNeedsPerson))
		}
	})

	t.Run("a wrong login is reported", func(t *testing.T) {
		_, err := reach(t, l, func(o *host.SSHOptions) { o.User = "daemon" }).Host(w1).Do(t.Context(), stamp(), info())
		require.ErrorIs(t, err, runtimes.ErrUnreachable)
		require.ErrorContains(t, err, "unable to authenticate")
		require.ErrorContains(t, err, "to the authorized_keys of daemon there")
		require.ErrorIs(t, err, runtimes.ErrNeedsPerson)
		_, err = reach(t, l, func(o *host.SSHOptions) { o.KeyFile = filepath.Join(t.TempDir(), "none") }).Host(w1).Do(t.Context(), stamp(),
			info())
		require.ErrorContains(t, err, "private key")
	})

	t.Run("a broken connection is replaced", func(t *testing.T) {
		h := reach(t, l).Host(w1)
		_, err := h.Do(t.Context(), stamp(), info())
		require.NoError(t, err)
		for range 2 {
			killSessions(t, l, "w1")
			_, err = h.Do(t.Context(), stamp(), info())
			require.NoError(t, err)
		}
		result := make(chan error, 1)
		go func() {
			_, err := h.Do(context.Background(), stamp(), shell("touch "+base+"/begun; sleep 3600"))
			result <- err
		}()
		await.NoError(t, "the call", func() (string, error) { return l.Run(t.Context(), "w1", "test", "-e", base+"/begun") })
		killSessions(t, l, "w1")
		require.ErrorIs(t, <-result, runtimes.ErrUncertain)
	})

	t.Run("a host that stops answering is cut off", func(t *testing.T) {
		// TestSilentHostIsCutOff knows when. The other host does not wait for it.
		hosts := reach(t, l, func(o *host.SSHOptions) { o.DialTimeout, o.KeepAlive = 2*time.Second, time.Second })
		h := hosts.Host(w1)
		look := func(h runtimes.Host) error {
			_, err := h.Do(await.Context(t), stamp(), info())
			return err
		}
		defer signalAll(t, l, "w1", "CONT")
		var err error
		await.True(t, "a call that the keep-alive ends", func() bool {
			signalAll(t, l, "w1", "CONT")
			if err = look(h); err != nil { // on a busy machine it may not answer in time
				return false
			}
			signalAll(t, l, "w1", "STOP")
			_, err = h.Do(await.Context(t), stamp(), shell("true"))
			return errors.Is(err, runtimes.ErrUncertain)
		}, func() any { return err })
		require.ErrorIs(t, look(h), runtimes.ErrUnreachable)
		require.NoError(t, look(reach(t, l).Host(w2)))
		signalAll(t, l, "w1", "CONT")
		await.NoError(t, "the host that answers again", func() (any, error) { return nil, look(h) })
	})

	t.Run("a host that is off is unreachable", func(t *testing.T) {
		hosts := reach(t, l, func(o *host.SSHOptions) { o.DialTimeout = time.Second })
		require.NoError(t, l.Kill("w2"))
		_, err := hosts.Host(w2).Do(await.Context(t), stamp(), info())
		require.ErrorIs(t, err, runtimes.ErrUnreachable)
		require.NoError(t, l.Boot(t.Context(), "w2"))
		await.NoError(t, "the host that is on again", func() ([]runtimes.Result, error) {
			return hosts.Host(w2).Do(await.Context(t), stamp(), info())
		})
	})
}

func TestIncompleteOptionsAreRefused(t *testing.T) {
	_, err := host.NewSSH(host.SSHOptions{User: "berth", KeyFile: "k"})
	require.ErrorContains(t, err, "pinned")
	_, err = host.NewSSH(host.SSHOptions{KnownHosts: "k"})
	require.Error(t, err)
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func hostKey(t *testing.T, l *lab.Lab, name string) string {
	t.Helper()
	f, err := os.Open(l.KnownHosts())
	require.NoError(t, err)
	defer f.Close()
	data, err := io.ReadAll(f)
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		if key, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(key)
		}
	}
	t.Fatalf("no key of %s", name)
	return ""
}

// killSessions ends the sshd of every connection, not the listener.
func killSessions(t *testing.T, l *lab.Lab, name string) {
	t.Helper()
	out, err := l.Run(t.Context(), name, "sh", "-c", "pkill -KILL -f '^sshd: "+l.User()+"' && echo killed")
	require.NoError(t, err)
	require.Equal(t, "killed\n", out)
}

// signalAll signals all processes of a host that serve SSH.
func signalAll(t *testing.T, l *lab.Lab, name, signal string) {
	t.Helper()
	_, err := l.Run(context.WithoutCancel(t.Context()), name, "sh", "-c",
		fmt.Sprintf("pkill -%s sshd; pkill -%[1]s sudo; pkill -%[1]s berth-host; true", signal))
	require.NoError(t, err)
}

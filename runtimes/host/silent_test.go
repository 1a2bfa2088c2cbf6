package host

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/host/agent"
)

// sshHost is a host in memory whose helper answers each request without results.
type sshHost struct {
	key  ssh.Signer
	mu   sync.Mutex
	gate chan struct{} // closed while the host reads received data
}

func (h *sshHost) reads() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gate
}

// silence lets the host read nothing until the returned function is called. It still
// accepts connections.
func (h *sshHost) silence() (end func()) {
	gate := make(chan struct{})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gate = gate
	return func() { close(gate) }
}

// hostConn is the host's side of a connection. It accepts data before anyone reads it,
// as a kernel does: SSH writes on both sides first.
type hostConn struct {
	net.Conn
	host *sshHost
	in   chan []byte
	rest []byte
}

func (c *hostConn) take() {
	defer close(c.in)
	for {
		p := make([]byte, 32<<10)
		n, err := c.Conn.Read(p)
		if err != nil {
			return
		}
		c.in <- p[:n]
	}
}

func (c *hostConn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		c.rest = <-c.in
	}
	<-c.host.reads()
	n := copy(p, c.rest)
	if c.rest = c.rest[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (h *sshHost) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	conn := &hostConn{Conn: far, host: h, in: make(chan []byte, 1000)}
	go conn.take()
	go h.serve(conn)
	return near, nil
}

func (h *sshHost) serve(conn net.Conn) {
	defer conn.Close()
	config := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return nil, nil }}
	config.AddHostKey(h.key)
	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	go func() {
		for r := range requests {
			_ = r.Reply(false, nil) // as sshd answers a keep-alive
		}
	}()
	for c := range channels {
		channel, requests, err := c.Accept()
		if err != nil {
			return
		}
		go func() {
			for r := range requests {
				_ = r.Reply(r.Type == "exec", nil)
			}
		}()
		go func() {
			if agent.WriteLine(channel, agent.Hello{Berth: agent.Protocol, Version: "1a2b"}) != nil {
				return
			}
			for dec := json.NewDecoder(channel); ; {
				var r agent.Request
				if dec.Decode(&r) != nil || agent.WriteLine(channel, agent.Response{ID: r.ID, Results: []runtimes.Result{{}}}) != nil {
					return
				}
			}
		}()
	}
}

// A host that stops answering is cut off by the keep-alive: the call under way is uncertain
// long before its deadline, the next waits for the dial timeout, and later ones do not wait.
// Another host does not notice, and the first is reached again once it answers.
func TestSilentHostIsCutOff(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte(SampleKey), 0o600))
	key, err := ssh.ParsePrivateKey([]byte(SampleKey))
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		reads := make(chan struct{})
		close(reads)
		silent, other := &sshHost{key: key, gate: reads}, &sshHost{key: key, gate: reads}
		hosts, err := NewSSH(SSHOptions{User: "berth", KeyFile: file, HostKey: func(string) string { return SamplePublicKey },
			Log: slog.New(slog.DiscardHandler),
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				if address == "10.0.0.1:22" {
					return silent.dial(ctx, network, address)
				}
				return other.dial(ctx, network, address)
			}})
		require.NoError(t, err)
		defer hosts.Close() //nolint:errcheck // a test's
		h1, h2 := hosts.Host(plan.Member{Node: "w1", Address: "10.0.0.1"}), hosts.Host(plan.Member{Node: "w2", Address: "10.0.0.2"})
		do := func(h runtimes.Host) (time.Duration, error) {
			begun := time.Now()
			_, err := h.Do(t.Context(), runtimes.Stamp{Epoch: 1}, runtimes.Op{Run: &runtimes.Run{Program: "x", TimeoutMS: 60_000}})
			return time.Since(begun), err
		}
		took, err := do(h1)
		require.NoError(t, err)
		require.Zero(t, took)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		took, err = do(h1)
		require.NoError(t, err, "keep-alives were answered")
		require.Zero(t, took)

		answer := silent.silence()
		took, err = do(h1)
		require.ErrorIs(t, err, runtimes.ErrUncertain)
		require.Equal(t, 15*time.Second, took, "one interval until the keep-alive, two without its answer; the deadline is 70 s")
		took, failed := do(h1)
		require.ErrorIs(t, failed, runtimes.ErrUnreachable)
		require.ErrorContains(t, failed, "10.0.0.1:22 accepts connections and did not finish the SSH handshake within 5s")
		require.Equal(t, 5*time.Second, took)
		took, err = do(h1)
		require.EqualError(t, err, failed.Error(), "the error changes only when the host does")
		require.Zero(t, took, "no second wait for a dead host")
		took, err = do(h2)
		require.NoError(t, err)
		require.Zero(t, took)

		answer()
		time.Sleep(firstBackoff)
		took, err = do(h1)
		require.NoError(t, err)
		require.Zero(t, took)
	})
}

// A session that is opened while its connection ends never gets an answer from package ssh. The end of the connection is
// the answer, and the call goes on with another one.
func TestSessionEndsWithItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone, over := make(chan struct{}), make(chan struct{})
		c := &connection{o: &SSHOptions{DialTimeout: time.Hour}, life: t.Context(),
			client: &link{&ssh.Client{Conn: deaf{over: over}}, gone}}
		failed := make(chan error, 1)
		go func() {
			_, err := c.session(t.Context())
			failed <- err
		}()
		synctest.Wait()
		require.Empty(t, failed)
		close(gone)
		require.ErrorIs(t, <-failed, errConnectionLost)
		require.Nil(t, c.client, "the next call makes a connection")
		close(over)
	})
}

// deaf is a connection that does not answer a request for a channel until the test is over.
type deaf struct {
	ssh.Conn
	over chan struct{}
}

func (d deaf) OpenChannel(string, []byte) (ssh.Channel, <-chan *ssh.Request, error) {
	<-d.over
	return nil, nil, io.EOF
}

func (deaf) Close() error { return nil }

package gitrepo_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"

	"berth/examples/await"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// sshServer serves a gittest repository over SSH like a forge: without a shell,
// and only the two Git programs.
type sshServer struct {
	url        string
	known      string // known_hosts file
	key        []byte // of the only user
	hang       atomic.Bool
	config     *ssh.ServerConfig
	repository string
}

func newKey(t *testing.T) (ssh.Signer, []byte) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)
	return signer, pem.EncodeToMemory(block)
}

func newSSHServer(t *testing.T, s *gittest.Server) *sshServer {
	host, _ := newKey(t)
	user, key := newKey(t)
	srv := &sshServer{key: key, repository: s.Dir}
	srv.config = &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
		if !bytes.Equal(k.Marshal(), user.PublicKey().Marshal()) {
			return nil, errors.New("unknown key")
		}
		return nil, nil
	}}
	srv.config.AddHostKey(host)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	srv.url = "ssh://git@" + l.Addr().String() + "/estate.git"
	srv.known = filepath.Join(t.TempDir(), "known_hosts")
	require.NoError(t, os.WriteFile(srv.known, []byte(knownhosts.Line([]string{l.Addr().String()}, host.PublicKey())+"\n"), 0o600))
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if srv.hang.Load() {
				t.Cleanup(func() { _ = c.Close() })
				continue
			}
			go srv.serve(c)
		}
	}()
	return srv
}

func (srv *sshServer) serve(c net.Conn) {
	conn, channels, requests, err := ssh.NewServerConn(c, srv.config)
	if err != nil {
		return
	}
	defer conn.Close() //nolint:errcheck // a test's
	go ssh.DiscardRequests(requests)
	for ch := range channels {
		channel, rs, err := ch.Accept()
		if err != nil {
			return
		}
		for r := range rs {
			if r.Type != "exec" {
				_ = r.Reply(false, nil)
				continue
			}
			_ = r.Reply(true, nil)
			program, _, _ := strings.Cut(string(r.Payload[4:]), " ")
			cmd := exec.Command("git", strings.TrimPrefix(program, "git-"), srv.repository)
			cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
			in, err := cmd.StdinPipe()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(in, channel); _ = in.Close() }()
			status := []byte{0, 0, 0, 0}
			if cmd.Run() != nil {
				status[3] = 1
			}
			_, _ = channel.SendRequest("exit-status", false, status)
			_ = channel.Close()
			break
		}
	}
}

func (srv *sshServer) options(o *gitrepo.Options) {
	o.URL, o.KnownHosts = srv.url, srv.known
	o.Auth = func(context.Context) (gitrepo.Credentials, error) { return gitrepo.Credentials{SSHKey: srv.key}, nil }
}

func TestSSH(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	srv := newSSHServer(t, s)
	r, rival := open(t, s, srv.options), open(t, s, srv.options)
	main := fetch(t, r).Main
	require.Equal(t, estateFiles(), contents(t, r, main))
	one, err := r.WriteStatus(t.Context(), "", batch(1, main, unit("physics", "lhc", "train", plan.PhaseRunning)))
	require.NoError(t, err)
	require.Equal(t, reconciler.Tips{Main: main, Status: one}, fetch(t, rival), "two packs, one after the other")
	_, err = rival.WriteStatus(t.Context(), one, batch(2, main, unit("physics", "lhc", "train", plan.PhaseFailed)))
	require.NoError(t, err)
	_, err = r.WriteStatus(t.Context(), one, batch(2, main, unit("physics", "lhc", "train", plan.PhaseStopped)))
	require.ErrorIs(t, err, reconciler.ErrConflict)
	require.NoError(t, s.Fsck())
}

func TestSSHHostKeyIsPinned(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	srv, other := newSSHServer(t, s), newSSHServer(t, s)
	for name, known := range map[string]string{"another host's": other.known, "none": "", "missing": "/nonexistent/known_hosts"} {
		_, err := open(t, s, srv.options, func(o *gitrepo.Options) { o.KnownHosts = known }).Fetch(t.Context())
		require.Error(t, err, name)
	}
	_, err := open(t, s, srv.options, func(o *gitrepo.Options) {
		o.Auth = func(context.Context) (gitrepo.Credentials, error) {
			return gitrepo.Credentials{SSHKey: []byte("canary, no key")}, nil
		}
	}).Fetch(t.Context())
	require.Error(t, err)
	require.NotContains(t, err.Error(), "canary")
}

func TestUnresponsiveSSHHostTimesOut(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	srv := newSSHServer(t, s)
	srv.hang.Store(true)
	r := open(t, s, srv.options, func(o *gitrepo.Options) { o.Timeout = 50 * time.Millisecond })
	for range 2 {
		_, err := r.Fetch(await.Context(t))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
}

package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/crypto/ssh"

	"berth/reconciler/plan"
	"berth/runtimes"
)

// SSHOptions configure SSH.
type SSHOptions struct {
	User string // login account; it only has to be able to start berth-host
	// KeyFile is the private key. It is read at each connection and can be rotated.
	KeyFile string
	// HostKey returns the pinned key of a node ("ssh-ed25519 AAAA…"), or "" if
	// KnownHosts has it. May be nil.
	HostKey func(node string) string
	// KnownHosts is a known_hosts file. May be empty.
	KnownHosts string
	// Command is requested; a forced command on the host overrides it. Empty:
	// DefaultCommand.
	Command     string
	DialTimeout time.Duration // for a connection or the start of a session; 0: 5 s
	KeepAlive   time.Duration // interval of keep-alive requests; 0: 5 s
	Margin      time.Duration // for a call beyond the timeouts of its operations; 0: 10 s
	Dial        func(ctx context.Context, network, address string) (net.Conn, error)
	Log         *slog.Logger
}

// DefaultCommand starts berth-host on a host.
const DefaultCommand = "sudo -n /usr/local/sbin/berth-host"

// NewSSH returns hosts that are reached over SSH.
func NewSSH(o SSHOptions) (runtimes.Hosts, error) {
	if o.User == "" || o.KeyFile == "" {
		return nil, errors.New("SSH needs a user and a key")
	}
	if o.HostKey == nil && o.KnownHosts == "" {
		return nil, errors.New("SSH needs pinned host keys: of the nodes or in a known_hosts file")
	}
	if o.HostKey == nil {
		o.HostKey = func(string) string { return "" }
	}
	if o.Command == "" {
		o.Command = DefaultCommand
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = 5 * time.Second
	}
	if o.KeepAlive == 0 {
		o.KeepAlive = 5 * time.Second
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	h := newHosts(func(m plan.Member) opener {
		port := m.SSHPort
		if port == 0 {
			port = 22
		}
		ctx, cancel := context.WithCancel(context.Background())
		return &connection{o: &o, node: m.Node, address: net.JoinHostPort(m.Address, strconv.Itoa(port)), life: ctx, end: cancel}
	})
	h.margin = cmp.Or(o.Margin, h.margin)
	return h, nil
}

func readKey(file string) (ssh.Signer, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	s, err := ssh.ParsePrivateKey(b)
	if err != nil {
		return nil, fmt.Errorf("private key %s: %w", file, err)
	}
	return s, nil
}

package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"berth/reconciler/plan"
	"berth/runtimes"
)

// SSHOptions say how hosts are reached over SSH.
type SSHOptions struct {
	User string // login account; it needs no right but to start berth-host
	// KeyFile is the private key, read at each connection so that it can be
	// rotated. Signers, if set, is asked instead, such as an agent's.
	KeyFile string
	Signers func() ([]ssh.Signer, error)
	// HostKey gives the pinned key of a node as authorized_keys has it
	// ("ssh-ed25519 AAAA…"), or "" where KnownHosts holds it. May be nil.
	HostKey func(node string) string
	// KnownHosts is a known_hosts file. May be empty.
	KnownHosts string
	// Command is asked for where no forced command decides. Empty: DefaultCommand.
	Command     string
	DialTimeout time.Duration // of a connection, or of a session's start; 0: 5 s
	KeepAlive   time.Duration // between questions whether the host is there; 0: 5 s
	Dial        func(ctx context.Context, network, address string) (net.Conn, error)
	Log         *slog.Logger
}

// DefaultCommand starts berth-host on a host.
const DefaultCommand = "sudo -n /usr/local/sbin/berth-host"

// NewSSH gives hosts reached over SSH.
func NewSSH(o SSHOptions) (runtimes.Hosts, error) {
	if o.User == "" || o.KeyFile == "" && o.Signers == nil {
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
	if o.Signers == nil {
		file := o.KeyFile
		o.Signers = func() ([]ssh.Signer, error) { return readKey(file) }
	}
	return newHosts(func(m plan.Member) opener {
		port := m.SSHPort
		if port == 0 {
			port = 22
		}
		ctx, cancel := context.WithCancel(context.Background())
		return &connection{o: &o, node: m.Node, address: net.JoinHostPort(m.Address, strconv.Itoa(port)), life: ctx, end: cancel}
	}), nil
}

func readKey(file string) ([]ssh.Signer, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	s, err := ssh.ParsePrivateKey(b)
	if err != nil {
		return nil, fmt.Errorf("private key %s: %w", file, err)
	}
	return []ssh.Signer{s}, nil
}

// connection is the one SSH connection to a host, made when it is needed.
type connection struct {
	o             *SSHOptions
	node, address string
	life          context.Context // until close
	end           context.CancelFunc
	tasks         sync.WaitGroup

	mu      sync.Mutex
	client  *ssh.Client
	dialing *attempt
	// A host that did not answer is left alone for a while, or every call would
	// wait for it anew.
	failed  error
	failAt  time.Time
	backoff time.Duration

	olderHelper sync.Once // guards a warning
}

// attempt is a connection being made; several calls may wait for it.
type attempt struct {
	done   chan struct{}
	client *ssh.Client
	err    error
}

const (
	firstBackoff = 250 * time.Millisecond
	maxBackoff   = 4 * time.Second
)

// connect gives the connection, making it if there is none.
func (c *connection) connect(ctx context.Context) (*ssh.Client, error) {
	c.mu.Lock()
	if c.client != nil {
		defer c.mu.Unlock()
		return c.client, nil
	}
	if c.life.Err() != nil {
		c.mu.Unlock()
		return nil, errClosed
	}
	if c.failed != nil && time.Until(c.failAt.Add(c.backoff)) > 0 {
		defer c.mu.Unlock()
		// Word for word: what is told of a host changes only when the host does.
		return nil, c.failed
	}
	try := c.dialing
	if try == nil {
		try = &attempt{done: make(chan struct{})}
		c.dialing = try
		// On its own: a call that gives up early does not hide that the host is dead.
		c.tasks.Go(func() { c.dial(try) })
	}
	c.mu.Unlock()
	select {
	case <-try.done:
		return try.client, try.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *connection) dial(try *attempt) {
	begun := time.Now()
	client, err := c.handshake()
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(try.done)
	c.dialing = nil
	if err == nil && c.life.Err() != nil {
		_ = client.Close()
		err = errClosed
	}
	try.client, try.err = client, err
	log := c.o.Log.With("host", c.node, "address", c.address, "took", time.Since(begun).Round(time.Millisecond))
	if err != nil {
		c.backoff = min(max(2*c.backoff, firstBackoff), maxBackoff)
		c.failed, c.failAt = err, time.Now()
		log.Warn("host unreachable", "error", err, "next_try_in", c.backoff)
		return
	}
	c.client, c.failed, c.backoff = client, nil, 0
	log.Debug("connected")
	c.tasks.Go(func() { c.watch(client) })
}

func (c *connection) handshake() (*ssh.Client, error) {
	ctx, cancel := context.WithTimeout(c.life, c.o.DialTimeout)
	defer cancel()
	signers, err := c.o.Signers()
	if err != nil {
		return nil, err
	}
	keys, err := pinned(c.o, c.node, c.address)
	if err != nil {
		return nil, err
	}
	conn, err := c.o.Dial(ctx, "tcp", c.address)
	if err != nil {
		return nil, err
	}
	// Package ssh knows no context: the deadline cuts off a host that accepts
	// and then says nothing.
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	stop := context.AfterFunc(c.life, func() { _ = conn.Close() })
	defer stop()
	sc, chans, reqs, err := ssh.NewClientConn(conn, c.address, &ssh.ClientConfig{
		User:              c.o.User,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(signers...)},
		HostKeyAlgorithms: keys.algorithms(),
		HostKeyCallback:   keys.check,
	})
	if err != nil {
		_ = conn.Close()
		var ne net.Error
		if errors.As(err, &ne) && ne.Timeout() {
			return nil, fmt.Errorf("%s accepts connections and did not finish the SSH handshake within %s", c.address, c.o.DialTimeout)
		}
		return nil, fmt.Errorf("%s: %w", c.address, err)
	}
	_ = conn.SetDeadline(time.Time{})
	return ssh.NewClient(sc, chans, reqs), nil
}

// watch forgets the connection when it ends, and ends it when the host no
// longer answers.
func (c *connection) watch(client *ssh.Client) {
	gone := make(chan struct{})
	go func() {
		_ = client.Wait()
		close(gone)
	}()
	tick := time.NewTicker(c.o.KeepAlive)
	defer tick.Stop()
	for alive := true; alive; {
		select {
		case <-gone:
			alive = false
		case <-c.life.Done():
			alive = false
		case <-tick.C:
			if !c.ping(client, gone) {
				c.o.Log.Warn("host no longer answers", "host", c.node, "address", c.address)
				alive = false
			}
		}
	}
	c.drop(client)
	<-gone
}

// ping says whether the far side of a connection answers in time.
func (c *connection) ping(client *ssh.Client, gone <-chan struct{}) bool {
	answered := make(chan bool, 1)
	go func() {
		_, _, err := client.SendRequest("keepalive@openssh.com", true, nil)
		answered <- err == nil
	}()
	select {
	case ok := <-answered:
		return ok
	case <-gone:
		return false
	case <-c.life.Done():
		return false
	case <-time.After(2 * c.o.KeepAlive):
		return false
	}
}

// drop ends a connection; the next call makes another.
func (c *connection) drop(client *ssh.Client) {
	c.mu.Lock()
	if c.client == client {
		c.client = nil
	}
	c.mu.Unlock()
	_ = client.Close()
}

func (c *connection) open(ctx context.Context) (*session, error) {
	s, err := c.session(ctx)
	if errors.Is(err, errConnectionLost) { // it had ended, and nobody had noticed
		s, err = c.session(ctx)
	}
	return s, err
}

var errConnectionLost = errors.New("the connection was lost")

func (c *connection) session(ctx context.Context) (*session, error) {
	client, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.o.DialTimeout, fmt.Errorf("berth-host did not start within %s", c.o.DialTimeout))
	defer cancel()
	type started struct {
		s   *session
		err error
	}
	result := make(chan started, 1)
	go func() {
		s, err := startSession(client, c.o.Command)
		result <- started{s, err}
	}()
	select {
	case r := <-result:
		if r.err != nil {
			var refused *ssh.OpenChannelError
			if !errors.As(r.err, &refused) {
				c.drop(client)
				r.err = fmt.Errorf("%w: %w", errConnectionLost, r.err)
			}
			return nil, r.err
		}
		if err := r.s.hello(ctx); err != nil {
			r.s.hangUp()
			return nil, err
		}
		if !r.s.far.Leaders {
			c.olderHelper.Do(func() {
				c.o.Log.Warn("berth-host is older than this daemon and does not tell leaders of one epoch apart; install the berth-host of this release",
					"host", c.node, "version", r.s.far.Version)
			})
		}
		return r.s, nil
	case <-ctx.Done():
		// Not even this is answered: the connection is of no more use.
		c.drop(client)
		return nil, context.Cause(ctx)
	}
}

func startSession(client *ssh.Client, command string) (*session, error) {
	s, err := client.NewSession()
	if err != nil {
		return nil, err
	}
	in, err := s.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := s.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stderr := &said{}
	s.Stderr = stderr
	if err := s.Start(command); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("berth-host was not started: %w", err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = s.Wait() // ends with the connection at the latest
	}()
	return newSession(in, out, stderr, over, func() {
		go func() { _ = s.Close() }() // waits for the network where that hangs
	}), nil
}

func (c *connection) close() {
	c.mu.Lock()
	c.end() // no task begins from here on
	client := c.client
	c.mu.Unlock()
	if client != nil {
		c.drop(client)
	}
	c.tasks.Wait()
}

package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"berth/runtimes"
)

// connection is the only SSH connection to a host, made on first use.
type connection struct {
	o             *SSHOptions
	node, address string
	life          context.Context // until close
	end           context.CancelFunc
	tasks         sync.WaitGroup

	mu      sync.Mutex
	client  *link // nil: none
	dialing *attempt
	// After a failure no new connection is tried for a while, so that not every call
	// waits for a dead host.
	failed  error
	failAt  time.Time
	backoff time.Duration
}

// link is an SSH connection.
type link struct {
	*ssh.Client
	gone chan struct{} // closed when it has ended
}

// attempt is a connection attempt. Several calls may wait for it.
type attempt struct {
	done   chan struct{}
	client *link
	err    error
}

const (
	firstBackoff = 250 * time.Millisecond
	maxBackoff   = 4 * time.Second
)

// connect returns the connection and makes it if necessary.
func (c *connection) connect(ctx context.Context) (*link, error) {
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
		// The same error, as a status changes only when the host does.
		return nil, c.failed
	}
	try := c.dialing
	if try == nil {
		try = &attempt{done: make(chan struct{})}
		c.dialing = try
		// Independent of the call, which may give up before the host proves dead.
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
		level := slog.LevelWarn
		if c.failed != nil && c.failed.Error() == err.Error() {
			level = slog.LevelDebug // a host that stays away is told once
		}
		c.failed, c.failAt = err, time.Now()
		log.Log(context.Background(), level, "host unreachable", "error", err, "next_try_in", c.backoff)
		return
	}
	c.client, c.failed, c.backoff = client, nil, 0
	log.Debug("connected")
	c.tasks.Go(func() { c.watch(client) })
}

func (c *connection) handshake() (*link, error) {
	ctx, cancel := context.WithTimeout(c.life, c.o.DialTimeout)
	defer cancel()
	signer, err := readKey(c.o.KeyFile)
	if err != nil {
		return nil, runtimes.NeedsPerson(err)
	}
	keys, err := pinned(c.o, c.node, c.address)
	if err != nil {
		return nil, runtimes.NeedsPerson(err)
	}
	conn, err := c.o.Dial(ctx, "tcp", c.address)
	if unknown := new(net.DNSError); errors.As(err, &unknown) && unknown.IsNotFound {
		return nil, runtimes.NeedsPerson(fmt.Errorf("%w; correct spec.address of node %s, or the DNS", err, c.node))
	}
	if err != nil {
		return nil, err
	}
	// Package ssh has no context. The deadline ends the handshake with a silent host.
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	stop := context.AfterFunc(c.life, func() { _ = conn.Close() })
	defer stop()
	sc, chans, reqs, err := ssh.NewClientConn(conn, c.address, &ssh.ClientConfig{
		User:              c.o.User,
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyAlgorithms: keys.algorithms(),
		HostKeyCallback:   keys.check,
	})
	if err != nil {
		_ = conn.Close()
		var ne net.Error
		if errors.As(err, &ne) && ne.Timeout() {
			return nil, fmt.Errorf("%s accepts connections and did not finish the SSH handshake within %s", c.address, c.o.DialTimeout)
		}
		err = fmt.Errorf("%s: %w", c.address, err)
		if strings.Contains(err.Error(), "unable to authenticate") { // package ssh has no value for it
			err = runtimes.NeedsPerson(fmt.Errorf("%w; add the public key of %s to the authorized_keys of %s there", err, c.o.KeyFile,
				c.o.User))
		}
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return &link{ssh.NewClient(sc, chans, reqs), make(chan struct{})}, nil
}

// watch drops the connection when it ends or the host no longer answers.
func (c *connection) watch(client *link) {
	go func() {
		_ = client.Wait()
		close(client.gone)
	}()
	tick := time.NewTicker(c.o.KeepAlive)
	defer tick.Stop()
	for alive := true; alive; {
		select {
		case <-client.gone:
			alive = false
		case <-c.life.Done():
			alive = false
		case <-tick.C:
			if !c.ping(client) {
				c.o.Log.Warn("host no longer answers", "host", c.node, "address", c.address)
				alive = false
			}
		}
	}
	c.drop(client)
	<-client.gone
}

// ping reports whether the host answers in time.
func (c *connection) ping(client *link) bool {
	answered := make(chan bool, 1)
	go func() {
		_, _, err := client.SendRequest("keepalive@openssh.com", true, nil)
		answered <- err == nil
	}()
	select {
	case ok := <-answered:
		return ok
	case <-client.gone:
		return false
	case <-c.life.Done():
		return false
	case <-time.After(2 * c.o.KeepAlive):
		return false
	}
}

// drop closes a connection. The next call makes a new one.
func (c *connection) drop(client *link) {
	c.mu.Lock()
	if c.client == client {
		c.client = nil
	}
	c.mu.Unlock()
	_ = client.Close()
}

func (c *connection) open(ctx context.Context) (*session, error) {
	s, err := c.session(ctx)
	if errors.Is(err, errConnectionLost) { // it had ended unnoticed
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
		s, err := startSession(client.Client, c.o.Command)
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
		if err := r.s.readHello(ctx); err != nil {
			r.s.hangUp()
			return nil, err
		}
		return r.s, nil
	case <-client.gone:
		// Package ssh waits for ever for a session that it opens while the connection ends (golang/go#26643).
		c.drop(client)
		return nil, errConnectionLost
	case <-ctx.Done():
		// The connection does not even start a session.
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
	stderr := &stderrText{}
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
		go func() { _ = s.Close() }() // Close may wait for a hanging network
	}), nil
}

func (c *connection) close() {
	c.mu.Lock()
	c.end() // no task starts after this
	client := c.client
	c.mu.Unlock()
	if client != nil {
		c.drop(client)
	}
	c.tasks.Wait()
}

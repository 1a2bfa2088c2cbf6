package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"berth/runtimes"
	"berth/runtimes/host/agent"
)

const (
	// maxSessions of one host at once. sshd allows ten on a connection.
	maxSessions = 6
	// keepIdle is how long a session waits for the next call.
	keepIdle = time.Minute
	// margin is what a batch gets beyond the time its operations ask for.
	margin = 10 * time.Second
)

// opener starts sessions on one host.
type opener interface {
	// open starts a session and has heard its hello. It returns when ctx ends.
	open(ctx context.Context) (*session, error)
	close()
}

// far is a host, reached by an opener.
type far struct {
	name   string
	opener opener
	slots  chan struct{} // one for each session in use

	mu     sync.Mutex
	idle   []*idleSession
	busy   map[*session]struct{}
	nextID uint64
	closed bool
}

type idleSession struct {
	*session
	expire *time.Timer
}

func newFar(name string, o opener) *far {
	return &far{name: name, opener: o, slots: make(chan struct{}, maxSessions), busy: map[*session]struct{}{}}
}

// Name is the node's.
func (f *far) Name() string { return f.name }

// Do implements runtimes.Host.
func (f *far) Do(ctx context.Context, stamp runtimes.Stamp, ops ...runtimes.Op) ([]runtimes.Result, error) {
	limit, effects, err := f.inspect(stamp, ops)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
	defer cancel()
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	case <-ctx.Done():
		return nil, f.unreachable(fmt.Errorf("%d calls are under way: %w", maxSessions, context.Cause(ctx)))
	}
	for {
		if ctx.Err() != nil {
			return nil, f.unreachable(context.Cause(ctx))
		}
		s, err := f.take(ctx)
		if err != nil {
			return nil, f.unreachable(err)
		}
		known := stamp
		if !s.far.Leaders { // it compares epochs alone
			known.Leader = ""
		}
		id, request, err := f.encode(ctx, known, ops)
		if err != nil {
			f.give(s)
			return nil, err
		}
		again := s.used // its far side may have gone since: then try with a new one
		resp, err := s.call(ctx, id, request)
		if err == nil {
			f.give(s)
			return resp.Results, f.failure(resp.Fault)
		}
		f.leave(s)
		switch {
		case again && ctx.Err() == nil && (!effects || errors.Is(err, errNotSent)):
		case effects && !errors.Is(err, errNotSent):
			return nil, fmt.Errorf("host %s: %s: %w: %w", f.name, batch(ops), runtimes.ErrUncertain, err)
		default:
			return nil, f.unreachable(err)
		}
	}
}

func (f *far) unreachable(err error) error {
	return fmt.Errorf("host %s: %w: %w", f.name, runtimes.ErrUnreachable, err)
}

// batch says what a request was to do.
func batch(ops []runtimes.Op) string {
	if len(ops) == 1 {
		return agent.Summary(ops[0])
	}
	return fmt.Sprintf("%s and %d more", agent.Summary(ops[0]), len(ops)-1)
}

// inspect checks the operations and says how long they may take together, and
// whether any may have an effect.
func (f *far) inspect(stamp runtimes.Stamp, ops []runtimes.Op) (limit time.Duration, effects bool, err error) {
	if len(ops) == 0 || len(ops) > agent.MaxOps {
		return 0, false, &runtimes.OpError{Host: f.name, Op: "request", Code: agent.CodeInvalid, Message: fmt.Sprintf("1 to %d operations, not %d", agent.MaxOps, len(ops))}
	}
	limit = margin
	for _, op := range ops {
		if err := agent.Check(op); err != nil {
			return 0, false, &runtimes.OpError{Host: f.name, Op: agent.Summary(op), Code: agent.CodeInvalid, Message: err.Error()}
		}
		limit += duration(op)
		effects = effects || mayEffect(op)
	}
	// Without an epoch the far side does nothing that has an effect.
	return limit, effects && stamp.Epoch > 0, nil
}

// duration is how long an operation may take.
func duration(op runtimes.Op) time.Duration {
	ms := func(n int, otherwise time.Duration) time.Duration {
		if n > 0 {
			return time.Duration(n) * time.Millisecond
		}
		return otherwise
	}
	switch {
	case op.Run != nil:
		return ms(op.Run.TimeoutMS, 10*time.Second)
	case op.Service != nil && op.Service.Verb == "restart":
		return 2 * ms(op.Service.TimeoutMS, 10*time.Second)
	case op.Service != nil:
		return ms(op.Service.TimeoutMS, 10*time.Second)
	case op.WaitTCP != nil:
		return ms(op.WaitTCP.TimeoutMS, 0)
	case op.Preflight != nil:
		return 10 * time.Second
	}
	return time.Second
}

func mayEffect(op runtimes.Op) bool {
	switch {
	case op.Read != nil, op.Stat != nil, op.List != nil, op.WaitTCP != nil, op.Info != nil, op.Preflight != nil:
		return false
	case op.Service != nil:
		return op.Service.Verb != "state"
	case op.Ledger != nil:
		return op.Ledger.Find == ""
	}
	return true
}

// encode makes the request's line. The far side gets a little less time than
// this side waits, so that it can say which operation took too long.
func (f *far) encode(ctx context.Context, stamp runtimes.Stamp, ops []runtimes.Op) (uint64, []byte, error) {
	deadline, _ := ctx.Deadline()
	left := time.Until(deadline)
	left -= min(left/10, time.Second)
	f.mu.Lock()
	f.nextID++
	id := f.nextID
	f.mu.Unlock()
	b, err := json.Marshal(agent.Request{ID: id, Stamp: stamp, TimeoutMS: max(left.Milliseconds(), 1), Ops: ops})
	if err == nil && len(b) >= agent.MaxRequest {
		err = fmt.Errorf("larger than %d bytes", agent.MaxRequest)
	}
	if err != nil {
		return 0, nil, &runtimes.OpError{Host: f.name, Op: "request", Code: agent.CodeInvalid, Message: err.Error()}
	}
	return id, append(b, '\n'), nil
}

func (f *far) failure(fault *agent.Fault) error {
	switch {
	case fault == nil:
		return nil
	case fault.Code == agent.CodeStaleEpoch:
		return fmt.Errorf("host %s: %s: %w: %s", f.name, fault.Op, runtimes.ErrStaleEpoch, fault.Message)
	}
	message := fault.Message
	if fault.Code == agent.CodeInvalid && strings.Contains(message, "unknown field") { // of a request that a later release sends
		message += "; install the berth-host of the same release"
	}
	return &runtimes.OpError{Host: f.name, Op: fault.Op, Message: message, Code: fault.Code, Exit: fault.Exit}
}

// take gives an idle session that lives, or a new one, to be given or left.
func (f *far) take(ctx context.Context) (*session, error) {
	for s := f.takeIdle(); s != nil; s = f.takeIdle() {
		select {
		case <-s.dead:
			f.leave(s)
		default:
			return s, nil
		}
	}
	if f.isClosed() {
		return nil, errClosed
	}
	s, err := f.opener.open(ctx)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		s.hangUp()
		return nil, errClosed
	}
	f.busy[s] = struct{}{}
	return s, nil
}

var errClosed = errors.New("closed")

func (f *far) isClosed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

func (f *far) takeIdle() *session {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.idle)
	if n == 0 {
		return nil
	}
	s := f.idle[n-1]
	f.idle = f.idle[:n-1]
	s.expire.Stop()
	f.busy[s.session] = struct{}{}
	return s.session
}

// leave hangs up a session.
func (f *far) leave(s *session) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.busy, s)
	s.hangUp()
}

// give keeps a session for the next call.
func (f *far) give(s *session) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.busy, s)
	if f.closed {
		s.hangUp()
		return
	}
	kept := &idleSession{session: s}
	kept.expire = time.AfterFunc(keepIdle, func() { f.drop(kept) })
	f.idle = append(f.idle, kept)
}

// drop hangs up a session that nobody took.
func (f *far) drop(s *idleSession) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, have := range f.idle {
		if have == s {
			f.idle = append(f.idle[:i], f.idle[i+1:]...)
			s.hangUp()
			return
		}
	}
}

// shut hangs up every session. Calls under way fail.
func (f *far) shut() {
	f.mu.Lock()
	f.closed = true
	for _, s := range f.idle {
		s.expire.Stop()
		s.hangUp()
	}
	for s := range f.busy {
		s.hangUp()
	}
	f.idle = nil
	f.mu.Unlock()
	f.opener.close()
}

package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"berth/reconciler/fair"
	"berth/runtimes"
	"berth/runtimes/host/agent"
)

const (
	// maxSessions is the number of parallel sessions with a host, sessionsOfFacts left out. sshd
	// allows ten on a connection.
	maxSessions = 8
	// sessionsOfFacts is how many further sessions read facts only: a host is not silent because others use it.
	sessionsOfFacts = 1
	// keepIdle is the time after which an idle session is closed.
	keepIdle = time.Minute
	// defaultMargin is added to the timeouts of a batch's operations.
	defaultMargin = 10 * time.Second
)

// remote is a host that is reached through an opener.
type remote struct {
	name   string
	opener opener
	margin time.Duration
	slots  *fair.Slots // one for each session in use; tenants take turns
	facts  *fair.Slots // for requests that read facts only

	mu     sync.Mutex
	idle   []*session
	busy   map[*session]struct{}
	nextID uint64
	closed bool
}

func newRemote(name string, o opener) *remote {
	return &remote{
		name: name, opener: o, margin: defaultMargin, slots: fair.NewSlots(maxSessions),
		facts: fair.NewSlots(sessionsOfFacts), busy: map[*session]struct{}{},
	}
}

// Name returns the name of the node.
func (r *remote) Name() string { return r.name }

// Do implements runtimes.Host.
func (r *remote) Do(ctx context.Context, stamp runtimes.Stamp, ops ...runtimes.Op) ([]runtimes.Result, error) {
	limit, effects, err := r.inspect(stamp, ops)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
	defer cancel()
	give, err := r.takeSlot(ctx, ops)
	if err != nil {
		return nil, r.unreachable(err)
	}
	defer give()
	for {
		if ctx.Err() != nil {
			return nil, r.unreachable(context.Cause(ctx))
		}
		s, err := r.take(ctx)
		if err != nil {
			return nil, r.unreachable(err)
		}
		id, request, err := r.encode(ctx, stamp, ops)
		if err != nil {
			r.give(s)
			return nil, err
		}
		again := s.used // the helper of an idle session may have ended: retry with a new one
		resp, err := s.call(ctx, id, request)
		if err == nil {
			r.give(s)
			return resp.Results, r.failure(resp.Fault)
		}
		r.leave(s)
		switch {
		case again && ctx.Err() == nil && (!effects || errors.Is(err, errNotSent)):
		case effects && !errors.Is(err, errNotSent):
			return nil, fmt.Errorf("host %s: %s: %w: %w", r.name, batch(ops), runtimes.ErrUncertain, err)
		default:
			return nil, r.unreachable(err)
		}
	}
}

// takeSlot waits for a session that may be used for the operations.
func (r *remote) takeSlot(ctx context.Context, ops []runtimes.Op) (give func(), err error) {
	if len(ops) == 1 && ops[0].Facts != nil {
		if give, err = r.facts.Take(ctx, ""); err != nil {
			return nil, fmt.Errorf("facts are being read: %w", err)
		}
		return give, nil
	}
	if give, err = r.slots.Take(ctx, runtimes.TenantOf(ctx)); err != nil {
		return nil, fmt.Errorf("all sessions that this tenant may have are in use: %w", err)
	}
	return give, nil
}

func (r *remote) unreachable(err error) error {
	return fmt.Errorf("host %s: %w: %w", r.name, runtimes.ErrUnreachable, err)
}

// batch describes the operations of a request.
func batch(ops []runtimes.Op) string {
	if len(ops) == 1 {
		return agent.Summary(ops[0])
	}
	return fmt.Sprintf("%s and %d more", agent.Summary(ops[0]), len(ops)-1)
}

// inspect checks the operations. It returns their total timeout, and whether any of
// them may have an effect.
func (r *remote) inspect(stamp runtimes.Stamp, ops []runtimes.Op) (limit time.Duration, effects bool, err error) {
	if len(ops) == 0 || len(ops) > agent.MaxOps {
		return 0, false, &runtimes.OpError{Host: r.name, Op: "request", Code: runtimes.CodeInvalid,
			Message: fmt.Sprintf("want 1 to %d operations, got %d", agent.MaxOps, len(ops))}
	}
	limit = r.margin
	for _, op := range ops {
		if err := agent.Check(op); err != nil {
			return 0, false, &runtimes.OpError{Host: r.name, Op: agent.Summary(op), Code: runtimes.CodeInvalid, Message: err.Error()}
		}
		limit += duration(op)
		effects = effects || agent.MayEffect(op)
	}
	// Without an epoch the agent refuses operations with an effect.
	return limit, effects && stamp.Epoch > 0, nil
}

// duration returns the timeout of an operation.
func duration(op runtimes.Op) time.Duration {
	timeout := func(ms int) time.Duration {
		if ms > 0 {
			return time.Duration(ms) * time.Millisecond
		}
		return 10 * time.Second
	}
	switch {
	case op.Run != nil:
		return timeout(op.Run.TimeoutMS)
	case op.Service != nil && op.Service.Verb == "restart":
		return 3 * timeout(op.Service.TimeoutMS)
	case op.Service != nil && op.Service.Verb != "start" && op.Service.Verb != "state":
		return 2 * timeout(op.Service.TimeoutMS)
	case op.Service != nil:
		return timeout(op.Service.TimeoutMS)
	case op.Preflight != nil:
		return 10 * time.Second
	case op.UserDir != nil, op.User != nil && !op.User.Absent:
		return 100 * time.Millisecond // berth-host makes all accounts of a request together
	}
	return time.Second
}

// encode encodes the request. The agent gets a little less time than this side waits,
// so that it can report the operation that timed out.
func (r *remote) encode(ctx context.Context, stamp runtimes.Stamp, ops []runtimes.Op) (uint64, []byte, error) {
	deadline, _ := ctx.Deadline()
	left := time.Until(deadline)
	left -= min(left/10, time.Second)
	r.mu.Lock()
	r.nextID++
	id := r.nextID
	r.mu.Unlock()
	b, err := json.Marshal(agent.Request{ID: id, Stamp: stamp, TimeoutMS: max(left.Milliseconds(), 1), Ops: ops})
	if err == nil && len(b) >= agent.MaxRequest {
		err = fmt.Errorf("larger than %d bytes", agent.MaxRequest)
	}
	if err != nil {
		return 0, nil, &runtimes.OpError{Host: r.name, Op: "request", Code: runtimes.CodeInvalid, Message: err.Error()}
	}
	return id, append(b, '\n'), nil
}

func (r *remote) failure(fault *agent.Fault) error {
	switch {
	case fault == nil:
		return nil
	case fault.Code == runtimes.CodeStaleEpoch:
		return fmt.Errorf("host %s: %s: %w: %s", r.name, fault.Op, runtimes.ErrStaleEpoch, fault.Message)
	}
	return &runtimes.OpError{Host: r.name, Op: cmp.Or(fault.Op, "request"), Message: fault.Message, Code: fault.Code, Exit: fault.Exit}
}

// take returns a live idle session or a new one. The caller gives it back or leaves it.
func (r *remote) take(ctx context.Context) (*session, error) {
	if s, err := r.takeIdle(); s != nil || err != nil {
		return s, err
	}
	s, err := r.opener.open(ctx)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		s.hangUp()
		return nil, errClosed
	}
	r.busy[s] = struct{}{}
	return s, nil
}

// takeIdle returns a live idle session, or nil.
func (r *remote) takeIdle() (*session, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	for len(r.idle) > 0 {
		last := len(r.idle) - 1
		s := r.idle[last]
		r.idle = r.idle[:last]
		s.expire.Stop()
		select {
		case <-s.dead:
			s.hangUp()
		default:
			r.busy[s] = struct{}{}
			return s, nil
		}
	}
	return nil, nil
}

// leave closes a session.
func (r *remote) leave(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.busy, s)
	s.hangUp()
}

// give keeps a session for the next call.
func (r *remote) give(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.busy, s)
	if r.closed {
		s.hangUp()
		return
	}
	s.expire = time.AfterFunc(keepIdle, func() { r.drop(s) })
	r.idle = append(r.idle, s)
}

// drop closes an idle session.
func (r *remote) drop(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.idle, s); i >= 0 {
		r.idle = slices.Delete(r.idle, i, i+1)
		s.hangUp()
	}
}

// shut closes every session. Running calls fail.
func (r *remote) shut() {
	r.mu.Lock()
	r.closed = true
	for _, s := range r.idle {
		s.expire.Stop()
		s.hangUp()
	}
	for s := range r.busy {
		s.hangUp()
	}
	r.idle = nil
	r.mu.Unlock()
	r.opener.close()
}

package agent

import (
	"bufio"
	"context"
	"errors"
	"io"
	"runtime/debug"
	"time"

	"berth/runtimes"
)

// Serve answers requests from r on w until r ends. It returns nil at a clean end and
// an error for a truncated stream. When ctx ends, it cancels the current operation
// and starts no other.
func (a *Agent) Serve(ctx context.Context, r io.Reader, w io.Writer) error {
	if err := WriteLine(w, Hello{Berth: Protocol, Version: a.version}); err != nil {
		return err
	}
	in := bufio.NewReaderSize(r, 32<<10)
	for {
		line, err := ReadLine(in, MaxRequest)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		req, err := decodeRequest(line)
		if err != nil {
			// The line was complete, so the next request may be valid.
			if err := WriteLine(w, Response{ID: req.ID, Fault: faultOf(err)}); err != nil {
				return err
			}
			continue
		}
		resp := a.answer(ctx, req)
		if err := WriteLine(w, resp); err != nil {
			return err
		}
		if len(line) > large || dataIn(resp) > large {
			line, req, resp = nil, Request{}, Response{}
			debug.FreeOSMemory() // the host's memory is for its jobs
		}
	}
}

// large is the size of a request or answer after which memory is returned.
const large = 256 << 10

func dataIn(r Response) int {
	n := 0
	for _, res := range r.Results {
		n += sizeOf(res)
	}
	return n
}

// sizeOf estimates the size of a result in bytes.
func sizeOf(r runtimes.Result) int {
	const words = 100 // names and punctuation of the fields around a text
	n := len(r.Data) + len(r.Stderr)
	for _, name := range r.Names {
		n += len(name) + 3
	}
	for _, st := range r.Stats {
		n += len(st.Path) + len(st.SHA256) + words
	}
	if f := r.Facts; f != nil {
		n += (len(f.Disks) + len(f.Missing) + len(f.GPUModels) + 4) * words
	}
	if r.Ledger != nil {
		n += len(r.Ledger.Entries) * maxEntry
	}
	return n
}

// answer does the operations of a request in order until one fails.
func (a *Agent) answer(ctx context.Context, req Request) Response {
	if req.TimeoutMS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(req.TimeoutMS)*time.Millisecond)
		defer cancel()
	}
	resp := Response{ID: req.ID}
	effects := a.effects(req.Ops)
	if len(effects) > 0 || req.Stamp.Epoch > 0 && len(req.Ops) > 0 {
		// A read also records its leader, so that no earlier leader acts after it. It does not keep others out while it reads.
		leave, err := a.leaders.enter(ctx, req.Stamp)
		switch {
		case err == nil && len(effects) == 0:
			leave()
		case err == nil:
			defer leave()
		case len(effects) > 0 || isStale(err) || ctx.Err() != nil:
			resp.Fault = withOp(err, first(effects, req.Ops))
			return resp
		default: // observation goes on if the host cannot record the leader, for example with a full disk
		}
	}
	if len(effects) == 0 {
		resp.Results, resp.Fault = a.doAll(ctx, req.Ops)
		return resp
	}
	// Recorded before any effect, with one sync for all of them.
	if err := a.ledger.record(ctx, req.Stamp, effects...); err != nil {
		resp.Fault = withOp(err, "ledger")
		return resp
	}
	if err := a.paths.claim(ctx, req.Ops); err != nil {
		resp.Fault = faultOf(err)
	} else {
		resp.Results, resp.Fault = a.doAll(ctx, req.Ops)
		// The error does not matter: a recorded path that is gone does no harm.
		defer func() { _ = a.paths.dropMissing(context.WithoutCancel(ctx), req.Ops) }()
	}
	if resp.Fault != nil {
		// A lost line is harmless: intents without an outcome are checked anyway.
		_ = a.ledger.record(context.WithoutCancel(ctx), req.Stamp, runtimes.StoppedAt+resp.Fault.Op+": "+string(resp.Fault.Code))
	}
	return resp
}

// isStale reports whether a request came from a leader that was deposed.
func isStale(err error) bool {
	var f *Fault
	return errors.As(err, &f) && f.Code == runtimes.CodeStaleEpoch
}

// first summarizes the first effect of a request, or the first operation of one without an effect.
func first(effects []string, ops []runtimes.Op) string {
	if len(effects) > 0 {
		return effects[0]
	}
	return Summary(ops[0])
}

// effects summarizes the operations that have an effect or give away a secret.
func (a *Agent) effects(ops []runtimes.Op) []string {
	var list []string
	for _, op := range ops {
		effect := MayEffect(op) && (op.Run == nil || !a.allow.reads(op.Run))
		if effect || op.Read != nil && matches(a.allow.keys, op.Read.Path) {
			list = append(list, Summary(op))
		}
	}
	return list
}

// doAll does operations until one fails, and returns the results of those before it.
func (a *Agent) doAll(ctx context.Context, ops []runtimes.Op) (results []runtimes.Result, fault *Fault) {
	size := 0
	for len(results) < len(ops) {
		some, err := a.doNext(ctx, ops[len(results):])
		for _, res := range some {
			if size += sizeOf(res); size > maxResults {
				return results, withOp(invalid("the results of one request are more than %d bytes", maxResults), Summary(ops[len(results)]))
			}
			results = append(results, res)
		}
		if err != nil {
			return results, withOp(err, Summary(ops[len(results)]))
		}
	}
	return results, nil
}

// doNext does the first of operations, or the first ones if they make or remove accounts, or make
// directories of users: those of one kind are done together.
func (a *Agent) doNext(ctx context.Context, ops []runtimes.Op) ([]runtimes.Result, error) {
	if ctx.Err() != nil {
		return nil, notStarted()
	}
	first := ops[0]
	switch {
	case first.User != nil:
		return a.users.do(ctx, leading(ops, func(op runtimes.Op) (*runtimes.User, bool) {
			return op.User, op.User != nil && op.User.Absent == first.User.Absent
		}))
	case first.UserDir != nil:
		return userDirs{a.users, a.allow, a.paths}.do(ctx, leading(ops, func(op runtimes.Op) (*runtimes.UserDir, bool) {
			return op.UserDir, op.UserDir != nil
		}))
	}
	res, err := a.do(ctx, first)
	if err != nil {
		return nil, err
	}
	return []runtimes.Result{res}, nil
}

// leading returns the operations of one kind before the first of another.
func leading[T any](ops []runtimes.Op, of func(runtimes.Op) (T, bool)) (some []T) {
	for _, op := range ops {
		one, same := of(op)
		if !same {
			break
		}
		some = append(some, one)
	}
	return some
}

// notStarted is the error of an operation for which no time is left.
func notStarted() error {
	return &Fault{Code: runtimes.CodeTimeout, Message: "not started: the request timed out before it"}
}

// do does an operation that is alone.
func (a *Agent) do(ctx context.Context, op runtimes.Op) (runtimes.Result, error) {
	if made, makes := making(op); makes {
		if err := a.allow.checkMake(made); err != nil {
			return runtimes.Result{}, err
		}
	}
	switch {
	case op.Write != nil:
		return a.files.write(op.Write)
	case op.Read != nil:
		return a.files.read(op.Read)
	case op.Remove != nil:
		return a.files.remove(op.Remove)
	case op.Dir != nil:
		return a.files.makeDir(op.Dir)
	case op.Link != nil:
		return a.files.makeLink(op.Link)
	case op.Stat != nil:
		return a.files.stat(op.Stat)
	case op.List != nil:
		return a.files.list(op.List)
	case op.Preflight != nil:
		return runtimes.Result{}, a.preflight(ctx, op.Preflight)
	case op.Secret != nil:
		return a.files.makeSecret(op.Secret)
	case op.Service != nil:
		return a.services.do(ctx, op.Service)
	case op.Run != nil:
		return a.programs.run(ctx, op.Run)
	case op.Info != nil:
		return a.info()
	case op.Facts != nil:
		return a.facts(op.Facts)
	case op.Ledger != nil:
		return a.ledger.read(op.Ledger)
	}
	return runtimes.Result{}, invalid("the operation has no field set")
}

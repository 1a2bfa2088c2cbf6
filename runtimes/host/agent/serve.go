package agent

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"berth/runtimes"
)

// New returns an Agent.
func New(o Options) *Agent {
	a := &Agent{
		profiles: o.Profiles, allow: newAllowList(o.Profiles),
		state: "/var/lib/berth", etc: "/etc", version: o.Version,
		digest: sync.OnceValue(ownDigest),
	}
	if o.StateDir != "" {
		a.state = o.StateDir
	}
	if o.EtcDir != "" {
		a.etc = o.EtcDir
	} else if name, err := exec.LookPath("/usr/bin/getent"); err == nil {
		a.getent = name
	}
	a.services = daemons{a}
	if o.EtcDir == "" && initSystem() == "systemd" {
		a.services = systemd{a}
	}
	return a
}

// Serve answers requests from r on w until r ends. It returns nil at a clean end and
// an error for a truncated stream. When ctx ends, it cancels the current operation
// and starts no other.
func (a *Agent) Serve(ctx context.Context, r io.Reader, w io.Writer) error {
	if err := WriteLine(w, Hello{Berth: Protocol, Version: a.version, Leaders: true}); err != nil {
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
	for _, e := range r.Ledger {
		n += len(e.Op) + len(e.Stamp.Commit) + len(e.Stamp.CorrelationID) + len(e.Stamp.ActionID) + len(e.Stamp.Verb) + len(e.Stamp.Leader) + 2*words
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
	if len(effects) > 0 {
		leave, err := a.enter(ctx, req.Stamp)
		if err != nil {
			resp.Fault = faultOf(err)
			resp.Fault.Op = effects[0]
			return resp
		}
		defer leave()
		// Recorded before any effect, with one sync for all of them.
		if err := a.record(ctx, req.Stamp, effects...); err != nil {
			resp.Fault = faultOf(err)
			resp.Fault.Op = "ledger"
			return resp
		}
		if err := a.claim(ctx, req.Ops); err != nil {
			resp.Fault = faultOf(err)
			_ = a.record(context.WithoutCancel(ctx), req.Stamp, "stopped at "+resp.Fault.Op+": "+resp.Fault.Code)
			return resp
		}
		// The error does not matter: a recorded path that is gone does no harm.
		defer func() { _ = a.dropMissing(context.WithoutCancel(ctx), req.Ops) }()
	}
	for _, op := range req.Ops {
		res, err := a.do(ctx, req.Stamp, op)
		if err == nil && dataIn(resp)+sizeOf(res) > maxResults {
			err = invalid("the results of one request are more than %d bytes", maxResults)
		}
		if err != nil {
			f := *faultOf(err)
			f.Op = Summary(op)
			resp.Fault = &f
			if len(effects) > 0 {
				// A lost line is harmless: intents without an outcome are checked anyway.
				_ = a.record(context.WithoutCancel(ctx), req.Stamp, "stopped at "+f.Op+": "+f.Code)
			}
			return resp
		}
		resp.Results = append(resp.Results, res)
	}
	return resp
}

// effects summarizes the operations that have an effect. It leaves out outcomes,
// which are recorded after the operations before them.
func (a *Agent) effects(ops []runtimes.Op) []string {
	var list []string
	for _, op := range ops {
		switch {
		case op.Read != nil, op.Stat != nil, op.List != nil, op.WaitTCP != nil, op.Info != nil, op.Preflight != nil:
		case op.Ledger != nil && !op.Ledger.Begin:
		case op.Service != nil && op.Service.Verb == "state":
		case op.Run != nil && a.onlyReads(op.Run):
		default:
			list = append(list, Summary(op))
		}
	}
	return list
}

func (a *Agent) onlyReads(op *runtimes.Run) bool {
	prog, ok := a.program(op.Program)
	return ok && prog.Reads != nil && prog.Reads(op.Args)
}

func (a *Agent) do(ctx context.Context, stamp runtimes.Stamp, op runtimes.Op) (runtimes.Result, error) {
	if ctx.Err() != nil {
		return runtimes.Result{}, &Fault{Code: CodeTimeout, Message: "not started: the request timed out before it"}
	}
	switch {
	case op.Write != nil:
		return a.write(op.Write)
	case op.Read != nil:
		return a.read(op.Read)
	case op.Remove != nil:
		return a.remove(op.Remove)
	case op.Dir != nil:
		return a.makeDir(op.Dir)
	case op.Link != nil:
		return a.makeLink(op.Link)
	case op.Stat != nil:
		return a.stat(op.Stat)
	case op.List != nil:
		return a.list(op.List)
	case op.Preflight != nil:
		return runtimes.Result{}, a.preflight(ctx, op.Preflight)
	case op.Secret != nil:
		return a.makeSecret(op.Secret)
	case op.Service != nil:
		return a.service(ctx, op.Service)
	case op.Run != nil:
		return a.run(ctx, op.Run)
	case op.User != nil:
		return a.user(ctx, op.User)
	case op.WaitTCP != nil:
		return a.waitTCP(ctx, op.WaitTCP)
	case op.Ledger != nil:
		return a.ledger(ctx, stamp, op.Ledger)
	case op.Info != nil:
		return a.info()
	}
	return runtimes.Result{}, invalid("the operation has no field set")
}

func (a *Agent) ledger(ctx context.Context, stamp runtimes.Stamp, op *runtimes.Ledger) (runtimes.Result, error) {
	var res runtimes.Result
	var err error
	switch {
	case op.Begin && op.End == "" && op.Find == "": // recorded with the effects of its request
	case !op.Begin && (op.End == "done" || op.End == "failed") && op.Find == "":
		leave, err := a.enter(ctx, stamp)
		if err != nil {
			return res, err
		}
		defer leave()
		return res, a.record(ctx, stamp, "end:"+op.End)
	case !op.Begin && op.End == "" && op.Find != "":
		res.Ledger, err = a.find(op.Find)
	default:
		return res, invalid("a ledger operation is begin, end with done or failed, or find")
	}
	return res, err
}

func (a *Agent) info() (runtimes.Result, error) {
	seen, err := a.latestLeader()
	if err != nil {
		return runtimes.Result{}, err
	}
	host, err := os.Hostname()
	if err != nil {
		return runtimes.Result{}, ioFault("hostname", err)
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return runtimes.Result{Info: &runtimes.HostInfo{
		Hostname: host, Version: a.version, Digest: a.digest(), BootID: strings.TrimSpace(string(boot)),
		Epoch: seen.epoch, Init: initSystem(), UID: os.Getuid(),
	}}, nil
}

// initSystem returns "systemd" or "none" (sd_booted(3)).
func initSystem() string {
	if st, err := os.Lstat("/run/systemd/system"); err == nil && st.IsDir() {
		return "systemd"
	}
	return "none"
}

// ownDigest returns the sha256 of the running program.
func ownDigest() string {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

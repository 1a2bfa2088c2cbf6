// Package slurm is the runtime for Slurm: it makes an instance one cluster with
// a control stack of its own on a controller (munged, slurmdbd, slurmctld and a
// database) and dynamic, configless nodes on workers.
//
// What stands on hosts is its only memory: a record beside every control stack
// says what was applied, and is written first and removed last, so that an
// action can be resumed after a crash at any point. Exit codes of Slurm's tools
// prove nothing; everything is read back.
//
// Several control stacks share a controller. One changes nothing of another;
// they have only the database server in common, which leaves with the last.
//
// It must not know Git, a forge or the loop, nor how a host is reached.
package slurm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// Options of a Runtime.
type Options struct {
	Hosts    runtimes.Hosts
	Timeouts Timeouts
	Now      func() time.Time // nil: time.Now; tells when a drain's deadline has come
}

// Timeouts bound what hosts are asked; a zero field takes its default.
type Timeouts struct {
	Call  time.Duration // one program, 5 s: tools wait longer for a daemon that is dead
	Ready time.Duration // a daemon or a node to be ready, 30 s
	Look  time.Duration // one host's part of an Observe, 8 s
}

// Runtime implements runtimes.Runtime and runtimes.Jobs.
type Runtime struct {
	hosts    runtimes.Hosts
	timeouts Timeouts
	now      func() time.Time

	mu    sync.Mutex
	locks map[string]*sync.Mutex
}

var (
	_ runtimes.Runtime = (*Runtime)(nil)
	_ runtimes.Jobs    = (*Runtime)(nil)
)

// New is a runtime that reaches hosts through o.Hosts.
func New(o Options) *Runtime {
	r := &Runtime{hosts: o.Hosts, timeouts: o.Timeouts, now: o.Now, locks: map[string]*sync.Mutex{}}
	if r.now == nil {
		r.now = time.Now
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&r.timeouts.Call, 5 * time.Second}, {&r.timeouts.Ready, 30 * time.Second}, {&r.timeouts.Look, 8 * time.Second}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return r
}

// lock is the mutex of name: a cluster, whose record one action changes at a
// time, or a host, of which stacks share the ports and the database server.
// Other processes are kept out by the epoch.
func (r *Runtime) lock(name string) (unlock func()) {
	r.mu.Lock()
	l := r.locks[name]
	if l == nil {
		l = &sync.Mutex{}
		r.locks[name] = l
	}
	r.mu.Unlock()
	l.Lock()
	return l.Unlock
}

// Apply implements runtimes.Runtime.
func (r *Runtime) Apply(ctx context.Context, c runtimes.Change) error {
	if err := r.apply(ctx, c); err != nil {
		return fmt.Errorf("%s %s: %w", c.Action.Verb, c.Plan.Key, err)
	}
	return nil
}

func (r *Runtime) apply(ctx context.Context, c runtimes.Change) error {
	unit := c.Plan.After
	if unit == nil || c.Action.Verb == plan.Stop {
		unit = c.Plan.Before
	}
	member, ok := unit.Control()
	if !ok {
		return fmt.Errorf("no member is the control plane")
	}
	ctl := r.control(member, c.Plan.Key, c.Stamp)
	if c.Log != nil {
		ctl.log = c.Log
	}
	switch c.Action.Verb {
	case plan.Create:
		return ctl.create(ctx, c.Plan.After)
	case plan.Configure:
		return ctl.configure(ctx, c.Plan.After)
	case plan.Join:
		return ctl.join(ctx, c.Plan.After, c.Action)
	case plan.Leave:
		return ctl.leave(ctx, c.Action)
	case plan.Start:
		return ctl.start(ctx, c.Plan.After, c.Action)
	case plan.Stop:
		return ctl.stop(ctx)
	case plan.Delete:
		return ctl.remove(ctx)
	}
	return fmt.Errorf("there is no verb %q", c.Action.Verb)
}

// site is a host on behalf of one action.
type site struct {
	host  runtimes.Host
	stamp runtimes.Stamp
}

func (s site) do(ctx context.Context, ops ...runtimes.Op) ([]runtimes.Result, error) {
	return s.host.Do(ctx, s.stamp, ops...)
}

// batch is how many operations are sent at once; a host takes 256.
const batch = 200

// doAll does operations whose results do not matter, however many they are.
func (s site) doAll(ctx context.Context, ops []runtimes.Op) error {
	for part := range slices.Chunk(ops, batch) {
		if _, err := s.do(ctx, part...); err != nil {
			return err
		}
	}
	return nil
}

// control is the control host of one unit.
type control struct {
	site
	log   *slog.Logger
	r     *Runtime
	key   schema.Key
	stack profile.Stack
	rec   record // as it is to be
	disk  record // as it was loaded and saved last
}

func (r *Runtime) control(m plan.Member, key schema.Key, stamp runtimes.Stamp) *control {
	return &control{
		site: site{r.hosts.Host(m), stamp}, log: slog.New(slog.DiscardHandler), r: r, key: key,
		stack: profile.Stack{Cluster: clusterName(key)},
	}
}

// worker is the host of a member that is no control plane.
func (c *control) worker(m plan.Member) site {
	return site{c.r.hosts.Host(m), c.stamp}
}

// errNoRecord: the control host has nothing of the instance.
var errNoRecord = errors.New("the control host has no record of the instance")

// load reads the record.
func (c *control) load(ctx context.Context) error {
	res, err := c.do(ctx, readOp(c.stack.Record()))
	if err != nil {
		return err
	}
	return c.take(res[0])
}

func (c *control) take(res runtimes.Result) error {
	if res.Missing {
		return errNoRecord
	}
	rec, err := decodeRecord(res.Data)
	if err != nil {
		return fmt.Errorf("host %s: %s: %w", c.host.Name(), c.stack.Record(), err)
	}
	if rec.Cluster != c.stack.Cluster || rec.Unit.Instance.Key != c.key {
		return fmt.Errorf("host %s: %s is of %s, not of %s", c.host.Name(), c.stack.Record(), rec.Unit.Instance.Key, c.key)
	}
	c.rec, c.disk = rec, rec
	return nil
}

// others reads the records of the other instances of the host.
func (c *control) others(ctx context.Context) ([]record, error) {
	res, err := c.do(ctx, runtimes.Op{List: &runtimes.List{Path: profile.InstanceDir}})
	if err != nil {
		return nil, err
	}
	var ops []runtimes.Op
	for _, name := range res[0].Names {
		path := profile.InstanceDir + "/" + name
		if strings.HasSuffix(name, ".json") && path != workerRecordPath && path != c.stack.Record() {
			ops = append(ops, readOp(path))
		}
	}
	if len(ops) == 0 {
		return nil, nil
	}
	res, err = c.do(ctx, ops...)
	if err != nil {
		return nil, err
	}
	var recs []record
	for i, one := range res {
		if one.Missing {
			continue // gone since it was listed
		}
		rec, err := decodeRecord(one.Data)
		if err != nil {
			return nil, fmt.Errorf("host %s: %s: %w", c.host.Name(), ops[i].Read.Path, err)
		}
		recs = append(recs, rec)
	}
	return recs, nil
}

func (c *control) writeRecord(rec *record) runtimes.Op {
	return runtimes.Op{Write: &runtimes.WriteFile{Path: c.stack.Record(), Data: rec.encode(), Mode: 0o600}}
}

func (c *control) save(ctx context.Context) error {
	if _, err := c.do(ctx, c.writeRecord(&c.rec)); err != nil {
		return err
	}
	c.disk = c.rec
	return nil
}

// cli is a call of one of Slurm's tools on this stack. Its exit status is a
// result, not an error: what it means is for the caller to read.
func (c *control) cli(program string, args ...string) runtimes.Op {
	return cliOp(c.stack.Conf(), c.r.timeouts.Call, program, args...)
}

func cliOp(conf string, timeout time.Duration, program string, args ...string) runtimes.Op {
	return runtimes.Op{Run: &runtimes.Run{
		Program: program, Args: args, Env: map[string]string{"SLURM_CONF": conf},
		TimeoutMS: int(timeout.Milliseconds()), AllowExit: true,
	}}
}

// refused is the error of a tool that ended with other than 0.
func (s site) refused(op runtimes.Op, res runtimes.Result) error {
	said := strings.TrimSpace(string(res.Stderr) + "\n" + string(res.Data))
	if len(said) > 600 {
		said = said[:600] + "…"
	}
	return &runtimes.OpError{
		Host: s.host.Name(), Op: "run " + op.Run.Program + " " + strings.Join(op.Run.Args, " "),
		Message: said, Code: "exit", Exit: res.Exit,
	}
}

// must runs one tool whose failure is one.
func (s site) must(ctx context.Context, op runtimes.Op) (runtimes.Result, error) {
	res, err := s.do(ctx, op)
	if err != nil {
		return runtimes.Result{}, err
	}
	if res[0].Exit != 0 {
		return res[0], s.refused(op, res[0])
	}
	return res[0], nil
}

func (c *control) service(name, verb string) runtimes.Op {
	unit := c.stack.Cluster
	if name == profile.MariaDB {
		unit = ""
	}
	return runtimes.Op{Service: &runtimes.Service{Name: name, Unit: unit, Verb: verb, TimeoutMS: 20_000}}
}

func readOp(path string) runtimes.Op { return runtimes.Op{Read: &runtimes.ReadFile{Path: path}} }

func removeOp(path string) runtimes.Op { return runtimes.Op{Remove: &runtimes.Remove{Path: path}} }

func removeTreeOp(path string) runtimes.Op {
	return runtimes.Op{Remove: &runtimes.Remove{Path: path, Tree: true}}
}

// removeEmptyOp removes a directory that Berth made, unless something is in it.
func removeEmptyOp(path string) runtimes.Op {
	return runtimes.Op{Remove: &runtimes.Remove{Path: path, IfEmpty: true}}
}

func removeOps(paths []string) []runtimes.Op {
	var ops []runtimes.Op
	for _, p := range paths {
		ops = append(ops, removeOp(p))
	}
	return ops
}

// ownDirOp makes a directory that is Berth's with all that daemons make in it.
func ownDirOp(path string, mode uint32, owner string) runtimes.Op {
	return runtimes.Op{Dir: &runtimes.MakeDir{Path: path, Mode: mode, Owner: owner, Group: owner, Own: true}}
}

// dirOp makes a directory that may be there already, and is then used as it is.
func dirOp(path string, mode uint32, owner string) runtimes.Op {
	return runtimes.Op{Dir: &runtimes.MakeDir{Path: path, Mode: mode, Owner: owner, Group: owner}}
}

func writeOp(path string, f file) runtimes.Op {
	return runtimes.Op{Write: &runtimes.WriteFile{Path: path, Data: f.data, Mode: f.mode, Owner: f.owner, Group: f.owner}}
}

func userOps(users []schema.UnixUser, absent bool) []runtimes.Op {
	var ops []runtimes.Op
	for _, u := range users {
		ops = append(ops, runtimes.Op{User: &runtimes.User{Name: u.Name, UID: u.UID, Absent: absent}})
	}
	return ops
}

// poll asks again until ask says that it is done, and gives its last word up
// when the time is over.
func (r *Runtime) poll(ctx context.Context, what string, ask func(context.Context) (done bool, seen string, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeouts.Ready)
	defer cancel()
	var seen string
	for {
		done, now, err := ask(ctx)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if done && err == nil {
			return nil
		}
		if now != "" {
			seen = now
		}
		select {
		case <-ctx.Done():
			if seen == "" {
				seen = "nothing"
			}
			return fmt.Errorf("%s: not within %s; last seen: %s", what, r.timeouts.Ready, seen)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// waiting is the error of an action that jobs hold up.
func waiting(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), runtimes.ErrWaiting)
}

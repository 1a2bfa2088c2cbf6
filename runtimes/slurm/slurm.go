// Package slurm is the runtime for Slurm: it makes an instance one cluster with
// a control stack of its own on a controller (munged, slurmdbd, slurmctld and a
// database) and dynamic, configless nodes on workers.
//
// The runtime keeps no state of its own. A record beside each control stack
// says what was applied. It is written first and removed last, so an action can
// be resumed after a crash at any point. Exit codes of Slurm's tools prove
// nothing, so the runtime reads every change back.
//
// Several control stacks share a controller. Each one leaves the others alone;
// they share only the database server, which is removed with the last stack.
//
// It must not know Git, a forge or the loop, nor how a host is reached.
package slurm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	Now      func() time.Time // for the deadlines of drains; nil: time.Now
}

// Timeouts bound calls to hosts. A zero field has its default.
type Timeouts struct {
	Call  time.Duration // of one program; default 5 s, as tools wait longer for a dead daemon
	Ready time.Duration // until a daemon or a node is ready; default 30 s
	Look  time.Duration // of one host in an Observe; default 8 s
}

// Runtime implements runtimes.Runtime.
type Runtime struct {
	Rules
	hosts    runtimes.Hosts
	timeouts Timeouts
	now      func() time.Time

	mu    sync.Mutex
	locks map[string]*sync.Mutex
}

var _ runtimes.Runtime = (*Runtime)(nil)

// New returns a runtime that reaches hosts through o.Hosts.
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

// lock locks a cluster, whose record one action changes at a time, or a host,
// whose stacks share ports and the database server. The epoch on the host keeps
// other processes out.
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
		return errors.New("the unit has no control plane")
	}
	ctl := r.lifecycle(member, c.Plan.Key, c.Stamp)
	if c.Log != nil {
		ctl.log = c.Log
	}
	switch c.Action.Verb {
	case plan.Create:
		return ctl.create(ctx, c.Plan.After)
	case plan.Configure:
		return ctl.configure(ctx, c.Plan.After)
	case plan.Join:
		return ctl.workers.join(ctx, c.Plan.After, c.Action)
	case plan.Leave:
		return ctl.leave(ctx, c.Action)
	case plan.Start:
		return ctl.start(ctx, c.Plan.After, c.Action)
	case plan.Stop:
		return ctl.stop(ctx)
	case plan.Delete:
		return ctl.remove(ctx)
	}
	return fmt.Errorf("unknown verb %q", c.Action.Verb)
}

// control is the control host of a unit with the unit's record.
type control struct {
	site
	log   *slog.Logger
	r     *Runtime
	key   schema.Key
	stack profile.Stack
	rec   record // the wanted record
	disk  record // the record on the host
}

func (r *Runtime) control(m plan.Member, key schema.Key, stamp runtimes.Stamp) *control {
	return &control{
		site: site{r.hosts.Host(m), stamp}, log: slog.New(slog.DiscardHandler), r: r, key: key,
		stack: profile.Stack{Cluster: ClusterName(key)},
	}
}

// lifecycle applies the verbs of a plan to a unit. Each part has its own type and
// changes the record through the shared control.
type lifecycle struct {
	*control
	jobs         jobQueue
	nodes        nodeSet
	daemons      stackDaemons
	files        configFiles
	users        hostUsers
	associations associations
	devices      gpuDevices
	workers      workerHosts
}

func (r *Runtime) lifecycle(m plan.Member, key schema.Key, stamp runtimes.Stamp) lifecycle {
	c := r.control(m, key, stamp)
	l := lifecycle{control: c, jobs: jobQueue{c}, users: hostUsers{c}, devices: gpuDevices{c}}
	l.nodes = nodeSet{c, l.jobs}
	l.daemons = stackDaemons{c, l.nodes}
	l.files = configFiles{c, l.daemons, l.nodes, l.jobs}
	l.associations = associations{c, l.users, l.jobs}
	l.workers = workerHosts{c, l.nodes, l.users, l.files, l.devices}
	return l
}

// worker returns the host of a worker.
func (c *control) worker(m plan.Member) site {
	return site{c.r.hosts.Host(m), c.stamp}
}

// poll calls ask until it is done, for at most the Ready timeout. The error after
// that contains the state that ask saw last.
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

// waiting returns the error of an action that has to wait for jobs.
func waiting(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), runtimes.ErrWaiting)
}

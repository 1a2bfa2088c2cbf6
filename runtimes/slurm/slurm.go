// Package slurm is the runtime for Slurm: it runs each instance as one cluster with
// a control stack of its own on a controller (munged, slurmdbd, slurmctld and a
// database) and static, configless nodes on workers (NODES.md).
//
// Package cluster describes the wanted cluster and the effects of a change; this package brings hosts there.
//
// The runtime keeps no state of its own. A record beside each control stack
// has the applied state. It is written before anything else is created and
// removed after everything else, so an action can be resumed after a crash at any point. Exit codes of Slurm's tools prove
// nothing, so the runtime reads every change back.
//
// A change of files goes through the states of the record's journal, each recorded before the effect:
//
//	         begin: Writing, Owed, RestartDue
//	applied ─────────────────────────────────▶ writing ──────▶ applied, with the new files
//	   ▲                                        │ ▲  │    end: slurmctld and the nodes run them
//	   │                                        │ └──┘
//	   │                                        │ crash: the next configure begins again, from files of either
//	   └──── end: the old files are back ───────┘
//	                                              they do not work: roll back
//
// Files has the files that worked last, and Writing those that are being written: any other file on the host is a person's change,
// and is undone before the next action. Owed are the steps that are not verified yet, of a change or of a start of slurmctld, and
// RestartDue the nodes whose slurmd has to start again: a start of the worker does that if the change could not.
//
// The daemons are brought to what should run in the order in which each needs the others, after any fault and after any change. One
// that hangs is stopped first. A start of slurmctld passes the gate, which the record has as a journal of its own:
//
//	munged ─▶ database ─▶ slurmdbd ─▶ gate ─▶ slurmctld serves ─▶ nodes registered, with its files
//	                                   │             │                        │
//	               Owed.Settle, Raised ┘             └ Raised, Anew cleared   └ Owed cleared
//
// The gate refuses a lost state, as a start refuses lost accounting, unless a person accepted the loss (Anew). It adds the accounts and
// QoS that the files name, and raises the id of the first job above each id that a job may have (FirstJob). Without slurmdbd, slurmctld starts from the
// accounting that it saved.
//
// What is no longer wanted takes no more jobs (Closing) and waits for those that run (Leaving, Detaching). An operation of a person is
// recorded before a restart (Restarting) and when it is done (Done).
//
// The type lifecycle applies the verbs of a plan. It uses one type for each part of a cluster:
// the daemons of the control stack, its files, the nodes in slurmctld, the queue of
// jobs, users in Slurm and on hosts, and the hosts of workers. All of them change the
// record of the instance through the type control.
//
// Several control stacks can share a controller host. Each one leaves the others alone;
// they share only the database server, which is removed with the last stack.
//
// A project that is attached to a unit gets an account with all its limits, and a QoS that refuses
// a job over a limit at its submission. With a guaranteed share it gets a second QoS, which
// preempts jobs beyond a share. Partitions name the accounts and QoS whose jobs they take. The
// users of a unit without attachments have the account members.
//
// It must not know Git, a forge or the loop, nor how a host is reached.
package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/jobs"
	"berth/schema/queue"
)

// Options of a Runtime.
type Options struct {
	Hosts    runtimes.Hosts
	Timeouts Timeouts
	Now      func() time.Time // for the deadlines of drains; nil: time.Now
}

// Runtime implements runtimes.Runtime.
type Runtime struct {
	cluster.Rules
	*jobs.Queue
	env *environment
}

var (
	_ runtimes.Runtime = (*Runtime)(nil)
	_ runtimes.Queue   = (*Runtime)(nil)
)

// New returns a runtime that reaches hosts through o.Hosts.
func New(o Options) *Runtime {
	t := o.Timeouts
	t.Call, t.Ready, t.Probe = cmp.Or(t.Call, 5*time.Second), cmp.Or(t.Ready, 30*time.Second), cmp.Or(t.Probe, 10*time.Second)
	t.Look = cmp.Or(t.Look, t.Call*8/5)
	env := &environment{hosts: o.Hosts, timeouts: t, now: o.Now, locks: map[string]*sync.Mutex{}}
	if env.now == nil {
		env.now = time.Now
	}
	return &Runtime{env: env, Queue: jobs.New(jobs.Options{
		Hosts: env.hosts, Cluster: cluster.Name, Account: accountOf, Timeout: t.Call, Now: env.now, KeepsEnded: keepsEnded,
	})}
}

// keepsEnded returns MinJobAge of a unit; its default is 300 s (slurm.conf(5)).
func keepsEnded(u *plan.Unit) time.Duration {
	seconds := 300
	if set, err := cluster.Parse(u.Effective.Config); err == nil {
		if n, err := strconv.Atoi(string(set.Options["MinJobAge"])); err == nil {
			seconds = n
		}
	}
	return time.Duration(seconds) * time.Second
}

// Nodes implements runtimes.Queue.
func (r *Runtime) Nodes(ctx context.Context, u *plan.Unit, s runtimes.Stamp) ([]queue.Node, error) {
	member, ok := u.Control()
	if !ok {
		return nil, fmt.Errorf("%w: the unit has no control plane yet", queue.ErrUnavailable)
	}
	nodes, err := nodeSet{control: newControl(r.env, member, u.Effective.Key, s)}.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", queue.ErrUnavailable, err)
	}
	var all []queue.Node
	for _, m := range u.Members {
		if n, ok := findNode(nodes, m.Node); ok {
			all = append(all, queue.Node{
				Member: m.Name, Node: m.Node, State: append([]string{strings.ToUpper(n.State)}, n.Flags...), Reason: n.Reason, CPUs: n.CPUs,
				GPUs: cluster.GPUCount(m),
			})
		}
	}
	return all, nil
}

// Apply implements runtimes.Runtime.
func (r *Runtime) Apply(ctx context.Context, c runtimes.Change) error {
	if err := r.apply(ctx, c); err != nil {
		return fmt.Errorf("%s %s: %w", c.Action.Verb, c.Plan.Key, err)
	}
	return nil
}

func (r *Runtime) apply(ctx context.Context, c runtimes.Change) error {
	if left := c.Action.Left; c.Action.Verb == plan.Clean && left != nil {
		workers := newLifecycle(newControl(r.env, *left, c.Plan.Key, c.Stamp)).workers // the unit may be gone, with its control plane
		return workers.clean(ctx, workers.worker(*left))
	}
	unit := c.Plan.After
	if unit == nil || c.Action.Verb == plan.Stop {
		unit = c.Plan.Before
	}
	member, ok := unit.Control()
	if !ok {
		return errors.New("the unit has no control plane")
	}
	ctl := newLifecycle(newControl(r.env, member, c.Plan.Key, c.Stamp))
	ctl.keepUsage, ctl.tellLost = c.RecordUsage, c.JobsLost
	if c.Log != nil {
		ctl.log = c.Log
	}
	if c.Action.Operation != nil {
		return ctl.operate(ctx, c.Action)
	}
	switch c.Action.Verb {
	case plan.Create:
		return ctl.create(ctx, c.Plan.After)
	case plan.Configure:
		return ctl.configure(ctx, c.Plan.After)
	case plan.Join:
		return ctl.workers.join(ctx, c.Plan.After, c.Action)
	case plan.Leave:
		return ctl.leave(ctx, unit, c.Action)
	case plan.Abandon:
		return ctl.abandon(ctx, c.Action)
	case plan.Start:
		return ctl.start(ctx, c.Plan.After, c.Action)
	case plan.Stop:
		return ctl.stop(ctx)
	case plan.Delete:
		return ctl.remove(ctx)
	}
	return fmt.Errorf("unknown verb %q", c.Action.Verb)
}

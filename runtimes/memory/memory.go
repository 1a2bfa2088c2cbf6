// Package memory is a runtime without hosts: units are values in a World. It keeps the
// whole contract, for trials and tests without a scheduler or root. A test can script
// faults.
//
// It must not know any scheduler. It has no files, processes or accounts.
package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/usage"
)

// Runtime implements runtimes.Runtime on a World.
type Runtime struct {
	world *World
	rules plan.Rules // nil: those of this package
}

// New returns a runtime on w. Several runtimes may share a world.
func New(w *World) *Runtime { return &Runtime{world: w} }

// NewFor returns a runtime that replaces a backend for a trial. It plans by the
// rules of that backend, so that `berth plan` and the daemon make the same plan.
func NewFor(w *World, rules plan.Rules) *Runtime { return &Runtime{w, rules} }

// Observe implements runtimes.Runtime.
func (r *Runtime) Observe(ctx context.Context, s runtimes.Scope) plan.Observed {
	w := r.world
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls["observe"]++
	obs := plan.Observed{Key: s.Key, Presence: plan.Unknown}
	if err := ctx.Err(); err != nil {
		obs.Reason = fmt.Sprintf("observe %s: %v", s.Key, err)
		return obs
	}
	u := w.units[s.Key]
	for _, node := range controlNodes(s, u) {
		if w.down[node] {
			obs.Reason = fmt.Sprintf("host %s: read the record of %s: %v", node, s.Key, runtimes.ErrUnreachable)
			return obs
		}
	}
	if u == nil {
		obs.Presence = plan.Absent
		return obs
	}
	jobs := u.Jobs
	jobs.At = time.Now().UTC()
	obs.Presence, obs.Complete, obs.Jobs = plan.Present, u.Complete, &jobs
	obs.Drift = slices.Clone(u.Drift)
	applied := cloneUnit(u.Applied)
	obs.Unit = &applied
	for _, name := range slices.Sorted(maps.Keys(u.Members)) {
		m := u.Members[name]
		state := plan.MemberState{Name: name, Node: m.Node, State: m.State, References: map[string]string{"unit": s.Key.String()},
			HasJobs: jobs.Running > 0} // jobs have no nodes here
		if state.Scheduler = plan.Responds; w.silent[m.Node] {
			state.Scheduler = plan.Unresponsive
		}
		if m.Drained != "" {
			state.OutOfService = "drained: " + m.Drained
		}
		if w.down[m.Node] {
			state.State, state.Detail = plan.Unreachable, "host "+m.Node+" could not be asked"
		}
		obs.Members = append(obs.Members, state)
	}
	obs.RuntimeState, _ = json.Marshal(map[string]any{"members": len(u.Members)}) // plain values encode
	return obs
}

// controlNodes are the nodes that have to answer before the state is known.
func controlNodes(s runtimes.Scope, u *unit) []string {
	members := s.Members
	if u != nil {
		members = u.Applied.Members
	}
	for _, m := range members {
		if m.ControlPlane {
			return []string{m.Node}
		}
	}
	var nodes []string
	for _, n := range s.Candidates {
		nodes = append(nodes, n.Key.Name)
	}
	slices.Sort(nodes)
	return nodes
}

// Apply implements runtimes.Runtime.
func (r *Runtime) Apply(ctx context.Context, c runtimes.Change) error {
	r.world.mu.Lock()
	r.world.calls[string(c.Action.Verb)]++
	r.world.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", c.Action.Verb, c.Plan.Key, err)
	}
	a := &applier{world: r.world, change: c, key: c.Plan.Key}
	if err := a.recordUsage(ctx); err != nil {
		return fmt.Errorf("%s %s: %w", c.Action.Verb, c.Plan.Key, err)
	}
	apply, ok := map[plan.Verb]func() error{
		plan.Create: a.create, plan.Configure: a.configure, plan.Join: a.join, plan.Leave: a.leave,
		plan.Start: a.start, plan.Stop: a.stop, plan.Delete: a.remove, plan.Abandon: a.abandon, plan.Clean: a.clean,
		plan.Drain: a.operate, plan.Resume: a.operate, plan.Cordon: a.operate, plan.Uncordon: a.operate, plan.Restart: a.operate,
		plan.Replace: a.operate, plan.Remove: a.operate, plan.Label: a.operate, plan.RetryUnit: a.operate, plan.AcceptLoss: a.operate,
		plan.AbandonUsage: a.operate,
	}[c.Action.Verb]
	if !ok {
		return fmt.Errorf("%s: unknown verb %q", c.Plan.Key, c.Action.Verb)
	}
	return apply()
}

// Impact implements plan.Rules.
func (r *Runtime) Impact(verb plan.Verb, member string, before, after *plan.Unit) plan.Impact {
	if r.rules != nil {
		return r.rules.Impact(verb, member, before, after)
	}
	if before == nil {
		return plan.Impact{}
	}
	rule := plan.JobRule{All: true} // jobs have no nodes here
	if on := before.Effective.OnJobs; on != nil {
		rule.CancelAfter = on.CancelAfterSeconds
	}
	switch m, ok := before.Member(member); {
	case verb == plan.Restart && ok:
		return plan.Impact{Restarts: []string{member}}
	case (verb == plan.Leave || schema.EndsJobs(string(verb))) && ok:
		return plan.Impact{Drains: []string{m.Node}, EndsJobs: rule.CancelAfter > 0, Jobs: []plan.JobRule{rule}}
	case verb == plan.Delete:
		rule.CancelsQueued = true
		return plan.Impact{EndsJobs: rule.CancelAfter > 0, Jobs: []plan.JobRule{rule}}
	}
	return plan.Impact{}
}

// applier applies an action step by step.
type applier struct {
	world  *World
	change runtimes.Change
	key    schema.Key
}

// recordUsage records the usage of the jobs of detached projects, and at a deletion that of all jobs.
func (a *applier) recordUsage(ctx context.Context) error {
	if a.change.RecordUsage == nil || a.change.Action.Verb != plan.Configure && a.change.Action.Verb != plan.Delete {
		return nil
	}
	var leaving []usage.Job
	for _, j := range a.world.used(a.key) {
		after := a.change.Plan.After
		if after == nil || j.ProjectID != "" &&
			!slices.ContainsFunc(after.Effective.Attachments,
				func(t schema.EffectiveAttachment) bool { return t.ProjectID == j.ProjectID }) {
			leaving = append(leaving, j)
		}
	}
	return a.change.RecordUsage(ctx, leaving)
}

func (a *applier) step(node, what string, effect func(*unit)) error {
	return a.world.step(a.change.Stamp, a.key, node, what, effect)
}

func (a *applier) create() error {
	after := a.change.Plan.After
	control, ok := after.Control()
	if !ok {
		return fmt.Errorf("create %s: the unit has no control plane", a.key)
	}
	if err := a.world.preflight(control.Node); err != nil {
		return err
	}
	if err := a.step(control.Node, "write the record", func(u *unit) {
		u.Applied, u.Complete = cloneUnit(*after), false
	}); err != nil {
		return err
	}
	if err := a.step(control.Node, "start the control plane", func(u *unit) { a.run(u, control) }); err != nil {
		return err
	}
	return a.step(control.Node, "finish the record", func(u *unit) { u.Complete = true })
}

func (a *applier) configure() error {
	after := a.change.Plan.After
	control, ok := after.Control()
	if !ok {
		return fmt.Errorf("configure %s: the unit has no control plane", a.key)
	}
	return a.step(control.Node, "write the configuration", func(u *unit) {
		applied := cloneUnit(*after)
		for _, was := range u.Applied.Members {
			if u.Members[was.Name].State == plan.Draining { // it still is as it joined
				applied.Members = slices.DeleteFunc(applied.Members, func(m plan.Member) bool { return m.Name == was.Name })
				applied.Members = append(applied.Members, was)
			}
		}
		u.Applied, u.Drift = applied, nil
	})
}

func (a *applier) join() error {
	m, ok := a.change.Plan.After.Member(a.change.Action.Member)
	if !ok {
		return fmt.Errorf("join %s: the plan has no member %q", a.key, a.change.Action.Member)
	}
	if err := a.world.preflight(m.Node); err != nil {
		return err
	}
	if err := a.step(m.Node, "prepare", func(u *unit) {
		if u.Members[m.Name].State != plan.Running {
			u.Members[m.Name] = memberState{Node: m.Node, State: plan.Partial, Epoch: a.change.Stamp.Epoch, Leader: a.change.Stamp.Leader}
		}
	}); err != nil {
		return err
	}
	return a.step(m.Node, "join", func(u *unit) { a.run(u, m) })
}

// leave waits for jobs unless on_jobs says that they are cancelled.
func (a *applier) leave() error {
	name, node := a.change.Action.Member, a.change.Action.Node
	waiting := false
	if err := a.step(node, "drain", func(u *unit) {
		m, ok := u.Members[name]
		if !ok {
			return
		}
		m.State = plan.Draining
		u.Members[name] = m
		waiting = u.busy()
	}); err != nil {
		return err
	}
	if waiting {
		return fmt.Errorf("leave %s: jobs run on %s: %w", a.key, node, runtimes.ErrWaiting)
	}
	return a.step(node, "take out", func(u *unit) {
		delete(u.Members, name)
		u.Applied.Members = slices.DeleteFunc(u.Applied.Members, func(m plan.Member) bool { return m.Name == name })
	})
}

func (a *applier) start() error {
	return a.step(a.change.Action.Node, "start", func(u *unit) {
		m := plan.Member{Name: a.change.Action.Member, Node: a.change.Action.Node}
		a.run(u, m)
	})
}

func (a *applier) stop() error {
	before := a.change.Plan.Before
	if before == nil {
		return fmt.Errorf("stop %s: the unit does not exist", a.key)
	}
	members := slices.Concat(before.Members, a.left(before))
	for _, m := range slices.Backward(members) {
		if err := a.step(m.Node, "stop "+m.Name, func(u *unit) {
			if s, ok := u.Members[m.Name]; ok {
				s.State = plan.Stopped
				u.Members[m.Name] = s
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// left returns the members that exist and are not in the record of the unit, by name: they have still to leave.
func (a *applier) left(before *plan.Unit) (out []plan.Member) {
	a.world.mu.Lock()
	defer a.world.mu.Unlock()
	u := a.world.units[a.key]
	if u == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(u.Members)) {
		if _, ok := before.Member(name); !ok {
			out = append(out, plan.Member{Name: name, Node: u.Members[name].Node})
		}
	}
	return out
}

// remove removes the members before the record, which after a crash lists the rest.
func (a *applier) remove() error {
	before := a.change.Plan.Before
	if before == nil {
		return nil
	}
	waiting := false
	for _, m := range slices.Backward(before.Members) {
		if err := a.step(m.Node, "remove "+m.Name, func(u *unit) {
			if waiting = u.busy(); !waiting {
				delete(u.Members, m.Name)
			}
		}); err != nil {
			return err
		}
		if waiting {
			return fmt.Errorf("delete %s: jobs run: %w", a.key, runtimes.ErrWaiting)
		}
	}
	control, ok := before.Control()
	if !ok {
		control = plan.Member{Node: a.change.Action.Node}
	}
	return a.step(control.Node, "remove the record", func(u *unit) { u.Applied = plan.Unit{} })
}

// run starts a member unless it runs already.
func (a *applier) run(u *unit, m plan.Member) {
	s := u.Members[m.Name]
	if s.State != plan.Running || s.Node != m.Node {
		s.Starts++
	}
	s.Node, s.State, s.Epoch, s.Leader = m.Node, plan.Running, a.change.Stamp.Epoch, a.change.Stamp.Leader
	u.Members[m.Name] = s
}

// busy reports whether jobs run. It cancels them first if on_jobs says so.
func (u *unit) busy() bool {
	if rule := u.Applied.Effective.OnJobs; rule != nil && rule.CancelAfterSeconds > 0 {
		u.Jobs.Running = 0
	}
	return u.Jobs.Running > 0
}

// cloneUnit copies all that may change.
func cloneUnit(u plan.Unit) plan.Unit {
	u.Members = slices.Clone(u.Members)
	return u
}

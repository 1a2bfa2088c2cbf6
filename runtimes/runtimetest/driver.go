package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
)

// driver makes units for a runtime, and plans and applies as the loop does.
type driver struct {
	h          Harness
	rt         runtimes.Runtime
	epoch      uint64
	leader     string
	attempt    int
	remembered map[schema.Key][]plan.Member
	hosts      map[string]map[string]string // snapshots before the first subtest, by node
}

func (d *driver) nodes() []string {
	list := []string{d.h.Control.Key.Name}
	for _, w := range d.h.Workers {
		list = append(list, w.Key.Name)
	}
	return list
}

func (d *driver) users(n int) []schema.UnixUser {
	var us []schema.UnixUser
	for i := range n {
		us = append(us, schema.UnixUser{Name: fmt.Sprintf("berthtest%d", i), UID: 42001 + i})
	}
	return us
}

// unit returns a unit with a member on each of the workers with these indexes.
func (d *driver) unit(name string, users []schema.UnixUser, workers ...int) plan.Unit {
	inst := d.h.Instance(schema.EffectiveUnit{
		Key:          schema.InstanceKey("tenant", "project", name),
		DisplayName:  name,
		DesiredState: schema.DesiredRunning,
		Users:        users,
		Roles: []schema.EffectiveRole{
			{Name: "controller", NodeRole: "controller", ControlPlane: true, Shareable: true, Count: 1},
			{Name: "worker", NodeRole: "worker", Count: len(workers)},
		},
	})
	u := plan.Unit{Effective: inst, Members: []plan.Member{d.member("controller", 0, true, d.h.Control)}}
	for i, w := range workers {
		u.Members = append(u.Members, d.member("worker", i, false, d.h.Workers[w]))
	}
	return u
}

// shared returns a unit that a project uses and to which it lends the worker of that index.
func (d *driver) shared(name string, users []schema.UnixUser, worker int) plan.Unit {
	u := d.unit(name, users, worker)
	u.Effective.Key = schema.Key{Kind: schema.KindSharedRuntime, Tenant: "tenant", Name: name}
	u.Effective.Roles[1].Count = 0
	m := &u.Members[1]
	m.Loan = &schema.Loan{ProjectID: "tenant.project"}
	m.Name = m.Role + "." + m.Node
	u.Effective.Lent = []schema.LentNode{{Node: m.Node, Role: m.Role, Loan: *m.Loan}}
	u.Effective.Attachments = []schema.EffectiveAttachment{attached("tenant.project", users)}
	return u
}

// attached returns the attachment of a project with these users.
func attached(project string, users []schema.UnixUser) schema.EffectiveAttachment {
	a := schema.EffectiveAttachment{ProjectID: project, Name: "terms", Share: 1,
		SubmissionLimits: schema.SubmissionLimits{MaxGPUs: 2, MaxWalltimeMinutes: 60}}
	for _, u := range users {
		a.Users = append(a.Users, u.Name)
	}
	return a
}

func (d *driver) member(role string, index int, control bool, n *schema.Node) plan.Member {
	m := plan.Member{
		Name: fmt.Sprintf("%s-%d", role, index), Role: role, ControlPlane: control,
		Node: n.Key.Name, Address: n.Spec.Address, SSHPort: n.Spec.SSHPort, Region: n.Spec.Region, SKU: n.Spec.SKU,
		CPUs: n.Spec.Capacity.CPUs, Shape: n.Spec.Capacity.Shape, MemoryMiB: n.Spec.Capacity.MemoryMiB,
	}
	if !control {
		m.GPUs = n.Spec.Capacity.GPUs
	}
	return m
}

func (d *driver) observe(t *testing.T, u plan.Unit) plan.Observed {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d.h.Timeout)
	defer cancel()
	obs := d.rt.Observe(ctx, d.scope(u))
	if obs.Unit != nil {
		d.remembered[u.Effective.Key] = obs.Unit.Members
	}
	return obs
}

func (d *driver) scope(u plan.Unit) runtimes.Scope {
	return runtimes.Scope{
		Key: u.Effective.Key, Members: d.remembered[u.Effective.Key],
		Candidates: []*schema.Node{d.h.Control}, Instance: &u.Effective,
	}
}

// plan returns the plan that creates u; gone: that deletes it.
func (d *driver) plan(t *testing.T, u plan.Unit, gone bool) plan.Plan {
	t.Helper()
	in := plan.Input{Key: u.Effective.Key, Observed: d.observe(t, u), Rules: d.rt}
	if !gone {
		in.After, in.Members = &u.Effective, u.Members
	}
	return plan.Make(in)
}

// apply applies an action of p and repeats it while it waits, as the loop does.
func (d *driver) apply(t *testing.T, p *plan.Plan, a plan.Action) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d.h.Timeout)
	defer cancel()
	d.attempt++
	a.ID = fmt.Sprintf("%s.%d", a.ID, d.attempt)
	for {
		err := d.rt.Apply(ctx, runtimes.Change{Plan: p, Action: a, Stamp: d.stamp(a)})
		if !errors.Is(err, runtimes.ErrWaiting) || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (d *driver) stamp(a plan.Action) runtimes.Stamp {
	return runtimes.Stamp{
		Epoch: d.epoch, Leader: d.leader, Commit: "0000000000000000000000000000000000000001",
		CorrelationID: "conformance", ActionID: a.ID, Verb: string(a.Verb),
	}
}

// carry applies a plan, after which nothing may be left to do, and returns it.
func (d *driver) carry(t *testing.T, u plan.Unit, gone bool) plan.Plan {
	t.Helper()
	began := time.Now()
	p := d.plan(t, u, gone)
	require.Empty(t, p.Blocked)
	for _, a := range p.Actions {
		require.NoError(t, d.apply(t, &p, a), "%s %s", a.Verb, a.Member)
	}
	again := d.plan(t, u, gone)
	require.True(t, again.Empty(), "after %s, still to do: %s; observed %+v", verbs(p), verbs(again), d.observe(t, u))
	t.Logf("%s of %s: %.2f s", verbs(p), u.Effective.Key.Name, time.Since(began).Seconds())
	return p
}

// verbs lists a plan's actions, such as "create, join worker-0".
func verbs(p plan.Plan) string {
	var words []string
	for _, a := range p.Actions {
		words = append(words, strings.TrimSpace(string(a.Verb)+" "+a.Member))
	}
	for _, b := range p.Blocked {
		words = append(words, "blocked: "+b.Message)
	}
	return strings.Join(words, ", ")
}

func (d *driver) running(t *testing.T, u plan.Unit) plan.Observed {
	t.Helper()
	obs := d.observe(t, u)
	require.Equal(t, plan.Present, obs.Presence, obs.Reason)
	require.True(t, obs.Complete)
	require.Empty(t, obs.Drift)
	require.Len(t, obs.Members, len(u.Members))
	for _, m := range obs.Members {
		require.Equal(t, plan.Running, m.State, "%s on %s: %s", m.Name, m.Node, m.Detail)
	}
	require.NotNil(t, obs.Unit)
	require.Equal(t, u.Effective.Key, obs.Unit.Effective.Key)
	require.Equal(t, u.Effective.Users, obs.Unit.Effective.Users)
	return obs
}

// asBefore checks that hosts are as before the first subtest.
func (d *driver) asBefore(t *testing.T, nodes ...string) {
	t.Helper()
	for _, node := range nodes {
		require.Empty(t, cmp.Diff(d.hosts[node], d.h.Snapshot(t, node)), "host %s has changed", node)
	}
}

// refused applies an action to an occupied host, which must fail without a change.
func (d *driver) refused(t *testing.T, p *plan.Plan, a plan.Action, node string) {
	t.Helper()
	free := d.h.Occupy(t, node)
	occupied := d.h.Snapshot(t, node)
	require.NotEmpty(t, cmp.Diff(d.hosts[node], occupied), "Occupy made no conflict")
	for range 2 {
		err := d.apply(t, p, a)
		require.ErrorIs(t, err, runtimes.ErrForeign)
		require.ErrorContains(t, err, node)
	}
	require.Empty(t, cmp.Diff(occupied, d.h.Snapshot(t, node)), "a refused action changed host %s", node)
	free()
}

// crashing carries the plan of u with a crash at later and later steps and a new daemon each time,
// until it ends. It returns the number of crashes.
func (d *driver) crashing(t *testing.T, u plan.Unit) (cuts int) {
	t.Helper()
	for n := 1; ; n += 1 + n/4 {
		d.h.FailStep(n, errFault)
		p := d.plan(t, u, false)
		failed := false
		for _, act := range p.Actions {
			if err := d.apply(t, &p, act); err != nil {
				require.ErrorIs(t, err, errFault, "%s %s interrupted at step %d", act.Verb, act.Member, n)
				failed = true
				break
			}
		}
		d.h.FailStep(0, nil)
		d.rt = d.h.New()
		if !failed {
			break
		}
		cuts++
		require.Less(t, n, 2000, "the plan never ends")
	}
	t.Logf("%s done after %d crashes", u.Effective.Key.Name, cuts)
	d.carry(t, u, false)
	return cuts
}

func state(t *testing.T, obs plan.Observed, member string, want plan.State) {
	t.Helper()
	i := slices.IndexFunc(obs.Members, func(m plan.MemberState) bool { return m.Name == member })
	require.GreaterOrEqual(t, i, 0, "%s is not among %v", member, obs.Members)
	require.Equal(t, want, obs.Members[i].State, "%s: %s", member, obs.Members[i].Detail)
}

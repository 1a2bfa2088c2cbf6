package loop

import (
	"cmp"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
)

// known is a Reconciler with n units and without running workers.
func known(t *testing.T, n int) *Reconciler {
	r := New(Options{Repo: &emptyRepo{}, Log: testLog(t)})
	require.NoError(t, r.status.Lead(t.Context()))
	for i := range n {
		require.True(t, put(r.status, plan.Status{Key: schema.InstanceKey("physics", "lhc", fmt.Sprint("u", i)), Phase: plan.PhaseRunning}))
	}
	r.inForce.set(&reconciler.State{Main: "m1"})
	r.inForce.setReady()
	return r
}

// A view is created once per change. A reader's view never changes afterwards.
func TestViewIsCreatedOncePerChange(t *testing.T) {
	r := known(t, 1000)
	look := func() plan.View {
		v, ok := r.View()
		require.True(t, ok)
		return v
	}
	made := func() *cachedView {
		look()
		return r.views.last.Load()
	}
	first := look()
	require.Equal(t, 1000, first.Units.Len())
	one := made()
	require.Zero(t, testing.AllocsPerRun(100, func() { r.View() }))

	r.Audit(audit.Record{Action: "api.read"}) // does not change the view
	require.Same(t, one, made())

	other := schema.Key{Kind: schema.KindNode, Name: "n"}
	put(r.status, phase(plan.PhaseDeleted))
	for _, c := range []struct {
		what   string
		change func()
	}{
		{"unit removed", func() { r.status.RemoveUnit(train) }},
		{"unit added", func() { put(r.status, phase(plan.PhaseRunning)) }},
		{"a phase", func() { put(r.status, phase(plan.PhaseFailed)) }},
		{"resource added", func() { r.status.SetResource(nil, plan.ThingStatus{Key: other, Phase: "ready"}) }},
		{"its phase", func() { r.status.SetResource(r.status.Resource(other), plan.ThingStatus{Key: other, Phase: "lost"}) }},
		{"resource removed", func() { r.status.RemoveResource(r.status.Resource(other)) }},
		{"a decision", func() { r.inForce.set(&reconciler.State{Main: "m2"}) }},
	} {
		before := made()
		c.change()
		after := made()
		require.NotSame(t, before, after, c.what)
		require.Same(t, after, made(), c.what)
	}
	require.Equal(t, 1000, first.Units.Len(), "an earlier view is unchanged")
	require.Equal(t, "m1", first.Main)
	require.Equal(t, "m2", look().Main)
}

// A reader during a decision sees the state before or after it, never a mixture.
func TestViewShowsOneDecision(t *testing.T) {
	r := known(t, 10)
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				if v, _ := r.View(); v.Units.Get(train) != nil && v.Units.Get(train).Revision != v.Main {
					t.Errorf("%s in the view of %s", v.Units.Get(train).Revision, v.Main)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i := range 500 {
		s, main := phase(plan.PhaseRunning), fmt.Sprint(i)
		s.Revision = main
		r.status.Decision.Lock()
		put(r.status, s)
		r.inForce.set(&reconciler.State{Main: main})
		r.status.Decision.Unlock()
	}
	close(done)
	wg.Wait()
}

// An attempt without a failed action ends a failure, also where a part of the unit still waits. Without an attempt, it stays.
func TestFailureEndsWithTheNextAttemptThatHasNone(t *testing.T) {
	for _, c := range []struct {
		outcomes []plan.Outcome
		phase    plan.Phase
		reason   string
	}{
		{nil, plan.PhaseFailed, "configure: no"},
		{[]plan.Outcome{{Verb: plan.Stop, State: plan.Done}, {Verb: plan.Leave, State: plan.Failed, Error: "full"}}, plan.PhaseFailed,
			"leave : full"},
		{[]plan.Outcome{{Verb: plan.Stop, State: plan.Done}, {Verb: plan.Leave, State: plan.Waiting}}, plan.PhaseUpdating, ""},
	} {
		v := unitView{
			prev:     &plan.Status{Phase: plan.PhaseFailed, LastApplied: plan.LastApplied{FailureReason: "configure: no"}},
			want:     &schema.EffectiveUnit{},
			observed: plan.Observed{Presence: plan.Present, Complete: true},
			plan:     plan.Plan{Actions: []plan.Action{{Verb: plan.Leave}}},
			outcomes: c.outcomes,
		}
		require.Equal(t, c.phase, v.phase())
		require.Equal(t, c.reason, v.failure())
	}
}

// Members that take no jobs although they run are named, and the unit is ready all the same. A new decision, which has no
// observation yet, keeps what the last one said.
func TestMembersOutOfServiceAreNamed(t *testing.T) {
	worker := func(i int) plan.Member { return plan.Member{Name: fmt.Sprint("worker-", i), Node: fmt.Sprint("w", i)} }
	named := map[string]string{"cluster": "c"}
	v := unitView{
		st: &reconciler.State{Effective: &schema.Effective{}}, prev: &plan.Status{Key: schema.InstanceKey("physics", "lhc", "train")},
		observed: plan.Observed{Presence: plan.Present, Complete: true,
			Unit: &plan.Unit{Members: []plan.Member{{Name: "controller-0", Node: "c1", ControlPlane: true}, worker(0), worker(1)}},
			Members: []plan.MemberState{
				{Name: "controller-0", Node: "c1", State: plan.Running},
				{Name: "worker-0", Node: "w0", State: plan.Running, References: named},
				{Name: "worker-1", Node: "w1", State: plan.Running, References: named,
					OutOfService: "drained: my psu (root, 2026-11-28 16:12 UTC)"},
			}},
	}
	const want = "1 of 2 workers out of service: worker-1 on w1: drained: my psu (root, 2026-11-28 16:12 UTC)"
	s := v.makeStatus()
	require.Equal(t, want, s.Condition("Degraded").Message)

	later := v
	later.prev, later.pending, later.observed = &s, true, *s.Observed
	next := later.makeStatus()
	require.Equal(t, want, next.Condition("Degraded").Message)

	v.observed.Members[2].OutOfService = ""
	s = v.makeStatus()
	require.Nil(t, s.Condition("Degraded"))
}

// Workers that are missing within max_unavailable leave an instance Ready, and are named; a change of the rest, a control plane
// that does not answer and the last worker do not.
func TestReadyAllowsWorkersToBeMissing(t *testing.T) {
	join := plan.Action{Verb: plan.Join, Member: "worker-2"}
	away := []plan.Blocked{{Code: plan.CodeUnreachable, Wait: true}}
	failed := &plan.Retry{Reason: "join worker-2: no disk", Plan: "this"}
	for name, c := range map[string]struct {
		workers, missing, most int
		leaving                bool
		control                plan.State
		plan                   plan.Plan
		retry                  *plan.Retry
		ready                  bool
		degraded               string
	}{
		"one of three is unreachable": {workers: 3, missing: 1, plan: plan.Plan{Blocked: away}, ready: true,
			degraded: "1 of 3 workers out of service: " +
				"worker-2 on w2: unreachable, no route"},
		"one of three is started": {workers: 3, missing: 1, plan: plan.Plan{Actions: []plan.Action{{Verb: plan.Start, Member: "worker-2"}}},
			ready:    true,
			degraded: "worker-2"},
		"one of three joins": {workers: 3, missing: 1, plan: plan.Plan{Actions: []plan.Action{join}}},
		"one of three could not join": {workers: 3, missing: 1, plan: plan.Plan{Actions: []plan.Action{join}}, retry: failed, ready: true,
			degraded: "no disk"},
		"one of three joins, and another plan failed": {workers: 3, missing: 1, plan: plan.Plan{Actions: []plan.Action{join}},
			retry: &plan.Retry{Reason: "configure: no", Plan: "other"}},
		"one has still to leave":       {workers: 3, leaving: true, plan: plan.Plan{Blocked: away}},
		"two of three":                 {workers: 3, missing: 2, plan: plan.Plan{Blocked: away}},
		"two of three, and two may be": {workers: 3, missing: 2, most: 2, plan: plan.Plan{Blocked: away}, ready: true, degraded: "2 of 3"},
		"the only worker":              {workers: 1, missing: 1, plan: plan.Plan{Blocked: away}},
		"the controller hangs":         {workers: 3, missing: 1, control: plan.Hung, plan: plan.Plan{Blocked: away}},
		"a change is left": {workers: 3, missing: 1, plan: plan.Plan{Blocked: away, Actions: []plan.Action{{Verb: plan.Configure,
			Member: "controller-0"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			key := schema.InstanceKey("physics", "lhc", "train")
			members := []plan.Member{{Name: "controller-0", Role: "controller", ControlPlane: true, Node: "c"}}
			states := []plan.MemberState{{Name: "controller-0", Node: "c", State: cmp.Or(c.control, plan.Running)}}
			for i := range c.workers {
				m := plan.Member{Name: fmt.Sprint("worker-", i), Role: "worker", Node: fmt.Sprint("w", i)}
				s := plan.MemberState{Name: m.Name, Node: m.Node, State: plan.Running}
				if i >= c.workers-c.missing {
					s.State, s.Detail = plan.Unreachable, "no route"
				}
				members, states = append(members, m), append(states, s)
			}
			if c.leaving {
				states = append(states, plan.MemberState{Name: "worker-9", Node: "w9", State: plan.Unreachable})
			}
			c.plan.Digest = "this"
			st := &reconciler.State{Effective: &schema.Effective{}}
			c.plan.After = &plan.Unit{Members: members}
			v := unitView{st: st, prev: &plan.Status{Key: key, Phase: plan.PhaseUpdating}, plan: c.plan, retry: c.retry,
				want: &schema.EffectiveUnit{Key: key, DesiredState: schema.DesiredRunning,
					Roles: []schema.EffectiveRole{{Name: "controller", ControlPlane: true},
						{Name: "worker", MaxUnavailable: schema.MaxUnavailable{Number: c.most}}}},
				observed: plan.Observed{Presence: plan.Present, Complete: true, Unit: &plan.Unit{Members: members}, Members: states},
			}
			if c.retry == failed {
				v.outcomes = []plan.Outcome{{Verb: plan.Join, Member: "worker-2", State: plan.Failed, Error: "no disk"}}
			}
			s := v.makeStatus()
			require.Equal(t, c.ready, s.Condition("Ready").Status == "True")
			require.Equal(t, c.ready, s.Phase == plan.PhaseRunning)
			require.Equal(t, c.ready, s.RolledOut())
			if c.ready {
				require.Contains(t, s.Condition("Degraded").Message, c.degraded)
				require.Empty(t, s.FailureReason)
			}
		})
	}
}

// An instance that serves without a worker has not converged: sync says which worker is missing, also when Berth has given up.
func TestServingWithoutAWorkerIsNotConverged(t *testing.T) {
	s := &plan.Status{Key: schema.InstanceKey("physics", "lhc", "train"), Phase: plan.PhaseRunning, Conditions: []plan.Condition{
		{Type: "Ready", Status: "True"}, {Type: "Reconciling", Status: "False"},
		{Type: "Degraded", Status: "True", Message: "1 of 3 workers out of service"}}}
	want := &schema.EffectiveUnit{Key: s.Key, DesiredState: schema.DesiredRunning}
	require.Nil(t, unsettledUnit(s, want), "a person has drained one")
	s.Retry = &plan.Retry{Terminal: true}
	require.Contains(t, unsettledUnit(s, want).What, "1 of 3 workers out of service")
}

// Package runtimetest is the conformance suite for runtimes. It runs one sequence of
// tests with two units that share a control host, an instance and a shared runtime. It uses a runtime only through
// Observe, plan.Make and Apply, as the loop does, and removes everything at the end.
//
// It must not know any scheduler. The Harness does what is specific to a backend, such
// as killing a daemon or listing leftovers on a host.
package runtimetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
)

// Harness is a runtime under test, with the access to its hosts that the suite needs.
type Harness struct {
	// New returns a new runtime for the same hosts, as after a restart of the daemon.
	New func() runtimes.Runtime
	// Control is the node of every control plane. Workers are at least three
	// nodes of the same shape for all other members.
	Control *schema.Node
	Workers []*schema.Node
	// Instance completes an instance that has its key, roles and users: backend,
	// modes and a valid configuration.
	Instance func(schema.EffectiveUnit) schema.EffectiveUnit
	// SetReachable makes a node unreachable, or reachable again.
	SetReachable func(node string, reachable bool)
	// FailStep makes the nth operation with an effect, on any host, fail once with err
	// and without the effect; n = 0 cancels that.
	FailStep func(n int, err error)
	// Kill ends the daemons of a member, as a crash does.
	Kill func(t *testing.T, u plan.Unit, member string)
	// Fingerprint describes all processes of the unit, to detect restarts.
	Fingerprint func(t *testing.T, u plan.Unit) string
	// Starts is a Fingerprint that also shows each restart that a change of the configuration makes. Nil:
	// Fingerprint shows them.
	Starts func(t *testing.T, u plan.Unit) string
	// Remains lists leftovers of a deleted unit on any host.
	Remains func(t *testing.T, u plan.Unit) []string
	// Snapshot describes a host: type, mode, owner and content of each path that Berth
	// could change, and processes. The ledger is left out.
	Snapshot func(t *testing.T, node string) map[string]string
	// Occupy starts a service of the host that conflicts with any member, and returns a
	// function that stops it.
	Occupy func(t *testing.T, node string) (free func())
	// Timeout bounds one call; 0: one minute.
	Timeout time.Duration
}

// errFault is the error of scripted faults.
var errFault = errors.New("scripted fault")

// Run runs the suite. Its subtests depend on each other, so the first failure ends it.
func Run(t *testing.T, h Harness) {
	if h.Timeout == 0 {
		h.Timeout = time.Minute
	}
	require.GreaterOrEqual(t, len(h.Workers), 3, "the suite needs three workers")
	s := &suite{&driver{
		h: h, rt: h.New(), epoch: 7, leader: "leader-a", remembered: map[schema.Key][]plan.Member{}, hosts: map[string]map[string]string{},
	}}
	a := s.unit("first", s.users(1), 0, 1)
	b := s.shared("second", s.users(1), 2)

	story := []struct {
		name string
		f    func(*testing.T)
	}{
		{"an absent unit", func(t *testing.T) { s.nothing(t, a) }},
		{"a service of the host conflicts", func(t *testing.T) { s.occupied(t, a) }},
		{"create and join", func(t *testing.T) { s.create(t, a) }},
		{"applying again changes nothing", func(t *testing.T) { s.again(t, a) }},
		{"a restarted daemon observes the same", func(t *testing.T) { s.restarted(t, a) }},
		{"operations on members", func(t *testing.T) { s.operate(t, a) }},
		{"a second unit is created after crashes at every step", func(t *testing.T) { s.crashes(t, a, b) }},
		{"projects are attached, change terms and are detached after crashes at every step", func(t *testing.T) { s.attach(t, a, b) }},
		{"users change", func(t *testing.T) { a = s.configure(t, a, b) }},
		{"a member leaves and joins", func(t *testing.T) { s.scale(t, a) }},
		{"a killed member is started", func(t *testing.T) { s.killed(t, a) }},
		{"a killed control plane is started", func(t *testing.T) { s.killedControl(t, a, b) }},
		{"stop and start", func(t *testing.T) { s.stopped(t, a, b) }},
		{"an unreachable member", func(t *testing.T) { s.unreachableMember(t, a) }},
		{"an unreachable control host", func(t *testing.T) { s.unreachableControl(t, a) }},
		{"a deposed leader is refused", func(t *testing.T) { s.deposed(t, a) }},
		{"delete beside the second unit, after crashes", func(t *testing.T) { s.remove(t, a, b) }},
		{"delete the last", func(t *testing.T) { s.removeLast(t, b) }},
		{"the hosts are as before", func(t *testing.T) { s.asBefore(t, s.nodes()...) }},
	}
	for _, chapter := range story {
		if !t.Run(chapter.name, chapter.f) {
			t.Fatalf("%q failed; the next subtests depend on it", chapter.name)
		}
	}
}

// suite has the subtests of a run, which share a driver.
type suite struct{ *driver }

func (s *suite) nothing(t *testing.T, u plan.Unit) {
	for _, node := range s.nodes() {
		s.hosts[node] = s.h.Snapshot(t, node)
		require.NotEmpty(t, s.hosts[node], "the snapshot is empty")
	}
	obs := s.observe(t, u)
	require.Equal(t, plan.Absent, obs.Presence, obs.Reason)
	require.Nil(t, obs.Unit)
	require.Empty(t, s.h.Remains(t, u), "the hosts are not clean")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	obs = s.rt.Observe(ctx, s.scope(u))
	require.Equal(t, plan.Unknown, obs.Presence, "a cancelled observation is unknown")
	require.NotEmpty(t, obs.Reason)
}

// occupied checks that a conflict is refused before any write.
func (s *suite) occupied(t *testing.T, u plan.Unit) {
	p := s.plan(t, u, false)
	require.Equal(t, plan.Create, p.Actions[0].Verb)
	s.refused(t, &p, p.Actions[0], s.h.Control.Key.Name)
	require.Equal(t, plan.Absent, s.observe(t, u).Presence)
	s.asBefore(t, s.h.Control.Key.Name)
}

func (s *suite) create(t *testing.T, u plan.Unit) {
	p := s.carry(t, u, false)
	require.Equal(t, "create, join worker-0, join worker-1", verbs(p))
	s.running(t, u)
}

func (s *suite) again(t *testing.T, u plan.Unit) {
	before := s.h.Fingerprint(t, u)
	require.NotEmpty(t, before)
	// The plan that made the unit, with the same action ids.
	p := plan.Make(plan.Input{
		Key: u.Effective.Key, After: &u.Effective, Members: u.Members, Rules: s.rt,
		Observed: plan.Observed{Key: u.Effective.Key, Presence: plan.Absent},
	})
	for range 2 {
		for _, a := range p.Actions {
			require.NoError(t, s.rt.Apply(t.Context(), runtimes.Change{Plan: &p, Action: a, Stamp: s.stamp(a)}))
		}
	}
	require.Equal(t, before, s.h.Fingerprint(t, u), "something was restarted")
	s.running(t, u)
}

func (s *suite) restarted(t *testing.T, u plan.Unit) {
	before := plan.Structural(s.observe(t, u))
	s.rt = s.h.New()
	delete(s.remembered, u.Effective.Key)
	require.Empty(t, cmp.Diff(before, plan.Structural(s.observe(t, u))), "a new runtime without records observes another state")
}

// crashes creates b with a crash at later and later steps and a new daemon each time.
func (s *suite) crashes(t *testing.T, a, b plan.Unit) {
	neighbour := s.h.Fingerprint(t, a)
	require.GreaterOrEqual(t, s.crashing(t, b), 3)
	s.running(t, b)
	require.Equal(t, neighbour, s.h.Fingerprint(t, a), "the other unit was changed")
}

// attach attaches a second project to b, changes its terms and detaches it, each with a crash at
// later and later steps. Nothing of a, and none of the first project's terms, changes.
func (s *suite) attach(t *testing.T, a, b plan.Unit) {
	neighbour := s.h.Fingerprint(t, a)
	second := b
	second.Effective.Users = s.users(3)
	second.Effective.Attachments = append(slices.Clone(b.Effective.Attachments), attached("tenant.second", second.Effective.Users[1:]))
	require.GreaterOrEqual(t, s.crashing(t, second), 1)
	require.Equal(t, second.Effective.Attachments, s.running(t, second).Unit.Effective.Attachments)

	before := s.h.Fingerprint(t, second)
	second.Effective.Attachments = slices.Clone(second.Effective.Attachments)
	second.Effective.Attachments[1].MaxGPUs, second.Effective.Attachments[1].MaxRunningJobs = 1, 5
	s.crashing(t, second)
	require.Equal(t, second.Effective.Attachments, s.running(t, second).Unit.Effective.Attachments)
	require.Equal(t, before, s.h.Fingerprint(t, second), "a change of terms restarted something")

	require.GreaterOrEqual(t, s.crashing(t, b), 1)
	require.Equal(t, b.Effective.Attachments, s.running(t, b).Unit.Effective.Attachments)
	require.Equal(t, neighbour, s.h.Fingerprint(t, a), "the other unit was changed")
}

func (s *suite) configure(t *testing.T, a, b plan.Unit) plan.Unit {
	neighbour := s.h.Fingerprint(t, b)
	for _, n := range []int{3, 2} {
		a.Effective.Users = s.users(n)
		p := s.carry(t, a, false)
		require.Equal(t, "configure", verbs(p))
		s.running(t, a)
	}
	require.Equal(t, neighbour, s.h.Fingerprint(t, b), "the other unit was changed")
	return a
}

func (s *suite) scale(t *testing.T, a plan.Unit) {
	small := a
	small.Members = slices.DeleteFunc(slices.Clone(a.Members), func(m plan.Member) bool { return m.Name == "worker-1" })
	rest := small // the control plane may restart, as its plan says
	rest.Members = slices.DeleteFunc(slices.Clone(small.Members), func(m plan.Member) bool { return m.ControlPlane })
	before := s.h.Fingerprint(t, rest)
	p := s.carry(t, small, false)
	require.Contains(t, verbs(p), "leave worker-1")
	s.running(t, small)
	left := a.Members[2].Node
	s.asBefore(t, left)
	p = s.plan(t, a, false)
	join := slices.IndexFunc(p.Actions, func(a plan.Action) bool { return a.Verb == plan.Join })
	require.GreaterOrEqual(t, join, 0, verbs(p))
	s.refused(t, &p, p.Actions[join], left)
	s.running(t, small)
	p = s.carry(t, a, false)
	require.Contains(t, verbs(p), "join worker-1")
	s.running(t, a)
	require.Equal(t, before, s.h.Fingerprint(t, rest), "the remaining members were changed")
}

func (s *suite) killed(t *testing.T, a plan.Unit) {
	s.h.Kill(t, a, "worker-0")
	state(t, s.observe(t, a), "worker-0", plan.Stopped)
	p := s.carry(t, a, false)
	require.Equal(t, "start worker-0", verbs(p))
	s.running(t, a)
}

func (s *suite) killedControl(t *testing.T, a, b plan.Unit) {
	neighbour := s.h.Fingerprint(t, b)
	s.h.Kill(t, a, "controller-0")
	obs := s.observe(t, a)
	require.Equal(t, plan.Present, obs.Presence, "a dead unit is not absent: %s", obs.Reason)
	state(t, obs, "controller-0", plan.Stopped)
	p := s.carry(t, a, false)
	require.Equal(t, "start controller-0", verbs(p))
	s.running(t, a)
	require.Equal(t, neighbour, s.h.Fingerprint(t, b), "the other unit was changed")
}

func (s *suite) stopped(t *testing.T, a, b plan.Unit) {
	neighbour := s.h.Fingerprint(t, b)
	off := a
	off.Effective.DesiredState = schema.DesiredStopped
	p := s.carry(t, off, false)
	require.Equal(t, "stop", verbs(p))
	obs := s.observe(t, off)
	require.Equal(t, plan.Present, obs.Presence, obs.Reason)
	require.Len(t, obs.Members, len(a.Members))
	for _, m := range obs.Members {
		require.Equal(t, plan.Stopped, m.State, "%s: %s", m.Name, m.Detail)
	}
	s.carry(t, a, false)
	s.running(t, a)
	require.Equal(t, neighbour, s.h.Fingerprint(t, b), "the other unit was changed")
}

func (s *suite) unreachableMember(t *testing.T, a plan.Unit) {
	node := a.Members[1].Node
	s.h.SetReachable(node, false)
	defer s.h.SetReachable(node, true)
	obs := s.observe(t, a)
	require.Equal(t, plan.Present, obs.Presence, obs.Reason)
	state(t, obs, "worker-0", plan.Unreachable)
	state(t, obs, "worker-1", plan.Running)
	p := s.plan(t, a, true)
	require.Empty(t, p.Actions, "nothing may be deleted while a member is unreachable")
}

func (s *suite) unreachableControl(t *testing.T, a plan.Unit) {
	for _, gone := range []bool{false, true} {
		s.h.SetReachable(s.h.Control.Key.Name, false)
		obs := s.observe(t, a)
		require.Equal(t, plan.Unknown, obs.Presence)
		require.Contains(t, obs.Reason, s.h.Control.Key.Name)
		p := s.plan(t, a, gone)
		require.Empty(t, p.Actions, "an unknown unit gets no action")
		s.h.SetReachable(s.h.Control.Key.Name, true)
	}
	unknown := s.unit("third", nil)
	s.h.SetReachable(s.h.Control.Key.Name, false)
	obs := s.observe(t, unknown)
	s.h.SetReachable(s.h.Control.Key.Name, true)
	require.Equal(t, plan.Unknown, obs.Presence, "an unrecorded unit may be on the unreachable host")
	s.running(t, a)
}

func (s *suite) deposed(t *testing.T, a plan.Unit) {
	before := s.h.Fingerprint(t, a)
	p := s.plan(t, a, true)
	require.NotEmpty(t, p.Actions)
	s.epoch--
	err := s.apply(t, &p, p.Actions[0])
	s.epoch++
	require.ErrorIs(t, err, runtimes.ErrStaleEpoch)
	require.Equal(t, before, s.h.Fingerprint(t, a))

	own := s.leader
	s.leader = "leader-b"
	err = s.apply(t, &p, p.Actions[0])
	s.leader = own
	require.ErrorIs(t, err, runtimes.ErrStaleEpoch, "another leader of the same epoch")
	require.Equal(t, before, s.h.Fingerprint(t, a))
	s.running(t, a)
}

func (s *suite) remove(t *testing.T, a, b plan.Unit) {
	neighbour := s.h.Fingerprint(t, b)
	cuts := 0
	for n := 1; ; n += 1 + n/2 {
		s.h.FailStep(n, errFault)
		p := s.plan(t, a, true)
		if p.Empty() {
			break
		}
		require.Len(t, p.Actions, 1, verbs(p))
		err := s.apply(t, &p, p.Actions[0])
		s.h.FailStep(0, nil)
		s.rt = s.h.New()
		if err == nil {
			break
		}
		require.ErrorIs(t, err, errFault)
		cuts++
		require.Less(t, n, 2000, "the deletion is never complete")
	}
	s.h.FailStep(0, nil)
	t.Logf("deleted after %d crashes", cuts)
	s.carry(t, a, true)
	require.Equal(t, plan.Absent, s.observe(t, a).Presence)
	require.Empty(t, s.h.Remains(t, a))
	require.Equal(t, neighbour, s.h.Fingerprint(t, b), "the other unit was changed")
	s.running(t, b)
}

func (s *suite) removeLast(t *testing.T, b plan.Unit) {
	p := s.carry(t, b, true)
	require.Equal(t, "delete", verbs(p))
	require.Equal(t, plan.Absent, s.observe(t, b).Presence)
	require.Empty(t, s.h.Remains(t, b))
}

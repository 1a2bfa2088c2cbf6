package plan_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/reconciler/plan"
	"berth/schema"
)

// In any history, a plan takes a running member of a role out of service only while at most
// max_unavailable of its declared members are not running then, and removes at once what is
// no longer declared. Every change ends.
func TestMaxUnavailableHoldsInAnyHistory(t *testing.T) { maxUnavailableHolds(t) }

func maxUnavailableHolds(t *testing.T) {
	waited := 0
	rapid.Check(t, func(t *rapid.T) {
		w := &world{real: map[schema.Key]plan.Observed{}}
		for range 4 {
			e := drawReshape(t)
			eff := e.effective()
			for key, o := range w.real { // a fault, or a leave that waits
				o.Members = slices.Clone(o.Members)
				for i, s := range o.Members {
					if rapid.IntRange(0, 5).Draw(t, "fault") == 0 {
						o.Members[i].State = rapid.SampledFrom([]plan.State{plan.Stopped, plan.Draining, plan.Partial}).Draw(t, s.Name)
					}
				}
				w.real[key] = o
			}
			for range 2*len(e.Nodes) + 6 {
				for _, p := range w.plans(eff) {
					checkAvailability(t, w.observe(p.Key), eff.Unit(p.Key), p)
					if isBlocked(p, plan.CodeUnavailable) {
						waited++
						require.NotEmpty(t, p.Later)
					} else {
						require.Empty(t, p.Later)
					}
					w.apply(p)
				}
			}
			for _, p := range w.plans(eff) {
				require.Empty(t, p.Actions, "%s never comes to rest:\n%s", p.Key, text([]plan.Plan{p}))
				require.False(t, isBlocked(p, plan.CodeUnavailable))
			}
		}
	})
	require.NotZero(t, waited, "no history had a member that waits")
}

// drawReshape draws an instance on nodes of two kinds. Another draw asks for other GPUs, for
// the other kind, or for more or fewer members.
func drawReshape(t *rapid.T) estate {
	e := estate{Nodes: map[string]schema.NodeSpec{"lab": {Address: "10.0.1.1", SSHPort: 22, Region: "eu-1", SKU: "small",
		Roles: []string{"controller"}, Capacity: schema.Capacity{CPUs: 4, MemoryMiB: 4000}}}}
	for n := range 8 {
		e.Nodes[fmt.Sprintf("n%d", n)] = schema.NodeSpec{Address: fmt.Sprintf("10.0.0.%d", n), SSHPort: 22, Region: "eu-1", SKU: skus[n%2],
			Roles:    []string{"worker"},
			Capacity: schema.Capacity{CPUs: 4, MemoryMiB: 4000, GPUs: []schema.GPU{{Type: "a100", Count: 4, Devices: "/dev/gpu[0-3]"}}}}
	}
	i := instance{ID: "a.one/x"}
	i.App, i.RuntimeBackend = "batch", "test"
	w := schema.EffectiveRole{Name: "worker", NodeRole: "worker", Count: rapid.IntRange(2, 4).Draw(t, "count"),
		GPUs: &schema.GPURequest{Type: "a100", Count: rapid.IntRange(1, 2).Draw(t, "gpus")},
		MaxUnavailable: rapid.SampledFrom([]schema.MaxUnavailable{{}, {Number: 2}, {Percent: 50}, {Percent: 100}}).Draw(t,
			"max unavailable")}
	if rapid.IntRange(0, 2).Draw(t, "any sku") > 0 {
		w.SKUs = []string{rapid.SampledFrom(skus).Draw(t, "sku")}
	}
	i.Roles = []schema.EffectiveRole{{Name: "controller", NodeRole: "controller", ControlPlane: true, Shareable: true, Count: 1}, w}
	e.Instances = []instance{i}
	return e
}

func checkAvailability(t *rapid.T, o plan.Observed, inst *schema.EffectiveUnit, p plan.Plan) {
	if inst == nil || inst.DesiredState == schema.DesiredStopped || len(p.Actions) == 0 || !o.Complete {
		return
	}
	leaves := map[string]bool{}
	for _, a := range p.Actions {
		if a.Verb == plan.Leave {
			leaves[a.Member] = true
		}
	}
	running := map[string]bool{}
	for _, s := range o.Members {
		running[s.Name] = s.State == plan.Running
	}
	for _, role := range inst.Roles {
		away, taken := 0, 0
		for _, m := range p.After.Members {
			if m.Role != role.Name {
				continue
			}
			if !running[m.Name] && !waitsForLeaver(o, p, m) || leaves[m.Name] {
				away++
			}
			if running[m.Name] && leaves[m.Name] {
				taken++
			}
		}
		if taken > 0 {
			require.LessOrEqual(t, away, role.MaxUnavailable.Of(role.Count), "%s: role %s\n%s", p.Key, role.Name, text([]plan.Plan{p}))
		}
	}
	for _, s := range o.Members {
		if _, declared := p.After.Member(s.Name); !declared && s.State != plan.Unreachable {
			require.True(t, leaves[s.Name], "%s is not declared and stays", s.Name)
		}
	}
}

// waitsForLeaver reports whether a member is to come to the node of another one that leaves it.
func waitsForLeaver(o plan.Observed, p plan.Plan, m plan.Member) bool {
	isThere := slices.ContainsFunc(o.Members, func(s plan.MemberState) bool { return s.Name == m.Name && s.Node == m.Node })
	return !isThere && slices.ContainsFunc(p.Actions, func(a plan.Action) bool { return a.Verb == plan.Leave && a.Node == m.Node })
}

// A member that waits for the node of another one does not keep that one there. Otherwise each waits for the other.
func TestMemberLeavesForOneThatWaitsForItsNode(t *testing.T) {
	for name, workers := range map[string]int{"a new member": 1, "a stopped member of another node": 2} {
		t.Run(name, func(t *testing.T) {
			before, after := unitOf(workers, 2), unitOf(2, 2)
			after.Members[1].Node, after.Members[2].Node = "n5", "n0"
			o := plan.Observed{Key: before.Effective.Key, Presence: plan.Present, Complete: true, Unit: &before, Members: []plan.MemberState{
				{Name: "controller-0", Node: "lab", State: plan.Running}, {Name: "worker-0", Node: "n0", State: plan.Running},
				{Name: "worker-1", Node: "n1", State: plan.Stopped}}[:1+workers]}
			p := plan.Make(plan.Input{Key: o.Key, After: &after.Effective, Members: after.Members, Observed: o})
			require.False(t, isBlocked(p, plan.CodeUnavailable))
			joins := slices.IndexFunc(p.Actions, func(a plan.Action) bool { return a.Verb == plan.Join && a.Member == "worker-1" })
			leaves := slices.IndexFunc(p.Actions, func(a plan.Action) bool { return a.Verb == plan.Leave && a.Member == "worker-0" })
			require.Contains(t, p.Actions[joins].Needs, p.Actions[leaves].ID)
		})
	}
}

// The member whose node another one waits for leaves first. Another that left beside it would be one too many.
func TestAwaitedNodeIsLeftFirst(t *testing.T) {
	before, after := unitOf(2, 1), unitOf(3, 1)
	for i, node := range []string{"n5", "n6", "n1"} {
		after.Members[1+i].Node = node
	}
	o := plan.Observed{Key: before.Effective.Key, Presence: plan.Present, Complete: true, Unit: &before, Members: []plan.MemberState{
		{Name: "controller-0", Node: "lab", State: plan.Running}, {Name: "worker-0", Node: "n0", State: plan.Running},
		{Name: "worker-1", Node: "n1", State: plan.Running}}}
	p := plan.Make(plan.Input{Key: o.Key, After: &after.Effective, Members: after.Members, Observed: o})
	var leave []string
	for _, a := range p.Actions {
		if a.Verb == plan.Leave {
			leave = append(leave, a.Member)
		}
	}
	require.Equal(t, []string{"worker-1"}, leave)
	require.True(t, isBlocked(p, plan.CodeUnavailable), "worker-0 waits")
}

// A reshape of three members leaves them one after the other, shows the others with the
// reason, and counts their jobs. Fewer members need no turn.
func TestMaxUnavailableOfAReshape(t *testing.T) {
	before := unitOf(3, 2)
	observe := func(u plan.Unit, states map[string]plan.State) plan.Observed {
		o := plan.Observed{Key: u.Effective.Key, Presence: plan.Present, Complete: true, Unit: &u}
		for _, m := range u.Members {
			state, ok := states[m.Name]
			if !ok {
				state = plan.Running
			}
			if state != "" {
				o.Members = append(o.Members, plan.MemberState{Name: m.Name, Node: m.Node, State: state})
			}
		}
		o.Jobs = &plan.Jobs{Running: 3,
			Groups: []plan.JobGroup{{Count: 1, Nodes: []string{"n0"}}, {Count: 1, Nodes: []string{"n1"}},
				{Count: 1, Nodes: []string{"n2"}}}}
		return o
	}
	make := func(after plan.Unit, max schema.MaxUnavailable, o plan.Observed) plan.Plan {
		after.Effective.Roles = slices.Clone(after.Effective.Roles)
		after.Effective.Roles[1].MaxUnavailable = max
		return plan.Make(plan.Input{Key: o.Key, After: &after.Effective, Members: after.Members, Observed: o, Rules: nodeRules{}})
	}
	left := func(p plan.Plan) (names []string) {
		for _, a := range p.Actions {
			if a.Verb == plan.Leave {
				names = append(names, a.Member)
			}
		}
		return names
	}

	p := make(unitOf(3, 1), schema.MaxUnavailable{}, observe(before, nil))
	require.Equal(t, []string{"worker-0"}, left(p))
	require.Equal(t, []plan.Blocked{{Code: plan.CodeUnavailable, Wait: true,
		Message: "worker-1 and worker-2 keep their nodes and resources until worker-0 runs again (max_unavailable of role worker is 1)"}},
		p.Blocked)
	require.Equal(t, 3, p.Jobs.Waited.Count, "the jobs of all of them are counted")
	was, _ := p.After.Member("worker-1")
	require.Equal(t, before.Members[2], was)

	require.Equal(t, []string{"worker-0", "worker-1"}, left(make(unitOf(3, 1), schema.MaxUnavailable{Number: 2}, observe(before, nil))))
	require.Equal(t, []string{"worker-0"}, left(make(unitOf(3, 1), schema.MaxUnavailable{Percent: 50}, observe(before, nil))))
	require.Len(t, left(make(unitOf(3, 1), schema.MaxUnavailable{Percent: 100}, observe(before, nil))), 3)
	require.Len(t, left(make(unitOf(1, 2), schema.MaxUnavailable{}, observe(before, nil))), 2, "removed for good")

	// While a member is drained or away, no other leaves; what is away already is reshaped.
	require.Empty(t, left(make(unitOf(3, 1), schema.MaxUnavailable{}, observe(unitOf(3, 2), map[string]plan.State{"worker-2": ""}))))
	p = make(unitOf(3, 1), schema.MaxUnavailable{}, observe(before, map[string]plan.State{"worker-2": plan.Draining}))
	require.Equal(t, []string{"worker-2"}, left(p))
	p = make(unitOf(3, 1), schema.MaxUnavailable{}, observe(before, map[string]plan.State{"worker-2": plan.Unreachable}))
	require.Empty(t, left(p))
	require.True(t, isBlocked(p, plan.CodeUnavailable))
}

// nodeRules are rules by which a leave waits for the jobs on the node.
type nodeRules struct{}

func (nodeRules) Impact(v plan.Verb, member string, before, _ *plan.Unit) plan.Impact {
	if m, ok := before.Member(member); ok && v == plan.Leave {
		return plan.Impact{Drains: []string{m.Node}, Jobs: []plan.JobRule{{Nodes: []string{m.Node}}}}
	}
	return plan.Impact{}
}

// unitOf returns a unit of workers with so many GPUs each.
func unitOf(workers, gpus int) plan.Unit {
	u := plan.Unit{Effective: schema.EffectiveUnit{Key: schema.InstanceKey("physics", "lhc", "train"), DesiredState: schema.DesiredRunning,
		Roles: []schema.EffectiveRole{
			{Name: "controller", ControlPlane: true, Count: 1}, {Name: "worker", Count: workers},
		}}}
	u.Members = []plan.Member{{Name: "controller-0", Role: "controller", ControlPlane: true, Node: "lab"}}
	for i := range workers {
		name := string(rune('0' + i))
		u.Members = append(u.Members, plan.Member{Name: "worker-" + name, Role: "worker", Node: "n" + name, CPUs: 4,
			GPUs: []schema.GPU{{Type: "a100", Count: gpus}}})
	}
	return u
}

// Other sockets, cores or threads are other resources: the member leaves before its line changes.
func TestDeclaredShapeIsAReshape(t *testing.T) {
	before, after := unitOf(1, 2), unitOf(1, 2)
	after.Members[1].Shape = schema.Shape{Sockets: 1, CoresPerSocket: 2, ThreadsPerCore: 2}
	p := plan.Make(plan.Input{Key: before.Effective.Key, After: &after.Effective, Members: after.Members, Observed: plan.Observed{
		Key: before.Effective.Key, Presence: plan.Present, Complete: true, Unit: &before,
		Members: []plan.MemberState{{Name: "controller-0", Node: "lab", State: plan.Running},
			{Name: "worker-0", Node: "n0", State: plan.Running}},
	}})
	var verbs []plan.Verb
	for _, a := range p.Actions {
		verbs = append(verbs, a.Verb)
	}
	require.Equal(t, []plan.Verb{plan.Leave, plan.Configure, plan.Join}, verbs)
}

// A member that waits for its jobs before it leaves joins only after a configure that follows
// its leave: until then the control plane has its old resources.
func TestWaitingReshapeJoinsAfterAConfigure(t *testing.T) {
	before, after := unitOf(1, 2), unitOf(1, 1)
	o := plan.Observed{Key: before.Effective.Key, Presence: plan.Present, Complete: true, Unit: &before, Members: []plan.MemberState{
		{Name: "controller-0", Node: "lab", State: plan.Running}, {Name: "worker-0", Node: "n0", State: plan.Draining},
	}}
	verbs := func(o plan.Observed) (out []plan.Verb) {
		p := plan.Make(plan.Input{Key: o.Key, After: &after.Effective, Members: after.Members, Observed: o})
		for _, a := range p.Actions {
			out = append(out, a.Verb)
		}
		return out
	}
	require.Equal(t, []plan.Verb{plan.Leave}, verbs(o))
	o.Drift = []plan.Drift{{Member: "controller-0", What: "configuration"}}
	require.Equal(t, []plan.Verb{plan.Leave, plan.Configure, plan.Join}, verbs(o))
	o.Members = o.Members[:1]
	require.Equal(t, []plan.Verb{plan.Configure, plan.Join}, verbs(o))
}

package plan_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// lab is an estate of one controller and a number of workers. The map gives the number
// of workers of each instance.
func lab(nodes int, instances map[string]int) *schema.Effective {
	e := estate{Nodes: map[string]schema.NodeSpec{"lab": {Roles: []string{"controller"}}}}
	for n := range nodes {
		e.Nodes[fmt.Sprintf("gpu-%04d", n)] = schema.NodeSpec{Roles: []string{"worker"}, Capacity: schema.Capacity{CPUs: 4}}
	}
	for id, count := range instances {
		i := instance{ID: id}
		i.RuntimeBackend = "test"
		i.Roles = []schema.EffectiveRole{
			{Name: "controller", NodeRole: "controller", ControlPlane: true, Shareable: true, Count: 1},
			{Name: "worker", NodeRole: "worker", Count: count},
		}
		e.Instances = append(e.Instances, i)
	}
	return e.effective()
}

// settled returns a world in which eff runs.
func settled(eff *schema.Effective) *world {
	w := &world{real: map[schema.Key]plan.Observed{}}
	for _, p := range w.plans(eff) {
		w.apply(p)
	}
	return w
}

func propose(base, head *schema.Effective, mem plan.Memory) plan.Proposal {
	return plan.Propose(plan.ProposeInput{Base: "b", Head: "h", BaseEffective: base, HeadEffective: head, Memory: &mem,
		Rules: func(backend string) plan.Rules {
			if backend == "test" {
				return rules{}
			}
			return nil
		}})
}

func units(p plan.Proposal) []string {
	out := []string{}
	for _, u := range p.Plans {
		out = append(out, u.Key.ProjectID()+"/"+u.Key.Name)
	}
	return out
}

func TestProposeShowsOnlyChangedUnits(t *testing.T) {
	base := lab(6, map[string]int{"a.one/x": 1, "a.one/y": 1, "b.two/z": 2})
	w := settled(base)
	w.mem.Get(keyOf("a.one/y")).Observed.Members[1].State = plan.Stopped // pending work that is not part of the change

	require.Empty(t, units(propose(base, base, w.mem)))
	require.Empty(t, units(propose(base, lab(6, map[string]int{"a.one/x": 1, "a.one/y": 1, "b.two/z": 2}), w.mem)),
		"equal, if not the same")
	require.Equal(t, []string{"a.one/x"}, units(propose(base, lab(6, map[string]int{"a.one/x": 2, "a.one/y": 1, "b.two/z": 2}), w.mem)))
	require.Equal(t, []string{"a.one/x", "a.one/y"},
		units(propose(base, lab(6, map[string]int{"a.one/x": 2, "a.one/y": 2, "b.two/z": 2}), w.mem)))
	require.Equal(t, []string{"b.two/z"}, units(propose(base, lab(3, map[string]int{"a.one/x": 1, "a.one/y": 1, "b.two/z": 2}), w.mem)),
		"a node that goes touches who is on it")

	gone := propose(base, lab(6, map[string]int{"a.one/x": 1, "a.one/y": 1}), w.mem)
	require.Equal(t, []string{"b.two/z"}, units(gone))
	require.True(t, gone.Plans[0].Actions[0].Impact.EndsJobs, "the backend comes from the record")
	require.True(t, gone.Changes())
	require.False(t, gone.Blocked())
}

func TestProposeShowsDenial(t *testing.T) {
	base := lab(3, map[string]int{"a.one/x": 1})
	head := lab(3, map[string]int{"a.one/x": 1})
	decide(head, schema.Decision{Key: keyOf("a.one/x"), Field: "spec.app", Verdict: schema.Deny, Rule: "hard_deny", Message: "no"})
	p := propose(base, head, settled(base).mem)
	require.Equal(t, []string{"a.one/x"}, units(p))
	require.Empty(t, p.Plans[0].Actions)
	require.True(t, p.Blocked())
	require.Equal(t, head.Decisions(), p.Decisions)
}

// A block on a unit that comes into force with any merge does not block this
// change.
func TestBlockedReleasedUnitDoesNotBlockChange(t *testing.T) {
	stuck := plan.Plan{Key: keyOf("a.one/x"), Blocked: []plan.Blocked{{Code: plan.CodeNoNode}}}
	p := plan.Proposal{Plans: []plan.Plan{stuck}, Released: []schema.Key{keyOf("a.one/w"), keyOf("a.one/x")}}
	require.False(t, p.Blocked())
	stuck.Key = keyOf("a.one/y")
	p.Plans = append(p.Plans, stuck)
	require.True(t, p.Blocked())
}

func TestProposeFromMemory(t *testing.T) {
	base, head := lab(3, map[string]int{"a.one/x": 1}), lab(3, map[string]int{"a.one/x": 2})
	key := keyOf("a.one/x")
	for _, c := range []struct {
		name string
		mem  plan.Memory
		want string
	}{
		{"nobody remembers it: it is not there", plan.Memory{}, "create"},
		{"decided, not looked at", plan.Remember(&plan.Status{Key: key, Phase: plan.PhaseRequested}), "create"},
		{"half way, and not looked at", plan.Remember(&plan.Status{Key: key, Phase: plan.PhaseDeploying}), string(plan.CodeUnknown)},
	} {
		p := propose(base, head, c.mem)
		require.Len(t, p.Plans, 1, c.name)
		if len(p.Plans[0].Actions) == 0 {
			require.Equal(t, c.want, string(p.Plans[0].Blocked[0].Code), c.name)
		} else {
			require.Equal(t, c.want, string(p.Plans[0].Actions[0].Verb), c.name)
		}
	}
}

// An assignment binds no later one until an action may have used it.
func TestAssignmentWithoutObservationIsNotBinding(t *testing.T) {
	key := keyOf("a.one/x")
	first := lab(2, map[string]int{"a.one/x": 1})
	var members []plan.MemberStatus
	for _, m := range plan.Place(first, plan.Memory{}).Members(key) {
		members = append(members, plan.MemberStatus{Member: m, Placed: m.Reason})
	}
	require.Equal(t, "gpu-0000", members[1].Node)
	next := lab(2, map[string]int{"a.one/x": 1})
	next.Nodes["gpu-0000"].Spec.Cordoned = true
	for _, c := range []struct {
		phase plan.Phase
		node  string
	}{
		{plan.PhaseRequested, "gpu-0001"},
		{plan.PhaseDeploying, "gpu-0000"}, // the unit may exist there
	} {
		placed := plan.Place(next, plan.Remember(&plan.Status{Key: key, Phase: c.phase, Members: members}))
		require.Equal(t, c.node, placed.Members(key)[1].Node, c.phase)
	}
}

// The digest covers the effect of a merge, not the way to it.
func TestProposalDigestCoversOnlyTheEffect(t *testing.T) {
	base := lab(4, map[string]int{"a.one/x": 1})
	w := settled(base)
	two := propose(base, lab(4, map[string]int{"a.one/x": 2}), w.mem)
	again := plan.Propose(plan.ProposeInput{Base: "other", Head: "squashed", BaseEffective: base,
		HeadEffective: lab(4, map[string]int{"a.one/x": 2}), Memory: &w.mem, Rules: func(string) plan.Rules { return rules{} }})
	three := propose(base, lab(4, map[string]int{"a.one/x": 3}), w.mem)
	require.Equal(t, two.Digest, again.Digest)
	require.NotEqual(t, two.Digest, three.Digest)
	require.NotEqual(t, propose(base, base, w.mem).Digest, two.Digest)
}

func BenchmarkPropose(b *testing.B) {
	many := map[string]int{}
	for i := range 1000 {
		many[fmt.Sprintf("t%d.p/i%d", i%50, i)] = 2
	}
	base := lab(2100, many)
	mem := settled(base).mem
	many["t1.p/i1"] = 3
	head := lab(2100, many)
	for k, i := range base.All() { // the reader shares unchanged values
		if k != keyOf("t1.p/i1") {
			projectOf(head, k).Units[k.Name] = i
		}
	}
	b.ResetTimer()
	for b.Loop() {
		if p := propose(base, head, mem); len(p.Plans) != 1 {
			b.Fatalf("%d plans", len(p.Plans))
		}
	}
}

func BenchmarkPlaceFromNothing(b *testing.B) {
	many := map[string]int{}
	for i := range 1000 {
		many[fmt.Sprintf("t%d.p/i%d", i%50, i)] = 2
	}
	eff := lab(2100, many)
	for b.Loop() {
		if p := plan.Place(eff, plan.Memory{}); !p.Whole() {
			b.Fatal("not all placed")
		}
	}
}

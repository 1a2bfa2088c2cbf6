package plan_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// bounded is an estate with a controller and workers of one instance, bound to places by
// allowed.
func bounded(declared schema.InstanceSpec, allowed *schema.Bounds, roles ...schema.EffectiveRole) *schema.Effective {
	nodes := map[string]*schema.Node{}
	for name, spec := range map[string]schema.NodeSpec{
		"lab":   {Region: "lab", SKU: "cpu", Roles: []string{"controller"}},
		"cpu-1": {Region: "lab", SKU: "cpu", Roles: []string{"worker"}},
		"a-1": {Region: "lab", SKU: "a", Roles: []string{"worker"},
			Capacity: schema.Capacity{GPUs: []schema.GPU{{Type: "a100", Count: 4, Devices: "/dev/nvidia[0-3]"}}}},
		"b-1": {Region: "annex", SKU: "b", Roles: []string{"worker"},
			Capacity: schema.Capacity{GPUs: []schema.GPU{{Type: "a100", Count: 4, Devices: "/dev/nvidia[0-3]"}}}},
	} {
		spec.Address, spec.Capacity.CPUs, spec.Capacity.MemoryMiB = "10.0.0.1", 4, 4000
		nodes[name] = &schema.Node{Header: schema.Header{Key: schema.Key{Kind: schema.KindNode, Name: name}}, Spec: spec}
	}
	key := schema.InstanceKey("physics", "lhc", "train")
	eff := effectiveOf(nodes, &schema.EffectiveUnit{Key: key, AppSelection: schema.AppSelection{RuntimeBackend: "test"},
		DesiredState: schema.DesiredRunning, Regions: declared.Regions,
		Roles: append([]schema.EffectiveRole{{Name: "controller", NodeRole: "controller", ControlPlane: true, Count: 1}}, roles...)})
	if allowed != nil {
		allowed.Instance = &schema.Instance{Header: schema.Header{Key: key}, Spec: declared}
		eff.Tenants["physics"].Projects["lhc"].Bounds = map[string]*schema.Bounds{"train": allowed}
	}
	return eff
}

func limited(fate schema.Fate, day string, values ...string) *schema.Bounds {
	return &schema.Bounds{Fate: fate, Day: day, Limits: &schema.Limits{
		SKUs: []schema.Allowed{{Values: values, Source: schema.Position{File: "platform/policy/lab.yaml", Line: 8}}}}}
}

// Policy does not move a member on a node that it no longer allows. The policies decide
// the fate of the instance, and it is reported.
func TestPolicyDoesNotMoveMembers(t *testing.T) {
	key := schema.InstanceKey("physics", "lhc", "train")
	gpu := schema.GPURequest{Type: "a100", Count: 4}
	worker := schema.EffectiveRole{Name: "worker", NodeRole: "worker", Count: 1, GPUs: &gpu}
	within := func(values ...string) schema.EffectiveRole {
		r := worker
		r.SKUs = values
		return r
	}
	base := bounded(schema.InstanceSpec{}, limited(schema.FateHeld, "", "a", "b", "cpu"), within("a", "b", "cpu"))
	w := settled(base)
	require.Equal(t, "a-1", plan.Place(base, w.mem).Members(key)[1].Node)

	change := func(head *schema.Effective) plan.Proposal { return propose(base, head, w.mem) }
	told := "worker-0 on a-1: a node of SKU a is not allowed"
	for _, fate := range []schema.Fate{schema.FateHeld, schema.FateStopping} {
		p := change(bounded(schema.InstanceSpec{}, limited(fate, "2030-01-01", "b", "cpu"), within("b", "cpu")))
		require.Len(t, p.Impacted, 1)
		require.Equal(t, fate, p.Impacted[0].Fate)
		require.Equal(t, told, p.Impacted[0].Because[0].Message)
		require.Equal(t, "platform/policy/lab.yaml", p.Impacted[0].Because[0].Source.File)
		require.False(t, p.Blocked())
		for _, u := range p.Plans {
			for _, a := range u.Actions {
				require.Equal(t, plan.Configure, a.Verb, "no member leaves or stops")
			}
		}
	}

	// After its date it is stopped on its nodes, and stays stopped.
	over := bounded(schema.InstanceSpec{}, limited(schema.FateStopped, "2026-01-01", "b", "cpu"), within("b", "cpu"))
	p := change(over)
	require.Equal(t, schema.FateStopped, p.Impacted[0].Fate)
	require.Equal(t, schema.Stop, p.Impacted[0].Because[0].Verdict)
	require.Len(t, p.Plans, 1)
	require.Len(t, p.Plans[0].Actions, 1)
	require.Equal(t, plan.Stop, p.Plans[0].Actions[0].Verb)
	require.Equal(t, schema.DesiredRunning, over.Unit(key).DesiredState)

	// Suspension does not keep it running.
	suspended := bounded(schema.InstanceSpec{}, limited(schema.FateStopped, "2026-01-01", "b", "cpu"), within("b", "cpu"))
	suspended.Unit(key).Suspend, suspended.Unit(key).SuspendedBy = true, key
	p = change(suspended)
	require.Len(t, p.Plans, 1)
	require.Len(t, p.Plans[0].Actions, 1, "%+v", p.Plans[0].Blocked)
	require.Equal(t, plan.Stop, p.Plans[0].Actions[0].Verb)

	// A request for another SKU moves the member, and the instance complies.
	p = change(bounded(schema.InstanceSpec{Roles: map[string]schema.InstanceRole{"worker": {SKU: "b"}}},
		limited(schema.FateHeld, "", "b", "cpu"), within("b")))
	require.Empty(t, p.Impacted)
	require.Equal(t, "b-1", p.Plans[0].After.Members[1].Node)

	// The member also stays once the runtime has recorded the values that policy set.
	w.run(bounded(schema.InstanceSpec{}, limited(schema.FateStopping, "2030-01-01", "b", "cpu"), within("b", "cpu")))
	require.Equal(t, []string{"b", "cpu"}, w.real[key].Unit.Effective.Roles[1].SKUs)
	for _, values := range [][]string{{"b"}, {"b", "cpu"}, {"cpu"}, {"b"}} {
		head := bounded(schema.InstanceSpec{}, limited(schema.FateStopping, "2030-01-01", values...), within(values...))
		require.Equal(t, "a-1", plan.Place(head, w.mem).Members(key)[1].Node)
		w.run(head)
	}
	w = settled(base)

	// The same holds for regions, and an impact reports an instance that complies again.
	regions := &schema.Bounds{Fate: schema.FateHeld, Limits: &schema.Limits{Regions: []schema.Allowed{{Values: []string{"annex"}}}}}
	narrowed := bounded(schema.InstanceSpec{}, regions, worker)
	narrowed.Unit(key).Regions = []string{"annex"}
	require.Equal(t, []string{"controller-0 on lab and worker-0 on a-1: a node in region lab is not allowed"},
		messages(change(narrowed).Impacted))
	back := propose(narrowed, base, w.mem)
	require.Equal(t, schema.FateComplies, back.Impacted[0].Fate)
}

// run applies eff, as the loop does.
func (w *world) run(eff *schema.Effective) {
	for _, p := range w.plans(eff) {
		w.apply(p)
	}
}

// A changed node evicts no member, even if its owner always requested the old properties
// and policy allows nothing else.
func TestChangedNodeEvictsNoMember(t *testing.T) {
	key := schema.InstanceKey("physics", "lhc", "train")
	worker := schema.EffectiveRole{Name: "worker", NodeRole: "worker", Count: 1, GPUs: &schema.GPURequest{Type: "a100", Count: 4}}
	own := schema.InstanceSpec{Regions: []string{"lab"}}
	eff := func(bounds *schema.Bounds) *schema.Effective {
		e := bounded(own, bounds, worker)
		e.Unit(key).Regions = own.Regions
		return e
	}
	w := settled(eff(&schema.Bounds{Limits: &schema.Limits{}}))
	at := w.real[key].Unit.Members
	for _, m := range at {
		require.Equal(t, "lab", m.Region)
	}
	narrowed := eff(&schema.Bounds{Fate: schema.FateHeld, Limits: &schema.Limits{Regions: []schema.Allowed{{Values: []string{"lab"}}}}})
	for _, m := range at {
		narrowed.Nodes[m.Node].Spec.Region = "annex"
	}
	placed := plan.Place(narrowed, w.mem)
	for _, m := range at {
		require.True(t, slices.ContainsFunc(placed.Members(key),
			func(now plan.Member) bool { return now.Name == m.Name && now.Node == m.Node }), m.Name)
	}
	require.Empty(t, placed.Unplaced(key))
	require.NotNil(t, placed.Outside(key), "the noncompliance is reported")
}

// A member moves when its owner requests what policy allows. This holds even if policy
// set the same value before, so that no effective value changes.
func TestMemberMovesToCompliantNodeOnRequest(t *testing.T) {
	key := schema.InstanceKey("physics", "lhc", "train")
	worker := schema.EffectiveRole{Name: "worker", NodeRole: "worker", Count: 1, GPUs: &schema.GPURequest{Type: "a100", Count: 4}}
	inAnnex := []schema.Allowed{{Values: []string{"annex"}, Source: schema.Position{File: "platform/policy/lab.yaml", Line: 8}}}
	for name, c := range map[string]struct {
		limits schema.Limits
		asks   schema.InstanceSpec
	}{
		"region": {schema.Limits{Regions: inAnnex}, schema.InstanceSpec{Regions: []string{"annex"}}},
		"sku": {schema.Limits{SKUs: []schema.Allowed{{Values: []string{"b"}}}},
			schema.InstanceSpec{Roles: map[string]schema.InstanceRole{"worker": {SKU: "b"}}}},
	} {
		eff := func(own schema.InstanceSpec, limits *schema.Limits, fate schema.Fate) *schema.Effective {
			r := worker
			if limits.SKUs != nil {
				r.SKUs = []string{"b"}
			}
			e := bounded(own, &schema.Bounds{Limits: limits, Fate: fate, Day: "2026-01-01"}, r)
			e.Nodes["lab"].Spec.Region, e.Nodes["lab"].Spec.SKU = "annex", "b" // the control plane does not prevent the move
			if limits.Regions != nil {
				e.Unit(key).Regions = []string{"annex"}
			}
			return e
		}
		w := settled(eff(schema.InstanceSpec{}, &schema.Limits{}, ""))
		require.Equal(t, "a-1", w.real[key].Unit.Members[1].Node, name)
		before := eff(schema.InstanceSpec{}, &c.limits, schema.FateStopping)
		w.run(before)
		require.Equal(t, before.Unit(key).Regions, w.real[key].Unit.Effective.Regions, name)
		require.Equal(t, "a-1", w.real[key].Unit.Members[1].Node, name)

		// No better node is free yet: the member stays, and the plan reports it.
		asked := eff(c.asks, &c.limits, schema.FateStopping)
		asked.Nodes["b-1"].Spec.Cordoned = true
		placed := plan.Place(asked, w.mem)
		require.Len(t, placed.Unplaced(key), 1, name)
		require.Equal(t, plan.CodeStays, placed.Unplaced(key)[0].Code, name)
		require.NotNil(t, placed.Outside(key), name)

		p := propose(before, eff(c.asks, &c.limits, schema.FateStopping), w.mem)
		require.Len(t, p.Plans, 1, name)
		require.Equal(t, "b-1", p.Plans[0].After.Members[1].Node, name)
		require.Equal(t, []schema.Fate{schema.FateComplies}, fates(p.Impacted), name)

		// The same holds after a stop for noncompliance; then the instance runs again.
		over := eff(c.asks, &c.limits, schema.FateStopped)
		w.happen(map[string]happening{"physics.lhc/train": {States: map[string]plan.State{"controller-0": plan.Stopped,
			"worker-0": plan.Stopped}}})
		require.Nil(t, plan.Place(over, w.mem).Outside(key), name)
		w.run(over)
		require.Equal(t, "b-1", w.real[key].Unit.Members[1].Node, name)
		require.Equal(t, plan.MemberState{Name: "worker-0", Node: "b-1", State: plan.Running}, w.real[key].Members[1], name)
	}
}

func fates(ns []schema.Noncompliance) (all []schema.Fate) {
	for _, n := range ns {
		all = append(all, n.Fate)
	}
	return all
}

func messages(ns []schema.Noncompliance) (all []string) {
	for _, n := range ns {
		for _, d := range n.Because {
			all = append(all, d.Message)
		}
	}
	return all
}

// A member without GPUs gets a node without GPUs, if one fits. If policy limits the GPUs
// of an instance, it gets no other node.
func TestMemberWithoutGPUsPrefersNodeWithoutGPUs(t *testing.T) {
	key := schema.InstanceKey("physics", "lhc", "train")
	two := schema.EffectiveRole{Name: "worker", NodeRole: "worker", Count: 2}
	placed := plan.Place(bounded(schema.InstanceSpec{}, nil, two), plan.Memory{})
	require.Equal(t, "cpu-1", placed.Members(key)[1].Node, "a-1 comes first by name")
	require.Equal(t, "a-1", placed.Members(key)[2].Node, "no policy says a word")
	open := bounded(schema.InstanceSpec{}, nil, two)
	w := settled(open)

	two.NoGPUs = true
	limit := &schema.Bounds{Fate: schema.FateHeld,
		Limits: &schema.Limits{GPUs: &schema.Position{File: "platform/policy/lab.yaml", Line: 9}}}
	capped := bounded(schema.InstanceSpec{}, limit, two)
	placed = plan.Place(capped, plan.Memory{})
	require.Len(t, placed.Members(key), 2)
	require.Equal(t, plan.CodeNoNode, placed.Unplaced(key)[0].Code)
	require.Contains(t, placed.Unplaced(key)[0].Message, "2 with GPUs that it does not ask for")
	require.Contains(t, placed.Unplaced(key)[0].Message, "ask for gpus, or declare a node without")
	require.Nil(t, placed.Outside(key))

	// An existing member stays, and the plan reports it.
	p := propose(open, capped, w.mem)
	told := "worker-1 on a-1: a node with GPUs that it does not ask for is not allowed"
	require.Equal(t, []string{told}, messages(p.Impacted))
	require.Empty(t, p.Plans)

	// No fate of noncompliant instances stops it.
	for _, fate := range []schema.Fate{schema.FateStopping, schema.FateStopped} {
		limit := *limit
		limit.Fate, limit.Day, limit.Source = fate, "2026-01-01", &schema.Position{File: "platform/policy/lab.yaml", Line: 3}
		p := propose(open, bounded(schema.InstanceSpec{}, &limit, two), w.mem)
		require.Len(t, p.Impacted, 1)
		require.Equal(t, schema.FateHeld, p.Impacted[0].Fate)
		require.Empty(t, p.Impacted[0].Day)
		require.Nil(t, p.Impacted[0].Source)
		require.Equal(t, []string{told}, messages(p.Impacted))
		require.Equal(t, schema.Deny, p.Impacted[0].Because[0].Verdict)
		require.Empty(t, p.Plans)

		// A denied SKU keeps the declared action.
		both := limited(fate, "2026-01-01", "b", "cpu")
		both.GPUs = limit.GPUs
		p = propose(open, bounded(schema.InstanceSpec{}, both, two), w.mem)
		require.Equal(t, fate, p.Impacted[0].Fate)
		require.Len(t, p.Impacted[0].Because, 2)
	}
}

// An instance that no longer requests GPUs returns them: its members move as nodes
// without GPUs become free. Otherwise it would have GPUs that policy does not count.
func TestMemberThatDropsGPUsMoves(t *testing.T) {
	key := schema.InstanceKey("physics", "lhc", "train")
	eff := func(worker schema.EffectiveRole) *schema.Effective {
		limits := &schema.Limits{GPUs: &schema.Position{File: "platform/policy/lab.yaml", Line: 9}}
		worker.Name, worker.NodeRole, worker.Count = "worker", "worker", 2
		return bounded(schema.InstanceSpec{}, &schema.Bounds{Fate: schema.FateHeld, Limits: limits}, worker)
	}
	at := func(w *world) (nodes []string) {
		for _, m := range w.real[key].Unit.Members[1:] {
			nodes = append(nodes, m.Node)
		}
		return nodes
	}
	w := settled(eff(schema.EffectiveRole{GPUs: &schema.GPURequest{Type: "a100", Count: 1}}))
	require.Equal(t, []string{"a-1", "b-1"}, at(w))
	dropped := eff(schema.EffectiveRole{NoGPUs: true})
	dropped.Nodes["cpu-1"].Spec.Cordoned = true
	for range 3 { // the runtime's record at that time does not matter
		w.run(dropped)
		require.Equal(t, []string{"a-1", "b-1"}, at(w))
		require.Equal(t, plan.CodeStays, plan.Place(dropped, w.mem).Unplaced(key)[0].Code)
	}
	w.run(eff(schema.EffectiveRole{NoGPUs: true}))
	require.Equal(t, []string{"cpu-1", "b-1"}, at(w))
	more := eff(schema.EffectiveRole{NoGPUs: true})
	n := *more.Nodes["cpu-1"]
	n.Key.Name = "cpu-2"
	more.Nodes["cpu-2"] = &n
	w.run(more)
	require.Equal(t, []string{"cpu-1", "cpu-2"}, at(w))
}

// GPUs that a member still has count, regardless of the current request. Neither a new
// member nor a moving one gets more beside it than policy allows in total.
func TestKeptGPUsCountTowardsLimit(t *testing.T) {
	key := schema.InstanceKey("physics", "lhc", "train")
	role := func(name string, gpus, cpus int) schema.EffectiveRole {
		r := schema.EffectiveRole{Name: name, NodeRole: "worker", Count: 1, NoGPUs: gpus == 0, CPUs: cpus}
		if gpus > 0 {
			r.GPUs = &schema.GPURequest{Type: "a100", Count: gpus}
		}
		return r
	}
	eff := func(most int, roles ...schema.EffectiveRole) *schema.Effective {
		limits := &schema.Limits{GPUs: &schema.Position{File: "platform/policy/lab.yaml", Line: 9}, MaxGPUs: most}
		e := bounded(schema.InstanceSpec{}, &schema.Bounds{Fate: schema.FateHeld, Limits: limits}, roles...)
		for _, n := range e.Nodes {
			n.Spec.Capacity.CPUs = 8
		}
		n := *e.Nodes["cpu-1"]
		n.Key.Name, n.Spec.Capacity.CPUs = "cpu-2", 4
		e.Nodes["cpu-2"] = &n
		return e
	}
	const tooMany = 1000 // CPUs; no node has as many
	for name, before := range map[string][]schema.EffectiveRole{"new": nil, "moves": {role("b", 0, 0)}} {
		w := settled(eff(2, append(before, role("a", 2, 0))...))
		w.run(eff(2, append(before, role("a", 0, tooMany))...))
		w.run(eff(2, append(before, role("a", 0, tooMany))...))
		on := func(e *schema.Effective) map[string]string {
			at := map[string]string{}
			for _, m := range plan.Place(e, w.mem).Members(key) {
				at[m.Name] = m.Node
			}
			return at
		}
		require.Equal(t, "a-1", on(eff(2, append(before, role("a", 0, tooMany))...))["a-0"], name)

		asked := eff(2, role("a", 0, tooMany), role("b", 2, 0))
		require.NotEqual(t, "b-1", on(asked)["b-0"], name)
		blocked := plan.Place(asked, w.mem).Unplaced(key)
		require.Len(t, blocked, 2, name)
		require.Contains(t, blocked[1].Message,
			"policy allows 2 GPUs together (max_gpus_per_instance), with those that a-0 still has and no longer asks for", name)
		require.Contains(t, blocked[1].Message, "kept free by policy", name)

		require.Equal(t, "b-1", on(eff(4, role("a", 0, tooMany), role("b", 2, 0)))["b-0"], name)
		require.Equal(t, "a-1", on(eff(2, role("a", 0, 0), role("b", 2, 0)))["b-0"], name+": there is room once a-0 has left")
	}
}

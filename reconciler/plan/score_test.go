package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

// lot is a few nodes and units of one project, for placements of one unit.
type lot struct {
	nodes map[string]*schema.Node
	units map[string]*schema.EffectiveUnit
	mem   Memory
}

func newLot() *lot {
	return &lot{nodes: map[string]*schema.Node{}, units: map[string]*schema.EffectiveUnit{}}
}

// node declares a node of the role worker with 8 CPUs, 8000 MiB and 100 GiB.
func (l *lot) node(name string, change func(*schema.NodeSpec)) {
	spec := schema.NodeSpec{Address: name, Region: "lab", Roles: []string{"worker"},
		Capacity: schema.Capacity{CPUs: 8, MemoryMiB: 8000, DiskGiB: 100}}
	if change != nil {
		change(&spec)
	}
	l.nodes[name] = &schema.Node{Header: schema.Header{Key: schema.Key{Kind: schema.KindNode, Name: name}}, Spec: spec}
}

func (l *lot) key(name string) schema.Key { return schema.InstanceKey("physics", "lhc", name) }

// unit declares a running unit.
func (l *lot) unit(name string, roles ...schema.EffectiveRole) {
	for i := range roles {
		roles[i].NodeRole = "worker"
	}
	l.units[name] = &schema.EffectiveUnit{Key: l.key(name), DesiredState: schema.DesiredRunning, Roles: roles}
}

func (l *lot) place() Placement {
	return Place(&schema.Effective{Nodes: l.nodes, Tenants: map[string]*schema.EffectiveTenant{"physics": {
		Projects: map[string]*schema.EffectiveProject{"lhc": {Units: maps.Clone(l.units)}}}}}, l.mem)
}

// on returns the nodes of a unit's members, by member.
func (l *lot) on(name string) map[string]string {
	at := map[string]string{}
	for _, m := range l.place().Members(l.key(name)) {
		at[m.Name] = m.Node
	}
	return at
}

// waits returns the reasons why members of a unit have no node, or not a fitting one.
func (l *lot) waits(name string) (all string) {
	for _, b := range l.place().Unplaced(l.key(name)) {
		all += b.Message + "\n"
	}
	return all
}

// run records that each unit runs where it is placed.
func (l *lot) run() {
	var made []*Status
	placed := l.place()
	for name, inst := range l.units {
		members := placed.Members(l.key(name))
		st := &Status{Key: l.key(name), Phase: PhaseRunning, Observed: &Observed{Key: l.key(name), Presence: Present, Complete: true,
			Unit: &Unit{Effective: *inst, Members: members}}}
		for _, m := range members {
			st.Members = append(st.Members, MemberStatus{Member: m, Placed: m.Reason})
			st.Observed.Members = append(st.Observed.Members, MemberState{Name: m.Name, Node: m.Node, State: Running})
		}
		made = append(made, st)
	}
	l.mem = Remember(made...)
}

// Each rule for the best node decides where the rules before it find the nodes alike, and no other rule does.
func TestBestNodeByEachRule(t *testing.T) {
	rack := func(value string) func(*schema.NodeSpec) {
		return func(n *schema.NodeSpec) { n.Topology = map[string]string{"rack": value} }
	}
	gpus := func(count int) func(*schema.NodeSpec) {
		return func(n *schema.NodeSpec) {
			n.Capacity.GPUs = []schema.GPU{{Type: "a100", Count: count, Devices: "/dev/nvidia[0-7]"}}
		}
	}
	worker := func(count int, change func(*schema.EffectiveRole)) schema.EffectiveRole {
		r := schema.EffectiveRole{Name: "worker", Count: count}
		if change != nil {
			change(&r)
		}
		return r
	}
	for name, c := range map[string]struct {
		nodes map[string]func(*schema.NodeSpec)
		roles []schema.EffectiveRole
		want  map[string]string
	}{
		"no needless GPUs, although near": {
			map[string]func(*schema.NodeSpec){"a": rack("r1"), "b": rack("r2"),
				"c": func(n *schema.NodeSpec) { gpus(1)(n); rack("r1")(n) }},
			[]schema.EffectiveRole{worker(2, nil)}, map[string]string{"worker-0": "a", "worker-1": "b"}},
		"spread": {
			map[string]func(*schema.NodeSpec){"a": rack("r1"), "b": rack("r1"), "c": rack("r2"), "d": nil},
			[]schema.EffectiveRole{worker(4, func(r *schema.EffectiveRole) { r.SpreadBy = "rack" })},
			map[string]string{"worker-0": "a", "worker-1": "c", "worker-2": "b", "worker-3": "d"}},
		"spread counts the role alone": {
			map[string]func(*schema.NodeSpec){"a": rack("r1"), "b": rack("r1"), "c": rack("r2")},
			[]schema.EffectiveRole{{Name: "login", Count: 1}, worker(1, func(r *schema.EffectiveRole) { r.SpreadBy = "rack" })},
			map[string]string{"login-0": "a", "worker-0": "b"}},
		"near the other members": {
			map[string]func(*schema.NodeSpec){"a": rack("r1"), "b": rack("r2"), "c": rack("r1")},
			[]schema.EffectiveRole{{Name: "login", Count: 1}, worker(1, nil)}, map[string]string{"login-0": "a", "worker-0": "c"}},
		"the switch before the rack": {
			map[string]func(*schema.NodeSpec){
				"a": func(n *schema.NodeSpec) { n.Topology = map[string]string{"rack": "r1", "switch": "s1"} },
				"b": func(n *schema.NodeSpec) { n.Topology = map[string]string{"rack": "r1", "switch": "s2"} },
				"c": func(n *schema.NodeSpec) { n.Topology = map[string]string{"rack": "r2", "switch": "s1"} }},
			[]schema.EffectiveRole{worker(2, nil)}, map[string]string{"worker-0": "a", "worker-1": "c"}},
		"the fewest GPUs unused": {
			map[string]func(*schema.NodeSpec){"a": gpus(4), "b": gpus(2), "c": gpus(1)},
			[]schema.EffectiveRole{worker(1, func(r *schema.EffectiveRole) { r.GPUs = &schema.GPURequest{Count: 2} })},
			map[string]string{"worker-0": "b"}},
		"GPUs before use": {
			map[string]func(*schema.NodeSpec){
				"a": func(n *schema.NodeSpec) { gpus(4)(n); n.Capacity.CPUs = 2 }, "b": gpus(2)},
			[]schema.EffectiveRole{worker(1, func(r *schema.EffectiveRole) { r.CPUs, r.GPUs = 2, &schema.GPURequest{Count: 2} })},
			map[string]string{"worker-0": "b"}},
		"the fullest by CPUs": {
			map[string]func(*schema.NodeSpec){"a": nil, "b": func(n *schema.NodeSpec) { n.Capacity.CPUs = 4 }},
			[]schema.EffectiveRole{worker(1, func(r *schema.EffectiveRole) { r.CPUs = 2 })}, map[string]string{"worker-0": "b"}},
		"the fullest by memory": {
			map[string]func(*schema.NodeSpec){"a": nil, "b": func(n *schema.NodeSpec) { n.Capacity.MemoryMiB = 4000 }},
			[]schema.EffectiveRole{worker(1, func(r *schema.EffectiveRole) { r.CPUs, r.MemoryMiB = 1, 2000 })},
			map[string]string{"worker-0": "b"}},
		"names by number": {
			map[string]func(*schema.NodeSpec){"n10": nil, "n2": nil, "n9": nil},
			[]schema.EffectiveRole{worker(2, nil)}, map[string]string{"worker-0": "n2", "worker-1": "n9"}},
	} {
		l := newLot()
		for node, change := range c.nodes {
			l.node(node, change)
		}
		l.unit("train", c.roles...)
		require.Equal(t, c.want, l.on("train"), name)
	}
}

// A member can take all GPUs of a node that has two models, of which no request for one type gets both. A node
// that has enough of one model is better.
func TestMemberTakesGPUsOfSeveralModels(t *testing.T) {
	l := newLot()
	gpus := func(name string, all ...schema.GPU) {
		l.node(name, func(n *schema.NodeSpec) { n.Capacity.GPUs = all })
	}
	ask := func(typ string, count int) schema.EffectiveRole {
		return schema.EffectiveRole{Name: "worker", Count: 1, GPUs: &schema.GPURequest{Type: typ, Count: count}}
	}
	k40, k2000 := schema.GPU{Type: "k40", Count: 2, Devices: "/dev/nvidia[0-1]"}, schema.GPU{Type: "k2000", Count: 1, Devices: "/dev/nvidia2"}
	gpus("mixed", k2000, k40)
	for _, c := range []struct {
		asked schema.EffectiveRole
		want  []schema.GPU
	}{
		{ask("", 3), []schema.GPU{k2000, k40}},
		{ask("", 2), []schema.GPU{k40}},
		{ask("", 1), []schema.GPU{k2000}},
		{ask("k40", 2), []schema.GPU{k40}},
		{ask("k40", 3), nil},
		{ask("", 4), nil},
	} {
		l.unit("train", c.asked)
		var got []schema.GPU
		for _, m := range l.place().Members(l.key("train")) {
			got = append(got, m.GPUs...)
		}
		require.Equal(t, c.want, got, "%+v", c.asked.GPUs)
	}
	require.Equal(t, "no node for worker-0: of 1 node, 1 without 4×gpu\n", l.waits("train"))

	gpus("mixed", k2000, schema.GPU{Type: "k40", Count: 1, Devices: "/dev/nvidia0"})
	gpus("whole", k40)
	l.unit("train", ask("", 2))
	require.Equal(t, "whole", l.on("train")["worker-0"])
}

// A node that is not ready takes no new member, and keeps those that it has. It takes new ones again once it is ready.
func TestNodeThatIsNotReadyTakesNoNewMember(t *testing.T) {
	l := newLot()
	l.node("a", nil)
	l.node("b", nil)
	silent := &ThingStatus{Phase: "not_ready"}
	worker := schema.EffectiveRole{Name: "worker", Count: 1}
	l.unit("train", worker)
	l.run()
	l.mem = l.mem.WithNode("a", silent)
	require.Equal(t, "a", l.on("train")["worker-0"], "it is there already")
	l.unit("sweep", worker)
	require.Equal(t, "b", l.on("sweep")["worker-0"])
	l.mem = l.mem.WithNode("b", silent)
	require.Equal(t, "no node for worker-0: of 2 nodes, 2 not ready\n", l.waits("sweep"))
	require.True(t, l.place().Unplaced(l.key("sweep"))[0].Wait)

	before := l.mem
	l.mem = l.mem.WithNode("b", &ThingStatus{Phase: NodeReady}).WithNode("a", nil)
	require.Equal(t, "b", l.on("sweep")["worker-0"])
	require.True(t, before.isUnready("b"), "a value never changes")
	require.Equal(t, Memory{}, Memory{}.WithNode("a", silent).WithNode("a", nil), "there is one empty value")
}

// Members of units that share nodes fill one node until its CPUs are all asked for, and then the emptiest.
func TestSharedNodesFillOneAfterAnother(t *testing.T) {
	l := newLot()
	l.node("a", nil)
	l.node("b", func(n *schema.NodeSpec) { n.Capacity.CPUs = 4 })
	var nodes []string
	for i := range 7 {
		name := fmt.Sprintf("u%d", i)
		l.unit(name, schema.EffectiveRole{Name: "head", Count: 1, Shareable: true, CPUs: 2})
		nodes = append(nodes, l.on(name)["head-0"])
		l.run()
	}
	require.Equal(t, []string{"b", "b", "a", "a", "a", "a", "a"}, nodes)
}

// A member that has a node stays there, whatever a new rule or node would be better.
func TestNoMemberMovesForABetterNode(t *testing.T) {
	l := newLot()
	worker := schema.EffectiveRole{Name: "worker", Count: 2, CPUs: 2}
	for _, name := range []string{"a", "b"} {
		l.node(name, func(n *schema.NodeSpec) { n.Topology = map[string]string{"rack": "r1"} })
	}
	l.unit("train", worker)
	l.run()
	is := map[string]string{"worker-0": "a", "worker-1": "b"}
	l.node("c", func(n *schema.NodeSpec) { n.Topology, n.Capacity.CPUs = map[string]string{"rack": "r2"}, 2 })
	worker.SpreadBy, worker.CPUs = "rack", 1
	l.unit("train", worker)
	require.Equal(t, is, l.on("train"))
	worker.Count = 3
	l.unit("train", worker)
	is["worker-2"] = "c"
	require.Equal(t, is, l.on("train"))
}

// Members that share a node share its disk. What does not fit beside the others waits, with the reason, and what grows
// beyond that stays where it is until a node is free for it.
func TestMembersShareTheDiskOfANode(t *testing.T) {
	head := func(disk int) schema.EffectiveRole {
		return schema.EffectiveRole{Name: "head", Count: 1, Shareable: true, DiskGiB: disk}
	}
	l := newLot()
	l.node("a", nil)
	l.unit("one", head(60))
	l.unit("three", head(0))
	l.unit("two", head(40))
	l.run()
	for _, name := range []string{"one", "two", "three"} {
		require.Equal(t, "a", l.on(name)["head-0"], name)
	}
	l.unit("four", head(1))
	require.Equal(t, "no node for head-0: of 1 node, 1 with less than 1 GiB of disk left\n", l.waits("four"))
	delete(l.units, "two")
	require.True(t, l.place().Unplaced(l.key("four"))[0].Wait, "two leaves the node")
	l.unit("two", head(40))

	l.unit("two", head(41))
	require.Contains(t, l.waits("two"), "head-0 stays on a, which no longer fits, as no other node does")
	l.run()
	l.run()
	require.True(t, l.place().Members(l.key("two"))[0].Misfit, "also when it was applied")
	l.node("b", nil)
	require.Equal(t, "b", l.on("two")["head-0"])
	l.unit("two", head(40))
	require.Equal(t, "a", l.on("two")["head-0"])

	plane := head(41)
	plane.ControlPlane = true
	l = newLot()
	l.node("a", nil)
	l.unit("one", head(60))
	small := plane
	small.DiskGiB = 40
	l.unit("two", small)
	l.run()
	for i, m := range l.mem.Get(l.key("two")).Observed.Unit.Members {
		require.True(t, m.ControlPlane, i)
	}
	l.unit("two", plane)
	require.Contains(t, l.waits("two"), "head-0 is on a, which is with less than 41 GiB of disk left; a control plane cannot move")
}

// What neighbours gain and give back in one commit counts together, whichever of them comes first. No member
// moves that need not.
func TestNeighboursShareTheDiskThatACommitFrees(t *testing.T) {
	for name, c := range map[string]struct{ first, second, newFirst, newSecond int }{
		"the first grows into what the second gives back": {10, 80, 50, 40},
		"the second grows into what the first gives back": {80, 10, 40, 50},
		"both grow":             {10, 10, 40, 60},
		"only one of them fits": {30, 30, 50, 60},
	} {
		head := func(disk int) schema.EffectiveRole {
			return schema.EffectiveRole{Name: "head", Count: 1, Shareable: true, DiskGiB: disk}
		}
		l := newLot()
		l.node("a", nil)
		l.unit("one", head(c.first))
		l.unit("two", head(c.second))
		l.run()
		l.node("b", nil)
		l.unit("one", head(c.newFirst))
		l.unit("two", head(c.newSecond))
		want := "a"
		if c.newFirst+c.newSecond > 100 {
			want = "b"
		}
		require.Equal(t, "a", l.on("one")["head-0"], name)
		require.Equal(t, want, l.on("two")["head-0"], name)
	}

	l := newLot()
	l.node("a", nil)
	head := schema.EffectiveRole{Name: "head", Count: 1, Shareable: true, DiskGiB: 80}
	l.unit("one", head)
	l.run()
	small := head
	small.DiskGiB = 20
	l.unit("one", small)
	l.unit("two", head)
	require.Equal(t, "a", l.on("two")["head-0"], "a new member gets what a neighbour gives back")
	l.units["one"].Suspend = true
	require.Contains(t, l.waits("two"), "1 with less than 80 GiB of disk left", "a suspended unit gives nothing back")
}

// In random lots each new member of a unit gets the node that a model which knows only the words of the rules finds.
func TestBestNodeAgreesWithModel(t *testing.T) {
	seen := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 7))
		l := newLot()
		for i := range 2 + r.IntN(7) {
			l.node(fmt.Sprintf("n%d", 8+i), func(n *schema.NodeSpec) {
				n.Topology = map[string]string{}
				for _, key := range []string{"rack", "switch"} {
					if r.IntN(4) > 0 {
						n.Topology[key] = fmt.Sprint(r.IntN(3))
					}
				}
				n.Capacity = schema.Capacity{CPUs: 2 << r.IntN(3), MemoryMiB: 1000 << r.IntN(3), DiskGiB: 50 * r.IntN(3)}
				if r.IntN(2) == 0 {
					n.Capacity.GPUs = []schema.GPU{{Type: "a100", Count: 1 + r.IntN(3), Devices: "/dev/nvidia[0-7]"}}
				}
			})
		}
		role := func(name string) schema.EffectiveRole {
			is := schema.EffectiveRole{Name: name, Count: 1 + r.IntN(3), Shareable: r.IntN(2) == 0, CPUs: r.IntN(3), MemoryMiB: 500 * r.IntN(3),
				DiskGiB: 20 * r.IntN(3), SpreadBy: []string{"", "rack"}[r.IntN(2)]}
			if r.IntN(3) == 0 {
				is.GPUs = &schema.GPURequest{Count: 1 + r.IntN(2)}
			}
			return is
		}
		for i := range r.IntN(3) {
			l.unit(fmt.Sprintf("old%d", i), role("head"))
		}
		l.run()
		there := map[string][]taken{}
		for name, u := range l.units {
			for _, node := range l.on(name) {
				there[node] = append(there[node], taken{role: u.Roles[0]})
			}
		}
		l.unit("new", role("head"), role("worker"))
		want := map[string]string{}
		for _, role := range l.units["new"].Roles {
			for i := range role.Count {
				if node := bestByWords(l.nodes, there, role); node != "" {
					there[node] = append(there[node], taken{role, true})
					want[memberName(role.Name, i)] = node
				}
			}
		}
		seen += len(want)
		require.Equal(t, want, l.on("new"), "seed %d", seed)
	}
	require.Greater(t, seen, 400)
}

// taken is a member on a node: of the unit that is placed, or of another one.
type taken struct {
	role schema.EffectiveRole
	own  bool
}

// bestByWords returns the best node for a new member, as the comment of score.go says; "" if none fits.
func bestByWords(nodes map[string]*schema.Node, there map[string][]taken, role schema.EffectiveRole) string {
	type candidate struct {
		name string
		ways []float64 // less is better
	}
	var all []candidate
	for name, n := range nodes {
		c := n.Spec.Capacity
		gpus, cpus, memory, disk := 0, role.CPUs, role.MemoryMiB, role.DiskGiB
		for _, g := range c.GPUs {
			gpus += g.Count
		}
		fits := role.GPUs == nil || gpus >= role.GPUs.Count
		for _, o := range there[name] {
			cpus, memory, disk = cpus+o.role.CPUs, memory+o.role.MemoryMiB, disk+o.role.DiskGiB
			alone := !role.Shareable || role.GPUs != nil || !o.role.Shareable || o.role.GPUs != nil
			fits = fits && !alone && !(o.own && o.role.Name == role.Name)
		}
		if !fits || role.CPUs > c.CPUs || role.MemoryMiB > c.MemoryMiB || role.DiskGiB > 0 && disk > c.DiskGiB {
			continue
		}
		same := func(key string, is func(taken) bool) (count float64) {
			for other, on := range there {
				for _, o := range on {
					if value := n.Spec.Topology[key]; o.own && is(o) && value == nodes[other].Spec.Topology[key] && value != "" {
						count++
					}
				}
			}
			return count
		}
		var ways []float64
		if role.GPUs == nil {
			ways = append(ways, float64(min(gpus, 1)))
		}
		if role.SpreadBy != "" {
			ways = append(ways, 100, 100)
			if n.Spec.Topology[role.SpreadBy] != "" {
				ways = append(ways[:len(ways)-2], 0, same(role.SpreadBy, func(o taken) bool { return o.role.Name == role.Name }))
			}
		} else {
			anyOf := func(taken) bool { return true }
			ways = append(ways, -same("switch", anyOf), -same("rack", anyOf))
		}
		use := max(float64(cpus)/float64(c.CPUs), float64(memory)/float64(c.MemoryMiB))
		if ways = append(ways, float64(gpus)); use > 1 {
			ways = append(ways, use)
		} else {
			ways = append(ways, -use)
		}
		var number float64
		fmt.Sscanf(name, "n%f", &number)
		all = append(all, candidate{name, append(ways, number)})
	}
	if len(all) == 0 {
		return ""
	}
	return slices.MinFunc(all, func(a, b candidate) int { return slices.Compare(a.ways, b.ways) }).name
}

func TestCompareNatural(t *testing.T) {
	names := []string{"a", "a1", "a1-2", "a1-10", "a2", "a02", "a10", "a10b", "b1"}
	want := []string{"a", "a1", "a1-2", "a1-10", "a02", "a2", "a10", "a10b", "b1"}
	require.Equal(t, want, slices.SortedFunc(slices.Values(names), compareNatural))
}

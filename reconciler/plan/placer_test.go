package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

// The result of a Placer never depends on its earlier calls: it equals that of
// Place.
func TestPlacerMatchesPlace(t *testing.T) { placerMatchesPlace(t, 0, 300) }

func placerMatchesPlace(t *testing.T, first, histories uint64) {
	seen := map[string]int{}
	for seed := first; seed < first+histories; seed++ {
		h := &history{Rand: rand.New(rand.NewPCG(seed, 1)), instances: map[schema.Key]*schema.EffectiveUnit{},
			denied: map[schema.Key]bool{}, nodes: map[string]*schema.Node{}, touched: map[[2]string]bool{}}
		h.start()
		type asked struct {
			eff *schema.Effective
			mem Memory
			out Placement
		}
		var past []asked
		var before Placement
		p := new(Placer)
		for step := range 8 {
			if h.IntN(4) > 0 || len(past) == 0 {
				h.step()
				past = append(past, asked{eff: h.effective(), mem: h.mem})
			}
			i := len(past) - 1
			if h.IntN(4) == 0 {
				i = h.IntN(len(past)) // an estate of an earlier or hypothetical call
			}
			at := &past[i]
			at.out = p.Place(at.eff, at.mem)
			fresh := new(Placer)
			want := fresh.Place(at.eff, at.mem)
			same(t, want, at.out, fmt.Sprintf("seed %d, step %d", seed, step))
			require.Equal(t, fresh.last.on, p.last.on, "who is where; seed %d, step %d", seed, step)
			require.Equal(t, keysThatDiffer(before, at.out), slices.SortedFunc(ChangedPlacement(before, at.out), schema.Key.Compare),
				"seed %d, step %d", seed, step)
			count(seen, at.out, p.last.dependent(), at.eff.Len())
			refusalsAddUp(t, at.out)
			before = at.out
			if i == len(past)-1 {
				h.placed = at.out
			}
		}
		for _, at := range past { // earlier results do not change
			for range at.out.All() { // an empty one has nothing to change
				same(t, Place(at.eff, at.mem), at.out, fmt.Sprintf("seed %d, afterwards", seed))
				break
			}
		}
	}
	// The histories contain each of these cases, and often.
	for _, what := range []string{"housed", string(CodeNoNode), string(CodeStays), string(CodeControlPlane), "independent", "dependent"} {
		require.Greater(t, seen[what], int(histories)/25, what)
	}
}

// same fails unless two placements are equal.
func same(t *testing.T, want, got Placement, when string) {
	t.Helper()
	require.Equal(t, want, got, when)
}

func count(seen map[string]int, p Placement, dependent, units int) {
	for key, members := range p.All() {
		if len(members) > 0 {
			seen["housed"]++
		}
		for _, b := range p.Unplaced(key) {
			seen[string(b.Code)]++
		}
	}
	seen["dependent"] += dependent
	seen["independent"] += units - dependent
}

// refusalsAddUp fails unless a message of a missing node counts each node once.
func refusalsAddUp(t *testing.T, p Placement) {
	t.Helper()
	for key := range p.All() {
		for _, b := range p.Unplaced(key) {
			text, _, _ := strings.Cut(regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(b.Message, ""), ";")
			among := regexp.MustCompile(`of (\d+) nodes?((?:, \d+ [^,]+)+)`).FindStringSubmatch(text)
			if among == nil {
				continue
			}
			all, sum := 0, 0
			fmt.Sscan(among[1], &all)
			for _, part := range strings.Split(among[2], ", ")[1:] {
				n := 0
				fmt.Sscan(part, &n)
				sum += n
			}
			require.Equal(t, all, sum, b.Message)
		}
	}
}

// dependent returns the number of instances whose placement depends on others.
func (ts tenants) dependent() (n int) {
	for _, p := range ts.projects() {
		n += len(p.open)
	}
	return n
}

func (ts tenants) projects() map[[2]string]*project {
	all := map[[2]string]*project{}
	for tenant, t := range ts.of {
		for name, p := range t.projects {
			all[[2]string{tenant, name}] = p
		}
	}
	return all
}

func keysThatDiffer(a, b Placement) []schema.Key {
	said := func(p Placement, key schema.Key) string {
		if p.get(key) == nil {
			return ""
		}
		return fmt.Sprintf("%+v %+v", p.Members(key), p.Unplaced(key))
	}
	keys := map[schema.Key]bool{}
	for _, p := range []Placement{a, b} {
		for key := range p.All() {
			if said(a, key) != said(b, key) {
				keys[key] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(keys), schema.Key.Compare)
}

// history is a changing estate of a few projects that share a few nodes.
type history struct {
	*rand.Rand
	instances map[schema.Key]*schema.EffectiveUnit
	denied    map[schema.Key]bool
	nodes     map[string]*schema.Node
	mem       Memory
	placed    Placement // result of the last call
	last      *schema.Effective
	touched   map[[2]string]bool
}

func (h *history) one(of ...string) string { return of[h.IntN(len(of))] }

func (h *history) start() {
	for i := range 2 + h.IntN(7) {
		h.node(fmt.Sprintf("n%d", i))
	}
	for range 1 + h.IntN(6) {
		h.instance(h.key())
	}
}

func (h *history) key() schema.Key {
	return schema.InstanceKey(h.one("a", "b", "c"), h.one("one", "two"), h.one("x", "y", "z"))
}

// any returns a random declared instance.
func (h *history) any() (schema.Key, bool) {
	keys := slices.SortedFunc(maps.Keys(h.instances), schema.Key.Compare)
	for key := range h.mem.All() {
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return schema.Key{}, false
	}
	slices.SortFunc(keys, schema.Key.Compare)
	return keys[h.IntN(len(keys))], true
}

func (h *history) node(name string) {
	n := &schema.Node{Header: schema.Header{Key: schema.Key{Kind: schema.KindNode, Name: name}}}
	n.Spec = schema.NodeSpec{
		Address: "10.0.0.1", Region: h.one("eu-1", "eu-2"), SKU: h.one("small", "large"), Cordoned: h.IntN(6) == 0,
		Reserved: h.one("", "", "", "", "a", "b.two"),
		Capacity: schema.Capacity{CPUs: 1 + h.IntN(3), MemoryMiB: 1000, DiskGiB: []int{0, 50, 100}[h.IntN(3)]},
		Topology: map[string]string{"rack": h.one("r1", "r2"), "switch": h.one("s1", "s2")},
	}
	n.Spec.Roles = [][]string{{"controller"}, {"worker"}, {"worker"}, {"controller", "worker"}}[h.IntN(4)]
	if h.IntN(2) == 0 {
		n.Spec.Capacity.GPUs = []schema.GPU{{Type: h.one("a100", "l40s"), Count: 1 + h.IntN(3), Devices: "/dev/gpu[0-3]"}}
	}
	h.nodes[name] = n
}

func (h *history) instance(key schema.Key) {
	h.touched[[2]string{key.Tenant, key.Project}] = true
	i := &schema.EffectiveUnit{Key: key, DesiredState: schema.DesiredRunning, Suspend: h.IntN(10) == 0}
	if h.IntN(8) == 0 {
		i.DesiredState = schema.DesiredStopped
	}
	if h.IntN(4) == 0 {
		i.Regions = []string{h.one("eu-1", "eu-2")}
	}
	worker := schema.EffectiveRole{Name: "worker", NodeRole: "worker", Count: h.IntN(3), Shareable: h.IntN(3) == 0, CPUs: h.IntN(3)}
	if h.IntN(3) == 0 {
		worker.GPUs = &schema.GPURequest{Type: h.one("", "a100", "l40s"), Count: 1 + h.IntN(2)}
	}
	if h.IntN(4) == 0 {
		worker.SKUs = []string{h.one("small", "large")}
	}
	i.Roles = []schema.EffectiveRole{{Name: "controller", NodeRole: "controller", ControlPlane: true, Shareable: h.IntN(6) > 0, Count: 1},
		worker}
	for at := range i.Roles {
		i.Roles[at].SpreadBy = h.one("", "", "rack")
		if h.IntN(3) == 0 {
			i.Roles[at].DiskGiB = 10 * (1 + h.IntN(6))
		}
	}
	if h.IntN(4) == 0 {
		i.Roles = append(i.Roles, schema.EffectiveRole{Name: "xl", NodeRole: "worker", Count: 1, Shareable: h.IntN(2) == 0})
	}
	h.instances[key] = i
	delete(h.denied, key)
	if h.IntN(10) == 0 {
		h.denied[key] = true
	}
}

// step makes one or several changes between two observations.
func (h *history) step() {
	for range 1 + h.IntN(3) {
		switch what := h.IntN(16); {
		case what == 0:
			h.instance(h.key())
		case what < 4:
			if key, ok := h.any(); ok {
				h.instance(key)
			}
		case what == 4:
			if key, ok := h.any(); ok {
				h.touched[[2]string{key.Tenant, key.Project}] = true
				delete(h.instances, key)
				delete(h.denied, key)
			}
		case what == 5:
			if key, ok := h.any(); ok && h.instances[key] != nil {
				h.touched[[2]string{key.Tenant, key.Project}] = true
				h.denied[key] = !h.denied[key]
			}
		case what < 8:
			h.nodes = maps.Clone(h.nodes)
			switch name := fmt.Sprintf("n%d", h.IntN(9)); h.IntN(4) {
			case 0:
				delete(h.nodes, name)
			case 1:
				if n := h.nodes[name]; n != nil {
					next := *n
					next.Spec.Cordoned = !n.Spec.Cordoned
					h.nodes[name] = &next
				}
			default:
				h.node(name)
			}
		case what < 11:
			placed := maps.Collect(h.placed.All())
			for _, key := range slices.SortedFunc(maps.Keys(placed), schema.Key.Compare) { // create it as it was placed
				h.remember(key, placed[key])
			}
		case what < 14:
			if key, ok := h.any(); ok {
				h.remember(key, h.placed.Members(key))
			}
		case what == 14:
			if key, ok := h.any(); ok {
				h.mem = h.mem.Without(key)
			}
		default:
			h.last = nil // read everything again
		}
	}
}

// remember records a unit on some nodes: complete, partial, or different.
func (h *history) remember(key schema.Key, members []Member) {
	st := &Status{Key: key, Phase: PhaseRunning}
	o := Observed{Key: key, Presence: Present, Complete: true, Unit: &Unit{Members: slices.Clone(members)}}
	inst := h.instances[key]
	if inst == nil {
		st.Phase = PhaseDeleting
		if was := h.mem.Get(key); was != nil && was.Observed != nil {
			o = *was.Observed
			o.Members = slices.Clone(o.Members) // recorded observations must not change
		}
	} else {
		o.Unit.Effective = *inst
	}
	for _, m := range members {
		st.Members = append(st.Members, MemberStatus{Member: m, Placed: h.one("", m.Reason)})
		o.Members = append(o.Members, MemberState{Name: m.Name, Node: m.Node, State: Running})
	}
	if h.IntN(3) == 0 {
		for i := range st.Members {
			if h.IntN(3) == 0 {
				st.Members[i].Node = fmt.Sprintf("n%d", h.IntN(9))
			}
		}
		for i := range o.Members {
			if h.IntN(4) == 0 {
				o.Members[i].Node = fmt.Sprintf("n%d", h.IntN(9))
			}
		}
		switch h.IntN(6) {
		case 0:
			o.Presence, o.Unit, o.Members = Absent, nil, nil // only intended
		case 1:
			o.Presence = Unknown
		case 2:
			o.Members = nil
		case 3:
			st.Phase = PhaseDeleted
		case 4:
			o.Unit = nil
		}
	}
	if st.Observed = &o; h.IntN(8) == 0 {
		st.Observed = nil
	}
	h.mem = h.mem.With(st)
}

// effective returns the effective estate; unchanged parts keep their values.
func (h *history) effective() *schema.Effective {
	eff := &schema.Effective{Tenants: map[string]*schema.EffectiveTenant{}, Nodes: h.nodes}
	if h.last == nil {
		h.nodes = maps.Clone(h.nodes)
		for name, n := range h.nodes {
			other := *n
			h.nodes[name] = &other
		}
		eff.Nodes = h.nodes
	}
	for _, key := range slices.SortedFunc(maps.Keys(h.instances), schema.Key.Compare) {
		t := eff.Tenants[key.Tenant]
		if t == nil {
			t = &schema.EffectiveTenant{Projects: map[string]*schema.EffectiveProject{}}
			eff.Tenants[key.Tenant] = t
		}
		p := t.Projects[key.Project]
		if p == nil {
			p = &schema.EffectiveProject{Units: map[string]*schema.EffectiveUnit{}}
			t.Projects[key.Project] = p
		}
		inst := h.instances[key]
		if h.last == nil {
			other := *inst
			inst = &other
			h.instances[key] = inst
		}
		p.Units[key.Name] = inst
		if h.denied[key] {
			p.Decisions = append(p.Decisions, schema.Decision{Key: key, Verdict: schema.Deny, Rule: "r"})
		}
	}
	if h.last != nil {
		for tenant, t := range eff.Tenants {
			was, unchanged := h.last.Tenants[tenant], true
			for project := range t.Projects {
				if h.touched[[2]string{tenant, project}] || was == nil || was.Projects[project] == nil {
					unchanged = false
				} else {
					t.Projects[project] = was.Projects[project]
				}
			}
			if was != nil && unchanged && len(was.Projects) == len(t.Projects) {
				eff.Tenants[tenant] = was
			}
		}
	}
	h.last, h.touched = eff, map[[2]string]bool{}
	return eff
}

// A rare case: the assignment of a unit depends on other units although no check
// compared the two.
func TestPlacerFindsDependentAssignments(t *testing.T) {
	first, second := schema.InstanceKey("a", "one", "x"), schema.InstanceKey("b", "one", "x")
	worker := schema.EffectiveRole{Name: "worker", NodeRole: "worker", Count: 1, Shareable: true}
	instance := func(key schema.Key, role schema.EffectiveRole) *schema.EffectiveUnit {
		return &schema.EffectiveUnit{Key: key, DesiredState: schema.DesiredRunning, Roles: []schema.EffectiveRole{role}}
	}
	effective := func(nodes []string, instances ...*schema.EffectiveUnit) *schema.Effective {
		eff := &schema.Effective{Tenants: map[string]*schema.EffectiveTenant{}, Nodes: map[string]*schema.Node{}}
		for _, n := range nodes {
			eff.Nodes[n] = &schema.Node{Header: schema.Header{Key: schema.Key{Kind: schema.KindNode, Name: n}},
				Spec: schema.NodeSpec{Roles: []string{"worker"}}}
		}
		for _, i := range instances {
			eff.Tenants[i.Key.Tenant] = &schema.EffectiveTenant{Projects: map[string]*schema.EffectiveProject{
				i.Key.Project: {Units: map[string]*schema.EffectiveUnit{i.Key.Name: i}}}}
		}
		return eff
	}
	on := []Member{{Name: "worker-0", Role: "worker", Node: "n0"}}
	meant := func(phase Phase) *Status {
		return &Status{Key: first, Phase: phase, Members: []MemberStatus{{Member: on[0]}},
			Observed: &Observed{Key: first, Presence: Absent}}
	}

	t.Run("a recorded shared node becomes exclusive", func(t *testing.T) {
		alone := worker
		alone.Shareable = false
		made := &Status{Key: second, Phase: PhaseRunning,
			Observed: &Observed{Key: second, Presence: Present, Unit: &Unit{Effective: *instance(second, worker), Members: on}}}
		eff, mem := effective([]string{"n0", "n1"}, instance(first, worker), instance(second, alone)), Remember(meant(PhaseRequested), made)
		p := new(Placer)
		require.Equal(t, "n0", p.Place(eff, mem).Members(first)[0].Node)
		mem = mem.With(meant(PhaseDeploying))
		same(t, Place(eff, mem), p.Place(eff, mem), "the first unit placed does not know the other one")
	})
	t.Run("the record says that the unit is gone", func(t *testing.T) {
		idle := instance(first, worker)
		idle.Suspend = true
		mem, p := Remember(meant(PhaseDeleted)), new(Placer)
		require.Empty(t, p.Place(effective(nil, idle), mem).Members(first))
		eff := effective([]string{"n0"}, idle)
		require.Len(t, Place(eff, mem).Members(first), 1)
		same(t, Place(eff, mem), p.Place(eff, mem), "its node is declared again")
	})
}

// The record of a unit of another kind does not affect an instance of the same
// name.
func TestPlacerSeparatesKinds(t *testing.T) {
	key := schema.InstanceKey("a", "one", "x")
	runtime := key
	runtime.Kind = schema.KindSharedRuntime
	eff := &schema.Effective{
		Nodes: map[string]*schema.Node{"n0": {Header: schema.Header{Key: schema.Key{Kind: schema.KindNode, Name: "n0"}},
			Spec: schema.NodeSpec{Roles: []string{"worker"}}}},
		Tenants: map[string]*schema.EffectiveTenant{"a": {Projects: map[string]*schema.EffectiveProject{"one": {Units: map[string]*schema.EffectiveUnit{
			"x": {Key: key, DesiredState: schema.DesiredRunning,
				Roles: []schema.EffectiveRole{{Name: "worker", NodeRole: "worker", Count: 1}}}}}}}},
	}
	p := new(Placer)
	require.Len(t, p.Place(eff, Memory{}).Members(key), 1)
	require.Len(t, p.Place(eff, Remember(&Status{Key: runtime})).Members(key), 1)
	require.Empty(t, p.Place(eff, Remember(&Status{Key: runtime})).Members(runtime))
}

// In a converged estate only changed projects are placed again, and projects on
// changed nodes.
func TestPlacerPlacesOnlyChangedProjects(t *testing.T) {
	h := &history{Rand: rand.New(rand.NewPCG(1, 1)), instances: map[schema.Key]*schema.EffectiveUnit{}, denied: map[schema.Key]bool{},
		nodes: map[string]*schema.Node{}, touched: map[[2]string]bool{}}
	for i := range 400 {
		name := fmt.Sprintf("n%03d", i)
		h.node(name)
		h.nodes[name].Spec = schema.NodeSpec{Roles: []string{"worker"}, Capacity: schema.Capacity{CPUs: 2}}
		if i%10 == 0 {
			h.nodes[name].Spec.Roles = []string{"controller"}
		}
	}
	for i := range 300 {
		key := schema.InstanceKey(fmt.Sprintf("t%d", i%30), fmt.Sprintf("p%d", i/30%3), fmt.Sprintf("i%03d", i))
		h.instance(key)
		*h.instances[key] = schema.EffectiveUnit{Key: key, DesiredState: schema.DesiredRunning, Roles: []schema.EffectiveRole{
			{Name: "controller", NodeRole: "controller", ControlPlane: true, Shareable: true, Count: 1},
			{Name: "worker", NodeRole: "worker", Count: 1}}}
	}
	clear(h.denied)
	p := new(Placer)
	placed := p.Place(h.effective(), h.mem)
	require.True(t, placed.Whole())
	var made []*Status
	for key, members := range placed.All() {
		made = append(made, &Status{Key: key, Phase: PhaseRunning,
			Observed: &Observed{Key: key, Presence: Present, Complete: true, Unit: &Unit{Effective: *h.instances[key], Members: members}}})
	}
	h.mem = Remember(made...)
	p.Place(h.effective(), h.mem)
	require.Zero(t, p.last.dependent())

	// again places once more, and returns the projects that were placed again.
	again := func(eff *schema.Effective) (ids [][2]string) {
		was := p.last.projects()
		placed = p.Place(eff, h.mem)
		same(t, Place(eff, h.mem), placed, "anew")
		for id, of := range p.last.projects() {
			if was[id] != of {
				ids = append(ids, id)
			}
		}
		return ids
	}
	require.Empty(t, again(h.effective()))

	key := slices.MinFunc(made, func(a, b *Status) int { return a.Key.Compare(b.Key) }).Key
	id := [2]string{key.Tenant, key.Project}
	edit := func(how func(*schema.EffectiveUnit)) *schema.Effective {
		next := *h.instances[key]
		next.Roles = slices.Clone(next.Roles)
		how(&next)
		h.instances[key], h.touched[[2]string{key.Tenant, key.Project}] = &next, true
		return h.effective()
	}
	before := placed
	require.Equal(t, [][2]string{id}, again(edit(func(i *schema.EffectiveUnit) { i.DisplayName = "another" })))
	require.Empty(t, slices.Collect(ChangedPlacement(before, placed)), "nobody moves for a name")
	require.Equal(t, [][2]string{id}, again(edit(func(i *schema.EffectiveUnit) { i.Roles[1].CPUs = 1 })))
	p.last = tenants{} // interrupted, as after a panic: it starts from nothing
	require.Len(t, again(h.effective()), len(p.last.projects()))

	node := placed.Members(key)[1].Node
	full := *h.nodes[node]
	full.Spec.Cordoned = true
	h.nodes = maps.Clone(h.nodes)
	h.nodes[node] = &full
	require.Equal(t, [][2]string{id}, again(h.effective()), "the project with the unit on the node")
}

package plan_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/reconciler/plan"
	"berth/schema"
)

var (
	regions  = []string{"eu-1", "eu-2"}
	skus     = []string{"small", "large"}
	gpuTypes = []string{"a100", "l40s"}
)

func drawNode(t *rapid.T, name string) schema.NodeSpec {
	s := schema.NodeSpec{
		Address: "10.0.0." + name, SSHPort: 22,
		Region: rapid.SampledFrom(regions).Draw(t, "region"), SKU: rapid.SampledFrom(skus).Draw(t, "sku"),
		Roles:    rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"controller", "worker"}), 1, 2, rapid.ID).Draw(t, "offers"),
		Capacity: schema.Capacity{CPUs: rapid.IntRange(1, 4).Draw(t, "cpus"), MemoryMiB: 1000 * rapid.IntRange(1, 4).Draw(t, "memory")},
		Cordoned: rapid.IntRange(0, 5).Draw(t, "cordoned") == 0,
		Reserved: rapid.SampledFrom([]string{"", "", "", "a", "b.two"}).Draw(t, "reserved"),
		Topology: map[string]string{"rack": rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "rack")},
	}
	s.Capacity.DiskGiB = rapid.SampledFrom([]int{0, 50, 100}).Draw(t, "disk")
	if rapid.Bool().Draw(t, "has gpus") {
		s.Capacity.GPUs = []schema.GPU{{Type: rapid.SampledFrom(gpuTypes).Draw(t, "type"), Count: rapid.IntRange(1, 4).Draw(t, "gpus"),
			Devices: "/dev/gpu[0-3]"}}
	}
	return s
}

func drawInstance(t *rapid.T, id string) instance {
	i := instance{ID: id}
	i.App, i.RuntimeBackend = "batch", "test"
	if rapid.IntRange(0, 3).Draw(t, "anywhere") == 0 {
		i.Regions = []string{rapid.SampledFrom(regions).Draw(t, "in")}
	}
	w := schema.EffectiveRole{Name: "worker", NodeRole: "worker", Count: rapid.IntRange(0, 3).Draw(t, "count")}
	if rapid.Bool().Draw(t, "wants gpus") {
		w.GPUs = &schema.GPURequest{Type: rapid.SampledFrom(append(gpuTypes, "")).Draw(t, "of"),
			Count: rapid.IntRange(1, 2).Draw(t, "at least")}
	}
	if rapid.IntRange(0, 3).Draw(t, "any sku") == 0 {
		w.SKUs = []string{rapid.SampledFrom(skus).Draw(t, "wants sku")}
	}
	w.CPUs = rapid.IntRange(0, 2).Draw(t, "wants cpus")
	w.MaxUnavailable = rapid.SampledFrom([]schema.MaxUnavailable{{}, {}, {Number: 2}, {Percent: 50}, {Percent: 100}}).Draw(t,
		"max unavailable")
	disk := func(what string) int { return rapid.SampledFrom([]int{0, 0, 20, 40, 60}).Draw(t, what) }
	w.DiskGiB, w.SpreadBy = disk("wants disk"), rapid.SampledFrom([]string{"", "rack"}).Draw(t, "spread by")
	i.Roles = []schema.EffectiveRole{
		{Name: "controller", NodeRole: "controller", ControlPlane: true, Shareable: true, Count: 1, DiskGiB: disk("controller disk")}, w,
	}
	if rapid.Bool().Draw(t, "two kinds") {
		x := w
		x.Name, x.Count, x.GPUs, x.SKUs = "xl", rapid.IntRange(1, 2).Draw(t, "xls"), nil,
			[]string{rapid.SampledFrom(skus).Draw(t, "xl sku")}
		i.Roles = append(i.Roles, x)
	}
	if rapid.IntRange(0, 6).Draw(t, "state") == 0 {
		i.DesiredState = schema.DesiredStopped
	}
	return i
}

func drawEstate(t *rapid.T) estate {
	e := estate{Nodes: map[string]schema.NodeSpec{}}
	for n := range rapid.IntRange(1, 8).Draw(t, "nodes") {
		name := fmt.Sprintf("n%d", n)
		e.Nodes[name] = drawNode(t, name)
	}
	for _, id := range []string{"a.one/x", "a.one/y", "b.two/x", "b.two/z"} {
		if rapid.Bool().Draw(t, id) {
			e.Instances = append(e.Instances, drawInstance(t, id))
		}
	}
	return e
}

// change draws another estate, a plausible edit of e.
func (e estate) change(t *rapid.T) estate {
	next := estate{Nodes: maps.Clone(e.Nodes), Instances: slices.Clone(e.Instances)}
	for _, name := range slices.Sorted(maps.Keys(e.Nodes)) { // in a fixed order, so that a failure can be repeated
		switch rapid.IntRange(0, 9).Draw(t, "what of "+name) {
		case 0:
			delete(next.Nodes, name)
		case 1, 2:
			next.Nodes[name] = drawNode(t, name)
		}
	}
	for i, inst := range next.Instances {
		if rapid.IntRange(0, 2).Draw(t, "what of "+inst.ID) == 0 {
			next.Instances[i] = drawInstance(t, inst.ID)
		}
	}
	if len(next.Instances) > 0 && rapid.IntRange(0, 2).Draw(t, "one goes") == 0 {
		next.Instances = next.Instances[1:]
	}
	return next
}

// exclusive reports whether a member has its node alone.
func exclusive(eff *schema.Effective, key schema.Key, m plan.Member) bool {
	for _, r := range eff.Unit(key).Roles {
		if r.Name == m.Role {
			return !r.Shareable || r.GPUs != nil
		}
	}
	return true
}

// checkPlacement checks the invariants of every placement, given the observations before
// it.
func checkPlacement(t *rapid.T, eff *schema.Effective, before map[schema.Key]plan.Observed, placed plan.Placement) {
	type seat struct {
		key    schema.Key
		member string
		alone  bool
	}
	disk, isNew, isMisfit := map[string]int{}, map[string]bool{}, map[string]bool{}
	seats := map[string][]seat{}
	for key, members := range placed.All() {
		inst := eff.Unit(key)
		require.NotNil(t, inst)
		was := map[string]plan.Member{}
		if u := before[key].Unit; u != nil {
			for _, m := range u.Members {
				was[m.Name] = m
			}
		}
		names := map[string]bool{}
		for _, m := range members {
			require.False(t, names[m.Name], "%s twice", m.Name)
			names[m.Name] = true
			n := eff.Nodes[m.Node]
			require.NotNil(t, n, "%s is on a node that is not declared", m.Name)
			i := slices.IndexFunc(inst.Roles, func(r schema.EffectiveRole) bool { return r.Name == m.Role })
			require.GreaterOrEqual(t, i, 0)
			role := inst.Roles[i]
			require.Contains(t, n.Spec.Roles, role.NodeRole)
			seats[m.Node] = append(seats[m.Node], seat{key, m.Name, exclusive(eff, key, m)})
			disk[m.Node] += role.DiskGiB
			isMisfit[m.Node] = isMisfit[m.Node] || m.Misfit
			if was[m.Name].Node == m.Node {
				continue // an existing unit may stay
			}
			isNew[m.Node] = isNew[m.Node] || role.DiskGiB > 0
			require.False(t, n.Spec.Cordoned)
			require.Contains(t, []string{"", key.Tenant, key.ProjectID()}, n.Spec.Reserved)
			require.GreaterOrEqual(t, n.Spec.Capacity.CPUs, role.CPUs)
			require.GreaterOrEqual(t, n.Spec.Capacity.MemoryMiB, role.MemoryMiB)
			if len(inst.Regions) > 0 {
				require.Contains(t, inst.Regions, n.Spec.Region)
			}
			if len(role.SKUs) > 0 {
				require.Contains(t, role.SKUs, n.Spec.SKU)
			}
			if role.GPUs != nil {
				require.NotEmpty(t, m.GPUs)
				for _, g := range m.GPUs {
					require.GreaterOrEqual(t, g.Count, role.GPUs.Count)
					if role.GPUs.Type != "" {
						require.Equal(t, role.GPUs.Type, g.Type)
					}
				}
			}
		}
	}
	for node, on := range seats {
		for _, s := range on {
			require.False(t, s.alone && len(on) > 1, "%s is the node of %v", node, on)
		}
	}
	for node := range isNew { // a member that stays may ask for more than is left, and is a misfit then
		require.True(t, !isNew[node] || isMisfit[node] || disk[node] <= eff.Nodes[node].Spec.Capacity.DiskGiB, "disk of %s", node)
	}
	// A node becomes free only after its unit has left.
	for key, o := range before {
		if o.Unit == nil {
			continue
		}
		for _, m := range o.Unit.Members {
			if m.ControlPlane {
				continue
			}
			for _, s := range seats[m.Node] {
				require.True(t, s.key == key, "%s goes to %v while %s is on it", m.Node, s, key)
			}
		}
	}
}

// In any history of plausible edits the plans and placements keep their
// invariants, and applying a plan leaves nothing to do.
func TestPlansConvergeInAnyHistory(t *testing.T) { plansConverge(t) }

func plansConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{real: map[schema.Key]plan.Observed{}}
		e := drawEstate(t)
		for range 4 {
			eff := e.effective()
			before := maps.Clone(w.real)
			ps := w.plans(eff)
			placed := plan.Place(eff, w.mem)
			checkPlacement(t, eff, before, placed)
			for _, p := range ps {
				checkPlan(t, p)
				if eff.Unit(p.Key) != nil {
					require.False(t, slices.ContainsFunc(p.Actions, func(a plan.Action) bool { return a.Verb == plan.Delete }))
				}
			}

			// The order of maps does not matter.
			require.Equal(t, text(ps), text(w.plans(shuffled(eff))))

			for _, p := range ps {
				w.apply(p)
			}
			// Units that waited for a node may continue; then the estate converges.
			for range len(e.Nodes) + 2 {
				for _, p := range w.plans(eff) {
					w.apply(p)
				}
			}
			for _, p := range w.plans(eff) {
				require.Empty(t, p.Actions, "%s never comes to rest:\n%s", p.Key, text([]plan.Plan{p}))
			}

			// A new instance of another project moves no member.
			calm := plan.Place(eff, w.mem)
			guest := drawInstance(t, "a.aaa/guest")
			with := estate{Nodes: e.Nodes, Instances: append(slices.Clone(e.Instances), guest)}
			crowd := plan.Place(with.effective(), w.mem)
			for key, members := range calm.All() {
				if w.real[key].Unit != nil {
					require.Equal(t, members, crowd.Members(key), "%s", key)
				}
			}
			e = e.change(t)
		}
	})
}

// A unit with an unknown presence has no action, for any declaration.
func TestUnknownPresencePlansNoAction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{real: map[schema.Key]plan.Observed{}}
		e := drawEstate(t)
		eff := e.effective()
		for _, p := range w.plans(eff) {
			w.apply(p)
		}
		for key, o := range w.real {
			w.real[key] = plan.Observed{Key: key, Presence: plan.Unknown, Reason: "host hangs", Unit: o.Unit, Members: o.Members}
		}
		next := e.change(t)
		for _, p := range w.plans(next.effective()) {
			if w.real[p.Key].Presence == plan.Unknown {
				require.Empty(t, p.Actions)
				require.NotEmpty(t, p.Blocked)
			}
		}
	})
}

// shuffled returns eff with new maps in another order.
func shuffled(eff *schema.Effective) *schema.Effective {
	var all []*schema.EffectiveUnit
	for _, i := range eff.All() {
		all = append(all, i)
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	out := effectiveOf(map[string]*schema.Node{}, all...)
	for _, d := range eff.Decisions() {
		decide(out, d)
	}
	names := slices.Collect(maps.Keys(eff.Nodes))
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, n := range names {
		out.Nodes[n] = eff.Nodes[n]
	}
	return out
}

package plan

import (
	"cmp"
	"fmt"
	"slices"

	"berth/schema"
)

// Policy never moves a running member. A member stays on a node that policy does not
// allow, and the policies for noncompliant instances decide the fate of its instance.
// There is one exception: a member on a node with GPUs that the instance does not
// request never stops its instance. That rule limits only new placements. The owner
// cannot fix it, because no change moves a member off a node with unassigned GPUs.

// asks reports what an instance itself requests of a node for one of its roles, before
// policy. If policy limits GPUs, a role without GPUs requests a node without GPUs.
// Otherwise a member would keep GPUs that no limit counts.
func asks(
	b *schema.Bounds, unit *Unit, inst *schema.EffectiveUnit, role schema.EffectiveRole, name string,
) (*schema.EffectiveUnit, schema.EffectiveRole) {
	own := *inst
	own.Regions, role.SKUs = b.Instance.Spec.Regions, nil
	if was, _ := unit.Member(name); len(was.GPUs) == 0 {
		role.NoGPUs = false
	}
	if sku := b.Instance.Spec.Roles[role.Name].SKU; sku != "" {
		role.SKUs = []string{sku}
	}
	return &own, role
}

// onlyOutside reports whether n meets every request of the instance for a member, so
// that policy alone excludes the node.
func onlyOutside(b *schema.Bounds, unit *Unit, inst *schema.EffectiveUnit, role schema.EffectiveRole, name string, n *schema.Node) bool {
	if b == nil {
		return false
	}
	own, role := asks(b, unit, inst, role, name)
	return len(misfits(own, role, n)) == 0
}

// asksAway reports whether the instance itself requests another region or SKU for a
// member than that of n, and policy does not allow n either. It does not require an
// effective change, because policy may have set the value before the owner requested it.
// A changed node evicts no member.
func asksAway(b *schema.Bounds, unit *Unit, role schema.EffectiveRole, name string, n *schema.Node) bool {
	was, ok := unit.Member(name)
	if b == nil || !ok {
		return false
	}
	regions, sku := b.Instance.Spec.Regions, b.Instance.Spec.Roles[role.Name].SKU
	_, noRegion := refused(b.Regions, n.Spec.Region)
	_, noSKU := refused(b.SKUs, n.Spec.SKU)
	return noRegion && len(regions) > 0 && !slices.Contains(regions, n.Spec.Region) && was.Region == n.Spec.Region ||
		noSKU && sku != "" && sku != n.Spec.SKU && was.SKU == n.Spec.SKU
}

// forGPUs is the rule that keeps members without GPUs off nodes with GPUs.
const forGPUs = "max_gpus_per_instance"

// outside returns the noncompliance of an instance whose members are on nodes that
// policy does not allow; nil if all nodes are allowed.
func outside(b *schema.Bounds, inst *schema.EffectiveUnit, members []Member, nodes map[string]*schema.Node) *schema.Noncompliance {
	var order []breach
	found := map[breach][]string{}
	for _, m := range members {
		for _, x := range breachesOf(b, inst, m, nodes[m.Node]) {
			if found[x] == nil {
				order = append(order, x)
			}
			found[x] = append(found[x], m.Name+" on "+m.Node)
		}
	}
	if order == nil {
		return nil
	}
	out := &schema.Noncompliance{Key: inst.Key, Fate: schema.FateHeld}
	for _, x := range order {
		verdict := schema.Deny
		if x.rule != forGPUs {
			out.Fate, out.Day, out.Source = b.Fate, b.Day, b.Source
			if b.Fate == schema.FateStopped {
				verdict = schema.Stop
			}
		}
		out.Because = append(out.Because, schema.Decision{
			Key: inst.Key, Field: x.field, Verdict: verdict, Rule: x.rule, Source: x.source, At: b.Instance.At(x.field),
			Message: fmt.Sprintf("%s: a node %s is not allowed", list(found[x]), x.is),
		})
	}
	slices.SortStableFunc(out.Because, func(a, b schema.Decision) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Message, b.Message))
	})
	return out
}

// breach is what policy does not allow of the node of a member.
type breach struct {
	rule, field, is string
	source          schema.Position
}

func breachesOf(b *schema.Bounds, inst *schema.EffectiveUnit, m Member, n *schema.Node) (all []breach) {
	if n == nil {
		return nil
	}
	role := "spec.roles." + m.Role
	if by, ok := refused(b.Regions, n.Spec.Region); ok {
		all = append(all, breach{"allowed_regions", "spec.regions", "in region " + n.Spec.Region, by})
	}
	if by, ok := refused(b.SKUs, n.Spec.SKU); ok {
		all = append(all, breach{"allowed_skus", role + ".sku", "of SKU " + n.Spec.SKU, by})
	}
	noGPUs := func(r schema.EffectiveRole) bool { return r.Name == m.Role && r.NoGPUs }
	if m.Loan == nil && b.GPUs != nil && len(n.Spec.Capacity.GPUs) > 0 && slices.ContainsFunc(inst.Roles, noGPUs) {
		all = append(all, breach{forGPUs, role + ".gpus", "with GPUs that it does not ask for", *b.GPUs})
	}
	return all
}

// refused returns the first layer that does not allow a value.
func refused(layers []schema.Allowed, value string) (by schema.Position, ok bool) {
	for _, l := range layers {
		if !slices.Contains(l.Values, value) {
			return l.Source, true
		}
	}
	return by, false
}

// Outside returns the noncompliance of an instance with members on nodes that policy
// does not allow; nil if all nodes are allowed. Callers must not change the value.
func (p Placement) Outside(key schema.Key) *schema.Noncompliance {
	if u := p.get(key); u != nil {
		return u.outside
	}
	return nil
}

// Noncompliance returns the noncompliance of an instance, by its requests or by the
// nodes of its members; nil if it complies.
func (p Placement) Noncompliance(eff *schema.Effective, key schema.Key) *schema.Noncompliance {
	n, out := eff.Noncompliance(key), p.Outside(key)
	if n == nil || out == nil {
		return cmp.Or(n, out)
	}
	both := *n
	both.Because = slices.Concat(n.Because, out.Because)
	return &both
}

// Unit returns the effective unit of key. It is stopped if the grace period for
// members on disallowed nodes has ended, even if the instance is suspended.
func (p Placement) Unit(eff *schema.Effective, key schema.Key) *schema.EffectiveUnit {
	inst := eff.Unit(key)
	if out := p.Outside(key); inst == nil || out == nil || out.Fate != schema.FateStopped {
		return inst
	}
	return inst.Stopped()
}

// impacted adds to of the instances whose noncompliance by node differs between base and
// head. of is sorted and has only noncompliance by request.
func impacted(of []schema.Noncompliance, base, head side, keys []schema.Key) []schema.Noncompliance {
	out, at := slices.Clone(of), map[schema.Key]int{}
	for i := range out {
		at[out[i].Key] = i
	}
	for _, key := range keys {
		was, is := base.placed.Outside(key), head.placed.Outside(key)
		i, told := at[key]
		switch {
		case sameOutside(was, is) && (is == nil || !told):
		case is == nil && head.eff.Unit(key) == nil:
		case is == nil && !told && head.eff.Noncompliance(key) == nil:
			n := *was
			n.Fate, n.Day = schema.FateComplies, ""
			out = append(out, n)
		case is == nil:
		case !told:
			out = append(out, *head.placed.Noncompliance(head.eff, key))
		case out[i].Fate == schema.FateComplies:
			out[i] = *is
		default:
			out[i].Because = slices.Concat(out[i].Because, is.Because)
		}
	}
	slices.SortFunc(out, func(a, b schema.Noncompliance) int { return a.Key.Compare(b.Key) })
	return out
}

func sameOutside(a, b *schema.Noncompliance) bool {
	return a == b || a != nil && b != nil && a.Fate == b.Fate && a.Day == b.Day &&
		slices.EqualFunc(a.Because, b.Because, func(x, y schema.Decision) bool {
			return x.Rule == y.Rule && x.Field == y.Field && x.Source.File == y.Source.File && x.Message == y.Message
		})
}

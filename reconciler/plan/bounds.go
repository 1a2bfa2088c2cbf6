package plan

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"berth/schema"
)

// A member that is on a node that policy does not allow, or no longer, stays
// there: no policy moves what runs. What the policies say of instances that do
// not comply is what becomes of the instance; only for a node with GPUs that it
// does not ask for nothing is ever stopped. That bounds where new members are put,
// and its owner cannot mend it, as nothing moves a member off such a node that was
// put there without being given GPUs.

// asks is an instance and one of its roles with what the instance itself asks of
// a node for a member, whatever policy makes of it. Whoever drops the GPUs that a
// member was given asks for a node without, where policy bounds them: else it kept
// them, and none would be counted.
func asks(b *schema.Bounds, unit *Unit, inst *schema.EffectiveInstance, role schema.EffectiveRole, name string) (*schema.EffectiveInstance, schema.EffectiveRole) {
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

// onlyOutside says whether n has all that an instance itself asks for a member, so
// that nothing but policy keeps it off it.
func onlyOutside(b *schema.Bounds, unit *Unit, inst *schema.EffectiveInstance, role schema.EffectiveRole, name string, n *schema.Node) bool {
	if b == nil {
		return false
	}
	own, role := asks(b, unit, inst, role, name)
	return len(misfits(own, role, n)) == 0
}

// asksAway says whether an instance itself asks for another region or SKU for a
// member than that of n, which policy does not allow either. What policy made of
// the instance may have been so before its owner asked for it, and does not change
// by that. A node that became another one under a member evicts nobody.
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

// sameBounds says whether two place the same, and come to the same.
func sameBounds(a, b *schema.Bounds) bool {
	if a == b {
		return true
	}
	return a != nil && b != nil && a.Fate == b.Fate && a.Day == b.Day && reflect.DeepEqual(a.Source, b.Source) && reflect.DeepEqual(a.Limits, b.Limits) &&
		(a.Instance == b.Instance || slices.Equal(a.Instance.Spec.Regions, b.Instance.Spec.Regions) && reflect.DeepEqual(a.Instance.Spec.Roles, b.Instance.Spec.Roles))
}

// forGPUs is the rule that keeps who asks for no GPUs off nodes with some.
const forGPUs = "max_gpus_per_instance"

// outside is what becomes of an instance for members that are where policy does
// not allow them; nil: none is.
func outside(b *schema.Bounds, inst *schema.EffectiveInstance, members []Member, nodes map[string]*schema.Node) *schema.Noncompliance {
	type breach struct {
		rule, field, is string
		source          schema.Position
	}
	var order []breach
	found := map[breach][]string{}
	add := func(m Member, rule, field, is string, source schema.Position) {
		x := breach{rule, field, is, source}
		if found[x] == nil {
			order = append(order, x)
		}
		found[x] = append(found[x], m.Name+" on "+m.Node)
	}
	for _, m := range members {
		n := nodes[m.Node]
		if n == nil {
			continue
		}
		role := "spec.roles." + m.Role
		if by, ok := refused(b.Regions, n.Spec.Region); ok {
			add(m, "allowed_regions", "spec.regions", "in region "+n.Spec.Region, by)
		}
		if by, ok := refused(b.SKUs, n.Spec.SKU); ok {
			add(m, "allowed_skus", role+".sku", "of SKU "+n.Spec.SKU, by)
		}
		noGPUs := func(r schema.EffectiveRole) bool { return r.Name == m.Role && r.NoGPUs }
		if b.GPUs != nil && len(n.Spec.Capacity.GPUs) > 0 && slices.ContainsFunc(inst.Roles, noGPUs) {
			add(m, forGPUs, role+".gpus", "with GPUs that it does not ask for", *b.GPUs)
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

// refused is the first of the layers that does not allow a value.
func refused(layers []schema.Allowed, value string) (by schema.Position, ok bool) {
	for _, l := range layers {
		if !slices.Contains(l.Values, value) {
			return l.Source, true
		}
	}
	return by, false
}

// Outside is what becomes of an instance because members are on nodes that
// policy does not allow; nil: none is. The value must not be changed.
func (p Placement) Outside(key schema.Key) *schema.Noncompliance {
	if u := p.of.get(key); u != nil {
		return u.outside
	}
	return nil
}

// Noncompliance is what becomes of an instance that policy refuses, by what it
// asks for or by where its members are; nil: it complies.
func (p Placement) Noncompliance(eff *schema.Effective, key schema.Key) *schema.Noncompliance {
	n, out := eff.Noncompliance(key), p.Outside(key)
	if n == nil || out == nil {
		return cmp.Or(n, out)
	}
	both := *n
	both.Because = slices.Concat(n.Because, out.Because)
	return &both
}

// Instance is what an instance shall be where its members are: that of eff, but
// stopped where it is over with members on nodes that policy does not allow, also
// where it is suspended.
func (p Placement) Instance(eff *schema.Effective, key schema.Key) *schema.EffectiveInstance {
	inst := eff.Instance(key)
	if out := p.Outside(key); inst == nil || out == nil || out.Fate != schema.FateStopped {
		return inst
	}
	return inst.Stopped()
}

// impacted is what a change of policy does to instances that are there, with
// what it does to them for where their members are. of is sorted, without that.
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
		case is == nil && head.eff.Instance(key) == nil:
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
	return a == b || a != nil && b != nil && a.Fate == b.Fate && a.Day == b.Day && slices.EqualFunc(a.Because, b.Because, func(x, y schema.Decision) bool {
		return x.Rule == y.Rule && x.Field == y.Field && x.Source.File == y.Source.File && x.Message == y.Message
	})
}

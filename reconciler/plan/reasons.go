package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/schema"
)

// find returns the best node that fits a new member, and the reason for this choice.
func (u *unit) find(role schema.EffectiveRole, name string) (*schema.Node, string) {
	if u.keptGPUs(role, name) != "" {
		return nil, ""
	}
	var best *schema.Node
	fitting, what := 0, wants(u.inst, role)
	suitable, s := u.suits(what, u.inst, role), u.scorer(role, name)
	for _, n := range suitable {
		if u.free(role, n) {
			fitting++
			if best == nil || s.compare(n, best) < 0 {
				best = n
			}
		}
	}
	if best == nil {
		return nil, ""
	}
	reason := fmt.Sprintf("the best of %d free nodes with %s", fitting, what)
	if fitting == 1 {
		reason = "the one free node with " + what
	}
	return best, strings.Join(append([]string{reason}, u.passedOver(s, suitable, best)...), "; ")
}

// passedOver says which nodes would be better than the best free one, and are taken; nothing
// without one.
func (u *unit) passedOver(s *scorer, suitable []*schema.Node, best *schema.Node) []string {
	var examples []string
	passed, before := 0, true // before: the name is before that of best
	for _, n := range suitable {
		before = before && n != best
		c := s.compare(n, best)
		if c > 0 || c == 0 && !before || reservedForOthers(n, u.key, s.role) { // names no unit on a node that is reserved for others
			continue
		}
		by, ok := u.takenBy(n.Key.Name, u.key, !shares(s.role))
		if !ok {
			continue
		}
		if passed++; passed <= 2 {
			examples = append(examples, n.Key.Name+" is taken by "+u.whose(by))
		}
	}
	if passed > 2 {
		examples = append(examples, fmt.Sprintf("%d more are taken", passed-2))
	}
	if passed == 0 {
		return nil
	}
	return []string{strings.Join(examples, ", ")}
}

// whose names another unit to the owner of u: a tenant must not learn another tenant's units.
func (u *unit) whose(by schema.Key) string {
	if by.Tenant != u.key.Tenant {
		return "another tenant"
	}
	return unitName(by)
}

// gpuAdvice returns the next step if nodes fail only because of GPUs that a role does
// not request; "" otherwise.
func gpuAdvice(i *schema.EffectiveUnit, role schema.EffectiveRole, nodes []*schema.Node) string {
	if !slices.ContainsFunc(nodes, func(n *schema.Node) bool { return slices.Equal(misfits(i, role, n), []string{withGPUs}) }) {
		return ""
	}
	return "; policy bounds the GPUs of an instance (max_gpus_per_instance), so nodes with some are for who asks for them: ask for gpus, " +
		"or declare a node without"
}

// keptGPUs names the members of u that keep GPUs which they no longer request. No
// limit counts these GPUs, so a new member of role with GPUs would exceed the limit. It
// returns "" without such a member.
func (u *unit) keptGPUs(role schema.EffectiveRole, name string) string {
	b := u.bounds
	if b == nil || b.GPUs == nil || role.GPUs == nil || len(u.misplaced) == 0 {
		return "" // the GPUs of all other members match their requests
	}
	has := map[string]int{}
	for _, m := range u.here() {
		has[m.Name] = 0 // a member that stays is in both lists
		for _, g := range m.GPUs {
			has[m.Name] += g.Count
		}
	}
	has[name] = role.GPUs.Count
	sum, keep := 0, []string{}
	for r, m := range members(u.inst) {
		if sum += has[m]; has[m] > 0 && (r.GPUs == nil || has[m] > r.GPUs.Count) {
			keep = append(keep, m)
		}
	}
	if sum <= b.MaxGPUs || len(keep) == 0 {
		return ""
	}
	return fmt.Sprintf("; policy allows %d GPUs together (max_gpus_per_instance), with those that %s still has and no longer asks for",
		b.MaxGPUs, list(keep))
}

// freesUp reports whether a node would fit once leaving members are gone and it is ready.
func (u *unit) freesUp(role schema.EffectiveRole) bool {
	return slices.ContainsFunc(u.sorted, func(n *schema.Node) bool {
		if n.Spec.Cordoned || reservedForOthers(n, u.key, role) || len(misfits(u.inst, role, n)) > 0 || u.ownTaken(role, n) {
			return false
		}
		o := u.at(n.Key.Name)
		if o == nil {
			return true
		}
		disk := role.DiskGiB + u.claimed(n.Key.Name).diskGiB
		for k, of := range o.units {
			if k == u.key || u.leaving(k, n.Key.Name) {
				continue
			}
			if of.alone || !shares(role) {
				return false
			}
			disk += of.claim.diskGiB
		}
		return role.DiskGiB == 0 || disk <= n.Spec.Capacity.DiskGiB
	})
}

// why counts the nodes by the first reason for which each cannot be used, so that the numbers
// add up to all nodes.
func (u *unit) why(role schema.EffectiveRole) string {
	counts, taken := map[string]int{}, map[schema.Key][]string{}
	for _, n := range u.sorted {
		if reason := u.whyNot(role, n); reason != "" {
			counts[reason]++
		} else if by, ok := u.takenBy(n.Key.Name, u.key, !shares(role)); ok {
			taken[by] = append(taken[by], n.Key.Name)
		} else if u.ownTaken(role, n) {
			counts["used by this instance already"]++
		} else if !u.hasDisk(role, n) {
			counts[lessDisk(role)]++
		} else {
			counts["kept free by policy"]++ // keptGPUs says by which limit
		}
	}
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[reason], reason))
	}
	if len(taken) > 0 {
		parts = append(parts, u.takenText(taken))
	}
	among := fmt.Sprintf("of %d nodes", len(u.sorted))
	if len(u.sorted) < 2 {
		among = []string{"no node is declared", "of 1 node"}[len(u.sorted)]
	}
	return strings.Join(append([]string{among}, parts...), ", ")
}

// whyNot returns the first reason why a node cannot be used that is no other member on it;
// "" without one.
func (u *unit) whyNot(role schema.EffectiveRole, n *schema.Node) string {
	if all := misfits(u.inst, role, n); len(all) > 0 {
		return all[0]
	}
	switch {
	case reservedForOthers(n, u.key, role):
		return "reserved for others"
	case n.Spec.Cordoned:
		return "cordoned"
	case u.unready[n.Key.Name]:
		return "not ready"
	case u.isLentAway(n):
		return "lent to a shared runtime"
	}
	return ""
}

// misfitsOfMoving returns why a member does not fit its node any more.
func (u *unit) misfitsOfMoving(role schema.EffectiveRole, n *schema.Node) []string {
	if all := misfits(u.inst, role, n); len(all) > 0 || role.DiskGiB == 0 {
		return all
	}
	return []string{lessDisk(role)}
}

// takenText counts nodes by the units that have them. It names no unit of another tenant.
func (u *unit) takenText(nodes map[schema.Key][]string) string {
	var by []string
	all, others := 0, 0
	for _, k := range slices.SortedFunc(maps.Keys(nodes), schema.Key.Compare) {
		all += len(nodes[k])
		if k.Tenant == u.key.Tenant {
			by = append(by, list(nodes[k])+" by "+unitName(k))
		} else {
			others += len(nodes[k])
		}
	}
	if others > 0 {
		by = append(by, fmt.Sprintf("%d by other tenants", others))
	}
	return fmt.Sprintf("%d taken (%s)", all, list(by))
}

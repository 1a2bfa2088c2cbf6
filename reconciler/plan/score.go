package plan

import (
	"cmp"
	"strings"

	"berth/schema"
)

// Of the nodes that fit a new member, the best takes it. Only documents and the record of
// units decide, never a measurement, so that a command and the daemon choose alike, and no
// reviewed plan goes stale because of load. The order of the rules is fixed. Each decides only
// between nodes that are alike by all rules before it:
//
//  1. A member that asks for no GPUs takes a node without GPUs. One that asks for GPUs takes a node that
//     has enough of one kind, if there is one.
//  2. A role with spread_by goes to the value of that topology key which the fewest members of
//     the role have, and to a node without the key last. Any other member goes to the switch,
//     then to the rack, that the most other members of its unit have.
//  3. The node on which the fewest GPUs stay unused.
//  4. The fullest node whose CPUs and memory suffice for what its members ask for together;
//     where they do not suffice on any node, the least full. So large and empty nodes stay
//     free for members that need them.
//  5. The first name: n2 before n10.

// nearness are the topology keys by which members of a unit stay together, the closest first.
var nearness = [...]string{"switch", "rack"}

// scorer compares nodes for a new member.
type scorer struct {
	*unit
	role   schema.EffectiveRole
	spread map[string]int                // members of the role by value of its key; nil: it is not spread
	near   [len(nearness)]map[string]int // members of the unit by value of each key
}

// scorer counts the members of u by topology, once for all nodes. A member that moves does
// not count itself.
func (u *unit) scorer(role schema.EffectiveRole, name string) *scorer {
	s := &scorer{unit: u, role: role}
	if role.SpreadBy != "" {
		s.spread = map[string]int{}
	}
	for i := range nearness {
		s.near[i] = map[string]int{}
	}
	for _, m := range u.here() {
		n := u.nodes[m.Node]
		if m.Name == name || n == nil {
			continue
		}
		if m.Role == role.Name && s.spread != nil {
			s.spread[n.Spec.Topology[role.SpreadBy]]++
		}
		for i, key := range nearness {
			if value := n.Spec.Topology[key]; value != "" {
				s.near[i][value]++
			}
		}
	}
	return s
}

// compare returns a negative number if a is better than b by the rules before the name.
func (s *scorer) compare(a, b *schema.Node) int {
	return cmp.Or(cmp.Compare(s.mismatch(a), s.mismatch(b)), s.byTopology(a, b), cmp.Compare(gpuCount(a), gpuCount(b)), s.byUse(a, b))
}

// mismatch returns 0 if n is as rule 1 prefers it, else 1.
func (s *scorer) mismatch(n *schema.Node) int {
	if s.role.GPUs != nil {
		return max(0, min(len(offered(n, *s.role.GPUs)), 2)-1)
	}
	return min(gpuCount(n), 1)
}

// byTopology compares by rule 2.
func (s *scorer) byTopology(a, b *schema.Node) int {
	if s.spread != nil {
		va, hasA := a.Spec.Topology[s.role.SpreadBy]
		vb, hasB := b.Spec.Topology[s.role.SpreadBy]
		if hasA != hasB {
			return map[bool]int{true: -1, false: 1}[hasA]
		}
		return cmp.Compare(s.spread[va], s.spread[vb])
	}
	for i, key := range nearness {
		if c := cmp.Compare(s.near[i][b.Spec.Topology[key]], s.near[i][a.Spec.Topology[key]]); c != 0 {
			return c
		}
	}
	return 0
}

// byUse compares by rule 4.
func (s *scorer) byUse(a, b *schema.Node) int {
	inA, inB := s.use(a), s.use(b)
	if inA <= 1 && inB <= 1 {
		return cmp.Compare(inB, inA)
	}
	return cmp.Compare(inA, inB)
}

// use returns the share of the CPUs or of the memory of n, whichever is greater, that its members
// ask for with the new one.
func (s *scorer) use(n *schema.Node) float64 {
	all := claimOf(s.role)
	if o := s.at(n.Key.Name); o != nil && shares(s.role) {
		all = all.plus(s.claimOfOthers(n.Key.Name))
		if _, there := o.units[s.key]; there { // without members that leave
			all = all.plus(s.claimed(n.Key.Name))
		}
	}
	share := func(asked, has int) float64 { return float64(asked) / float64(max(has, 1)) }
	return max(share(all.cpus, n.Spec.Capacity.CPUs), share(all.memoryMiB, n.Spec.Capacity.MemoryMiB))
}

// gpuCount returns the number of GPUs of n, of all types. A member has the GPUs of a node alone, so
// the node with the fewest leaves the fewest unused.
func gpuCount(n *schema.Node) (count int) {
	for _, g := range n.Spec.Capacity.GPUs {
		count += g.Count
	}
	return count
}

// compareNatural compares names with their numbers by value: n2 before n10.
func compareNatural(a, b string) int {
	restA, restB := a, b
	for restA != "" && restB != "" {
		numberA, numberB := leadingDigits(restA), leadingDigits(restB)
		if numberA == "" || numberB == "" {
			if c := cmp.Compare(restA[0], restB[0]); c != 0 {
				return c
			}
			restA, restB = restA[1:], restB[1:]
			continue
		}
		valueA, valueB := strings.TrimLeft(numberA, "0"), strings.TrimLeft(numberB, "0")
		if c := cmp.Or(cmp.Compare(len(valueA), len(valueB)), cmp.Compare(valueA, valueB)); c != 0 {
			return c
		}
		restA, restB = restA[len(numberA):], restB[len(numberB):]
	}
	return cmp.Or(cmp.Compare(len(restA), len(restB)), cmp.Compare(a, b))
}

func leadingDigits(s string) string { return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))] }

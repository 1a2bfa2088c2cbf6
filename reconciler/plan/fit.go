package plan

import (
	"cmp"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"berth/schema"
)

// offers says whether members of role may be on n at all.
func offers(n *schema.Node, role schema.EffectiveRole) bool {
	return slices.Contains(n.Spec.Roles, role.NodeRole)
}

// misfits lists what an instance wants of a node and n does not have, each to
// be read after a number of nodes or "which is". A node without the role is
// nothing but that.
func misfits(inst *schema.EffectiveInstance, role schema.EffectiveRole, n *schema.Node) []string {
	if !offers(n, role) {
		return []string{"without role " + role.NodeRole}
	}
	var ms []string
	if len(inst.Regions) > 0 && !slices.Contains(inst.Regions, n.Spec.Region) {
		ms = append(ms, "outside region "+strings.Join(inst.Regions, " or "))
	}
	if len(role.SKUs) > 0 && !slices.Contains(role.SKUs, n.Spec.SKU) {
		ms = append(ms, "not of SKU "+strings.Join(role.SKUs, " or "))
	}
	if g := role.GPUs; g != nil && !slices.ContainsFunc(n.Spec.Capacity.GPUs, func(have schema.GPU) bool {
		return (g.Type == "" || have.Type == g.Type) && have.Count >= g.Count
	}) {
		ms = append(ms, "without "+gpus(*g))
	}
	if role.NoGPUs && len(n.Spec.Capacity.GPUs) > 0 {
		ms = append(ms, withGPUs)
	}
	if n.Spec.Capacity.CPUs < role.CPUs {
		ms = append(ms, fmt.Sprintf("with fewer than %d CPUs", role.CPUs))
	}
	if n.Spec.Capacity.MemoryMiB < role.MemoryMiB {
		ms = append(ms, fmt.Sprintf("with less than %d MiB of memory", role.MemoryMiB))
	}
	return ms
}

// withGPUs is the misfit of a node for a member that may not have its GPUs.
const withGPUs = "with GPUs that it does not ask for"

// wants is what a node must have for role, in words.
func wants(inst *schema.EffectiveInstance, role schema.EffectiveRole) string {
	ws := []string{"role " + role.NodeRole}
	if role.GPUs != nil {
		ws = append(ws, gpus(*role.GPUs))
	}
	if role.NoGPUs {
		ws = append(ws, "no GPUs")
	}
	if len(role.SKUs) > 0 {
		ws = append(ws, "SKU "+strings.Join(role.SKUs, " or "))
	}
	if len(inst.Regions) > 0 {
		ws = append(ws, "region "+strings.Join(inst.Regions, " or "))
	}
	if role.CPUs > 0 {
		ws = append(ws, fmt.Sprintf("%d CPUs", role.CPUs))
	}
	if role.MemoryMiB > 0 {
		ws = append(ws, fmt.Sprintf("%d MiB", role.MemoryMiB))
	}
	return strings.Join(ws, ", ")
}

func gpus(g schema.GPURequest) string {
	return fmt.Sprintf("%d×%s", g.Count, cmp.Or(g.Type, "gpu"))
}

// shares says whether members of role may stand beside others on a node. GPUs
// are not counted out between units: who has some has the node.
func shares(role schema.EffectiveRole) bool { return role.Shareable && role.GPUs == nil }

// reservedForOthers says whether n is set aside for someone who does not own key.
func reservedForOthers(n *schema.Node, key schema.Key) bool {
	r := n.Spec.Reserved
	return r != "" && r != key.Tenant && r != key.ProjectID()
}

// asksElse says whether an instance asks for other nodes than the one its
// member was put on for.
func asksElse(unit *Unit, inst *schema.EffectiveInstance, role schema.EffectiveRole, name string) bool {
	if m, ok := unit.Member(name); ok && m.Misfit {
		return true // it did before, and the member is there still
	}
	i := slices.IndexFunc(unit.Instance.Roles, func(r schema.EffectiveRole) bool { return r.Name == role.Name })
	if i < 0 {
		return true
	}
	was := unit.Instance.Roles[i]
	return was.NodeRole != role.NodeRole || was.CPUs != role.CPUs || was.MemoryMiB != role.MemoryMiB ||
		!reflect.DeepEqual(was.GPUs, role.GPUs) || !slices.Equal(was.SKUs, role.SKUs) ||
		!slices.Equal(unit.Instance.Regions, inst.Regions)
}

// stay is m, which does not fit, as it stands on n until it can move: with the
// kinds of GPUs it was given.
func stay(m Member, unit *Unit, n *schema.Node) Member {
	m.Misfit, m.GPUs = true, nil
	was, _ := unit.Member(m.Name)
	for _, g := range n.Spec.Capacity.GPUs {
		if i := slices.IndexFunc(was.GPUs, func(had schema.GPU) bool { return had.Type == g.Type }); i >= 0 {
			m.GPUs = append(m.GPUs, take(g, min(was.GPUs[i].Count, g.Count)))
		}
	}
	return m
}

// applied is the unit that a runtime has made, or half made, as far as memory
// goes; nil if there is none.
func applied(st *Status) *Unit {
	if st == nil || st.Observed == nil || st.Observed.Presence == Absent {
		return nil
	}
	return st.Observed.Unit
}

// onlyIntended says whether nothing of a member is on a node yet that memory
// has it on: neither did the runtime record it there nor see it there. Such a
// member is in the status of a unit that is decided and not made, or that is
// stopped and grows when it starts. Where nobody knows, it may be there.
func onlyIntended(o Observed, name, node string) bool {
	if o.Presence == Unknown {
		return false
	}
	if m, ok := o.Unit.Member(name); ok && m.Node == node {
		return false
	}
	return !slices.ContainsFunc(o.Members, func(s MemberState) bool { return s.Name == name && s.Node == node })
}

// member is a member of role on n. One with GPUs has as many as it asked for,
// the first ones of the first kind that fits: what policy allowed is what it
// gets, though it has the node to itself.
func member(role schema.EffectiveRole, name string, n *schema.Node, reason string) Member {
	m := Member{
		Name: name, Role: role.Name, ControlPlane: role.ControlPlane,
		Node: n.Key.Name, Address: n.Spec.Address, SSHPort: n.Spec.SSHPort, Region: n.Spec.Region, SKU: n.Spec.SKU,
		CPUs: n.Spec.Capacity.CPUs, MemoryMiB: n.Spec.Capacity.MemoryMiB, Reason: reason,
	}
	if role.GPUs != nil {
		for _, g := range n.Spec.Capacity.GPUs {
			if (role.GPUs.Type == "" || g.Type == role.GPUs.Type) && g.Count >= role.GPUs.Count {
				m.GPUs = append(m.GPUs, take(g, role.GPUs.Count))
				break
			}
		}
	}
	return m
}

// take is the first count GPUs of a kind: of /dev/nvidia[0-3], two are
// /dev/nvidia[0-1] and one is /dev/nvidia0.
func take(g schema.GPU, count int) schema.GPU {
	name, digits, ranged := strings.Cut(strings.TrimSuffix(g.Devices, "]"), "[")
	first, _, _ := strings.Cut(digits, "-")
	from, err := strconv.Atoi(first)
	if !ranged || err != nil || count >= g.Count {
		return g
	}
	g.Count, g.Devices = count, name+first
	if count > 1 {
		g.Devices = fmt.Sprintf("%s[%d-%d]", name, from, from+count-1)
	}
	return g
}

// members are the roles and names of what an instance declares.
func members(inst *schema.EffectiveInstance) iter.Seq2[schema.EffectiveRole, string] {
	return func(yield func(schema.EffectiveRole, string) bool) {
		for _, role := range inst.Roles {
			for i := range role.Count {
				if !yield(role, memberName(role.Name, i)) {
					return
				}
			}
		}
	}
}

func memberName(role string, index int) string { return role + "-" + strconv.Itoa(index) }

// splitMember is the role and index in a member's name; index -1 if it has none.
func splitMember(name string) (role string, index int) {
	cut := strings.LastIndexByte(name, '-')
	if cut < 0 {
		return name, -1
	}
	index, err := strconv.Atoi(name[cut+1:])
	if err != nil {
		return name, -1
	}
	return name[:cut], index
}

// compareMembers orders the control plane first, then by role and index.
func compareMembers(a, b Member) int {
	if a.ControlPlane != b.ControlPlane {
		if a.ControlPlane {
			return -1
		}
		return 1
	}
	return compareNames(a.Name, b.Name)
}

// compareNames orders members' names by role and index: worker-2 before worker-10.
func compareNames(a, b string) int {
	ra, ia := splitMember(a)
	rb, ib := splitMember(b)
	return cmp.Or(cmp.Compare(ra, rb), cmp.Compare(ia, ib), cmp.Compare(a, b))
}

// unitName is how a reason names another unit.
func unitName(k schema.Key) string {
	if k.Kind == schema.KindInstance {
		return k.ProjectID() + "/" + k.Name
	}
	return k.String()
}

// list joins words as in a sentence, leaving out what would make it too long.
func list(words []string) string {
	if len(words) > 6 {
		words = append(words[:5:5], fmt.Sprintf("%d more", len(words)-5))
	}
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

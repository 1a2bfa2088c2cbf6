package plan

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"berth/schema"
)

// offers reports whether n offers the role.
func offers(n *schema.Node, role schema.EffectiveRole) bool {
	return slices.Contains(n.Spec.Roles, role.NodeRole)
}

// misfits lists the requirements of an instance that n does not meet. Each text follows
// a number of nodes or "which is". A node without the role has that one misfit.
func misfits(inst *schema.EffectiveUnit, role schema.EffectiveRole, n *schema.Node) []string {
	if !offers(n, role) {
		return []string{"without role " + role.NodeRole}
	}
	var ms []string
	if role.Lent == nil && len(inst.Regions) > 0 && !slices.Contains(inst.Regions, n.Spec.Region) {
		ms = append(ms, "outside region "+strings.Join(inst.Regions, " or "))
	}
	if len(role.SKUs) > 0 && !slices.Contains(role.SKUs, n.Spec.SKU) {
		ms = append(ms, "not of SKU "+strings.Join(role.SKUs, " or "))
	}
	for _, label := range role.MissingLabels(n.Labels) {
		ms = append(ms, "without the label "+label)
	}
	if role.Lent != nil && role.Lent.Node != n.Key.Name {
		ms = append(ms, "not "+role.Lent.Node)
	}
	if g := role.GPUs; g != nil && offered(n, *g) == nil {
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
	switch has := n.Spec.Capacity.DiskGiB; {
	case has >= role.DiskGiB:
	case has == 0:
		ms = append(ms, "without a declared disk_gib")
	default:
		ms = append(ms, fmt.Sprintf("with less than %d GiB of disk", role.DiskGiB))
	}
	return ms
}

// withGPUs is the misfit of a node with GPUs that the member must not have.
const withGPUs = "with GPUs that it does not ask for"

// wants describes the node requirements of a role.
func wants(inst *schema.EffectiveUnit, role schema.EffectiveRole) string {
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
	if role.DiskGiB > 0 {
		ws = append(ws, fmt.Sprintf("%d GiB of disk", role.DiskGiB))
	}
	for _, label := range role.MissingLabels(nil) {
		ws = append(ws, "label "+label)
	}
	return strings.Join(ws, ", ")
}

// offered returns the GPUs of n that meet a request: of the first kind of which n has enough, or else of
// several kinds in their order. nil: n has too few.
func offered(n *schema.Node, asked schema.GPURequest) (given []schema.GPU) {
	left := asked.Count
	for _, g := range n.Spec.Capacity.GPUs {
		if asked.Type != "" && g.Type != asked.Type {
			continue
		}
		if g.Count >= asked.Count {
			return []schema.GPU{take(g, asked.Count)}
		}
		if n := min(g.Count, left); n > 0 {
			given, left = append(given, take(g, n)), left-n
		}
	}
	if left > 0 {
		return nil
	}
	return given
}

func gpus(g schema.GPURequest) string {
	return fmt.Sprintf("%d×%s", g.Count, cmp.Or(g.Type, "gpu"))
}

// roles returns the roles of the instance that u was made of. A nil unit has none.
func (u *Unit) roles() []schema.EffectiveRole {
	if u == nil {
		return nil
	}
	return u.Effective.Roles
}

// role returns a role of the instance that u was made of. A nil unit has none.
func (u *Unit) role(name string) (schema.EffectiveRole, bool) {
	if u == nil {
		return schema.EffectiveRole{}, false
	}
	return roleOf(&u.Effective, name)
}

func roleOf(inst *schema.EffectiveUnit, name string) (role schema.EffectiveRole, ok bool) {
	if inst == nil {
		return role, false
	}
	i := slices.IndexFunc(inst.Roles, func(r schema.EffectiveRole) bool { return r.Name == name })
	if i < 0 {
		return role, false
	}
	return inst.Roles[i], true
}

// shares reports whether members of a role may share a node. Units never divide the GPUs
// of a node, so a member with GPUs has its node alone, and so has one on a lent node.
func shares(role schema.EffectiveRole) bool {
	return role.Shareable && role.GPUs == nil && role.Lent == nil
}

// reservedForOthers reports whether n is reserved for others than the owner of key, and not lent
// to it.
func reservedForOthers(n *schema.Node, key schema.Key, role schema.EffectiveRole) bool {
	r := n.Spec.Reserved
	if role.Lent != nil {
		return r != role.Lent.ProjectID
	}
	return r != "" && r != key.Tenant && r != key.ProjectID()
}

// asksElse reports whether an instance requests other nodes than the one that its member
// was placed for.
func asksElse(unit *Unit, inst *schema.EffectiveUnit, role schema.EffectiveRole, name string) bool {
	if m, ok := unit.Member(name); ok && m.Misfit {
		return true // the applied instance requested it already, and the member is still there
	}
	was, ok := unit.role(role.Name)
	return !ok || was.NodeRole != role.NodeRole || was.CPUs != role.CPUs || was.MemoryMiB != role.MemoryMiB ||
		was.DiskGiB != role.DiskGiB || !maps.Equal(was.NodeLabels, role.NodeLabels) ||
		!reflect.DeepEqual(was.GPUs, role.GPUs) || !slices.Equal(was.SKUs, role.SKUs) ||
		!slices.Equal(unit.Effective.Regions, inst.Regions)
}

// stays returns m, which no longer fits, as it stays on n until it can move. It keeps the
// kinds of GPUs that it was given.
func stays(m Member, unit *Unit, n *schema.Node) Member {
	m.Misfit, m.GPUs, m.Reason = true, gpusThatStay(m, unit, n, 0), "it is there already, and no longer fits the node"
	return m
}

// gpusThatStay returns the GPUs of n that m keeps, of the types that it was given: as many as it asks
// for; 0: as it was given.
func gpusThatStay(m Member, unit *Unit, n *schema.Node, asks int) (kept []schema.GPU) {
	was, _ := unit.Member(m.Name)
	for _, g := range n.Spec.Capacity.GPUs {
		if i := slices.IndexFunc(was.GPUs, func(had schema.GPU) bool { return had.Type == g.Type }); i >= 0 {
			kept = append(kept, take(g, min(cmp.Or(asks, was.GPUs[i].Count), g.Count)))
		}
	}
	return kept
}

// lacksGPUs reports whether a member has fewer GPUs than its role asks for.
func lacksGPUs(role schema.EffectiveRole, m Member) bool {
	has := 0
	for _, g := range m.GPUs {
		has += g.Count
	}
	return role.GPUs != nil && has < role.GPUs.Count
}

// applied returns the unit that a runtime created, completely or partly, according to
// memory, or nil.
func applied(st *Status) *Unit {
	if st == nil || st.Observed == nil || st.Observed.Presence == Absent {
		return nil
	}
	return st.Observed.Unit
}

// onlyIntended reports whether a node was only assigned to a member: the runtime neither
// recorded nor observed the member there. This occurs for a unit that is planned and not
// created, or stopped and grows at its start. With an unknown presence the member may be
// there.
func onlyIntended(o Observed, name, node string) bool {
	if o.Presence == Unknown {
		return false
	}
	if m, ok := o.Unit.Member(name); ok && m.Node == node {
		return false
	}
	return !slices.ContainsFunc(o.Members, func(s MemberState) bool { return s.Name == name && s.Node == node }) &&
		!slices.ContainsFunc(o.Begun, func(m BegunMember) bool { return m.Name == name && m.Node == node })
}

// member returns a member of role on n. It gets the requested number of GPUs: the number that policy
// allowed, even if the member has the node alone.
func member(role schema.EffectiveRole, name string, n *schema.Node, reason string) Member {
	m := Member{
		Name: name, Role: role.Name, ControlPlane: role.ControlPlane,
		Node: n.Key.Name, Address: n.Spec.Address, SSHPort: n.Spec.SSHPort, Region: n.Spec.Region, SKU: n.Spec.SKU,
		CPUs: n.Spec.Capacity.CPUs, Shape: n.Spec.Capacity.Shape, MemoryMiB: n.Spec.Capacity.MemoryMiB, Reason: reason,
	}
	if role.Lent != nil {
		m.GPUs, m.Loan = slices.Clone(n.Spec.Capacity.GPUs), &role.Lent.Loan
	} else if role.GPUs != nil {
		m.GPUs = offered(n, *role.GPUs)
	}
	return m
}

// take returns the first count GPUs of a kind. Of /dev/nvidia[0-3], two are
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

// members iterates over the roles and member names that a unit declares: first its own members,
// then those on lent nodes, whose role asks for nothing but that node.
func members(inst *schema.EffectiveUnit) iter.Seq2[schema.EffectiveRole, string] {
	return func(yield func(schema.EffectiveRole, string) bool) {
		for _, role := range inst.Roles {
			for i := range role.Count {
				if !yield(role, memberName(role.Name, i)) {
					return
				}
			}
		}
		for role, name := range lentMembers(inst) {
			if !yield(role, name) {
				return
			}
		}
	}
}

// lentMembers iterates over the roles and names of the members on lent nodes.
func lentMembers(inst *schema.EffectiveUnit) iter.Seq2[schema.EffectiveRole, string] {
	return func(yield func(schema.EffectiveRole, string) bool) {
		for i := range inst.Lent {
			l := &inst.Lent[i]
			role, ok := roleOf(inst, l.Role)
			role.Lent, role.Count, role.SKUs, role.GPUs, role.CPUs, role.MemoryMiB, role.NoGPUs = l, 1, nil, nil, 0, 0, false
			role.DiskGiB, role.NodeLabels, role.SpreadBy = 0, nil, ""
			if ok && !yield(role, l.Role+"."+l.Node) {
				return
			}
		}
	}
}

func memberName(role string, index int) string { return role + "-" + strconv.Itoa(index) }

// splitMember returns the role and index of a member's name; index -1 if it has none, as that of
// a member on a lent node, such as worker.dev-gpu-5.
func splitMember(name string) (role string, index int) {
	if role, _, isLent := strings.Cut(name, "."); isLent {
		return role, -1
	}
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

// compareNames orders member names by role and index: worker-2 before worker-10.
func compareNames(a, b string) int {
	ra, ia := splitMember(a)
	rb, ib := splitMember(b)
	return cmp.Or(cmp.Compare(ra, rb), cmp.Compare(ia, ib), cmp.Compare(a, b))
}

// unitName returns the name of another unit for use in a reason.
func unitName(k schema.Key) string {
	if k.Kind == schema.KindInstance {
		return k.ProjectID() + "/" + k.Name
	}
	return k.String()
}

// list joins words as in a sentence and shortens a long list.
func list(words []string) string {
	if len(words) > 6 {
		words = append(words[:5:5], fmt.Sprintf("%d more", len(words)-5))
	}
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

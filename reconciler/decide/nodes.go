package decide

import (
	"berth/reconciler/plan"
	"berth/schema"
)

// codeInUse is the code of the warning that a node is reserved for a tenant or project while others use it.
const codeInUse = "node.in-use"

// reservedInUse warns of nodes that a change reserves and on which units of others have members: no
// reservation moves a member.
func reservedInUse(c comparison) (out []schema.Diagnostic) {
	reserved := map[string]*schema.Node{}
	for was, is := range changed[*schema.Node](c) {
		if is != nil && is.Spec.Reserved != "" && (was == nil || was.Spec.Reserved != is.Spec.Reserved) {
			reserved[is.Key.Name] = is
		}
	}
	switch {
	case len(reserved) == 0:
		return nil
	case c.memory == nil:
		for name, node := range reserved {
			if c.before.Platform.Nodes[name] != nil { // nobody has a member on a new node
				out = append(out, node.Head().Warning("spec.reserved_for", codeInUse,
					"berth/status is missing here, so Berth cannot see which members of other projects are on this node; they stay there"))
			}
		}
	default:
		for name, n := range unitsOfOthers(reserved, c.memory) {
			out = append(out, reserved[name].Head().Warning("spec.reserved_for", codeInUse,
				"units of other projects with members on this node: %d; they stay there: have them leave first, by the operation replace", n))
		}
	}
	schema.SortDiagnostics(out)
	return out
}

// unitsOfOthers counts the units with members on reserved nodes that the reservation excludes, by node.
func unitsOfOthers(reserved map[string]*schema.Node, memory *plan.Memory) map[string]int {
	others := map[string]int{}
	for unit, status := range memory.All() {
		for _, name := range status.Nodes() {
			if node := reserved[name]; node != nil && node.Spec.Reserved != unit.Tenant && node.Spec.Reserved != unit.ProjectID() {
				others[name]++
			}
		}
	}
	return others
}

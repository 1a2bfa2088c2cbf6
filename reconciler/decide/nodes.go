package decide

import (
	"berth/schema"
)

// codeInUse is the code of the warning that a node is reserved for a tenant or project while others use it.
const codeInUse = "node.in-use"

// reservedInUse warns of nodes that a change reserves and on which units of others have members: no
// reservation moves a member.
func reservedInUse(c comparison) (out []schema.Diagnostic) {
	reserved := map[string]*schema.Node{}
	for _, p := range c.touched {
		key, _ := schema.KeyAt(p.Path)
		node, was := c.after.Platform.Nodes[key.Name], c.before.Platform.Nodes[key.Name]
		if key.Kind == schema.KindNode && node != nil && node.Spec.Reserved != "" &&
			(was == nil || was.Spec.Reserved != node.Spec.Reserved) {
			reserved[key.Name] = node
		}
	}
	if len(reserved) == 0 {
		return nil
	}
	if c.memory == nil {
		for name, node := range reserved {
			if c.before.Platform.Nodes[name] == nil {
				continue // nobody has a member on a new node
			}
			out = append(out, node.Head().Warning("spec.reserved_for", codeInUse,
				"berth/status is missing here, so Berth cannot see which members of other projects are on this node; they stay there"))
		}
		schema.SortDiagnostics(out)
		return out
	}
	others := map[string]int{}
	for unit, status := range c.memory.All() {
		for _, name := range status.Nodes() {
			if node := reserved[name]; node != nil && node.Spec.Reserved != unit.Tenant && node.Spec.Reserved != unit.ProjectID() {
				others[name]++
			}
		}
	}
	for name, n := range others {
		out = append(out, reserved[name].Head().Warning("spec.reserved_for", codeInUse,
			"units of other projects with members on this node: %d; they stay there: have them leave first, by the operation replace", n))
	}
	schema.SortDiagnostics(out)
	return out
}

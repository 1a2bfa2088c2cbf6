package decide

import (
	"fmt"

	"berth/reconciler/plan"
	"berth/schema"
)

// codeInUse is the code of the warning that a node is reserved for somebody while others use it.
const codeInUse = "node.in-use"

// reservedInUse warns of nodes that a change reserves and on which members of others are: no
// reservation moves a member.
func reservedInUse(touched []schema.PathChange, before, after *schema.Desired, mem *plan.Memory) (out []schema.Diagnostic) {
	for _, c := range touched {
		key, _ := schema.KeyAt(c.Path)
		node := after.Platform.Nodes[key.Name]
		if key.Kind != schema.KindNode || node == nil || node.Spec.Reserved == "" || mem == nil {
			continue
		}
		if was := before.Platform.Nodes[key.Name]; was != nil && was.Spec.Reserved == node.Spec.Reserved {
			continue
		}
		others := 0
		for unit, status := range mem.All() {
			if r := node.Spec.Reserved; r != unit.Tenant && r != unit.ProjectID() && status.Uses(key.Name) {
				others++
			}
		}
		if others > 0 {
			at := node.At("spec.reserved_for")
			out = append(out, schema.Diagnostic{
				Severity: schema.SeverityWarning, Code: codeInUse, File: at.File, Line: at.Line, Column: at.Column, Path: "spec.reserved_for",
				Message: fmt.Sprintf("spec.reserved_for: %s on this node and stay there: have them leave first, by the operation replace", counted(others, "member of another project is", "members of other projects are")),
			})
		}
	}
	return out
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

package policy

import (
	"slices"

	"berth/schema"
)

// CodeGuarantee is the code of the finding that attachments are guaranteed more than their shared runtime can
// have.
const CodeGuarantee = "capacity.guarantee"

// overcommitted warns of the guaranteed shares of a shared runtime if its nodes cannot have all of them at
// once, whichever nodes it gets.
func overcommitted(t *schema.TenantEstate, u *schema.EffectiveUnit, nodes nodeSummary) (out []schema.Diagnostic) {
	var all schema.Amount
	for _, a := range u.Attachments {
		all.GPUs, all.CPUs = all.GPUs+a.Guaranteed.GPUs, all.CPUs+a.Guaranteed.CPUs
	}
	if all == (schema.Amount{}) {
		return nil
	}
	most := mostOf(u, nodes)
	for _, a := range u.Attachments {
		doc := t.SharedRuntimes[u.Key.Name].Attachments[a.Name]
		if doc == nil {
			continue
		}
		for _, r := range []struct {
			field, what    string
			own, all, most int
		}{{"gpus", "GPUs", a.Guaranteed.GPUs, all.GPUs, most.GPUs}, {"cpus", "CPUs", a.Guaranteed.CPUs, all.CPUs, most.CPUs}} {
			if path := "spec.contribution_policy.guaranteed." + r.field; r.own > 0 && r.all > r.most {
				out = append(out, doc.Warning(path, CodeGuarantee,
					"all attachments of %s together are guaranteed %d %s, and its nodes have %d at most", u.Key, r.all, r.what, r.most))
			}
		}
	}
	return out
}

// mostOf returns the sum of the resources of the members that run jobs if each gets the greatest allowed node.
func mostOf(u *schema.EffectiveUnit, nodes nodeSummary) (sum schema.Amount) {
	add := func(n int, may func(nodeGroup) bool) {
		var most schema.Amount
		for _, g := range nodes.groups {
			if !may(g) {
				continue
			}
			gpus := 0
			for _, c := range g.Capacity.GPUs {
				gpus += c.Count
			}
			most.GPUs, most.CPUs = max(most.GPUs, gpus), max(most.CPUs, g.Capacity.CPUs)
		}
		sum.GPUs, sum.CPUs = sum.GPUs+n*most.GPUs, sum.CPUs+n*most.CPUs
	}
	for _, r := range u.Roles {
		if !r.ControlPlane {
			add(r.Count, func(g nodeGroup) bool {
				return slices.Contains(g.Roles, r.NodeRole) && (len(r.SKUs) == 0 || slices.Contains(r.SKUs, g.SKU))
			})
		}
	}
	add(len(u.Lent), func(nodeGroup) bool { return true })
	return sum
}

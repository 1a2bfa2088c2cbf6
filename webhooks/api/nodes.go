package api

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"berth/reconciler/nodes"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
)

// clusterNode is a node as the caller may see it. It has no address.
type clusterNode struct {
	ID       string       `json:"id"`
	Region   string       `json:"region"`
	SKU      string       `json:"sku"`
	Status   string       `json:"status"` // state of the node; unknown before its host answered
	Since    time.Time    `json:"since,omitzero"`
	Answered time.Time    `json:"answered_at,omitzero"` // up to an hour old while nothing changes
	Reason   string       `json:"reason,omitempty"`
	CPUs     int          `json:"cpus"`
	Memory   int          `json:"memory_mib"`
	GPUs     []gpuTypeUse `json:"gpus"`
	// Measured is for platform users only: it tells what units of others do. It is as old as Answered.
	Measured *nodes.Measured `json:"measured,omitempty"`
}

// gpuTypeUse is the use of the GPUs of one type. Free are those that no unit has; only platform users see them, as they tell what
// units of others have.
type gpuTypeUse struct {
	Type  string `json:"type"`
	Total int    `json:"total"`
	Free  *int   `json:"free,omitempty"`
}

// clusterSummary counts what is in sight.
type clusterSummary struct {
	Nodes map[string]int `json:"nodes"` // by state
	GPUs  []gpuTypeUse   `json:"gpus"`  // by type
	Units map[string]int `json:"units"` // by phase
}

// seesUnit reports whether a unit of a tenant and a project is in sight; project "": it is the tenant's own. Platform users see all.
func (r *reading) seesUnit(tenant, project string) bool {
	if r.sharedOnly && project != "" {
		return false
	}
	return r.platform || slices.ContainsFunc(r.granted, func(g authority.Scope) bool {
		return g.Tenant == tenant && (g.Project == "" || g.Project == project)
	})
}

// seesLoan reports whether a project in sight lends a node.
func (r *reading) seesLoan(l *schema.Loan) bool {
	if l == nil {
		return false
	}
	tenant, project, ok := splitProject(l.ProjectID)
	return ok && r.seesUnit(tenant, project)
}

// nodesInSight returns the nodes that the caller may see: all of them for platform users, else those with a member of a unit in
// sight, and those that a project in sight lends. One rule names nodes here and in the members of units.
func (r *reading) nodesInSight() map[string]*schema.Node {
	if r.platform {
		return r.Effective.Nodes
	}
	out := map[string]*schema.Node{}
	for key, s := range r.Units.All() {
		isOwn := r.seesUnit(key.Tenant, key.Project)
		for _, m := range s.Members {
			if n := r.Effective.Nodes[m.Node]; n != nil && (isOwn || r.seesLoan(m.Loan)) {
				out[m.Node] = n
			}
		}
	}
	return out
}

// usedGPUs returns the GPUs that members of units have, by node and type.
func (r *reading) usedGPUs() map[string]map[string]int {
	out := map[string]map[string]int{}
	for _, s := range r.Units.All() {
		for _, m := range s.Members {
			if out[m.Node] == nil {
				out[m.Node] = map[string]int{}
			}
			for _, g := range m.GPUs {
				out[m.Node][g.Type] += g.Count
			}
		}
	}
	return out
}

// nodeState returns the state of a node.
func (r *reading) nodeState(n *schema.Node) string {
	phase := ""
	if s := r.Things[n.Key]; s != nil {
		phase = s.Phase
	}
	return string(nodes.StateOf(phase))
}

func (r *reading) clusterNode(n *schema.Node, used map[string]int) clusterNode {
	c := n.Spec.Capacity
	out := clusterNode{ID: n.Key.Name, Region: n.Spec.Region, SKU: n.Spec.SKU, Status: r.nodeState(n), CPUs: c.CPUs, Memory: c.MemoryMiB,
		GPUs: []gpuTypeUse{}}
	for _, g := range c.GPUs {
		out.GPUs = append(out.GPUs, gpuTypeUse{Type: g.Type, Total: g.Count})
	}
	record := nodes.ReadRecord(r.Things[n.Key])
	out.Since, out.Answered = record.Since, record.Answered
	if r.platform {
		out.Measured = record.Measured
		for i, g := range out.GPUs {
			out.GPUs[i].Free = new(max(g.Total-used[g.Type], 0))
		}
	}
	if s := r.Things[n.Key]; s != nil {
		if ready := s.Condition(plan.ConditionReady); ready != nil {
			out.Reason = string(ready.Reason)
		}
	}
	return out
}

func listClusterNodes(r *reading) *listing {
	used := r.usedGPUs()
	return all(r.nodesInSight(), func(n *schema.Node) any { return r.clusterNode(n, used[n.Key.Name]) })
}

func readClusterNode(r *reading) any {
	if n := r.nodesInSight()[r.params["node_id"]]; n != nil {
		return r.clusterNode(n, r.usedGPUs()[n.Key.Name])
	}
	return nil
}

func readClusterSummary(r *reading) any {
	out := clusterSummary{Nodes: map[string]int{}, GPUs: []gpuTypeUse{}, Units: map[string]int{}}
	for _, state := range nodes.States() {
		out.Nodes[string(state)] = 0
	}
	used, byType := r.usedGPUs(), map[string]gpuTypeUse{}
	for name, n := range r.nodesInSight() {
		out.Nodes[r.nodeState(n)]++
		for _, g := range r.clusterNode(n, used[name]).GPUs {
			sum := byType[g.Type]
			sum.Type, sum.Total = g.Type, sum.Total+g.Total
			if g.Free != nil {
				sum.Free = new(*cmp.Or(sum.Free, new(int)) + *g.Free)
			}
			byType[g.Type] = sum
		}
	}
	for _, typ := range slices.Sorted(maps.Keys(byType)) {
		out.GPUs = append(out.GPUs, byType[typ])
	}
	for _, phase := range plan.Phases() {
		out.Units[string(phase)] = 0
	}
	for key, s := range r.Units.All() {
		if r.seesUnit(key.Tenant, key.Project) {
			out.Units[string(s.Phase)]++
		}
	}
	return out
}

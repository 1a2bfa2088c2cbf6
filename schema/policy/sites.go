package policy

import (
	"maps"

	"berth/schema"
)

// placeable returns the nodes of a platform for placement: those of a drained site are cordoned. known has nodes that were
// cordoned before, so that equal nodes are the same pointers; nil: none.
func placeable(p *schema.Platform, known map[*schema.Node]*schema.Node) map[string]*schema.Node {
	drained := map[string]bool{} // regions
	for _, s := range p.Sites() {
		for _, r := range s.Spec.Regions {
			drained[r] = s.Spec.Drained
		}
	}
	nodes, isShared := p.Nodes, true
	for name, n := range p.Nodes {
		if !drained[n.Spec.Region] || n.Spec.Cordoned {
			continue
		}
		if isShared {
			nodes, isShared = maps.Clone(p.Nodes), false
		}
		cordoned := known[n]
		if cordoned == nil {
			c := *n
			c.Spec.Cordoned, cordoned = true, &c
		}
		nodes[name] = cordoned
	}
	return nodes
}

// placeable returns the nodes of a platform for placement.
func (j *Judge) placeable(p *schema.Platform) map[string]*schema.Node {
	j.mu.Lock()
	defer j.mu.Unlock()
	nodes, drained := placeable(p, j.drained), map[*schema.Node]*schema.Node{}
	for name, n := range p.Nodes {
		if nodes[name] != n {
			drained[n] = nodes[name]
		}
	}
	j.drained = drained
	return nodes
}

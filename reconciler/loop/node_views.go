package loop

import (
	"sync"

	"berth/reconciler/plan"
	"berth/schema"
)

// nodeViews are what the schedulers of units say about nodes, by the last observation of each unit. Safe for concurrent use.
type nodeViews struct {
	mu    sync.Mutex
	by    map[string]map[schema.Key]plan.SchedulerView // by node and unit
	nodes map[schema.Key][]string                      // those in by, by unit
}

func newNodeViews() *nodeViews {
	return &nodeViews{by: map[string]map[schema.Key]plan.SchedulerView{}, nodes: map[schema.Key][]string{}}
}

// note replaces the views of a unit by those of an observation.
func (v *nodeViews) note(unit schema.Key, members []plan.MemberState) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, node := range v.nodes[unit] {
		if delete(v.by[node], unit); len(v.by[node]) == 0 {
			delete(v.by, node)
		}
	}
	delete(v.nodes, unit)
	for _, m := range members {
		if m.Scheduler == plan.NoView {
			continue
		}
		if v.by[m.Node] == nil {
			v.by[m.Node] = map[schema.Key]plan.SchedulerView{}
		}
		v.by[m.Node][unit] = m.Scheduler
		v.nodes[unit] = append(v.nodes[unit], m.Node)
	}
}

// of returns what the schedulers say about a node. A node that responds to one of them responds.
func (v *nodeViews) of(node string) plan.SchedulerView {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := plan.NoView
	for _, one := range v.by[node] {
		if one == plan.Responds {
			return one
		}
		out = one
	}
	return out
}

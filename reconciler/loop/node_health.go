package loop

import (
	"slices"
	"sync"

	"berth/reconciler/plan"
	"berth/schema"
)

// NodeReason is why a node is not ready.
type NodeReason string

// The reasons.
const (
	NodeUnreachable NodeReason = "unreachable" // The host of a member did not answer.
	NodeNotReady    NodeReason = "not_ready"   // The node was silent for longer than its heartbeat allows.
	NodeLost        NodeReason = "lost"        // The node was silent until its grace ended.
	NodeUnknown     NodeReason = "unknown"     // Its state cannot be told.
)

// unreachableNodes has the nodes that do not answer, by the last observation of each unit. It counts
// a node once when it stops answering, however many units have members there and however often they
// are observed. Safe for concurrent use.
type unreachableNodes struct {
	metrics *Metrics

	mu sync.Mutex
	by map[string]map[schema.Key]bool // the units that a node does not answer, by node
	of map[schema.Key][]string        // the nodes that do not answer a unit
}

func newUnreachableNodes(m *Metrics) *unreachableNodes {
	return &unreachableNodes{metrics: m, by: map[string]map[schema.Key]bool{}, of: map[schema.Key][]string{}}
}

// observe takes in an observation of a unit. An unknown one says nothing about any node.
func (u *unreachableNodes) observe(o plan.Observed) {
	if o.Presence == plan.Unknown {
		return
	}
	var silent []string
	for _, m := range o.Members {
		if m.State == plan.Unreachable && !slices.Contains(silent, m.Node) {
			silent = append(silent, m.Node)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, node := range u.of[o.Key] {
		if slices.Contains(silent, node) {
			continue
		}
		if delete(u.by[node], o.Key); len(u.by[node]) == 0 {
			delete(u.by, node)
		}
	}
	for _, node := range silent {
		if u.by[node] == nil {
			u.by[node] = map[schema.Key]bool{}
			u.metrics.CountUnhealthyNode(NodeUnreachable)
		}
		u.by[node][o.Key] = true
	}
	if u.of[o.Key] = silent; silent == nil {
		delete(u.of, o.Key)
	}
}

package loop

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// A node that two units miss is one transition, and it is back once both see it, or are gone.
func TestNodeOfTwoUnitsIsOneTransition(t *testing.T) {
	reg := prometheus.NewRegistry()
	nodes := newUnreachableNodes(NewMetrics(reg))
	count := func() float64 {
		families, err := reg.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == "node_unhealthy_total" {
				return f.Metric[0].GetCounter().GetValue()
			}
		}
		return 0
	}
	observe := func(unit string, presence plan.Presence, state plan.State) {
		o := plan.Observed{Key: schema.InstanceKey("t", "p", unit), Presence: presence}
		if presence == plan.Present {
			o.Members = []plan.MemberState{{Name: "a-0", Node: "n", State: state}, {Name: "b-0", Node: "n", State: state}}
		}
		nodes.observe(o)
	}
	observe("one", plan.Present, plan.Unreachable)
	observe("two", plan.Present, plan.Unreachable)
	observe("one", plan.Unknown, "")
	require.EqualValues(t, 1, count())
	observe("one", plan.Present, plan.Running)
	observe("one", plan.Present, plan.Unreachable)
	require.EqualValues(t, 1, count(), "two still misses it")
	observe("one", plan.Absent, "")
	observe("two", plan.Present, plan.Running)
	require.Empty(t, nodes.by)
	require.Empty(t, nodes.of)
	observe("two", plan.Present, plan.Unreachable)
	require.EqualValues(t, 2, count())
}

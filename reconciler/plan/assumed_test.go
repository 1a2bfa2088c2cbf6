package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// Without a recorded memory, a change is shown against a base that runs as declared. A
// local checkout without a status branch shows the expected plan.
func TestProposeWithoutMemoryAssumesBaseRuns(t *testing.T) {
	key := schema.InstanceKey("a", "one", "x")
	inst := func(workers int) *schema.EffectiveUnit {
		return &schema.EffectiveUnit{Key: key, AppSelection: schema.AppSelection{App: "batch", Version: "v1", RuntimeBackend: "test"},
			DesiredState: schema.DesiredRunning,
			Config:       []byte("{}"), Roles: []schema.EffectiveRole{
				{Name: "controller", NodeRole: "controller", ControlPlane: true, Shareable: true, Count: 1},
				{Name: "worker", NodeRole: "worker", Count: workers},
			}}
	}
	nodes := map[string]*schema.Node{}
	for name, role := range map[string]string{"ctl": "controller", "n1": "worker", "n2": "worker"} {
		nodes[name] = &schema.Node{Header: schema.Header{Key: schema.Key{Kind: schema.KindNode, Name: name}},
			Spec: schema.NodeSpec{Roles: []string{role}}}
	}
	effective := func(insts ...*schema.EffectiveUnit) *schema.Effective {
		return effectiveOf(nodes, insts...)
	}
	verbs := func(p plan.Proposal) []plan.Verb {
		var out []plan.Verb
		for _, u := range p.Plans {
			for _, a := range u.Actions {
				out = append(out, a.Verb)
			}
		}
		return out
	}
	propose := func(base, head *schema.Effective, mem *plan.Memory) plan.Proposal {
		return plan.Propose(plan.ProposeInput{BaseEffective: base, HeadEffective: head, Memory: mem})
	}
	grown := propose(effective(inst(1)), effective(inst(2)), nil)
	require.True(t, grown.Assumed)
	require.Equal(t, []plan.Verb{plan.Configure, plan.Join}, verbs(grown))
	require.Equal(t, []plan.Verb{plan.Delete}, verbs(propose(effective(inst(1)), effective(), nil)))
	require.Equal(t, []plan.Verb{plan.Create, plan.Join}, verbs(propose(effective(), effective(inst(1)), nil)))
	require.Empty(t, verbs(propose(effective(inst(1)), effective(inst(1)), nil)))

	// An empty memory differs from none: it records that nothing was ever created.
	kept := propose(effective(inst(1)), effective(inst(2)), &plan.Memory{})
	require.False(t, kept.Assumed)
	require.Equal(t, plan.Create, verbs(kept)[0])
}

//go:build long

package loop

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// drawProject returns a random state of a project. Unchanged documents keep the same
// value.
func drawProject(draw *rand.Rand, name string, was *schema.EffectiveProject) *schema.EffectiveProject {
	p := &schema.EffectiveProject{Units: map[string]*schema.EffectiveUnit{}}
	for _, n := range []string{"x", "y", "z"} {
		key := schema.InstanceKey("a", name, n)
		switch what := draw.IntN(5); {
		case what == 0: // missing
			continue
		case what < 3 && was != nil && was.Units[n] != nil:
			p.Units[n] = was.Units[n]
		default:
			p.Units[n] = &schema.EffectiveUnit{Key: key, DisplayName: fmt.Sprint(draw.IntN(2)), DesiredState: schema.DesiredRunning,
				Roles: []schema.EffectiveRole{{Name: "worker", NodeRole: "worker", Count: draw.IntN(3)}}}
		}
		if draw.IntN(4) == 0 {
			p.Decisions = append(p.Decisions, schema.Decision{Key: key, Verdict: schema.Deny, Rule: fmt.Sprint(draw.IntN(2))})
		}
	}
	return p
}

// The changed units of a decision are the same, whether all units are compared or only
// the ones that may have changed.
func TestLongChangedUnitsMatchFullComparison(t *testing.T) {
	found := 0
	for seed := range uint64(400) {
		draw := rand.New(rand.NewPCG(seed, 1))
		var placer plan.Placer
		var mem plan.Memory
		var old *reconciler.State
		var last *enforced
		nodes := map[string]*schema.Node{}
		for i := range 6 {
			name := fmt.Sprintf("n%d", i)
			nodes[name] = &schema.Node{Header: schema.Header{Key: schema.Key{Kind: schema.KindNode, Name: name}},
				Spec: schema.NodeSpec{Roles: []string{"worker"}}}
		}
		projects := map[string]*schema.EffectiveProject{}
		for step := range 8 {
			projects = maps.Clone(projects)
			for _, name := range []string{"one", "two", "three"} {
				if draw.IntN(3) == 0 {
					projects[name] = drawProject(draw, name, projects[name])
				}
			}
			st := &reconciler.State{Main: fmt.Sprintf("c%d", step),
				Effective: &schema.Effective{Nodes: nodes, Tenants: map[string]*schema.EffectiveTenant{"a": {Projects: projects}}}}
			over := mem
			st.Placement = placer.Place(st.Effective, mem)
			changed := changedUnits(old, st, mem, last)
			require.Equal(t, changedUnits(old, st, mem, nil), changed, "seed %d, step %d", seed, step)
			last = &enforced{over, changed}
			found += len(changed)
			for _, key := range changed {
				s := statusOfDecision(key, st, mem.Get(key), st.Main, time.Time{})
				mem = mem.With(&s)
			}
			old = st
			for _, key := range mem.Keys() { // workers continue meanwhile
				s := *mem.Get(key)
				switch draw.IntN(8) {
				case 0:
					s.Phase = plan.PhaseRunning
					if s.Members = nil; st.Effective.Unit(key) == nil {
						s.Phase = plan.PhaseDeleted
					}
					mem = mem.With(&s)
				case 1:
					if mem = mem.Without(key); draw.IntN(2) == 0 {
						next := *old // new assignments on freed nodes
						next.Placement = placer.Place(st.Effective, mem)
						old = &next
					}
				}
			}
		}
	}
	require.Greater(t, found, 1000)
}

//go:build long

package loop

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// steps alternates between two decisions that differ in one instance. Each tenant of
// the estate has ten running instances.
func steps(t *testing.T, tenants int) (step func(), r *Reconciler) {
	r = New(Options{Repo: &emptyRepo{}, Log: testLog(t)})
	require.NoError(t, r.status.Lead(t.Context()))
	made := func(tenant, i int) *schema.EffectiveUnit {
		return &schema.EffectiveUnit{Key: schema.InstanceKey(fmt.Sprint("t", tenant), "p", fmt.Sprint("i", i)),
			AppSelection: schema.AppSelection{App: "batch", RuntimeBackend: "memory"},
			Config:       []byte("{}"), Roles: []schema.EffectiveRole{{Name: "controller", NodeRole: "controller", ControlPlane: true,
				Count: 1}}}
	}
	nodes := map[string]*schema.Node{}
	for i := range 10 * tenants {
		n := &schema.Node{Spec: schema.NodeSpec{Address: "10.0.0.1", Roles: []string{"controller"}}}
		n.Key = schema.Key{Kind: schema.KindNode, Name: fmt.Sprintf("n%04d", i)}
		nodes[n.Key.Name] = n
	}
	one := &schema.Effective{Tenants: map[string]*schema.EffectiveTenant{}, Nodes: nodes}
	other := &schema.Effective{Tenants: map[string]*schema.EffectiveTenant{}, Nodes: nodes}
	for tenant := range tenants {
		p := &schema.EffectiveProject{Units: map[string]*schema.EffectiveUnit{}}
		for i := range 10 {
			p.Units[fmt.Sprint("i", i)] = made(tenant, i)
		}
		name := fmt.Sprint("t", tenant)
		one.Tenants[name] = &schema.EffectiveTenant{Projects: map[string]*schema.EffectiveProject{"p": p}}
		other.Tenants[name] = one.Tenants[name]
	}
	changed := &schema.EffectiveProject{Units: map[string]*schema.EffectiveUnit{}}
	for name, i := range one.Tenants["t7"].Projects["p"].Units {
		changed.Units[name] = i
	}
	another := *changed.Units["i3"]
	another.DisplayName = "another"
	changed.Units["i3"] = &another
	changed.Noncompliant = []schema.Noncompliance{{Key: another.Key, Fate: schema.FateHeld}}
	other.Tenants["t7"] = &schema.EffectiveTenant{Projects: map[string]*schema.EffectiveProject{"p": changed}}

	desired := &schema.Desired{Platform: &schema.Platform{}}
	var last *reconciler.State
	turn := 0
	step = func() {
		eff := []*schema.Effective{one, other}[turn%2]
		turn++
		st := &reconciler.State{Main: "m", InForce: "f", Desired: desired, Effective: eff}
		require.NoError(t, r.estate.putInForce(context.Background(), decidedChange{old: last, next: st}))
		last = r.estate.inForce.current()
		_, ok := r.View()
		require.True(t, ok)
	}
	step()
	for key, s := range r.status.Units().All() {
		next, unit := *s, &plan.Unit{Effective: *one.Unit(key), Members: last.Placement.Members(key)}
		next.Phase, next.Observed = plan.PhaseRunning, &plan.Observed{Key: key, Presence: plan.Present, Complete: true, Unit: unit}
		for _, m := range unit.Members {
			next.Observed.Members = append(next.Observed.Members, plan.MemberState{Name: m.Name, Node: m.Node, State: plan.Running})
		}
		require.NotEmpty(t, unit.Members)
		_, ok := r.status.SetUnit(s, next)
		require.True(t, ok)
	}
	return step, r
}

// The cost of a changed instance, from the decision to the last report, does not
// depend on the size of the estate. The test counts allocations because times vary.
func TestLongDecisionCostDependsOnTheChange(t *testing.T) {
	cost := func(tenants int) float64 {
		step, r := steps(t, tenants)
		for range 4 { // excludes first-time reports
			step()
		}
		for key := range r.status.Units().All() {
			require.Equal(t, plan.PhaseRunning, r.status.Unit(key).Phase)
		}
		require.Equal(t, 10*tenants, r.status.Units().Len())
		before := r.status.Units()
		step()
		touched := 0
		for key := range plan.ChangedMemory(before, r.status.Units()) {
			touched++
			require.Equal(t, schema.InstanceKey("t7", "p", "i3"), key)
		}
		require.Equal(t, 1, touched)
		return testing.AllocsPerRun(20, step)
	}
	small, large := cost(20), cost(200)
	require.Less(t, large, 1.3*small, "allocations of a step, with 200 and with 2,000 instances")
}

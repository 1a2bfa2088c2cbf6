package runtimetest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// operated is a running unit whose members are operated on.
type operated struct {
	*driver
	t *testing.T
	u plan.Unit
}

// operate checks that operations on members are done once, also when they are repeated or end in a crash,
// and that no repair undoes them.
func (s *suite) operate(t *testing.T, u plan.Unit) {
	o := operated{s.driver, t, u}
	o.drains()
	o.restarts()
	o.crashes()
	o.replaces()
}

func operationOn(id, operation, member string) plan.Operation {
	return plan.Operation{Name: id, ID: id, Phase: plan.OperationRequested,
		Spec: schema.MemberOperationSpec{Operation: operation, Member: member, Reason: "a test"}}
}

// plan returns the plan of the unit with an operation.
func (o operated) plan(op plan.Operation) plan.Plan {
	return plan.Make(plan.Input{Key: o.u.Effective.Key, After: &o.u.Effective, Members: o.u.Members, Observed: o.observe(o.t, o.u),
		Operations: []plan.Operation{op}, Rules: o.rt})
}

// do carries out an operation, and repeats it with a new runtime.
func (o operated) do(op plan.Operation) {
	o.t.Helper()
	p := o.plan(op)
	require.Len(o.t, p.Actions, 1, "%s: %s", op.ID, verbs(p))
	a := p.Actions[0]
	require.Equal(o.t, op.ID, a.Operation.ID)
	require.NoError(o.t, o.apply(o.t, &p, a), op.ID)
	o.rt = o.h.New()
	done := o.h.Fingerprint(o.t, o.u)
	require.NoError(o.t, o.apply(o.t, &p, a), "%s again", op.ID)
	require.Equal(o.t, done, o.h.Fingerprint(o.t, o.u), "%s was done twice", op.ID)
	after := o.driver.plan(o.t, o.u, false)
	require.True(o.t, after.Empty(), "%s: a repair would undo it: %s", op.ID, verbs(after))
}

// detail returns the detail of a member's observed state.
func (o operated) outOfService(member string) string {
	o.t.Helper()
	states := o.observe(o.t, o.u).Members
	i := slices.IndexFunc(states, func(m plan.MemberState) bool { return m.Name == member })
	require.GreaterOrEqual(o.t, i, 0, "%s is not observed", member)
	return states[i].OutOfService
}

// drains does the operations that restart nothing.
func (o operated) drains() {
	before := o.h.Fingerprint(o.t, o.u)
	o.do(operationOn("d1", schema.OpDrain, "worker-0"))
	require.Contains(o.t, o.outOfService("worker-0"), "operation")
	o.do(operationOn("d2", schema.OpResume, "worker-0"))
	require.Empty(o.t, o.outOfService("worker-0"))
	o.do(operationOn("d3", schema.OpCordon, "worker-1"))
	require.Contains(o.t, o.outOfService("worker-1"), "operation")
	o.do(operationOn("d4", schema.OpUncordon, "worker-1"))
	require.Empty(o.t, o.outOfService("worker-1"))
	label := operationOn("d5", schema.OpLabel, "worker-0")
	label.Spec.Labels = map[string]string{"rack": "r1"}
	o.do(label)
	o.do(operationOn("d6", schema.OpRetry, ""))
	require.Equal(o.t, before, o.h.Fingerprint(o.t, o.u), "something was restarted")
}

// starts describes the starts of the unit's processes.
func (o operated) starts() string {
	if o.h.Starts != nil {
		return o.h.Starts(o.t, o.u)
	}
	return o.h.Fingerprint(o.t, o.u)
}

func (o operated) restarts() {
	never := o.starts()
	o.do(operationOn("d7", schema.OpRestart, "worker-0"))
	once := o.starts()
	require.NotEqual(o.t, never, once, "nothing was restarted")
	o.do(operationOn("d8", schema.OpRestart, "controller-0"))
	require.NotEqual(o.t, once, o.starts(), "nothing was restarted")
}

// crashes crashes at every step of a restart.
func (o operated) crashes() {
	before := o.starts()
	p := o.plan(operationOn("d9", schema.OpRestart, "worker-1"))
	crashes := 0
	for ; crashes < 30; crashes++ {
		o.h.FailStep(crashes+1, errFault)
		err := o.apply(o.t, &p, p.Actions[0])
		o.h.FailStep(0, nil)
		o.rt = o.h.New()
		if err == nil {
			break
		}
		require.ErrorIs(o.t, err, errFault)
	}
	require.Positive(o.t, crashes)
	require.NotEqual(o.t, before, o.starts())
	o.running(o.t, o.u)
}

// replaces moves a member to another node by an operation, and back.
func (o operated) replaces() {
	moved := o.u
	moved.Members = slices.Clone(o.u.Members)
	i := slices.IndexFunc(moved.Members, func(m plan.Member) bool { return m.Name == "worker-1" })
	moved.Members[i] = o.member("worker", 1, false, o.h.Workers[2])
	for n, to := range []plan.Unit{moved, o.u} {
		op := operationOn([]string{"d10", "d11"}[n], schema.OpReplace, "worker-1")
		p := plan.Make(plan.Input{Key: o.u.Effective.Key, Observed: o.observe(o.t, o.u), Rules: o.rt, After: &to.Effective,
			Members: to.Members, Operations: []plan.Operation{op}})
		require.Equal(o.t, "replace worker-1, leave worker-1, configure, join worker-1", verbs(p))
		for _, a := range p.Actions {
			require.NoError(o.t, o.apply(o.t, &p, a), "%s %s", a.Verb, a.Member)
		}
		o.running(o.t, to)
		require.Empty(o.t, o.outOfService("worker-1"), "the new node is not drained")
	}
}

package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes/memory"
	"berth/schema"
)

// operated returns the input of a plan of a running unit with two workers and operations, each as
// name, operation and member.
func operated(count int, operations ...[3]string) plan.Input {
	key := schema.InstanceKey("physics", "lab", "train")
	u := plan.Unit{Effective: schema.EffectiveUnit{Key: key, DesiredState: schema.DesiredRunning, Config: []byte("{}"),
		Roles: []schema.EffectiveRole{
			{Name: "controller", ControlPlane: true, Count: 1},
			{Name: "worker", Count: 2, MaxUnavailable: schema.MaxUnavailable{Number: 1}},
		}}}
	o := plan.Observed{Key: key, Presence: plan.Present, Complete: true, Unit: &u}
	for i, name := range []string{"controller-0", "worker-0", "worker-1"} {
		m := plan.Member{Name: name, Role: name[:len(name)-2], ControlPlane: i == 0, Node: fmt.Sprint("n", i)}
		u.Members = append(u.Members, m)
		o.Members = append(o.Members, plan.MemberState{Name: name, Node: m.Node, State: plan.Running})
	}
	after := u.Effective
	after.Roles = []schema.EffectiveRole{u.Effective.Roles[0], u.Effective.Roles[1]}
	after.Roles[1].Count = count
	in := plan.Input{Key: key, After: &after, Members: u.Members[:1+count], Observed: o, Rules: memory.New(memory.NewWorld())}
	for _, x := range operations {
		in.Operations = append(in.Operations, plan.Operation{Name: x[0], ID: x[0], Phase: plan.OperationRequested,
			Spec: schema.MemberOperationSpec{Operation: x[1], Member: x[2], Reason: "a fan is loud"}})
	}
	return in
}

// Requirements A7, D5: operations are actions of their unit's plan.
func TestOperationsAreActionsOfThePlan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		count      int
		operations [][3]string
		want       []string
		blocked    string
	}{
		{"one", 2, [][3]string{{"fan", "drain", "worker-0"}}, []string{"drain worker-0 on n1 by operation fan", "  drains n1"}, ""},
		{"in the order of names", 2, [][3]string{{"a", "cordon", "worker-0"}, {"b", "label", "worker-1"}, {"c", "uncordon", "worker-0"}},
			[]string{
				"cordon worker-0 on n1 by operation a", "label worker-1 on n2 by operation b", "uncordon worker-0 on n1 by operation c"},
			""},
		{"of the control plane", 2, [][3]string{{"again", "restart", "controller-0"}},
			[]string{"restart controller-0 on n0 by operation again", "  restarts controller-0"}, ""},
		{"not of the control plane", 2, [][3]string{{"fan", "drain", "controller-0"}}, []string{"blocked: operation"},
			"operation fan: controller-0 is the control plane: only restart is done on it"},
		{"of nobody", 2, [][3]string{{"fan", "drain", "worker-5"}}, []string{"blocked: operation"},
			"operation fan: worker-5 does not exist: name a member of the unit"},
		{"retry", 2, [][3]string{{"again", "retry", ""}}, []string{"retry on n0 by operation again"}, ""},
		{"remove of a declared member", 2, [][3]string{{"gone", "remove", "worker-1"}}, []string{"blocked: operation"},
			"operation gone: worker-1 is declared, so it would come back: lower spec.roles.worker.count to 1 at most, or use replace"},
		{"remove", 1, [][3]string{{"gone", "remove", "worker-1"}},
			[]string{"remove worker-1 on n2 by operation gone", "  drains n2", "leave worker-1 on n2", "  drains n2",
				"configure on n0", "  members.worker-1: n2 → –", "  roles.worker.count: 2 → 1"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := operated(c.count, c.operations...)
			p := plan.Make(in)
			require.Equal(t, c.want, plan.Steps(p))
			if c.blocked != "" {
				require.Equal(t, c.blocked, p.Blocked[0].Message)
				require.False(t, p.Blocked[0].Wait)
			}
			none := in
			none.Operations = nil
			require.Equal(t, c.blocked == "", plan.Make(none).Digest != p.Digest, "the digest covers the actions of operations")
			require.Equal(t, p, plan.Make(in))
		})
	}

	// A replace drains before the member leaves, by the operation's own on_jobs, which meets its jobs.
	in := operated(2, [3]string{"move", "replace", "worker-0"})
	in.Members = append([]plan.Member(nil), in.Members...)
	in.Members[1].Node = "n9"
	in.Operations[0].Spec.OnJobs = &schema.OnJobs{CancelAfterSeconds: 60}
	in.Observed.Jobs = &plan.Jobs{Running: 3, At: time.Unix(1, 0)}
	p := plan.Make(in)
	require.Equal(t, []plan.Verb{plan.Replace, plan.Leave, plan.Configure, plan.Join}, verbsOf(p))
	require.Contains(t, p.Actions[1].Needs, p.Actions[0].ID)
	require.True(t, p.Actions[0].Impact.EndsJobs)
	require.Equal(t, 3, p.Actions[0].Jobs.Ended.Count)

	// Operations on one member are done in order; those of different members do not wait for each other.
	p = plan.Make(operated(2, [3]string{"a", "drain", "worker-0"}, [3]string{"b", "restart", "worker-0"},
		[3]string{"c", "restart", "worker-1"}))
	require.Equal(t, []string{p.Actions[0].ID}, p.Actions[1].Needs)
	require.Empty(t, p.Actions[2].Needs)

	// What is suspended, stopped, denied, unknown or to be deleted is not operated on.
	for _, change := range []func(in *plan.Input){
		func(in *plan.Input) { in.After.Suspend = true },
		func(in *plan.Input) { in.After.DesiredState = schema.DesiredStopped },
		func(in *plan.Input) { in.Denied = []schema.Decision{{}} },
		func(in *plan.Input) { in.Observed = plan.Observed{Presence: plan.Unknown} },
		func(in *plan.Input) { in.After = nil },
	} {
		in := operated(2, [3]string{"fan", "drain", "worker-0"})
		change(&in)
		for _, a := range plan.Make(in).Actions {
			require.Nil(t, a.Operation)
		}
	}
}

func verbsOf(p plan.Plan) (out []plan.Verb) {
	for _, a := range p.Actions {
		out = append(out, a.Verb)
	}
	return out
}

// A document is one operation by its uid or else its name. A finished one stays finished, and an
// operation that cannot start within a day expires.
func TestOperationsOfDocuments(t *testing.T) {
	t.Parallel()
	doc := func(name, uid string) *schema.MemberOperation {
		return &schema.MemberOperation{Header: schema.Header{Key: schema.Key{Kind: schema.KindMemberOperation, Name: name}, UID: uid},
			Spec: schema.MemberOperationSpec{Operation: schema.OpDrain, Member: "worker-0"}}
	}
	now := time.Date(2026, 8, 1, 10, 0, 0, 0, time.UTC)
	all := plan.Operations([]*schema.MemberOperation{doc("a", "u1"), doc("b", "")}, nil, now)
	require.Equal(t, []string{"u1", "b"}, []string{all[0].ID, all[1].ID})
	all[0].Finish(plan.OperationDone, "", now)

	moved := plan.Operations([]*schema.MemberOperation{doc("z", "u1"), doc("b", "")}, all, now.Add(plan.OperationWait))
	require.Equal(t, plan.OperationDone, moved[1].Phase, "the same uid at another path")
	require.Equal(t, "z", moved[1].Name)
	require.Equal(t, []plan.Operation{moved[0]}, plan.Pending(moved))
	late := plan.Operations([]*schema.MemberOperation{doc("b", "")}, moved, now.Add(plan.OperationWait+time.Second))
	require.Len(t, late, 1, "the other document is gone")
	require.Equal(t, plan.OperationExpired, late[0].Phase)
	require.Empty(t, plan.Pending(late))

	// Requests have no document. The newest finished ones stay.
	var known []plan.Operation
	for i := range 150 {
		o := plan.Operation{Name: fmt.Sprintf("r%03d", i), ID: fmt.Sprint(i), IsRequest: true, Requested: now}
		if o.Phase = plan.OperationRequested; i < 140 {
			o.Finish(plan.OperationDone, "", now.Add(time.Duration(i)*time.Second))
		}
		known = append(known, o)
	}
	kept := plan.Operations(nil, known, now.Add(time.Hour))
	require.Len(t, kept, 110)
	require.Equal(t, "r040", kept[0].Name)
}

// An operation that is not done ends when its opposite is asked for later, whether that one is done already or not.
func TestLaterOperationEndsTheOppositeThatWaits(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 8, 1, 10, 0, 0, 0, time.UTC)
	ask := func(name, verb, member string, minutes int, phase plan.OperationPhase) plan.Operation {
		return plan.Operation{Name: name, ID: name, IsRequest: true, Phase: phase, Requested: at.Add(time.Duration(minutes) * time.Minute),
			Spec: schema.MemberOperationSpec{Operation: verb, Member: member}}
	}
	for name, c := range map[string]struct {
		older, newer plan.Operation
		ends         bool
	}{
		"a drain that runs": {ask("a", schema.OpDrain, "worker-0", 0, plan.OperationRunning),
			ask("b", schema.OpResume, "worker-0", 1, plan.OperationRequested), true},
		"one that has not begun": {ask("b", schema.OpCordon, "worker-0", 0, plan.OperationRequested),
			ask("a", schema.OpUncordon, "worker-0", 1, plan.OperationDone), true},
		"a resume": {ask("a", schema.OpResume, "worker-0", 0, plan.OperationRequested),
			ask("b", schema.OpDrain, "worker-0", 1, plan.OperationRequested), true},
		"another member": {ask("a", schema.OpDrain, "worker-0", 0, plan.OperationRequested),
			ask("b", schema.OpResume, "worker-1", 1, plan.OperationRequested), false},
		"the same again": {ask("a", schema.OpDrain, "worker-0", 0, plan.OperationRequested),
			ask("b", schema.OpDrain, "worker-0", 1, plan.OperationRequested), false},
		"a restart": {ask("a", schema.OpRestart, "worker-0", 0, plan.OperationRequested),
			ask("b", schema.OpResume, "worker-0", 1, plan.OperationRequested), false},
		"at once": {ask("a", schema.OpDrain, "worker-0", 0, plan.OperationRequested),
			ask("b", schema.OpResume, "worker-0", 0, plan.OperationRequested), true},
		"after one that is done": {ask("a", schema.OpDrain, "worker-0", 0, plan.OperationRequested),
			ask("b", schema.OpResume, "worker-0", 0, plan.OperationDone), false},
		"at once, the other way": {ask("b", schema.OpResume, "worker-0", 0, plan.OperationRequested),
			ask("a", schema.OpDrain, "worker-0", 0, plan.OperationExpired), false},
		"an opposite that failed": {ask("a", schema.OpDrain, "worker-0", 0, plan.OperationRequested),
			ask("b", schema.OpResume, "worker-0", 1, plan.OperationFailed), false},
	} {
		all := plan.Operations(nil, []plan.Operation{c.older, c.newer}, at.Add(time.Hour))
		i := slices.IndexFunc(all, func(o plan.Operation) bool { return o.Name == c.older.Name })
		require.Equal(t, c.ends, all[i].Phase == plan.OperationExpired, name)
		require.Equal(t, c.newer.Phase, all[1-i].Phase, name)
		if c.ends {
			require.Contains(t, all[i].Message, "the later operation "+c.newer.Name+" asks for the opposite")
		}
	}
}

// A hold runs until a release that is asked for later, whatever member that names, and no plan has either of them.
func TestHoldRunsUntilItsRelease(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 8, 1, 10, 0, 0, 0, time.UTC)
	ask := func(name, verb, member string, minutes int) plan.Operation {
		return plan.Operation{Name: name, ID: name, IsRequest: true, Phase: plan.OperationRequested,
			Requested: at.Add(time.Duration(minutes) * time.Minute), Spec: schema.MemberOperationSpec{Operation: verb, Member: member}}
	}
	step := func(after int, all ...plan.Operation) []plan.Operation {
		now := at.Add(time.Duration(after) * time.Minute)
		return plan.BeginHolds(plan.Operations(nil, all, now), now)
	}
	phases := func(all []plan.Operation) (out []string) {
		for _, o := range all {
			out = append(out, strings.TrimSpace(o.Name+" "+string(o.Phase)+" "+o.Message))
		}
		return out
	}
	all := step(1, ask("a", schema.OpHold, "", 0), ask("b", schema.OpHold, "", 1))
	require.Equal(t, []string{"a running", "b done the unit is held already by a"}, phases(all))
	all = step(3*24*60, all...)
	held, ok := plan.Holding(all)
	require.True(t, ok, "a hold never expires")
	require.Equal(t, "a", held.Name)
	require.Empty(t, plan.Pending(all))
	all = append(all, ask("c", schema.OpRelease, "controller-0", 3*24*60))
	require.Empty(t, plan.Pending(all))
	all = step(3*24*60, all...)
	require.Equal(t, []string{"a done released by the operation c", "b done the unit is held already by a", "c done"}, phases(all))
	all = step(3*24*60+1, append(all, ask("d", schema.OpHold, "", 3*24*60+1))...)
	require.Equal(t, "d running", phases(all)[3], "an old release ends no later hold")

	all = step(2, append(step(1, ask("b", schema.OpHold, "", 0)), ask("a", schema.OpHold, "", 2))...)
	require.Equal(t, []string{"a done the unit is held already by b", "b running"}, phases(all), "the order of names ends no running hold")

	all = step(1, ask("a", schema.OpHold, "", 24*60))
	all = step(2, append(all, ask("b", schema.OpRelease, "controller-0", 2))...)
	require.Equal(t, []string{"a done released by the operation b", "b done"}, phases(all), "the clock was a day ahead at the hold")

	all = step(1, ask("b", schema.OpRelease, "controller-0", 24*60))
	all = step(2, append(all, ask("a", schema.OpHold, "", 2))...)
	require.Equal(t, []string{"a running", "b done"}, phases(all), "the clock was a day ahead at the release before")
}

// A request is checked as a document is.
func TestRequestsAreCheckedAsDocuments(t *testing.T) {
	want := &schema.EffectiveUnit{Key: schema.InstanceKey("physics", "lab", "train"),
		Roles: []schema.EffectiveRole{{Name: "worker", Count: 1}}}
	check := func(change func(*schema.MemberOperationSpec)) error {
		s := schema.MemberOperationSpec{Member: "worker-0", Operation: schema.OpDrain, Reason: "a fan is loud"}
		change(&s)
		return plan.OperationRequest{Unit: want.Key, ID: "k", Spec: s}.Check(want)
	}
	require.NoError(t, check(func(*schema.MemberOperationSpec) {}))
	labels := func(all map[string]string) func(*schema.MemberOperationSpec) {
		return func(s *schema.MemberOperationSpec) { s.Operation, s.Labels = schema.OpLabel, all }
	}
	require.NoError(t, check(labels(map[string]string{"rack": "r1"})))
	many := map[string]string{}
	for i := range 33 {
		many[fmt.Sprint("l", i)] = "x"
	}
	for name, change := range map[string]func(*schema.MemberOperationSpec){
		"a reason of two lines":         func(s *schema.MemberOperationSpec) { s.Reason = "a\nb" },
		"a reason that reads backwards": func(s *schema.MemberOperationSpec) { s.Reason = "a fan \u202eduol si" },
		"a reason with an escape":       func(s *schema.MemberOperationSpec) { s.Reason = "a \x1b[31mfan" },
		"a reason that shows nothing":   func(s *schema.MemberOperationSpec) { s.Reason = "\u00a0" },
		"a reason under marks":          func(s *schema.MemberOperationSpec) { s.Reason = "a" + strings.Repeat("\u0301", 9) },
		"a long reason":                 func(s *schema.MemberOperationSpec) { s.Reason = strings.Repeat("a", 201) },
		"a deadline in the past":        func(s *schema.MemberOperationSpec) { s.OnJobs = &schema.OnJobs{CancelAfterSeconds: -5} },
		"a label without a name":        labels(map[string]string{"": "x"}),
		"a label with a comma":          labels(map[string]string{"rack": "1,tier=gold"}),
		"a label with a big text":       labels(map[string]string{"rack": strings.Repeat("a", 65)}),
		"many labels":                   labels(many),
	} {
		require.Error(t, check(change), name)
	}
}

package memory_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/memory"
	"berth/runtimes/runtimetest"
	"berth/schema"
)

func node(name string) *schema.Node {
	return &schema.Node{Header: schema.Header{Key: schema.Key{Kind: schema.KindNode, Name: name}}, Spec: schema.NodeSpec{
		Address: name, SSHPort: 22, Region: "here", SKU: "any", Capacity: schema.Capacity{CPUs: 4, MemoryMiB: 8000},
	}}
}

func instance(i schema.EffectiveUnit) schema.EffectiveUnit {
	i.RuntimeBackend, i.Config = "bare_metal", []byte("{}")
	return i
}

func TestMemoryConformance(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) *memory.World{
		"in memory": func(*testing.T) *memory.World { return memory.NewWorld() },
		"on disk": func(t *testing.T) *memory.World {
			w, err := memory.OpenWorld(t.TempDir())
			require.NoError(t, err)
			return w
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := open(t)
			runtimetest.Run(t, runtimetest.Harness{
				New:          func() runtimes.Runtime { return memory.New(w) },
				Control:      node("control"),
				Workers:      []*schema.Node{node("w1"), node("w2"), node("w3")},
				Instance:     instance,
				SetReachable: w.SetReachable,
				FailStep:     w.FailStep,
				Kill: func(t *testing.T, u plan.Unit, member string) {
					require.NoError(t, w.SetState(u.Effective.Key, member, plan.Stopped))
				},
				Fingerprint: func(_ *testing.T, u plan.Unit) string { return w.Fingerprint(u.Effective.Key) },
				Remains:     func(_ *testing.T, u plan.Unit) []string { return w.Remains(u.Effective.Key) },
				Snapshot:    func(_ *testing.T, node string) map[string]string { return w.Snapshot(node) },
				Occupy: func(_ *testing.T, node string) func() {
					w.SetForeign(node, "a service of the host's own runs")
					return func() { w.SetForeign(node, "") }
				},
			})
			require.Positive(t, w.Calls("observe"))
			require.Positive(t, w.Calls(string(plan.Create)))
		})
	}
}

func TestWorldIsReadFromItsDirectory(t *testing.T) {
	dir := t.TempDir()
	w, err := memory.OpenWorld(dir)
	require.NoError(t, err)
	control := plan.Member{Name: "controller-0", Role: "controller", ControlPlane: true, Node: "control"}
	inst := instance(schema.EffectiveUnit{Key: schema.InstanceKey("t", "p", "i"), DesiredState: schema.DesiredRunning})
	p := plan.Make(plan.Input{Key: inst.Key, After: &inst, Members: []plan.Member{control}, Observed: plan.Observed{Presence: plan.Absent}})
	require.NoError(t, memory.New(w).Apply(t.Context(), runtimes.Change{Plan: &p, Action: p.Actions[0]}))

	again, err := memory.OpenWorld(dir)
	require.NoError(t, err)
	obs := memory.New(again).Observe(t.Context(), runtimes.Scope{Key: inst.Key})
	require.Equal(t, plan.Present, obs.Presence)
	require.True(t, obs.Complete)
	require.Equal(t, inst.Key, obs.Unit.Effective.Key)
}

// A step writes the file of its unit alone, and a unit that is gone leaves none.
func TestStepWritesItsUnitAlone(t *testing.T) {
	dir := t.TempDir()
	w, err := memory.OpenWorld(dir)
	require.NoError(t, err)
	control := plan.Member{Name: "controller-0", Role: "controller", ControlPlane: true, Node: "control"}
	keys := []schema.Key{schema.InstanceKey("t", "p", "i"), schema.InstanceKey("t", "p", "j")}
	for _, key := range keys {
		inst := instance(schema.EffectiveUnit{Key: key, DesiredState: schema.DesiredRunning})
		p := plan.Make(plan.Input{Key: key, After: &inst, Members: []plan.Member{control}, Observed: plan.Observed{Presence: plan.Absent}})
		require.NoError(t, memory.New(w).Apply(t.Context(), runtimes.Change{Plan: &p, Action: p.Actions[0]}))
	}
	other := filepath.Join(dir, memory.UnitFile(keys[1]))
	require.NoError(t, os.WriteFile(other, []byte("not written again"), 0o600))
	require.NoError(t, w.SetState(keys[0], "controller-0", plan.Stopped))
	text, err := os.ReadFile(other)
	require.NoError(t, err)
	require.Equal(t, "not written again", string(text))

	rt := memory.New(w)
	p := plan.Make(plan.Input{Key: keys[0], Members: []plan.Member{control},
		Observed: rt.Observe(t.Context(), runtimes.Scope{Key: keys[0]})})
	require.NoError(t, rt.Apply(t.Context(), runtimes.Change{Plan: &p, Action: p.Actions[0]}))
	require.NoFileExists(t, filepath.Join(dir, memory.UnitFile(keys[0])))
}

func TestLeaveAndDeleteWaitForJobsUnlessCancelled(t *testing.T) {
	w := memory.NewWorld()
	rt := memory.New(w)
	inst := instance(schema.EffectiveUnit{Key: schema.InstanceKey("t", "p", "i"), DesiredState: schema.DesiredRunning})
	control := plan.Member{Name: "controller-0", Role: "controller", ControlPlane: true, Node: "control"}
	apply := func(after *schema.EffectiveUnit) error {
		p := plan.Make(plan.Input{Key: inst.Key, After: after, Members: []plan.Member{control},
			Observed: rt.Observe(t.Context(), runtimes.Scope{Key: inst.Key})})
		require.Len(t, p.Actions, 1)
		return rt.Apply(t.Context(), runtimes.Change{Plan: &p, Action: p.Actions[0]})
	}
	require.NoError(t, apply(&inst))
	require.NoError(t, w.SetJobs(inst.Key, plan.Jobs{Running: 1}))
	require.ErrorIs(t, apply(nil), runtimes.ErrWaiting)
	inst.OnJobs = &schema.OnJobs{CancelAfterSeconds: 1}
	require.NoError(t, apply(&inst))
	require.NoError(t, apply(nil))
	require.Empty(t, w.Remains(inst.Key))
}

// As on a host whose ledger is not writable. The action works again afterwards.
func TestStepThatCannotBeSavedHasNoEffect(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "world")
	w, err := memory.OpenWorld(dir)
	require.NoError(t, err)
	rt := memory.New(w)
	control := plan.Member{Name: "controller-0", Role: "controller", ControlPlane: true, Node: "control"}
	inst := instance(schema.EffectiveUnit{Key: schema.InstanceKey("t", "p", "i"), DesiredState: schema.DesiredRunning})
	apply := func(after *schema.EffectiveUnit, o plan.Observed) error {
		p := plan.Make(plan.Input{Key: inst.Key, After: after, Members: []plan.Member{control}, Observed: o})
		require.NotEmpty(t, p.Actions)
		return rt.Apply(t.Context(), runtimes.Change{Plan: &p, Action: p.Actions[0]})
	}
	observe := func() plan.Observed { return rt.Observe(t.Context(), runtimes.Scope{Key: inst.Key}) }
	diskGone := func(gone bool) {
		from, to := dir, dir+".gone"
		if !gone {
			from, to = to, from
		}
		require.NoError(t, os.Rename(from, to))
	}

	diskGone(true)
	require.Error(t, apply(&inst, plan.Observed{Presence: plan.Absent}))
	require.Equal(t, plan.Absent, observe().Presence)
	diskGone(false)
	require.NoError(t, apply(&inst, plan.Observed{Presence: plan.Absent}))
	require.Equal(t, plan.Present, observe().Presence)

	before := w.Fingerprint(inst.Key)
	diskGone(true)
	require.Error(t, apply(nil, observe()))
	require.Equal(t, before, w.Fingerprint(inst.Key))
	require.Error(t, w.SetState(inst.Key, "controller-0", plan.Stopped))
	require.Equal(t, before, w.Fingerprint(inst.Key))
	diskGone(false)
	require.NoError(t, apply(nil, observe()))
	require.Empty(t, w.Remains(inst.Key))
}

// Members have the name of their unit as reference (requirement A17).
func TestMembersHaveReferences(t *testing.T) {
	rt := memory.New(memory.NewWorld())
	control := plan.Member{Name: "controller-0", Role: "controller", ControlPlane: true, Node: "control"}
	inst := instance(schema.EffectiveUnit{Key: schema.InstanceKey("t", "p", "i"), DesiredState: schema.DesiredRunning})
	p := plan.Make(plan.Input{Key: inst.Key, After: &inst, Members: []plan.Member{control}, Observed: plan.Observed{Presence: plan.Absent}})
	require.NoError(t, rt.Apply(t.Context(), runtimes.Change{Plan: &p, Action: p.Actions[0]}))
	obs := rt.Observe(t.Context(), runtimes.Scope{Key: inst.Key})
	require.Len(t, obs.Members, 1)
	require.Equal(t, map[string]string{"unit": "Instance t.p/i"}, obs.Members[0].References)
}

// A member that the record of its unit does not have any more, as it has still to leave, is stopped with the unit.
func TestStopReachesMembersThatHaveToLeave(t *testing.T) {
	t.Parallel()
	w := memory.NewWorld()
	rt := memory.New(w)
	u := plan.Unit{Effective: schema.EffectiveUnit{Key: schema.InstanceKey("physics", "lab", "train")}, Members: []plan.Member{
		{Name: "controller-0", Role: "controller", ControlPlane: true, Node: "ctl"}, {Name: "worker-0", Role: "worker", Node: "gpu-1"}}}
	do := func(before, after *plan.Unit, a plan.Action) {
		t.Helper()
		a.ID, a.Key = string(a.Verb), u.Effective.Key
		require.NoError(t, rt.Apply(t.Context(), runtimes.Change{Plan: &plan.Plan{Key: a.Key, Before: before, After: after}, Action: a,
			Stamp: runtimes.Stamp{Epoch: 1, Leader: "me"}}))
	}
	do(nil, &u, plan.Action{Verb: plan.Create, Node: "ctl"})
	do(&u, &u, plan.Action{Verb: plan.Join, Member: "worker-0", Node: "gpu-1"})
	recorded := u
	recorded.Members = u.Members[:1]
	do(&recorded, nil, plan.Action{Verb: plan.Stop})
	require.Contains(t, w.Fingerprint(u.Effective.Key), "worker-0 on gpu-1 is stopped")
}

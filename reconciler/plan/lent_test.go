package plan

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

// lab is an estate with a shared runtime of physics to which physics.lhc lends gpu-5, and an
// instance of physics.lhc itself.
func lentLab(lent ...schema.LentNode) *schema.Effective {
	node := func(name, role, reserved string, gpus ...schema.GPU) *schema.Node {
		n := &schema.Node{Header: schema.Header{Key: schema.Key{Kind: schema.KindNode, Name: name}}}
		n.Spec = schema.NodeSpec{Address: name, Region: "eu-1", SKU: "a100", Roles: []string{role}, Reserved: reserved,
			Capacity: schema.Capacity{CPUs: 8, MemoryMiB: 1000, GPUs: gpus}}
		return n
	}
	roles := []schema.EffectiveRole{
		{Name: "controller", NodeRole: "controller", ControlPlane: true, Shareable: true, Count: 1},
		{Name: "worker", NodeRole: "worker", Count: 1, CPUs: 99}, // no node fits, so the unit has lent nodes only
	}
	shared := &schema.EffectiveUnit{Key: schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "department"}, Roles: roles,
		EffectiveSharing: schema.EffectiveSharing{Lent: lent}}
	own := &schema.EffectiveUnit{Key: schema.InstanceKey("physics", "lhc", "train"),
		Roles: []schema.EffectiveRole{roles[0], {Name: "worker", NodeRole: "worker", Count: 1}}}
	return &schema.Effective{
		Nodes: map[string]*schema.Node{
			"head":  node("head", "controller", ""),
			"gpu-5": node("gpu-5", "worker", "physics.lhc", schema.GPU{Type: "a100", Count: 4, Devices: "/dev/nvidia[0-3]"}),
			"gpu-6": node("gpu-6", "worker", "physics.other"),
		},
		Tenants: map[string]*schema.EffectiveTenant{"physics": {Projects: map[string]*schema.EffectiveProject{
			"":    {Units: map[string]*schema.EffectiveUnit{"department": shared}},
			"lhc": {Units: map[string]*schema.EffectiveUnit{"train": own}},
		}}},
	}
}

func lends(project, node string) schema.LentNode {
	return schema.LentNode{Node: node, Role: "worker",
		Loan: schema.Loan{ProjectID: project, Until: "2027-03-31", OnJobs: &schema.OnJobs{CancelAfterSeconds: 60}}}
}

// A lent node becomes a member with all its GPUs and the project that lends it. It is nobody
// else's meanwhile, and only the project for which it is reserved can lend it.
func TestLentNodesBecomeMembers(t *testing.T) {
	eff := lentLab(lends("physics.lhc", "gpu-5"), lends("physics.lhc", "gpu-6"), lends("physics.lhc", "gone"))
	shared, own := schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "department"},
		schema.InstanceKey("physics", "lhc", "train")
	placed := Place(eff, Memory{})
	m, ok := (&Unit{Members: placed.Members(shared)}).Member("worker.gpu-5")
	require.True(t, ok, "%v", placed.Unplaced(shared))
	require.Equal(t, "worker", m.Role)
	require.Equal(t, 4, m.GPUs[0].Count)
	require.Equal(t, &eff.Unit(shared).Lent[0].Loan, m.Loan)
	require.Equal(t, "lent by physics.lhc until 2027-03-31", m.Reason)
	var waits []string
	for _, b := range placed.Unplaced(shared) {
		waits = append(waits, b.Message)
	}
	require.Contains(t, waits, "no node for worker.gone: gone is not declared")
	require.Len(t, waits, 3, "worker-0, and the node of another project")
	for _, m := range placed.Members(own) {
		require.NotEqual(t, "gpu-5", m.Node)
	}
}

// A node that is taken back is drained by the rule of the loan before its project uses it again.
func TestTakenBackNodeLeavesFirst(t *testing.T) {
	shared, own := schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "department"},
		schema.InstanceKey("physics", "lhc", "train")
	before := lentLab(lends("physics.lhc", "gpu-5"))
	unit := &Unit{Effective: *before.Unit(shared), Members: Place(before, Memory{}).Members(shared)}
	var states []MemberState
	for _, m := range unit.Members {
		states = append(states, MemberState{Name: m.Name, Node: m.Node, State: Running})
	}
	observed := Observed{Key: shared, Presence: Present, Complete: true, Unit: unit, Members: states}
	memory := Memory{}.With(&Status{Key: shared, Phase: PhaseRunning, Observed: &observed})

	after := lentLab()
	placed := Place(after, memory)
	p := Make(Input{Key: shared, After: after.Unit(shared), Members: placed.Members(shared), Observed: observed})
	require.Equal(t, Leave, p.Actions[0].Verb, "%v", p.Blocked)
	require.Equal(t, "worker.gpu-5", p.Actions[0].Member)
	require.Equal(t, "returns to physics.lhc", p.Actions[0].Reason)
	require.Len(t, placed.Members(own), 1, "its worker waits for the node")

	gone := memory.With(&Status{Key: shared, Phase: PhaseRunning,
		Observed: &Observed{Key: shared, Presence: Present, Complete: true, Unit: &Unit{Effective: *after.Unit(shared)}}})
	require.Len(t, Place(after, gone).Members(own), 2)
}

// A suspended attachment stays as it was applied, and is not made where it was not.
func TestSuspendedAttachmentKeepsItsTerms(t *testing.T) {
	eff := lentLab()
	unit := eff.Unit(schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "department"})
	terms := func(suspend bool, gpus int) []schema.EffectiveAttachment {
		return []schema.EffectiveAttachment{{ProjectID: "physics.lhc", Suspend: suspend,
			SubmissionLimits: schema.SubmissionLimits{MaxGPUs: gpus}}}
	}
	was, is := *unit, *unit
	was.Attachments, is.Attachments = terms(false, 4), terms(true, 2)
	members := Place(eff, Memory{}).Members(unit.Key)
	in := Input{Key: unit.Key, After: &is, Members: members,
		Observed: Observed{Presence: Present, Complete: true, Unit: &Unit{Effective: was, Members: members},
			Members: []MemberState{{Name: "controller-0", Node: "head", State: Running}}}}
	require.Empty(t, Make(in).Actions)
	in.Observed.Unit.Effective.Attachments = nil
	is.Users, is.Attachments[0].Users = []schema.UnixUser{{Name: "ada", UID: 20001}}, []string{"ada"}
	is.Lent = []schema.LentNode{lends("physics.lhc", "gpu-5")}
	in.Members = append(slices.Clone(members), Member{Name: "worker.gpu-5", Role: "worker", Node: "gpu-5", Loan: &is.Lent[0].Loan})
	p := Make(in)
	require.Empty(t, p.Actions, "it brings neither users nor nodes")
	require.Empty(t, p.After.Effective.Users)
	require.Len(t, is.Attachments, 1, "the declared value is unchanged")
}

// An instance that uses a shared runtime is deleted without an action, whatever was observed of it:
// the shared runtime detaches its project, and nothing else of it is there.
func TestDeletedViewHasNoAction(t *testing.T) {
	key := schema.InstanceKey("physics", "lhc", "share")
	view := schema.EffectiveUnit{Key: key, SharedRuntime: "department"}
	in := Input{Key: key, Observed: Observed{Key: key, Presence: Present, Complete: true, Unit: &Unit{Effective: view}}}
	p := Make(in)
	require.True(t, p.Empty())
	in.Observed.Unit.Members = []Member{{Name: "controller-0", Node: "head"}}
	require.Equal(t, Delete, Make(in).Actions[0].Verb, "members of its own are deleted")
}

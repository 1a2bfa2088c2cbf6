package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

// A node takes a member only if it has the role, region, SKU, GPUs, CPUs, memory and disk that the
// instance asks for; otherwise the member waits and says what the nodes lack.
func TestMembersGetNodesThatFit(t *testing.T) {
	labels := map[string]string{"interconnect": "ndr"}
	place := func(change func(*schema.NodeSpec)) (node, waits string) {
		spec := schema.NodeSpec{Address: "gpu-1", Region: "eu-1", SKU: "a100", Roles: []string{"worker"},
			Capacity: schema.Capacity{CPUs: 8, MemoryMiB: 1000, DiskGiB: 100,
				GPUs: []schema.GPU{{Type: "a100", Count: 2, Devices: "/dev/nvidia[0-1]"}}}}
		change(&spec)
		train := &schema.EffectiveUnit{Key: schema.InstanceKey("physics", "lhc", "train"), Regions: []string{"eu-1"},
			Roles: []schema.EffectiveRole{
				{Name: "worker", NodeRole: "worker", Count: 1, SKUs: []string{"a100"}, GPUs: &schema.GPURequest{Type: "a100", Count: 2},
					CPUs: 8, MemoryMiB: 1000, DiskGiB: 100, NodeLabels: map[string]string{"interconnect": "ndr"}},
			}}
		placed := Place(&schema.Effective{
			Nodes: map[string]*schema.Node{"gpu-1": {Header: schema.Header{Key: schema.Key{Kind: schema.KindNode, Name: "gpu-1"}, Labels: labels},
				Spec: spec}},
			Tenants: map[string]*schema.EffectiveTenant{"physics": {Projects: map[string]*schema.EffectiveProject{
				"lhc": {Units: map[string]*schema.EffectiveUnit{"train": train}},
			}}},
		}, Memory{})
		if m, ok := (&Unit{Members: placed.Members(train.Key)}).Member("worker-0"); ok {
			node = m.Node
		}
		for _, b := range placed.Unplaced(train.Key) {
			waits += b.Message
		}
		return node, waits
	}
	node, waits := place(func(*schema.NodeSpec) {})
	require.Equal(t, "gpu-1", node, waits)
	require.Empty(t, waits)
	for lack, change := range map[string]func(*schema.NodeSpec){
		"role worker":                   func(n *schema.NodeSpec) { n.Roles = []string{"controller"} },
		"outside region eu-1":           func(n *schema.NodeSpec) { n.Region = "eu-2" },
		"not of SKU a100":               func(n *schema.NodeSpec) { n.SKU = "h100" },
		"without 2":                     func(n *schema.NodeSpec) { n.Capacity.GPUs[0].Count = 1 },
		"fewer than 8 CPUs":             func(n *schema.NodeSpec) { n.Capacity.CPUs = 7 },
		"less than 1000 MiB of memory":  func(n *schema.NodeSpec) { n.Capacity.MemoryMiB = 999 },
		"less than 100 GiB of disk":     func(n *schema.NodeSpec) { n.Capacity.DiskGiB = 99 },
		"1 without a declared disk_gib": func(n *schema.NodeSpec) { n.Capacity.DiskGiB = 0 },
	} {
		node, waits := place(change)
		require.Empty(t, node, lack)
		require.Contains(t, waits, lack)
	}
	labels = map[string]string{"interconnect": "hdr"}
	node, waits = place(func(*schema.NodeSpec) {})
	require.Empty(t, node)
	require.Contains(t, waits, "1 without the label interconnect: ndr")
}

func TestMemberHasTheDeclaredShape(t *testing.T) {
	shape := schema.Shape{Sockets: 2, CoresPerSocket: 8, ThreadsPerCore: 2}
	n := &schema.Node{Spec: schema.NodeSpec{Capacity: schema.Capacity{CPUs: 32, Shape: shape}}}
	require.Equal(t, shape, member(schema.EffectiveRole{}, "worker-0", n, "").Shape)
}

// A member that stays on its node says why the node fits what is asked for now, and a node that no
// longer fits says so.
func TestReasonFollowsChangedRequest(t *testing.T) {
	key := schema.InstanceKey("physics", "lhc", "train")
	train := func(gpus int) *schema.EffectiveUnit {
		return &schema.EffectiveUnit{Key: key, DesiredState: schema.DesiredRunning, Roles: []schema.EffectiveRole{
			{Name: "worker", NodeRole: "worker", Count: 1, GPUs: &schema.GPURequest{Type: "a100", Count: gpus}}}}
	}
	m := Member{Name: "worker-0", Role: "worker", Node: "gpu-1", GPUs: []schema.GPU{{Type: "a100", Count: 4}}}
	mem := Remember(&Status{Key: key, Members: []MemberStatus{{Member: m, Placed: "the one free node with role worker, 4×a100"}},
		Observed: &Observed{Key: key, Presence: Present, Unit: &Unit{Effective: *train(4), Members: []Member{m}},
			Members: []MemberState{{Name: m.Name, Node: m.Node, State: Running}}}})
	for gpus, want := range map[int]string{
		4: "the one free node with role worker, 4×a100",
		2: "it is there already, and fits the node: role worker, 2×a100",
		8: "it is there already, and no longer fits the node",
	} {
		placed := Place(&schema.Effective{
			Nodes: map[string]*schema.Node{"gpu-1": {Header: schema.Header{Key: schema.Key{Kind: schema.KindNode, Name: "gpu-1"}},
				Spec: schema.NodeSpec{Roles: []string{"worker"}, Capacity: schema.Capacity{GPUs: []schema.GPU{{Type: "a100", Count: 4}}}}}},
			Tenants: map[string]*schema.EffectiveTenant{"physics": {Projects: map[string]*schema.EffectiveProject{
				"lhc": {Units: map[string]*schema.EffectiveUnit{"train": train(gpus)}},
			}}},
		}, mem)
		require.Equal(t, want, placed.Members(key)[0].Reason)
	}
}

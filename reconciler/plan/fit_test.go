package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

// A node takes a member only if it has the role, region, SKU, GPUs, CPUs and memory that the
// instance asks for; otherwise the member waits and says what the nodes lack.
func TestMembersGetNodesThatFit(t *testing.T) {
	place := func(change func(*schema.NodeSpec)) (node, waits string) {
		spec := schema.NodeSpec{Address: "gpu-1", Region: "eu-1", SKU: "a100", Roles: []string{"worker"},
			Capacity: schema.Capacity{CPUs: 8, MemoryMiB: 1000, GPUs: []schema.GPU{{Type: "a100", Count: 2, Devices: "/dev/nvidia[0-1]"}}}}
		change(&spec)
		train := &schema.EffectiveUnit{Key: schema.InstanceKey("physics", "lhc", "train"), Regions: []string{"eu-1"}, Roles: []schema.EffectiveRole{
			{Name: "worker", NodeRole: "worker", Count: 1, SKUs: []string{"a100"}, GPUs: &schema.GPURequest{Type: "a100", Count: 2}, CPUs: 8, MemoryMiB: 1000},
		}}
		placed := Place(&schema.Effective{
			Nodes: map[string]*schema.Node{"gpu-1": {Header: schema.Header{Key: schema.Key{Kind: schema.KindNode, Name: "gpu-1"}}, Spec: spec}},
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
		"role worker":                  func(n *schema.NodeSpec) { n.Roles = []string{"controller"} },
		"outside region eu-1":          func(n *schema.NodeSpec) { n.Region = "eu-2" },
		"not of SKU a100":              func(n *schema.NodeSpec) { n.SKU = "h100" },
		"without 2":                    func(n *schema.NodeSpec) { n.Capacity.GPUs[0].Count = 1 },
		"fewer than 8 CPUs":            func(n *schema.NodeSpec) { n.Capacity.CPUs = 7 },
		"less than 1000 MiB of memory": func(n *schema.NodeSpec) { n.Capacity.MemoryMiB = 999 },
	} {
		node, waits := place(change)
		require.Empty(t, node, lack)
		require.Contains(t, waits, lack)
	}
}

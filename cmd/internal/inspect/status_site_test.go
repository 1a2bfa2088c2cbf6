package inspect

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

// A site has its nodes, and the units with a member on one of them.
func TestStatusOfASite(t *testing.T) {
	node := func(name, region string) *schema.Node {
		return &schema.Node{Header: schema.Header{Key: schema.Key{Kind: schema.KindNode, Name: name}}, Spec: schema.NodeSpec{Region: region}}
	}
	d := &schema.Desired{Platform: &schema.Platform{Nodes: map[string]*schema.Node{"a": node("a", "one"), "b": node("b", "two")}}}
	d.Platform.Put(&schema.Site{Header: schema.Header{Key: schema.Key{Kind: schema.KindSite, Name: "north"}},
		Spec: schema.SiteSpec{Regions: []string{"one"}}})
	unit := func(name, node string) ResourceStatus {
		return ResourceStatus{Key: schema.InstanceKey("t", "p", name), Members: []memberStatus{{Node: node}}}
	}
	o := &Overview{Instances: []ResourceStatus{unit("here", "a"), unit("there", "b")},
		Resources: []ResourceStatus{{Key: d.Platform.Nodes["a"].Key}, {Key: d.Platform.Nodes["b"].Key}},
		Held:      []schema.Held{{File: "platform/policy/x.yaml"}}}
	require.NoError(t, o.Filter(StatusFilter{Site: "north"}, d))
	require.Equal(t, []ResourceStatus{unit("here", "a")}, o.Instances)
	require.Equal(t, []ResourceStatus{{Key: d.Platform.Nodes["a"].Key}}, o.Resources)
	require.Empty(t, o.Held)
	require.ErrorContains(t, o.Filter(StatusFilter{Site: "south"}, d), `no site "south" is in force; the sites are: north`)
}

package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/policy"
)

func site(name, spec string) map[string]string {
	return map[string]string{"platform/sites/" + name + ".yaml": document("Site", name, "display_name: x\n"+spec)}
}

func join(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

// A policy that lists sites allows their regions, and a layer below can only narrow that.
func TestAllowedSitesAllowTheirRegions(t *testing.T) {
	sites := join(site("here", "regions: [lab]"), site("there", "regions: [mars, moon]"))
	of := func(platform, tenant string) *schema.Desired {
		return lab(t, join(sites, map[string]string{labPolicy: document("Policy", "lab", platform),
			physPolicy: document("Policy", "policy", tenant)}))
	}
	d := of("max_gpus_per_instance: 8", "allowed_sites: [here]")
	e := policy.Evaluate(d)
	require.Empty(t, e.Denied(train))
	require.Equal(t, []string{"lab"}, e.Unit(train).Regions)
	require.Empty(t, e.Unit(schema.InstanceKey("biology", "genomes", "assembly")).Regions, "another tenant")
	require.Equal(t, physPolicy+":6", e.Bounds(train).Regions[0].Source.Place())

	d = of("allowed_regions: [lab, moon]", "allowed_sites: [there, here]")
	require.Equal(t, []string{"lab", "moon"}, policy.Evaluate(d).Unit(train).Regions)
	found := policy.Wider(d)
	require.Len(t, found, 1)
	require.Equal(t, "spec.allowed_sites[0]", found[0].Path)
	require.Contains(t, found[0].Message, "allows there with the region mars, which is not allowed above: only lab, moon")

	d = of("allowed_sites: [here]", "allowed_regions: [mars]")
	denied := policy.Evaluate(d).Denied(train)
	require.NotEmpty(t, denied)
	require.Equal(t, "spec.allowed_regions[0]", policy.Wider(d)[0].Path)
	require.Contains(t, policy.Wider(d)[0].Message, labPolicy+":6")
}

// Nothing new is placed on the nodes of a drained site. Its documents stay as they are, and equal nodes stay the same
// pointers, so that placement is not done again.
func TestDrainedSiteTakesNothingNew(t *testing.T) {
	d := lab(t, site("here", "regions: [lab]\ndrained: true"))
	var j policy.Judge
	first, again := j.Evaluate(d, d, "2027-01-01"), j.Evaluate(d, d, "2027-01-01")
	require.NotEmpty(t, first.Nodes)
	for name, n := range first.Nodes {
		require.True(t, n.Spec.Cordoned, name)
		require.False(t, d.Platform.Nodes[name].Spec.Cordoned, name)
		require.Same(t, n, again.Nodes[name])
	}
	open := lab(t, site("here", "regions: [lab]"))
	require.Equal(t, open.Platform.Nodes, policy.Evaluate(open).Nodes)
}

package policy_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/policy"
)

// physics is the tenant with a limit, an instance train with some GPU workers and a project zoo with one of two workers.
func physics(t *testing.T, limit string, train int) (*schema.Platform, *schema.TenantEstate) {
	const zoo = "tenants/physics/projects/zoo/"
	d := lab(t, map[string]string{
		physPolicy:                      document("Policy", "policy", limit),
		trainFile:                       workers("train", train),
		zoo + "project.yaml":            document("Project", "zoo", "display_name: x"),
		zoo + "entitlements/slurm.yaml": document("Entitlement", "slurm", "enabled: true"),
		zoo + "instances/zoo.yaml":      workers("zoo", 2),
	})
	return d.Platform, d.Tenants["physics"]
}

// workers is an instance with a number of workers of one GPU each.
func workers(name string, n int) string {
	return instance(name, fmt.Sprintf("roles: {worker: {count: %d, gpus: {count: 1}}}", n))
}

// A change that exceeds a quota is refused with the sum, the bound and the place of the bound; no unit beside it is.
// Where nothing grew, as the policy became narrower, the last units by key do not comply.
func TestQuotaRefusesWhatExceedsIt(t *testing.T) {
	zoo := schema.InstanceKey("physics", "zoo", "zoo")
	for key, c := range map[string]struct {
		most          int
		first         schema.Key
		grown, narrow string
	}{
		"max_gpus_per_project":     {3, train, "the project has 4 GPUs, at most 3", "the project has 4 GPUs, at most 3"},
		"max_nodes_per_project":    {4, train, "the project has 5 nodes, at most 4", "the project has 5 nodes, at most 4"},
		"max_gpus_per_tenant":      {5, zoo, "the tenant has 6 GPUs, at most 5", "the tenant has 6 GPUs, at most 5"},
		"max_nodes_per_tenant":     {7, zoo, "the tenant has 8 nodes, at most 7", "the tenant has 8 nodes, at most 7"},
		"max_instances_per_tenant": {1, zoo, "", "the tenant has 2 instances, at most 1"},
	} {
		t.Run(key, func(t *testing.T) {
			limit := fmt.Sprintf("%s: %d", key, c.most)
			platform, now := physics(t, limit, 4)
			refused := func(before *schema.TenantEstate) map[schema.Key]string {
				out := map[schema.Key]string{}
				for _, d := range policy.EvaluateTenant(platform, now, policy.Since(now, before)).Decisions() {
					if d.Verdict == schema.Deny {
						require.Equal(t, key, d.Rule)
						require.Equal(t, physPolicy+":6", fmt.Sprintf("%s:%d", d.Source.File, d.Source.Line))
						out[d.Key] = d.Message
					}
				}
				return out
			}
			says := func(key schema.Key, text string) map[schema.Key]string {
				return map[schema.Key]string{key: "with it " + text + " are allowed"}
			}
			_, smaller := physics(t, limit, 2)
			if c.grown == "" {
				require.Empty(t, refused(nil)[train])
				require.Equal(t, says(zoo, c.narrow), refused(nil), "new ones count by key")
			} else {
				require.Equal(t, says(train, c.grown), refused(smaller), "the instance that grew")
			}
			require.Equal(t, says(c.first, c.narrow), refused(now), "nothing grew")
		})
	}
}

// A new unit that is refused uses nothing of a quota.
func TestRefusedNewUnitIsNotCounted(t *testing.T) {
	d := lab(t, map[string]string{
		physPolicy: document("Policy", "policy", "max_gpus_per_tenant: 3\nmax_gpus_per_instance: 4"),
		trainFile:  workers("train", 2),
		"tenants/physics/projects/lattice/instances/a.yaml": workers("a", 4),
		"tenants/physics/projects/lattice/instances/b.yaml": workers("b", 5),
	})
	now := d.Tenants["physics"]
	e := policy.EvaluateTenant(d.Platform, now)
	rules := map[string]string{}
	for _, f := range e.Decisions() {
		rules[f.Key.Name] = f.Rule
	}
	require.Equal(t, map[string]string{"a": "max_gpus_per_tenant", "b": "max_gpus_per_instance"}, rules)
}

// An explanation has the quotas that are set, each with what the tenant or the project uses.
func TestExplainShowsQuotas(t *testing.T) {
	platform, now := physics(t, "max_gpus_per_tenant: 5\nmax_nodes_per_project: 9", 4)
	x, ok := policy.Explain(platform, now, schema.InstanceKey("physics", "zoo", "zoo"))
	require.True(t, ok)
	got := map[string]policy.Value{}
	for _, v := range x.Values {
		got[v.Field] = v
	}
	require.True(t, x.Denied)
	require.Equal(t, 5, got["max_gpus_per_tenant"].Value)
	require.Equal(t, 6, got["max_gpus_per_tenant"].Asked)
	require.Len(t, got["max_gpus_per_tenant"].Decisions, 1)
	require.Equal(t, 3, got["max_nodes_per_project"].Asked)
	require.NotContains(t, got, "max_gpus_per_project", "nothing bounds it")
	maps.DeleteFunc(got, func(_ string, v policy.Value) bool { return len(v.Decisions) == 0 })
	require.Len(t, got, 1)
}

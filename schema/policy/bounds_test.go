package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/policy"
)

// The bounds on members combine all layers, with the fate of an instance outside
// them. Under a maximum of GPUs an instance that requests none gets none.
func TestBoundsCombineAllLayers(t *testing.T) {
	over := map[string]string{physPolicy: document("Policy", "policy",
		"allowed_skus: [gpu-a100-2]\nmax_gpus_per_instance: 4\nnoncompliant: {action: stop, grace_until: 2027-01-31}")}
	d := lab(t, over)
	for day, fate := range map[string]schema.Fate{"2027-01-30": schema.FateStopping, "2027-01-31": schema.FateStopped} {
		e := policy.Evaluate(d, everything, policy.At(day))
		b := e.Bounds(train)
		require.Equal(t, d.Instance(train), b.Instance)
		require.Equal(t, fate, b.Fate)
		require.Equal(t, "2027-01-31", b.Day)
		require.Equal(t, physPolicy, b.Source.File)
		require.Equal(t, physPolicy, b.SKUs[len(b.SKUs)-1].Source.File)
		require.Equal(t, []string{"gpu-a100-2"}, b.SKUs[len(b.SKUs)-1].Values)
		require.NotEmpty(t, b.Regions, "the platform's")
		require.Equal(t, physPolicy, b.GPUs.File)
		for _, r := range e.Unit(train).Roles {
			require.Equal(t, r.GPUs == nil, r.NoGPUs, r.Name)
		}
	}

	// The date changes the fate, also for an instance that the Judge remembers.
	var j policy.Judge
	before := j.Evaluate(d, d, "2027-01-30")
	after := j.Evaluate(d, d, "2027-01-31")
	require.Equal(t, schema.FateStopped, after.Bounds(train).Fate)
	require.Same(t, before.Unit(train), after.Unit(train))
	require.Same(t, after.Bounds(train), j.Evaluate(d, d, "2027-02-01").Bounds(train))

	// Without a policy there are no bounds.
	platform, physics := *d.Platform, *d.Tenants["physics"]
	platform.Policies, physics.Policy = nil, nil
	lattice := *physics.Projects["lattice"]
	ent := *lattice.Entitlements["slurm"]
	ent.Spec.PolicyOverrides = schema.Overlay{}
	lattice.Entitlements = map[string]*schema.Entitlement{"slurm": &ent}
	physics.Projects = map[string]*schema.ProjectEstate{"lattice": &lattice}
	e := policy.Evaluate(&schema.Desired{Platform: &platform, Tenants: map[string]*schema.TenantEstate{"physics": &physics}}, everything)
	require.Nil(t, e.Bounds(train))
	require.Nil(t, e.Bounds(schema.Key{Kind: schema.KindPolicy, Tenant: train.Tenant, Project: train.Project, Name: train.Name}))
	for _, r := range e.Unit(train).Roles {
		require.False(t, r.NoGPUs)
	}
}

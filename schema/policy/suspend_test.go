package policy

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

// A suspended tenant, project or entitlement suspends every instance below it and
// no other. The widest suspended document is named. Earlier results do not matter.
func TestSuspensionAppliesBelow(t *testing.T) {
	head := func(k schema.Key, suspend bool) schema.Header {
		path, err := k.Path()
		require.NoError(t, err)
		return schema.Header{Key: k, File: path, Suspend: suspend, Fields: []schema.FieldPos{{Path: "suspend", Line: 4, Column: 10}}}
	}
	tenant, project := schema.Key{Kind: schema.KindTenant, Name: "t"}, schema.Key{Kind: schema.KindProject, Tenant: "t", Name: "p"}
	entitled := schema.Key{Kind: schema.KindEntitlement, Tenant: "t", Project: "p", Name: "one"}
	a, b, other := schema.InstanceKey("t", "p", "a"), schema.InstanceKey("t", "p", "b"), schema.InstanceKey("t", "q", "a")
	platform := &schema.Platform{
		Apps:     map[string]*schema.App{"one": {}, "two": {}},
		Versions: map[string]map[string]*schema.AppVersion{"one": {"v": {}}, "two": {"v": {}}},
	}
	instance := func(k schema.Key, app string) *schema.Instance {
		return &schema.Instance{Header: head(k, false), Spec: schema.InstanceSpec{App: app, Version: "v"}}
	}
	ents := map[string]*schema.Entitlement{"one": {Header: head(entitled, false)},
		"two": {Header: head(schema.Key{Kind: schema.KindEntitlement, Tenant: "t", Project: "p", Name: "two"}, false)}}
	suspended := map[string]*schema.Entitlement{"one": {Header: head(entitled, true)}, "two": ents["two"]}
	instances := map[string]*schema.Instance{"a": instance(a, "one"), "b": instance(b, "two")}
	own := &schema.Instance{Header: head(a, true), Spec: instances["a"].Spec}
	others := &schema.ProjectEstate{Name: "q", Entitlements: ents, Instances: map[string]*schema.Instance{"a": instance(other, "one")}}
	estate := func(suspendTenant, suspendProject bool, ents map[string]*schema.Entitlement,
		instances map[string]*schema.Instance) *schema.TenantEstate {
		return &schema.TenantEstate{Name: "t", Tenant: &schema.Tenant{Header: head(tenant, suspendTenant)},
			Projects: map[string]*schema.ProjectEstate{"q": others, "p": {
				Name: "p", Project: &schema.Project{Header: head(project, suspendProject)}, Entitlements: ents, Instances: instances}}}
	}
	type by map[schema.Key]schema.Key
	var judge Judge
	for _, tc := range []struct {
		name   string
		estate *schema.TenantEstate
		want   by
	}{
		{"nothing", estate(false, false, ents, instances), by{a: {}, b: {}, other: {}}},
		{"tenant", estate(true, false, ents, instances), by{a: tenant, b: tenant, other: tenant}},
		{"nothing again", estate(false, false, ents, instances), by{a: {}, b: {}, other: {}}},
		{"project", estate(false, true, ents, instances), by{a: project, b: project, other: {}}},
		{"project still, another instance",
			estate(false, true, ents, map[string]*schema.Instance{"a": instances["a"], "b": instance(b, "two")}),
			by{a: project, b: project, other: {}}},
		{"tenant and project", estate(true, true, ents, instances), by{a: tenant, b: tenant, other: tenant}},
		{"entitlement", estate(false, false, suspended, instances), by{a: entitled, b: {}, other: {}}},
		{"instance", estate(false, false, ents, map[string]*schema.Instance{"a": own, "b": instances["b"]}), by{a: a, b: {}, other: {}}},
	} {
		for how, e := range map[string]*schema.EffectiveTenant{"afresh": EvaluateTenant(platform, tc.estate),
			"remembered": judge.Tenant(platform, tc.estate, nil, "2027-01-01")} {
			for k, want := range tc.want {
				i := e.Projects[k.Project].Units[k.Name]
				require.Equal(t, want, i.SuspendedBy, "%s, %s: %s", tc.name, how, k)
				require.Equal(t, !want.IsZero(), i.Suspend)
			}
		}
		x, ok := Explain(platform, tc.estate, a)
		require.True(t, ok)
		var said []Step
		for _, v := range x.Values {
			if v.Field == "suspend" {
				said = v.Steps
			}
		}
		require.Equal(t, !tc.want[a].IsZero(), len(said) > 0, tc.name)
		if len(said) > 0 {
			file, err := tc.want[a].Path()
			require.NoError(t, err)
			require.Equal(t, schema.Position{File: file, Line: 4, Column: 10}, said[0].Source)
		}
		if tc.name == "tenant and project" {
			require.Equal(t, []Scope{ScopeTenant, ScopeProject}, []Scope{said[0].Scope, said[1].Scope})
		}
	}
}

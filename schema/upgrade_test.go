package schema_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

// catalog has versions v1, v2 and v3 of the app batch; each comes from what from says.
func catalog(from map[string][]string) *schema.Platform {
	versions := map[string]*schema.AppVersion{}
	for _, name := range []string{"v1", "v2", "v3"} {
		v := &schema.AppVersion{Header: schema.Header{
			Key: schema.Key{Kind: schema.KindAppVersion, Parent: "batch", Name: name}, File: "platform/catalog/batch/" + name + ".yaml",
			Fields: []schema.FieldPos{{Path: "spec.manifest.upgrade_from", Line: 12, Column: 20}},
		}}
		v.Spec.Manifest.UpgradeFrom = from[name]
		versions[name] = v
	}
	return &schema.Platform{Versions: map[string]map[string]*schema.AppVersion{"batch": versions, "stream": versions}}
}

// upgraded is an estate with one instance, or one shared runtime of each sort.
func upgraded(p *schema.Platform, name, uid, app, version string, shared bool) *schema.Desired {
	header := func(key schema.Key) schema.Header {
		return schema.Header{Key: key, UID: uid, File: key.Name + ".yaml",
			Fields: []schema.FieldPos{{Path: "spec.version", Line: 7, Column: 12}}}
	}
	platform, t := *p, &schema.TenantEstate{Name: "physics"}
	d := &schema.Desired{Platform: &platform, Tenants: map[string]*schema.TenantEstate{"physics": t}}
	if shared {
		of := func(tenant string) map[string]*schema.SharedRuntimeEstate {
			key := schema.Key{Kind: schema.KindSharedRuntime, Tenant: tenant, Name: tenant + "-" + name}
			return map[string]*schema.SharedRuntimeEstate{name: {Runtime: &schema.SharedRuntime{Header: header(key),
				Spec: schema.SharedRuntimeSpec{App: app, Version: version}}}}
		}
		platform.SharedRuntimes, t.SharedRuntimes = of("platform"), of("physics")
		return d
	}
	i := &schema.Instance{Header: header(schema.InstanceKey("physics", "lab", name)), Spec: schema.InstanceSpec{App: app, Version: version}}
	t.Projects = map[string]*schema.ProjectEstate{"lab": {Instances: map[string]*schema.Instance{name: i}}}
	return d
}

func TestUpgradesFollowUpgradeFrom(t *testing.T) {
	p := catalog(map[string][]string{"v2": {"v1"}, "v3": {}})
	at := func(version string) *schema.Desired { return upgraded(p, "train", "u-1", "batch", version, false) }
	fromV1 := "train.yaml:7:12: error: spec.version: version v3 is in force here, and v2 of batch can be reached only from v1 " +
		"(platform/catalog/batch/v2.yaml:12): change to one of these first, or have the platform add v3 to upgrade_from " +
		"[lifecycle.upgrade-from]"
	never := "train.yaml:7:12: error: spec.version: version v1 is in force here, and v3 of batch can be reached from no version " +
		"(platform/catalog/batch/v3.yaml:12): create a new instance of v3 and delete this one, or have the platform add v1 to " +
		"upgrade_from [lifecycle.upgrade-from]"
	for _, c := range []struct {
		name          string
		before, after *schema.Desired
		want          []string
	}{
		{"the same version", at("v1"), at("v1"), nil},
		{"admitted", at("v1"), at("v2"), nil},
		{"not admitted", at("v3"), at("v2"), []string{fromV1}},
		{"an empty list admits none", at("v1"), at("v3"), []string{never}},
		{"no list admits any", at("v3"), at("v1"), nil},
		{"new", &schema.Desired{Platform: p}, at("v3"), nil},
		{"new beside another", upgraded(p, "eval", "u-2", "batch", "v1", false), at("v3"), nil},
		{"another app", upgraded(p, "train", "u-1", "stream", "v1", false), at("v3"), nil},
		{"moved by its uid", upgraded(p, "eval", "u-1", "batch", "v3", false), at("v2"), []string{fromV1}},
		{"without a uid", upgraded(p, "train", "", "batch", "v1", false), at("v3"), []string{never}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, d := range schema.Upgrades(c.before, c.after) {
				got = append(got, d.String())
			}
			require.Equal(t, c.want, got)
		})
	}

	shared := schema.Upgrades(upgraded(p, "commons", "", "batch", "v1", true), upgraded(p, "commons", "", "batch", "v3", true))
	require.Len(t, shared, 2, "the platform's and the tenant's")
	require.Equal(t, []string{"platform-commons.yaml", "physics-commons.yaml"}, []string{shared[0].File, shared[1].File})
}

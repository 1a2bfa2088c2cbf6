package schema_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

// owning is an estate in which some places, tenants or "" for the platform, have an app batch with a
// version v1, and in which each tenant with a project runs it.
func owning(apps []string, running ...string) *schema.Desired {
	head := func(k schema.Key) schema.Header {
		file, err := k.Path()
		if err != nil {
			panic(err)
		}
		return schema.Header{Key: k, File: file}
	}
	d := &schema.Desired{Platform: &schema.Platform{}, Tenants: map[string]*schema.TenantEstate{}}
	for _, tenant := range []string{"biology", "physics"} {
		d.Tenants[tenant] = &schema.TenantEstate{Name: tenant, Projects: map[string]*schema.ProjectEstate{}}
	}
	for _, tenant := range apps {
		app := &schema.App{Header: head(schema.Key{Kind: schema.KindApp, Tenant: tenant, Name: "batch"})}
		version := &schema.AppVersion{Header: head(schema.Key{Kind: schema.KindAppVersion, Tenant: tenant, Parent: "batch", Name: "v1"})}
		version.Spec.Manifest.Parameters = json.RawMessage(`{"of":"` + tenant + `"}`)
		if tenant == "" {
			d.Platform.Put(app)
			d.Platform.Put(version)
		} else {
			d.Tenants[tenant].Put(app)
			d.Tenants[tenant].Put(version)
		}
	}
	for _, tenant := range running {
		p := &schema.ProjectEstate{Name: "lab"}
		p.Put(&schema.Instance{Header: head(schema.InstanceKey(tenant, "lab", "train")),
			Spec: schema.InstanceSpec{App: "batch", Version: "v1"}})
		d.Tenants[tenant].Projects["lab"] = p
	}
	return d
}

// A slug means the tenant's own app, else the platform's, and never another tenant's.
func TestSlugMeansOwnAppFirst(t *testing.T) {
	for _, c := range []struct {
		apps []string
		want string // tenant of the app that physics names; "-": none
	}{
		{nil, "-"}, {[]string{"biology"}, "-"}, {[]string{""}, ""}, {[]string{"", "physics"}, "physics"},
		{[]string{"physics", "biology"}, "physics"},
	} {
		d := owning(c.apps)
		app, version := d.App("physics", "batch"), d.Version("physics", "batch", "v1")
		if c.want == "-" {
			require.Nil(t, app)
			require.Nil(t, version)
			continue
		}
		require.Equal(t, c.want, app.Key.Tenant)
		require.Equal(t, c.want, version.Key.Tenant)
		require.Nil(t, d.Version("physics", "batch", "v2"))
	}
	require.Nil(t, owning([]string{"physics"}).App("", "batch"), "the platform names no tenant's app")
}

// Only the app of a tenant that has the slug of the platform's is warned of (F9).
func TestShadowing(t *testing.T) {
	for _, c := range []struct {
		apps []string
		want []string
	}{
		{[]string{""}, nil},
		{[]string{"physics", "biology"}, nil},
		{[]string{"", "physics"}, []string{"warning tenants/physics/catalog/batch/app.yaml"}},
		{[]string{"", "physics", "biology"},
			[]string{"warning tenants/biology/catalog/batch/app.yaml", "warning tenants/physics/catalog/batch/app.yaml"}},
	} {
		var got []string
		for _, d := range schema.Shadowing(owning(c.apps)) {
			got = append(got, string(d.Severity)+" "+d.File)
			require.Equal(t, schema.CodeAppShadowed, d.Code)
			require.Contains(t, d.Message, "platform/catalog/batch/app.yaml")
		}
		require.Equal(t, c.want, got)
	}
}

// A published version of a tenant's own app cannot change while a unit runs it.
func TestOwnVersionIsPublishedOnce(t *testing.T) {
	const file = "tenants/physics/catalog/batch/v1.yaml"
	changed := func(running ...string) *schema.Desired {
		d := owning([]string{"", "physics"}, running...)
		d.Tenants["physics"].Versions["batch"]["v1"].Spec.RuntimeBackend = "ray"
		return d
	}
	for _, c := range []struct {
		name, want string
		running    []string
	}{
		{"in use", "error " + file, []string{"physics"}},
		{"in use elsewhere, where the slug means the platform's", "warning " + file, []string{"biology"}},
		{"not in use", "warning " + file, nil},
	} {
		ds := schema.Lifecycle(owning([]string{"", "physics"}, c.running...), changed(c.running...))
		require.Len(t, ds, 1, c.name)
		require.Equal(t, c.want, string(ds[0].Severity)+" "+ds[0].File, c.name)
	}
}

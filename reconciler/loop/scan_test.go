package loop

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

// publishing is an estate in which each tenant has artifacts.
func publishing(tenants, artifacts int) *schema.Desired {
	d := &schema.Desired{Platform: &schema.Platform{ArtifactSources: map[string]*schema.ArtifactSource{
		"registry": {Spec: schema.ArtifactSourceSpec{Type: schema.SourceOCI, Host: "registry.example"}},
	}}, Tenants: map[string]*schema.TenantEstate{}}
	for i := range tenants {
		name := fmt.Sprintf("t%d", i)
		d.Tenants[name] = publisher(name, artifacts)
	}
	return d
}

func publisher(tenant string, artifacts int) *schema.TenantEstate {
	project := &schema.ProjectEstate{Name: "lab", Artifacts: map[string]*schema.Artifact{}}
	for i := range artifacts {
		key := schema.Key{Kind: schema.KindArtifact, Tenant: tenant, Project: "lab", Name: fmt.Sprintf("a%d", i)}
		project.Artifacts[key.Name] = &schema.Artifact{Header: schema.Header{Key: key},
			Spec: schema.ArtifactSpec{App: "batch", Source: "registry", Reference: "x:1"}}
	}
	return &schema.TenantEstate{Name: tenant, Projects: map[string]*schema.ProjectEstate{"lab": project}}
}

// A change by a tenant causes a scan of that tenant only, in an estate of any size. A
// change by the platform may concern every tenant.
func TestScanReadsChangedTenantsOnly(t *testing.T) {
	for _, tenants := range []int{10, 100} {
		last := publishing(tenants, 5)
		looks := artifactScanner{}
		all, prints, gone := looks.difference(last)
		require.Len(t, all, 5*tenants)
		require.Len(t, prints, 5*tenants)
		require.Empty(t, gone)
		looks.desired = last

		next := &schema.Desired{Platform: last.Platform, Tenants: maps.Clone(last.Tenants)}
		next.Tenants["t3"] = publisher("t3", 3)
		next.Tenants["t3"].Projects["lab"].Artifacts["a1"].Suspend = true
		delete(next.Tenants, "t4")
		all, prints, gone = looks.difference(next)
		require.Len(t, all, 3, "in %d tenants", tenants)
		require.Len(t, prints, 2)
		slices.SortFunc(gone, schema.Key.Compare)
		require.Len(t, gone, 2+5)
		require.Equal(t, "a3", gone[0].Name)

		looks.desired = next
		_, prints, gone = looks.difference(&schema.Desired{Platform: next.Platform, Tenants: next.Tenants})
		require.Empty(t, prints)
		require.Empty(t, gone)
		platform := *next.Platform
		_, prints, _ = looks.difference(&schema.Desired{Platform: &platform, Tenants: next.Tenants})
		require.Len(t, prints, 5*(tenants-2)+2)
	}
}

package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/policy"
)

const (
	registryFile   = "platform/artifact-sources/registry.yaml"
	departmentFile = "tenants/physics/artifact-sources/department.yaml"
	solverFile     = "tenants/physics/projects/lattice/artifacts/solver.yaml"
)

func source(name, spec string) string { return document("ArtifactSource", name, spec) }

// The deciding layer for each source, tenant and project.
func TestSourceAllowed(t *testing.T) {
	noList := document("Policy", "campus", "allowed_regions: [campus-north, campus-south]")
	narrow := map[string]string{
		"tenants/physics/projects/lattice/entitlements/slurm.yaml": document("Entitlement", "slurm",
			"enabled: true\npolicy_overrides: {artifact_source_allowlist: [registry.campus.example]}"),
	}
	for name, tc := range map[string]struct {
		over    map[string]string
		source  string // tenant/name, or the name of a platform source
		tenant  string
		project string
		want    string // verdict, and the layer
		message string
	}{
		"a tenant's that the platform lists": {nil, "physics/department", "physics", "lattice", "allow " + campusPolicy + ":11",
			"registry.physics.example is allowed"},
		"not within what the entitlement leaves": {narrow, "physics/department", "physics", "lattice", "deny " + entitlement + ":7",
			"registry.physics.example is not allowed, only registry.campus.example"},
		"another project's entitlement does not apply": {narrow, "physics/department", "physics", "collider",
			"allow " + campusPolicy + ":11", "registry.physics.example is allowed"},
		"the platform's": {nil, "registry", "physics", "lattice", "allow " + campusPolicy + ":11",
			"registry.campus.example is allowed"},
		"the platform's, listed by nobody": {map[string]string{campusPolicy: noList}, "registry", "physics", "lattice",
			"allow platform/artifact-sources/registry.yaml:8", "registry.campus.example is allowed"},
		"a tenant's, listed by nobody": {map[string]string{campusPolicy: noList}, "physics/department", "physics", "",
			"deny platform/artifact-sources/registry.yaml:8", "registry.physics.example is not allowed, only registry.campus.example"},
		"a tenant's, listed only by the tenant": {map[string]string{campusPolicy: noList,
			physPolicy: document("Policy", "policy", "artifact_source_allowlist: [registry.physics.example]")},
			"physics/department", "physics", "", "deny platform/artifact-sources/registry.yaml:8",
			"registry.physics.example is not allowed, only registry.campus.example"},
		"another tenant's": {nil, "physics/department", "biology", "", "deny " + departmentFile + ":4",
			"ArtifactSource physics/department is for its own tenant alone"},
		"a directory": {nil, "mirror", "physics", "lattice", "allow platform/artifact-sources/mirror.yaml:6",
			"a directory of the platform's"},
		"another port": {map[string]string{campusPolicy: document("Policy", "campus",
			`artifact_source_allowlist: ["registry.campus.example:443"]`)},
			"registry", "", "", "deny " + campusPolicy + ":6", "registry.campus.example is not allowed, only registry.campus.example:443"},
	} {
		t.Run(name, func(t *testing.T) {
			d := estateFiles(t, campusRoot, tc.over)
			s := d.Platform.ArtifactSources[tc.source]
			if tenant, name, ok := strings.Cut(tc.source, "/"); ok {
				s = d.Tenants[tenant].ArtifactSources[name]
			}
			got, ok := policy.SourcesOf(d.Platform, d.Tenants[tc.tenant]).Allowed(tc.project, "slurm", s)
			require.Equal(t, tc.want, fmt.Sprintf("%s %s:%d", got.Verdict, got.Source.File, got.Source.Line))
			require.Equal(t, tc.message, got.Message)
			require.Equal(t, got.Verdict == schema.Allow, ok)
			require.Equal(t, "artifact_source_allowlist", got.Rule)
			require.Equal(t, s.Key, got.Key)
			require.Equal(t, s.File, got.At.File)
		})
	}
}

// The reader refuses a tenant's source of type file; policy denies it too.
func TestTenantSourceCannotBeADirectory(t *testing.T) {
	s := &schema.ArtifactSource{Header: schema.Header{Key: schema.Key{Kind: schema.KindArtifactSource, Tenant: "a", Name: "s"},
		File: "s.yaml"},
		Spec: schema.ArtifactSourceSpec{Type: schema.SourceFile, Directory: "/srv"}}
	d, ok := policy.SourcesOf(&schema.Platform{}, &schema.TenantEstate{Name: "a"}).Allowed("", "", s)
	require.False(t, ok)
	require.Equal(t, "spec.type", d.Field)
}

// A denial is reported at the source and at its uses, with the position of the
// denying layer, and nowhere else.
func TestDeniedSourcesAreReportedAtUses(t *testing.T) {
	say := func(over map[string]string, opts ...policy.Option) (all []string) {
		for _, d := range policy.Findings(policy.Evaluate(estateFiles(t, campusRoot, over), opts...).Decisions()) {
			all = append(all, d.String())
		}
		return all
	}
	require.Empty(t, say(nil))

	require.Equal(t, []string{
		departmentFile + ":7:9: error: spec.host: registry.physics.example is not allowed, only registry.campus.example (" + physPolicy +
			":6) [policy.artifact_source_allowlist]",
		"tenants/physics/catalog/beamline/2026-1.yaml:27:17: error: spec.manifest.artifacts.packages.source: the artifact packages of " +
			"AppVersion physics/beamline/2026-1 comes from ArtifactSource physics/department: registry.physics.example is not allowed, " +
			"only registry.campus.example (" + physPolicy + ":6) [policy.artifact_source_allowlist]",
		"tenants/physics/projects/lattice/artifacts/solver-next.yaml:8:11: error: spec.source: it comes from ArtifactSource " +
			"physics/department: registry.physics.example is not allowed, only registry.campus.example (" + physPolicy +
			":6) [policy.artifact_source_allowlist]",
		solverFile + ":8:11: error: spec.source: it comes from ArtifactSource physics/department: registry.physics.example is not " +
			"allowed, only registry.campus.example (" + physPolicy + ":6) [policy.artifact_source_allowlist]",
	}, say(map[string]string{physPolicy: document("Policy", "policy", "artifact_source_allowlist: [registry.campus.example]")}))

	require.Equal(t, []string{
		registryFile + ":8:9: error: spec.host: elsewhere.example is not allowed, only *.physics.example, registry.campus.example (" +
			campusPolicy + ":11) [policy.artifact_source_allowlist]",
		"tenants/biology/projects/genomes/artifacts/aligner.yaml:7:11: error: spec.source: it comes from ArtifactSource registry: " +
			"elsewhere.example is not allowed, only *.physics.example, registry.campus.example (" + campusPolicy +
			":11) [policy.artifact_source_allowlist]",
	}, say(map[string]string{registryFile: "#\n" + source("registry", "type: oci\nhost: elsewhere.example")}))
}

// Berth reads only shared repositories with the platform's credential for a
// tenant.
func TestReferenceAllowedLimitsRepositories(t *testing.T) {
	source := func(tenant, credential string, repositories ...string) *schema.ArtifactSource {
		return &schema.ArtifactSource{Header: schema.Header{Key: schema.Key{Kind: schema.KindArtifactSource, Tenant: tenant,
			Name: "registry"}},
			Spec: schema.ArtifactSourceSpec{Type: schema.SourceOCI, Host: "registry.example", Credential: credential,
				Repositories: repositories}}
	}
	of := func(typ string, repositories ...string) *schema.ArtifactSource {
		s := source("", "", repositories...)
		s.Spec.Type = typ
		return s
	}
	shares := source("", "pull", "{tenant}/{project}", "commons")
	key := schema.Key{Kind: schema.KindArtifact, Tenant: "physics", Project: "lattice", Name: "solver"}
	for _, c := range []struct {
		source    *schema.ArtifactSource
		reference string
		ok        bool
	}{
		{shares, "physics/lattice:1", true},
		{shares, "physics/lattice", true},
		{shares, "physics/lattice/solver:1", true},
		{shares, "commons/base:1", true},
		{shares, "physics/collider/solver:1", false},
		{shares, "physics/lattice2/solver:1", false},
		{shares, "physics/lattice-solver:1", false},
		{shares, "biology/genomes/aligner:1", false},
		{shares, "commons.secret:1", false},
		{shares, "x/physics/lattice:1", false},
		{source("", "", "{tenant}/{project}"), "biology/genomes/aligner:1", false},
		{of(schema.SourceHTTP, "{tenant}/{project}"), "physics/lattice/solver.tar", true},
		{of(schema.SourceHTTP, "{tenant}/{project}"), "physics/lattice", true},
		{of(schema.SourceHTTP, "{tenant}/{project}"), "physics/lattice:secret", false},
		{of(schema.SourceHTTP, "{tenant}/{project}"), "biology/genomes/aligner.tar", false},
		{of(schema.SourceHTTP), "biology/genomes/aligner.tar", true},
		{of(schema.SourceFile, "{tenant}/{project}"), "physics/lattice/solver.tar", true},
		{of(schema.SourceFile, "{tenant}/{project}"), "physics/lattice", false},
		{of(schema.SourceFile, "{tenant}/{project}"), "physics/lattice:secret", false},
		{of(schema.SourceFile, "{tenant}/{project}"), "physics/collider/solver.tar", false},
		{of(schema.SourceFile, "{tenant}/{project}"), "biology/genomes/reference-1.tar", false},
		{of(schema.SourceFile), "physics/lattice/solver.tar", false},
		{source("", ""), "biology/genomes/aligner:1", true},
		{source("", "pull"), "biology/genomes/aligner:1", true},
		{source("physics", "own"), "biology/genomes/aligner:1", true},
	} {
		within, d, ok := policy.ReferenceAllowed(key, c.reference, c.source)
		require.Equal(t, ok && len(c.source.Spec.Repositories) > 0, within != "", c.reference)
		require.Equal(t, c.ok, ok, "%s: %s", c.reference, d.Message)
		require.Equal(t, ok, d.Verdict == schema.Allow)
	}
	require.True(t, policy.Shared(shares))
	require.True(t, policy.Shared(source("", "")))
	require.True(t, policy.Shared(source("physics", "own")))
	require.False(t, policy.Shared(source("", "pull")))

	e := policy.Evaluate(estateFiles(t, campusRoot, map[string]string{
		registryFile: document("ArtifactSource", "registry",
			"type: oci\nhost: registry.campus.example\ncredential: registry-pull\nrepositories: [commons]")}))
	var all []string
	for _, d := range policy.Findings(e.Decisions()) {
		all = append(all, d.String())
	}
	require.Equal(t, []string{"tenants/biology/projects/genomes/artifacts/aligner.yaml:8:14: error: spec.reference: " +
		"biology/genomes/aligner:2 is not within what ArtifactSource registry shares with this project: commons (" + registryFile +
		":9) [policy.repositories]"}, all)
}

// A tenant cannot probe a directory that shares no repositories.
func TestUnsharedDirectoryServesNoTenant(t *testing.T) {
	const mirrorFile = "platform/artifact-sources/mirror.yaml"
	say := func(spec string) (all []string) {
		for _, d := range policy.Findings(policy.Evaluate(estateFiles(t, campusRoot,
			map[string]string{mirrorFile: document("ArtifactSource", "mirror", spec)})).Decisions()) {
			all = append(all, d.String())
		}
		return all
	}
	at := "tenants/biology/projects/genomes/artifacts/reference-%d.yaml:9:14: error: spec.reference: "
	require.Equal(t, []string{
		fmt.Sprintf(at, 0) + "ArtifactSource mirror shares nothing with projects: the platform names repositories in it for what they " +
			"publish, or another source is used (" + mirrorFile + ":5) [policy.repositories]",
		fmt.Sprintf(at, 1) + "ArtifactSource mirror shares nothing with projects: the platform names repositories in it for what they " +
			"publish, or another source is used (" + mirrorFile + ":5) [policy.repositories]",
	}, say("type: file\ndirectory: /srv/mirror"))
	require.Equal(t, []string{
		fmt.Sprintf(at, 0) + "biology/genomes/reference-0.tar is not within what ArtifactSource mirror shares with this project: commons " +
			"(" + mirrorFile + ":8) [policy.repositories]",
		fmt.Sprintf(at, 1) + "biology/genomes/reference-1.tar is not within what ArtifactSource mirror shares with this project: commons " +
			"(" + mirrorFile + ":8) [policy.repositories]",
	}, say("type: file\ndirectory: /srv/mirror\nrepositories: [commons]"))
	require.Empty(t, say("type: file\ndirectory: /srv/mirror\nrepositories: [\"{tenant}\"]"))
}

// An instance does not use a version whose artifacts its tenant may not fetch.
func TestVersionFromDeniedSourceIsDenied(t *testing.T) {
	over := map[string]string{
		"platform/artifact-sources/mirror.yaml": source("mirror", "type: http\nhost: registry.campus.example"),
		physPolicy:                              document("Policy", "policy", `artifact_source_allowlist: ["*.physics.example"]`),
	}
	e := policy.Evaluate(estateFiles(t, campusRoot, over))
	denied := e.Denied(train)
	require.Len(t, denied, 1)
	require.Equal(t, "spec.version", denied[0].Field)
	require.Equal(t, "the artifact packages of AppVersion slurm/22-05 comes from ArtifactSource mirror: registry.campus.example is not "+
		"allowed, only *.physics.example", denied[0].Message)
	require.Equal(t, physPolicy, denied[0].Source.File)
	require.Empty(t, e.Denied(folding), "another tenant's go on")

	over = map[string]string{"platform/artifact-sources/mirror.yaml": source("mirror", "type: http\nhost: elsewhere.example")}
	e = policy.Evaluate(estateFiles(t, campusRoot, over))
	require.NotEmpty(t, e.Denied(train))
	version := e.Denied(schema.Key{Kind: schema.KindAppVersion, Parent: "slurm", Name: "22-05"})
	require.Len(t, version, 1)
	require.Equal(t, "spec.manifest.artifacts.packages.source", version[0].Field)
	require.Equal(t, slurmVersion, version[0].At.File)
}

// The entitlement to an app limits the sources of a project's artifacts for it;
// the source itself belongs to the tenant.
func TestEntitlementsLimitArtifactSources(t *testing.T) {
	e := policy.Evaluate(estateFiles(t, campusRoot, map[string]string{
		entitlement: document("Entitlement", "slurm",
			"enabled: true\npolicy_overrides: {artifact_source_allowlist: [registry.campus.example]}")}))
	var files []string
	for _, d := range policy.Findings(e.Decisions()) {
		files = append(files, d.File)
	}
	require.Equal(t, []string{"tenants/physics/projects/lattice/artifacts/solver-next.yaml", solverFile}, files)
}

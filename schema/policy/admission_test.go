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
	beamApp       = "tenants/physics/catalog/beamline/app.yaml"
	beamVersion   = "tenants/physics/catalog/beamline/2026-1.yaml"
	beamEntitled  = "tenants/physics/projects/collider/entitlements/beamline.yaml"
	beamInstance  = "tenants/physics/projects/collider/instances/beam.yaml"
	beamAdmission = "platform/admissions/physics/beamline.yaml"
	beamRuntime   = "tenants/physics/shared-runtimes/beam/runtime.yaml"
)

func beam(extra string) string {
	return document("Instance", "beam", "app: beamline\nversion: 2026-1\ndisplay_name: Beam\n"+extra)
}

func admission(scopes, backends, sources string) string {
	return document("AppAdmission", "beamline",
		"allowed_control_plane_scopes: ["+scopes+"]\nallowed_runtime_backends: ["+backends+"]\nartifact_source_allowlist: ["+sources+"]")
}

// A tenant's own app is used only as far as the platform admits it. Each denial names the document of
// the tenant and the admission, or says that the admission is missing (F9).
func TestOwnAppNeedsAdmission(t *testing.T) {
	const none = "the app beamline of the tenant is a proposal without an admission (no " + beamAdmission +
		"): ask a user with apps.catalog.admit for one (" + beamApp + ":5)"
	runtime := document("SharedRuntime", "beam",
		"app: beamline\nversion: 2026-1\ndisplay_name: Beam\nenvironment: beam\noperating_mode: tenant_dedicated\ncontrol_plane_scope: "+
			"tenant\noperator_identity_ref: department")
	shares := strings.Replace(campusFile(t, beamApp, "", ""), "  category",
		"  supports: {control_plane_scopes: [project, tenant]}\n  category", 1)
	for name, tc := range map[string]struct {
		over map[string]string
		want []string
	}{
		"admitted": {nil, nil},
		"no admission": {map[string]string{beamAdmission: ""}, []string{
			beamEntitled + ":4:9: error: metadata.name: " + none + " [policy.admission]",
			beamInstance + ":6:8: error: spec.app: " + none + " [policy.admission]"}},
		"no admission, no entitlement": {map[string]string{beamAdmission: "",
			beamEntitled: document("Entitlement", "beamline", "enabled: false"), beamInstance: ""}, nil},
		"another tenant's admission": {map[string]string{beamAdmission: "",
			"platform/admissions/biology/beamline.yaml": campusFile(t, beamAdmission, "", ""), beamInstance: ""},
			[]string{beamEntitled + ":4:9: error: metadata.name: " + none + " [policy.admission]"}},
		"another app's admission": {map[string]string{beamAdmission: "",
			"platform/admissions/physics/other.yaml": strings.Replace(campusFile(t, beamAdmission, "", ""), "name: beamline", "name: other",
				1), beamInstance: ""}, []string{beamEntitled + ":4:9: error: metadata.name: " + none + " [policy.admission]"}},
		"another scope": {map[string]string{beamAdmission: admission("tenant", "slurm", "registry.physics.example")}, []string{
			beamInstance + ":5:1: error: spec.control_plane_scope: project is not allowed, only tenant (" + beamAdmission +
				":6) [policy.allowed_control_plane_scopes]"}},
		"another backend": {map[string]string{beamAdmission: admission("project", "ray, k8s", "registry.physics.example")}, []string{
			beamInstance + ":7:12: error: spec.version: AppVersion physics/beamline/2026-1 runs on slurm (" + beamVersion +
				":7), and the app is admitted on ray, k8s only (" + beamAdmission + ":7) [policy.admission]"}},
		"no source": {map[string]string{beamAdmission: admission("project", "slurm", "")}, []string{
			beamInstance + ":7:12: error: spec.version: the artifact packages of AppVersion physics/beamline/2026-1 comes from " +
				"ArtifactSource physics/department: registry.physics.example is not allowed, nothing is (" + beamAdmission +
				":8) [policy.artifact_source_allowlist]"}},
		"a source that the tenant names as one that is admitted": {map[string]string{
			"tenants/physics/artifact-sources/registry.yaml": source("registry", "type: oci\nhost: other.physics.example"),
			beamVersion:   strings.Replace(campusFile(t, beamVersion, "", ""), "source: department", "source: registry", 1),
			beamAdmission: admission("project", "slurm", "registry.campus.example")}, []string{
			beamInstance + ":7:12: error: spec.version: the artifact packages of AppVersion physics/beamline/2026-1 comes from " +
				"ArtifactSource physics/registry: other.physics.example is not allowed, only registry.campus.example (" + beamAdmission +
				":8) [policy.artifact_source_allowlist]"}},
		"what the platform's source does not share": {map[string]string{
			beamVersion: strings.NewReplacer("source: department", "source: mirror", "beamline/slurm:22.05.8",
				"debian/slurm.tar").Replace(campusFile(t, beamVersion, "", ""))}, []string{
			beamVersion + ":27:17: error: spec.manifest.artifacts.packages.source: ArtifactSource mirror shares nothing with tenants: " +
				"the platform names repositories in it for what they publish, or another source is used " +
				"(platform/artifact-sources/mirror.yaml:9) [policy.repositories]",
			beamInstance + ":7:12: error: spec.version: ArtifactSource mirror shares nothing with tenants: the platform names " +
				"repositories in it for what they publish, or another source is used (platform/artifact-sources/mirror.yaml:9) " +
				"[policy.repositories]"}},
		"a shared runtime": {map[string]string{beamApp: shares, beamRuntime: runtime}, []string{
			beamRuntime + ":11:24: error: spec.control_plane_scope: tenant is not allowed, only project (" + beamAdmission +
				":7) [policy.allowed_control_plane_scopes]"}},
		"a shared runtime, no admission": {map[string]string{beamApp: shares, beamRuntime: runtime, beamAdmission: "", beamInstance: "",
			beamEntitled: ""}, []string{
			beamRuntime + ":6:8: error: spec.app: " + none + " [policy.admission]"}},
		"a shared runtime that is admitted": {map[string]string{beamApp: shares, beamRuntime: runtime,
			beamAdmission: admission("project, tenant", "slurm", `"*.physics.example"`)}, nil},
		"an entitlement that allows more": {map[string]string{beamEntitled: document("Entitlement", "beamline",
			"enabled: true\npolicy_overrides: {allowed_control_plane_scopes: [project, tenant]}")}, []string{
			beamEntitled + ":7:62: error: spec.policy_overrides.allowed_control_plane_scopes[1]: allows tenant, which is not allowed " +
				"above: only project (" + beamAdmission + ":7); a layer below can only narrow [policy.wider]"}},
	} {
		t.Run(name, func(t *testing.T) {
			over := map[string]string{beamInstance: beam("")}
			for path, text := range tc.over {
				over[path] = text
			}
			d := estateFiles(t, campusRoot, over)
			var got []string
			for _, f := range append(policy.Findings(policy.Evaluate(d).Decisions()), policy.Wider(d)...) {
				got = append(got, f.String())
			}
			require.Equal(t, tc.want, got)
		})
	}
}

// A denial of each region that a unit asks for names the regions that policy allows.
func TestDeniedRegionsNameTheAllowedOnes(t *testing.T) {
	const train = "tenants/physics/projects/lattice/instances/train.yaml"
	d := estateFiles(t, campusRoot,
		map[string]string{train: campusFile(t, train, "requested_by:", "regions: [campus-west]\n  requested_by:")})
	got := policy.Findings(policy.Evaluate(d).Decisions())
	require.Len(t, got, 1)
	require.Contains(t, got[0].Message, "spec.regions: policy does not allow campus-west, only campus-north (")
}

// An admission that no version of the app meets is reported at the list that excludes them.
func TestAdmissionThatNoVersionMeetsIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		admission string
		want      []string
	}{
		"scope": {admission("tenant", "slurm", "registry.physics.example"),
			[]string{":6:3: warning: spec.allowed_control_plane_scopes: this " +
				"admission allows no instance of beamline: the app supports project (" + beamApp + ")"}},
		"backend": {admission("project", "ray", "registry.physics.example"),
			[]string{":7:3: warning: spec.allowed_runtime_backends: this " +
				"admission allows no instance of beamline: its versions run on slurm (" + beamApp + ")"}},
		"host": {admission("project", "slurm", "quay.example"),
			[]string{":8:3: warning: spec.artifact_source_allowlist: this admission allows no " +
				"instance of beamline: its versions have artifacts from registry.physics.example (" + beamApp + ")"}},
		"met": {admission("tenant, project", "ray, slurm", `"*.physics.example"`), nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := estateFiles(t, campusRoot, map[string]string{beamAdmission: c.admission})
			var got []string
			for _, f := range (&policy.CapacityChecker{}).Check(d, policy.Evaluate(d), true) {
				if f.Code == policy.CodeUselessAdmission {
					got = append(got, f.String())
				}
			}
			require.Len(t, got, len(c.want))
			for i, want := range c.want {
				require.Equal(t, beamAdmission+want+"; allow one of them here ["+policy.CodeUselessAdmission+"]", got[i])
			}
		})
	}
}

// A withdrawn admission holds running units, as a narrowed policy does.
func TestWithdrawnAdmissionHoldsUnits(t *testing.T) {
	key := schema.InstanceKey("physics", "collider", "beam")
	exists := policy.Existing(func(schema.Key) bool { return true })
	before := policy.Evaluate(estateFiles(t, campusRoot, map[string]string{beamInstance: beam("")}), exists)
	require.Nil(t, before.Noncompliance(key))
	d := estateFiles(t, campusRoot, map[string]string{beamInstance: beam(""), beamAdmission: "", physPolicy: ""})
	after := policy.Evaluate(d, exists)
	n := after.Noncompliance(key)
	require.Equal(t, schema.FateHeld, n.Fate)
	require.Equal(t, "admission", n.Because[0].Rule)
	require.Equal(t, before.Unit(key).DesiredState, after.Unit(key).DesiredState)
	require.Equal(t, []schema.Noncompliance{*n}, policy.Impacted(before, after))

	// From a day on, the policy of campus physics stops units that it does not allow.
	stops := estateFiles(t, campusRoot, map[string]string{beamInstance: beam(""), beamAdmission: ""})
	require.Equal(t, schema.FateStopping, policy.Evaluate(stops, exists, policy.At("2027-01-01")).Noncompliance(key).Fate)
	stopped := policy.Evaluate(stops, exists, policy.At("2027-03-31"))
	require.Equal(t, schema.FateStopped, stopped.Noncompliance(key).Fate)
	require.Equal(t, schema.DesiredStopped, stopped.Unit(key).DesiredState)
}

// The explanation of an instance of an own app has the admission among its layers.
func TestExplainShowsTheAdmission(t *testing.T) {
	key := schema.InstanceKey("physics", "collider", "beam")
	says := func(over map[string]string) (lines []string) {
		over[beamInstance] = beam("")
		d := estateFiles(t, campusRoot, over)
		x, ok := policy.Explain(d.Platform, d.Tenants["physics"], key)
		require.True(t, ok)
		for _, v := range x.Values {
			for _, s := range v.Steps {
				if s.Scope == policy.ScopeAdmission || v.Field == "admitted" {
					lines = append(lines, fmt.Sprintf("%s %s:%d %s", v.Field, s.Source.File, s.Source.Line, policy.Text(s.Value)))
				}
			}
		}
		return lines
	}
	require.Equal(t, []string{
		"admitted " + beamApp + ":5 false", "admitted " + beamAdmission + ":5 true",
		"allowed_runtime_backends " + beamAdmission + ":8 slurm",
		"control_plane_scope " + beamAdmission + ":7 project",
		"artifact_source_allowlist " + beamAdmission + ":9 registry.physics.example",
	}, says(map[string]string{}))
	require.Equal(t, []string{"admitted " + beamApp + ":5 false"}, says(map[string]string{beamAdmission: ""}))
}

// Two tenants may have apps with one slug. Each has its own.
func TestOwnAppsOfTenantsAreUnrelated(t *testing.T) {
	const biology = "tenants/biology/projects/genomes/"
	over := map[string]string{
		beamInstance: beam(""),
		"tenants/biology/catalog/beamline/app.yaml": campusFile(t, beamApp, "", ""),
		"tenants/biology/catalog/beamline/2026-1.yaml": strings.Replace(strings.Split(campusFile(t, beamVersion, "", ""),
			"    artifacts:")[0], "max_time_minutes: 120", "max_time_minutes: 7", 1),
		biology + "entitlements/beamline.yaml": document("Entitlement", "beamline", "enabled: true"),
		biology + "instances/beam.yaml":        beam(""),
	}
	d := estateFiles(t, campusRoot, over)
	e := policy.Evaluate(d)
	require.True(t, deniedUnit(e, schema.InstanceKey("biology", "genomes", "beam")), "the admission is for physics")
	require.False(t, deniedUnit(e, schema.InstanceKey("physics", "collider", "beam")))
	require.Contains(t, string(e.Unit(schema.InstanceKey("physics", "collider", "beam")).Config), `"max_time_minutes":120`)
	require.Contains(t, string(e.Unit(schema.InstanceKey("biology", "genomes", "beam")).Config), `"max_time_minutes":7`)
}

func deniedUnit(e *schema.Effective, key schema.Key) bool {
	for _, d := range e.Decisions() {
		if d.Key == key && d.Verdict == schema.Deny {
			return true
		}
	}
	return false
}

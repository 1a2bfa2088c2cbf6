package policy_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/policy"
)

var (
	departmentKey = schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "department"}
	commonsKey    = schema.Key{Kind: schema.KindSharedRuntime, Name: "commons"}
	assemblyKey   = schema.InstanceKey("biology", "genomes", "assembly")
)

// productModes are the units of the campus, by product mode: instances with a control
// plane of their own, and shared runtimes with the instances that use them.
var productModes = map[string][]schema.Key{
	"project-scoped":   {train, assemblyKey},
	"tenant-owned":     {departmentKey, analysis},
	"platform-managed": {commonsKey, folding},
}

// campusUnder is the campus with the App slurm that declares supports.
func campusUnder(t *testing.T, supports string) *schema.Desired {
	t.Helper()
	return estateFiles(t, "../../examples/campus", map[string]string{appFile: app(supports)})
}

// deniedModes returns the product modes whose units policy denies, sorted. Units of one
// mode have the same fate.
func deniedModes(t *testing.T, e *schema.Effective) (modes []string) {
	t.Helper()
	for mode, units := range productModes {
		denied := 0
		for _, key := range units {
			if len(e.Denied(key)) > 0 {
				denied++
			}
		}
		require.Contains(t, []int{0, len(units)}, denied, mode)
		if denied > 0 {
			modes = append(modes, mode)
		}
	}
	slices.Sort(modes)
	return modes
}

// explained returns the explanation of an instance or a shared runtime.
func explained(t *testing.T, d *schema.Desired, key schema.Key) map[string]policy.Value {
	t.Helper()
	e, ok := policy.ExplainShared(d, key)
	if key.Kind == schema.KindInstance {
		e, ok = policy.Explain(d.Platform, d.Tenants[key.Tenant], key)
	}
	require.True(t, ok)
	values := map[string]policy.Value{}
	for _, v := range e.Values {
		values[v.Field] = v
	}
	return values
}

// Requirement B5: each product mode is allowed exactly if the App supports it. A denial
// names the App's line, the unit's line, what the App supports and the next step, and the
// explanation has the App as a step.
func TestProductModes(t *testing.T) {
	var told strings.Builder
	for _, tc := range []struct {
		supports string
		denied   []string
	}{
		{"supports: {operating_modes: [tenant_dedicated, platform_managed], control_plane_scopes: [project, tenant, platform]}", nil},
		{"supports: {operating_modes: [tenant_dedicated, platform_managed], control_plane_scopes: [tenant, platform]}",
			[]string{"project-scoped"}},
		{"supports: {operating_modes: [tenant_dedicated, platform_managed], control_plane_scopes: [project, platform]}",
			[]string{"tenant-owned"}},
		{"supports: {operating_modes: [tenant_dedicated], control_plane_scopes: [project, tenant]}", []string{"platform-managed"}},
		{"supports: {control_plane_scopes: [tenant]}", []string{"platform-managed", "project-scoped"}},
		{"supports: {operating_modes: [platform_managed], control_plane_scopes: [platform]}", []string{"project-scoped", "tenant-owned"}},
	} {
		d := campusUnder(t, tc.supports)
		e := policy.Evaluate(d)
		require.Equal(t, tc.denied, deniedModes(t, e), tc.supports)
		fmt.Fprintf(&told, "== %s\n", tc.supports)
		for _, mode := range tc.denied {
			for _, key := range productModes[mode] {
				for _, one := range e.Denied(key) {
					fmt.Fprintf(&told, "%s\n", policy.Findings([]schema.Decision{one})[0])
					require.Equal(t, "app_supports", one.Rule)
					require.Equal(t, schema.Position{File: appFile, Line: 9}, schema.Position{File: one.Source.File, Line: one.Source.Line})
					require.Equal(t, d.Header(key).File, one.At.File)
					value := explained(t, d, key)[strings.TrimPrefix(one.Field, "spec.")]
					require.Contains(t, value.Decisions, one)
					i := slices.IndexFunc(value.Steps, func(s policy.Step) bool { return s.Source == one.Source })
					require.GreaterOrEqual(t, i, 0, "the App is a step")
					require.Contains(t, []policy.Scope{policy.ScopeApp, policy.ScopeDefault}, value.Steps[i].Scope,
						"declared, or the App's default")
				}
			}
		}
	}
	golden(t, "testdata/modes.txt", told.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(got), 0o600))
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// Requirement D7: an App that declares nothing is for instances with a control plane of
// their own, which it deploys as before; the other modes need a declaration.
func TestAppThatDeclaresNothing(t *testing.T) {
	silent, declared := campusUnder(t, ""),
		campusUnder(t, "supports: {operating_modes: [tenant_dedicated], control_plane_scopes: [project]}")
	require.Equal(t, []string{"tenant_dedicated"}, silent.Platform.Apps["slurm"].Spec.Supports.Modes())
	require.Equal(t, []string{"project"}, silent.Platform.Apps["slurm"].Spec.Supports.Scopes())
	require.True(t, silent.Platform.Apps["slurm"].Spec.Requires.AllowsPermission("apps.instance.read"))
	require.True(t, silent.Platform.Apps["slurm"].Spec.Requires.AllowsEndpoint("GET /api/v1/apps/catalog"))

	e, same := policy.Evaluate(silent), policy.Evaluate(declared)
	require.Equal(t, []string{"platform-managed", "tenant-owned"}, deniedModes(t, e))
	require.Equal(t, e.Unit(train), same.Unit(train))
	require.Equal(t, []policy.Scope{policy.ScopePlatform, policy.ScopeDefault, policy.ScopeDefault},
		scopesOf(explained(t, silent, train)["control_plane_scope"]),
		"policy, the App's default and the instance's default")
	denied := e.Denied(analysis)
	require.Len(t, denied, 1)
	require.Equal(t, schema.Position{File: appFile, Line: 5, Column: 1}, denied[0].Source, "the spec, where it would be declared")
	require.Len(t, e.Denied(folding), 2, "the mode and the scope")
}

func scopesOf(v policy.Value) (all []policy.Scope) {
	for _, s := range v.Steps {
		all = append(all, s.Scope)
	}
	return all
}

// A unit that exists when its App stops supporting its mode has the fate of every other
// denied unit: it is held, or stopped after a declared grace period.
func TestUnsupportedModeOfExistingUnits(t *testing.T) {
	for spec, fate := range map[string]schema.Fate{
		"allowed_regions: [campus-north]":                       schema.FateHeld,
		"noncompliant: {action: stop, grace_until: 2027-01-31}": schema.FateStopped,
		"noncompliant: {action: stop, grace_until: 2027-02-01}": schema.FateStopping,
		"noncompliant: {action: hold}\nallowed_skus: [quantum]": schema.FateHeld,
	} {
		d := estateFiles(t, "../../examples/campus", map[string]string{appFile: app(""), physPolicy: document("Policy", "policy", spec)})
		e := policy.Evaluate(d, everything, policy.At("2027-01-31"))
		for _, key := range []schema.Key{departmentKey, analysis} {
			n := e.Noncompliance(key)
			require.NotNil(t, n, key)
			require.Equal(t, fate, n.Fate, key)
			require.Equal(t, "app_supports", n.Because[0].Rule)
		}
		require.Equal(t, fate == schema.FateStopped, e.Unit(departmentKey).DesiredState == schema.DesiredStopped)
	}
}

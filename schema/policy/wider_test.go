package policy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/policy"
)

const (
	campusRoot   = "../../examples/campus"
	campusPolicy = "platform/policy/campus.yaml"
)

// Each item of a layer that allows more is reported at its position, with the
// layer above that does not allow it and an example.
func TestWiderNamesEachItem(t *testing.T) {
	overrides := func(text string) map[string]string {
		return map[string]string{entitlement: document("Entitlement", "slurm", "enabled: true\npolicy_overrides: {"+text+"}")}
	}
	tenant := func(text string) map[string]string {
		return map[string]string{physPolicy: document("Policy", "policy", text)}
	}
	for name, tc := range map[string]struct {
		over map[string]string
		want []string
	}{
		"regions": {tenant("allowed_regions: [lab, mars]"), []string{
			physPolicy + ":6:26: error: spec.allowed_regions[1]: allows mars, which is not allowed above: only lab (" + labPolicy +
				":7); a layer below can only narrow [policy.wider]"}},
		"skus": {overrides("allowed_skus: [gpu-h200, cpu-small]"), []string{
			entitlement + ":7:37: error: spec.policy_overrides.allowed_skus[0]: allows gpu-h200, which is not allowed above: only " +
				"cpu-small, gpu-a100-2, gpu-a100-4 (" + labPolicy + ":8); a layer below can only narrow [policy.wider]"}},
		"instances": {overrides("max_instances_per_project: 4"), []string{
			entitlement + ":7:49: error: spec.policy_overrides.max_instances_per_project: allows 4, which is not allowed above: at most " +
				"3 (" + labPolicy + ":9); a layer below can only narrow [policy.wider]"}},
		"gpus, more than the tenant's": {overrides("max_gpus_per_instance: 7"), []string{
			entitlement + ":7:45: error: spec.policy_overrides.max_gpus_per_instance: allows 7, which is not allowed above: at most 6 (" +
				physPolicy + ":6); a layer below can only narrow [policy.wider]"}},
		"operating modes": {tenant("allowed_operating_modes: [platform_managed]"), []string{
			physPolicy + ":6:29: error: spec.allowed_operating_modes[0]: allows platform_managed, which is not allowed above: only " +
				"tenant_dedicated (" + labPolicy + ":11); a layer below can only narrow [policy.wider]"}},
		"scopes": {map[string]string{
			physPolicy:  document("Policy", "policy", "allowed_control_plane_scopes: []"),
			entitlement: document("Entitlement", "slurm", "enabled: true\npolicy_overrides: {allowed_control_plane_scopes: [project]}")},
			[]string{
				entitlement + ":7:53: error: spec.policy_overrides.allowed_control_plane_scopes[0]: allows project, which is not allowed " +
					"above: nothing is (" + physPolicy + ":6); a layer below can only narrow [policy.wider]"}},
		"hosts, where nobody above lists any": {tenant("artifact_source_allowlist: [registry.physics.example]"), []string{
			physPolicy + ":6:31: error: spec.artifact_source_allowlist[0]: allows registry.physics.example, which is not allowed above: " +
				"nothing is (platform/artifact-sources); a layer below can only narrow [policy.wider]"}},
		"narrower and equal lists have no finding": {overrides("allowed_skus: [cpu-small], max_gpus_per_instance: 6, allowed_regions: " +
			"[], max_instances_per_project: 0, artifact_source_allowlist: []"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := lab(t, tc.over)
			var said []string
			for _, x := range policy.Wider(d) {
				said = append(said, x.String())
			}
			require.Equal(t, tc.want, said)
			require.Empty(t, policy.WiderTenant(d.Platform, d.Tenants["biology"]), "no other tenant gets the finding")
			require.NotContains(t, policy.Evaluate(d).Unit(train).Regions, "mars", "and it has no effect")
		})
	}
}

func TestWiderHosts(t *testing.T) {
	d := estateFiles(t, campusRoot, map[string]string{physPolicy: document("Policy", "policy", `artifact_source_allowlist:
- registry.campus.example:443
- "*.deep.physics.example"
- physics.example
- "*.example"
- "*.campus.example"`)})
	var said []string
	for _, x := range policy.Wider(d) {
		require.Equal(t, schema.SeverityError, x.Severity)
		require.Contains(t, x.Message, campusPolicy+":11")
		at, rest, _ := strings.Cut(strings.TrimPrefix(x.String(), physPolicy+":"), ": error: ")
		_, what, _ := strings.Cut(rest, ": allows ")
		what, _, _ = strings.Cut(what, ", which")
		said = append(said, at+" "+what)
	}
	require.Equal(t, []string{"9:5 physics.example", `10:5 a.example by "*.example"`, `11:5 a.campus.example by "*.campus.example"`}, said)
}

// If no policy of the platform lists hosts, its own sources are the list.
func TestWiderThanThePlatformsOwnSources(t *testing.T) {
	d := estateFiles(t, campusRoot, map[string]string{
		campusPolicy: document("Policy", "campus", "allowed_regions: [campus-north, campus-south]"),
		physPolicy:   document("Policy", "policy", `artifact_source_allowlist: [registry.campus.example, registry.physics.example]`)})
	ds := policy.Wider(d)
	require.Len(t, ds, 1)
	require.Equal(t, physPolicy+":6:56: error: spec.artifact_source_allowlist[1]: allows registry.physics.example, which is not allowed "+
		"above: only registry.campus.example (platform/artifact-sources/registry.yaml:8); a layer below can only narrow [policy.wider]",
		ds[0].String())
}

// A long list is shortened in the message.
func TestWiderShortensLongLists(t *testing.T) {
	e := policy.Evaluate(lab(t, map[string]string{physPolicy: document("Policy", "policy",
		"allowed_operating_modes: [tenant_dedicated]\nallowed_skus: [a, b, c, d, e, f, g, h, i, j]"),
		trainFile: instance("train", "roles: {worker: {count: 1, sku: gpu-a100-2}}")}))
	var said []string
	for _, d := range e.Denied(train) {
		said = append(said, d.Message)
	}
	require.Contains(t, said, "gpu-a100-2 is not allowed, only a, b, c, d, e, f, g, h, and 2 more")
}

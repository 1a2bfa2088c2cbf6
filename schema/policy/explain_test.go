package policy_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/policy"
)

// The explanation lists the steps of each value, with every kind of layer.
func TestExplainCoversAllLayers(t *testing.T) {
	data, err := os.ReadFile("../../examples/lab/" + slurmVersion)
	require.NoError(t, err)
	d := lab(t, map[string]string{
		slurmVersion: string(data),
		registryFile: source("registry", "type: oci\nhost: registry.example:5000"),
		"platform/policy/zz.yaml": document("Policy", "zz",
			"artifact_source_allowlist: [\"*.example\"]\nhard_deny: {apps: [ray]}\nnoncompliant: {action: stop, grace_until: 2027-01-31}"),
		physPolicy: document("Policy", "policy", "max_gpus_per_instance: 6\nallowed_regions: [lab, mars]\nmax_instances_per_project: 2"),
		entitlement: document("Entitlement", "slurm",
			"enabled: true\npolicy_overrides: {allowed_skus: [cpu-small, gpu-a100-4], max_gpus_per_instance: 7, "+
				"artifact_source_allowlist: [registry.example]}"),
		trainFile: instance("train", "regions: [mars, lab]\nroles: {worker: {count: 2, sku: gpu-a100-2, gpus: {count: 2}}}\nconfig: "+
			"{scheduler: {interval_seconds: 5}}"),
	})
	e, ok := policy.Explain(d.Platform, d.Tenants["physics"], train, everything, policy.At("2027-01-31"))
	require.True(t, ok)
	got, err := json.MarshalIndent(e, "", "  ")
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile("testdata/explain.json", append(got, '\n'), 0o644))
	}
	want, err := os.ReadFile("testdata/explain.json")
	require.NoError(t, err)
	require.Equal(t, string(want), string(got)+"\n")
}

func TestExplainRefusesUnknownInstance(t *testing.T) {
	d := lab(t, nil)
	for _, key := range []schema.Key{
		schema.InstanceKey("physics", "lattice", "nobody"), schema.InstanceKey("physics", "nowhere", "train"),
		schema.InstanceKey("biology", "lattice", "train"),
	} {
		_, ok := policy.Explain(d.Platform, d.Tenants["physics"], key)
		require.False(t, ok)
	}
}

// The explanation has two maxima of instances: of the project, and of the app in
// it.
func TestExplainSeparatesInstanceMaxima(t *testing.T) {
	b := schema.InstanceKey("physics", "lattice", "b")
	d := lab(t, map[string]string{
		physPolicy:  document("Policy", "policy", "max_instances_per_project: 2"),
		entitlement: document("Entitlement", "slurm", "enabled: true\npolicy_overrides: {max_instances_per_project: 1}"),
		"tenants/physics/projects/lattice/instances/a.yaml": instance("a", ""),
		"tenants/physics/projects/lattice/instances/b.yaml": instance("b", "")})
	e, ok := policy.Explain(d.Platform, d.Tenants["physics"], b)
	require.True(t, ok)
	require.True(t, e.Denied)
	require.Nil(t, e.Noncompliance, "it is new")
	seen := 0
	for _, v := range e.Values {
		switch v.Field {
		case "max_instances_per_project":
			seen++
			require.Equal(t, 2, v.Value)
			require.Equal(t, 3, v.Asked)
			require.Empty(t, v.Decisions, "it is the second")
		case "max_instances_of_app":
			seen++
			require.Equal(t, 1, v.Value)
			require.Equal(t, 3, v.Asked)
			require.Len(t, v.Decisions, 1)
			require.Equal(t, entitlement, v.Decisions[0].Source.File)
		}
	}
	require.Equal(t, 2, seen)
}

func TestText(t *testing.T) {
	for want, v := range map[string]any{
		"any": nil, "none": []string{}, "a, b": []string{"a", "b"}, "lab": "lab", "3": 3, "true": true,
		`{"a":[1]}`: json.RawMessage(`{"a":[1]}`), `{"action":"hold"}`: schema.Noncompliant{Action: schema.NoncompliantHold},
	} {
		require.Equal(t, want, policy.Text(v))
	}
}

// An instance on a shared runtime has no configuration and no members of its own.
// The explanation of the runtime has them, with their positions.
func TestExplainSharedRuntime(t *testing.T) {
	d := estateFiles(t, "../../examples/campus", nil)
	e, ok := policy.Explain(d.Platform, d.Tenants["physics"], analysis)
	require.True(t, ok)
	for _, v := range e.Values {
		require.False(t, strings.HasPrefix(v.Field, "config.") || strings.HasPrefix(v.Field, "roles."), v.Field)
	}
	department := schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "department"}
	find := func(key schema.Key) map[string]policy.Value {
		e, ok := policy.ExplainShared(d, key)
		require.True(t, ok)
		out := map[string]policy.Value{}
		for _, v := range e.Values {
			out[v.Field] = v
		}
		return out
	}
	values := find(department)
	require.Equal(t, "production", values["environment"].Value)
	require.Equal(t, []string{"campus-north"}, values["placement_intent.regions"].Value)
	require.Equal(t, 1, values["roles.worker.count"].Value)
	steps := values["roles.worker.count"].Steps
	last := steps[len(steps)-1].Source
	require.Equal(t, "tenants/physics/shared-runtimes/department/runtime.yaml", last.File)
	require.Positive(t, last.Line)
	require.Contains(t, values, "config.partitions")
	require.Equal(t, "active", values["app.status"].Value)

	file := "tenants/physics/shared-runtimes/department/runtime.yaml"
	text, err := os.ReadFile("../../examples/campus/" + file)
	require.NoError(t, err)
	other := strings.Replace(string(text), "  placement_intent:\n    regions: [campus-north]\n", "", 1)
	d = estateFiles(t, "../../examples/campus",
		map[string]string{file: strings.Replace(other, "      count: 1\n", "      count: 1\n      sku: gpu-a100-4\n", 1)})
	values = find(department)
	require.Equal(t, []string{"gpu-a100-4"}, values["roles.worker.sku"].Value)
	require.Equal(t, []string{"campus-north", "campus-south"}, values["placement_intent.regions"].Value, "what policy leaves of any")
	require.NotContains(t, values, "placement_intent.skus")

	require.Equal(t, "platform_managed", find(schema.Key{Kind: schema.KindSharedRuntime, Name: "commons"})["operating_mode"].Value)
	_, ok = policy.ExplainShared(d, schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "commons"})
	require.False(t, ok)
	platform := *d.Platform // the loader shares its results with other tests
	platform.Versions = nil
	d = &schema.Desired{Platform: &platform, Tenants: d.Tenants}
	_, ok = policy.ExplainShared(d, department)
	require.False(t, ok)
}

// The fate caused by the nodes of the members overrides the fate caused by the
// instance's requests, at the values that it concerns.
func TestExplainOutsideOverridesFate(t *testing.T) {
	line := schema.Position{File: "platform/policy/zz.yaml", Line: 5}
	outside := func(fate schema.Fate, because ...schema.Decision) *schema.Noncompliance {
		n := &schema.Noncompliance{Key: train, Fate: fate, Because: because}
		if fate != schema.FateHeld {
			n.Day, n.Source = "2027-01-31", &line
		}
		return n
	}
	region := schema.Decision{Key: train, Field: "spec.regions", Verdict: schema.Stop, Rule: "allowed_regions", Source: line,
		Message: "worker-0 on gpu-1: a node in region lab is not allowed"}
	gpus := schema.Decision{Key: train, Field: "spec.roles.worker.gpus", Verdict: schema.Deny, Rule: "max_gpus_per_instance",
		Source:  schema.Position{File: "platform/policy/lab.yaml", Line: 10, Column: 26},
		Message: "worker-0 on gpu-1: a node with GPUs that it does not ask for is not allowed"}
	explained := func(over map[string]string, n *schema.Noncompliance) (policy.Explanation, map[string]policy.Value) {
		over["platform/policy/zz.yaml"] = document("Policy", "zz", "noncompliant: {action: stop, grace_until: 2027-01-31}")
		d := lab(t, over)
		e, ok := policy.Explain(d.Platform, d.Tenants["physics"], train, everything, policy.At("2027-01-31"), policy.Outside(n))
		require.True(t, ok)
		values := map[string]policy.Value{}
		for _, v := range e.Values {
			values[v.Field] = v
		}
		return e, values
	}
	suspended := func() map[string]string {
		return map[string]string{trainFile: strings.Replace(instance("train", ""), "spec:", "suspend: true\nspec:", 1)}
	}

	e, values := explained(suspended(), nil)
	require.False(t, e.Denied)
	require.Equal(t, true, values["suspend"].Value)

	e, values = explained(suspended(), outside(schema.FateStopped, region, gpus))
	require.True(t, e.Denied)
	require.Equal(t, schema.FateStopped, e.Noncompliance.Fate)
	require.Equal(t, []schema.Decision{region, gpus}, e.Noncompliance.Because)
	require.Equal(t, "stopped", values["desired_state"].Value)
	require.Equal(t, false, values["suspend"].Value)
	require.Equal(t, []schema.Decision{region}, values["regions"].Decisions)
	require.Len(t, values["max_gpus_per_instance"].Decisions, 1)
	require.Equal(t, schema.Deny, values["max_gpus_per_instance"].Decisions[0].Verdict, "for that nothing is stopped")

	e, values = explained(suspended(), outside(schema.FateHeld, gpus))
	require.Equal(t, schema.FateHeld, e.Noncompliance.Fate)
	require.Equal(t, "running", values["desired_state"].Value)
	require.Equal(t, true, values["suspend"].Value)

	e, values = explained(map[string]string{trainFile: instance("train", "regions: [mars]")}, outside(schema.FateStopped, region))
	require.Len(t, e.Noncompliance.Because, 2)
	require.Len(t, values["regions"].Decisions, 2)
	require.Len(t, values["desired_state"].Decisions, 1, "it is stopped once")
}

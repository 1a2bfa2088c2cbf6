package policy_test

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/estate"
	"berth/schema/policy"
)

// lab is examples/lab with some files replaced ("" removes one).
func lab(t *testing.T, over map[string]string) *schema.Desired {
	t.Helper()
	return estateFiles(t, "../../examples/lab", over)
}

// loader is shared by all tests: creating it takes longer than reading an estate.
var loader = sync.OnceValues(func() (*estate.Loader, error) {
	slurm, err := os.ReadFile("../../runtimes/slurm/cluster/config.cue")
	if err != nil {
		return nil, err
	}
	return estate.New(estate.Options{Backends: map[string]string{"slurm": string(slurm)}})
})

func estateFiles(t *testing.T, root string, over map[string]string) *schema.Desired {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(name string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		rel, _ := filepath.Rel(root, name)
		files[filepath.ToSlash(rel)] = string(data)
		return err
	}))
	for path, content := range over {
		if content == "" {
			delete(files, path)
		} else {
			files[path] = content
		}
	}
	l, err := loader()
	require.NoError(t, err)
	r, err := l.Load(context.Background(), estate.Files(files))
	require.NoError(t, err)
	require.False(t, schema.HasErrors(r.Diagnostics), r.Diagnostics) // missing names get warnings
	return r.Desired
}

const (
	trainFile    = "tenants/physics/projects/lattice/instances/train.yaml"
	labPolicy    = "platform/policy/lab.yaml"
	physPolicy   = "tenants/physics/policy.yaml"
	entitlement  = "tenants/physics/projects/lattice/entitlements/slurm.yaml"
	slurmVersion = "platform/catalog/slurm/22-05.yaml"
	appFile      = "platform/catalog/slurm/app.yaml"
)

var update = flag.Bool("update", false, "rewrite testdata")

var train = schema.InstanceKey("physics", "lattice", "train")

func document(kind, name, spec string) string {
	return "apiVersion: berth/v1\nkind: " + kind + "\nmetadata:\n  name: " + name + "\nspec:\n  " +
		strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  ") + "\n"
}

// app is the App slurm with more fields, the first of which is on line 9.
func app(extra string) string {
	return document("App", "slurm", "display_name: Slurm\ncategory: scheduler\npublisher: SchedMD\n"+extra)
}

func instance(name, extra string) string {
	return document("Instance", name, "app: slurm\nversion: 22-05\ndisplay_name: "+name+"\n"+extra)
}

func TestLabIsAllowed(t *testing.T) {
	d := lab(t, nil)
	e := policy.Evaluate(d)
	require.Empty(t, e.Decisions())
	require.Equal(t, d.Platform.Nodes, e.Nodes)
	got, err := json.MarshalIndent(e.Unit(train), "", "  ")
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile("testdata/train.json", append(got, '\n'), 0o644))
	}
	want, err := os.ReadFile("testdata/train.json")
	require.NoError(t, err)
	require.Equal(t, string(want), string(got)+"\n")
}

// An instance's config overrides the version's parameters; missing values are the
// runtime's defaults.
func TestConfigIsMergedOverParameters(t *testing.T) {
	e := policy.Evaluate(lab(t, nil)).Unit(schema.InstanceKey("biology", "genomes", "assembly"))
	config := string(e.Config)
	require.Contains(t, config, `"identity":"managed"`)
	require.Contains(t, config, `"partitions":[{"default":true,"name":"assembly"},{"max_time_minutes":30,"name":"quick"}]`)
	require.Contains(t, config, `"interval_seconds":30`, "a default")
}

// Each rule denies its case and names its position.
func TestEachRuleDenies(t *testing.T) {
	for name, tc := range map[string]struct {
		over   map[string]string
		rule   string
		source string // file:line of the deciding layer
		at     string // field
	}{
		"gpus, the tenant's layer is the least": {
			map[string]string{trainFile: instance("train", "roles: {worker: {count: 4, gpus: {count: 2}}}")},
			"max_gpus_per_instance", physPolicy + ":6", "spec.roles"},
		"sku that no layer allows": {
			map[string]string{trainFile: instance("train", "roles: {worker: {count: 1, sku: gpu-h200}}")},
			"allowed_skus", labPolicy + ":8", "spec.roles.worker.sku"},
		"sku the entitlement takes away": {
			map[string]string{entitlement: document("Entitlement", "slurm",
				"enabled: true\npolicy_overrides: {allowed_skus: [cpu-small, gpu-a100-4]}")},
			"allowed_skus", entitlement + ":7", "spec.roles.worker.sku"},
		"layers that leave no sku": {
			map[string]string{
				entitlement: document("Entitlement", "slurm", "enabled: true\npolicy_overrides: {allowed_skus: [quantum]}"),
				trainFile:   instance("train", "")},
			"allowed_skus", entitlement + ":7", "spec.roles.controller.sku"},
		"region": {
			map[string]string{trainFile: instance("train", "regions: [mars]")},
			"allowed_regions", labPolicy + ":7", "spec.regions"},
		"operating mode": {
			map[string]string{
				trainFile: instance("train", "control_plane_scope: platform\nshared_runtime: commons"), // the app's default mode
				appFile: app("supports: {operating_modes: [tenant_dedicated, platform_managed], control_plane_scopes: [project, " +
					"platform]}"),
				"platform/shared-runtimes/commons/runtime.yaml": document("SharedRuntime", "commons",
					"app: slurm\nversion: 22-05\ndisplay_name: x\nattached_project_ids: [physics.lattice]"),
			},
			"allowed_operating_modes", labPolicy + ":11", "spec.operating_mode"},
		"control plane scope": {
			map[string]string{
				physPolicy: document("Policy", "policy", "allowed_control_plane_scopes: [tenant]")},
			"allowed_control_plane_scopes", physPolicy + ":6", "spec.control_plane_scope"},
		"control plane scope that the app does not support": {
			map[string]string{
				trainFile: instance("train", "control_plane_scope: tenant\nshared_runtime: ours"),
				appFile:   app("supports:\n  control_plane_scopes: [project]"),
				"tenants/physics/shared-runtimes/ours/runtime.yaml": document("SharedRuntime", "ours",
					"app: slurm\nversion: 22-05\ndisplay_name: x\noperator_identity_ref: crew\nattached_project_ids: [physics.lattice]"),
				"tenants/physics/service-accounts/crew.yaml": document("ServiceAccount", "crew",
					"display_name: x\npublic_keys: []\nscopes: [shared_runtimes.member.operate]\nallowed_endpoints: []"),
			},
			"app_supports", appFile + ":10", "spec.control_plane_scope"},
		"entitlement not enabled": {
			map[string]string{entitlement: document("Entitlement", "slurm", "enabled: false")},
			"entitlement", entitlement + ":6", "spec.app"},
		"hard deny": {
			map[string]string{"platform/policy/zz.yaml": document("Policy", "zz", "hard_deny: {apps: [slurm]}")},
			"hard_deny", "platform/policy/zz.yaml:6", "spec.app"},
		"hard deny of the tenant": {
			map[string]string{physPolicy: document("Policy", "policy", "hard_deny: {apps: [slurm]}")},
			"hard_deny", physPolicy + ":6", "spec.app"},
		"too many instances, counted by name": {
			map[string]string{
				physPolicy: document("Policy", "policy", "max_instances_per_project: 1"),
				"tenants/physics/projects/lattice/instances/a.yaml": instance("a", "")},
			"max_instances_per_project", physPolicy + ":6", "metadata.name"},
		"too many instances of the app": {
			map[string]string{
				entitlement: document("Entitlement", "slurm", "enabled: true\npolicy_overrides: {max_instances_per_project: 0}")},
			"max_instances_per_project", entitlement + ":7", "metadata.name"},
	} {
		t.Run(name, func(t *testing.T) {
			e := policy.Evaluate(lab(t, tc.over))
			denied := e.Denied(train)
			require.NotEmpty(t, denied)
			d := denied[0]
			require.Equal(t, tc.rule, d.Rule)
			require.Equal(t, tc.at, d.Field)
			require.Equal(t, tc.source, strings.TrimSuffix(schema.Diagnostic{File: d.Source.File, Line: d.Source.Line}.String(),
				":0: :  []"))
			require.NotNil(t, e.Unit(train), "a refused instance is not taken for a deleted one")
			if tc.rule != "hard_deny" || d.Source.File == physPolicy {
				require.Empty(t, e.Denied(schema.InstanceKey("biology", "genomes", "assembly")), "nobody else is refused")
			}
		})
	}
}

// A disabled app or version denies new instances. Existing ones continue, with a
// warning at their document.
func TestDisabledDeniesOnlyNewInstances(t *testing.T) {
	version := func(status string) map[string]string {
		data, err := os.ReadFile("../../examples/lab/" + slurmVersion)
		require.NoError(t, err)
		return map[string]string{slurmVersion: strings.Replace(string(data), "status: active", "status: "+status, 1)}
	}
	d := lab(t, version("disabled"))
	require.Len(t, policy.Evaluate(d).Denied(train), 1)
	e := policy.Evaluate(d, policy.Existing(func(k schema.Key) bool { return k == train }))
	require.Empty(t, e.Denied(train))
	require.NotEmpty(t, e.Denied(schema.InstanceKey("biology", "genomes", "assembly")))
	for _, d := range policy.Evaluate(lab(t, version("deprecated"))).Decisions() {
		require.Equal(t, schema.Allow, d.Verdict)
		require.Equal(t, "status", d.Rule)
	}
	found := policy.Findings(policy.Evaluate(lab(t, version("deprecated"))).Decisions())
	require.Len(t, found, 2, "each instance that uses it gets a warning")
	for _, f := range found {
		require.Equal(t, schema.SeverityWarning, f.Severity)
		require.Equal(t, "policy.status", f.Code)
		require.Equal(t, "spec.version", f.Path)
	}
}

// A new instance never displaces an existing one, for any name.
func TestExistingInstancesAreCountedFirst(t *testing.T) {
	a := schema.InstanceKey("physics", "lattice", "a")
	d := lab(t, map[string]string{
		physPolicy: document("Policy", "policy", "max_instances_per_project: 1"),
		"tenants/physics/projects/lattice/instances/a.yaml": instance("a", "")})
	e := policy.Evaluate(d, policy.Existing(func(k schema.Key) bool { return k == train }))
	require.Empty(t, e.Denied(train))
	require.NotEmpty(t, e.Denied(a))
}

func TestRegionsAreNarrowed(t *testing.T) {
	e := policy.Evaluate(lab(t, map[string]string{trainFile: instance("train", "regions: [mars, lab]")}))
	require.Equal(t, []string{"lab"}, e.Unit(train).Regions)
	require.Empty(t, e.Denied(train))
	require.Len(t, e.Decisions(), 1)
	require.Equal(t, schema.Narrow, e.Decisions()[0].Verdict)
	require.Equal(t, "mars, lab", e.Decisions()[0].Before)
}

func TestUsers(t *testing.T) {
	e := policy.Evaluate(lab(t, map[string]string{
		"tenants/physics/roles.yaml": document("RoleBinding", "roles", `members:
- {login: zoe, role: tenant_admin, unix_user: {name: zoe, uid: 20003}}
- {login: anna-lattice, role: project_member, unix_user: {name: anna, uid: 20001}}
- {login: vic, role: project_viewer, unix_user: {name: vic, uid: 20004}}`)}))
	require.Equal(t, []schema.UnixUser{{Name: "anna", UID: 20001}, {Name: "ben", UID: 20002}, {Name: "zoe", UID: 20003}},
		e.Unit(train).Users)
	require.Equal(t, []schema.UnixUser{{Name: "dora", UID: 20011}}, e.Unit(schema.InstanceKey("biology", "genomes", "assembly")).Users)
}

// The result for a tenant depends only on the platform and the tenant.
func TestTenantsAreEvaluatedAlone(t *testing.T) {
	d := lab(t, nil)
	e := policy.Evaluate(d)
	require.Len(t, e.Tenants, len(d.Tenants)+1) // with the platform
	for name, tenant := range d.Tenants {
		part := policy.EvaluateTenant(d.Platform, tenant)
		require.Equal(t, part, e.Tenants[name])
		for _, d := range part.Decisions() {
			require.Equal(t, name, d.Key.Tenant)
		}
	}
}

func TestFindings(t *testing.T) {
	e := policy.Evaluate(lab(t, map[string]string{trainFile: instance("train", "roles: {worker: {count: 4, gpus: {count: 2}}}")}))
	ds := policy.Findings(e.Decisions())
	require.Len(t, ds, 1)
	require.Equal(t, trainFile+":9:3: error: spec.roles: asks for 8 GPUs, at most 6 are allowed ("+physPolicy+
		":6) [policy.max_gpus_per_instance]", ds[0].String())
}

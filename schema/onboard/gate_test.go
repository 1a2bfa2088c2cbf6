package onboard_test

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/backends"
	"berth/schema"
	"berth/schema/onboard"
)

const (
	assembly   = "tenants/biology/projects/genomes/instances/assembly.yaml"
	grant      = "tenants/physics/projects/collider/entitlements/slurm.yaml"
	department = "tenants/physics/shared-runtimes/department/runtime.yaml"
	platform   = "platform/policy/campus.yaml"
	tenant     = "tenants/biology/policy.yaml"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile("../../examples/campus/" + path)
	require.NoError(t, err)
	return string(text)
}

// found are the findings of a change from one estate to another, as severity, file and code.
func found(t *testing.T, before, after map[string]string) (out []string, messages string) {
	t.Helper()
	for _, d := range onboard.Gate(backends.Names())(campus(t, before), campus(t, after)) {
		require.NotZero(t, d.Line)
		out = append(out, string(d.Severity)+" "+d.File+" "+d.Code)
		messages += d.Message + "\n"
	}
	return out, messages
}

// A change that adds a version or an entitlement of an app that lacks a point is warned. A new unit of it is
// refused where a policy wants that, and only there; one that runs already is not affected.
func TestGateOfAppsThatAreNotReady(t *testing.T) {
	with := func(all ...map[string]string) map[string]string {
		out := map[string]string{}
		for _, m := range all {
			maps.Copy(out, m)
		}
		return out
	}
	// created are the findings of a change that adds an instance, with its files.
	created := func(files map[string]string, backends []string, tenant, project, name string) (out []string, messages string) {
		before, after := campus(t, files), campus(t, files)
		require.NotNil(t, after.Tenants[tenant].Projects[project].Instances[name])
		delete(before.Tenants[tenant].Projects[project].Instances, name)
		for _, d := range onboard.Gate(backends)(before, after) {
			out = append(out, string(d.Severity)+" "+d.File+" "+d.Code)
			messages += d.Message + "\n"
		}
		return out, messages
	}
	strict := map[string]string{platform: strings.Replace(read(t, platform), "spec:\n", "spec:\n  require_onboarding: true\n", 1)}
	strictTenant := map[string]string{tenant: strings.Replace(read(t, tenant), "spec:\n", "spec:\n  require_onboarding: true\n", 1)}

	nothing, _ := found(t, nil, nil)
	require.Empty(t, nothing)
	nothing, _ = created(nil, backends.Names(), "biology", "genomes", "assembly")
	require.Empty(t, nothing, "no policy wants it")
	nothing, _ = found(t, nil, strict)
	require.Empty(t, nothing, "what runs already is not affected")

	off := map[string]string{grant: strings.Replace(read(t, grant), "enabled: true", "enabled: false", 1)}
	warned, messages := found(t, off, nil)
	require.Equal(t, []string{"warning " + grant + " onboard.incomplete"}, warned)
	require.Contains(t, messages, "the app slurm (platform/catalog/slurm/app.yaml:5) is not ready for projects: 2: ")
	require.Contains(t, messages, "; 7: ")
	require.NotContains(t, messages, " 1: ")
	require.Contains(t, messages, "`berth onboard check slurm`")
	nothing, _ = found(t, with(off, ready(t)), ready(t))
	require.Empty(t, nothing, "the app is ready")

	deprecated := map[string]string{version: strings.Replace(read(t, version), "status: active", "status: deprecated", 1)}
	warned, _ = found(t, deprecated, nil)
	require.Equal(t, []string{"warning " + version + " onboard.incomplete"}, warned)

	for name, policy := range map[string]map[string]string{"platform": strict, "tenant": strictTenant} {
		refused, messages := created(policy, backends.Names(), "biology", "genomes", "assembly")
		require.Equal(t, []string{"error " + assembly + " onboard.incomplete"}, refused, name)
		require.Contains(t, messages, "7: ", name)
		require.Contains(t, messages, "names no operator_service_account", name)
		refused, messages = created(with(policy, ready(t)), backends.Names(), "biology", "genomes", "assembly")
		require.Equal(t, []string{"error " + assembly + " onboard.incomplete"}, refused, "the operator of another project is not its own")
		require.NotContains(t, messages, "7: ", name)
	}
	refused, _ := created(with(strict, ready(t)), backends.Names(), "physics", "lattice", "train")
	require.Empty(t, refused, "the app is ready, and train has an operator")
	refused, _ = created(with(strict, ready(t)), backends.Names(), "physics", "collider", "analysis")
	require.Empty(t, refused, "its shared runtime has the operator")
	refused, messages = created(with(strict, ready(t)), []string{"ray"}, "physics", "lattice", "train")
	require.Len(t, refused, 1)
	require.Contains(t, messages, "1: ", "a runtime that the program does not have")
	refused, _ = created(strictTenant, backends.Names(), "physics", "lattice", "train")
	require.Empty(t, refused, "the policy of another tenant")

	before, after := campus(t, strict), campus(t, strict)
	before.Tenants["physics"].SharedRuntimes["department"] = &schema.SharedRuntimeEstate{}
	delete(before.Platform.SharedRuntimes, "commons")
	var files []string
	for _, d := range onboard.Gate(backends.Names())(before, after) {
		files = append(files, d.File)
	}
	require.Equal(t, []string{"platform/shared-runtimes/commons/runtime.yaml", department}, files)

	// Another app in place of one is a new unit.
	before, after = campus(t, strict), campus(t, strict)
	before.Tenants["physics"].Projects["lattice"].Instances["train"].Spec.App = "notebook"
	files = nil
	for _, d := range onboard.Gate(backends.Names())(before, after) {
		files = append(files, d.File)
	}
	require.Equal(t, []string{"tenants/physics/projects/lattice/instances/train.yaml"}, files)

	require.Empty(t, onboard.Gate(backends.Names())(nil, after), "an estate that Berth takes over")
	require.Empty(t, onboard.Gate(backends.Names())(&schema.Desired{Platform: &schema.Platform{}}, after))
}

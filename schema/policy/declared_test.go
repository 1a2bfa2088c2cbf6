package policy_test

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/policy"
)

var (
	analysis = schema.InstanceKey("physics", "collider", "analysis")
	folding  = schema.InstanceKey("biology", "proteins", "folding")
)

// An instance on a shared runtime is evaluated like any other, and not planned.
func TestSharedInstancesAreNotPlanned(t *testing.T) {
	e := policy.Evaluate(estateFiles(t, "../../examples/campus", nil))
	for key, runtime := range map[schema.Key]string{analysis: "department", folding: "commons"} {
		require.Equal(t, runtime, e.Instance(key).SharedRuntime)
		require.True(t, e.Instance(key).Suspend)
		require.Empty(t, e.Denied(key))
	}
	require.Equal(t, "platform_managed", e.Instance(folding).OperatingMode)
	require.False(t, e.Instance(train).Suspend)

	e = policy.Evaluate(estateFiles(t, "../../examples/campus", map[string]string{
		physPolicy: document("Policy", "policy", "allowed_control_plane_scopes: [project]")}))
	require.Equal(t, "allowed_control_plane_scopes", e.Denied(analysis)[0].Rule)
}

// Kinds that are only declared so far do not affect running instances.
func TestDeclaredKindsHaveNoEffect(t *testing.T) {
	const root = "../../examples/campus"
	all := policy.Evaluate(estateFiles(t, root, nil))
	declared := []string{"sites", "artifact-sources", "queues", "hooks", "shared-runtimes", "service-accounts", "artifacts", "contributions", "operations"}
	over := map[string]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".yaml" && slices.ContainsFunc(strings.Split(name, "/"), func(s string) bool { return slices.Contains(declared, s) }) {
			over[name] = ""
		}
		return err
	}))
	require.Greater(t, len(over), 20)
	over["tenants/physics/projects/collider/instances/analysis.yaml"] = ""
	over["tenants/biology/projects/proteins/instances/folding.yaml"] = ""
	data, err := os.ReadFile(root + "/" + trainFile)
	require.NoError(t, err)
	over[trainFile] = strings.Replace(string(data), "  operator_service_account: ci\n", "", 1)
	for _, name := range []string{"tenants/physics/roles.yaml", "tenants/physics/projects/lattice/roles.yaml"} {
		data, err = os.ReadFile(root + "/" + name)
		require.NoError(t, err)
		over[name], _, _ = strings.Cut(string(data), "    - service_account:") // the last of each
	}
	data, err = os.ReadFile(root + "/" + slurmVersion)
	require.NoError(t, err)
	over[slurmVersion], _, _ = strings.Cut(string(data), "    artifacts:\n")
	without := policy.Evaluate(estateFiles(t, root, over))
	for _, key := range []schema.Key{analysis, folding} {
		delete(all.Tenants[key.Tenant].Projects[key.Project].Instances, key.Name)
	}
	for _, e := range []*schema.Effective{without, all} {
		for key := range e.All() {
			if b := e.Bounds(key); b != nil {
				b.Instance = nil // the document, which the test changed
			}
		}
	}
	delete(all.Tenants[analysis.Tenant].Projects[analysis.Project].Bounds, analysis.Name)
	delete(all.Tenants[folding.Tenant].Projects[folding.Project].Bounds, folding.Name)
	require.Equal(t, without, all)
}

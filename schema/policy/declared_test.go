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

// An instance on a shared runtime is evaluated like any other, and has no members.
func TestSharedInstancesHaveNoMembers(t *testing.T) {
	e := policy.Evaluate(estateFiles(t, "../../examples/campus", nil))
	for key, runtime := range map[schema.Key]string{analysis: "department", folding: "commons"} {
		require.Equal(t, runtime, e.Unit(key).SharedRuntime)
		require.Empty(t, e.Unit(key).Roles)
		require.Empty(t, e.Denied(key))
	}
	require.Equal(t, "platform_managed", e.Unit(folding).OperatingMode)

	e = policy.Evaluate(estateFiles(t, "../../examples/campus", map[string]string{
		physPolicy: document("Policy", "policy", "allowed_control_plane_scopes: [project]")}))
	require.Equal(t, "allowed_control_plane_scopes", e.Denied(analysis)[0].Rule)
}

// Kinds that are only declared so far do not affect units.
func TestDeclaredKindsHaveNoEffect(t *testing.T) {
	const root = "../../examples/campus"
	all := policy.Evaluate(estateFiles(t, root, nil))
	declared := []string{"queues", "hooks"}
	over := map[string]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".yaml" &&
			slices.ContainsFunc(strings.Split(name, "/"), func(s string) bool { return slices.Contains(declared, s) }) {
			over[name] = ""
		}
		return err
	}))
	require.Greater(t, len(over), 3)
	require.Equal(t, policy.Evaluate(estateFiles(t, root, over)), all)
}

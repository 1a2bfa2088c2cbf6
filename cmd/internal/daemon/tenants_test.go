package daemon

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
)

// The daemon fetches from the tenants' repositories in berth.yaml, with the token of
// each.
func TestServeATenantsOwnRepository(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own, err := gittest.Start(gittest.Options{Dir: filepath.Join(dir, "own"), Token: "of-the-tenant", Files: map[string]string{
		"projects/lab/project.yaml": "apiVersion: berth/v1\nkind: Project\nmetadata: {name: lab}\nspec: {display_name: lab}\n",
		"projects/lab/entitlements/batch.yaml": "apiVersion: berth/v1\nkind: Entitlement\nmetadata: {name: batch}\nspec: {enabled: " +
			"true}\n",
		"projects/lab/instances/train.yaml": "apiVersion: berth/v1\nkind: Instance\nmetadata: {name: train}\nspec: {app: batch, " +
			"version: v1, display_name: train, roles: {controller: {count: 1}}}\n",
		".github/workflows/what-is-about-it.yml": "on: push\n",
		"LICENSE":                                "theirs\n",
	}})
	require.NoError(t, err)
	defer own.Close()
	estate := gittest.New(t, map[string]string{
		"platform/catalog/batch/app.yaml": "apiVersion: berth/v1\nkind: App\nmetadata: {name: batch}\nspec: {display_name: Batch, " +
			"category: scheduler, publisher: platform, status: active}\n",
		"platform/catalog/batch/v1.yaml": "apiVersion: berth/v1\nkind: AppVersion\nmetadata: {name: v1}\nspec:\n  version: 22.05.8\n  " +
			"runtime_backend: slurm\n  status: active\n  manifest: {roles: {controller: {node_role: controller, control_plane: true, " +
			"min: 1, max: 1}}}\n",
		"platform/nodes/ctl.yaml": "apiVersion: berth/v1\nkind: Node\nmetadata: {name: ctl}\nspec: {address: 10.9.0.1, region: eu-1, " +
			"sku: standard, roles: [controller], capacity: {cpus: 4, memory_mib: 8000}}\n",
		"tenants/physics/tenant.yaml": "apiVersion: berth/v1\nkind: Tenant\nmetadata: {name: physics}\nspec: {display_name: Physics, " +
			"repository: {url: \"" + own.URL + "\"}}\n",
	})
	token := filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(token, []byte("of-the-tenant\n"), 0o600))
	config, err := json.Marshal(map[string]any{
		"repository":     map[string]any{"url": estate.URL, "directory": filepath.Join(dir, "mirror")},
		"tenants":        map[string]any{"physics": map[string]any{"url": own.URL, "token": map[string]any{"file": token}}},
		"authority":      map[string]any{"trust_main": true},
		"memory_runtime": map[string]any{"directory": filepath.Join(dir, "world"), "backends": []string{"slurm"}},
		"interval":       "100ms", "poll": "200ms", "flush_window": "50ms",
	})
	require.NoError(t, err)
	path := filepath.Join(dir, "berth.yaml")
	require.NoError(t, os.WriteFile(path, config, 0o600))
	c, err := ReadConfig(path)
	require.NoError(t, err)
	d, err := newController(t.Context(), c, slog.New(slog.NewTextHandler(t.Output(), nil)), hooks{})
	require.NoError(t, err)
	defer d.close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.loop.Run(ctx) }()
	defer func() {
		cancel()
		<-ended
	}()
	var status, tip string
	await.True(t, "the instance of the tenant's repository", func() bool {
		if now := estate.Tip("berth/status"); now != tip { // Git is a process
			tip = now
			status, _ = estate.Read(tip, "tenants/physics/projects/lab/instances/train.yaml")
		}
		return strings.Contains(status, "phase: running")
	}, func() any { return status })
	require.NotEmpty(t, estate.Tip(gitrepo.BranchComposed))
	held, err := estate.Git("log", "--format=%B", "-1", "berth/in-force")
	require.NoError(t, err)
	require.Contains(t, held, "all of main", "a finding about the repository belongs to no estate")
}

// Conflicting tenant settings in berth.yaml are reported with their line.
func TestTenantsInTheConfiguration(t *testing.T) {
	for _, c := range []struct{ tenant, want string }{
		{"{url: \"https://g.example/p.git\", token: {env: T}, accept: " + strings.Repeat("a", 40) + "}", ""},
		{"{url: \"ssh://git@g.example/p.git\", ssh_key: /k, known_hosts: /h}", ""},
		{"{url: \"ssh://git@g.example/p.git\", known_hosts: /h}", ":2:11: tenants.physics.ssh_key: an ssh:// URL needs it"},
		{"{url: \"ssh://git@g.example/p.git\", ssh_key: /k}", "tenants.physics.known_hosts: an ssh:// URL needs it"},
		{"{url: \"ssh://git@g.example/p.git\", ssh_key: /k, known_hosts: /h, token: {env: T}}",
			"tenants.physics.token: it is for https://"},
		{"{url: \"https://g.example/p.git\", ssh_key: /k}", "tenants.physics.ssh_key: it is for ssh://"},
		{"{url: \"file:///etc\"}", ":2:26: tenants.physics.url"},
		{"{token: {env: T}}", "tenants.physics.url: is missing"},
	} {
		path := filepath.Join(t.TempDir(), "berth.yaml")
		require.NoError(t, os.WriteFile(path,
			[]byte("repository: {url: \"https://g.example/e.git\", directory: /d}\ntenants: {physics: "+c.tenant+
				"}\nauthority: {trust_main: true}\n"), 0o600))
		_, err := ReadConfig(path)
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.want)
	}
}

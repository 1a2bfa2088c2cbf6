package loop_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// A tenant proposes an app, is refused its use, and runs it once the platform admits it. When the
// admission is withdrawn, the instance keeps running, and takes no change (F9).
func TestTenantsOwnAppRunsOnceAdmitted(t *testing.T) {
	t.Parallel()
	const (
		catalog     = "tenants/physics/catalog/beam/"
		entitlement = "tenants/physics/projects/lab/entitlements/beam.yaml"
		admission   = "platform/admissions/physics/beam.yaml"
	)
	w := newWorld(t)
	w.start()
	decided := func(what, commit string) {
		w.eventually(what, func() bool { return w.revision().Commit == commit })
	}
	files := estateFiles()
	app := strings.Replace(strings.Split(files["platform/catalog/batch/app.yaml"], ", supports")[0]+"}\n", "name: batch", "name: beam", 1)
	decided("proposal decided", w.put(map[string]string{catalog + "app.yaml": app,
		catalog + "v1.yaml": files["platform/catalog/batch/v1.yaml"]}))
	require.Empty(t, w.heldReasons(), "a proposal comes into force")

	entitled := "apiVersion: berth/v1\nkind: Entitlement\nmetadata: {name: beam}\nspec: {enabled: true}\n"
	path, text := instance("beam", 1)
	text = strings.Replace(text, "app: batch", "app: beam", 1)
	decided("use decided", w.put(map[string]string{entitlement: entitled, path: text}))
	require.Equal(t, schema.HeldDenied, w.heldReasons()[entitlement])
	require.Contains(t, w.heldReasons(), path)
	require.Nil(t, w.status("beam"))

	w.put(map[string]string{admission: "apiVersion: berth/v1\nkind: AppAdmission\nmetadata: {name: beam}\nspec:\n  " +
		"allowed_control_plane_scopes: [project]\n  allowed_runtime_backends: [bare_metal]\n  artifact_source_allowlist: []\n"})
	w.put(map[string]string{entitlement: entitled + "# admitted\n"})
	w.eventually("instance runs", w.phase("beam", plan.PhaseRunning))
	require.Empty(t, w.heldReasons())
	require.Contains(t, w.eventTypes(), "running")
	for _, e := range w.events() {
		if strings.HasPrefix(e.EventType, "apps.instance.") {
			require.Contains(t, string(e.Payload), `"app_slug":"beam"`)
		}
	}

	decided("withdrawal decided", w.put(nil, admission))
	require.Empty(t, w.heldReasons(), "it holds no document")
	w.eventually("instance is not compliant", func() bool {
		return condition(w.status("beam"), "PolicyCompliant") == "False" &&
			strings.Contains(message(w.status("beam"), "PolicyCompliant"), admission)
	})
	require.Equal(t, plan.PhaseRunning, w.status("beam").Phase)
	members := len(w.status("beam").Members)

	decided("change decided", w.put(map[string]string{path: strings.Replace(text, "worker: {count: 1", "worker: {count: 2", 1)}))
	require.Equal(t, map[string]schema.HeldReason{path: schema.HeldDenied}, w.heldReasons())
	require.Len(t, w.status("beam").Members, members)
	require.Equal(t, plan.PhaseRunning, w.status("beam").Phase)
	require.NotContains(t, w.eventTypes(), "deleting")
}

// A version of a tenant's own app reads what a source of the platform shares with the tenant, as an
// artifact of its projects does.
func TestOwnVersionReadsWhatIsShared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := &eyes{sight: there}
	w.start(looking(e))
	key := schema.Key{Kind: schema.KindAppVersion, Tenant: "physics", Parent: "beam", Name: "v1"}
	shown := func() string { e.mu.Lock(); defer e.mu.Unlock(); return e.shown }
	shares := func(repositories string) map[string]string {
		files := registryFiles("registry.example")
		for path := range files {
			files[path] = strings.Replace(files[path], ", repositories: [lab]", repositories, 1)
		}
		return files
	}
	own := map[string]string{"tenants/physics/catalog/beam/app.yaml": strings.Replace(
		strings.Split(estateFiles()["platform/catalog/batch/app.yaml"], ", supports")[0]+"}\n", "name: batch", "name: beam", 1,
	)}
	for _, text := range versionFrom(goodDigest) {
		own["tenants/physics/catalog/beam/v1.yaml"] = strings.Replace(text, "name: "+versionKey.Name, "name: v1", 1)
	}
	w.put(shares(", repositories: [lab]"))
	w.put(own)
	w.hasStatus(key, "active", "True", "Found")
	require.Equal(t, "pull", shown())

	w.put(shares(`, repositories: ["{tenant}"]`))
	s := w.hasStatus(key, "active", "Unknown", "SourceRefused")
	require.Contains(t, string(s.Detail), "shares with this tenant: physics")

	e.see(missing)
	w.put(shares(""))
	w.hasStatus(key, "active", "False", "Absent")
	require.Empty(t, shown(), "the credential is for what the platform's own versions are made from")
}

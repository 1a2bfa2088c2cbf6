package decide_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
	"berth/schema"
	"berth/schema/estate"
)

const (
	ownApp      = "tenants/physics/catalog/beam/app.yaml"
	ownVersion  = "tenants/physics/catalog/beam/v1.yaml"
	ownEntitled = "tenants/physics/projects/lhc/entitlements/beam.yaml"
	ownInstance = at + "beam.yaml"
	admission   = "platform/admissions/physics/beam.yaml"
)

// owned are the documents of an app beam of the tenant physics, with its instance.
func owned() map[string]string {
	files := estateFiles(nil)
	return map[string]string{
		ownApp:      strings.Replace(files["platform/catalog/batch/app.yaml"], "name: batch", "name: beam", 1),
		ownVersion:  files["platform/catalog/batch/v1.yaml"],
		ownEntitled: doc("Entitlement", "beam", "spec:\n  enabled: true\n"),
		ownInstance: strings.Replace(instance("beam", 1, 1), "app: batch", "app: beam", 1),
		admission: doc("AppAdmission", "beam",
			"spec:\n  allowed_control_plane_scopes: [project]\n  allowed_runtime_backends: [bare_metal]\n  artifact_source_allowlist: "+
				"[]\n"),
	}
}

// only are some of the documents of owned.
func only(paths ...string) map[string]string {
	out := map[string]string{}
	for _, path := range paths {
		out[path] = owned()[path]
	}
	return out
}

// dropped are files without some of them.
func dropped(files map[string]string, paths ...string) map[string]string {
	out := maps.Clone(files)
	for _, path := range paths {
		delete(out, path)
	}
	return out
}

// A tenant's app comes into force as a proposal. A document that uses it waits until an admission is in force.
// The removal of an admission holds nothing and deletes nothing (F9).
func TestOwnAppWaitsForAdmission(t *testing.T) {
	l := loader(t)
	denied := map[string]schema.HeldReason{ownEntitled: schema.HeldDenied, ownInstance: schema.HeldDenied}
	files := func(paths ...string) map[string]string { return estateFiles(only(paths...)) }
	step := func(from, to map[string]string) decide.Decision {
		d, err := commit(t, l, estate.Files(to), estate.Files(from))
		require.NoError(t, err)
		return d
	}
	proposed := files(ownApp, ownVersion)
	d := step(files(), proposed)
	require.Empty(t, d.Held, "a proposal is valid")
	require.NotNil(t, d.Desired.App("physics", "beam"))

	d = step(proposed, files(ownApp, ownVersion, ownEntitled, ownInstance))
	held := reasons(d.Held)
	require.Equal(t, denied[ownEntitled], held[ownEntitled])
	require.Contains(t, held, ownInstance)
	for _, h := range d.Held {
		if h.File == ownEntitled {
			require.Contains(t, h.Message, "no "+admission)
			require.Contains(t, h.Message, ownApp+":4")
		}
	}

	all := files(ownApp, ownVersion, ownEntitled, ownInstance, admission)
	d = step(proposed, all)
	require.Contains(t, reasons(d.Held), ownEntitled, "an admission is not used by the change that brings it")
	d = step(files(ownApp, ownVersion, admission), all)
	require.Empty(t, d.Held)
	require.NotNil(t, d.Desired.Instance(schema.InstanceKey("physics", "lhc", "beam")))

	d = step(all, files(ownApp, ownVersion, ownEntitled, ownInstance))
	require.Empty(t, d.Held, "the withdrawal comes into force")
	require.Nil(t, d.Desired.Admission("physics", "beam"))
	require.NotNil(t, d.Desired.Instance(schema.InstanceKey("physics", "lhc", "beam")), "and ends nothing")
	n := d.Effective.Noncompliance(schema.InstanceKey("physics", "lhc", "beam"))
	require.NotNil(t, n)
	require.Equal(t, schema.FateHeld, n.Fate)

	more := files(ownApp, ownVersion, ownEntitled)
	more[ownInstance] = strings.Replace(owned()[ownInstance], "count: 1", "count: 2", 1)
	d = step(files(ownApp, ownVersion, ownEntitled, ownInstance), more)
	require.Equal(t, map[string]schema.HeldReason{ownInstance: schema.HeldDenied}, reasons(d.Held),
		"it takes no change that does not comply")
	more[ownEntitled] = doc("Entitlement", "beam", "spec:\n  enabled: false\n")
	more[ownInstance] = owned()[ownInstance]
	require.Empty(t, step(files(ownApp, ownVersion, ownEntitled, ownInstance), more).Held, "the tenant may disable its entitlement")
}

// A tenant does not shadow an app of the platform, and does not keep the platform from a slug.
func TestOwnAppDoesNotShadowThePlatforms(t *testing.T) {
	l := loader(t)
	const theirs = "platform/catalog/beam/app.yaml"
	platforms := map[string]string{theirs: owned()[ownApp], "platform/catalog/beam/v1.yaml": owned()[ownVersion]}

	// It hits the instances of the platform's app in force in no way.
	shadow := estateFiles(map[string]string{"tenants/physics/catalog/batch/app.yaml": estateFiles(nil)["platform/catalog/batch/app.yaml"]})
	d, err := commit(t, l, estate.Files(shadow), estate.Files(estateFiles(nil)))
	require.NoError(t, err)
	require.Len(t, d.Held, 1)
	require.Equal(t, schema.HeldInvalid, d.Held[0].Reason)
	require.Contains(t, d.Held[0].Message, "the platform has an app batch (platform/catalog/batch/app.yaml)")
	require.Empty(t, d.Desired.App("physics", "batch").Key.Tenant)
	require.NotNil(t, d.Desired.Instance(trainKey))

	// Neither does one that is invalid itself, nor do its versions; an instance of that change is of the
	// platform's app.
	shadow["tenants/physics/catalog/batch/app.yaml"] += "  surprise: yes\n"
	shadow["tenants/physics/catalog/batch/v1.yaml"] = owned()[ownVersion]
	shadow[eval] = instance("eval", 1, 1)
	d, err = commit(t, l, estate.Files(shadow), estate.Files(estateFiles(nil)))
	require.NoError(t, err)
	require.Equal(t, map[string]schema.HeldReason{"tenants/physics/catalog/batch/app.yaml": schema.HeldInvalid,
		"tenants/physics/catalog/batch/v1.yaml": schema.HeldNeeds}, reasons(d.Held))
	require.NotNil(t, d.Desired.Instance(evalKey))

	// In one change, the platform's comes into force.
	both := estateFiles(with(owned(), platforms))
	d, err = commit(t, l, estate.Files(both), estate.Files(estateFiles(nil)))
	require.NoError(t, err)
	require.Equal(t, schema.HeldInvalid, reasons(d.Held)[ownApp])
	require.NotContains(t, reasons(d.Held), theirs)

	// An older app of the tenant stays unchanged, with its instance, and holds no document of the platform.
	mine := estateFiles(owned())
	d, err = commit(t, l, estate.Files(both), estate.Files(mine))
	require.NoError(t, err)
	require.Empty(t, d.Held)
	require.Equal(t, "physics", d.Desired.App("physics", "beam").Key.Tenant)
	require.NotNil(t, d.Desired.Platform.Apps["beam"])
	p, err := decide.New(decide.Options{Loader: l}).Proposal(t.Context(),
		decide.Input{Repo: trees{"in-force": mine, "both": both}, Base: "in-force", InForce: "in-force", Head: "both",
			Memory: running(t, l, mine), Today: "2026-01-01"})
	require.NoError(t, err)
	require.False(t, schema.HasErrors(p.Diagnostics), p.Diagnostics)
	require.Contains(t, p.Diagnostics[len(p.Diagnostics)-1].Message, "the platform has an app beam too")

	// Its document is not taken from under its instance.
	gone := dropped(both, ownApp, ownVersion)
	d, err = commit(t, l, estate.Files(gone), estate.Files(both))
	require.NoError(t, err)
	require.Contains(t, reasons(d.Held), ownApp)
	require.Equal(t, "physics", d.Desired.Version("physics", "beam", "v1").Key.Tenant)
	// Nor does such a deletion hold the platform's.
	d, err = commit(t, l, estate.Files(dropped(gone, theirs, "platform/catalog/beam/v1.yaml")), estate.Files(both))
	require.NoError(t, err)
	require.Equal(t, map[string]schema.HeldReason{ownApp: schema.HeldNeeds, ownVersion: schema.HeldNeeds}, reasons(d.Held))
	require.Nil(t, d.Desired.Platform.Apps["beam"])
	gone = dropped(gone, ownInstance, ownEntitled)
	d, err = commit(t, l, estate.Files(gone), estate.Files(both))
	require.NoError(t, err)
	require.Empty(t, d.Held)

	// Nor does a new one take units from an app that the platform deletes.
	files := estateFiles(nil)
	taken := dropped(files, "platform/catalog/batch/app.yaml", "platform/catalog/batch/v1.yaml")
	taken["tenants/physics/catalog/batch/app.yaml"] = files["platform/catalog/batch/app.yaml"]
	d, err = commit(t, l, estate.Files(taken), estate.Files(files))
	require.NoError(t, err)
	require.NotNil(t, d.Desired.Platform.Versions["batch"]["v1"])
	require.NotNil(t, d.Desired.Instance(trainKey))
	require.Contains(t, reasons(d.Held), "tenants/physics/catalog/batch/app.yaml")
}

// A version in use is not deleted, and another tenant cannot use it.
func TestOwnVersionInUseStays(t *testing.T) {
	l := loader(t)
	inForce := estateFiles(owned())
	d, err := commit(t, l, estate.Files(dropped(inForce, ownVersion)), estate.Files(inForce))
	require.NoError(t, err)
	require.Equal(t, map[string]schema.HeldReason{ownVersion: schema.HeldNeeds}, reasons(d.Held))

	const other = "tenants/biology/projects/genomes/"
	biology := with(inForce, map[string]string{
		"tenants/biology/tenant.yaml":           doc("Tenant", "biology", "spec:\n  display_name: Biology\n"),
		other + "project.yaml":                  doc("Project", "genomes", "spec:\n  display_name: Genomes\n"),
		other + "entitlements/beam.yaml":        owned()[ownEntitled],
		"platform/admissions/biology/beam.yaml": owned()[admission],
	})
	d, err = commit(t, l, estate.Files(biology), estate.Files(inForce))
	require.NoError(t, err)
	require.Equal(t, map[string]schema.HeldReason{other + "entitlements/beam.yaml": schema.HeldInvalid}, reasons(d.Held))
}

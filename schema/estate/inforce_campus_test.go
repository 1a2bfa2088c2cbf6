package estate_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/estate"
)

const (
	department = "tenants/physics/shared-runtimes/department/"
	commons    = "platform/shared-runtimes/commons/"
	collider   = "tenants/physics/projects/collider/"
	proteins   = "tenants/biology/projects/proteins/"
)

// change is an edit of one file: OLD => NEW, "" to remove it, or its whole content.
type change struct{ path, what string }

func changed(t testing.TB, files map[string]string, changes []change) map[string]string {
	for _, c := range changes {
		before, after, edit := strings.Cut(c.what, " => ")
		switch {
		case c.what == "":
			delete(files, c.path)
		case edit:
			require.Contains(t, files[c.path], before, c.path)
			files[c.path] = strings.Replace(files[c.path], before, after, 1)
		default:
			files[c.path] = c.what
		}
	}
	return files
}

// The keys of the campus's accounts ci and department.
const (
	projectKey  = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK0wmN/Cr3JXqmLW7u+g9pTh+wyqDHpSQQIQczXkVx9i"
	operatorKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB3sRsGU1kWpU0fpM1XcVGYQbB9NDSwxxXhWAfZb5Jp0"
)

func robot(key string) string {
	return "apiVersion: berth/v1\nkind: ServiceAccount\nmetadata: {name: robot}\nspec:\n  display_name: x\n  public_keys: [{id: a, key: " +
		key + "}]\n  scopes: []\n  allowed_endpoints: []\n"
}

// The names of the nodes are compared again when the nodes change, for every
// tenant. Names of nodes reserved for one tenant are hidden from all others.
func TestUnknownNodeNamesAreFindings(t *testing.T) {
	l, files := newLoader(t), campus(t)
	find := func() (found []string) {
		r, err := l.Load(t.Context(), estate.Files(files))
		require.NoError(t, err)
		for _, d := range r.Diagnostics {
			require.Equal(t, "ref.no-node", d.Code)
			found = append(found, d.File+" "+d.Path)
		}
		return found
	}
	require.Empty(t, find())
	for path, content := range files {
		if strings.HasPrefix(path, "platform/nodes/") {
			files[path] = strings.ReplaceAll(content, "gpu-a100-4", "gpu-new")
		}
	}
	const policy, tenants = "platform/policy/campus.yaml spec.allowed_skus[2]", "tenants/biology/policy.yaml spec.allowed_skus[0]"
	files["tenants/biology/policy.yaml"] = strings.Replace(files["tenants/biology/policy.yaml"], "spec:",
		"spec:\n  allowed_skus: [gpu-a100-4]", 1)
	require.Equal(t, []string{policy, tenants}, find())
	files["platform/nodes/gpu-1.yaml"] = strings.Replace(campus(t)["platform/nodes/gpu-1.yaml"], "  roles:",
		"  reserved_for: physics\n  roles:", 1)
	require.Equal(t, []string{tenants}, find(), "the platform sees all nodes, a tenant its own and everybody's")
	files["platform/nodes/gpu-1.yaml"] = campus(t)["platform/nodes/gpu-1.yaml"]
	require.Empty(t, find())
	files["platform/nodes/gpu-1.yaml"] = "a: ["
	r, err := l.Load(t.Context(), estate.Files(files))
	require.NoError(t, err)
	for _, d := range r.Diagnostics {
		require.NotEqual(t, "ref.no-node", d.Code, "an unreadable node may have the name")
	}
}

// Documents refer to each other, and each one is changed or removed while the
// other needs it.
func TestInForceOfReferences(t *testing.T) {
	const (
		attachment = department + "attachments/collider.yaml"
		analysis   = collider + "instances/analysis.yaml"
		offer      = collider + "contributions/gpu-3.yaml"
		drain      = lattice + "operations/drain-worker.yaml"
		second     = "apiVersion: berth/v1\nkind: SharedRuntime\nmetadata: {name: aaa}\nspec: {app: slurm, version: 22-05, display_name: " +
			"x, environment: production, operator_identity_ref: department}\n"
		again = "apiVersion: berth/v1\nkind: Attachment\nmetadata: {name: aaa}\nspec: {project_id: physics.collider, " +
			"contribution_policy: {allow: true}}\n"
		noNodes = "allow: true => allow: false"
	)
	for name, tc := range map[string]struct {
		before, after []change // over the campus
		want          string
	}{
		"an owner ends an attachment although the project has accepted it and lends nodes": {
			after: []change{{attachment, ""}}},
		"or turns it to another project": {
			after: []change{{department + "attachments/lattice.yaml", ""}, {attachment, "physics.collider => physics.lattice"}}},
		"or ends it with the whole runtime": {
			after: []change{{attachment, ""}, {department + "attachments/lattice.yaml", ""}, {department + "runtime.yaml", ""}}},
		"with what needs it, it goes": {
			after: []change{{attachment, ""}, {analysis, ""}, {offer, ""}}},
		"an attachment moves to another file": {
			before: []change{{attachment, ""}, {department + "attachments/b.yaml", strings.ReplaceAll(again, "aaa", "b")}},
			after:  []change{{attachment, ""}, {department + "attachments/aaa.yaml", again}}},
		"a project is taken off the list although it has an instance": {
			before: []change{{attachment, ""}, {offer, ""},
				{department + "runtime.yaml", "[physics.lattice] => [physics.lattice, physics.collider]"}},
			after: []change{{attachment, ""}, {offer, ""}}},
		"a shared runtime with attachments is not taken away": {
			after: []change{{department + "runtime.yaml", ""}},
			want:  "needs " + department + "runtime.yaml: as before\n"},
		"a second runtime that sorts first does not push the one in force out": {
			after: []change{{"tenants/physics/shared-runtimes/aaa/runtime.yaml", second}},
			want:  "needs tenants/physics/shared-runtimes/aaa/runtime.yaml: not there\n"},
		"a second attachment that sorts first does not push the one in force out": {
			after: []change{{department + "attachments/aaa.yaml", again}},
			want:  "needs " + department + "attachments/aaa.yaml: not there\n"},
		"nor does a new node push out the one whose address it takes": {
			after: []change{{"platform/nodes/aaa.yaml",
				"apiVersion: berth/v1\nkind: Node\nmetadata: {name: aaa}\nspec: {address: 10.78.0.13, region: campus-south, sku: " +
					"cpu-small, roles: [worker], capacity: {cpus: 1, memory_mib: 1000}}\n"}},
			want: "needs platform/nodes/aaa.yaml: not there\n"},
		"a service account in use is not taken away, but its keys are": {
			after: []change{{lattice + "service-accounts/ci.yaml", ""},
				{"tenants/physics/service-accounts/department.yaml", "    - id: current => #"},
				{"tenants/physics/service-accounts/department.yaml", "public_keys: => public_keys: []"},
				{"tenants/physics/service-accounts/department.yaml", "      key: => #"}},
			want: "needs " + lattice + "service-accounts/ci.yaml: as before\n"},
		"an artifact source in use is not taken away": {
			after: []change{{"tenants/physics/artifact-sources/department.yaml", ""}, {"platform/artifact-sources/mirror.yaml", ""}},
			want: "needs platform/artifact-sources/mirror.yaml: as before\nneeds tenants/physics/artifact-sources/department.yaml: as " +
				"before\n"},
		"an operation gives way to the removal of its instance": {
			after: []change{{trainFile, ""}},
			want:  "needs " + drain + ": not there\n"},
		"and to a smaller instance": {
			after: []change{{trainFile, "count: 1 => count: 0"}},
			want:  "needs " + drain + ": not there\n"},
		"a changed operation goes back, and then gives way": {
			after: []change{{trainFile, ""}, {drain, "a fan is loud => two fans are loud"}},
			want:  "needs " + drain + ": not there\n"},
		"an operation that is out stays out until it is right": {
			before: []change{{drain, ""}, {trainFile, ""}},
			after:  []change{{trainFile, ""}},
			want:   "invalid " + drain + ": not there\n"},
		"an offer gives way to the platform's nodes": {
			after: []change{{"platform/nodes/gpu-3.yaml", "  reserved_for: physics.collider => #"}, {"platform/nodes/gpu-4.yaml", ""}},
			want:  "needs " + proteins + "contributions/gpu-4.yaml: not there\nneeds " + offer + ": not there\n"},
		"an offer gives way to terms that take no nodes": {
			after: []change{{attachment, noNodes}},
			want:  "needs " + offer + ": not there\n"},
		"a project that the platform attaches is not taken away": {
			after: []change{{proteins + "project.yaml", ""}, {proteins + "instances/folding.yaml", ""},
				{proteins + "contributions/gpu-4.yaml", ""}, {proteins + "entitlements/slurm.yaml", ""}, {proteins + "roles.yaml", ""}},
			want: "needs " + proteins + "entitlements/slurm.yaml: as before\nneeds " + proteins + "project.yaml: as before\n"},
		"a tenant's instance does not hold the platform's attachment": {
			after: []change{{commons + "attachments/proteins.yaml", ""}, {proteins + "contributions/gpu-4.yaml", ""}}},
		"a uid is its first owner's, wherever in the tenant the copy stands": {
			after: []change{{analysis, "  name: analysis =>   name: analysis\n  uid: 0d9f2c6e-train"}},
			want:  "invalid " + analysis + ": as before\n"},
		"another tenant's copy says nothing": {
			after: []change{{"tenants/biology/tenant.yaml", "  name: biology =>   name: biology\n  uid: 0d9f2c6e-train"}}},
		"a uid goes with its document": {
			before: []change{{drain, ""}},
			after: []change{{drain, ""}, {trainFile, ""}, {lattice + "instances/train-2.yaml",
				"apiVersion: berth/v1\nkind: Instance\nmetadata: {name: train-2, uid: 0d9f2c6e-train}\nspec: {app: slurm, version: " +
					"22-05, display_name: x}\n"}}},
		"who has a key keeps it, also in the tenant's first project": {
			after: []change{{collider + "service-accounts/robot.yaml", robot(projectKey)}},
			want:  "needs " + collider + "service-accounts/robot.yaml: not there\n"},
		"and against the tenant's own": {
			after: []change{{"tenants/physics/service-accounts/robot.yaml", robot(projectKey)}},
			want:  "needs tenants/physics/service-accounts/robot.yaml: not there\n"},
		"a project's key is not the operator's, however it is written": {
			after: []change{{collider + "service-accounts/robot.yaml", robot(operatorKey + "=")}},
			want:  "invalid " + collider + "service-accounts/robot.yaml: not there\n"},
		"public keys are public: another tenant's use of one says nothing": {
			after: []change{{proteins + "service-accounts/robot.yaml", robot(operatorKey)}}},
		"a runtime of the platform does not wait for whom it names": {
			after: []change{{commons + "runtime.yaml",
				"  placement_intent =>   attached_project_ids: [biology.genomes, biology.nobody]\n  placement_intent"}}},
	} {
		t.Run(name, func(t *testing.T) {
			f := inForce(t, newLoader(t), changed(t, campus(t), tc.after), changed(t, campus(t), tc.before))
			require.Equal(t, tc.want, told(f))
		})
	}
}

// campusEdits has the possible edits of each campus file: removal, damage, or its
// content in a golden case.
func campusEdits(t *testing.T) map[string][]string {
	base := campus(t)
	all := map[string][]string{}
	for path, content := range base {
		all[path] = []string{"", "a: [\n", strings.Replace(content, "spec:", "sepc:", 1)}
	}
	archives, err := filepath.Glob("testdata/campus/*.txtar")
	require.NoError(t, err)
	for _, name := range archives {
		archive, err := txtar.ParseFile(name)
		require.NoError(t, err)
		for _, files := range goldenCases(t, archive, campus) {
			for path, content := range files {
				if content != base[path] {
					all[path] = append(all[path], content)
				}
			}
		}
	}
	for _, contents := range all { // the order of cases is random
		slices.Sort(contents)
	}
	return all
}

func TestInForcePropertiesOfReferences(t *testing.T) {
	inForceProperties(t, campus(t), campusEdits(t))
}

func TestTenantsWithReferencesDoNotDisturbEachOther(t *testing.T) {
	tenantsDoNotDisturbEachOther(t, campus(t), campusEdits(t))
}

// A key that an unchanged project already uses is found, as after a complete load.
func TestDuplicateKeyInUnchangedProjectIsFound(t *testing.T) {
	files := campus(t)
	account := func(name string) string {
		return "apiVersion: berth/v1\nkind: ServiceAccount\nmetadata: {name: " + name +
			"}\nspec:\n  display_name: x\n  public_keys: [{id: a, key: \"ssh-ed25519 " +
			"AAAAC3NzaC1lZDI1NTE5AAAAIBvLmebfXx702xqIA2iztALwf2MdpwQTlK+BqDRLspJR\"}]\n  scopes: []\n  allowed_endpoints: []\n"
	}
	files["tenants/physics/projects/lattice/service-accounts/late.yaml"] = account("late")
	warm := newLoader(t)
	_, err := warm.Load(t.Context(), estate.Files(files))
	require.NoError(t, err)
	files["tenants/physics/projects/collider/service-accounts/early.yaml"] = account("early")
	told := func(l *estate.Loader) (out []string) {
		r, err := l.Load(t.Context(), estate.Files(files))
		require.NoError(t, err)
		for _, d := range r.Diagnostics {
			out = append(out, d.String())
		}
		return out
	}
	cold := told(newLoader(t))
	require.NotEmpty(t, cold)
	require.Equal(t, cold, told(warm))
}

// An account in force stays in force, whichever endpoints this version of Berth
// has. An unknown endpoint is a warning and holds no change.
func TestUnknownEndpointHoldsNothing(t *testing.T) {
	const account = lattice + "service-accounts/ci.yaml"
	was := campus(t)
	was[account] = strings.Replace(was[account], "    - POST", "    - GET /api/v1/projects/{project_id}/app-instnaces\n    - POST", 1)
	for _, path := range []string{account, trainFile} {
		files := maps.Clone(was)
		files[path] = strings.Replace(files[path], "display_name: ", "display_name: New ", 1)
		f := inForce(t, newLoader(t), files, was)
		require.Empty(t, f.Held)
		require.Len(t, f.Result.Diagnostics, 1)
		require.Equal(t, account+`:13:7: warning: spec.allowed_endpoints[1]: GET /api/v1/projects/{project_id}/app-instnaces is not an endpoint of the API that an account can call, and grants nothing: did you mean "GET /api/v1/projects/{project_id}/app-instances"? [schema.no-effect]`, f.Result.Diagnostics[0].String())
		require.Contains(t, f.Result.Desired.Tenants["physics"].Projects["lattice"].ServiceAccounts, "ci")
	}
	was[account] = strings.Replace(was[account], "app-instnaces", "app instances", 1)
	r, err := newLoader(t).Load(t.Context(), estate.Files(was))
	require.NoError(t, err)
	require.True(t, schema.HasErrors(r.Diagnostics), "an endpoint of no version")
}

package load_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
)

const (
	department = "tenants/physics/shared-runtimes/department/"
	commons    = "platform/shared-runtimes/commons/"
	collider   = "tenants/physics/projects/collider/"
	proteins   = "tenants/biology/projects/proteins/"
)

// change is one file that people change: OLD => NEW, "" to remove it, or all of it.
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

// Documents that refer to each other, each changed or removed under the other.
func TestInForceOfReferences(t *testing.T) {
	const (
		attachment = department + "attachments/collider.yaml"
		analysis   = collider + "instances/analysis.yaml"
		offer      = collider + "contributions/gpu-3.yaml"
		drain      = lattice + "operations/drain-worker.yaml"
		second     = "apiVersion: berth/v1\nkind: SharedRuntime\nmetadata: {name: aaa}\nspec: {app: slurm, version: 22-05, display_name: x, environment: production}\n"
		again      = "apiVersion: berth/v1\nkind: Attachment\nmetadata: {name: aaa}\nspec: {project_id: physics.collider, contribution_policy: {allow: true}}\n"
		noNodes    = "allow: true => allow: false"
	)
	for name, tc := range map[string]struct {
		before, after []change // over the campus
		want          string
	}{
		"an attachment in use is not taken away": {
			after: []change{{attachment, ""}},
			want:  "needs " + attachment + ": as before\n"},
		"nor is it turned to another project": {
			after: []change{{attachment, "physics.collider => physics.lattice"}},
			want:  "needs " + attachment + ": as before\n"},
		"only the attachment that is needed is held": {
			before: []change{{department + "attachments/lattice.yaml", "apiVersion: berth/v1\nkind: Attachment\nmetadata: {name: lattice}\nspec: {project_id: physics.lattice}\n"}},
			after:  []change{{attachment, ""}, {department + "attachments/lattice.yaml", ""}},
			want:   "needs " + attachment + ": as before\n"},
		"with what needs it, it goes": {
			after: []change{{attachment, ""}, {analysis, ""}, {offer, ""}}},
		"an attachment moves to another file": {
			before: []change{{attachment, ""}, {department + "attachments/b.yaml", strings.ReplaceAll(again, "aaa", "b")}},
			after:  []change{{attachment, ""}, {department + "attachments/aaa.yaml", again}}},
		"a project is not taken off the list while it has an instance": {
			before: []change{{attachment, ""}, {offer, ""}, {department + "runtime.yaml", "[physics.lattice] => [physics.lattice, physics.collider]"}},
			after:  []change{{attachment, ""}, {offer, ""}},
			want:   "needs " + department + "runtime.yaml: as before\n"},
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
			after: []change{{"platform/nodes/aaa.yaml", "apiVersion: berth/v1\nkind: Node\nmetadata: {name: aaa}\nspec: {address: 10.78.0.13, region: campus-south, sku: cpu-small, roles: [worker], capacity: {cpus: 1, memory_mib: 1000}}\n"}},
			want:  "needs platform/nodes/aaa.yaml: not there\n"},
		"a service account in use is not taken away, but its keys are": {
			after: []change{{lattice + "service-accounts/ci.yaml", ""}, {"tenants/physics/service-accounts/department.yaml", "    - id: current => #"}, {"tenants/physics/service-accounts/department.yaml", "public_keys: => public_keys: []"}, {"tenants/physics/service-accounts/department.yaml", "      key: => #"}},
			want:  "needs " + lattice + "service-accounts/ci.yaml: as before\n"},
		"an artifact source in use is not taken away": {
			after: []change{{"tenants/physics/artifact-sources/department.yaml", ""}, {"platform/artifact-sources/mirror.yaml", ""}},
			want:  "needs platform/artifact-sources/mirror.yaml: as before\nneeds tenants/physics/artifact-sources/department.yaml: as before\n"},
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
			after: []change{{proteins + "project.yaml", ""}, {proteins + "instances/folding.yaml", ""}, {proteins + "contributions/gpu-4.yaml", ""}, {proteins + "entitlements/slurm.yaml", ""}, {proteins + "roles.yaml", ""}},
			want:  "needs " + proteins + "entitlements/slurm.yaml: as before\nneeds " + proteins + "project.yaml: as before\n"},
		"a tenant's instance holds the platform's attachment": {
			after: []change{{commons + "attachments/proteins.yaml", ""}, {proteins + "contributions/gpu-4.yaml", ""}},
			want:  "needs " + commons + "attachments/proteins.yaml: as before\n"},
		"a uid is its first owner's, wherever in the tenant the copy stands": {
			after: []change{{analysis, "  name: analysis =>   name: analysis\n  uid: 0d9f2c6e-train"}},
			want:  "invalid " + analysis + ": as before\n"},
		"another tenant's copy says nothing": {
			after: []change{{"tenants/biology/tenant.yaml", "  name: biology =>   name: biology\n  uid: 0d9f2c6e-train"}}},
		"a uid goes with its document": {
			before: []change{{drain, ""}},
			after: []change{{drain, ""}, {trainFile, ""}, {lattice + "instances/train-2.yaml",
				"apiVersion: berth/v1\nkind: Instance\nmetadata: {name: train-2, uid: 0d9f2c6e-train}\nspec: {app: slurm, version: 22-05, display_name: x}\n"}}},
	} {
		t.Run(name, func(t *testing.T) {
			f := inForce(t, newLoader(t), changed(t, campus(t), tc.after), changed(t, campus(t), tc.before))
			require.Equal(t, tc.want, told(f))
		})
	}
}

// campusEdits are what may happen to a file of the campus: that it goes, is
// broken, or becomes what it is in one of the golden cases.
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
	for _, contents := range all { // cases come in no order
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

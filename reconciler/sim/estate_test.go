package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"berth/schema"
	"berth/schema/estate"
)

// wish is what main declares of one instance.
type wish struct {
	exists  bool
	stopped bool
	workers int
}

const (
	instances = 3
	workers   = instances * 2 // nodes: as many as can be asked for
)

// wishes are what main declares. Equal ones have the same tree.
type wishes [instances]wish

func unitKey(i int) schema.Key { return schema.InstanceKey("physics", "lab", "unit-"+strconv.Itoa(i)) }

func unitPath(i int) string {
	return "tenants/physics/projects/lab/instances/unit-" + strconv.Itoa(i) + ".yaml"
}

// tree is the content of a commit of main or berth/in-force.
type tree struct {
	id       string // equal trees have the same
	files    map[string]string
	blobs    map[string]string
	snapshot schema.Snapshot
}

var texts sync.Map // text by blob, of all trees

func treeOf(files map[string]string) *tree {
	t := &tree{files: files, blobs: map[string]string{}, snapshot: estate.Files(files)}
	var id strings.Builder
	for _, path := range slices.Sorted(maps.Keys(files)) {
		t.blobs[path] = estate.BlobID([]byte(files[path]))
		texts.Store(t.blobs[path], files[path])
		id.WriteString(path + " " + t.blobs[path] + "\n")
	}
	t.id = id.String()
	return t
}

// declared is what main says. Only a wide estate has rules, and operations.
type declared struct {
	wishes
	operation
	isWide, holds bool
}

var merged sync.Map // *tree by declared, without operations: with them there are too many

func (w declared) tree() *tree {
	if w.verb == "" {
		w.operation = operation{}
	}
	if t, ok := merged.Load(w); ok {
		return t.(*tree)
	}
	files := platformFiles()
	if w.isWide {
		maps.Copy(files, ruleFiles())
		maps.Copy(files, w.files())
	}
	if w.holds {
		maps.Copy(files, holdFiles())
	}
	for i, one := range w.wishes {
		if one.exists {
			files[unitPath(i)] = one.text(i)
		}
	}
	t := treeOf(files)
	if w.verb == "" {
		merged.Store(w, t)
	}
	return t
}

// with returns the tree with paths replaced by blobs that some tree has; "" removes a path.
func (t *tree) with(replace map[string]string) (*tree, error) {
	if len(replace) == 0 {
		return t, nil
	}
	files := maps.Clone(t.files)
	for path, blob := range replace {
		delete(files, path)
		if blob == "" {
			continue
		}
		text, ok := texts.Load(blob)
		if !ok {
			return nil, fmt.Errorf("%s: no tree has blob %s", path, blob)
		}
		files[path] = text.(string)
	}
	return treeOf(files), nil
}

func (w wish) text(i int) string {
	state := "running"
	if w.stopped {
		state = "stopped"
	}
	return fmt.Sprintf(`apiVersion: berth/v1
kind: Instance
metadata: {name: unit-%d}
spec:
  app: batch
  version: v1
  display_name: unit %d
  desired_state: %s
  roles:
    controller: {count: 1}
    worker: {count: %d, gpus: {type: a100, count: 2}}
`, i, i, state, w.workers)
}

func platformFiles() map[string]string {
	files := map[string]string{
		"platform/catalog/batch/app.yaml": `apiVersion: berth/v1
kind: App
metadata: {name: batch}
spec: {display_name: Batch, category: batch, publisher: platform, status: active, supports: {operating_modes: [tenant_dedicated, platform_managed], control_plane_scopes: [project, tenant, platform]}}
`,
		"platform/catalog/batch/v1.yaml": `apiVersion: berth/v1
kind: AppVersion
metadata: {name: v1}
spec:
  version: "1"
  runtime_backend: bare_metal
  status: active
  manifest:
    roles:
      controller: {node_role: controller, control_plane: true, shareable: true, min: 1, max: 1}
      worker: {node_role: worker, gpus: true, min: 0, max: 8}
`,
		"platform/nodes/ctl.yaml":     node("ctl", 10, "controller", ""),
		"tenants/physics/tenant.yaml": "apiVersion: berth/v1\nkind: Tenant\nmetadata: {name: physics}\nspec: {display_name: Physics}\n",
		"tenants/physics/projects/lab/project.yaml": "apiVersion: berth/v1\nkind: Project\nmetadata: {name: lab}\n" +
			"spec: {display_name: Lab}\n",
		"tenants/physics/projects/lab/roles.yaml": "apiVersion: berth/v1\nkind: RoleBinding\nmetadata: {name: roles}\n" +
			"spec: {members: [{login: ada, role: project_admin}]}\n",
		"tenants/physics/projects/lab/entitlements/batch.yaml": "apiVersion: berth/v1\nkind: Entitlement\nmetadata: {name: batch}\n" +
			"spec: {enabled: true}\n",
	}
	for i := range workers {
		name := fmt.Sprint("gpu-", i)
		files["platform/nodes/"+name+".yaml"] = node(name, 11+i, "worker", "gpus: [{type: a100, count: 2, devices: \"/dev/nvidia[0-1]\"}]")
	}
	return files
}

func nodeNames() []string {
	names := []string{"ctl"}
	for i := range workers {
		names = append(names, fmt.Sprint("gpu-", i))
	}
	return names
}

func node(name string, address int, role, extra string) string {
	return fmt.Sprintf(`apiVersion: berth/v1
kind: Node
metadata: {name: %s}
spec:
  address: 10.9.0.%d
  region: eu-1
  sku: standard
  roles: [%s]
  capacity: {cpus: 8, memory_mib: 8000, %s}
`, name, address, role, extra)
}

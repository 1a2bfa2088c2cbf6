// Package large makes estates of any size from the example lab, for measurements.
// The same size gives the same bytes. The package knows documents
// as text only; it must not depend on the code that it measures.
package large

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"berth/examples"
)

// Shape is the size of an estate: the projects of each tenant, and the instances of each project.
type Shape struct{ Tenants, Projects, Instances, Nodes int }

// The shape of Estate: tenants stay of one size, more documents are more
// tenants. So what one change costs can be held against the size of the rest.
const (
	projects    = 10 // of a tenant
	instances   = 16 // of a project
	perTenant   = 3 + projects*(3+instances)
	perNode     = 20 // documents for each node
	controllers = 5  // nodes for each that has control planes
)

// Estate is an estate of about the given number of documents, by path. Each
// twentieth document is a node.
func Estate(documents int) map[string]string {
	e := newEstate(Shape{Projects: projects, Instances: instances, Nodes: max(documents/perNode, controllers)})
	e.shape.Tenants = max((documents-len(e.files)-e.shape.Nodes+perTenant/2)/perTenant, 1)
	return e.make()
}

// Estate is an estate of a shape, by path. Each fifth node is for control planes. Every n-th
// instance has a worker with GPUs on a node of its own; one node in ten stays free.
func (s Shape) Estate() map[string]string { return newEstate(s).make() }

// Tenant is the name of the i-th tenant.
func Tenant(i int) string { return fmt.Sprintf("t%03d", i) }

// Instance is the path of one of the i-th tenant's instances.
func Instance(tenant, project, i int) string {
	return fmt.Sprintf("tenants/%s/projects/p%d/instances/i%02d.yaml", Tenant(tenant), project, i)
}

// Change returns the document of an instance after its n-th edit.
func Change(document string, n int) string {
	return strings.Replace(document, "display_name: Cluster", fmt.Sprintf("display_name: Edit %d of cluster", n), 1)
}

type estate struct {
	shape        Shape
	files        map[string]string
	app, version string
	instances    int
}

func newEstate(s Shape) *estate {
	e := &estate{shape: s, files: map[string]string{}}
	e.catalog()
	return e
}

func (e *estate) make() map[string]string {
	s := e.shape
	for i := range s.Nodes {
		e.node(i)
	}
	workers := s.Nodes - (s.Nodes+controllers-1)/controllers
	every := max(s.Tenants*s.Projects*s.Instances*10/(workers*9)+1, 1)
	for t := range s.Tenants {
		e.tenant(t, every)
	}
	return e.files
}

func (e *estate) put(name, kind, spec string) {
	stem := strings.TrimSuffix(path.Base(name), ".yaml")
	switch {
	case kind == "Tenant" || kind == "Project":
		stem = path.Base(path.Dir(name))
	}
	e.files[name] = fmt.Sprintf("apiVersion: berth/v1\nkind: %s\nmetadata:\n  name: %s\nspec:\n%s", kind, stem, spec)
}

// catalog is the lab's, with limits that many instances stay within.
func (e *estate) catalog() {
	const root = "platform/catalog"
	err := fs.WalkDir(examples.Lab(), root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(examples.Lab(), name)
		e.files[name] = string(data)
		if file := path.Base(name); file != "app.yaml" {
			e.app, e.version = path.Base(path.Dir(name)), strings.TrimSuffix(file, ".yaml")
		}
		return err
	})
	if err != nil {
		panic(err) // the lab is compiled in
	}
	e.put("platform/policy/limits.yaml", "Policy", `  allowed_regions: [north, south]
  allowed_skus: [cpu-small, gpu-a100-4]
  max_instances_per_project: 40
  max_gpus_per_instance: 8
  allowed_operating_modes: [tenant_dedicated]
`)
}

func (e *estate) node(i int) {
	region := []string{"north", "south"}[i%2]
	at := fmt.Sprintf("  address: 10.%d.%d.%d\n  region: %s\n", 64+i/62500, i/250%250, i%250+1, region)
	topology := fmt.Sprintf("  topology:\n    rack: r%d\n    switch: leaf-%d\n", i/20, i/80)
	if i%controllers == 0 {
		e.put(fmt.Sprintf("platform/nodes/ctl-%05d.yaml", i), "Node",
			at+"  sku: cpu-small\n  roles: [controller]\n  capacity:\n    cpus: 16\n    memory_mib: 64000\n"+topology)
		return
	}
	e.put(fmt.Sprintf("platform/nodes/gpu-%05d.yaml", i), "Node", at+`  sku: gpu-a100-4
  roles: [worker]
  capacity:
    cpus: 64
    memory_mib: 512000
    gpus:
      - type: a100
        count: 4
        devices: /dev/nvidia[0-3]
`+topology)
}

func (e *estate) tenant(t, every int) {
	at := "tenants/" + Tenant(t) + "/"
	e.put(at+"tenant.yaml", "Tenant",
		fmt.Sprintf("  display_name: Department %d\n  description: One of many departments of the campus\n", t))
	e.put(at+"policy.yaml", "Policy", "  max_gpus_per_instance: 6\n  max_instances_per_project: 30\n")
	e.put(at+"roles.yaml", "RoleBinding", fmt.Sprintf("  members:\n    - login: owner-%d\n      role: tenant_owner\n", t))
	for p := range e.shape.Projects {
		at := fmt.Sprintf("%sprojects/p%d/", at, p)
		e.put(at+"project.yaml", "Project", fmt.Sprintf("  display_name: Project %d of department %d\n", p, t))
		var members strings.Builder
		for m := range 4 {
			uid := 20000 + (t*e.shape.Projects+p)*4 + m
			role := []string{"project_admin", "project_member", "project_member", "project_viewer"}[m]
			fmt.Fprintf(&members, "    - login: person-%d\n      role: %s\n      unix_user:\n        name: u%d\n        uid: %d\n", uid,
				role, uid, uid)
		}
		e.put(at+"roles.yaml", "RoleBinding", "  members:\n"+members.String())
		e.put(at+"entitlements/"+e.app+".yaml", "Entitlement", "  enabled: true\n  policy_overrides:\n    max_gpus_per_instance: 4\n")
		for i := range e.shape.Instances {
			e.instance(fmt.Sprintf("%sinstances/i%02d.yaml", at, i), i, every)
		}
	}
}

func (e *estate) instance(name string, i, every int) {
	e.instances++
	worker := "      count: 0\n"
	if e.instances%every == 0 {
		worker = "      count: 1\n      sku: gpu-a100-4\n      gpus:\n        type: a100\n        count: 4\n"
	}
	config := ""
	if i%4 == 0 {
		config = fmt.Sprintf("  config:\n    partitions:\n      - name: main\n        default: true\n        max_time_minutes: %d\n",
			60*(i+1))
	}
	e.put(name, "Instance", fmt.Sprintf(`  app: %s
  version: %s
  display_name: Cluster %d of the project
  desired_state: running
  operating_mode: tenant_dedicated
  roles:
    worker:
%s  requested_by: person-%d
%s`, e.app, e.version, i, worker, 20000+e.instances, config))
}

package policy_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/policy"
)

func capacity(d *schema.Desired) (lines []string) {
	for _, f := range new(policy.CapacityChecker).Check(d, policy.Evaluate(d), true) {
		lines = append(lines, strings.TrimPrefix(f.String(), "tenants/physics/projects/lattice/instances/"))
	}
	return lines
}

// node returns a node of the lab with another capacity and additional fields.
func node(name, capacity, more string) string {
	return document("Node", name, "address: "+name+"\nregion: lab\nsku: gpu-a100-2\nroles: [worker]\ncapacity: {cpus: 4, memory_mib: 8000"+
		capacity+"}\n"+more)
}

// worker returns the lab's instance with this worker role.
func worker(role string) string { return instance("train", "roles: {worker: "+role+"}") }

// Each reason why an instance can never run has a warning with its position and
// the next step.
func TestWarningsForUnplaceableInstances(t *testing.T) {
	nodes := func(capacity, more string) map[string]string {
		over := map[string]string{trainFile: worker("{count: 1}")}
		for i := 1; i <= 4; i++ {
			name := fmt.Sprintf("dev-gpu-%d", i)
			over["platform/nodes/"+name+".yaml"] = node(name, capacity, more)
		}
		return over
	}
	policies := func(spec string) map[string]string {
		return map[string]string{labPolicy: document("Policy", "lab", spec)}
	}
	cases := map[string]map[string]string{
		"fits":      map[string]string{trainFile: worker("{count: 4, gpus: {type: a100, count: 1}}")},
		"no member": map[string]string{trainFile: worker("{count: 0, cpus: 4000}")},
		"no nodes are known": map[string]string{trainFile: worker("{count: 9}"), "platform/nodes/dev-gpu-1.yaml": "",
			"platform/nodes/dev-gpu-2.yaml": "", "platform/nodes/dev-gpu-3.yaml": "", "platform/nodes/dev-gpu-4.yaml": "",
			"platform/nodes/dev-lab-1.yaml": ""},
		"said by the reader": map[string]string{trainFile: worker("{count: 1, gpus: {type: h200, count: 1}}")},
		"GPU type of another SKU": map[string]string{trainFile: worker("{count: 1, sku: gpu-a100-4, gpus: {type: l4, count: 1}}"),
			"platform/nodes/dev-gpu-1.yaml": node("dev-gpu-1", ", gpus: [{type: l4, count: 1, devices: /dev/nvidia0}]", "")},
		"more GPUs than a node":      map[string]string{trainFile: worker("{count: 1, sku: gpu-a100-2, gpus: {type: a100, count: 4}}")},
		"two models":                 nodes(", gpus: [{type: k40, count: 1, devices: /dev/nvidia0}, {type: k2000, count: 1, devices: /dev/nvidia1}]", ""),
		"more CPUs than a node":      map[string]string{trainFile: worker("{count: 1, gpus: {count: 1}, cpus: 8}")},
		"more memory than a node":    map[string]string{trainFile: worker("{count: 1, gpus: {count: 1}, memory_mib: 9000}")},
		"disk that no node declares": map[string]string{trainFile: worker("{count: 1, gpus: {count: 1}, disk_gib: 100}")},
		"a label that no node has":   map[string]string{trainFile: worker("{count: 1, gpus: {count: 1}, node_labels: {fabric: ndr}}")},
		"more disk than a node":      nodes(", disk_gib: 200", ""),
		"more members than nodes":    map[string]string{trainFile: worker("{count: 4, sku: gpu-a100-2, gpus: {count: 1}}")},
		"SKU of another role":        map[string]string{trainFile: worker("{count: 1, sku: cpu-small}")},
		"no node of the role":        nodes("", "reserved_for: biology"),
		"all cordoned":               nodes("", "cordoned: true"),
		"GPUs that policy counts":    nodes(", gpus: [{type: l4, count: 1, devices: /dev/nvidia0}]", ""),
		"region without nodes":       policies("allowed_regions: [south]"),
		"region that policy ignores": map[string]string{trainFile: instance("train", "regions: [lab, south]")},
		"SKU nobody allows":          policies("allowed_skus: [cpu-small, gpu-a100-2]"),
		"a wider maximum": map[string]string{"platform/policy/a.yaml": document("Policy", "a", "max_gpus_per_instance: 2"),
			"platform/policy/b.yaml": document("Policy", "b", "max_gpus_per_instance: 16")},
		"no region is left": map[string]string{"platform/policy/more.yaml": document("Policy", "more", "allowed_regions: [south]")},
		"an admission nothing meets": {beamApp: campusFile(t, beamApp, "", ""),
			beamVersion: strings.Split(campusFile(t, beamVersion, "", ""),
				"    artifacts:")[0], beamAdmission: admission("tenant", "ray", "")},
	}
	cases["two models"][trainFile] = worker("{count: 1, gpus: {count: 2}}")
	cases["more disk than a node"][trainFile] = worker("{count: 1, disk_gib: 201}")
	cases["as much disk as a node"] = nodes(", disk_gib: 200", "")
	cases["as much disk as a node"][trainFile] = worker("{count: 1, disk_gib: 200}")
	var golden strings.Builder
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		fmt.Fprintf(&golden, "# %s\n", name)
		for _, line := range capacity(lab(t, cases[name])) {
			golden.WriteString(line + "\n")
		}
	}
	const file = "testdata/capacity.txt"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(golden.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), golden.String())
	shown := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m) \[([a-z.-]+)\]$`).FindAllStringSubmatch(golden.String(), -1) {
		shown[m[1]] = true
	}
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^//\t([a-z]+\.[a-z-]+) .*\(warning\)`).FindAllStringSubmatch(string(text), -1) {
		require.True(t, shown[m[1]], "no case shows %s", m[1])
		delete(shown, m[1])
	}
	require.Empty(t, shown, "every code is documented")
}

// An unchanged instance is not checked again, unless a change of the nodes affects
// placement.
func TestCapacityRechecksOnlyChanges(t *testing.T) {
	var c policy.CapacityChecker
	over := map[string]string{trainFile: worker("{count: 1, gpus: {type: a100, count: 4}, cpus: 8}")}
	d := lab(t, over)
	e := policy.Evaluate(d)
	first := c.Check(d, e, true)
	require.Len(t, first, 1)
	require.Empty(t, c.Check(d, e, false), "not all nodes are known")
	moved := *d.Platform.Nodes["dev-gpu-3"]
	moved.Spec.Address, moved.Spec.Topology = "10.0.0.1", nil
	d.Platform.Nodes = maps.Clone(d.Platform.Nodes)
	d.Platform.Nodes["dev-gpu-3"] = &moved
	require.Equal(t, first, c.Check(d, e, true))
	require.Equal(t, 2, policy.CheckedTenants(&c, "physics"), "all nodes, and not all of them; an address is nothing to placement")
	larger := moved
	larger.Spec.Capacity.CPUs = 64
	d.Platform.Nodes["dev-gpu-3"] = &larger
	require.Empty(t, c.Check(d, e, true))
	require.Equal(t, 3, policy.CheckedTenants(&c, "physics"))
}

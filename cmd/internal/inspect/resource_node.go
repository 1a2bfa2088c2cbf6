package inspect

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"berth/cmd/internal/cli"
	"berth/reconciler/nodes"
	"berth/schema"
)

// gpuUse is the use of the GPUs of one type on a node.
type gpuUse struct {
	Type string `json:"type"`
	Free int    `json:"free"`
	Used int    `json:"used"` // by members of units
}

// usedGPUs returns the GPUs that members of units have, by node and type.
func (e *Estate) usedGPUs() map[string]map[string]int {
	used := map[string]map[string]int{}
	for _, s := range e.status.Units.All() {
		for _, m := range s.Members {
			if used[m.Node] == nil {
				used[m.Node] = map[string]int{}
			}
			for _, g := range m.GPUs {
				used[m.Node][g.Type] += g.Count
			}
		}
	}
	return used
}

// gpuUses returns the use of the declared GPUs of a node by type, in the order of the document.
func (r *Resource) gpuUses(used map[string]int) (out []gpuUse) {
	for _, g := range r.capacity().GPUs {
		out = append(out, gpuUse{Type: g.Type, Free: max(g.Count-used[g.Type], 0), Used: used[g.Type]})
	}
	return out
}

// capacity returns the declared capacity of a node; the zero value if the document is invalid.
func (r *Resource) capacity() schema.Capacity {
	var doc struct {
		Spec struct {
			Capacity schema.Capacity `json:"capacity"`
		} `json:"spec"`
	}
	_ = json.Unmarshal(r.Document, &doc) // berth validate reports an invalid document
	return doc.Spec.Capacity
}

// nodeColumns are the columns of a list of nodes behind the name.
func nodeColumns() []column {
	return []column{
		{"STATE", (*Resource).nodeState}, {"ANSWERED", (*Resource).answered}, documentField("ADDRESS", "spec", "address"),
		documentField("REGION", "spec", "region"), documentField("SKU", "spec", "sku"), documentField("ROLES", "spec", "roles"),
		{"CPUS", func(r *Resource) string { return number(r.capacity().CPUs) }},
		{"MEMORY-MIB", func(r *Resource) string { return number(r.capacity().MemoryMiB) }},
		{"GPUS-FREE", (*Resource).freeGPUs}, {"USED-BY", func(r *Resource) string { return strings.Join(r.UsedBy, ",") }},
	}
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// nodeState is the state of a node; a node without a status was never observed.
func (r *Resource) nodeState() string {
	if r.Status == nil {
		return string(nodes.Unknown)
	}
	return string(nodes.StateOf(r.Status.Phase))
}

// answered is how long ago the host of a node answered, as berth/status has it.
func (r *Resource) answered() string {
	if r.Status == nil || r.Status.Node == nil || r.Status.Node.Answered.IsZero() {
		return "never"
	}
	const day = 24 * time.Hour
	age := max(r.now.Sub(r.Status.Node.Answered), 0).Truncate(time.Second)
	if age >= 2*day {
		return fmt.Sprintf("%dd ago", age/day)
	}
	return age.String() + " ago"
}

// freeGPUs says of each type how many GPUs are free, of how many.
func (r *Resource) freeGPUs() string {
	var out []string
	for _, g := range r.GPUs {
		out = append(out, fmt.Sprintf("%d/%d×%s", g.Free, g.Free+g.Used, g.Type))
	}
	return strings.Join(out, ",")
}

// nodeLines describe what the host of a node answered last.
func (r *Resource) nodeLines(line func(name, format string, args ...any)) {
	if r.Key.Kind != schema.KindNode {
		return
	}
	if gpus := r.freeGPUs(); gpus != "" {
		line("GPUs free", "%s", gpus)
	}
	line("Answered", "%s", r.answered())
	if r.Status == nil || r.Status.Node == nil {
		return
	}
	n := r.Status.Node
	if !n.Since.IsZero() {
		line("Since", "%s", cli.Stamp(n.Since))
	}
	if f := n.Found; f != nil {
		found := fmt.Sprintf("%d CPUs, %d MiB of memory, %d GiB of disk", f.CPUs, f.MemoryMiB, f.DiskGiB)
		if f.GPUs != nil {
			found += fmt.Sprintf(", %d GPUs", *f.GPUs)
		}
		line("Found", "%s", found)
	}
	if m := n.Measured; m != nil {
		line("Measured", "%s", measured(m))
	}
	if h := n.Host; h != nil {
		line("Host", "kernel %s, boot %s, berth-host %s with protocol %d", h.Kernel, h.BootID, h.Helper, h.Protocol)
	}
}

// measured says in one line what a host measured with its last answer.
func measured(m *nodes.Measured) string {
	var all []string
	if m.Load != nil {
		all = append(all, fmt.Sprintf("load %.2f", *m.Load))
	}
	if m.AvailableMiB > 0 {
		all = append(all, fmt.Sprintf("%d MiB of memory available", m.AvailableMiB))
	}
	for _, d := range m.Disks {
		all = append(all, fmt.Sprintf("%d of %d GiB free on %s", d.FreeGiB, d.SizeGiB, cli.Visible(d.Path)))
	}
	switch offset := time.Duration(m.ClockOffset) * time.Millisecond; {
	case offset > 0:
		all = append(all, fmt.Sprintf("clock %s ahead", offset))
	case offset < 0:
		all = append(all, fmt.Sprintf("clock %s behind", -offset))
	}
	return strings.Join(all, ", ")
}

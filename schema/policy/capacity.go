package policy

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/schema"
)

// CapacityChecker warns of instances that the declared nodes can never take, nodes
// that no instance may use, and policies that allow nothing (the codes of warnings
// in the package comment). Its rules are those of placement, except for the
// occupation by other instances, which changes by the hour.
//
// It keeps its results: a tenant is checked again only if the tenant, its effective
// values or the summary of the nodes changed. The zero value is ready to use. Safe
// for concurrent use.
type CapacityChecker struct {
	checked recent[checkedTenant]
}

// checkedTenant is the result for a tenant and nodes.
type checkedTenant struct {
	declared  *schema.TenantEstate
	effective *schema.EffectiveTenant
	nodes     [sha256.Size]byte
	findings  []schema.Diagnostic
}

// Check returns the warnings about d, whose effective values are e, sorted by file
// and position. allNodes says that d has every declared node: otherwise, and where
// no node is declared, capacity is unknown.
func (c *CapacityChecker) Check(d *schema.Desired, e *schema.Effective, allNodes bool) []schema.Diagnostic {
	platform, sites, nodes := platformLayers(d.Platform), regionsBySite(d.Platform), nodeSummary{}
	if allNodes {
		nodes = summarize(placeable(d.Platform, nil))
	}
	c.checked.forget(d.Tenants)
	out := append(unusableNodes(d.Platform), uselessMaxima(platform)...)
	out = append(out, unplaceable(&schema.TenantEstate{SharedRuntimes: d.Platform.SharedRuntimes}, e.Tenants[""], nodes)...)
	for name, t := range d.Tenants {
		out = append(out, uselessAdmissions(d.Platform, t)...)
		out = append(out, c.tenant(platform, sites, t, e.Tenants[name], nodes)...)
	}
	schema.SortDiagnostics(out)
	return out
}

func (c *CapacityChecker) tenant(
	platform []layer, sites map[string][]string, t *schema.TenantEstate, e *schema.EffectiveTenant, nodes nodeSummary,
) []schema.Diagnostic {
	for _, k := range c.checked.get(t.Name) {
		if k.declared == t && k.effective == e && k.nodes == nodes.id {
			return k.findings
		}
	}
	findings := append(narrowed(platform, sites, t, e), unplaceable(t, e, nodes)...)
	c.checked.add(t.Name, checkedTenant{t, e, nodes.id, findings})
	return findings
}

// unplaceable warns of instances whose members can never all be placed.
func unplaceable(t *schema.TenantEstate, e *schema.EffectiveTenant, nodes nodeSummary) (out []schema.Diagnostic) {
	if e == nil || len(nodes.groups) == 0 {
		return nil
	}
	for _, p := range e.Projects {
		denied := map[schema.Key]bool{}
		for _, d := range p.Decisions {
			denied[d.Key] = denied[d.Key] || d.Verdict == schema.Deny
		}
		for _, i := range p.Units {
			declared := declaration(t, i.Key)
			if declared == nil || i.SharedRuntime != "" || denied[i.Key] {
				continue // a denied instance gets no nodes
			}
			out = append(out, unplaceableRoles(declared, i, nodes)...)
			out = append(out, overcommitted(t, i, nodes)...)
		}
	}
	return out
}

// unplaceableRoles is unplaceable for the roles of one unit.
func unplaceableRoles(declared *schema.Instance, u *schema.EffectiveUnit, nodes nodeSummary) (out []schema.Diagnostic) {
	told := map[string]bool{} // reported fields; one cause is reported once, for all its roles
	for _, role := range u.Roles {
		d := demand{declared: declared, instance: u, role: role, nodes: nodes}
		if f := d.check(); f != nil && !told[f.Path] {
			told[f.Path] = true
			out = append(out, *f)
		}
	}
	if f := withoutWorkers(declared, u); f != nil {
		out = append(out, *f)
	}
	return out
}

// withoutWorkers warns of a running unit whose roles for jobs have no member.
func withoutWorkers(declared *schema.Instance, u *schema.EffectiveUnit) *schema.Diagnostic {
	var empty []string
	for _, r := range u.Roles {
		switch {
		case r.ControlPlane:
		case r.Count > 0:
			return nil
		default:
			empty = append(empty, r.Name)
		}
	}
	if len(empty) == 0 || len(u.Lent) > 0 || declared.Spec.DesiredState == schema.DesiredStopped {
		return nil
	}
	f := declared.Warning("spec.roles", "capacity.no-workers", "no member runs jobs, as the count of %s is 0: jobs wait",
		strings.Join(empty, " and "))
	return &f
}

// declaration returns the document of a unit, a shared runtime's in the form of an instance; nil
// if it is missing.
func declaration(t *schema.TenantEstate, key schema.Key) *schema.Instance {
	if key.Kind == schema.KindSharedRuntime {
		if rt := t.SharedRuntimes[key.Name]; rt != nil && rt.Runtime != nil {
			return asInstance(rt.Runtime)
		}
		return nil
	}
	return t.Projects[key.Project].Instances[key.Name]
}

// nodeSummary is the properties of nodes that matter to placement: equal nodes are
// one group.
type nodeSummary struct {
	id     [sha256.Size]byte
	groups []nodeGroup
	labels map[string]bool // those that a node has
}

type nodeGroup struct {
	*schema.NodeSpec // the spec of one of them
	count            int
}

func summarize(nodes map[string]*schema.Node) nodeSummary {
	groups, labels := map[string]nodeGroup{}, map[string]bool{}
	for _, n := range nodes {
		for name, value := range n.Labels {
			labels[schema.Label(name, value)] = true
		}
		s := &n.Spec
		gpus := make([]string, len(s.Capacity.GPUs))
		for i, g := range s.Capacity.GPUs {
			gpus[i] = fmt.Sprintf("%s*%d", g.Type, g.Count)
		}
		key := fmt.Sprintf("%s %s %s %s %d %d %d %q %t", s.Region, s.SKU, s.Reserved, slices.Sorted(slices.Values(s.Roles)), s.Capacity.CPUs,
			s.Capacity.MemoryMiB, s.Capacity.DiskGiB, gpus, s.Cordoned)
		groups[key] = nodeGroup{s, groups[key].count + 1}
	}
	var all strings.Builder
	fmt.Fprintf(&all, "%q\n", slices.Sorted(maps.Keys(labels)))
	out := nodeSummary{labels: labels}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(&all, "%d %s\n", groups[key].count, key)
		out.groups = append(out.groups, groups[key])
	}
	out.id = sha256.Sum256([]byte(all.String()))
	return out
}

// demand has the needs of a role of an instance from nodes.
type demand struct {
	declared *schema.Instance
	instance *schema.EffectiveUnit
	role     schema.EffectiveRole
	nodes    nodeSummary
}

// check returns the first reason why the members can never all be placed, or nil.
func (d demand) check() *schema.Diagnostic {
	if d.role.Count == 0 {
		return nil
	}
	left := d.keep(d.nodes.groups, func(n nodeGroup) bool {
		r := n.Reserved
		return (r == "" || r == d.instance.Key.Tenant || r == d.instance.Key.ProjectID()) && slices.Contains(n.Roles, d.role.NodeRole)
	})
	if len(left) == 0 {
		return d.warn("", "capacity.role", "no node that the project may use has the role %s: declare one, or ask whoever declares nodes",
			d.role.NodeRole)
	}
	for _, step := range d.steps() {
		rest := d.keep(left, step.fits)
		if len(rest) > 0 {
			left = rest
			continue
		}
		if step.unknown {
			return nil // the reader reports that no node has it
		}
		return d.warn(step.field, step.code, "%s", step.message(left))
	}
	for _, label := range d.role.MissingLabels(nil) {
		if !d.nodes.labels[label] {
			return d.warn(".node_labels", "capacity.labels", "no node has the label %s: add it to metadata.labels of a node, or ask for "+
				"another one", label)
		}
	}
	total := 0
	for _, n := range left {
		total += n.count
	}
	if d.role.Count > total {
		return d.warn(".count", "capacity.members",
			"asks for %d members, and only %s: a node takes one member of a role; ask for fewer, or add nodes", d.role.Count,
			couldTake(total))
	}
	return nil
}

// step narrows the nodes to those that meet one requirement.
type step struct {
	fits    func(nodeGroup) bool
	unknown bool // no node has the requested name
	field   string
	code    string
	message func(before []nodeGroup) string // before: the nodes that met all earlier requirements
}

func (d demand) steps() []step {
	r, asked := d.role, d.declared.Spec.Roles[d.role.Name]
	var out []step
	if regions := d.instance.Regions; len(regions) > 0 {
		out = append(out, step{
			fits: func(n nodeGroup) bool { return slices.Contains(regions, n.Region) },
			unknown: len(d.declared.Spec.Regions) > 0 &&
				!d.known(func(n nodeGroup) bool { return slices.Contains(d.declared.Spec.Regions, n.Region) }),
			field: "spec.regions", code: "capacity.region",
			message: func(before []nodeGroup) string {
				return fmt.Sprintf("no node for the role %s is in %s, where the instance may be; they are in %s", r.Name,
					strings.Join(regions, " or "), values(before, func(n nodeGroup) string { return n.Region }))
			},
		})
	}
	if len(r.SKUs) > 0 {
		out = append(out, step{
			fits:    func(n nodeGroup) bool { return slices.Contains(r.SKUs, n.SKU) },
			unknown: asked.SKU != "" && !d.known(func(n nodeGroup) bool { return n.SKU == asked.SKU }),
			field:   ".sku", code: "capacity.sku",
			message: func(before []nodeGroup) string {
				return fmt.Sprintf("no node for this role is of SKU %s; they are of SKU %s", strings.Join(r.SKUs, " or "),
					values(before, func(n nodeGroup) string { return n.SKU }))
			},
		})
	}
	if g := r.GPUs; g != nil {
		out = append(out, d.gpus(*g)...)
	}
	if r.NoGPUs {
		out = append(out, step{
			fits: func(n nodeGroup) bool { return len(n.Capacity.GPUs) == 0 }, field: "", code: "capacity.gpus",
			message: func([]nodeGroup) string {
				return "every node for this role has GPUs, which policy keeps for instances that ask for them: ask for GPUs, or for " +
					"another SKU"
			},
		})
	}
	out = append(out,
		d.atLeast(".cpus", "capacity.cpus", "CPUs", r.CPUs, func(n nodeGroup) int { return n.Capacity.CPUs }),
		d.atLeast(".memory_mib", "capacity.memory", "MiB of memory", r.MemoryMiB, func(n nodeGroup) int { return n.Capacity.MemoryMiB }),
		d.disk())
	return append(out, step{
		fits: func(n nodeGroup) bool { return !n.Cordoned }, code: "capacity.cordoned",
		message: func(before []nodeGroup) string {
			return "every node that a member could be placed on is cordoned: uncordon one (spec.cordoned), or ask for another SKU or region"
		},
	})
}

func (d demand) gpus(g schema.GPURequest) []step {
	of := func(n nodeGroup) (count int) { // GPUs of several types meet a request without a type together
		for _, have := range n.Capacity.GPUs {
			if g.Type == "" || have.Type == g.Type {
				count += have.Count
			}
		}
		return count
	}
	kind := strings.TrimSpace("GPUs " + prefixed("of type ", g.Type))
	return []step{
		{
			fits:    func(n nodeGroup) bool { return of(n) > 0 },
			unknown: g.Type != "" && !d.known(func(n nodeGroup) bool { return of(n) > 0 }),
			field:   ".gpus", code: "capacity.gpus",
			message: func(before []nodeGroup) string {
				text := fmt.Sprintf("no node of SKU %s has %s", values(before, func(n nodeGroup) string { return n.SKU }), kind)
				if others := d.keep(d.nodes.groups, func(n nodeGroup) bool { return of(n) > 0 && d.visible(n) }); len(others) > 0 {
					text += fmt.Sprintf("; nodes of SKU %s do", values(others, func(n nodeGroup) string { return n.SKU }))
				}
				return text
			},
		},
		d.atLeast(".gpus.count", "capacity.gpus", kind, g.Count, of),
	}
}

// atLeast returns the step for an amount that each member requests.
func (d demand) atLeast(field, code, what string, want int, of func(nodeGroup) int) step {
	return step{
		fits: func(n nodeGroup) bool { return of(n) >= want }, field: field, code: code,
		message: func(before []nodeGroup) string {
			most := 0
			for _, n := range before {
				most = max(most, of(n))
			}
			return fmt.Sprintf("each member asks for %d %s, and the most that one node has is %d: ask for less, or for more members", want,
				what, most)
		},
	}
}

// disk returns the step for disk, which only nodes that declare their disk have.
func (d demand) disk() step {
	of := func(n nodeGroup) int { return n.Capacity.DiskGiB }
	s := d.atLeast(".disk_gib", "capacity.disk", "GiB of disk", d.role.DiskGiB, of)
	tooLittle := s.message
	s.message = func(before []nodeGroup) string {
		if !slices.ContainsFunc(before, func(n nodeGroup) bool { return of(n) > 0 }) {
			return fmt.Sprintf("each member asks for %d GiB of disk, and no node for this role declares its disk: declare "+
				"spec.capacity.disk_gib of the nodes, or leave this out", d.role.DiskGiB)
		}
		return tooLittle(before)
	}
	return s
}

// visible reports whether the tenant may know a node: a shared one or its own.
func (d demand) visible(n nodeGroup) bool {
	tenant, _, _ := strings.Cut(n.Reserved, ".")
	return tenant == "" || tenant == d.instance.Key.Tenant
}

func (d demand) known(is func(nodeGroup) bool) bool {
	return slices.ContainsFunc(d.nodes.groups, func(n nodeGroup) bool { return d.visible(n) && is(n) })
}

func (d demand) keep(groups []nodeGroup, fits func(nodeGroup) bool) (kept []nodeGroup) {
	for _, n := range groups {
		if fits(n) {
			kept = append(kept, n)
		}
	}
	return kept
}

// warn returns a warning at a field of the role, or at a field of the document.
func (d demand) warn(field, code, format string, args ...any) *schema.Diagnostic {
	path := field
	if !strings.HasPrefix(field, "spec.") {
		path = "spec.roles." + d.role.Name + field
	}
	f := d.declared.Warning(path, code, format, args...)
	return &f
}

// values lists the values of the nodes without duplicates, shortened if there are many.
func values(groups []nodeGroup, of func(nodeGroup) string) string {
	var all []string
	for _, n := range groups {
		all = append(all, of(n))
	}
	slices.Sort(all)
	all = slices.Compact(all)
	const most = 8
	if more := len(all) - most; more > 0 {
		all = append(all[:most], fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", ")
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func couldTake(n int) string {
	return cmp.Or(map[int]string{1: "1 node can take one"}[n], fmt.Sprintf("%d nodes can take one", n))
}

package estate

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/load"
)

// unlikeOthers warns about nodes that differ from the others in a way that is mostly a mistake: other
// GPUs than most of the same hardware type, a topology key that is nearly that of others, an address
// that is another host on each host.
func (c *platformCheck) unlikeOthers() {
	var nodes []*load.Document
	kinds := map[string]map[string][]*load.Document{} // nodes by SKU and GPUs
	for _, doc := range c.tree.docs {
		n, ok := doc.Decl.(*schema.Node)
		if !ok || c.bad(doc) {
			continue
		}
		nodes = append(nodes, doc)
		of := put(kinds, n.Spec.SKU)
		of[gpusOf(&n.Spec)] = append(of[gpusOf(&n.Spec)], doc)
	}
	for _, name := range sortedKeys(kinds) {
		c.oddGPUs(name, kinds[name])
	}
	c.sharedHostKeys(nodes)
	c.alikeTopology(nodes)
	c.oddTopologyKeys(nodes)
	for _, doc := range nodes {
		address := doc.Decl.(*schema.Node).Spec.Address
		if isUnspecified(address) {
			c.warn(doc, "spec.address", CodeNoEffect, fmt.Sprintf("%s is not the address of a host", address))
		} else if len(nodes) > 1 && schema.IsLoopback(address) {
			c.warn(doc, "spec.address", codeUnlike,
				fmt.Sprintf("%s means another host on each host: write an address that the other nodes reach", address))
		}
	}
}

// oddTopologyKeys warns about a topology key of one node that is nearly that of others.
func (c *platformCheck) oddTopologyKeys(nodes []*load.Document) {
	count := map[string]int{}
	for _, doc := range nodes {
		for key := range doc.Decl.(*schema.Node).Spec.Topology {
			count[key]++
		}
	}
	common := slices.DeleteFunc(sortedKeys(count), func(k string) bool { return count[k] < 2 })
	for _, doc := range nodes {
		for _, key := range sortedKeys(doc.Decl.(*schema.Node).Spec.Topology) {
			if guess := load.Nearest(key, common); guess != "" && count[key] == 1 {
				c.warn(doc, "spec.topology."+key, codeUnlike,
					fmt.Sprintf("no other node has the topology key %s: did you mean %q?", key, guess))
			}
		}
	}
}

// oddGPUs warns about the nodes of an SKU whose GPUs are not those of most of them; of two kinds
// that are as many, the one with the first node is the rule.
func (c *platformCheck) oddGPUs(sku string, byGPUs map[string][]*load.Document) {
	most := ""
	for _, gpus := range sortedKeys(byGPUs) {
		is, of := byGPUs[gpus], byGPUs[most]
		if len(is) > len(of) || len(is) == len(of) && is[0].File.Path < of[0].File.Path {
			most = gpus
		}
	}
	rule := byGPUs[most][0]
	c.oddSizes(sku, byGPUs[most])
	c.oddTopology(sku, byGPUs[most])
	for _, gpus := range sortedKeys(byGPUs) {
		if gpus == most {
			continue
		}
		for _, doc := range byGPUs[gpus] {
			c.warn(doc, "spec.sku", codeUnlike,
				fmt.Sprintf("%s (%s) is of the same SKU %s and has %s; this node has %s: correct its GPUs, or use another SKU",
					rule.Key.Name, rule.File.Path, sku, most, gpus))
		}
	}
}

// oddSizes warns about nodes of an SKU with twice, or half, the CPUs or the memory of most others; of two sizes that
// are as many, that of the first node is the rule.
func (c *platformCheck) oddSizes(sku string, docs []*load.Document) {
	of := func(doc *load.Document) [2]int {
		n := &doc.Decl.(*schema.Node).Spec.Capacity
		return [2]int{n.CPUs, n.MemoryMiB}
	}
	count := map[[2]int]int{}
	for _, doc := range docs {
		count[of(doc)]++
	}
	rule := slices.MaxFunc(docs, func(a, b *load.Document) int { return cmp.Compare(count[of(a)], count[of(b)]) })
	for _, doc := range docs {
		for i, field := range []string{"cpus", "memory_mib"} {
			if a, b := of(doc)[i], of(rule)[i]; a >= 2*b || b >= 2*a {
				path := "spec.capacity." + field
				c.findings = append(c.findings,
					clash(end{doc, path}, end{rule, path}, schema.SeverityWarning, codeUnlike, func(end) string {
						return fmt.Sprintf("nodes of SKU %s differ, with %d (%s) and %d (%s): correct one, or use another SKU", sku, a,
							doc.File.Path, b, rule.File.Path)
					}))
			}
		}
	}
}

// oddTopology warns about a node that lacks a topology key which all others of its SKU have, two or more.
func (c *platformCheck) oddTopology(sku string, docs []*load.Document) {
	having := map[string]int{}
	for _, doc := range docs {
		for key := range doc.Decl.(*schema.Node).Spec.Topology {
			having[key]++
		}
	}
	for _, key := range sortedKeys(having) {
		if having[key] < 2 || having[key] != len(docs)-1 {
			continue
		}
		for _, doc := range docs {
			if _, has := doc.Decl.(*schema.Node).Spec.Topology[key]; !has {
				c.warn(doc, "spec.topology", codeUnlike,
					fmt.Sprintf("the %d other nodes of SKU %s have the topology key %s, but this one does not: add it, or use another SKU",
						having[key], sku, key))
			}
		}
	}
}

// alikeTopology warns about values of a topology key that differ in case, or in a digit and a letter that look alike (1 and l,
// 0 and O): one rack would be taken for two.
func (c *platformCheck) alikeTopology(nodes []*load.Document) {
	first := map[[2]string]*load.Document{} // of each key and value
	for _, doc := range nodes {
		for key, value := range doc.Decl.(*schema.Node).Spec.Topology {
			if v := [2]string{key, value}; first[v] == nil {
				first[v] = doc
			}
		}
	}
	plain := strings.NewReplacer("l", "1", "i", "1", "o", "0")
	by := map[[2]string][2]string{}
	for _, v := range slices.SortedFunc(maps.Keys(first),
		func(a, b [2]string) int { return strings.Compare(first[a].File.Path, first[b].File.Path) }) {
		looks := [2]string{v[0], plain.Replace(strings.ToLower(v[1]))}
		other, known := by[looks]
		if !known {
			by[looks] = v
			continue
		}
		if !looksMistyped(strings.ToLower(v[1]), strings.ToLower(other[1])) {
			continue
		}
		here, there := end{first[v], "spec.topology." + v[0]}, end{first[other], "spec.topology." + v[0]}
		c.findings = append(c.findings, clash(here, there, schema.SeverityWarning, codeUnlike, func(of end) string {
			mine, its := v[1], other[1]
			if of == here {
				mine, its = its, mine
			}
			return fmt.Sprintf("%s and %s of %s (%s) are two values: if one place is meant, write both in the same way", mine, its,
				of.doc.Key.Name, of.doc.File.Path)
		}))
	}
}

// looksMistyped reports whether two texts that look alike have a digit where the other has a letter, or are equal.
func looksMistyped(a, b string) bool {
	isDigit := func(c byte) bool { return c >= '0' && c <= '9' }
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] && isDigit(a[i]) == isDigit(b[i]) {
			return false
		}
	}
	return len(a) > 1 || a == b // rows are often named by single characters
}

// sharedHostKeys warns about nodes with one host key, of which only one can be reached.
func (c *platformCheck) sharedHostKeys(nodes []*load.Document) {
	const path = "spec.host_key"
	first := map[string]*load.Document{}
	for _, doc := range nodes {
		text := doc.Decl.(*schema.Node).Spec.HostKey
		key := load.KeyBytes(text)
		if other := first[key]; text != "" && other != nil {
			c.findings = append(c.findings,
				clash(end{doc, path}, end{other, path}, schema.SeverityWarning, "conflict.key", func(of end) string {
					return fmt.Sprintf("is the host key of %s, too (%s): each host has its own", of.doc.Key.Name, of.doc.File.Path)
				}))
		} else {
			first[key] = doc
		}
	}
}

// namedRole is a role of nodes that a document names.
type namedRole struct {
	doc        *load.Document
	path, role string
	isOffered  bool // by a node; otherwise a version wants it
}

// namedRoles lists the roles that nodes and versions name.
func (c *platformCheck) namedRoles() (all []namedRole) {
	for _, doc := range c.tree.docs {
		if c.bad(doc) {
			continue
		}
		switch d := doc.Decl.(type) {
		case *schema.Node:
			for i, role := range d.Spec.Roles {
				all = append(all, namedRole{doc, load.Item("spec.roles", i), role, true})
			}
		case *schema.AppVersion:
			for name, role := range schema.Sorted(d.Spec.Manifest.Roles) {
				all = append(all, namedRole{doc, "spec.manifest.roles." + name + ".node_role", role.NodeRole, false})
			}
		}
	}
	return all
}

// nodeRoles warns about a role of a node that no version of the platform has, and that is nearly one of
// theirs, and about a role of a version that no node has. A role of a node may be for versions to come, or
// for a tenant's own app.
func (c *platformCheck) nodeRoles() {
	named := c.namedRoles()
	offered, wanted := map[string]bool{}, map[string]bool{}
	for _, r := range named {
		known := wanted
		if r.isOffered {
			known = offered
		}
		known[r.role] = true
	}
	both := slices.DeleteFunc(sortedKeys(offered), func(role string) bool { return !wanted[role] })
	for _, r := range named {
		if offered[r.role] && wanted[r.role] {
			continue
		}
		who, like := "no version of the platform's apps asks for", both
		if !r.isOffered {
			who, like = "no node has", sortedKeys(offered)
		}
		if guess := load.Nearest(r.role, like); guess != "" {
			c.warn(r.doc, r.path, "ref.node-role", fmt.Sprintf("%s the role %s: did you mean %q?", who, r.role, guess))
		} else if !r.isOffered && len(offered) > 0 {
			c.warn(r.doc, r.path, "ref.no-node",
				fmt.Sprintf("no node has the role %s, so members with it cannot be placed: the nodes have %s", r.role,
					strings.Join(sortedKeys(offered), ", ")))
		}
	}
}

// codeUnlike is the code of the warning about a node that differs from the others.
const codeUnlike = "conflict.node-facts"

// gpusOf describes the GPUs of a node.
func gpusOf(n *schema.NodeSpec) string {
	var all []string
	for _, g := range n.Capacity.GPUs {
		all = append(all, fmt.Sprintf("%d %s", g.Count, g.Type))
	}
	if len(all) == 0 {
		return "no GPU"
	}
	slices.Sort(all)
	return strings.Join(all, " and ")
}

// isUnspecified reports whether an address does not belong to a host.
func isUnspecified(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && (ip.IsUnspecified() || ip.IsMulticast())
}

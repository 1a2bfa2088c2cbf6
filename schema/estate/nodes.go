package estate

import (
	"fmt"
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
	keys, kinds := map[string]int{}, map[string]map[string][]*load.Document{} // kinds: nodes by SKU and GPUs
	for _, doc := range c.tree.docs {
		n, ok := doc.Decl.(*schema.Node)
		if !ok || c.bad(doc) {
			continue
		}
		nodes = append(nodes, doc)
		for key := range n.Spec.Topology {
			keys[key]++
		}
		of := put(kinds, n.Spec.SKU)
		of[gpusOf(&n.Spec)] = append(of[gpusOf(&n.Spec)], doc)
	}
	for _, name := range sortedKeys(kinds) {
		c.oddGPUs(name, kinds[name])
	}
	common := slices.DeleteFunc(sortedKeys(keys), func(k string) bool { return keys[k] < 2 })
	for _, doc := range nodes {
		n := doc.Decl.(*schema.Node)
		if isUnspecified(n.Spec.Address) {
			c.warn(doc, "spec.address", CodeNoEffect, fmt.Sprintf("%s is not the address of a host", n.Spec.Address))
		} else if len(nodes) > 1 && isLoopback(n.Spec.Address) {
			c.warn(doc, "spec.address", codeUnlike, fmt.Sprintf("%s means another host on each host: write an address that the other nodes reach", n.Spec.Address))
		}
		for _, key := range sortedKeys(n.Spec.Topology) {
			if keys[key] > 1 {
				continue
			}
			if guess := load.Nearest(key, common); guess != "" {
				c.warn(doc, "spec.topology."+key, codeUnlike, fmt.Sprintf("no other node has the topology key %s: did you mean %q?", key, guess))
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
	for _, gpus := range sortedKeys(byGPUs) {
		if gpus == most {
			continue
		}
		for _, doc := range byGPUs[gpus] {
			c.warn(doc, "spec.sku", codeUnlike, fmt.Sprintf("%s (%s) is of the same SKU %s and has %s; this node has %s: correct its GPUs, or use another SKU", rule.Key.Name, rule.File.Path, sku, most, gpus))
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

// isLoopback reports whether an address is the host's own, wherever it is read.
func isLoopback(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.IsLoopback() || err != nil && strings.EqualFold(address, "localhost")
}

// isUnspecified reports whether an address is no host's.
func isUnspecified(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && (ip.IsUnspecified() || ip.IsMulticast())
}

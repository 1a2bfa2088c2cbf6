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
// GPUs than those of the same hardware type, a topology key that is nearly that of others, an address
// that is each host's own.
func (c *platformCheck) unlikeOthers() {
	type node struct {
		doc  *load.Document
		spec *schema.NodeSpec
	}
	var nodes []node
	keys, firstOf := map[string]int{}, map[string]node{}
	for _, doc := range c.tree.docs {
		if n, ok := doc.Decl.(*schema.Node); ok && !c.bad(doc) {
			nodes = append(nodes, node{doc, &n.Spec})
			for key := range n.Spec.Topology {
				keys[key]++
			}
		}
	}
	for _, n := range nodes {
		first, ok := firstOf[n.spec.SKU]
		if !ok {
			firstOf[n.spec.SKU] = n
		} else if is, was := gpusOf(n.spec), gpusOf(first.spec); is != was {
			c.warn(n.doc, "spec.sku", codeUnlike, fmt.Sprintf("is %s, as that of %s (%s), which has %s, and this node has %s: an SKU is one hardware type; correct spec.capacity.gpus, or give this node an SKU of its own",
				n.spec.SKU, first.doc.Key.Name, first.doc.File.Path, was, is))
		}
		if len(nodes) > 1 && isLoopback(n.spec.Address) {
			c.warn(n.doc, "spec.address", codeUnlike, fmt.Sprintf("%s is each host itself, so the other nodes do not reach this one: write an address that they reach", n.spec.Address))
		}
		for _, key := range sortedKeys(n.spec.Topology) {
			if keys[key] > 1 {
				continue
			}
			others := slices.DeleteFunc(sortedKeys(keys), func(k string) bool { return keys[k] < 2 })
			if guess := load.Nearest(key, others); guess != "" {
				c.warn(n.doc, "spec.topology."+key, codeUnlike, fmt.Sprintf("no other node has the topology key %s: did you mean %q?", key, guess))
			}
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

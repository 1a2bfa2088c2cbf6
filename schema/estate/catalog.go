package estate

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/load"
)

// catalog holds the platform's documents that tenants may refer to. It includes
// invalid ones: a reference to one of them is not a missing reference.
type catalog struct {
	byFile   map[string]*load.Document
	apps     map[string]*load.Document
	versions map[string]map[string]*load.Document
	admitted map[string]map[string]*load.Document // AppAdmissions, by tenant and app
	attached attachments
	approval *load.Document   // first policy that requires approval from all tenants, or nil
	out      map[string]bool  // files that are not in Desired
	stock    stock            // names of the nodes for all tenants, and the regions of sites
	reserved map[string]stock // names of the nodes reserved for a tenant
	unsure   bool             // some nodes are unreadable

	// Equal prints mean equal catalogs. print covers the documents that every tenant can
	// refer to, own those that only one tenant can refer to.
	print [sha256.Size]byte
	own   map[string][sha256.Size]byte
}

// newCatalog lists the platform's documents; byFile has them by path.
func newCatalog(docs []*load.Document, byFile map[string]*load.Document) *catalog {
	c := &catalog{
		byFile: byFile, apps: map[string]*load.Document{}, versions: map[string]map[string]*load.Document{},
		admitted: map[string]map[string]*load.Document{},
		attached: attachments{}, out: map[string]bool{}, own: map[string][sha256.Size]byte{},
		stock: newStock(), reserved: map[string]stock{},
	}
	for _, doc := range docs {
		switch doc.Key.Kind {
		case schema.KindApp:
			c.apps[doc.Key.Name] = doc
		case schema.KindAppAdmission:
			put(c.admitted, doc.Key.Parent)[doc.Key.Name] = doc
		case schema.KindAppVersion:
			put(c.versions, doc.Key.Parent)[doc.Key.Name] = doc
		case schema.KindAttachment:
			c.attached.add(doc)
		case schema.KindPolicy:
			if d, ok := doc.Decl.(*schema.Policy); ok && d.Spec.RequireApproval && c.approval == nil {
				c.approval = doc
			}
		case schema.KindNode, schema.KindSite:
			c.fill(doc)
		}
	}
	return c
}

// stock is the names of nodes, by sort. Findings use it for names that no node has.
type stock map[string]map[string]bool

// The sorts of names of nodes.
const (
	region   = "region"
	sku      = "SKU"
	gpuType  = schema.GPUType
	nodeName = schema.NodeName
	topology = "topology key"
	nodeRole = "role"
)

func newStock() stock {
	return stock{region: {}, sku: {}, gpuType: {}, topology: {}, nodeName: {}, nodeRole: {}}
}

// fill adds the names of a node or a site.
func (c *catalog) fill(doc *load.Document) {
	switch d := doc.Decl.(type) {
	case *schema.Site:
		for _, r := range d.Spec.Regions {
			c.stock[region][r] = true
		}
	case *schema.Node:
		to := c.stock
		if tenant, _, _ := strings.Cut(d.Spec.Reserved, "."); tenant != "" {
			if c.reserved[tenant] == nil {
				c.reserved[tenant] = newStock()
			}
			to = c.reserved[tenant]
		}
		to[region][d.Spec.Region], to[sku][d.Spec.SKU], to[nodeName][d.Key.Name] = true, true, true
		for _, g := range d.Spec.Capacity.GPUs {
			to[gpuType][g.Type] = true
		}
		for key := range d.Spec.Topology {
			to[topology][key] = true
		}
		for _, role := range d.Spec.Roles {
			to[nodeRole][role] = true
		}
	default:
		c.unsure = true
	}
}

// available returns the names of the nodes available to the tenant; for "", of all nodes.
func (c *catalog) available(tenant string) []stock {
	if tenant != "" {
		return []stock{c.stock, c.reserved[tenant]}
	}
	return append(slices.Collect(maps.Values(c.reserved)), c.stock)
}

// has reports whether a node available to the tenant has a name.
func (c *catalog) has(tenant, what, name string) bool {
	return slices.ContainsFunc(c.available(tenant), func(s stock) bool { return s[what][name] })
}

// names returns all names of nodes available to the tenant, sorted.
func (c *catalog) names(tenant, what string) []string {
	all := map[string]bool{}
	for _, s := range c.available(tenant) {
		maps.Copy(all, s[what])
	}
	return sortedKeys(all)
}

// says returns which of some nodes a tenant may be given. Few trees name nodes, so the names of
// all are not in the print.
func (c *catalog) says(tenant string, nodes []string) (out []string) {
	for _, name := range nodes {
		if c.has(tenant, nodeName, name) {
			out = append(out, "node "+name)
		} else {
			out = append(out, "no node "+name+Meant(name, c.names(tenant, nodeName)))
		}
	}
	return out
}

// seal computes the prints, once the files that are out are known.
func (c *catalog) seal(docs []*load.Document) {
	var all strings.Builder
	own := map[string]*strings.Builder{}
	for _, doc := range docs {
		to := &all
		switch d := doc.Decl.(type) {
		case *schema.Node:
			tenant, _, _ := strings.Cut(d.Spec.Reserved, ".")
			if tenant == "" {
				continue
			}
			to = builder(own, tenant)
		case *schema.Attachment:
			tenant, _, _ := strings.Cut(d.Spec.ProjectID, ".")
			to = builder(own, tenant)
		default:
			switch doc.Key.Kind {
			case schema.KindAppAdmission:
				to = builder(own, doc.Key.Parent)
			case schema.KindApp, schema.KindAppVersion, schema.KindArtifactSource, schema.KindSharedRuntime, schema.KindAttachment,
				schema.KindNode, schema.KindRateCard:
			default:
				continue
			}
		}
		fmt.Fprintf(to, "%s %s %o %t\x00", doc.File.Path, doc.File.Blob, doc.File.Mode, c.bad(doc))
	}
	if c.approval != nil {
		fmt.Fprintf(&all, "approval %s\x00", c.approval.File.Path)
	}
	for _, what := range sortedKeys(c.stock) {
		if what == nodeName {
			continue // see says
		}
		fmt.Fprintf(&all, "%s %q\x00", what, sortedKeys(c.stock[what]))
	}
	fmt.Fprintf(&all, "%t", c.unsure)
	c.print = sha256.Sum256([]byte(all.String()))
	for tenant, b := range own {
		c.own[tenant] = sha256.Sum256([]byte(b.String()))
	}
}

// bad reports whether a document of the platform is not in Desired.
func (c *catalog) bad(doc *load.Document) bool { return !doc.Valid() || c.out[doc.File.Path] }

// attachments has the Attachment documents by shared runtime and project. Invalid ones
// have an unknown project, "".
type attachments map[string]map[string][]*load.Document

func (a attachments) add(doc *load.Document) {
	project := ""
	if d, ok := doc.Decl.(*schema.Attachment); ok {
		project = d.Spec.ProjectID
	}
	of := put(a, doc.Key.Parent)
	of[project] = append(of[project], doc)
}

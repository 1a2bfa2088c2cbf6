package estate

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"strings"

	"berth/schema"
	"berth/schema/load"
)

// catalog is what tenants may refer to of the platform's, invalid documents
// too, so that a reference to one is not called a reference to nothing.
type catalog struct {
	byFile   map[string]*load.Document
	apps     map[string]*load.Document
	versions map[string]map[string]*load.Document
	attached attachments
	approval *load.Document   // the first policy that asks everybody for approvals, or nil
	out      map[string]bool  // files that cannot stand
	stock    stock            // what everybody's nodes have, and the regions of sites
	reserved map[string]stock // what nodes kept for a tenant have
	unsure   bool             // there are nodes that cannot be read

	// Equal prints, equal catalogs: one of what every tenant sees, one of what
	// nodes have, which is news only to who names it, and one of what only one
	// tenant sees.
	print, stocked [sha256.Size]byte
	own            map[string][sha256.Size]byte
}

// newCatalog lists a platform's documents; nil lists nothing.
func newCatalog(platform *part) *catalog {
	c := &catalog{
		byFile: map[string]*load.Document{}, apps: map[string]*load.Document{}, versions: map[string]map[string]*load.Document{},
		attached: attachments{}, out: map[string]bool{}, own: map[string][sha256.Size]byte{},
		stock: newStock(), reserved: map[string]stock{},
	}
	if platform == nil {
		return c
	}
	if g := platform.group(""); g != nil {
		c.byFile = g.byFile
	}
	for _, doc := range platform.docs {
		switch doc.Key.Kind {
		case schema.KindApp:
			c.apps[doc.Key.Name] = doc
		case schema.KindAppVersion:
			at(c.versions, doc.Key.Parent, newMap[*load.Document])[doc.Key.Name] = doc
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

// stock is what nodes have, by what it is, so that names of nothing can be told.
type stock map[string]map[string]bool

// What of nodes has a name.
const (
	region   = "region"
	sku      = "SKU"
	gpuType  = "GPU type"
	topology = "topology key"
)

func newStock() stock { return stock{region: {}, sku: {}, gpuType: {}, topology: {}} }

// fill takes in what a node or a site has.
func (c *catalog) fill(doc *load.Document) {
	switch d := doc.Decl.(type) {
	case *schema.Site:
		for _, r := range d.Spec.Regions {
			c.stock[region][r] = true
		}
	case *schema.Node:
		to := c.stock
		if tenant, _, _ := strings.Cut(d.Spec.Reserved, "."); tenant != "" {
			to = at(c.reserved, tenant, newStock)
		}
		to[region][d.Spec.Region], to[sku][d.Spec.SKU] = true, true
		for _, g := range d.Spec.Capacity.GPUs {
			to[gpuType][g.Type] = true
		}
		for key := range d.Spec.Topology {
			to[topology][key] = true
		}
	default:
		c.unsure = true
	}
}

// has says whether a node has a name which a tenant may be given, or, for "",
// any node.
func (c *catalog) has(tenant, what, name string) bool {
	if c.stock[what][name] || tenant != "" {
		return c.stock[what][name] || c.reserved[tenant][what][name]
	}
	for _, s := range c.reserved {
		if s[what][name] {
			return true
		}
	}
	return false
}

// hasAll says whether a tenant's nodes have all that the documents of a verdict
// name, and had it when that was found: then there is nothing else to find.
func (c *catalog) hasAll(tenant string, v *verdict) bool {
	for w := range v.wants {
		if !c.has(tenant, w.what, w.name) {
			return false
		}
	}
	return !v.lacking
}

// names are all names that nodes have of which has speaks, sorted.
func (c *catalog) names(tenant, what string) []string {
	all := maps.Clone(c.stock[what])
	for owner, s := range c.reserved {
		if tenant == "" || owner == tenant {
			maps.Copy(all, s[what])
		}
	}
	return sortedKeys(all)
}

// seal makes the prints, when it is known what is out.
func (c *catalog) seal(platform *part) {
	var all strings.Builder
	own := map[string]*strings.Builder{}
	for _, doc := range platform.docs {
		to := &all
		switch d := doc.Decl.(type) {
		case *schema.Node:
			tenant, _, _ := strings.Cut(d.Spec.Reserved, ".")
			if tenant == "" {
				continue
			}
			to = at(own, tenant, func() *strings.Builder { return &strings.Builder{} })
		case *schema.Attachment:
			tenant, _, _ := strings.Cut(d.Spec.ProjectID, ".")
			to = at(own, tenant, func() *strings.Builder { return &strings.Builder{} })
		default:
			switch doc.Key.Kind {
			case schema.KindApp, schema.KindAppVersion, schema.KindArtifactSource, schema.KindSharedRuntime, schema.KindAttachment, schema.KindNode:
			default:
				continue
			}
		}
		fmt.Fprintf(to, "%s %s %o %t\x00", doc.File.Path, doc.File.Blob, doc.File.Mode, c.bad(doc))
	}
	if c.approval != nil {
		fmt.Fprintf(&all, "approval %s\x00", c.approval.File.Path)
	}
	c.print = sha256.Sum256([]byte(all.String()))
	var stocked strings.Builder
	for _, what := range sortedKeys(c.stock) {
		fmt.Fprintf(&stocked, "%s %q\x00", what, sortedKeys(c.stock[what]))
	}
	fmt.Fprintf(&stocked, "%t", c.unsure)
	c.stocked = sha256.Sum256([]byte(stocked.String()))
	for tenant, b := range own {
		c.own[tenant] = sha256.Sum256([]byte(b.String()))
	}
}

// bad says whether a document of the platform cannot stand.
func (c *catalog) bad(doc *load.Document) bool { return !doc.Valid() || c.out[doc.File.Path] }

// attachments are the Attachment documents by shared runtime; those that are
// invalid are of a project that nobody knows, "".
type attachments map[string]map[string][]*load.Document

func (a attachments) add(doc *load.Document) {
	project := ""
	if d, ok := doc.Decl.(*schema.Attachment); ok {
		project = d.Spec.ProjectID
	}
	of := at(a, doc.Key.Parent, newMap[[]*load.Document])
	of[project] = append(of[project], doc)
}

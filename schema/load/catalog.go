package load

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"berth/schema"
)

// catalog is what tenants may refer to of the platform's, invalid documents
// too, so that a reference to one is not called a reference to nothing.
type catalog struct {
	byFile   map[string]*document
	apps     map[string]*document
	versions map[string]map[string]*document
	attached attachments
	approval *document       // the first policy that asks everybody for approvals, or nil
	out      map[string]bool // files that cannot stand

	// Equal prints, equal catalogs: one of what every tenant sees, and one of
	// what only one tenant does. A new node is no news to all of them.
	print [sha256.Size]byte
	own   map[string][sha256.Size]byte
}

// newCatalog lists a platform's documents; nil lists nothing.
func newCatalog(platform *part) *catalog {
	c := &catalog{
		byFile: map[string]*document{}, apps: map[string]*document{}, versions: map[string]map[string]*document{},
		attached: attachments{}, out: map[string]bool{}, own: map[string][sha256.Size]byte{},
	}
	if platform == nil {
		return c
	}
	if g := platform.group(""); g != nil {
		c.byFile = g.byFile
	}
	for _, doc := range platform.docs {
		switch doc.key.Kind {
		case schema.KindApp:
			c.apps[doc.key.Name] = doc
		case schema.KindAppVersion:
			at(c.versions, doc.key.Parent, newMap[*document])[doc.key.Name] = doc
		case schema.KindAttachment:
			c.attached.add(doc)
		case schema.KindPolicy:
			if d, ok := doc.spec.(*schema.Policy); ok && d.Spec.RequireApproval && c.approval == nil {
				c.approval = doc
			}
		}
	}
	return c
}

// seal makes the prints, when it is known what is out.
func (c *catalog) seal(platform *part) {
	var all strings.Builder
	own := map[string]*strings.Builder{}
	for _, doc := range platform.docs {
		to := &all
		switch d := doc.spec.(type) {
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
			switch doc.key.Kind {
			case schema.KindApp, schema.KindAppVersion, schema.KindArtifactSource, schema.KindSharedRuntime, schema.KindAttachment, schema.KindNode:
			default:
				continue
			}
		}
		fmt.Fprintf(to, "%s %s %o %t\x00", doc.file.Path, doc.file.Blob, doc.file.Mode, c.bad(doc))
	}
	if c.approval != nil {
		fmt.Fprintf(&all, "approval %s\x00", c.approval.file.Path)
	}
	c.print = sha256.Sum256([]byte(all.String()))
	for tenant, b := range own {
		c.own[tenant] = sha256.Sum256([]byte(b.String()))
	}
}

// bad says whether a document of the platform cannot stand.
func (c *catalog) bad(doc *document) bool { return !doc.valid() || c.out[doc.file.Path] }

// attachments are the Attachment documents by shared runtime; those that are
// invalid are of a project that nobody knows, "".
type attachments map[string]map[string][]*document

func (a attachments) add(doc *document) {
	project := ""
	if d, ok := doc.spec.(*schema.Attachment); ok {
		project = d.Spec.ProjectID
	}
	of := at(a, doc.key.Parent, newMap[[]*document])
	of[project] = append(of[project], doc)
}

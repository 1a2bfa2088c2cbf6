package estate

import (
	"crypto/sha256"
	"slices"
	"strings"
	"sync"

	"berth/schema"
	"berth/schema/load"
)

// tree is one tree of a snapshot after reading: platform/, a tenant tree, or another
// entry of the root.
type tree struct {
	name, id string
	files    []schema.File // by path; some are not documents
	excess   error         // the tree is above its bound; only its name is known
	*content
}

// content has the documents of a tree for the checks. Its documents never change. Results that depend on other trees are kept
// with it. Trees that differ only in other files share it.
type content struct {
	tenant    string
	docs      []*load.Document // by path
	pages     []string         // paths of README.md files, sorted
	byFile    map[string]*load.Document
	valid     bool // whether every document is valid
	documents int  // files with the place of a document
	size      int  // bytes read of the documents

	names nameIndex
	kept  kept
}

// nameIndex lists the documents of a tree that claim a name, or name others.
type nameIndex struct {
	ids      map[identity]string // identity to path; the first of several
	twins    []*load.Document    // documents that share their identity with another
	claiming []*load.Document    // documents that claim Unix accounts
	versions []*load.Document    // AppVersions whose app has another with the same spec.version
	owners   []*load.Document    // platform documents that name tenants and projects, or that attachments refer to
	admitted []*load.Document    // AppAdmissions of the platform
	apps     map[string]*load.Document
	releases map[string]map[string]*load.Document // versions of apps, by app and name
}

// kept has the results of judging a tree.
type kept struct {
	verdicts memo[fingerprint, *verdict]                     // by the input
	built    memo[string, any]                               // *schema.Platform or *schema.TenantEstate, by the files that are not in it
	projects *memo[[sha256.Size]byte, *schema.ProjectEstate] // shared by the trees of its name
}

// newTree makes a tree from its files and their documents; nil for a file without one. It shares the content of an
// earlier tree of its name if that is equal.
func newTree(name, id string, files []schema.File, read []*load.Document, of *history) *tree {
	t := &tree{name: name, id: id, files: files}
	docs := make([]*load.Document, 0, len(read))
	for _, doc := range read {
		if doc != nil {
			docs = append(docs, doc)
		}
	}
	var pages []string
	for _, f := range files {
		if f.Mode == schema.ModePlain && strings.HasSuffix(f.Path, "/README.md") {
			pages = append(pages, f.Path)
		}
	}
	if t.content = of.content(docs, pages); t.content == nil {
		tenant, inTenant := strings.CutPrefix(name, tenantsDir)
		if !inTenant {
			tenant = ""
		}
		t.content = newContent(tenant, docs, pages, &of.projects)
	}
	return t
}

func newContent(tenant string, docs []*load.Document, pages []string, projects *memo[[sha256.Size]byte, *schema.ProjectEstate]) *content {
	t := &content{tenant: tenant, docs: docs, pages: pages, valid: true, byFile: make(map[string]*load.Document, len(docs))}
	t.kept.projects = projects
	var bearing []*load.Document
	for _, doc := range docs {
		t.byFile[doc.File.Path], t.size = doc, t.size+doc.Size
		t.names.catalogue(doc)
		if !doc.Key.IsZero() {
			t.documents++
		}
		if !doc.Valid() {
			t.valid = false
			continue
		}
		if doc.Header.UID != "" {
			bearing = append(bearing, doc)
		}
		if len(claimsOf(doc)) > 0 {
			t.names.claiming = append(t.names.claiming, doc)
		}
		if t.tenant == "" && namesOwners(doc) {
			t.names.owners = append(t.names.owners, doc)
		}
	}
	t.names.identify(bearing)
	t.names.versions = sameVersions(t.docs)
	return t
}

// catalogue adds a document of a catalogue, valid or not.
func (n *nameIndex) catalogue(doc *load.Document) {
	switch doc.Key.Kind {
	case schema.KindApp:
		if n.apps == nil {
			n.apps = map[string]*load.Document{}
		}
		n.apps[doc.Key.Name] = doc
	case schema.KindAppVersion:
		if n.releases == nil {
			n.releases = map[string]map[string]*load.Document{}
		}
		put(n.releases, doc.Key.Parent)[doc.Key.Name] = doc
	case schema.KindAppAdmission:
		n.admitted = append(n.admitted, doc)
	}
}

// at returns the document at a path, or nil.
func (t *content) at(path string) *load.Document { return t.byFile[path] }

// sameVersions returns the valid AppVersions that share app and spec.version with
// another one, by path.
func sameVersions(docs []*load.Document) (out []*load.Document) {
	count := map[published]int{}
	for _, doc := range docs {
		if v, ok := publishedAs(doc); ok {
			count[v]++
		}
	}
	for _, doc := range docs {
		if v, ok := publishedAs(doc); ok && count[v] > 1 {
			out = append(out, doc)
		}
	}
	return out
}

// published is the app and version of an AppVersion document.
type published struct{ app, version string }

func publishedAs(doc *load.Document) (published, bool) {
	if doc == nil || !doc.Valid() {
		return published{}, false
	}
	d, ok := doc.Decl.(*schema.AppVersion)
	if !ok {
		return published{}, false
	}
	return published{d.Key.Parent, d.Spec.Version}, true
}

// identity is the part of a document that stays equal when its path changes.
type identity struct {
	kind schema.Kind
	uid  string
}

func identityOf(d *load.Document) identity { return identity{d.Key.Kind, d.Header.UID} }

// identify finds the documents of each identity, among those that have one.
func (n *nameIndex) identify(bearing []*load.Document) {
	n.ids = map[identity]string{}
	count := map[identity]int{}
	for _, doc := range bearing {
		id := identityOf(doc)
		if count[id]++; count[id] == 1 {
			n.ids[id] = doc.File.Path
		}
	}
	for _, doc := range bearing {
		if count[identityOf(doc)] > 1 {
			n.twins = append(n.twins, doc)
		}
	}
}

// seal completes the verdict on a tree.
func (v *verdict) seal(t *content) {
	v.findings = load.Bounded(v.findings)
	if !t.valid || len(v.out)+len(v.findings) > 0 {
		var out strings.Builder
		for _, doc := range t.docs {
			v.all = append(v.all, doc.Findings...)
			if !doc.Valid() || v.out[doc.File.Path] {
				out.WriteString(doc.File.Path)
				out.WriteByte(0)
			}
		}
		v.all, v.outPrint = load.Bounded(append(v.all, v.findings...)), out.String()
	}
	v.claims = claimedBy(t.names.claiming, v.out)
}

// judged returns the verdict for an input, computed once.
func (t *content) judged(of fingerprint, compute func() (*verdict, error)) (*verdict, error) {
	return t.kept.verdicts.of(of, mostVerdicts, func() (*verdict, error) {
		v, err := compute()
		if err == nil {
			v.seal(t)
		}
		return v, err
	})
}

// mostVerdicts limits the catalogs in use at one time: main's, the one in force, and
// those of a pull request or two; each with and without its statements about nodes.
const mostVerdicts = 8

// fingerprint identifies the input for judging a tree: the part of the catalog that each tree can
// refer to, the part that only this one can, and the rest. Trees without a rest, which are most of
// them, cost no hash.
type fingerprint struct{ catalog, own, rest [sha256.Size]byte }

// history is the latest trees of one name, newest first.
type history struct {
	mu       sync.Mutex
	trees    []*tree
	weight   int
	projects memo[[sha256.Size]byte, *schema.ProjectEstate] // by name and documents
}

// content returns the content of one of the trees with these documents and pages, or nil.
func (h *history) content(docs []*load.Document, pages []string) *content {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.trees {
		if t.excess == nil && slices.Equal(t.docs, docs) && slices.Equal(t.pages, pages) {
			return t.content
		}
	}
	return nil
}

// documents returns the known documents of files, and the indices of the files without one.
func (h *history) documents(files []schema.File) (docs []*load.Document, missing []int) {
	docs = make([]*load.Document, len(files))
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, f := range files {
		if docs[i] = h.document(f); docs[i] == nil {
			missing = append(missing, i)
		}
	}
	return docs, missing
}

// document returns the document of the file f in one of the trees, or nil.
func (h *history) document(f schema.File) *load.Document {
	for _, t := range h.trees {
		if doc := t.byFile[f.Path]; doc != nil && doc.File.Blob == f.Blob && doc.File.Mode == f.Mode {
			return doc
		}
	}
	return nil
}

const (
	tenantsDir = "tenants/"
	tenantFile = "tenant.yaml"
)

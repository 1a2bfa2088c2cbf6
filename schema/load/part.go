package load

import (
	"crypto/sha256"
	"slices"
	"strings"
	"sync"

	"berth/schema"
)

// part is one part of a snapshot, read. Its documents never change; what was
// found out about them in the company of others is remembered beside them.
type part struct {
	name, tenant string
	files        []schema.File // by path; some are no documents
	read         []*document   // what each of the files is; nil: no document
	docs         []*document   // by path
	groups       []*group      // by name
	valid        bool          // every document is
	size         int           // of the documents in bytes, as far as they were read
	excess       error         // it holds more than it may, and nothing but its name is known

	ids      map[identity]string // path; of several documents with one identity, the first
	twins    []*document         // documents whose identity another one has too
	claiming []*document         // those that claim Unix accounts
	versions []*document         // AppVersions whose app has another with the same spec.version
	naming   []*document         // those of the platform's that name tenants and projects, and what those attach to

	mu        sync.Mutex
	checked   map[[sha256.Size]byte]*verdict // by fingerprint of what the part meets
	platforms map[string]*schema.Platform    // by the files that are not in it
	estates   map[string]*schema.TenantEstate
}

// group is the documents of one project of a part, or those of none. Parts that
// have the same ones share it, so that a change costs what it is in. It does not
// change.
type group struct {
	name   string      // the project's; "": of none
	docs   []*document // by path
	byFile map[string]*document

	documents int         // that stand where one may
	valid     bool        // every document is
	bearing   []*document // those of the valid ones that have a uid
	claiming  []*document // that claim Unix accounts
	present   []*document // of any, those that the platform's may name
	attaching []*document // of any, attachments
	accounts  []*document // of the valid ones, service accounts
	operated  bool        // there are operations
}

// reader gives the documents of files that are as they are in the part, nil for
// one that is none. It is asked in order of path. A nil part has none.
func (p *part) reader() func(schema.File) (*document, bool) {
	if p == nil {
		return func(schema.File) (*document, bool) { return nil, false }
	}
	i := 0
	return func(f schema.File) (*document, bool) {
		for i < len(p.files) && p.files[i].Path < f.Path {
			i++
		}
		if i == len(p.files) || p.files[i].Path != f.Path || p.files[i].Blob != f.Blob || p.files[i].Mode != f.Mode {
			return nil, false
		}
		return p.read[i], true
	}
}

// hold gives a part what its files were read as. What it has in common with an
// older one, which may be nil, it shares.
func (p *part) hold(read []*document, old *part) {
	docs := make([]*document, 0, len(read))
	for _, doc := range read {
		if doc != nil {
			docs, p.size = append(docs, doc), p.size+doc.size
		}
	}
	p.read, p.docs, p.valid, p.ids = read, docs, true, map[identity]string{}
	p.checked, p.platforms, p.estates = map[[sha256.Size]byte]*verdict{}, map[string]*schema.Platform{}, map[string]*schema.TenantEstate{}
	if top, tenant, ok := strings.Cut(p.name, "/"); ok && top == "tenants" {
		p.tenant = tenant
	}
	var others []*document
	for len(docs) > 0 {
		// What is of one project has one prefix, and stands together.
		name, n := p.project(docs[0].file.Path), 1
		if name == "" {
			others, docs = append(others, docs[0]), docs[1:]
			continue
		}
		prefix := p.name + "/projects/" + name + "/"
		for n < len(docs) && strings.HasPrefix(docs[n].file.Path, prefix) {
			n++
		}
		p.groups = append(p.groups, groupOf(name, docs[:n], old))
		docs = docs[n:]
	}
	if len(others) > 0 {
		p.groups = append(p.groups, groupOf("", others, old))
	}
	slices.SortFunc(p.groups, func(a, b *group) int { return strings.Compare(a.name, b.name) })
	var bearing []*document
	for _, g := range p.groups {
		p.valid = p.valid && g.valid
		bearing, p.claiming = append(bearing, g.bearing...), append(p.claiming, g.claiming...)
	}
	byPath := func(a, b *document) int { return strings.Compare(a.file.Path, b.file.Path) }
	slices.SortFunc(bearing, byPath)
	slices.SortFunc(p.claiming, byPath)
	p.identify(bearing)
	if p.tenant == "" {
		for _, doc := range p.docs {
			if doc.valid() && names(doc) {
				p.naming = append(p.naming, doc)
			}
		}
		p.versions = sameVersions(p.docs)
	}
}

// sameVersions are the valid AppVersions whose app has another one with the same
// spec.version, by path.
func sameVersions(docs []*document) (out []*document) {
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

// published is what an AppVersion document publishes.
type published struct{ app, version string }

func publishedAs(doc *document) (published, bool) {
	if doc == nil || !doc.valid() {
		return published{}, false
	}
	d, ok := doc.spec.(*schema.AppVersion)
	if !ok {
		return published{}, false
	}
	return published{d.Key.Parent, d.Spec.Version}, true
}

// identity is what a document keeps when its path changes.
type identity struct {
	kind schema.Kind
	uid  string
}

func (d *document) identity() identity { return identity{d.key.Kind, d.header.UID} }

// identify finds the documents of each identity.
func (p *part) identify(bearing []*document) {
	bearers := map[identity][]*document{} // of an identity that several have
	for _, doc := range bearing {
		id := doc.identity()
		first, twice := p.ids[id]
		switch {
		case !twice:
			p.ids[id] = doc.file.Path
		case bearers[id] == nil:
			bearers[id] = []*document{p.at(first), doc}
		default:
			bearers[id] = append(bearers[id], doc)
		}
	}
	for _, doc := range bearing {
		p.twins = append(p.twins, bearers[doc.identity()]...)
		delete(bearers, doc.identity())
	}
}

// project is the name of the project that a path of a tenant's stands in, or "".
func (p *part) project(path string) string {
	if p.tenant == "" {
		return ""
	}
	rest, ok := strings.CutPrefix(path[min(len(p.name), len(path)):], "/projects/")
	name, _, below := strings.Cut(rest, "/")
	if !ok || !below {
		return ""
	}
	return name
}

// group is the group of that name, or nil. A nil part has none.
func (p *part) group(name string) *group {
	if p == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(p.groups, name, func(g *group, name string) int { return strings.Compare(g.name, name) })
	if !ok {
		return nil
	}
	return p.groups[i]
}

// at is the document that stands at a path, or nil.
func (p *part) at(path string) *document {
	if g := p.group(p.project(path)); g != nil {
		return g.byFile[path]
	}
	return nil
}

// groupOf is the group of these documents: that of an older part, if they are the
// same.
func groupOf(name string, docs []*document, old *part) *group {
	if g := old.group(name); g != nil && slices.Equal(g.docs, docs) {
		return g
	}
	g := &group{name: name, docs: slices.Clone(docs), byFile: make(map[string]*document, len(docs)), valid: true}
	for _, doc := range docs {
		g.byFile[doc.file.Path] = doc
		if !doc.key.IsZero() {
			g.documents++
		}
		switch doc.key.Kind {
		case schema.KindTenant, schema.KindProject, schema.KindEntitlement:
			g.present = append(g.present, doc)
		case schema.KindAttachment:
			g.attaching = append(g.attaching, doc)
		case schema.KindMemberOperation:
			g.operated = true
		}
		if !doc.valid() {
			g.valid = false
			continue
		}
		if doc.header.UID != "" {
			g.bearing = append(g.bearing, doc)
		}
		if doc.key.Kind == schema.KindServiceAccount {
			g.accounts = append(g.accounts, doc)
		}
		if len(doc.claims) > 0 {
			g.claiming = append(g.claiming, doc)
		}
	}
	return g
}

// news are those documents of a group, all of them valid, that are to be judged
// where nothing is wrong with an older one, which may be nil: nothing but an
// operation looks at an instance.
func (g *group) news(old *group) []*document {
	if g == old {
		return nil
	}
	if old == nil || g.operated {
		return g.docs
	}
	was := map[*document]bool{}
	for _, doc := range old.docs {
		was[doc] = true
	}
	var news []*document
	for _, doc := range g.docs {
		if !was[doc] {
			news = append(news, doc)
		}
		delete(was, doc)
	}
	other := func(d *document) bool { return d.key.Kind != schema.KindInstance }
	if slices.ContainsFunc(news, other) {
		return g.docs
	}
	for doc := range was {
		if other(doc) {
			return g.docs
		}
	}
	return news
}

package estate

import (
	"crypto/sha256"
	"slices"
	"strings"
	"sync"

	"berth/schema"
	"berth/schema/load"
)

// part is one part of a snapshot, read. Its documents never change; what was
// found out about them in the company of others is remembered beside them.
type part struct {
	name, tenant string
	files        []schema.File    // by path; some are no documents
	read         []*load.Document // what each of the files is; nil: no document
	docs         []*load.Document // by path
	groups       []*group         // by name
	valid        bool             // every document is
	size         int              // of the documents in bytes, as far as they were read
	excess       error            // it holds more than it may, and nothing but its name is known

	ids      map[identity]string // path; of several documents with one identity, the first
	twins    []*load.Document    // documents whose identity another one has too
	claiming []*load.Document    // those that claim Unix accounts
	versions []*load.Document    // AppVersions whose app has another with the same spec.version
	naming   []*load.Document    // those of the platform's that name tenants and projects, and what those attach to

	mu        sync.Mutex
	checked   map[[sha256.Size]byte]*verdict // by fingerprint of what the part meets
	platforms map[string]*schema.Platform    // by the files that are not in it
	estates   map[string]*schema.TenantEstate
}

// group is the documents of one project of a part, or those of none. Parts that
// have the same ones share it, so that a change costs what it is in. It does not
// change.
type group struct {
	name   string           // the project's; "": of none
	docs   []*load.Document // by path
	byFile map[string]*load.Document

	documents int              // that stand where one may
	valid     bool             // every document is
	bearing   []*load.Document // those of the valid ones that have a uid
	claiming  []*load.Document // that claim Unix accounts
	present   []*load.Document // of any, those that the platform's may name
	attaching []*load.Document // of any, attachments
	accounts  []*load.Document // of the valid ones, service accounts
	operated  bool             // there are operations
}

// reader gives the documents of files that are as they are in the part, nil for
// one that is none. It is asked in order of path. A nil part has none.
func (p *part) reader() func(schema.File) (*load.Document, bool) {
	if p == nil {
		return func(schema.File) (*load.Document, bool) { return nil, false }
	}
	i := 0
	return func(f schema.File) (*load.Document, bool) {
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
func (p *part) hold(read []*load.Document, old *part) {
	docs := make([]*load.Document, 0, len(read))
	for _, doc := range read {
		if doc != nil {
			docs, p.size = append(docs, doc), p.size+doc.Size
		}
	}
	p.read, p.docs, p.valid, p.ids = read, docs, true, map[identity]string{}
	p.checked, p.platforms, p.estates = map[[sha256.Size]byte]*verdict{}, map[string]*schema.Platform{}, map[string]*schema.TenantEstate{}
	if top, tenant, ok := strings.Cut(p.name, "/"); ok && top == "tenants" {
		p.tenant = tenant
	}
	var others []*load.Document
	for len(docs) > 0 {
		// What is of one project has one prefix, and stands together.
		name, n := p.project(docs[0].File.Path), 1
		if name == "" {
			others, docs = append(others, docs[0]), docs[1:]
			continue
		}
		prefix := p.name + "/projects/" + name + "/"
		for n < len(docs) && strings.HasPrefix(docs[n].File.Path, prefix) {
			n++
		}
		p.groups = append(p.groups, groupOf(name, docs[:n], old))
		docs = docs[n:]
	}
	if len(others) > 0 {
		p.groups = append(p.groups, groupOf("", others, old))
	}
	slices.SortFunc(p.groups, func(a, b *group) int { return strings.Compare(a.name, b.name) })
	var bearing []*load.Document
	for _, g := range p.groups {
		p.valid = p.valid && g.valid
		bearing, p.claiming = append(bearing, g.bearing...), append(p.claiming, g.claiming...)
	}
	byPath := func(a, b *load.Document) int { return strings.Compare(a.File.Path, b.File.Path) }
	slices.SortFunc(bearing, byPath)
	slices.SortFunc(p.claiming, byPath)
	p.identify(bearing)
	if p.tenant == "" {
		for _, doc := range p.docs {
			if doc.Valid() && names(doc) {
				p.naming = append(p.naming, doc)
			}
		}
		p.versions = sameVersions(p.docs)
	}
}

// sameVersions are the valid AppVersions whose app has another one with the same
// spec.version, by path.
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

// published is what an AppVersion document publishes.
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

// identity is what a document keeps when its path changes.
type identity struct {
	kind schema.Kind
	uid  string
}

func identityOf(d *load.Document) identity { return identity{d.Key.Kind, d.Header.UID} }

// identify finds the documents of each identity.
func (p *part) identify(bearing []*load.Document) {
	bearers := map[identity][]*load.Document{} // of an identity that several have
	for _, doc := range bearing {
		id := identityOf(doc)
		first, twice := p.ids[id]
		switch {
		case !twice:
			p.ids[id] = doc.File.Path
		case bearers[id] == nil:
			bearers[id] = []*load.Document{p.at(first), doc}
		default:
			bearers[id] = append(bearers[id], doc)
		}
	}
	for _, doc := range bearing {
		p.twins = append(p.twins, bearers[identityOf(doc)]...)
		delete(bearers, identityOf(doc))
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
func (p *part) at(path string) *load.Document {
	if g := p.group(p.project(path)); g != nil {
		return g.byFile[path]
	}
	return nil
}

// groupOf is the group of these documents: that of an older part, if they are the
// same.
func groupOf(name string, docs []*load.Document, old *part) *group {
	if g := old.group(name); g != nil && slices.Equal(g.docs, docs) {
		return g
	}
	g := &group{name: name, docs: slices.Clone(docs), byFile: make(map[string]*load.Document, len(docs)), valid: true}
	for _, doc := range docs {
		g.byFile[doc.File.Path] = doc
		if !doc.Key.IsZero() {
			g.documents++
		}
		switch doc.Key.Kind {
		case schema.KindTenant, schema.KindProject, schema.KindEntitlement:
			g.present = append(g.present, doc)
		case schema.KindAttachment:
			g.attaching = append(g.attaching, doc)
		case schema.KindMemberOperation:
			g.operated = true
		}
		if !doc.Valid() {
			g.valid = false
			continue
		}
		if doc.Header.UID != "" {
			g.bearing = append(g.bearing, doc)
		}
		if doc.Key.Kind == schema.KindServiceAccount {
			g.accounts = append(g.accounts, doc)
		}
		if len(claimsOf(doc)) > 0 {
			g.claiming = append(g.claiming, doc)
		}
	}
	return g
}

// news are those documents of a group, all of them valid, that are to be judged
// where nothing is wrong with an older one, which may be nil: nothing but an
// operation looks at an instance.
func (g *group) news(old *group) []*load.Document {
	if g == old {
		return nil
	}
	if old == nil || g.operated {
		return g.docs
	}
	was := map[*load.Document]bool{}
	for _, doc := range old.docs {
		was[doc] = true
	}
	var news []*load.Document
	for _, doc := range g.docs {
		if !was[doc] {
			news = append(news, doc)
		}
		delete(was, doc)
	}
	other := func(d *load.Document) bool { return d.Key.Kind != schema.KindInstance }
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

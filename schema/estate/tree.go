package estate

import (
	"crypto/sha256"
	"strings"
	"sync"

	"berth/schema"
	"berth/schema/load"
)

// tree is one tree of a snapshot after reading: platform/, a tenant tree, or another
// entry of the root. Its documents never change. Results that depend on other trees are
// kept with it.
type tree struct {
	name, tenant, id string
	files            []schema.File    // by path; some are not documents
	docs             []*load.Document // by path
	byFile           map[string]*load.Document
	valid            bool  // whether every document is valid
	documents        int   // files with the place of a document
	size             int   // bytes read of the documents
	excess           error // the tree is above its bound; only its name is known

	projects *projects           // shared by the trees of its name
	ids      map[identity]string // identity to path; the first of several
	twins    []*load.Document    // documents that share their identity with another
	claiming []*load.Document    // documents that claim Unix accounts
	versions []*load.Document    // AppVersions whose app has another with the same spec.version
	naming   []*load.Document    // platform documents that name tenants and projects, or that attachments refer to

	mu       sync.Mutex
	verdicts map[[sha256.Size]byte]*verdict // by fingerprint of the input
	built    map[string]any                 // *schema.Platform or *schema.TenantEstate, by the files that are not in it
}

// newTree makes a tree from its files and their documents; nil for a file without one.
func newTree(name, id string, files []schema.File, read []*load.Document, shared *projects) *tree {
	t := &tree{
		name: name, id: id, files: files, projects: shared, valid: true,
		byFile: make(map[string]*load.Document, len(files)), ids: map[identity]string{},
		verdicts: map[[sha256.Size]byte]*verdict{}, built: map[string]any{},
	}
	if tenant, ok := strings.CutPrefix(name, tenantsDir); ok {
		t.tenant = tenant
	}
	var bearing []*load.Document
	for _, doc := range read {
		if doc == nil {
			continue
		}
		t.docs, t.byFile[doc.File.Path], t.size = append(t.docs, doc), doc, t.size+doc.Size
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
			t.claiming = append(t.claiming, doc)
		}
		if t.tenant == "" && names(doc) {
			t.naming = append(t.naming, doc)
		}
	}
	t.identify(bearing)
	if t.tenant == "" {
		t.versions = sameVersions(t.docs)
	}
	return t
}

// at returns the document at a path, or nil.
func (t *tree) at(path string) *load.Document { return t.byFile[path] }

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

// identify finds the documents of each identity.
func (t *tree) identify(bearing []*load.Document) {
	bearers := map[identity][]*load.Document{} // documents of each shared identity
	for _, doc := range bearing {
		id := identityOf(doc)
		first, twice := t.ids[id]
		switch {
		case !twice:
			t.ids[id] = doc.File.Path
		case bearers[id] == nil:
			bearers[id] = []*load.Document{t.at(first), doc}
		default:
			bearers[id] = append(bearers[id], doc)
		}
	}
	for _, doc := range bearing {
		t.twins = append(t.twins, bearers[identityOf(doc)]...)
		delete(bearers, identityOf(doc))
	}
}

// seal completes the verdict on a tree.
func (v *verdict) seal(t *tree) {
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
	v.claims = claimedBy(t.claiming, v.out)
}

// judged returns the verdict for the input with this fingerprint, computed once.
func (t *tree) judged(fingerprint [sha256.Size]byte, compute func() (*verdict, error)) (*verdict, error) {
	t.mu.Lock()
	v := t.verdicts[fingerprint]
	t.mu.Unlock()
	if v != nil {
		return v, nil
	}
	v, err := compute()
	if err != nil {
		return nil, err
	}
	v.seal(t)
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.verdicts) >= mostVerdicts {
		clear(t.verdicts)
	}
	t.verdicts[fingerprint] = v
	return v, nil
}

// mostVerdicts limits the catalogs in use at one time: main's, the one in force, and
// those of a pull request or two.
const mostVerdicts = 4

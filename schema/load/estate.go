package load

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/schema"
)

// estate is a Result under construction.
type estate struct {
	*Result
	out map[string]bool // files not in Desired
}

func emptyPlatform() *schema.Platform {
	return &schema.Platform{
		Apps: map[string]*schema.App{}, Versions: map[string]map[string]*schema.AppVersion{},
		Nodes: map[string]*schema.Node{}, Policies: map[string]*schema.Policy{}, Roles: map[string]*schema.RoleBinding{},
	}
}

func (e *estate) unreadable(p schema.Part, err error) {
	e.Unreadable = append(e.Unreadable, p.Name)
	e.Diagnostics = append(e.Diagnostics, schema.Diagnostic{
		Severity: schema.SeverityError, Code: "part.unreadable", File: p.Name, Line: 1, Column: 1,
		Message: fmt.Sprintf("cannot be read, nothing below it is known: %v", err),
	})
}

// check judges the parts in each other's company and builds Desired.
func (e *estate) check(ctx context.Context, l *Loader, held claims) error {
	e.out = map[string]bool{}
	slices.SortFunc(e.parts, func(a, b *part) int { return strings.Compare(a.name, b.name) })
	cat := newCatalog(nil)
	verdicts := make([]*verdict, len(e.parts))
	for i, p := range e.parts {
		if p.name == "platform" {
			verdicts[i] = p.verdict("", func() *verdict { return checkPlatform(p) })
			cat = newCatalog(p)
		}
	}
	for i, p := range e.parts {
		if verdicts[i] != nil {
			continue
		}
		var failed error
		verdicts[i] = p.verdict(cat.print, func() *verdict {
			v, err := checkTenant(ctx, l, p, cat)
			failed = err
			return v
		})
		if failed != nil {
			return failed
		}
	}
	for i, p := range e.parts {
		e.take(p, verdicts[i])
	}
	e.claimUsers(held)
	e.reservations()
	for _, p := range e.parts {
		switch {
		case p.name == "platform":
			e.Desired.Platform = p.buildPlatform(e.out)
		case p.tenant != "":
			if t := p.buildTenant(e.out); t != nil {
				e.Desired.Tenants[p.tenant] = t
			}
		}
	}
	e.Diagnostics = bounded(e.Diagnostics)
	for file, needs := range e.Needs {
		slices.Sort(needs)
		e.Needs[file] = slices.Compact(needs)
	}
	return nil
}

// take adds what is known of a part.
func (e *estate) take(p *part, v *verdict) {
	for _, doc := range p.docs {
		if !doc.key.IsZero() {
			e.Documents[doc.file.Path] = doc.key
		}
		e.Diagnostics = append(e.Diagnostics, doc.findings...)
		if !doc.valid() {
			e.out[doc.file.Path] = true
		}
	}
	e.Diagnostics = append(e.Diagnostics, v.findings...)
	for file := range v.out {
		e.out[file] = true
	}
	for file, needs := range v.needs {
		e.Needs[file] = slices.Clone(needs)
	}
}

func (e *estate) refuse(f schema.Diagnostic, needs ...string) {
	e.Diagnostics = append(e.Diagnostics, f)
	if f.Severity == schema.SeverityError {
		e.out[f.File] = true
		e.Needs[f.File] = append(e.Needs[f.File], needs...)
	}
}

// claims are Unix accounts: "name alice" is "20001", "uid 20001" is "alice".
type claims map[string]string

type claimant struct {
	doc  *document
	what string
	is   string
	path string
}

// claimUsers makes sure that one Unix name has one uid in the whole estate, as
// hosts are shared. Who holds a claim keeps it; among new ones, the platform
// and then the first tenant by name has it.
func (e *estate) claimUsers(held claims) {
	var docs [][]claimant
	stated := map[string]map[string]bool{} // claim, values somebody states
	for _, p := range e.parts {
		for _, doc := range p.docs {
			if len(doc.claims) == 0 || e.out[doc.file.Path] {
				continue
			}
			docs = append(docs, doc.claims)
			for _, c := range doc.claims {
				if stated[c.what] == nil {
					stated[c.what] = map[string]bool{}
				}
				stated[c.what][c.is] = true
			}
		}
	}
	owner := map[string]claimant{}
	e.claims = claims{}
	for what, is := range held {
		if stated[what][is] {
			e.claims[what] = is
		}
	}
	for _, cs := range docs { // who states a held claim goes first as its witness
		for _, c := range cs {
			if _, ok := owner[c.what]; !ok && e.claims[c.what] == c.is {
				owner[c.what] = c
			}
		}
	}
	for _, cs := range docs {
		lost := false
		for _, c := range cs {
			if is, ok := e.claims[c.what]; ok && is != c.is {
				e.refuse(conflict(c, is, owner[c.what]), owner[c.what].doc.file.Path)
				lost = true
			}
		}
		if lost {
			continue // what is out claims nothing
		}
		for _, c := range cs {
			if _, ok := e.claims[c.what]; !ok {
				e.claims[c.what], owner[c.what] = c.is, c
			}
		}
	}
}

func conflict(c claimant, is string, other claimant) schema.Diagnostic {
	kind, name, _ := strings.Cut(c.what, " ")
	field, message := ".name", fmt.Sprintf("the uid %s is %s's already", name, is)
	if kind == "name" {
		field, message = ".uid", fmt.Sprintf("the Unix user %s has the uid %s already", name, is)
	}
	there := other.doc.header.At(other.path)
	return found(c.doc, c.path+field, schema.SeverityError, "conflict.unix-user",
		fmt.Sprintf("%s (%s:%d): one name has one uid everywhere", message, there.File, there.Line))
}

func claimsOf(doc *document, b *schema.RoleBinding) (cs []claimant) {
	for i, m := range b.Spec.Members {
		if m.UnixUser == nil {
			continue
		}
		path, uid := item("spec.members", i)+".unix_user", fmt.Sprint(m.UnixUser.UID)
		cs = append(cs,
			claimant{doc, "name " + m.UnixUser.Name, uid, path},
			claimant{doc, "uid " + uid, m.UnixUser.Name, path})
	}
	return cs
}

// found is a finding in a valid document.
func found(doc *document, path string, severity schema.Severity, code, message string) schema.Diagnostic {
	at := doc.header.At(path)
	return schema.Diagnostic{
		Severity: severity, Code: code, Message: subject(path) + message,
		File: at.File, Line: at.Line, Column: at.Column, Path: path,
	}
}

// reservations warns about nodes kept for nobody. It is no error: a tenant may
// come after its nodes, and may go before them.
func (e *estate) reservations() {
	tenants := map[string]*part{}
	for _, p := range e.parts {
		tenants[p.tenant] = p
	}
	for _, p := range e.parts {
		if p.name != "platform" {
			continue
		}
		for _, doc := range p.docs {
			n, ok := doc.spec.(*schema.Node)
			if !ok || n.Spec.Reserved == "" || e.out[doc.file.Path] {
				continue
			}
			tenant, project, inProject := strings.Cut(n.Spec.Reserved, ".")
			key := schema.Key{Kind: schema.KindTenant, Name: tenant}
			if inProject {
				key = schema.Key{Kind: schema.KindProject, Tenant: tenant, Name: project}
			}
			path, _ := key.Path()
			if t := tenants[tenant]; t == nil || t.byFile[path] == nil {
				e.Diagnostics = append(e.Diagnostics, found(doc, "spec.reserved_for", schema.SeverityWarning, "ref.missing-owner",
					fmt.Sprintf("there is no %s (%s): nobody can use this node", n.Spec.Reserved, path)))
			}
		}
	}
}

// fingerprint of the files of a part that are out.
func (p *part) outPrint(out map[string]bool) string {
	var b strings.Builder
	for _, doc := range p.docs {
		if out[doc.file.Path] {
			b.WriteString(doc.file.Path)
			b.WriteByte(0)
		}
	}
	return b.String()
}

// buildPlatform is the platform of the documents not in out. The same
// documents give the same value.
func (p *part) buildPlatform(out map[string]bool) *schema.Platform {
	print := p.outPrint(out)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.platform != nil && p.out == print {
		return p.platform
	}
	b := emptyPlatform()
	for _, doc := range p.docs {
		if out[doc.file.Path] {
			continue
		}
		switch d := doc.spec.(type) {
		case *schema.App:
			b.Apps[d.Key.Name] = d
		case *schema.AppVersion:
			if b.Versions[d.Key.Parent] == nil {
				b.Versions[d.Key.Parent] = map[string]*schema.AppVersion{}
			}
			b.Versions[d.Key.Parent][d.Key.Name] = d
		case *schema.Node:
			b.Nodes[d.Key.Name] = d
		case *schema.Policy:
			b.Policies[d.Key.Name] = d
		case *schema.RoleBinding:
			b.Roles[d.Key.Name] = d
		}
	}
	p.platform, p.out = b, print
	return b
}

// buildTenant is the tenant of the documents not in out, or nil if there is none.
func (p *part) buildTenant(out map[string]bool) *schema.TenantEstate {
	print := p.outPrint(out)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.estate != nil && p.out == print {
		return p.estate
	}
	t := &schema.TenantEstate{Name: p.tenant, Projects: map[string]*schema.ProjectEstate{}}
	project := func(name string) *schema.ProjectEstate {
		if t.Projects[name] == nil {
			t.Projects[name] = &schema.ProjectEstate{
				Name: name, Entitlements: map[string]*schema.Entitlement{}, Instances: map[string]*schema.Instance{},
			}
		}
		return t.Projects[name]
	}
	some := false
	for _, doc := range p.docs {
		if out[doc.file.Path] {
			continue
		}
		some = true
		switch d := doc.spec.(type) {
		case *schema.Tenant:
			t.Tenant = d
		case *schema.Policy:
			t.Policy = d
		case *schema.Project:
			project(d.Key.Name).Project = d
		case *schema.RoleBinding:
			if d.Key.Project == "" {
				t.Roles = d
			} else {
				project(d.Key.Project).Roles = d
			}
		case *schema.Entitlement:
			project(d.Key.Project).Entitlements[d.Key.Name] = d
		case *schema.Instance:
			project(d.Key.Project).Instances[d.Key.Name] = d
		}
	}
	if !some {
		return nil
	}
	p.estate, p.out = t, print
	return t
}

// verdict is what a part's documents came to in the company of a catalog.
type verdict struct {
	findings []schema.Diagnostic
	out      map[string]bool     // files that are not to be in Desired
	needs    map[string][]string // why
}

func newVerdict() *verdict {
	return &verdict{out: map[string]bool{}, needs: map[string][]string{}}
}

// refuse records a finding that holds its document.
func (v *verdict) refuse(doc *document, path, code, message string, needs ...string) {
	v.findings = append(v.findings, found(doc, path, schema.SeverityError, code, message))
	v.without(doc, needs...)
}

// without records that a document cannot stand, as something it needs cannot;
// the finding about that stands elsewhere.
func (v *verdict) without(doc *document, needs ...string) {
	v.out[doc.file.Path] = true
	v.needs[doc.file.Path] = append(v.needs[doc.file.Path], needs...)
}

// verdict is computed once for each catalog the part meets.
func (p *part) verdict(print string, compute func() *verdict) *verdict {
	const most = 4 // catalogs in use at once: main, in force, a pull request or two
	p.mu.Lock()
	v, ok := p.checked[print]
	p.mu.Unlock()
	if ok {
		return v
	}
	v = compute()
	if v == nil {
		return nil
	}
	v.findings = bounded(v.findings)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.checked) >= most {
		clear(p.checked)
	}
	p.checked[print] = v
	return v
}

// sortedNames lists a map's keys.
func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

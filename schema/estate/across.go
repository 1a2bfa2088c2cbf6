package estate

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"berth/schema"
	"berth/schema/load"
)

// What holds across the parts of an estate, which are judged one by one.

// refusal is a document that may not stand whatever its part says, and why.
type refusal struct {
	doc     *load.Document
	finding schema.Diagnostic
	needs   []string
}

// print is a fingerprint of what a part meets: what it sees of the catalog, and
// what is refused beforehand.
func print(catalog, own [sha256.Size]byte, refused []refusal) [sha256.Size]byte {
	of := slices.Concat(catalog[:], own[:])
	for _, r := range refused {
		of = fmt.Appendf(of, "\x00!%s %s", r.doc.File.Path, r.finding.Message)
	}
	return sha256.Sum256(of)
}

// identities makes sure that a uid belongs to one document of its kind in a part:
// a moved document keeps its identity by it. The document in force keeps its uid;
// among new ones, the first by path has it. Uids of different tenants are unrelated.
func (e *estate) identities() map[*part][]refusal {
	refused := map[*part][]refusal{}
	for _, s := range e.parts {
		if len(s.twins) == 0 {
			continue
		}
		e.free, s.owners = false, map[identity]string{}
		for _, doc := range s.twins { // by identity and path
			id := identityOf(doc)
			if _, ok := s.owners[id]; ok {
				continue
			}
			s.owners[id] = doc.File.Path
			if held := e.held.owner(s.name, id); slices.ContainsFunc(s.twins, func(d *load.Document) bool { return identityOf(d) == id && d.File.Path == held }) {
				s.owners[id] = held
			}
		}
		for _, doc := range s.twins {
			id := identityOf(doc)
			if owner := s.at(s.owners[id]); doc != owner {
				there := owner.Header.At("metadata.uid")
				refused[s.part] = append(refused[s.part], refusal{doc, load.Found(doc, "metadata.uid", schema.SeverityError, "conflict.uid",
					fmt.Sprintf("the uid %s belongs to %s already (%s:%d); remove it to declare a new %s, or choose another", id.uid, owner.Key, there.File, there.Line, id.kind)), []string{there.File}})
			}
		}
	}
	return refused
}

// oneVersion makes sure that an app has one AppVersion for each spec.version:
// instances name the document, people name the version (requirement A2). The
// document in force keeps it; among new ones, the first by path. Documents that
// are both in force already stay, so that nothing stops for their sake.
func (e *estate) oneVersion(refused map[*part][]refusal) {
	s := e.part("platform")
	if s == nil || len(s.versions) == 0 {
		return
	}
	e.free = false
	inForce := func(doc *load.Document) bool {
		held := e.held.part("platform")
		if held == nil {
			return false
		}
		now, _ := publishedAs(doc)
		was, ok := publishedAs(held.at(doc.File.Path))
		return ok && was == now
	}
	owners := map[published]*load.Document{}
	for _, first := range []bool{true, false} { // those in force, then the others
		for _, doc := range s.versions {
			v, _ := publishedAs(doc)
			owner := owners[v]
			switch {
			case inForce(doc) != first:
			case owner == nil:
				owners[v] = doc
			case !first:
				there := owner.Header.At("spec.version")
				refused[s.part] = append(refused[s.part], refusal{doc, load.Found(doc, "spec.version", schema.SeverityError, "conflict.version",
					fmt.Sprintf("%s is version %s of %s already (%s:%d): keep one of the two documents, or give this one the version it is", owner.Key.Name, v.version, v.app, there.File, there.Line)), []string{there.File}})
			}
		}
	}
}

// owner is the path of the document of a part that has an identity, or "".
func (r *Result) owner(part string, id identity) string {
	s := r.part(part)
	if s == nil {
		return ""
	}
	if path, ok := s.owners[id]; ok {
		return path
	}
	return s.ids[id]
}

// claimant is one claim of a document, to a Unix account: "name alice" is
// "20001", "uid 20001" is "alice", "user alice" is the login "alice-forge".
type claimant struct {
	doc  *load.Document
	what string
	is   string
	path string
}

// claimed is what the documents of a part that stand in it claim.
type claimed struct {
	docs []*load.Document
	says func() (claims map[string]string, torn bool) // torn: they contradict each other
}

func claimedBy(p *part, v *verdict) *claimed {
	c := &claimed{docs: p.claiming}
	if len(v.out) > 0 {
		c.docs = slices.DeleteFunc(slices.Clone(c.docs), func(d *load.Document) bool { return v.out[d.File.Path] })
	}
	c.says = sync.OnceValues(func() (map[string]string, bool) {
		says, torn := map[string]string{}, false
		for _, doc := range c.docs {
			for _, claim := range claimsOf(doc) {
				is, ok := says[claim.what]
				torn = torn || ok && is != claim.is
				says[claim.what] = claim.is
			}
		}
		return says, torn
	})
	return c
}

// accounts are the claims of an estate. Most are shared with those of the estate
// it differs from.
type accounts struct {
	base, over map[string]account // over goes first
	counted    bool               // nobody's claim was in the way of another's
}

type account struct {
	is string
	by int // parts that say so; 0: nobody claims it any more
}

func (a *accounts) at(what string) account {
	if x, ok := a.over[what]; ok {
		return x
	}
	return a.base[what]
}

// with is what is claimed when some claims of parts go and others come, or nil
// if they contradict each other.
func (a *accounts) with(gone, come []*claimed) *accounts {
	if a.counted && len(gone)+len(come) == 0 {
		return a
	}
	next := &accounts{base: a.base, over: maps.Clone(a.over), counted: true}
	if next.over == nil {
		next.over = map[string]account{}
	}
	for _, c := range gone {
		says, _ := c.says()
		for what := range says {
			x := next.at(what)
			x.by--
			next.over[what] = x
		}
	}
	for _, c := range come {
		says, torn := c.says()
		if torn {
			return nil
		}
		for what, is := range says {
			x := next.at(what)
			if x.by > 0 && x.is != is {
				return nil
			}
			next.over[what] = account{is, x.by + 1}
		}
	}
	if next.base == nil || len(next.over) > 1000+len(next.base)/8 {
		all := maps.Clone(next.base)
		if all == nil {
			all = map[string]account{}
		}
		maps.Copy(all, next.over)
		maps.DeleteFunc(all, func(_ string, x account) bool { return x.by == 0 })
		next.base, next.over = all, nil
	}
	return next
}

// claimUsers makes sure that one Unix name has one uid, and is one person, in the
// whole estate, as hosts are shared: who could name another's account would
// submit work as them, and read what is theirs. Who holds a claim keeps it; among new ones, the platform
// and then the first tenant by name has it.
func (e *estate) claimUsers() {
	before, gone, come := &accounts{}, []*claimed(nil), []*claimed(nil)
	var was []*standing
	if e.base != nil {
		before, was = e.base.users, e.base.parts
	}
	differ := func(old, now *standing) {
		var a, b *claimed
		if old != nil {
			a = old.verdict.claims()
		}
		if now != nil {
			b = now.verdict.claims()
		}
		if a != nil && b != nil && slices.Equal(a.docs, b.docs) {
			return
		}
		if a != nil {
			gone = append(gone, a)
		}
		if b != nil {
			come = append(come, b)
		}
	}
	differing(was, e.parts, differ)
	if e.users = before.with(gone, come); e.users == nil {
		e.users, e.free = e.contend(), false
	}
}

// differing visits the parts that are not the same in two estates, or judged
// otherwise; one that is not there is nil.
func differing(was, now []*standing, visit func(old, now *standing)) {
	for len(was) > 0 || len(now) > 0 {
		switch {
		case len(now) == 0 || len(was) > 0 && was[0].name < now[0].name:
			visit(was[0], nil)
			was = was[1:]
		case len(was) == 0 || now[0].name < was[0].name:
			visit(nil, now[0])
			now = now[1:]
		default:
			if was[0].part != now[0].part || was[0].verdict != now[0].verdict {
				visit(was[0], now[0])
			}
			was, now = was[1:], now[1:]
		}
	}
}

// contend settles claims that contradict each other.
func (e *estate) contend() *accounts {
	type claiming struct {
		in     *standing
		claims []claimant
	}
	var docs []claiming
	stated := map[string]map[string]bool{} // claim, values somebody states
	for _, s := range e.parts {
		for _, doc := range s.verdict.claims().docs {
			docs = append(docs, claiming{s, claimsOf(doc)})
			for _, c := range claimsOf(doc) {
				at(stated, c.what, newMap[bool])[c.is] = true
			}
		}
	}
	claims, owner := map[string]account{}, map[string]claimant{}
	if e.held != nil {
		for what, values := range stated {
			if x := e.held.users.at(what); x.by > 0 && values[x.is] {
				claims[what] = account{x.is, 1}
			}
		}
	}
	for _, d := range docs { // who states a held claim goes first as its witness
		for _, c := range d.claims {
			if _, ok := owner[c.what]; !ok && claims[c.what].is == c.is {
				owner[c.what] = c
			}
		}
	}
	for _, d := range docs {
		lost := false
		for _, c := range d.claims {
			if x, ok := claims[c.what]; ok && x.is != c.is {
				e.refuse(d.in, conflict(c, x.is, owner[c.what]), owner[c.what].doc.File.Path)
				lost = true
			}
		}
		if lost {
			continue // what is out claims nothing
		}
		for _, c := range d.claims {
			if _, ok := claims[c.what]; !ok {
				claims[c.what], owner[c.what] = account{c.is, 1}, c
			}
		}
	}
	return &accounts{base: claims}
}

// conflict is the finding that a claim of c contradicts one of other.
func conflict(c claimant, is string, other claimant) schema.Diagnostic {
	kind, name, _ := strings.Cut(c.what, " ")
	message, rule := fmt.Sprintf("the uid %s is %s's already", name, is), load.OneUID
	switch kind {
	case "name":
		message = fmt.Sprintf("the Unix user %s has the uid %s already", name, is)
	case "user":
		message, rule = fmt.Sprintf("the Unix user %s is %s's already", name, is), load.OneLogin
	}
	there := other.doc.Header.At(other.path)
	if c.doc.Key.Tenant == other.doc.Key.Tenant {
		return load.Found(c.doc, c.field(), schema.SeverityError, "conflict.unix-user",
			fmt.Sprintf("%s (%s:%d): %s", message, there.File, there.Line, rule))
	}
	// Whose it is, and where that stands, is another tenant's to tell.
	f := load.Found(c.doc, c.field(), schema.SeverityError, "conflict.unix-user", fmt.Sprintf("the %s is taken by somebody of another tenant: %s", what(kind, name), rule))
	f.Other = schema.Place{Position: other.doc.Header.At(other.field()), Path: other.field()}
	return f
}

// field is the field that makes the claim.
func (c claimant) field() string {
	switch kind, _, _ := strings.Cut(c.what, " "); kind {
	case "name":
		return c.path + ".uid"
	case "user":
		return load.Parent(c.path) + ".login"
	}
	return c.path + ".name"
}

func what(kind, name string) string {
	if kind == "name" || kind == "user" {
		return "Unix user " + name
	}
	return "uid " + name
}

func claimsOf(doc *load.Document) (cs []claimant) {
	b, ok := doc.Decl.(*schema.RoleBinding)
	if !ok {
		return nil
	}
	for i, m := range b.Spec.Members {
		if m.UnixUser == nil {
			continue
		}
		path, uid := load.Item("spec.members", i)+".unix_user", fmt.Sprint(m.UnixUser.UID)
		cs = append(cs,
			claimant{doc, "name " + m.UnixUser.Name, uid, path},
			claimant{doc, "uid " + uid, m.UnixUser.Name, path},
			claimant{doc, "user " + m.UnixUser.Name, strings.ToLower(m.Login), path})
	}
	return cs
}

// platform is the platform's part, and those of its documents that stand, so
// far, and name tenants and projects, or are what these attach to.
func (e *estate) platform() (s *standing, docs []*load.Document) {
	if s = e.part("platform"); s == nil {
		return nil, nil
	}
	for _, doc := range s.naming {
		if !s.out(doc) {
			docs = append(docs, doc)
		}
	}
	return s, docs
}

// names says whether a document is one for naming.
func names(doc *load.Document) bool {
	switch doc.Key.Kind {
	case schema.KindAttachment, schema.KindSharedRuntime:
		return true
	}
	_, owners, _, _ := named(doc)
	return len(owners) > 0
}

// presence is a fingerprint of what the platform's documents may name in a
// tenant.
func presence(p *part, v *verdict) string {
	var b strings.Builder
	for _, g := range p.groups {
		for _, doc := range g.present {
			b.WriteString(doc.File.Path)
			if !doc.Valid() || v.out[doc.File.Path] {
				b.WriteString(" out")
			}
			b.WriteByte(0)
		}
	}
	return b.String()
}

// shareCrossing takes over what owners and attached found of an earlier estate,
// if what they look at is the same, and says whether it did.
func (e *estate) shareCrossing() bool {
	now, old := e.part("platform"), e.base.part("platform")
	if now == nil || len(now.naming) == 0 {
		return true
	}
	if old == nil || old.part != now.part || old.verdict != now.verdict || len(now.lost) > 0 || len(e.Unreadable) > 0 {
		return false
	}
	same := true
	differing(e.base.parts, e.parts, func(a, b *standing) {
		same = same && a != nil && b != nil && a.verdict.presence() == b.verdict.presence()
	})
	if same {
		now.more, now.lost = old.more, old.lost
	}
	return same
}

// named is where documents of the platform name tenants and projects.
func named(doc *load.Document) (at, owners []string, code, effect string) {
	list := func(path string, owners []string) (at, _ []string) {
		for i := range owners {
			at = append(at, load.Item(path, i))
		}
		return at, owners
	}
	switch d := doc.Decl.(type) {
	case *schema.Node:
		if d.Spec.Reserved != "" {
			return []string{"spec.reserved_for"}, []string{d.Spec.Reserved}, "ref.missing-owner", "nobody can use this node"
		}
	case *schema.QueueMap:
		at, owners = list("spec.applies_to", d.Spec.AppliesTo)
		return at, owners, "ref.missing-owner", "it has no queues to map"
	case *schema.HookRule:
		at, owners = list("spec.applies_to", d.Spec.AppliesTo)
		return at, owners, "ref.missing-owner", "the rule never fires for it"
	case *schema.SharedRuntime:
		at, owners = list("spec.attached_project_ids", d.Spec.AttachedProjectIDs)
		return at, owners, "ref.missing-project", "it is not attached"
	}
	return nil, nil, "", ""
}

// owners warns about tenants and projects that the platform speaks of and that
// are not there, and of projects that may not use what they are attached to. It
// is no error: a tenant may come after its nodes, and may go before them.
func (e *estate) owners() {
	s, docs := e.platform()
	for _, doc := range docs {
		at, owners, code, effect := named(doc)
		for i, owner := range owners {
			if path, missing := e.missing(owner); missing {
				e.refuse(s, load.Found(doc, at[i], schema.SeverityWarning, code, fmt.Sprintf("there is no %s (%s): %s", owner, path, effect)))
				continue
			}
			runtime, ok := doc.Decl.(*schema.SharedRuntime)
			if !ok {
				continue
			}
			if path, missing := e.unentitled(owner, runtime.Spec.App); missing {
				e.refuse(s, load.Found(doc, at[i], schema.SeverityWarning, "ref.missing-entitlement", fmt.Sprintf("the project is not entitled to %s (no %s): %s", runtime.Spec.App, path, effect)))
			}
		}
	}
}

// missing says that there is no such tenant or tenant.project, and where it
// would stand. Of a tenant that cannot be read nothing is missing.
func (e *estate) missing(owner string) (path string, missing bool) {
	tenant, project, inProject := strings.Cut(owner, ".")
	key := schema.Key{Kind: schema.KindTenant, Name: tenant}
	if inProject {
		key = schema.Key{Kind: schema.KindProject, Tenant: tenant, Name: project}
	}
	path, _ = key.Path()
	if slices.Contains(e.Unreadable, "tenants/"+tenant) {
		return path, false
	}
	t := e.part("tenants/" + tenant)
	return path, t == nil || t.at(path) == nil
}

// unentitled says that a tenant.project is not entitled to an app, and where it
// would be. Of a tenant that cannot be read nothing is missing.
func (e *estate) unentitled(id, app string) (path string, missing bool) {
	tenant, project, _ := strings.Cut(id, ".")
	path, _ = schema.Key{Kind: schema.KindEntitlement, Tenant: tenant, Project: project, Name: app}.Path()
	t := e.part("tenants/" + tenant)
	return path, t != nil && t.at(path) == nil
}

// attached checks the projects of the attachments to the platform's shared
// runtimes.
func (e *estate) attached() {
	s, docs := e.platform()
	for _, doc := range docs {
		d, ok := doc.Decl.(*schema.Attachment)
		if !ok {
			continue
		}
		id := d.Spec.ProjectID
		if path, missing := e.missing(id); missing {
			e.refuse(s, load.Found(doc, "spec.project_id", schema.SeverityError, "ref.missing-project", fmt.Sprintf("there is no project %s (%s)", id, path)), path)
			continue
		}
		tenant, project, _ := strings.Cut(id, ".")
		t := e.part("tenants/" + tenant)
		if t == nil {
			continue // it cannot be read
		}
		path, _ := schema.Key{Kind: schema.KindProject, Tenant: tenant, Name: project}.Path()
		app := e.app(d.Key.Parent)
		entitlement, _ := schema.Key{Kind: schema.KindEntitlement, Tenant: tenant, Project: project, Name: app}.Path()
		switch to := t.at(entitlement); {
		case t.out(t.at(path)):
			s.without(doc.File.Path, path)
		case to == nil:
			e.refuse(s, load.Found(doc, "spec.project_id", schema.SeverityError, "ref.missing-entitlement", fmt.Sprintf("the project is not entitled to %s (no %s)", app, entitlement)), entitlement)
		case t.out(to):
			s.without(doc.File.Path, entitlement)
		}
	}
}

// app is what a shared runtime of the platform runs.
func (e *estate) app(runtime string) string {
	_, docs := e.platform()
	for _, doc := range docs {
		if d, ok := doc.Decl.(*schema.SharedRuntime); ok && d.Key.Name == runtime {
			return d.Spec.App
		}
	}
	return ""
}

package load

import (
	"fmt"
	"slices"
	"strings"

	"berth/schema"
)

// What holds across the parts of an estate, which are judged one by one.

// refusal is a document that may not stand whatever its part says, and why.
type refusal struct {
	doc     *document
	finding schema.Diagnostic
	needs   []string
}

// print adds what is refused beforehand to a fingerprint.
func print(of string, refused []refusal) string {
	for _, r := range refused {
		of += "\x00!" + r.doc.file.Path + " " + r.finding.Message
	}
	return of
}

// identities makes sure that in a part one uid is of one document, as by it a
// document that moves stays what it is. Who holds a uid keeps it; among new
// ones, the first by path has it. A uid is no secret: another tenant's copy of
// it says nothing about anybody.
func (e *estate) identities(held claims) map[*part][]refusal {
	e.claims = claims{}
	refused := map[*part][]refusal{}
	for _, p := range e.parts {
		bearers := map[string][]*document{}
		for _, doc := range p.identified {
			bearers[doc.header.UID] = append(bearers[doc.header.UID], doc)
		}
		for _, uid := range sortedNames(bearers) {
			what, all := "id "+p.name+" "+uid, bearers[uid]
			owner := all[max(0, slices.IndexFunc(all, func(d *document) bool { return d.file.Path == held[what] }))]
			e.claims[what] = owner.file.Path
			there := owner.header.At("metadata.uid")
			for _, doc := range all {
				if doc != owner {
					refused[p] = append(refused[p], refusal{doc, found(doc, "metadata.uid", schema.SeverityError, "conflict.uid",
						fmt.Sprintf("the uid %s is that of %s already (%s:%d): a uid is of one document; for a new one take it away, or choose another", uid, owner.key, there.File, there.Line)), []string{there.File}})
				}
			}
		}
	}
	return refused
}

// claims are Unix accounts and identities: "name alice" is "20001", "uid 20001"
// is "alice", "id tenants/physics 3f2a" is the path of the tenant's document
// with that uid.
type claims map[string]string

type claimant struct {
	doc  *document
	what string
	is   string
	path string
}

// claimUsers makes sure that one Unix name has one uid, and is one person, in the
// whole estate, as hosts are shared: who could name another's account would
// submit work as them, and read what is theirs. Who holds a claim keeps it; among new ones, the platform
// and then the first tenant by name has it.
func (e *estate) claimUsers(held claims) {
	var docs [][]claimant
	stated := map[string]map[string]bool{} // claim, values somebody states
	for _, p := range e.parts {
		for _, doc := range p.claiming {
			if e.out[doc.file.Path] {
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
	path, message, rule := c.path+".name", fmt.Sprintf("the uid %s is %s's already", name, is), oneUID
	switch kind {
	case "name":
		path, message = c.path+".uid", fmt.Sprintf("the Unix user %s has the uid %s already", name, is)
	case "user":
		path, message, rule = parent(c.path)+".login", fmt.Sprintf("the Unix user %s is %s's already", name, is), oneLogin
	}
	there := other.doc.header.At(other.path)
	return found(c.doc, path, schema.SeverityError, "conflict.unix-user",
		fmt.Sprintf("%s (%s:%d): %s", message, there.File, there.Line, rule))
}

// What holds of Unix users.
const (
	oneUID   = "one name has one uid everywhere"
	oneLogin = "one Unix user is one login everywhere"
)

func claimsOf(doc *document) (cs []claimant) {
	b, ok := doc.spec.(*schema.RoleBinding)
	if !ok {
		return nil
	}
	for i, m := range b.Spec.Members {
		if m.UnixUser == nil {
			continue
		}
		path, uid := item("spec.members", i)+".unix_user", fmt.Sprint(m.UnixUser.UID)
		cs = append(cs,
			claimant{doc, "name " + m.UnixUser.Name, uid, path},
			claimant{doc, "uid " + uid, m.UnixUser.Name, path},
			claimant{doc, "user " + m.UnixUser.Name, strings.ToLower(m.Login), path})
	}
	return cs
}

// tenants are the parts of tenants, by name.
func (e *estate) tenants() map[string]*part {
	ts := map[string]*part{}
	for _, p := range e.parts {
		if p.tenant != "" {
			ts[p.tenant] = p
		}
	}
	return ts
}

// platform is the documents of the platform that stand, so far.
func (e *estate) platform() (docs []*document) {
	for _, p := range e.parts {
		if p.name != "platform" {
			continue
		}
		for _, doc := range p.naming {
			if !e.out[doc.file.Path] {
				docs = append(docs, doc)
			}
		}
	}
	return docs
}

// named is where documents of the platform name tenants and projects.
func named(doc *document) (at, owners []string, code, effect string) {
	list := func(path string, owners []string) (at, _ []string) {
		for i := range owners {
			at = append(at, item(path, i))
		}
		return at, owners
	}
	switch d := doc.spec.(type) {
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
// are not there. It is no error: a tenant may come after its nodes, and may go
// before them.
func (e *estate) owners() {
	tenants := e.tenants()
	for _, doc := range e.platform() {
		at, owners, code, effect := named(doc)
		for i, owner := range owners {
			if path, missing := e.missing(tenants, owner); missing {
				e.Diagnostics = append(e.Diagnostics, found(doc, at[i], schema.SeverityWarning, code, fmt.Sprintf("there is no %s (%s): %s", owner, path, effect)))
			}
		}
	}
}

// missing says that there is no such tenant or tenant.project, and where it
// would stand. Of a tenant that cannot be read nothing is missing.
func (e *estate) missing(tenants map[string]*part, owner string) (path string, missing bool) {
	tenant, project, inProject := strings.Cut(owner, ".")
	key := schema.Key{Kind: schema.KindTenant, Name: tenant}
	if inProject {
		key = schema.Key{Kind: schema.KindProject, Tenant: tenant, Name: project}
	}
	path, _ = key.Path()
	if slices.Contains(e.Unreadable, "tenants/"+tenant) {
		return path, false
	}
	t := tenants[tenant]
	return path, t == nil || t.byFile[path] == nil
}

// attached checks the projects of the attachments to the platform's shared
// runtimes.
func (e *estate) attached() {
	tenants := e.tenants()
	for _, doc := range e.platform() {
		d, ok := doc.spec.(*schema.Attachment)
		if !ok {
			continue
		}
		id := d.Spec.ProjectID
		if path, missing := e.missing(tenants, id); missing {
			e.refuse(found(doc, "spec.project_id", schema.SeverityError, "ref.missing-project", fmt.Sprintf("there is no project %s (%s)", id, path)), path)
			continue
		}
		tenant, project, _ := strings.Cut(id, ".")
		t := tenants[tenant]
		if t == nil {
			continue // it cannot be read
		}
		path, _ := schema.Key{Kind: schema.KindProject, Tenant: tenant, Name: project}.Path()
		app := e.app(d.Key.Parent)
		entitlement, _ := schema.Key{Kind: schema.KindEntitlement, Tenant: tenant, Project: project, Name: app}.Path()
		switch {
		case e.out[path]:
			e.without(doc, path)
		case t.byFile[entitlement] == nil:
			e.refuse(found(doc, "spec.project_id", schema.SeverityError, "ref.missing-entitlement", fmt.Sprintf("the project is not entitled to %s (no %s)", app, entitlement)), entitlement)
		case e.out[entitlement]:
			e.without(doc, entitlement)
		}
	}
}

// app is what a shared runtime of the platform runs.
func (e *estate) app(runtime string) string {
	for _, doc := range e.platform() {
		if d, ok := doc.spec.(*schema.SharedRuntime); ok && d.Key.Name == runtime {
			return d.Spec.App
		}
	}
	return ""
}

// without records that a document waits for another.
func (e *estate) without(doc *document, needs ...string) {
	e.out[doc.file.Path] = true
	e.Needs[doc.file.Path] = append(e.Needs[doc.file.Path], needs...)
}

package estate

import (
	"fmt"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/load"
)

// platform returns the platform's tree, and its valid documents that name tenants and
// projects or that attachments refer to.
func (e *estate) platform() (s *standing, docs []*load.Document) {
	if s = e.tree("platform"); s == nil {
		return nil, nil
	}
	for _, doc := range s.names.owners {
		if !s.out(doc) {
			docs = append(docs, doc)
		}
	}
	return s, docs
}

// owners warns about missing tenants and projects that the platform's documents name,
// and about attached projects without an entitlement. These are warnings: a tenant
// may come after its nodes, and may go before them.
func (e *estate) owners() {
	s, docs := e.platform()
	told := 0
	for _, doc := range docs {
		at, owners, code, effect := named(doc)
		for i, owner := range owners {
			if path, missing := e.missing(owner); missing {
				like := ""
				if told++; told < load.MaxFindings { // further findings are cut, and the search is expensive
					like = e.ownerLike(owner)
				}
				e.refuse(s, load.Found(doc, at[i], schema.SeverityWarning, code,
					fmt.Sprintf("there is no %s (%s): %s%s", owner, path, effect, like)))
			} else if r, ok := doc.Decl.(*schema.SharedRuntime); ok {
				if path, missing := e.unentitled(owner, r.Spec.App); missing {
					e.refuse(s, load.Found(doc, at[i], schema.SeverityWarning, "ref.missing-entitlement",
						fmt.Sprintf("the project is not entitled to %s (no %s): %s", r.Spec.App, path, effect)))
				}
			}
		}
	}
}

// ownerLike suggests a project of the same tenant for the name of a missing one, for the end of a message. It names no other
// tenant: a change that deletes a project gets the findings about the platform's documents that name it.
func (e *estate) ownerLike(owner string) string {
	tenant, project, inProject := strings.Cut(owner, ".")
	t := e.tree("tenants/" + tenant)
	switch {
	case !inProject:
		return "; if it is a project, write TENANT." + owner
	case t == nil:
		return ""
	}
	var projects []string
	for _, doc := range t.docs {
		if doc.Key.Kind == schema.KindProject {
			projects = append(projects, doc.Key.Name)
		}
	}
	if guess := load.Nearest(project, projects); guess != "" {
		return fmt.Sprintf("; did you mean %q?", tenant+"."+guess)
	}
	return ""
}

// missing reports whether a tenant or tenant.project is missing, and its path. In an
// unreadable tenant nothing counts as missing.
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
	t := e.tree("tenants/" + tenant)
	return path, t == nil || t.at(path) == nil
}

// unentitled reports that a tenant.project has no entitlement to an app, and the
// entitlement's path. In an unreadable tenant nothing counts as missing.
func (e *estate) unentitled(id, app string) (path string, missing bool) {
	tenant, project, _ := strings.Cut(id, ".")
	path, _ = schema.Key{Kind: schema.KindEntitlement, Tenant: tenant, Project: project, Name: app}.Path()
	t := e.tree("tenants/" + tenant)
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
			e.refuse(s, load.Found(doc, "spec.project_id", schema.SeverityError, "ref.missing-project",
				fmt.Sprintf("there is no project %s (%s)", id, path)), path)
			continue
		}
		tenant, project, _ := strings.Cut(id, ".")
		t := e.tree("tenants/" + tenant)
		if t == nil {
			continue // the tenant is unreadable
		}
		path, _ := schema.Key{Kind: schema.KindProject, Tenant: tenant, Name: project}.Path()
		app := e.app(d.Key.Parent)
		entitlement, _ := schema.Key{Kind: schema.KindEntitlement, Tenant: tenant, Project: project, Name: app}.Path()
		switch to := t.at(entitlement); {
		case t.out(t.at(path)):
			s.without(doc.File.Path, path)
		case to == nil:
			e.refuse(s, load.Found(doc, "spec.project_id", schema.SeverityError, "ref.missing-entitlement",
				fmt.Sprintf("the project is not entitled to %s (no %s)", app, entitlement)), entitlement)
		case t.out(to):
			s.without(doc.File.Path, entitlement)
		}
	}
}

// app returns the app of a shared runtime of the platform.
func (e *estate) app(runtime string) string {
	_, docs := e.platform()
	for _, doc := range docs {
		if d, ok := doc.Decl.(*schema.SharedRuntime); ok && d.Key.Name == runtime {
			return d.Spec.App
		}
	}
	return ""
}

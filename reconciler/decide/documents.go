package decide

import (
	"cmp"
	"slices"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/load"
)

// documents says what a change does to each document it touches. One that went
// from a path and came to another with its uid has moved. Files that are no
// documents are left out.
func documents(touched []schema.PathChange, base, head *load.Result) []plan.DocumentChange {
	type identity struct {
		kind schema.Kind
		uid  string
	}
	gone := map[identity]string{}
	for _, c := range touched {
		if key, ok := base.Documents[c.Path]; ok && c.To == "" {
			if h := header(base.Desired, key); h != nil && h.UID != "" {
				gone[identity{key.Kind, h.UID}] = c.Path
			}
		}
	}
	out := []plan.DocumentChange{}
	left := map[string]bool{} // paths told of as where something moved from
	for _, c := range touched {
		key, ok := head.Documents[c.Path]
		if !ok || c.To == "" {
			continue
		}
		change := plan.DocumentChange{Key: key, File: c.Path, Change: "modified"}
		if c.From == "" {
			change.Change = "added"
			if h := header(head.Desired, key); h != nil && h.UID != "" {
				if from, ok := gone[identity{key.Kind, h.UID}]; ok && !left[from] {
					change.Change, change.From = "moved", from
					left[from] = true
				}
			}
		}
		out = append(out, change)
	}
	for _, c := range touched {
		if key, ok := base.Documents[c.Path]; ok && c.To == "" && !left[c.Path] {
			out = append(out, plan.DocumentChange{Key: key, File: c.Path, Change: "deleted"})
		}
	}
	slices.SortFunc(out, func(a, b plan.DocumentChange) int { return cmp.Compare(a.File, b.File) })
	return out
}

// header is that of the document of key, or nil if there is no valid one.
func header(d *schema.Desired, key schema.Key) *schema.Header {
	switch p := d.Platform; key.Kind {
	case schema.KindApp:
		return headerOf(p.Apps[key.Name])
	case schema.KindAppVersion:
		return headerOf(p.Versions[key.Parent][key.Name])
	case schema.KindNode:
		return headerOf(p.Nodes[key.Name])
	case schema.KindPolicy:
		if key.Tenant == "" {
			return headerOf(p.Policies[key.Name])
		}
	case schema.KindRoleBinding:
		if key.Tenant == "" {
			return headerOf(p.Roles[key.Name])
		}
	}
	tenant := key.Tenant
	if key.Kind == schema.KindTenant {
		tenant = key.Name
	}
	t := d.Tenants[tenant]
	if t == nil {
		return nil
	}
	name := key.Project
	if key.Kind == schema.KindProject {
		name = key.Name
	}
	p := t.Projects[name]
	switch {
	case key.Kind == schema.KindTenant:
		return headerOf(t.Tenant)
	case key.Kind == schema.KindPolicy:
		return headerOf(t.Policy)
	case key.Kind == schema.KindRoleBinding && key.Project == "":
		return headerOf(t.Roles)
	case p == nil:
		return nil
	case key.Kind == schema.KindRoleBinding:
		return headerOf(p.Roles)
	case key.Kind == schema.KindProject:
		return headerOf(p.Project)
	case key.Kind == schema.KindEntitlement:
		return headerOf(p.Entitlements[key.Name])
	case key.Kind == schema.KindInstance:
		return headerOf(p.Instances[key.Name])
	}
	return nil
}

// headerOf is the header of a document that may be missing.
func headerOf[T any, D interface {
	*T
	Head() *schema.Header
}](doc D) *schema.Header {
	if doc == nil {
		return nil
	}
	return doc.Head()
}

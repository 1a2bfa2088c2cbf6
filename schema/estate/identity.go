package estate

import (
	"fmt"
	"slices"

	"berth/schema"
	"berth/schema/load"
)

// refusal is a document that is refused for reasons outside its part, with the finding.
type refusal struct {
	doc     *load.Document
	finding schema.Diagnostic
	needs   []string
}

// identities ensures that a uid belongs to one document of its kind in a tree, because a
// moved document keeps its identity by it. The document in force keeps its uid; among
// new ones, the first by path has it. Uids of different tenants are unrelated.
func (e *estate) identities() map[*tree][]refusal {
	refused := map[*tree][]refusal{}
	for _, s := range e.trees {
		if len(s.names.twins) == 0 {
			continue
		}
		e.free, s.owners = false, e.ownersOf(s)
		for _, doc := range s.names.twins {
			id := identityOf(doc)
			if owner := s.at(s.owners[id]); doc != owner {
				const path = "metadata.uid"
				refused[s.tree] = append(refused[s.tree], refusal{doc, clash(end{doc, path}, end{owner, path},
					schema.SeverityError, "conflict.uid", func(of end) string {
						return fmt.Sprintf("%s has the uid %s, too (%s); remove it to declare a new %s, or choose another",
							of.doc.Key, id.uid, of.place(), id.kind)
					}), []string{owner.File.Path}})
			}
		}
	}
	return refused
}

// oneVersion ensures that an app has one AppVersion for each spec.version: instances
// name the document, people name the version (requirement A2). The document in force
// keeps it; among new ones, the first by path. Documents that are both already in force
// stay, so that no instance stops.
func (e *estate) oneVersion(refused map[*tree][]refusal) {
	for _, s := range e.trees {
		if len(s.names.versions) > 0 {
			e.free = false
			e.oneVersionIn(s, refused)
		}
	}
}

// oneVersionIn is oneVersion for the versions of one tree.
func (e *estate) oneVersionIn(s *standing, refused map[*tree][]refusal) {
	inForce := func(doc *load.Document) bool {
		held := e.held.tree(s.name)
		if held == nil {
			return false
		}
		now, _ := publishedAs(doc)
		was, ok := publishedAs(held.at(doc.File.Path))
		return ok && was == now
	}
	owners := map[published]*load.Document{}
	for _, first := range []bool{true, false} { // those in force, then the others
		for _, doc := range s.names.versions {
			v, _ := publishedAs(doc)
			owner := owners[v]
			switch {
			case inForce(doc) != first:
			case owner == nil:
				owners[v] = doc
			case !first:
				const path = "spec.version"
				refused[s.tree] = append(refused[s.tree], refusal{doc, clash(end{doc, path}, end{owner, path},
					schema.SeverityError, "conflict.version", func(of end) string {
						return fmt.Sprintf("%s is version %s of %s, too (%s): keep one of the two documents, or give this one the "+
							"version it is", of.doc.Key.Name, v.version, v.app, of.place())
					}), []string{owner.File.Path}})
			}
		}
	}
}

// ownersOf returns the path of the document that has each identity of several documents of a tree.
func (e *estate) ownersOf(s *standing) map[identity]string {
	owners := map[identity]string{}
	for _, doc := range s.names.twins { // by identity and path
		id := identityOf(doc)
		if owners[id] != "" {
			continue
		}
		owners[id] = doc.File.Path
		if held := e.held.owner(s.name, id); slices.ContainsFunc(s.names.twins,
			func(d *load.Document) bool { return identityOf(d) == id && d.File.Path == held }) {
			owners[id] = held
		}
	}
	return owners
}

// owner returns the path of the document of a part with that identity, or "".
func (r *Result) owner(part string, id identity) string {
	s := r.tree(part)
	if s == nil {
		return ""
	}
	if path, ok := s.owners[id]; ok {
		return path
	}
	return s.names.ids[id]
}

package decide

import (
	"cmp"
	"fmt"
	"slices"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/estate"
)

// CodeMoved is the code of the finding that an instance would change its name and
// keep its uid.
const CodeMoved = "identity.moved"

// A document that changes its path within a tenant tree, or within platform/, and
// keeps its kind and uid has moved. The uids of different tenants are unrelated.

// tree is the name of the tenant whose tree holds a document; "" for platform/.
func tree(k schema.Key) string {
	if k.Kind == schema.KindTenant {
		return k.Name
	}
	return k.Tenant
}

// identity is the part of a document that a move does not change.
type identity struct {
	kind      schema.Kind
	tree, uid string
}

// identityOf is the identity of a document; false without a uid.
func identityOf(h *schema.Header) (identity, bool) {
	if h == nil || h.UID == "" {
		return identity{}, false
	}
	return identity{h.Key.Kind, tree(h.Key), h.UID}, true
}

// movesOf returns the new path of each moved document, by its old path. isPlace says which new
// paths count for an old one; nil: all.
func movesOf(changes []schema.PathChange, before, after *estate.Result, isPlace func(from, to string) bool) map[string]string {
	deleted := map[identity]string{}
	for _, c := range changes {
		if id, ok := identityOf(before.HeaderAt(c.Path)); ok && c.To == "" {
			deleted[id] = c.Path
		}
	}
	moves := map[string]string{}
	for _, c := range changes {
		id, ok := identityOf(after.HeaderAt(c.Path))
		if from := deleted[id]; ok && c.From == "" && from != "" && (isPlace == nil || isPlace(from, c.Path)) {
			moves[from] = c.Path
			delete(deleted, id)
		}
	}
	return moves
}

// holdMoves holds both places of a move if one of them is held.
func (g *guard) holdMoves() {
	hold := func(path, other string, why estate.Veto) {
		if _, held := g.vetoes[path]; !held {
			g.vetoes[path] = estate.Veto{Reason: schema.HeldNeeds, Ack: why.Ack,
				Message: fmt.Sprintf("it moves together with %s: %s", other, why.Message)}
		}
	}
	for from, to := range g.moves {
		if v, held := g.vetoes[from]; held {
			hold(to, from, v)
		}
		if v, held := g.vetoes[to]; held {
			hold(from, to, v)
		} else if g.main.Waits(to) {
			hold(from, to, estate.Veto{Message: "the document there waits for another one"})
		}
	}
}

// wholeMoves refuses to delete a moved document at its old path while the one at
// its new path is not in force.
func wholeMoves(moves map[string]string, before, main *estate.Result) estate.Check {
	return func(now *schema.Desired) (out []schema.Diagnostic) {
		for from, to := range moves {
			if now.Header(before.Key(from)) == nil && now.Header(main.Key(to)) == nil {
				out = append(out, errorAt(from, CodeMoved, "it moves to "+to+", and the document there does not come into force"))
			}
		}
		return out
	}
}

// renamed refuses both places of a moved instance: an instance cannot take what runs to another
// name. Without the uid, the one is deleted and the other created.
func renamed(before *schema.Desired) estate.Check {
	return func(now *schema.Desired) []schema.Diagnostic { return renamedInstances(before, now) }
}

func renamedInstances(before, now *schema.Desired) []schema.Diagnostic {
	type owner struct{ tenant, uid string }
	old := map[owner]*schema.Instance{}
	for _, i := range instancesLost(before, now) {
		old[owner{i.Key.Tenant, i.UID}] = i
	}
	var out []schema.Diagnostic
	refused := map[schema.Key]bool{} // old instances
	for _, to := range instancesLost(now, before) {
		from := old[owner{to.Key.Tenant, to.UID}]
		if from == nil {
			continue
		}
		at := to.At("metadata.uid")
		out = append(out, schema.Diagnostic{
			Severity: schema.SeverityError, Code: CodeMoved, File: to.File, Line: at.Line, Column: at.Column, Path: "metadata.uid",
			Message: fmt.Sprintf("by its uid this is %s, and what runs cannot be carried to another name; move it back, or remove the "+
				"uid to have the old one deleted and a new one created", from.Key),
		})
		if !refused[from.Key] {
			refused[from.Key] = true
			out = append(out, errorAt(from.File, CodeMoved,
				fmt.Sprintf("by its uid it moved to %s, and what runs cannot be carried to another name", to.Key)))
		}
	}
	return out
}

// instancesLost returns the instances with a uid that d has and other lacks, sorted
// by key. Tenants and projects that did not change cost nothing.
func instancesLost(d, other *schema.Desired) []*schema.Instance {
	var out []*schema.Instance
	for name, t := range d.Tenants {
		was := other.Tenants[name]
		if was == t {
			continue
		}
		for project, p := range t.Projects {
			if was != nil && was.Projects[project] == p {
				continue
			}
			for _, i := range p.Instances {
				if i.UID != "" && other.Instance(i.Key) == nil {
					out = append(out, i)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b *schema.Instance) int { return a.Key.Compare(b.Key) })
	return out
}

// documents returns the change of each document that a change touches, sorted by file.
// Other files are left out.
func documents(touched []schema.PathChange, base, head *estate.Result, moves map[string]string) []plan.DocumentChange {
	from := map[string]string{} // old path, by new path
	for old, to := range moves {
		from[to] = old
	}
	out := []plan.DocumentChange{}
	for _, c := range touched {
		was, is := base.Key(c.Path), head.Key(c.Path)
		switch {
		case c.To == "" && !was.IsZero() && moves[c.Path] == "":
			out = append(out, plan.DocumentChange{Key: was, File: c.Path, Change: verb(c)})
		case c.To == "" || is.IsZero():
		case from[c.Path] != "":
			out = append(out, plan.DocumentChange{Key: is, File: c.Path, Change: "moved", From: from[c.Path]})
		default:
			change := plan.DocumentChange{Key: is, File: c.Path, Change: verb(c)}
			change.Fields, change.MoreFields = fieldsOf(is, base.Desired, head.Desired)
			out = append(out, change)
		}
	}
	slices.SortFunc(out, func(a, b plan.DocumentChange) int { return cmp.Compare(a.File, b.File) })
	return out
}

// fieldsOf are the fields of a document that change. The plan of a unit has those of its effective values.
func fieldsOf(key schema.Key, base, head *schema.Desired) (fields []plan.Change, more int) {
	was, is := base.Document(key), head.Document(key)
	if was == nil || is == nil {
		return nil, 0
	}
	all := plan.DocumentFields(was, is)
	kept := min(len(all), plan.MaxDocumentFields)
	return all[:kept], len(all) - kept
}

// verb returns the verb for the change of a path.
func verb(c schema.PathChange) string {
	switch "" {
	case c.From:
		return "added"
	case c.To:
		return "deleted"
	}
	return "modified"
}

package estate

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"berth/schema"
	"berth/schema/load"
)

// claimant is one claim of a document to a Unix account: "name alice" is "20001", "uid
// 20001" is "alice", "user alice" is the login "alice-forge".
type claimant struct {
	doc  *load.Document
	what string
	is   string
	path string
}

// field returns the field with the claim.
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
			claimant{doc, "name " + strings.ToLower(m.UnixUser.Name), uid, path},
			claimant{doc, "uid " + uid, m.UnixUser.Name, path},
			claimant{doc, "user " + strings.ToLower(m.UnixUser.Name), strings.ToLower(m.Login), path})
	}
	return cs
}

// claimed has the claims of the valid documents of a tree.
type claimed struct {
	docs []*load.Document
	read func() (says map[string]string, torn bool) // torn: claims contradict each other
}

// claimedBy returns the claims of the documents that are not out. They are read when they are
// needed: mostly another tree with the same documents was compared before.
func claimedBy(docs []*load.Document, out map[string]bool) *claimed {
	c := &claimed{docs: docs}
	if len(out) > 0 {
		c.docs = slices.DeleteFunc(slices.Clone(c.docs), func(d *load.Document) bool { return out[d.File.Path] })
	}
	c.read = sync.OnceValues(func() (map[string]string, bool) {
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

// claimIndex has the claims of the trees that were compared last, which agree. The next trees
// are compared by their difference to those. Safe for concurrent use.
type claimIndex struct {
	mu    sync.Mutex
	trees map[string]*claimed
	says  map[string]said
}

// said is what n trees say.
type said struct {
	is string
	n  int
}

// agree reports whether no claims of trees, by their names, contradict each other.
func (x *claimIndex) agree(trees map[string]*claimed) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	same := func(a, b *claimed) bool { return a == b || a != nil && b != nil && slices.Equal(a.docs, b.docs) }
	for name, c := range x.trees {
		if !same(c, trees[name]) {
			x.remove(c)
		}
	}
	for name, c := range trees {
		if !same(c, x.trees[name]) && !x.add(c) {
			x.trees, x.says = nil, nil // the next ones are compared from the start
			return false
		}
	}
	x.trees = trees
	return true
}

// add adds the claims of a tree; false: they contradict others, or each other.
func (x *claimIndex) add(c *claimed) bool {
	if x.says == nil {
		x.says = map[string]said{}
	}
	says, torn := c.read()
	for what, is := range says {
		s, ok := x.says[what]
		if ok && s.is != is {
			return false
		}
		x.says[what] = said{is, s.n + 1}
	}
	return !torn
}

func (x *claimIndex) remove(c *claimed) {
	says, _ := c.read()
	for what := range says {
		if s := x.says[what]; s.n > 1 {
			x.says[what] = said{s.is, s.n - 1}
		} else {
			delete(x.says, what)
		}
	}
}

package decide

import (
	"cmp"
	"slices"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/estate"
)

// documents says what a change does to each document it touches. One that went
// from a path and came to another with its uid has moved, if that is within its
// tenant or the platform: a uid is no secret, and who puts that of another
// tenant's document into their own shall not make theirs of its deletion. Files
// that are no documents are left out.
func documents(touched []schema.PathChange, base, head *estate.Result) []plan.DocumentChange {
	type identity struct {
		kind   schema.Kind
		tenant string
		uid    string
	}
	id := func(key schema.Key, uid string) identity {
		if key.Kind == schema.KindTenant {
			return identity{key.Kind, key.Name, uid}
		}
		return identity{key.Kind, key.Tenant, uid}
	}
	gone := map[identity]string{}
	for _, c := range touched {
		if key := base.Key(c.Path); !key.IsZero() && c.To == "" {
			if h := base.Desired.Header(key); h != nil && h.UID != "" {
				gone[id(key, h.UID)] = c.Path
			}
		}
	}
	out := []plan.DocumentChange{}
	left := map[string]bool{} // paths told of as where something moved from
	for _, c := range touched {
		key := head.Key(c.Path)
		if key.IsZero() || c.To == "" {
			continue
		}
		change := plan.DocumentChange{Key: key, File: c.Path, Change: "modified"}
		if c.From == "" {
			change.Change = "added"
			if h := head.Desired.Header(key); h != nil && h.UID != "" {
				if from, ok := gone[id(key, h.UID)]; ok && !left[from] {
					change.Change, change.From = "moved", from
					left[from] = true
				}
			}
		}
		out = append(out, change)
	}
	for _, c := range touched {
		if key := base.Key(c.Path); !key.IsZero() && c.To == "" && !left[c.Path] {
			out = append(out, plan.DocumentChange{Key: key, File: c.Path, Change: "deleted"})
		}
	}
	slices.SortFunc(out, func(a, b plan.DocumentChange) int { return cmp.Compare(a.File, b.File) })
	return out
}

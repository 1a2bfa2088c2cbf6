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
		if key := base.Key(c.Path); !key.IsZero() && c.To == "" {
			if h := base.Desired.Header(key); h != nil && h.UID != "" {
				gone[identity{key.Kind, h.UID}] = c.Path
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
				if from, ok := gone[identity{key.Kind, h.UID}]; ok && !left[from] {
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

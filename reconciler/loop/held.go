package loop

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"berth/reconciler"
	"berth/reconciler/status"
	"berth/schema"
)

// maxHeld bounds the held documents in revision.yaml. The branch berth/in-force
// has all of them.
const maxHeld = 1000

// attributeHeld groups held documents by the newest commit that touches them;
// otherwise by tip, which is always in the result.
func attributeHeld(merged []mergedCommit, tip string, held []schema.Held) map[string][]schema.Held {
	out := map[string][]schema.Held{tip: nil}
	newest := map[string]string{} // by path
	for _, m := range slices.Backward(merged) {
		for _, c := range m.paths {
			newest[c.Path] = m.commit
		}
	}
	for _, h := range held {
		commit := cmp.Or(newest[h.File], tip)
		out[commit] = append(out[commit], h)
	}
	return out
}

// newlyHeld returns the documents of now that before does not hold for the same
// reason. before may come from revision.yaml, where texts are cut.
func newlyHeld(before, now []schema.Held) []schema.Held {
	known := make(map[schema.Held]bool, len(before))
	for _, h := range before {
		known[status.CutHeld(h)] = true
	}
	return slices.DeleteFunc(slices.Clone(now), func(h schema.Held) bool { return known[status.CutHeld(h)] })
}

// unreadableIn returns the unreadable tenant trees that the paths are in.
func unreadableIn(held []schema.Held, paths []reconciler.PathChange) (out []schema.Held) {
	for _, h := range held {
		if h.Reason == schema.HeldUnreadable &&
			slices.ContainsFunc(paths, func(c reconciler.PathChange) bool {
				return c.Path == h.File ||
					strings.HasPrefix(c.Path, h.File+"/")
			}) {
			out = append(out, h)
		}
	}
	return out
}

// mostHeldLines bounds the lines about one tenant's documents: a merge can hold thousands.
const mostHeldLines = 100

// logHeld logs the documents that are held since a decision.
func (r *recorder) logHeld(old, next *reconciler.State) {
	var before []schema.Held
	if old != nil {
		before = old.Held
	}
	id, lines := reconciler.CorrelationID(next.Main), map[string]int{} // by tenant
	for _, h := range newlyHeld(before, next.Held) {
		tenant := orgOf(h.Key)
		if lines[tenant]++; lines[tenant] > mostHeldLines {
			continue
		}
		log := r.logOf(h.Key, r.appOf(next.Desired, h.Key), r.uidOf(next.Desired, h.Key), id)
		log.Warn("document held", "file", h.File, "reason", h.Reason, "message", h.Message, "commit", reconciler.Short(next.Main))
	}
	for _, tenant := range slices.Sorted(maps.Keys(lines)) {
		if more := lines[tenant] - mostHeldLines; more > 0 {
			r.logOf(schema.Key{Tenant: tenant}, "", "", id).Warn("more documents held", "count", more, "commit",
				reconciler.Short(next.Main))
		}
	}
}

// setHeld sets the held documents of a new state.
func setHeld(st *reconciler.State, held []schema.Held) {
	st.Held, st.DeniedBy = held, map[schema.Key]string{}
	for _, h := range held {
		if h.Reason == schema.HeldUnauthorised {
			st.DeniedBy[h.Key] = h.Message
		}
	}
}

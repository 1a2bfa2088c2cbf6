package loop

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"berth/reconciler"
	"berth/reconciler/provenance"
	"berth/reconciler/status"
	"berth/schema"
)

// maxAttributed bounds the commits of one fetch to which changes are attributed.
// The changes of older ones are attributed to the newest.
const maxAttributed = 50

// mergedCommit is a commit of main and the paths that it changes.
type mergedCommit struct {
	commit string
	paths  []reconciler.PathChange
}

// touches returns true if the commit changes a path.
func (m mergedCommit) touches(path string) bool {
	return slices.ContainsFunc(m.paths, func(c reconciler.PathChange) bool { return c.Path == path })
}

// history reads the paths that each commit of main changed.
type history struct {
	repo reconciler.Repo
	log  *slog.Logger
}

// between returns the commits that came to main after from, newest first, as far as
// the history is readable; from "": the newest maxAttributed.
func (h history) between(ctx context.Context, from, to string) []mergedCommit {
	commits, err := h.repo.Log(ctx, from, to, maxAttributed)
	if err != nil {
		h.log.Warn("history unreadable; the newest commit is recorded as the cause of all changes", "error", err)
		return nil
	}
	var out []mergedCommit
	for _, c := range commits {
		paths, err := provenance.Touched(ctx, h.repo, c)
		if err != nil {
			h.log.Warn("changes of a commit unreadable", "commit", reconciler.Short(c.ID), "error", err)
			continue
		}
		out = append(out, mergedCommit{c.ID, paths})
	}
	return out
}

// causesOf returns the commit of main that changed each unit, if something that was
// held came into force without a new commit: the newest that touches what came.
func (h history) causesOf(ctx context.Context, before string, next *reconciler.State, units []schema.Key) (map[schema.Key]string, error) {
	came := map[string]bool{}
	if before != "" {
		paths, err := h.repo.Diff(ctx, before, next.InForce)
		if err != nil {
			return nil, err
		}
		for _, c := range paths {
			came[c.Path] = true
		}
	}
	latest := h.between(ctx, "", next.Main)
	for i := range latest {
		latest[i].paths = slices.DeleteFunc(latest[i].paths, func(c reconciler.PathChange) bool { return !came[c.Path] })
	}
	return attribute(latest, next.Main, units), nil
}

// attribute returns the commit that changed each resource: the newest that touches
// its own file, otherwise its tenant, otherwise the platform, otherwise tip.
func attribute(merged []mergedCommit, tip string, keys []schema.Key) map[schema.Key]string {
	out := make(map[schema.Key]string, len(keys))
	for _, k := range keys {
		own, _ := k.Path()
		best := 0
		out[k] = tip
		for _, m := range merged {
			score := 0
			for _, ch := range m.paths {
				switch {
				case ch.Path == own:
					score = max(score, 3)
				case strings.HasPrefix(ch.Path, "tenants/"+k.Tenant+"/"):
					score = max(score, 2)
				case strings.HasPrefix(ch.Path, "platform/"):
					score = max(score, 1)
				}
			}
			if score > best {
				best, out[k] = score, m.commit
			}
		}
	}
	return out
}

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

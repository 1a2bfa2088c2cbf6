package loop

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"berth/reconciler"
	"berth/reconciler/provenance"
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

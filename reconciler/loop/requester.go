package loop

import (
	"context"
	"slices"

	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
)

const (
	// maxRequestHistory is how many commits of main are searched for the one that
	// added a document.
	maxRequestHistory = 200
	// maxRequestSearches is how many documents of one decision are searched for.
	maxRequestSearches = 50
)

// requestersOf names, by the evidence of each commit, the user who brought each
// instance document that a decision brings into force: the author of the pull
// request, or the owner of the key that signed the commit. Documents of unknown
// users are left out.
func requestersOf(verdicts []decide.Verdict) map[schema.Key]string {
	out := map[schema.Key]string{}
	for _, v := range verdicts {
		key := v.Document.Key
		if key.Kind == schema.KindInstance && v.Held == nil && v.Document.Change != "deleted" && v.By.Proof != authority.ProofNone {
			out[key] = name(v.By)
		}
	}
	return out
}

// isNewUnit says whether a decision makes a unit anew, rather than changes one.
func isNewUnit(prev *plan.Status) bool {
	return prev == nil || prev.Phase == plan.PhaseDeleting || prev.Phase == plan.PhaseDeleted
}

// findRequesters adds to by the requesters of new instances among changed that it
// lacks, such as instances that waited for another document. It searches main's
// last commits for the one that added the document. A requester that it cannot
// find is logged and stays empty.
func (r *Reconciler) findRequesters(ctx context.Context, st *state, changed []schema.Key, by map[schema.Key]string) map[schema.Key]string {
	missing := map[string]schema.Key{}
	for _, key := range changed {
		if i := st.desired.Instance(key); i != nil && by[key] == "" && isNewUnit(r.writer.get(key)) {
			missing[i.File] = key
		}
	}
	if len(missing) == 0 || r.o.Authority == nil {
		return by
	}
	if len(missing) > maxRequestSearches {
		r.o.Log.Warn("requester of instances unknown: too many at once", "instances", len(missing), "most", maxRequestSearches)
		return by
	}
	commits, err := r.o.Repo.Log(ctx, "", st.main, maxRequestHistory)
	if err != nil {
		r.o.Log.Warn("requester of instances unknown: history unreadable", "instances", len(missing), "error", err)
		return by
	}
	slices.Reverse(commits)
	out, memo := map[schema.Key]string{}, &remembering{Repo: r.o.Repo, Forge: r.o.Forge}
	for key, who := range by {
		out[key] = who
	}
	for i, c := range slices.Backward(commits) {
		paths, err := r.touches(ctx, c)
		if err != nil {
			continue // it is logged where the commit is decided
		}
		step := decide.Step{Commit: c.ID, Touched: paths}
		known := false
		for _, p := range paths {
			key, ok := missing[p.Path]
			if !ok || p.To == "" || p.From != "" {
				continue
			}
			delete(missing, p.Path)
			if !known {
				if _, err := r.author(ctx, memo, &step, commits, i, false); err != nil {
					r.o.Log.Warn("requester of an instance unknown", "instance", key.String(), "commit", short(c.ID), "error", err)
					break
				}
				known = true
			}
			out[key] = name(r.decider.Maker(st.desired, step, authority.Scope{Tenant: key.Tenant, Project: key.Project}, r.today()))
		}
		if len(missing) == 0 {
			return out
		}
	}
	for path, key := range missing {
		r.o.Log.Warn("requester of an instance unknown: no recent commit added its document", "instance", key.String(), "file", path, "commits", len(commits))
	}
	return out
}

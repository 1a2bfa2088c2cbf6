package provenance

import (
	"context"
	"slices"

	"berth/reconciler"
	"berth/reconciler/decide"
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

// Requesters names the user who brought each instance document and each rule that a decision
// brings into force: the author of the pull request, or the owner of the key that
// signed the commit. Documents of unknown users are left out.
func Requesters(verdicts []decide.Verdict) map[schema.Key]string {
	out := map[schema.Key]string{}
	for _, v := range verdicts {
		key := v.Document.Key
		isKept := key.Kind == schema.KindInstance || key.Kind == schema.KindHookRule
		if isKept && v.Held == nil && v.Document.Change != "deleted" && v.By.Proof != authority.ProofNone {
			out[key] = v.By.Name()
		}
	}
	return out
}

// FindRequesters names the users who added instance documents, given by file, that
// are in force without a commit of the last decision, such as instances that waited
// for another document. It searches the last commits of main for the one that added
// the file; maker names the author of a commit. A requester that it cannot find is
// logged and left out.
func (a *Authors) FindRequesters(
	ctx context.Context, main string, files map[string]schema.Key, maker func(decide.Step, schema.Key) authority.Actor,
) map[schema.Key]string {
	if len(files) == 0 || !a.o.CheckAuthority {
		return nil
	}
	if len(files) > maxRequestSearches {
		a.o.Log.Warn("requester of instances unknown: too many at once", "instances", len(files), "most", maxRequestSearches)
		return nil
	}
	commits, err := a.o.Repo.Log(ctx, "", main, maxRequestHistory)
	if err != nil {
		a.o.Log.Warn("requester of instances unknown: history unreadable", "instances", len(files), "error", err)
		return nil
	}
	slices.Reverse(commits)
	out, h := map[schema.Key]string{}, NewHistory(a.o.Repo, a.o.Forge, a.o.Branch, commits)
	for i, c := range slices.Backward(commits) {
		if len(files) == 0 {
			break
		}
		paths, err := Touched(ctx, a.o.Repo, c)
		if err != nil {
			continue // it is logged where the commit is decided
		}
		added := slices.DeleteFunc(slices.Clone(paths), func(p reconciler.PathChange) bool {
			return files[p.Path].IsZero() || p.To == "" || p.From != ""
		})
		if len(added) == 0 {
			continue
		}
		step := decide.Step{Commit: c.ID, Touched: paths}
		if _, err := a.attribute(ctx, h, i, &step, false); err != nil {
			first := added[0].Path
			a.o.Log.Warn("requester of an instance unknown", "instance", files[first].String(), "commit", reconciler.Short(c.ID), "error", err)
			delete(files, first)
			continue
		}
		for _, p := range added {
			out[files[p.Path]] = maker(step, files[p.Path]).Name()
			delete(files, p.Path)
		}
	}
	for path, key := range files {
		a.o.Log.Warn("requester of an instance unknown: no recent commit added its document", "instance", key.String(), "file", path,
			"commits", len(commits))
	}
	return out
}

package pulls

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/authority"
)

// retry has the units of a merged pull request tried again that failed for good, or
// wait for their next try.
func (h *CommandHandler) retry(ctx context.Context, r *request) (outcome, error) {
	if !r.pull.Merged {
		return nothingToDo("the pull request is not merged"), nil
	}
	units := h.units(func(s *plan.Status) bool { return s.Retry != nil && h.isOf(s, r.pull) })
	if len(units) == 0 {
		return nothingToDo("no instance of this pull request gave up or waits to try again"), nil
	}
	permissions, err := h.permissionsFor(ctx, r, r.pull, units)
	if err != nil {
		return outcome{}, err
	}
	var no, retried []string
	for i, s := range units {
		d := permissions[i]
		if !d.Allowed {
			h.Status.RecordDenied(h.auditRecord("unit.retry", s, r, audit.Denied, d))
			no = append(no, d.Message())
			continue
		}
		if !amend(h.Status, s.Key, func(now *plan.Status) bool {
			waits := now.Revision == s.Revision && now.Retry != nil
			now.Retry = nil
			return waits
		}) {
			continue // it is tried already, or another commit changed it
		}
		h.Status.Record(h.auditRecord("unit.retry", s, r, audit.Allowed, d))
		h.Queue.Add(reconciler.Item{Task: reconciler.TaskUnit, Unit: s.Key})
		retried = append(retried, s.Key.String())
	}
	if len(no) == len(units) {
		return refused(joinSome(no)), nil
	}
	out := done(strings.TrimSpace("retried " + joinSome(retried)))
	out.record, out.answer.Why = true, joinSome(no)
	return out, nil
}

// units lists, sorted, the units whose status fits.
func (h *CommandHandler) units(fits func(*plan.Status) bool) []*plan.Status {
	var out []*plan.Status
	for _, s := range h.Status.Units().All() {
		if fits(s) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *plan.Status) int { return a.Key.Compare(b.Key) })
	return out
}

// isOf reports whether a pull request brought the revision of a unit.
func (h *CommandHandler) isOf(s *plan.Status, pr reconciler.PullRequest) bool {
	if s.Revision == pr.MergeCommit || s.Review != nil && s.Review.Pull == pr.Number {
		return true
	}
	prs, _, _ := h.rollouts.pulls(s.Revision)
	return slices.ContainsFunc(prs, func(o reconciler.PullRequest) bool { return o.Number == pr.Number })
}

// permissionsFor decides for each unit whether the user may carry on with the
// change that a pull request brought. All are decided before anything is done, so
// that a command does not fail halfway.
func (h *CommandHandler) permissionsFor(ctx context.Context, r *request, pr reconciler.PullRequest, units []*plan.Status) ([]authority.Decision, error) {
	var out []authority.Decision
	for _, s := range units {
		d, err := h.permissionFor(ctx, r, pr, s)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// permissionFor allows a user who may change the unit so and, where a policy asks
// for a second person, is not the author; or who could have made the whole change.
func (h *CommandHandler) permissionFor(ctx context.Context, r *request, pr reconciler.PullRequest, s *plan.Status) (authority.Decision, error) {
	p := authority.InstanceUpdate
	switch {
	case r.state.Effective.Instance(s.Key) == nil:
		p = authority.InstanceDelete
	case s.Observed == nil || s.Observed.Presence == plan.Absent:
		p = authority.InstanceCreate
	}
	login := r.comment.Author
	need := authority.Need{Permission: p, Scope: authority.Scope{Tenant: s.Key.Tenant, Project: s.Key.Project}, Key: s.Key}
	d := h.Decider.Agrees(r.state.Desired, pr.Author, login, need)
	if d.Allowed || pr.MergeCommit == "" {
		return d, nil
	}
	commits, err := h.Repo.Log(ctx, "", pr.MergeCommit, 1)
	if err != nil || len(commits) == 0 || len(commits[0].Parents) == 0 {
		return d, err
	}
	ds, err := h.Decider.Needed(ctx, h.Repo, commits[0].Parents[0], pr.MergeCommit, authority.Actor{Login: login, Proof: authority.ProofPullRequest})
	if err != nil || len(ds) == 0 || slices.ContainsFunc(ds, func(o authority.Decision) bool { return !o.Allowed }) {
		return d, err
	}
	return ds[0], nil
}

// amend changes the status of a unit, also if something else is recorded at the
// same time. It returns false if change, which is given a copy, does.
func amend(status Status, key schema.Key, change func(*plan.Status) bool) bool {
	for {
		s := status.Units().Get(key)
		if s == nil {
			return false
		}
		next := *s
		if !change(&next) {
			return false
		}
		if status.Set(s, next) {
			return true
		}
	}
}

// joinSome joins the first sentences to a line.
func joinSome(all []string) string {
	const most = 3
	slices.Sort(all)
	all = slices.Compact(all)
	if more := len(all) - most; more > 0 {
		all = append(all[:most:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

// auditRecord is the audit record of a command.
func (h *CommandHandler) auditRecord(action string, s *plan.Status, r *request, v audit.Verdict, d authority.Decision) audit.Record {
	one := audit.Record{
		OccurredAt: h.Now(), CorrelationID: reconciler.CorrelationID(s.Revision), Actor: r.comment.Author, Proof: "remark", Permission: string(d.Permission),
		Action: action, Key: s.Key, OrgID: s.Key.Tenant, ProjectID: s.Key.ProjectID(), AppSlug: s.App, Verdict: v, Rule: d.Role, Reason: d.Reason, Commit: s.Revision, PullRequest: r.pull.Number,
	}
	if d.Source.File != "" {
		one.Source = fmt.Sprintf("%s:%d", d.Source.File, d.Source.Line)
	}
	if s.Review != nil && s.Review.Stale != nil && v == audit.Allowed {
		one.Reason = strings.TrimPrefix(fmt.Sprintf("%s; plan %s", d.Reason, reconciler.Short(s.Review.Stale.Now)), "; ")
	}
	return one
}

package pulls

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema/audit"
	"berth/schema/authority"
)

// commands carries out the commands in comments on pull requests.
type commands struct {
	*env
	planner  *Planner
	rollouts *RollOuts
	acks     *Acknowledgements
	applies  *Applies
}

// units lists, sorted, the units whose status fits.
func (c *commands) units(fits func(*plan.Status) bool) []*plan.Status {
	var out []*plan.Status
	for _, s := range c.Status.Units().All() {
		if fits(s) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *plan.Status) int { return a.Key.Compare(b.Key) })
	return out
}

// isOf reports whether a pull request brought the revision of a unit.
func (c *commands) isOf(s *plan.Status, pr reconciler.PullRequest) bool {
	if s.Revision == pr.MergeCommit || s.Review != nil && s.Review.Pull == pr.Number {
		return true
	}
	prs, _, _ := c.rollouts.pulls(s.Revision)
	return slices.ContainsFunc(prs, func(o reconciler.PullRequest) bool { return o.Number == pr.Number })
}

// changeUnits changes the statuses of units that the user of a command may carry on
// with, and has the units reconciled. change is given a copy of the status; it returns
// false, and a sentence for the user or "", if the status has changed. All
// permissions are decided before anything is done, so that a command does not fail
// halfway. no has the reasons why units were left out.
func (c *commands) changeUnits(ctx context.Context, r *request, pr reconciler.PullRequest, units []*plan.Status, action string,
	change func(was, now *plan.Status) (string, bool)) (changed, no []string, err error) {
	permissions := make([]authority.Decision, len(units))
	for i, s := range units {
		if permissions[i], err = c.permissionFor(ctx, r, pr, s); err != nil {
			return nil, nil, err
		}
	}
	for i, s := range units {
		d, why := permissions[i], "the status of "+s.Key.String()+" changed meanwhile"
		if !d.Allowed {
			c.Status.RecordDenied(c.auditRecord(action, s, r, audit.Denied, d))
			no = append(no, d.Message())
			continue
		}
		if !c.amend(s.Key, func(now *plan.Status) (ok bool) { why, ok = change(s, now); return ok }) {
			if why != "" {
				no = append(no, why)
			}
			continue
		}
		c.Status.Record(c.auditRecord(action, s, r, audit.Allowed, d))
		c.Queue.Add(reconciler.Item{Task: reconciler.TaskUnit, Unit: s.Key})
		changed = append(changed, s.Key.String())
	}
	return changed, no, nil
}

// permissionFor decides whether the user of a command may carry on with the change
// that a pull request brought to a unit. The user needs the permission for the unit
// and, where a policy asks for a second person, is not the author; or the user could
// have made the whole change.
func (c *commands) permissionFor(ctx context.Context, r *request, pr reconciler.PullRequest, s *plan.Status) (authority.Decision, error) {
	p := authority.InstanceUpdate
	switch {
	case r.state.Effective.Unit(s.Key) == nil:
		p = authority.InstanceDelete
	case s.Observed == nil || s.Observed.Presence == plan.Absent:
		p = authority.InstanceCreate
	}
	login := r.comment.Author
	need := authority.Need{Permission: p, Scope: authority.Scope{Tenant: s.Key.Tenant, Project: s.Key.Project}, Key: s.Key}
	d := c.Decider.Permissions().Agrees(r.state.Desired, pr.Author, login, need)
	if d.Allowed || pr.MergeCommit == "" {
		return d, nil
	}
	commits, err := c.Repo.Log(ctx, "", pr.MergeCommit, 1)
	if err != nil || len(commits) == 0 || len(commits[0].Parents) == 0 {
		return d, err
	}
	ds, err := c.Decider.Needed(ctx, c.Repo, commits[0].Parents[0], pr.MergeCommit,
		authority.Actor{Login: login, Proof: authority.ProofPullRequest})
	if err != nil || len(ds) == 0 || slices.ContainsFunc(ds, func(o authority.Decision) bool { return !o.Allowed }) {
		return d, err
	}
	return ds[0], nil
}

// auditRecord is the audit record of a command.
func (c *commands) auditRecord(action string, s *plan.Status, r *request, v audit.Verdict, d authority.Decision) audit.Record {
	one := audit.Record{
		OccurredAt: c.Now(), CorrelationID: reconciler.CorrelationID(s.Revision),
		Author: audit.Author{Actor: r.comment.Author, Proof: "remark"}, Permission: string(d.Permission), Action: action,
		Resource: audit.About(s.Key, s.App),
		Outcome:  audit.Outcome{Verdict: v, Rule: d.Role, Reason: d.Reason},
		Change:   audit.Change{Commit: s.Revision, PullRequest: r.pull.Number},
	}
	one.Source = d.Source.Place()
	if s.Review != nil && s.Review.Stale != nil && v == audit.Allowed {
		one.Reason = strings.TrimPrefix(fmt.Sprintf("%s; plan %s", d.Reason, reconciler.Short(s.Review.Stale.Now)), "; ")
	}
	return one
}

package decide

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/estate"
	"berth/schema/policy"
)

// CodeFrozen is the code of the finding that a merge would freeze the sync.
const CodeFrozen = "estate.frozen"

// Proposal returns the effect of merging Head into Base: it merges the two without a
// work tree, decides the result as Commit would, and plans the units that differ.
//
// Findings are those in files that the change touches, and those it causes elsewhere.
// The Proposal shows every held document and a freeze; an error means that the change
// cannot be checked.
func (d *Decider) Proposal(ctx context.Context, in Input) (plan.Proposal, error) {
	tree, conflicts, err := in.Repo.Merge(ctx, in.Base, in.Head)
	if err != nil {
		return plan.Proposal{}, fmt.Errorf("merge %s into %s: %w", in.Head, in.Base, err)
	}
	if len(conflicts) > 0 {
		out := in.proposal()
		out.Conflicts = conflicts
		return plan.Propose(out), nil
	}
	touched, err := in.Repo.Diff(ctx, in.Base, tree)
	if err != nil {
		return plan.Proposal{}, fmt.Errorf("compare %s with the merged tree: %w", in.Base, err)
	}
	merged, err := in.Repo.Snapshot(ctx, tree)
	if err != nil {
		return plan.Proposal{}, err
	}
	return d.Change(ctx, in, merged, touched)
}

// Change is Proposal for a change that is merged already: Base would become tree,
// which differs from it in touched, sorted by path.
func (d *Decider) Change(ctx context.Context, in Input, tree schema.Snapshot, touched []schema.PathChange) (plan.Proposal, error) {
	out := in.proposal()
	base, err := d.base(ctx, in)
	if err != nil {
		return plan.Proposal{}, fmt.Errorf("the base %s: %w", in.Base, err)
	}
	head, err := d.enforce(ctx, in.change(base, tree, touched, d.o.Authority == nil || in.By == nil))
	if errors.Is(err, ErrFrozen) {
		file := "."
		if len(touched) > 0 {
			file = touched[0].Path
		}
		out.Diagnostics = append(out.Diagnostics,
			errorAt(file, CodeFrozen, fmt.Sprintf("a merge would freeze the sync, and what is in force would stay: %v", err)))
		return plan.Propose(out), nil
	}
	if err != nil {
		return plan.Proposal{}, fmt.Errorf("the changed tree: %w", err)
	}
	if err := in.incomplete(touched, base.Main, head.Main); err != nil {
		return plan.Proposal{}, err
	}
	waited := map[string]bool{} // files
	for _, h := range base.Held {
		waited[h.File] = true
	}
	now := base.Result.Desired
	out.Documents = documents(touched, base.Main, head.Main, movesOf(touched, base.Main, head.Main, nil))
	out.Diagnostics = d.findingsOf(in, touched, waited, base, head)
	head.reportMoves(partialMoves(touched, base.Result, head), &out)
	out.Impacted = policy.Impacted(d.Evaluate(now, now, in.Today), d.Evaluate(head.Result.Desired, now, in.Today))
	out.Quotas = policy.QuotasUsed(head.Result.Desired, base.effective, head.effective)
	for _, c := range touched {
		out.Authority = append(out.Authority, head.guard.decisions[c.Path]...)
	}
	// A document that waited before is held without the change.
	out.Held = slices.DeleteFunc(slices.Clone(head.Held), func(h schema.Held) bool { return waited[h.File] && !touches(touched, h.File) })
	out.BaseEffective, out.HeadEffective, out.Placer = base.effective, head.effective, &d.placer
	if in.InForce != "" {
		// Changes released by now come into force with this merge and are shown.
		out.BaseEffective = d.Evaluate(base.before, base.before, in.Today)
		for range schema.Differing(out.BaseEffective, base.effective) {
			out.PendingEffective = base.effective
			break
		}
	}
	return plan.Propose(out), nil
}

// Conflicting is the proposal of a change that does not apply to Base, with findings
// that state the reason. Nothing is planned.
func Conflicting(in Input, why []schema.Diagnostic) plan.Proposal {
	out := in.proposal()
	out.Diagnostics = why
	for _, d := range why {
		out.Conflicts = append(out.Conflicts, d.File)
	}
	slices.Sort(out.Conflicts)
	out.Conflicts = slices.Compact(out.Conflicts)
	return plan.Propose(out)
}

// incomplete returns an error if the repository lacks objects that the plan needs: of
// the parts that the change touches, and of every part if the commit in force
// is unknown. Other parts are planned as they are in force.
func (in *Input) incomplete(touched []schema.PathChange, trees ...*estate.Result) error {
	for _, tree := range trees {
		for _, part := range slices.Sorted(maps.Keys(tree.Incomplete)) {
			if in.InForce == "" || slices.ContainsFunc(touched,
				func(c schema.PathChange) bool { return strings.HasPrefix(c.Path, part+"/") }) {
				return fmt.Errorf("%s cannot be planned: %w", part, tree.Incomplete[part])
			}
		}
	}
	return nil
}

// base is the state in force before the change. Its Main is Base with all its errors.
// Permissions come from Permitted alone, also if no permission is asked for: an
// unauthorized change does not come into force with another change.
func (d *Decider) base(ctx context.Context, in Input) (*forced, error) {
	main, err := in.Repo.Snapshot(ctx, in.Base)
	if err != nil {
		return nil, err
	}
	c := change{main: main, permitted: in.Permitted, today: in.Today, facts: in.facts(), trust: in.InForce == ""}
	if in.InForce != "" {
		if c.previous, err = in.Repo.Snapshot(ctx, in.InForce); err != nil {
			return nil, err
		}
	}
	return d.enforce(ctx, c)
}

// change is the proposed change over its base.
func (in *Input) change(base *forced, tree schema.Snapshot, touched []schema.PathChange, trust bool) change {
	by := subject{commit: in.Head, acks: in.Acks}
	if in.By != nil {
		by.Actor = *in.By
	}
	next := change{
		main: tree, previous: base.Snapshot, permitted: base.permitted, today: in.Today, facts: in.facts(),
		commit: in.Head, authored: map[string]subject{}, acks: []subject{by}, acked: in.Acked,
	}
	if trust {
		next.trust, next.waits = true, base.guard.unpermitted
	}
	for _, c := range touched {
		next.authored[c.Path] = by
	}
	for _, a := range in.CommentAcks {
		next.acks = append(next.acks, a.subject(in.Head, 0))
	}
	return next
}

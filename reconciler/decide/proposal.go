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
	"berth/schema/authority"
	"berth/schema/estate"
	"berth/schema/policy"
	"berth/schema/signature"
)

// CodeFrozen is the code of the finding that a merge would stop the sync.
const CodeFrozen = "estate.frozen"

// codeWider is policy's code of an overlay that allows more than those above it.
const codeWider = "policy.wider"

// Repo is what a proposal needs of a repository.
type Repo interface {
	Snapshot(ctx context.Context, commit string) (schema.Snapshot, error)
	Diff(ctx context.Context, from, to string) ([]schema.PathChange, error)
	Merge(ctx context.Context, base, head string) (tree string, conflicts []string, err error)
}

// Input is a change to look at.
type Input struct {
	Repo      Repo
	Base      string            // commit of main the change would be merged into
	InForce   string            // commit of berth/in-force; "": what of Base would come into force
	Permitted map[string]string // as in Standing, of InForce
	Head      string            // commit; "": a change that is none yet, for Change
	By        *authority.Actor  // whose change it is; nil: nobody's right is asked
	Acks      []string          // digests of large deletions it acknowledges
	Said      []Ack             // what others say of those that wait
	Acked     bool              // whether what it deletes is acknowledged is asked elsewhere
	Today     string            // UTC day, such as 2026-01-31
	Memory    *plan.Memory
	Rules     func(backend string) plan.Rules // nil: impacts are not known
	// Seen are findings about what a change makes of what is in force that rest on
	// what Berth saw. They hold nothing. nil: there are none.
	Seen func(before, after *schema.Desired) []schema.Diagnostic
}

// Proposal says what merging Head into Base would do: it merges the two without
// a work tree, decides the result as Commit would, and plans the units that
// makes a difference to.
//
// Findings are those in files the change touches and those it causes elsewhere;
// what was wrong before and has nothing to do with it is not told again. What
// would hold a document or freeze the sync is in the Proposal; the error is for
// what could not be looked at.
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

// Change is Proposal for a change whose tree is there already: Base would
// become tree, which differs from it in touched, sorted by path. Nothing is
// merged.
func (d *Decider) Change(ctx context.Context, in Input, tree schema.Snapshot, touched []schema.PathChange) (plan.Proposal, error) {
	out := in.proposal()
	base, err := d.base(ctx, in)
	if err != nil {
		return plan.Proposal{}, fmt.Errorf("the base %s: %w", in.Base, err)
	}
	next := change{
		main: tree, previous: base.Snapshot, permitted: base.permitted, today: in.Today,
		commit: in.Head, authored: map[string]subject{}, acked: in.Acked,
	}
	if d.o.Authority == nil || in.By == nil {
		next.trust, next.waits = true, base.guard.unpermitted
	}
	by := subject{commit: in.Head, acks: in.Acks}
	if in.By != nil {
		by.Actor = *in.By
	}
	for _, c := range touched {
		next.authored[c.Path] = by
	}
	next.acks = []subject{by}
	for _, a := range in.Said {
		next.acks = append(next.acks, a.subject(in.Head, 0))
	}
	head, err := d.enforce(ctx, next)
	if errors.Is(err, ErrFrozen) {
		out.Diagnostics = append(out.Diagnostics, schema.Diagnostic{
			Severity: schema.SeverityError, Code: CodeFrozen, File: firstPath(touched), Line: 1, Column: 1,
			Message: fmt.Sprintf("a merge would stop the sync, and what is in force would stay: %v", err),
		})
		return plan.Propose(out), nil
	}
	if err != nil {
		return plan.Proposal{}, fmt.Errorf("the changed tree: %w", err)
	}
	if err := in.incomplete(touched, base.Main, head.Main); err != nil {
		return plan.Proposal{}, err
	}
	out.Documents = documents(touched, base.Main, head.Main)
	waited := map[string]bool{} // files
	for _, h := range base.Held {
		waited[h.File] = true
	}
	out.Diagnostics = caused(touched, waited, d.findings(base, in.Today), d.findings(head, in.Today))
	now := base.Result.Desired
	out.Diagnostics = append(out.Diagnostics, lastAdministrators(touched, now, head.Main.Desired)...)
	out.Diagnostics = append(out.Diagnostics, withoutEffect(touched, head.Main)...)
	out.Diagnostics = append(out.Diagnostics, signature.Findings(head.Main.Desired, func(file string) bool { return touches(touched, file) })...)
	schema.SortDiagnostics(out.Diagnostics)
	if in.Seen != nil {
		out.Diagnostics = append(out.Diagnostics, in.Seen(now, head.Result.Desired)...)
		schema.SortDiagnostics(out.Diagnostics)
	}
	out.Diagnostics = append(partialMoves(touched, base.Main, head), out.Diagnostics...)
	out.Impacted = policy.Impacted(d.Evaluate(now, now, in.Today), d.Evaluate(head.Result.Desired, now, in.Today), head.Result.Desired)
	for _, c := range touched {
		out.Authority = append(out.Authority, head.guard.decisions[c.Path]...)
	}
	out.Held = heldBy(touched, waited, head.Held)
	out.BaseEffective, out.HeadEffective, out.Placer = base.effective, head.effective, &d.placer
	if in.InForce != "" {
		// What may come into force by now does so with this merge, and is shown.
		out.BaseEffective = d.Evaluate(base.before, base.before, in.Today)
		for range schema.Differing(out.BaseEffective, base.effective) {
			out.PendingEffective = base.effective
			break
		}
	}
	return plan.Propose(out), nil
}

// mostWithoutEffect is how many documents without effect are named; more teach
// nothing new.
const mostWithoutEffect = 10

// withoutEffect warns of documents that a change brings and that have no effect yet.
func withoutEffect(touched []schema.PathChange, head *estate.Result) (out []schema.Diagnostic) {
	more := 0
	for _, c := range touched {
		f := head.WithoutEffectAt(c.Path)
		switch {
		case f == nil:
		case len(out) < mostWithoutEffect:
			out = append(out, *f)
		default:
			more++
		}
	}
	if more > 0 {
		last := out[len(out)-1]
		last.Severity, last.Path, last.Message = schema.SeverityNote, "", fmt.Sprintf("%d more documents of this change have no effect yet; berth validate lists them", more)
		out = append(out, last)
	}
	return out
}

// Conflicting is the proposal of a change that cannot be put on Base, with the
// findings that say why. Nothing is planned.
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

// incomplete returns an error if the repository lacks something of trees that a
// plan of the change would rest on: of the parts that it touches, and where nothing
// says what is in force, of any. A part that the change does not touch is planned
// as it is in force.
func (in *Input) incomplete(touched []schema.PathChange, trees ...*estate.Result) error {
	for _, tree := range trees {
		for _, part := range slices.Sorted(maps.Keys(tree.Incomplete)) {
			if in.InForce == "" || slices.ContainsFunc(touched, func(c schema.PathChange) bool { return strings.HasPrefix(c.Path, part+"/") }) {
				return fmt.Errorf("%s cannot be planned: %w", part, tree.Incomplete[part])
			}
		}
	}
	return nil
}

// proposal is one with nothing in it yet.
func (in *Input) proposal() plan.ProposeInput {
	return plan.ProposeInput{Base: in.Base, Head: in.Head, Memory: in.Memory, Rules: in.Rules, Diagnostics: []schema.Diagnostic{}, Documents: []plan.DocumentChange{}}
}

// base is what is in force before the change. Its Main is what Base says,
// right or wrong. What of it waits is known of Permitted alone, also to whoever
// asks for nobody's right: what waits for lack of one comes with no other change.
func (d *Decider) base(ctx context.Context, in Input) (*forced, error) {
	main, err := in.Repo.Snapshot(ctx, in.Base)
	if err != nil {
		return nil, err
	}
	c := change{main: main, permitted: in.Permitted, today: in.Today, trust: in.InForce == ""}
	if in.InForce != "" {
		if c.previous, err = in.Repo.Snapshot(ctx, in.InForce); err != nil {
			return nil, err
		}
	}
	return d.enforce(ctx, c)
}

// findings are everything there is to say about a tree: what the reader found,
// what policy refuses, what moved, what guards refuse, and what can never run.
func (d *Decider) findings(f *forced, today string) []schema.Diagnostic {
	all := slices.Clone(f.Main.Diagnostics)
	all = append(all, d.refused(f.Main.Desired, f.before, today, func(string) bool { return true })...)
	all = append(all, schema.Upgrades(f.before, f.Main.Desired)...)
	all = append(all, renamedInstances(f.before, f.Main.Desired)...)
	all = append(all, f.guard.found...)
	all = append(all, d.capacity.Check(f.Main.Desired, d.Evaluate(f.Main.Desired, f.before, today), f.Main.AllNodes())...)
	schema.SortDiagnostics(all)
	return all
}

// caused are the findings of head in touched files, and those elsewhere that
// base had not, in whatever words: what is wrong there already, or waited and
// now does for another reason, is not for who makes this change to mend.
func caused(touched []schema.PathChange, waited map[string]bool, base, head []schema.Diagnostic) []schema.Diagnostic {
	type place struct {
		file, code, path string
		severity         schema.Severity
	}
	before := map[place]bool{}
	for _, d := range base {
		before[place{d.File, d.Code, d.Path, d.Severity}] = true
	}
	out := []schema.Diagnostic{}
	for _, d := range head {
		if !touches(touched, d.File) && !d.Other.IsZero() && touches(touched, d.Other.File) {
			d = d.Swapped() // the change causes the conflict: told where whoever makes it can mend it
		}
		known := waited[d.File] || before[place{d.File, d.Code, d.Path, d.Severity}]
		if d.Code == codeWider && !touches(touched, d.File) {
			d.Severity = schema.SeverityWarning // it is cut to what is above it, and whoever wrote it does not make this change
		}
		if touches(touched, d.File) || !known {
			out = append(out, d)
		}
	}
	return out
}

// heldBy are the documents held because of the change, and those it touches
// that are held for whatever reason. What waited before does so without it.
func heldBy(touched []schema.PathChange, waited map[string]bool, head []estate.Held) []plan.Held {
	var out []estate.Held
	for _, h := range head {
		if touches(touched, h.File) || !waited[h.File] {
			out = append(out, h)
		}
	}
	return held(out)
}

// touches says whether a change touches file. touched is sorted by path.
func touches(touched []schema.PathChange, file string) bool {
	_, ok := slices.BinarySearchFunc(touched, file, func(c schema.PathChange, path string) int { return strings.Compare(c.Path, path) })
	return ok
}

func firstPath(touched []schema.PathChange) string {
	if len(touched) == 0 {
		return "."
	}
	return touched[0].Path
}

package decide

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"

	"berth/schema"
	"berth/schema/authority"
)

// Commit decides commits of main, oldest first, each over what the one before it
// brought into force. So the outcome is the same whether they are decided one by one
// or together. today is the UTC day, such as 2026-01-31. The decision depends on its
// arguments alone.
//
// A step that must not be taken over, such as one that empties the estate, is
// skipped if a later step repairs it. If none does, Frozen says why the rest was not
// decided; the error is ErrFrozen if no step was.
func (d *Decider) Commit(ctx context.Context, was Standing, steps []Step, today string) (Decision, error) {
	in := change{previous: was.Tree, permitted: was.Permitted, authored: map[string]subject{}, today: today,
		facts: was.Facts, trust: d.o.Authority == nil || was.Tree == nil}
	out := Decision{Changed: map[schema.Key]string{}}
	for i, s := range steps {
		if err := d.add(ctx, &in, s); err != nil {
			return Decision{}, err
		}
		f, err := d.enforce(ctx, in)
		if errors.Is(err, ErrFrozen) && (i < len(steps)-1 || out.Commit != "") {
			out.Frozen = err
			continue // the next step brings what this one touched
		}
		if err != nil {
			return Decision{}, err
		}
		out.take(f, s.Commit)
		maps.DeleteFunc(in.authored, func(path string, _ subject) bool { return !unread(f.Force, path) })
		in.previous, in.permitted, in.acks = f.Snapshot, f.permitted, nil
		in.trust = d.o.Authority == nil
	}
	return out, nil
}

// add makes a step the last one of a change.
func (d *Decider) add(ctx context.Context, in *change, s Step) error {
	by := subject{Actor: s.By, commit: s.Commit, pullRequest: s.PullRequest, acks: s.Acks}
	if by.Proof == authority.ProofNone && len(s.Signature) > 0 && !in.trust {
		before, err := d.o.Loader.Load(ctx, in.previous)
		if err != nil {
			return fmt.Errorf("the tree in force: %w", err)
		}
		if by.signer, err = d.Permissions().signer(before.Desired, s.Payload, s.Signature, in.today); err != nil {
			return err
		}
	}
	for _, c := range s.Touched {
		in.authored[c.Path] = by
	}
	in.acks = append(in.acks, by)
	for _, a := range s.CommentAcks {
		in.acks = append(in.acks, a.subject(s.Commit, s.PullRequest))
	}
	in.main, in.commit, in.trust = s.Tree, s.Commit, in.trust || s.Operator
	return nil
}

// take adds the changes that a step brought into force.
func (out *Decision) take(f *forced, commit string) {
	if out.Commit == "" {
		out.First = commit
	} else {
		for key := range Changed(out.Effective, f.effective) {
			out.Changed[key] = commit
		}
	}
	next := f.decision(commit)
	next.First, next.Changed, next.Verdicts = out.First, out.Changed, append(out.Verdicts, next.Verdicts...)
	*out = next
}

// decision returns the changes that a step alone brings into force.
func (f *forced) decision(commit string) Decision {
	return Decision{
		Desired: f.Result.Desired, Effective: f.effective, Replace: f.Replace, Held: f.Held, Permitted: f.permitted,
		Commit: commit, Verdicts: f.verdicts(commit), Changed: map[schema.Key]string{},
	}
}

// Changed are the instances that differ in after, or are refused for another reason,
// in no order.
func Changed(before, after *schema.Effective) iter.Seq[schema.Key] {
	return func(yield func(schema.Key) bool) {
		for key := range schema.Differing(before, after) {
			same := reflect.DeepEqual(before.Unit(key), after.Unit(key)) &&
				slices.EqualFunc(before.Denied(key), after.Denied(key), func(a, b schema.Decision) bool {
					return a.Rule == b.Rule && a.Field == b.Field && a.Before == b.Before && a.After == b.After
				})
			if !same && !yield(key) {
				return
			}
		}
	}
}

// Read returns the decision that made a tree of berth/in-force, without its reasons.
func (d *Decider) Read(ctx context.Context, tree schema.Snapshot, today string) (Decision, error) {
	f, err := d.enforce(ctx, change{main: tree, previous: tree, today: today, trust: true})
	if err != nil {
		return Decision{}, err
	}
	return Decision{Desired: f.Result.Desired, Effective: f.effective, Replace: f.Replace, Held: f.Held}, nil
}

package decide

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/estate"
	"berth/schema/signature"
)

// ErrFrozen: a tree must not be taken over as it is: it is empty, its platform
// cannot be read, or what was in force no longer loads. What is in force stays.
var ErrFrozen = errors.New("not taken over")

// Standing is what is in force before a decision.
type Standing struct {
	Tree schema.Snapshot // nil: nothing is, and main is taken over as its operator's
	// Permitted are, of the paths in which main differs from it, those that were
	// permitted and wait for something else: path → main's blob, "" for none. They
	// are not asked about again: what counts are the rules before the change, and
	// whoever takes rights from its author may take the change back as well.
	// Whatever else differs has nobody's right behind it.
	Permitted map[string]string
}

// Step is one commit of main.
type Step struct {
	Commit      string
	Tree        schema.Snapshot
	Touched     []schema.PathChange // what it changes of its first parent
	By          authority.Actor
	PullRequest int      // 0: none
	Acks        []string // digests of large deletions that it acknowledges
	Said        []Ack    // what others say of those that wait
	// Payload and Signature are the commit's; they tell who made it where By does
	// not. Nil: it is not signed.
	Payload, Signature []byte
	Operator           bool // Berth's operator stands for it: nobody's right is asked
}

// Decision is what the last of some commits of main brings into force.
type Decision struct {
	Desired   *schema.Desired
	Effective *schema.Effective
	Replace   map[string]string // path → blob in force instead of the last step's, a part's → its tree; "": none
	Held      []plan.Held       // why, sorted by file
	Permitted map[string]string // as in Standing, for the next decision
	Commit    string            // of the last step that was taken over
	Frozen    error             // why those after it were not: ErrFrozen; nil: all were
	Verdicts  []Verdict         // of what the steps changed, in their order, then by file
	// Changed are the commits that last changed what an instance effectively is,
	// of those that a later step than First changed.
	Changed map[schema.Key]string
	First   string // commit of the first step that was taken over
}

// Commit decides commits of main, oldest first, each over what the one before
// it brought into force: so the outcome is the same whether they are decided one
// by one as they come, or together after a while. today is the UTC day, such as
// 2026-01-31. The decision depends on its arguments alone.
//
// A step that must not be taken over, such as one that empties the estate, is
// passed over if a later one mends it. If none does, what came before it is
// decided all the same, and Frozen says why the rest is not; if there was
// nothing before it, the error is ErrFrozen.
func (d *Decider) Commit(ctx context.Context, was Standing, steps []Step, today string) (Decision, error) {
	in := change{previous: was.Tree, permitted: was.Permitted, authored: map[string]subject{}, today: today, trust: d.o.Authority == nil || was.Tree == nil}
	out := Decision{Changed: map[schema.Key]string{}}
	for i, s := range steps {
		by := subject{Actor: s.By, commit: s.Commit, pullRequest: s.PullRequest, acks: s.Acks}
		if by.Proof == authority.ProofNone && len(s.Signature) > 0 && !in.trust {
			var err error
			if by.signer, err = d.signer(ctx, in.previous, s, today); err != nil {
				return Decision{}, err
			}
		}
		in.trust = in.trust || s.Operator
		for _, c := range s.Touched {
			in.authored[c.Path] = by
		}
		if len(s.Acks) > 0 {
			in.acks = append(in.acks, by)
		}
		for _, a := range s.Said {
			in.acks = append(in.acks, a.subject(s.Commit, s.PullRequest))
		}
		in.main, in.commit = s.Tree, s.Commit
		f, err := d.enforce(ctx, in)
		if errors.Is(err, ErrFrozen) && (i < len(steps)-1 || out.Commit != "") {
			out.Frozen = err
			continue // what it touched is the next one's to bring
		}
		if err != nil {
			return Decision{}, err
		}
		if out.Commit == "" {
			out.First = s.Commit
		} else {
			for key := range Changed(out.Effective, f.effective) {
				out.Changed[key] = s.Commit
			}
		}
		out.Desired, out.Effective, out.Replace, out.Held, out.Permitted = f.Result.Desired, f.effective, f.Replace, held(f.Held), f.permitted
		out.Commit, out.Frozen = s.Commit, nil
		out.Verdicts = append(out.Verdicts, f.verdicts(s.Commit)...)
		maps.DeleteFunc(in.authored, func(path string, _ subject) bool { return !unread(f.Force, path) })
		in.previous, in.permitted, in.acks = f.Snapshot, f.permitted, nil
		in.trust = d.o.Authority == nil
	}
	return out, nil
}

// Changed are the instances that are something else in after, or refused for
// another reason, in no order; those that were only judged again are not.
func Changed(before, after *schema.Effective) iter.Seq[schema.Key] {
	return func(yield func(schema.Key) bool) {
		for key := range schema.Differing(before, after) {
			same := reflect.DeepEqual(before.Instance(key), after.Instance(key)) && slices.EqualFunc(before.Denied(key), after.Denied(key), func(a, b schema.Decision) bool {
				return a.Rule == b.Rule && a.Field == b.Field && a.Before == b.Before && a.After == b.After
			})
			if !same && !yield(key) {
				return
			}
		}
	}
}

// signer is who signed a commit, by the keys in force before it and until the
// end of the day; nil: nobody who is known.
func (d *Decider) signer(ctx context.Context, previous schema.Snapshot, s Step, today string) (*signature.Signer, error) {
	before, err := d.o.Loader.Load(ctx, previous)
	if err != nil {
		return nil, fmt.Errorf("the tree in force: %w", err)
	}
	return d.signerBy(before.Desired, s, today)
}

func (d *Decider) signerBy(before *schema.Desired, s Step, today string) (*signature.Signer, error) {
	day, err := time.Parse(time.DateOnly, today)
	if err != nil {
		return nil, err
	}
	who, err := signature.Keys(d.rules(before)).Signer(s.Payload, s.Signature, day.Add(24*time.Hour))
	if err != nil {
		return nil, nil // it proves nobody
	}
	return &who, nil
}

// Maker is who made a commit, as the pull request or, by the keys that rules
// names, the signature proves it for a scope; the zero Actor if neither does.
func (d *Decider) Maker(rules *schema.Desired, s Step, scope authority.Scope, today string) authority.Actor {
	by := subject{Actor: s.By}
	if s.By.Proof == authority.ProofNone && len(s.Signature) > 0 && d.o.Authority != nil {
		by.signer, _ = d.signerBy(rules, s, today) // an unreadable day proves nobody
	}
	if a := by.in(scope); a.Proof != authority.ProofNone {
		return a
	}
	return authority.Actor{}
}

// Read is what a tree of berth/in-force stands for.
func (d *Decider) Read(ctx context.Context, tree schema.Snapshot, today string) (Decision, error) {
	f, err := d.enforce(ctx, change{main: tree, previous: tree, today: today, trust: true})
	if err != nil {
		return Decision{}, err
	}
	return Decision{Desired: f.Result.Desired, Effective: f.effective, Replace: f.Replace, Held: held(f.Held)}, nil
}

// change is what enforce decides.
type change struct {
	main, previous schema.Snapshot // previous nil: nothing was in force
	permitted      map[string]string
	commit         string
	authored       map[string]subject
	acks           []subject
	today          string
	trust          bool            // nobody's right is asked
	waits          map[string]bool // paths that wait for somebody's all the same, unless they are authored
	acked          bool            // what authored takes away is acknowledged
}

// forced is a tree in force, evaluated.
type forced struct {
	*estate.Force
	guard     *guard
	before    *schema.Desired // what was in force before
	effective *schema.Effective
	permitted map[string]string // what waits and is permitted
}

// enforce finds what of main comes into force over previous.
func (d *Decider) enforce(ctx context.Context, in change) (*forced, error) {
	previous := in.previous
	if previous == nil {
		previous = estate.Files(nil)
	}
	before, err := d.o.Loader.Load(ctx, previous)
	if err != nil {
		return nil, fmt.Errorf("the tree in force: %w", err)
	}
	main, err := d.o.Loader.LoadOver(ctx, in.main, before)
	if err != nil {
		return nil, fmt.Errorf("the new tree: %w", err)
	}
	g := &guard{d: d, before: before, main: main, authored: in.authored, acks: in.acks, permitted: in.permitted, commit: in.commit, trust: in.trust, waits: in.waits, acked: in.acked}
	if g.changes, err = d.o.Loader.Compare(ctx, previous, in.main); err != nil && !errors.Is(err, estate.ErrUnreadable) {
		return nil, err
	}
	g.look()
	f, err := d.o.Loader.InForce(ctx, in.main, in.previous, g.vetoes,
		d.refuse(before.Desired, in.today), upgrades(before.Desired), always(renamedInstances(before.Desired, main.Desired)), wholeMoves(g.moves, before, main))
	for _, frozen := range []error{estate.ErrEmpty, estate.ErrUnreadable, estate.ErrInForce} {
		if errors.Is(err, frozen) {
			return nil, fmt.Errorf("%w: %w", ErrFrozen, err)
		}
	}
	if err != nil {
		return nil, err
	}
	return &forced{Force: f, guard: g, before: before.Desired, effective: d.Evaluate(f.Result.Desired, before.Desired, in.today), permitted: g.waiting(f)}, nil
}

// verdicts are what became of the documents that changed: of those that were
// touched, and of those that waited and wait no more.
func (f *forced) verdicts(commit string) []Verdict {
	held := map[string]plan.Held{}
	for _, h := range f.Held {
		held[h.File] = plan.Held{Key: h.Key, File: h.File, Reason: h.Reason, Message: h.Message}
	}
	var out []Verdict
	docs := documents(f.guard.changes, f.guard.before, f.guard.main)
	told := map[string]bool{}
	for _, doc := range docs {
		told[doc.File], told[doc.From] = true, true
	}
	for _, c := range f.guard.changes { // what is no document and yet somebody's to change
		if len(f.guard.decisions[c.Path]) > 0 && !told[c.Path] {
			change := "modified"
			switch "" {
			case c.From:
				change = "added"
			case c.To:
				change = "deleted"
			}
			docs = append(docs, plan.DocumentChange{File: c.Path, Change: change})
		}
	}
	for _, doc := range docs {
		by, touched := f.guard.author(doc.File)
		h, isHeld := held[doc.File]
		if isHeld && !touched {
			continue // told when it came
		}
		scope := authority.Scope{Tenant: doc.Key.Tenant, Project: doc.Key.Project}
		v := Verdict{Commit: by.commit, By: by.in(scope), PullRequest: by.pullRequest, Document: doc, Authority: f.guard.decisions[doc.File]}
		if !touched {
			v.Commit = commit
		}
		if isHeld {
			v.Held = &h
		}
		out = append(out, v)
	}
	return out
}

func held(in []estate.Held) []plan.Held {
	var out []plan.Held
	for _, h := range in {
		out = append(out, plan.Held{Key: h.Key, File: h.File, Reason: h.Reason, Message: h.Message})
	}
	return out
}

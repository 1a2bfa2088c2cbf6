package decide

import (
	"context"
	"errors"
	"fmt"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/load"
	"berth/schema/policy"
)

// ErrFrozen: a tree must not be taken over as it is: it is empty, its platform
// cannot be read, or what was in force no longer loads. What is in force stays.
var ErrFrozen = errors.New("not taken over")

// Decision is what a commit of main brings into force.
type Decision struct {
	Effective *schema.Effective
	Replace   map[string]string // path → blob in force instead of main's, a part's → its tree; "": none
	Held      []plan.Held       // why, sorted by file
}

// Commit decides what of main comes into force over previous, the tree in
// force until now (nil: nothing was). It depends on the two trees alone.
func Commit(ctx context.Context, l *load.Loader, main, previous schema.Snapshot) (Decision, error) {
	f, err := enforce(ctx, l, main, previous)
	if err != nil {
		return Decision{}, err
	}
	return Decision{Effective: f.effective, Replace: f.Replace, Held: held(f.Held)}, nil
}

// forced is a tree in force, evaluated.
type forced struct {
	*load.Force
	before    *schema.Desired // what was in force before
	effective *schema.Effective
}

// enforce finds what of main comes into force over previous.
func enforce(ctx context.Context, l *load.Loader, main, previous schema.Snapshot) (*forced, error) {
	before := &schema.Desired{Platform: &schema.Platform{}}
	if previous != nil {
		r, err := l.Load(ctx, previous)
		if err != nil {
			return nil, fmt.Errorf("the tree in force: %w", err)
		}
		before = r.Desired
	}
	r, err := l.Load(ctx, main)
	if err != nil {
		return nil, fmt.Errorf("the new tree: %w", err)
	}
	f, err := l.InForce(ctx, main, previous, nil, refuse(before), always(moved(before, r.Desired)))
	for _, frozen := range []error{load.ErrEmpty, load.ErrUnreadable, load.ErrInForce} {
		if errors.Is(err, frozen) {
			return nil, fmt.Errorf("%w: %w", ErrFrozen, err)
		}
	}
	if err != nil {
		return nil, err
	}
	return &forced{Force: f, before: before, effective: policy.Evaluate(f.Result.Desired, existing(before))}, nil
}

// existing tells policy which instances are in force already. What is new and
// refused never comes into force, so that it does not count as existing later.
func existing(before *schema.Desired) policy.Option {
	return policy.Existing(func(k schema.Key) bool { return before.Instance(k) != nil })
}

func held(in []load.Held) []plan.Held {
	var out []plan.Held
	for _, h := range in {
		out = append(out, plan.Held{Key: h.Key, File: h.File, Reason: h.Reason, Message: h.Message})
	}
	return out
}

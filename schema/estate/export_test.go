package estate

import (
	"context"

	"berth/schema"
)

// InForceOf reads two snapshots and returns the part of main that comes into force. previous may be nil: nothing was in force.
func (l *Loader) InForceOf(ctx context.Context, main, previous schema.Snapshot, vetoes map[string]Veto, checks ...Check) (*Force, error) {
	if previous == nil {
		previous = Files(nil)
	}
	before, err := l.Load(ctx, previous)
	if err != nil {
		return nil, err
	}
	if _, err := l.Load(ctx, main); err != nil { // ahead of the decision, as decide.Decider.Ahead
		return nil, err
	}
	after, err := l.LoadOver(ctx, main, before)
	if err != nil {
		return nil, err
	}
	return l.InForce(ctx, after, before, vetoes, checks...)
}

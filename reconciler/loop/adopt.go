package loop

import (
	"context"
	"errors"
	"slices"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
)

// adopt takes over the commit that an earlier daemon put in force, so that a restart
// changes nothing. It reads berth/in-force alone, which Fetch
// verified: the statuses are memory, never permission. They only show whether that
// daemon stopped before it recorded its last decision; that decision is the backlog.
func (t *estateTask) adopt(ctx context.Context, tips reconciler.Tips) error {
	st, err := t.read(ctx, tips.InForce)
	if errors.Is(err, decide.ErrFrozen) {
		// A new commit of main may repair it. If not, the next decision freezes.
		t.log.Error("documents in force are not valid any more", "in_force", reconciler.Short(tips.InForce), "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	message, err := t.o.Repo.ReadInForce(ctx, tips.InForce)
	if err != nil {
		return err
	}
	rev, units := t.status.Revision(), t.status.Units()
	isRecorded := rev.InForce == tips.InForce
	st.Main, st.Permitted = message.Commit, message.Permitted
	if isRecorded {
		setHeld(st, rev.Held)
	} else {
		setHeld(st, message.Held)
	}
	st.Paused = decide.Decision{Desired: st.Desired, Held: st.Held, Permitted: st.Permitted}.Paused()
	if isRecorded {
		t.backlog = backlog{recordedTo: rev.Commit}
		t.status.Record(t.missingFateRecords(st, units)...) // otherwise the next decision records them
	} else {
		if st.Recorded, err = t.recordedState(ctx, tips, rev); err != nil {
			return err
		}
		t.backlog = backlog{exists: true, state: st.Recorded}
	}
	t.loadRules(ctx, st)
	t.status.SetRules(st.Desired.HookRules())
	t.inForce.set(st)
	if isRecorded && rev.Commit == tips.Main {
		t.inForce.setReady()
	}
	t.adoptRollouts(units)
	t.log.Info("continuing from the last commit in force", "in_force", reconciler.Short(tips.InForce), "units", st.Effective.Len())
	return nil
}

// recordedState returns the older state in force that the statuses describe, or nil
// if it is unknown.
func (t *estateTask) recordedState(ctx context.Context, tips reconciler.Tips, rev reconciler.Revision) (*reconciler.State, error) {
	// The commits of berth/in-force are joined by first parents.
	commits, err := t.o.Repo.Log(ctx, "", tips.InForce, maxAttributed)
	if err != nil || !slices.ContainsFunc(commits, func(c reconciler.Commit) bool { return c.ID == rev.InForce }) {
		return nil, err
	}
	st, err := t.read(ctx, rev.InForce)
	if errors.Is(err, decide.ErrFrozen) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	st.Main = rev.Commit
	return st, nil
}

// adoptRollouts continues the rollouts recorded in the statuses.
func (t *estateTask) adoptRollouts(units plan.Memory) {
	reviewed, isOver := t.status.Reviews.Units(), map[string]bool{}
	for key, s := range units.All() {
		settled := s.RolledOut() && s.Phase != plan.PhaseDeleted
		for _, commit := range t.pulls.RollOuts.Observe(s) {
			if !settled {
				t.pulls.Touched(commit)
			}
		}
		if over, ok := isOver[s.Revision]; over || !ok {
			isOver[s.Revision] = settled && s.Review == nil && !reviewed[key]
		}
	}
	for commit, over := range isOver {
		if over { // the earlier daemon published its end, and removed the review with it
			t.pulls.RollOuts.End(commit)
		}
	}
}

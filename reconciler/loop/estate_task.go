package loop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/provenance"
	"berth/schema"
	"berth/schema/policy"
)

// estateTask fetches the estate, decides new commits, and puts the result in force.
// The queue hands out its one item to one goroutine at a time; only that goroutine
// uses the fields below, and they have no lock.
type estateTask struct {
	*recorder
	o        *Options
	inForce  *inForce
	decider  *decide.Decider
	authors  *provenance.Authors
	enforcer *enforcer

	backlog backlog
	noticed time.Time // when the notices changed last
}

// backlog is a decision that an earlier daemon wrote to berth/in-force, but not to
// berth/status, because it stopped in between. The next decision records it.
type backlog struct {
	exists     bool
	state      *reconciler.State // that the statuses describe; nil: unknown
	recordedTo string            // commit of main up to which audit and events are recorded; "": unknown
}

// isAt returns true if a state is the one of the tips.
func isAt(st *reconciler.State, tips reconciler.Tips) bool {
	return st != nil && st.Main == tips.Main && st.InForce == tips.InForce
}

// writeInForce writes a commit of berth/in-force on top of tip. It returns "" if
// another writer moved the branch; then the estate is reconciled again.
func (t *estateTask) writeInForce(ctx context.Context, tip, main, correlationID string, d decide.Decision) (commit string, err error) {
	epoch, _ := t.status.Leadership()
	commit, err = t.o.Repo.WriteInForce(ctx, tip, reconciler.InForce{
		Commit: main, Replace: d.Replace, Held: d.Held, Permitted: d.Permitted, CorrelationID: correlationID, Epoch: epoch,
	})
	if errors.Is(err, reconciler.ErrConflict) {
		t.queues.add(reconciler.Item{Task: reconciler.TaskEstate})
		return "", nil
	}
	return commit, err
}

// freeze stops new decisions until the reason is gone. Berth keeps repairing the units
// in force and deletes nothing.
func (t *estateTask) freeze(why string) {
	t.status.Revise(func(rev *reconciler.Revision) { rev.Frozen = why })
	t.o.Metrics.frozen.Set(1)
	if t.inForce.setFrozen(why) {
		t.pulls.BaseMoved()
	}
	if t.inForce.current() != nil {
		t.inForce.setReady()
	}
	t.log.Error("synchronization frozen; what is in force stays", "reason", why)
}

// thaw ends a freeze.
func (t *estateTask) thaw() {
	t.status.Revise(func(rev *reconciler.Revision) { rev.Frozen = "" })
	t.o.Metrics.frozen.Set(0)
	if t.inForce.setFrozen("") {
		t.pulls.BaseMoved()
	}
}

// awaitsAck returns true if a deletion is held until it is acknowledged.
func (t *estateTask) awaitsAck() bool {
	st := t.inForce.current()
	return st == nil || slices.ContainsFunc(st.Held, func(h schema.Held) bool { return h.Ack != "" })
}

// read returns the state of a commit of berth/in-force.
func (t *estateTask) read(ctx context.Context, commit string) (*reconciler.State, error) {
	tree, err := t.o.Repo.Snapshot(ctx, commit)
	if err != nil {
		return nil, err
	}
	d, err := t.decider.Read(ctx, tree, t.today())
	if err != nil {
		return nil, fmt.Errorf("read back %s: %w", reconciler.Short(commit), err)
	}
	st := newState("", commit, t.today(), d)
	st.Placement = t.decider.Place(d.Effective, t.status.Units())
	return st, nil
}

// newState returns the state of a decision about a commit of main that was written
// as a commit of berth/in-force. It has no placement yet.
func newState(main, commit, day string, d decide.Decision) *reconciler.State {
	st := &reconciler.State{
		Main: main, InForce: commit, Day: day, Desired: d.Desired, Effective: d.Effective, Permitted: d.Permitted, Paused: d.Paused(),
	}
	setHeld(st, d.Held)
	return st
}

// putInForce puts a decision in force, and with it the backlog.
func (t *estateTask) putInForce(ctx context.Context, c decidedChange) error {
	next := t.withUse(ctx, *c.next)
	c.next = &next
	if err := t.enforcer.putInForce(ctx, c); err != nil {
		return err
	}
	t.backlog = backlog{}
	if c.old != nil && !maps.Equal(pausedSites(c.old), pausedSites(c.next)) {
		t.wakeAll()
	}
	return nil
}

// pausedSites returns the paused sites, each with the reason.
func pausedSites(st *reconciler.State) map[string]string {
	out := map[string]string{}
	for name, s := range st.Desired.Platform.Sites() {
		if s.Spec.Paused != nil {
			out[name] = s.Spec.Paused.Reason
		}
	}
	return out
}

// withUse returns a state with the GPU hours of the month that are used up.
func (t *estateTask) withUse(ctx context.Context, st reconciler.State) reconciler.State {
	st.GPUSeconds, st.UsedUp = nil, nil
	if policy.HasGPUHours(st.Desired) {
		st.GPUSeconds = t.monthOfUse(ctx)
		st.UsedUp = policy.UsedUp(st.Desired, st.GPUSeconds)
	}
	return st
}

// gpuSeconds returns what jobs used in the month, by project; nil where no policy in force bounds it.
func (t *estateTask) gpuSeconds(ctx context.Context) map[string]int64 {
	if st := t.inForce.current(); st != nil && policy.HasGPUHours(st.Desired) {
		return t.monthOfUse(ctx)
	}
	return nil
}

// monthOfUse reads what jobs used in the month, by project. Where it cannot be read nothing is used up.
func (t *estateTask) monthOfUse(ctx context.Context) map[string]int64 {
	months, ok := t.o.Repo.(reconciler.MonthReader)
	if !ok {
		return nil
	}
	seconds, err := months.GPUSeconds(ctx, t.status.Tip(), t.today()[:len("2006-01")])
	if err != nil {
		t.log.Warn("usage of the month unreadable; no quota of GPU hours is applied", "error", err)
	}
	return seconds
}

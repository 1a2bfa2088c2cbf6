package loop

import (
	"sync"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
)

// unitTask brings units to the state in force. One unit is reconciled by one goroutine
// at a time; different units at the same time.
type unitTask struct {
	*recorder
	inForce     *inForce
	gate        *gate
	attachments attachments
	runtimes    map[string]runtimes.Runtime // by runtime_backend
	interval    time.Duration               // between two observations of a unit
	observing   time.Duration               // limit of one observation
	maxAttempts int
	metrics     *Metrics
	usage       *usageCollector
	nodeViews   *nodeViews
	rate        *changeRate

	mu         sync.Mutex
	continuing map[schema.Key]string // digest of the plan that a unit continues, which had to wait
	reconciled map[schema.Key]bool   // units that were reconciled in this run
}

// decision returns the state in force and a unit's status, as of one moment. Both
// are nil before the first decision; the status is nil for an unknown unit.
func (t *unitTask) decision(key schema.Key) (*reconciler.State, *plan.Status) {
	t.status.Decision.RLock()
	defer t.status.Decision.RUnlock()
	return t.inForce.current(), t.status.Unit(key)
}

// record records the status of a view. If another status was recorded since the
// view was made, it enqueues the unit again and returns false.
func (t *unitTask) record(v unitView) bool {
	key := v.prev.Key
	if !t.recordStatus(v) {
		t.queues.addUnit(key)
		return false
	}
	t.mu.Lock()
	t.reconciled[key] = true
	t.mu.Unlock()
	if held := v.review; held != nil && held.Stale != nil &&
		(v.prev.Review == nil || v.prev.Review.Stale == nil || v.prev.Review.Stale.Now != held.Stale.Now) {
		record := staleRecord(v.prev, held, t.now())
		t.status.Record(record)
		t.unitLog(v.prev).Warn("stale plan held", "pull", held.Pull, "reason", record.Reason, "revision", reconciler.Short(v.prev.Revision))
	}
	return true
}

// recordStatus records the status of a view, and of the attachments that follow from it. No
// decision comes between: else the attachments could be those of the decision before.
func (t *unitTask) recordStatus(v unitView) bool {
	t.status.Decision.RLock()
	defer t.status.Decision.RUnlock()
	next := v.makeStatus()
	if isComplete(next.Observed) && !isComplete(v.prev.Observed) {
		next.BegunOn = t.now().UTC().Format(time.DateOnly)
	}
	if u := v.observed; v.want != nil && isComplete(&u) { // an instance on a shared runtime has nothing of its own
		next.Made = u.Unit == nil || u.Unit.Effective.SharedRuntime == ""
	}
	if now := t.inForce.current(); now != v.st {
		// The new decision has recorded the attachments. If it moved the unit, another unit may use the old nodes now.
		return sameUnit(now, v.st, v.prev.Key) && t.set(v.prev, next)
	}
	if t.status.Unit(v.prev.Key) != v.prev {
		return false
	}
	if next.Phase == plan.PhaseDeleted {
		t.attachments.follow(v.st, &next) // they end before their shared runtime
	}
	if !t.set(v.prev, next) {
		return false
	}
	t.attachments.follow(v.st, &next)
	return true
}

// setContinuing records the digest of the plan that a unit continues; "": none.
func (t *unitTask) setContinuing(key schema.Key, digest string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if digest == "" {
		delete(t.continuing, key)
		return
	}
	t.continuing[key] = digest
}

// isReconciled returns true if a unit was reconciled in this run.
func (t *unitTask) isReconciled(key schema.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reconciled[key]
}

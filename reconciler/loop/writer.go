package loop

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
)

// errDeposed: another daemon leads; this one must stop.
var errDeposed = errors.New("another daemon leads this estate")

// writer is the one writer of berth/status. It remembers what the status of
// every unit and thing is, coalesces what changes within a window into one commit, and
// pushes it by compare-and-swap. What is not pushed yet is kept and pushed
// later; nothing is lost while the remote is down.
//
// A transition of phase becomes an event in the same commit, so that status
// and events cannot disagree, and a replay after a crash makes the same event
// with the same id (requirement A8, DESIGN §3). So it is with what is recorded
// for audit and announced besides: it is written once, together with the
// decision it tells of, or the decision is made again.
//
// The audit chain goes on from the last record this daemon wrote or, when it
// took the lead, found. Records are chained only as they are written, so a push
// that is tried again neither forks nor repeats the chain, and nothing that
// somebody else writes to the branch becomes part of it.
type writer struct {
	repo   reconciler.Repo
	leader string // random identity of this daemon; it makes each of its leaderships unique
	window time.Duration
	log    *slog.Logger
	now    func() time.Time
	onPush func(d time.Duration, units int, err error)
	// onEvents is told of the events that statuses make, when they are recorded.
	onEvents func([]plan.Event)
	// onChain is told whether the end of the audit chain holds, when it was looked at.
	onChain func(holds bool)
	owed    reconciler.Owed

	// whole is held while things are recorded that are true only together, such
	// as a decision and the statuses that follow from it. Who reads several holds
	// it shared and sees all old or all new; so does each commit, as a crash
	// right after half of them would make the next daemon undo the other half.
	// It is taken before mu.
	whole sync.RWMutex
	stood *reconciler.State // whose standings are recorded; under whole

	mu      sync.Mutex
	tip     string
	rev     reconciler.Revision
	units   plan.Memory
	things  map[schema.Key]*plan.ThingStatus
	copied  map[schema.Key]*plan.ThingStatus // a copy of things for who looks; nil: made when somebody does
	dirty   map[schema.Key]bool              // of units and things
	gone    map[schema.Key]bool
	reviews reviews
	events  []plan.Event
	audit   []audit.Record  // not chained yet
	waiting map[string]bool // their ids
	refused refused
	causes  map[string]bool // correlation ids of what is pending
	put     uint64          // counts changes
	pushed  uint64          // changes up to here are on the remote
	wait    []chan struct{} // closed at the next attempt
	fatal   error
	lastErr error
	moved   atomic.Uint64 // counts changes of units and things; added to with mu held
	urgent  bool          // a change of phase is pending
	last    time.Time     // of the last push
	// tried are the batches, oldest first, whose push from the present tip ended
	// in an error that may have hidden a success. Of batches with equal revisions,
	// which have equal events and records, one is kept.
	tried []reconciler.StatusBatch

	wake chan struct{} // something is pending
	now1 chan struct{} // and somebody waits for it
	back chan struct{} // the remote was just seen to answer
}

func newWriter(repo reconciler.Repo, window time.Duration, log *slog.Logger, now func() time.Time) *writer {
	return &writer{
		repo: repo, leader: rand.Text(), window: window, log: log, now: now, waiting: map[string]bool{},
		onPush: func(time.Duration, int, error) {}, onEvents: func([]plan.Event) {}, onChain: func(bool) {}, owed: nobodys{},
		things: map[schema.Key]*plan.ThingStatus{}, dirty: map[schema.Key]bool{}, gone: map[schema.Key]bool{}, causes: map[string]bool{},
		reviews: newReviews(nil),
		wake:    make(chan struct{}, 1), now1: make(chan struct{}, 1), back: make(chan struct{}, 1),
	}
}

// lead reads back what is remembered and raises the epoch by compare-and-swap.
// From then on this daemon is the leader until a later one does the same. The
// commit names the leader's identity, so that two daemons never make the same
// commit and take the other's push for their own.
func (w *writer) lead(ctx context.Context) error {
	for {
		tips, refused := w.repo.Fetch(ctx)
		if refused != nil && !errors.Is(refused, reconciler.ErrRewritten) && !errors.Is(refused, reconciler.ErrUnreadable) {
			return fmt.Errorf("take over berth/status: %w", refused)
		}
		tree, err := w.repo.ReadStatus(ctx, tips.Status)
		if err == nil {
			err = readable(tree)
		}
		if err != nil {
			return fmt.Errorf("take over berth/status: %w", err)
		}
		tail, err := w.tail(ctx, tips.Status)
		if err != nil {
			return fmt.Errorf("take over berth/status: %w", err)
		}
		for _, warning := range tree.Warnings {
			w.log.Warn("berth/status holds something unreadable; it is passed over", "warning", warning)
		}
		// Hosts refuse an epoch below one that they have seen, and an equal one of
		// another leader. Beginning with the time in milliseconds keeps it above every
		// earlier one even where the branch was lost.
		rev := bounded(tree.Revision) // somebody else may have written it
		rev.Epoch, rev.Leader = max(rev.Epoch+1, uint64(w.now().UnixMilli())), w.leader
		tip, err := w.repo.WriteStatus(ctx, tips.Status, reconciler.StatusBatch{Revision: rev})
		if errors.Is(err, reconciler.ErrConflict) && refused == nil {
			continue // somebody raised it too: raise again
		}
		if errors.Is(err, reconciler.ErrConflict) {
			err = refused // what is there is not taken over: it may be that very branch
		}
		if err != nil {
			return fmt.Errorf("take over berth/status: %w", err)
		}
		w.mu.Lock()
		w.tip, w.rev, w.last = tip, rev, w.now()
		w.units = tree.Units
		if tree.Things != nil {
			w.things, w.copied = tree.Things, nil
		}
		w.reviews = newReviews(tree.Reviews)
		w.moved.Add(1)
		w.tookOver(tail, audit.Head{Sequence: rev.AuditSequence, Hash: rev.AuditHead})
		if len(w.owed.Records()) > 0 {
			w.changed()
		}
		w.mu.Unlock()
		return nil
	}
}

// epoch is the epoch of the leadership this daemon acts under.
func (w *writer) epoch() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rev.Epoch
}

// overtakenBy returns true if rev, read from the branch, names another leader
// with the same or a later epoch. It is called with mu held. A revision of the
// same epoch without a leader was edited by hand and is written over.
func (w *writer) overtakenBy(rev reconciler.Revision) bool {
	return rev.Epoch > w.rev.Epoch || rev.Epoch == w.rev.Epoch && rev.Leader != "" && rev.Leader != w.leader
}

// revision is what berth/status says, or will say, of the sync.
func (w *writer) revision() reconciler.Revision {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.rev
	r.Held = slices.Clone(r.Held)
	return r
}

// get is the status of a unit, or nil. The value must not be changed.
func (w *writer) get(key schema.Key) *plan.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.units.Get(key)
}

// memory is what is remembered of all units.
func (w *writer) memory() plan.Memory {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.units
}

// set records a unit's status in place of prev, which is what get returned; it
// does nothing and says so if somebody else recorded another one meanwhile.
// Equal to what is known, nothing changes.
func (w *writer) set(prev *plan.Status, s plan.Status) (changed, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.units.Get(s.Key) != prev {
		return false, false
	}
	if prev != nil && equalJSON(prev, &s) {
		return false, true
	}
	w.units = w.units.With(&s)
	w.taken(s.Key, s.CorrelationID, prev == nil || prev.Phase != s.Phase, transitions(prev, &s, w.now())...)
	return true, true
}

// thing is the status of something that is no unit, or nil. The value must not
// be changed.
func (w *writer) thing(key schema.Key) *plan.ThingStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.things[key]
}

// setThing is set for what is no unit.
func (w *writer) setThing(prev *plan.ThingStatus, s plan.ThingStatus) (changed, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.things[s.Key] != prev {
		return false, false
	}
	if prev != nil && equalJSON(prev, &s) {
		return false, true
	}
	w.things[s.Key], w.copied = &s, nil
	var events []plan.Event
	if e, ok := thingTransition(prev, &s, w.now()); ok {
		events = append(events, e)
	}
	w.taken(s.Key, s.CorrelationID, prev == nil || prev.Phase != s.Phase, events...)
	return true, true
}

// taken notes a status that was recorded, and the events it makes; called with
// mu held.
func (w *writer) taken(key schema.Key, cause string, moved bool, events ...plan.Event) {
	w.moved.Add(1)
	w.dirty[key] = true
	delete(w.gone, key)
	if cause != "" {
		w.causes[cause] = true
	}
	w.events = append(w.events, events...)
	w.onEvents(events)
	for _, e := range events {
		if e.CorrelationID != "" {
			w.causes[e.CorrelationID] = true
		}
	}
	if moved || len(events) > 0 {
		w.urgent = true // somebody waits for it
	}
	w.changed()
}

// moveThings has things go on under other keys: where each was, by where it is.
// That is no step of theirs, and nothing is told. A key that nothing moves to any
// more has no status.
func (w *writer) moveThings(moves map[schema.Key]schema.Key) {
	if len(moves) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	were := map[schema.Key]*plan.ThingStatus{}
	for to, from := range moves {
		if was := w.things[from]; was != nil {
			were[to] = was
		}
	}
	for _, from := range moves {
		delete(w.things, from)
		delete(w.dirty, from)
		w.gone[from] = true
	}
	for to, was := range were {
		s := *was
		s.Key = to
		w.things[to] = &s
		w.dirty[to] = true
		delete(w.gone, to)
	}
	w.moved.Add(1)
	w.copied = nil
	w.changed()
}

// forgetThing takes away the status file of a thing, in place of prev, which is
// what thing returned; it does nothing and says so if another one was recorded
// meanwhile.
func (w *writer) forgetThing(prev *plan.ThingStatus) (ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if prev == nil || w.things[prev.Key] != prev {
		return false
	}
	w.moved.Add(1)
	delete(w.things, prev.Key)
	w.copied = nil
	delete(w.dirty, prev.Key)
	w.gone[prev.Key] = true
	w.changed()
	return true
}

// announce adds events that no status makes. One that waits to be written
// already is not added again.
func (w *writer) announce(events ...plan.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := make(map[string]bool, len(w.events))
	for _, e := range w.events {
		waiting[e.EventID] = true
	}
	for _, e := range events {
		if waiting[e.EventID] {
			continue
		}
		waiting[e.EventID] = true
		w.events = append(w.events, e)
		if e.CorrelationID != "" {
			w.causes[e.CorrelationID] = true
		}
		w.changed()
	}
}

// record adds audit records. record_id and time are filled in where they are
// not; what waits to be written already is not added again.
func (w *writer) record(records ...audit.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recordLocked(records...)
}

// recordLocked is record with mu held.
func (w *writer) recordLocked(records ...audit.Record) {
	for _, r := range records {
		if r.RecordID == "" {
			r.RecordID = r.ID()
		}
		if w.waiting[r.RecordID] {
			continue
		}
		w.waiting[r.RecordID] = true
		if r.OccurredAt.IsZero() {
			r.OccurredAt = w.now().UTC()
		}
		w.audit = append(w.audit, r)
		if r.CorrelationID != "" {
			w.causes[r.CorrelationID] = true
		}
		w.changed()
	}
}

// forget takes away the status file of a unit that is gone. One that was
// declared again meanwhile stays.
func (w *writer) forget(key schema.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.units.Get(key); s == nil || s.Phase != plan.PhaseDeleted {
		return
	}
	w.moved.Add(1)
	w.units = w.units.Without(key)
	delete(w.dirty, key)
	w.gone[key] = true
	w.changed()
}

// revise changes what revision.yaml says; epoch, sequence and the audit chain
// stay the writer's.
func (w *writer) revise(change func(*reconciler.Revision)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := w.rev
	next.Held = slices.Clone(w.rev.Held)
	change(&next)
	next.Epoch, next.Leader, next.Sequence = w.rev.Epoch, w.rev.Leader, w.rev.Sequence
	next.AuditSequence, next.AuditHead = w.rev.AuditSequence, w.rev.AuditHead
	if equalJSON(next, w.rev) { // as it mostly is
		return
	}
	if next = bounded(next); equalJSON(next, w.rev) {
		return
	}
	w.rev = next
	w.changed()
}

// changed is called with mu held.
func (w *writer) changed() {
	w.put++
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// clean says whether everything recorded is on the remote.
func (w *writer) clean() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pushed == w.put
}

// flush waits until everything recorded before the call is on the remote, and
// makes that happen at once. It gives up when ctx ends, with the reason why
// the remote does not take it.
func (w *writer) flush(ctx context.Context) error {
	w.mu.Lock()
	target := w.put
	w.mu.Unlock()
	return w.flushTo(ctx, target)
}

// flushTo is flush of what was recorded up to a count of changes.
func (w *writer) flushTo(ctx context.Context, target uint64) error {
	for {
		w.mu.Lock()
		if w.fatal != nil {
			defer w.mu.Unlock()
			return w.fatal
		}
		if w.pushed >= target {
			w.mu.Unlock()
			return nil
		}
		ch := make(chan struct{})
		w.wait = append(w.wait, ch)
		w.mu.Unlock()
		select {
		case w.now1 <- struct{}{}:
		default:
		}
		select {
		case <-ch:
		case <-ctx.Done():
			w.mu.Lock()
			err := w.lastErr
			w.mu.Unlock()
			if err == nil {
				err = ctx.Err()
			}
			return fmt.Errorf("status is not written yet: %w", err)
		}
	}
}

// run writes until ctx ends, then once more. It returns errDeposed when
// another daemon has taken over.
func (w *writer) run(ctx context.Context) error {
	backoff := time.Second
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			return w.push(last)
		case <-w.wake:
			t := time.NewTimer(w.delay())
			select {
			case <-t.C:
			case <-w.now1:
			case <-ctx.Done():
			}
			t.Stop()
		case <-w.now1:
		}
		err := w.push(ctx)
		switch {
		case err == nil:
			backoff = time.Second
		case errors.Is(err, errDeposed):
			return err
		case ctx.Err() == nil:
			select {
			case <-w.back: // it answered before it failed: that is no news
			default:
			}
			w.log.Warn("status is not written; kept and tried again", "error", err, "again_in", backoff)
			select {
			case <-time.After(backoff):
			case <-w.back:
			case <-ctx.Done():
			}
			backoff = min(2*backoff, 30*time.Second)
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
	}
}

// fetched takes the tip of the branch that a fetch just saw. Another leader there
// deposes this writer; a push that waits for the remote is tried at once.
func (w *writer) fetched(ctx context.Context, tip string) error {
	select {
	case w.back <- struct{}{}:
	default:
	}
	w.mu.Lock()
	known := tip == "" || tip == w.tip
	w.mu.Unlock()
	if known {
		return nil
	}
	tree, err := w.repo.ReadStatus(ctx, tip)
	if err == nil {
		err = readable(tree)
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.overtakenBy(tree.Revision) {
		return nil // its own, written meanwhile, or a foreign one, which the next push meets
	}
	return w.depose(tree.Revision)
}

// depose ends the writer, as rev names another leader; called with mu held.
func (w *writer) depose(rev reconciler.Revision) error {
	w.fatal = fmt.Errorf("%w: %s names leader %s with epoch %d, and this daemon is %s with epoch %d; run one daemon for an estate",
		errDeposed, reconciler.BranchStatus, cmp.Or(rev.Leader, "(unnamed)"), rev.Epoch, w.leader, w.rev.Epoch)
	w.release()
	select {
	case w.now1 <- struct{}{}:
	default:
	}
	return w.fatal
}

// delay is how long to gather before the next push. What people wait for goes
// at once, unless there was a push within the window.
func (w *writer) delay() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.urgent {
		return max(0, w.window-w.now().Sub(w.last))
	}
	return w.window
}

// push writes what is pending as one commit.
func (w *writer) push(ctx context.Context) error {
	var last error // of the last try, if it met another writer
	for range 5 {
		w.mu.Lock()
		if w.fatal != nil {
			defer w.mu.Unlock()
			return w.fatal
		}
		w.takeOwed()
		if w.pushed == w.put {
			w.release()
			w.mu.Unlock()
			return nil
		}
		w.mu.Unlock()
		w.whole.RLock()
		w.mu.Lock()
		upTo := w.put
		b := reconciler.StatusBatch{Revision: w.rev, Events: slices.Clone(w.events)}
		b.Revision.Sequence += uint64(len(b.Events))
		b.Audit = audit.Chain(audit.Head{Sequence: w.rev.AuditSequence, Hash: w.rev.AuditHead}, w.audit)
		if n := len(b.Audit); n > 0 {
			b.Revision.AuditSequence, b.Revision.AuditHead = b.Audit[n-1].Sequence, b.Audit[n-1].Hash
		}
		for _, k := range slices.SortedFunc(maps.Keys(w.dirty), schema.Key.Compare) {
			if s := w.units.Get(k); s != nil {
				b.Units = append(b.Units, *s)
			} else {
				b.Things = append(b.Things, *w.things[k])
			}
		}
		b.Gone = slices.SortedFunc(maps.Keys(w.gone), schema.Key.Compare)
		b.Reviews, b.ReviewsGone = w.reviews.batch()
		b.CorrelationIDs = slices.Sorted(maps.Keys(w.causes))
		old := w.tip
		w.mu.Unlock()
		w.whole.RUnlock()

		start := w.now()
		w.mu.Lock()
		w.last, w.urgent = start, false
		w.mu.Unlock()
		tip, err := w.repo.WriteStatus(ctx, old, b)
		w.onPush(w.now().Sub(start), len(b.Units)+len(b.Things), err)

		if err != nil && (!errors.Is(err, reconciler.ErrConflict) || len(b.Events)+len(b.Audit) > 0) {
			// It may have landed: its answer was lost, and perhaps somebody wrote on
			// top of it before the remote was asked. The next try finds out: a
			// revision that counts new events or records is on the branch only then.
			w.mu.Lock()
			if n := len(w.tried); n == 0 || !equalJSON(w.tried[n-1].Revision, b.Revision) {
				w.tried = append(w.tried, reconciler.StatusBatch{Revision: b.Revision, Events: b.Events, Audit: b.Audit})
			}
			w.mu.Unlock()
		}
		if errors.Is(err, reconciler.ErrConflict) || errors.Is(err, reconciler.ErrNotFound) { // or the mirror lost the tip, which moved on since
			last = err
			if err := w.rebase(ctx); err != nil {
				return w.failed(err)
			}
			continue
		}
		if err != nil {
			return w.failed(err)
		}
		w.mu.Lock()
		w.landed(tip, b, upTo)
		w.mu.Unlock()
		last = nil
	}
	if last != nil {
		return w.failed(last) // others are always first; who waits is told, and it is tried again
	}
	return nil // still changing; the next wake goes on
}

// rebase takes over a tip that this writer does not know. A later epoch, or the
// same one of another leader, means that another daemon leads. Otherwise the tip
// is a commit of this writer whose answer was lost, a foreign commit, or one on
// top of the other. Statuses that differ from this writer's are written over.
// Events and audit records that are there already are not written again.
func (w *writer) rebase(ctx context.Context) error {
	tips, refused := w.repo.Fetch(ctx)
	if refused != nil && !errors.Is(refused, reconciler.ErrRewritten) && !errors.Is(refused, reconciler.ErrUnreadable) {
		return refused
	}
	tree, err := w.repo.ReadStatus(ctx, tips.Status)
	if err == nil {
		err = readable(tree)
	}
	if err != nil {
		return err
	}
	tail, err := w.tail(ctx, tips.Status)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.overtakenBy(tree.Revision) {
		return w.depose(tree.Revision)
	}
	if refused != nil && tips.Status == w.tip {
		return refused // it is this very branch that is not taken over
	}
	own := slices.IndexFunc(w.tried, func(b reconciler.StatusBatch) bool { return equalJSON(b.Revision, tree.Revision) })
	if own >= 0 {
		w.told(w.tried[own])
	} else if tips.Status != w.tip {
		w.log.Warn("berth/status was moved by another writer; writing over it", "tip", tips.Status)
	}
	if tips.Status != w.tip {
		w.tookOver(tail, audit.Head{Sequence: w.rev.AuditSequence, Hash: w.rev.AuditHead})
	}
	w.tip, w.tried = tips.Status, nil
	w.rev.Sequence = max(w.rev.Sequence, tree.Revision.Sequence)
	differing(maps.Collect(w.units.All()), maps.Collect(tree.Units.All()), w.dirty, w.gone)
	differing(w.things, tree.Things, w.dirty, w.gone)
	differing(w.reviews.of, tree.Reviews, w.reviews.dirty, w.reviews.gone)
	return nil
}

// differing notes what of known does not stand in there, and what else does.
func differing[K comparable, S any](known, there map[K]*S, dirty, gone map[K]bool) {
	for k, s := range known {
		if t := there[k]; t != nil && equalJSON(s, t) {
			delete(dirty, k)
		} else {
			dirty[k] = true
		}
	}
	for k := range there {
		if known[k] == nil {
			gone[k] = true
		}
	}
}

// told records that the events and audit records of b are on the remote; called
// with mu held.
func (w *writer) told(b reconciler.StatusBatch) {
	w.rev.Sequence = b.Revision.Sequence
	w.rev.AuditSequence, w.rev.AuditHead = b.Revision.AuditSequence, b.Revision.AuditHead
	w.events = w.events[len(b.Events):]
	written := make([]string, len(b.Audit))
	for i, r := range w.audit[:len(b.Audit)] {
		delete(w.waiting, r.RecordID)
		w.refused.written(r)
		written[i] = r.RecordID
	}
	w.owed.Written(written)
	w.audit = w.audit[len(b.Audit):]
}

// landed records that b is on the remote; called with mu held.
func (w *writer) landed(tip string, b reconciler.StatusBatch, upTo uint64) {
	w.tip = tip
	w.told(b)
	for i := range b.Units {
		// What changed again meanwhile stays dirty.
		if k := b.Units[i].Key; w.units.Get(k) != nil && equalJSON(w.units.Get(k), &b.Units[i]) {
			delete(w.dirty, k)
		}
	}
	for i := range b.Things {
		if k := b.Things[i].Key; w.things[k] != nil && equalJSON(w.things[k], &b.Things[i]) {
			delete(w.dirty, k)
		}
	}
	for _, k := range b.Gone {
		delete(w.gone, k)
	}
	w.reviews.landed(b)
	if w.put == upTo {
		clear(w.causes)
	}
	w.pushed, w.lastErr, w.tried = upTo, nil, nil
	w.tellRefused()
	w.release()
}

func (w *writer) failed(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastErr = err
	w.release()
	return err
}

// release wakes who waits for an attempt; called with mu held.
func (w *writer) release() {
	for _, ch := range w.wait {
		close(ch)
	}
	w.wait = nil
}

func equalJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

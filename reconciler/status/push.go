package status

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"berth/reconciler"
	"berth/schema/audit"
)

// maxPushRetry is the longest delay after a failed push.
const maxPushRetry = 30 * time.Second

// Run pushes changes until ctx ends, then once more. It returns ErrDeposed when
// another daemon has taken leadership.
func (w *Writer) Run(ctx context.Context) error {
	defer w.endTip()
	retry := time.Second
	for {
		select {
		case <-ctx.Done():
			return w.pushLast(ctx)
		case <-w.changed:
			t := time.NewTimer(w.delay())
			select {
			case <-t.C:
			case <-w.flushing:
			case <-ctx.Done():
			}
			t.Stop()
		case <-w.flushing:
		}
		if w.pushes.Wait(ctx) != nil { // ctx has ended, or ends before its turn
			continue
		}
		err := w.push(ctx)
		switch {
		case err == nil:
			retry = time.Second
		case errors.Is(err, ErrDeposed):
			return err
		case ctx.Err() == nil:
			w.o.Log.Warn("status push failed; changes are kept", "error", err, "retry_in", retry)
			w.waitAfterFailure(ctx, retry)
			retry = min(2*retry, maxPushRetry)
			signal(w.changed)
		}
	}
}

// pushLast pushes after the end of ctx.
func (w *Writer) pushLast(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err := w.push(ctx)
	for err == nil && !w.IsWritten() { // the first push may have made records
		err = w.push(ctx)
	}
	return err
}

// waitAfterFailure waits until a push may be tried again. An answer of the remote from before the failure does not count.
func (w *Writer) waitAfterFailure(ctx context.Context, retry time.Duration) {
	select {
	case <-w.answered:
	default:
	}
	select {
	case <-time.After(retry):
	case <-w.answered:
	case <-ctx.Done():
	}
}

// push writes what is pending, and takes over what other writers did to the branch
// meanwhile.
func (w *Writer) push(ctx context.Context) error {
	var conflict error // of the last try
	for range 5 {
		b, old, upTo, err := w.next()
		if err != nil || b == nil {
			return err
		}
		tip, err := w.o.Repo.WriteStatus(ctx, old, *b)
		w.o.OnPush(err)
		moved := errors.Is(err, reconciler.ErrConflict)
		if err != nil && (!moved || len(b.Events)+len(b.Audit) > 0) {
			w.remember(*b)
		}
		if moved || errors.Is(err, reconciler.ErrNotFound) { // or the mirror lost the old tip, which the branch has left
			conflict = err
			if err := w.rebase(ctx); err != nil {
				return w.failed(err)
			}
			continue
		}
		if err != nil {
			return w.failed(err)
		}
		w.landed(tip, *b, upTo)
		return nil // a change since then wakes Run
	}
	return w.failed(conflict) // another writer was faster each time
}

// next returns what is pending as a batch on top of old, with the count of changes
// in it; nil if nothing is pending.
func (w *Writer) next() (b *reconciler.StatusBatch, old string, upTo uint64, err error) {
	w.Decision.RLock()
	defer w.Decision.RUnlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deposed != nil {
		return nil, "", 0, w.deposed
	}
	w.audit.addOwed()
	if w.pushed == w.p.count {
		w.release()
		return nil, "", 0, nil
	}
	b = &reconciler.StatusBatch{
		Revision: w.rev, Events: slices.Clone(w.events), Audit: audit.Chain(head(w.rev), w.audit.records),
		Usage: slices.Clone(w.usage.days), Closings: slices.Clone(w.usage.closings),
		CorrelationIDs: slices.Sorted(maps.Keys(w.causes)),
	}
	b.Revision.Sequence += uint64(len(b.Events))
	if n := len(b.Audit); n > 0 {
		b.Revision.AuditSequence, b.Revision.AuditHead = b.Audit[n-1].Sequence, b.Audit[n-1].Hash
	}
	w.Statuses.addTo(b)
	w.Reviews.addTo(b)
	w.lastPush, w.p.urgent = w.o.Now(), false
	return b, w.tip.commit, w.count, nil
}

// remember keeps a batch that may have landed although its push failed: the answer
// was lost, and another writer may have pushed on top of it since. rebase finds
// out: a revision that counts new events or records is on the branch only then.
func (w *Writer) remember(b reconciler.StatusBatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.tried); n == 0 || !EqualJSON(w.tried[n-1].Revision, b.Revision) {
		w.tried = append(w.tried, reconciler.StatusBatch{Revision: b.Revision, Events: b.Events, Audit: b.Audit})
	}
}

// rebase continues from a tip that this writer did not write knowingly: a commit of
// its own whose answer was lost, a foreign commit, or one on top of the other.
// Statuses that differ from this writer's are overwritten. Events and audit records
// that are there already are not written again.
func (w *Writer) rebase(ctx context.Context) error {
	b, err := w.readBranch(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.checkLeader(b.tree.Revision); err != nil {
		return err
	}
	if b.tip != w.tip.commit {
		if own := slices.IndexFunc(w.tried,
			func(t reconciler.StatusBatch) bool { return EqualJSON(t.Revision, b.tree.Revision) }); own >= 0 {
			w.appended(w.tried[own])
		} else {
			w.o.Log.Warn("berth/status was moved by another writer; overwriting its statuses", "tip", b.tip)
		}
		w.audit.check(b.audit, head(w.rev))
		w.tip.set(b.tip)
		w.tried = nil
	} else if b.refused != nil {
		return b.refused // of this branch
	}
	w.rev.Sequence = max(w.rev.Sequence, b.tree.Revision.Sequence)
	w.Statuses.compare(b.tree)
	compare(&w.Reviews.changes, w.Reviews.of, b.tree.Reviews)
	return nil
}

// landed notes that b is on the remote.
func (w *Writer) landed(tip string, b reconciler.StatusBatch, upTo uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tip.set(tip)
	w.tried = nil
	w.appended(b)
	w.Statuses.written(b)
	w.Reviews.written(b)
	w.usage = pendingUsage{w.usage.days[len(b.Usage):], w.usage.closings[len(b.Closings):]}
	w.pending.written(upTo)
	w.audit.addDropped(w.rev.Commit)
}

// appended notes that the events and audit records of b are on the remote. The
// caller holds the lock.
func (w *Writer) appended(b reconciler.StatusBatch) {
	w.rev.Sequence = b.Revision.Sequence
	w.rev.AuditSequence, w.rev.AuditHead = b.Revision.AuditSequence, b.Revision.AuditHead
	w.events = w.p.events[len(b.Events):]
	w.logFirings(b.Events)
	w.audit.written(len(b.Audit))
}

package loop

import (
	"context"
	"time"

	"berth/schema/audit"
)

// nobodys is what is owed where nobody keeps anything.
type nobodys struct{}

func (nobodys) Records() []audit.Record { return nil }
func (nobodys) Written([]string)        {}

// auditTail is how many records at the end of the chain are looked at when the
// branch is taken over or was moved by somebody else: a fraction of a second's
// work. All of them, berth audit verify looks at.
const auditTail = 2000

// AuditOwed has what is owed written.
func (r *Reconciler) AuditOwed() {
	w := r.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	w.urgent = true
	w.changed()
}

// takeOwed takes up what is owed; called with mu held. What is chained is told of
// with mu held too, so nothing is taken up twice.
func (w *writer) takeOwed() { w.recordLocked(w.owed.Records()...) }

// tookOver looks at the audit log at a tip that this writer did not write, whose
// chain should end at head. What is owed and stands there already, as the
// daemon before was killed between writing it and knowing of it, is not written
// again. That the chain is broken is told, and does not end anything: what
// follows is chained to the last record Berth knows of, so the break stays to
// be seen.
func (w *writer) tookOver(tail []audit.Line, head audit.Head) {
	there := map[string]bool{}
	for _, l := range tail {
		there[l.RecordID] = l.Err == nil
	}
	var written []string
	for _, r := range w.owed.Records() {
		if there[r.RecordID] {
			written = append(written, r.RecordID)
		}
	}
	w.owed.Written(written)
	_, err := audit.VerifyTail(tail, head)
	w.onChain(err == nil)
	if err != nil {
		w.log.Error("the audit chain on berth/status is broken: somebody else changed it. Run berth audit verify, find out who pushed to the branch, and keep the commits of it that Berth did not write",
			"error", err, "known_sequence", head.Sequence, "known_hash", head.Hash)
	}
}

// tail reads what tookOver looks at.
func (w *writer) tail(ctx context.Context, tip string) ([]audit.Line, error) {
	var since time.Time
	for _, r := range w.owed.Records() {
		if since.IsZero() || r.OccurredAt.Before(since) {
			since = r.OccurredAt
		}
	}
	return w.repo.AuditTail(ctx, tip, since, auditTail)
}

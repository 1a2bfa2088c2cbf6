package status

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema/audit"
)

const (
	// pushesAtOnce is how many commits may follow each other at once: enough for a change of one
	// unit, of which each step waits for its record.
	pushesAtOnce = 5
	// maxWindow is the longest time between two commits that callers of Flush wait for.
	maxWindow = time.Second
)

// ErrDeposed: another daemon leads the estate; this one must stop.
var ErrDeposed = errors.New("another daemon leads this estate")

// Branch is the branch berth/status as a Writer uses it: a part of
// reconciler.Repo.
type Branch interface {
	Fetch(ctx context.Context) (reconciler.Tips, error)
	ReadStatus(ctx context.Context, commit string) (reconciler.StatusTree, error)
	WriteStatus(ctx context.Context, old string, b reconciler.StatusBatch) (tip string, err error)
	AuditTail(ctx context.Context, commit string, since time.Time, least int) ([]audit.Line, error)
}

// Options of a Writer. Repo, Log and Now are required.
type Options struct {
	Repo      Branch           // if it is a reconciler.EventReader too, LoadDeleted reads it
	URL       string           // where clients reach this daemon; "": unknown
	Window    time.Duration    // changes are gathered this long before a commit
	Retention time.Duration    // how long deleted instances are kept; 0: 90 days; negative: not at all
	Owed      reconciler.Owed  // keeps audit records until they are written; nil: nobody does
	OnPush    func(err error)  // called after each push; may be nil
	OnCheck   func(holds bool) // called after each check of the audit chain; may be nil
	Log       *slog.Logger
	Now       func() time.Time
}

// Writer is the one writer of berth/status. The embedded Statuses and the Reviews
// record what the next commit holds; Run pushes it.
//
// An audit record or an announced event is recorded once, together with the
// decision it belongs to. After a crash before the commit the decision is made
// again, and so are its records.
type Writer struct {
	o Options
	*Statuses
	Reviews *Reviews
	Deleted *DeletedInstances

	// Decision is held while a caller records what is true only together, such as a
	// decision and the statuses that follow from it. A commit and a reader of
	// several values hold it shared, so that both get all of a decision or nothing:
	// after a crash, half a decision on the branch would make the next daemon undo
	// that half. It is locked before pending.mu.
	Decision sync.RWMutex

	*pending
	pushes *rate.Limiter // allows one commit a window, or a maxWindow, after a burst of pushesAtOnce
	audit  *auditLog
	usage  pendingUsage
	leader string // random identity of this daemon; it makes each leadership unique
	tip    tip    // of the branch
	rev    reconciler.Revision
	// tried are the batches, oldest first, whose push from the present tip failed in
	// a way that may hide a success. Batches of equal revisions have equal events and
	// records; one of them is kept.
	tried []reconciler.StatusBatch
}

// NewWriter returns a Writer, which may record and must Lead before it pushes.
func NewWriter(o Options) *Writer {
	if o.OnPush == nil {
		o.OnPush = func(error) {}
	}
	if o.OnCheck == nil {
		o.OnCheck = func(bool) {}
	}
	p := newPending(o.Window, o.Now)
	deleted := newDeletedInstances(o.Retention, o.Now)
	return &Writer{
		o: o, Statuses: newStatuses(p, deleted), Reviews: newReviews(p), Deleted: deleted, pending: p, leader: rand.Text(),
		tip:    tip{moved: make(chan struct{})},
		pushes: rate.NewLimiter(rate.Every(min(o.Window, maxWindow)), pushesAtOnce),
		audit:  &auditLog{p: p, ids: map[string]bool{}, denials: map[string]bool{}, owed: o.Owed, onCheck: o.OnCheck, log: o.Log},
	}
}

// Lead reads the branch and raises its epoch by compare-and-swap. From then on
// this daemon leads the estate until another one does the same. The commit names
// the leader's identity, so two daemons never make the same commit and mistake the
// other's push for their own.
func (w *Writer) Lead(ctx context.Context) error {
	for {
		b, err := w.readBranch(ctx)
		if err != nil {
			return fmt.Errorf("take leadership on berth/status: %w", err)
		}
		for _, warning := range b.tree.Warnings {
			w.o.Log.Warn("unreadable file on berth/status skipped", "warning", warning)
		}
		// Hosts refuse an epoch below the last one they saw, and an equal one of another
		// leader. The time in milliseconds is above every earlier epoch even after the
		// branch was lost.
		rev := bounded(b.tree.Revision) // another program may have written it
		rev.Epoch, rev.Leader, rev.LeaderURL = max(rev.Epoch+1, uint64(w.o.Now().UnixMilli())), w.leader, w.o.URL
		tip, err := w.o.Repo.WriteStatus(ctx, b.tip, reconciler.StatusBatch{Revision: rev})
		if errors.Is(err, reconciler.ErrConflict) {
			if b.refused == nil {
				continue // another daemon took leadership meanwhile
			}
			err = b.refused // the mirror may lack this very branch
		}
		if err != nil {
			return fmt.Errorf("take leadership on berth/status: %w", err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.tip.set(tip)
		w.rev, w.lastPush = rev, w.o.Now()
		w.Statuses.load(b.tree)
		w.Reviews.load(b.tree.Reviews)
		w.audit.check(b.audit, head(rev))
		w.audit.addOwed()
		return nil
	}
}

// LeaderURL reads where clients reach the daemon that took leadership last; "": it did not say.
func (w *Writer) LeaderURL(ctx context.Context) (string, error) {
	b, err := w.readBranch(ctx)
	return b.tree.Revision.LeaderURL, err
}

// branchState is the branch as another writer may have left it.
type branchState struct {
	tip     string
	tree    reconciler.StatusTree
	audit   []audit.Line // the end of the audit log
	refused error        // why the mirror did not take over some branch, perhaps this one
}

func (w *Writer) readBranch(ctx context.Context) (b branchState, err error) {
	tips, err := w.o.Repo.Fetch(ctx)
	if errors.Is(err, reconciler.ErrRewritten) || errors.Is(err, reconciler.ErrUnreadable) {
		b.refused, err = err, nil
	}
	if err != nil {
		return b, err
	}
	b.tip = tips.Status
	if b.tree, err = w.readTree(ctx, b.tip); err != nil {
		return b, err
	}
	b.audit, err = w.o.Repo.AuditTail(ctx, b.tip, w.audit.oldestOwed(), auditTail)
	return b, err
}

func (w *Writer) readTree(ctx context.Context, tip string) (reconciler.StatusTree, error) {
	tree, err := w.o.Repo.ReadStatus(ctx, tip)
	if err == nil {
		err = readable(tree)
	}
	return tree, err
}

// head returns the last audit record that a revision counts.
func head(rev reconciler.Revision) audit.Head {
	return audit.Head{Sequence: rev.AuditSequence, Hash: rev.AuditHead}
}

// Fetched takes the tip of the branch that a fetch returned. It returns ErrDeposed
// if another leader wrote it. A push that waits for the remote is tried at once.
func (w *Writer) Fetched(ctx context.Context, tip string) error {
	signal(w.answered)
	w.mu.Lock()
	known := tip == "" || tip == w.tip.commit
	w.mu.Unlock()
	if known {
		return nil
	}
	tree, err := w.readTree(ctx, tip)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.checkLeader(tree.Revision)
}

// checkLeader returns ErrDeposed, and ends all writing, if rev names another
// leader with the same or a later epoch. A revision of the same epoch without a
// leader was edited by hand and is overwritten. The caller holds the lock.
func (w *Writer) checkLeader(rev reconciler.Revision) error {
	if rev.Epoch < w.rev.Epoch || rev.Epoch == w.rev.Epoch && (rev.Leader == "" || rev.Leader == w.leader) {
		return nil
	}
	return w.depose(fmt.Errorf("%w: %s names leader %s with epoch %d, and this daemon is %s with epoch %d; run one daemon for an estate",
		ErrDeposed, reconciler.BranchStatus, cmp.Or(rev.Leader, "(unnamed)"), rev.Epoch, w.leader, w.rev.Epoch))
}

// Revision returns what revision.yaml says, or will say.
func (w *Writer) Revision() reconciler.Revision {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.rev
	r.Held = slices.Clone(r.Held)
	return r
}

// Revise changes what revision.yaml says. Epoch, leader, event sequence and audit
// head stay the Writer's.
func (w *Writer) Revise(change func(*reconciler.Revision)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := w.rev
	next.Held = slices.Clone(w.rev.Held)
	change(&next)
	next.Epoch, next.Leader, next.LeaderURL, next.Sequence = w.rev.Epoch, w.rev.Leader, w.rev.LeaderURL, w.rev.Sequence
	next.AuditSequence, next.AuditHead = w.rev.AuditSequence, w.rev.AuditHead
	if EqualJSON(next, w.rev) { // the common case; bounded costs more
		return
	}
	if next = bounded(next); !EqualJSON(next, w.rev) {
		w.rev = next
		w.change("")
	}
}

// Announce adds events that no status makes, unless they wait to be written
// already.
func (w *Writer) Announce(events ...plan.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := make(map[string]bool, len(w.events))
	for _, e := range w.events {
		waiting[e.EventID] = true
	}
	for _, e := range events {
		if !waiting[e.EventID] {
			waiting[e.EventID] = true
			w.addEvents(e)
			w.change(e.CorrelationID)
		}
	}
}

// Record adds audit records, unless they wait to be written already. It fills in a
// missing record ID and time.
func (w *Writer) Record(records ...audit.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.audit.add(records...)
}

// RecordExternal is Record for requests from outside the loop, such as of the read
// API. The number of denials that wait to be written is bounded.
func (w *Writer) RecordExternal(records ...audit.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.audit.addExternal(records...)
}

// RecordOwed has owed records written soon.
func (w *Writer) RecordOwed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.urgent = true
	w.change("")
}

// Leadership returns the epoch and the leader that this daemon acts under.
func (w *Writer) Leadership() (epoch uint64, leader string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rev.Epoch, w.leader
}

package status

import (
	"fmt"
	"log/slog"
	"time"

	"berth/reconciler"
	"berth/schema/audit"
)

const (
	// auditTail is how many records at the end of the audit log are verified when
	// another writer moved the branch: a fraction of a second's work. Only berth
	// audit verify checks all of them.
	auditTail = 2000
	// maxDenials bounds the external denials that wait to be written.
	maxDenials = 1000
)

// auditLog holds the audit records that are not on the remote yet. Records are
// chained only when they are written, after the last record that this daemon wrote
// or, when it took leadership, found. So a repeated push neither forks the chain
// nor repeats a record, and a record that another program added to the branch
// never becomes part of the chain. The lock of pending guards it.
type auditLog struct {
	p       *pending
	records []audit.Record  // without sequence and hash, in order
	ids     map[string]bool // of records
	owed    reconciler.Owed // nil: nobody owes records
	// denials are the IDs of the external denials among records, and dropped counts
	// those beyond maxDenials.
	denials map[string]bool
	dropped int
	onCheck func(holds bool) // called after each check of the chain
	log     *slog.Logger
}

// add adds records, unless they wait already. It fills in a missing ID and time.
func (l *auditLog) add(records ...audit.Record) {
	for _, r := range records {
		if r.RecordID == "" {
			r.RecordID = r.ID()
		}
		if l.ids[r.RecordID] {
			continue
		}
		l.ids[r.RecordID] = true
		if r.OccurredAt.IsZero() {
			r.OccurredAt = l.p.now().UTC()
		}
		l.records = append(l.records, r)
		l.p.change(r.CorrelationID)
	}
}

// addExternal adds records of requests from outside the loop. Any user with a token
// can cause any number of denials, so at most maxDenials of them wait. The rest is
// counted.
func (l *auditLog) addExternal(records ...audit.Record) {
	for _, r := range records {
		if r.RecordID == "" {
			r.RecordID = r.ID()
		}
		if r.Verdict == audit.Denied && !l.denials[r.RecordID] {
			if len(l.denials) >= maxDenials {
				l.dropped++
				continue
			}
			l.denials[r.RecordID] = true
		}
		l.add(r)
	}
}

// addDropped records how many external denials were dropped.
func (l *auditLog) addDropped(commit string) {
	if l.dropped == 0 {
		return
	}
	why := fmt.Sprintf("%d more requests to admin paths were denied while berth/status could not be written; Berth's log names the users",
		l.dropped)
	l.add(audit.Record{
		OccurredAt: l.p.now().UTC(), Author: audit.Author{Actor: "berth"}, Action: "audit.dropped",
		Outcome: audit.Outcome{Verdict: audit.Denied, Reason: why}, Change: audit.Change{Commit: commit},
	})
	l.dropped = 0
}

// addOwed adds the records that others keep until they are written.
func (l *auditLog) addOwed() {
	if l.owed != nil {
		l.add(l.owed.Records()...)
	}
}

// oldestOwed returns when the oldest owed record was made; zero if none is owed.
func (l *auditLog) oldestOwed() time.Time {
	var oldest time.Time
	if l.owed != nil {
		for _, r := range l.owed.Records() {
			if oldest.IsZero() || r.OccurredAt.Before(oldest) {
				oldest = r.OccurredAt
			}
		}
	}
	return oldest
}

// written removes the first n records, which are on the remote.
func (l *auditLog) written(n int) {
	ids := make([]string, n)
	for i, r := range l.records[:n] {
		delete(l.ids, r.RecordID)
		delete(l.denials, r.RecordID)
		ids[i] = r.RecordID
	}
	if l.owed != nil {
		l.owed.Written(ids)
	}
	l.records = l.records[n:]
}

// check verifies the end of the audit log on a branch that another writer moved,
// whose chain should end at head. Owed records found there are settled: the daemon
// before wrote them and stopped before it knew. A broken chain is logged and
// stops nothing: the next record follows the last one that Berth knows, so the
// break stays visible.
func (l *auditLog) check(tail []audit.Line, head audit.Head) {
	if l.owed != nil {
		found := map[string]bool{}
		for _, line := range tail {
			found[line.RecordID] = line.Err == nil
		}
		var written []string
		for _, r := range l.owed.Records() {
			if found[r.RecordID] {
				written = append(written, r.RecordID)
			}
		}
		l.owed.Written(written)
	}
	_, err := audit.VerifyTail(tail, head)
	l.onCheck(err == nil)
	if err != nil {
		l.log.Error("audit chain on berth/status is broken: another program changed it; run berth audit verify, find who pushed to the "+
			"branch, and keep the commits that Berth did not write",
			"error", err, "known_sequence", head.Sequence, "known_hash", head.Hash)
	}
}

package status

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/schema/audit"
)

// keeper keeps owed records until they are written.
type keeper struct{ owed []audit.Record }

func (k *keeper) Records() []audit.Record { return k.owed }

func (k *keeper) Written(ids []string) {
	for _, id := range ids {
		for i, r := range k.owed {
			if r.RecordID == id {
				k.owed = append(k.owed[:i:i], k.owed[i+1:]...)
				break
			}
		}
	}
}

// Owed records are written once and in order, also over crashes of the writer.
func TestOwedRecordsAreWrittenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, owed := &statusRepo{}, &keeper{}
		owe := func(ids ...string) {
			for _, id := range ids {
				owed.owed = append(owed.owed, audit.Record{RecordID: id, OccurredAt: time.Now()})
			}
		}
		begin := func() (*Writer, func() error) {
			return start(t, NewWriter(Options{Repo: repo, Window: time.Second, Owed: owed, Log: testLog(t), Now: time.Now}))
		}
		owe("before")
		w, stop := begin()
		time.Sleep(2 * time.Second)
		require.Empty(t, owed.owed)

		repo.setDown(errors.New("remote is down"))
		owe("a", "b")
		w.RecordOwed()
		time.Sleep(10 * time.Second)
		require.Len(t, owed.owed, 2)
		require.Error(t, stop())

		repo.setDown(nil)
		_, stop = begin()
		time.Sleep(2 * time.Second)
		require.Empty(t, owed.owed)
		require.NoError(t, stop())

		owe("a", "c") // a is on the branch, but the keeper stopped before it knew
		_, stop = begin()
		time.Sleep(2 * time.Second)
		require.NoError(t, stop())
		require.Empty(t, owed.owed)

		var written []string
		for _, b := range repo.batches {
			for _, a := range b.Audit {
				written = append(written, a.RecordID)
			}
		}
		require.Equal(t, []string{"before", "a", "b", "c"}, written)
	})
}

// The writer reports a foreign change of the audit chain at the start and after a move
// of the branch. Later records do not hide the break.
func TestBrokenAuditChainIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &statusRepo{}
		w, stop := startWriter(t, repo, time.Second)
		for _, id := range []string{"a", "b", "c"} {
			w.Record(audit.Record{RecordID: id, Outcome: audit.Outcome{Reason: "as it was"}})
		}
		require.NoError(t, w.Flush(t.Context()))
		require.NoError(t, stop())

		var isBroken bool
		begin := func() (*Writer, func() error) {
			return start(t, NewWriter(Options{Repo: repo, Window: time.Second, OnCheck: func(holds bool) { isBroken = !holds },
				Log: testLog(t), Now: time.Now}))
		}
		w, stop = begin()
		require.False(t, isBroken)

		// Another program edits the second record and moves the branch.
		repo.mu.Lock()
		repo.batches[1].Audit[1].Reason = "nothing happened"
		repo.mu.Unlock()
		_, err := repo.WriteStatus(t.Context(), repo.id(), reconciler.StatusBatch{Revision: repo.trees[repo.tip-1].Revision})
		require.NoError(t, err)
		w.Record(audit.Record{RecordID: "d"})
		require.NoError(t, w.Flush(t.Context()))
		require.True(t, isBroken)
		require.NoError(t, stop())

		isBroken = false
		_, stop = begin()
		require.True(t, isBroken, "the next daemon reports the break too")
		require.NoError(t, stop())

		lines, err := repo.AuditTail(t.Context(), "", time.Time{}, 0)
		require.NoError(t, err)
		require.Len(t, lines, 4)
		_, err = audit.VerifyTail(lines, audit.Head{Sequence: lines[3].Sequence, Hash: lines[3].Hash})
		require.ErrorContains(t, err, "record 2: its hash is not that of its contents")
		_, err = audit.VerifyTail(lines[2:], audit.Head{Sequence: lines[3].Sequence, Hash: lines[3].Hash})
		require.NoError(t, err, "later records follow the last known record")
	})
}

// While the remote is down, external denials wait up to a limit and are counted beyond
// it. All decisions and actions are kept. The records and the count are written after
// the remote recovers.
func TestExternalDenialsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &statusRepo{}
		w, stop := startWriter(t, repo, time.Second)
		repo.setDown(errors.New("remote is down"))
		const n = 3 * maxDenials
		for i := range n {
			w.RecordExternal(audit.Record{Author: audit.Author{Actor: "eve"}, Action: "api.read",
				Outcome: audit.Outcome{Verdict: audit.Denied}, CorrelationID: fmt.Sprint("d", i)})
			w.RecordExternal(audit.Record{Author: audit.Author{Actor: "otto"}, Action: "api.read",
				Outcome: audit.Outcome{Verdict: audit.Allowed}, CorrelationID: fmt.Sprint("a", i)})
			w.Record(audit.Record{Author: audit.Author{Actor: "ada"}, Action: "document.added",
				Outcome: audit.Outcome{Verdict: audit.Denied}, CorrelationID: fmt.Sprint("c", i)})
		}
		// already waiting
		w.RecordExternal(audit.Record{Author: audit.Author{Actor: "eve"}, Action: "api.read", Outcome: audit.Outcome{Verdict: audit.Denied},
			CorrelationID: "d0"})
		repo.setDown(nil)
		require.NoError(t, w.Fetched(t.Context(), repo.id()))
		require.NoError(t, w.Flush(t.Context()))
		require.NoError(t, w.Flush(t.Context()))
		w.RecordExternal(audit.Record{Author: audit.Author{Actor: "eve"}, Action: "api.read", Outcome: audit.Outcome{Verdict: audit.Denied},
			CorrelationID: "again"})
		require.NoError(t, stop())

		by, dropped := map[string]int{}, ""
		for _, b := range repo.batches {
			for _, a := range b.Audit {
				if by[a.Actor]++; a.Actor == "berth" {
					dropped = a.Reason
				}
			}
		}
		require.Equal(t, map[string]int{"eve": maxDenials + 1, "otto": n, "ada": n, "berth": 1}, by)
		require.Contains(t, dropped, fmt.Sprint(n-maxDenials, " more requests"))
		require.Empty(t, w.audit.ids)
		require.Empty(t, w.audit.denials)
	})
}

// The cost of one record does not depend on the number of waiting records.
func TestRecordCostDoesNotDependOnWaitingRecords(t *testing.T) {
	w := newWriter(t, &statusRepo{}, time.Second)
	same := audit.Record{RecordID: "same", OccurredAt: time.Unix(1, 0)}
	w.Record(same)
	few := testing.AllocsPerRun(10, func() { w.Record(same) })
	for i := range 10_000 {
		w.Record(audit.Record{RecordID: fmt.Sprint(i)})
	}
	require.Equal(t, few, testing.AllocsPerRun(10, func() { w.Record(same) }))
	require.Len(t, w.audit.records, 10_001)
}

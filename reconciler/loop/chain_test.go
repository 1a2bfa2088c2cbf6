package loop

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/schema/audit"
)

// keeper owes records until they are written.
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

// What is owed is written once, in order, whatever becomes of the writer.
func TestWhatIsOwedIsWrittenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, owed := &statusRepo{}, &keeper{}
		owe := func(ids ...string) {
			for _, id := range ids {
				owed.owed = append(owed.owed, audit.Record{RecordID: id, OccurredAt: time.Now()})
			}
		}
		begin := func() (*Reconciler, func() error) {
			r := &Reconciler{writer: newWriter(repo, time.Second, testLog(t), time.Now)}
			r.writer.owed = owed
			require.NoError(t, r.writer.lead(t.Context()))
			ended := make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { ended <- r.writer.run(ctx) }()
			return r, func() error { cancel(); return <-ended }
		}
		owe("before")
		r, stop := begin()
		time.Sleep(2 * time.Second)
		require.Empty(t, owed.owed)

		repo.setDown(errors.New("remote is down"))
		owe("a", "b")
		r.AuditOwed()
		time.Sleep(10 * time.Second)
		require.Len(t, owed.owed, 2)
		require.Error(t, stop())

		repo.setDown(nil)
		_, stop = begin()
		time.Sleep(2 * time.Second)
		require.Empty(t, owed.owed)
		require.NoError(t, stop())

		owe("a", "c") // a is written, which whoever keeps it was not told before it was killed
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

// A chain that somebody else changed is told of when its end is looked at, at the
// start and when the branch was moved; what follows does not hide the break.
func TestABrokenChainIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &statusRepo{}
		w, stop := startWriter(t, repo, time.Second)
		for _, id := range []string{"a", "b", "c"} {
			w.record(audit.Record{RecordID: id, Reason: "as it was"})
		}
		require.NoError(t, w.flush(t.Context()))
		require.NoError(t, stop())

		m := NewMetrics(nil)
		begin := func() (*writer, func() error) {
			w := newWriter(repo, time.Second, testLog(t), time.Now)
			w.onChain = m.chain
			require.NoError(t, w.lead(t.Context()))
			ended := make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { ended <- w.run(ctx) }()
			return w, func() error { cancel(); return <-ended }
		}
		w, stop = begin()
		require.Zero(t, testutil.ToFloat64(m.chainBroken))

		// Somebody edits the second record, and moves the branch.
		repo.mu.Lock()
		repo.batches[1].Audit[1].Reason = "nothing happened"
		repo.mu.Unlock()
		_, err := repo.WriteStatus(t.Context(), repo.id(), reconciler.StatusBatch{Revision: repo.trees[repo.tip-1].Revision})
		require.NoError(t, err)
		w.record(audit.Record{RecordID: "d"})
		require.NoError(t, w.flush(t.Context()))
		require.Equal(t, 1.0, testutil.ToFloat64(m.chainBroken))
		require.NoError(t, stop())

		m.chain(true)
		_, stop = begin()
		require.Equal(t, 1.0, testutil.ToFloat64(m.chainBroken), "the next daemon sees it too")
		require.NoError(t, stop())

		lines, err := repo.AuditTail(t.Context(), "", time.Time{}, 0)
		require.NoError(t, err)
		require.Len(t, lines, 4)
		_, err = audit.VerifyTail(lines, audit.Head{Sequence: lines[3].Sequence, Hash: lines[3].Hash})
		require.ErrorContains(t, err, "record 2: its hash is not that of its contents")
		_, err = audit.VerifyTail(lines[2:], audit.Head{Sequence: lines[3].Sequence, Hash: lines[3].Hash})
		require.NoError(t, err, "the rest follows what was there before")
	})
}

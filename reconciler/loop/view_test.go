package loop

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
)

// known is a Reconciler that knows n units, without anything that runs.
func known(t *testing.T, n int) *Reconciler {
	r := New(Options{Repo: &statusRepo{}, Log: testLog(t)})
	require.NoError(t, r.writer.lead(t.Context()))
	for i := range n {
		require.True(t, put(r.writer, plan.Status{Key: schema.InstanceKey("physics", "lhc", fmt.Sprint("u", i)), Phase: plan.PhaseRunning}))
	}
	r.state = &reconciler.State{Main: "m1"}
	close(r.ready)
	return r
}

// Who looks costs nothing as long as nothing changes; then one view is made,
// and what somebody holds already stays as it was.
func TestAViewIsMadeOncePerChange(t *testing.T) {
	r := known(t, 1000)
	look := func() View {
		v, ok := r.View()
		require.True(t, ok)
		return v
	}
	made := func() *madeView {
		look()
		return r.views.last.Load()
	}
	first := look()
	require.Equal(t, 1000, first.Units.Len())
	one := made()
	require.Zero(t, testing.AllocsPerRun(100, func() { r.View() }))

	r.Audit(audit.Record{Action: "api.read"}) // changes nothing that is shown
	require.Same(t, one, made())

	other := schema.Key{Kind: schema.KindNode, Name: "n"}
	put(r.writer, phase(plan.PhaseDeleted))
	for _, c := range []struct {
		what   string
		change func()
	}{
		{"a unit less", func() { r.writer.forget(train) }},
		{"a unit more", func() { put(r.writer, phase(plan.PhaseRunning)) }},
		{"a phase", func() { put(r.writer, phase(plan.PhaseFailed)) }},
		{"a thing more", func() { r.writer.setThing(nil, plan.ThingStatus{Key: other, Phase: "ready"}) }},
		{"its phase", func() { r.writer.setThing(r.writer.thing(other), plan.ThingStatus{Key: other, Phase: "lost"}) }},
		{"a thing less", func() { r.writer.forgetThing(r.writer.thing(other)) }},
		{"a decision", func() { r.mu.Lock(); r.state = &reconciler.State{Main: "m2"}; r.mu.Unlock() }},
	} {
		before := made()
		c.change()
		after := made()
		require.NotSame(t, before, after, c.what)
		require.Same(t, after, made(), c.what)
	}
	require.Equal(t, 1000, first.Units.Len(), "what was given is not changed")
	require.Equal(t, "m1", first.Main)
	require.Equal(t, "m2", look().Main)
}

// Whoever looks while decisions are made sees none by halves.
func TestAViewIsOfOneDecision(t *testing.T) {
	r := known(t, 10)
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				if v, _ := r.View(); v.Units.Get(train) != nil && v.Units.Get(train).Revision != v.Main {
					t.Errorf("%s in the view of %s", v.Units.Get(train).Revision, v.Main)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i := range 500 {
		s, main := phase(plan.PhaseRunning), fmt.Sprint(i)
		s.Revision = main
		r.writer.whole.Lock()
		put(r.writer, s)
		r.mu.Lock()
		r.state = &reconciler.State{Main: main}
		r.mu.Unlock()
		r.writer.whole.Unlock()
	}
	close(done)
	wg.Wait()
}

// While the remote is down, what anybody can have denied piles up to a bound and
// is counted beyond it; decisions and effects are kept, however many. All of it
// is told when the remote is back.
func TestDenialsFromOutsideAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &statusRepo{}
		w, stop := startWriter(t, repo, time.Second)
		r := &Reconciler{writer: w}
		repo.setDown(errors.New("remote is down"))
		const n = 3 * maxRefused
		for i := range n {
			r.Audit(audit.Record{Actor: "eve", Action: "api.read", Verdict: audit.Denied, CorrelationID: fmt.Sprint("d", i)})
			r.Audit(audit.Record{Actor: "otto", Action: "api.read", Verdict: audit.Allowed, CorrelationID: fmt.Sprint("a", i)})
			w.record(audit.Record{Actor: "ada", Action: "document.added", Verdict: audit.Denied, CorrelationID: fmt.Sprint("c", i)})
		}
		r.Audit(audit.Record{Actor: "eve", Action: "api.read", Verdict: audit.Denied, CorrelationID: "d0"}) // waits already
		repo.setDown(nil)
		require.NoError(t, w.fetched(t.Context(), repo.id()))
		require.NoError(t, w.flush(t.Context()))
		require.NoError(t, w.flush(t.Context()))
		r.Audit(audit.Record{Actor: "eve", Action: "api.read", Verdict: audit.Denied, CorrelationID: "again"})
		require.NoError(t, stop())

		by, dropped := map[string]int{}, ""
		for _, b := range repo.batches {
			for _, a := range b.Audit {
				if by[a.Actor]++; a.Actor == itself {
					dropped = a.Reason
				}
			}
		}
		require.Equal(t, map[string]int{"eve": maxRefused + 1, "otto": n, "ada": n, itself: 1}, by)
		require.Contains(t, dropped, fmt.Sprint(n-maxRefused, " more uses"))
		require.Empty(t, w.waiting)
		require.Empty(t, w.refused.waiting)
	})
}

// What one record costs does not grow with what waits.
func TestARecordCostsTheSameHoweverManyWait(t *testing.T) {
	w := newWriter(&statusRepo{}, time.Second, testLog(t), time.Now)
	same := audit.Record{RecordID: "same", OccurredAt: time.Unix(1, 0)}
	w.record(same)
	few := testing.AllocsPerRun(10, func() { w.record(same) })
	for i := range 10_000 {
		w.record(audit.Record{RecordID: fmt.Sprint(i)})
	}
	require.Equal(t, few, testing.AllocsPerRun(10, func() { w.record(same) }))
	require.Len(t, w.audit, 10_001)
}

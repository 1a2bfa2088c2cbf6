package loop

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
)

// View is what the loop knows at one moment, for those who show it: one
// decision with what follows from it, and how everything is. Immutable.
type View struct {
	Main, InForce string // commits: the one of main that was decided, and what came of it
	Desired       *schema.Desired
	Effective     *schema.Effective
	Held          []plan.Held
	Units         plan.Memory
	Things        map[schema.Key]*plan.ThingStatus
	// Dates are when a document came to main, and when it became what it is as this
	// blob, as the commits say that brought them; the zero time where that is not
	// known. It goes on to learn.
	Dates func(path, blob string) (created, updated time.Time)
	// Deleted is the instance of a project that was deleted last, of those with an
	// id or name, within the retention; false: there was none. It goes on to learn.
	Deleted func(tenant, project, id string) (plan.DeletedInstance, bool)
}

// views keeps the View that was made last, so that who only looks copies
// nothing: it is made anew when something in it has changed, by the first who
// asks, once.
type views struct {
	mu   sync.Mutex // held while one is made
	last atomic.Pointer[madeView]
}

// madeView is a View and what it was made of.
type madeView struct {
	View
	st    *reconciler.State
	moved uint64 // writer.moved
}

// View is what is known now; false before it is known what is in force.
func (r *Reconciler) View() (View, bool) {
	if !r.isReady() {
		return View{}, false
	}
	if v := r.fresh(); v != nil {
		return v.View, true
	}
	r.views.mu.Lock()
	defer r.views.mu.Unlock()
	if v := r.fresh(); v != nil { // somebody else made it meanwhile
		return v.View, true
	}
	w := r.writer
	w.whole.RLock()
	defer w.whole.RUnlock()
	st := r.current()
	if st == nil {
		return View{}, false
	}
	w.mu.Lock()
	v := &madeView{View{
		Main: st.Main, InForce: st.InForce, Desired: st.Desired, Effective: st.Effective, Held: st.Held,
		Units: w.units, Things: w.thingsShown(), Dates: r.dates.find, Deleted: r.deletions.find,
	}, st, w.moved.Load()}
	w.mu.Unlock()
	r.views.last.Store(v)
	return v.View, true
}

// thingsShown is a copy of what is known of things, the same one until one of
// them changes; called with mu held.
func (w *writer) thingsShown() map[schema.Key]*plan.ThingStatus {
	if w.copied == nil {
		w.copied = maps.Clone(w.things)
	}
	return w.copied
}

// fresh is the View made last if it is still so, else nil. A decision changes
// units before the state, so that neither half of one is taken for the whole.
func (r *Reconciler) fresh() *madeView {
	st := r.current()
	if v := r.views.last.Load(); v != nil && v.st == st && v.moved == r.writer.moved.Load() {
		return v
	}
	return nil
}

// Audit records what was decided outside the loop, such as by the read API. While
// the remote is down, what was denied there piles up to a bound and is counted
// beyond it: anybody with a token can make as many of these as he likes.
func (r *Reconciler) Audit(records ...audit.Record) {
	w := r.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range records {
		if one.Verdict != audit.Denied || w.refused.take(&one) {
			w.recordLocked(one)
		}
	}
}

// maxRefused is how many denials from outside the loop wait to be written, at
// most.
const maxRefused = 1000

// refused are the denials from outside the loop: by id those that wait to be
// written, and how many were dropped. Guarded by the writer's mu.
type refused struct {
	waiting map[string]bool
	dropped int
}

// take says whether there is room for r.
func (f *refused) take(r *audit.Record) bool {
	if r.RecordID == "" {
		r.RecordID = r.ID()
	}
	if !f.waiting[r.RecordID] && len(f.waiting) >= maxRefused {
		f.dropped++
		return false
	}
	if f.waiting == nil {
		f.waiting = map[string]bool{}
	}
	f.waiting[r.RecordID] = true
	return true
}

func (f *refused) written(r audit.Record) { delete(f.waiting, r.RecordID) }

// tellRefused records how many denials were dropped, once the remote takes
// records again; called with mu held.
func (w *writer) tellRefused() {
	n := w.refused.dropped
	if n == 0 {
		return
	}
	w.refused.dropped = 0
	w.recordLocked(audit.Record{
		Actor: itself, Action: "audit.dropped", Verdict: audit.Denied, Commit: w.rev.Commit, OccurredAt: w.now().UTC(),
		Reason: fmt.Sprintf("%d more uses of admin paths were denied while berth/status could not be written: who, is in Berth's log", n),
	})
}

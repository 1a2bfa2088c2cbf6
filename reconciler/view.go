package reconciler

import (
	"maps"
	"sync"
	"sync/atomic"

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
	st    *state
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
		Main: st.main, InForce: st.inForce, Desired: st.desired, Effective: st.effective, Held: st.held,
		Units: maps.Clone(w.units), Things: maps.Clone(w.things),
	}, st, w.moved.Load()}
	w.mu.Unlock()
	r.views.last.Store(v)
	return v.View, true
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

// Audit records what was decided outside the loop, such as by the read API.
func (r *Reconciler) Audit(records ...audit.Record) { r.writer.record(records...) }

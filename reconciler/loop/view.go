package loop

import (
	"sync"
	"sync/atomic"

	"berth/reconciler"
	"berth/reconciler/plan"
)

// views caches the last View, so that a reader copies nothing: the first reader
// after a change makes a new one.
type views struct {
	mu   sync.Mutex // held while a View is made
	last atomic.Pointer[cachedView]
}

// cachedView is a View and the versions of its inputs.
type cachedView struct {
	plan.View
	st      *reconciler.State
	version uint64 // of the statuses
}

// View returns the current view; false before the state in force is known.
func (r *Reconciler) View() (plan.View, bool) {
	if !r.inForce.known() {
		return plan.View{}, false
	}
	if v := r.freshView(); v != nil {
		return v.View, true
	}
	r.views.mu.Lock()
	defer r.views.mu.Unlock()
	if v := r.freshView(); v != nil { // another reader made it meanwhile
		return v.View, true
	}
	r.status.Decision.RLock()
	defer r.status.Decision.RUnlock()
	st := r.inForce.current()
	if st == nil {
		return plan.View{}, false
	}
	units, resources, version := r.status.Snapshot()
	v := &cachedView{plan.View{
		Main: st.Main, InForce: st.InForce, Desired: st.Desired, Effective: st.Effective, Held: st.Held,
		Units: units, Things: resources, Dates: r.dates.find, Deleted: r.status.Deleted.Find,
	}, st, version}
	r.views.last.Store(v)
	return v.View, true
}

// freshView returns the cached View if nothing changed since, or nil. A decision
// changes units before it replaces the state, so half a decision is never fresh.
func (r *Reconciler) freshView() *cachedView {
	st := r.inForce.current()
	if v := r.views.last.Load(); v != nil && v.st == st && v.version == r.status.Version() {
		return v
	}
	return nil
}

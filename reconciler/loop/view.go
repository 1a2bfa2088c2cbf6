package loop

import (
	"sync"
	"sync/atomic"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// View is a consistent view for the read API: one decision, and the statuses of all
// resources. Immutable.
type View struct {
	Main, InForce string // commits: the decided one of main, and the one of berth/in-force
	Desired       *schema.Desired
	Effective     *schema.Effective
	Held          []schema.Held
	Units         plan.Memory
	Things        map[schema.Key]*plan.ThingStatus
	// Dates returns the time when a document was added to main, and when it got the
	// content of this blob, from the dates of the commits; the zero time if unknown. It is
	// not frozen: the dates are read in the background.
	Dates func(path, blob string) (created, updated time.Time)
	// Deleted returns the last deleted instance of a project with that ID or name within
	// the retention, or false. It is not frozen.
	Deleted func(tenant, project, id string) (plan.DeletedInstance, bool)
}

// views caches the last View, so that a reader copies nothing: the first reader
// after a change makes a new one.
type views struct {
	mu   sync.Mutex // held while a View is made
	last atomic.Pointer[cachedView]
}

// cachedView is a View and the versions of its inputs.
type cachedView struct {
	View
	st      *reconciler.State
	version uint64 // of the statuses
}

// View returns the current view; false before the state in force is known.
func (r *Reconciler) View() (View, bool) {
	if !r.inForce.known() {
		return View{}, false
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
		return View{}, false
	}
	units, resources, version := r.status.Snapshot()
	v := &cachedView{View{
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

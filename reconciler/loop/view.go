package loop

import (
	"sync"
	"sync/atomic"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/reconciler/status"
)

// views caches the last View, so that a reader copies nothing: the first reader
// after a change makes a new one.
type views struct {
	inForce *inForce
	status  *status.Writer
	dates   *dates

	mu   sync.Mutex // held while a View is made
	last atomic.Pointer[cachedView]
}

// cachedView is a View and the versions of its inputs.
type cachedView struct {
	plan.View
	st      *reconciler.State
	version uint64 // of the statuses
}

// current returns the current view; false before the state in force is known.
func (v *views) current() (plan.View, bool) {
	if !v.inForce.known() {
		return plan.View{}, false
	}
	if fresh := v.fresh(); fresh != nil {
		return fresh.View, true
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if fresh := v.fresh(); fresh != nil { // another reader made it meanwhile
		return fresh.View, true
	}
	v.status.Decision.RLock()
	defer v.status.Decision.RUnlock()
	st := v.inForce.current()
	if st == nil {
		return plan.View{}, false
	}
	units, resources, version := v.status.Snapshot()
	made := &cachedView{plan.View{
		Main: st.Main, InForce: st.InForce, Desired: st.Desired, Effective: st.Effective, Held: st.Held,
		Units: units, Things: resources, Dates: v.dates.find, Deleted: v.status.Deleted.Find,
	}, st, version}
	v.last.Store(made)
	return made.View, true
}

// fresh returns the cached View if nothing changed since, or nil. A decision
// changes units before it replaces the state, so half a decision is never fresh.
func (v *views) fresh() *cachedView {
	st := v.inForce.current()
	if last := v.last.Load(); last != nil && last.st == st && last.version == v.status.Version() {
		return last
	}
	return nil
}

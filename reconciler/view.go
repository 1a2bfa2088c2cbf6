package reconciler

import (
	"maps"

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

// View is what is known now; false before it is known what is in force.
func (r *Reconciler) View() (View, bool) {
	w := r.writer
	w.whole.RLock()
	defer w.whole.RUnlock()
	st := r.current()
	if st == nil || !r.isReady() {
		return View{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return View{
		Main: st.main, InForce: st.inForce, Desired: st.desired, Effective: st.effective, Held: st.held,
		Units: maps.Clone(w.units), Things: maps.Clone(w.things),
	}, true
}

// Audit records what was decided outside the loop, such as by the read API.
func (r *Reconciler) Audit(records ...audit.Record) { r.writer.record(records...) }

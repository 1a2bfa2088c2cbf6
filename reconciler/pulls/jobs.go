package pulls

import (
	"slices"

	"berth/reconciler"
	"berth/reconciler/plan"
)

// NoteJobs remembers the work on a unit, for pull requests to tell of. Those that
// were planned when nobody knew it are planned again.
func (r *Pulls) NoteJobs(o plan.Observed) {
	r.mu.Lock()
	_, known := r.jobs[o.Key]
	switch o.Presence {
	case plan.Present:
		r.jobs[o.Key] = o.Jobs
	case plan.Absent:
		delete(r.jobs, o.Key)
	}
	r.mu.Unlock()
	if o.Presence == plan.Present && !known && r.o.Forge != nil {
		for _, n := range r.reviews.showing(o.Key, true) {
			r.o.EnqueueAfter(reconciler.Item{Task: reconciler.TaskPull, Pull: n}, pullsDebounce)
		}
	}
}

// addJobs adds the work on units, as far as this run has seen it; of what it has
// not yet, as it was when the same plan was shown before.
func (r *Pulls) addJobs(units []plan.ReviewedUnit, before ...*plan.Shown) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range units {
		u := &units[i]
		if jobs, ok := r.jobs[u.Key]; ok {
			u.Jobs = &jobs
			continue
		}
		for _, was := range before {
			if was == nil {
				continue
			}
			if o, same := was.Unit(u.Key, u.Digest); o != nil && same && u.Jobs == nil {
				u.Jobs = o.Jobs
			}
		}
	}
}

// jobsKnown says whether the work on any of the units is known by now of which it
// was not.
func (r *Pulls) jobsKnown(units []plan.ReviewedUnit) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(units, func(u plan.ReviewedUnit) bool {
		_, known := r.jobs[u.Key]
		return u.Jobs == nil && known
	})
}

package pulls

import (
	"slices"
	"sync"

	"berth/reconciler/plan"
	"berth/schema"
)

// jobs are the jobs on units as this run observed them last. Plans name them.
type jobs struct {
	mu sync.Mutex
	of map[schema.Key]plan.Jobs
}

func newJobs() *jobs { return &jobs{of: map[schema.Key]plan.Jobs{}} }

// observe takes in an observation. It reports whether the jobs of the unit were
// unknown and are known now.
func (j *jobs) observe(o plan.Observed) (learnt bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, known := j.of[o.Key]
	switch o.Presence {
	case plan.Present:
		j.of[o.Key] = o.Jobs
		return !known
	case plan.Absent:
		delete(j.of, o.Key)
	}
	return false
}

// addTo adds the jobs to planned units. If this run has not observed a unit, it
// takes the jobs that were shown with the same plan before.
func (j *jobs) addTo(units []plan.ReviewedUnit, before ...*plan.Shown) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range units {
		u := &units[i]
		if known, ok := j.of[u.Key]; ok {
			u.Jobs = &known
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

// knowsMore reports whether the jobs of a unit are known now that lacks them.
func (j *jobs) knowsMore(units []plan.ReviewedUnit) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.ContainsFunc(units, func(u plan.ReviewedUnit) bool {
		_, known := j.of[u.Key]
		return u.Jobs == nil && known
	})
}

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
	of map[schema.Key]*plan.Jobs
}

func newJobs() *jobs { return &jobs{of: map[schema.Key]*plan.Jobs{}} }

// observe takes in an observation. It reports whether the jobs of the unit were
// unknown and are known now.
func (j *jobs) observe(o plan.Observed) (learnt bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	was := j.of[o.Key]
	if o.Presence != plan.Present || o.Jobs == nil {
		delete(j.of, o.Key)
		return false
	}
	j.of[o.Key] = o.Jobs
	return o.Jobs.Unknown == "" && (was == nil || was.Unknown != "")
}

// addTo adds the impact on jobs to the units of plans. If this run does not know the jobs
// of a unit, it takes the impact that was shown with the same plan before.
func (j *jobs) addTo(units []plan.ReviewedUnit, plans []plan.Plan, before ...*plan.Shown) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range units {
		u := &units[i]
		u.Jobs = plans[i].ImpactOn(j.of[u.Key])
		for _, was := range before {
			if was == nil || u.Jobs != nil {
				continue
			}
			if o, same := was.Unit(u.Key, u.Digest); o != nil && same {
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
		of := j.of[u.Key]
		return !u.Jobs.Known() && of != nil && of.Unknown == ""
	})
}

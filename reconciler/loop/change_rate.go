package loop

import (
	"fmt"
	"sync"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/policy"
)

// changeRate bounds how many changes of units begin in an hour, by the owners that policies bound (requirement E13). It is in memory:
// a restart of the daemon begins a new hour. It is safe for concurrent use.
type changeRate struct {
	mu      sync.Mutex
	begun   map[string][]time.Time // in the last hour, in order, by owner
	counted map[schema.Key]string  // the revision of each unit that was counted, or needs no more to be
}

func newChangeRate() *changeRate {
	return &changeRate{begun: map[string][]time.Time{}, counted: map[schema.Key]string{}}
}

// begin counts a change of a unit, or returns the bound that it exceeds and how long it waits. A revision counts once, however many
// steps and attempts it takes.
func (c *changeRate) begin(key schema.Key, revision string, bounds []policy.Bound, now time.Time) (*policy.Bound, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counted[key] == revision {
		return nil, 0
	}
	for i, b := range bounds {
		all := c.begun[b.Owner]
		for len(all) > 0 && now.Sub(all[0]) >= time.Hour {
			all = all[1:]
		}
		if c.begun[b.Owner] = all; len(all) >= b.Most {
			return &bounds[i], all[len(all)-b.Most].Add(time.Hour).Sub(now)
		}
	}
	for _, b := range bounds {
		c.begun[b.Owner] = append(c.begun[b.Owner], now)
	}
	c.counted[key] = revision
	return nil, 0
}

// note marks the revision of a unit that is as declared. Later actions on it are repairs.
func (c *changeRate) note(key schema.Key, revision string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counted[key] = revision
}

// forget removes a unit that is gone.
func (c *changeRate) forget(key schema.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.counted, key)
}

// limitRate lets a change wait that would exceed the rate of its project or tenant. Stops and deletions never wait, and neither do
// repairs and operations, which are no changes.
func (r *unitRun) limitRate() {
	v, key := &r.view, r.view.prev.Key
	if key.Tenant == "" || v.want == nil || v.want.DesiredState == schema.DesiredStopped {
		return
	}
	if len(r.gated.plan.Actions) == 0 && v.converged() {
		r.rate.note(key, v.prev.Revision)
	}
	if !hasChange(r.gated.plan) || r.gated.isKept() {
		return
	}
	exceeded, wait := r.rate.begin(key, v.prev.Revision, policy.ChangesPerHour(v.st.Desired, key.Tenant, key.Project), r.now())
	if exceeded == nil {
		return
	}
	if r.gated.approved != nil { // it is compared again when its turn comes
		r.gated.review, r.gated.approved = r.gated.approved, nil
	}
	r.gated.stopped = r.gated.stopped || v.prev.Phase == plan.PhaseStopped // its members stay stopped until its change begins
	r.gated.again = min(wait, r.interval)
	r.gated = r.gated.keep(plan.Blocked{Code: plan.CodeRate, Wait: true, Message: fmt.Sprintf(
		"change waits: policy allows %s %d in an hour (%s); the next place is free at %s", exceeded.Owner, exceeded.Most,
		exceeded.Source.Place(), r.now().Add(wait).UTC().Format(time.RFC3339))})
}

// hasChange reports whether a plan has an action other than repairs and operations.
func hasChange(p plan.Plan) bool {
	for _, a := range p.Actions {
		if a.Verb != plan.Start && a.Operation == nil {
			return true
		}
	}
	return false
}

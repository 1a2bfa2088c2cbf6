package pulls

import (
	"maps"
	"slices"
	"sync"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

const (
	// maxRollouts bounds how many roll-outs are kept; finished ones go first.
	maxRollouts = 500
	// minReportInterval is the least time between two updates of one comment, and
	// maxReportInterval the most, while a roll-out makes progress.
	minReportInterval = time.Second
	maxReportInterval = 30 * time.Second
)

// RollOuts keeps the progress of merged commits: the units that each changed, their
// progress, and the held changes. A roll-out that was reported to its end is over: it
// does not follow its units any more. After a restart the roll-outs are made again from
// the statuses, as far as these name them.
type RollOuts struct {
	now func() time.Time

	mu     sync.Mutex
	of     map[string]*rollout   // by commit
	latest map[schema.Key]string // the commit that changed a unit last
}

type rollout struct {
	began time.Time
	units map[schema.Key]*plan.UnitProgress
	held  []schema.Held
	whole bool // all units of the commit are known
	over  bool

	prs   []reconciler.PullRequest
	asked time.Time // when the forge was first asked for prs
	last  time.Time // when it was last asked for a unit's gate
	none  bool      // no pull request brought the commit
}

func newRollOuts(now func() time.Time) *RollOuts {
	return &RollOuts{now: now, of: map[string]*rollout{}, latest: map[schema.Key]string{}}
}

// with calls f with the roll-out of a commit, and begins it if necessary.
func (r *RollOuts) with(commit string, f func(*rollout)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r.get(commit))
}

// get returns the roll-out of a commit, and begins it if necessary; with mu held.
func (r *RollOuts) get(commit string) *rollout {
	o := r.of[commit]
	if o == nil {
		if len(r.of) >= maxRollouts {
			maps.DeleteFunc(r.of, func(_ string, o *rollout) bool { return o.over })
		}
		o = &rollout{began: r.now(), units: map[schema.Key]*plan.UnitProgress{}}
		r.of[commit] = o
	}
	return o
}

// Begin records that a commit was decided, and its held changes.
func (r *RollOuts) Begin(commit string, held []schema.Held) {
	r.with(commit, func(o *rollout) {
		known := make(map[schema.Held]bool, len(o.held))
		for _, h := range o.held {
			known[h] = true
		}
		for _, h := range held {
			if !known[h] {
				o.held, known[h] = append(o.held, h), true
			}
		}
		o.whole = true
	})
}

// tenantOf returns the first tenant, in order of names, with units that a commit changed; "": none is known.
func (r *RollOuts) tenantOf(commit string) (tenant string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.of[commit]; o != nil {
		for key := range o.units {
			if tenant == "" || key.Tenant < tenant {
				tenant = key.Tenant
			}
		}
	}
	return tenant
}

// isWhole reports whether all units of a commit are known.
func (r *RollOuts) isWhole(commit string) (whole bool) {
	r.with(commit, func(o *rollout) { whole = o.whole })
	return whole
}

// restore takes in the decision of an earlier run about a commit: its held changes, and the
// units whose statuses do not name the commit any more.
func (r *RollOuts) restore(commit string, held []schema.Held, units []plan.UnitProgress) {
	r.with(commit, func(o *rollout) {
		if o.whole {
			return
		}
		o.held, o.whole = held, true
		for _, u := range units {
			if o.units[u.Key] == nil {
				o.units[u.Key] = &u
			}
		}
	})
}

// Observe takes a unit's new status into the roll-out of the commit that changed
// it. An earlier roll-out that is not over learns that the unit belongs to a later
// one. It returns the commits whose roll-outs changed.
func (r *RollOuts) Observe(s *plan.Status) (changed []string) {
	if s.Revision == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if before := r.latest[s.Key]; before != "" && before != s.Revision {
		if o := r.of[before]; o != nil && !o.over {
			if u := o.units[s.Key]; u != nil && !u.Settled {
				u.Settled, u.TakenOver, u.At, u.Stale = true, s.Revision, "", nil
				changed = append(changed, before)
			}
		}
	}
	r.latest[s.Key] = s.Revision
	if s.Phase == plan.PhaseDeleted {
		delete(r.latest, s.Key)
	}
	o := r.get(s.Revision)
	if o.over {
		return changed
	}
	u := o.units[s.Key]
	if u == nil {
		u = &plan.UnitProgress{Key: s.Key}
		o.units[s.Key] = u
	}
	progress(u, s)
	if u.Settled && u.Seconds == 0 && u.Total > 0 {
		u.Seconds = r.now().Sub(o.began).Seconds()
	}
	return append(changed, s.Revision)
}

// progress takes a status into the progress of its unit.
func progress(u *plan.UnitProgress, s *plan.Status) {
	u.Phase, u.Members, u.Settled, u.Failure, u.Stale, u.Degraded = s.Phase, s.Members, s.RolledOut(), s.FailureReason, nil, ""
	if c := s.Condition(plan.ConditionDegraded); c.Is(plan.ConditionTrue) {
		u.Degraded = c.Message
	}
	if s.Review != nil {
		u.Stale = s.Review.Stale
	}
	if u.Settled && u.Failure == "" || u.Stale != nil {
		u.At = ""
	}
	if u.Failure == "" && u.Stale == nil {
		if c := s.Condition(plan.ConditionReady); c != nil && c.Status != plan.ConditionTrue {
			u.Failure = c.Message
		}
	}
}

// Acting records that a plan of so many actions is being applied to a unit.
func (r *RollOuts) Acting(commit string, key schema.Key, actions int) {
	r.change(commit, key, func(u *plan.UnitProgress) { u.Done, u.Total, u.Seconds, u.At = 0, actions, 0, "" })
}

// At records the step of a unit that began, or that failed.
func (r *RollOuts) At(commit string, key schema.Key, step string) {
	r.change(commit, key, func(u *plan.UnitProgress) { u.At = step })
}

// Done records that one action on a unit is done.
func (r *RollOuts) Done(commit string, key schema.Key) {
	r.change(commit, key, func(u *plan.UnitProgress) { u.Done++ })
}

// change changes the progress of a unit whose roll-out is not over.
func (r *RollOuts) change(commit string, key schema.Key, f func(*plan.UnitProgress)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.of[commit]; o != nil && !o.over && o.units[key] != nil {
		f(o.units[key])
	}
}

// reportInterval is how long progress is gathered before it is reported. It grows
// with the age of the roll-out, unless a person has to act.
func (r *RollOuts) reportInterval(commit string) (wait time.Duration) {
	r.with(commit, func(o *rollout) {
		wait = minReportInterval
		for _, u := range o.units {
			if !u.Settled && u.Stale == nil && u.Phase != plan.PhaseFailed {
				wait = min(max(minReportInterval, r.now().Sub(o.began)/10), maxReportInterval)
			}
		}
	})
	return wait
}

// isOver reports whether a roll-out was reported to its end.
func (r *RollOuts) isOver(commit string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.of[commit]
	return o != nil && o.over
}

// End marks a roll-out as reported to its end.
func (r *RollOuts) End(commit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.of[commit]; o != nil {
		o.over = true
	}
}

// report is the present roll-out of a commit.
func (r *RollOuts) report(commit string) plan.Rollout {
	out := plan.Rollout{Commit: commit, CorrelationID: reconciler.CorrelationID(commit)}
	r.with(commit, func(o *rollout) {
		out.Held = slices.Clone(o.held)
		for _, k := range slices.SortedFunc(maps.Keys(o.units), schema.Key.Compare) {
			out.Units = append(out.Units, *o.units[k])
		}
	})
	return out
}

// Released removes from the roll-out of a commit the changes that are no longer held. The
// roll-out is reported again even if it was over.
func (r *RollOuts) Released(commit string, held []schema.Held) {
	r.with(commit, func(o *rollout) {
		o.over = false
		o.held = slices.DeleteFunc(o.held, func(h schema.Held) bool {
			return !slices.ContainsFunc(held, func(is schema.Held) bool { return sameHeld(is, h) })
		})
	})
}

// pulls are the merged pull requests of a commit, as far as they are known, and
// when the forge was first asked. sure is true if more asking is useless.
func (r *RollOuts) pulls(commit string) (prs []reconciler.PullRequest, asked time.Time, sure bool) {
	r.with(commit, func(o *rollout) { prs, asked, sure = o.prs, o.asked, o.none || len(o.prs) > 0 })
	return prs, asked, sure
}

// mayAsk reports whether the forge may be asked for them again, at most once in an
// interval for all units of a commit.
func (r *RollOuts) mayAsk(commit string, interval time.Duration) (may bool) {
	r.with(commit, func(o *rollout) {
		if may = r.now().Sub(o.last) >= interval; may {
			o.last = r.now()
		}
	})
	return may
}

// setPulls records the forge's answer, and returns how long it has been asked.
func (r *RollOuts) setPulls(commit string, prs []reconciler.PullRequest) (asked time.Duration) {
	r.with(commit, func(o *rollout) {
		o.prs = prs
		if o.asked.IsZero() {
			o.asked = r.now()
		}
		asked = r.now().Sub(o.asked)
	})
	return asked
}

// settlePulls records the final answer.
func (r *RollOuts) settlePulls(commit string, prs []reconciler.PullRequest) {
	r.with(commit, func(o *rollout) { o.prs, o.none = prs, len(prs) == 0 })
}

// FirstSeen is when a commit was seen first.
func (r *RollOuts) FirstSeen(commit string) (began time.Time) {
	r.with(commit, func(o *rollout) { began = o.began })
	return began
}

// sameHeld reports whether two records are of the same held document. The status
// branch cuts long texts, but keeps their beginning.
func sameHeld(a, b schema.Held) bool {
	const kept = 150
	same := func(x, y string) bool { return x[:min(kept, len(x))] == y[:min(kept, len(y))] }
	return a.Key == b.Key && a.Reason == b.Reason && same(a.File, b.File) && same(a.Message, b.Message)
}

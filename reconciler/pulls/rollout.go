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

// RollOuts remembers, for the pull requests that brought them, what became of
// commits: which units each changed, how far those are, and what of it is
// held. A roll-out that was told to its end is over: what happens to its units
// later is not its doing. It is a cache: after a restart it is made again from
// the statuses, as far as they still speak of it.
type RollOuts struct {
	now func() time.Time

	mu     sync.Mutex
	of     map[string]*rollout   // by commit
	latest map[schema.Key]string // the commit that last changed a unit
}

type rollout struct {
	began time.Time
	units map[schema.Key]*plan.UnitProgress
	held  []plan.Held
	whole bool // what it brought was decided, or recalled, in this run
	told  bool // to its end

	prs   []reconciler.PullRequest
	asked time.Time // when the forge was first asked for prs
	last  time.Time // when it was last asked for the gate's sake
	none  bool      // it is known that there is none
}

// maxRollouts bounds how many are remembered; ended ones go first.
const maxRollouts = 500

func newRollOuts(now func() time.Time) *RollOuts {
	return &RollOuts{now: now, of: map[string]*rollout{}, latest: map[schema.Key]string{}}
}

// get is the roll-out of a commit, begun now if there is none; with mu held.
func (r *RollOuts) get(commit string) *rollout {
	o := r.of[commit]
	if o == nil {
		if len(r.of) >= maxRollouts {
			maps.DeleteFunc(r.of, func(_ string, o *rollout) bool { return o.told })
		}
		o = &rollout{began: r.now(), units: map[schema.Key]*plan.UnitProgress{}}
		r.of[commit] = o
	}
	return o
}

// Begin records that a commit was decided, and what of it is held.
func (r *RollOuts) Begin(commit string, held []plan.Held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.get(commit)
	for _, h := range held {
		if !slices.Contains(o.held, h) {
			o.held = append(o.held, h)
		}
	}
	o.whole = true
}

// known says whether it is known what a commit brought.
func (r *RollOuts) known(commit string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.of[commit]
	return o != nil && o.whole
}

// recall takes in what an earlier run decided of a commit: what of it is held, and
// how far the units are that no status says to be changed by it any more.
func (r *RollOuts) recall(commit string, held []plan.Held, units []plan.UnitProgress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.get(commit)
	if o.whole {
		return
	}
	o.held, o.whole = held, true
	for _, u := range units {
		if o.units[u.Key] == nil {
			o.units[u.Key] = &u
		}
	}
}

// Observe takes a unit's new status into the roll-out of the commit that
// changed it, and tells an earlier one that is not over that the unit has moved
// on. It returns the commits about which there is something new to tell.
func (r *RollOuts) Observe(s *plan.Status) []string {
	if s.Revision == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var news []string
	if before := r.latest[s.Key]; before != "" && before != s.Revision {
		if o := r.of[before]; o != nil && !o.told {
			if u := o.units[s.Key]; u != nil && !u.Settled {
				u.Settled, u.TakenOver, u.At, u.Stale = true, s.Revision, "", nil
				news = append(news, before)
			}
		}
	}
	r.latest[s.Key] = s.Revision
	if s.Phase == plan.PhaseDeleted {
		delete(r.latest, s.Key)
	}
	o := r.get(s.Revision)
	if o.told {
		return news
	}
	u := o.units[s.Key]
	if u == nil {
		u = &plan.UnitProgress{Key: s.Key}
		o.units[s.Key] = u
	}
	u.Phase, u.Members, u.Settled, u.Failure, u.Stale = s.Phase, s.Members, s.Settled(), s.FailureReason, nil
	if s.Review != nil {
		u.Stale = s.Review.Stale
	}
	if u.Settled && u.Failure == "" || u.Stale != nil {
		u.At = ""
	}
	if u.Failure == "" && u.Stale == nil {
		for _, c := range s.Conditions {
			if c.Type == "Ready" && c.Status != "True" {
				u.Failure = c.Message
			}
		}
	}
	if u.Settled && u.Seconds == 0 && u.Total > 0 {
		u.Seconds = r.now().Sub(o.began).Seconds()
	}
	return append(news, s.Revision)
}

// Acting records that a plan of so many actions is being applied to a unit.
func (r *RollOuts) Acting(commit string, key schema.Key, actions int) {
	r.change(commit, key, func(u *plan.UnitProgress) { u.Done, u.Total, u.Seconds, u.At = 0, actions, 0, "" })
}

// At records the step that was begun, or that failed.
func (r *RollOuts) At(commit string, key schema.Key, step string) {
	r.change(commit, key, func(u *plan.UnitProgress) { u.At = step })
}

// Done records that one action of it is done.
func (r *RollOuts) Done(commit string, key schema.Key) {
	r.change(commit, key, func(u *plan.UnitProgress) { u.Done++ })
}

// pace is how long what goes on in a roll-out is gathered before people are told:
// longer the longer it takes, but for what they wait for.
func (r *RollOuts) pace(commit string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.get(commit)
	for _, u := range o.units {
		if !u.Settled && u.Stale == nil && u.Phase != plan.PhaseFailed {
			return min(max(followCoalesce, r.now().Sub(o.began)/10), followSlowest)
		}
	}
	return followCoalesce
}

func (r *RollOuts) change(commit string, key schema.Key, f func(*plan.UnitProgress)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.of[commit]; o != nil && !o.told && o.units[key] != nil {
		f(o.units[key])
	}
}

// over says whether a roll-out was told to its end.
func (r *RollOuts) over(commit string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.of[commit]
	return o != nil && o.told
}

// End marks a roll-out as told to its end.
func (r *RollOuts) End(commit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.of[commit]; o != nil {
		o.told = true
	}
}

// tell is the roll-out of a commit as it stands.
func (r *RollOuts) tell(commit string) plan.Rollout {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.get(commit)
	out := plan.Rollout{Commit: commit, CorrelationID: reconciler.CorrelationID(commit), Held: slices.Clone(o.held)}
	for _, k := range slices.SortedFunc(maps.Keys(o.units), schema.Key.Compare) {
		out.Units = append(out.Units, *o.units[k])
	}
	return out
}

// Released takes what is no longer held out of the roll-out of a commit, which is
// told anew though it may have been over.
func (r *RollOuts) Released(commit string, held []plan.Held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.get(commit)
	o.told = false
	o.held = slices.DeleteFunc(o.held, func(h plan.Held) bool {
		return !slices.ContainsFunc(held, func(is plan.Held) bool { return sameHeld(is, h) })
	})
}

// pulls are the merged pull requests of a commit as far as they are known, and
// when the forge was first asked.
func (r *RollOuts) pulls(commit string) ([]reconciler.PullRequest, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.get(commit)
	return o.prs, o.asked
}

// BroughtBy are the pull requests that brought a commit, as far as they are
// known; sure says whether more asking is in vain.
func (r *RollOuts) broughtBy(commit string) (prs []reconciler.PullRequest, sure bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.get(commit)
	return o.prs, o.none || len(o.prs) > 0
}

// ask says whether the forge may be asked for them again: not twice within a
// while, however many units wait for it.
func (r *RollOuts) ask(commit string, while time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.get(commit)
	if r.now().Sub(o.last) < while {
		return false
	}
	o.last = r.now()
	return true
}

// believe takes what the forge told of them as the last word.
func (r *RollOuts) believe(commit string, prs []reconciler.PullRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.get(commit)
	o.prs, o.none = prs, len(prs) == 0
}

// FirstSeen is when a commit was seen first.
func (r *RollOuts) FirstSeen(commit string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.get(commit).began
}

// setPulls takes what the forge told of them, and says since when it is asked.
func (r *RollOuts) setPulls(commit string, prs []reconciler.PullRequest) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.get(commit)
	o.prs = prs
	if o.asked.IsZero() {
		o.asked = r.now()
	}
	return r.now().Sub(o.asked)
}

// sameHeld reports whether two records are of the same held document. The status
// branch cuts long texts, but keeps their beginning.
func sameHeld(a, b plan.Held) bool {
	const kept = 150
	same := func(x, y string) bool { return x[:min(kept, len(x))] == y[:min(kept, len(y))] }
	return a.Key == b.Key && a.Reason == b.Reason && same(a.File, b.File) && same(a.Message, b.Message)
}

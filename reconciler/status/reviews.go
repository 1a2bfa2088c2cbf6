package status

import (
	"cmp"
	"maps"
	"slices"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// maxReviews bounds the pull requests whose reviews are kept. Reviews that change
// no unit are dropped first, then the oldest. A change merged without its review
// is held.
const maxReviews = 1000

// Reviews are the last published plans of pull requests. berth/status keeps each until
// its rollout is complete.
type Reviews struct {
	p       *pending
	of      map[int]*plan.Review // by pull request; values are replaced, never changed
	changes changes[int]
}

func newReviews(p *pending) *Reviews {
	return &Reviews{p: p, of: map[int]*plan.Review{}, changes: newChanges[int]()}
}

// load replaces the reviews by those that a leader finds on the branch. The caller
// holds the lock.
func (r *Reviews) load(of map[int]*plan.Review) {
	r.of, r.changes = map[int]*plan.Review{}, newChanges[int]()
	maps.Copy(r.of, of)
	r.bound()
}

func (r *Reviews) put(v plan.Review) {
	r.of[v.Pull] = &v
	r.changes.put(v.Pull)
	r.bound()
}

func (r *Reviews) drop(pull int) {
	delete(r.of, pull)
	r.changes.drop(pull)
}

func (r *Reviews) bound() {
	over := len(r.of) - maxReviews
	if over <= 0 {
		return
	}
	changesUnits := func(n int) int {
		if v := r.of[n]; len(v.Units) > 0 || v.Next != nil && len(v.Next.Units) > 0 {
			return 1
		}
		return 0
	}
	pulls := slices.SortedFunc(maps.Keys(r.of), func(a, b int) int { return cmp.Or(changesUnits(a)-changesUnits(b), a-b) })
	for _, n := range pulls[:over] {
		r.drop(n)
	}
}

// addTo adds to a batch what is not on the remote. The caller holds the lock.
func (r *Reviews) addTo(b *reconciler.StatusBatch) {
	for _, n := range slices.Sorted(maps.Keys(r.changes.write)) {
		b.Reviews = append(b.Reviews, *r.of[n])
	}
	b.ReviewsGone = slices.Sorted(maps.Keys(r.changes.remove))
}

// written notes that b is on the remote. The caller holds the lock.
func (r *Reviews) written(b reconciler.StatusBatch) {
	for i := range b.Reviews {
		r.changes.written(b.Reviews[i].Pull, r.of[b.Reviews[i].Pull], &b.Reviews[i])
	}
	for _, n := range b.ReviewsGone {
		delete(r.changes.remove, n)
	}
}

// All returns the reviews by pull request. The caller must not change them.
func (r *Reviews) All() map[int]*plan.Review {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	return maps.Clone(r.of)
}

// Update replaces the review of a pull request by the result of change for the present
// one. A nil result removes it, and the same value changes nothing. It returns the
// count of changes to flush to.
func (r *Reviews) Update(pull int, change func(*plan.Review) *plan.Review) uint64 {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	before := r.of[pull]
	switch next := change(before); {
	case next == before:
		return r.p.count
	case next == nil:
		r.drop(pull)
	default:
		r.put(*next)
	}
	r.p.change("")
	return r.p.count
}

// Units returns the units in the published or next plan of any pull request.
func (r *Reviews) Units() map[schema.Key]bool {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	out := map[schema.Key]bool{}
	for _, v := range r.of {
		for _, u := range v.Units {
			out[u.Key] = true
		}
		if v.Next != nil {
			for _, u := range v.Next.Units {
				out[u.Key] = true
			}
		}
	}
	return out
}

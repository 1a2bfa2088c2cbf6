package loop

import (
	"cmp"
	"maps"
	"slices"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// maxReviews bounds how many pull requests' reviews are kept; those
// that change no unit go first, then the oldest, and what merges without one is held.
const maxReviews = 1000

// reviews are what berth/status keeps of pull requests; under the writer's mu.
type reviews struct {
	of          map[int]*plan.Review // never changed in place
	dirty, gone map[int]bool
}

func newReviews(of map[int]*plan.Review) reviews {
	r := reviews{of: maps.Clone(of), dirty: map[int]bool{}, gone: map[int]bool{}}
	if r.of == nil {
		r.of = map[int]*plan.Review{}
	}
	r.bound()
	return r
}

func (r *reviews) put(v plan.Review) {
	r.of[v.Pull] = &v
	r.dirty[v.Pull] = true
	delete(r.gone, v.Pull)
	r.bound()
}

func (r *reviews) drop(pull int) {
	delete(r.of, pull)
	delete(r.dirty, pull)
	r.gone[pull] = true
}

func (r *reviews) bound() {
	if over := len(r.of) - maxReviews; over > 0 {
		all := slices.Collect(maps.Keys(r.of))
		slices.SortFunc(all, func(a, b int) int { return cmp.Or(cmp.Compare(changes(r.of[a]), changes(r.of[b])), a-b) })
		for _, n := range all[:over] {
			r.drop(n)
		}
	}
}

// changes is 1 of a review of which something is compared after the merge, else 0.
func changes(v *plan.Review) int {
	if len(v.Units) > 0 || v.Next != nil && len(v.Next.Units) > 0 {
		return 1
	}
	return 0
}

// batch is what is not on the remote yet.
func (r *reviews) batch() (put []plan.Review, gone []int) {
	for _, n := range slices.Sorted(maps.Keys(r.dirty)) {
		put = append(put, *r.of[n])
	}
	return put, slices.Sorted(maps.Keys(r.gone))
}

// landed notes what is; what changed again meanwhile stays dirty.
func (r *reviews) landed(b reconciler.StatusBatch) {
	for i := range b.Reviews {
		if n := b.Reviews[i].Pull; r.of[n] != nil && equalJSON(r.of[n], &b.Reviews[i]) {
			delete(r.dirty, n)
		}
	}
	for _, n := range b.ReviewsGone {
		delete(r.gone, n)
	}
}

// underReview are the units that any pull request of which something is kept was
// shown, or is about to be, in words.
func (w *writer) underReview() map[schema.Key]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[schema.Key]bool{}
	for _, v := range w.reviews.of {
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

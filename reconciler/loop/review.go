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

// review is what a pull request was last shown to do; nil if it never was
// anything. It must not be changed.
func (w *writer) review(pull int) *plan.Review {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v := w.reviews.of[pull]; v != nil && v.Key != "" {
		return v
	}
	return nil
}

// intend records what a pull request is about to be shown, and returns that as
// it is to be shown, with a count to flush to. What says nothing else than what
// was recorded before is the same, made with the base it was made with then; known
// says whether it was recorded as shown.
func (w *writer) intend(pull int, s plan.Shown) (as plan.Shown, recorded uint64, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := plan.Review{Pull: pull}
	if before := w.reviews.of[pull]; before != nil {
		v = *before
	}
	same := func(o *plan.Shown) bool { return o != nil && o.Key == s.Key && o.Head == s.Head }
	switch {
	case same(v.Next):
		return *v.Next, w.put, false
	case same(&v.Shown) && v.Next == nil:
		return v.Shown, w.put, true
	case same(&v.Shown):
		s, v.Next = v.Shown, nil
	default:
		v.Next = &s
	}
	w.reviews.put(v)
	w.changed()
	return s, w.put, false
}

// wasShown records that a pull request was shown what was intended.
func (w *writer) wasShown(pull int, s plan.Shown) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.reviews.of[pull]
	if before == nil || before.Key == s.Key && before.Head == s.Head {
		return
	}
	v := *before
	v.Shown = s
	if v.Next != nil && v.Next.Key == s.Key && v.Next.Head == s.Head {
		v.Next = nil
	}
	w.reviews.put(v)
	w.changed()
}

// notShown drops what was about to be shown and will not be.
func (w *writer) notShown(pull int, s plan.Shown) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.reviews.of[pull]
	if before == nil || before.Next == nil || before.Next.Key != s.Key || before.Next.Head != s.Head {
		return
	}
	v := *before
	v.Next = nil
	w.reviews.put(v)
	w.changed()
}

// forgetReview takes away what is kept of a pull request, but for the plans of
// commands that may still be confirmed.
func (w *writer) forgetReview(pull int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.reviews.of[pull]
	if v == nil {
		return
	}
	if applies := recentApplies(v.Applies, w.now(), ""); len(applies) > 0 {
		w.reviews.put(plan.Review{Pull: pull, Applies: applies})
	} else {
		w.reviews.drop(pull)
	}
	w.changed()
}

// reviewsOf are the pull requests that a unit is shown on, or is about to be.
func (w *writer) reviewsOf(key schema.Key) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []int
	for n, v := range w.reviews.of {
		u, _ := v.Unit(key, "")
		if u == nil && v.Next != nil {
			u, _ = v.Next.Unit(key, "")
		}
		if u != nil {
			out = append(out, n)
		}
	}
	return out
}

// reviewsWithoutJobs are the pull requests that a unit was shown on, or is about to
// be, without the work on it.
func (w *writer) reviewsWithoutJobs(key schema.Key) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []int
	for n, v := range w.reviews.of {
		newest := &v.Shown
		if v.Next != nil {
			newest = v.Next
		}
		if u, _ := newest.Unit(key, ""); u != nil && u.Jobs == nil {
			out = append(out, n)
		}
	}
	return out
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

// reviewed are the pull requests of which something is kept, and the heads that
// were, or were about to be, shown something of.
func (w *writer) reviewed() map[int][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make(map[int][]string, len(w.reviews.of))
	for n, v := range w.reviews.of {
		if v.Head != "" {
			out[n] = append(out[n], v.Head)
		}
		if v.Next != nil && v.Next.Head != v.Head {
			out[n] = append(out[n], v.Next.Head)
		}
	}
	return out
}

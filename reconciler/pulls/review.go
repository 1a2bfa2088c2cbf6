package pulls

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
)

const (
	// applyKept is how long the plan of a command counts after it was posted. A
	// command that comes later has its plan posted again.
	applyKept = 7 * 24 * time.Hour
	// maxApplies bounds how many plans of commands are remembered of a pull request.
	maxApplies = 10
)

// reviews are the records on berth/status of what was shown on pull requests.
type reviews struct {
	Status
	now func() time.Time
}

// review is the record of the last publication on a pull request; nil without one.
func (r reviews) review(pull int) *plan.Review {
	if v := r.Reviews()[pull]; v != nil && v.Key != "" {
		return v
	}
	return nil
}

// shownOf returns the records of the last and of the next publication on a pull
// request; nil: none.
func (r reviews) shownOf(pull int) (shown, next *plan.Shown) {
	v := r.Reviews()[pull]
	if v == nil {
		return nil, nil
	}
	if v.Key != "" {
		shown = &v.Shown
	}
	return shown, v.Next
}

// intend records the next publication on a pull request before it begins. It returns the
// record, with the base of an equal one if there is one, the count to flush to, and
// whether exactly that was shown before.
func (r reviews) intend(pull int, s plan.Shown) (as plan.Shown, recorded uint64, known bool) {
	recorded = r.UpdateReview(pull, func(v *plan.Review) *plan.Review {
		as, known = s, false
		if v == nil {
			return &plan.Review{Pull: pull, Next: &s}
		}
		next := *v
		switch {
		case isSame(v.Next, s):
			as = *v.Next
			return v
		case isSame(&v.Shown, s) && v.Next == nil:
			as, known = v.Shown, true
			return v
		case isSame(&v.Shown, s):
			as, next.Next = v.Shown, nil
		default:
			next.Next = &s
		}
		return &next
	})
	return as, recorded, known
}

func isSame(o *plan.Shown, s plan.Shown) bool { return o != nil && o.Key == s.Key && o.Head == s.Head }

// wasShown records that the intended publication has succeeded.
func (r reviews) wasShown(pull int, s plan.Shown) {
	r.UpdateReview(pull, func(v *plan.Review) *plan.Review {
		if v == nil || isSame(&v.Shown, s) {
			return v
		}
		next := *v
		next.Shown = s
		if isSame(v.Next, s) {
			next.Next = nil
		}
		return &next
	})
}

// notShown drops the record of an intended publication that was given up.
func (r reviews) notShown(pull int, s plan.Shown) {
	r.UpdateReview(pull, func(v *plan.Review) *plan.Review {
		if v == nil || !isSame(v.Next, s) {
			return v
		}
		next := *v
		next.Next = nil
		return &next
	})
}

// forget removes the record of a pull request, except for plans of commands that
// may still be confirmed.
func (r reviews) forget(pull int) {
	r.UpdateReview(pull, func(v *plan.Review) *plan.Review {
		if v == nil {
			return nil
		}
		if applies := recentApplies(v.Applies, r.now(), ""); len(applies) > 0 {
			return &plan.Review{Pull: pull, Applies: applies}
		}
		return nil
	})
}

// showing lists the pull requests whose plan contains a unit, now or soon;
// withoutJobs, only those whose newest plan does not know the jobs on it.
func (r reviews) showing(key schema.Key, withoutJobs bool) []int {
	var out []int
	for n, v := range r.Reviews() {
		next := v.Next
		if next == nil {
			next = &v.Shown
		}
		u, _ := next.Unit(key, "")
		if withoutJobs && (u == nil || u.Jobs.Known()) {
			continue
		}
		if u == nil {
			u, _ = v.Unit(key, "")
		}
		if u != nil {
			out = append(out, n)
		}
	}
	return out
}

// headsOf are the heads of a pull request that checks were shown on, or were about
// to be.
func headsOf(v *plan.Review) []string {
	heads := []string{v.Head}
	if v.Next != nil && v.Next.Head != v.Head {
		heads = append(heads, v.Next.Head)
	}
	return slices.DeleteFunc(heads, func(head string) bool { return head == "" })
}

// applyShown returns shown if the plan of a command was posted before a moment and
// at most applyKept ago, and since if it was posted only after that moment.
func (r reviews) applyShown(commit, digest string, before time.Time) (shown, since bool) {
	for _, v := range r.Reviews() {
		for _, a := range v.Applies {
			if a.Commit == commit && a.Digest == digest && r.now().Sub(a.At) <= applyKept {
				shown = shown || !a.At.After(before)
				since = since || a.At.After(before)
			}
		}
	}
	return shown, since && !shown
}

// showApply records that the plan of a command was posted on a pull request, and
// removes records that hold nothing but old plans.
func (r reviews) showApply(pull int, a plan.ApplyShown) {
	r.UpdateReview(pull, func(v *plan.Review) *plan.Review {
		next := plan.Review{Pull: pull}
		if v != nil {
			next = *v
		}
		next.Applies = append(recentApplies(next.Applies, a.At, a.Commit), a)
		return &next
	})
	for n, v := range r.Reviews() {
		if v.Key == "" && v.Next == nil && len(recentApplies(v.Applies, a.At, "")) == 0 {
			r.forget(n)
		}
	}
}

// recentApplies are the plans of commands that are not too old, oldest first,
// without those of a commit.
func recentApplies(all []plan.ApplyShown, now time.Time, but string) []plan.ApplyShown {
	all = slices.DeleteFunc(slices.Clone(all), func(a plan.ApplyShown) bool { return a.Commit == but || now.Sub(a.At) > applyKept })
	slices.SortFunc(all, func(a, b plan.ApplyShown) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Commit, b.Commit))
	})
	return all[max(0, len(all)-maxApplies):]
}

package loop

import (
	"context"
	"maps"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/reconciler/pulls"
	"berth/schema"
	"berth/schema/audit"
)

// newPulls makes what serves the pull requests of the estate.
func (r *Reconciler) newPulls() *pulls.Pulls {
	return pulls.New(pulls.Options{
		Branch: r.o.Branch, Repo: r.o.Repo, Forge: r.o.Forge, Render: r.o.Render, Loader: r.o.Loader, Decider: r.decider,
		Status: pullStatus{r}, CheckAuthority: r.o.Authority != nil, AuthorLag: r.o.AuthorLag, Log: r.o.Log, Now: r.o.Now,
		Main: func() pulls.Main {
			r.mu.Lock()
			defer r.mu.Unlock()
			return pulls.Main{State: r.state, Tip: r.tip, Frozen: r.frozen}
		},
		Rules: func(backend string) plan.Rules {
			if rt := r.o.Runtimes[backend]; rt != nil {
				return rt
			}
			return nil
		},
		Seen: func(before, after *schema.Desired) []schema.Diagnostic { return Unseen(before, after, r.writer.thing) },
		Enqueue: func(i reconciler.Item) {
			if q := r.queueOf(i); q != nil {
				q.Add(i)
			}
		},
		EnqueueAfter: func(i reconciler.Item, d time.Duration) {
			if q := r.queueOf(i); q != nil {
				q.AddAfter(i, d)
			}
		},
	})
}

// ShowAgain publishes the plan of a pull request, or with 0 of every one, again at
// the next reconciliation even if nothing changed.
func (r *Reconciler) ShowAgain(pull int) { r.pulls.ShowAgain(pull) }

// Shows reports whether checks are shown on a commit, or will be.
func (r *Reconciler) Shows(commit string) bool { return r.pulls.Shows(commit) }

// pullStatus is the status writer as pull requests need it.
type pullStatus struct{ r *Reconciler }

func (s pullStatus) Memory() plan.Memory                          { return s.r.writer.memory() }
func (s pullStatus) Get(key schema.Key) *plan.Status              { return s.r.writer.get(key) }
func (s pullStatus) Set(prev *plan.Status, next plan.Status) bool { return s.r.set(prev, next) }
func (s pullStatus) Record(records ...audit.Record)               { s.r.writer.record(records...) }
func (s pullStatus) RecordDenied(records ...audit.Record)         { s.r.Audit(records...) }
func (s pullStatus) Flush(ctx context.Context) error              { return s.r.writer.flush(ctx) }
func (s pullStatus) FlushTo(ctx context.Context, count uint64) error {
	return s.r.writer.flushTo(ctx, count)
}
func (s pullStatus) Reviews() map[int]*plan.Review { return s.r.writer.allReviews() }
func (s pullStatus) UpdateReview(pull int, change func(*plan.Review) *plan.Review) uint64 {
	return s.r.writer.updateReview(pull, change)
}

// allReviews are the records of what was shown on pull requests. The records must
// not be changed.
func (w *writer) allReviews() map[int]*plan.Review {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.reviews.of)
}

// updateReview replaces the record of a pull request by what change returns for the
// present one, of which nil is none; the same value changes nothing. It returns the
// count of changes to flush to.
func (w *writer) updateReview(pull int, change func(*plan.Review) *plan.Review) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.reviews.of[pull]
	switch next := change(before); {
	case next == before:
		return w.put
	case next == nil:
		w.reviews.drop(pull)
	default:
		w.reviews.put(*next)
	}
	w.changed()
	return w.put
}

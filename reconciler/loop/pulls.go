package loop

import (
	"context"
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
		Seen: func(before, after *schema.Desired) []schema.Diagnostic {
			return Unseen(before, after, r.writer.Resource)
		},
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

func (s pullStatus) Memory() plan.Memory                          { return s.r.writer.Units() }
func (s pullStatus) Get(key schema.Key) *plan.Status              { return s.r.writer.Unit(key) }
func (s pullStatus) Set(prev *plan.Status, next plan.Status) bool { return s.r.set(prev, next) }
func (s pullStatus) Record(records ...audit.Record)               { s.r.writer.Record(records...) }
func (s pullStatus) RecordDenied(records ...audit.Record)         { s.r.Audit(records...) }
func (s pullStatus) Flush(ctx context.Context) error              { return s.r.writer.Flush(ctx) }
func (s pullStatus) FlushTo(ctx context.Context, count uint64) error {
	return s.r.writer.FlushTo(ctx, count)
}
func (s pullStatus) Reviews() map[int]*plan.Review { return s.r.writer.Reviews.All() }
func (s pullStatus) UpdateReview(pull int, change func(*plan.Review) *plan.Review) uint64 {
	return s.r.writer.Reviews.Update(pull, change)
}

package loop

import (
	"context"

	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/reconciler/pulls"
	"berth/schema"
	"berth/schema/audit"
)

// newPulls makes what serves the pull requests of the estate.
func newPulls(o *Options, rec *recorder, f *inForce, decider *decide.Decider) *pulls.Pulls {
	return pulls.New(pulls.Options{
		Branch: o.Branch, Repo: o.Repo, Forge: o.Forge, Render: o.Render, Loader: o.Loader, Decider: decider,
		Status: pullStatus{rec}, CheckAuthority: o.Authority != nil, AuthorLag: o.AuthorLag, Log: o.Log, Now: o.Now,
		Main: func() pulls.Main {
			st, tip, frozen := f.get()
			return pulls.Main{State: st, Tip: tip, Frozen: frozen}
		},
		Rules: func(backend string) plan.Rules {
			if rt := o.Runtimes[backend]; rt != nil {
				return rt
			}
			return nil
		},
		Seen: func(before, after *schema.Desired) []schema.Diagnostic {
			return UnverifiedPromotions(before, after, rec.status.Resource)
		},
		Enqueue: rec.queues.add, EnqueueAfter: rec.queues.addAfter,
	})
}

// pullStatus is the status writer as pull requests need it.
type pullStatus struct{ *recorder }

func (s pullStatus) Memory() plan.Memory                          { return s.status.Units() }
func (s pullStatus) Get(key schema.Key) *plan.Status              { return s.status.Unit(key) }
func (s pullStatus) Set(prev *plan.Status, next plan.Status) bool { return s.set(prev, next) }
func (s pullStatus) Record(records ...audit.Record)               { s.status.Record(records...) }
func (s pullStatus) RecordDenied(records ...audit.Record)         { s.status.RecordExternal(records...) }
func (s pullStatus) Flush(ctx context.Context) error              { return s.status.Flush(ctx) }
func (s pullStatus) FlushTo(ctx context.Context, count uint64) error {
	return s.status.FlushTo(ctx, count)
}
func (s pullStatus) Reviews() map[int]*plan.Review { return s.status.Reviews.All() }
func (s pullStatus) UpdateReview(pull int, change func(*plan.Review) *plan.Review) uint64 {
	return s.status.Reviews.Update(pull, change)
}

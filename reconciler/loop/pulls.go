package loop

import (
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/reconciler/pulls"
	"berth/reconciler/rules"
	"berth/reconciler/status"
	"berth/schema"
	"berth/schema/audit"
)

// newPulls creates the component for the pull requests of the estate.
func newPulls(o *Options, rec *recorder, f *inForce, decider *decide.Decider) *pulls.Pulls {
	return pulls.New(pulls.Options{
		Branch: o.Branch, Repo: o.Repo, Forge: o.Forge, Render: o.Render, Loader: o.Decide.Loader, Decider: decider,
		Status: pullStatus{rec.status, rec}, Queue: pulls.Queue{Add: rec.queues.add, AddAfter: rec.queues.addAfter},
		CheckAuthority: o.Decide.Authority != nil, AuthorLag: o.Settings.AuthorLag, Log: o.Log, Now: o.Now,
		Loop: pulls.Loop{
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
				return append(UnverifiedPromotions(before, after, rec.status.Resource), rules.Preview(before, after, rec.status.LastEvents)...)
			},
			Retried: o.Metrics.retriedOnRequest,
		},
	})
}

// pullStatus is the part of the status writer that pull requests need.
type pullStatus struct {
	*status.Writer
	rec *recorder
}

func (s pullStatus) Set(prev *plan.Status, next plan.Status) bool { return s.rec.set(prev, next) }
func (s pullStatus) RecordDenied(records ...audit.Record)         { s.RecordExternal(records...) }
func (s pullStatus) Reviews() map[int]*plan.Review                { return s.Writer.Reviews.All() }
func (s pullStatus) UpdateReview(pull int, change func(*plan.Review) *plan.Review) uint64 {
	return s.Writer.Reviews.Update(pull, change)
}

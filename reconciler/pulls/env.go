package pulls

import (
	"context"
	"time"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/schema"
)

// env is what all parts of Pulls share.
type env struct {
	Options
	reviews reviews
	open    *openPulls
	began   time.Time // this run
}

// state is the last decision; nil before the first.
func (e *env) state() *reconciler.State { return e.Loop.Main().State }

// today is the UTC day.
func (e *env) today() string { return e.Now().UTC().Format(time.DateOnly) }

// applyInput is the input of a decision about the state in force.
func (e *env) applyInput(st *reconciler.State) decide.Input {
	mem := e.Status.Units()
	return decide.Input{Repo: e.Repo, Base: st.Main, InForce: st.InForce, Permitted: st.Permitted, Today: e.today(), Memory: &mem,
		GPUSeconds: st.GPUSeconds, Rules: e.Loop.Rules}
}

// planAgain has a pull request planned, after it is read from the forge again.
func (e *env) planAgain(pull int) {
	e.open.markStale(pull)
	e.Queue.Add(reconciler.Item{Task: reconciler.TaskPull, Pull: pull})
}

// amend changes the status of a unit, also if something else is recorded at the
// same time. It returns false if change, which is given a copy, does.
func (e *env) amend(key schema.Key, change func(*plan.Status) bool) bool {
	for {
		s := e.Status.Units().Get(key)
		if s == nil {
			return false
		}
		next := *s
		if !change(&next) {
			return false
		}
		if e.Status.Set(s, next) {
			return true
		}
	}
}

// flush waits until all records are on the remote.
func (e *env) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	return e.Status.Flush(ctx)
}

// Package apply executes a Plan on a Runtime: in the order that Needs and After require,
// independent actions in parallel, each effect between a Begin and an End in the
// Journal. It makes no decision and knows no backend: the Plan defines the actions,
// the Runtime executes them, and the Outcomes hold the results.
package apply

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema/usage"
)

// Journal records every effect: the intent before, the outcome after. Several
// goroutines call it. An error of Begin prevents the action; an error of End is
// only logged, because the effect has already happened.
type Journal interface {
	Begin(ctx context.Context, a plan.Action) error
	End(ctx context.Context, o plan.Outcome) error
}

// Options are the settings of Run.
type Options struct {
	Runtime runtimes.Runtime
	Journal Journal // nil: effects are not recorded
	// RecordUsage is passed to the Runtime with each action (runtimes.Change); may be nil.
	RecordUsage func(ctx context.Context, jobs []usage.Job) error
	// JobsLost is passed to the Runtime with each action (runtimes.Change); may be nil.
	JobsLost func(jobs []plan.LostJob)
	// Correlation has the correlation ids of operations by their ids. Effects of other actions have
	// that of the stamp.
	Correlation map[string]string
	// Log has the ids of the plan's subject (requirement A11); nil: no log.
	Log *slog.Logger
	// Parallel bounds how many actions of the plan run at a time; 0: 8.
	Parallel int
}

// Run applies p on behalf of stamp and returns an Outcome for each action, in
// the plan's order. attempt distinguishes this application of the plan from others:
// it becomes part of every Action.ID, so that a second repair of the same fault
// runs, and a resumed attempt does not run its actions twice.
//
// An action is skipped if an action that it needs has failed. When ctx ends, the
// running actions are cancelled and the others are skipped.
func Run(ctx context.Context, o Options, p *plan.Plan, stamp runtimes.Stamp, attempt int) []plan.Outcome {
	w := &walk{o: o, plan: p, stamp: stamp, done: make([]chan struct{}, len(p.Actions)),
		outcomes: make([]plan.Outcome, len(p.Actions)), index: make(map[string]int, len(p.Actions))}
	if w.o.Log == nil {
		w.o.Log = slog.New(slog.DiscardHandler)
	}
	parallel := o.Parallel
	if parallel <= 0 {
		parallel = 8
	}
	for i, a := range p.Actions {
		w.done[i] = make(chan struct{})
		w.index[a.ID] = i
	}
	slots := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for i := range p.Actions {
		wg.Go(func() {
			defer close(w.done[i])
			w.outcomes[i] = w.one(ctx, i, attempt, slots)
		})
	}
	wg.Wait()
	return w.outcomes
}

// walk is one application of one plan.
type walk struct {
	o        Options
	plan     *plan.Plan
	stamp    runtimes.Stamp
	index    map[string]int  // of an action by its ID
	done     []chan struct{} // closed when the action's outcome is in
	outcomes []plan.Outcome
}

// one waits for the actions that action i needs or follows, then applies it.
func (w *walk) one(ctx context.Context, i, attempt int, slots chan struct{}) plan.Outcome {
	a := w.plan.Actions[i]
	a.ID = fmt.Sprintf("%s-%d", a.ID, attempt)
	out := plan.Outcome{ActionID: a.ID, Verb: a.Verb, Member: a.Member, State: plan.Skipped}

	for _, id := range slices.Concat(a.Needs, a.After) {
		j, ok := w.index[id]
		if !ok || j >= i {
			// The planner orders actions; a plan from elsewhere might not be,
			// and waiting for oneself would never end.
			out.Error = fmt.Sprintf("the plan is not in order: needs %s, which does not stand before it", id)
			return out
		}
		<-w.done[j] // ends with ctx as well, as every action does
		need := w.outcomes[j]
		if need.State != plan.Done && slices.Contains(a.Needs, id) {
			out.Error = fmt.Sprintf("needs %s, which is %s", describe(w.plan.Actions[j]), need.State)
			return out
		}
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		out.Error = "not tried: " + context.Cause(ctx).Error()
		return out
	}
	return w.effect(ctx, a, out)
}

// effect applies a between the two entries of the journal.
func (w *walk) effect(ctx context.Context, a plan.Action, out plan.Outcome) plan.Outcome {
	if w.o.Journal != nil {
		if err := w.o.Journal.Begin(ctx, a); err != nil {
			out.State, out.Error = plan.Failed, fmt.Sprintf("not tried, as its intent could not be recorded: %v", err)
			return out
		}
	}
	stamp := w.stamp
	stamp.ActionID, stamp.Verb = a.ID, string(a.Verb)
	if a.Operation != nil && w.o.Correlation[a.Operation.ID] != "" {
		stamp.CorrelationID = w.o.Correlation[a.Operation.ID]
	}
	log := w.o.Log.With("verb", string(a.Verb), "member", a.Member, "action_id", a.ID, "commit", stamp.Commit)
	log.DebugContext(ctx, "action begins", "reason", a.Reason)

	start := time.Now()
	err := w.call(ctx, log, runtimes.Change{Plan: w.plan, Action: a, Stamp: stamp, RecordUsage: w.o.RecordUsage, JobsLost: w.o.JobsLost,
		Log: log})
	out.Duration = time.Since(start)
	out.State = stateOf(err)
	if err != nil {
		out.Error = err.Error()
	}
	level := slog.LevelInfo
	if out.State == plan.Waiting {
		level = slog.LevelDebug // it is tried again and again
	}
	log.Log(ctx, level, "action ended", "state", string(out.State), "duration", out.Duration, "error", out.Error)

	if w.o.Journal != nil {
		// End records the outcome even if ctx has ended meanwhile.
		if err := w.o.Journal.End(context.WithoutCancel(ctx), out); err != nil {
			log.ErrorContext(ctx, "outcome could not be recorded", "error", err)
		}
	}
	return out
}

// call keeps a runtime's panic to the action that met it.
func (w *walk) call(ctx context.Context, log *slog.Logger, c runtimes.Change) (err error) {
	defer func() {
		if r := recover(); r != nil {
			log.ErrorContext(ctx, "runtime panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = fmt.Errorf("the runtime failed within Berth (a bug): %v", r)
		}
	}()
	return w.o.Runtime.Apply(ctx, c)
}

// stateOf returns the state of an effect after an error of Apply. After an
// unreachable host or a deadline it is unknown whether the effect happened.
func stateOf(err error) plan.OutcomeState {
	switch {
	case err == nil:
		return plan.Done
	case errors.Is(err, runtimes.ErrWaiting), errors.Is(err, runtimes.ErrBusy):
		return plan.Waiting
	case errors.Is(err, runtimes.ErrUncertain), errors.Is(err, runtimes.ErrUnreachable),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return plan.Uncertain
	}
	return plan.Failed
}

func describe(a plan.Action) string {
	if a.Member == "" {
		return string(a.Verb)
	}
	return string(a.Verb) + " " + a.Member
}

package apply_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/apply"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
)

var key = schema.InstanceKey("physics", "lhc", "train")

// fake is a runtime whose actions take what the test says.
type fake struct {
	act func(ctx context.Context, c runtimes.Change) error

	mu            sync.Mutex
	calls         []string // in the order they ended
	stamps        []runtimes.Stamp
	running, most int
}

func (f *fake) Observe(context.Context, runtimes.Scope) plan.Observed { return plan.Observed{} }

func (f *fake) Impact(plan.Verb, string, *plan.Unit, *plan.Unit) plan.Impact { return plan.Impact{} }

func (f *fake) Apply(ctx context.Context, c runtimes.Change) error {
	f.mu.Lock()
	f.running++
	f.most = max(f.most, f.running)
	f.stamps = append(f.stamps, c.Stamp)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.running--
		f.calls = append(f.calls, string(c.Action.Verb)+c.Action.Member)
		f.mu.Unlock()
	}()
	if f.act == nil {
		return nil
	}
	return f.act(ctx, c)
}

// book is a Journal that remembers.
type book struct {
	mu      sync.Mutex
	lines   []string
	refuses string
}

func (b *book) Begin(_ context.Context, a plan.Action) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.Member == b.refuses && b.refuses != "" {
		return errors.New("disk full")
	}
	b.lines = append(b.lines, "begin "+a.ID)
	return nil
}

func (b *book) End(ctx context.Context, o plan.Outcome) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, fmt.Sprintf("end %s %s", o.ActionID, o.State))
	return ctx.Err() // End must get a context that has not ended
}

func create(workers int) *plan.Plan {
	p := &plan.Plan{Key: key, Actions: []plan.Action{{ID: "c", Verb: plan.Create, Key: key}}}
	for i := range workers {
		p.Actions = append(p.Actions, plan.Action{ID: fmt.Sprintf("j%d", i), Verb: plan.Join, Key: key,
			Member: fmt.Sprintf("worker-%d", i), Needs: []string{"c"}})
	}
	return p
}

func states(os []plan.Outcome) []plan.OutcomeState {
	var out []plan.OutcomeState
	for _, o := range os {
		out = append(out, o.State)
	}
	return out
}

func TestNeededActionsRunFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{act: func(context.Context, runtimes.Change) error { time.Sleep(time.Second); return nil }}
		j := &book{}
		start := time.Now()
		got := apply.Run(t.Context(), apply.Options{Runtime: f, Journal: j, Parallel: 2}, create(4),
			runtimes.Stamp{Epoch: 7, Commit: "abc", CorrelationID: "corr"}, 3)

		require.Equal(t, []plan.OutcomeState{plan.Done, plan.Done, plan.Done, plan.Done, plan.Done}, states(got))
		require.Equal(t, 3*time.Second, time.Since(start), "the creation, then four joins two at a time")
		require.Equal(t, 2, f.most)
		require.Equal(t, "create", f.calls[0])
		require.Equal(t, "c-3", got[0].ActionID, "the attempt is part of the id")
		require.Equal(t, time.Second, got[1].Duration)
		require.Contains(t, f.stamps, runtimes.Stamp{Epoch: 7, Commit: "abc", CorrelationID: "corr", ActionID: "j1-3", Verb: "join"})
		require.Equal(t, []string{"begin c-3", "end c-3 done"}, j.lines[:2], "the intent before the effect, the outcome after")
		require.Len(t, j.lines, 10)
	})
}

func TestOneFailureSkipsOnlyWhatNeedsIt(t *testing.T) {
	p := create(2)
	p.Actions = append(p.Actions, plan.Action{ID: "s", Verb: plan.Start, Key: key, Member: "worker-9", Needs: []string{"j0"}})
	f := &fake{act: func(_ context.Context, c runtimes.Change) error {
		if c.Action.Member == "worker-0" {
			return &runtimes.OpError{Host: "gpu-1", Op: "start worker", Code: "exit", Exit: 1, Message: "no such device"}
		}
		return nil
	}}
	got := apply.Run(t.Context(), apply.Options{Runtime: f}, p, runtimes.Stamp{}, 1)
	require.Equal(t, []plan.OutcomeState{plan.Done, plan.Failed, plan.Done, plan.Skipped}, states(got))
	require.Equal(t, "host gpu-1: start worker: exit status 1: no such device", got[1].Error)
	require.Equal(t, "needs join worker-0, which is failed", got[3].Error)
}

// A member that waits for its jobs, or whose host is faulty, delays the actions that need it, and no action that
// only comes after it.
func TestActionSkipsOnlyWhatNeedsIt(t *testing.T) {
	for _, c := range []struct {
		err  error
		want []plan.OutcomeState
	}{
		{fmt.Errorf("3 jobs: %w", runtimes.ErrWaiting), []plan.OutcomeState{plan.Waiting, plan.Done, plan.Skipped}},
		{errors.New("no"), []plan.OutcomeState{plan.Failed, plan.Done, plan.Skipped}},
	} {
		p := &plan.Plan{Key: key, Actions: []plan.Action{
			{ID: "l", Verb: plan.Leave, Key: key, Member: "worker-0"},
			{ID: "c", Verb: plan.Configure, Key: key, After: []string{"l"}},
			{ID: "j", Verb: plan.Join, Key: key, Member: "worker-0", Needs: []string{"l"}, After: []string{"c"}},
		}}
		f := &fake{act: func(_ context.Context, change runtimes.Change) error {
			if change.Action.Verb == plan.Leave {
				return c.err
			}
			return nil
		}}
		require.Equal(t, c.want, states(apply.Run(t.Context(), apply.Options{Runtime: f}, p, runtimes.Stamp{}, 1)))
	}
}

func TestErrorsBecomeStates(t *testing.T) {
	for _, c := range []struct {
		err  error
		want plan.OutcomeState
	}{
		{errors.New("no"), plan.Failed},
		{runtimes.ErrStaleEpoch, plan.Failed},
		{fmt.Errorf("host a: %w", runtimes.ErrUncertain), plan.Uncertain},
		{fmt.Errorf("host a: %w", runtimes.ErrUnreachable), plan.Uncertain},
		{fmt.Errorf("host a: %w", context.DeadlineExceeded), plan.Uncertain},
		{fmt.Errorf("3 jobs: %w", runtimes.ErrWaiting), plan.Waiting},
		{fmt.Errorf("stop: %w", &runtimes.OpError{Host: "a", Code: "busy", Message: "another operation on this host has not ended"}),
			plan.Waiting},
		{&runtimes.OpError{Host: "a", Code: "timeout", Message: "did not end within 10 s"}, plan.Failed},
	} {
		f := &fake{act: func(context.Context, runtimes.Change) error { return c.err }}
		got := apply.Run(t.Context(), apply.Options{Runtime: f}, create(1), runtimes.Stamp{}, 1)
		require.Equal(t, []plan.OutcomeState{c.want, plan.Skipped}, states(got), "%v", c.err)
	}
}

func TestPanicIsKeptToItsAction(t *testing.T) {
	f := &fake{act: func(_ context.Context, c runtimes.Change) error {
		if c.Action.Member == "worker-1" {
			panic("index out of range")
		}
		return nil
	}}
	j := &book{}
	got := apply.Run(t.Context(), apply.Options{Runtime: f, Journal: j}, create(3), runtimes.Stamp{}, 1)
	require.Equal(t, []plan.OutcomeState{plan.Done, plan.Done, plan.Failed, plan.Done}, states(got))
	require.Contains(t, got[2].Error, "index out of range")
	require.Contains(t, j.lines, "end j1-1 failed")
}

func TestCancelledSkipsTheRest(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &fake{act: func(ctx context.Context, c runtimes.Change) error {
		cancel()
		<-ctx.Done()
		return fmt.Errorf("create: %w", ctx.Err())
	}}
	j := &book{}
	got := apply.Run(ctx, apply.Options{Runtime: f, Journal: j}, create(2), runtimes.Stamp{}, 1)
	require.Equal(t, []plan.OutcomeState{plan.Uncertain, plan.Skipped, plan.Skipped}, states(got))
	require.Equal(t, []string{"begin c-1", "end c-1 uncertain"}, j.lines)

	got = apply.Run(ctx, apply.Options{Runtime: f, Journal: j}, create(0), runtimes.Stamp{}, 2)
	require.Equal(t, []plan.OutcomeState{plan.Skipped}, states(got))
	require.Equal(t, "not tried: context canceled", got[0].Error)
}

func TestFailedBeginPreventsTheAction(t *testing.T) {
	f := &fake{}
	got := apply.Run(t.Context(), apply.Options{Runtime: f, Journal: &book{refuses: "worker-0"}}, create(2), runtimes.Stamp{}, 1)
	require.Equal(t, []plan.OutcomeState{plan.Done, plan.Failed, plan.Done}, states(got))
	require.False(t, slices.Contains(f.calls, "joinworker-0"))
}

func TestPlanOutOfOrderEnds(t *testing.T) {
	p := &plan.Plan{Key: key, Actions: []plan.Action{
		{ID: "a", Verb: plan.Join, Key: key, Needs: []string{"b"}},
		{ID: "b", Verb: plan.Create, Key: key},
		{ID: "c", Verb: plan.Start, Key: key, Needs: []string{"c"}},
	}}
	got := apply.Run(t.Context(), apply.Options{Runtime: &fake{}}, p, runtimes.Stamp{}, 1)
	require.Equal(t, []plan.OutcomeState{plan.Skipped, plan.Done, plan.Skipped}, states(got))
}

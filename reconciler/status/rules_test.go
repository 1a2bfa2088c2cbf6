package status

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/reconciler/rules"
	"berth/schema"
	"berth/schema/event"
)

// eventfulRepo is a statusRepo with an event log.
type eventfulRepo struct {
	*statusRepo
	unreadable error
}

func (r eventfulRepo) EventsSince(context.Context, string, time.Time) iter.Seq2[plan.Event, error] {
	return func(yield func(plan.Event, error) bool) {
		if r.unreadable != nil {
			yield(plan.Event{}, r.unreadable)
			return
		}
		for _, e := range slices.Backward(r.events()) {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func failedRule(change func(*schema.HookRuleSpec)) []*schema.HookRule {
	r := &schema.HookRule{Spec: schema.HookRuleSpec{When: schema.HookWhen{Event: string(event.InstanceFailed)}, CooldownSeconds: 300,
		Then: []schema.HookEffect{{Alert: &schema.HookAlert{Severity: "warning", Summary: "failed"}},
			{Webhook: &schema.HookWebhook{URL: "https://a.example/x"}}}}}
	r.Key = schema.Key{Kind: schema.KindHookRule, Name: "failed"}
	change(&r.Spec)
	return []*schema.HookRule{r}
}

func asIs(*schema.HookRuleSpec) {}

// fail records that the unit runs and then fails.
func fail(w *Writer) {
	put(w, phase(plan.PhaseRunning))
	s := phase(plan.PhaseFailed)
	s.Attempt = int(time.Now().UnixMilli())
	put(w, s)
}

// firings returns the firings among events, by the type of the event before each.
func firings(events []plan.Event) (out []string) {
	for i, e := range events {
		if _, ok := rules.Firing(e); ok {
			out = append(out, events[i-1].EventType)
		}
	}
	return out
}

func withRules(t *testing.T, w *Writer, all []*schema.HookRule) {
	w.LoadRules(t.Context(), all)
	w.SetRules(all)
}

func TestFiringIsInTheCommitOfItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := eventfulRepo{statusRepo: &statusRepo{}}
		w, stop := startWriter(t, repo, time.Second)
		withRules(t, w, failedRule(asIs))
		fail(w)
		require.Empty(t, w.PendingEffects(), "the firing is not durable yet")
		require.NoError(t, w.Flush(t.Context()))
		last := repo.batches[len(repo.batches)-1]
		require.Equal(t, []string{"apps.instance.failed"}, firings(last.Events))
		require.EqualValues(t, 3, last.Revision.Sequence)
		require.Len(t, w.PendingEffects(), 1)
		require.NoError(t, stop())
	})
}

// A daemon that takes over continues the cooldown, the count of failures and the effects of the one before, also where an answer
// of the remote was lost.
func TestRulesContinueAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := eventfulRepo{statusRepo: &statusRepo{}}
		twice := func(s *schema.HookRuleSpec) {
			s.When = schema.HookWhen{RepeatedFailure: &schema.RepeatedFailure{Count: 2, WithinSeconds: 60}}
		}
		w, stop := startWriter(t, repo, time.Second)
		fail(w) // before the rule
		require.NoError(t, stop())
		w, stop = startWriter(t, repo, time.Second)
		withRules(t, w, failedRule(twice))
		time.Sleep(time.Second)
		repo.lose = true
		fail(w)
		time.Sleep(10 * time.Second)
		require.NoError(t, stop())
		require.Len(t, firings(repo.events()), 1, "the failure before the rule counts")
		w, stop = startWriter(t, repo, time.Second)
		withRules(t, w, failedRule(twice))
		require.Len(t, w.PendingEffects(), 1)
		w.Announce(rules.Outcome(w.PendingEffects()[0].Firing, 0, "webhook a.example", "", time.Now()))
		require.Empty(t, w.PendingEffects())
		for range 4 {
			fail(w)
			time.Sleep(time.Second)
		}
		require.NoError(t, stop())
		require.Len(t, firings(repo.events()), 1, "in the cooldown")
		w, stop = startWriter(t, repo, time.Second)
		withRules(t, w, failedRule(twice))
		require.Empty(t, w.PendingEffects(), "the outcome is in the log")
		time.Sleep(300 * time.Second)
		fail(w)
		time.Sleep(time.Second)
		fail(w)
		require.NoError(t, stop())
		require.Len(t, firings(repo.events()), 2)
		require.Equal(t, 2, len(slices.Collect(ids(repo.events()))), "each firing has an id of its own")
	})
}

// ids yields the ids of the firings among events, each once.
func ids(events []plan.Event) iter.Seq[string] {
	seen := map[string]bool{}
	return func(yield func(string) bool) {
		for _, e := range events {
			if _, ok := rules.Firing(e); ok && !seen[e.EventID] {
				seen[e.EventID] = true
				if !yield(e.EventID) {
					return
				}
			}
		}
	}
}

func TestUnreadableLogHoldsNoRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := eventfulRepo{&statusRepo{}, errors.New("damaged")}
		w, stop := startWriter(t, repo, time.Second)
		withRules(t, w, failedRule(asIs))
		fail(w)
		require.NoError(t, stop())
		require.Len(t, firings(repo.events()), 1)
	})
}

func TestSamplesBeyondAThresholdFireOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := eventfulRepo{statusRepo: &statusRepo{}}
		hot := failedRule(func(s *schema.HookRuleSpec) {
			above := 90
			s.When = schema.HookWhen{Threshold: &schema.HookThreshold{Metric: schema.MetricLoad, Above: &above, ForSeconds: 30}}
		})
		for range 2 { // daemons
			w, stop := startWriter(t, repo, time.Second)
			w.Sample("n1", "abc", map[string]float64{schema.MetricLoad: 95}, time.Now())
			withRules(t, w, hot)
			for range 10 {
				w.Sample("n1", "abc", map[string]float64{schema.MetricLoad: 95}, time.Now())
				time.Sleep(15 * time.Second)
			}
			require.NoError(t, stop())
		}
		require.Len(t, repo.events(), 2, "the exceeded threshold, and the firing")
		require.Equal(t, []string{"berth.node.threshold_exceeded"}, firings(repo.events()))
		require.NotEmpty(t, repo.events()[0].CorrelationID)
	})
}

package nodes_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/reconciler/nodes"
	"berth/reconciler/plan"
)

var (
	limits = nodes.Limits{NotReady: 45 * time.Second, Lost: 10 * time.Minute}
	start  = time.Date(2026, 7, 1, 8, 0, 0, 0, time.UTC)
)

const beat = 15 * time.Second

// history is a node that is observed at intervals.
type history struct {
	t      *testing.T
	status nodes.Status
	now    time.Time
	last   *nodes.Transition
}

func newHistory(t *testing.T) *history { return &history{t: t, now: start} }

// observe makes an observation after each heartbeat of a duration.
func (h *history) observe(d time.Duration, o nodes.Observation) {
	for range d / beat {
		h.now = h.now.Add(beat)
		next, transition := nodes.Next(h.status, o, h.now, limits)
		if h.status = next; transition != nil {
			h.last = transition
		}
	}
}

// restart is a restart of the daemon, which keeps what berth/status has.
func (h *history) restart(gap time.Duration) {
	h.status.Observed, h.now = time.Time{}, h.now.Add(gap)
}

func (h *history) is(state nodes.State, reason plan.Reason) {
	h.t.Helper()
	require.Equal(h.t, state, h.status.State)
	require.Equal(h.t, reason, h.status.Reason)
}

func TestStateFollowsObservedSilence(t *testing.T) {
	silent, answers := nodes.Observation{}, nodes.Observation{Answer: nodes.Usable}
	gone := nodes.Observation{Scheduler: plan.Unresponsive}
	t.Run("a node that never answered is unknown without a transition", func(t *testing.T) {
		h := newHistory(t)
		h.observe(time.Hour, gone)
		h.is(nodes.Unknown, plan.ReasonNeverAnswered)
		require.Nil(t, h.last)
	})
	t.Run("the first answer makes it ready", func(t *testing.T) {
		h := newHistory(t)
		h.observe(beat, answers)
		h.is(nodes.Ready, plan.ReasonHostAnswers)
		require.Equal(t, &nodes.Transition{From: nodes.Unknown, To: nodes.Ready, Reason: plan.ReasonHostAnswers, At: h.now, Number: 1}, h.last)
	})
	t.Run("silence of the host alone ends in unknown", func(t *testing.T) {
		h := newHistory(t)
		h.observe(beat, answers)
		h.observe(30*time.Second, silent)
		h.is(nodes.Ready, plan.ReasonHostAnswers)
		h.observe(beat, silent)
		h.is(nodes.NotReady, plan.ReasonHostSilent)
		h.observe(9*time.Minute, silent)
		h.is(nodes.NotReady, plan.ReasonHostSilent)
		h.observe(time.Minute, silent)
		h.is(nodes.Unknown, plan.ReasonHostSilent)
		h.observe(beat, answers)
		h.is(nodes.Ready, plan.ReasonHostAnswers)
		require.Equal(t, 4, h.last.Number)
	})
	t.Run("a node is lost when host and scheduler say so", func(t *testing.T) {
		h := newHistory(t)
		h.observe(beat, answers)
		h.observe(9*time.Minute, gone)
		h.is(nodes.NotReady, plan.ReasonHostSilent)
		h.observe(time.Minute, gone)
		h.is(nodes.Lost, plan.ReasonHostAndSchedulerSilent)
		h.observe(beat, silent)
		h.is(nodes.Lost, plan.ReasonHostAndSchedulerSilent)
		h.observe(beat, nodes.Observation{Scheduler: plan.Responds})
		h.is(nodes.Unknown, plan.ReasonHostSilent)
	})
	t.Run("a scheduler alone loses no node", func(t *testing.T) {
		h := newHistory(t)
		h.observe(time.Hour, nodes.Observation{Answer: nodes.Usable, Scheduler: plan.Unresponsive})
		h.is(nodes.Ready, plan.ReasonHostAnswers)
	})
	t.Run("a host that answers without facts is not ready and never gone", func(t *testing.T) {
		h := newHistory(t)
		h.observe(beat, answers)
		h.observe(time.Hour, nodes.Observation{Answer: nodes.Unusable, Scheduler: plan.Unresponsive})
		h.is(nodes.NotReady, plan.ReasonAnswerUnusable)
		h.observe(9*time.Minute, gone)
		h.is(nodes.NotReady, plan.ReasonHostSilent)
	})
	t.Run("a restart counts no silence and repeats no transition", func(t *testing.T) {
		h := newHistory(t)
		h.observe(beat, answers)
		h.restart(24 * time.Hour)
		h.observe(beat, gone)
		h.is(nodes.Ready, plan.ReasonHostAnswers)
		h.observe(11*time.Minute, gone)
		h.is(nodes.Lost, plan.ReasonHostAndSchedulerSilent)
		last := h.last
		h.restart(24 * time.Hour)
		h.observe(time.Minute, silent)
		h.is(nodes.Lost, plan.ReasonHostAndSchedulerSilent)
		require.Same(t, last, h.last)
	})
	t.Run("a clock that jumps makes no node lost", func(t *testing.T) {
		h := newHistory(t)
		h.observe(beat, answers)
		h.observe(beat, gone)
		h.now = h.now.Add(48 * time.Hour)
		h.observe(beat, gone)
		h.is(nodes.NotReady, plan.ReasonHostSilent)
		h.now = h.now.Add(-96 * time.Hour)
		h.observe(beat, gone)
		h.is(nodes.NotReady, plan.ReasonHostSilent)
	})
}

// In any history of answers, views, restarts and clock jumps: a usable answer makes ready, a state changes by a transition only,
// transitions count up, and a node is lost only after enough observations in a row to which its host gave no answer, and after
// its scheduler said that it does not respond.
func TestStatesInAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s nodes.Status
		now, silent, unresponsive := start, 0, false
		for range rapid.IntRange(1, 200).Draw(t, "observations") {
			if rapid.IntRange(0, 20).Draw(t, "restart") == 0 {
				s.Observed = time.Time{}
			}
			now = now.Add(rapid.SampledFrom([]time.Duration{beat, beat, beat, time.Minute, 48 * time.Hour, -time.Hour, 0}).Draw(t, "gap"))
			o := nodes.Observation{
				Answer: rapid.SampledFrom([]nodes.Answer{nodes.Silent, nodes.Silent, nodes.Silent, nodes.Silent, nodes.Unusable,
					nodes.Usable}).Draw(t, "answer"),
				Scheduler: plan.SchedulerView(rapid.IntRange(0, 2).Draw(t, "scheduler")),
			}
			next, transition := nodes.Next(s, o, now, limits)
			if o.Answer == nodes.Silent {
				silent++
			} else {
				silent, unresponsive = 0, false
			}
			if o.Scheduler != plan.NoView {
				unresponsive = o.Scheduler == plan.Unresponsive
			}
			was := s.State
			if was == "" {
				was = nodes.Unknown
			}
			if (transition != nil) != (next.State != was) {
				t.Fatalf("from %s to %s with transition %v", was, next.State, transition)
			}
			if transition != nil && (transition.Number != s.Transitions+1 || transition.To != next.State || !next.Since.Equal(now)) {
				t.Fatalf("transition %+v of %+v", *transition, next)
			}
			if o.Answer == nodes.Usable && (next.State != nodes.Ready || !next.Answered.Equal(now) || next.Silence != 0) {
				t.Fatalf("answered and %+v", next)
			}
			if o.Answer != nodes.Silent && (next.State == nodes.Lost || next.State == nodes.Unknown && next.Transitions > 0) {
				t.Fatalf("answers and %+v", next)
			}
			if next.State == nodes.Lost && (!unresponsive || silent < int((limits.Lost-limits.NotReady)/limits.NotReady)) {
				t.Fatalf("lost after %d observations without an answer, unresponsive %v", silent, unresponsive)
			}
			if next.State == nodes.Ready && next.Silence >= limits.NotReady {
				t.Fatalf("ready after silence of %s", next.Silence)
			}
			s = next
		}
	})
}

func TestLimitsHaveAnOrder(t *testing.T) {
	require.NoError(t, limits.Check())
	require.ErrorContains(t, nodes.Limits{NotReady: time.Minute, Lost: time.Minute}.Check(), "must be longer")
	require.Error(t, nodes.Limits{Lost: time.Minute}.Check())
}

func TestConditionOfANode(t *testing.T) {
	for state, want := range map[nodes.State]plan.ConditionStatus{nodes.Ready: plan.ConditionTrue, nodes.NotReady: plan.ConditionFalse,
		nodes.Unknown: plan.ConditionUnknown, nodes.Lost: plan.ConditionFalse} {
		c := nodes.Condition(nodes.Status{State: state, Reason: plan.ReasonHostSilent}, "no route")
		require.Equal(t, want, c.Status, state)
		require.Equal(t, plan.ConditionReady, c.Type)
		require.Equal(t, state == nodes.Ready, c.Message == "")
	}
}

// Package nodes decides the state of a node from observations of its host (requirements E3, E5).
//
// Silence is counted only as far as Berth observed it: the time between two observations counts up to the
// limit for NotReady. So a daemon that was stopped, or a clock that jumps, makes no node lost.
//
// The package is pure: no context, no clock, no I/O. It must not know how a host is asked, or any scheduler.
package nodes

import (
	"fmt"
	"time"

	"berth/reconciler/plan"
)

// State is the state of a node. It is the phase of its status on berth/status.
type State string

// The states.
const (
	Ready    State = plan.NodeReady // The host answers.
	NotReady State = "not_ready"    // The host gave no usable answer for longer than Limits.NotReady.
	Unknown  State = "unknown"      // The host never answered, or is silent for longer than Limits.Lost and no scheduler confirms it.
	Lost     State = "lost"         // The host is silent for longer than Limits.Lost, and its scheduler says that it does not respond.
)

// States are all states, in the order of a summary.
func States() []State { return []State{Ready, NotReady, Unknown, Lost} }

// Limits are the times of observed silence after which a state ends.
type Limits struct {
	NotReady time.Duration // until NotReady
	Lost     time.Duration // until Lost or Unknown; longer than NotReady
}

// Answer is what a host answered to an observation.
type Answer int

// The answers.
const (
	Silent   Answer = iota // no answer, or no connection
	Unusable               // the host answers, and its facts cannot be read
	Usable                 // facts
)

// Observation is one observation of a node.
type Observation struct {
	Answer    Answer
	Scheduler plan.SchedulerView // of the units on the node
}

// Status is the state of a node with its history. The zero value is a node that was never observed.
type Status struct {
	State       State
	Since       time.Time // of the state; zero before the first transition
	Reason      plan.Reason
	Answered    time.Time     // time of the last usable answer; zero: none
	Observed    time.Time     // time of the last observation; zero: none since the start
	Silence     time.Duration // observed time without a usable answer
	Transitions int           // number of transitions so far
}

// Transition is a change of a node's state.
type Transition struct {
	From, To State
	Reason   plan.Reason
	At       time.Time
	Number   int // 1 is the first one of the node
}

// Next returns the status after an observation at now, and the transition that it makes, or nil. A node that never answered
// makes none until its host answers. A lost node stays lost until its host answers or its scheduler says that it responds.
func Next(prev Status, o Observation, now time.Time, l Limits) (Status, *Transition) {
	next := prev
	if next.State == "" {
		next.State, next.Reason = Unknown, plan.ReasonNeverAnswered
	}
	next.Silence = silence(prev, o, now, l)
	next.Observed = now
	if o.Answer == Usable {
		next.Answered = now
	}
	state, reason := decide(next, o, l)
	next.Reason = reason
	if state == next.State {
		return next, nil
	}
	t := &Transition{From: next.State, To: state, Reason: reason, At: now, Number: prev.Transitions + 1}
	next.State, next.Since, next.Transitions = state, now, t.Number
	return next, t
}

// silence returns the observed time without a usable answer. An unusable answer holds it below the limit for Lost: a host that
// answers is not gone.
func silence(prev Status, o Observation, now time.Time, l Limits) time.Duration {
	if o.Answer == Usable {
		return 0
	}
	total := prev.Silence
	if !prev.Observed.IsZero() {
		total += min(max(now.Sub(prev.Observed), 0), l.NotReady)
	}
	if o.Answer == Unusable {
		total = min(total, l.NotReady)
	}
	return total
}

// decide returns the state of a node with this history, and its reason.
func decide(s Status, o Observation, l Limits) (State, plan.Reason) {
	isBad := s.Silence >= l.NotReady
	switch {
	case o.Answer == Usable:
		return Ready, plan.ReasonHostAnswers
	case o.Answer == Unusable && isBad:
		return NotReady, plan.ReasonAnswerUnusable
	case s.Answered.IsZero() && s.Transitions == 0:
		return Unknown, plan.ReasonNeverAnswered
	case s.Silence >= l.Lost && (o.Scheduler == plan.Unresponsive || s.State == Lost && o.Scheduler == plan.NoView):
		return Lost, plan.ReasonHostAndSchedulerSilent
	case s.Silence >= l.Lost:
		return Unknown, plan.ReasonHostSilent
	case isBad && s.State == Ready, isBad && s.State == NotReady:
		return NotReady, plan.ReasonHostSilent
	}
	return s.State, s.Reason // nothing new for long enough
}

// Condition returns the condition Ready of a node in a state. message is for people, such as the error of the last observation.
func Condition(s Status, message string) plan.Condition {
	c := plan.Condition{Type: plan.ConditionReady, Status: plan.ConditionFalse, Reason: s.Reason, Message: message}
	switch s.State {
	case Ready:
		c.Status, c.Message = plan.ConditionTrue, ""
	case Unknown, "":
		c.Status = plan.ConditionUnknown
	}
	return c
}

// Check reports limits that no state can follow.
func (l Limits) Check() error {
	if l.NotReady <= 0 || l.Lost <= l.NotReady {
		return fmt.Errorf("the time until a node is lost (%s) must be longer than the time until it is not ready (%s)", l.Lost, l.NotReady)
	}
	return nil
}

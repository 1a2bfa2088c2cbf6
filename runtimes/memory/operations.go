package memory

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
)

// drainMark begins the reasons of drains that operations made. Operations undo no other drain.
const drainMark = "operation "

// operate carries out an operation. Its last step records it as done together with its effect, so
// that it is never done twice.
func (a *applier) operate() error {
	op, verb, member := a.change.Action.Operation, a.change.Action.Verb, a.change.Action.Member
	if op == nil {
		return fmt.Errorf("%s %s: the action has no operation", verb, a.key)
	}
	if schema.IsOfUnit(string(verb)) {
		return nil // the loop has begun a new attempt, or created the unit again
	}
	if a.isDone(op.ID) {
		return nil
	}
	var failure error
	err := a.step(a.change.Action.Node, string(verb), func(u *unit) {
		m, ok := u.Members[member]
		if !ok {
			failure = fmt.Errorf("%s %s: there is no member %s", verb, a.key, member)
			return
		}
		m.Labels = maps.Clone(m.Labels)
		failure = a.effect(u, &m)
		u.Members[member] = m
		if failure == nil {
			u.Done = append(u.Done, op.ID)
		}
	})
	return cmp.Or(err, failure)
}

func (a *applier) isDone(id string) bool {
	a.world.mu.Lock()
	defer a.world.mu.Unlock()
	u := a.world.units[a.key]
	return u != nil && slices.Contains(u.Done, id)
}

// effect changes a member as an operation says. An error leaves the operation undone.
func (a *applier) effect(u *unit, m *memberState) error {
	op, verb, member := a.change.Action.Operation, a.change.Action.Verb, a.change.Action.Member
	switch verb {
	case plan.Drain, plan.Replace, plan.Remove, plan.Cordon:
		m.Drained = cmp.Or(m.Drained, drainMark+op.Name)
		if verb == plan.Cordon {
			return nil
		}
		on := cmp.Or(op.OnJobs, u.Applied.Effective.OnJobs)
		if on != nil && on.CancelAfterSeconds > 0 {
			u.Jobs.Running = 0
		}
		if u.Jobs.Running > 0 {
			return fmt.Errorf("%s %s: jobs run on %s: %w", verb, a.key, m.Node, runtimes.ErrWaiting)
		}
	case plan.Resume, plan.Uncordon:
		if m.Drained != "" && !strings.HasPrefix(m.Drained, drainMark) {
			return fmt.Errorf("%s: %s on %s is drained by a person (%s), not by an operation: that person has to take the drain back", verb,
				member, m.Node, m.Drained)
		}
		m.Drained = ""
	case plan.Restart:
		m.Starts++
		m.State = plan.Running
	case plan.Label:
		if m.Labels == nil {
			m.Labels = map[string]string{}
		}
		maps.Copy(m.Labels, op.Labels)
	default:
		return errors.New("unknown operation")
	}
	return nil
}

package reconciler

import (
	"berth/reconciler/plan"
	"berth/schema"
)

// State has the documents in force by one decision, and the values derived from them. A State
// that the loop has published never changes: the next decision makes a new one.
type State struct {
	Main, InForce string // commits
	Day           string // UTC day of the decision, as 2006-01-02
	Desired       *schema.Desired
	Effective     *schema.Effective
	Placement     plan.Placement
	Held          []schema.Held
	DeniedBy      map[schema.Key]string // of Held: the documents that lack a permission, and why
	Permitted     map[string]string     // as in InForce
	Paused        string                // why the estate is paused; "": it is not

	// Recorded is the state that the statuses describe, where a daemon stopped after
	// it wrote berth/in-force and before it wrote berth/status; nil: this one.
	Recorded *State
}

// Unit returns the wanted unit; nil: the unit has to be deleted.
func (s *State) Unit(key schema.Key) *schema.EffectiveUnit {
	return s.Placement.Unit(s.Effective, key)
}

// Noncompliance returns the rules that an existing unit breaks; nil: it complies
// with policy.
func (s *State) Noncompliance(key schema.Key) *schema.Noncompliance {
	return s.Placement.Noncompliance(s.Effective, key)
}

// Denied returns why a change of a unit's document lacks a permission; "": none
// does.
func (s *State) Denied(key schema.Key) string { return s.DeniedBy[key] }

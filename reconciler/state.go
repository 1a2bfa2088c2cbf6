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
	GPUSeconds    map[string]int64      // that jobs used in the month, by project; nil: no policy bounds them
	UsedUp        map[string]string     // projects and tenants whose GPU hours of the month are used up, each with the reason

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

// QuotaUsedUp returns why a quota of a unit's project or tenant is used up; "": none is.
func (s *State) QuotaUsedUp(unit schema.Key) string {
	if why := s.UsedUp[unit.ProjectID()]; why != "" && unit.Project != "" {
		return why
	}
	return s.UsedUp[unit.Tenant]
}

// Denied returns why a change of a unit's document lacks a permission; "": none
// does.
func (s *State) Denied(key schema.Key) string { return s.DeniedBy[key] }

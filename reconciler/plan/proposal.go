package plan

import (
	"fmt"
	"slices"

	"berth/schema"
	"berth/schema/authority"
)

// CodePartialMove is the code of a finding about a PartialMove. The message begins with
// the text of the move.
const CodePartialMove = "deletion.partial-move"

// PartialMove is a move of a document between tenants of which only one half comes into force.
type PartialMove struct {
	From schema.Key `json:"from"`
	To   schema.Key `json:"to"`
	Half MoveHalf   `json:"half"` // the half that comes into force
}

// MoveHalf is a half of a move between tenants.
type MoveHalf string

// The halves.
const (
	HalfDeletion MoveHalf = "deletion" // One tenant loses the document, and the other does not get it.
	HalfCreation MoveHalf = "creation" // Both tenants have the document.
)

// String describes the effect of a merge on both sides.
func (m PartialMove) String() string {
	if m.Half == HalfDeletion {
		return fmt.Sprintf("deletes %s and does not create %s", m.From, m.To)
	}
	return fmt.Sprintf("creates %s and does not delete %s", m.To, m.From)
}

// Proposal is the effect of one change to an estate: the Plans of every unit it
// touches, and what blocks it. A comment, a check and `berth plan` show it.
type Proposal struct {
	Format  string `json:"format"` // plan.Format
	Base    string `json:"base"`   // commit that the change is compared with
	Head    string `json:"head"`
	Digest  string `json:"digest"`            // over the digests of Plans
	Assumed bool   `json:"assumed,omitempty"` // without a status branch: Base is assumed to run as declared
	// in a local checkout: reason why Berth's plan may differ, and the next step; a sentence
	Note        string              `json:"note,omitempty"`
	Conflicts   []string            `json:"conflicts,omitempty"` // files head and base both changed
	Diagnostics []schema.Diagnostic `json:"diagnostics"`
	Documents   []DocumentChange    `json:"documents"`           // the changed documents, sorted by file
	Decisions   []schema.Decision   `json:"decisions,omitempty"` // of touched units
	Plans       []Plan              `json:"plans"`               // units with an action or a block, sorted by key
	Held        []schema.Held       `json:"held,omitempty"`
	// Released are the units of Plans, sorted, whose earlier held documents come
	// into force with the next merge, whatever it changes.
	Released []schema.Key `json:"released,omitempty"`
	// Authority is the permission that each changed document needs, and the decision
	// about it; empty where permissions are not checked.
	Authority []authority.Decision `json:"authority,omitempty"`
	PolicyEffects
}

// PolicyEffects are the effects of a change through policy beside its own units.
type PolicyEffects struct {
	// Impacted are the instances in force that policy denies only after the change, or
	// only before it, with their fate.
	Impacted []schema.Noncompliance `json:"impacted,omitempty"`
	// Quotas are those of which the change uses more or less, sorted by owner, in the order of their documentation.
	Quotas []schema.QuotaUse `json:"quotas,omitempty"`
}

// DocumentChange is one document a change touches.
type DocumentChange struct {
	Key    schema.Key `json:"key,omitzero"` // zero where the file has no key
	File   string     `json:"file"`
	From   string     `json:"from,omitempty"` // earlier path of a document that moved, found by uid
	Change string     `json:"change"`         // added, modified, deleted, moved
	// Partial is the move whose half in File does not come into force; nil: none.
	Partial *PartialMove `json:"partial_move,omitempty"`
	// Fields are those that change in the document, at most MaxDocumentFields.
	Fields     []Change `json:"fields,omitempty"`
	MoreFields int      `json:"more_fields,omitempty"` // that changed beside them
}

// Comes reports whether a unit is in Released. A block on such a unit does not block
// this change.
func (p *Proposal) Comes(key schema.Key) bool {
	_, ok := slices.BinarySearchFunc(p.Released, key, schema.Key.Compare)
	return ok
}

// Blocked reports whether a merge would not bring the whole change into force.
func (p *Proposal) Blocked() bool {
	if len(p.Conflicts)+len(p.Held) > 0 || schema.HasErrors(p.Diagnostics) {
		return true
	}
	return slices.ContainsFunc(p.Plans, func(u Plan) bool { return len(p.Obstacles(&u)) > 0 })
}

// Obstacles returns the blocks of a unit that take more than time and belong to this change: none of a released unit.
func (p *Proposal) Obstacles(u *Plan) []Blocked {
	if p.Comes(u.Key) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(u.Blocked), func(b Blocked) bool { return b.Wait })
}

// Changes reports whether any plan has an action.
func (p *Proposal) Changes() bool {
	return slices.ContainsFunc(p.Plans, func(u Plan) bool { return len(u.Actions) > 0 })
}

// Rollout is the progress of a merged change.
type Rollout struct {
	Commit        string         `json:"commit"`
	CorrelationID string         `json:"correlation_id"`
	Files         string         `json:"files,omitempty"` // as in PullContext
	Units         []UnitProgress `json:"units"`           // sorted by key
	Held          []schema.Held  `json:"held,omitempty"`
}

// UnitProgress is the progress of one unit of a Rollout.
type UnitProgress struct {
	Key     schema.Key     `json:"key"`
	Phase   Phase          `json:"phase"`
	Done    int            `json:"done"`  // completed actions
	Total   int            `json:"total"` // planned actions
	Settled bool           `json:"settled"`
	Members []MemberStatus `json:"members,omitempty"`
	Failure string         `json:"failure,omitempty"`
	// Degraded names the workers that are not in service; empty: all are.
	Degraded string `json:"degraded,omitempty"`

	Seconds float64 `json:"seconds,omitempty"` // from detection of the merge until settled

	// At is the current step, or the one that failed: "join worker-1 on gpu-2".
	At string `json:"at,omitempty"`
	// TakenOver is the commit that changed the unit before this roll-out finished it; ""
	// if none.
	TakenOver string `json:"taken_over,omitempty"`
	// Stale is why the unit is held: its plan differs from the reviewed one.
	Stale *StalePlan `json:"stale,omitempty"`
}

// Settled reports whether every unit of the roll-out is settled.
func (r *Rollout) Settled() bool {
	return !slices.ContainsFunc(r.Units, func(u UnitProgress) bool { return !u.Settled })
}

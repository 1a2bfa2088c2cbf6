package plan

import (
	"slices"

	"berth/schema"
	"berth/schema/authority"
)

// CodePartialMove is the code of the finding that a change moves a document from one
// tenant to another, and that only the deletion or only the creation comes into
// force. The message begins with what the merge does and what it does not do.
const CodePartialMove = "deletion.partial-move"

// Proposal is what one change to an estate would do: the Plans of every unit
// it touches, and everything in its way. A PR comment, a check and `berth plan`
// all show one.
type Proposal struct {
	Format      string              `json:"format"` // plan.Format
	Base        string              `json:"base"`   // commit it is made against
	Head        string              `json:"head"`
	Digest      string              `json:"digest"`              // over the digests of Plans
	Assumed     bool                `json:"assumed,omitempty"`   // nobody keeps a memory of what runs: Base is taken to run as declared
	Note        string              `json:"note,omitempty"`      // at a desk: why Berth may plan otherwise, and what to do about it; a sentence for people
	Conflicts   []string            `json:"conflicts,omitempty"` // files head and base both changed
	Diagnostics []schema.Diagnostic `json:"diagnostics"`
	Documents   []DocumentChange    `json:"documents"`           // what the change touches, sorted by file
	Decisions   []schema.Decision   `json:"decisions,omitempty"` // of touched units
	Plans       []Plan              `json:"plans"`               // units with something to do or in the way, sorted by key
	Held        []Held              `json:"held,omitempty"`
	// Released are those units of Plans, sorted, that something is done to whatever
	// the change says: what was held of them may come into force by now, and does
	// with the next merge.
	Released []schema.Key `json:"released,omitempty"`
	// Authority is what each changed document needs, and whether somebody has it;
	// empty where nobody's right is asked.
	Authority []authority.Decision `json:"authority,omitempty"`
	// Impacted are the instances in force that policy would refuse after the
	// change and does not before, or the other way, and what becomes of each.
	Impacted []schema.Noncompliance `json:"impacted,omitempty"`
}

// DocumentChange is one document a change touches.
type DocumentChange struct {
	Key    schema.Key `json:"key,omitzero"` // zero where the file says no key
	File   string     `json:"file"`
	From   string     `json:"from,omitempty"` // where it was, for a move by uid
	Change string     `json:"change"`         // added, modified, deleted, moved
}

// Held is a document that does not come into force, and why. The version in
// force before, if any, stays.
type Held struct {
	Key     schema.Key `json:"key,omitzero"`
	File    string     `json:"file"`
	Reason  string     `json:"reason"` // as in package load: invalid, needs, denied, blocked, unauthorised, unreadable
	Message string     `json:"message"`
}

// Why is the reason in the words of the documentation.
func (h Held) Why() string {
	switch h.Reason {
	case "unauthorised":
		return "unauthorized"
	case "denied":
		return "denied by policy"
	case "needs":
		return "waiting for reference"
	case "blocked":
		return "blocked deletion"
	}
	return h.Reason
}

// Comes says whether something is done to a unit whatever the change says, as
// Released has it: what blocks it is then in no change's way.
func (p *Proposal) Comes(key schema.Key) bool {
	_, ok := slices.BinarySearchFunc(p.Released, key, schema.Key.Compare)
	return ok
}

// Blocked says whether a merge would not do what the change asks.
func (p *Proposal) Blocked() bool {
	if len(p.Conflicts)+len(p.Held) > 0 || schema.HasErrors(p.Diagnostics) {
		return true
	}
	for _, u := range p.Plans {
		for _, b := range u.Blocked {
			if !b.Wait && !p.Comes(u.Key) {
				return true
			}
		}
	}
	return false
}

// Changes says whether there is an action in any plan.
func (p *Proposal) Changes() bool {
	for _, u := range p.Plans {
		if len(u.Actions) > 0 {
			return true
		}
	}
	return false
}

// Rollout is what became of a merged change.
type Rollout struct {
	Commit        string         `json:"commit"`
	CorrelationID string         `json:"correlation_id"`
	Files         string         `json:"files,omitempty"` // as in PullContext
	Units         []UnitProgress `json:"units"`           // sorted by key
	Held          []Held         `json:"held,omitempty"`
}

// UnitProgress is where one unit of a Rollout stands.
type UnitProgress struct {
	Key     schema.Key     `json:"key"`
	Phase   Phase          `json:"phase"`
	Done    int            `json:"done"`  // actions done
	Total   int            `json:"total"` // actions planned
	Settled bool           `json:"settled"`
	Members []MemberStatus `json:"members,omitempty"`
	Failure string         `json:"failure,omitempty"`
	Seconds float64        `json:"seconds,omitempty"` // from the merge being seen to settled

	// At is the step that is under way, or that failed: "join worker-1 on gpu-2".
	At string `json:"at,omitempty"`
	// TakenOver is the commit that changed the unit before this one was through
	// with it; "": none did.
	TakenOver string `json:"taken_over,omitempty"`
	// Stale is why the unit is held, as its plan is not the one reviewed.
	Stale *StalePlan `json:"stale,omitempty"`
}

// Settled says whether nothing of the rollout is under way any more.
func (r *Rollout) Settled() bool {
	for _, u := range r.Units {
		if !u.Settled {
			return false
		}
	}
	return true
}

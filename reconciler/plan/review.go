package plan

import (
	"berth/schema"
)

// Check is what is said of a commit, as one named check: a verdict, a line and
// the reasons.
type Check struct {
	Name       string     // such as "berth/plan"
	Key        string     // of all that is shown: equal keys, equal checks; at most 200 characters
	Conclusion Conclusion // what a required check goes by
	Title      string     // one line, at most 140 characters
	Summary    string     // harmless Markdown
	// Notes are shown beside the lines of the change they are at; what is at no
	// line of it is in Summary.
	Notes []schema.Diagnostic
}

// Conclusion of a Check.
type Conclusion string

// The conclusions. Nothing to say is a success: a required check that stays
// silent would block for ever.
const (
	Success Conclusion = "success"
	Failure Conclusion = "failure"
)

// Names of the checks: what is written is right, which no cluster needs to be
// asked for; and what it would do is allowed and possible.
const (
	CheckValidate = "berth/validate"
	CheckPlan     = "berth/plan"
)

// Review is what a pull request was last shown to do, kept on berth/status as
// pulls/<number>.yaml from before it is shown until its roll-out is over. After
// the merge a unit is changed only by the plan that was shown of it (promise 1 of
// DESIGN §1): Review tells whether it is that. It holds nobody's permission; it
// can only hold things up.
type Review struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // PullReview
	Pull       int    `json:"pull"`
	Head       string `json:"head"` // commit that was planned
	Base       string `json:"base"` // commit of main it was merged into for it
	Digest     string `json:"digest"`
	// Key is over everything shown but Base: while it is the same nothing is
	// written, and what is shown goes on naming the Base it was made with.
	Key   string         `json:"key"`
	Units []ReviewedUnit `json:"units,omitempty"` // sorted by key
	// Commit is main's that brought it, once it is merged and decided.
	Commit string `json:"commit,omitempty"`
}

// ReviewedUnit is the plan of one unit as it was shown: enough to recognise it,
// and to tell in words how a later one differs.
type ReviewedUnit struct {
	Key    schema.Key `json:"key"`
	Digest string     `json:"digest"`
	Steps  []string   `json:"steps,omitempty"` // what it does, a line each, in order
	Facts  []string   `json:"facts,omitempty"` // what it rests on, a line each: members, nodes, states
}

// CodeStale blocks a unit whose plan is not the one that was reviewed: nothing is
// done to it until somebody says that the plan there is now is meant.
const CodeStale = "plan.stale"

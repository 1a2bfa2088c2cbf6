package plan

import (
	"berth/schema"
)

// PullContext is what is known of a pull request besides what its merge would do,
// as far as it is shown. The zero value is of no pull request, as at a desk.
type PullContext struct {
	Number int          `json:"number,omitempty"`
	Fork   bool         `json:"fork,omitempty"`   // its head is in another repository
	Queue  bool         `json:"queue,omitempty"`  // the head is a merge queue's: whose right it is was asked on each of its pull requests
	Paused string       `json:"paused,omitempty"` // why Berth has no effect for now; "": it has
	Lines  schema.Lines `json:"lines,omitempty"`  // what the pull request's diff shows of files that the merge takes as they are
	Jobs   []UnitJobs   `json:"jobs,omitempty"`   // when it was planned, sorted by key; of a unit without nobody knows
}

// UnitJobs is the work on a unit. It informs, and is part of no digest; of what is
// shown by key that it is known is part, and how much it is is not.
type UnitJobs struct {
	Key schema.Key `json:"key"`
	Jobs
}

// StalePlan is why a unit is held after a merge: what would be done to it is not
// what was reviewed.
type StalePlan struct {
	Reviewed string     `json:"reviewed,omitempty"` // digest of the plan that was shown; "": none was before the merge
	Now      string     `json:"now"`                // digest of the plan there is
	Diff     []DiffLine `json:"diff,omitempty"`     // between the two, in steps and facts
}

// DiffLine is a line of a difference.
type DiffLine struct {
	Sign string `json:"sign"` // "-" was reviewed, "+" is now, " " is both, "@" begins a part
	Text string `json:"text"`
}

// Answer is what Berth answers to a command in a comment.
type Answer struct {
	To   string     `json:"to"`   // login
	Said string     `json:"said"` // the command's line
	Kind AnswerKind `json:"kind"`
	// Did is what was done; of AnswerDone.
	Did string `json:"did,omitempty"`
	// Why is the reason and the next step; of AnswerRefused. Of AnswerDone it is what
	// else there is to know; "": nothing.
	Why string `json:"why,omitempty"`
	// Instance and Field were asked for; of AnswerExplain.
	Instance schema.Key `json:"instance,omitzero"`
	Field    string     `json:"field,omitempty"`
	// Proposal is the plan that the command has to be repeated for; of AnswerRepeat.
	Proposal *Proposal `json:"proposal,omitempty"`
	Left     []Held    `json:"left,omitempty"` // what stays held all the same; of AnswerRepeat
	// Commands is the table of commands; of AnswerHelp.
	Commands []CommandHelp `json:"commands,omitempty"`
}

// CommandHelp is one command in the help.
type CommandHelp struct {
	Usage string `json:"usage"` // how it is written
	Who   string `json:"who"`   // may give it
	Help  string `json:"help"`  // what it does
}

// AnswerKind is which answer it is.
type AnswerKind string

// The answers.
const (
	AnswerDone    AnswerKind = "done"    // it is done, or there was nothing to do
	AnswerRefused AnswerKind = "refused" // it is not done
	AnswerRepeat  AnswerKind = "repeat"  // it is done once it is repeated, as its plan was not shown before
	AnswerExplain AnswerKind = "explain" // what an instance comes to
	AnswerHelp    AnswerKind = "help"    // the commands
)

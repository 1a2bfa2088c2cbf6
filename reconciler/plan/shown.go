package plan

import (
	"time"

	"berth/schema"
)

// PullContext is what is shown of a pull request besides the effects of its
// merge. The zero value is that of a local checkout, without a pull request.
type PullContext struct {
	Number int    `json:"number,omitempty"`
	Fork   bool   `json:"fork,omitempty"`   // its head is in another repository
	Queue  bool   `json:"queue,omitempty"`  // the head is a merge queue's; permissions are checked on its pull requests
	Paused string `json:"paused,omitempty"` // why Berth is paused; "": it is not
	// Since is how the steps differ from those of the plan of the previous head; nil:
	// no plan was shown. Without a difference it is one line with the sign " ".
	Since []DiffLine `json:"since,omitempty"`
	// Files is the URL at the forge below which a commit and a path show a file; "":
	// unknown.
	Files    string       `json:"files,omitempty"`
	Observed time.Time    `json:"observed,omitzero"` // when the live state was last observed; zero: unknown
	Lines    schema.Lines `json:"lines,omitempty"`   // lines in the pull request's diff, of files that the merge leaves as they are
	Jobs     []UnitJobs   `json:"jobs,omitempty"`    // sorted by key; units without jobs data are left out
}

// UnitJobs is the jobs of a unit at the time of planning. No digest covers them;
// the key of a comment covers whether they are known, not their number.
type UnitJobs struct {
	Key schema.Key `json:"key"`
	Jobs
}

// StalePlan is why a unit is held after a merge: its plan differs from the reviewed
// one.
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

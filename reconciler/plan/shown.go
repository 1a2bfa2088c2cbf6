package plan

import (
	"time"

	"berth/schema"
)

// PullContext is the displayed information about a pull request besides the effects of
// its merge. The zero value is that of a local checkout, without a pull request.
type PullContext struct {
	Number int    `json:"number,omitempty"`
	Fork   bool   `json:"fork,omitempty"`   // its head is in another repository
	Queue  bool   `json:"queue,omitempty"`  // head of a merge queue; permissions are checked on its pull requests
	Paused string `json:"paused,omitempty"` // reason why Berth is paused; "": not paused
	// Since is how the steps differ from those of the plan of the previous head; nil:
	// no plan was shown. Without a difference it is one line with the sign " ".
	Since []DiffLine `json:"since,omitempty"`
	// Files is the URL at the forge below which a commit and a path show a file; "":
	// unknown.
	Files    string       `json:"files,omitempty"`
	Observed time.Time    `json:"observed,omitzero"` // time of the last live observation; zero: unknown
	Lines    schema.Lines `json:"lines,omitempty"`   // lines in the pull request's diff, of files that the merge does not change further
	Jobs     []UnitJobs   `json:"jobs,omitempty"`    // sorted by key; units without jobs data are left out
}

// UnitJobs is the impact on the jobs of a unit at the time of planning. No digest covers it.
// The key of a comment covers whether it is known, not the jobs.
type UnitJobs struct {
	Key schema.Key `json:"key"`
	JobImpact
}

// StalePlan describes a unit that is held after a merge because its plan differs from
// the reviewed one.
type StalePlan struct {
	Reviewed string     `json:"reviewed,omitempty"` // digest of the plan shown before the merge; "": no plan was shown
	Now      string     `json:"now"`                // digest of the current plan
	Diff     []DiffLine `json:"diff,omitempty"`     // difference in steps and facts
}

// DiffLine is a line of a difference.
type DiffLine struct {
	Sign string `json:"sign"` // "-": reviewed, "+": current, " ": both, "@": start of a section
	Text string `json:"text"`
}

// Answer is Berth's reply to a command in a comment.
type Answer struct {
	To   string     `json:"to"`   // login
	Said string     `json:"said"` // line of the command
	Kind AnswerKind `json:"kind"`
	// Did is the completed action; for AnswerDone.
	Did string `json:"did,omitempty"`
	// Why is the reason and the next step, for AnswerRefused. For AnswerDone it is
	// additional information, or "".
	Why string `json:"why,omitempty"`
	// Instance and Field are the subject of an AnswerExplain.
	Instance schema.Key `json:"instance,omitzero"`
	Field    string     `json:"field,omitempty"`
	// Proposal is the plan to confirm by repeating the command; for AnswerRepeat.
	Proposal *Proposal     `json:"proposal,omitempty"`
	Left     []schema.Held `json:"left,omitempty"` // changes that stay held after the repeated command; of AnswerRepeat
	// Commands is the table of commands; for AnswerHelp.
	Commands []CommandHelp `json:"commands,omitempty"`
}

// CommandHelp is one command in the help.
type CommandHelp struct {
	Usage string `json:"usage"` // syntax
	Who   string `json:"who"`   // users that may give it
	Help  string `json:"help"`  // effect of the command
}

// AnswerKind is the kind of an Answer.
type AnswerKind string

// The answers.
const (
	AnswerDone    AnswerKind = "done"    // done, or nothing to do
	AnswerRefused AnswerKind = "refused" // not done
	AnswerRepeat  AnswerKind = "repeat"  // the user must repeat the command, because its plan was not shown before
	AnswerExplain AnswerKind = "explain" // effective values of an instance
	AnswerHelp    AnswerKind = "help"    // list of commands
)

package reconciler

import (
	"context"
	"time"

	"berth/reconciler/plan"
)

// Conversation is where Berth speaks with people about a change, and hears what
// they say to it. It is one seam for every forge, in Berth's terms: an adapter
// maps it onto check runs or commit statuses, comments, reactions and roles, and
// is held to one conformance suite (webhooks/forgetest).
//
// All writes are idempotent and level-triggered: what is there already is not
// written, over restarts and lost replies too. Where the forge lets nothing
// through for now, the error is a *LaterError.
type Conversation interface {
	// Report shows a check on a commit. A check of the same name whose Key is
	// there already is left alone, unless somebody asked to see it again.
	Report(ctx context.Context, commit string, c plan.Check) error
	// Settle completes the checks of ours on a commit that were begun and never
	// completed, as cancelled: nobody shall wait for what nobody works on.
	CancelChecks(ctx context.Context, commit string) error
	// Comment brings Berth's one comment on a pull request to what c says;
	// ErrNotFound without such a pull request.
	Comment(ctx context.Context, pull int, c Comment) error

	// Remarks lists what people said to Berth on any pull request, open or not,
	// since a time, oldest first: see Remark.
	Commands(ctx context.Context, since time.Time) ([]CommandComment, error)
	// RemarksOf lists all that was said to Berth on one pull request, whether it
	// was answered or not, edited remarks included.
	CommandsOf(ctx context.Context, pull int) ([]CommandComment, error)
	// React sets a sign beside a remark, for people. That the remark is answered is
	// kept in Berth's comment, as not every forge lists reactions.
	React(ctx context.Context, r CommandComment, with Reaction) error
	// Permission is what somebody may do in the repository now. It is asked for
	// when it counts, and never remembered; nobody of that name is NoPermission.
	Permission(ctx context.Context, login string) (Permission, error)
}

// Comment is what Berth's comment on a pull request says. It is one comment for
// the life of the pull request; a part that is nil stays as it was, an empty one
// goes. All of it is harmless Markdown. From the top: answers, roll-out, plan,
// details of answers.
type Comment struct {
	// Answers are added to those that are there; an answer to a command that was
	// answered before is left out. The comment keeps the newest lines and details,
	// and the ids of many more commands than it has lines.
	Answers []Answer
	Rollout *string // what became of the merge
	Plan    *string // what the merge would do
}

// Answered is the answer to one command.
type Answer struct {
	Command int64  // the id of the comment that gave it
	Line    string // one line; "": it is only noted that the command was answered
	Details string // Markdown below the plan; "": none
}

// Remark is a comment by a person whose first line begins with "/berth".
type CommandComment struct {
	ID       int64
	Pull     int    // what its address names; Forge.Pull says whether that is a pull request
	Author   string // login; never Berth itself, never a bot
	Line     string // the first line, without space around it
	When     time.Time
	Edited   bool // it is no command: a command may not change after it was judged
	Answered bool // Berth's comment on the pull request, or its reaction, says so
}

// Reaction is a sign Berth sets beside a remark.
type Reaction string

// The reactions.
const (
	Accepted   Reaction = "accepted"   // it is done, or will be
	Refused    Reaction = "refused"    // whoever said it may not, or it no longer holds
	Understood Reaction = "understood" // answered in words
	Confused   Reaction = "confused"   // not a command
)

// Permission is what somebody may do in a repository, the lesser first.
type Permission int

// The permissions, as every forge has them.
const (
	NoPermission Permission = iota
	CanRead
	CanWrite
	CanAdmin
)

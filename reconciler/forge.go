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
	Settle(ctx context.Context, commit string) error
	// Comment brings Berth's one comment on a pull request to what c says;
	// ErrNotFound without such a pull request.
	Comment(ctx context.Context, pull int, c Comment) error

	// Remarks lists what people said to Berth on any pull request, open or not,
	// since a time, oldest first: see Remark.
	Remarks(ctx context.Context, since time.Time) ([]Remark, error)
	// RemarksOf lists all that was said to Berth on one pull request, whether it
	// was answered or not.
	RemarksOf(ctx context.Context, pull int) ([]Remark, error)
	// React answers a remark with a sign beside it. It marks it as answered, and
	// is therefore the last thing that is done about it.
	React(ctx context.Context, r Remark, with Reaction) error
	// Permission is what somebody may do in the repository now. It is asked for
	// when it counts, and never remembered; nobody of that name is NoPermission.
	Permission(ctx context.Context, login string) (Permission, error)
}

// Comment is what Berth's comment on a pull request says. It is one comment for
// the life of the pull request; a part that is nil stays as it was, an empty one
// goes. All of it is harmless Markdown.
type Comment struct {
	Rollout *string // what became of the merge; on top
	Answer  *string // to what somebody asked last
	Plan    *string // what the merge would do
}

// Remark is a comment by a person whose first line begins with "/berth" and that
// was never edited: what was said may not change after it was judged.
type Remark struct {
	ID       int64
	Pull     int
	Author   string // login; never Berth itself, never a bot
	Line     string // the first line, without space around it
	When     time.Time
	Answered bool // Berth reacted to it already
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

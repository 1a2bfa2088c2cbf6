// Package forgetest is the conformance suite for forge adapters
// (reconciler.Conversation and the reading methods beside it): the behaviour of
// every adapter, whatever its forge. It checks the forge as users see it, and
// counts the writes.
//
// It must not know any forge: forge-specific behaviour, such as the difference
// between a comment of a user and one of a machine, comes with the Harness.
package forgetest

import (
	"context"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
)

// Client is an adapter under test.
type Client interface {
	reconciler.Conversation
	OpenPulls(context.Context) ([]reconciler.PullRequest, error)
	Pull(ctx context.Context, number int) (reconciler.PullRequest, error)
	PullsOf(ctx context.Context, commit string) ([]reconciler.PullRequest, error)
	Approvers(context.Context, reconciler.PullRequest) ([]string, error)
	// Rerequest records a request to rerun the checks of a commit.
	Rerequest(commit string)
}

// ShownCheck is the visible check of a commit: the newest with its name.
type ShownCheck struct {
	Conclusion plan.Conclusion // "" while it is pending, "cancelled" once settled
	Title      string
	Notes      int // beside the lines
	Runs       int // how many of that name there have been
}

// ShownComment is a comment.
type ShownComment struct {
	ID        int64
	Author    string
	Body      string
	Reactions []string // logins of users with a reaction to it, oldest first
}

// Trouble is a way for a write to go wrong.
type Trouble string

// The troubles.
const (
	Refused   Trouble = "an error of the forge's, nothing was done"
	Done      Trouble = "an error of the forge's, yet it was done"
	Lost      Trouble = "no answer, yet it was done"
	Unreached Trouble = "no answer, nothing was done"
)

// Write is something that can be written.
type Write string

// The writes.
const (
	Check    Write = "a new check"
	Comment  Write = "a new comment"
	Edit     Write = "a change of a comment"
	Reaction Write = "a reaction to a comment"
)

// Facts describe a forge and its adapter.
type Facts struct {
	Me      string // login of the clients at the forge
	Machine string // login whose comments are those of a machine
	Page    int    // how many comments the forge lists at once; 0: all of them
	Notes   bool   // findings are shown beside their lines
	Reruns  bool   // users can request a rerun of a check
}

// Pulls are the actions of users on pull requests.
type Pulls interface {
	// Open opens a pull request by ana with one commit, from her fork if fork is true.
	Open(fork bool) reconciler.PullRequest
	Push(pull int)
	Close(pull int)
	Merge(pull int) string // returns the commit of main
	Approve(pull int, login string)
	// Permit sets the permission of login from now on.
	Permit(login string, p reconciler.Permission)
}

// Conversation is the comments on pull requests, and the actions of users on them.
type Conversation interface {
	Comments(pull int) []ShownComment // oldest first
	AddComment(pull int, login, body string) int64
	EditComment(comment int64, body string) // as a user with permission to edit it
	DeleteComment(comment int64)
	React(comment int64, login string)
}

// Harness is a forge with one repository, and the actions of its users.
type Harness interface {
	Facts() Facts
	// New is a client, as after a restart; Other is one of another Berth, which is the
	// same to the forge.
	New() Client
	Other() Client
	Pulls
	Conversation
	Checks(commit string) map[string]ShownCheck // by name
	// Begin leaves a check of ours on a commit pending, as a crash would; its key is
	// known where the forge keeps keys.
	Begin(commit, name, key string)
	// Fail makes the next such write go wrong. Writes is how many requests that may change
	// something arrived so far.
	Fail(Write, Trouble)
	Writes() int
	// Pass advances the forge's clock. Now returns its time.
	Pass(time.Duration)
	Now() time.Time
}

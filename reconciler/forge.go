package reconciler

import (
	"context"
	"time"

	"berth/reconciler/plan"
)

// PullRequest is a pull request as the forge has it.
type PullRequest struct {
	Number      int
	Title       string
	Author      string // login
	Head        string // commit
	BaseBranch  string
	Open        bool
	Merged      bool
	MergeCommit string // on the base branch; "" until it is merged
	Fork        bool   // the head is in another repository, or in a deleted one
	// Updated is when the pull request last changed, reviews included. An equal
	// value means that nothing changed. UTC.
	Updated time.Time
}

// PullRefs are the names of the refs in which a forge keeps pull requests.
type PullRefs struct {
	// Head returns the ref of the head of a pull request; nil: the repository has no pull requests.
	Head func(number int) string
	// Groups returns what begins the refs of the groups that a merge queue would make a branch of; nil: the forge has no queue.
	Groups func(branch string) string
}

// Forge hosts the pull requests of an estate and the comments on them.
//
// Where the forge's rate limit allows nothing at the moment, any method returns a
// *RetryAfterError.
type Forge interface {
	// OpenPulls lists the open pull requests.
	OpenPulls(ctx context.Context) ([]PullRequest, error)
	// Pull returns one pull request; ErrNotFound if it does not exist.
	Pull(ctx context.Context, number int) (PullRequest, error)
	// PullsOf lists the merged pull requests that a commit of main belongs to.
	PullsOf(ctx context.Context, commit string) ([]PullRequest, error)
	// Approvers returns, sorted, the logins whose latest review of pr approves
	// pr.Head, without the author. Reviews of earlier heads do not count.
	Approvers(ctx context.Context, pr PullRequest) ([]string, error)
	Conversation
}

// Conversation is the part of a forge that Berth uses to talk to people about a
// change: checks, comments, commands, reactions and permissions. An adapter maps
// it to its forge's terms, and the conformance suite webhooks/forgetest holds for
// each adapter.
//
// All writes are idempotent: the adapter does not write again what the forge has,
// also after a restart or a lost response.
type Conversation interface {
	// Report publishes a check on a commit. A check of the same name and Key stays
	// unchanged, unless a user asked to run it again.
	Report(ctx context.Context, commit string, c plan.Check) error
	// CancelChecks completes Berth's unfinished checks on a commit as cancelled.
	CancelChecks(ctx context.Context, commit string) error
	// Comment updates Berth's comment on a pull request; ErrNotFound if the pull
	// request does not exist.
	Comment(ctx context.Context, pull int, c Comment) error

	// Commands lists the comments that give a command, on any pull request, since a
	// time, oldest first.
	Commands(ctx context.Context, since time.Time) ([]CommandComment, error)
	// CommandsOf lists all commands on one pull request, answered and edited ones
	// included.
	CommandsOf(ctx context.Context, pull int) ([]CommandComment, error)
	// React sets a reaction on a command, for people to see. Berth's comment, not
	// the reaction, records that a command was answered: not every forge lists
	// reactions.
	React(ctx context.Context, c CommandComment, with Reaction) error
	// Permission returns the current permission of a user in the repository. The loop
	// asks each time and never caches the result. An unknown user has NoPermission.
	Permission(ctx context.Context, login string) (Permission, error)
}

// Comment is the content of Berth's one comment on a pull request, as safe
// Markdown. A nil part stays unchanged, an empty part is removed. The order on the
// page is: answers, roll-out, plan, details of answers.
type Comment struct {
	// Answers are added. An answer to a command that has one already is ignored. The
	// comment keeps the newest lines and details, and the ids of many more commands.
	Answers []Answer
	Rollout *string // progress after the merge
	Plan    *string // effects of the merge
}

// Answer is the answer to one command.
type Answer struct {
	Command int64  // id of the comment that gave the command
	Line    string // "": only record that the command was answered
	Details string // Markdown shown below the plan; "": none
}

// CommandComment is a person's comment whose first line begins with "/berth".
type CommandComment struct {
	ID       int64
	Pull     int    // number in the comment's address, maybe of an issue; see Forge.Pull
	Author   string // login; never Berth itself, never a bot
	Line     string // first line, trimmed
	When     time.Time
	Edited   bool // an edited comment is not obeyed: its text may have changed after it was checked
	Answered bool // Berth's comment on the pull request, or its reaction, records an answer
}

// Reaction is a sign that Berth sets on a command.
type Reaction string

// The reactions.
const (
	Accepted   Reaction = "accepted"   // the command is or will be carried out
	Refused    Reaction = "refused"    // the user lacks a permission, or the command is outdated
	Understood Reaction = "understood" // answered in words
	Confused   Reaction = "confused"   // not a command
)

// Permission is the permission of a user in a repository, in ascending order.
type Permission int

// The permissions that every forge has.
const (
	NoPermission Permission = iota
	CanRead
	CanWrite
	CanAdmin
)

package pulls

import (
	"context"
	"io"
	"log/slog"
	"time"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/estate"
	"berth/schema/policy"
)

// Options are what Pulls works with. All of them are needed, except Forge.
type Options struct {
	Branch  string // the branch that pull requests are merged to
	Repo    reconciler.Repo
	Forge   reconciler.Forge // nil: no forge; then only roll-outs are counted
	Render  Render
	Loader  *estate.Loader
	Decider *decide.Decider
	Status  Status
	Queue   Queue
	Loop    Loop
	// CheckAuthority is false where every user with push access may change everything.
	CheckAuthority bool
	AuthorLag      time.Duration // how long a forge may take to name the pull request of a new commit
	Log            *slog.Logger
	Now            func() time.Time
}

// Queue has items reconciled, soon or after a while.
type Queue struct {
	Add      func(reconciler.Item)
	AddAfter func(reconciler.Item, time.Duration)
}

// Loop gives access to the loop. Its functions may be called at any time.
type Loop struct {
	Main  func() Main
	Rules func(backend string) plan.Rules
	Seen  func(before, after *schema.Desired) []schema.Diagnostic // findings about published bytes
	// Retried is called with the number of units that a command has tried again.
	Retried func(units int)
}

// Main is the loop's knowledge of main at one moment.
type Main struct {
	State  *reconciler.State // nil before the first decision
	Tip    string            // as fetched last; "": not yet
	Frozen string            // why synchronization is frozen; "": it is not
}

// Status is the writer of berth/status. The values that it returns must not be
// changed.
type Status interface {
	Units() plan.Memory
	// Set records the status of a unit in place of prev; false if another was
	// recorded meanwhile.
	Set(prev *plan.Status, s plan.Status) bool
	Record(...audit.Record)
	// RecordDenied is Record of records that any user can cause; their number is bounded.
	RecordDenied(...audit.Record)
	// Flush waits until everything recorded is on the remote; FlushTo, up to a count.
	Flush(context.Context) error
	FlushTo(ctx context.Context, count uint64) error
	// PushSoon has the changes up to a count pushed without waiting for it, and returns the
	// count up to which the changes are on the remote.
	PushSoon(count uint64) (pushed uint64)
	// Reviews are the records of what was shown on pull requests.
	Reviews() map[int]*plan.Review
	// UpdateReview replaces the record of a pull request by the result of change for
	// the present one; nil means no record, the same value no change. It
	// returns the count of changes to flush to.
	UpdateReview(pull int, change func(*plan.Review) *plan.Review) uint64
}

// Render makes texts for the forge. All its functions are pure.
type Render struct {
	// Checks are both checks of a proposal, validate first.
	Checks func(plan.Proposal, plan.PullContext) []plan.Check
	// Key is over everything shown of a proposal but its base.
	Key     func(plan.Proposal, plan.PullContext) string
	Plan    func(plan.Proposal, plan.PullContext) string // of the comment; Markdown
	Rollout func(plan.Rollout) string                    // likewise
	// Answer is the answer to a command: a line, and details or "". The explanation
	// is of the instance of plan.AnswerExplain, if there is one.
	Answer func(plan.Answer, *policy.Explanation) (line, details string)
	// Lines are the lines that a patch shows.
	Lines func(patch io.Reader) (schema.Lines, error)
}

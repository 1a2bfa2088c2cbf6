package pulls

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/estate"
	"berth/schema/policy"
)

// Options are what Pulls works with. All of them are needed.
type Options struct {
	Branch  string // the branch that pull requests are merged to
	Repo    reconciler.Repo
	Forge   reconciler.Forge // nil: no forge; then only roll-outs are counted
	Render  Render
	Loader  *estate.Loader
	Decider *decide.Decider
	Status  Status
	Main    func() Main
	Rules   func(backend string) plan.Rules
	Seen    func(before, after *schema.Desired) []schema.Diagnostic // findings about published bytes
	// CheckAuthority is false where everybody who can push may change everything.
	CheckAuthority bool
	AuthorLag      time.Duration // how long a forge may take to name the pull request of a new commit
	Log            *slog.Logger
	Now            func() time.Time

	// Enqueue and EnqueueAfter have an item reconciled soon, or after a while.
	Enqueue      func(reconciler.Item)
	EnqueueAfter func(reconciler.Item, time.Duration)
}

// Main is what the loop knows of main at one moment.
type Main struct {
	State  *reconciler.State // nil before the first decision
	Tip    string            // as fetched last; "": not yet
	Frozen string            // why synchronization is frozen; "": it is not
}

// Status is the writer of berth/status as Pulls needs it. Values that it returns
// must not be changed.
type Status interface {
	Memory() plan.Memory
	Get(schema.Key) *plan.Status // nil: none
	// Set records the status of a unit in place of prev; false if another was
	// recorded meanwhile.
	Set(prev *plan.Status, s plan.Status) bool
	Record(...audit.Record)
	// RecordDenied is Record of records that anybody can cause; they are bounded.
	RecordDenied(...audit.Record)
	// Flush waits until everything recorded is on the remote; FlushTo, up to a count.
	Flush(context.Context) error
	FlushTo(ctx context.Context, count uint64) error
	// Reviews are the records of what was shown on pull requests.
	Reviews() map[int]*plan.Review
	// UpdateReview replaces the record of a pull request by what change returns for
	// the present one, of which nil is none; the same value changes nothing. It
	// returns the count of changes to flush to.
	UpdateReview(pull int, change func(*plan.Review) *plan.Review) uint64
}

// Render turns what is known into text for the forge. All of it is pure.
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

// Pulls serves the pull requests of one estate. Make it with New.
type Pulls struct {
	o        Options
	reviews  reviews
	RollOuts *RollOuts
	shows    *shows
	acks     acks
	applies  applies
	heard    time.Time // since when remarks are listed; the remarks task's own
	idle     idle      // likewise
	// passed are the remarks that are not answered in this run, and inVain how many
	// passes came to nothing in a row; owed is what remarks came to that have no sign
	// yet. Likewise.
	passed map[remarkID]bool
	inVain int
	owed   map[remarkID]*reply

	mu     sync.Mutex
	pulls  map[int]*openPull        // of this branch
	listed bool                     // they were listed once in this run
	jobs   map[schema.Key]plan.Jobs // of units that are there, as last seen in this run
	began  time.Time                // this run
}

// New makes a Pulls.
func New(o Options) *Pulls {
	return &Pulls{o: o, reviews: reviews{o.Status, o.Now}, RollOuts: newRollOuts(o.Now), shows: newShows(), pulls: map[int]*openPull{}, jobs: map[schema.Key]plan.Jobs{}, began: o.Now()}
}

// current is the last decision; nil before the first.
func (r *Pulls) current() *reconciler.State { return r.o.Main().State }

// today is the UTC day.
func (r *Pulls) today() string { return r.o.Now().UTC().Format(time.DateOnly) }

package decide

import (
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
)

// Standing is the state in force before a decision.
type Standing struct {
	Tree schema.Snapshot // nil: nothing is in force, and main is taken over without asking for permissions
	// Permitted are the paths that differ from main, were permitted, and are held for
	// another reason: path → main's blob, "" for none. Their permissions are not asked
	// for again: the rules before the change count. Nobody with the permission made
	// the other differences.
	Permitted map[string]string
}

// Step is one commit of main.
type Step struct {
	Commit      string
	Tree        schema.Snapshot
	Touched     []schema.PathChange // since the first parent
	By          authority.Actor
	PullRequest int      // 0: none
	Acks        []string // digests of deletions that the commit acknowledges
	CommentAcks []Ack    // acknowledgements by comments
	// Payload and Signature are those of the commit, and prove its author where By
	// does not. Nil: it is not signed.
	Payload, Signature []byte
	Operator           bool // the operator accepted it: no permission is asked for
}

// Decision is the result of some commits of main: the documents in force after the
// last.
type Decision struct {
	Desired   *schema.Desired
	Effective *schema.Effective
	Replace   map[string]string // path → blob in force instead of the last step's, a part's → its tree; "": none
	Held      []schema.Held     // sorted by file
	Permitted map[string]string // for the next decision, as in Standing
	Commit    string            // of the last step that was taken over
	Frozen    error             // ErrFrozen if later steps were not taken over; else nil
	Verdicts  []Verdict         // in the order of the steps, then by file
	// Changed are the commits that last changed an effective instance, of those that
	// a step after First changed.
	Changed map[schema.Key]string
	First   string // commit of the first step that was taken over
}

// Verdict is the outcome for one changed document.
type Verdict struct {
	Commit      string // of main, that changed it last
	By          authority.Actor
	PullRequest int // 0: none
	Document    plan.DocumentChange
	Authority   []authority.Decision // empty if no permission was asked for
	Held        *schema.Held         // nil: it came into force
}

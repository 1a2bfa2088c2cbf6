package decide

import (
	"slices"

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
	Facts     Facts
}

// Facts are the inputs of a decision beside documents: what berth/status says, as data, so that the daemon and the command
// line decide the same.
type Facts struct {
	// Memory is nil without a status branch: the operations in force are then assumed to be done.
	Memory *plan.Memory
	// GPUSeconds are the GPU seconds that jobs used in the month of the day, by project; nil without a status branch.
	GPUSeconds map[string]int64

	takesOver bool // nothing was in force: main is taken over whole, and no quota of use or operations counts
}

// isFinished reports whether an operation is done, failed or expired.
func (f Facts) isFinished(before *schema.TenantEstate) func(*schema.MemberOperation) bool {
	return func(o *schema.MemberOperation) bool {
		if f.Memory == nil {
			return isInForce(before, o)
		}
		st := f.Memory.Get(o.Unit())
		return st != nil && slices.ContainsFunc(st.Operations, func(known plan.Operation) bool {
			return !known.IsRequest && known.ID == o.ID() && known.IsFinished()
		})
	}
}

// isInForce reports whether a tenant, which may be nil, has an operation.
func isInForce(t *schema.TenantEstate, o *schema.MemberOperation) bool {
	if t == nil {
		return false
	}
	var was *schema.MemberOperation
	if p := t.Projects[o.Key.Project]; p != nil {
		was = p.Operations[o.Key.Name]
	} else if r := t.SharedRuntimes[o.Key.Parent]; r != nil {
		was = r.Operations[o.Key.Name]
	}
	return was != nil && was.ID() == o.ID()
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

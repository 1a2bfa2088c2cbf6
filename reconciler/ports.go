package reconciler

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
)

// Branches Berth writes (DESIGN §3).
const (
	BranchInForce = "berth/in-force"
	BranchStatus  = "berth/status"
)

// Errors of a Repo or a Forge; test with errors.Is.
var (
	// ErrRewritten: a branch no longer descends from what was seen of it.
	ErrRewritten = errors.New("history was rewritten")
	// ErrConflict: another writer moved the branch; fetch, rebuild, retry.
	ErrConflict = errors.New("branch was moved by another writer")
	// ErrNotFound: no such commit, ref, file or pull request.
	ErrNotFound = errors.New("not found")
	// ErrUnreadable: a tree is there and no two readers would read the same in it.
	ErrUnreadable = errors.New("malformed tree")
	// ErrRefused: a pull request's head brings more than Berth looks at.
	ErrRefused = errors.New("refused")
	// ErrMoved: the pull request's head moved meanwhile, or the forge does not
	// know it yet; look again.
	ErrHeadMoved = errors.New("the pull request's head moved")
)

// LaterError says that nothing gets through before At, such as at the end of a
// rate limit: trying sooner is in vain. Test with errors.As for *LaterError.
type RetryAfterError struct{ At time.Time }

func (e *RetryAfterError) Error() string {
	return fmt.Sprintf("nothing more before %s", e.At.UTC().Format(time.RFC3339))
}

// OperatorError says that waiting does not help: an operator has to change a
// credential, the configuration or the repository. Test with errors.As for
// *OperatorError.
type OperatorError struct{ Err error }

func (e *OperatorError) Error() string { return e.Err.Error() }
func (e *OperatorError) Unwrap() error { return e.Err }

// Tips are the commits branches stand at; "" where a branch is not there yet.
type Tips struct {
	Main, InForce, Status string
}

// Repo is an estate's Git repository as the loop needs it.
type Repo interface {
	// Fetch brings the local mirror up to date and says where the branches
	// stand. A main that does not descend from the one seen before is not
	// taken over: ErrRewritten.
	Fetch(ctx context.Context) (Tips, error)
	// FetchPull brings in the head of a pull request and returns its commit;
	// ErrNotFound if there is none, ErrRefused if it is too large.
	FetchPull(ctx context.Context, number int) (string, error)
	// FetchPulls is FetchPull of many in one go. It returns the heads at hand.
	FetchPulls(ctx context.Context, numbers []int) (map[int]string, error)
	// FetchRef is FetchPull for what stands at any other ref.
	FetchRef(ctx context.Context, ref string) (string, error)
	// Refs says where the remote's refs stand whose names begin with prefix.
	Refs(ctx context.Context, prefix string) (map[string]string, error)
	// Snapshot is the tree of a commit (or of a tree id, as Merge returns).
	Snapshot(ctx context.Context, commit string) (schema.Snapshot, error)
	// Diff lists the paths that differ between two commits or trees, sorted.
	// An empty id is the empty tree.
	Diff(ctx context.Context, from, to string) ([]PathChange, error)
	// Merge merges head into base without a work tree. It returns the merged
	// tree's id, or the paths in conflict.
	Merge(ctx context.Context, base, head string) (tree string, conflicts []string, err error)
	// MergeBase is the best common ancestor.
	MergeBase(ctx context.Context, a, b string) (string, error)
	// Patch is the unified diff of the estate's files from where head left base to
	// head, of those that Merge leaves as they are in head; bounded.
	Patch(ctx context.Context, base, head string) (string, error)
	// Shadowed are the files that head changes since it left base and that are not
	// read, as their tenant has a repository of its own; sorted.
	Shadowed(ctx context.Context, base, head string) ([]string, error)
	// Log lists the commits reachable from to and not from from, newest first,
	// first parents only, at most max.
	Log(ctx context.Context, from, to string, max int) ([]Commit, error)
	// WriteInForce makes a commit on berth/in-force whose tree is that of
	// commit, with the paths of Replace put to the blobs given ("" takes the
	// path away), on top of old, and pushes it by compare-and-swap. A tree's id
	// puts a whole directory there, as for a part that cannot be read in commit.
	WriteInForce(ctx context.Context, old string, w InForce) (tip string, err error)
	// InForceOf reads back what a commit of berth/in-force says of itself: Commit,
	// CorrelationID, Epoch, and of Held whatever is unauthorised, each with its
	// File and Reason. Replace is its tree's to tell and stays nil. It is
	// ErrRewritten if Berth cannot have written it.
	ReadInForce(ctx context.Context, commit string) (InForce, error)
	// Evidence is what the bytes of a commit say of who made it. Only commits of
	// the branches that Fetch brings in have any: those of a pull request's head
	// are ErrNotFound.
	Evidence(ctx context.Context, commit string) (Evidence, error)
	// PullEvidence is Evidence of the present head of a pull request.
	PullEvidence(ctx context.Context, number int) (Evidence, error)
	// HeadEvidence is PullEvidence of a head that FetchPull brought.
	HeadEvidence(ctx context.Context, head string) (Evidence, error)
	// ReadStatus reads what berth/status remembers at commit ("" is empty).
	ReadStatus(ctx context.Context, commit string) (StatusTree, error)
	// AuditTail reads the end of the audit log at a commit of berth/status, oldest
	// record first: at least so many records, if there are as many, and all that
	// were written since, as far as a bounded effort goes. What cannot be read is a
	// line with an error.
	AuditTail(ctx context.Context, commit string, since time.Time, least int) ([]audit.Line, error)
	// WriteStatus makes one commit on berth/status and pushes it by
	// compare-and-swap: one POST, cost independent of the history's length.
	// It returns old unchanged when b changes nothing. The error is ErrConflict if
	// the branch is no longer at old, and ErrNotFound if the mirror does not hold
	// old, as where it was fetched anew after the branch moved on.
	WriteStatus(ctx context.Context, old string, b StatusBatch) (tip string, err error)
}

// PathChange is one path that differs.
type PathChange = schema.PathChange

// Commit is what the loop needs to know of one.
type Commit struct {
	ID, Subject, Author, Email string
	Parents                    []string
	When                       time.Time // the committer's, UTC; anyone may have made it up
}

// Evidence is what a commit says of who made it. All of it is claimed by whoever
// wrote the commit, and none of it is checked; Payload and Signature are what
// schema/signature proves it with.
type Evidence struct {
	Commit                    string
	Tenant                    string // whose own repository holds it, which no forge speaks for; "": the estate's
	Author, AuthorEmail       string
	Committer, CommitterEmail string
	When                      time.Time // the committer's; the zero time where it is none
	Subject                   string
	Parents                   []string
	Payload, Signature        []byte // both nil if there is no signature that could be checked
	Fault                     string // why there is none although something like it is there; for people
	Trailers                  []Trailer
}

// Trailer is one line such as "Break-Glass: reason" at the end of a message, by
// the rules of git interpret-trailers. Keys are compared without regard to case.
type Trailer struct {
	Key, Value string
}

// InForce describes one commit on berth/in-force.
type InForce struct {
	Commit        string            // of main
	Replace       map[string]string // path → blob in force instead of main's, a part's → its tree; "" → none
	Held          []plan.Held       // why; goes into the message
	Permitted     map[string]string // path → main's blob ("": gone) of what is held and yet permitted: it waits for something else
	Moved         map[string]string // old path → new path of what went to another tenant by one hand, which is held
	CorrelationID string
	Epoch         uint64
}

// MaxRevision bounds revision.yaml, in bytes: a longer file is neither written
// nor read.
const MaxRevision = 1 << 20

// Revision is revision.yaml of berth/status.
type Revision struct {
	Commit   string `json:"commit"` // of main, the last one decided
	InForce  string `json:"in_force"`
	Sequence uint64 `json:"event_sequence"`
	Epoch    uint64 `json:"epoch"`
	// Leader is the random identity of the daemon that leads with this epoch; ""
	// on a branch that a Berth without identities wrote.
	Leader   string      `json:"leader,omitempty"`
	Held     []plan.Held `json:"held,omitempty"`
	HeldMore int         `json:"held_more,omitempty"` // held documents that Held leaves out
	// Frozen says why the sync stands still, if it does.
	Frozen string `json:"frozen,omitempty"`
	// Remarks are what people should know of where the estate comes from, sorted.
	Notices []string `json:"remarks,omitempty"`
	// Audit is the sequence and hash of the last audit record.
	AuditSequence uint64 `json:"audit_sequence,omitempty"`
	AuditHead     string `json:"audit_head,omitempty"`
}

// Remarker is a Repo that may have something to say of where the estate comes
// from: of the repositories of tenants.
type NoticeReader interface {
	// Remarks are for people, one line each, sorted, as of the last Fetch.
	Notices() []string
}

// StatusTree is berth/status as read back.
type StatusTree struct {
	Revision Revision
	Unread   string // why revision.yaml, which is there, cannot be read; Revision is then none
	Units    plan.Memory
	Things   map[schema.Key]*plan.ThingStatus
	Reviews  map[int]*plan.Review // by pull request
	Warnings []string             // files there that were passed over, and why; sorted
}

// StatusBatch is what one status commit changes.
type StatusBatch struct {
	Revision       Revision // as it shall stand; Sequence counts Events in
	Units          []plan.Status
	Things         []plan.ThingStatus
	Gone           []schema.Key // status files to remove, of units and things
	Reviews        []plan.Review
	ReviewsGone    []int          // pull requests whose review is to go
	Events         []plan.Event   // one new segment, in order; none: no segment
	Audit          []audit.Record // one new segment, chained; none: no segment
	CorrelationIDs []string       // trailers
}

// PullRequest is one at the forge.
type PullRequest struct {
	Number      int
	Title       string
	Author      string
	Head        string // commit
	BaseBranch  string
	Open        bool
	Merged      bool
	MergeCommit string // on the base branch, once merged
	// Fork: the head is in another repository, or in one that is gone.
	Fork bool
	// Updated is when the forge last noted anything of it, a review too: what is
	// the same was not touched. UTC.
	Updated time.Time
}

// Forge is where pull requests live, and the conversation about them.
type Forge interface {
	OpenPulls(ctx context.Context) ([]PullRequest, error)
	// Pull reads one; ErrNotFound if there is none of that number.
	Pull(ctx context.Context, number int) (PullRequest, error)
	// PullsOf lists the merged pull requests a commit of main belongs to.
	PullsOf(ctx context.Context, commit string) ([]PullRequest, error)
	// Approvers lists, sorted, the logins whose latest review of pr approves pr.Head
	// itself, its author excepted. A review of an earlier head is none.
	Approvers(ctx context.Context, pr PullRequest) ([]string, error)
	Conversation
}

// Owed are audit records that somebody else keeps safe until they are on
// berth/status, such as of what was answered before they could be there. Its
// methods are called with the writer's lock held: they do not block, and do not
// call back.
type Owed interface {
	// Records are those to be written, in order. Each has an id of its own.
	Records() []audit.Record
	// Written says which records are on berth/status.
	Written(ids []string)
}

// EventReader is a Repo that reads back the event log of a commit of
// berth/status, newest first, of the hours since a time, with a bounded effort.
// An error ends it.
type EventReader interface {
	EventsSince(ctx context.Context, commit string, since time.Time) iter.Seq2[plan.Event, error]
}

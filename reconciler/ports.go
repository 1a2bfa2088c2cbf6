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
	"berth/schema/usage"
)

// Branches that Berth writes.
const (
	BranchInForce = "berth/in-force"
	BranchStatus  = "berth/status"
)

// Errors of a Repo or a Forge; test with errors.Is.
var (
	// ErrRewritten: a branch does not descend from the commit that was seen before.
	ErrRewritten = errors.New("history was rewritten")
	// ErrConflict: another writer moved the branch; fetch, rebuild, retry.
	ErrConflict = errors.New("branch was moved by another writer")
	// ErrNotFound: the commit, ref, file or pull request does not exist.
	ErrNotFound = errors.New("not found")
	// ErrUnreadable: the tree exists, but is malformed so that two readers could
	// read different documents from it.
	ErrUnreadable = errors.New("malformed tree")
	// ErrRefused: the head of a pull request exceeds a limit.
	ErrRefused = errors.New("refused")
	// ErrHeadMoved: the head of the pull request moved, or the forge does not know it
	// yet; retry.
	ErrHeadMoved = errors.New("the pull request's head moved")
)

// RetryAfterError means that a retry before At fails, for example while a rate
// limit is exhausted. Test with errors.As for *RetryAfterError.
type RetryAfterError struct{ At time.Time }

func (e *RetryAfterError) Error() string {
	return fmt.Sprintf("nothing more before %s", e.At.UTC().Format(time.RFC3339))
}

// OperatorError means that a retry does not help: an operator has to change a
// credential, the configuration or the repository. Test with errors.As for
// *OperatorError.
type OperatorError struct{ Err error }

func (e *OperatorError) Error() string { return e.Err.Error() }
func (e *OperatorError) Unwrap() error { return e.Err }

// Tips are the commits of the three branches; "" for a branch that does not exist.
type Tips struct {
	Main, InForce, Status string
}

// Repo is an estate's Git repository.
type Repo interface {
	// Fetch updates the local mirror and returns the tips of the branches. If main
	// does not descend from the commit seen before, the mirror keeps the old main
	// and Fetch returns ErrRewritten.
	Fetch(ctx context.Context) (Tips, error)
	// FetchPull fetches the head of a pull request and returns its commit;
	// ErrNotFound for a missing head, ErrRefused for one that is too large.
	FetchPull(ctx context.Context, number int) (string, error)
	// FetchPulls is FetchPull for many pull requests in one request. It returns the
	// heads that it could fetch.
	FetchPulls(ctx context.Context, numbers []int) (map[int]string, error)
	// Groups returns the commits of the groups that the merge queue would make the branch of, by ref.
	Groups(ctx context.Context) (map[string]string, error)
	// FetchGroup is FetchPull for the ref of such a group. One of another branch is ErrNotFound.
	FetchGroup(ctx context.Context, ref string) (string, error)
	// Snapshot returns the tree of a commit, or of a tree id as Merge returns it.
	Snapshot(ctx context.Context, commit string) (schema.Snapshot, error)
	// Diff lists, sorted, the paths that differ between two commits or trees. An
	// empty id is the empty tree.
	Diff(ctx context.Context, from, to string) ([]PathChange, error)
	// Merge merges head into base without a work tree. It returns the id of the
	// merged tree, or the paths in conflict.
	Merge(ctx context.Context, base, head string) (tree string, conflicts []string, err error)
	// MergeBase returns the best common ancestor.
	MergeBase(ctx context.Context, a, b string) (string, error)
	// Patch returns the unified diff of the estate's files from the merge base of
	// base and head to head, for those files that Merge takes unchanged from head.
	// Its size is bounded.
	Patch(ctx context.Context, base, head string) (string, error)
	// Shadowed returns, sorted, the files that head changes without effect, because
	// their tenant has its own repository.
	Shadowed(ctx context.Context, base, head string) ([]string, error)
	// Log lists the commits reachable from to and not from from, along first
	// parents, newest first, at most max.
	Log(ctx context.Context, from, to string, max int) ([]Commit, error)
	// WriteInForce makes a commit of berth/in-force on top of old and pushes it by
	// compare-and-swap. Its tree is the one of w.Commit with w.Replace applied.
	WriteInForce(ctx context.Context, old string, w InForce) (tip string, err error)
	// ReadInForce reads the message of a commit of berth/in-force: Commit,
	// CorrelationID, Epoch, Permitted, and Held with its files and reasons.
	// Replace stays nil. ErrRewritten if Berth cannot have written the commit.
	ReadInForce(ctx context.Context, commit string) (InForce, error)
	// Evidence returns the claims of a commit about its author. The error is
	// ErrNotFound for commits outside the branches that Fetch fetches.
	Evidence(ctx context.Context, commit string) (Evidence, error)
	// PullEvidence is Evidence of the current head of a pull request.
	PullEvidence(ctx context.Context, number int) (Evidence, error)
	// HeadEvidence is Evidence of a head that FetchPull returned.
	HeadEvidence(ctx context.Context, head string) (Evidence, error)
	// ReadStatus reads berth/status at a commit; "" is an empty branch.
	ReadStatus(ctx context.Context, commit string) (StatusTree, error)
	// AuditTail returns the end of the audit log at a commit of berth/status, oldest
	// record first: at least that many records if they exist, and all records since
	// the time, within a bounded effort. An unreadable record is a line with Err.
	AuditTail(ctx context.Context, commit string, since time.Time, least int) ([]audit.Line, error)
	// WriteStatus makes one commit of berth/status on top of old and pushes it by
	// compare-and-swap: one POST, at a cost independent of the history's length. It
	// returns old if b changes nothing. ErrConflict: the branch is not at old.
	// ErrNotFound: the mirror does not have old, because it was cloned again.
	WriteStatus(ctx context.Context, old string, b StatusBatch) (tip string, err error)
}

// NoticeReader is a Repo that knows of problems with the sources of the estate,
// such as the repositories of tenants.
type NoticeReader interface {
	// Notices returns, sorted, one line a problem, as of the last Fetch.
	Notices() []string
}

// EventReader is a Repo that can read the event log.
type EventReader interface {
	// EventsSince yields, newest first, the events at a commit of berth/status since
	// a time, within a bounded effort. The first error ends it.
	EventsSince(ctx context.Context, commit string, since time.Time) iter.Seq2[plan.Event, error]
}

// UsageReader is a Repo that can read the records of usage.
type UsageReader interface {
	// ClosedUsage returns the last closed day of each cluster at a commit of berth/status.
	ClosedUsage(ctx context.Context, commit string) (map[string]string, error)
	// UsageOf yields the records of a cluster at a commit of berth/status of a day and later, in order of
	// days. tenant owns its unit; "": the platform. It continues after an error, which names the file and
	// line if it is that of a line.
	UsageOf(ctx context.Context, commit, tenant, cluster, first string) iter.Seq2[usage.Record, error]
}

// MonthReader is a Repo that can add up the usage of a month.
type MonthReader interface {
	// GPUSeconds returns the GPU seconds of a month, such as 2026-11, by project, at a commit of berth/status: of closed days and
	// of the open ones as they were written last.
	GPUSeconds(ctx context.Context, commit, month string) (map[string]int64, error)
}

// PathChange is a path whose content differs.
type PathChange = schema.PathChange

// Commit is a commit's metadata.
type Commit struct {
	ID, Subject, Author, Email string
	Parents                    []string
	When                       time.Time // committer date, UTC; whoever made the commit chose it
}

// Evidence is what a commit says about its author. It is a claim: nothing in it
// is verified. schema/signature verifies Signature over Payload.
type Evidence struct {
	Commit                    string
	Tenant                    string // whose own repository has the commit, unknown to the forge; "": the estate's
	Author, AuthorEmail       string
	Committer, CommitterEmail string
	When                      time.Time // committer date; zero if malformed
	Subject                   string
	Parents                   []string
	Payload, Signature        []byte // both nil without a signature that can be verified
	Fault                     string // why a signature that is there cannot be verified; for people
	Trailers                  []Trailer
}

// Trailer is a line such as "Break-Glass: reason" at the end of a commit message,
// by the rules of git interpret-trailers. Keys are case-insensitive.
type Trailer struct {
	Key, Value string
}

// InForce describes a commit of berth/in-force.
type InForce struct {
	Commit string // of main
	// Replace maps a path to the blob in force where it differs from main's: a file's
	// blob, a directory's tree, or "" for a path that is not in force.
	Replace       map[string]string
	Held          []schema.Held
	Permitted     map[string]string // held changes that only wait for something else: path → main's blob; "": deletion
	CorrelationID string
	Epoch         uint64
}

// MaxRevision is the limit of revision.yaml in bytes, for writers and readers.
const MaxRevision = 1 << 20

// Revision is revision.yaml of berth/status.
type Revision struct {
	Commit   string `json:"commit"` // of main, decided last
	InForce  string `json:"in_force"`
	Sequence uint64 `json:"event_sequence"`
	Epoch    uint64 `json:"epoch"`
	// Leader is the random identity of the daemon that leads with this epoch; "" if a
	// version of Berth without identities wrote it.
	Leader string `json:"leader,omitempty"`
	// LeaderURL is where clients reach the leader; "": its configuration does not say.
	LeaderURL string        `json:"leader_url,omitempty"`
	Held      []schema.Held `json:"held,omitempty"`
	HeldMore  int           `json:"held_more,omitempty"` // number of held documents not in Held
	Frozen    string        `json:"frozen,omitempty"`    // why synchronization is frozen; "": it is not
	// Notices are problems with the sources of the estate, sorted.
	Notices []string `json:"remarks,omitempty"`
	// AuditSequence and AuditHead are the sequence and hash of the last audit record.
	AuditSequence uint64 `json:"audit_sequence,omitempty"`
	AuditHead     string `json:"audit_head,omitempty"`
}

// StatusTree is the content of berth/status.
type StatusTree struct {
	Revision Revision
	Unread   string // why an existing revision.yaml is unreadable; Revision is then empty
	Units    plan.Memory
	Things   map[schema.Key]*plan.ThingStatus
	Reviews  map[int]*plan.Review // by pull request
	Warnings []string             // files that were skipped, with the reason; sorted
}

// StatusBatch is the content of one commit of berth/status.
type StatusBatch struct {
	Revision       Revision // Sequence includes Events
	Units          []plan.Status
	Things         []plan.ThingStatus
	Gone           []schema.Key // status files of units and other resources to remove
	Reviews        []plan.Review
	ReviewsGone    []int          // pull requests whose review to remove
	Events         []plan.Event   // one new segment, in order; empty: no segment
	Audit          []audit.Record // one new segment, chained; empty: no segment
	Usage          []usage.Day    // in order; each replaces the day on the branch
	Closings       []usage.Closing
	CorrelationIDs []string // trailers of the commit
}

// Owed is a store of audit records that keeps them until they are on
// berth/status, such as records of requests answered before. The status writer
// calls it while it holds its lock: a method must not block or call back.
type Owed interface {
	// Records returns the records to write, in order, each with its own id.
	Records() []audit.Record
	// Written reports the records that are on berth/status.
	Written(ids []string)
}

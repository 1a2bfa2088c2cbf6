package webhooks

// Kind is the subject of an event.
type Kind string

// The kinds of events that Berth reacts to.
const (
	// Push: Ref of Repo moved.
	Push Kind = "push"
	// PullRequest: pull request Number of Repo, or a review of it, changed.
	PullRequest Kind = "pull_request"
	// Rerequest: a user asked at the forge to run the checks of Commit again.
	// Number is its pull request, if the forge names one.
	Rerequest Kind = "rerequest"
	// Command: a user wrote a command on pull request Number.
	Command Kind = "command"
	// MergeGroup: the forge's merge queue made the group at Ref, which is Commit,
	// and waits for its checks; with Gone, the queue removed the group.
	MergeGroup Kind = "merge_group"
	// Unread: an authentic delivery that is too large or of an unknown shape. Its
	// receiver reconciles everything.
	Unread Kind = "unread"
)

// Event is one change at a forge.
type Event struct {
	Kind   Kind
	Repo   string // "owner/name" as the forge writes it; "" for Unread
	Ref    string // Push and MergeGroup: full name, such as "refs/heads/main"
	Number int    // PullRequest, Command and Rerequest; 0: unknown
	Commit string // Rerequest and MergeGroup
	Gone   bool   // MergeGroup
}

// Delivery is one message of a forge.
type Delivery struct {
	ID     string  // the forge's; the same for each redelivery; not signed
	Sender string  // login of the user who caused it; "": unknown
	Events []Event // empty: Berth does not react to it
}

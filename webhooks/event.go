package webhooks

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-github/v62/github"
)

// Kind says what a delivery is about.
type Kind string

// The kinds that wake somebody. Anything else a forge sends is acknowledged,
// counted and forgotten.
const (
	// Push: Ref of Repo moved.
	Push Kind = "push"
	// PullRequest: pull request Number of Repo changed, or what somebody says of it:
	// an approval was given or taken back.
	PullRequest Kind = "pull_request"
	// Rerequest: somebody asked at the forge to run the checks of Commit again;
	// Number is the pull request it belongs to, if the forge said so.
	Rerequest Kind = "rerequest"
	// Remark: somebody said something to Berth on pull request Number.
	Remark Kind = "remark"
	// MergeGroup: the forge's merge queue made the group at Ref, which is Commit,
	// and waits for its checks; or, if Gone, let go of it.
	MergeGroup Kind = "merge_group"
	// Unread: an authentic delivery that could not be read, being too large or
	// not of a known shape. Whoever is woken looks at everything.
	Unread Kind = "unread"
)

// Event is what an authentic delivery wakes somebody with.
type Event struct {
	Kind   Kind
	Repo   string // "owner/name" as the forge writes it; "" for Unread
	Ref    string // Push and MergeGroup: full name, such as "refs/heads/main"
	Number int    // PullRequest, Remark and Rerequest; 0 is unknown
	Commit string // Rerequest and MergeGroup
	Gone   bool   // MergeGroup
}

// Delivery is what arrived at once.
type Delivery struct {
	ID     string  // the forge's, the same again when it redelivers; not signed
	Sender string  // login of who caused it; "" where that is not told
	Events []Event // none: it is of no interest
}

// Read is the delivery that a forge's own record of deliveries tells of, read as
// if it had arrived. The error says what could not be understood; the delivery is
// one of an Unread event then.
func Read(id, event string, body []byte) (Delivery, error) {
	return read(clip(id, 64), clip(event, 64), "application/json", body)
}

func read(id, name, media string, body []byte) (Delivery, error) {
	events, sender, err := parse(name, media, body)
	if err != nil {
		events = []Event{{Kind: Unread}}
	}
	return Delivery{ID: id, Sender: sender, Events: events}, err
}

// Wakes says whether deliveries of an event may wake somebody at all.
func Wakes(event string) bool {
	switch event {
	case "push", "pull_request", "pull_request_review", "check_run", "check_suite", "issue_comment", "merge_group":
		return true
	}
	return false
}

// parse says what an authentic delivery wakes, and who caused it. It never
// panics: go-github reads whatever the body holds, and a bug there must not cost
// the daemon.
func parse(name, media string, body []byte) (events []Event, sender string, err error) {
	defer func() {
		if p := recover(); p != nil {
			events, err = nil, fmt.Errorf("reading it panicked: %v", p)
		}
	}()
	if media != "application/json" {
		return nil, "", fmt.Errorf("content type %q: set the hook's content type to application/json", clip(media, 64))
	}
	if !Wakes(name) {
		return nil, "", nil // ping, and what somebody ticked too much
	}
	payload, err := github.ParseWebHook(name, body)
	if err != nil {
		return nil, "", err
	}
	if by, ok := payload.(interface{ GetSender() *github.User }); ok {
		sender = by.GetSender().GetLogin()
	}
	events, err = eventsOf(name, payload)
	return events, sender, err
}

func eventsOf(name string, payload any) ([]Event, error) {
	switch p := payload.(type) {
	case *github.PushEvent:
		repo, ref := p.GetRepo().GetFullName(), p.GetRef()
		if repo == "" || ref == "" {
			return nil, errors.New("push without repository or ref")
		}
		if !interesting(ref) {
			return nil, nil
		}
		return []Event{{Kind: Push, Repo: repo, Ref: ref}}, nil
	case *github.PullRequestEvent:
		if cosmetic(p.GetAction()) {
			return nil, nil
		}
		return about(PullRequest, p.GetRepo(), p.GetNumber())
	case *github.PullRequestReviewEvent:
		return about(PullRequest, p.GetRepo(), p.GetPullRequest().GetNumber())
	case *github.CheckRunEvent:
		switch p.GetAction() {
		case "rerequested", "requested_action":
			return rerequested(p.GetRepo().GetFullName(), p.GetCheckRun().GetHeadSHA(), p.GetCheckRun().PullRequests)
		}
		return nil, nil // our own writes come back as these
	case *github.CheckSuiteEvent:
		if p.GetAction() != "rerequested" {
			return nil, nil
		}
		return rerequested(p.GetRepo().GetFullName(), p.GetCheckSuite().GetHeadSHA(), p.GetCheckSuite().PullRequests)
	case *github.IssueCommentEvent:
		// A command that was edited is answered with a hint; what was taken away is
		// gone.
		if p.GetAction() != "created" && p.GetAction() != "edited" || !p.GetIssue().IsPullRequest() || !toBerth(p.GetComment().GetBody()) || p.GetComment().GetUser().GetType() == "Bot" {
			return nil, nil
		}
		return about(Remark, p.GetRepo(), p.GetIssue().GetNumber())
	case *github.MergeGroupEvent:
		return mergeGroup(p)
	}
	return nil, fmt.Errorf("event %q came as %T", name, payload)
}

// queueRefs are the branches of the forge's merge queue.
const queueRefs = "refs/heads/gh-readonly-queue/"

// interesting says whether a push to ref may matter: branches, except those that
// Berth writes itself (it would wake itself forever) and the merge queue's, which
// are told of by events of their own.
func interesting(ref string) bool {
	branch, ok := strings.CutPrefix(ref, "refs/heads/")
	return ok && !strings.HasPrefix(branch, "berth/") && !strings.HasPrefix(ref, queueRefs)
}

// cosmetic says whether an action on a pull request changes nothing of what
// Berth looks at. One that nobody has heard of may.
func cosmetic(action string) bool {
	switch action {
	case "assigned", "unassigned", "labeled", "unlabeled", "locked", "unlocked", "milestoned", "demilestoned",
		"review_requested", "review_request_removed", "auto_merge_enabled", "auto_merge_disabled", "enqueued", "dequeued":
		return true
	}
	return false
}

// toBerth says whether a comment is addressed to Berth: its first line is.
func toBerth(body string) bool {
	first, _, _ := strings.Cut(body, "\n")
	return strings.HasPrefix(strings.TrimSpace(first), "/berth")
}

// about is an event about one pull request.
func about(kind Kind, repo *github.Repository, number int) ([]Event, error) {
	if repo.GetFullName() == "" || number <= 0 {
		return nil, errors.New("pull request without repository or number")
	}
	return []Event{{Kind: kind, Repo: repo.GetFullName(), Number: number}}, nil
}

// maxPulls of one check are told apart; of more, all of them are looked at.
const maxPulls = 20

// maxCommit is the length of the longest commit ids, maxRef of the longest ref.
const (
	maxCommit = 64
	maxRef    = 512
)

func rerequested(repo, commit string, prs []*github.PullRequest) ([]Event, error) {
	if repo == "" || commit == "" || len(commit) > maxCommit {
		return nil, errors.New("check without repository or commit")
	}
	if len(prs) == 0 || len(prs) > maxPulls { // of a fork, the forge names none
		return []Event{{Kind: Rerequest, Repo: repo, Commit: commit}}, nil
	}
	var events []Event
	for _, pr := range prs {
		events = append(events, Event{Kind: Rerequest, Repo: repo, Commit: commit, Number: pr.GetNumber()})
	}
	return events, nil
}

func mergeGroup(p *github.MergeGroupEvent) ([]Event, error) {
	var gone bool
	switch p.GetAction() {
	case "checks_requested":
	case "destroyed":
		gone = true
	default:
		return nil, nil
	}
	repo, ref, commit := p.GetRepo().GetFullName(), p.GetMergeGroup().GetHeadRef(), p.GetMergeGroup().GetHeadSHA()
	if repo == "" || commit == "" || len(commit) > maxCommit || len(ref) > maxRef || !strings.HasPrefix(ref, queueRefs) {
		return nil, errors.New("merge group without repository, commit or a ref of the queue")
	}
	return []Event{{Kind: MergeGroup, Repo: repo, Ref: ref, Commit: commit, Gone: gone}}, nil
}

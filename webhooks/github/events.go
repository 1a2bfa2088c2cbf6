package github

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	gh "github.com/google/go-github/v62/github"

	"berth/webhooks"
)

// queueRefs begin the refs of GitHub's merge queue.
const queueRefs = "refs/heads/gh-readonly-queue/"

const (
	maxEventName = 64
	// maxRerequested is the most pull requests of one check that become an event
	// each; a check of more is one event without a number.
	maxRerequested = 20
	maxCommitID    = 64 // of a SHA-256 repository
	maxRef         = 512
)

// events returns the names of the events that Berth reacts to.
func events() []string {
	return []string{"push", "pull_request", "pull_request_review", "check_run", "check_suite", "issue_comment", "merge_group"}
}

// Webhook is the format of GitHub's deliveries
// (https://docs.github.com/en/webhooks/webhook-events-and-payloads).
func Webhook() webhooks.Format {
	return webhooks.Format{Claim: claimOf, Envelope: envelope, Read: readDelivery, Events: append(events(), "ping")}
}

// isEventRead reports whether Berth reacts to any delivery of an event.
func isEventRead(event string) bool { return slices.Contains(events(), event) }

// claimOf returns the SHA-256 HMAC that a request claims. The header with the SHA-1
// one is ignored.
func claimOf(h http.Header) (webhooks.Claim, bool) {
	v := h.Values(gh.SHA256SignatureHeader)
	if len(v) != 1 {
		return webhooks.Claim{}, false
	}
	digits, ok := strings.CutPrefix(v[0], "sha256=")
	if !ok || len(digits) != 2*sha256.Size {
		return webhooks.Claim{}, false
	}
	sum, err := hex.DecodeString(digits)
	return webhooks.HMAC(sum), err == nil
}

func envelope(h http.Header) (event, id string) {
	return clip(h.Get(gh.EventTypeHeader)), clip(h.Get(gh.DeliveryIDHeader))
}

func clip(s string) string { return s[:min(len(s), maxEventName)] }

func readDelivery(id, event, mediaType string, body []byte) (webhooks.Delivery, error) {
	events, sender, err := parsePayload(event, mediaType, body)
	if err != nil {
		events = []webhooks.Event{{Kind: webhooks.Unread}}
	}
	return webhooks.Delivery{ID: id, Sender: sender, Events: events}, err
}

// parsePayload returns the events of an authentic delivery and the user who caused it. It
// never panics: go-github reads whatever the body holds, and a bug there must not
// end the daemon.
func parsePayload(name, mediaType string, body []byte) (events []webhooks.Event, sender string, err error) {
	defer func() {
		if p := recover(); p != nil {
			events, err = nil, fmt.Errorf("reading it panicked: %v", p)
		}
	}()
	if mediaType != "application/json" {
		return nil, "", fmt.Errorf("content type %q: set the webhook's content type to application/json", clip(mediaType))
	}
	if !isEventRead(name) {
		return nil, "", nil // ping, or an event that the webhook need not send
	}
	payload, err := gh.ParseWebHook(name, body)
	if err != nil {
		return nil, "", err
	}
	if by, ok := payload.(interface{ GetSender() *gh.User }); ok {
		sender = by.GetSender().GetLogin()
	}
	events, err = eventsOf(payload)
	return events, sender, err
}

func eventsOf(payload any) ([]webhooks.Event, error) {
	switch p := payload.(type) {
	case *gh.PushEvent:
		return ofPush(p.GetRepo().GetFullName(), p.GetRef())
	case *gh.PullRequestEvent:
		if isCosmetic(p.GetAction()) {
			return nil, nil
		}
		return ofPull(webhooks.PullRequest, p.GetRepo(), p.GetNumber())
	case *gh.PullRequestReviewEvent:
		return ofPull(webhooks.PullRequest, p.GetRepo(), p.GetPullRequest().GetNumber())
	case *gh.CheckRunEvent:
		switch p.GetAction() {
		case "rerequested", "requested_action":
			return rerequested(p.GetRepo().GetFullName(), p.GetCheckRun().GetHeadSHA(), p.GetCheckRun().PullRequests)
		}
		return nil, nil // Berth's own writes cause the other actions
	case *gh.CheckSuiteEvent:
		if p.GetAction() != "rerequested" {
			return nil, nil
		}
		return rerequested(p.GetRepo().GetFullName(), p.GetCheckSuite().GetHeadSHA(), p.GetCheckSuite().PullRequests)
	case *gh.IssueCommentEvent:
		if !isCommand(p) {
			return nil, nil
		}
		return ofPull(webhooks.Command, p.GetRepo(), p.GetIssue().GetNumber())
	case *gh.MergeGroupEvent:
		return mergeGroup(p)
	}
	return nil, fmt.Errorf("unexpected payload %T", payload)
}

// isRead says whether Berth reacts to a push to ref: to branches, except those it
// writes itself (it would cause its own reconciliations for ever) and those of the
// merge queue, which have their own event.
func isRead(ref string) bool {
	branch, ok := strings.CutPrefix(ref, "refs/heads/")
	return ok && !strings.HasPrefix(branch, "berth/") && !strings.HasPrefix(ref, queueRefs)
}

// isCosmetic says whether an action on a pull request changes nothing that Berth
// reads. An unknown action is not cosmetic.
func isCosmetic(action string) bool {
	switch action {
	case "assigned", "unassigned", "labeled", "unlabeled", "locked", "unlocked", "milestoned", "demilestoned",
		"review_requested", "review_request_removed", "auto_merge_enabled", "auto_merge_disabled", "enqueued", "dequeued":
		return true
	}
	return false
}

// isCommand says whether a user wrote a comment on a pull request whose first line is addressed to Berth. An edited command
// gets an answer that says to write a new one.
func isCommand(p *gh.IssueCommentEvent) bool {
	first, _, _ := strings.Cut(p.GetComment().GetBody(), "\n")
	return (p.GetAction() == "created" || p.GetAction() == "edited") && p.GetIssue().IsPullRequest() &&
		strings.HasPrefix(strings.TrimSpace(first), "/berth") && p.GetComment().GetUser().GetType() != "Bot"
}

func ofPush(repo, ref string) ([]webhooks.Event, error) {
	switch {
	case repo == "" || ref == "":
		return nil, errors.New("push without repository or ref")
	case !isRead(ref):
		return nil, nil
	}
	return []webhooks.Event{{Kind: webhooks.Push, Repo: repo, Ref: ref}}, nil
}

// ofPull returns one event about a pull request.
func ofPull(kind webhooks.Kind, repo *gh.Repository, number int) ([]webhooks.Event, error) {
	if repo.GetFullName() == "" || number <= 0 {
		return nil, errors.New("pull request without repository or number")
	}
	return []webhooks.Event{{Kind: kind, Repo: repo.GetFullName(), Number: number}}, nil
}

func rerequested(repo, commit string, pulls []*gh.PullRequest) ([]webhooks.Event, error) {
	if repo == "" || commit == "" || len(commit) > maxCommitID {
		return nil, errors.New("check without repository or commit")
	}
	if len(pulls) == 0 || len(pulls) > maxRerequested { // GitHub names no pull request of a fork
		return []webhooks.Event{{Kind: webhooks.Rerequest, Repo: repo, Commit: commit}}, nil
	}
	var events []webhooks.Event
	for _, pr := range pulls {
		events = append(events, webhooks.Event{Kind: webhooks.Rerequest, Repo: repo, Commit: commit, Number: pr.GetNumber()})
	}
	return events, nil
}

func mergeGroup(p *gh.MergeGroupEvent) ([]webhooks.Event, error) {
	action := p.GetAction()
	if action != "checks_requested" && action != "destroyed" {
		return nil, nil
	}
	repo, ref, commit := p.GetRepo().GetFullName(), p.GetMergeGroup().GetHeadRef(), p.GetMergeGroup().GetHeadSHA()
	if repo == "" || commit == "" || len(commit) > maxCommitID || len(ref) > maxRef || !strings.HasPrefix(ref, queueRefs) {
		return nil, errors.New("merge group without repository, commit or a ref of the queue")
	}
	return []webhooks.Event{{Kind: webhooks.MergeGroup, Repo: repo, Ref: ref, Commit: commit, Gone: action == "destroyed"}}, nil
}

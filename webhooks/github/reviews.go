package github

import (
	"context"
	"fmt"
	"slices"
	"strings"

	gh "github.com/google/go-github/v62/github"

	"berth/reconciler"
)

// Approvers lists, sorted, the logins whose approval of pr is of pr.Head itself
// (requirement A9). Each user's latest review counts: an approval, a request for
// changes, or a dismissed one of these; a comment is not a review. Approvals of the
// author, of bots and of deleted accounts do not count.
func (f *repository) Approvers(ctx context.Context, pr reconciler.PullRequest) ([]string, error) {
	latest := map[int64]*gh.PullRequestReview{} // by user id: a login may get another owner
	err := f.pages(fmt.Sprintf("list the reviews of pull request %d", pr.Number), func(o gh.ListOptions) (*gh.Response, error) {
		reviews, resp, err := f.client.PullRequests.ListReviews(op(ctx, "list_reviews"), f.o.Owner, f.o.Repo, pr.Number, &o)
		for _, r := range reviews {
			switch r.GetState() {
			case "APPROVED", "CHANGES_REQUESTED", "DISMISSED":
				who := r.GetUser().GetID()
				if old := latest[who]; old == nil || later(r, old) {
					latest[who] = r
				}
			}
		}
		return resp, err
	})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, r := range latest {
		login := r.GetUser().GetLogin()
		if r.GetState() == "APPROVED" && r.GetCommitID() == pr.Head && pr.Head != "" &&
			login != "" && r.GetUser().GetType() == "User" && !strings.EqualFold(login, pr.Author) {
			out = append(out, login)
		}
	}
	slices.Sort(out)
	return out, nil
}

// later says whether a was submitted after b.
func later(a, b *gh.PullRequestReview) bool {
	if c := a.GetSubmittedAt().Compare(b.GetSubmittedAt().Time); c != 0 {
		return c > 0
	}
	return a.GetID() > b.GetID()
}

package github_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/webhooks/forgetest"
	"berth/webhooks/github"
	"berth/webhooks/github/githubtest"
)

func TestConformanceWithCheckRuns(t *testing.T) {
	t.Parallel()
	forgetest.Run(t, func(t *testing.T) forgetest.Harness { return newRepository(t, github.Checks, appToken, "berth[bot]") })
}

// repository is a repository at GitHub for the suite, without rate limits.
type repository struct {
	*bed
	report   github.Report
	token    string
	me       string
	branches map[int]string // by pull request
}

func newRepository(t *testing.T, report github.Report, token, me string) *repository {
	b := newBed(t, func(o *githubtest.Options) {
		o.Tokens["pat"] = githubtest.Token{Login: "robot"}
		o.Limits = githubtest.Limits{PerHour: 1e6, ContentPerMinute: 1e6, ContentPerHour: 1e6}
	})
	return &repository{b, report, token, me, map[int]string{}}
}

func (r *repository) must(err error) {
	r.t.Helper()
	require.NoError(r.t, err)
}

func (r *repository) Facts() forgetest.Facts {
	return forgetest.Facts{Me: r.me, Machine: "other[bot]", Page: 100, Notes: r.report == github.Checks, Reruns: r.report == github.Checks}
}

func (r *repository) client(estate string) forgetest.Client {
	return r.forge(func(o *github.Options) {
		o.Estate, o.Token, o.Login, o.Report = estate, staticToken(r.token), r.me, r.report
	})
}

func (r *repository) New() forgetest.Client   { return r.client("lab") }
func (r *repository) Other() forgetest.Client { return r.client("other") }

func (r *repository) Open(fork bool) reconciler.PullRequest {
	name := fmt.Sprintf("b%d", len(r.branches))
	if !fork {
		pr := r.pull(name)
		r.branches[pr.Number] = name
		return pr
	}
	dir, err := r.srv.Fork("ana")
	r.must(err)
	theirs := *r.bed
	theirs.dir = dir
	head := theirs.commit(name, r.git("", "rev-parse", "main"), name+".yaml", name)
	r.must(r.srv.Sync())
	number, err := r.srv.OpenForkPull("ana", name, "Change "+name)
	r.must(err)
	r.branches[number] = name
	return reconciler.PullRequest{Number: number, Title: "Change " + name, Author: "ana", Head: head, BaseBranch: "main", Open: true,
		Fork: true}
}

func (r *repository) Push(pull int) {
	branch := r.branches[pull]
	r.commit(branch, r.git("", "rev-parse", branch), branch+".yaml", "newer")
	r.must(r.srv.Sync())
}

func (r *repository) Close(pull int) { r.must(r.srv.ClosePull(pull)) }

func (r *repository) Merge(pull int) string {
	c, err := r.srv.Merge(pull, githubtest.Squash, "ana")
	r.must(err)
	return c
}

func (r *repository) Approve(pull int, login string) {
	_, err := r.srv.Review(pull, login, githubtest.Approved)
	r.must(err)
}

func (r *repository) Permit(login string, p reconciler.Permission) {
	r.srv.SetPermission(login, map[reconciler.Permission]string{reconciler.CanRead: "triage", reconciler.CanWrite: "maintain",
		reconciler.CanAdmin: "admin"}[p])
}

func (r *repository) AddComment(pull int, login, body string) int64 {
	id, err := r.srv.Comment(pull, login, body)
	r.must(err)
	return id
}

func (r *repository) EditComment(id int64, body string) { r.must(r.srv.EditComment(id, "lab", body)) }
func (r *repository) DeleteComment(id int64)            { r.must(r.srv.DeleteComment(id)) }
func (r *repository) React(id int64, login string)      { r.must(r.srv.React(id, login, "rocket")) }

func (r *repository) Comments(pull int) []forgetest.ShownComment {
	var out []forgetest.ShownComment
	for _, c := range r.srv.Comments(pull) {
		s := forgetest.ShownComment{ID: c.ID, Author: c.Author, Body: c.Body}
		for _, reaction := range c.Reactions {
			s.Reactions = append(s.Reactions, reaction.Login)
		}
		out = append(out, s)
	}
	return out
}

func (r *repository) Begin(commit, name, key string) {
	r.t.Helper()
	path, body := "check-runs", map[string]any{"name": name, "head_sha": commit, "status": "in_progress", "external_id": "berth:lab:" + key}
	if r.report == github.Statuses {
		path, body = "statuses/"+commit, map[string]any{"state": "pending", "context": name, "description": "planning"}
	}
	data, err := json.Marshal(body)
	r.must(err)
	req, err := http.NewRequest("POST", r.srv.APIURL()+"repos/lab/estate/"+path, bytes.NewReader(data))
	r.must(err)
	req.Header.Set("Authorization", "Bearer "+r.token)
	resp, err := http.DefaultClient.Do(req)
	r.must(err)
	resp.Body.Close()
	require.Equal(r.t, 201, resp.StatusCode)
}

func (r *repository) Checks(commit string) map[string]forgetest.ShownCheck {
	out := map[string]forgetest.ShownCheck{}
	for _, c := range r.srv.Checks(commit) {
		out[c.Name] = forgetest.ShownCheck{Conclusion: plan.Conclusion(c.Conclusion), Title: c.Title, Notes: len(c.Annotations),
			Runs: out[c.Name].Runs + 1}
	}
	for _, s := range r.srv.Statuses(commit) {
		conclusion := map[string]plan.Conclusion{"success": plan.Success, "failure": plan.Failure, "error": plan.Conclusion(s.Description)}
		out[s.Context] = forgetest.ShownCheck{Conclusion: conclusion[s.State], Title: s.Description, Runs: out[s.Context].Runs + 1}
	}
	return out
}

func (r *repository) Fail(w forgetest.Write, trouble forgetest.Trouble) {
	op := map[forgetest.Write]string{
		forgetest.Check: opNewCheck, forgetest.Comment: opSay, forgetest.Edit: opEdit,
		forgetest.Reaction: "POST " + base + "/issues/comments/{comment_id}/reactions",
	}[w]
	if w == forgetest.Check && r.report == github.Statuses {
		op = opNewStatus
	}
	r.srv.Inject(map[forgetest.Trouble]githubtest.Fault{
		forgetest.Refused: {Op: op, Status: 500}, forgetest.Done: {Op: op, Status: 502, Carry: true},
		forgetest.Lost: {Op: op, Carry: true}, forgetest.Unreached: {Op: op},
	}[trouble])
}

func (r *repository) Writes() int          { return len(r.writes()) }
func (r *repository) Pass(d time.Duration) { r.must(r.time.sleep(r.t.Context(), d)) }
func (r *repository) Now() time.Time       { return r.time.now() }

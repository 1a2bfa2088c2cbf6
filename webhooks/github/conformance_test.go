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
	forgetest.Run(t, func(t *testing.T) forgetest.Harness { return harness(t, github.Checks, appToken, "berth[bot]") })
}

func TestConformanceWithCommitStatuses(t *testing.T) {
	t.Parallel()
	forgetest.Run(t, func(t *testing.T) forgetest.Harness { return harness(t, github.Statuses, "pat", "robot") })
}

// harness is a repository at GitHub for the suite, without rate limits.
func harness(t *testing.T, report github.Report, token, me string) forgetest.Harness {
	b := newBed(t, func(o *githubtest.Options) {
		o.Tokens["pat"] = githubtest.Token{Login: "robot"}
		o.Limits = githubtest.Limits{PerHour: 1e6, ContentPerMinute: 1e6, ContentPerHour: 1e6}
	})
	n := 0
	branch := map[int]string{}
	must := func(err error) { t.Helper(); require.NoError(t, err) }
	send := func(path string, body map[string]any) {
		t.Helper()
		data, err := json.Marshal(body)
		must(err)
		r, err := http.NewRequest("POST", b.srv.APIURL()+"repos/lab/estate/"+path, bytes.NewReader(data))
		must(err)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("User-Agent", "test")
		resp, err := http.DefaultClient.Do(r)
		must(err)
		defer resp.Body.Close()
		require.Equal(t, 201, resp.StatusCode)
	}
	ops := map[forgetest.Write]string{
		forgetest.Check: opNewCheck, forgetest.Comment: opSay, forgetest.Edit: opEdit,
		forgetest.Sign: "POST " + base + "/issues/comments/{comment_id}/reactions",
	}
	if report == github.Statuses {
		ops[forgetest.Check] = opNewStatus
	}
	client := func(estate string) func() forgetest.Client {
		return func() forgetest.Client {
			return b.forge(func(o *github.Options) {
				o.Estate, o.Token, o.Login, o.Report = estate, github.StaticToken(token), me, report
			})
		}
	}
	return forgetest.Harness{
		New: client("lab"), Other: client("other"),
		Me: me, Page: 100, Notes: report == github.Checks, Reruns: report == github.Checks, Machine: "other[bot]",
		Open: func(fork bool) reconciler.PullRequest {
			n++
			name := fmt.Sprintf("b%d", n)
			if !fork {
				pr := b.pull(name)
				branch[pr.Number] = name
				return pr
			}
			dir, err := b.srv.Fork("ana")
			must(err)
			theirs := *b
			theirs.dir = dir
			head := theirs.commit(name, b.git("", "rev-parse", "main"), name+".yaml", name)
			must(b.srv.Sync())
			number, err := b.srv.OpenForkPull("ana", name, "Change "+name)
			must(err)
			return reconciler.PullRequest{Number: number, Title: "Change " + name, Author: "ana", Head: head, BaseBranch: "main", Open: true, Fork: true}
		},
		Push: func(pull int) {
			b.commit(branch[pull], b.git("", "rev-parse", branch[pull]), branch[pull]+".yaml", "newer")
			must(b.srv.Sync())
		},
		Close: func(pull int) { must(b.srv.ClosePull(pull)) },
		Merge: func(pull int) string {
			c, err := b.srv.Merge(pull, githubtest.Squash, "ana")
			must(err)
			return c
		},
		Approve: func(pull int, login string) {
			_, err := b.srv.Review(pull, login, githubtest.Approved)
			must(err)
		},
		Permit: func(login string, p reconciler.Permission) {
			b.srv.SetPermission(login, map[reconciler.Permission]string{reconciler.CanRead: "triage", reconciler.CanWrite: "maintain", reconciler.CanAdmin: "admin"}[p])
		},
		Say: func(pull int, login, body string) int64 {
			id, err := b.srv.Comment(pull, login, body)
			must(err)
			return id
		},
		Change:  func(id int64, body string) { must(b.srv.EditComment(id, "lab", body)) },
		Delete:  func(id int64) { must(b.srv.DeleteComment(id)) },
		SetSign: func(id int64, login string) { must(b.srv.React(id, login, "rocket")) },
		Begin: func(commit, name, key string) {
			if report == github.Statuses {
				send("statuses/"+commit, map[string]any{"state": "pending", "context": name, "description": "planning"})
				return
			}
			send("check-runs", map[string]any{"name": name, "head_sha": commit, "status": "in_progress", "external_id": "berth:lab:" + key})
		},
		Checks: func(commit string) map[string]forgetest.Shown {
			out := map[string]forgetest.Shown{}
			for _, c := range b.srv.Checks(commit) {
				out[c.Name] = forgetest.Shown{Conclusion: plan.Conclusion(c.Conclusion), Title: c.Title, Notes: len(c.Annotations), Runs: out[c.Name].Runs + 1}
			}
			for _, s := range b.srv.Statuses(commit) {
				said := map[string]plan.Conclusion{"success": plan.Success, "failure": plan.Failure, "error": plan.Conclusion(s.Description)}
				out[s.Context] = forgetest.Shown{Conclusion: said[s.State], Title: s.Description, Runs: out[s.Context].Runs + 1}
			}
			return out
		},
		Comments: func(pull int) []forgetest.Said {
			var out []forgetest.Said
			for _, c := range b.srv.Comments(pull) {
				s := forgetest.Said{ID: c.ID, Author: c.Author, Body: c.Body}
				for _, r := range c.Reactions {
					s.Signs = append(s.Signs, r.Login)
				}
				out = append(out, s)
			}
			return out
		},
		Fail: func(w forgetest.Write, trouble forgetest.Trouble) {
			b.srv.Inject(map[forgetest.Trouble]githubtest.Fault{
				forgetest.Refused: {Op: ops[w], Status: 500}, forgetest.Done: {Op: ops[w], Status: 502, Carry: true},
				forgetest.Lost: {Op: ops[w], Carry: true}, forgetest.Unreached: {Op: ops[w]},
			}[trouble])
		},
		Writes: func() int { return len(b.writes()) },
		Pass:   func(d time.Duration) { must(b.time.sleep(t.Context(), d)) },
		Now:    b.time.now,
	}
}

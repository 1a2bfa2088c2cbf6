//go:build long

package github_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/webhooks/github"
	"berth/webhooks/github/githubtest"
)

// The base moves under 200 pull requests, and each plan changes. GitHub refuses no
// write.
func TestLongManyNewPlansStayBelowTheLimits(t *testing.T) {
	t.Parallel()
	const open, rounds = 40, 8
	b := newBed(t, nil)
	f := b.forge(func(o *github.Options) { o.MaxWait = time.Hour })
	var prs []reconciler.PullRequest
	for i := range open {
		prs = append(prs, b.pull(fmt.Sprintf("change-%d", i)))
	}
	for round := range rounds {
		b.srv.Forget()
		start := b.time.now()
		for _, pr := range slices.Backward(prs) {
			for _, name := range []string{plan.CheckValidate, plan.CheckPlan} {
				c := verdict(fmt.Sprint(name, round), 0)
				c.Name = name
				require.NoError(t, f.Report(bg(), pr.Head, c))
			}
			require.NoError(t, f.Comment(bg(), pr.Number, reconciler.Comment{Plan: text(fmt.Sprint("plan ", round))}))
		}
		require.Len(t, b.writes(), 3*open)
		for _, r := range b.srv.Requests() {
			require.Less(t, r.Status, 400, "GitHub had to refuse %s", r.Op)
		}
		t.Logf("%d writes, of which %d create content, take %s", 3*open, b.srv.Writes().Creating, b.time.now().Sub(start))
	}
	used := b.srv.Usage("berth[bot]")
	require.Zero(t, used.Refused)
	require.LessOrEqual(t, used.PeakCreatingHour, 500)
}

func TestLongBurstStaysBelowTheLimits(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	reg := prometheus.NewRegistry()
	f := b.forge(func(o *github.Options) { o.Registry, o.MaxWait = reg, time.Hour })
	start := b.time.now()
	pr := b.pull("busy")
	for i := range 60 { // the base moves on and on
		p := verdict("k", 0)
		p.Key = fmt.Sprint(i)
		require.NoError(t, show(f, pr, p))
	}
	require.Len(t, b.writes(), 120)
	for _, r := range b.srv.Requests() {
		require.Less(t, r.Status, 400, "GitHub had to refuse %s", r.Op)
	}
	require.Greater(t, b.time.now().Sub(start), 80*time.Second, "120 writes, 80 a minute")
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP berth_forge_requests_total Requests to the forge, by operation and status code; 0: no answer.
# TYPE berth_forge_requests_total counter
berth_forge_requests_total{code="200",op="get_comment"} 58
berth_forge_requests_total{code="200",op="list_checks"} 60
berth_forge_requests_total{code="200",op="list_comments"} 2
berth_forge_requests_total{code="200",op="update_comment"} 59
berth_forge_requests_total{code="201",op="create_check"} 60
berth_forge_requests_total{code="201",op="create_comment"} 1
`), "berth_forge_requests_total"))

	// Beyond MaxWait a call returns an error and writes nothing.
	b.srv.Forget()
	f = b.forge(func(o *github.Options) { o.MaxWait = time.Millisecond })
	var err error
	for i := range 60 {
		if err = f.Comment(bg(), pr.Number, reconciler.Comment{Rollout: text(fmt.Sprint(i))}); err != nil {
			break
		}
	}
	var limit *github.LimitError
	require.ErrorAs(t, err, &limit)
	require.Equal(t, "pace", limit.Why)
	require.Len(t, b.writes(), 20)
}

func TestLongListingsReadAllPages(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(o *githubtest.Options) { o.Limits.PerPage = 10 })
	var merged []string
	for i, m := range []githubtest.Method{githubtest.Squash, githubtest.Merge} {
		pr := b.pull(fmt.Sprintf("m%d", i))
		c, err := b.srv.Merge(pr.Number, m, "ana")
		require.NoError(t, err)
		merged = append(merged, c)
	}
	closed := b.pull("closed")
	require.NoError(t, b.srv.ClosePull(closed.Number))
	for i := range 23 {
		b.pull(fmt.Sprintf("b%d", i))
	}
	f := b.forge(nil)
	open, err := f.OpenPulls(bg())
	require.NoError(t, err)
	require.Len(t, open, 23)
	require.Equal(t, 4, open[0].Number)
	require.Equal(t, 26, open[22].Number)
	require.Empty(t, open[0].MergeCommit, "the test merge does not count")

	before := b.remaining()
	for range 5 {
		again, err := f.OpenPulls(bg())
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(open, again))
	}
	require.Equal(t, before-1, b.remaining(), "looking again costs nothing, but the looking here")

	for i, c := range merged {
		prs, err := f.PullsOf(bg(), c)
		require.NoError(t, err)
		require.Len(t, prs, 1)
		require.Equal(t, i+1, prs[0].Number)
		require.True(t, prs[0].Merged)
		require.Equal(t, c, prs[0].MergeCommit)
	}
	prs, err := f.PullsOf(bg(), open[0].Head)
	require.NoError(t, err)
	require.Empty(t, prs, "an open one is not merged")
}

// remaining is the number of requests left; the call itself takes one.
func (b *bed) remaining() int {
	b.t.Helper()
	r, err := http.NewRequest("GET", b.srv.APIURL()+"repos/lab/estate", nil)
	require.NoError(b.t, err)
	r.Header.Set("Authorization", "Bearer "+appToken)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(b.t, err)
	defer resp.Body.Close()
	n, err := strconv.Atoi(resp.Header.Get("X-RateLimit-Remaining"))
	require.NoError(b.t, err)
	return n
}

package github_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/webhooks/github"
	"berth/webhooks/github/githubtest"
)

var update = flag.Bool("update", false, "write the golden files")

// The golden file has all requests between Berth and GitHub.
func TestRequestsOfAPullRequestsLife(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	pr := b.pull("two-workers")
	f := b.forge(nil)
	var log bytes.Buffer
	step := func(what string, err error) {
		require.NoError(t, err)
		fmt.Fprintf(&log, "# %s\n", what)
		for _, r := range b.srv.Requests() {
			fmt.Fprintf(&log, "%s → %d\n", strings.NewReplacer("repos/lab/estate", "…").Replace(strings.Fields(r.Op)[0]+" "+r.URL),
				r.Status)
			if r.Body != "" {
				var indented bytes.Buffer
				require.NoError(t, json.Indent(&indented, []byte(r.Body), "    ", "  "))
				fmt.Fprintf(&log, "    %s\n", bytes.TrimSpace(indented.Bytes()))
			}
		}
		log.WriteString("\n")
		b.srv.Forget()
	}
	say := func(f *github.Forge, c reconciler.Comment) error { return f.Comment(bg(), pr.Number, c) }
	valid := plan.Check{Name: plan.CheckValidate, Key: "v1", Conclusion: plan.Success, Title: "nothing found", Summary: "summary"}
	both := func(f *github.Forge, c plan.Check) error {
		require.NoError(t, f.Report(bg(), pr.Head, valid))
		return show(f, pr, c)
	}
	step("a plan with two findings: both checks, one failing, then the comment", both(f, verdict("p1", 2)))
	step("the same again: nothing is written", both(f, verdict("p1", 2)))
	step("the same after a restart: nothing is written", both(b.forge(nil), verdict("p1", 2)))
	step("the base moved: a new run of the check that says something else, the same comment", both(f, verdict("p2", 2)))

	pr.Head = b.commit("two-workers", pr.Head, "two-workers.yaml", "better")
	require.NoError(t, b.srv.Sync())
	step("a new head without findings", both(f, verdict("p3", 0)))
	f.Rerequest(pr.Head)
	step("rerequested: new runs", both(f, verdict("p3", 0)))

	_, err := b.srv.Comment(pr.Number, "ana", "/berth help")
	require.NoError(t, err)
	remarks, err := f.Commands(bg(), b.time.now().Add(-time.Hour))
	step("list commands", err)
	require.Len(t, remarks, 1)
	_, err = f.Permission(bg(), remarks[0].Author)
	step("by whom?", err)
	step("the answer", say(f, reconciler.Comment{Answers: []reconciler.Answer{{Command: remarks[0].ID, Line: "✓ `/berth help`: below",
		Details: "### Help"}}}))
	step("last, the sign that it is answered", f.React(bg(), remarks[0], reconciler.Understood))
	remarks, err = b.forge(nil).Commands(bg(), b.time.now().Add(-time.Hour))
	step("list commands after a restart", err)
	require.True(t, remarks[0].Answered)

	merge, err := b.srv.Merge(pr.Number, githubtest.Squash, "ana")
	require.NoError(t, err)
	prs, err := f.PullsOf(bg(), merge)
	require.Len(t, prs, 1)
	step("the merge is on main: whose is it?", err)
	step("what became of it, on top of the plan", say(f, reconciler.Comment{Rollout: text("### Roll-out of " + merge)}))
	step("the same after a restart: nothing is written", say(b.forge(nil), reconciler.Comment{Rollout: text("### Roll-out of " + merge)}))
	step("is anything left half way?", f.CancelChecks(bg(), pr.Head))

	golden := filepath.Join("testdata", "conversation.txt")
	if *update {
		require.NoError(t, os.WriteFile(golden, log.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(string(want), log.String()))
	require.Len(t, b.srv.Comments(pr.Number), 2, "the question, and the one that says it all")
}

func TestManyAnnotationsAreSentInPieces(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	pr := b.pull("bad")
	p := verdict("k", 120)
	require.NoError(t, show(b.forge(nil), pr, p))
	checks := b.srv.Checks(pr.Head)
	require.Len(t, checks, 1)
	require.Equal(t, "completed", checks[0].Status)
	require.Equal(t, "failure", checks[0].Conclusion)
	require.Len(t, checks[0].Annotations, 120)
	require.Equal(t, []string{opNewCheck, opCheck, opCheck, opSay}, b.writes())
	for i, a := range checks[0].Annotations {
		require.Equal(t, i+1, a.StartLine)
	}

	// A finding without a place has no annotation.
	pr = b.pull("worse")
	p = verdict("k", 50)
	p.Notes = append(p.Notes, schema.Diagnostic{Severity: schema.SeverityError, Code: "e", Message: "nowhere"})
	b.srv.Forget()
	require.NoError(t, b.forge(nil).Report(bg(), pr.Head, p))
	require.Equal(t, []string{opNewCheck}, b.writes())
	require.Len(t, b.srv.Checks(pr.Head)[0].Annotations, 50)
}

// A process ends between 120 annotations; the next one continues.
func TestCrashBetweenPiecesContinues(t *testing.T) {
	t.Parallel()
	for _, carry := range []bool{false, true} {
		b := newBed(t, nil)
		pr := b.pull("bad")
		p := verdict("k", 120)
		b.srv.Inject(githubtest.Fault{Op: opCheck, Status: 500, Carry: carry})
		b.srv.Inject(githubtest.Fault{Op: opChecks, Status: 500, Times: 8}) // and it cannot look either
		require.Error(t, show(b.forge(nil), pr, p))
		require.Equal(t, "in_progress", b.srv.Checks(pr.Head)[0].Status)
		require.NoError(t, show(b.forge(nil), pr, p))
		checks := b.srv.Checks(pr.Head)
		require.Len(t, checks, 1)
		require.Equal(t, "completed", checks[0].Status)
		require.Len(t, checks[0].Annotations, 120)
	}
}

// The next process cancels the incomplete check, then reports the same plan.
func TestCancelledBetweenPiecesStartsAnew(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	pr := b.pull("bad")
	p := verdict("k", 120)
	b.srv.Inject(githubtest.Fault{Op: opCheck, Status: 500})
	b.srv.Inject(githubtest.Fault{Op: opChecks, Status: 500, Times: 8})
	require.Error(t, show(b.forge(nil), pr, p))
	f := b.forge(nil)
	require.NoError(t, f.CancelChecks(bg(), pr.Head))
	require.NoError(t, show(f, pr, p))
	checks := b.srv.Checks(pr.Head)
	require.Len(t, checks, 2)
	require.Equal(t, []string{"cancelled", "failure"}, []string{checks[0].Conclusion, checks[1].Conclusion})
	require.Len(t, checks[1].Annotations, 120)
}

// Atlantis issue 4932.
func TestCheckIsDoneWhenTheCommentFails(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	pr := b.pull("two-workers")
	b.srv.Inject(githubtest.Fault{Op: opSay, Status: 500, Times: 3})
	require.Error(t, show(b.forge(nil), pr, verdict("k", 0)))
	require.Equal(t, "success", b.srv.Checks(pr.Head)[0].Conclusion)
	require.Empty(t, b.srv.Comments(pr.Number))
}

func TestDeletedCommentIsRecreated(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	pr := b.pull("two-workers")
	f := b.forge(nil)
	require.NoError(t, show(f, pr, verdict("k", 0)))
	first := b.srv.Comments(pr.Number)[0].ID
	require.NoError(t, b.srv.DeleteComment(first))
	require.NoError(t, show(f, pr, verdict("k", 0)))
	c := b.srv.Comments(pr.Number)
	require.Len(t, c, 1)
	require.NotEqual(t, first, c[0].ID)

	// Between being read and being written: the edit finds nothing.
	b.srv.Inject(githubtest.Fault{Op: opEdit, Status: 404, Message: "Not Found"})
	p := verdict("k", 0)
	p.Key = "e"
	require.NoError(t, show(f, pr, p))
	require.Len(t, b.srv.Comments(pr.Number), 2)
}

func TestCommentWithOldMarkerIsTakenOver(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	pr := b.pull("two-workers")
	const old = "<!-- berth:plan:v1 -->\n\n<!-- berth:proposal -->\nthe plan\n<!-- /berth:proposal -->"
	_, err := b.srv.Comment(pr.Number, "eve", old)
	require.NoError(t, err)
	id, err := b.srv.Comment(pr.Number, "berth[bot]", old)
	require.NoError(t, err)
	for _, f := range []*github.Forge{b.forge(nil), b.forge(func(o *github.Options) { o.Estate = "other" })} {
		require.NoError(t, f.Comment(bg(), pr.Number, reconciler.Comment{Rollout: text("queued")}))
	}
	c := b.srv.Comments(pr.Number)
	require.Len(t, c, 3, "eve's, the old one, and that of the other estate")
	require.Equal(t, old, c[0].Body)
	require.Equal(t, id, c[1].ID)
	require.Contains(t, c[1].Body, "berth:estate:")
	require.Contains(t, c[1].Body, "the plan")
	require.Contains(t, c[2].Body, "berth:other:")
	require.NotContains(t, c[2].Body, "the plan")
}

// lateWrites carries out the first request for a comment only when send is called; its
// sender times out.
type lateWrites struct {
	late *http.Request
	with func(*http.Request) (*http.Response, error) // the next one, if set
}

func (l *lateWrites) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/comments"):
	case l.late == nil:
		body, err := io.ReadAll(r.Body)
		l.late = r.Clone(context.Background())
		l.late.Body = io.NopCloser(bytes.NewReader(body))
		return nil, errors.Join(errors.New("no answer"), err)
	case l.with != nil:
		return l.with(r)
	}
	return http.DefaultTransport.RoundTrip(r)
}

func (l *lateWrites) send(t *testing.T) {
	resp, err := http.DefaultTransport.RoundTrip(l.late)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusCreated, resp.StatusCode)
}

// A comment whose reply was lost appears after a second one was created.
func TestLateCommentLeavesOneComment(t *testing.T) {
	t.Parallel()
	for _, meanwhile := range []bool{true, false} {
		b := newBed(t, nil)
		pr := b.pull("two-workers")
		var late lateWrites
		if meanwhile {
			late.with = func(r *http.Request) (*http.Response, error) {
				late.send(t)
				return http.DefaultTransport.RoundTrip(r)
			}
		}
		f := b.forge(func(o *github.Options) { o.Transport = &late })
		require.NoError(t, f.Comment(bg(), pr.Number, reconciler.Comment{Plan: text("the plan")}))
		first := b.srv.Comments(pr.Number)
		require.Len(t, first, 1)
		if !meanwhile {
			late.send(t)
			require.Len(t, b.srv.Comments(pr.Number), 2)
			require.NoError(t, f.Comment(bg(), pr.Number, reconciler.Comment{Rollout: text("queued")}))
		}
		now := b.srv.Comments(pr.Number)
		require.Len(t, now, 1)
		require.Equal(t, first[0].ID, now[0].ID)
	}
}

func TestMissingPullRequestIsNotFound(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	pr := b.pull("two-workers")
	gone := reconciler.PullRequest{Number: 99, Head: pr.Head, Open: true}
	f := b.forge(nil)
	_, err := f.Pull(bg(), 99)
	require.ErrorIs(t, err, reconciler.ErrNotFound)
	require.ErrorContains(t, err, "pull request 99")
	require.ErrorIs(t, show(f, gone, verdict("k", 0)), reconciler.ErrNotFound)

	// That nothing at all is to be seen is not said of any one of them.
	b.srv.Inject(githubtest.Fault{Op: opPulls, Status: 404, Message: "Not Found"})
	_, err = f.OpenPulls(bg())
	require.Error(t, err)
	require.NotErrorIs(t, err, reconciler.ErrNotFound)
}

func TestCheckOfAnotherAppIsIgnored(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(o *githubtest.Options) { o.Tokens["other"] = githubtest.Token{Login: "other", App: true} })
	pr := b.pull("two-workers")
	p := verdict("k", 0)
	require.NoError(t, show(b.forge(nil), pr, p))
	require.NoError(t, show(b.forge(func(o *github.Options) { o.Token, o.Login = staticToken("other"), "other[bot]" }), pr, p))
	require.Len(t, b.srv.Checks(pr.Head), 2)
	b.srv.Forget()
	require.NoError(t, show(b.forge(nil), pr, p))
	require.Empty(t, b.writes())
}

func TestPersonalTokenReportsStatuses(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	pr := b.pull("two-workers")
	pat := func(o *github.Options) { o.Token, o.Login = staticToken("pat"), "" }
	err := show(b.forge(pat), pr, verdict("k", 1))
	require.ErrorContains(t, err, "GitHub App")

	statuses := func(o *github.Options) { pat(o); o.Report = github.Statuses }
	b.srv.Inject(githubtest.Fault{Op: opNewStatus, Status: 502, Carry: true})
	require.NoError(t, show(b.forge(statuses), pr, verdict("k", 1)))
	link := fmt.Sprintf("%slab/estate/pull/%d", b.srv.APIURL(), pr.Number)
	require.Equal(t, []githubtest.Status{{Context: "berth/plan", State: "failure", Description: "blocked", TargetURL: link}},
		b.srv.Statuses(pr.Head))
	b.srv.Forget()
	require.NoError(t, show(b.forge(statuses), pr, verdict("k", 1)))
	require.Empty(t, b.writes())
	require.NoError(t, show(b.forge(statuses), pr, verdict("k", 0)))
	require.Equal(t, githubtest.Status{Context: "berth/plan", State: "success", Description: "fine", TargetURL: link},
		b.srv.Statuses(pr.Head)[1])

	// A merge group has no pull request: the link is to its commit.
	group := verdict("group", 0)
	group.Name = "berth/validate"
	require.NoError(t, b.forge(statuses).Report(t.Context(), pr.Head, group))
	require.Equal(t, b.srv.APIURL()+"lab/estate/commit/"+pr.Head, b.srv.Statuses(pr.Head)[2].TargetURL)
}

// GitHub's description has completed_at as YYYY-MM-DDTHH:MM:SSZ.
func TestCompletedAtHasWholeSeconds(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	pr := b.pull("two-workers")
	require.NoError(t, b.time.sleep(t.Context(), 123456789*time.Nanosecond))
	require.NoError(t, show(b.forge(nil), pr, verdict("k", 60)))
	require.Equal(t, "failure", b.srv.Checks(pr.Head)[0].Conclusion)
}

func TestShortLimitsAreWaitedFor(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	f := b.forge(nil)
	n := 0
	for name, fault := range map[string]githubtest.Fault{
		"403 with Retry-After": {Status: 403, Message: "You have exceeded a secondary rate limit",
			Header: map[string]string{"Retry-After": "20"}},
		"429 with Retry-After": {Status: 429, Header: map[string]string{"Retry-After": "20"}},
		"several":              {Status: 429, Header: map[string]string{"Retry-After": "5"}, Times: 3},
		"403 primary":          {Status: 403, Header: map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "in 20 s"}},
		"429 primary":          {Status: 429, Header: map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "in 20 s"}},
	} {
		for _, op := range []string{opChecks, opNewCheck, opSay, opPull} {
			n++
			pr := b.pull(fmt.Sprintf("b%d", n))
			fault.Op = op
			fault := fault
			if fault.Header["X-RateLimit-Reset"] == "in 20 s" {
				fault.Header = map[string]string{"X-RateLimit-Remaining": "0",
					"X-RateLimit-Reset": fmt.Sprint(b.time.now().Add(20 * time.Second).Unix())}
			}
			b.srv.Inject(fault)
			_, err := f.Pull(bg(), pr.Number)
			require.NoError(t, err, "%s: %s", name, op)
			require.NoError(t, show(f, pr, verdict("k", 1)), "%s: %s", name, op)
			require.Len(t, b.srv.Checks(pr.Head), 1)
			require.Len(t, b.srv.Comments(pr.Number), 1)
		}
	}
}

func TestLongLimitsAreReturned(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault githubtest.Fault
		until time.Duration
	}{
		"secondary":         {githubtest.Fault{Status: 403, Header: map[string]string{"Retry-After": "300"}}, 300 * time.Second},
		"secondary, silent": {githubtest.Fault{Status: 403, Message: "You have exceeded a secondary rate limit."}, time.Minute},
		"429, silent":       {githubtest.Fault{Status: 429}, time.Minute},
		"primary": {githubtest.Fault{Status: 403,
			Header: map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1772368200"}}, 1801 * time.Second},
		"a header gone mad": {githubtest.Fault{Status: 429, Header: map[string]string{"Retry-After": "99999999999"}},
			70 * time.Minute},
		"a reset that went by": {githubtest.Fault{Status: 403,
			Header: map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1"}}, time.Minute},
		"a reset just now": {githubtest.Fault{Status: 429,
			Header: map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1772366399"}}, time.Minute},
		"retry at once, it says": {githubtest.Fault{Status: 429, Header: map[string]string{"Retry-After": "0"}}, time.Minute},
		"a reset in next summer": {githubtest.Fault{Status: 403,
			Header: map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1782368200"}}, 70 * time.Minute},
	} {
		b := newBed(t, nil)
		pr := b.pull("two-workers")
		start := b.time.now()
		c.fault.Op = opNewCheck
		b.srv.Inject(c.fault)
		f := b.forge(nil)
		err := show(f, pr, verdict("k", 1))
		var limit *github.LimitError
		require.ErrorAs(t, err, &limit, name)
		require.Equal(t, start.Add(c.until), limit.Until.UTC(), name)
		var later *reconciler.RetryAfterError
		require.ErrorAs(t, err, &later, name)
		require.Equal(t, limit.Until, later.At, name)
		require.Equal(t, []string{opNewCheck}, b.writes(), "%s: the comment would meet the same", name)

		b.srv.Forget()
		_, err = f.OpenPulls(bg())
		require.ErrorAs(t, err, &limit, name)
		require.Empty(t, b.srv.Requests(), "%s: nothing goes out while it holds", name)

		require.NoError(t, b.time.sleep(bg(), c.until))
		require.NoError(t, show(f, pr, verdict("k", 1)), name)
		require.Len(t, b.srv.Comments(pr.Number), 1)
	}
}

func TestForbiddenIsNotALimit(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.srv.Inject(githubtest.Fault{Op: opPulls, Status: 403, Message: "Resource not accessible by integration"})
	_, err := b.forge(nil).OpenPulls(bg())
	var limit *github.LimitError
	require.False(t, errors.As(err, &limit))
	require.ErrorContains(t, err, "grant it")
	require.Zero(t, b.time.slept)
}

// The limit comes while a write waits for its slot.
func TestLimitStopsWaitingWrites(t *testing.T) {
	t.Parallel()
	for _, hold := range []time.Duration{10 * time.Second, 300 * time.Second} {
		b := newBed(t, nil)
		pr := b.pull("busy")
		pacer := github.NewPacer()
		reader := b.forge(func(o *github.Options) { o.Pacer, o.MaxWait = pacer, time.Nanosecond })
		var over time.Time // when the limit is
		before := 0
		writer := b.forge(func(o *github.Options) {
			o.Pacer = pacer
			o.Clock.Sleep = func(ctx context.Context, d time.Duration) error {
				if over.IsZero() { // the first that waits, and nothing limits yet
					b.srv.Inject(githubtest.SecondaryLimit(429, hold))
					over, before = b.time.now().Add(hold), len(b.writes())
					_, err := reader.Pull(bg(), pr.Number)
					require.Error(t, err)
				}
				return b.time.sleep(ctx, d)
			}
		})
		var err error
		for i := 0; i < 40 && over.IsZero(); i++ {
			err = writer.Comment(bg(), pr.Number, reconciler.Comment{Rollout: text(fmt.Sprint(i))})
		}
		require.False(t, over.IsZero())
		if hold < 30*time.Second { // as long as a call waits by itself
			require.NoError(t, err)
			require.False(t, b.time.now().Before(over))
			require.Len(t, b.writes(), before+1)
			continue
		}
		var limit *github.LimitError
		require.ErrorAs(t, err, &limit)
		require.Equal(t, over, limit.Until)
		require.Len(t, b.writes(), before)
	}
}

func TestReadsAreRetried(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	pr := b.pull("two-workers")
	for _, f := range []githubtest.Fault{{Status: 500, Times: 3}, {Status: 503}, {}, {Delay: time.Second, DelayOnly: true}} {
		f.Op = opPull
		b.srv.Inject(f)
		forge := b.forge(nil)
		if f.Delay > 0 { // by now the server is warm
			forge = b.forge(func(o *github.Options) { o.Timeout = f.Delay / 2 })
		}
		got, err := forge.Pull(bg(), pr.Number)
		require.NoError(t, err, "%+v", f)
		require.False(t, got.Updated.IsZero())
		pr.Updated = got.Updated
		require.Equal(t, pr, got)
	}
	_, err := b.forge(nil).Pull(bg(), 99)
	require.ErrorContains(t, err, "pull request 99")
}

func TestConcurrentCallsLeaveOneCheckAndComment(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	prs := []int{b.pull("a").Number, b.pull("b").Number}
	f := b.forge(nil)
	var wg sync.WaitGroup
	errs := make(chan error, 16)
	for i := range 16 {
		wg.Go(func() {
			pr := b.at(prs[i%2])
			errs <- show(f, pr, verdict("k", 1))
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	for _, n := range prs {
		require.Len(t, b.srv.Comments(n), 1)
		require.Len(t, b.srv.Checks(b.at(n).Head), 1)
	}
}

func TestTokenGoesToItsServerOnly(t *testing.T) {
	t.Parallel()
	var seen []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("page") == "" {
			w.Header().Set("Link", `<`+elsewhere.URL+`/?page=2>; rel="next"`)
		}
		if strings.HasSuffix(r.URL.Path, "/pulls/1") {
			http.Redirect(w, r, elsewhere.URL+"/x", http.StatusMovedPermanently)
			return
		}
		fmt.Fprint(w, "[]")
	}))
	defer home.Close()
	b := newBed(t, nil)
	f := b.forge(func(o *github.Options) { o.BaseURL = home.URL })
	_, err := f.Pull(bg(), 1)
	require.ErrorContains(t, err, "redirects")
	require.NotContains(t, err.Error(), appToken)
	_, err = f.OpenPulls(bg())
	require.NoError(t, err, "a next page is one of our own pages")
	require.Empty(t, seen)

	b.srv.Inject(githubtest.Fault{Op: opPull, Status: 401, Message: "Bad credentials"})
	_, err = b.forge(nil).Pull(bg(), 1)
	require.ErrorContains(t, err, "token")
	require.NotContains(t, err.Error(), appToken)
	b.srv.Inject(githubtest.Fault{Op: opPull, Times: 4})
	_, err = b.forge(nil).Pull(bg(), 1)
	require.Error(t, err)
	require.NotContains(t, err.Error(), appToken)
}

func TestNewRefusesBadOptions(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	for name, change := range map[string]func(*github.Options){
		"no base URL":     func(o *github.Options) { o.BaseURL = "" },
		"a token in it":   func(o *github.Options) { o.BaseURL = "https://" + appToken + "@api.github.com" },
		"no scheme":       func(o *github.Options) { o.BaseURL = "api.github.com" },
		"another scheme":  func(o *github.Options) { o.BaseURL = "file:///etc" },
		"owner as a path": func(o *github.Options) { o.Owner = "../x" },
		"estate as HTML":  func(o *github.Options) { o.Estate = "--><b>" },
		"no repository":   func(o *github.Options) { o.Repo = "" },
		"dots":            func(o *github.Options) { o.Repo = ".." },
		"no token":        func(o *github.Options) { o.Token = nil },
		"no log":          func(o *github.Options) { o.Log = nil },
		"unknown report":  func(o *github.Options) { o.Report = "emails" },
	} {
		o := github.Options{
			BaseURL: b.srv.APIURL(), Owner: "lab", Repo: "estate", Token: staticToken(appToken), Log: discardLog(),
		}
		_, err := github.New(o)
		require.NoError(t, err)
		change(&o)
		_, err = github.New(o)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), appToken, name)
	}
}

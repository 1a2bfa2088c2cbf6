package githubtest_test

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/webhooks/github/githubtest"
)

// ask sends one request as the App.
func ask(t *testing.T, s *githubtest.Server, method, path, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequest(method, s.APIURL()+"repos/lab/estate"+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer app")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return &http.Response{Header: http.Header{}}
	}
	resp.Body.Close()
	return resp
}

// The server enforces GitHub's published limits on the test's clock, and reports the
// peak use of each.
func TestPublishedLimits(t *testing.T) {
	t.Parallel()
	now := &clock{t: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	s, w := start(t, func(o *githubtest.Options) { o.Now = now.now })
	w.commit("b", "a.yaml", "a: 1\n")
	n, err := s.OpenPull("b", "b", "ana")
	require.NoError(t, err)
	id, err := s.Comment(n, "berth[bot]", "plan")
	require.NoError(t, err)
	say := func() int { return ask(t, s, "POST", "/issues/1/comments", `{"body":"x"}`).StatusCode }
	for range 80 {
		require.Equal(t, 201, say())
	}
	require.Equal(t, 403, say(), "the 81st in a minute")
	edit := "/issues/comments/" + strconv.FormatInt(id, 10)
	for range 100 {
		require.Equal(t, 200, ask(t, s, "PATCH", edit, `{"body":"y"}`).StatusCode, "an edit creates nothing")
	}
	require.Equal(t, 403, ask(t, s, "PATCH", edit, `{"body":"y"}`).StatusCode, "180 writes are 900 points")
	require.Equal(t, 403, ask(t, s, "GET", "", "").StatusCode)
	u := s.Usage("berth[bot]")
	require.Equal(t, 3, u.Refused)
	require.Equal(t, []int{80, 100, 80, 900}, []int{u.Creating, u.Editing, u.PeakCreatingMinute, u.PeakPoints})
	require.Equal(t, githubtest.Writes{Creating: 81, Editing: 101}, s.Writes())
	for range 6 { // 80, and 70 a minute from now on, are 500 after six minutes
		now.add(time.Minute)
		for range 70 {
			require.Equal(t, 201, say())
		}
	}
	now.add(time.Minute)
	r := ask(t, s, "POST", "/issues/1/comments", `{"body":"x"}`)
	require.Equal(t, 403, r.StatusCode, "the hour's")
	require.Equal(t, "3181", r.Header.Get("Retry-After"), "until the first is an hour old, and a second")
	require.Equal(t, 500, s.Usage("berth[bot]").PeakCreatingHour)
	require.Zero(t, s.Usage("nobody"))
	s.Forget()
	require.Zero(t, s.Writes())
}

// The server answers at most a hundred requests at once, each with its set latency.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	s, _ := start(t, func(o *githubtest.Options) {
		o.Limits = githubtest.Limits{Concurrent: 5}
		o.Latency = 200 * time.Millisecond
	})
	sent := 0
	usage := func() githubtest.Usage { return s.Usage("berth[bot]") }
	await.True(t, "a refusal of the sixth at once", func() bool {
		began := time.Now()
		var wait sync.WaitGroup
		for range 8 {
			sent++
			wait.Go(func() { ask(t, s, "GET", "", "") })
		}
		wait.Wait()
		require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
		return usage().Refused > 0
	}, func() any { return usage() })
	require.Greater(t, usage().PeakConcurrent, 5)
	require.Equal(t, sent, usage().Refused+usage().Requests)
}

// TestStorm: the same source gives the same faults, of all kinds, and it ends.
func TestStorm(t *testing.T) {
	t.Parallel()
	s, w := start(t, nil)
	w.commit("b", "a.yaml", "a: 1\n")
	n, err := s.OpenPull("b", "b", "ana")
	require.NoError(t, err)
	weather := func() (codes []int) {
		s.SetStorm(githubtest.RandomStorm(rand.New(rand.NewPCG(3, 0)), 0.5))
		for range 60 {
			codes = append(codes, ask(t, s, "GET", "", "").StatusCode)
		}
		s.SetStorm(nil)
		return codes
	}
	codes := weather()
	require.Subset(t, codes, []int{0, 200, 403, 429, 500, 502, 503})
	require.Equal(t, codes, weather())
	for range 10 {
		require.Equal(t, 200, ask(t, s, "GET", "", "").StatusCode)
	}
	s.Inject(githubtest.SecondaryLimit(429, 0))
	s.Inject(githubtest.SecondaryLimit(403, 7*time.Second))
	require.Empty(t, ask(t, s, "GET", "", "").Header.Get("Retry-After"))
	require.Equal(t, "7", ask(t, s, "GET", "", "").Header.Get("Retry-After"))

	// A push that the API learns of when it listed the pull request twice and read
	// it twice.
	old, _ := s.Pull(n)
	require.NoError(t, s.LearnLate(n, 4))
	head := w.commit("b", "a.yaml", "a: 2\n")
	app := client(t, s, "app")
	for i, want := range []string{old.Head, old.Head, head} {
		list, _, err := app.PullRequests.List(ctx, "lab", "estate", nil)
		require.NoError(t, err)
		require.Equal(t, want, list[0].GetHead().GetSHA(), i)
		pr, _, err := app.PullRequests.Get(ctx, "lab", "estate", n)
		require.NoError(t, err)
		require.Equal(t, want, pr.GetHead().GetSHA(), i)
	}
	require.Error(t, s.LearnLate(99, 1))
}

package github

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// For any requests, no minute and no hour has more than GitHub publishes, and each
// request is sent in the end.
func TestPacerStaysBelowTheLimits(t *testing.T) {
	t.Parallel()
	methods := rapid.SampledFrom([]string{"GET", "GET", "GET", "POST", "POST", "PATCH", "DELETE"})
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		p, now := NewPacer(), start
		var out sendings
		for range rapid.IntRange(1, 30).Draw(t, "bursts") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(10*time.Minute)).Draw(t, "pause")))
			method := methods.Draw(t, "method")
			for range rapid.IntRange(1, 300).Draw(t, "times") {
				most := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "most"))
				wait, ok := p.reserve(method, now, most)
				require.Equal(t, wait <= most, ok)
				if !ok {
					continue
				}
				out = append(out, sending{now.Add(wait), method})
			}
		}
		out.within(t)
	})
}

// sendings are sent requests.
type sendings []sending

type sending struct {
	at     time.Time
	method string
}

// within GitHub's limits.
func (out sendings) within(t require.TestingT) {
	slices.SortFunc(out, func(a, b sending) int { return a.at.Compare(b.at) })
	most := func(span time.Duration, what func(method string) int) (top int) {
		sum, first := 0, 0
		for _, s := range out {
			for sum += what(s.method); s.at.Sub(out[first].at) >= span; first++ {
				sum -= what(out[first].method)
			}
			top = max(top, sum)
		}
		return top
	}
	of := func(get, edit, post int) func(string) int {
		return func(method string) int {
			switch method {
			case "GET":
				return get
			case "POST":
				return post
			}
			return edit
		}
	}
	require.LessOrEqual(t, most(time.Minute, of(1, 5, 5)), 900)
	require.LessOrEqual(t, most(time.Minute, of(0, 1, 1)), 80)
	require.LessOrEqual(t, most(time.Hour, of(0, 0, 1)), 500)
}

func TestCrashLoopGainsNoRequests(t *testing.T) {
	t.Parallel()
	checkCrashLoop(t, 65*time.Minute, 5*time.Second, 20*time.Second, 5*time.Minute)
}

// checkCrashLoop ensures that a daemon that crashes at each of the intervals sends no more
// requests than the limits allow.
func checkCrashLoop(t *testing.T, duration time.Duration, intervals ...time.Duration) {
	for _, every := range intervals {
		for _, ends := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), "cache", "pace.json")
			start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			now := start
			var out sendings
			for over := now.Add(duration); now.Before(over); now = now.Add(every) {
				p, err := openPacer(path, now, func(err error) { t.Error(err) })
				if now.Equal(start) {
					require.ErrorIs(t, err, fs.ErrNotExist)
				} else {
					require.NoError(t, err)
				}
				for _, method := range []string{"GET", "POST", "PATCH"} {
					for range map[string]int{"GET": 5, "POST": 60, "PATCH": 60}[method] {
						wait, ok := p.reserve(method, now, every-1)
						if !ok {
							break
						}
						out = append(out, sending{now.Add(wait), method})
					}
				}
				if ends {
					p.Save(now.Add(every))
				}
			}
			out.within(t)
			creations := 0
			for _, s := range out {
				if s.method == "POST" {
					creations++
				}
			}
			require.Greater(t, creations, 2*20, "%s %v", every, ends)
		}
	}
}

func TestPacerStaysBelowTheLimitsOverRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := 0
	methods := rapid.SampledFrom([]string{"GET", "POST", "POST", "PATCH"})
	rapid.Check(t, func(t *rapid.T) {
		n++
		path := filepath.Join(dir, fmt.Sprint(n, ".json"))
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		var out sendings
		for range rapid.IntRange(1, 20).Draw(t, "lives") {
			p, _ := openPacer(path, now, nil)
			var live sendings
			for range rapid.IntRange(0, 3).Draw(t, "bursts") {
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(5*time.Minute)).Draw(t, "pause")))
				method := methods.Draw(t, "method")
				for range rapid.IntRange(1, 150).Draw(t, "times") {
					if wait, ok := p.reserve(method, now, 30*time.Second); ok {
						live = append(live, sending{now.Add(wait), method})
					}
				}
			}
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "last")))
			if rapid.Bool().Draw(t, "ends") {
				p.Save(now)
			}
			for _, s := range live { // what still waited went with it
				if s.at.Before(now) {
					out = append(out, s)
				}
			}
		}
		out.within(t)
	})
}

// Without a file it starts with half of its bursts, with an unreadable one
// without. A clock that was set back and absurd times do not stop it.
func TestPacerWithoutUsableFile(t *testing.T) {
	t.Parallel()
	path, now := filepath.Join(t.TempDir(), "pace.json"), time.Unix(1_800_000_000, 0)
	atOnce := func(wantErr bool) (writes int, wait time.Duration) {
		t.Helper()
		p, err := openPacer(path, now, nil)
		require.Equal(t, wantErr, err != nil, err)
		for ok := true; ok; writes++ {
			wait, ok = p.reserve("PATCH", now, 0)
		}
		return writes - 1, wait
	}
	writes, _ := atOnce(true)
	require.Equal(t, writeBurst/2, writes)
	for _, text := range []string{"", "{", "{}", "[]", "null", `{"writes": "2020-01-01T00:00:00Z"}`} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		writes, wait := atOnce(true)
		require.Zero(t, writes, text)
		require.Equal(t, writeEvery, wait, text)
	}
	require.NoError(t, os.WriteFile(path,
		[]byte(`{"writes": "2199-01-01T00:00:00Z", "creations": "2199-01-01T00:00:00Z", "points": "2199-01-01T00:00:00Z", "hold": {"Until": "2199-01-01T00:00:00Z"}, "strikes": -5}`), 0o600))
	writes, wait := atOnce(false)
	require.Zero(t, writes)
	require.Equal(t, writeEvery, wait)
	p, err := openPacer(path, now, nil)
	require.NoError(t, err)
	require.NotNil(t, p.held(now))
	require.Nil(t, p.held(now.Add(maxHold)))

	said := 0
	p, err = openPacer("/dev/null/pace.json", now, func(error) { said++ })
	require.Error(t, err)
	for range 10 {
		p.reserve("PATCH", now, time.Hour)
	}
	require.Equal(t, 1, said)
}

// And so does the number of consecutive limits.
func TestLimitSurvivesRestart(t *testing.T) {
	t.Parallel()
	path, now := filepath.Join(t.TempDir(), "pace.json"), time.Unix(1_800_000_000, 0)
	for _, minutes := range []time.Duration{1, 2, 4, 8} {
		p, _ := openPacer(path, now, nil)
		until := p.stop(&LimitError{Why: "secondary"}, "POST", now, now).Until
		require.Equal(t, minutes*time.Minute, until.Sub(now))
		p, err := openPacer(path, now.Add(2*time.Second), nil)
		require.NoError(t, err)
		hold := p.held(now.Add(2 * time.Second))
		require.NotNil(t, hold)
		require.True(t, until.Equal(hold.Until))
		require.Equal(t, "secondary", hold.Why)
		require.Nil(t, p.held(until))
		now = until
	}
	p, err := openPacer(path, now, nil)
	require.NoError(t, err)
	p.passed("PATCH", now)
	p, err = openPacer(path, now, nil)
	require.NoError(t, err)
	require.Equal(t, time.Minute, p.stop(&LimitError{Why: "secondary"}, "POST", now, now).Until.Sub(now))
}

func TestReadsPassWaitingWrites(t *testing.T) {
	t.Parallel()
	p, now := NewPacer(), time.Unix(1_800_000_000, 0)
	for range 60 {
		_, ok := p.reserve("PATCH", now, time.Hour)
		require.True(t, ok)
	}
	wait, ok := p.reserve("GET", now, 0)
	require.True(t, ok, wait)
}

// Until GitHub carries out a request of the kind that it limited.
func TestRepeatedLimitsLastLonger(t *testing.T) {
	t.Parallel()
	p, now := NewPacer(), time.Unix(1_800_000_000, 0)
	limited := func(method string) time.Duration {
		wait := p.stop(&LimitError{Why: "secondary"}, method, now, now).Until.Sub(now)
		now = now.Add(wait) // nothing goes out before
		require.Nil(t, p.held(now))
		return wait
	}
	for _, minutes := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 64} {
		require.Equal(t, minutes*time.Minute, limited("POST"))
		p.passed("GET", now) // a read comes before each write
	}
	p.passed("POST", now.Add(-time.Second)) // it was out before the limit was over
	require.Equal(t, 64*time.Minute, limited("POST"))
	p.passed("PATCH", now)
	require.Equal(t, time.Minute, limited("GET"))
	require.Equal(t, 2*time.Minute, limited("GET"))
	p.passed("GET", now)
	require.Equal(t, time.Minute, limited("GET"), "who only reads gets over it, too")
	require.Equal(t, maxHold, p.stop(&LimitError{Until: now.Add(time.Hour * 24)}, "GET", now, now).Until.Sub(now))
}

func TestConcurrentRequestsCountOneLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, sent := NewPacer(), time.Unix(1_800_000_000, 0)
		for _, minutes := range []time.Duration{1, 2, 4} {
			var last time.Time
			for _, ms := range rapid.SliceOfN(rapid.IntRange(0, 15_000), 1, 60).Draw(t, "answers") {
				at := sent.Add(time.Duration(ms) * time.Millisecond)
				l := p.stop(&LimitError{Why: "secondary"}, "GET", sent, at)
				require.Equal(t, minutes*time.Minute, l.Until.Sub(at))
				if l.Until.After(last) {
					last = l.Until
				}
				require.Equal(t, last, p.held(at).Until, "what holds holds to its end")
			}
			sent = last
		}
	})
}

func TestZeroPacerObeysAnswersOnly(t *testing.T) {
	t.Parallel()
	var p Pacer
	now := time.Unix(1_800_000_000, 0)
	for range 10_000 {
		wait, ok := p.reserve("POST", now, 0)
		require.True(t, ok, wait)
	}
	require.Nil(t, p.held(now))
	l := p.stop(&LimitError{Why: "secondary", Until: now.Add(time.Second)}, "POST", now, now)
	require.Equal(t, l, p.held(now))
	require.Nil(t, p.held(l.Until))
}

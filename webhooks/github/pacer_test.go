package github

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestPacerProperties: whatever is asked for and whenever, no minute and no hour
// holds more than GitHub publishes; and what is asked for long enough gets out.
func TestPacerProperties(t *testing.T) {
	t.Parallel()
	methods := rapid.SampledFrom([]string{"GET", "GET", "GET", "POST", "POST", "PATCH", "DELETE"})
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		p, now := NewPacer(), start
		type sent struct {
			at             time.Time
			points, writes int
			creations      int
		}
		var out []sent
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
				s := sent{at: now.Add(wait), points: 1}
				if method != "GET" {
					s.points, s.writes = 5, 1
				}
				if method == "POST" {
					s.creations = 1
				}
				out = append(out, s)
			}
		}
		for _, first := range out {
			var points, writes, creations int
			for _, s := range out {
				if d := s.at.Sub(first.at); d >= 0 && d < time.Hour {
					creations += s.creations
					if d < time.Minute {
						points, writes = points+s.points, writes+s.writes
					}
				}
			}
			require.LessOrEqual(t, points, 900)
			require.LessOrEqual(t, writes, 80)
			require.LessOrEqual(t, creations, 500)
		}
	})
}

// TestReadsPassWaitingWrites: writes that wait for their turn hold up no read.
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

// TestLimitsThatComeAgain are waited for longer each time, until GitHub lets pass
// what it limited.
func TestLimitsThatComeAgain(t *testing.T) {
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
		p.passed("GET", now) // each write is looked for first
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

// TestOneLimitToMany is one: what was out together meets it together.
func TestOneLimitToMany(t *testing.T) {
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

// TestZeroPacer has no pace of its own, and is held back by the limits it meets.
func TestZeroPacer(t *testing.T) {
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

package loop

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	ownURL   = "https://berth-1.example.org"
	otherURL = "https://berth-2.example.org"
	thirdURL = "https://berth-3.example.org"
)

// peersOf returns a standby whose peers lead while leading has their URL, and the number of probes.
func peersOf(own string, leading *atomic.Value) (*standby, *atomic.Int64) {
	probes := &atomic.Int64{}
	return &standby{log: slog.New(slog.DiscardHandler), peers: Peers{URL: own, Leads: func(_ context.Context, url string) bool {
		probes.Add(1)
		return leading.Load() == url
	}}}, probes
}

func is(url string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return url, nil }
}

// A daemon takes leadership at once where no other daemon is known to lead, whatever berth/status says.
func TestLeadershipIsTakenWithoutAnotherLeader(t *testing.T) {
	leading := &atomic.Value{}
	leading.Store(otherURL)
	for name, c := range map[string]struct {
		own      string
		recorded func(context.Context) (string, error)
	}{
		"no leader is recorded":      {ownURL, is("")},
		"this daemon led before":     {ownURL, is(ownURL)},
		"this daemon has no peers":   {"", is(otherURL)},
		"the record is not readable": {ownURL, func(context.Context) (string, error) { return "", errors.New("no answer") }},
	} {
		s, probes := peersOf(c.own, leading)
		require.True(t, s.wait(t.Context(), c.recorded), name)
		require.Zero(t, probes.Load(), name)
	}
}

// A standby waits while the leader answers, follows it to another daemon, and takes leadership after
// three probes in a row without an answer.
func TestStandbyTakesLeadershipWhenTheLeaderIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leading, recorded := &atomic.Value{}, &atomic.Value{}
		leading.Store(otherURL)
		recorded.Store(otherURL)
		s, probes := peersOf(ownURL, leading)
		taken := make(chan bool, 1)
		go func() {
			taken <- s.wait(t.Context(), func(context.Context) (string, error) {
				url := recorded.Load().(string)
				if url == "" {
					return "", errors.New("no answer of the remote")
				}
				return url, nil
			})
		}()
		time.Sleep(10*time.Minute + time.Second) // from here on between two probes
		require.Equal(t, otherURL, *s.leader.Load())

		leading.Store("") // it restarts, and is the leader again after two probes
		time.Sleep(6 * time.Second)
		leading.Store(otherURL)
		time.Sleep(time.Minute)
		require.Empty(t, taken)

		leading.Store(thirdURL) // a third daemon leads
		recorded.Store(thirdURL)
		time.Sleep(time.Minute)
		require.Empty(t, taken)

		recorded.Store("") // the remote does not answer either, for a moment
		leading.Store("")
		time.Sleep(6 * time.Second)
		leading.Store(thirdURL)
		recorded.Store(thirdURL)
		time.Sleep(time.Minute)
		require.Empty(t, taken)

		leading.Store("")
		began, asked := time.Now(), probes.Load()
		require.True(t, <-taken)
		require.EqualValues(t, 3, probes.Load()-asked, "probes without an answer")
		require.Equal(t, 8*time.Second, time.Since(began), "a probe each 3 s, the first one after 2 s")
		require.Nil(t, s.leader.Load(), "it stands by no longer")
	})
}

// Of two daemons that both died, the first that is started leads within 10 s, whichever is
// recorded.
func TestDaemonLeadsThoughTheRecordedLeaderIsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nobody := &atomic.Value{}
		nobody.Store("")
		s, _ := peersOf(ownURL, nobody)
		leads := s.peers.Leads
		s.peers.Leads = func(ctx context.Context, url string) bool {
			time.Sleep(2 * time.Second) // its machine is off
			return leads(ctx, url)
		}
		began := time.Now()
		require.True(t, s.wait(t.Context(), func(context.Context) (string, error) { return otherURL, nil }))
		require.Less(t, time.Since(began), 10*time.Second)
	})
}

// The end of the daemon ends the wait without leadership.
func TestStandbyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leading := &atomic.Value{}
		leading.Store(otherURL)
		s, _ := peersOf(ownURL, leading)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		require.False(t, s.wait(ctx, is(otherURL)))
	})
}

// A daemon that ends before it leads leaves no goroutine behind: a daemon that starts an estate again would keep four each time.
func TestDaemonThatNeverLedLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := New(Options{Repo: &emptyRepo{}, Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, r.Run(ctx)) // the bubble panics if a goroutine is left
	})
}

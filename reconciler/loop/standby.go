package loop

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// Times of a standby.
const (
	probeInterval = 3 * time.Second // after a loss of both daemons, the one that is not recorded as the leader leads 6 s after its start
	maxMisses     = 3               // probes in a row without an answer, after which the leader counts as gone
)

// Peers are the daemons of one estate, of which one leads.
type Peers struct {
	URL string // where clients reach this daemon; "": it is unknown, and this daemon stands by for no other one
	// Leads reports whether the daemon at a URL leads the estate now. It bounds its own time. False also
	// for a URL that is no peer's.
	Leads func(ctx context.Context, url string) bool
}

// standby waits while another daemon leads. It keeps no state but the leader's URL: berth/status names the
// leader, and the leader itself answers whether it works. A wrong answer costs a change of leadership and
// no more, as hosts and berth/status refuse a deposed leader.
type standby struct {
	peers  Peers
	log    *slog.Logger
	leader atomic.Pointer[string] // URL of the daemon that leads; nil: this daemon does not stand by
}

// wait returns true when this daemon is to take leadership: no other daemon is recorded as the leader
// with a URL, or that daemon did not answer maxMisses times. It returns false if ctx ends before that.
// recorded reads the URL of the leader from berth/status.
func (s *standby) wait(ctx context.Context, recorded func(context.Context) (string, error)) bool {
	defer s.leader.Store(nil)
	leader, misses := "", 0
	for {
		next := time.Now().Add(probeInterval) // a probe that takes long delays no other
		if misses > 0 || leader == "" {       // a leader that answers is still the leader
			url, err := recorded(ctx)
			switch {
			case err != nil && leader != "": // the leader that is known counts
			case err != nil || !s.isPeer(url):
				return ctx.Err() == nil // after an error, too: taking leadership meets the same error and reports it
			case url != leader:
				leader, misses = url, 0
			}
		}
		if s.peers.Leads(ctx, leader) {
			s.follow(leader)
			misses = 0
		} else if misses++; misses >= maxMisses {
			s.log.Warn("leader does not answer; taking leadership", "leader_url", leader)
			return ctx.Err() == nil
		}
		if !sleep(ctx, time.Until(next)) {
			return false
		}
	}
}

// follow notes that the daemon at a URL leads.
func (s *standby) follow(url string) {
	if s.leader.Swap(&url) == nil {
		s.log.Info("standing by; another daemon leads", "leader_url", url)
	}
}

// isPeer returns true if this daemon stands by for a leader at a URL.
func (s *standby) isPeer(url string) bool {
	return url != "" && url != s.peers.URL && s.peers.URL != ""
}

// sleep waits, and returns false if ctx ends before that.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

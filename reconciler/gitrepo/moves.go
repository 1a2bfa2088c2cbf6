package gitrepo

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
)

// maxTried bounds the pushes without a known outcome that are remembered.
const maxTried = 1000

// moves is what this process knows of where berth/in-force may stand: only who
// leads moves it. What it says decides what was permitted, so a commit that
// somebody else put there is not taken over in passing, though every file of it
// be main's: an older version of a file is too.
type moves struct {
	tip   plumbing.Hash   // where it was last left or found; zero: nowhere yet
	tried []plumbing.Hash // pushed from there, and whether that arrived is not known
	// until then what whoever led before had under way may still arrive; zero
	// once this process moved the branch, as that push can arrive no more.
	until time.Time
}

// try notes what is about to be pushed: the answer may be lost.
func (m *moves) try(tip plumbing.Hash) {
	m.tried = append(m.tried[max(0, len(m.tried)-maxTried+1):], tip)
}

// found notes where the branch was found. For a while after the first time, as
// much as a push of whoever led before may take, it may move.
func (m *moves) found(tip plumbing.Hash, until time.Time) {
	if m.tip.IsZero() {
		m.until = until
	}
	m.at(tip)
}

// pushed notes that this process moved the branch.
func (m *moves) pushed(tip plumbing.Hash) {
	m.at(tip)
	m.until = time.Time{}
}

func (m *moves) at(tip plumbing.Hash) {
	if tip != m.tip {
		m.tip, m.tried = tip, nil
	}
}

// allow refuses a tip that this process did not make, unless it is the first
// that it sees, or soon after. That a branch was deleted is for others to say.
func (m *moves) allow(tip plumbing.Hash, now time.Time) error {
	if now.Before(m.until) || m.tip.IsZero() || tip.IsZero() || tip == m.tip || slices.Contains(m.tried, tip) {
		return nil
	}
	return fmt.Errorf("branch %s stands at %s, where this Berth, which left it at %s, did not put it: "+
		"put it back to %s; or look at what was changed, and restart Berth, which takes over what the branch says if every file of it is of main's history: %w",
		reconciler.BranchInForce, tip, m.tip, m.tip, reconciler.ErrRewritten)
}

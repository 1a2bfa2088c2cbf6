package gitrepo

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
)

// maxTried bounds the number of recorded pushes with unknown outcome.
const maxTried = 1000

// moves holds the tips of berth/in-force that this process expects. Only the
// leader moves the branch. The branch decides which changes were permitted. So a
// commit of any other writer is refused even if every file is from main: it may
// be an older version of a file.
type moves struct {
	tip   plumbing.Hash   // last known tip; zero: not known yet
	tried []plumbing.Hash // pushed on top of tip with unknown outcome
	// until is the end of the period in which a push of the previous leader may
	// arrive. It is zero once this process moved the branch, because that push must
	// fail then.
	until time.Time
}

// try records a tip before its push, because the response may be lost.
func (m *moves) try(tip plumbing.Hash) {
	m.tried = append(m.tried[max(0, len(m.tried)-maxTried+1):], tip)
}

// found records the tip of the branch. After the first call, the branch may still
// move until the given time, because a push of the previous leader may arrive.
func (m *moves) found(tip plumbing.Hash, until time.Time) {
	if m.tip.IsZero() {
		m.until = until
	}
	m.at(tip)
}

// pushed records that this process moved the branch.
func (m *moves) pushed(tip plumbing.Hash) {
	m.at(tip)
	m.until = time.Time{}
}

func (m *moves) at(tip plumbing.Hash) {
	if tip != m.tip {
		m.tip, m.tried = tip, nil
	}
}

// allow refuses a tip that this process did not push, except the first tip and
// those of a short period after it. The caller checks for deleted branches.
func (m *moves) allow(tip plumbing.Hash, now time.Time) error {
	if now.Before(m.until) || m.tip.IsZero() || tip.IsZero() || tip == m.tip || slices.Contains(m.tried, tip) {
		return nil
	}
	return fmt.Errorf("branch %s is at %s, and this Berth process left it at %s: "+
		"reset it to %s; or review the change and restart Berth, which accepts the branch if every file of it is in main's history: %w",
		reconciler.BranchInForce, tip, m.tip, m.tip, reconciler.ErrRewritten)
}

// acceptedRef holds an in-force tip that an operator accepted although it was not
// made from the current main. It is never pushed.
const acceptedRef plumbing.ReferenceName = "refs/berth/accepted"

package loop

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"berth/reconciler"
	"berth/reconciler/plan"
)

const (
	// Most of what it says was written by others: a repository's path, a remote's
	// answer. Of each there are so many bytes.
	maxHeldFile    = 300
	maxHeldMessage = 600
	maxRemark      = 600
	maxFrozen      = 2000
)

// bounded is what of a revision is written: texts are cut, and held documents left
// out, counted, until it can be read back.
func bounded(rev reconciler.Revision) reconciler.Revision {
	rev.Frozen = cut(rev.Frozen, maxFrozen)
	rev.Notices = slices.Clone(rev.Notices)
	for i, line := range rev.Notices {
		rev.Notices[i] = cut(line, maxRemark)
	}
	rev.Held = slices.Clone(rev.Held)
	for i, h := range rev.Held {
		rev.Held[i] = cutHeld(h)
	}
	for len(rev.Held) > 0 {
		data, err := yaml.Marshal(rev)
		const most = reconciler.MaxRevision - 64<<10 // for what is not bounded here, and for what counts on
		if err != nil || len(data) <= most {
			break // what cannot be marshalled, writing it tells
		}
		keep := len(rev.Held) * most / len(data)
		rev.Held, rev.HeldMore = rev.Held[:keep], rev.HeldMore+len(rev.Held)-keep
	}
	return rev
}

// cutHeld is a held document as revision.yaml has it.
func cutHeld(h plan.Held) plan.Held {
	h.File, h.Message = cut(h.File, maxHeldFile), cut(h.Message, maxHeldMessage)
	return h
}

// cut takes the middle out of a text that is longer than limit bytes. Its end stays,
// as that says what to do.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const gap = "…"
	tail := limit / 3
	return strings.ToValidUTF8(s[:limit-tail-len(gap)], "") + gap + strings.ToValidUTF8(s[len(s)-tail:], "")
}

// readable is an error if what the branch tells of itself is there and cannot be
// read: taking that for nothing, events and audit would begin again, and a daemon
// that leads since would not be seen.
func readable(t reconciler.StatusTree) error {
	if t.Unread == "" {
		return nil
	}
	return fmt.Errorf("revision.yaml on %s cannot be read: %s. Somebody else changed it: take its last version that can be read out of the history of the branch, and commit it there",
		reconciler.BranchStatus, t.Unread)
}

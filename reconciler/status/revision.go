package status

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"berth/reconciler"
	"berth/schema"
)

// Most texts of a revision come from others, such as the path of a file or the
// answer of a remote. Each is cut to so many bytes.
const (
	maxHeldFile    = 300
	maxHeldMessage = 600
	maxNotice      = 600
	maxFrozen      = 2000
)

// bounded returns the revision for writing. It cuts texts, then omits and counts held
// documents until the file is small enough to be read back.
func bounded(rev reconciler.Revision) reconciler.Revision {
	rev.Frozen = cut(rev.Frozen, maxFrozen)
	rev.Notices = slices.Clone(rev.Notices)
	for i, line := range rev.Notices {
		rev.Notices[i] = cut(line, maxNotice)
	}
	rev.Held = slices.Clone(rev.Held)
	for i, h := range rev.Held {
		rev.Held[i] = CutHeld(h)
	}
	for len(rev.Held) > 0 {
		data, err := yaml.Marshal(rev)
		const limit = reconciler.MaxRevision - 64<<10 // room for what is not bounded here, and for growing counters
		if err != nil || len(data) <= limit {
			break // the write reports an error of Marshal
		}
		keep := len(rev.Held) * limit / len(data)
		rev.Held, rev.HeldMore = rev.Held[:keep], rev.HeldMore+len(rev.Held)-keep
	}
	return rev
}

// CutHeld returns a held document as revision.yaml holds it.
func CutHeld(h schema.Held) schema.Held {
	h.File, h.Message = cut(h.File, maxHeldFile), cut(h.Message, maxHeldMessage)
	return h
}

// cut removes the middle of a text longer than limit bytes. It keeps the end, which
// names the next step.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const gap = "…"
	tail := limit / 3
	return strings.ToValidUTF8(s[:limit-tail-len(gap)], "") + gap + strings.ToValidUTF8(s[len(s)-tail:], "")
}

// readable returns an error if revision.yaml exists and cannot be read. Treating
// it as missing would restart the sequence of events and the audit chain, and
// would hide that another daemon has taken leadership.
func readable(t reconciler.StatusTree) error {
	if t.Unread == "" {
		return nil
	}
	return fmt.Errorf("revision.yaml on %s is unreadable: %s; another program changed it: commit its last readable version from the "+
		"history of the branch",
		reconciler.BranchStatus, t.Unread)
}

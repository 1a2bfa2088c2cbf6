package loop

import (
	"slices"
	"strings"
	"time"
)

const (
	// maxNotices bounds the notices in revision.yaml.
	maxNotices = 50
	// noticeLifetime is how long the text of a notice stays if only its detail changes.
	// The answers of a tenant's remote must not cause a commit at each poll.
	noticeLifetime = 10 * time.Minute
)

// updateNotices returns the notices to record. A notice that differs from the
// recorded one only in its numbers stays as recorded. A notice is
// "source: problem: detail"; one that differs in its detail stays as recorded while
// the recorded ones are recent.
func updateNotices(recorded, now []string, isRecent bool) []string {
	out := slices.Clone(now[:min(len(now), maxNotices)])
	for i, line := range out {
		if slices.Contains(recorded, line) {
			continue
		}
		same := func(s string) bool {
			return withoutNumbers(s) == withoutNumbers(line) || isRecent && withoutDetail(s) == withoutDetail(line)
		}
		if at := slices.IndexFunc(recorded, same); at >= 0 {
			out[i] = recorded[at]
		}
	}
	return out
}

// withoutDetail returns source and problem of a notice.
func withoutDetail(notice string) string {
	source, rest, _ := strings.Cut(notice, ":")
	problem, _, _ := strings.Cut(rest, ":")
	return source + ":" + problem
}

// withoutNumbers returns a notice without the digits after its source.
func withoutNumbers(notice string) string {
	source, rest, _ := strings.Cut(notice, ":")
	return source + ":" + strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, rest)
}

package github

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	maxBody    = 65_000 // GitHub refuses more than 65,536 characters
	maxRollout = 20_000 // of these
	maxAnswer  = 10_000
)

// Lines that stand around the parts of a comment. They are HTML comments, so
// nobody sees them; the parts hold none, so nothing in them is taken for one.
const (
	rolloutBegin  = "<!-- berth:rollout -->"
	rolloutEnd    = "<!-- /berth:rollout -->"
	answerBegin   = "<!-- berth:answer -->"
	answerEnd     = "<!-- /berth:answer -->"
	proposalBegin = "<!-- berth:proposal -->"
	proposalEnd   = "<!-- /berth:proposal -->"
)

// sections are the parts of our comment; "" is none.
type sections struct {
	rollout  string // on top: what became of it is what people come back for
	answer   string
	proposal string
}

// parse reads the parts out of a comment's body. What is in no part is dropped.
func parse(body string) sections {
	between := func(begin, end string) string {
		_, rest, ok := strings.Cut(body, begin+"\n")
		if !ok {
			return ""
		}
		part, _, ok := strings.Cut(rest, "\n"+end)
		if !ok {
			return ""
		}
		return part
	}
	return sections{
		rollout:  between(rolloutBegin, rolloutEnd),
		answer:   between(answerBegin, answerEnd),
		proposal: between(proposalBegin, proposalEnd),
	}
}

// String is the body, at most maxBody bytes long.
func (s sections) String() string {
	body := marker
	part := func(begin, text, end string, most int) {
		// Markdown needs a blank line to end the part before.
		begin, end = "\n\n"+begin+"\n", "\n"+end
		if text = cutMarkdown(hideMarkers(tidy(text)), most-len(begin)-len(end)); text != "" {
			body += begin + text + end
		}
	}
	part(rolloutBegin, s.rollout, rolloutEnd, maxRollout)
	part(answerBegin, s.answer, answerEnd, maxAnswer)
	part(proposalBegin, s.proposal, proposalEnd, maxBody-len(body))
	if body == marker {
		body += "\n\n_Nothing to say._"
	}
	return body
}

// hideMarkers keeps a part from holding an HTML comment.
func hideMarkers(s string) string { return strings.ReplaceAll(s, "<!--", "&lt;!--") }

// tidy is s as GitHub may hand it back: line ends and outer space do not count.
func tidy(s string) string {
	return strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n"))
}

// cut shortens s to at most n bytes, between characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const dots = "…"
	n -= len(dots)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + dots
}

// cutMarkdown shortens s to at most n bytes at the end of a line, closes what is
// open there, and says how much is missing.
func cutMarkdown(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const note = "\n\n_%d more lines do not fit here; `berth plan` shows all of it._"
	n -= len(note) + 10 // the number
	lines := strings.SplitAfter(s, "\n")
	fence, details, size, kept := "", 0, 0, 0
	for _, line := range lines {
		f, d := state(line, fence, details)
		if size+len(line)+closing(f, d) > n {
			break
		}
		fence, details, size, kept = f, d, size+len(line), kept+1
	}
	var b strings.Builder
	b.WriteString(strings.TrimRight(strings.Join(lines[:kept], ""), "\n"))
	if fence != "" {
		b.WriteString("\n" + fence)
	}
	for range details {
		b.WriteString("\n\n</details>")
	}
	fmt.Fprintf(&b, note, len(lines)-kept)
	return b.String()
}

// closing is how many bytes it takes to close a fence and details.
func closing(fence string, details int) int {
	return 1 + len(fence) + details*len("\n\n</details>")
}

// state is what is open after line: the code fence ("" is none) and how many
// <details>.
func state(line, fence string, details int) (string, int) {
	t := strings.TrimSpace(line)
	run := len(t) - len(strings.TrimLeft(t, "`"))
	if fence != "" {
		if run >= len(fence) && run == len(t) {
			return "", details
		}
		return fence, details
	}
	if run >= 3 && !strings.Contains(t[run:], "`") {
		return t[:run], details
	}
	return "", max(0, details+strings.Count(t, "<details")-strings.Count(t, "</details>"))
}

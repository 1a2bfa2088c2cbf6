package github

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	maxBody = 65_000 // bytes; GitHub refuses more than 65,536 characters
	// maxBeside is the most of a part beside the plan, with the lines around it. A
	// roll-out and an answer, of 16,000 bytes at the most, are kept whole: people
	// wait for them. The plan has what they leave.
	maxBeside = 16_384
	maxFoot   = 1_000
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

// body is the comment under a marker, at most maxBody bytes long.
func (s sections) body(marker string) string {
	body := marker
	part := func(begin, text, end string, most int) {
		// Markdown needs a blank line to end the part before.
		begin, end = "\n\n"+begin+"\n", "\n"+end
		if text = cutMarkdown(hideMarkers(tidy(text)), most-len(begin)-len(end)); text != "" {
			body += begin + text + end
		}
	}
	part(rolloutBegin, s.rollout, rolloutEnd, maxBeside)
	part(answerBegin, s.answer, answerEnd, maxBeside)
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

// wasCut is the line by which a text says that it was cut, and how to see all of
// it.
var wasCut = regexp.MustCompile(`^\*\*(?:At least )?(\d{1,9}) more lines do not fit[^*]*\*\*(.*)$`)

// cutMarkdown shortens s to at most n bytes at the end of a line, closes what is
// open there, and says how much is missing. A foot, which is a short last
// paragraph, stays. What was cut before, here or by whoever wrote it, says in the
// end how much is missing in all: at least, for blank lines and those that only
// close something are not counted, as some of them were added by the cut before.
func cutMarkdown(s string, n int) string {
	if len(s) <= n {
		return s
	}
	foot, missing, way := "", 0, " All of it: `berth plan`"
	s, last := lastParagraph(s)
	if !wasCut.MatchString(last) && last != "" {
		foot = "\n\n" + last
		s, last = lastParagraph(s)
	}
	if m := wasCut.FindStringSubmatch(last); m != nil {
		missing, _ = strconv.Atoi(m[1]) // digits
		way = m[2]
	} else if last != "" {
		s += "\n\n" + last
	}
	const note = "\n\n**At least %d more lines do not fit here.**%s%s"
	n -= len(note) + len(way) + len(foot) + 10 // the number
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
	for _, line := range lines[kept:] {
		if t := strings.TrimSpace(line); strings.Trim(t, "`") != "" && t != "</details>" {
			missing++
		}
	}
	fmt.Fprintf(&b, note, missing, way, foot)
	return b.String()
}

// lastParagraph cuts a short last paragraph off s, or "" if there is none that
// can stand for itself.
func lastParagraph(s string) (before, last string) {
	s = strings.TrimRight(s, "\n")
	at := strings.LastIndex(s, "\n\n")
	if at < 0 || len(s)-at > maxFoot || !closed(s[:at]) || !closed(s[at:]) {
		return s, ""
	}
	return s[:at], s[at+2:]
}

// closed says whether all that s opens is closed in it.
func closed(s string) bool {
	fence, details := "", 0
	for line := range strings.Lines(s) {
		fence, details = state(line, fence, details)
	}
	return fence == "" && details == 0
}

// closing is how many bytes it takes to close a fence and details.
func closing(fence string, details int) int {
	return 1 + len(fence) + details*len("\n\n</details>")
}

// state is what is open after line: the code fence ("" is none) and how many
// <details>, whose tags stand at the beginning of lines. Elsewhere they are text,
// such as code.
func state(line, fence string, details int) (string, int) {
	t := strings.TrimSpace(line)
	run := len(t) - len(strings.TrimLeft(t, "`"))
	if strings.HasPrefix(line, "    ") {
		run = 0
	}
	switch {
	case fence != "":
		if run >= len(fence) && run == len(t) {
			fence = ""
		}
	case run >= 3 && !strings.Contains(t[run:], "`"):
		fence = t[:run]
	case strings.HasPrefix(line, "<details>"):
		details++
	case strings.HasPrefix(line, "</details>") && t == "</details>":
		details = max(0, details-1)
	}
	return fence, details
}

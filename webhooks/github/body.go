package github

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"berth/reconciler"
)

const (
	maxBody = 65_000 // bytes; GitHub refuses more than 65,536 characters
	// maxBeside bounds each part besides the plan, with its marker lines, in bytes. It
	// fits a whole roll-out and the details of an answer (16,000 bytes at most). The plan
	// gets the rest.
	maxBeside = 16_384
	maxFoot   = 1_000

	maxAnswerLines   = 5     // answers shown on top, the newest
	maxAnswerLine    = 1_000 // bytes of one
	maxAnswerDetails = 3     // answers whose details are shown below the plan
	maxAnsweredIDs   = 300   // commands whose ids are kept; older ones count as answered
)

// Marker lines around the parts of a comment. They are HTML comments, which a browser
// hides; the parts themselves have no HTML comments.
const (
	answersBegin  = "<!-- berth:answers -->"
	answersEnd    = "<!-- /berth:answers -->"
	rolloutBegin  = "<!-- berth:rollout -->"
	rolloutEnd    = "<!-- /berth:rollout -->"
	proposalBegin = "<!-- berth:proposal -->"
	proposalEnd   = "<!-- /berth:proposal -->"
	detailsBegin  = "<!-- berth:details -->"
	detailsEnd    = "<!-- /berth:details -->"

	lineBreak       = "<br>\n" // between answers
	detailSeparator = "\n\n<!-- berth:detail -->\n\n"
)

// answeredIDs matches the line with the ids of the answered commands, below the marker.
var answeredIDs = regexp.MustCompile(`^[^\n]*\n<!-- berth:answered((?: [0-9]{1,19})+) -->(?:\n|$)`)

// sections are the parts of Berth's comment; "": absent.
type sections struct {
	answered []int64  // ids of the answered commands, ascending
	lines    []string // the answers on top, the newest last
	rollout  string
	proposal string
	details  []string // of answers, the newest first
}

// parse reads the parts of a comment's body. Text outside the parts is dropped.
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
	s := sections{rollout: between(rolloutBegin, rolloutEnd), proposal: between(proposalBegin, proposalEnd)}
	if m := answeredIDs.FindStringSubmatch(body); m != nil {
		for _, word := range strings.Fields(m[1]) {
			if id, err := strconv.ParseInt(word, 10, 64); err == nil {
				s.answered = append(s.answered, id)
			}
		}
		slices.Sort(s.answered)
	}
	if lines := between(answersBegin, answersEnd); lines != "" {
		s.lines = strings.Split(lines, lineBreak)
	}
	if details := between(detailsBegin, detailsEnd); details != "" {
		s.details = strings.Split(details, detailSeparator)
	}
	return s
}

// has says whether a command is answered.
func (s *sections) has(command int64) bool {
	if len(s.answered) >= maxAnsweredIDs && command < s.answered[0] {
		return true
	}
	_, ok := slices.BinarySearch(s.answered, command)
	return ok
}

// add adds an answer, unless the command is answered already.
func (s *sections) add(a reconciler.Answer) {
	at, ok := slices.BinarySearch(s.answered, a.Command)
	if ok || s.has(a.Command) {
		return
	}
	s.answered = slices.Insert(s.answered, at, a.Command)
	s.answered = s.answered[max(0, len(s.answered)-maxAnsweredIDs):]
	if line := cut(strings.Join(strings.Fields(hideMarkers(a.Line)), " "), maxAnswerLine); line != "" {
		s.lines = append(s.lines, line)
		s.lines = s.lines[max(0, len(s.lines)-maxAnswerLines):]
	}
	if a.Details != "" {
		s.details = append([]string{a.Details}, s.details...)
	}
}

// body renders the comment under a marker, at most maxBody bytes.
func (s sections) body(marker string) string {
	part := func(begin, text, end string, most int) string {
		// Markdown needs a blank line to end the part before.
		begin, end = "\n\n"+begin+"\n", "\n"+end
		if text = cutMarkdown(text, most-len(begin)-len(end)); text == "" {
			return ""
		}
		return begin + text + end
	}
	harmless := func(text string) string { return hideMarkers(tidy(text)) }
	head := marker
	if len(s.answered) > 0 {
		head += "\n<!-- berth:answered"
		for _, id := range s.answered {
			head += " " + strconv.FormatInt(id, 10)
		}
		head += " -->"
	}
	before := part(answersBegin, strings.Join(s.lines, lineBreak), answersEnd, maxBeside) +
		part(rolloutBegin, harmless(s.rollout), rolloutEnd, maxBeside)
	after := part(detailsBegin, s.allDetails(harmless), detailsEnd, maxBeside+100)
	plan := part(proposalBegin, harmless(s.proposal), proposalEnd, maxBody-len(head)-len(before)-len(after))
	if before+plan+after == "" {
		return head + "\n\n_Nothing to report._"
	}
	return head + before + plan + after
}

// allDetails joins the newest details that fit together; the newest is cut to fit.
func (s sections) allDetails(harmless func(string) string) string {
	all, n := "", 0
	for _, text := range s.details {
		if text = harmless(text); text == "" {
			continue
		}
		if n == 0 {
			all = cutMarkdown(text, maxBeside)
		} else if n < maxAnswerDetails && len(all)+len(detailSeparator)+len(text) <= maxBeside {
			all += detailSeparator + text
		} else {
			break
		}
		n++
	}
	return all
}

// hideMarkers escapes HTML comments in a part.
func hideMarkers(s string) string { return strings.ReplaceAll(s, "<!--", "&lt;!--") }

// tidy normalises the line ends and outer space, which GitHub may change.
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

// wasCut matches the last line of a shortened text: how much is missing, and how to see
// all of it.
var wasCut = regexp.MustCompile(`^\*\*(?:At least )?(\d{1,9}) more lines do not fit[^*]*\*\*(.*)$`)

// cutMarkdown shortens s to at most n bytes at the end of a line, closes open code
// fences and <details>, and adds a line with the number of missing lines. A short last
// paragraph, the foot, stays. If s was shortened before, the line has the total. The
// number is a lower bound: blank and closing lines do not count, since the earlier cut
// may have added some.
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

// lastParagraph splits a short last paragraph off s; "" if s has none that is complete
// by itself.
func lastParagraph(s string) (before, last string) {
	s = strings.TrimRight(s, "\n")
	at := strings.LastIndex(s, "\n\n")
	if at < 0 || len(s)-at > maxFoot || !closed(s[:at]) || !closed(s[at:]) {
		return s, ""
	}
	return s[:at], s[at+2:]
}

// closed says whether every fence and <details> of s is closed in s.
func closed(s string) bool {
	fence, details := "", 0
	for line := range strings.Lines(s) {
		fence, details = state(line, fence, details)
	}
	return fence == "" && details == 0
}

// closing is the number of bytes that close a fence and details.
func closing(fence string, details int) int {
	return 1 + len(fence) + details*len("\n\n</details>")
}

// state returns the open blocks after a line: the code fence ("": none) and the number of
// <details>. Only a tag at the beginning of a line counts; elsewhere it is text.
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

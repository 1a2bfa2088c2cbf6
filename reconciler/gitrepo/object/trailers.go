package object

import (
	"strings"

	"berth/reconciler"
)

// gitSpaces are the white space characters of Git.
const gitSpaces = " \t\r\n"

func indented(line string) bool { return line != "" && strings.IndexByte(gitSpaces, line[0]) >= 0 }

func blank(line string) bool { return strings.Trim(line, gitSpaces) == "" }

// messageTrailers parses the trailers of a message with the rules of git
// interpret-trailers --parse --no-divider and no configuration. So people see in
// Git the trailers that Berth uses. Trailers are in the last paragraph, which
// must not be the title. Either every line of it is a trailer, or it has a line
// that Git writes and at least a quarter of its lines are trailers.
func messageTrailers(message string) []reconciler.Trailer {
	message, _, _ = strings.Cut(message, "\x00") // Git ends a string at NUL
	var lines []string
	for line := range strings.Lines(withoutComments(message)) {
		lines = append(lines, line)
	}
	var out []reconciler.Trailer
	open := false // an indented line continues the last of out
	for _, line := range lines[trailersStart(lines):] {
		if indented(line) && open {
			out[len(out)-1].Value += line
			continue
		}
		at := trailerSeparator(line)
		if open = at > 0; open {
			out = append(out, reconciler.Trailer{Key: strings.TrimRight(line[:at], gitSpaces), Value: line[at+1:]})
		}
	}
	for i := range out {
		out[i].Value = unfold(out[i].Value)
	}
	return out
}

// unfold joins the lines of a value: a line break and the white space after it
// become one space.
func unfold(value string) string {
	first, rest, folded := strings.Cut(strings.Trim(value, gitSpaces), "\n")
	var b strings.Builder
	b.WriteString(first)
	for folded {
		rest = strings.TrimLeft(rest, gitSpaces)
		first, rest, folded = strings.Cut(rest, "\n")
		b.WriteString(" " + first)
	}
	return b.String()
}

// scissors is the line that git commit --verbose puts above the diff. Git ignores
// everything below it.
const scissors = "# ------------------------ >8 ------------------------\n"

// withoutComments returns the message without the trailing comments, empty lines
// and list of conflicts that Git ignores.
func withoutComments(message string) string {
	if strings.HasPrefix(message, scissors) {
		return ""
	}
	if i := strings.Index(message, "\n"+scissors); i >= 0 {
		message = message[:i+1]
	}
	at, end, conflicts := 0, 0, false // end is 0 without an end, as in Git: a comment at the top does not end the message
	for line := range strings.Lines(message) {
		switch {
		case line[0] == '#' || line[0] == '\n', strings.HasPrefix(line, "Conflicts:\n"):
			conflicts = conflicts || line[0] == 'C'
			if end == 0 {
				end = at
			}
		case conflicts && line[0] == '\t':
		case end > 0:
			end, conflicts = 0, false
		}
		at += len(line)
	}
	if end > 0 {
		return message[:end]
	}
	return message
}

// trailersStart returns the index of the first line of the trailer paragraph, or
// len(lines).
func trailersStart(lines []string) int {
	title := 0 // index of the first line after the title
	for title < len(lines) && (lines[title][0] == '#' || !blank(lines[title])) {
		title++
	}
	// Bottom up: an indented line belongs to a trailer if a trailer is above it.
	trailers, others, undecided, gits, empty := 0, 0, 0, false, true
	for i := len(lines) - 1; i >= title; i-- {
		line := lines[i]
		switch {
		case line[0] == '#':
			others, undecided = others+undecided, 0
			continue
		case blank(line):
			if empty {
				continue
			}
			others += undecided
			if trailers > 0 && others == 0 || gits && 3*trailers >= others {
				return i + 1
			}
			return len(lines)
		case strings.HasPrefix(line, "Signed-off-by: "), strings.HasPrefix(line, "(cherry picked from commit "):
			trailers, undecided, gits = trailers+1, 0, true
		case indented(line):
			undecided++
		case trailerSeparator(line) > 0:
			trailers, undecided = trailers+1, 0
		default:
			others, undecided = others+undecided+1, 0
		}
		empty = false
	}
	return len(lines)
}

// trailerSeparator returns the index of the colon in "Key: value", or a value
// below 1.
func trailerSeparator(line string) int {
	gap := false // a key has letters, digits and dashes, then optional blanks
	for i := range len(line) {
		switch c := line[i]; {
		case c == ':':
			return i
		case !gap && (c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'):
		case i > 0 && (c == ' ' || c == '\t'):
			gap = true
		default:
			return -1
		}
	}
	return -1
}

package cli

import (
	"io"
	"os"
	"regexp"
	"strings"
)

// HasColor reports whether w shows colors: it is a terminal, and colors are not
// switched off (https://no-color.org).
func HasColor(w io.Writer) bool {
	return IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// Style is the parameter of an SGR escape sequence. All have two digits, so that
// the cells of a column get the same number of bytes and stay aligned.
type Style string

// The styles in use.
const (
	Bold   Style = "01"
	Plain  Style = "39"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
)

// Paint puts text into a style.
func (s Style) Paint(text string) string { return "\x1b[" + string(s) + "m" + text + "\x1b[0m" }

// styleOf is the style of a state: green is good, red needs a person, yellow is in
// progress or held.
func styleOf(state string) Style {
	state, _, _ = strings.Cut(state, " ")
	switch strings.ToLower(state) {
	case "running", "ready", "up", "true", "allowed", "active", "attached", "present":
		return Green
	case "failed", "denied", "down", "unreachable", "paused", "frozen", "invalid", "unauthorised", "unauthorized", "error":
		return Red
	case "requested", "deploying", "updating", "deleting", "draining", "partial", "hung", "false", "unknown", "held", "warning":
		return Yellow
	}
	return Plain
}

var (
	planMark = regexp.MustCompile(`(?m)^( *)([+~!-]) `)
	severity = regexp.MustCompile(`(?m)^( *\S+:[0-9]+:[0-9]+: )(error|warning): `)
)

// Colored is the text of a plan or of findings, with the marks of actions and the
// severities in color if w shows colors.
func Colored(w io.Writer, text string) string {
	if !HasColor(w) {
		return text
	}
	return paintMarks(text)
}

// paintMarks paints creations green, changes yellow, deletions and blocked actions
// red.
func paintMarks(text string) string {
	styles := map[string]Style{"+": Green, "~": Yellow, "-": Red, "!": Red, "error": Red, "warning": Yellow}
	text = planMark.ReplaceAllStringFunc(text, func(m string) string {
		parts := planMark.FindStringSubmatch(m)
		return parts[1] + styles[parts[2]].Paint(parts[2]) + " "
	})
	return severity.ReplaceAllStringFunc(text, func(m string) string {
		parts := severity.FindStringSubmatch(m)
		return parts[1] + styles[parts[2]].Paint(parts[2]) + ": "
	})
}

package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// outputForm is the value of a -o flag: one of the forms that its command writes.
type outputForm struct {
	form  *string
	forms []string
}

// outputFlag adds -o to a command. The first form is the default. A form that
// the command does not write is a usage error, and the shell completes the forms.
func outputFlag(cmd *cobra.Command, form *string, forms ...string) {
	*form = forms[0]
	cmd.Flags().VarP(&outputForm{form, forms}, "output", "o", "output form: "+strings.Join(forms, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

func (o *outputForm) String() string {
	if o.form == nil { // pflag asks the zero value
		return ""
	}
	return *o.form
}

func (o *outputForm) Type() string { return "form" }

func (o *outputForm) Set(form string) error {
	if !slices.Contains(o.forms, form) {
		return fmt.Errorf("choose one of %s", strings.Join(o.forms, ", "))
	}
	*o.form = form
	return nil
}

// isTerminal says whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// hasColor says whether w shows colours: it is a terminal, and nobody switched
// colours off (https://no-color.org).
func hasColor(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// style is the parameter of an SGR escape sequence. All have two digits, so that
// the cells of a column get the same number of bytes and stay aligned.
type style string

const (
	styleBold   style = "01"
	stylePlain  style = "39"
	styleRed    style = "31"
	styleGreen  style = "32"
	styleYellow style = "33"
)

// paint puts text into a style.
func (s style) paint(text string) string { return "\x1b[" + string(s) + "m" + text + "\x1b[0m" }

// styleOf is the style of a state: green is good, red needs somebody, yellow is
// on its way or held.
func styleOf(state string) style {
	state, _, _ = strings.Cut(state, " ")
	switch strings.ToLower(state) {
	case "running", "ready", "up", "true", "allowed", "active", "attached", "present":
		return styleGreen
	case "failed", "denied", "down", "unreachable", "paused", "frozen", "invalid", "unauthorised", "unauthorized", "error":
		return styleRed
	case "requested", "deploying", "updating", "deleting", "draining", "partial", "false", "unknown", "held", "warning":
		return styleYellow
	}
	return stylePlain
}

var (
	planMark = regexp.MustCompile(`(?m)^( *)([+~!-]) `)
	severity = regexp.MustCompile(`(?m)^( *\S+:[0-9]+:[0-9]+: )(error|warning): `)
)

// colored is the text of a plan or of findings, with the marks of actions and the
// severities in colour if w shows colours.
func colored(w io.Writer, text string) string {
	if !hasColor(w) {
		return text
	}
	return paintMarks(text)
}

// paintMarks paints what is created green, changed yellow, deleted or blocked red.
func paintMarks(text string) string {
	styles := map[string]style{"+": styleGreen, "~": styleYellow, "-": styleRed, "!": styleRed, "error": styleRed, "warning": styleYellow}
	text = planMark.ReplaceAllStringFunc(text, func(m string) string {
		parts := planMark.FindStringSubmatch(m)
		return parts[1] + styles[parts[2]].paint(parts[2]) + " "
	})
	return severity.ReplaceAllStringFunc(text, func(m string) string {
		parts := severity.FindStringSubmatch(m)
		return parts[1] + styles[parts[2]].paint(parts[2]) + ": "
	})
}

// table writes rows in aligned columns below a header in capitals.
type table struct {
	out     io.Writer
	columns []string
	color   bool
	header  bool // the header is still to be written
	rows    [][]string
	widths  []int // of the columns as written so far, so that later rows are aligned with them
}

// maxRows is how many rows of a table are aligned together; a log may have
// millions.
const maxRows = 10_000

// newTable is an empty table. Cells of columns called PHASE, READY, STATE
// and DECISION are coloured on a terminal.
func newTable(out io.Writer, noHeaders bool, columns ...string) *table {
	return &table{out: out, columns: columns, color: hasColor(out), header: !noHeaders, widths: make([]int, len(columns))}
}

// row adds a row. An empty cell is shown as a dash. What could move the cursor or
// begin another line is replaced.
func (t *table) row(cells ...string) error {
	t.rows = append(t.rows, cells)
	if len(t.rows) == maxRows {
		return t.flush()
	}
	return nil
}

// flush writes the rows that were added. A table without rows has no header.
func (t *table) flush() error {
	if len(t.rows) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 3, ' ', 0)
	line := func(cells []string, is func(column int, cell string) style) {
		for i, cell := range cells {
			cell = orDash(cell)
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
			if i < len(cells)-1 {
				cell += strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell))
			}
			if t.color {
				cell = is(i, cell).paint(cell)
			}
			if i > 0 {
				_, _ = io.WriteString(w, "\t") // Flush returns the error
			}
			_, _ = io.WriteString(w, cell)
		}
		_, _ = io.WriteString(w, "\n")
	}
	if t.header {
		line(t.columns, func(int, string) style { return styleBold })
	}
	for _, cells := range t.rows {
		line(cells, func(i int, cell string) style {
			if slices.Contains([]string{"PHASE", "READY", "STATE", "DECISION"}, t.columns[i]) {
				return styleOf(strings.TrimSpace(cell))
			}
			return stylePlain
		})
	}
	t.header, t.rows = false, nil
	return w.Flush()
}

// writeTables writes tables one below the other, each after an empty line. Those
// without rows are left out.
func writeTables(w io.Writer, tables ...*table) error {
	for _, t := range tables {
		if len(t.rows) == 0 {
			continue
		}
		if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	return nil
}

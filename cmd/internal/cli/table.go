package cli

import (
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// Table writes rows in aligned columns below a header in capitals.
type Table struct {
	out     io.Writer
	columns []string
	color   bool
	header  bool // the header is still to be written
	rows    [][]string
	widths  []int // of the columns written so far; later rows are aligned with them
	err     error // of an earlier write
}

// maxRows is how many rows of a table are aligned together; a log may have
// millions.
const maxRows = 10_000

// newTable returns an empty table. On a terminal, the cells of columns called
// PHASE, READY, STATE and DECISION are colored.
func newTable(out io.Writer, noHeaders bool, columns ...string) *Table {
	return &Table{out: out, columns: columns, color: HasColor(out), header: !noHeaders, widths: make([]int, len(columns))}
}

// Row adds a row. An empty cell is shown as a dash. What could move the cursor or
// begin another line is replaced.
func (t *Table) Row(cells ...string) {
	if t.rows = append(t.rows, cells); len(t.rows) == maxRows {
		t.err = t.Flush()
	}
}

// Flush writes the rows that were added. A table without rows has no header.
func (t *Table) Flush() error {
	if len(t.rows) == 0 || t.err != nil {
		return t.err
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 3, ' ', 0)
	line := func(cells []string, style func(column int, cell string) Style) {
		for i, cell := range cells {
			cell = OrDash(cell)
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
			if i < len(cells)-1 {
				cell += strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell))
			}
			if t.color {
				cell = style(i, cell).Paint(cell)
			}
			if i > 0 {
				_, _ = io.WriteString(w, "\t") // Flush returns the error
			}
			_, _ = io.WriteString(w, cell)
		}
		_, _ = io.WriteString(w, "\n")
	}
	if t.header {
		line(t.columns, func(int, string) Style { return Bold })
	}
	for _, cells := range t.rows {
		line(cells, func(i int, cell string) Style {
			if slices.Contains([]string{"PHASE", "READY", "STATE", "DECISION"}, t.columns[i]) {
				return styleOf(strings.TrimSpace(cell))
			}
			return Plain
		})
	}
	t.header, t.rows = false, nil
	return w.Flush()
}

package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Table writes rows in aligned columns below a header in capitals. In a width, columns that do not fit
// are left out: first those of DropFirst, then from the right. A last column with sentences is kept, and
// wrapped.
type Table struct {
	out     io.Writer
	columns []string
	color   bool
	header  bool     // the header is still to be written
	width   int      // of the terminal; 0: lines of any length
	least   []string // columns that are left out before others
	rows    [][]string
	widths  []int // of the columns written so far; later rows are aligned with them
	shown   []int // columns; nil: nothing is written yet
	err     error // of an earlier write
}

const (
	// maxRows is how many rows of a table are aligned together; a log may have
	// millions.
	maxRows = 10_000
	// gap is the space between two columns.
	gap = 3
	// minLast is the least width of a last column that is wrapped.
	minLast = 24
)

// newTable returns an empty table. On a terminal, the cells of columns called
// PHASE, READY, STATE and DECISION are colored.
func newTable(out io.Writer, noHeaders bool, columns ...string) *Table {
	return &Table{out: out, columns: columns, color: HasColor(out), header: !noHeaders, widths: make([]int, len(columns))}
}

// DropFirst names columns that matter less than the others, the least first.
func (t *Table) DropFirst(columns ...string) { t.least = columns }

// Row adds a row. An empty cell is shown as a dash. Characters that could move the cursor or
// begin another line are replaced.
func (t *Table) Row(cells ...string) {
	for len(cells) < len(t.columns) {
		cells = append(cells, "")
	}
	if t.rows = append(t.rows, cells); len(t.rows) == maxRows {
		t.err = t.Flush()
	}
}

// Flush writes the rows that were added. A table without rows has no header.
func (t *Table) Flush() error {
	if len(t.rows) == 0 || t.err != nil {
		return t.err
	}
	rows := t.rows
	if t.header {
		rows = slices.Insert(slices.Clone(rows), 0, t.columns)
	}
	for _, cells := range rows {
		for i, cell := range cells {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(OrDash(cell)))
		}
	}
	first := t.shown == nil
	last := t.fit()
	var b strings.Builder
	for n, cells := range rows {
		t.line(&b, cells, last, n == 0 && t.header)
	}
	if left := len(t.columns) - len(t.shown); left > 0 && first && t.header {
		fmt.Fprintf(&b, "(%s not shown; -o wide shows all)\n", strings.Join(t.hidden(), ", "))
	}
	t.header, t.rows = false, nil
	_, err := io.WriteString(t.out, b.String())
	return err
}

// fit chooses the columns that are shown, and returns the width of the last one; 0: any.
func (t *Table) fit() (last int) {
	if t.shown == nil {
		for i := range t.columns {
			t.shown = append(t.shown, i)
		}
		for t.width > 0 && len(t.shown) > 2 && t.before()+t.last() > t.width {
			out := t.next()
			t.shown = slices.Delete(t.shown, out, out+1)
		}
	}
	if t.width == 0 || !t.hasText() {
		return 0
	}
	return max(t.width-t.before(), minLast)
}

// next returns the place in shown of the column that is left out next.
func (t *Table) next() int {
	for _, name := range t.least {
		if at := slices.IndexFunc(t.shown, func(i int) bool { return t.columns[i] == name }); at >= 0 {
			return at
		}
	}
	if t.hasText() {
		return len(t.shown) - 2
	}
	return len(t.shown) - 1
}

// hasText reports whether the last column that is shown has sentences.
func (t *Table) hasText() bool {
	end := t.shown[len(t.shown)-1]
	return slices.Contains([]string{"WHY", "WHY THERE", "REASON", "MESSAGE", "EVIDENCE", "RESULT", "VALUE"}, t.columns[end]) &&
		t.widths[end] > utf8.RuneCountInString(t.columns[end])
}

// last is the least width of the last column that is shown.
func (t *Table) last() int {
	width := t.widths[t.shown[len(t.shown)-1]]
	if t.hasText() {
		return min(width, minLast)
	}
	return width
}

// before is the width of the shown columns before the last one.
func (t *Table) before() (n int) {
	for _, i := range t.shown[:len(t.shown)-1] {
		n += t.widths[i] + gap
	}
	return n
}

// hidden are the columns that are not shown.
func (t *Table) hidden() (names []string) {
	for i, name := range t.columns {
		if !slices.Contains(t.shown, i) {
			names = append(names, name)
		}
	}
	return names
}

// line writes a row, its last cell in lines of at most a width.
func (t *Table) line(b *strings.Builder, cells []string, last int, isHeader bool) {
	paint := func(column int, cell string) string {
		switch {
		case !t.color:
			return cell
		case isHeader:
			return Bold.Paint(cell)
		case slices.Contains([]string{"PHASE", "READY", "STATE", "DECISION"}, t.columns[column]):
			return styleOf(strings.TrimSpace(cell)).Paint(cell)
		}
		return Plain.Paint(cell)
	}
	end := len(t.shown) - 1
	for _, i := range t.shown[:end] {
		cell := OrDash(cells[i])
		b.WriteString(paint(i, cell+strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell))) + strings.Repeat(" ", gap))
	}
	for n, text := range wrapped(OrDash(cells[t.shown[end]]), last) {
		if n > 0 {
			b.WriteString(strings.Repeat(" ", t.before()))
		}
		b.WriteString(paint(t.shown[end], text) + "\n")
	}
}

// wrapped cuts text at spaces into lines of at most a width; 0: any. A longer word has a line of its
// own.
func wrapped(text string, width int) []string {
	if width == 0 {
		return []string{text}
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}

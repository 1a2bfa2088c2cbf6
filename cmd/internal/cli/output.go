package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Output is the form in which a command prints: the flags -o and --no-headers.
type Output struct {
	Form      string
	noHeaders bool
	fits      bool // tables fit the width of the terminal
}

// wide is the form of a table with all columns, whatever the width of the terminal.
const wide = "wide"

// Flag adds -o to a command. The first form is the default. Another form is a usage
// error, and the shell completes the forms. Without forms, they are text and json.
func (o *Output) Flag(cmd *cobra.Command, forms ...string) {
	if len(forms) == 0 {
		forms = []string{"text", "json"}
	}
	o.Form = forms[0]
	cmd.Flags().VarP(&outputForm{&o.Form, forms}, "output", "o", "output `form`: "+strings.Join(forms, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// TableFlags adds -o, with the form wide, and --no-headers to a command that prints tables.
func (o *Output) TableFlags(cmd *cobra.Command, forms ...string) {
	if len(forms) == 0 {
		forms = []string{"text", "json"}
	}
	o.Flag(cmd, slices.Insert(slices.Clone(forms), 1, wide)...)
	o.fits = true
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "write tables without their headers")
}

// Report is the result of a command. Its JSON is a contract; Text is for people.
type Report interface{ Text(*Page) error }

// PrintLong is Print for a report that may be longer than the screen: text for a terminal goes through
// a pager.
func (o *Output) PrintLong(w io.Writer, r Report) error {
	if o.Form == "json" {
		return o.Print(w, r)
	}
	return Paged(w, func(w io.Writer) error { return o.Print(w, r) })
}

// Print writes a report as JSON, or as text in any other form.
func (o *Output) Print(w io.Writer, r Report) error {
	if o.Form == "json" {
		return WriteJSON(w, r)
	}
	return r.Text(&Page{Writer: w, noHeaders: o.noHeaders, width: o.width(w)})
}

// width is the width that tables are written in; 0: any.
func (o *Output) width(w io.Writer) int {
	if !o.fits || o.Form == wide || o.noHeaders { // without headers, a script reads it
		return 0
	}
	return columnsOf(w)
}

// Page takes the text of a report.
type Page struct {
	io.Writer
	noHeaders bool
	width     int // of tables; 0: any
}

// Table returns an empty table that is written to the page.
func (p *Page) Table(columns ...string) *Table {
	t := newTable(p.Writer, p.noHeaders, columns...)
	t.width = p.width
	return t
}

// HasHeaders reports whether tables have their headers. Without them a script reads the output: it has one
// table.
func (p *Page) HasHeaders() bool { return !p.noHeaders }

// Tables writes tables one below the other, each after an empty line. It leaves out
// those without rows.
func (p *Page) Tables(tables ...*Table) error {
	for _, t := range tables {
		if len(t.rows) == 0 {
			continue
		}
		if _, err := io.WriteString(p, "\n"); err != nil {
			return err
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// Entries prints the entries of a log: JSON, one in a line, or the rows of a table.
type Entries struct {
	json  *json.Encoder
	table *Table
}

// Entries returns a writer of entries. columns are those of the table.
func (o *Output) Entries(w io.Writer, columns ...string) *Entries {
	e := &Entries{table: newTable(w, o.noHeaders, columns...)}
	e.table.width = o.width(w)
	if o.Form == "json" {
		e.json = json.NewEncoder(w)
		e.json.SetEscapeHTML(false)
	}
	return e
}

// Add prints one entry, as the form has it.
func (e *Entries) Add(entry any, cells ...string) error {
	if e.json != nil {
		return e.json.Encode(entry)
	}
	e.table.Row(cells...)
	return e.table.err
}

// Flush writes the entries that were added.
func (e *Entries) Flush() error { return e.table.Flush() }

// outputForm is the value of a -o flag.
type outputForm struct {
	form  *string
	forms []string
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

// WriteJSON writes v with indentation, and with <, > and & as they are.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

package schema

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity grades a Diagnostic.
type Severity string

// An error holds its document; a warning and a note do not.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
	SeverityNote    Severity = "note"
)

// Diagnostic is one finding. Code is stable and documented; Message names the problem
// and the next step. Line and Column count from 1, 0 is unknown.
type Diagnostic struct {
	Severity Severity `json:"severity"`
	Code     string   `json:"code"`
	Message  string   `json:"message"`
	File     string   `json:"file"`
	Line     int      `json:"line"`
	Column   int      `json:"column"`
	Path     string   `json:"path,omitempty"` // the field, dotted; empty: the file

	// Other is the place of the other half of a conflict; zero: the
	// message names everything. Only people with access to the whole estate see it,
	// and no output has it by itself.
	Other Place `json:"-"`
}

// Place is the position of a field.
type Place struct {
	Position
	Path string // the field, dotted
	Says string // the message there, without the field; empty: that of the diagnostic
}

// IsZero says whether p is nowhere.
func (p Place) IsZero() bool { return p == Place{} }

// Swapped returns d at its other place.
func (d Diagnostic) Swapped() Diagnostic {
	other, says := d.Other, strings.TrimPrefix(d.Message, d.Path+": ")
	d.Other = Place{Position: Position{d.File, d.Line, d.Column}, Path: d.Path}
	if other.Says != "" {
		d.Other.Says, says = says, other.Says
	}
	d.Message = other.Path + ": " + says
	d.File, d.Line, d.Column, d.Path = other.File, other.Line, other.Column, other.Path
	return d
}

// At returns the diagnostic at the file of a conflict that a change has; where it has both or neither, at
// the first.
func (d Diagnostic) At(changed func(file string) bool) Diagnostic {
	if !d.Other.IsZero() && !changed(d.File) && changed(d.Other.File) {
		return d.Swapped()
	}
	return d
}

// String is "file:line:column: severity: message [code]", as compilers print.
func (d Diagnostic) String() string {
	return fmt.Sprintf("%s:%d:%d: %s: %s [%s]", d.File, d.Line, d.Column, d.Severity, d.Message, d.Code)
}

// SortDiagnostics orders by file, place, code and message, so that equal input
// prints equal bytes.
func SortDiagnostics(ds []Diagnostic) {
	slices.SortFunc(ds, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message))
	})
}

// HasErrors says whether one of ds holds its document.
func HasErrors(ds []Diagnostic) bool {
	return slices.ContainsFunc(ds, func(d Diagnostic) bool { return d.Severity == SeverityError })
}

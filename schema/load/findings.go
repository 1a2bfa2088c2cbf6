package load

import (
	"fmt"
	"slices"

	"berth/schema"
)

// MaxFindings limits the displayed findings of one file. More do not help, and a hostile
// file must fill neither memory nor a pull request.
const MaxFindings = 25

// Bounded sorts findings and cuts them to MaxFindings a file, with a note about the
// rest. Findings that it cut before stay unchanged.
func Bounded(ds []schema.Diagnostic) []schema.Diagnostic {
	schema.SortDiagnostics(ds)
	var kept []schema.Diagnostic
	for len(ds) > 0 {
		n := 1
		for n < len(ds) && ds[n].File == ds[0].File {
			n++
		}
		kept = append(kept, told(ds[:n], n)...)
		ds = ds[n:]
	}
	return kept
}

// told returns the first findings of one file, of found in total, and a note about the
// number of the others.
func told(ds []schema.Diagnostic, found int) []schema.Diagnostic {
	if i := slices.IndexFunc(ds, func(d schema.Diagnostic) bool { return d.Code == codeMore }); i >= 0 {
		more := ds[i]
		return append(slices.Delete(ds, i, i+1), more)
	}
	if found <= MaxFindings {
		return ds
	}
	last := ds[MaxFindings-1]
	return append(ds[:MaxFindings:MaxFindings], schema.Diagnostic{
		Severity: schema.SeverityNote, Code: codeMore,
		Message: fmt.Sprintf("%d more findings in this file are not shown", found-MaxFindings),
		File:    last.File, Line: last.Line, Column: last.Column,
	})
}

const codeMore = "file.more"

// fault returns an error at a position of a file.
func fault(file string, at pos, code, format string, args ...any) *schema.Diagnostic {
	return &schema.Diagnostic{
		Severity: schema.SeverityError, Code: code, Message: fmt.Sprintf(format, args...),
		File: file, Line: at.line, Column: at.column,
	}
}

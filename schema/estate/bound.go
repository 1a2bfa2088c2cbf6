package estate

import (
	"errors"
	"fmt"

	"berth/schema"
)

// bound limits one part of an estate. The cost to read and to cache a part is
// proportional to its size. A tenant above its bound cannot change its own documents and
// costs other tenants nothing.
type bound struct{ files, bytes int }

// boundOf returns the bound of the part with that name. The platform's grows with the
// number of nodes, which tenants do not choose.
func boundOf(part string) bound {
	if part == "platform" {
		return bound{files: 100_000, bytes: 32 << 20}
	}
	return bound{files: 20_000, bytes: 8 << 20}
}

// check returns the excess of a part with that many files and bytes read, or nil.
func (b bound) check(files, bytes int) error {
	switch {
	case files > b.files:
		return &excess{fmt.Sprintf("holds %d files, more than the %d that may stand here", files, b.files)}
	case bytes > b.bytes:
		return &excess{fmt.Sprintf("holds %d files of more than %d MiB together, which is what may stand here", files, b.bytes>>20)}
	}
	return nil
}

// excess is the error of a part above its bound. Unlike other errors it is permanent for
// the part's content.
type excess struct{ message string }

func (e *excess) Error() string { return e.message }

func isExcess(err error) bool {
	var e *excess
	return errors.As(err, &e)
}

const (
	codeUnreadable = "part.unreadable"
	codeTooLarge   = "part.too-large"
)

// unreadable returns the finding for a part with unknown content.
func unreadable(p schema.Part, err error) schema.Diagnostic {
	d := schema.Diagnostic{
		Severity: schema.SeverityError, Code: codeUnreadable, File: p.Name, Line: 1, Column: 1,
		Message: fmt.Sprintf("cannot be read, nothing below it is known: %v", err),
	}
	if isExcess(err) {
		d.Code, d.Message = codeTooLarge, err.Error()+": nothing of it is read, and what was in force stays; remove what is not needed"
	}
	return d
}

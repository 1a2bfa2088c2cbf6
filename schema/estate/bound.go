package estate

import (
	"errors"
	"fmt"

	"berth/schema"
)

// bound is the most that one part of an estate may hold. What a part costs to
// read and to cache is in proportion to it. A tenant that declares too much loses its
// own changes and costs no other tenant anything.
type bound struct{ files, bytes int }

// boundOf is the bound of the part of that name. The platform's grows with the
// number of nodes, which is not its tenants' to choose.
func boundOf(part string) bound {
	if part == "platform" {
		return bound{files: 100_000, bytes: 32 << 20}
	}
	return bound{files: 20_000, bytes: 8 << 20}
}

// check is the excess of a part that has this many files and so many bytes read
// of its documents, or nil.
func (b bound) check(files, bytes int) error {
	switch {
	case files > b.files:
		return &excess{fmt.Sprintf("holds %d files, more than the %d that may stand here", files, b.files)}
	case bytes > b.bytes:
		return &excess{fmt.Sprintf("holds %d files of more than %d MiB together, which is what may stand here", files, b.bytes>>20)}
	}
	return nil
}

// excess says that a part holds more than it may. Unlike another error it is
// true of the part for ever.
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

// unreadable is the finding of a part of which nothing is known.
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

package patch

import (
	"io"

	"berth/schema"
)

// Lines are the lines of files that a patch shows: those it adds, and those it
// leaves around them, by the file's path after it. The diff of a pull request is
// the one between its merge base and its head. A file that is binary, or of which
// the patch says something that cannot be, shows none.
func Lines(r io.Reader) (schema.Lines, error) {
	files, err := read(r)
	if err != nil {
		return nil, err
	}
	out := schema.Lines{}
	for _, f := range files {
		s, err := stepOf(f)
		if err != nil || s.to == "" {
			continue
		}
		for _, h := range s.hunks {
			if h.NewLines > 0 {
				out[s.to] = append(out[s.to], schema.LineRange{First: int(h.NewPosition), Last: int(h.NewPosition + h.NewLines - 1)})
			}
		}
	}
	return out, nil
}

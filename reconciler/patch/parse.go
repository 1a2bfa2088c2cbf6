package patch

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"berth/schema"
)

const (
	// MaxBytes is the largest patch that is read.
	MaxBytes = 8 << 20
	// maxFiles bounds the files one patch changes.
	maxFiles = 10_000
	// maxLine bounds line numbers and counts in a hunk's header, so that
	// arithmetic with them cannot overflow.
	maxLine = 1 << 31
	maxPath = 4096
)

// Patch is a well-formed patch. Apply finds its conflicts with a tree.
type Patch struct{ steps []step }

// step is the change of a patch to one file.
type step struct {
	from, to string // paths; "" for a file that does not exist
	keeps    bool   // from stays: to is a copy
	was      uint32 // mode of from as the patch has it; 0: it does not say
	mode     uint32 // mode of to; 0: that of from
	hunks    []*gitdiff.TextFragment
}

// Parse reads a patch in Git's form, as `git diff` and `git format-patch` write
// it. A patch of white space only is empty. The error describes the defect of the
// patch and its place.
func Parse(r io.Reader) (*Patch, error) {
	files, err := read(r)
	if err != nil {
		return nil, err
	}
	p := &Patch{}
	for _, f := range files {
		s, err := stepOf(f)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", cmp.Or(f.NewName, f.OldName), err)
		}
		p.steps = append(p.steps, s)
	}
	return p, p.once()
}

// read reads a patch in Git's form into its files.
func read(r io.Reader) ([]*gitdiff.File, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("it has more than %d MiB: limit it to the estate (git diff -- platform tenants)", MaxBytes>>20)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	if data[len(data)-1] != '\n' {
		return nil, errors.New("its last line has no end: the patch has been cut off")
	}
	headers := bytes.Count(data, []byte("\ndiff --git "))
	if bytes.HasPrefix(data, []byte("diff --git ")) {
		headers++
	}
	if headers > maxFiles {
		return nil, fmt.Errorf("it changes more than %d files", maxFiles)
	}
	files, _, err := gitdiff.Parse(bytes.NewReader(data))
	switch {
	case err != nil:
		return nil, errors.New(strings.TrimPrefix(err.Error(), "gitdiff: "))
	case len(files) != headers:
		return nil, errors.New(`it is not in Git's form, in which each file begins with "diff --git": make it with git diff`)
	case len(files) == 0:
		return nil, errors.New("it contains no patch: make one with git diff")
	}
	return files, nil
}

// once refuses a patch that changes a file twice, such as a series of commits,
// because the order would be ambiguous.
func (p *Patch) once() error {
	from, to := map[string]bool{}, map[string]bool{}
	for _, s := range p.steps {
		if s.from != "" && !s.keeps && from[s.from] || s.to != "" && to[s.to] {
			return fmt.Errorf("%q is changed twice: make one patch of the whole change", cmp.Or(s.to, s.from))
		}
		from[s.from] = from[s.from] || !s.keeps
		to[s.to] = true
	}
	return nil
}

func stepOf(f *gitdiff.File) (step, error) {
	s := step{from: f.OldName, to: f.NewName, keeps: f.IsCopy, was: uint32(f.OldMode), mode: uint32(f.NewMode)}
	switch {
	case f.IsNew && f.IsDelete, f.IsCopy && f.IsRename, (f.IsNew || f.IsDelete) && (f.IsCopy || f.IsRename):
		return s, errors.New("its header contradicts itself")
	case f.IsBinary:
		return s, errors.New("it is binary, and an estate holds text: leave it out (git diff -- platform tenants)")
	case f.IsNew:
		s.from, s.was, s.mode = "", 0, cmp.Or(s.mode, schema.ModePlain)
		if empty := blobID(nil); len(f.TextFragments) == 0 && strings.Trim(f.NewOIDPrefix, "0") != "" &&
			!strings.HasPrefix(empty, f.NewOIDPrefix) {
			return s, errors.New("its content is missing: the patch has been cut off")
		}
	case f.IsDelete:
		s.to, s.mode = "", 0
	default:
		if err := s.checkKept(f); err != nil {
			return s, err
		}
	}
	for _, path := range []string{s.from, s.to} {
		if err := checkPath(path); path != "" && err != nil {
			return s, err
		}
	}
	for _, mode := range []uint32{s.was, s.mode} {
		switch mode {
		case 0, schema.ModePlain, schema.ModeExecutable, schema.ModeSymlink, schema.ModeSubmodule:
		default:
			return s, fmt.Errorf("file mode %06o is unknown to Git", mode)
		}
	}
	return s, s.take(f.TextFragments)
}

// checkKept refuses a header that contradicts itself, of a file that is neither new nor deleted.
func (s *step) checkKept(f *gitdiff.File) error {
	moves := f.IsRename || f.IsCopy
	switch {
	case s.mode != 0 && s.was == 0:
		return errors.New("its old mode is missing: the patch has been cut off")
	case s.mode>>12 != s.was>>12 && s.mode != 0:
		return fmt.Errorf("it was %s and becomes %s: Git writes that as a deletion and a new file", modeName(s.was), modeName(s.mode))
	case s.from != s.to && !moves:
		return fmt.Errorf("it was %q and is not renamed", s.from)
	case s.from == s.to && moves:
		return errors.New("it is renamed to itself")
	case s.from == s.to && len(f.TextFragments) == 0 && (s.mode == 0 || s.mode == s.was):
		return errors.New("nothing of it changes: the patch has been cut off")
	}
	return nil
}

// take checks the hunks against each other and gives them places the library
// means as Git does: without context, a hunk that removes or adds nothing
// stands after the line it names, not at it.
func (s *step) take(hunks []*gitdiff.TextFragment) error {
	var end, grown int64 // of the old file, from 0
	for i, h := range hunks {
		for _, n := range []int64{h.OldPosition, h.OldLines, h.NewPosition, h.NewLines} {
			if n < 0 || n > maxLine {
				return fmt.Errorf("hunk %d: invalid line number %d", i+1, n)
			}
		}
		before, after := first(h.OldPosition, h.OldLines), first(h.NewPosition, h.NewLines)
		switch {
		case before < 0 || after < 0 || after != before+grown:
			return fmt.Errorf("hunk %d: its line numbers contradict each other", i+1)
		case before < end:
			return fmt.Errorf("hunk %d: it does not follow the hunk before it", i+1)
		}
		end, grown = before+h.OldLines, grown+h.NewLines-h.OldLines
		placed := *h
		placed.OldPosition, placed.NewPosition = before+1, after+1
		if err := placed.Validate(); err != nil {
			return fmt.Errorf("hunk %d: %w", i+1, err)
		}
		s.hunks = append(s.hunks, &placed)
	}
	return nil
}

// first is the index of the first line of a range in a hunk's header.
func first(position, lines int64) int64 {
	if lines == 0 {
		return position
	}
	return position - 1
}

// checkPath refuses a path that is not valid in a tree, leads out of one, or leads
// into Git's own directory.
func checkPath(path string) error {
	if len(path) > maxPath || !utf8.ValidString(path) ||
		strings.ContainsFunc(path, func(r rune) bool { return r < 0x20 || r == 0x7f || r == '\\' || r == utf8.RuneError }) {
		return errors.New("the path is invalid in an estate")
	}
	for name := range strings.SplitSeq(path, "/") {
		switch folded := strings.ToLower(strings.TrimRight(name, ". ")); {
		case folded == "", folded == ".git", folded == "git~1":
			return fmt.Errorf("a path must not contain %q: paths start at the root of the estate, after a/ and b/", name)
		}
	}
	return nil
}

// modeName is a mode in words, for a finding.
func modeName(mode uint32) string {
	switch mode {
	case schema.ModeSymlink:
		return "a symbolic link"
	case schema.ModeSubmodule:
		return "a submodule"
	case schema.ModeExecutable:
		return "an executable file"
	}
	return "a plain file"
}

// paths lists the paths the patch names, sorted.
func (p *Patch) paths() []string {
	var all []string
	for _, s := range p.steps {
		for _, path := range []string{s.from, s.to} {
			if path != "" {
				all = append(all, path)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

package patch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"berth/schema"
)

// CodeConflict is the code of a finding that the patch does not match its base.
const CodeConflict = "patch.conflict"

const (
	// maxFile and maxTotal bound the content that is held at once.
	maxFile  = 4 << 20
	maxTotal = 64 << 20
)

// Apply returns base with the patch, applied exactly at its line numbers. If base
// does not match the patch, it returns no tree but a finding for each file, at the
// first differing line of base. It returns an error if base cannot be read.
func (p *Patch) Apply(ctx context.Context, base schema.Snapshot) (*Tree, []schema.Diagnostic, error) {
	t, err := newTree(ctx, base, p.paths())
	if err != nil {
		return nil, nil, err
	}
	a := application{tree: t, was: maps.Clone(t.files)}
	for _, s := range p.steps {
		if s.from != "" && !s.keeps {
			delete(t.files, s.from)
		}
	}
	for _, s := range p.steps {
		if err := a.step(ctx, s); err != nil {
			return nil, nil, err
		}
	}
	a.shadowed(p.steps)
	if len(a.conflicts) > 0 {
		schema.SortDiagnostics(a.conflicts)
		return nil, a.conflicts, nil
	}
	t.seal(a.was)
	return t, nil, nil
}

// application is one patch being applied. Every step reads the base, so that
// two files may change places.
type application struct {
	tree      *Tree
	was       map[string]schema.File // the base's, of the parts concerned
	held      int                    // bytes
	conflicts []schema.Diagnostic
}

func (a *application) conflict(path string, line int64, format string, args ...any) {
	a.conflicts = append(a.conflicts, schema.Diagnostic{
		Severity: schema.SeverityError, Code: CodeConflict, File: path, Line: int(line), Column: 1, Message: fmt.Sprintf(format, args...),
	})
}

func (a *application) step(ctx context.Context, s step) error {
	old, ok := a.source(s)
	if !ok {
		return nil
	}
	if s.to != "" && s.from != "" && len(s.hunks) == 0 { // its content stays, and is not read
		made := old
		made.Path, made.Mode = s.to, cmp.Or(s.mode, old.Mode)
		a.tree.put(made, nil, &old)
		return nil
	}
	before, ok, err := a.content(ctx, old)
	if err != nil || !ok {
		return err
	}
	after, ok := a.apply(cmp.Or(s.from, s.to), before, s.hunks)
	switch {
	case !ok:
		return nil
	case s.to == "" && len(after) > 0:
		last := 1 + bytes.Count(bytes.TrimSuffix(before, []byte("\n")), []byte("\n"))
		a.conflict(s.from, int64(last), "the patch deletes it, but the base has lines that the patch does not delete")
		return nil
	case s.to == "":
		return nil
	}
	made := schema.File{Path: s.to, Mode: cmp.Or(s.mode, old.Mode), Size: int64(len(after)), Blob: blobID(after)}
	if made.Mode == schema.ModeSubmodule {
		if made.Blob, made.Size = commitOf(after), 0; made.Blob == "" {
			a.conflict(s.to, 1, "the patch makes it a submodule without a commit")
			return nil
		}
	}
	if a.held += len(after); a.held > maxTotal {
		return fmt.Errorf("the patch makes more than %d MiB of content", maxTotal>>20)
	}
	a.tree.put(made, after, nil)
	return nil
}

// source returns the file of the base that a step changes, zero for a new one. It reports a conflict, and false, if the base
// has another file there, or one where the step creates one.
func (a *application) source(s step) (old schema.File, ok bool) {
	old, found := a.was[s.from]
	_, taken := a.tree.files[s.to]
	switch {
	case s.from != "" && !found:
		a.conflict(s.from, 1, "the patch changes it, but the base has no such file: paths start at the root of the estate, after a/ and b/")
	case s.from != "" && s.was != 0 && s.was != old.Mode:
		a.conflict(s.from, 1, "it is %s in the base, but the patch expects %s", modeName(old.Mode), modeName(s.was))
	case s.to != "" && taken:
		a.conflict(s.to, 1, "the patch creates it, but it exists already")
	default:
		return old, true
	}
	return old, false
}

// commitOf returns the id of the commit in the content of a submodule; "" without one.
func commitOf(content []byte) string {
	id, ok := strings.CutPrefix(strings.TrimSuffix(string(content), "\n"), submodule)
	if !ok || len(id) != 40 || strings.Trim(id, "0123456789abcdef") != "" {
		return ""
	}
	return id
}

// submodule precedes the commit's id in the content of a submodule, as a diff
// shows it.
const submodule = "Subproject commit "

// content is a file of the base as a diff shows it; ok is false if there is too
// much of it.
func (a *application) content(ctx context.Context, f schema.File) (data []byte, ok bool, err error) {
	switch f.Mode {
	case 0: // none
		return nil, true, nil
	case schema.ModeSubmodule:
		return []byte(submodule + f.Blob + "\n"), true, nil
	}
	data, more, err := a.tree.base.Read(ctx, f, maxFile)
	if err != nil {
		return nil, false, fmt.Errorf("the base: %w", err)
	}
	if more {
		a.conflict(f.Path, 1, "it has more than %d MiB, the limit for a patched file", maxFile>>20)
	}
	return data, !more, nil
}

// apply is data with the hunks applied.
func (a *application) apply(path string, data []byte, hunks []*gitdiff.TextFragment) (after []byte, ok bool) {
	var out bytes.Buffer
	applier := gitdiff.NewTextApplier(&out, bytes.NewReader(data))
	for _, h := range hunks {
		if err := applier.ApplyFragment(h); err != nil {
			line, message := differs(data, h, err)
			a.conflict(path, line, "%s", message)
			return nil, false
		}
	}
	if err := applier.Close(); err != nil {
		a.conflict(path, 1, "%v", err)
		return nil, false
	}
	return out.Bytes(), true
}

// differs returns the first line of the base that differs from a hunk, with a message that quotes it.
func differs(data []byte, h *gitdiff.TextFragment, err error) (line int64, message string) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	if n := len(lines); len(lines[n-1]) == 0 {
		lines = lines[:n-1]
	}
	var at *gitdiff.ApplyError
	if !errors.As(err, &at) || at.FragmentLine == 0 || at.Line < 1 || at.Line > int64(len(lines)) || at.FragmentLine > len(h.Lines) {
		return max(1, int64(len(lines))),
			fmt.Sprintf("the base ends here, before the lines that the patch changes (%d to %d)", h.OldPosition, h.OldPosition+h.OldLines-1)
	}
	return at.Line, fmt.Sprintf("the base has %s here, the patch expects %s: make the patch from the base", quote(string(lines[at.Line-1])),
		quote(h.Lines[at.FragmentLine-1].Line))
}

// quote is a line in a message. It says if the line has no end, because two lines may differ only by that.
func quote(line string) string {
	const most = 80
	text, ended := strings.CutSuffix(line, "\n")
	if runes := []rune(text); len(runes) > most {
		return fmt.Sprintf("%q…", string(runes[:most]))
	}
	if !ended {
		return fmt.Sprintf("%q without an end of line", text)
	}
	return fmt.Sprintf("%q", text)
}

// shadowed finds the paths that the patch creates in place of a directory, or below
// a file.
func (a *application) shadowed(steps []step) {
	if len(a.conflicts) > 0 {
		return // the remaining tree would differ from the result of the patch
	}
	dirs := a.tree.directories()
	for _, s := range steps {
		if s.to == "" {
			continue
		}
		if dirs[s.to] || a.tree.dirOutside(s.to) {
			a.conflict(s.to, 1, "the patch creates a file here, but the base has a directory")
		}
		for dir := parent(s.to); dir != ""; dir = parent(dir) {
			if _, ok := a.tree.files[dir]; ok || a.tree.fileOutside(dir) {
				a.conflict(s.to, 1, "the patch creates it below %s, which is a file", dir)
			}
		}
	}
}

// directories returns the directories of the files of t.
func (t *Tree) directories() map[string]bool {
	dirs := map[string]bool{}
	for path := range t.files {
		for dir := parent(path); dir != "" && !dirs[dir]; dir = parent(dir) {
			dirs[dir] = true
		}
	}
	return dirs
}

func parent(path string) string {
	return path[:max(0, strings.LastIndexByte(path, '/'))]
}

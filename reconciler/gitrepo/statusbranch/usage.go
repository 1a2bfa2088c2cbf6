package statusbranch

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"berth/reconciler/gitrepo/object"
	"berth/schema/usage"
)

// usageDir has the records of usage at usage/<day>/<tenant>/<hash>.jsonl; see usage.Files.
const usageDir = "usage"

// Usage reads the records of usage at a commit of berth/status, of jobs that ended on the days from
// first to last, both included; "" leaves that end open. A run may come twice, see usage.Files. An
// error is about one file or line, which it names, and the next ones follow.
func (r *View) Usage(ctx context.Context, commit, first, last string) iter.Seq2[Logged[usage.Record], error] {
	return func(yield func(Logged[usage.Record], error) bool) {
		for f, err := range r.usageFiles(commit, first, last) {
			if err == nil {
				err = ctx.Err()
			}
			var data []byte
			if err == nil {
				var warning string
				if data, warning, err = r.objects.Blob(f.entry, usage.MaxFile+maxLogLine); err == nil && warning != "" {
					err = errors.New(warning)
				}
			}
			if err != nil {
				if !yield(Logged[usage.Record]{File: f.path, Line: 1}, err) || ctx.Err() != nil {
					return
				}
				continue
			}
			if !readSegment(f.path, data, false, usage.Decode, yield) {
				return
			}
		}
	}
}

// usageFile is a file of usage records.
type usageFile struct {
	path  string
	entry object.Entry
}

// usageFiles iterates over the files of days in order of their paths.
func (r *View) usageFiles(commit, first, last string) iter.Seq2[usageFile, error] {
	return func(yield func(usageFile, error) bool) {
		root, err := r.objects.Root(commit)
		if err != nil {
			yield(usageFile{path: usageDir}, fmt.Errorf("read %s: %w", usageDir, err))
			return
		}
		if root.IsZero() {
			return
		}
		e, err := r.objects.Lookup(root, usageDir)
		if err != nil {
			yield(usageFile{path: usageDir}, fmt.Errorf("read %s: %w", usageDir, err))
			return
		}
		within := func(day string) bool { return day >= first && (last == "" || day <= last) }
		r.walkUsage(usageFile{usageDir, e}, 2, within, yield)
	}
}

// walkUsage yields the files that stand so many directories below one. It returns false to stop.
// within selects the directories directly below the first one.
func (r *View) walkUsage(dir usageFile, depth int, within func(string) bool, yield func(usageFile, error) bool) bool {
	if !dir.entry.IsDir() {
		return true
	}
	entries, err := r.objects.Entries(dir.entry.ID)
	if err != nil {
		return yield(dir, fmt.Errorf("read %s: %w", dir.path, err))
	}
	for _, e := range entries {
		below := usageFile{object.Join(dir.path, object.PathName(e.Name)), e}
		switch {
		case depth == 2 && !within(e.Name):
		case depth == 0 && !yield(below, nil):
			return false
		case depth > 0 && !r.walkUsage(below, depth-1, within, yield):
			return false
		}
	}
	return true
}

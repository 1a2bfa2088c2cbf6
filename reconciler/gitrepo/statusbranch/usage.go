package statusbranch

import (
	"context"
	"errors"
	"iter"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler/gitrepo/object"
	"berth/schema/usage"
)

// usageDir has the records of usage at usage/<day>/<tenant>/<hash>.jsonl; see usage.Files.
const usageDir = "usage"

// Usage reads the records of usage at a commit of berth/status, of jobs that ended on the days from
// first to last, both included; "" leaves that end open. A run may come twice, see usage.Files. An
// error names its file and line; the reading continues after an unreadable file or line.
func (r *View) Usage(ctx context.Context, commit, first, last string) iter.Seq2[Logged[usage.Record], error] {
	return func(yield func(Logged[usage.Record], error) bool) {
		stopped := errors.New("the caller stopped")
		visit := func(path string, e object.Entry) error {
			if !e.IsDir() && !r.readUsage(path, e, yield) {
				return stopped
			}
			return nil
		}
		root, err := r.objects.Root(commit)
		var dir plumbing.Hash
		if err == nil {
			dir, err = r.directory(root, usageDir)
		}
		var days []object.Entry
		if err == nil {
			days, err = r.objects.Entries(dir)
		}
		for _, day := range days {
			if err == nil && day.Name >= first && (last == "" || day.Name <= last) {
				err = r.objects.Walk(ctx, object.Join(usageDir, object.PathName(day.Name)), day, 2, visit)
			}
		}
		if err != nil && !errors.Is(err, stopped) {
			yield(Logged[usage.Record]{File: usageDir, Line: 1}, err)
		}
	}
}

// readUsage yields the records of a file. It returns false to stop.
func (r *View) readUsage(path string, e object.Entry, yield func(Logged[usage.Record], error) bool) bool {
	data, warning, err := r.objects.Blob(e, usage.MaxFile+maxLogLine)
	if err == nil && warning != "" {
		err = errors.New(warning)
	}
	if err != nil {
		return yield(Logged[usage.Record]{File: path, Line: 1}, err)
	}
	return readSegment(path, data, false, usage.Decode, yield)
}

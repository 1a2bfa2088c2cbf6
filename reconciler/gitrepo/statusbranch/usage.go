package statusbranch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler/gitrepo/object"
	"berth/schema/usage"
)

// usageDir has the records of usage at usage/<day>/<tenant>/<cluster>.jsonl; see usage.Day. Beside the
// days it has usage.ClosedDir.
const usageDir = "usage"

// Usage reads the records of usage at a commit of berth/status of the days from first to last, both
// included; "" leaves that end open. An error names its file and line; the reading continues after an
// unreadable file or line.
func (r *View) Usage(ctx context.Context, commit, first, last string) iter.Seq2[Logged[usage.Record], error] {
	return func(yield func(Logged[usage.Record], error) bool) {
		err := r.usageDays(commit, first, last, func(_ plumbing.Hash, day object.Entry) error {
			return r.objects.Walk(ctx, object.Join(usageDir, object.PathName(day.Name)), day, 2, func(path string, e object.Entry) error {
				if !e.IsDir() && !r.readUsage(path, e, yield) {
					return errStopped
				}
				return nil
			})
		})
		if err != nil && !errors.Is(err, errStopped) {
			yield(Logged[usage.Record]{File: usageDir, Line: 1}, err)
		}
	}
}

// errStopped means that the caller wants no more.
var errStopped = errors.New("the caller stopped")

// GPUSeconds implements reconciler.MonthReader. Records that cannot be read do not count. A day is read again only when one of its
// files changed.
func (r *View) GPUSeconds(ctx context.Context, commit, month string) (map[string]int64, error) {
	sum, days := map[string]int64{}, map[plumbing.Hash]map[string]int64{}
	err := r.usageDays(commit, month+"-01", month+"-31", func(_ plumbing.Hash, day object.Entry) error {
		of := r.gpuSecondsOf(day.ID)
		if of == nil {
			of = map[string]int64{}
			err := r.objects.Walk(ctx, object.Join(usageDir, object.PathName(day.Name)), day, 2, func(path string, e object.Entry) error {
				if !e.IsDir() {
					r.readUsage(path, e, func(l Logged[usage.Record], err error) bool {
						if err == nil {
							of[l.Value.ProjectID] += l.Value.GPUSeconds
						}
						return true
					})
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		days[day.ID] = of
		for project, seconds := range of {
			sum[project] += seconds
		}
		return nil
	})
	if err == nil {
		r.mu.Lock()
		r.gpuSeconds = days
		r.mu.Unlock()
	}
	return sum, err
}

// gpuSecondsOf returns the GPU seconds of a day that the last call read, by project; nil: it did not.
func (r *View) gpuSecondsOf(day plumbing.Hash) map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gpuSeconds[day]
}

// UsageOf implements reconciler.UsageReader.
func (r *View) UsageOf(ctx context.Context, commit, tenant, cluster, first string) iter.Seq2[usage.Record, error] {
	return func(yield func(usage.Record, error) bool) {
		line := func(l Logged[usage.Record], err error) bool {
			if err != nil {
				err = fmt.Errorf("%s:%d: %w", l.File, l.Line, err)
			}
			return yield(l.Value, err)
		}
		err := r.usageDays(commit, first, "", func(root plumbing.Hash, day object.Entry) error {
			return r.readDay(ctx, root, usage.Day{Tenant: tenant, Cluster: cluster, Date: day.Name}, line)
		})
		if err != nil && !errors.Is(err, errStopped) {
			yield(usage.Record{}, err)
		}
	}
}

// readDay yields the records of all files of a day. It returns errStopped to stop.
func (r *View) readDay(ctx context.Context, root plumbing.Hash, d usage.Day, yield func(Logged[usage.Record], error) bool) error {
	for file := 1; ; file++ {
		path := d.Path(file)
		e, err := r.objects.Lookup(root, path)
		if err = cmp.Or(ctx.Err(), err); err != nil || e.ID.IsZero() {
			return err
		}
		if !r.readUsage(path, e, yield) {
			return errStopped
		}
	}
}

// usageDays visits the directories of days from first to last, in order. It stops at an error.
func (r *View) usageDays(commit, first, last string, visit func(root plumbing.Hash, day object.Entry) error) error {
	root, days, err := r.below(commit, usageDir)
	if err != nil {
		return err
	}
	for _, day := range days {
		if _, e := time.Parse(time.DateOnly, day.Name); e != nil || day.Name < first || last != "" && day.Name > last {
			continue
		}
		if err := visit(root, day); err != nil {
			return err
		}
	}
	return nil
}

// below returns the root of a commit, and the entries of a directory in it.
func (r *View) below(commit, path string) (root plumbing.Hash, entries []object.Entry, err error) {
	if root, err = r.objects.Root(commit); err != nil {
		return root, nil, err
	}
	dir, err := r.directory(root, path)
	if err != nil {
		return root, nil, err
	}
	entries, err = r.objects.Entries(dir)
	return root, entries, err
}

// ClosedUsage implements reconciler.UsageReader.
func (r *View) ClosedUsage(ctx context.Context, commit string) (map[string]string, error) {
	last := map[string]string{}
	err := r.closings(ctx, commit, func(cluster, day string, _ object.Entry) error {
		last[cluster] = max(last[cluster], day)
		return nil
	})
	return last, err
}

// Closings returns the closings at a commit of berth/status of the days from first to last, as Usage.
func (r *View) Closings(ctx context.Context, commit, first, last string) (all []usage.Closing, err error) {
	err = r.closings(ctx, commit, func(cluster, day string, e object.Entry) error {
		if day < first || last != "" && day > last {
			return nil
		}
		data, warning, err := r.objects.Blob(e, maxLogLine)
		if err == nil && warning != "" {
			err = errors.New(warning)
		}
		if err != nil {
			return err
		}
		c, err := usage.DecodeClosing(data)
		if err != nil {
			return fmt.Errorf("%s/%s/%s: %w", usage.ClosedDir, cluster, e.Name, err)
		}
		all = append(all, c)
		return nil
	})
	return all, err
}

// closings visits the files of closings, those of a cluster in the order of their days.
func (r *View) closings(ctx context.Context, commit string, visit func(cluster, day string, e object.Entry) error) error {
	_, clusters, err := r.below(commit, usage.ClosedDir)
	if err != nil {
		return err
	}
	for _, cluster := range clusters {
		if !cluster.IsDir() {
			continue
		}
		days, err := r.objects.Entries(cluster.ID)
		if err != nil {
			return err
		}
		for _, e := range days {
			day, isDay := strings.CutSuffix(e.Name, ".json")
			if !isDay {
				continue
			}
			if err := cmp.Or(ctx.Err(), visit(cluster.Name, day, e)); err != nil {
				return err
			}
		}
	}
	return nil
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

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

// usageDir has the records of usage at usage/<day>/<tenant>/<hash>.jsonl; see usage.Files. Beside the
// days it has usage.ClosedDir.
const usageDir = "usage"

// Usage reads the records of usage at a commit of berth/status of the days from first to last, both
// included; "" leaves that end open. A part may come twice, see usage.Files. An
// error names its file and line; the reading continues after an unreadable file or line.
func (r *View) Usage(ctx context.Context, commit, first, last string) iter.Seq2[Logged[usage.Record], error] {
	return r.usageOf(ctx, commit, "", first, last)
}

// usageOf is Usage of the records that are billed to a tenant; "": to everybody.
func (r *View) usageOf(ctx context.Context, commit, tenant, first, last string) iter.Seq2[Logged[usage.Record], error] {
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
			if _, e := time.Parse(time.DateOnly, day.Name); e != nil {
				continue
			}
			if err == nil && day.Name >= first && (last == "" || day.Name <= last) {
				path, depth := object.Join(usageDir, object.PathName(day.Name)), 2
				if tenant != "" {
					path, depth = object.Join(path, tenant), 1
					if day, err = r.objects.Lookup(root, path); err != nil || day.ID.IsZero() {
						continue
					}
				}
				err = r.objects.Walk(ctx, path, day, depth, visit)
			}
		}
		if err != nil && !errors.Is(err, stopped) {
			yield(Logged[usage.Record]{File: usageDir, Line: 1}, err)
		}
	}
}

// UsageAdded yields the records of files that a commit of berth/status has and an older one, since, does
// not have; since "" is an empty branch. Each part comes once for each of its corrections, and not if
// since has it in another file.
func (r *View) UsageAdded(ctx context.Context, commit, since string) iter.Seq2[Logged[usage.Record], error] {
	type version struct {
		usage.Part
		correction int
	}
	return func(yield func(Logged[usage.Record], error) bool) {
		old, err := r.objects.Root(since)
		if err != nil {
			yield(Logged[usage.Record]{File: usageDir, Line: 1}, err)
			return
		}
		known, day := map[version]bool{}, ""
		for l, err := range r.Usage(ctx, commit, "", "") {
			if err == nil {
				if of := l.Value.Day(); of != day { // the files of a day come together
					day, known = of, map[version]bool{}
					for o, err := range r.Usage(ctx, since, of, of) {
						if err == nil {
							known[version{o.Value.Part(), o.Value.Correction}] = true
						}
					}
				}
				v := version{l.Value.Part(), l.Value.Correction}
				if known[v] {
					continue
				}
				known[v] = true
			} else if e, missing := r.objects.Lookup(old, l.File); missing == nil && !e.ID.IsZero() {
				continue // damage that the older commit had too
			}
			if !yield(l, err) {
				return
			}
		}
	}
}

// UsageSince implements reconciler.UsageReader.
func (r *View) UsageSince(ctx context.Context, commit, first, tenant string) iter.Seq2[usage.Record, error] {
	return func(yield func(usage.Record, error) bool) {
		for l, err := range r.usageOf(ctx, commit, tenant, first, "") {
			if err != nil {
				err = fmt.Errorf("%s:%d: %w", l.File, l.Line, err)
			}
			if !yield(l.Value, err) {
				return
			}
		}
	}
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
	root, err := r.objects.Root(commit)
	if err != nil {
		return err
	}
	dir, err := r.directory(root, usage.ClosedDir)
	if err != nil {
		return err
	}
	clusters, err := r.objects.Entries(dir)
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
			if day, isDay := strings.CutSuffix(e.Name, ".json"); isDay {
				if err := cmp.Or(ctx.Err(), visit(cluster.Name, day, e)); err != nil {
					return err
				}
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

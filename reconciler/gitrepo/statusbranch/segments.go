package statusbranch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
	"berth/reconciler/plan"
	"berth/schema/audit"
)

// The two logs of berth/status. Each is of segments: files that never change,
// at <log>/<yyyy>/<mm>/<dd>/<hh>/<sequence of the last line>-<epoch>.jsonl. Their
// order is that of their sequences. The directory is only a place: the clock that
// named it may have been wrong.
const (
	eventsDir = "events"
	auditDir  = "audit"
)

const (
	hourFormat = "2006/01/02/15"
	// maxLogLine bounds one line that is read back, in bytes.
	maxLogLine = 1 << 20
	// maxSegment bounds a segment of the audit log, in bytes, but for one of a
	// single line. What is recorded at once beyond that is of several.
	maxSegment = 4 << 20
)

// What AuditTail reads at most, as anybody who can push may have written it.
const (
	// maxTailOpened is how many directories and segments: one record a day makes
	// some 6,000 of 2,000 records.
	maxTailOpened = 10_000
	maxTailLines  = 50_000
	maxTailBytes  = 16 << 20 // of both
	// minTail is how many records are enough where more are more than that, as
	// records are long where paths are.
	minTail = 100
)

// errTooMuch says that a log is not read further.
var errTooMuch = errors.New("there is more in it than is looked at")

// effort is what may still be read of a log; nil: anything.
type effort struct{ opened, bytes int }

// spend takes away what one directory or segment of so many bytes costs, or says that
// there is no more.
func (e *effort) spend(bytes int) error {
	if e == nil {
		return nil
	}
	e.opened, e.bytes = e.opened-1, e.bytes-bytes
	if e.opened < 0 || e.bytes < 0 {
		return errTooMuch
	}
	return nil
}

// segment is how long a segment may be.
func (e *effort) segment() int {
	if e == nil {
		return object.MaxObject
	}
	return maxSegment
}

// Logged is a line of a log and where it stands.
type Logged[T any] struct {
	Value T
	File  string
	Line  int // from 1
}

// LogOrder says how a log is read.
type LogOrder struct {
	NewestFirst bool
	// Stray is told of what stands in the log and is no part of it; it is passed
	// over. Nil: nobody is.
	Stray func(path, why string)

	effort *effort
}

// Events reads the event log of a commit of berth/status, one segment at a
// time. What cannot be read is told as an error with its File and Line, and
// the reading goes on behind it, unless ctx has ended or the repository is
// damaged.
func (r *Branch) Events(ctx context.Context, commit string, o LogOrder) iter.Seq2[Logged[plan.Event], error] {
	return readLog(ctx, r, commit, eventsDir, o, func(line []byte) (e plan.Event, err error) {
		if err = json.Unmarshal(line, &e); err != nil {
			return plan.Event{}, fmt.Errorf("not an event: %s", object.OneLine(err.Error(), object.MaxLine))
		}
		if e.EventID == "" || e.EventType == "" {
			return plan.Event{}, errors.New("not an event: it has no event_id or no event_type")
		}
		return e, nil
	})
}

// What EventsSince reads at most.
const (
	maxEventsOpened = 100_000   // directories and segments
	maxEventsBytes  = 128 << 20 // of both
	// maxEventsOlder is how many older events in a row end it: order is the
	// sequence, and a clock that was behind put some newer ones in an earlier hour.
	maxEventsOlder = 1000
)

// EventsSince reads the event log of a commit of berth/status newest first, as
// reconciler.EventReader has it: the hours since a time, and no more than the
// bounds above, which is logged. A line that cannot be read is passed over.
func (r *Branch) EventsSince(ctx context.Context, commit string, since time.Time) iter.Seq2[plan.Event, error] {
	first := eventsDir + "/" + since.UTC().Add(-time.Hour).Format(hourFormat)
	return func(yield func(plan.Event, error) bool) {
		older := 0
		for l, err := range r.Events(ctx, commit, LogOrder{NewestFirst: true, effort: &effort{maxEventsOpened, maxEventsBytes}}) {
			switch {
			case errors.Is(err, errTooMuch):
				r.Log.Warn("event log is too long; older events are not read", "since", since.UTC())
				return
			case err != nil && l.File == eventsDir:
				yield(plan.Event{}, err)
				return
			case l.File < first:
				if older++; older > maxEventsOlder {
					return
				}
				continue
			case err == nil && !yield(l.Value, nil):
				return
			}
			older = 0
		}
	}
}

// Audit is Events of the audit log. Only records in canonical form are read;
// whether they form a chain is for audit.Verify to say.
func (r *Branch) Audit(ctx context.Context, commit string, o LogOrder) iter.Seq2[Logged[audit.Record], error] {
	return readLog(ctx, r, commit, auditDir, o, func(line []byte) (audit.Record, error) {
		rec, err := audit.Decode(line)
		if err != nil {
			err = errors.New(object.OneLine(err.Error(), object.MaxLine))
		}
		return rec, err
	})
}

// AuditTail reads the end of the audit log, as reconciler.Repo has it, with a
// bounded effort. It goes on to the first directory before the hour before since,
// as far as that effort goes. Where it ends before there is enough, or at a
// directory that cannot be read, the first line says so. An error says nothing of
// the log.
func (r *Branch) AuditTail(ctx context.Context, commit string, since time.Time, least int) ([]audit.Line, error) {
	first := auditDir + "/" + since.UTC().Add(-time.Hour).Format(hourFormat)
	var tail []audit.Line
	for l, err := range r.Audit(ctx, commit, LogOrder{NewestFirst: true, effort: &effort{maxTailOpened, maxTailBytes}}) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		tooMuch := errors.Is(err, errTooMuch)
		if err != nil && l.File == auditDir && !tooMuch && !errors.Is(err, reconciler.ErrUnreadable) {
			return nil, err // it cannot be read, which says nothing of what it holds
		}
		enough := len(tail) >= least && (since.IsZero() || l.File < first) || len(tail) >= maxTailLines
		if enough || tooMuch && len(tail) >= min(least, minTail) {
			break
		}
		tail = append(tail, audit.Line{Record: l.Value, File: l.File, Number: l.Line, Err: err})
	}
	slices.Reverse(tail)
	return tail, nil
}

func readLog[T any](ctx context.Context, r *Branch, commit, dir string, o LogOrder, decode func([]byte) (T, error)) iter.Seq2[Logged[T], error] {
	if o.Stray == nil {
		o.Stray = func(string, string) {}
	}
	return func(yield func(Logged[T], error) bool) {
		fail := func(err error) { yield(Logged[T]{File: dir}, fmt.Errorf("read %s: %w", dir, err)) }
		root, err := r.Root(commit)
		if err != nil {
			fail(err)
			return
		}
		if root.IsZero() {
			return
		}
		e, err := r.Lookup(root, dir)
		if err != nil {
			fail(err)
			return
		}
		hours, inOrder := r.hours(ctx, dir, e, 4, o), oldestFirst
		if o.NewestFirst {
			inOrder = newestFirst(r.lastSequence(root, dir))
		}
		load := func(seg segment) (loaded, error) { return r.load(seg, o) }
		for seg, err := range inOrder(hours, load) {
			if err != nil {
				fail(err)
				return
			}
			if seg.warning != "" {
				if !yield(Logged[T]{File: seg.path, Line: 1}, errors.New(seg.warning)) {
					return
				}
				continue
			}
			if !readSegment(seg.path, seg.data, o.NewestFirst, decode, yield) {
				return
			}
		}
	}
}

// readSegment yields the lines of a segment, and says whether to go on.
func readSegment[T any](path string, data []byte, newestFirst bool, decode func([]byte) (T, error), yield func(Logged[T], error) bool) bool {
	number, step := 1, 1
	if newestFirst {
		number, step = bytes.Count(data, []byte("\n")), -1
		if len(data) > 0 && data[len(data)-1] != '\n' {
			number++
		}
	}
	for ; len(data) > 0; number += step {
		var text []byte
		if newestFirst {
			start := bytes.LastIndexByte(data[:len(data)-1], '\n') + 1
			data, text = data[:start], data[start:]
		} else {
			end := bytes.IndexByte(data, '\n') + 1
			if end == 0 {
				end = len(data)
			}
			text, data = data[:end], data[end:]
		}
		at := Logged[T]{File: path, Line: number}
		line, whole := bytes.CutSuffix(text, []byte("\n"))
		var err error
		switch {
		case !whole:
			err = errors.New("the line is cut off")
		case len(line) > maxLogLine:
			err = fmt.Errorf("the line is longer than %d bytes", maxLogLine)
		default:
			at.Value, err = decode(line)
		}
		if !yield(at, err) {
			return false
		}
	}
	return true
}

// segment is one file of a log.
type segment struct {
	path            string
	entry           object.Entry
	sequence, epoch uint64
}

// compare orders segments as they were written.
func (s segment) compare(other segment) int {
	return cmp.Or(cmp.Compare(s.sequence, other.sequence), cmp.Compare(s.epoch, other.epoch))
}

// loaded is a segment and what stands in it, or why that is not read.
type loaded struct {
	segment
	data    []byte
	warning string
}

// first returns the lowest sequence that the lines of a segment can have.
func (l loaded) first() uint64 {
	lines := max(1, uint64(bytes.Count(l.data, []byte("\n"))))
	return l.sequence - min(l.sequence, lines-1)
}

// load reads a segment within the effort of o.
func (r *Branch) load(seg segment, o LogOrder) (loaded, error) {
	data, warning, err := r.Blob(seg.entry, o.effort.segment())
	size := len(data)
	if warning != "" { // to find that out may have cost as much as it may
		size = o.effort.segment()
	}
	if err == nil {
		err = o.effort.spend(size)
	}
	if err != nil {
		return loaded{}, fmt.Errorf("%s: %w", seg.path, err)
	}
	return loaded{seg, data, warning}, nil
}

// lastSequence returns the sequence of a log's last line by revision.yaml, or the
// largest there is if that does not say.
func (r *Branch) lastSequence(root plumbing.Hash, dir string) uint64 {
	rev, warning, err := r.readRevision(root)
	last := rev.Sequence
	if dir == auditDir {
		last = rev.AuditSequence
	}
	if err != nil || warning != "" || last == 0 {
		return math.MaxUint64
	}
	return last
}

// oldestFirst loads the segments of all hours in the order they were written. It
// reads every directory before the first segment.
func oldestFirst(hours iter.Seq2[[]segment, error], load func(segment) (loaded, error)) iter.Seq2[loaded, error] {
	return func(yield func(loaded, error) bool) {
		var all []segment
		var broken error
		for hour, err := range hours {
			if err != nil {
				broken = err
				break
			}
			all = append(all, hour...)
		}
		slices.SortFunc(all, segment.compare)
		for _, seg := range all {
			if l, err := load(seg); !yield(l, err) || err != nil {
				return
			}
		}
		if broken != nil {
			yield(loaded{}, broken)
		}
	}
}

// newestFirst returns the reverse of oldestFirst for a log whose last line has the
// sequence last. It reads the directories one by one, the latest hour first, and
// puts segments that are not next aside: those of a clock that was ahead. So its
// cost follows what is read, unless the segment that is next is not there.
func newestFirst(last uint64) func(iter.Seq2[[]segment, error], func(segment) (loaded, error)) iter.Seq2[loaded, error] {
	return func(hours iter.Seq2[[]segment, error], load func(segment) (loaded, error)) iter.Seq2[loaded, error] {
		return func(yield func(loaded, error) bool) {
			following, stop := iter.Pull2(hours)
			defer stop()
			var aside []segment // in the order they were written
			more, next := true, last
			for {
				for more && (len(aside) == 0 || aside[len(aside)-1].sequence < next) {
					hour, err, ok := following()
					if more = ok; err != nil {
						yield(loaded{}, err)
						return
					}
					aside = append(aside, hour...)
					slices.SortFunc(aside, segment.compare)
				}
				if len(aside) == 0 {
					return
				}
				l, err := load(aside[len(aside)-1])
				if !yield(l, err) || err != nil {
					return
				}
				aside = aside[:len(aside)-1]
				next = min(next, l.first()-min(l.first(), 1))
			}
		}
	}
}

// hours walks the directories below dir that hold segments, which are depth levels
// down, in the order of their dates or the reverse of it. It yields what stands in
// each, in no order.
func (r *Branch) hours(ctx context.Context, path string, dir object.Entry, depth int, o LogOrder) iter.Seq2[[]segment, error] {
	return func(yield func([]segment, error) bool) {
		if dir.ID.IsZero() {
			return
		}
		if !dir.IsDir() {
			o.Stray(path, "a directory should be here")
			return
		}
		if err := ctx.Err(); err != nil {
			yield(nil, err)
			return
		}
		below, err := r.logEntries(path, dir.ID, depth, o)
		if err != nil {
			yield(nil, fmt.Errorf("%s: %w", path, err))
			return
		}
		if depth == 0 {
			yield(below, nil)
			return
		}
		slices.SortFunc(below, segment.compare)
		if o.NewestFirst {
			slices.Reverse(below)
		}
		for _, s := range below {
			for hour, err := range r.hours(ctx, s.path, s.entry, depth-1, o) {
				if !yield(hour, err) {
					return
				}
			}
		}
	}
}

// logEntries are the entries of a log's directory that have a place there:
// segments, or directories, whose number is then their sequence.
func (r *Branch) logEntries(path string, dir plumbing.Hash, depth int, o LogOrder) ([]segment, error) {
	entries, err := r.Entries(dir)
	if err == nil {
		size := 0
		for _, e := range entries {
			size += len(e.Name) + len(e.ID)
		}
		err = o.effort.spend(size)
	}
	if err != nil {
		return nil, err
	}
	var below []segment
	for _, e := range entries {
		s := segment{path: object.Join(path, object.PathName(e.Name)), entry: e}
		var ok bool
		if depth == 0 {
			s.sequence, s.epoch, ok = segmentName(e.Name)
		} else {
			s.sequence, ok = logNumber(e.Name, [...]int{2, 2, 2, 4}[depth-1])
			ok = ok && isDate(s.path, depth)
		}
		if !ok || e.IsDir() != (depth > 0) {
			o.Stray(s.path, "no place for a segment")
			continue
		}
		below = append(below, s)
	}
	return below, nil
}

// isDate says whether a directory of a log is a year, month, day or hour that there
// is; others, of which there are many, hold nothing of Berth's.
func isDate(path string, depth int) bool {
	_, date, _ := strings.Cut(path, "/")
	_, err := time.Parse([...]string{hourFormat, "2006/01/02", "2006/01", "2006"}[depth-1], date)
	return err == nil
}

// segmentName reads "000000000012-1700000000.jsonl".
func segmentName(name string) (sequence, epoch uint64, ok bool) {
	name, ok = strings.CutSuffix(name, ".jsonl")
	first, second, dash := strings.Cut(name, "-")
	if !ok || !dash {
		return 0, 0, false
	}
	sequence, ok1 := logNumber(first, 0)
	epoch, ok2 := logNumber(second, 0)
	return sequence, epoch, ok1 && ok2
}

// logNumber reads decimal digits: as many as given, or any number of them for 0.
func logNumber(s string, digits int) (uint64, bool) {
	if digits != 0 && len(s) != digits || strings.ContainsFunc(s, func(c rune) bool { return c < '0' || c > '9' }) {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

// segments writes what the batch adds to the two logs.
func (w *statusWriter) segments(b reconciler.StatusBatch) error {
	if n := len(b.Events); n > 0 {
		var lines bytes.Buffer
		for _, e := range b.Events {
			line, err := json.Marshal(e)
			if err != nil {
				return fmt.Errorf("event %s: %w", e.EventID, err)
			}
			lines.Write(line)
			lines.WriteByte('\n')
		}
		if err := w.segment(eventsDir, b.Events[n-1].OccurredAt, b.Revision.Sequence, b.Revision.Epoch, lines.Bytes()); err != nil {
			return err
		}
	}
	if n := len(b.Audit); n > 0 {
		// All stand in the last one's hour, as if they were one segment.
		at, lines := b.Audit[n-1].OccurredAt, []byte(nil)
		for i, r := range b.Audit {
			line := append(audit.Encode(r), '\n')
			if len(lines) > 0 && len(lines)+len(line) > maxSegment {
				if err := w.segment(auditDir, at, b.Audit[i-1].Sequence, b.Revision.Epoch, lines); err != nil {
					return err
				}
				lines = nil
			}
			lines = append(lines, line...)
		}
		return w.segment(auditDir, at, b.Revision.AuditSequence, b.Revision.Epoch, lines)
	}
	return nil
}

// segment writes one file that never changes. Its name is the number of its last
// line, and its place is the hour of that line. So writing it again gives the same
// file.
func (w *statusWriter) segment(dir string, at time.Time, sequence, epoch uint64, data []byte) error {
	hour := at.UTC().Format(hourFormat)
	path := fmt.Sprintf("%s/%s/%012d-%d.jsonl", dir, hour, sequence, epoch)
	there, err := w.at(path)
	if err != nil {
		return err
	}
	if !there.ID.IsZero() && there.ID != object.Hash(plumbing.BlobObject, data) {
		return fmt.Errorf("%s holds something else: the sequence number was used before: %w", path, reconciler.ErrConflict)
	}
	return w.put(path, data)
}

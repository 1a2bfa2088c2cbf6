package gitrepo

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
)

// The two logs of berth/status. Each is of segments: files that never change,
// at <log>/<yyyy>/<mm>/<dd>/<hh>/<sequence of the last line>-<epoch>.jsonl.
const (
	eventsDir = "events"
	auditDir  = "audit"
)

const (
	hourFormat = "2006/01/02/15"
	// maxAhead is how far a log's last hour may be past a new segment's own for
	// the segment to be put there: clocks of two daemons differ by less, and a
	// made-up hour must not draw all that follows to it.
	maxAhead = 24 * time.Hour
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
		return maxObject
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
func (r *Repo) Events(ctx context.Context, commit string, o LogOrder) iter.Seq2[Logged[plan.Event], error] {
	return readLog(ctx, r, commit, eventsDir, o, func(line []byte) (e plan.Event, err error) {
		if err = json.Unmarshal(line, &e); err != nil {
			return plan.Event{}, fmt.Errorf("not an event: %s", oneLine(err.Error(), maxLine))
		}
		if e.EventID == "" || e.EventType == "" {
			return plan.Event{}, errors.New("not an event: it has no event_id or no event_type")
		}
		return e, nil
	})
}

// Audit is Events of the audit log. Only records in canonical form are read;
// whether they form a chain is for audit.Verify to say.
func (r *Repo) Audit(ctx context.Context, commit string, o LogOrder) iter.Seq2[Logged[audit.Record], error] {
	return readLog(ctx, r, commit, auditDir, o, func(line []byte) (audit.Record, error) {
		rec, err := audit.Decode(line)
		if err != nil {
			err = errors.New(oneLine(err.Error(), maxLine))
		}
		return rec, err
	})
}

// AuditTail reads the end of the audit log, as reconciler.Repo has it, with a
// bounded effort. Segments stand by the hour; those of the hour before since are
// still read, as far as that goes. Where it ends before there is enough, or at a
// directory that cannot be read, the first line says so. An error says nothing of
// the log.
func (r *Repo) AuditTail(ctx context.Context, commit string, since time.Time, least int) ([]audit.Line, error) {
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

func readLog[T any](ctx context.Context, r *Repo, commit, dir string, o LogOrder, decode func([]byte) (T, error)) iter.Seq2[Logged[T], error] {
	if o.Stray == nil {
		o.Stray = func(string, string) {}
	}
	return func(yield func(Logged[T], error) bool) {
		fail := func(err error) { yield(Logged[T]{File: dir}, fmt.Errorf("read %s: %w", dir, err)) }
		root, err := r.root(commit)
		if err != nil {
			fail(err)
			return
		}
		if root.IsZero() {
			return
		}
		e, err := r.lookup(root, dir)
		if err != nil {
			fail(err)
			return
		}
		for seg, err := range r.segmentsBelow(ctx, dir, e, 4, o) {
			if err != nil {
				fail(err)
				return
			}
			data, warning, err := r.blob(seg.entry, o.effort.segment())
			size := len(data)
			if warning != "" { // to find that out may have cost as much as it may
				size = o.effort.segment()
			}
			if err == nil {
				err = o.effort.spend(size)
			}
			if err != nil {
				fail(fmt.Errorf("%s: %w", seg.path, err))
				return
			}
			if warning != "" {
				if !yield(Logged[T]{File: seg.path, Line: 1}, errors.New(warning)) {
					return
				}
				continue
			}
			if !readSegment(seg.path, data, o.NewestFirst, decode, yield) {
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
	entry           entry
	sequence, epoch uint64
}

// segmentsBelow walks the segments in a directory that has depth levels of
// directories below it, in the order they were written or the reverse of it.
// Writing keeps the order of hours that of sequences.
func (r *Repo) segmentsBelow(ctx context.Context, path string, dir entry, depth int, o LogOrder) iter.Seq2[segment, error] {
	return func(yield func(segment, error) bool) {
		if dir.id.IsZero() {
			return
		}
		if !dir.dir() {
			o.Stray(path, "a directory should be here")
			return
		}
		if err := ctx.Err(); err != nil {
			yield(segment{}, err)
			return
		}
		entries, err := r.listed(dir.id)
		if err == nil {
			size := 0
			for _, e := range entries {
				size += len(e.name) + len(e.id)
			}
			err = o.effort.spend(size)
		}
		if err != nil {
			yield(segment{}, fmt.Errorf("%s: %w", path, err))
			return
		}
		var below []segment
		for _, e := range entries {
			s := segment{path: join(path, pathName(e.name)), entry: e}
			var ok bool
			if depth == 0 {
				s.sequence, s.epoch, ok = segmentName(e.name)
			} else {
				s.sequence, ok = logNumber(e.name, [...]int{2, 2, 2, 4}[depth-1])
				ok = ok && isDate(s.path, depth)
			}
			if !ok || e.dir() != (depth > 0) {
				o.Stray(s.path, "no place for a segment")
				continue
			}
			below = append(below, s)
		}
		slices.SortFunc(below, func(a, b segment) int {
			if o.NewestFirst {
				a, b = b, a
			}
			return cmp.Or(cmp.Compare(a.sequence, b.sequence), cmp.Compare(a.epoch, b.epoch))
		})
		for _, s := range below {
			if depth == 0 {
				if !yield(s, nil) {
					return
				}
				continue
			}
			for seg, err := range r.segmentsBelow(ctx, s.path, s.entry, depth-1, o) {
				if !yield(seg, err) {
					return
				}
			}
		}
	}
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
		// All are of the last one's hour, so that it is as if they were one segment.
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

// segment writes one file that never changes. Its name is the number of its
// last line; its place comes from that line's time, or is the log's last hour
// if that is later, as where a new leader's clock is behind. So writing it
// again gives the same file, and the order of hours is that of sequences.
func (w *statusWriter) segment(dir string, at time.Time, sequence, epoch uint64, data []byte) error {
	hour := at.UTC().Format(hourFormat)
	last, err := w.lastHour(dir)
	if err != nil {
		return err
	}
	if last > hour {
		if t, err := time.Parse(hourFormat, last); err == nil && t.Sub(at) < maxAhead {
			hour = last
		}
	}
	path := fmt.Sprintf("%s/%s/%012d-%d.jsonl", dir, hour, sequence, epoch)
	there, err := w.at(path)
	if err != nil {
		return err
	}
	if !there.id.IsZero() && there.id != hashObject(plumbing.BlobObject, data) {
		return fmt.Errorf("%s holds something else: the sequence number was used before: %w", path, reconciler.ErrConflict)
	}
	return w.put(path, data)
}

// lastHour is the latest directory of a log that may hold segments, as
// "2006/01/02/15", or "" if there is none.
func (w *statusWriter) lastHour(dir string) (string, error) {
	at, err := w.at(dir)
	if err != nil || !at.dir() {
		return "", err
	}
	var path []string
	for _, digits := range []int{4, 2, 2, 2} {
		entries, err := w.repo.tree(at.id)
		if errors.Is(err, reconciler.ErrUnreadable) {
			return "", nil // somebody else's: it keeps nothing from being written elsewhere
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", dir, err)
		}
		at = entry{}
		for _, e := range entries {
			if _, ok := logNumber(e.name, digits); ok && e.dir() && e.name > at.name {
				at = e
			}
		}
		if at.name == "" {
			return "", nil
		}
		path = append(path, at.name)
	}
	return strings.Join(path, "/"), nil
}

// blob reads a plain file of at most limit bytes, or says why it is none. An
// error is damage to the mirror.
func (r *Repo) blob(e entry, limit int) (data []byte, warning string, err error) {
	if e.mode != schema.ModePlain {
		return nil, "not a plain file", nil
	}
	kind, data, more, err := r.read(e.id, limit)
	switch {
	case err != nil && more:
		return nil, fmt.Sprintf("larger than %d bytes", limit), nil
	case err != nil:
		r.damaged("read status", err)
		return nil, "", err
	case kind != plumbing.BlobObject:
		return nil, "not a file", nil
	case more:
		return nil, fmt.Sprintf("larger than %d bytes", limit), nil
	}
	return data, "", nil
}

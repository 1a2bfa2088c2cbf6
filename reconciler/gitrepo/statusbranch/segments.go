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
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/usage"
)

// The two logs of berth/status. A log consists of segments: immutable files at
// <log>/<yyyy>/<mm>/<dd>/<hh>/<sequence of the last line>-<epoch>.jsonl. The
// sequence gives the order of segments. The directory does not, because the clock
// may have been wrong.
const (
	eventsDir = "events"
	auditDir  = "audit"
)

const (
	hourFormat = "2006/01/02/15"
	// maxLogLine bounds one line in bytes.
	maxLogLine = 1 << 20
	// maxSegment bounds a segment of the audit log in bytes. A longer batch is
	// split. Only a segment with a single line may be larger.
	maxSegment = 4 << 20
)

// Bounds for AuditTail. Any user with push permission can write the log.
const (
	// maxTailOpened bounds directories and segments: with one record a day, 2,000
	// records take some 6,000.
	maxTailOpened = 10_000
	maxTailLines  = 50_000
	maxTailBytes  = 16 << 20 // bytes of directories and segments
	// minTail is the number of records that suffice when the effort is used up,
	// because records with long paths are long.
	minTail = 100
)

// errTooMuch means that reading stopped at a bound.
var errTooMuch = errors.New("the log is larger than the read limit")

// effort is the remaining budget for reading a log; nil: unlimited.
type effort struct {
	opened, bytes int
	whole         bool // segments of any size are read
}

// spend subtracts the cost of one directory or segment. It returns errTooMuch if
// the budget is exceeded.
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

// segment returns the maximum size of a segment in bytes.
func (e *effort) segment() int {
	if e == nil || e.whole {
		return object.MaxObject
	}
	return maxSegment
}

// Logged is a line of a log with its file and line number.
type Logged[T any] struct {
	Value T
	File  string
	Line  int // starts at 1
}

// LogOrder controls how a log is read.
type LogOrder struct {
	NewestFirst bool
	// Stray is called for each entry that is not part of the log; the reader skips
	// it. May be nil.
	Stray func(path, why string)

	effort *effort
}

// Events reads the event log of a commit of berth/status, one segment at a time.
// An unreadable line yields an error with its File and Line, and reading
// continues. It stops if ctx ends or the repository is damaged.
func (r *View) Events(ctx context.Context, commit string, o LogOrder) iter.Seq2[Logged[plan.Event], error] {
	return readLog(ctx, r, commit, eventsDir, o, decodeEvent)
}

// decodeEvent decodes a line of the event log.
func decodeEvent(line []byte) (e plan.Event, err error) {
	if err = json.Unmarshal(line, &e); err != nil {
		return plan.Event{}, fmt.Errorf("not an event: %s", object.OneLine(err.Error(), object.MaxLine))
	}
	if e.EventID == "" || e.EventType == "" {
		return plan.Event{}, errors.New("not an event: it has no event_id or no event_type")
	}
	return e, nil
}

// Bounds for EventsSince.
const (
	maxEventsOpened = 100_000   // directories and segments
	maxEventsBytes  = 128 << 20 // bytes of directories and segments
	// maxEventsOlder older events in a row end the reading. The order is the
	// sequence, and a slow clock may have put newer events in an earlier hour.
	maxEventsOlder = 1000
)

// EventsSince reads the event log of a commit of berth/status newest first; see
// reconciler.EventReader. It reads the hours since the given time. It logs a
// warning if it stops at a bound, and skips unreadable lines.
func (r *View) EventsSince(ctx context.Context, commit string, since time.Time) iter.Seq2[plan.Event, error] {
	first := eventsDir + "/" + since.UTC().Add(-time.Hour).Format(hourFormat)
	return func(yield func(plan.Event, error) bool) {
		older := 0
		for l, err := range r.Events(ctx, commit, LogOrder{NewestFirst: true, effort: &effort{opened: maxEventsOpened, bytes: maxEventsBytes}}) {
			switch {
			case errors.Is(err, errTooMuch):
				r.objects.Log.Warn("event log is too long; older events are not read", "since", since.UTC())
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

// Audit is Events for the audit log. It reads only records in canonical form;
// audit.Verify checks the chain.
func (r *View) Audit(ctx context.Context, commit string, o LogOrder) iter.Seq2[Logged[audit.Record], error] {
	return readLog(ctx, r, commit, auditDir, o, func(line []byte) (audit.Record, error) {
		rec, err := audit.Decode(line)
		if err != nil {
			err = errors.New(object.OneLine(err.Error(), object.MaxLine))
		}
		return rec, err
	})
}

// AuditTail reads the end of the audit log with a bounded effort; see
// reconciler.Repo. It reads back to the first directory before the hour before
// since. If it stops earlier or at an unreadable directory, the first line holds
// the error. A returned error is a read failure and proves nothing about the log.
func (r *View) AuditTail(ctx context.Context, commit string, since time.Time, least int) ([]audit.Line, error) {
	first := auditDir + "/" + since.UTC().Add(-time.Hour).Format(hourFormat)
	var tail []audit.Line
	for l, err := range r.Audit(ctx, commit, LogOrder{NewestFirst: true, effort: &effort{opened: maxTailOpened, bytes: maxTailBytes}}) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		tooMuch := errors.Is(err, errTooMuch)
		if err != nil && l.File == auditDir && !tooMuch && !errors.Is(err, reconciler.ErrUnreadable) {
			return nil, err // a read failure, not a fault of the log
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

func readLog[T any](
	ctx context.Context, r *View, commit, dir string, o LogOrder, decode func([]byte) (T, error),
) iter.Seq2[Logged[T], error] {
	return func(yield func(Logged[T], error) bool) {
		fail := func(err error) { yield(Logged[T]{File: dir}, fmt.Errorf("read %s: %w", dir, err)) }
		l, err := r.openLog(commit, dir, o)
		if err != nil {
			fail(err)
			return
		}
		for seg, err := range l.segments(ctx) {
			switch {
			case err != nil:
				fail(err)
				return
			case seg.warning != "":
				if !yield(Logged[T]{File: seg.path, Line: 1}, errors.New(seg.warning)) {
					return
				}
			case !readSegment(seg.path, seg.data, o.NewestFirst, decode, yield):
				return
			}
		}
	}
}

// logReading reads the segments of a log at a commit.
type logReading struct {
	view  *View
	path  string
	dir   object.Entry // zero: there is no log
	last  uint64       // sequence of the last line; the largest integer if it is unknown
	order LogOrder
}

func (r *View) openLog(commit, dir string, o LogOrder) (*logReading, error) {
	if o.Stray == nil {
		o.Stray = func(string, string) {}
	}
	l := &logReading{view: r, path: dir, order: o}
	root, err := r.objects.Root(commit)
	if err != nil || root.IsZero() {
		return l, err
	}
	if o.NewestFirst {
		l.last = r.lastSequence(root, dir)
	}
	l.dir, err = r.objects.Lookup(root, dir)
	return l, err
}

// segments loads the segments of all hours in the order of reading.
func (l *logReading) segments(ctx context.Context) iter.Seq2[loaded, error] {
	hours := func(yield func([]segment, error) bool) { l.hours(ctx, l.path, l.dir, 4, yield) }
	return func(yield func(loaded, error) bool) {
		if l.order.NewestFirst {
			l.newestFirst(hours, yield)
		} else {
			l.oldestFirst(ctx, hours, yield)
		}
	}
}

// readSegment yields the lines of a segment. It returns false to stop.
func readSegment[T any](
	path string, data []byte, newestFirst bool, decode func([]byte) (T, error), yield func(Logged[T], error) bool,
) bool {
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

// compare orders segments in the order of writing.
func (s segment) compare(other segment) int {
	return cmp.Or(cmp.Compare(s.sequence, other.sequence), cmp.Compare(s.epoch, other.epoch))
}

// loaded is a segment with its content, or with a warning if it is unreadable.
type loaded struct {
	segment
	data    []byte
	warning string
}

// first returns the lowest possible sequence of the lines in a segment.
func (l loaded) first() uint64 {
	lines := max(1, uint64(bytes.Count(l.data, []byte("\n"))))
	return l.sequence - min(l.sequence, lines-1)
}

// load reads a segment within the effort of the reading.
func (l *logReading) load(seg segment) (loaded, error) {
	data, warning, err := l.view.objects.Blob(seg.entry, l.order.effort.segment())
	size := len(data)
	if warning != "" { // a rejected segment may have cost the maximum
		size = l.order.effort.segment()
	}
	if err == nil {
		err = l.order.effort.spend(size)
	}
	if err != nil {
		return loaded{}, fmt.Errorf("%s: %w", seg.path, err)
	}
	return loaded{seg, data, warning}, nil
}

// lastSequence returns the sequence of a log's last line from revision.yaml, or
// the largest integer if it is unknown.
func (r *View) lastSequence(root plumbing.Hash, dir string) uint64 {
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

// oldestFirst has the order of writing. It reads every directory before the first segment.
func (l *logReading) oldestFirst(ctx context.Context, hours iter.Seq2[[]segment, error], yield func(loaded, error) bool) {
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
	for seg, data := range l.view.ahead(ctx, all) {
		s, err := loaded{segment: seg, data: data}, error(nil)
		if data == nil {
			s, err = l.load(seg)
		}
		if !yield(s, err) || err != nil {
			return
		}
	}
	if broken != nil {
		yield(loaded{}, broken)
	}
}

// Limits of one reading ahead in a log: each starts a program of git.
const (
	aheadSegments = 4096
	aheadBytes    = 16 << 20
	fewSegments   = 100 // are not worth it
)

// ahead yields segments with their content, nil if it has not read it. It reads many at once, the next ones while the
// caller works on those before.
func (r *View) ahead(ctx context.Context, all []segment) iter.Seq2[segment, []byte] {
	return func(yield func(segment, []byte) bool) {
		// The end of ctx must not look like the end of the log.
		ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
		parts := make(chan segmentsRead, 1)
		defer func() {
			stop()
			for range parts { // until the reader has ended
			}
		}()
		go r.readParts(ctx, all, parts)
		for part := range parts {
			for _, seg := range part.segments {
				if !yield(seg, part.of(seg)) {
					return
				}
			}
		}
	}
}

// readParts reads segments part by part, and closes parts at the end or when ctx ends.
func (r *View) readParts(ctx context.Context, left []segment, parts chan<- segmentsRead) {
	defer close(parts)
	for len(left) > 0 && ctx.Err() == nil {
		part := r.readPart(ctx, left)
		left = left[len(part.segments):]
		select {
		case parts <- part:
		case <-ctx.Done():
		}
	}
}

// segmentsRead are the next segments of a log, with the content that was read in advance.
type segmentsRead struct {
	segments []segment
	data     map[plumbing.Hash][]byte
}

// of returns the content of a segment; nil: it was not read, or it is not a regular file and must not be.
func (p segmentsRead) of(seg segment) []byte {
	if seg.entry.Mode != schema.ModePlain {
		return nil
	}
	return p.data[seg.entry.ID]
}

// readPart reads the first of some segments. Where Many stops at its limit, the next part begins.
func (r *View) readPart(ctx context.Context, left []segment) segmentsRead {
	part := segmentsRead{segments: left[:min(len(left), aheadSegments)]}
	if len(part.segments) < fewSegments {
		return part
	}
	var ids []plumbing.Hash
	for _, seg := range part.segments {
		if seg.entry.Mode == schema.ModePlain {
			ids = append(ids, seg.entry.ID)
		}
	}
	part.data = r.objects.Many(ctx, ids, aheadBytes)
	missing := slices.IndexFunc(part.segments, func(s segment) bool { return s.entry.Mode == schema.ModePlain && part.of(s) == nil })
	if missing >= fewSegments {
		part.segments = part.segments[:missing]
	}
	return part
}

// newestFirst is the reverse of oldestFirst. It reads the directories one by one, the latest hour first.
// Segments with a later sequence than the next one wait in a buffer; they come
// from a fast clock. The cost follows the segments read, unless the next segment
// is missing.
func (l *logReading) newestFirst(hours iter.Seq2[[]segment, error], yield func(loaded, error) bool) {
	following, stop := iter.Pull2(hours)
	defer stop()
	var aside []segment // in the order of writing
	more, next := true, l.last
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
		s, err := l.load(aside[len(aside)-1])
		if !yield(s, err) || err != nil {
			return
		}
		aside = aside[:len(aside)-1]
		next = min(next, s.first()-min(s.first(), 1))
	}
}

// hours walks the directories with segments, depth levels below dir, in order of
// their dates or the reverse. It yields the segments of each directory in no
// order. It returns false to stop.
func (l *logReading) hours(ctx context.Context, path string, dir object.Entry, depth int, yield func([]segment, error) bool) bool {
	if dir.ID.IsZero() {
		return true
	}
	if !dir.IsDir() {
		l.order.Stray(path, "a directory should be here")
		return true
	}
	if err := ctx.Err(); err != nil {
		return yield(nil, err)
	}
	below, err := l.entries(path, dir.ID, depth)
	if err != nil {
		return yield(nil, fmt.Errorf("%s: %w", path, err))
	}
	if depth == 0 {
		return yield(below, nil)
	}
	slices.SortFunc(below, segment.compare)
	if l.order.NewestFirst {
		slices.Reverse(below)
	}
	for _, s := range below {
		if !l.hours(ctx, s.path, s.entry, depth-1, yield) {
			return false
		}
	}
	return true
}

// entries returns the valid entries of a log's directory. They are segments,
// or directories whose number is used as sequence.
func (l *logReading) entries(path string, dir plumbing.Hash, depth int) ([]segment, error) {
	entries, err := l.view.objects.Entries(dir)
	if err == nil {
		size := 0
		for _, e := range entries {
			size += len(e.Name) + len(e.ID)
		}
		err = l.order.effort.spend(size)
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
			l.order.Stray(s.path, "no place for a segment")
			continue
		}
		below = append(below, s)
	}
	return below, nil
}

// isDate reports whether the path of a directory is a valid date. Berth writes no
// other directories.
func isDate(path string, depth int) bool {
	_, date, _ := strings.Cut(path, "/")
	_, err := time.Parse([...]string{hourFormat, "2006/01/02", "2006/01", "2006"}[depth-1], date)
	return err == nil
}

// segmentName parses "000000000012-1700000000.jsonl".
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

// logNumber parses decimal digits. The number of digits must match, unless it is
// 0.
func logNumber(s string, digits int) (uint64, bool) {
	if digits != 0 && len(s) != digits || strings.ContainsFunc(s, func(c rune) bool { return c < '0' || c > '9' }) {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil
}

// events appends the events of the batch to their log.
func (w *statusWriter) events(b reconciler.StatusBatch) error {
	n := len(b.Events)
	if n == 0 {
		return nil
	}
	var lines bytes.Buffer
	for _, e := range b.Events {
		line, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("event %s: %w", e.EventID, err)
		}
		lines.Write(line)
		lines.WriteByte('\n')
	}
	return w.segment(eventsDir, b.Events[n-1].OccurredAt, b.Revision.Sequence, b.Revision.Epoch, lines.Bytes())
}

// audit appends the audit records of the batch to their log. All segments go to the hour of the last record, as if they
// were one segment.
func (w *statusWriter) audit(b reconciler.StatusBatch) error {
	n := len(b.Audit)
	if n == 0 {
		return nil
	}
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

// usage writes days of usage whole, and closings.
func (w *statusWriter) usage(b reconciler.StatusBatch) error {
	days := map[string]*usage.Day{} // the last one of each
	for i := range b.Usage {
		days[b.Usage[i].Path(1)] = &b.Usage[i]
	}
	for _, d := range days {
		if err := w.usageDay(d); err != nil {
			return err
		}
	}
	for _, c := range b.Closings {
		path, data, err := c.File()
		if err != nil {
			return err
		}
		if err := w.put(path, data); err != nil {
			return err
		}
	}
	return nil
}

// usageDay writes the files of a day, and removes those that it had beyond them.
func (w *statusWriter) usageDay(d *usage.Day) error {
	files, err := d.Files()
	if err != nil {
		return err
	}
	for i, data := range files {
		if err := w.put(d.Path(i+1), data); err != nil {
			return err
		}
	}
	for file := len(files) + 1; ; file++ {
		path := d.Path(file)
		if there, err := w.at(path); err != nil || there.ID.IsZero() {
			return err
		}
		w.over.Remove(path)
	}
}

// segment writes one immutable file. The sequence of its last line gives its
// name, and the hour of that line its directory. So writing it again gives the
// same file.
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

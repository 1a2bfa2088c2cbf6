package statusbranch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/reconciler/gitrepo/object"
	"berth/reconciler/plan"
)

// Bounds of an EventReader.
const (
	maxFollowing = 16_384  // segments that it keeps, of some 150 bytes each
	pageEvents   = 512     // of one page
	pageBytes    = 1 << 20 // of payloads of one page; the last one may exceed it
)

// place is where an event is in the log: the name of its segment and the line there. Line 0 is before the
// first line. Segments are never changed, so a place never changes either.
type place struct {
	sequence, epoch uint64
	line            int
}

// String is a place as clients keep it, such as "12-1700000000000-3".
func (p place) String() string { return fmt.Sprintf("%d-%d-%d", p.sequence, p.epoch, p.line) }

// parsePlace parses the one form that String makes.
func parsePlace(text string) (place, error) {
	parts := strings.Split(text, "-")
	if len(parts) != 3 {
		return place{}, plan.ErrNoPlace
	}
	sequence, ok1 := logNumber(parts[0], 0)
	epoch, ok2 := logNumber(parts[1], 0)
	line, err := strconv.Atoi(parts[2])
	p := place{sequence, epoch, line}
	if !ok1 || !ok2 || err != nil || p.String() != text {
		return place{}, plan.ErrNoPlace
	}
	return p, nil
}

// placeOf returns the place of a line of a segment.
func placeOf(file string, line int) place {
	sequence, epoch, _ := segmentName(path.Base(file))
	return place{sequence, epoch, line}
}

// EventPlace returns the place after which the events since a time follow, and with the zero time that of the
// last event. It returns plan.ErrFarPlace if too much follows. A slow clock may put older events there too.
func (r *View) EventPlace(ctx context.Context, commit string, since time.Time) (string, error) {
	older, before := 0, place{}
	for l, err := range r.Events(ctx, commit, placeOrder()) {
		switch {
		case errors.Is(err, errTooMuch):
			return "", plan.ErrFarPlace
		case err != nil && l.File == eventsDir:
			return "", err
		case err != nil:
			continue
		case since.IsZero():
			return placeOf(l.File, l.Line).String(), nil
		case !l.Value.OccurredAt.Before(since):
			older, before = 0, place{}
			continue
		}
		if before == (place{}) {
			before = placeOf(l.File, l.Line)
		}
		if older++; older > maxEventsOlder {
			break
		}
	}
	return before.String(), nil
}

// EventReader reads the events after a place in the order of writing, page by page. It keeps the segments that follow, so
// that a page costs only what it has. It is not safe for concurrent use.
type EventReader struct {
	view      *View
	following []segment // with lines that were not read, oldest first
	reached   place
}

// EventsAfter returns a reader of the events after a place at a commit. The error is plan.ErrNoPlace or plan.ErrFarPlace, or
// that of reading. It costs the segments after the place.
func (r *View) EventsAfter(ctx context.Context, commit, after string) (*EventReader, error) {
	from, err := parsePlace(after)
	if err != nil {
		return nil, err
	}
	l, err := r.openLog(commit, eventsDir, placeOrder())
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", eventsDir, err)
	}
	all, err := following(l.segments(ctx), from)
	if err != nil {
		return nil, err
	}
	return &EventReader{view: r, following: all, reached: from}, nil
}

// Next returns the next events, and the place that it reached. Unreadable lines are skipped. At the end of what the reader
// keeps it returns none: EventsAfter continues from the place that it reached.
func (e *EventReader) Next(ctx context.Context) (events []plan.PlacedEvent, reached string, err error) {
	page := eventPage{reached: e.reached}
	for len(e.following) > 0 && !page.isFull() {
		if err := ctx.Err(); err != nil {
			return nil, "", err
		}
		s := e.following[0]
		data, warning, err := e.view.objects.Blob(s.entry, object.MaxObject)
		if err != nil {
			return nil, "", fmt.Errorf("read %s: %w", s.path, err)
		}
		if page.add(s, data, warning); !page.isFull() { // else it may have more lines
			e.following = e.following[1:]
		}
	}
	e.reached = page.reached
	return page.events, e.reached.String(), nil
}

// IsEnd reports whether the reader has no more events.
func (e *EventReader) IsEnd() bool { return len(e.following) == 0 }

func placeOrder() LogOrder {
	return LogOrder{NewestFirst: true, effort: &effort{opened: maxEventsOpened, bytes: maxEventsBytes, whole: true}}
}

// following returns the first segments with lines after a place, oldest first, from all segments newest first.
func following(all iter.Seq2[loaded, error], from place) ([]segment, error) {
	var later []segment // newest first
	for s, err := range all {
		if errors.Is(err, errTooMuch) {
			return nil, plan.ErrFarPlace
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", eventsDir, err)
		}
		switch order := cmp.Or(cmp.Compare(s.sequence, from.sequence), cmp.Compare(s.epoch, from.epoch)); {
		case order < 0, order == 0 && from.line > linesIn(s.data):
			return nil, plan.ErrNoPlace
		case order == 0:
			later = append(later, s.segment)
			slices.Reverse(later)
			return later, nil
		}
		if later = append(later, s.segment); len(later) == 2*maxFollowing {
			later = slices.Delete(later, 0, maxFollowing)
		}
	}
	if from != (place{}) {
		return nil, plan.ErrNoPlace
	}
	slices.Reverse(later)
	return later, nil
}

// linesIn counts the lines of a segment, with one that is cut off.
func linesIn(data []byte) int {
	n := bytes.Count(data, []byte("\n"))
	if len(data) > 0 && data[len(data)-1] != '\n' {
		n++
	}
	return n
}

// eventPage is one page of an EventReader.
type eventPage struct {
	events  []plan.PlacedEvent
	bytes   int
	reached place
}

func (p *eventPage) isFull() bool { return len(p.events) >= pageEvents || p.bytes >= pageBytes }

// add adds the lines of a segment after the place that was reached, until the page is full.
func (p *eventPage) add(s segment, data []byte, warning string) {
	skip := 0
	if p.reached.sequence == s.sequence && p.reached.epoch == s.epoch {
		skip = p.reached.line
	}
	if warning != "" { // no regular file: it has no lines
		p.reached = place{s.sequence, s.epoch, 0}
		return
	}
	readSegment(s.path, data, false, decodeEvent, func(l Logged[plan.Event], err error) bool {
		if l.Line <= skip {
			return true
		}
		p.bytes += len(l.Value.Payload)
		p.reached = place{s.sequence, s.epoch, l.Line}
		if err == nil {
			p.events = append(p.events, plan.PlacedEvent{Event: l.Value, Place: p.reached.String()})
		}
		return !p.isFull()
	})
}

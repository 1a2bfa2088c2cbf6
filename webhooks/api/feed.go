package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"berth/reconciler/fair"
	"berth/reconciler/plan"
)

// Bounds of the streams of events.
const (
	maxStreams       = 256
	maxCallerStreams = 8
	maxOwnerStreams  = 64
	maxLogReads      = 4 // at once, of streams that begin before the tail
	maxKept          = 4096
	maxKeptBytes     = 8 << 20 // of payloads
	maxTaken         = 256     // events that a stream takes from the tail at once
)

// feed gives the events of a log to streams. One reader follows the end of the log for all of them, while there is
// one. A stream that begins earlier reads the log itself until it reaches what the tail keeps.
type feed struct {
	log     EventLog
	slog    *slog.Logger
	reads   *fair.Slots // for readings besides the tail's, by owner of the call
	closing context.Context
	close   context.CancelFunc

	mu      sync.Mutex
	streams map[string]int // by caller
	owners  map[string]int // streams by owner of the call
	all     int
	tail    *tail // nil: nobody reads it
	damaged bool  // the last reading for the tail failed
}

func newFeed(log EventLog, logger *slog.Logger) *feed {
	f := &feed{log: log, slog: logger, reads: fair.NewSlots(maxLogReads), streams: map[string]int{},
		owners: map[string]int{}}
	f.closing, f.close = context.WithCancel(context.Background())
	return f
}

// join counts a stream of a caller and of the owner of its call. The stream calls leave at its end.
func (f *feed) join(who, owner string) (t *tail, leave func(), fail *failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closing.Err() != nil:
		return nil, nil, starting()
	case f.streams[who] >= maxCallerStreams:
		return nil, nil, &failure{code: codeRate, after: retryAfter, message: fmt.Sprintf("you have %d streams of events: close one of them, "+
			"or follow several projects and types in one", maxCallerStreams)}
	case f.owners[owner] >= maxOwnerStreams:
		return nil, nil, &failure{code: codeRate, after: retryAfter,
			message: fmt.Sprintf("this tenant has %d streams of events: close one of them", maxOwnerStreams)}
	case f.all >= maxStreams:
		return nil, nil, &failure{code: codeRate, after: retryAfter,
			message: fmt.Sprintf("this daemon has %d streams of events: try again later", maxStreams)}
	}
	if f.tail == nil || f.tail.isEnded() {
		f.tail = newTail()
		ctx, stop := context.WithCancel(f.closing)
		f.tail.stop = stop
		go f.follow(ctx, f.tail)
	}
	t = f.tail
	t.readers++
	f.streams[who]++
	f.owners[owner]++
	f.all++
	return t, func() { f.leave(who, owner, t) }, nil
}

func (f *feed) leave(who, owner string, t *tail) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all--
	if f.streams[who]--; f.streams[who] == 0 {
		delete(f.streams, who)
	}
	if f.owners[owner]--; f.owners[owner] == 0 {
		delete(f.owners, owner)
	}
	if t.readers--; t.readers > 0 {
		return
	}
	t.stop()
	if f.tail == t {
		f.tail = nil
	}
}

// follow keeps a tail up to date until ctx ends or the log cannot be read. The streams end with it: their clients
// connect again, here or where the estate is led.
func (f *feed) follow(ctx context.Context, t *tail) {
	defer t.end()
	reached, err := f.log.Start(ctx, time.Time{})
	if err == nil {
		t.add(nil, reached)
	}
	reader := f.log.After(reached)
	for err == nil {
		changed := f.log.Changed()
		for more := true; more && err == nil; {
			var events []plan.PlacedEvent
			before := reached
			if events, reached, err = reader.Next(ctx); err == nil && reached != before {
				t.add(events, reached)
			}
			more = reached != before
		}
		if err != nil {
			break
		}
		f.note(nil)
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
	if ctx.Err() == nil && !errors.Is(err, ErrNoEventLog) {
		f.note(err)
	}
}

// note logs once that the log cannot be read any more, and once that it can be read again: clients connect again every
// few seconds meanwhile.
func (f *feed) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err != nil && !f.damaged:
		f.slog.Warn("event log unreadable; event streams ended, and their clients connect again", "error", err)
	case err == nil && f.damaged:
		f.slog.Info("event log readable again")
	}
	f.damaged = err != nil
}

// alone runs a reading of the log besides the tail's at the turn of the owner of a call.
func (f *feed) alone(ctx context.Context, owner string, read func() error) error {
	give, err := f.reads.Take(ctx, owner)
	if err != nil {
		return err
	}
	defer give()
	return read()
}

// tail is the end of the log, as far as it is kept for streams. The events have consecutive numbers.
type tail struct {
	stop    context.CancelFunc
	readers int // guarded by the lock of the feed

	mu      sync.Mutex
	kept    []plan.PlacedEvent
	bytes   int
	first   int           // number of the first event kept
	base    string        // place before it
	reached string        // place up to which the log was read; "": none yet
	fresh   chan struct{} // closed by the next change
	ended   bool
}

func newTail() *tail { return &tail{fresh: make(chan struct{})} }

// add keeps events up to a place, and forgets the oldest beyond the bounds.
func (t *tail) add(events []plan.PlacedEvent, reached string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reached == "" {
		t.base = reached
	}
	t.reached = reached
	for _, e := range events {
		t.kept = append(t.kept, e)
		t.bytes += len(e.Payload)
	}
	over := 0
	for bytes := t.bytes; over < len(t.kept) && (len(t.kept)-over > maxKept || bytes > maxKeptBytes); over++ {
		bytes -= len(t.kept[over].Payload)
	}
	if over > 0 {
		for _, e := range t.kept[:over] {
			t.bytes -= len(e.Payload)
		}
		t.base = t.kept[over-1].Place
		t.kept = slices.Delete(t.kept, 0, over)
		t.first += over
	}
	t.change()
}

func (t *tail) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.change()
}

// change wakes the streams. It is called with the lock.
func (t *tail) change() {
	close(t.fresh)
	t.fresh = make(chan struct{})
}

func (t *tail) isEnded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// find returns the number of the event after a place; false if the tail does not have the place. The empty place is
// the end of the log. fresh is closed by the next change.
func (t *tail) find(place string) (number int, at string, ok bool, fresh <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.reached == "":
		return 0, place, false, t.fresh
	case place == "" || place == t.reached:
		return t.first + len(t.kept), t.reached, true, t.fresh
	case place == t.base:
		return t.first, place, true, t.fresh
	}
	i := slices.IndexFunc(t.kept, func(e plan.PlacedEvent) bool { return e.Place == place })
	return t.first + i + 1, place, i >= 0, t.fresh
}

// after returns events from a number on; false if the tail has forgotten some of them. fresh is closed by the next
// change.
func (t *tail) after(number int) (events []plan.PlacedEvent, ok bool, fresh <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if number < t.first {
		return nil, false, t.fresh
	}
	from := number - t.first
	return slices.Clone(t.kept[from:min(len(t.kept), from+maxTaken)]), true, t.fresh
}

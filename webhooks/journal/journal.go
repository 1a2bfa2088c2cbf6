package journal

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// ErrFull is returned by Take while too much work is pending, or too many
// deliveries wait for the disk.
var ErrFull = errors.New("too many pending deliveries")

// Defaults of Options.
const (
	DefaultMost   = 10_000
	DefaultIDs    = 16_384
	DefaultLength = 8 << 20

	DefaultWaiting  = 1_024
	DefaultPatience = 5 * time.Second // a forge waits 10 s
)

// Options of a Journal. Zero values take the defaults.
type Options struct {
	Path   string // of the file; its directory is made
	Most   int    // the most different works that may be pending
	IDs    int    // how many delivery ids are kept, the latest
	Length int64  // size in bytes at which the file is compacted, about
	Now    func() time.Time
	// Waiting is how many deliveries may wait for the disk at a time, and Patience
	// how long each: a hanging disk must not block the sender.
	Waiting  int
	Patience time.Duration
	// Sync flushes a file to the disk; nil: fsync.
	Sync func(*os.File) error
}

// Journal is one file. Its methods are safe for concurrent use. W is a piece of
// work, written as JSON; equal works are one.
type Journal[W comparable] struct {
	o Options

	disk    chan struct{} // a slot for the writer; taken before mu
	file    *os.File      // nil: writing failed last time
	length  int64
	compact int64 // size of the file after its last compaction
	unread  bool  // the existing file is unreadable

	mu      sync.Mutex
	n       uint64 // number of the last delivery
	pending map[W]*pending
	ids     map[string]taken[W]
	order   []string // ids, the oldest first
	mark    time.Time
	lines   []byte // not written yet
	batch   *batch // the deliveries that wait for these lines
	waits   int    // how many deliveries wait, in all batches
}

// pending is a work that deliveries from..last asked for and that is not done.
type pending struct {
	from, last uint64
	since      time.Time // when from arrived
}

// taken is a stored delivery.
type taken[W comparable] struct {
	n     uint64
	at    time.Time
	works []W
}

// batch is a group of deliveries that one write brings to the disk. The holder of
// disk owns its fields.
type batch struct {
	written bool
	err     error
}

// Open reads the journal, or creates it. It skips unreadable lines. It renames an
// unreadable file, and stores nothing until that succeeds. The journal is usable
// whatever the error, which is for the log: a write error shows again at Take.
func Open[W comparable](o Options) (*Journal[W], error) {
	o.Most, o.IDs, o.Length = cmp.Or(o.Most, DefaultMost), cmp.Or(o.IDs, DefaultIDs), cmp.Or(o.Length, DefaultLength)
	o.Waiting, o.Patience = cmp.Or(o.Waiting, DefaultWaiting), cmp.Or(o.Patience, DefaultPatience)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sync == nil {
		o.Sync = (*os.File).Sync
	}
	j := &Journal[W]{o: o, pending: map[W]*pending{}, ids: map[string]taken[W]{}, batch: &batch{}, disk: make(chan struct{}, 1)}
	return j, errors.Join(j.read(), j.rewrite())
}

// Take stores a delivery and the works it asks for; once it returns nil, both are on
// the disk. known is true if the same delivery asked for the same works before and
// all of them are done. After an error other than ErrFull the caller should still
// do the work.
//
// A delivery without works is stored later, or never if the process crashes.
func (j *Journal[W]) Take(id string, works []W) (known bool, err error) {
	j.mu.Lock()
	if old, ok := j.ids[id]; ok && id != "" && slices.Equal(old.works, works) &&
		!slices.ContainsFunc(works, func(w W) bool { return !j.done(w, old.n) }) {
		j.mu.Unlock()
		return true, nil
	}
	more := 0
	for _, w := range works {
		if j.pending[w] == nil {
			more++
		}
	}
	if len(j.pending)+more > j.o.Most {
		j.mu.Unlock()
		return false, fmt.Errorf("%w: %d works", ErrFull, len(j.pending))
	}
	if j.waits >= j.o.Waiting {
		j.mu.Unlock()
		return false, fmt.Errorf("%w: %d deliveries wait for the disk", ErrFull, j.o.Waiting)
	}
	t := taken[W]{n: j.n + 1, at: j.o.Now().UTC().Truncate(time.Millisecond), works: works}
	if !j.write(line[W]{N: t.n, At: &t.at, ID: id, Works: works}) {
		j.mu.Unlock()
		return false, fmt.Errorf("%w: %d of one delivery", ErrFull, len(works))
	}
	j.n++
	j.add(id, t)
	mine := j.batch
	if len(works) == 0 {
		j.mu.Unlock()
		return false, nil
	}
	j.waits++
	j.mu.Unlock()
	err = j.commit(mine)
	j.mu.Lock()
	j.waits--
	j.mu.Unlock()
	return false, err
}

// add records a delivery in memory.
func (j *Journal[W]) add(id string, t taken[W]) {
	for _, w := range t.works {
		if old := j.pending[w]; old != nil { // the lines of a compacted file are not in order
			old.from, old.last = min(old.from, t.n), max(old.last, t.n)
		} else {
			j.pending[w] = &pending{from: t.n, last: t.n, since: t.at}
		}
	}
	if id == "" {
		return
	}
	if _, ok := j.ids[id]; !ok {
		if len(j.order) >= j.o.IDs {
			delete(j.ids, j.order[0])
			j.order = j.order[1:]
		}
		j.order = append(j.order, id)
	}
	j.ids[id] = t
}

// done says whether a work that delivery n asked for is done.
func (j *Journal[W]) done(w W, n uint64) bool {
	t := j.pending[w]
	return t == nil || t.from > n
}

// Begin marks the pending works that match as started; end, called at most once,
// marks them as done. Works that are delivered in between stay pending.
func (j *Journal[W]) Begin(of func(W) bool) (end func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	to, at := j.n, j.o.Now().UTC().Truncate(time.Millisecond)
	var begun []W
	for w := range j.pending {
		if of(w) {
			begun = append(begun, w)
		}
	}
	return func() {
		if len(begun) == 0 {
			return
		}
		j.mu.Lock()
		for _, w := range begun {
			j.finish(w, to, at)
			j.write(line[W]{N: to, At: &at, Done: &w})
		}
		j.mu.Unlock()
		j.soon() // after a crash, unwritten work is repeated
	}
}

// soon writes lines that no caller waits for, unless another goroutine is writing.
func (j *Journal[W]) soon() {
	select {
	case j.disk <- struct{}{}:
		_ = j.put(false)
		<-j.disk
	default:
	}
}

// finish records that a work, started at a time, is done for all deliveries up to
// number to.
func (j *Journal[W]) finish(w W, to uint64, at time.Time) {
	switch t := j.pending[w]; {
	case t == nil || to < t.from:
	case to >= t.last:
		delete(j.pending, w)
	default:
		t.from, t.since = to+1, at
	}
}

// Pending lists the pending works, the oldest first.
func (j *Journal[W]) Pending() []W {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]W, 0, len(j.pending))
	for w := range j.pending {
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b W) int { return cmp.Compare(j.pending[a].from, j.pending[b].from) })
	return out
}

// Waiting counts the pending works that match, and returns when the oldest arrived;
// the zero time without any.
func (j *Journal[W]) Waiting(of func(W) bool) (n int, since time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for w, t := range j.pending {
		if of(w) {
			if n++; since.IsZero() || t.since.Before(since) {
				since = t.since
			}
		}
	}
	return n, since
}

// Knows says whether a delivery with this id is recorded.
func (j *Journal[W]) Knows(id string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.ids[id]
	return ok
}

// CompleteSince is the time from which on every delivery's id is recorded; the zero
// time if none was dropped yet.
func (j *Journal[W]) CompleteSince() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.order) < j.o.IDs {
		return time.Time{}
	}
	return j.ids[j.order[0]].at
}

// SetMark records a time for Mark. After a crash, Mark may return an earlier one.
func (j *Journal[W]) SetMark(t time.Time) {
	t = t.UTC().Truncate(time.Millisecond)
	j.mu.Lock()
	j.mark = t
	j.write(line[W]{Mark: &t})
	j.mu.Unlock()
	j.soon()
}

// Mark is the time of the last SetMark, at most now (the clock may have been wrong
// then); the zero time before the first.
func (j *Journal[W]) Mark() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	if now := j.o.Now(); j.mark.After(now) {
		return now
	}
	return j.mark
}

// Close writes the remaining lines. The journal must not be used afterwards.
func (j *Journal[W]) Close() error {
	j.disk <- struct{}{}
	defer func() { <-j.disk }()
	err := j.put(true)
	if j.file != nil {
		err = errors.Join(err, j.file.Close())
		j.file = nil
	}
	return err
}

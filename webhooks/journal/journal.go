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

// ErrFull is what Take returns while too much is not done, or waits for the disk.
var ErrFull = errors.New("too much waits to be done")

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
	Most   int    // different works that may wait to be done
	IDs    int    // deliveries that are remembered, the latest
	Length int64  // of the file in bytes, about, before what is over is left out
	Now    func() time.Time
	// Waiting is how many deliveries may wait for the disk at a time, and Patience
	// how long each: a disk that hangs must not keep whoever delivers.
	Waiting  int
	Patience time.Duration
	// Sync brings a file to the disk; nil: fsync.
	Sync func(*os.File) error
}

// Journal is one file. Its methods are safe for concurrent use. W is a work: two
// that are equal are done at once; it is written as JSON.
type Journal[W comparable] struct {
	o Options

	disk   chan struct{} // room for who writes; taken before mu
	file   *os.File      // nil: it cannot be written for now
	length int64
	least  int64 // of the file when it was written anew
	unread bool  // the file that stands there could not be read

	mu    sync.Mutex
	n     uint64 // of the last delivery
	todo  map[W]*todo
	ids   map[string]taken[W]
	order []string // of ids, the oldest first
	mark  time.Time
	lines []byte // not written yet
	batch *batch // of those who wait for them
	waits int    // how many these are, of all batches
}

// todo is a work of which the deliveries from one on were not done.
type todo struct {
	from, last uint64
	since      time.Time // the first of them
}

// taken is a delivery.
type taken[W comparable] struct {
	n     uint64
	at    time.Time
	works []W
}

// batch is what is brought to the disk at once.
type batch struct {
	over bool // of who has disk, as err
	err  error
}

// Open reads the journal, or begins one. Lines that cannot be read are passed
// over; a file that cannot be is put aside, beside where it was, and nothing is
// taken while it cannot be put there. Whether the journal can be written shows
// when something is delivered: the error is for the log, and the journal is of use
// in any case.
func Open[W comparable](o Options) (*Journal[W], error) {
	o.Most, o.IDs, o.Length = cmp.Or(o.Most, DefaultMost), cmp.Or(o.IDs, DefaultIDs), cmp.Or(o.Length, DefaultLength)
	o.Waiting, o.Patience = cmp.Or(o.Waiting, DefaultWaiting), cmp.Or(o.Patience, DefaultPatience)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Sync == nil {
		o.Sync = (*os.File).Sync
	}
	j := &Journal[W]{o: o, todo: map[W]*todo{}, ids: map[string]taken[W]{}, batch: &batch{}, disk: make(chan struct{}, 1)}
	return j, errors.Join(j.read(), j.rewrite())
}

// Take keeps a delivery and what it asks for; when it returns nil, that is on the
// disk. known says that the same delivery asked for the same before, and all of
// it was done: there is nothing to do. After an error other than ErrFull it is
// well to do the work all the same.
//
// A delivery without works is remembered, sooner or later: nothing is lost by
// forgetting it.
func (j *Journal[W]) Take(id string, works []W) (known bool, err error) {
	j.mu.Lock()
	if old, ok := j.ids[id]; ok && id != "" && slices.Equal(old.works, works) && !slices.ContainsFunc(works, func(w W) bool { return !j.done(w, old.n) }) {
		j.mu.Unlock()
		return true, nil
	}
	more := 0
	for _, w := range works {
		if j.todo[w] == nil {
			more++
		}
	}
	if len(j.todo)+more > j.o.Most {
		j.mu.Unlock()
		return false, fmt.Errorf("%w: %d works", ErrFull, len(j.todo))
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

// add takes a delivery in.
func (j *Journal[W]) add(id string, t taken[W]) {
	for _, w := range t.works {
		if old := j.todo[w]; old != nil { // a file that was written anew is not in order
			old.from, old.last = min(old.from, t.n), max(old.last, t.n)
		} else {
			j.todo[w] = &todo{from: t.n, last: t.n, since: t.at}
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

// done says whether a work that delivery n asked for was done since.
func (j *Journal[W]) done(w W, n uint64) bool {
	t := j.todo[w]
	return t == nil || t.from > n
}

// Begin tells that the works of a kind are begun; end, which is called at most
// once, that they are done. What is delivered in between is not.
func (j *Journal[W]) Begin(of func(W) bool) (end func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	to, at := j.n, j.o.Now().UTC().Truncate(time.Millisecond)
	var begun []W
	for w := range j.todo {
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
		j.soon() // what is not on the disk is done once more
	}
}

// soon writes what nobody waits for, unless somebody is writing.
func (j *Journal[W]) soon() {
	select {
	case j.disk <- struct{}{}:
		_ = j.put(false)
		<-j.disk
	default:
	}
}

// finish takes note that a work was done for all deliveries up to one; at is when
// that was begun.
func (j *Journal[W]) finish(w W, to uint64, at time.Time) {
	switch t := j.todo[w]; {
	case t == nil || to < t.from:
	case to >= t.last:
		delete(j.todo, w)
	default:
		t.from, t.since = to+1, at
	}
}

// Undone are the works that wait to be done, those that wait longest first.
func (j *Journal[W]) Undone() []W {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := make([]W, 0, len(j.todo))
	for w := range j.todo {
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b W) int { return cmp.Compare(j.todo[a].from, j.todo[b].from) })
	return out
}

// Waiting are how many works of a kind wait to be done, and since when the first
// of them does; the zero time where none does.
func (j *Journal[W]) Waiting(of func(W) bool) (n int, since time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for w, t := range j.todo {
		if of(w) {
			if n++; since.IsZero() || t.since.Before(since) {
				since = t.since
			}
		}
	}
	return n, since
}

// Knows says whether a delivery of this id was taken.
func (j *Journal[W]) Knows(id string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.ids[id]
	return ok
}

// Remembers is since when every delivery is known by its id; the zero time where
// none was forgotten yet.
func (j *Journal[W]) Remembers() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.order) < j.o.IDs {
		return time.Time{}
	}
	return j.ids[j.order[0]].at
}

// SetMark keeps a time for Mark, sooner or later: an earlier one may be found
// after a crash.
func (j *Journal[W]) SetMark(t time.Time) {
	t = t.UTC().Truncate(time.Millisecond)
	j.mu.Lock()
	j.mark = t
	j.write(line[W]{Mark: &t})
	j.mu.Unlock()
	j.soon()
}

// Mark is the time that was kept last, and never later than now, whatever the
// clock was when it was; the zero time before the first.
func (j *Journal[W]) Mark() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	if now := j.o.Now(); j.mark.After(now) {
		return now
	}
	return j.mark
}

// Close writes what is not written yet. The journal must not be used any more.
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

package github

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// What GitHub publishes of its secondary limits, for one credential: 80 requests
// a minute and 500 an hour that create content, and 900 points a minute, of
// which a read takes one and a write five. Within any minute or hour a Pacer
// lets through its burst and what its rate adds, which is no more:
//
//	20 + 60 writes a minute, 100 + 400 creations an hour, 400 + 480 points a minute
const (
	writeBurst  = 20
	writeEvery  = time.Second
	createBurst = 100
	createEvery = time.Hour / 400
	pointBurst  = 400
	pointEvery  = time.Second / 8
	readPoints  = 1
	writePoints = 5
)

// Pacer keeps what goes out with one credential below GitHub's limits, and all of
// it back while one holds. Who shares a credential shares its Pacer. The zero one
// holds back only while GitHub says so: for a server that sets no limits.
type Pacer struct {
	mu                        sync.Mutex // everything below
	writes, creations, points bucket
	hold                      *LimitError // all requests wait until it is over
	strikes                   int         // limits in a row of which GitHub did not say how long they last
	struck                    string      // the method of the last of them
	path                      string      // of the file it is kept in; "": in none
	say                       func(error) // that the file cannot be written
	mute                      bool        // it was said
}

// NewPacer is a Pacer that let nothing through yet.
func NewPacer() *Pacer {
	return &Pacer{
		writes:    bucket{burst: writeBurst, every: writeEvery},
		creations: bucket{burst: createBurst, every: createEvery},
		points:    bucket{burst: pointBurst, every: pointEvery},
	}
}

// OpenPacer is a Pacer that goes on where the one that was kept in a file left off,
// so that nobody gets a new burst, or past a limit that holds, by being started
// again. The error says that nothing is known of what went out before, and the Pacer
// is of use all the same: with half of its bursts if there is no file
// (fs.ErrNotExist), as where Berth is new, and without any if there is one that
// cannot be read. say is told, once, if the file cannot be written.
func OpenPacer(path string, now time.Time, say func(error)) (*Pacer, error) {
	p := NewPacer()
	p.path, p.say = path, say
	k, err := readPace(path)
	for b, full := range map[*bucket]time.Time{&p.writes: k.Writes, &p.creations: k.Creations, &p.points: k.Points} {
		empty := now.Add(time.Duration(b.burst) * b.every)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			b.full = now.Add(time.Duration(b.burst) * b.every / 2)
		case err != nil:
			b.full = empty
		default:
			if b.full, b.kept = full, full; full.After(empty) { // it ran ahead, or clocks were set back
				b.full = empty
			}
			if full.After(empty.Add(maxHold)) {
				b.kept = time.Time{}
			}
		}
	}
	if k.Hold != nil && k.Hold.Until.After(now) {
		p.hold = k.Hold
		if latest := now.Add(maxHold); p.hold.Until.After(latest) {
			p.hold.Until = latest
		}
	}
	p.strikes, p.struck = max(k.Strikes, 0), k.Struck
	return p, err
}

// pace is what is kept of a Pacer: when each bucket is full again, and what holds.
type pace struct {
	Writes    time.Time   `json:"writes"`
	Creations time.Time   `json:"creations"`
	Points    time.Time   `json:"points"`
	Hold      *LimitError `json:"hold,omitempty"`
	Strikes   int         `json:"strikes,omitempty"`
	Struck    string      `json:"struck,omitempty"`
}

func readPace(path string) (k pace, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return pace{}, err
	}
	if err = json.Unmarshal(data, &k); err == nil && (k.Writes.IsZero() || k.Creations.IsZero() || k.Points.IsZero()) {
		err = errors.New("it does not say when what it limits is free again")
	}
	if err != nil {
		return pace{}, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return k, nil
}

// Save keeps a Pacer that goes on elsewhere, or stops, as it is now.
func (p *Pacer) Save(now time.Time) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.save(now, 0)
}

// ahead is the part of a burst that the file says is gone and is not yet: so it need
// not be written for each request, and a crash gains nothing, but loses that much.
const ahead = 10

// save writes the file, and of each bucket that one in so many more is gone; 0: none.
func (p *Pacer) save(now time.Time, more int) {
	if p.path == "" {
		return
	}
	kept := func(b *bucket) time.Time {
		at := b.full
		if at.Before(now) {
			at = now
		}
		switch {
		case more > 0 && !b.full.After(b.kept):
			at = b.kept
		case more > 0:
			at = at.Add(time.Duration(b.burst/more) * b.every)
		}
		return at.Round(0)
	}
	k := pace{kept(&p.writes), kept(&p.creations), kept(&p.points), p.hold, p.strikes, p.struck}
	data, err := json.Marshal(k)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(p.path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(p.path+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(p.path+".new", p.path)
	}
	if err != nil {
		if !p.mute && p.say != nil {
			p.say(err)
		}
		p.mute = true
		return
	}
	p.mute = false
	p.writes.kept, p.creations.kept, p.points.kept = k.Writes, k.Creations, k.Points
}

// bucket lets burst through at once and one more every so often. It counts what
// goes out when it goes out, not when it was asked for: what waits for another
// bucket would else come on top of what this one lets through by then.
type bucket struct {
	burst int
	every time.Duration
	full  time.Time // when all of the burst is there again
	kept  time.Time // what the file says of that: as late at least
}

// earliest is when n fit in, not before now.
func (b *bucket) earliest(now time.Time, n int) time.Time {
	if at := b.full.Add(-time.Duration(b.burst-n) * b.every); at.After(now) {
		return at
	}
	return now
}

// take counts n that go out at a time.
func (b *bucket) take(at time.Time, n int) {
	if b.full.Before(at) {
		b.full = at
	}
	b.full = b.full.Add(time.Duration(n) * b.every)
}

// reserve takes a place for a request and returns how long to wait for it. If
// that is more than most, none is taken and ok is false.
func (p *Pacer) reserve(method string, now time.Time, most time.Duration) (wait time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	takes := map[*bucket]int{&p.points: readPoints}
	if method != "GET" {
		takes = map[*bucket]int{&p.points: writePoints, &p.writes: 1}
	}
	if method == "POST" {
		takes[&p.creations] = 1
	}
	at := now
	for b, n := range takes {
		at = b.earliest(at, n)
	}
	if wait = at.Sub(now); wait > most {
		return wait, false
	}
	unkept := false
	for b, n := range takes {
		b.take(at, n)
		unkept = unkept || b.full.After(b.kept)
	}
	if unkept { // before it goes out
		p.save(now, ahead)
	}
	return wait, true
}

// held is the limit that holds all back at a time, or nil.
func (p *Pacer) held(now time.Time) *LimitError {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold == nil || !now.Before(p.hold.Until) {
		return nil
	}
	return p.hold
}

// stop holds everything back until a limit is over, that a request met which went
// out at a time. One of which GitHub does not say how long it lasts counts from
// now, a minute at first and twice as long each time that it comes again; to
// those that were out together, it came once.
func (p *Pacer) stop(l *LimitError, method string, sent, now time.Time) *LimitError {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.Until.IsZero() {
		if p.news(sent) {
			p.strikes, p.struck = p.strikes+1, method
		}
		l.Until = now.Add(holdOff << min(max(p.strikes-1, 0), 6))
	}
	if latest := now.Add(maxHold); l.Until.After(latest) {
		l.Until = latest
	}
	if p.hold == nil || p.hold.Until.Before(l.Until) {
		p.hold = l
	}
	p.save(now, ahead)
	return l
}

// passed notes that GitHub carried out a request that went out at a time. That it
// reads for us says nothing of whether it lets us write.
func (p *Pacer) passed(method string, sent time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.strikes > 0 && p.news(sent) && (method != "GET" || p.struck == "GET") {
		p.strikes = 0
		p.save(sent, ahead)
	}
}

// news says whether what became of a request says something of how it is after
// the last limit.
func (p *Pacer) news(sent time.Time) bool { return p.hold == nil || !sent.Before(p.hold.Until) }

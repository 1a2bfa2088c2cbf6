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

// GitHub's published secondary limits for one credential: 80 requests a minute and 500
// an hour that create content, and 900 points a minute (a read takes one point, a write
// five). Within any minute or hour a Pacer passes at most its burst plus its rate:
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

// Pacer keeps the requests of one credential below GitHub's limits, and stops them while
// GitHub enforces one. All users of a credential share its Pacer. The zero Pacer only
// obeys GitHub's answers: it is for servers without limits.
type Pacer struct {
	mu                        sync.Mutex // everything below
	writes, creations, points bucket
	hold                      *LimitError // the limit in effect; all requests wait until its end
	strikes                   int         // consecutive limits without a stated end
	struck                    string      // the method of the last of them
	path                      string      // of the file with its state; "": not stored
	onError                   func(error) // called once when writing the file fails
	failed                    bool        // the last write failed
}

// NewPacer makes a Pacer with full bursts.
func NewPacer() *Pacer {
	return &Pacer{
		writes:    bucket{burst: writeBurst, every: writeEvery},
		creations: bucket{burst: createBurst, every: createEvery},
		points:    bucket{burst: pointBurst, every: pointEvery},
	}
}

// openPacer makes a Pacer that continues from the state in a file, so that a restart
// gives no new burst and cannot bypass a limit. With an error the Pacer is usable too: it
// starts with half of its bursts without a file (fs.ErrNotExist), as in a new
// installation, and without bursts if the file is unreadable. onError is called once
// when writing the file fails.
func openPacer(path string, now time.Time, onError func(error)) (*Pacer, error) {
	p := NewPacer()
	p.path, p.onError = path, onError
	k, err := readPace(path)
	for b, full := range map[*bucket]time.Time{&p.writes: k.Writes, &p.creations: k.Creations, &p.points: k.Points} {
		empty := now.Add(time.Duration(b.burst) * b.every)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			b.full = now.Add(time.Duration(b.burst) * b.every / 2)
		case err != nil:
			b.full = empty
		default:
			if b.full, b.kept = full, full; full.After(empty) { // the clock was set back
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

// pace is the stored state of a Pacer: when each bucket is full again, and the limit in
// effect.
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
		err = errors.New("a bucket has no time")
	}
	if err != nil {
		return pace{}, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return k, nil
}

// Save stores the exact state, before the Pacer stops or continues elsewhere.
func (p *Pacer) Save(now time.Time) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.save(now, 0)
}

// ahead is the part of a burst (one in so many) that the file counts as used in advance,
// so that it need not be written for each request. A crash loses that part.
const ahead = 10

// save writes the file and counts one in so many of each burst as used; 0: none.
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
		if !p.failed && p.onError != nil {
			p.onError(err)
		}
		p.failed = true
		return
	}
	p.failed = false
	p.writes.kept, p.creations.kept, p.points.kept = k.Writes, k.Creations, k.Points
}

// bucket passes burst requests at once and one more each interval. A request counts when
// it is sent, not when it is reserved: it may wait for another bucket.
type bucket struct {
	burst int
	every time.Duration
	full  time.Time // when the whole burst is available again
	kept  time.Time // the time in the file, which is not earlier
}

// earliest is the first time from now on at which n fit.
func (b *bucket) earliest(now time.Time, n int) time.Time {
	if at := b.full.Add(-time.Duration(b.burst-n) * b.every); at.After(now) {
		return at
	}
	return now
}

// take counts n at a time.
func (b *bucket) take(at time.Time, n int) {
	if b.full.Before(at) {
		b.full = at
	}
	b.full = b.full.Add(time.Duration(n) * b.every)
}

// reserve reserves a slot for a request and returns the wait until then. If the wait is
// longer than most, it reserves nothing and ok is false.
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
	if unkept { // before the request is sent
		p.save(now, ahead)
	}
	return wait, true
}

// held is the limit in effect at a time, or nil.
func (p *Pacer) held(now time.Time) *LimitError {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold == nil || !now.Before(p.hold.Until) {
		return nil
	}
	return p.hold
}

// stop records a limit that a request met which was sent at a time. A limit without a
// stated end lasts a minute, and twice as long each time it comes again; for requests
// that were out together it came once.
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

// passed records that GitHub carried out a request that was sent at a time. A
// successful read does not show that writes succeed.
func (p *Pacer) passed(method string, sent time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.strikes > 0 && p.news(sent) && (method != "GET" || p.struck == "GET") {
		p.strikes = 0
		p.save(sent, ahead)
	}
}

// news says whether a request was sent after the end of the last limit.
func (p *Pacer) news(sent time.Time) bool { return p.hold == nil || !sent.Before(p.hold.Until) }

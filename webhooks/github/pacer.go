package github

import (
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
}

// NewPacer is a Pacer that let nothing through yet.
func NewPacer() *Pacer {
	return &Pacer{
		writes:    bucket{burst: writeBurst, every: writeEvery},
		creations: bucket{burst: createBurst, every: createEvery},
		points:    bucket{burst: pointBurst, every: pointEvery},
	}
}

// bucket lets burst through at once and one more every so often. It counts what
// goes out when it goes out, not when it was asked for: what waits for another
// bucket would else come on top of what this one lets through by then.
type bucket struct {
	burst int
	every time.Duration
	full  time.Time // when all of the burst is there again
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
	for b, n := range takes {
		b.take(at, n)
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
	return l
}

// passed notes that GitHub carried out a request that went out at a time. That it
// reads for us says nothing of whether it lets us write.
func (p *Pacer) passed(method string, sent time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.news(sent) && (method != "GET" || p.struck == "GET") {
		p.strikes = 0
	}
}

// news says whether what became of a request says something of how it is after
// the last limit.
func (p *Pacer) news(sent time.Time) bool { return p.hold == nil || !sent.Before(p.hold.Until) }

package github

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// What GitHub publishes of its secondary limits, for one credential: 80 requests
// a minute and 500 an hour that create content, and 900 points a minute, of
// which a read takes one and a write five. Within any minute or hour a Pacer
// lets through its burst and what its rate adds, which is less:
//
//	20 + 60 writes a minute, 100 + 400 creations an hour, 400 + 480 points a minute
const (
	writeBurst  = 20
	createBurst = 100
	createRate  = 400.0 / 3600
	pointBurst  = 400
	pointRate   = 8.0
	readPoints  = 1
	writePoints = 5
)

// Pacer keeps what goes out with one credential below GitHub's limits, and all of
// it back while one holds. Who shares a credential shares its Pacer. The zero one
// holds back only while GitHub says so: for a server that sets no limits.
type Pacer struct {
	writes, creations, points *rate.Limiter // nil: no pace of our own

	mu      sync.Mutex
	hold    *LimitError // all requests wait until it is over
	strikes int         // limits in a row of which GitHub did not say how long they last
}

// NewPacer is a Pacer that let nothing through yet.
func NewPacer() *Pacer {
	return &Pacer{
		writes:    rate.NewLimiter(rate.Every(time.Second), writeBurst),
		creations: rate.NewLimiter(createRate, createBurst),
		points:    rate.NewLimiter(pointRate, pointBurst),
	}
}

// reserve takes a place for a request. It returns how long to wait for it; if
// that is more than most, the place is given back and ok is false.
func (p *Pacer) reserve(method string, now time.Time, most time.Duration) (wait time.Duration, ok bool) {
	var taken []*rate.Reservation
	take := func(l *rate.Limiter, n int) {
		if l == nil {
			return
		}
		r := l.ReserveN(now, n)
		taken = append(taken, r)
		wait = max(wait, r.DelayFrom(now))
	}
	switch method {
	case "GET":
		take(p.points, readPoints)
	case "POST":
		take(p.creations, 1)
		fallthrough
	default:
		take(p.points, writePoints)
		take(p.writes, 1)
	}
	if wait <= most {
		return wait, true
	}
	for _, r := range taken {
		r.CancelAt(now)
	}
	return wait, false
}

// held is the limit that holds all back, or nil.
func (p *Pacer) held() *LimitError {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hold
}

// stop holds everything back until a limit is over. One of which GitHub does not
// say how long it lasts counts from now, a minute at first and twice as long
// each time that it comes again.
func (p *Pacer) stop(l *LimitError, now time.Time) *LimitError {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.Until.IsZero() {
		l.Until = now.Add(holdOff << min(p.strikes, 6))
		p.strikes++
	}
	if latest := now.Add(maxHold); l.Until.After(latest) {
		l.Until = latest
	}
	if p.hold == nil || p.hold.Until.Before(l.Until) {
		p.hold = l
	}
	return l
}

// wrote notes that GitHub took a write.
func (p *Pacer) wrote() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.strikes = 0
}

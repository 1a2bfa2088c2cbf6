package queueing

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"berth/schema"
)

const (
	// observeEvery is how long an observation of a queue serves after its end, whether it failed or not.
	observeEvery = 10 * time.Second
	// keepFor is how long a unit's observation is kept while nobody asks, and how old the last good one is served
	// after observations that failed.
	keepFor = time.Minute
	// observationLimit bounds one observation. A host bounds each of its commands; a long list is many of them.
	observationLimit = time.Minute
)

// unitKey identifies an applied state of a unit: an observation of an earlier state answers no request.
type unitKey struct {
	unit     schema.Key
	revision string
	attempt  int // an operation, such as replace, changes members without another revision
}

// observations keeps the last observation of each unit, for all who look at it. A unit has at most one observation under way,
// by the caller who found the last one too old; the others wait for it. So a unit is asked at most once in a time,
// however many people look at it, and not at all while nobody does. It is safe for concurrent use.
type observations[T any] struct {
	every     time.Duration // how long an observation serves after its end, whether it failed or not
	liveEvery time.Duration // least time between the begins of two observations for callers with live
	mu        sync.Mutex
	units     map[unitKey]*observed[T]
}

func newObservations[T any](every, liveEvery time.Duration) *observations[T] {
	return &observations[T]{every: every, liveEvery: liveEvery, units: map[unitKey]*observed[T]{}}
}

// observed has the observations of a unit. They are numbered from 1.
type observed[T any] struct {
	begun, ended int            // number of the last observation that began, and that ended
	begunAt      time.Time      // of the last observation that began
	endedAt      time.Time      // of the last observation
	failed       error          // of the last observation
	underWay     chan struct{}  // closed at the end of the observation under way
	last         observation[T] // last one that did not fail
	// needs has the first observation that shows the effect of each caller's last submission or cancellation. Only that caller waits
	// for it: with a new observation for everybody after each submission, a busy unit would be observed all the time. The effect is
	// not added to the last observation, as only the scheduler knows what a cancellation did to other jobs.
	needs  map[string]int
	forget *time.Timer
}

// observation is what one question to a unit found. Nobody changes it.
type observation[T any] struct {
	number int // 0: none
	at     time.Time
	found  T
}

// read returns the last observation of a unit, or reads the unit with ask: if the last one is too old, lacks an effect of
// the caller's, or if live is set and the last one did not begin just now. After an observation that failed the answer
// is the last good one if it is younger than a minute and has what the caller needs, else the error.
//
// The observation under way goes on when its caller leaves, as others may wait for it.
func (o *observations[T]) read(
	ctx context.Context, key unitKey, caller string, live bool, ask func(context.Context) (T, error),
) (observation[T], error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	u := o.of(key)
	need := max(u.needs[caller], 1)
	if live {
		need = max(need, u.begun)
		if time.Since(u.begunAt) >= o.liveEvery {
			need = u.begun + 1
		}
	}
	for u.ended < need || time.Since(u.endedAt) >= o.every {
		if u.underWay == nil {
			o.observeNow(ctx, u, ask)
			continue
		}
		underWay := u.underWay
		o.mu.Unlock()
		select {
		case <-underWay:
		case <-ctx.Done():
		}
		o.mu.Lock()
		if err := ctx.Err(); err != nil {
			return observation[T]{}, err
		}
	}
	if u.failed != nil && (u.last.number < need || time.Since(u.last.at) >= keepFor) {
		return observation[T]{}, u.failed
	}
	return u.last, nil
}

// of returns the observations of a unit, and keeps them for another minute.
func (o *observations[T]) of(key unitKey) *observed[T] {
	if u := o.units[key]; u != nil {
		u.forget.Reset(keepFor)
		return u
	}
	u := &observed[T]{needs: map[string]int{}}
	u.forget = time.AfterFunc(keepFor, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.units, key)
	})
	o.units[key] = u
	return u
}

// observeNow reads a unit. The caller holds the lock, which is free during the observation.
func (o *observations[T]) observeNow(ctx context.Context, u *observed[T], ask func(context.Context) (T, error)) {
	u.begun++
	u.underWay = make(chan struct{})
	u.begunAt = time.Now()
	got := observation[T]{number: u.begun, at: u.begunAt}
	err := errors.New("the observation broke off") // unless ask returns: a panic fails the call of one caller only
	defer func() {
		o.mu.Lock()
		close(u.underWay)
		u.underWay, u.ended, u.endedAt, u.failed = nil, got.number, time.Now(), err
		if err == nil {
			u.last = got
			maps.DeleteFunc(u.needs, func(_ string, number int) bool { return number <= got.number })
		}
	}()
	o.mu.Unlock()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), observationLimit)
	defer cancel()
	got.found, err = ask(limited)
}

// changed notes that a caller changed the unit: the caller's next read needs an observation that begins after this.
func (o *observations[T]) changed(key unitKey, caller string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for of, u := range o.units { // also what is applied to the unit meanwhile
		if of.unit == key.unit {
			u.needs[caller] = u.begun + 1
		}
	}
}

// isBehind reports whether the observation that others get lacks an effect of the caller's.
func (o *observations[T]) isBehind(key unitKey, caller string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	u := o.units[key]
	return u != nil && u.ended < u.needs[caller] && time.Since(u.endedAt) < o.every
}

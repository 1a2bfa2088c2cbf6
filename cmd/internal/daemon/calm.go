package daemon

import (
	"sync"
	"time"
)

// calm passes on what is asked for: at once where all is quiet, and at growing
// distances in a storm. What is asked for meanwhile is passed on once, at the end
// of the distance; nothing is left out.
type calm[K comparable] struct {
	pass func(K)

	mu    sync.Mutex
	lines map[K]int // how often each was asked for since it was passed on last
}

// The distances: ten thousand askers within five seconds are passed on three
// times, and people hardly notice.
const (
	distance    = 500 * time.Millisecond
	inStorm     = 5 * time.Second
	stormBegins = 20 // so many within a distance are no people
)

func newCalm[K comparable](pass func(K)) *calm[K] {
	return &calm[K]{pass: pass, lines: map[K]int{}}
}

func (c *calm[K]) ask(k K) {
	c.mu.Lock()
	asked, waits := c.lines[k]
	if c.lines[k] = asked + 1; !waits {
		c.lines[k] = 0
		time.AfterFunc(distance, func() { c.over(k) })
	}
	c.mu.Unlock()
	if !waits {
		c.pass(k)
	}
}

// over ends a distance.
func (c *calm[K]) over(k K) {
	c.mu.Lock()
	asked := c.lines[k]
	if asked == 0 { // quiet again
		delete(c.lines, k)
		c.mu.Unlock()
		return
	}
	next := distance
	if asked >= stormBegins {
		next = inStorm
	}
	c.lines[k] = 0
	time.AfterFunc(next, func() { c.over(k) })
	c.mu.Unlock()
	c.pass(k)
}

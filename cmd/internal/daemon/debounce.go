package daemon

import (
	"sync"
	"time"
)

// debouncer forwards requests: at once while requests are rare, and at growing
// distances in a storm. It forwards requests that arrive within a distance once, at
// its end. It drops none.
type debouncer[K comparable] struct {
	forward func(K)

	mu      sync.Mutex
	waiting map[K]int // requests since the last one that was forwarded
}

// With these distances, ten thousand requests within five seconds are forwarded
// three times, and users hardly notice a delay.
const (
	distance       = 500 * time.Millisecond
	stormDistance  = 5 * time.Second
	stormThreshold = 20 // requests within a distance
)

func newDebouncer[K comparable](forward func(K)) *debouncer[K] {
	return &debouncer[K]{forward: forward, waiting: map[K]int{}}
}

func (d *debouncer[K]) request(k K) {
	d.mu.Lock()
	n, waits := d.waiting[k]
	if waits {
		d.waiting[k] = n + 1
	} else {
		d.waiting[k] = 0
		time.AfterFunc(distance, func() { d.endDistance(k) })
	}
	d.mu.Unlock()
	if !waits {
		d.forward(k)
	}
}

func (d *debouncer[K]) endDistance(k K) {
	d.mu.Lock()
	n := d.waiting[k]
	if n == 0 {
		delete(d.waiting, k)
		d.mu.Unlock()
		return
	}
	next := distance
	if n >= stormThreshold {
		next = stormDistance
	}
	d.waiting[k] = 0
	time.AfterFunc(next, func() { d.endDistance(k) })
	d.mu.Unlock()
	d.forward(k)
}

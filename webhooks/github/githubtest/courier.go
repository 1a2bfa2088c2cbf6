package githubtest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Delivery is one attempt to deliver an event to the webhook.
type Delivery struct {
	ID     string // X-GitHub-Delivery; a redelivery has the same
	Event  string // X-GitHub-Event
	Action string
	Body   []byte

	Log    int64 // number in the delivery log; 0: not attempted yet
	At     time.Time
	Again  bool   // a requested redelivery
	Status int    // of the answer; 0: no answer
	Error  string // why there was no answer
	answer string
}

// pending is an attempt that is due later.
type pending struct {
	Delivery
	Attempt
	due int // the event it comes after
}

// courier delivers one event after the other. Like GitHub it never retries.
type courier struct {
	hook   hook
	now    func() time.Time
	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	wake     *sync.Cond
	url      string
	schedule Schedule
	waiting  []pending // by due
	events   int       // so far
	flush    bool      // deliver everything now
	busy     bool
	closed   bool
	sent     []Delivery // with their results
}

func newCourier(o Options) *courier {
	ctx, cancel := context.WithCancel(context.Background())
	c := &courier{hook: newHook(o), now: o.Now, cancel: cancel, done: make(chan struct{}), url: o.WebhookURL}
	c.wake = sync.NewCond(&c.mu)
	go c.run(ctx)
	return c
}

func (c *courier) run(ctx context.Context) {
	defer close(c.done)
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for !c.closed && (len(c.waiting) == 0 || !c.flush && c.waiting[0].due > c.events) {
			c.flush = c.flush && len(c.waiting) > 0
			c.wake.Wait()
		}
		if c.closed {
			return
		}
		p := c.waiting[0]
		c.waiting, c.busy = c.waiting[1:], true
		url := c.url
		c.mu.Unlock()
		c.hook.send(ctx, url, &p)
		c.mu.Lock()
		d := p.Delivery
		d.Log, d.At = firstLog+int64(len(c.sent)), c.now()
		c.sent, c.busy = append(c.sent, d), false
		c.wake.Broadcast()
	}
}

// firstLog is the first number of the delivery log; they are large at GitHub.
const firstLog = 70_000_000_000

// add queues an event and gives it an id.
func (c *courier) add(d Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events++
	d.ID = fmt.Sprintf("00000000-0000-4000-8000-%012x", c.events)
	attempts := []Attempt{{}}
	if c.schedule != nil {
		attempts = c.schedule(d)
	}
	for _, a := range attempts {
		c.put(pending{d, a, c.events + a.Behind})
	}
	c.wake.Broadcast()
}

// put inserts an attempt by its due event.
func (c *courier) put(p pending) {
	i, _ := slices.BinarySearchFunc(c.waiting, p, func(a, b pending) int {
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.Behind, b.Behind), -1)
	})
	c.waiting = slices.Insert(c.waiting, i, p)
}

func (c *courier) close() {
	c.cancel()
	c.mu.Lock()
	c.closed = true
	c.wake.Broadcast()
	c.mu.Unlock()
	<-c.done
}

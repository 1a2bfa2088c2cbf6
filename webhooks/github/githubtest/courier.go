package githubtest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
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

// Attempt describes one delivery of an event.
type Attempt struct {
	// Behind is the number of later events that overtake it. Settle delivers it if fewer
	// follow.
	Behind int
	// With Fails the receiver is not reached, with Unheard its answer is lost; the log
	// has both as failed.
	Fails, Unheard bool
	Delay          time.Duration // before it and everything behind it
}

// Schedule returns the deliveries of an event: none (not logged either), one or more.
// It is called for one event at a time, not for redeliveries.
type Schedule func(Delivery) []Attempt

// Weather has the probabilities that a delivery fails in some way, each from 0 to 1.
type Weather struct {
	Lost, Fails, Unheard, Doubled, Late float64
	Behind                              int // most events that overtake a late one; 0 is 5
}

// RandomSchedule makes random faults. Equal sources give equal schedules for equal
// events.
func RandomSchedule(r *rand.Rand, w Weather) Schedule {
	one := func() Attempt {
		a := Attempt{Fails: r.Float64() < w.Fails, Unheard: r.Float64() < w.Unheard}
		if r.Float64() < w.Late {
			a.Behind = 1 + r.IntN(cmp.Or(w.Behind, 5))
		}
		return a
	}
	return func(Delivery) []Attempt {
		if r.Float64() < w.Lost {
			return nil
		}
		list := []Attempt{one()}
		for r.Float64() < w.Doubled {
			list = append(list, one())
		}
		return list
	}
}

// pending is an attempt that is due later.
type pending struct {
	Delivery
	Attempt
	due int // the event it comes after
}

// courier delivers one event after the other. Like GitHub it never retries.
type courier struct {
	client *http.Client
	cancel context.CancelFunc
	done   chan struct{}
	now    func() time.Time
	app    int64 // App of the webhook; 0: the repository's

	mu       sync.Mutex
	wake     *sync.Cond
	url      string
	secret   []byte
	schedule Schedule
	waiting  []pending // by due
	events   int       // so far
	flush    bool      // deliver everything now
	busy     bool
	closed   bool
	made     int        // for ids
	sent     []Delivery // with their results
}

func newCourier(s *Server) *courier {
	ctx, cancel := context.WithCancel(context.Background())
	c := &courier{
		client: &http.Client{Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		cancel: cancel, done: make(chan struct{}), now: s.o.Now, url: s.o.WebhookURL, secret: s.o.Secret,
	}
	if s.o.App != nil {
		c.app = s.o.App.ID
	}
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
		c.send(ctx, url, &p)
		c.mu.Lock()
		d := p.Delivery
		d.Log, d.At = firstLog+int64(len(c.sent)), c.now()
		c.sent, c.busy = append(c.sent, d), false
		c.wake.Broadcast()
	}
}

// firstLog is the first number of the delivery log; they are large at GitHub.
const firstLog = 70_000_000_000

func (c *courier) send(ctx context.Context, url string, p *pending) {
	if p.Delay > 0 {
		select {
		case <-time.After(p.Delay):
		case <-ctx.Done():
		}
	}
	if url == "" {
		p.Error = "no webhook is configured"
		return
	}
	if p.Fails {
		p.Error = unreached
		return
	}
	err := c.post(ctx, url, &p.Delivery)
	switch {
	case err != nil:
		p.Error = unreached + ": " + err.Error()
	case p.Unheard:
		p.Status, p.answer, p.Error = 0, "", "timed out"
	}
}

const unreached = "failed to connect to host"

func (c *courier) post(ctx context.Context, url string, d *Delivery) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(d.Body))
	if err != nil {
		return err
	}
	for k, v := range c.header(d) {
		r.Header.Set(k, v)
	}
	resp, err := c.client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	d.Status, d.answer = resp.StatusCode, string(text[:min(len(text), 1<<10)])
	return nil
}

// header has the headers of a delivery.
func (c *courier) header(d *Delivery) map[string]string {
	old, sum := hmac.New(sha1.New, c.secret), hmac.New(sha256.New, c.secret)
	old.Write(d.Body)
	sum.Write(d.Body)
	kind, id := "repository", int64(1)
	if c.app != 0 {
		kind, id = "integration", c.app
	}
	return map[string]string{
		"Content-Type": "application/json", "User-Agent": "GitHub-Hookshot/0000000", "Accept": "*/*",
		"X-GitHub-Event": d.Event, "X-GitHub-Delivery": d.ID, "X-GitHub-Hook-ID": "1",
		"X-GitHub-Hook-Installation-Target-Type": kind, "X-GitHub-Hook-Installation-Target-ID": strconv.FormatInt(id, 10),
		"X-Hub-Signature":     "sha1=" + hex.EncodeToString(old.Sum(nil)),
		"X-Hub-Signature-256": "sha256=" + hex.EncodeToString(sum.Sum(nil)),
	}
}

func (c *courier) id() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made++
	return fmt.Sprintf("00000000-0000-4000-8000-%012x", c.made)
}

// add queues events in their order.
func (c *courier) add(ds ...Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range ds {
		c.events++
		how := []Attempt{{}}
		if c.schedule != nil {
			how = c.schedule(d)
		}
		for _, a := range how {
			c.put(pending{d, a, c.events + a.Behind})
		}
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

// again redelivers a delivery at once.
func (c *courier) again(d Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(pending{Delivery: Delivery{ID: d.ID, Event: d.Event, Action: d.Action, Body: d.Body, Again: true}, due: c.events})
	c.wake.Broadcast()
}

func (c *courier) close() {
	c.cancel()
	c.mu.Lock()
	c.closed = true
	c.wake.Broadcast()
	c.mu.Unlock()
	<-c.done
}

// SetWebhook sets the URL of deliveries.
func (s *Server) SetWebhook(url string) {
	s.courier.mu.Lock()
	defer s.courier.mu.Unlock()
	s.courier.url = url
}

// SetSchedule sets the schedule of deliveries; nil: one each, in order.
func (s *Server) SetSchedule(how Schedule) {
	s.courier.mu.Lock()
	defer s.courier.mu.Unlock()
	s.courier.schedule = how
}

// Settle waits until every event is delivered or has failed, without further delays.
func (s *Server) Settle() {
	c := s.courier
	c.mu.Lock()
	defer c.mu.Unlock()
	for (len(c.waiting) > 0 || c.busy) && !c.closed {
		c.flush = true
		c.wake.Broadcast()
		c.wake.Wait()
	}
}

// Deliveries lists the deliveries, failed ones included, in order.
func (s *Server) Deliveries() []Delivery {
	s.courier.mu.Lock()
	defer s.courier.mu.Unlock()
	return slices.Clone(s.courier.sent)
}

// Redeliver repeats a delivery, as a user can at GitHub.
func (s *Server) Redeliver(id string) error {
	for _, d := range s.Deliveries() {
		if d.ID == id {
			s.courier.again(d)
			return nil
		}
	}
	return fmt.Errorf("no delivery %s", id)
}

// event makes a delivery. The caller holds mu.
func (s *Server) event(name, action string, body obj) Delivery {
	body["repository"] = s.repoShape()
	if body["sender"] == nil {
		body["sender"] = s.userShape(s.o.Owner)
	}
	if s.o.App != nil {
		body["installation"] = obj{"id": s.o.App.Installation, "node_id": nodeID("Installation", s.o.App.Installation)}
	}
	d := Delivery{ID: s.courier.id(), Event: name, Action: action, Body: encode(body)}
	if err := s.desc.webhook(name, action, d.Body); err != nil && !s.beyond {
		s.violation("our webhook %s %s: %v", name, action, err)
	}
	s.beyond = false
	return d
}

// deliver queues the events of one change.
func (s *Server) deliver(ds []Delivery) { s.courier.add(ds...) }

// Ping sends the event of a new webhook.
func (s *Server) Ping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deliver([]Delivery{s.event("ping", "", obj{"zen": "Keep it logically awesome.", "hook_id": 1, "hook": obj{
		"type": "Repository", "id": 1, "name": "web", "active": true, "events": []string{"push", "pull_request"},
		"config":     obj{"content_type": "json", "insecure_ssl": "0", "url": s.url},
		"created_at": s.stamp(), "updated_at": s.stamp(),
	}})})
}

package githubtest

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Delivery is one webhook delivery.
type Delivery struct {
	ID     string // X-GitHub-Delivery; a redelivery has the same
	Event  string // X-GitHub-Event
	Action string
	Body   []byte

	Status int    // of the answer; 0: none yet, or none at all
	Error  string // why there was none
}

// courier delivers one after the other, as GitHub without repeating itself.
type courier struct {
	client *http.Client
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	wake    *sync.Cond
	url     string
	secret  []byte
	waiting []Delivery
	busy    bool
	closed  bool
	made    int        // for ids
	sent    []Delivery // with what became of them
}

func newCourier(s *Server) *courier {
	ctx, cancel := context.WithCancel(context.Background())
	c := &courier{
		client: &http.Client{Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		cancel: cancel, done: make(chan struct{}), url: s.o.WebhookURL, secret: s.o.Secret,
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
		for len(c.waiting) == 0 && !c.closed {
			c.wake.Wait()
		}
		if c.closed {
			return
		}
		d := c.waiting[0]
		c.waiting, c.busy = c.waiting[1:], true
		url := c.url
		c.mu.Unlock()
		d.Status, d.Error = c.send(ctx, url, d)
		c.mu.Lock()
		c.sent, c.busy = append(c.sent, d), false
		c.wake.Broadcast()
	}
}

func (c *courier) send(ctx context.Context, url string, d Delivery) (int, string) {
	if url == "" {
		return 0, "no webhook is configured"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(d.Body))
	if err != nil {
		return 0, err.Error()
	}
	old, sum := hmac.New(sha1.New, c.secret), hmac.New(sha256.New, c.secret)
	old.Write(d.Body)
	sum.Write(d.Body)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "GitHub-Hookshot/0000000")
	r.Header.Set("X-GitHub-Event", d.Event)
	r.Header.Set("X-GitHub-Delivery", d.ID)
	r.Header.Set("X-GitHub-Hook-ID", "1")
	r.Header.Set("X-Hub-Signature", "sha1="+hex.EncodeToString(old.Sum(nil)))
	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(sum.Sum(nil)))
	resp, err := c.client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20)); err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, ""
}

func (c *courier) id() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made++
	return fmt.Sprintf("00000000-0000-4000-8000-%012x", c.made)
}

func (c *courier) add(ds ...Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, ds...)
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

// SetWebhook says where deliveries go from now on.
func (s *Server) SetWebhook(url string) {
	s.courier.mu.Lock()
	defer s.courier.mu.Unlock()
	s.courier.url = url
}

// Settle waits until everything there is to deliver was delivered, or failed.
func (s *Server) Settle() {
	c := s.courier
	c.mu.Lock()
	defer c.mu.Unlock()
	for (len(c.waiting) > 0 || c.busy) && !c.closed {
		c.wake.Wait()
	}
}

// Deliveries lists what was delivered, or failed to be, in that order.
func (s *Server) Deliveries() []Delivery {
	s.courier.mu.Lock()
	defer s.courier.mu.Unlock()
	return slices.Clone(s.courier.sent)
}

// Redeliver sends a delivery again, as a person can at GitHub.
func (s *Server) Redeliver(id string) error {
	for _, d := range s.Deliveries() {
		if d.ID == id {
			d.Status, d.Error = 0, ""
			s.courier.add(d)
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

// deliver hands over what one change has to say.
func (s *Server) deliver(ds []Delivery) {
	if s.o.Mangle != nil {
		ds = s.o.Mangle(ds)
	}
	s.courier.add(ds...)
}

// Ping sends what GitHub sends when a webhook is set up.
func (s *Server) Ping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deliver([]Delivery{s.event("ping", "", obj{"zen": "Keep it logically awesome.", "hook_id": 1, "hook": obj{
		"type": "Repository", "id": 1, "name": "web", "active": true, "events": []string{"push", "pull_request"},
		"config":     obj{"content_type": "json", "insecure_ssl": "0", "url": s.url},
		"created_at": s.stamp(), "updated_at": s.stamp(),
	}})})
}

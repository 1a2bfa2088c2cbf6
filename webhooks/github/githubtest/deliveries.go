package githubtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// deliveryLog is the webhook, with the log of its deliveries.
type deliveryLog struct{ *accounts }

// SetWebhook sets the URL of deliveries.
func (s *deliveryLog) SetWebhook(url string) {
	s.webhook.mu.Lock()
	defer s.webhook.mu.Unlock()
	s.webhook.url = url
}

// SetSchedule sets the schedule of deliveries; nil: one each, in order.
func (s *deliveryLog) SetSchedule(how Schedule) {
	s.webhook.mu.Lock()
	defer s.webhook.mu.Unlock()
	s.webhook.schedule = how
}

// Settle waits until every event is delivered or has failed, without further delays.
func (s *deliveryLog) Settle() {
	c := s.webhook
	c.mu.Lock()
	defer c.mu.Unlock()
	for (len(c.waiting) > 0 || c.busy) && !c.closed {
		c.flush = true
		c.wake.Broadcast()
		c.wake.Wait()
	}
}

// Deliveries lists the deliveries, failed ones included, in order.
func (s *deliveryLog) Deliveries() []Delivery {
	s.webhook.mu.Lock()
	defer s.webhook.mu.Unlock()
	return slices.Clone(s.webhook.sent)
}

// Redeliver repeats a delivery, as a user can at GitHub.
func (s *deliveryLog) Redeliver(id string) error {
	c := s.webhook
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.sent {
		if d.ID == id {
			c.put(pending{Delivery: Delivery{ID: d.ID, Event: d.Event, Action: d.Action, Body: d.Body, Again: true}, due: c.events})
			c.wake.Broadcast()
			return nil
		}
	}
	return fmt.Errorf("no delivery %s", id)
}

// logAge is the age limit of the delivery log.
const logAge = 3 * 24 * time.Hour

func (s *deliveryLog) hookURL() string {
	s.webhook.mu.Lock()
	defer s.webhook.mu.Unlock()
	return s.webhook.url
}

// listHooks lists the repository's webhook, unless the App has it.
func (s *deliveryLog) listHooks(c *call) reply {
	if !s.administers(c.who) {
		return notFound
	}
	url := s.hookURL()
	if s.o.App != nil || url == "" {
		return list([]any{})
	}
	return list([]any{obj{
		"type": "Repository", "id": 1, "name": "web", "active": true, "events": []string{"*"}, "url": s.api("/hooks/1"),
		"config": obj{"url": url, "content_type": "json", "insecure_ssl": "0", "secret": "********"},
	}})
}

// logOf returns the delivery log that a request may read, newest first.
func (s *deliveryLog) logOf(c *call) (log []Delivery, allowed bool) {
	if hook := c.PathValue("hook_id"); hook != "" && (s.o.App != nil || hook != "1" || !s.administers(c.who)) {
		return nil, false
	}
	log = slices.DeleteFunc(s.Deliveries(), func(d Delivery) bool { return s.o.Now().Sub(d.At) > logAge })
	slices.Reverse(log)
	return log, true
}

// listDeliveries pages by a cursor, not by numbers: the log grows at its head. A cursor
// is the number of the last delivery that was shown.
func (s *deliveryLog) listDeliveries(c *call) reply {
	log, allowed := s.logOf(c)
	if !allowed {
		return notFound
	}
	from := int64(1 << 62)
	if v := c.query.Get("cursor"); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return *problem(http.StatusBadRequest, "Invalid cursor")
		}
		from = n
	}
	log = slices.DeleteFunc(log, func(d Delivery) bool { return d.Log >= from })
	a := reply{status: http.StatusOK}
	if size := s.pageSize(c); len(log) > size {
		log = log[:size]
		a.header = http.Header{"Link": {s.link(c, "cursor", strconv.FormatInt(log[size-1].Log, 10), "next")}}
	}
	a.body = shaped(log, s.deliveryShape, nil)
	return a
}

func (s *deliveryLog) getDelivery(c *call) reply {
	log, _ := s.logOf(c)
	i := slices.IndexFunc(log, func(d Delivery) bool { return d.Log == c.number("delivery_id") })
	if i < 0 {
		return notFound
	}
	d := log[i]
	shape := s.deliveryShape(d)
	shape["url"] = s.hookURL()
	shape["request"] = obj{"headers": s.webhook.hook.header(&d), "payload": json.RawMessage(d.Body)}
	shape["response"] = obj{"headers": obj{}, "payload": d.answer}
	return ok(shape)
}

func (s *deliveryLog) deliveryShape(d Delivery) obj {
	status, code := "OK", d.Status
	switch {
	case d.Error == timedOut:
		status, code = timedOut, http.StatusGatewayTimeout
	case d.Status == 0:
		status, code = unreached, http.StatusBadGateway
	case d.Status >= http.StatusMultipleChoices:
		status = fmt.Sprintf("Invalid HTTP Response: %d", d.Status)
	}
	shape := obj{
		"id": d.Log, "guid": d.ID, "delivered_at": stamp(d.At), "redelivery": d.Again, "duration": 0.05, "status": status,
		"status_code": code,
		"event":       d.Event, "action": orNull(d.Action), "repository_id": 1,
	}
	if s.o.App != nil {
		shape["installation_id"] = s.o.App.Installation
	}
	return shape
}

package githubtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// logAge is the age limit of the delivery log.
const logAge = 3 * 24 * time.Hour

// getApp answers with the App itself.
func (s *Server) getApp(*call) (reply, *problem) {
	shape := s.appShape(s.o.App.Slug)
	if s.o.App.Permissions != nil {
		shape["permissions"] = s.o.App.Permissions
	}
	return ok(shape)
}

// listHooks lists the repository's webhook, unless the App has it.
func (s *Server) listHooks(c *call) (reply, *problem) {
	if !s.administers(c.who) {
		return reply{}, notThere
	}
	url := s.hookURL()
	if s.o.App != nil || url == "" {
		return list(nil)
	}
	return list([]any{obj{
		"type": "Repository", "id": 1, "name": "web", "active": true, "events": []string{"*"},
		"config": obj{"url": url, "content_type": "json", "insecure_ssl": "0", "secret": "********"},
		"url":    s.api("/hooks/1"), "test_url": s.api("/hooks/1/test"), "ping_url": s.api("/hooks/1/pings"), "deliveries_url": s.api("/hooks/1/deliveries"),
		"last_response": obj{"code": nil, "status": "unused", "message": nil}, "created_at": epoch, "updated_at": epoch,
	}})
}

// administers says whether a sender may read webhooks: administrators, and Apps with the
// permission.
func (s *Server) administers(who Token) bool {
	return who.App || s.permissions[who.Login] == "admin" || who.Login == s.o.Owner
}

func (s *Server) hookURL() string {
	s.courier.mu.Lock()
	defer s.courier.mu.Unlock()
	return s.courier.url
}

// logOf returns the delivery log that a request may read, newest first.
func (s *Server) logOf(c *call) ([]Delivery, *problem) {
	if hook, named := c.path["hook_id"]; named && (s.o.App != nil || hook != "1" || !s.administers(c.who)) {
		return nil, notThere
	}
	log := slices.DeleteFunc(s.Deliveries(), func(d Delivery) bool { return s.o.Now().Sub(d.At) > logAge })
	slices.Reverse(log)
	return log, nil
}

// listDeliveries pages by a cursor, not by numbers: the log grows at its head.
func (s *Server) listDeliveries(c *call) (reply, *problem) {
	log, bad := s.logOf(c)
	if bad != nil {
		return reply{}, bad
	}
	size := perPage
	if n, err := strconv.Atoi(c.query.Get("per_page")); err == nil && n > 0 {
		size = min(n, s.o.Limits.PerPage)
	}
	from := int64(1 << 62)
	if v := c.query.Get("cursor"); v != "" {
		n, err := strconv.ParseInt(strings.TrimPrefix(v, "v1_"), 10, 64)
		if err != nil {
			return reply{}, &problem{http.StatusBadRequest, "Invalid cursor"}
		}
		from = n
	}
	want := c.query.Get("status")
	items, rep := []any{}, reply{status: http.StatusOK}
	for _, d := range log {
		if d.Log >= from || want != "" && (want == "success") != d.arrived() {
			continue
		}
		if len(items) == size {
			c.query.Set("cursor", "v1_"+strconv.FormatInt(from, 10))
			rep.link = fmt.Sprintf(`<%s%s?%s>; rel="next"`, s.url, c.at, c.query.Encode())
			break
		}
		items, from = append(items, s.deliveryShape(d)), d.Log
	}
	rep.body = items
	return rep, nil
}

func (s *Server) logged(c *call) (Delivery, *problem) {
	log, bad := s.logOf(c)
	if bad != nil {
		return Delivery{}, bad
	}
	id := number(c, "delivery_id")
	i := slices.IndexFunc(log, func(d Delivery) bool { return d.Log == id })
	if i < 0 {
		return Delivery{}, notThere
	}
	return log[i], nil
}

func (s *Server) getDelivery(c *call) (reply, *problem) {
	d, bad := s.logged(c)
	if bad != nil {
		return reply{}, bad
	}
	shape := s.deliveryShape(d)
	shape["url"] = s.hookURL()
	shape["request"] = obj{"headers": s.courier.header(&d), "payload": json.RawMessage(d.Body)}
	shape["response"] = obj{"headers": obj{}, "payload": d.answer}
	return ok(shape)
}

func (s *Server) redeliver(c *call) (reply, *problem) {
	d, bad := s.logged(c)
	if bad != nil {
		return reply{}, bad
	}
	s.courier.again(d)
	return reply{status: http.StatusAccepted, body: obj{}}, nil
}

// arrived says whether a delivery got a 2xx answer.
func (d Delivery) arrived() bool { return d.Status >= 200 && d.Status < 300 }

func (s *Server) deliveryShape(d Delivery) obj {
	status, code := "OK", d.Status
	switch {
	case d.Status == 0 && strings.HasPrefix(d.Error, "timed out"):
		status, code = "timed out", http.StatusGatewayTimeout
	case d.Status == 0:
		status, code = unreached, http.StatusBadGateway
	case !d.arrived():
		status = fmt.Sprintf("Invalid HTTP Response: %d", d.Status)
	}
	var action, installation any
	if d.Action != "" {
		action = d.Action
	}
	if s.o.App != nil {
		installation = s.o.App.Installation
	}
	return obj{
		"id": d.Log, "guid": d.ID, "delivered_at": stamp(d.At), "redelivery": d.Again, "duration": 0.05, "status": status, "status_code": code,
		"event": d.Event, "action": action, "installation_id": installation, "repository_id": 1, "throttled_at": nil,
	}
}

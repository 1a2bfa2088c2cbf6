package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/schema/authority"
)

const (
	// heartbeat is the time between two comments that show that a stream lives. The token is checked as often.
	heartbeat = 15 * time.Second
	// slowReader is how long a client may leave what was sent unread.
	slowReader = 10 * time.Second
	// reconnect is how long a client waits before it connects again.
	reconnect = 2 * time.Second
	// maxChunk is what is written at once, in bytes; one event may exceed it.
	maxChunk = 64 << 10
)

const eventStream = "text/event-stream"

// stream sends the events of the log to one caller (requirement E7), as server-sent events (WHATWG HTML, 9.2). It keeps
// no event: it reads the tail of the feed, or the log while it begins earlier. A caller that does not read in time is
// disconnected, and continues after the last id that it got.
type stream struct {
	api   *API
	call  *call
	query eventQuery
	tail  *tail

	out   http.ResponseWriter
	chunk bytes.Buffer // not written yet
	begun bool         // the head of the answer is written
	place string       // after which the stream goes on
	named string       // the last place that the caller was told
	beat  *time.Ticker
}

// openStream checks a permitted call for the stream of events.
func (a *API) openStream(c *call) (answer, *failure) {
	if !accepts(c.Header.Values("Accept"), eventStream) {
		return answer{}, &failure{code: codeAccept, message: "the answer is " + eventStream + ": change the Accept header"}
	}
	query, fail := eventQueryOf(c, a.eventKinds)
	if fail == nil {
		fail = a.authoriser.authoriseStream(c, query.project)
	}
	if fail != nil {
		return answer{}, fail
	}
	return answer{stream: func(w http.ResponseWriter) *failure {
		t, leave, fail := a.feed.join(c.who.name, c.owner())
		if fail != nil {
			return fail
		}
		defer leave()
		s := &stream{api: a, call: c, query: query, tail: t, out: w, place: query.place}
		_, fail = safely(func() (answer, *failure) { return answer{}, s.run() })
		if !s.begun {
			return fail
		}
		if fail != nil && fail.code == codeInternal {
			a.o.Log.Error("event stream failed", "correlation_id", c.correlation, "error", fail.cause)
		}
		return nil
	}}, nil
}

// authoriseStream refuses a caller who can read no event, or none of a project. Below /admin it records the use.
func (a *authoriser) authoriseStream(c *call, project authority.Scope) *failure {
	c.who.actor.Endpoint = c.endpoint()
	rules := a.rules(c)
	may := func(p authority.Permission, s authority.Scope) authority.Decision {
		return authority.May(rules, c.who.actor, p, s)
	}
	c.tenant, c.project = project.Tenant, project.Project // for the record, the log and the error
	if c.route.admin {
		c.decision = may(c.route.permission, project)
		if fail := a.audit(c, c.decision); fail != nil {
			return fail
		}
		if !c.decision.Allowed || project.Tenant != "" && !c.ownerExists() {
			return notFound()
		}
		return nil
	}
	if project.Tenant != "" {
		c.decision = may(c.route.permission, project)
		if shared := may(authority.SharedRuntimeRead, project); !c.decision.Allowed && shared.Allowed {
			c.decision = shared
		}
		a.refused(c, c.decision)
		if !c.ownerExists() || !c.decision.Allowed {
			return notFound()
		}
		return nil
	}
	for _, p := range []authority.Permission{c.route.permission, authority.SharedRuntimeRead} { // a tenant's account has the second
		granted := a.granted(c, func(s authority.Scope) authority.Decision { return may(p, s) })
		if slices.ContainsFunc(granted, func(s authority.Scope) bool { return s.Tenant != "" }) {
			return nil
		}
		if len(granted) > 0 {
			return &failure{code: codePermission, message: c.who.name + " has roles of the platform only: use " + admin +
				"/events/stream with X-Break-Glass, where it is audited"}
		}
	}
	_, fail := a.grantedSomewhere(c, func(s authority.Scope) authority.Decision { return may(c.route.permission, s) })
	return fail
}

// run sends events until the caller, the daemon or the authority of the caller ends it, and returns why.
func (s *stream) run() *failure {
	ctx, cancel := context.WithCancel(s.call.Context())
	defer cancel()
	defer func() { s.writeUntil(time.Now().Add(slowReader)) }() // the end of the answer
	interrupted := make(chan struct{})
	stop := context.AfterFunc(s.api.feed.closing, func() {
		defer close(interrupted)
		cancel()
		_ = http.NewResponseController(s.out).SetWriteDeadline(time.Now()) // of a caller that does not read
	})
	defer func() {
		if !stop() {
			<-interrupted // HTTP/2 panics on the writer of a handler that has returned
		}
	}()
	if s.call.Method == http.MethodHead {
		s.head()
		return nil
	}
	s.beat = time.NewTicker(heartbeat)
	defer s.beat.Stop()
	number, fail := s.catchUp(ctx)
	for fail == nil && ctx.Err() == nil {
		events, ok, fresh := s.tail.after(number)
		if !ok {
			fail = s.ended("you read too slowly")
			break
		}
		if len(events) > 0 {
			number += len(events)
			fail = s.send(ctx, events)
			continue
		}
		fail = s.wait(ctx, fresh)
	}
	return fail
}

// catchUp sends what the log has after the place of the stream, until the tail has the rest, from the number returned.
func (s *stream) catchUp(ctx context.Context) (number int, fail *failure) {
	if s.place == "" && !s.query.since.IsZero() {
		fail := s.read(ctx, func() (err error) {
			s.place, err = s.api.feed.log.Start(ctx, s.query.since)
			return err
		})
		if fail != nil {
			return 0, fail
		}
	}
	log := s.api.feed.log.After(s.place)
	for ctx.Err() == nil {
		number, at, ok, fresh := s.tail.find(s.place)
		if ok {
			s.place = at
			return number, s.begin()
		}
		more, fail := s.sendLogged(ctx, log)
		if fail == nil && !more { // the tail is behind
			fail = s.wait(ctx, fresh)
		}
		if fail != nil {
			return 0, fail
		}
	}
	return 0, gone()
}

// sendLogged sends the next events of the log, and returns false if it has none.
func (s *stream) sendLogged(ctx context.Context, log EventReader) (more bool, fail *failure) {
	if s.place == "" { // the end of the log, which the tail finds
		return false, nil
	}
	var events []plan.PlacedEvent
	var reached string
	fail = s.read(ctx, func() (err error) {
		events, reached, err = log.Next(ctx)
		return err
	})
	if fail == nil {
		fail = s.begin()
	}
	if fail != nil {
		return false, fail
	}
	more = reached != s.place
	fail = s.send(ctx, events)
	s.place = reached
	return more, fail
}

// read reads the log, and sends heartbeats meanwhile: many streams may wait for their turn.
func (s *stream) read(ctx context.Context, read func() error) *failure {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- s.api.feed.alone(ctx, s.call.owner(), read) }()
	defer func() { // read uses the stream
		if cancel(); done != nil {
			<-done
		}
	}()
	for {
		select {
		case err := <-done:
			if done = nil; err != nil {
				return logFailure(err)
			}
			return nil
		case <-s.beat.C:
			if fail := s.heartbeat(); fail != nil {
				return fail
			}
		}
	}
}

// gone ends a stream whose caller does not read any more, or one of a daemon that ends.
func gone() *failure {
	return &failure{code: codeNotReady, after: retryAfter, message: "the stream ended: connect again", cause: errQuiet}
}

// logFailure is the failure of reading the log.
func logFailure(err error) *failure {
	switch {
	case errors.Is(err, plan.ErrNoPlace):
		return wrongPlace()
	case errors.Is(err, plan.ErrFarPlace):
		return &failure{code: codePlace, message: "too many events follow to send them here: read them with berth events --since, and begin " +
			"later or without an id"}
	}
	return &failure{code: codeNotReady, after: retryAfter, cause: err,
		message: "the event log cannot be read now: try again in a few seconds with the same id"}
}

// wait waits for a change of the tail, and sends heartbeats meanwhile.
func (s *stream) wait(ctx context.Context, fresh <-chan struct{}) *failure {
	if s.tail.isEnded() {
		return s.ended("this daemon reads the event log no more")
	}
	select {
	case <-fresh:
		return nil
	case <-s.beat.C:
		return s.heartbeat()
	case <-ctx.Done():
		return gone()
	}
}

// head writes the head of the answer.
func (s *stream) head() {
	h := s.out.Header()
	h.Set("Content-Type", eventStream)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would keep events back
	s.out.WriteHeader(http.StatusOK)
	s.begun = true
}

// begin writes the head, and the place where the stream begins, so that a caller who got no event yet loses none.
func (s *stream) begin() *failure {
	if s.begun {
		return nil
	}
	s.head()
	fmt.Fprintf(&s.chunk, "retry: %d\n", reconnect.Milliseconds())
	s.namePlace()
	s.chunk.WriteString("\n")
	return s.flush()
}

// namePlace tells the caller the place of the stream. It may be later than that of the last event that the caller got.
func (s *stream) namePlace() {
	if s.place != s.named {
		fmt.Fprintf(&s.chunk, "id: %s\n", s.place)
		s.named = s.place
	}
}

// send sends those events that the caller asked for and may read when they are sent.
func (s *stream) send(ctx context.Context, events []plan.PlacedEvent) *failure {
	for _, e := range events {
		select {
		case <-ctx.Done():
			return gone()
		case <-s.beat.C:
			if fail := s.heartbeat(); fail != nil {
				return fail
			}
		default:
		}
		s.place = e.Place
		about := aboutOf(e.Event)
		if !eventType.MatchString(e.EventType) || !s.query.takes(e.EventType, e.OccurredAt, about) {
			continue
		}
		view, ready := s.api.o.Source()
		if !ready {
			return s.ended("this daemon reads the estate no more")
		}
		shown, ok := s.api.sightOf(s.call, view).visible(e.Event, about)
		if !ok {
			continue
		}
		text, err := json.Marshal(shown)
		if err != nil { // a damaged payload
			continue
		}
		fmt.Fprintf(&s.chunk, "id: %s\nevent: %s\ndata: %s\n\n", e.Place, e.EventType, text)
		if s.named = e.Place; s.chunk.Len() < maxChunk {
			continue
		}
		if fail := s.flush(); fail != nil {
			return fail
		}
	}
	return s.flush()
}

// sightOf returns what the caller may read by a view.
func (a *API) sightOf(c *call, view plan.View) eventSight {
	return eventSight{desired: view.Desired, rules: authority.Rules{Base: view.Desired, Administrators: a.o.Administrators},
		actor: c.who.actor, admin: c.route.admin, off: a.o.Off, kinds: a.eventKinds}
}

// heartbeat checks the caller's token again, and sends a comment.
func (s *stream) heartbeat() *failure {
	if fail := s.api.checkAgain(s.call); fail != nil {
		return s.ended(fail.message)
	}
	if !s.begun { // the log is not read yet
		return nil
	}
	s.chunk.WriteString(": heartbeat\n")
	s.namePlace()
	s.chunk.WriteString("\n")
	return s.flush()
}

// checkAgain checks a call as at its beginning, by the rules in force now.
func (a *API) checkAgain(c *call) *failure {
	again := &call{Request: c.Request, correlation: c.correlation, route: c.route, params: c.params, deadline: c.deadline}
	for _, check := range []func(*call) *failure{
		a.checkLeader, a.authenticator.authenticate, a.o.Source.load, a.authoriser.checkEndpoint, a.checkFamily,
	} {
		if fail := check(again); fail != nil {
			return fail
		}
	}
	if again.who.name != c.who.name {
		return invalidToken(errors.New("the token is of another caller now"))
	}
	return nil
}

// ended tells the caller why the stream ends.
func (s *stream) ended(why string) *failure {
	if s.begun {
		fmt.Fprintf(&s.chunk, ": the stream ends: %s; connect again with Last-Event-ID\n\n", strings.ReplaceAll(why, "\n", " "))
		_ = s.flush() // the caller may be gone
	}
	return starting()
}

// flush writes the chunk. A caller that does not read for slowReader is disconnected.
func (s *stream) flush() *failure {
	if s.chunk.Len() == 0 {
		return nil
	}
	s.writeUntil(time.Now().Add(slowReader))
	_, err := s.out.Write(s.chunk.Bytes())
	if err == nil {
		err = http.NewResponseController(s.out).Flush()
	}
	s.chunk.Reset()
	if err != nil {
		return gone()
	}
	s.writeUntil(time.Time{}) // HTTP/2 resets a stream at its deadline, also one with nothing to write
	return nil
}

// writeUntil sets the deadline of writing; zero: none. That of the daemon's end stays.
func (s *stream) writeUntil(deadline time.Time) {
	control := http.NewResponseController(s.out)
	_ = control.SetWriteDeadline(deadline) // some writers of tests have none
	if s.api.feed.closing.Err() != nil {
		_ = control.SetWriteDeadline(time.Now())
	}
}

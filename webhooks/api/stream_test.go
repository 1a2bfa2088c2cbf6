package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema/event"
)

// memoryLog is an event log in memory. The place of its n-th event is n-1-1.
type memoryLog struct {
	mu      sync.Mutex
	events  []plan.PlacedEvent
	changed chan struct{}
	reads   int    // of pages
	err     error  // of every reading; nil: none
	slow    string // place after which readings wait for gate
	gate    chan struct{}
}

func newMemoryLog() *memoryLog { return &memoryLog{changed: make(chan struct{})} }

func (l *memoryLog) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

func (l *memoryLog) Start(_ context.Context, since time.Time) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.events)
	for !since.IsZero() && n > 0 && !l.events[n-1].OccurredAt.Before(since) {
		n--
	}
	if n == 0 {
		return plan.FirstPlace, l.err
	}
	return l.events[n-1].Place, l.err
}

func (l *memoryLog) After(place string) EventReader { return &memoryReader{l, place} }

// memoryReader reads a memoryLog.
type memoryReader struct {
	*memoryLog
	place string
}

func (r *memoryReader) Next(ctx context.Context) (events []plan.PlacedEvent, reached string, err error) {
	if r.place == r.slow {
		select {
		case <-r.gate:
		case <-ctx.Done():
			return nil, "", ctx.Err()
		}
	}
	if events, reached, err = r.after(r.place); err == nil {
		r.place = reached
	}
	return events, reached, err
}

func (l *memoryLog) after(place string) ([]plan.PlacedEvent, string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	if l.err != nil {
		return nil, "", l.err
	}
	from := -1
	if place == plan.FirstPlace {
		from = 0
	}
	for i, e := range l.events {
		if e.Place == place {
			from = i + 1
		}
	}
	if from < 0 {
		return nil, "", plan.ErrNoPlace
	}
	events := l.events[from:min(len(l.events), from+3)] // pages of three
	if len(events) == 0 {
		return nil, place, nil
	}
	return events, events[len(events)-1].Place, nil
}

// fail ends the log with an error.
func (l *memoryLog) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
	close(l.changed)
	l.changed = make(chan struct{})
}

// publish adds an event of a type with a payload, an hour after the one before.
func (l *memoryLog) publish(typ event.Type, payload any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	data, err := json.Marshal(payload)
	if err != nil {
		panic(err)
	}
	n := len(l.events) + 1
	l.events = append(l.events, plan.PlacedEvent{Place: fmt.Sprint(n, "-1-1"), Event: plan.Event{EventID: fmt.Sprint("e", n),
		EventType: string(typ), OccurredAt: now.Add(time.Duration(n) * time.Hour), Version: event.Version, CorrelationID: "c1", Payload: data}})
	close(l.changed)
	l.changed = make(chan struct{})
}

// running publishes that an instance of a project runs.
func (l *memoryLog) running(project string) {
	org, _, _ := strings.Cut(project, ".")
	l.publish(event.InstanceRunning, event.Instance{OrgID: org, ProjectID: project, AppSlug: "slurm", AppInstanceID: "train",
		ResourceName: project + "/train", Status: "running"})
}

// streamWorld serves the campus with a log of events, in a bubble.
type streamWorld struct {
	*world
	log   *memoryLog
	conns chan net.Conn
}

// inStreamWorld runs a test in a bubble.
func inStreamWorld(t *testing.T, change func(*Options), do func(t *testing.T, w *streamWorld)) {
	campusView(t) // loaded outside, once
	openDocument(t)
	synctest.Test(t, func(t *testing.T) {
		w := &streamWorld{log: newMemoryLog(), conns: make(chan net.Conn)}
		w.world = worldOf(t, campusView(t), []string{petra, anna, otto, boris}, func(o *Options) {
			o.Events = w.log
			if change != nil {
				change(o)
			}
		})
		server := &http.Server{Handler: w.api}
		go func() { _ = server.Serve(pipes{w.conns}) }()
		defer func() { _ = server.Close() }()
		do(t, w)
		w.api.EndStreams()
		synctest.Wait()
	})
}

// pipes is a listener of connections in memory.
type pipes struct{ conns chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error {
	close(p.conns)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// reader is the client of a stream.
type reader struct {
	t    testing.TB
	conn net.Conn
	res  *http.Response
	in   *bufio.Reader
	id   string // the last one
}

// open asks for a stream.
func (w *streamWorld) open(target, token string, headers ...string) *reader {
	client, server := net.Pipe()
	w.conns <- server
	r, err := http.NewRequest(http.MethodGet, "http://berth"+target, nil)
	require.NoError(w.t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	require.NoError(w.t, r.Write(client))
	in := bufio.NewReader(client)
	res, err := http.ReadResponse(in, r)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = client.Close() })
	return &reader{w.t, client, res, bufio.NewReader(res.Body), ""}
}

const streamPath = "/api/v1/events/stream"

func (w *streamWorld) follow(login string, query string, headers ...string) *reader {
	w.t.Helper()
	r := w.open(streamPath+query, personToken(login), headers...)
	require.Equal(w.t, http.StatusOK, r.res.StatusCode)
	return r
}

// message is one message: lines until an empty one. io.EOF: the stream ended.
func (r *reader) message() (lines []string, err error) {
	for {
		line, err := r.in.ReadString('\n')
		if err != nil {
			return lines, err
		}
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			return lines, nil
		}
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			r.id = id
		}
		lines = append(lines, line)
	}
}

// event returns the next event, and its type. It passes over messages without one.
func (r *reader) event() (e plan.Event, typ string) {
	r.t.Helper()
	for {
		lines, err := r.message()
		require.NoError(r.t, err)
		for _, line := range lines {
			if text, ok := strings.CutPrefix(line, "event: "); ok {
				typ = text
			}
			if text, ok := strings.CutPrefix(line, "data: "); ok {
				require.NoError(r.t, json.Unmarshal([]byte(text), &e))
				return e, typ
			}
		}
	}
}

// ids returns the ids of the events until the stream is silent for a second in a bubble.
func (r *reader) ids() (ids []string) {
	r.t.Helper()
	got := make(chan string)
	go func() {
		defer close(got)
		for {
			lines, err := r.message()
			if err != nil {
				return
			}
			for _, line := range lines {
				if text, ok := strings.CutPrefix(line, "data: "); ok {
					var e plan.Event
					_ = json.Unmarshal([]byte(text), &e)
					got <- e.EventID
				}
			}
		}
	}()
	silent := time.NewTimer(time.Second)
	for {
		select {
		case id := <-got:
			ids = append(ids, id)
		case <-silent.C:
			_ = r.conn.Close()
			for range got {
			}
			return ids
		}
	}
}

// few reads some messages, fewer if the stream ends.
func (r *reader) few() (text string) {
	for range 4 {
		lines, err := r.message()
		if text += strings.Join(lines, "\n"); err != nil {
			break
		}
	}
	return text
}

// rest reads until the stream ends.
func (r *reader) rest() string {
	text, err := io.ReadAll(r.in)
	require.True(r.t, err == nil || errors.Is(err, io.ErrUnexpectedEOF), "%v", err)
	return string(text)
}

// Each event is one message with its place, its type and its envelope, in the order of writing. A comment shows every
// 15 seconds that the stream lives (requirement E7).
func TestStreamSendsEachEventAsOneMessage(t *testing.T) {
	inStreamWorld(t, nil, func(t *testing.T, w *streamWorld) {
		w.log.running("physics.lattice") // before the stream
		r := w.follow(anna, "")
		require.Equal(t, "text/event-stream", r.res.Header.Get("Content-Type"))
		require.Equal(t, "no-store", r.res.Header.Get("Cache-Control"))
		lines, err := r.message()
		require.NoError(t, err)
		require.Equal(t, []string{"retry: 2000", "id: 1-1-1"}, lines, "a caller without an event goes on here")
		for range 7 {
			w.log.running("physics.lattice")
		}
		for n := 2; n <= 8; n++ {
			e, typ := r.event()
			require.Equal(t, []any{fmt.Sprint("e", n), fmt.Sprint(n, "-1-1"), "apps.instance.running", "apps.instance.running", "c1"},
				[]any{e.EventID, r.id, typ, e.EventType, e.CorrelationID})
			require.Equal(t, w.log.events[n-1].Event, e)
		}
		begun := time.Now()
		for range 3 {
			lines, err := r.message()
			require.NoError(t, err)
			require.Equal(t, []string{": heartbeat"}, lines)
		}
		require.Equal(t, 45*time.Second, time.Since(begun).Round(15*time.Second))
		w.log.running("biology.genomes")
		lines, err = r.message()
		require.NoError(t, err)
		require.Equal(t, []string{": heartbeat", "id: 9-1-1"}, lines, "a caller who may not read the last events does not begin before them")
	})
}

// A stream goes on after each id, whether the tail has it or only the log, without loss or doubling. Without an id it
// begins at the end or at a time.
func TestStreamGoesOnAfterAnID(t *testing.T) {
	inStreamWorld(t, nil, func(t *testing.T, w *streamWorld) {
		var all []string
		for n := 1; n <= 8; n++ {
			w.log.running("physics.lattice")
			all = append(all, fmt.Sprint("e", n))
		}
		for _, tailed := range []bool{false, true} {
			if tailed { // a stream since before the next events keeps them in the tail
				w.follow(petra, "")
				synctest.Wait()
				for n := 9; n <= 12; n++ {
					w.log.running("physics.lattice")
					all = append(all, fmt.Sprint("e", n))
				}
			}
			for n := 0; n <= len(all); n++ {
				id := fmt.Sprint(n, "-1-1")
				if n == 0 {
					id = plan.FirstPlace
				}
				require.Equal(t, all[n:], append([]string{}, w.follow(anna, "", "Last-Event-ID", id).ids()...), id)
				require.Equal(t, all[n:], append([]string{}, w.follow(anna, "?last_event_id="+id).ids()...), id)
			}
		}
		require.Equal(t, all[10:], w.follow(anna, "?last_event_id=3-1-1", "Last-Event-ID", "10-1-1").ids(), "the header is later")
		require.Empty(t, w.follow(anna, "").ids())
		since := "?since=" + now.Add(6*time.Hour).Format(time.RFC3339)
		require.Equal(t, all[5:], w.follow(anna, since).ids())
		require.Equal(t, all[10:], w.follow(anna, since, "Last-Event-ID", "10-1-1").ids())
		require.Empty(t, w.follow(anna, "?since=2030-01-01T00:00:00Z").ids())
	})
}

func TestStreamRefusesWrongRequests(t *testing.T) {
	inStreamWorld(t, nil, func(t *testing.T, w *streamWorld) {
		w.log.running("physics.lattice")
		for _, c := range []struct {
			query   string
			code    code
			headers []string
		}{
			{"", codePlace, []string{"Last-Event-ID", "2-1-1"}},
			{"", codePlace, []string{"Last-Event-ID", "x"}},
			{"", codePlace, []string{"Last-Event-ID", ""}},
			{"", codePlace, []string{"Last-Event-ID", "1-1-1", "Last-Event-ID", "1-1-1"}},
			{"?last_event_id=9", codePlace, nil},
			{"?last_event_id=", codePlace, nil},
			{"?since=yesterday", codeQuery, nil},
			{"?since=", codeQuery, nil},
			{"?type=apps.nothing", codeQuery, nil},
			{"?type=apps*", codeQuery, nil},
			{"?type=", codeQuery, nil},
			{"?type=*", codeQuery, nil},
			{"?project=physics", codeQuery, nil},
			{"?project=", codeQuery, nil},
			{"?project=physics.lattice&project=physics.lattice", codeQuery, nil},
			{"?limit=1", codeQuery, nil},
			{"?%zz", codeQuery, nil},
			{"?project=physics.collider", codeNotFound, nil},
			{"?project=biology.genomes", codeNotFound, nil},
			{"?project=no.thing", codeNotFound, nil},
			{"?project=physics.lattice", codeQuery, []string{"X-Project-ID", "physics.collider"}},
			{"", codeAccept, []string{"Accept", "application/json"}},
			{"", codeMisplaced, []string{"X-Break-Glass", "why"}},
		} {
			res := w.open(streamPath+c.query, personToken(anna), c.headers...).res
			require.Equal(t, c.code, codeOf(t, res), "%s %v", c.query, c.headers)
		}
		require.Equal(t, http.StatusUnauthorized, w.open(streamPath, "").res.StatusCode)
		require.Equal(t, http.StatusForbidden, w.open(streamPath, personToken(otto)).res.StatusCode,
			"a platform user has no project")
		w.log.fail(plan.ErrFarPlace)
		require.Equal(t, codePlace, codeOf(t, w.open(streamPath, personToken(anna), "Last-Event-ID", "1-1-1").res))
		w.log.fail(errors.New("disk"))
		require.Equal(t, codeNotReady, codeOf(t, w.open(streamPath, personToken(anna)).res))
		require.Contains(t, w.world.log.String(), "event log unreadable")
		res := w.ask(http.MethodHead, streamPath, personToken(anna))
		require.Equal(t, []any{200, eventStream}, []any{res.StatusCode, res.Header.Get("Content-Type")})
	})
}

// campusEvents publishes an event of each kind of resource, and returns for each caller those that it may read.
func campusEvents(l *memoryLog) map[string][]string {
	want := map[string][]string{}
	put := func(typ event.Type, payload any, callers ...string) {
		l.publish(typ, payload)
		for _, c := range append(callers, "admin") {
			want[c] = append(want[c], fmt.Sprint("e", len(l.events)))
		}
	}
	const project, sibling, other = "physics.lattice", "physics.collider", "biology.genomes"
	put(event.InstanceRunning, event.Instance{OrgID: "physics", ProjectID: project, AppSlug: "slurm"}, anna, petra)
	put(event.InstanceRunning, event.Instance{OrgID: "physics", ProjectID: sibling, AppSlug: "slurm"}, petra)
	put(event.InstanceRunning, event.Instance{OrgID: "biology", ProjectID: other, AppSlug: "slurm"}, boris)
	put(event.InstanceSuspended, event.Suspension{OrgID: "physics", ProjectID: project, AppSlug: "slurm"}, anna, petra)
	put(event.EntitlementUpdated, event.Entitlement{OrgID: "physics", ProjectID: project}, anna, petra)
	put(event.ArtifactPromoted, event.Artifact{OrgID: "physics", ProjectID: project}, anna, petra)
	put(event.ArtifactPromoted, event.Artifact{OrgID: "biology", ProjectID: other}, boris)
	put(event.JobsLost, event.LostJobs{OrgID: "physics", ProjectID: project}, anna, petra)
	put(event.JobsLost, event.LostJobs{OrgID: "physics", SharedRuntimeID: "department"}, petra)
	put(event.JobsLost, event.LostJobs{SharedRuntimeID: "commons"})
	put(event.MembersMoved, event.Moved{OrgID: "physics", ProjectID: project, AppSlug: "slurm"}, anna, petra)
	put(event.MembersMoved, event.Moved{OrgID: "physics", SharedRuntimeID: "department"}, petra)
	put(event.MembersMoved, event.Moved{SharedRuntimeID: "commons"})
	put(event.ConditionChanged, event.Condition{OrgID: "physics", ProjectID: project, AppSlug: "slurm", ResourceKind: "Instance"}, anna, petra)
	put(event.ConditionChanged, event.Condition{OrgID: "physics", AppSlug: "slurm", ResourceKind: "SharedRuntime"}, petra)
	put(event.ConditionChanged, event.Condition{ResourceKind: "Node", ResourceName: "n1"})
	put(event.OperationDone, event.Operation{OrgID: "physics", ProjectID: project, AppSlug: "slurm"}, anna, petra)
	put(event.OperationDone, event.Operation{OrgID: "physics", SharedRuntimeID: "department"}, petra)
	put(event.OperationDone, event.Operation{SharedRuntimeID: "commons"})
	put(event.SharedRuntimeRunning, event.SharedRuntime{OrgID: "physics", ResourceName: "physics/department"}, anna, petra)
	put(event.SharedRuntimeRunning, event.SharedRuntime{OrgID: "physics", ResourceName: "physics/unknown"}, petra)
	put(event.SharedRuntimeRunning, event.SharedRuntime{ResourceName: "commons", OperatorID: "platform"}, boris)
	put(event.AttachmentAttached, event.Attachment{OrgID: "physics", ProjectID: project}, anna, petra)
	put(event.AttachmentAttached, event.Attachment{OrgID: "physics", ProjectID: sibling}, petra)
	put(event.AttachmentAttached, event.Attachment{ProjectID: "biology.proteins"}, boris)
	put(event.QueueModeChanged, event.QueueMap{ResourceName: "campus"})
	put(event.QueueModeChanged, event.QueueMap{OrgID: "physics", ProjectID: project})
	put("berth.later.version", map[string]string{"org_id": "physics", "project_id": project})
	put(event.InstanceRunning, event.Instance{OrgID: "biology", ProjectID: project, AppSlug: "slurm"}) // no document of any tenant
	return want
}

// A caller gets exactly the events of resources that other paths show it. Those of the platform are for its users, with
// break-glass access (requirement E7).
func TestStreamShowsWhatOtherPathsShow(t *testing.T) {
	inStreamWorld(t, nil, func(t *testing.T, w *streamWorld) {
		want := campusEvents(w.log)
		for _, who := range []string{anna, petra, boris} {
			require.Equal(t, want[who], w.follow(who, "?last_event_id="+plan.FirstPlace).ids(), who)
		}
		require.Empty(t, w.audited)
		const adminPath = "/api/v1/admin/events/stream?last_event_id=" + plan.FirstPlace
		r := w.open(adminPath, personToken(otto), "X-Break-Glass", "an incident")
		require.Equal(t, http.StatusOK, r.res.StatusCode)
		require.Equal(t, want["admin"], r.ids())
		require.Len(t, w.audited, 1)
		require.Equal(t, []any{otto, "an incident", "GET /api/v1/admin/events/stream"},
			[]any{w.audited[0].Actor, w.audited[0].Reason, w.audited[0].File})
		require.Equal(t, http.StatusBadRequest, w.open(adminPath, personToken(otto)).res.StatusCode)
		require.Equal(t, http.StatusNotFound, w.open(adminPath, personToken(petra), "X-Break-Glass", "curious").res.StatusCode)

		r = w.open(adminPath+"&project=physics.lattice", personToken(otto), "X-Break-Glass", "an incident")
		require.NotEmpty(t, r.ids())
		require.Equal(t, "physics.lattice", w.audited[len(w.audited)-1].ProjectID)
	})
}

// A family that is switched off has no events.
func TestStreamHasNoEventsOfDisabledFamilies(t *testing.T) {
	inStreamWorld(t, func(o *Options) { o.Off = []Family{Instances} }, func(t *testing.T, w *streamWorld) {
		w.log.running("physics.lattice")
		w.log.publish(event.ArtifactPromoted, event.Artifact{OrgID: "physics", ProjectID: "physics.lattice"})
		require.Equal(t, []string{"e2"}, w.follow(anna, "?last_event_id="+plan.FirstPlace).ids())
	})
	inStreamWorld(t, func(o *Options) { o.Off = []Family{Events} }, func(t *testing.T, w *streamWorld) {
		require.Equal(t, codeFeature, codeOf(t, w.open(streamPath, personToken(anna)).res))
	})
}

// Texts that other paths hide from a caller are empty.
func TestStreamHidesForeignTexts(t *testing.T) {
	inStreamWorld(t, nil, func(t *testing.T, w *streamWorld) {
		failed := func(reason string) {
			w.log.publish(event.InstanceFailed, event.Instance{OrgID: "physics", ProjectID: "physics.lattice", AppSlug: "slurm",
				FailureReason: reason, RequestedBy: "ben-lattice"})
		}
		failed("worker-0: no such device")
		failed("node is taken by Instance biology.genomes/assembly")
		w.log.publish(event.SharedRuntimeRunning, event.SharedRuntime{ResourceName: "commons", OperatorID: "platform",
			FailureReason: "head-1 is down"})
		r := w.follow(anna, "?last_event_id="+plan.FirstPlace)
		for _, want := range []string{"worker-0: no such device", ""} {
			var i event.Instance
			e, _ := r.event()
			require.NoError(t, json.Unmarshal(e.Payload, &i))
			require.Equal(t, []string{want, "ben-lattice", "slurm"}, []string{i.FailureReason, i.RequestedBy, i.AppSlug})
		}
		e, _ := w.follow(boris, "?last_event_id="+plan.FirstPlace).event()
		require.Equal(t, string(event.SharedRuntimeRunning), e.EventType)
		require.NotContains(t, string(e.Payload), "head-1")
		require.NotContains(t, string(e.Payload), `"platform"`)
	})
}

// The rules in force when an event is sent decide: a revoked role ends the view, and a new one begins it.
func TestStreamFollowsTheRulesInForce(t *testing.T) {
	without := with(campusFiles(t), map[string]string{"tenants/physics/projects/lattice/roles.yaml": strings.ReplaceAll(
		campusFiles(t)["tenants/physics/projects/lattice/roles.yaml"], anna, "somebody-else")})
	revoked := viewOf(t, without)
	inStreamWorld(t, nil, func(t *testing.T, w *streamWorld) {
		before := w.view
		r := w.follow(anna, "")
		w.log.running("physics.lattice")
		e, _ := r.event()
		require.Equal(t, "e1", e.EventID)
		synctest.Wait()
		w.view = revoked
		w.log.running("physics.lattice")
		synctest.Wait()
		w.view = before
		w.log.running("physics.lattice")
		e, _ = r.event()
		require.Equal(t, "e3", e.EventID, "what happened without the role is not sent later")
	})
}

// The stream ends with the token.
func TestStreamEndsWithTheToken(t *testing.T) {
	var people []Person
	inStreamWorld(t, func(o *Options) {
		people = o.People()
		o.People = func() []Person { return people }
	}, func(t *testing.T, w *streamWorld) {
		r, other := w.follow(anna, ""), w.follow(petra, "")
		synctest.Wait()
		people = people[:1] // petra's
		require.Contains(t, r.few(), ": the stream ends: the token")
		_, err := other.message()
		require.NoError(t, err)
		lines, err := other.message()
		require.NoError(t, err)
		require.Equal(t, []string{": heartbeat"}, lines)
	})
}

func TestStreamFilters(t *testing.T) {
	inStreamWorld(t, nil, func(t *testing.T, w *streamWorld) {
		w.log.running("physics.lattice")
		w.log.running("physics.collider")
		w.log.publish(event.InstanceFailed, event.Instance{OrgID: "physics", ProjectID: "physics.lattice", AppSlug: "slurm"})
		w.log.publish(event.ArtifactPromoted, event.Artifact{OrgID: "physics", ProjectID: "physics.lattice"})
		for query, want := range map[string][]string{
			"":                            {"e1", "e2", "e3", "e4"},
			"&type=apps.instance.running": {"e1", "e2"},
			"&type=apps.instance.*":       {"e1", "e2", "e3"},
			"&type=apps.*":                {"e1", "e2", "e3", "e4"},
			"&type=apps.instance.failed&type=apps.artifact.*":     {"e3", "e4"},
			"&project=physics.lattice":                            {"e1", "e3", "e4"},
			"&project=physics.lattice&type=apps.instance.running": {"e1"},
			"&type=berth.*": nil,
		} {
			require.Equal(t, want, w.follow(petra, "?last_event_id="+plan.FirstPlace+query).ids(), query)
		}
		require.Equal(t, []string{"e2"}, w.follow(petra, "?last_event_id="+plan.FirstPlace, "X-Project-ID", "physics.collider").ids())
	})
}

// A caller that does not read is disconnected, holds up no other, and goes on where it stopped. Time passes in a bubble.
func TestSlowReaderIsDisconnected(t *testing.T) {
	inStreamWorld(t, nil, func(t *testing.T, w *streamWorld) {
		slow, quick := w.follow(anna, ""), w.follow(petra, "")
		_, err := slow.message()
		require.NoError(t, err)
		big := strings.Repeat("x", maxChunk)
		for range 3 {
			w.log.publish(event.InstanceFailed, event.Instance{OrgID: "physics", ProjectID: "physics.lattice", AppSlug: "slurm",
				FailureReason: big})
		}
		begun := time.Now()
		for n := 1; n <= 3; n++ {
			e, _ := quick.event()
			require.Equal(t, fmt.Sprint("e", n), e.EventID)
		}
		require.Zero(t, time.Since(begun))
		go quick.rest()
		time.Sleep(slowReader + time.Second) // in the bubble
		synctest.Wait()
		w.api.feed.mu.Lock()
		streams := maps.Clone(w.api.feed.streams)
		w.api.feed.mu.Unlock()
		require.Equal(t, map[string]int{petra: 1}, streams)
		require.Equal(t, "0-0-0", slow.id)
		require.Equal(t, []string{"e1", "e2", "e3"}, w.follow(anna, "", "Last-Event-ID", slow.id).ids())
	})
}

// A stream without events outlives slowReader over HTTP/2 too, where a deadline of writing ends also a stream that
// writes nothing.
func TestQuietStreamOverHTTP2GoesOn(t *testing.T) {
	inStreamWorld(t, nil, func(t *testing.T, w *streamWorld) {
		protocols := &http.Protocols{}
		protocols.SetUnencryptedHTTP2(true) // what TLS carries is the same
		conns := make(chan net.Conn)
		server := &http.Server{Handler: w.api, Protocols: protocols}
		go func() { _ = server.Serve(pipes{conns}) }()
		defer func() { _ = server.Close() }()
		transport := &http.Transport{Protocols: protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			conns <- far
			return near, nil
		}}
		defer transport.CloseIdleConnections()
		r, err := http.NewRequest(http.MethodGet, "http://berth"+streamPath, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+personToken(anna))
		res, err := transport.RoundTrip(r)
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		require.Equal(t, []int{http.StatusOK, 2}, []int{res.StatusCode, res.ProtoMajor})
		in := &reader{t: t, res: res, in: bufio.NewReader(res.Body)}
		_, err = in.message()
		require.NoError(t, err)
		for range 2 {
			lines, err := in.message()
			require.NoError(t, err)
			require.Equal(t, []string{": heartbeat"}, lines)
		}
		w.log.running("physics.lattice")
		e, _ := in.event()
		require.Equal(t, "e1", e.EventID)
	})
}

// What a stream that is behind may miss in memory is bounded: it is disconnected, and reads it from the log.
func TestTailIsBounded(t *testing.T) {
	tl := newTail()
	tl.add(nil, plan.FirstPlace)
	place := func(n int) string { return fmt.Sprint(n, "-1-1") }
	for n := 1; n <= maxKept+10; n++ {
		tl.add([]plan.PlacedEvent{{Place: place(n)}}, place(n))
	}
	require.Len(t, tl.kept, maxKept)
	_, ok, _ := tl.after(9)
	require.False(t, ok)
	events, ok, _ := tl.after(10)
	require.True(t, ok)
	require.Equal(t, []any{maxTaken, place(11)}, []any{len(events), events[0].Place})
	for at, want := range map[string]int{place(10): 10, place(11): 11, place(maxKept + 10): maxKept + 10, "": maxKept + 10} {
		number, _, ok, _ := tl.find(at)
		require.True(t, ok, at)
		require.Equal(t, want, number, at)
	}
	for _, at := range []string{plan.FirstPlace, place(9), "x"} {
		_, _, ok, _ := tl.find(at)
		require.False(t, ok, at)
	}
	payload := json.RawMessage(strings.Repeat("x", 1<<20))
	for n := range 20 {
		tl.add([]plan.PlacedEvent{{Place: fmt.Sprint("big-", n), Event: plan.Event{Payload: payload}}}, fmt.Sprint("big-", n))
	}
	require.Len(t, tl.kept, maxKeptBytes>>20)
	require.Equal(t, maxKeptBytes, tl.bytes)
}

func TestStreamsAreBounded(t *testing.T) {
	inStreamWorld(t, nil, func(t *testing.T, w *streamWorld) {
		var all []*reader
		for range maxCallerStreams {
			all = append(all, w.follow(anna, ""))
		}
		require.Equal(t, codeRate, codeOf(t, w.open(streamPath, personToken(anna)).res))
		w.follow(petra, "")
		_ = all[0].conn.Close()
		synctest.Wait()
		all = append(all, w.follow(anna, ""))
		w.api.feed.mu.Lock()
		w.api.feed.all = maxStreams
		w.api.feed.mu.Unlock()
		require.Equal(t, codeRate, codeOf(t, w.open(streamPath, personToken(petra)).res))
		w.api.feed.mu.Lock()
		w.api.feed.all = maxCallerStreams + 1
		w.api.feed.mu.Unlock()
		_ = all
	})
}

// The callers of one tenant take no stream from those of another.
func TestStreamsOfATenantAreBounded(t *testing.T) {
	inStreamWorld(t, nil, func(t *testing.T, w *streamWorld) {
		const tenant = "tenant physics"
		var leaves []func()
		for n := range maxOwnerStreams {
			_, leave, fail := w.api.feed.join(fmt.Sprint("physics.lattice/ci-", n), tenant)
			require.Nil(t, fail)
			leaves = append(leaves, leave)
		}
		const lattice = streamPath + "?project=physics.lattice"
		require.Equal(t, codeRate, codeOf(t, w.open(lattice, personToken(anna)).res))
		w.follow(boris, "?project=biology.genomes")
		leaves[0]()
		last := w.follow(anna, "?project=physics.lattice")
		require.Equal(t, codeRate, codeOf(t, w.open(lattice, personToken(anna)).res))
		for _, leave := range leaves[1:] {
			leave()
		}
		_ = last.conn.Close()
		synctest.Wait()
		w.api.feed.mu.Lock()
		owners := maps.Clone(w.api.feed.owners)
		w.api.feed.mu.Unlock()
		require.Equal(t, map[string]int{"tenant biology": 1}, owners)
	})
}

// Readings of the log for one tenant, which may take long, leave a place for others. Streams that wait send heartbeats. Time
// passes in a bubble.
func TestReadingForATenantDelaysNoOther(t *testing.T) {
	inStreamWorld(t, nil, func(t *testing.T, w *streamWorld) {
		for range 5 {
			w.log.running("physics.lattice")
			w.log.running("biology.genomes")
		}
		w.log.slow, w.log.gate = "5-1-1", make(chan struct{})
		heartbeats, events := make(chan struct{}, 10), make(chan string, 10*maxLogReads)
		for range maxLogReads { // also one that waits for its turn
			go func() {
				r := w.open(streamPath+"?project=physics.lattice", personToken(anna), "Last-Event-ID", "2-1-1")
				for lines, err := r.message(); err == nil; lines, err = r.message() {
					for _, line := range lines {
						if line == ": heartbeat" {
							heartbeats <- struct{}{}
						} else if id, ok := strings.CutPrefix(line, "id: "); ok {
							events <- id
						}
					}
				}
			}()
		}
		synctest.Wait()
		others := make(chan []string, 1)
		go func() { others <- w.follow(boris, "?project=biology.genomes", "Last-Event-ID", plan.FirstPlace).ids() }()
		time.Sleep(heartbeat)
		synctest.Wait()
		require.Len(t, others, 1, "the stream of another tenant waits")
		require.Equal(t, []string{"e2", "e4", "e6", "e8", "e10"}, <-others)
		require.GreaterOrEqual(t, len(heartbeats), maxLogReads*3/4)
		require.NotContains(t, seenOf(events), "7-1-1")
		close(w.log.gate)
		synctest.Wait()
		count := map[string]int{}
		for _, id := range seenOf(events) {
			count[id]++
		}
		require.Equal(t, maxLogReads, count["9-1-1"])
	})
}

func seenOf(events chan string) (ids []string) {
	for len(events) > 0 {
		ids = append(ids, <-events)
	}
	return ids
}

// Clients connect again every few seconds while the log is damaged: the log of the daemon tells each change once.
func TestUnreadableEventLogIsLoggedOnce(t *testing.T) {
	inStreamWorld(t, nil, func(t *testing.T, w *streamWorld) {
		for n := 1; n <= 2; n++ {
			w.log.fail(errors.New("disk"))
			synctest.Wait()
			for range 3 {
				require.Equal(t, codeNotReady, codeOf(t, w.open(streamPath, personToken(anna)).res))
				synctest.Wait()
			}
			require.Equal(t, n, strings.Count(w.world.log.String(), "event log unreadable"))
			w.log.fail(nil)
			for range 2 {
				w.follow(anna, "")
				synctest.Wait()
			}
			require.Equal(t, n, strings.Count(w.world.log.String(), "event log readable again"))
		}
	})
}

// A service account that reads shared runtimes only follows its project, and no refusal is recorded of it.
func TestPermittedStreamIsNotRecordedAsRefused(t *testing.T) {
	for scope, want := range map[string][]int{
		"shared_runtimes.read": {http.StatusOK, 0},
		"apps.instance.read":   {http.StatusOK, 0},
		"apps.artifact.read":   {http.StatusNotFound, 1},
	} {
		view := viewOf(t, with(campusFiles(t), map[string]string{
			"tenants/physics/projects/lattice/service-accounts/ci.yaml": fmt.Sprintf("apiVersion: berth/v1\nkind: ServiceAccount\n"+
				"metadata: {name: ci}\nspec:\n  display_name: x\n  public_keys: [{id: current, key: %q}]\n  scopes: [%s]\n"+
				"  allowed_endpoints: [GET %s]\n", authorised(t, testKey().Public()), scope, streamPath),
		}))
		inStreamWorld(t, nil, func(t *testing.T, w *streamWorld) {
			w.view = view
			r := w.open(streamPath+"?project=physics.lattice", w.token("physics.lattice/ci"))
			synctest.Wait()
			require.Equal(t, want, []int{r.res.StatusCode, len(w.audited)}, scope)
		})
	}
}

// One reader of the log serves all streams, and ends with the last one.
func TestOneReaderServesAllStreams(t *testing.T) {
	inStreamWorld(t, nil, func(t *testing.T, w *streamWorld) {
		var all []*reader
		for range 4 {
			all = append(all, w.follow(anna, ""), w.follow(petra, ""))
		}
		synctest.Wait()
		before := w.log.reads
		w.log.running("physics.lattice")
		for _, r := range all {
			e, _ := r.event()
			require.Equal(t, "e1", e.EventID)
		}
		require.LessOrEqual(t, w.log.reads-before, 2, "the event, and that there is no more")
		for _, r := range all {
			_ = r.conn.Close()
		}
		synctest.Wait()
		before = w.log.reads
		w.log.running("physics.lattice")
		synctest.Wait()
		require.Equal(t, before, w.log.reads)
	})
}

// The end of the daemon ends streams at once, also of callers that do not read; so does the end of leadership.
func TestStreamsEndWithTheDaemon(t *testing.T) {
	inStreamWorld(t, nil, func(t *testing.T, w *streamWorld) {
		r, slow := w.follow(anna, ""), w.follow(petra, "")
		w.log.publish(event.InstanceFailed, event.Instance{OrgID: "physics", ProjectID: "physics.collider", AppSlug: "slurm",
			FailureReason: strings.Repeat("x", maxChunk)}) // petra's connection takes no more
		_ = slow
		begun := time.Now()
		synctest.Wait()
		w.api.EndStreams()
		r.rest()
		synctest.Wait()
		require.Zero(t, time.Since(begun))
		w.api.feed.mu.Lock()
		all := w.api.feed.all
		w.api.feed.mu.Unlock()
		require.Zero(t, all)
		require.Equal(t, codeNotReady, codeOf(t, w.open(streamPath, personToken(anna)).res))
	})
	inStreamWorld(t, nil, func(t *testing.T, w *streamWorld) {
		r := w.follow(anna, "")
		synctest.Wait()
		w.log.fail(ErrNoEventLog)
		require.Contains(t, r.rest(), "this daemon reads the event log no more")
		require.NotContains(t, w.world.log.String(), "event log unreadable")
		w.log.fail(nil)
		w.follow(anna, "")
	})
}

// A service account needs the path in its allowed_endpoints, and reads its own project.
func TestStreamOfAServiceAccount(t *testing.T) {
	const account = "apiVersion: berth/v1\nkind: ServiceAccount\nmetadata: {name: ci}\nspec:\n  display_name: x\n  public_keys: " +
		"[{id: current, key: %q}]\n  scopes: [apps.instance.read, scheduler.instance.read]\n  allowed_endpoints: [%s]\n"
	for endpoint, status := range map[string]int{"GET " + streamPath: http.StatusOK, "GET /api/v1/apps/catalog": http.StatusForbidden} {
		view := viewOf(t, with(campusFiles(t), map[string]string{
			"tenants/physics/projects/lattice/service-accounts/ci.yaml": fmt.Sprintf(account, authorised(t, testKey().Public()), endpoint),
		}))
		inStreamWorld(t, nil, func(t *testing.T, w *streamWorld) {
			w.view = view
			token := w.token("physics.lattice/ci")
			r := w.open(streamPath, token)
			require.Equal(t, status, r.res.StatusCode)
			if status != http.StatusOK {
				return
			}
			w.log.running("physics.lattice")
			w.log.running("physics.collider")
			w.log.publish(event.ArtifactPromoted, event.Artifact{OrgID: "physics", ProjectID: "physics.lattice"})
			w.log.running("physics.lattice")
			for _, want := range []string{"e1", "e4"} {
				e, _ := r.event()
				require.Equal(t, want, e.EventID)
			}
			w.now = w.now.Add(time.Hour)
			require.Contains(t, r.few(), ": the stream ends: the token")
		})
	}
}

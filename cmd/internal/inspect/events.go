package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"berth/cmd/internal/cli"
	"berth/reconciler/gitrepo/statusbranch"
	"berth/reconciler/plan"
)

// eventPayload has the fields that name the resource of an event.
type eventPayload struct {
	OrgID           string `json:"org_id"`
	ProjectID       string `json:"project_id"`
	AppSlug         string `json:"app_slug"`
	ResourceName    string `json:"resource_name"`
	AppInstanceID   string `json:"app_instance_id"`
	ArtifactID      string `json:"artifact_id"`
	SharedRuntimeID string `json:"shared_runtime_id"`
	AttachmentID    string `json:"attachment_id"`
	Revision        string `json:"revision"`
	FailureReason   string `json:"failure_reason"`
}

// payloadOf decodes an event's payload, as far as it has these fields.
func payloadOf(e plan.Event) (p eventPayload) {
	_ = json.Unmarshal(e.Payload, &p)
	return p
}

// about is the name of the event's resource, as the commands take it.
func (p eventPayload) about() string {
	switch {
	case p.ResourceName != "":
		return p.ResourceName
	case p.AppInstanceID != "": // an event without a resource name
		return p.ProjectID + "/" + p.AppInstanceID
	case p.ArtifactID != "":
		return p.ProjectID + "/" + p.ArtifactID
	case p.AttachmentID != "":
		return p.SharedRuntimeID + "/" + p.AttachmentID
	case p.SharedRuntimeID != "":
		return p.SharedRuntimeID
	}
	return p.ProjectID + "/" + p.AppSlug
}

// eventCells is an event as a row of a table.
func eventCells(e plan.Event, p eventPayload) []string {
	return []string{cli.Stamp(e.OccurredAt), e.EventType, p.about(), e.CorrelationID, p.FailureReason}
}

// EventFilter selects events; an empty field selects all.
type EventFilter struct {
	Correlation string
	Instance    string // TENANT.PROJECT/NAME
	Since       string // a time, a day or a duration ago

	from time.Time
}

// Begin parses Since.
func (f *EventFilter) Begin(now time.Time) (err error) {
	f.from, err = beginOf(f.Since, now)
	return err
}

func (f EventFilter) takes(e plan.Event, p eventPayload) bool {
	return (f.Correlation == "" || e.CorrelationID == f.Correlation) && (f.Instance == "" || p.AppInstanceID != "" &&
		p.about() == f.Instance) && !e.OccurredAt.Before(f.from)
}

// followInterval is the time between two looks at the branch.
const followInterval = 500 * time.Millisecond

// EventColumns are the columns of a table of events.
func EventColumns() []string {
	return []string{"TIME", "EVENT", "RESOURCE", "CORRELATION-ID", "REASON"}
}

// Project returns the project of the instance that the filter selects; "": it selects none.
func (f EventFilter) Project() string {
	project, _, _ := strings.Cut(f.Instance, "/")
	return project
}

// From returns the time that Since names; zero: none.
func (f EventFilter) From() time.Time { return f.from }

// PrintEvent prints an event in its JSON form, as a daemon sends it, if the filter selects it.
func PrintEvent(out *cli.Entries, filter EventFilter, data string) error {
	var e plan.Event
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		return fmt.Errorf("the server sent something else than an event: %w; is it another version?", err)
	}
	p := payloadOf(e)
	if !filter.takes(e, p) {
		return nil
	}
	return errors.Join(out.Add(e, eventCells(e, p)...), out.Flush())
}

// Events prints the events that a filter selects, oldest first. With follow, it prints
// new ones as the branch gets them, until ctx ends. Without, unreadable events are
// exit status 1, and a name of the filter that no event has is an error.
func (s Source) Events(ctx context.Context, out *cli.Entries, stderr io.Writer, filter EventFilter, follow bool) error {
	f := follower{source: s, out: out, stderr: stderr, filter: filter, known: wanted(nil)}
	if !follow { // the names of a log that is followed are not complete
		f.known = wanted(map[string]string{"correlation": filter.Correlation, "instance": filter.Instance})
	}
	damaged, err := f.more(ctx)
	if err == nil && !damaged {
		err = f.known.check("event")
	}
	for follow && err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followInterval):
		}
		_, err = f.more(ctx)
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case err == nil && damaged:
		return cli.Exit(1)
	}
	return err
}

// follower prints a log, and continues after the last event that it showed.
type follower struct {
	source Source
	out    *cli.Entries
	stderr io.Writer
	filter EventFilter
	known  names  // of the events
	tip    string // of the branch, when it was last read
	last   statusbranch.Logged[plan.Event]
}

// more shows the events that were not shown yet. damaged: some are unreadable.
func (f *follower) more(ctx context.Context) (damaged bool, err error) {
	l, err := f.source.Open(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.out.Flush(), l.Close()) }()
	if l.status == f.tip {
		return false, nil
	}
	if f.tip != "" {
		return f.later(ctx, l)
	}
	for e, err := range l.Events(ctx, l.status, order(f.stderr, false)) {
		if f.last = e; err != nil {
			damaged = true
			fmt.Fprintf(f.stderr, "berth: %s:%d: %v\n", cli.Visible(e.File), e.Line, err)
			continue
		}
		if err := f.add(e.Value); err != nil {
			return damaged, err
		}
	}
	f.tip = l.status
	if f.filter.Instance != "" {
		inForce, err := l.inForce(ctx)
		if err != nil {
			return damaged, err
		}
		f.known.addUnits(inForce)
	}
	return damaged, ctx.Err()
}

// later shows the events after the last one shown. It reads from the end backwards,
// so that it costs as much as there are new events.
func (f *follower) later(ctx context.Context, l *Repository) (damaged bool, err error) {
	var fresh []statusbranch.Logged[plan.Event]
	for e, err := range l.Events(ctx, l.status, order(io.Discard, true)) {
		if e.File == f.last.File && e.Line == f.last.Line {
			break
		}
		if err != nil {
			damaged = true
			fmt.Fprintf(f.stderr, "berth: %s:%d: %v\n", cli.Visible(e.File), e.Line, err)
			continue
		}
		fresh = append(fresh, e)
	}
	slices.Reverse(fresh)
	for _, e := range fresh {
		if err := f.add(e.Value); err != nil {
			return damaged, err
		}
		f.last = e
	}
	f.tip = l.status
	return damaged, ctx.Err()
}

// add prints an event, if the filter selects it.
func (f *follower) add(e plan.Event) error {
	f.known.add("correlation", e.CorrelationID)
	p := payloadOf(e)
	if p.AppInstanceID != "" {
		f.known.add("instance", p.about())
	}
	if !f.filter.takes(e, p) {
		return nil
	}
	return f.out.Add(e, eventCells(e, p)...)
}

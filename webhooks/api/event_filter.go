package api

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"berth/schema"
	"berth/schema/authority"
)

// eventQuery is what a caller asks of a stream of events.
type eventQuery struct {
	types   []string        // whole ones, or with .* at the end; empty: all
	project authority.Scope // zero: all
	since   time.Time       // zero: from place on
	place   string          // after which the stream begins; "": the end of the log
}

// eventType matches a type of event, or the beginning of one with .* behind it.
var eventType = regexp.MustCompile(`^[a-z0-9_]+(\.[a-z0-9_]+)*(\.\*)?$`)

// eventQueryOf reads the query of a call. The header Last-Event-ID goes before the query: a client that connects again
// repeats its first query.
func eventQueryOf(c *call, kinds map[string]schema.Kind) (eventQuery, *failure) {
	wrong := func(format string, args ...any) (eventQuery, *failure) {
		return eventQuery{}, &failure{code: codeQuery, message: fmt.Sprintf(format, args...)}
	}
	values, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return wrong("the query is malformed: percent-encode it")
	}
	for name, all := range values {
		if !slices.Contains([]string{"type", "project", "since", "last_event_id"}, name) {
			return wrong("unknown query parameter: this stream takes last_event_id, project, since, type")
		}
		if len(all) > 1 && name != "type" {
			return wrong("%s is given twice; give it once", name)
		}
	}
	q := eventQuery{types: values["type"], project: c.who.within, place: values.Get("last_event_id")}
	for _, t := range q.types {
		if !eventType.MatchString(t) {
			return wrong("type is a type of event such as apps.instance.running, or the beginning of one such as apps.instance.*")
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(kinds)), func(known string) bool { return takesType(t, known) }) {
			return wrong("there is no event %.60s: berth schema export --events DIR writes all of them", t)
		}
	}
	if text := values.Get("project"); values.Has("project") {
		tenant, project, ok := splitProject(text)
		named := authority.Scope{Tenant: tenant, Project: project}
		if !ok || q.project != (authority.Scope{}) && q.project != named {
			return wrong("project is <tenant>.<project>, the same as in X-Project-ID if that is set")
		}
		q.project = named
	}
	if text := values.Get("since"); values.Has("since") {
		if q.since, err = time.Parse(time.RFC3339, text); err != nil {
			return wrong("since must be a time such as 2026-11-24T10:00:00Z, percent-encoded where it has +")
		}
	}
	ids := c.Header.Values("Last-Event-ID")
	switch {
	case len(ids) > 1:
		return eventQuery{}, wrongPlace()
	case len(ids) == 1:
		q.place = ids[0]
	}
	if q.place == "" && (len(ids) == 1 || values.Has("last_event_id")) {
		return eventQuery{}, wrongPlace()
	}
	return q, nil
}

// wrongPlace is the failure of an id that no event of the log has.
func wrongPlace() *failure {
	return &failure{code: codePlace, message: "no event of this estate has that id: send the id of the last event that you got " +
		"unchanged, or leave it out and give since to begin at a time"}
}

// takesType reports whether a wanted type, whole or with .*, takes a type of event.
func takesType(wanted, is string) bool {
	if before, ok := strings.CutSuffix(wanted, "*"); ok {
		return strings.HasPrefix(is, before)
	}
	return wanted == is
}

// takes reports whether the caller asked for an event of a type at a time about a resource.
func (q eventQuery) takes(is string, at time.Time, about eventAbout) bool {
	return (len(q.types) == 0 || slices.ContainsFunc(q.types, func(t string) bool { return takesType(t, is) })) &&
		(q.project == (authority.Scope{}) || about.ProjectID == q.project.Tenant+"."+q.project.Project) && !at.Before(q.since)
}

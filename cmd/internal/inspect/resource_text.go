package inspect

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"berth/cmd/internal/cli"
	"berth/schema"
)

// column is a column of a kind's table: its header, and its cell for a resource.
type column struct {
	header string
	cell   func(*Resource) string
}

// documentField is a column with a field of the document.
func documentField(header string, path ...string) column {
	return column{header, func(r *Resource) string {
		var value any
		_ = json.Unmarshal(r.Document, &value) // it was made from a value
		for _, step := range path {
			object, _ := value.(map[string]any)
			value = object[step]
		}
		return cellOf(value)
	}}
}

// cellOf is a value of a document in one cell.
func cellOf(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case []any:
		var parts []string
		for _, item := range v {
			if gpu, ok := item.(map[string]any); ok && gpu["type"] != nil {
				item = fmt.Sprintf("%v×%v", gpu["count"], gpu["type"])
			}
			parts = append(parts, cellOf(item))
		}
		return strings.Join(parts, ",")
	}
	return fmt.Sprint(value)
}

// columnsOf returns the columns of a kind's table after NAME.
func columnsOf(kind schema.Kind) []column {
	phase := column{"PHASE", func(r *Resource) string {
		switch {
		case r.Status != nil:
			return r.Status.Phase
		case r.Invalid:
			return "invalid"
		}
		return ""
	}}
	ready := column{"READY", func(r *Resource) string {
		if r.Status == nil {
			return ""
		}
		return string(r.Status.Ready)
	}}
	of := func(f func(*ResourceStatus) string) func(*Resource) string {
		return func(r *Resource) string {
			if r.Status == nil {
				return ""
			}
			return f(r.Status)
		}
	}
	why := column{"WHY", of(func(s *ResourceStatus) string { return s.Why })}
	file := column{"FILE", func(r *Resource) string { return r.File }}
	switch kind {
	case schema.KindInstance:
		return []column{documentField("APP", "spec", "app"), documentField("VERSION", "spec", "version"), phase, ready,
			{"MEMBERS", of((*ResourceStatus).members)}, {"NODES", of((*ResourceStatus).nodes)}}
	case schema.KindNode:
		return nodeColumns()
	case schema.KindSharedRuntime:
		return []column{documentField("APP", "spec", "app"), documentField("VERSION", "spec", "version"), phase, ready,
			{"MEMBERS", of((*ResourceStatus).members)}, {"NODES", of((*ResourceStatus).nodes)},
			{"ATTACHED", of((*ResourceStatus).attached)}, why}
	case schema.KindAttachment:
		return []column{documentField("PROJECT", "spec", "project_id"), phase, ready, why}
	case schema.KindQueueMap:
		return []column{documentField("APP", "spec", "app"), phase, why, file}
	case schema.KindAppVersion:
		return []column{documentField("VERSION", "spec", "version"), documentField("BACKEND", "spec", "runtime_backend"),
			documentField("STATUS", "spec", "status"), file}
	case schema.KindTenant, schema.KindProject, schema.KindApp:
		return []column{documentField("DISPLAY-NAME", "spec", "display_name"), file}
	case schema.KindMemberOperation:
		return []column{documentField("OPERATION", "spec", "operation"), documentField("MEMBER", "spec", "member"), phase, why, file}
	case schema.KindArtifact, schema.KindContribution, schema.KindEntitlement:
		return []column{phase, ready, file}
	}
	return []column{file}
}

// Text implements cli.Report.
func (l *List) Text(p *cli.Page) error {
	columns := columnsOf(l.Kind)
	if slices.ContainsFunc(l.Items, func(r *Resource) bool { return r.SharedRuntime != nil }) {
		columns = append(columns, column{"SHARED-RUNTIME", func(r *Resource) string {
			if r.SharedRuntime == nil {
				return ""
			}
			return r.SharedRuntime.Name
		}})
	}
	headers := []string{"NAME"}
	for _, c := range columns {
		headers = append(headers, c.header)
	}
	t := p.Table(headers...)
	for _, r := range l.Items {
		cells := []string{r.Name}
		for _, c := range columns {
			cells = append(cells, c.cell(r))
		}
		t.Row(cells...)
	}
	return t.Flush()
}

// Text implements cli.Report.
func (d *Description) Text(p *cli.Page) error {
	var b strings.Builder
	item := d.Item
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", name, cli.Visible(fmt.Sprintf(format, args...)))
	}
	line("Name", "%s", item.Name)
	line("Kind", "%s", item.Key.Kind)
	line("Source", "%s", d.Source)
	if item.File != "" {
		line("File", "%s", item.File)
	} else {
		line("File", "none; the document is gone")
	}
	if item.Invalid {
		line("Invalid", "the document is not YAML; berth validate shows where")
	}
	if s := item.Status; s != nil {
		line("Status", "%s", s.line())
	} else {
		line("Status", "nothing recorded")
	}
	for _, h := range item.Held {
		line("Held", "%s (%s): %s", h.File, h.Why(), h.Message)
	}
	if item.SharedRuntime != nil {
		line("Uses", "%s", item.SharedRuntime.line())
	}
	if len(item.UsedBy) > 0 {
		line("Used by", "%s", strings.Join(item.UsedBy, ", "))
	}
	item.nodeLines(line)
	if _, err := io.WriteString(p, b.String()); err != nil {
		return err
	}
	if err := d.tables(p); err != nil || item.text == "" {
		return err
	}
	var document strings.Builder
	document.WriteString("\nDocument\n")
	for text := range strings.Lines(item.text) {
		document.WriteString("  " + cli.Visible(strings.TrimRight(text, "\r\n")) + "\n")
	}
	_, err := io.WriteString(p, document.String())
	return err
}

// tables writes what Berth recorded of the resource.
func (d *Description) tables(p *cli.Page) error {
	s := d.Item.Status
	if s == nil {
		s = &ResourceStatus{}
	}
	members := p.Table("MEMBER", "NODE", "STATE", "WHY THERE")
	isLent := slices.ContainsFunc(s.Members, func(m memberStatus) bool { return m.Source != "" })
	if isLent {
		members = p.Table("MEMBER", "NODE", "STATE", "SOURCE", "UNTIL", "WHY THERE")
	}
	attachments := p.Table("PROJECT", "ATTACHMENT", "PHASE", "REASON", "MESSAGE")
	conditions := p.Table("CONDITION", "STATUS", "REASON", "MESSAGE")
	events := p.Table("TIME", "EVENT", "CORRELATION-ID", "REASON")
	for _, m := range s.Members {
		why := cli.Join(m.Why, m.Note)
		if isLent {
			members.Row(m.Name, m.Node, m.state(), m.Source, m.Until, why)
		} else {
			members.Row(m.Name, m.Node, m.state(), why)
		}
	}
	for _, a := range s.Attachments {
		attachments.Row(a.ProjectID, a.Name, string(a.Phase), string(a.Reason), a.Message)
	}
	for _, c := range s.Conditions {
		conditions.Row(string(c.Type), string(c.Status), string(c.Reason), c.Message)
	}
	for _, e := range d.Events {
		events.Row(cli.Stamp(e.OccurredAt), e.EventType, e.CorrelationID, payloadOf(e).FailureReason)
	}
	return p.Tables(members, attachments, conditions, events)
}

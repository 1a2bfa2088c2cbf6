package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"berth/cmd/internal/cli"
	"berth/schema"
	"berth/schema/audit"
)

// AuditVerdict is the JSON of `berth audit verify`.
type AuditVerdict struct {
	Format  string     `json:"format"` // berth.audit.verify/v1
	Commit  string     `json:"commit"` // of berth/status
	Whole   bool       `json:"whole"`
	Records uint64     `json:"records"` // valid ones, from the first on
	Head    audit.Head `json:"head"`    // as revision.yaml has it
	Broken  *brokenAt  `json:"broken,omitempty"`

	broke error // nil: the chain is whole
}

type brokenAt struct {
	Sequence uint64 `json:"sequence"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	What     string `json:"what"`
}

// VerifyAudit verifies the audit chain. Warnings about stray files go to stderr.
func (r *Repository) VerifyAudit(ctx context.Context, stderr io.Writer) (*AuditVerdict, error) {
	tree, err := r.ReadStatus(ctx, r.status)
	if err != nil {
		return nil, err
	}
	head := audit.Head{Sequence: tree.Revision.AuditSequence, Hash: tree.Revision.AuditHead}
	end, broke := audit.Verify(func(yield func(audit.Line) bool) {
		for l, err := range r.Audit(ctx, r.status, order(stderr, false)) {
			if !yield(audit.Line{Record: l.Value, File: l.File, Number: l.Line, Err: err}) {
				return
			}
		}
	}, head)
	v := &AuditVerdict{Format: "berth.audit.verify/v1", Commit: r.status, Whole: broke == nil, Records: end.Sequence, Head: head,
		broke: broke}
	var at *audit.BrokenError
	if errors.As(broke, &at) {
		v.Broken = &brokenAt{at.Sequence, at.File, at.Line, at.What}
	}
	return v, ctx.Err()
}

// Text implements cli.Report.
func (v *AuditVerdict) Text(p *cli.Page) error {
	if v.broke != nil {
		_, err := fmt.Fprintf(p, "broken: %s\n%d records before it hold; revision.yaml names record %d as the last, %s\n",
			cli.Visible(v.broke.Error()), v.Records, v.Head.Sequence, cli.OrDash(v.Head.Hash))
		return err
	}
	_, err := fmt.Fprintf(p, "whole: %d records, head %s\n", v.Records, cli.OrDash(v.Head.Hash))
	return err
}

// AuditFilter selects records; an empty field selects all.
type AuditFilter struct {
	Correlation, Actor string
	Project            string // TENANT.PROJECT
	Instance           string // TENANT.PROJECT/NAME
	Since              string // a time, or a duration ago

	from time.Time
}

// Begin parses Since.
func (f *AuditFilter) Begin(now time.Time) error {
	var err error
	f.from, err = beginOf(f.Since, now)
	return err
}

// beginOf parses a time, a day or a duration ago; "" is the zero time.
func beginOf(since string, now time.Time) (time.Time, error) {
	if since == "" {
		return time.Time{}, nil
	}
	days, isDays := strings.CutSuffix(since, "d")
	if n, err := strconv.ParseUint(days, 10, 16); isDays && err == nil {
		return now.AddDate(0, 0, -int(n)), nil
	}
	if d, err := time.ParseDuration(since); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(form, since); err == nil {
			if t.After(now.AddDate(0, 0, 1)) { // clocks and zones differ
				return t, fmt.Errorf("--since %s is in the future", since)
			}
			return t, nil
		}
	}
	return time.Time{},
		fmt.Errorf("--since %s: give a time such as 2026-08-01T10:00:00Z, a day such as 2026-08-01, or a duration such as 24h or 7d", since)
}

func (f *AuditFilter) takes(r audit.Record) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return is(f.Correlation, r.CorrelationID) && is(f.Actor, r.Actor) && is(f.Project, cmp.Or(r.ProjectID, r.Key.ProjectID())) &&
		(f.Instance == "" || r.Key.Kind == schema.KindInstance && r.Key.ResourceName() == f.Instance) && !r.OccurredAt.Before(f.from)
}

// AuditColumns are the columns of a table of audit records.
func AuditColumns() []string {
	return []string{"TIME", "SEQUENCE", "DECISION", "ACTOR", "ACTION", "RESOURCE", "PERMISSION", "COMMIT", "PULL", "WHY"}
}

// ListAudit prints the records that a filter selects, oldest first. Unreadable ones are exit
// status 1. A name of the filter that no record has is an error.
func (r *Repository) ListAudit(ctx context.Context, out *cli.Entries, stderr io.Writer, filter AuditFilter) error {
	damaged, known := false, filter.names()
	for l, err := range r.Audit(ctx, r.status, order(stderr, false)) {
		if err != nil {
			damaged = true
			fmt.Fprintf(stderr, "berth: %s:%d: %v\n", cli.Visible(l.File), l.Line, err)
			continue
		}
		noteNames(known, l.Value)
		if !filter.takes(l.Value) {
			continue
		}
		if err := out.Add(json.RawMessage(audit.Encode(l.Value)), auditCells(l.Value)...); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if damaged {
		return cli.Exit(1)
	}
	if filter.Project != "" || filter.Instance != "" {
		inForce, err := r.inForce(ctx)
		if err != nil {
			return err
		}
		known.addUnits(inForce)
	}
	return known.check("audit record")
}

// names are the names that the filter selects by.
func (f *AuditFilter) names() names {
	return wanted(map[string]string{"correlation": f.Correlation, "actor": f.Actor, "project": f.Project, "instance": f.Instance})
}

func noteNames(known names, r audit.Record) {
	known.add("correlation", r.CorrelationID)
	known.add("actor", r.Actor)
	known.add("project", cmp.Or(r.ProjectID, r.Key.ProjectID()))
	if r.Key.Kind == schema.KindInstance {
		known.add("instance", r.Key.ResourceName())
	}
}

// auditCells is a record as a row of a table.
func auditCells(r audit.Record) []string {
	pull := ""
	if r.PullRequest != 0 {
		pull = fmt.Sprint("#", r.PullRequest)
	}
	var why []string
	for _, part := range []struct{ name, value string }{
		{"", r.Reason}, {"rule ", r.Rule}, {"source ", r.Source}, {"of ", r.File}, {"proof ", r.Proof},
		{"approved by ", strings.Join(r.Approvers, ", ")},
	} {
		if part.value != "" {
			why = append(why, part.name+part.value)
		}
	}
	if r.BreakGlass {
		why = append([]string{"BREAK-GLASS"}, why...)
	}
	return []string{cli.Stamp(r.OccurredAt), fmt.Sprint(r.Sequence), string(r.Verdict), r.Actor, r.Action, r.Key.String(), r.Permission,
		cli.ShortCommit(r.Commit), pull, strings.Join(why, "; ")}
}

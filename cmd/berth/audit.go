package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/reconciler"
	"berth/reconciler/gitrepo/statusbranch"
	"berth/schema"
	"berth/schema/audit"
)

func newAuditCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show and verify the audit log",
	}
	cmd.AddCommand(newAuditListCmd(), newAuditVerifyCmd())
	return cmd
}

// auditVerdict is the JSON of `berth audit verify`.
type auditVerdict struct {
	Format  string     `json:"format"` // berth.audit.verify/v1
	Commit  string     `json:"commit"` // of berth/status
	Whole   bool       `json:"whole"`
	Records uint64     `json:"records"` // valid ones, from the first on
	Head    audit.Head `json:"head"`    // as revision.yaml has it
	Broken  *brokenAt  `json:"broken,omitempty"`
}

type brokenAt struct {
	Sequence uint64 `json:"sequence"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	What     string `json:"what"`
}

func newAuditVerifyCmd() *cobra.Command {
	var req logRequest
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Verify that no audit record is missing, changed or out of place",
		Long: `Verify the audit log on ` + reconciler.BranchStatus + ` from its first record. Each record has the
hash of the one before, and revision.yaml has the hash of the last. So a record
that was changed, removed, added, repeated or moved is found, and so is a missing
end.

A person who can write to the branch can replace the whole chain. To find that
too, keep the head that this command prints elsewhere, or protect the branch.

Exit status: 0 the chain is whole, 1 it is not or there is none, 2 usage.`,
		Example: `  berth audit verify
  berth audit verify --repo ~/estate -o json | jq .whole`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			l, err := req.open(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, l.Close()) }()
			tree, err := l.ReadStatus(cmd.Context(), l.status)
			if err != nil {
				return err
			}
			head := audit.Head{Sequence: tree.Revision.AuditSequence, Hash: tree.Revision.AuditHead}
			end, broke := audit.Verify(func(yield func(audit.Line) bool) {
				for r, err := range l.Audit(cmd.Context(), l.status, order(cmd.ErrOrStderr(), false)) {
					if !yield(audit.Line{Record: r.Value, File: r.File, Number: r.Line, Err: err}) {
						return
					}
				}
			}, head)
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			v := auditVerdict{Format: "berth.audit.verify/v1", Commit: l.status, Whole: broke == nil, Records: end.Sequence, Head: head}
			var at *audit.BrokenError
			if errors.As(broke, &at) {
				v.Broken = &brokenAt{at.Sequence, at.File, at.Line, at.What}
			}
			if err := writeVerdict(cmd.OutOrStdout(), req.output, v, broke); err != nil {
				return err
			}
			if broke != nil {
				return cli.Exit(1)
			}
			return nil
		},
	}
	req.flags(cmd)
	return cmd
}

func writeVerdict(w io.Writer, form string, v auditVerdict, broke error) error {
	if form == "json" {
		return json.NewEncoder(w).Encode(v)
	}
	if broke != nil {
		_, err := fmt.Fprintf(w, "broken: %s\n%d records before it hold; revision.yaml names record %d as the last, %s\n",
			cli.Visible(broke.Error()), v.Records, v.Head.Sequence, cli.OrDash(v.Head.Hash))
		return err
	}
	_, err := fmt.Fprintf(w, "whole: %d records, head %s\n", v.Records, cli.OrDash(v.Head.Hash))
	return err
}

func newAuditListCmd() *cobra.Command {
	var req logRequest
	var want auditFilter
	cmd := &cobra.Command{
		Use:   "list [--correlation ID] [--actor LOGIN] [--project TENANT.PROJECT] [--instance TENANT.PROJECT/NAME] [--since TIME]",
		Short: "List the audit records, oldest first",
		Long: `List the audit records on ` + reconciler.BranchStatus + `, oldest first. With -o json, each line
is one record, unchanged.

Exit status: 0, 1 there is no log to read or part of it cannot be read, 2 usage.`,
		Example: `  berth audit list --actor anna --since 24h
  berth audit list --instance physics.lattice/train -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := want.begin(time.Now()); err != nil {
				return cli.Usage(err)
			}
			l, err := req.open(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, l.Close()) }()
			damaged := false
			t := cli.NewTable(cmd.OutOrStdout(), req.noHeaders, "TIME", "SEQUENCE", "DECISION", "ACTOR", "ACTION", "RESOURCE", "PERMISSION", "COMMIT", "PULL", "WHY")
			for r, err := range l.Audit(cmd.Context(), l.status, order(cmd.ErrOrStderr(), false)) {
				if err != nil {
					damaged = true
					fmt.Fprintf(cmd.ErrOrStderr(), "berth: %s:%d: %v\n", cli.Visible(r.File), r.Line, err)
					continue
				}
				if !want.takes(r.Value) {
					continue
				}
				if req.output == "json" {
					_, err = fmt.Fprintln(cmd.OutOrStdout(), string(audit.Encode(r.Value)))
				} else {
					err = t.Row(auditCells(r.Value)...)
				}
				if err != nil {
					return err
				}
			}
			if err := t.Flush(); err != nil {
				return err
			}
			if damaged {
				return cli.Exit(1)
			}
			return nil
		},
	}
	req.tableFlags(cmd)
	cmd.Flags().StringVar(&want.correlation, "correlation", "", "only records of this correlation id")
	cmd.Flags().StringVar(&want.actor, "actor", "", "only actions of this login or service account")
	cmd.Flags().StringVar(&want.project, "project", "", "only records about this project, as TENANT.PROJECT")
	cmd.Flags().StringVar(&want.instance, "instance", "", "only records about this instance, as TENANT.PROJECT/NAME")
	_ = cmd.RegisterFlagCompletionFunc("instance", completeNames(schema.KindInstance)) // the flag is there
	cmd.Flags().StringVar(&want.since, "since", "", "only records since a time, such as 2026-08-01T10:00:00Z, or since a duration ago, such as 24h")
	return cmd
}

// auditFilter selects records; an empty field selects all.
type auditFilter struct {
	correlation, actor, project, instance, since string

	from time.Time
}

// begin parses since.
func (f *auditFilter) begin(now time.Time) error {
	if f.since == "" {
		return nil
	}
	if d, err := time.ParseDuration(f.since); err == nil {
		f.from = now.Add(-d.Abs())
		return nil
	}
	var err error
	if f.from, err = time.Parse(time.RFC3339, f.since); err != nil {
		return fmt.Errorf("--since %s: give a time such as 2026-08-01T10:00:00Z, or a duration such as 24h", f.since)
	}
	return nil
}

func (f *auditFilter) takes(r audit.Record) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return is(f.correlation, r.CorrelationID) && is(f.actor, r.Actor) && is(f.project, cmp.Or(r.ProjectID, r.Key.ProjectID())) &&
		(f.instance == "" || r.Key.Kind == schema.KindInstance && r.Key.ResourceName() == f.instance) && !r.OccurredAt.Before(f.from)
}

// auditCells is a record as a row of a table.
func auditCells(r audit.Record) []string {
	pull := ""
	if r.PullRequest != 0 {
		pull = fmt.Sprint("#", r.PullRequest)
	}
	var why []string
	for _, part := range []struct{ name, value string }{
		{"", r.Reason}, {"rule ", r.Rule}, {"source ", r.Source}, {"of ", r.File}, {"proof ", r.Proof}, {"approved by ", strings.Join(r.Approvers, ", ")},
	} {
		if part.value != "" {
			why = append(why, part.name+part.value)
		}
	}
	if r.BreakGlass {
		why = append([]string{"BREAK-GLASS"}, why...)
	}
	return []string{cli.Stamp(r.OccurredAt), fmt.Sprint(r.Sequence), string(r.Verdict), r.Actor, r.Action, r.Key.String(), r.Permission, cli.ShortCommit(r.Commit), pull, strings.Join(why, "; ")}
}

// auditLine is a record as one line of text.
func auditLine(l statusbranch.Logged[audit.Record]) string {
	r := l.Value
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %d  %-7s %s  %s %s", cli.Stamp(r.OccurredAt), r.Sequence, cli.Visible(string(r.Verdict)), cli.OrDash(r.Actor), cli.Visible(r.Action), cli.Visible(r.Key.String()))
	pull := ""
	if r.PullRequest != 0 {
		pull = fmt.Sprint("#", r.PullRequest)
	}
	for _, part := range []struct{ name, value string }{
		{"of", r.File}, {"permission", r.Permission}, {"rule", r.Rule}, {"source", r.Source}, {"proof", r.Proof},
		{"approved by", strings.Join(r.Approvers, ", ")}, {"commit", cli.ShortCommit(r.Commit)}, {"pull request", pull}, {"", r.Reason},
	} {
		if part.value != "" {
			b.WriteString(strings.TrimRight("  "+part.name, " ") + " " + cli.Visible(part.value))
		}
	}
	if r.BreakGlass {
		b.WriteString("  BREAK-GLASS")
	}
	return b.String()
}

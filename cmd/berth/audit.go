package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/schema/audit"
)

func newAuditCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "who did what by which permission, and whether the record is whole",
	}
	cmd.AddCommand(newAuditListCmd(), newAuditVerifyCmd())
	return cmd
}

// auditVerdict is what `berth audit verify -o json` writes.
type auditVerdict struct {
	Format  string     `json:"format"` // berth.audit.verify/v1
	Commit  string     `json:"commit"` // of berth/status
	Whole   bool       `json:"whole"`
	Records uint64     `json:"records"` // from the first on, that hold
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
		Short: "whether each audit record is there, unchanged and in its place",
		Long: `Walk the audit log on ` + reconciler.BranchStatus + ` from its first record. Each record carries
the hash of the one before, and revision.yaml the hash of the last: a record
that was changed, dropped, added, repeated or moved shows, and so does an end
that was cut off.

Whoever can write to the branch can make up a whole new chain; keep the head
this prints elsewhere, or the branch protected, to know of that too.

Exit status: 0 the chain is whole, 1 it is not, 2 usage.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			l, err := req.open(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, l.Close()) }()
			tree, err := l.ReadStatus(cmd.Context(), l.status)
			if err != nil {
				return &exitError{1, err}
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
				return &exitError{1, err}
			}
			v := auditVerdict{Format: "berth.audit.verify/v1", Commit: l.status, Whole: broke == nil, Records: end.Sequence, Head: head}
			var at *audit.BrokenError
			if errors.As(broke, &at) {
				v.Broken = &brokenAt{at.Sequence, at.File, at.Line, at.What}
			}
			if err := writeVerdict(cmd.OutOrStdout(), req.output, v, broke); err != nil {
				return &exitError{1, err}
			}
			if broke != nil {
				return &exitError{code: 1}
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
			visible(broke.Error()), v.Records, v.Head.Sequence, orDash(v.Head.Hash))
		return err
	}
	_, err := fmt.Fprintf(w, "whole: %d records, head %s\n", v.Records, orDash(v.Head.Hash))
	return err
}

func newAuditListCmd() *cobra.Command {
	var req logRequest
	var want struct{ correlation, actor string }
	cmd := &cobra.Command{
		Use:   "list [--correlation ID] [--actor LOGIN]",
		Short: "the audit records, oldest first",
		Long: `Show the audit records on ` + reconciler.BranchStatus + `, oldest first. With -o json, each
line is one record as it stands there.

Exit status: 0, 1 if part of the log cannot be read, 2 usage.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			l, err := req.open(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, l.Close()) }()
			damaged := false
			for r, err := range l.Audit(cmd.Context(), l.status, order(cmd.ErrOrStderr(), false)) {
				if err != nil {
					damaged = true
					fmt.Fprintf(cmd.ErrOrStderr(), "berth: %s:%d: %v\n", visible(r.File), r.Line, err)
					continue
				}
				if want.correlation != "" && r.Value.CorrelationID != want.correlation || want.actor != "" && r.Value.Actor != want.actor {
					continue
				}
				line := auditLine(r)
				if req.output == "json" {
					line = string(audit.Encode(r.Value))
				}
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), line); err != nil {
					return &exitError{1, err}
				}
			}
			if damaged {
				return &exitError{code: 1}
			}
			return nil
		},
	}
	req.flags(cmd)
	cmd.Flags().StringVar(&want.correlation, "correlation", "", "only records of this correlation id")
	cmd.Flags().StringVar(&want.actor, "actor", "", "only what this login or service account did")
	return cmd
}

// auditLine is a record as text.
func auditLine(l gitrepo.Logged[audit.Record]) string {
	r := l.Value
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %d  %-7s %s  %s %s", stamp(r.OccurredAt), r.Sequence, visible(string(r.Verdict)), orDash(r.Actor), visible(r.Action), visible(r.Key.String()))
	for _, part := range []struct{ name, value string }{
		{"of", r.File}, {"permission", r.Permission}, {"rule", r.Rule}, {"source", r.Source}, {"proof", r.Proof},
		{"approved by", strings.Join(r.Approvers, ", ")}, {"commit", short12(r.Commit)}, {"", r.Reason},
	} {
		if part.value != "" {
			b.WriteString(strings.TrimRight("  "+part.name, " ") + " " + visible(part.value))
		}
	}
	if r.BreakGlass {
		b.WriteString("  BREAK-GLASS")
	}
	return b.String()
}

// short12 is a commit's id as people are shown it.
func short12(commit string) string { return commit[:min(12, len(commit))] }

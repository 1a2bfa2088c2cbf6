package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/reconciler"
	"berth/reconciler/gitrepo/statusbranch"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
)

// maxDecisions bounds how many commits of berth/in-force a trace reads.
const maxDecisions = 20_000

// story is the output of `berth trace`, in order of time; its JSON is a contract.
type story struct {
	Format        string         `json:"format"` // berth.trace/v1
	CorrelationID string         `json:"correlation_id"`
	Commit        *storyCommit   `json:"commit,omitempty"`   // of main, the cause
	Decision      *storyDecision `json:"decision,omitempty"` // nil: nothing came into force, or the branch is missing
	Audit         []audit.Record `json:"audit"`
	Events        []plan.Event   `json:"events"`
	Now           []storyStatus  `json:"now"`      // resources whose last change it was
	Warnings      []string       `json:"warnings"` // what could not be read
}

type storyCommit struct {
	ID      string `json:"id"`
	Subject string `json:"subject,omitempty"`
	Author  string `json:"author,omitempty"`
	Email   string `json:"email,omitempty"`
}

type storyDecision struct {
	Commit string      `json:"commit"`         // of berth/in-force
	With   string      `json:"with,omitempty"` // the newest commit of main that it was decided with, if another
	Held   []plan.Held `json:"held,omitempty"`
}

type storyStatus struct {
	Key           schema.Key `json:"key"`
	Phase         string     `json:"phase"`
	FailureReason string     `json:"failure_reason,omitempty"`
}

func newTraceCmd() *cobra.Command {
	var req logRequest
	cmd := &cobra.Command{
		Use:   "trace CORRELATION_ID",
		Short: "Trace one change from commit to hosts",
		Long: `Show what one change caused: its commit and author, the documents that came into
force or were held, the audit records and events in order of time, and the resources
that follow the change now. The correlation id of a change is in the comment on the
pull request, in log lines, events, audit records and errors.

The branches are read as the repository has them; nothing is fetched.

Exit status: 0, 1 nothing has the id, 2 usage.`,
		Example: `  berth trace c630b41a29591b1bb3f0d`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			l, err := req.open(cmd.Context())
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, l.Close()) }()
			s, err := l.trace(cmd.Context(), args[0])
			if err != nil {
				return fmt.Errorf("trace: %w", err)
			}
			if s.Decision == nil && len(s.Audit)+len(s.Events)+len(s.Now) == 0 {
				return fmt.Errorf("trace: id %q not found on the branches here; fetch them, or check the id", args[0])
			}
			if req.output == "json" {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				err = e.Encode(s)
			} else {
				err = s.write(cmd.OutOrStdout())
			}
			return err
		},
	}
	req.flags(cmd)
	return cmd
}

// trace collects what one change caused.
func (l *estateLog) trace(ctx context.Context, id string) (*story, error) {
	s := &story{Format: "berth.trace/v1", CorrelationID: id, Audit: []audit.Record{}, Events: []plan.Event{}, Now: []storyStatus{}, Warnings: []string{}}
	o := statusbranch.LogOrder{Stray: func(path, why string) { s.Warnings = append(s.Warnings, path+": "+why) }}
	bad := func(file string, line int, err error) {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%s:%d: %v", file, line, err))
	}
	var commits []string              // of main, that a record, event or status names
	decided := map[string]time.Time{} // by commit of berth/in-force: time of the last decision on top of it
	for r, err := range l.Audit(ctx, l.status, o) {
		if err != nil {
			bad(r.File, r.Line, err)
			continue
		}
		v := r.Value
		if isDecision(v) && v.OccurredAt.After(decided[v.Base]) {
			decided[v.Base] = v.OccurredAt
		}
		if v.CorrelationID == id {
			s.Audit = append(s.Audit, v)
			if v.Action != actionRead { // a read shows that commit, and is not caused by it
				commits = append(commits, v.Commit)
			}
		}
	}
	for e, err := range l.Events(ctx, l.status, o) {
		if err != nil {
			bad(e.File, e.Line, err)
		} else if e.Value.CorrelationID == id {
			s.Events = append(s.Events, e.Value)
			commits = append(commits, payloadOf(e.Value).Revision)
		}
	}
	tree, err := l.ReadStatus(ctx, l.status)
	if err != nil {
		return nil, err
	}
	for _, u := range tree.Units.All() {
		if u.CorrelationID == id {
			s.Now = append(s.Now, storyStatus{u.Key, string(u.Phase), u.FailureReason})
			commits = append(commits, u.Revision)
		}
	}
	for _, t := range tree.Things {
		if t.CorrelationID == id {
			s.Now = append(s.Now, storyStatus{Key: t.Key, Phase: t.Phase})
			commits = append(commits, t.Revision)
		}
	}
	slices.SortFunc(s.Now, func(a, b storyStatus) int { return a.Key.Compare(b.Key) })
	commit, err := l.decision(ctx, s, tree.Revision, decided)
	if err != nil {
		return nil, err
	}
	for _, c := range commits {
		commit = cmp.Or(commit, c)
	}
	if commit != "" {
		s.Commit = &storyCommit{ID: commit}
		log, err := l.Log(ctx, "", commit, 1)
		switch {
		case err != nil:
			s.Warnings = append(s.Warnings, fmt.Sprintf("commit %s missing: %v", cli.ShortCommit(commit), err))
		case len(log) == 1:
			s.Commit = &storyCommit{log[0].ID, log[0].Subject, log[0].Author, log[0].Email}
		}
	}
	return s, ctx.Err()
}

// actionRead is the action in audit records of the read API.
const actionRead = "api.read"

// isDecision reports whether a record is about the decision on a document.
func isDecision(r audit.Record) bool { return strings.HasPrefix(r.Action, "document.") }

// decision finds the commit of berth/in-force that has the id, and returns the commit
// of main that it decided. It returns "" if that was decided together with a later
// commit, whose id the commit of berth/in-force has. The held documents are known for
// the last decision only; audit records show earlier ones.
//
// The audit records of the id name the commit that the decision was made on top of.
// The next commit comes from the last decision on top of it, as the others changed
// nothing in force; decided has the time of that one.
func (l *estateLog) decision(ctx context.Context, s *story, last reconciler.Revision, decided map[string]time.Time) (commit string, err error) {
	if l.tips.InForce == "" {
		return "", nil
	}
	log, err := l.Log(ctx, "", l.tips.InForce, maxDecisions)
	if err != nil {
		return "", fmt.Errorf("%s: %w", reconciler.BranchInForce, err)
	}
	over := map[string]bool{}
	for _, r := range s.Audit {
		if isDecision(r) && r.Base != "" && r.OccurredAt.Equal(decided[r.Base]) {
			over[r.Base] = true
		}
	}
	for _, c := range log {
		w, err := l.ReadInForce(ctx, c.ID)
		if err != nil {
			s.Warnings = append(s.Warnings, fmt.Sprintf("%s of %s: %v", cli.ShortCommit(c.ID), reconciler.BranchInForce, err))
			continue
		}
		own := w.CorrelationID == s.CorrelationID
		if own || over[c.Parents[0]] {
			s.Decision = &storyDecision{Commit: c.ID, Held: w.Held}
			if last.InForce == c.ID {
				s.Decision.Held = last.Held
			}
			if own {
				return w.Commit, nil
			}
			s.Decision.With = w.Commit
		}
		if len(c.Parents) == 1 {
			break // the first: its parents are commits of main
		}
	}
	return "", nil
}

// write is the story as text.
func (s *story) write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Trace of %s\n\n", cli.Visible(s.CorrelationID))
	if c := s.Commit; c != nil {
		fmt.Fprintf(&b, "commit    %s  %s", cli.ShortCommit(c.ID), cli.Visible(c.Subject))
		if c.Author != "" {
			fmt.Fprintf(&b, ", by %s <%s>", cli.Visible(c.Author), cli.Visible(c.Email))
		}
		b.WriteByte('\n')
	}
	if d := s.Decision; d != nil {
		fmt.Fprintf(&b, "in force  %s", cli.ShortCommit(d.Commit))
		if d.With != "" {
			fmt.Fprintf(&b, ", decided with %s", cli.ShortCommit(d.With))
		}
		b.WriteByte('\n')
		for _, h := range d.Held {
			fmt.Fprintf(&b, "  held    %s: %s: %s\n", cli.Visible(h.File), cli.Visible(h.Reason), cli.Visible(h.Message))
		}
	}
	type moment struct {
		at   int64
		text string
	}
	var moments []moment
	for _, r := range s.Audit {
		moments = append(moments, moment{r.OccurredAt.UnixNano(), "audit     " + auditLine(statusbranch.Logged[audit.Record]{Value: r})})
	}
	for _, e := range s.Events {
		moments = append(moments, moment{e.OccurredAt.UnixNano(), "event     " + eventLine(e)})
	}
	slices.SortStableFunc(moments, func(a, b moment) int { return cmp.Compare(a.at, b.at) })
	for _, m := range moments {
		b.WriteString(m.text + "\n")
	}
	for _, n := range s.Now {
		fmt.Fprintf(&b, "now       %s: %s", cli.Visible(n.Key.String()), cli.Visible(n.Phase))
		if n.FailureReason != "" {
			b.WriteString(": " + cli.Visible(n.FailureReason))
		}
		b.WriteByte('\n')
	}
	for _, text := range s.Warnings {
		fmt.Fprintf(&b, "warning   %s\n", cli.Visible(text))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

package inspect

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"berth/cmd/internal/cli"
	"berth/reconciler"
	"berth/reconciler/gitrepo/statusbranch"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
)

// maxDecisions bounds how many commits of berth/in-force a trace reads.
const maxDecisions = 20_000

// Trace is what one change caused, in order of time; its JSON is a contract.
type Trace struct {
	Format        string          `json:"format"` // berth.trace/v1
	CorrelationID string          `json:"correlation_id"`
	Commit        *tracedCommit   `json:"commit,omitempty"`   // of main, the cause
	Decision      *tracedDecision `json:"decision,omitempty"` // nil: nothing came into force, or the branch is missing
	Audit         []audit.Record  `json:"audit"`
	Events        []plan.Event    `json:"events"`
	Now           []tracedStatus  `json:"now"`                       // resources whose last change it was
	Hosts         []HostLedger    `json:"hosts,omitempty"`           // that were asked for their ledgers
	HostsNotAsked string          `json:"hosts_not_asked,omitempty"` // why none was asked, if -c was given
	Warnings      []string        `json:"warnings"`                  // what could not be read

	commits []string             // of main, that a record, event or status names
	decided map[string]time.Time // by commit of berth/in-force: time of the last decision on top of it
}

type tracedCommit struct {
	ID      string `json:"id"`
	Subject string `json:"subject,omitempty"`
	Author  string `json:"author,omitempty"`
	Email   string `json:"email,omitempty"`
}

type tracedDecision struct {
	Commit string        `json:"commit"`         // of berth/in-force
	With   string        `json:"with,omitempty"` // the newest commit of main that it was decided with, if another
	Held   []schema.Held `json:"held,omitempty"`
}

type tracedStatus struct {
	Key           schema.Key `json:"key"`
	Phase         string     `json:"phase"`
	FailureReason string     `json:"failure_reason,omitempty"`
}

// idOfACommit is the form of the id of a commit, which no revision has.
var idOfACommit = regexp.MustCompile(`^c[0-9a-f]{20}$`)

// digits is the form of a commit, and of most ids.
var digits = regexp.MustCompile(`^[0-9a-f]{4,}$`)

// Trace collects what one change caused: that with a correlation id, or a commit of main. It is an
// error if nothing has the id. ask is nil if no host shall be asked.
func (r *Repository) Trace(ctx context.Context, id string, ask AskHosts) (*Trace, error) {
	hint := ""
	if !idOfACommit.MatchString(id) {
		if commit, err := r.Resolve(ctx, id); err == nil {
			id = reconciler.CorrelationID(commit)
		} else if !digits.MatchString(id) {
			hint = "; it takes a commit of main, or a correlation id: berth events lists the ids of changes, and with --instance " +
				"TENANT.PROJECT/NAME those of an instance"
		}
	}
	t := &Trace{Format: "berth.trace/v1", CorrelationID: id, Audit: []audit.Record{}, Events: []plan.Event{}, Now: []tracedStatus{},
		Warnings: []string{},
		decided:  map[string]time.Time{}}
	t.readLogs(ctx, r)
	tree, err := r.ReadStatus(ctx, r.status)
	if err != nil {
		return nil, err
	}
	t.readStatus(tree)
	commit, err := t.decide(ctx, r, tree.Revision)
	if err != nil {
		return nil, err
	}
	if ask != nil {
		t.askHosts(ctx, r, ask)
	}
	if t.Decision == nil && len(t.Audit)+len(t.Events)+len(t.Now) == 0 && !t.hasEffects() {
		return nil, fmt.Errorf("%w%s", t.notFound(), hint)
	}
	if commit = cmp.Or(append([]string{commit}, t.commits...)...); commit != "" {
		t.Commit = &tracedCommit{ID: commit}
		log, err := r.Log(ctx, "", commit, 1)
		switch {
		case err != nil:
			t.warn("commit %s missing: %v", cli.ShortCommit(commit), err)
		case len(log) == 1:
			t.Commit = &tracedCommit{log[0].ID, log[0].Subject, log[0].Author, log[0].Email}
		}
	}
	return t, ctx.Err()
}

// notFound is the error of an id that nothing has. It names the hosts that could not say.
func (t *Trace) notFound() error {
	err := fmt.Errorf("id %q not found on the branches here; fetch them, or check the id", t.CorrelationID)
	if len(t.Hosts) > 0 {
		err = fmt.Errorf("id %q not found on the branches here or in the ledgers of the hosts; fetch the branches, or check the id",
			t.CorrelationID)
	}
	for _, l := range t.Hosts {
		if l.Unknown != "" {
			err = fmt.Errorf("%w\nunknown: %s", err, l.Unknown)
		}
	}
	if t.HostsNotAsked != "" {
		err = fmt.Errorf("%w\nhosts not asked: %s", err, t.HostsNotAsked)
	}
	for _, w := range t.Warnings {
		err = fmt.Errorf("%w\nwarning: %s", err, w)
	}
	return err
}

func (t *Trace) warn(format string, args ...any) {
	t.Warnings = append(t.Warnings, fmt.Sprintf(format, args...))
}

// actionRead is the action in audit records of the read API.
const actionRead = "api.read"

// isDecision reports whether a record is about the decision on a document.
func isDecision(r audit.Record) bool { return strings.HasPrefix(r.Action, "document.") }

// readLogs reads the audit records and events of the id.
func (t *Trace) readLogs(ctx context.Context, r *Repository) {
	o := statusbranch.LogOrder{Stray: func(path, why string) { t.warn("%s: %s", path, why) }}
	for l, err := range r.Audit(ctx, r.status, o) {
		if err != nil {
			t.warn("%s:%d: %v", l.File, l.Line, err)
			continue
		}
		v := l.Value
		if isDecision(v) && v.OccurredAt.After(t.decided[v.Base]) {
			t.decided[v.Base] = v.OccurredAt
		}
		if v.CorrelationID == t.CorrelationID {
			t.Audit = append(t.Audit, v)
			if v.Action != actionRead { // a read shows that commit, and is not caused by it
				t.commits = append(t.commits, v.Commit)
			}
		}
	}
	for e, err := range r.Events(ctx, r.status, o) {
		if err != nil {
			t.warn("%s:%d: %v", e.File, e.Line, err)
		} else if e.Value.CorrelationID == t.CorrelationID {
			t.Events = append(t.Events, e.Value)
			t.commits = append(t.commits, payloadOf(e.Value).Revision)
		}
	}
}

// readStatus adds the resources whose last change has the id.
func (t *Trace) readStatus(tree reconciler.StatusTree) {
	for _, u := range tree.Units.All() {
		if u.CorrelationID == t.CorrelationID {
			t.Now = append(t.Now, tracedStatus{u.Key, string(u.Phase), u.FailureReason})
			t.commits = append(t.commits, u.Revision)
		}
	}
	for _, s := range tree.Things {
		if s.CorrelationID == t.CorrelationID {
			t.Now = append(t.Now, tracedStatus{Key: s.Key, Phase: s.Phase})
			t.commits = append(t.commits, s.Revision)
		}
	}
	slices.SortFunc(t.Now, func(a, b tracedStatus) int { return a.Key.Compare(b.Key) })
}

// decide finds the commit of berth/in-force that has the id, and returns the commit
// of main that it decided. It returns "" if that was decided together with a later
// commit, whose id the commit of berth/in-force has. The held documents are known for
// the last decision only; audit records show earlier ones.
//
// The audit records of the id name the commit that the decision was made on top of.
// The next commit comes from the last decision on top of it, as the others changed
// nothing in force.
func (t *Trace) decide(ctx context.Context, r *Repository, last reconciler.Revision) (commit string, err error) {
	if r.tips.InForce == "" {
		return "", nil
	}
	log, err := r.Log(ctx, "", r.tips.InForce, maxDecisions)
	if err != nil {
		return "", fmt.Errorf("%s: %w", reconciler.BranchInForce, err)
	}
	over := t.decidedOver()
	for _, c := range log {
		w, err := r.ReadInForce(ctx, c.ID)
		if err != nil {
			t.warn("%s of %s: %v", cli.ShortCommit(c.ID), reconciler.BranchInForce, err)
			continue
		}
		own := w.CorrelationID == t.CorrelationID
		if own || over[c.Parents[0]] {
			t.Decision = &tracedDecision{Commit: c.ID, Held: w.Held}
			if last.InForce == c.ID {
				t.Decision.Held = last.Held
			}
			if own {
				return w.Commit, nil
			}
			t.Decision.With = w.Commit
		}
		if len(c.Parents) == 1 {
			break // the first: its parents are commits of main
		}
	}
	return "", nil
}

// decidedOver returns the commits of berth/in-force on top of which a decision with the id is the last one.
func (t *Trace) decidedOver() map[string]bool {
	over := map[string]bool{}
	for _, v := range t.Audit {
		if isDecision(v) && v.Base != "" && v.OccurredAt.Equal(t.decided[v.Base]) {
			over[v.Base] = true
		}
	}
	return over
}

// Text implements cli.Report.
func (t *Trace) Text(p *cli.Page) error {
	var b strings.Builder
	line := func(format string, args ...any) { b.WriteString(cli.Visible(fmt.Sprintf(format, args...)) + "\n") }
	line("Trace of %s", t.CorrelationID)
	b.WriteByte('\n')
	if c := t.Commit; c != nil {
		author := ""
		if c.Author != "" {
			author = fmt.Sprintf(", by %s <%s>", c.Author, c.Email)
		}
		line("commit    %s  %s%s", cli.ShortCommit(c.ID), c.Subject, author)
	}
	if d := t.Decision; d != nil {
		with := ""
		if d.With != "" {
			with = ", decided with " + cli.ShortCommit(d.With)
		}
		line("in force  %s%s", cli.ShortCommit(d.Commit), with)
		for _, h := range d.Held {
			line("  held    %s: %s: %s", h.File, h.Reason, h.Message)
		}
	}
	type entry struct {
		at    time.Time
		log   string
		cells []string
	}
	var entries []entry
	for _, r := range t.Audit {
		entries = append(entries, entry{r.OccurredAt, "audit   ", auditCells(r)})
	}
	for _, e := range t.Events {
		entries = append(entries, entry{e.OccurredAt, "event   ", eventCells(e, payloadOf(e))})
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return a.at.Compare(b.at) })
	for _, e := range entries {
		cells := slices.DeleteFunc(e.cells, func(cell string) bool { return cell == "" })
		line("%s  %s", e.log, strings.Join(cells, "  "))
	}
	t.writeLedgers(line)
	for _, n := range t.Now {
		line("now       %s", strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", n.Key, n.Phase, n.FailureReason), ": "))
	}
	for _, text := range t.Warnings {
		line("warning   %s", text)
	}
	_, err := io.WriteString(p, b.String())
	return err
}

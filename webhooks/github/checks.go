package github

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	gh "github.com/google/go-github/v62/github"

	"berth/reconciler/plan"
	"berth/schema"
)

// GitHub's limits, and our own below them.
const (
	annotationsPerCall = 50
	maxAnnotations     = 200 // the rest is in the summary's count
	maxSummary         = 65_000
	maxTitle           = 250
	maxMessage         = 4_000
	maxDescription     = 140 // of a commit status
)

// verdict is what is said about a commit.
type verdict struct {
	commit      string
	id          string // external_id: equal ids, equal verdicts
	title       string
	summary     string
	conclusion  string
	annotations []*gh.CheckRunAnnotation
}

// verdict shows on the planned commit whether the change is sound.
func (f *Forge) verdict(ctx context.Context, p plan.Proposal) error {
	v := f.judge(p)
	write := f.checkRun
	if f.o.Report == Statuses {
		write = f.status
	}
	if err := write(ctx, v); err != nil {
		return fmt.Errorf("github: show the verdict on commit %s: %w", v.commit, explain(err))
	}
	return nil
}

func (f *Forge) judge(p plan.Proposal) verdict {
	v := verdict{commit: p.Head}
	v.title, v.summary, v.conclusion = f.o.Render.Check(p)
	v.title = cut(v.title, maxTitle)
	more, left := "", 0
	if v.annotations, left = annotate(p.Diagnostics); left > 0 {
		more = fmt.Sprintf("\n\n%d more findings are not shown beside their lines.\n", left)
	}
	v.summary = cutMarkdown(v.summary, maxSummary-len(more)) + more

	// The id is over everything that is shown: base and digest alone would take
	// two different sets of findings for one.
	content, err := json.Marshal([]any{p.Head, p.Base, p.Digest, v.title, v.summary, v.conclusion, v.annotations})
	if err != nil {
		panic(err) // strings and ints
	}
	sum := sha256.Sum256(content)
	v.id = fmt.Sprintf("v1:%.12s:%.12s:%s", p.Base, p.Digest, hex.EncodeToString(sum[:10]))
	return v
}

// annotate turns findings into annotations, the gravest first, and says how many
// it left out. GitHub shows those on lines of the diff beside the lines, and the
// others with the check only; the summary lists them all.
func annotate(findings []schema.Diagnostic) (notes []*gh.CheckRunAnnotation, left int) {
	for _, s := range []schema.Severity{schema.SeverityError, schema.SeverityWarning, schema.SeverityNote} {
		for _, d := range findings {
			switch {
			case d.Severity != s || d.File == "":
			case len(notes) == maxAnnotations:
				left++
			default:
				notes = append(notes, annotation(d))
			}
		}
	}
	return notes, left
}

func annotation(d schema.Diagnostic) *gh.CheckRunAnnotation {
	level := "notice"
	switch d.Severity {
	case schema.SeverityError:
		level = "failure"
	case schema.SeverityWarning:
		level = "warning"
	}
	line := max(d.Line, 1)
	a := &gh.CheckRunAnnotation{
		Path:            gh.String(plain(d.File)),
		StartLine:       gh.Int(line),
		EndLine:         gh.Int(line),
		AnnotationLevel: gh.String(level),
		Title:           gh.String(cut(plain(d.Code), maxTitle)),
		Message:         gh.String(cmp.Or(cut(plain(d.Message), maxMessage), "see the plan")),
	}
	if d.Column > 0 {
		a.StartColumn, a.EndColumn = gh.Int(d.Column), gh.Int(d.Column)
	}
	return a
}

// checkRun makes sure that the newest run of our name on the commit says v.
// More than 50 annotations go in pieces to a run that is completed with the last
// of them; how many it has says where to go on, after a crash too.
func (f *Forge) checkRun(ctx context.Context, v verdict) error {
	again, ask := f.asked(v.commit)
	err := f.converge(ctx, func() error {
		cur, err := f.newestRun(ctx, v.commit)
		if err != nil {
			return err
		}
		if cur != nil && cur.GetExternalID() == v.id && ask {
			if again == 0 {
				again = cur.GetID()
				f.remember(v.commit, again)
			}
			if cur.GetID() == again {
				cur = nil // as good as none: a completed one cannot be opened again
			}
		}
		if cur != nil && cur.GetExternalID() != v.id && cur.GetStatus() != "completed" {
			// One we left half way, of an older plan. It would spin for ever.
			if _, _, err := f.client.Checks.UpdateCheckRun(op(ctx, "update_check"), f.o.Owner, f.o.Repo, cur.GetID(), gh.UpdateCheckRunOptions{
				Name: f.o.CheckName, Status: gh.String("completed"), Conclusion: gh.String("cancelled"),
			}); err != nil {
				return err
			}
		}
		if cur == nil || cur.GetExternalID() != v.id {
			first, last := v.piece(0)
			o := gh.CreateCheckRunOptions{Name: f.o.CheckName, HeadSHA: v.commit, ExternalID: gh.String(v.id), Output: first, Status: gh.String("in_progress")}
			if last {
				o.Status, o.Conclusion, o.CompletedAt = gh.String("completed"), gh.String(v.conclusion), f.stamp()
			}
			if cur, _, err = f.client.Checks.CreateCheckRun(op(ctx, "create_check"), f.o.Owner, f.o.Repo, o); err != nil {
				return err
			}
		}
		for cur.GetStatus() != "completed" {
			have := cur.GetOutput().GetAnnotationsCount()
			next, last := v.piece(have)
			o := gh.UpdateCheckRunOptions{Name: f.o.CheckName, Output: next}
			if last {
				o.Status, o.Conclusion, o.CompletedAt = gh.String("completed"), gh.String(v.conclusion), f.stamp()
			}
			if cur, _, err = f.client.Checks.UpdateCheckRun(op(ctx, "update_check"), f.o.Owner, f.o.Repo, cur.GetID(), o); err != nil {
				return err
			}
			if !last && cur.GetOutput().GetAnnotationsCount() <= have {
				return fmt.Errorf("check run %d takes no more annotations than %d", cur.GetID(), have)
			}
		}
		return nil
	})
	if err == nil && ask {
		f.answered(v.commit)
	}
	return err
}

// piece is the output with the annotations from the given one on, as many as one
// call takes, and whether these are the last.
func (v *verdict) piece(from int) (*gh.CheckRunOutput, bool) {
	from = min(from, len(v.annotations))
	to := min(from+annotationsPerCall, len(v.annotations))
	return &gh.CheckRunOutput{
		Title: gh.String(v.title), Summary: gh.String(v.summary), Annotations: v.annotations[from:to],
	}, to == len(v.annotations)
}

// newestRun is our newest run on a commit, or nil.
func (f *Forge) newestRun(ctx context.Context, commit string) (*gh.CheckRun, error) {
	login, err := f.me(ctx)
	if err != nil {
		return nil, err
	}
	slug, isApp := strings.CutSuffix(login, "[bot]")
	list, _, err := f.client.Checks.ListCheckRunsForRef(op(ctx, "list_checks"), f.o.Owner, f.o.Repo, commit, &gh.ListCheckRunsOptions{
		CheckName: gh.String(f.o.CheckName), Filter: gh.String("latest"), ListOptions: gh.ListOptions{PerPage: pageSize},
	})
	if err != nil {
		return nil, err
	}
	var newest *gh.CheckRun
	for _, r := range list.CheckRuns {
		if isApp && r.GetApp().GetSlug() != slug {
			continue // another App may use our name
		}
		if newest == nil || r.GetID() > newest.GetID() {
			newest = r
		}
	}
	return newest, nil
}

func (f *Forge) stamp() *gh.Timestamp { return &gh.Timestamp{Time: f.o.Now().UTC()} }

// asked says whether somebody wants to see a commit's run again, and which run
// it was then (0: not known yet).
func (f *Forge) asked(commit string) (run int64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	run, ok = f.rerun[commit]
	return run, ok
}

func (f *Forge) remember(commit string, run int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rerun[commit] = run
}

func (f *Forge) answered(commit string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.rerun, commit)
}

// status is the verdict as a commit status, where check runs may not be written.
func (f *Forge) status(ctx context.Context, v verdict) error {
	state := "failure"
	if v.conclusion == "success" || v.conclusion == "neutral" {
		state = "success"
	}
	description := cut(v.title, maxDescription)
	return f.converge(ctx, func() error {
		// Newest first, so the first of our name is the one in force.
		list, _, err := f.client.Repositories.ListStatuses(op(ctx, "list_statuses"), f.o.Owner, f.o.Repo, v.commit, &gh.ListOptions{PerPage: pageSize})
		if err != nil {
			return err
		}
		for _, s := range list {
			if s.GetContext() != f.o.CheckName {
				continue
			}
			if s.GetState() == state && s.GetDescription() == description {
				return nil
			}
			break
		}
		_, _, err = f.client.Repositories.CreateStatus(op(ctx, "create_status"), f.o.Owner, f.o.Repo, v.commit, &gh.RepoStatus{
			State: gh.String(state), Description: gh.String(description), Context: gh.String(f.o.CheckName),
		})
		return err
	})
}

// plain takes out of s what can hide or reorder other text.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.Is(unicode.Cc, r), unicode.Is(unicode.Cf, r), r == unicode.ReplacementChar:
			return -1
		}
		return r
	}, s)
}

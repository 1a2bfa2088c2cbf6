package github

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	gh "github.com/google/go-github/v62/github"

	"berth/reconciler/plan"
	"berth/schema"
)

// GitHub's limits, and lower ones of Berth. The number of annotations is bounded by the
// check's author.
const (
	annotationsPerCall = 50
	maxSummary         = 65_000
	maxTitle           = 250
	maxMessage         = 4_000
	maxDescription     = 140 // of a commit status
	maxID              = 200
)

// checkReport is a check in GitHub's terms.
type checkReport struct {
	commit      string
	name        string
	id          string // external_id: equal ids have equal content
	title       string
	summary     string
	conclusion  string
	link        string // page that a commit status leads to
	annotations []*gh.CheckRunAnnotation
}

// checks are the checks on the commits of a repository.
type checks struct {
	*repository
	mu    sync.Mutex
	rerun map[string]map[string]int64 // rerequests: commit and check → the run at that time
}

// Report shows a check on a commit as a check run, or as a commit status where check
// runs may not be written. A status has only the title.
func (f *checks) Report(ctx context.Context, commit string, c plan.Check) error {
	defer f.busy.lock("commit " + commit)()
	v := f.checkReport(commit, c)
	write := f.checkRun
	if f.o.Report == Statuses {
		write = f.status
	}
	if err := write(ctx, v); err != nil {
		return fmt.Errorf("github: show %s on commit %s: %w", c.Name, commit, explain(err))
	}
	return nil
}

func (f *checks) checkReport(commit string, c plan.Check) checkReport {
	v := checkReport{commit: commit, name: c.Name, id: c.Key, title: cut(plain(c.Title), maxTitle),
		summary: cutMarkdown(c.Summary, maxSummary), conclusion: string(c.Conclusion)}
	v.link = f.page() + "/commit/" + commit
	if c.Pull > 0 {
		v.link = fmt.Sprintf("%s/pull/%d", f.page(), c.Pull)
	}
	for _, d := range c.Notes {
		if d.File != "" {
			v.annotations = append(v.annotations, annotation(d))
		}
	}
	if v.id == "" || len(v.id) > maxID || plain(v.id) != v.id {
		sum := sha256.Sum256([]byte(c.Key))
		v.id = "sha256:" + hex.EncodeToString(sum[:])
	}
	v.id = idPrefix + f.o.Estate + ":" + v.id
	return v
}

// idPrefix begins a run's external_id, followed by the estate. Runs without it, of early
// versions, belong to every estate.
const idPrefix = "berth:"

// others says whether a run belongs to another estate of the same App.
func (f *checks) others(r *gh.CheckRun) bool {
	id := r.GetExternalID()
	return strings.HasPrefix(id, idPrefix) && !strings.HasPrefix(id, idPrefix+f.o.Estate+":")
}

// page is the URL of the repository's web page.
func (f *repository) page() string {
	u := *f.client.BaseURL
	root, enterprise := strings.CutSuffix(u.Path, "/api/v3/")
	if !enterprise {
		u.Host = strings.TrimPrefix(u.Host, "api.")
	}
	return u.Scheme + "://" + u.Host + strings.TrimSuffix(root, "/") + "/" + f.o.Owner + "/" + f.o.Repo
}

// FilesURL returns the URL below which the forge shows files. A commit and a path
// follow it.
func (f *Forge) FilesURL() string { return f.page() + "/blob/" }

// CancelChecks completes as cancelled Berth's incomplete checks on a commit, whatever
// their names.
func (f *checks) CancelChecks(ctx context.Context, commit string) error {
	defer f.busy.lock("commit " + commit)()
	settle := f.settleRuns
	if f.o.Report == Statuses {
		settle = f.settleStatuses
	}
	if err := f.converge(ctx, func() error { return settle(ctx, commit) }); err != nil {
		return fmt.Errorf("github: cancel the checks on commit %s: %w", commit, explain(err))
	}
	return nil
}

// annotation is a finding at its place. GitHub shows annotations of lines in the diff
// beside them, and the others with the check only.
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

// checkRun makes v the newest run of its name on the commit. A completed run cannot be
// reopened: a run that was cancelled, that GitHub found stale, or that a user asked to
// repeat needs a new one.
func (f *checks) checkRun(ctx context.Context, v checkReport) error {
	replaced, requested := f.asked(v.commit, v.name)
	err := f.converge(ctx, func() error {
		runs, err := f.runs(ctx, v.commit, v.name)
		if err != nil {
			return err
		}
		var newest *gh.CheckRun
		if len(runs) > 0 {
			newest = runs[0]
		}
		if requested && replaced == unseen {
			replaced = cmp.Or(newest.GetID(), answered) // without a run, the next one is new
			f.remember(v.commit, v.name, replaced)
		}
		var run *gh.CheckRun
		if newest != nil && newest.GetID() != replaced && v.shown(newest) {
			run, runs = newest, runs[1:]
		}
		// An incomplete run of an older plan would never complete.
		if err := f.cancelRuns(ctx, runs); err != nil {
			return err
		}
		for err == nil && run.GetStatus() != "completed" {
			run, err = f.writeRun(ctx, v, run)
		}
		return err
	})
	if err == nil && requested {
		f.remember(v.commit, v.name, answered)
	}
	return err
}

// writeRun creates a run, or adds to one. More than 50 annotations are sent in pieces,
// and the last piece completes the run; the run's annotation count says where to
// continue, after a crash too.
func (f *checks) writeRun(ctx context.Context, v checkReport, run *gh.CheckRun) (*gh.CheckRun, error) {
	from := min(run.GetOutput().GetAnnotationsCount(), len(v.annotations))
	to := min(from+annotationsPerCall, len(v.annotations))
	output := &gh.CheckRunOutput{Title: gh.String(v.title), Summary: gh.String(v.summary), Annotations: v.annotations[from:to]}
	status := "in_progress"
	var conclusion *string
	var completed *gh.Timestamp
	if to == len(v.annotations) {
		status, conclusion, completed = "completed", &v.conclusion, f.stamp()
	}
	if run == nil {
		run, _, err := f.client.Checks.CreateCheckRun(op(ctx, "create_check"), f.o.Owner, f.o.Repo, gh.CreateCheckRunOptions{
			Name: v.name, HeadSHA: v.commit, ExternalID: gh.String(v.id),
			Status: &status, Conclusion: conclusion, CompletedAt: completed, Output: output, Actions: buttons(),
		})
		return run, err
	}
	run, _, err := f.client.Checks.UpdateCheckRun(op(ctx, "update_check"), f.o.Owner, f.o.Repo, run.GetID(), gh.UpdateCheckRunOptions{
		Name: v.name, Status: &status, Conclusion: conclusion, CompletedAt: completed, Output: output, Actions: buttons(),
	})
	if err == nil && completed == nil && run.GetOutput().GetAnnotationsCount() <= from {
		err = fmt.Errorf("check run %d takes no more annotations than %d", run.GetID(), from)
	}
	return run, err
}

// shown says whether a run shows v, or will once it is completed.
func (v *checkReport) shown(r *gh.CheckRun) bool {
	return r.GetExternalID() == v.id && (r.GetStatus() != "completed" || r.GetConclusion() == v.conclusion)
}

// buttons are shown beside a run. Like GitHub's own "Re-run", the button is for users
// with write access.
func buttons() []*gh.CheckRunAction {
	return []*gh.CheckRunAction{{Label: "Plan again", Description: "Observe again and make a new plan", Identifier: "plan"}}
}

// runs lists Berth's runs of a name ("": any) on a commit, the newest first.
func (f *checks) runs(ctx context.Context, commit, name string) ([]*gh.CheckRun, error) {
	login, err := f.me(ctx)
	if err != nil {
		return nil, err
	}
	slug, isApp := strings.CutSuffix(login, "[bot]")
	// Not "latest": an incomplete run may be older than the newest.
	opt := gh.ListCheckRunsOptions{Filter: gh.String("all")}
	if name != "" {
		opt.CheckName = &name
	}
	var out []*gh.CheckRun
	err = f.each(func(o gh.ListOptions) (*gh.Response, error) {
		opt.ListOptions = o
		list, resp, err := f.client.Checks.ListCheckRunsForRef(op(ctx, "list_checks"), f.o.Owner, f.o.Repo, commit, &opt)
		if err != nil {
			return nil, err
		}
		for _, r := range list.CheckRuns {
			if (!isApp || r.GetApp().GetSlug() == slug) && !f.others(r) { // another App may use our name
				out = append(out, r)
			}
		}
		return resp, nil
	})
	slices.SortFunc(out, func(a, b *gh.CheckRun) int { return cmp.Compare(b.GetID(), a.GetID()) })
	return out, err
}

// settleRuns cancels Berth's incomplete runs on a commit.
func (f *checks) settleRuns(ctx context.Context, commit string) error {
	runs, err := f.runs(ctx, commit, "")
	if err != nil {
		return err
	}
	return f.cancelRuns(ctx, runs)
}

// cancelRuns completes the incomplete ones of some runs as cancelled.
func (f *checks) cancelRuns(ctx context.Context, runs []*gh.CheckRun) error {
	for _, r := range runs {
		if r.GetStatus() == "completed" {
			continue
		}
		if _, _, err := f.client.Checks.UpdateCheckRun(op(ctx, "update_check"), f.o.Owner, f.o.Repo, r.GetID(), gh.UpdateCheckRunOptions{
			Name: r.GetName(), Status: gh.String("completed"), Conclusion: gh.String("cancelled"), CompletedAt: f.stamp(),
		}); err != nil {
			return err
		}
	}
	return nil
}

// stamp is the time in GitHub's form: UTC, whole seconds.
func (f *checks) stamp() *gh.Timestamp {
	return &gh.Timestamp{Time: f.o.Clock.Now().UTC().Truncate(time.Second)}
}

// States of a rerequest, in place of the id of the run that was there at the time.
const (
	unseen   = 0
	answered = -1
)

// maxReruns is the most commits with pending rerequests.
const maxReruns = 1_000

// Rerequest records that a user asked at GitHub to run the checks of a commit again.
// The next Report of each makes a new run although nothing changed. The request is lost
// at a restart: the caller repeats it until the checks are shown.
func (f *checks) Rerequest(commit string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for old := range f.rerun {
		if len(f.rerun) < maxReruns {
			break
		}
		delete(f.rerun, old)
	}
	f.rerun[commit] = map[string]int64{}
}

// asked says whether a rerequest of a commit's check is pending, and which run was there
// at the time.
func (f *checks) asked(commit, name string) (run int64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	names, ok := f.rerun[commit]
	return names[name], ok && names[name] != answered
}

func (f *checks) remember(commit, name string, run int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if names := f.rerun[commit]; names != nil {
		names[name] = run
	}
}

// status shows a check as a commit status.
func (f *checks) status(ctx context.Context, v checkReport) error {
	state := "failure"
	if v.conclusion == string(plan.Success) {
		state = "success"
	}
	description := cut(v.title, maxDescription)
	return f.converge(ctx, func() error {
		list, err := f.statuses(ctx, v.commit, v.name)
		if err != nil {
			return err
		}
		if s := list[v.name]; s.GetState() == state && s.GetDescription() == description && s.GetTargetURL() == v.link {
			return nil
		}
		return f.setStatus(ctx, v.commit, v.name, state, description, v.link)
	})
}

// statuses returns the newest status of each name on a commit; only that of name, if
// name is not "".
func (f *checks) statuses(ctx context.Context, commit, name string) (map[string]*gh.RepoStatus, error) {
	out := map[string]*gh.RepoStatus{}
	err := f.each(func(o gh.ListOptions) (*gh.Response, error) {
		list, resp, err := f.client.Repositories.ListStatuses(op(ctx, "list_statuses"), f.o.Owner, f.o.Repo, commit, &o)
		if err != nil {
			return nil, err
		}
		for _, s := range list { // newest first
			if c := s.GetContext(); out[c] == nil && (name == "" || name == c) {
				out[c] = s
			}
		}
		if out[name] != nil {
			resp.NextPage = 0
		}
		return resp, nil
	})
	return out, err
}

func (f *checks) setStatus(ctx context.Context, commit, name, state, description, link string) error {
	_, _, err := f.client.Repositories.CreateStatus(op(ctx, "create_status"), f.o.Owner, f.o.Repo, commit, &gh.RepoStatus{
		State: &state, Description: &description, Context: &name, TargetURL: &link,
	})
	return err
}

// settleStatuses ends Berth's pending statuses on a commit.
func (f *checks) settleStatuses(ctx context.Context, commit string) error {
	me, err := f.me(ctx)
	if err != nil {
		return err
	}
	list, err := f.statuses(ctx, commit, "")
	for name, s := range list {
		if err == nil && s.GetState() == "pending" && strings.EqualFold(s.GetCreator().GetLogin(), me) {
			err = f.setStatus(ctx, commit, name, "error", "cancelled", s.GetTargetURL())
		}
	}
	return err
}

// plain removes characters that can hide or reorder other text.
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

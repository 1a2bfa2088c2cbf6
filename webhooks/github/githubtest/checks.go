package githubtest

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// Check is a check run, as users see it.
type Check struct {
	ID          int64
	App         string // slug
	Name        string
	Status      string
	Conclusion  string
	ExternalID  string
	Title       string
	Summary     string
	Text        string
	DetailsURL  string
	Annotations []Annotation
}

// Annotation is an annotation of a check run.
type Annotation struct {
	Path        string `json:"path"`
	StartLine   int    `json:"start_line"`
	EndLine     int    `json:"end_line"`
	StartColumn int    `json:"start_column"`
	EndColumn   int    `json:"end_column"`
	Message     string `json:"message"`
}

type checkRun struct {
	Check
	commit             string
	suite              int64
	started, completed time.Time
}

// checks are the check runs.
type checks struct {
	*pulls
	runs []*checkRun
}

// Checks lists the check runs of a commit, oldest first. GitHub shows the newest of each
// name.
func (s *checks) Checks(commit string) []Check {
	defer s.lock()()
	var out []Check
	for _, r := range s.runs {
		if r.commit == commit {
			out = append(out, r.Check)
		}
	}
	return out
}

// RerunAll requests all check runs of an App on a commit again, as a click does.
func (s *checks) RerunAll(commit, slug string) error {
	defer s.lock()()
	run := findLast(s.runs, func(r *checkRun) bool { return r.commit == commit && r.App == slug })
	if run == nil {
		return fmt.Errorf("no check runs of %s on %s", slug, commit)
	}
	suite := s.suiteShape(run)
	log, err := s.git.log("", commit)
	if err != nil {
		return err
	}
	suite["head_commit"] = log[0].shape()
	s.emit("check_suite", "rerequested", obj{"check_suite": suite})
	return nil
}

// checkBody has the fields that creating and updating a check run share.
type checkBody struct {
	Name        string     `json:"name"`
	HeadSHA     string     `json:"head_sha"`
	ExternalID  *string    `json:"external_id"`
	DetailsURL  *string    `json:"details_url"`
	Status      string     `json:"status"`
	Conclusion  string     `json:"conclusion"`
	StartedAt   *time.Time `json:"started_at"`
	CompletedAt *time.Time `json:"completed_at"`
	Output      *struct {
		Title       string       `json:"title"`
		Summary     string       `json:"summary"`
		Text        string       `json:"text"`
		Annotations []Annotation `json:"annotations"`
	} `json:"output"`
	Actions []struct{} `json:"actions"`
}

// maxActions is the most buttons of a check run.
const maxActions = 3

// refuse applies the rules that the description lacks; "": none is broken.
func (b *checkBody) refuse(r *checkRun) string {
	for _, t := range []*time.Time{b.StartedAt, b.CompletedAt} {
		if t != nil && t.Nanosecond() != 0 {
			return "a time is not of the form YYYY-MM-DDTHH:MM:SSZ"
		}
	}
	switch {
	case r.Status == "completed" && b.Status != "" && b.Status != "completed":
		return "a completed check run cannot be " + b.Status + " again"
	case b.Status == "completed" && b.Conclusion == "" && r.Conclusion == "":
		return "a completed check run needs a conclusion"
	case b.Conclusion != "" && b.Status != "completed" && b.Status != "":
		return "a check run that is " + b.Status + " has no conclusion"
	case len(b.Actions) > maxActions:
		return fmt.Sprintf("%d actions, the most is %d", len(b.Actions), maxActions)
	case b.Output == nil:
		return ""
	}
	return refuseAnnotations(b.Output.Annotations)
}

func refuseAnnotations(all []Annotation) string {
	for _, a := range all {
		if a.StartLine != a.EndLine && (a.StartColumn != 0 || a.EndColumn != 0) {
			return "columns need one line: " + a.Path
		}
		if a.StartLine < 1 || a.EndLine < a.StartLine || a.Path == "" || a.Message == "" {
			return fmt.Sprintf("annotation on %q, line %d", a.Path, a.StartLine)
		}
	}
	return ""
}

// apply updates a run.
func (b *checkBody) apply(r *checkRun, now time.Time) {
	r.Status = cmp.Or(b.Status, r.Status)
	if b.Conclusion != "" {
		r.Status, r.Conclusion, r.completed = "completed", b.Conclusion, now
	}
	assign(&r.ExternalID, b.ExternalID)
	assign(&r.DetailsURL, b.DetailsURL)
	assign(&r.started, b.StartedAt)
	if b.Conclusion != "" {
		assign(&r.completed, b.CompletedAt)
	}
	if o := b.Output; o != nil {
		r.Title, r.Summary, r.Text = cmp.Or(o.Title, r.Title), o.Summary, o.Text
		r.Annotations = append(slices.Clip(r.Annotations), o.Annotations...) // never replaced
	}
}

func assign[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// maxRuns is the most check runs of a name that GitHub keeps in a suite.
const maxRuns = 1000

func (s *checks) createCheck(c *call, b checkBody) reply {
	if !c.who.App {
		return *problem(http.StatusForbidden, "You must authenticate via a GitHub App.")
	}
	if !s.knows(b.HeadSHA) {
		return *problem(http.StatusUnprocessableEntity, "No commit found for SHA: "+b.HeadSHA)
	}
	run := &checkRun{Check: Check{ID: s.id(), Name: b.Name, Status: "queued", App: c.who.Login}, commit: b.HeadSHA, started: s.now()}
	if bad := b.refuse(run); bad != "" {
		return invalid("%s", bad)
	}
	b.apply(run, s.now())
	// An App has one suite on a commit. GitHub keeps its newest runs of a name.
	var same []*checkRun
	for _, other := range s.runs {
		if other.commit == run.commit && other.App == run.App {
			run.suite = other.suite
			if other.Name == run.Name {
				same = append(same, other)
			}
		}
	}
	if run.suite == 0 {
		run.suite = s.id()
	}
	if len(same) >= maxRuns {
		s.runs = slices.DeleteFunc(s.runs, func(r *checkRun) bool { return r == same[0] })
	}
	s.runs = append(s.runs, run)
	s.checkEvent("created", run)
	if run.Status == "completed" {
		s.checkEvent("completed", run)
	}
	s.queue.advance()
	return created(s.checkShape(run))
}

func (s *checks) updateCheck(c *call, b checkBody) reply {
	run := find(s.runs, func(r *checkRun) bool { return r.ID == c.number("check_run_id") })
	if run == nil {
		return notFound
	}
	if !c.who.App || c.who.Login != run.App {
		return *problem(http.StatusForbidden, "Invalid app_id `0` - check run can only be modified by the GitHub App that created it.")
	}
	if bad := b.refuse(run); bad != "" {
		return invalid("%s", bad)
	}
	before := run.Status
	b.apply(run, s.now())
	if run.Status == "completed" && before != "completed" {
		s.checkEvent("completed", run)
	}
	s.queue.advance()
	return ok(s.checkShape(run))
}

func (s *checks) listChecks(c *call) reply {
	q := c.query
	is := func(parameter, value string) bool { return q.Get(parameter) == "" || q.Get(parameter) == value }
	runs := slices.Clone(s.runs)
	slices.Reverse(runs) // newest first
	seen := map[string]bool{}
	return reply{status: http.StatusOK, under: "check_runs", list: shaped(runs, s.checkShape, func(r *checkRun) bool {
		if r.commit != c.PathValue("ref") {
			return false
		}
		key := r.App + "/" + r.Name
		older := seen[key]
		seen[key] = true
		return (!older || q.Get("filter") == "all") && is("check_name", r.Name) && is("status", r.Status) &&
			is("app_id", strconv.FormatInt(s.userID(r.App), 10))
	})}
}

func (s *checks) checkShape(r *checkRun) obj {
	return obj{
		"id": r.ID, "node_id": nodeID("CheckRun", r.ID), "name": r.Name, "head_sha": r.commit, "external_id": r.ExternalID,
		"url": s.api("/check-runs/", r.ID), "html_url": s.html("/runs/", r.ID), "details_url": r.DetailsURL,
		"status": r.Status, "conclusion": orNull(r.Conclusion), "started_at": stamp(r.started), "completed_at": orNull(r.completed),
		"check_suite": obj{"id": r.suite}, "app": s.appShape(r.App), "pull_requests": s.pullsOf(r.commit),
		"output": obj{"title": orNull(r.Title), "summary": orNull(r.Summary), "text": orNull(r.Text),
			"annotations_count": len(r.Annotations)},
	}
}

// pullsOf lists the open pull requests of a check run's commit; GitHub leaves out those
// of forks.
func (s *checks) pullsOf(commit string) []any {
	end := func(branch, sha string) obj {
		return obj{"ref": branch, "sha": sha, "repo": obj{"id": 1, "url": s.api(), "name": s.o.Repo}}
	}
	return shaped(s.all, func(p *pull) obj {
		return obj{"id": p.id, "number": p.Number, "url": s.api("/pulls/", p.Number), "head": end(p.Branch, p.Head),
			"base": end(p.Base, s.branches[p.Base])}
	}, func(p *pull) bool { return p.Open && p.Head == commit && p.Fork == "" })
}

// checkEvent is the event of a check run, with its whole suite. GitHub sends it to the
// App that wrote it too.
func (s *checks) checkEvent(action string, r *checkRun) {
	shape := s.checkShape(r)
	shape["check_suite"] = s.suiteShape(r)
	s.emit("check_run", action, obj{"check_run": shape, "sender": s.userShape(r.App + "[bot]")})
}

// suiteShape is the suite of a check run.
func (s *checks) suiteShape(r *checkRun) obj {
	suite := obj{
		"id": r.suite, "node_id": nodeID("CheckSuite", r.suite), "head_sha": r.commit, "after": r.commit, "status": "queued",
		"pull_requests": s.pullsOf(r.commit), "app": s.appShape(r.App),
	}
	if p := findLast(s.all, func(p *pull) bool { return p.Head == r.commit }); p != nil {
		suite["head_branch"] = p.Branch
	}
	return suite
}

// Status is a commit status.
type Status struct{ Context, State, Description, TargetURL string }

type status struct {
	Status
	id            int64
	commit, login string
	made          time.Time
}

// statuses are the commit statuses.
type statuses struct {
	*repository
	all   []*status
	added func() // called after each new status
}

// Statuses lists the statuses of a commit, oldest first.
func (s *statuses) Statuses(commit string) []Status {
	defer s.lock()()
	var out []Status
	for _, st := range s.all {
		if st.commit == commit {
			out = append(out, st.Status)
		}
	}
	return out
}

// GitHub's limits of commit statuses.
const (
	maxStatuses    = 1000 // of a commit and context
	maxDescription = 140  // characters
)

func (s *statuses) createStatus(c *call, b struct {
	State, Description, Context string
	TargetURL                   string `json:"target_url"`
}) reply {
	st := &status{
		Status: Status{cmp.Or(b.Context, "default"), b.State, b.Description, b.TargetURL},
		id:     s.id(), commit: c.PathValue("sha"), login: c.who.actor(), made: s.now(),
	}
	same := 0
	for _, other := range s.all {
		if other.commit == st.commit && other.Context == st.Context {
			same++
		}
	}
	switch {
	case !s.knows(st.commit):
		return *problem(http.StatusUnprocessableEntity, "No commit found for SHA: "+st.commit)
	case utf8.RuneCountInString(st.Description) > maxDescription:
		return invalid("description is too long (maximum is %d characters)", maxDescription)
	case same >= maxStatuses:
		return invalid("This SHA and context has reached the maximum number of statuses.")
	}
	s.all = append(s.all, st)
	s.added()
	return created(s.statusShape(st))
}

func (s *statuses) listStatuses(c *call) reply {
	newest := slices.Clone(s.all)
	slices.Reverse(newest)
	return list(shaped(newest, s.statusShape, func(st *status) bool { return st.commit == c.PathValue("ref") }))
}

func (s *statuses) statusShape(st *status) obj {
	return obj{
		"id": st.id, "node_id": nodeID("Status", st.id), "url": s.api("/statuses/", st.commit), "state": st.State,
		"description": st.Description,
		"target_url":  st.TargetURL, "context": st.Context, "creator": s.userShape(st.login), "created_at": stamp(st.made),
		"updated_at": stamp(st.made),
	}
}

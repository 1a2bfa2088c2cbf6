package githubtest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

type checkRun struct {
	id                 int64
	name, commit       string
	external, details  string
	status, conclusion string
	started, completed time.Time
	title, summary     string
	text               string
	annotations        []Annotation
	actions            []Action
	app                string // slug
	suite              int64
}

// Annotation is an annotation of a check run.
type Annotation struct {
	Path        string `json:"path"`
	StartLine   int    `json:"start_line"`
	EndLine     int    `json:"end_line"`
	StartColumn int    `json:"start_column,omitempty"`
	EndColumn   int    `json:"end_column,omitempty"`
	Level       string `json:"annotation_level"`
	Message     string `json:"message"`
	Title       string `json:"title,omitempty"`
	RawDetails  string `json:"raw_details,omitempty"`
}

type status struct {
	id                         int64
	commit, state, description string
	context, target, login     string
	app                        bool
	made                       time.Time
}

// operations are the calls served, named as GitHub's description names them. All
// run with mu held.
func (s *Server) operations() map[string]func(*call) (reply, *problem) {
	const repo = "/repos/{owner}/{repo}"
	return map[string]func(*call) (reply, *problem){
		"GET /user":       s.getUser,
		"GET /rate_limit": s.getRate,
		"GET " + repo:     s.getRepo,
		"POST /app/installations/{installation_id}/access_tokens": s.createToken,
		"GET /app":                                                            s.getApp,
		"GET /app/hook/deliveries":                                            s.listDeliveries,
		"GET /app/hook/deliveries/{delivery_id}":                              s.getDelivery,
		"POST /app/hook/deliveries/{delivery_id}/attempts":                    s.redeliver,
		"GET " + repo + "/hooks":                                              s.listHooks,
		"GET " + repo + "/hooks/{hook_id}/deliveries":                         s.listDeliveries,
		"GET " + repo + "/hooks/{hook_id}/deliveries/{delivery_id}":           s.getDelivery,
		"POST " + repo + "/hooks/{hook_id}/deliveries/{delivery_id}/attempts": s.redeliver,

		"GET " + repo + "/pulls":                                 s.listPulls,
		"GET " + repo + "/pulls/{pull_number}":                   s.getPull,
		"GET " + repo + "/pulls/{pull_number}/reviews":           s.listReviews,
		"GET " + repo + "/commits/{commit_sha}/pulls":            s.listCommitPulls,
		"GET " + repo + "/collaborators/{username}/permission":   s.getPermission,
		"GET " + repo + "/commits/{ref}/check-runs":              s.listChecks,
		"POST " + repo + "/check-runs":                           s.createCheck,
		"GET " + repo + "/check-runs/{check_run_id}":             s.getCheck,
		"PATCH " + repo + "/check-runs/{check_run_id}":           s.updateCheck,
		"GET " + repo + "/check-runs/{check_run_id}/annotations": s.listAnnotations,
		"GET " + repo + "/commits/{ref}/statuses":                s.listStatuses,
		"POST " + repo + "/statuses/{sha}":                       s.createStatus,

		"GET " + repo + "/issues/{issue_number}/comments":  s.listComments,
		"POST " + repo + "/issues/{issue_number}/comments": s.createComment,
		"GET " + repo + "/issues/comments/{comment_id}":    s.getComment,
		"PATCH " + repo + "/issues/comments/{comment_id}":  s.updateComment,
		"DELETE " + repo + "/issues/comments/{comment_id}": s.deleteComment,
		"GET " + repo + "/issues/comments":                 s.listAllComments,

		"GET " + repo + "/issues/comments/{comment_id}/reactions":                  s.listReactions,
		"POST " + repo + "/issues/comments/{comment_id}/reactions":                 s.createReaction,
		"DELETE " + repo + "/issues/comments/{comment_id}/reactions/{reaction_id}": s.deleteReaction,
	}
}

func ok(body any) (reply, *problem) { return reply{status: http.StatusOK, body: body}, nil }

func list(items []any) (reply, *problem) {
	if items == nil {
		items = []any{}
	}
	return reply{status: http.StatusOK, list: items}, nil
}

func unprocessable(format string, args ...any) *problem {
	return &problem{http.StatusUnprocessableEntity, "Validation Failed: " + fmt.Sprintf(format, args...)}
}

func number(c *call, name string) int64 {
	n, err := strconv.ParseInt(c.path[name], 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func (s *Server) getUser(c *call) (reply, *problem) {
	if c.who.App {
		return reply{}, &problem{http.StatusForbidden, "Resource not accessible by integration"}
	}
	return ok(s.meShape(c.who.Login))
}

func (s *Server) getRate(c *call) (reply, *problem) {
	b, l := s.budgetOf(c.who.as()), s.o.Limits
	rate := obj{"limit": l.PerHour, "remaining": max(0, l.PerHour-b.used), "used": b.used, "reset": b.window.Add(time.Hour).Unix()}
	return ok(obj{"resources": obj{"core": rate, "search": rate}, "rate": rate})
}

func (s *Server) getRepo(*call) (reply, *problem) { return ok(s.repoShape()) }

func (s *Server) listPulls(c *call) (reply, *problem) {
	var items []any
	pulls := slices.Clone(s.pulls)
	if c.query.Get("direction") != "asc" { // "desc" is the default of sort=created
		slices.Reverse(pulls)
	}
	state := c.query.Get("state")
	for _, p := range pulls {
		if state == "all" || p.open == (state == "" || state == "open") {
			if base := c.query.Get("base"); base == "" || base == p.base {
				shape := s.pullShape(p)
				s.behind(p, shape)
				items = append(items, shape)
			}
		}
	}
	return list(items)
}

// behind delays a new head in the API by a number of reads and listings.
func (s *Server) behind(p *pull, shape obj) {
	if head := shape["head"].(obj); p.late > 0 {
		head["sha"] = p.lateHead
		p.late--
	}
}

func (s *Server) getPull(c *call) (reply, *problem) {
	p := s.pull(int(number(c, "pull_number")))
	if p == nil {
		return reply{}, notThere
	}
	mergeable := s.mergeable(p)
	shape := s.pullShape(p)
	s.behind(p, shape)
	for k, v := range s.pullDetail(p, mergeable) {
		shape[k] = v
	}
	return ok(shape)
}

func (s *Server) listCommitPulls(c *call) (reply, *problem) {
	commit := c.path["commit_sha"]
	if !s.isCommit(commit) {
		return reply{}, unprocessable("No commit found for SHA: %s", commit)
	}
	var items []any
	for _, p := range s.pulls {
		if (p.open || !p.merged.IsZero()) && s.holds(p, commit) {
			items = append(items, s.pullShape(p))
		}
	}
	return list(items)
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
	Actions []Action `json:"actions"`
}

func (s *Server) createCheck(c *call) (reply, *problem) {
	if !c.who.App {
		return reply{}, &problem{http.StatusForbidden, "You must authenticate via a GitHub App."}
	}
	var b checkBody
	if bad := c.decode(&b); bad != nil {
		return reply{}, bad
	}
	if !s.isCommit(b.HeadSHA) {
		return reply{}, unprocessable("No commit found for SHA: %s", b.HeadSHA)
	}
	run := &checkRun{id: s.id(), name: b.Name, commit: b.HeadSHA, status: "queued", started: s.now(), app: c.who.Login}
	for _, other := range s.checks { // one suite for each App and commit
		if other.commit == run.commit && other.app == run.app {
			run.suite = other.suite
		}
	}
	if run.suite == 0 {
		run.suite = s.id()
	}
	if bad := run.apply(b, s.now()); bad != nil {
		return reply{}, bad
	}
	s.keepRuns(run)
	s.checks = append(s.checks, run)
	s.told(run, "created")
	return reply{status: http.StatusCreated, body: s.checkShape(run)}, nil
}

// maxRuns is the most check runs of a name that GitHub keeps in a suite.
const maxRuns = 1000

// keepRuns deletes the oldest run of the same name and suite beyond maxRuns.
func (s *Server) keepRuns(next *checkRun) {
	same := func(r *checkRun) bool { return r.suite == next.suite && r.name == next.name }
	n := 0
	for _, r := range s.checks {
		if same(r) {
			n++
		}
	}
	if n >= maxRuns {
		i := slices.IndexFunc(s.checks, same)
		s.checks = slices.Delete(s.checks, i, i+1)
	}
}

func (s *Server) updateCheck(c *call) (reply, *problem) {
	run := s.check(number(c, "check_run_id"))
	if run == nil {
		return reply{}, notThere
	}
	if !c.who.App || c.who.Login != run.app {
		return reply{}, &problem{http.StatusForbidden, "Invalid app_id `0` - check run can only be modified by the GitHub App that created it."}
	}
	var b checkBody
	if bad := c.decode(&b); bad != nil {
		return reply{}, bad
	}
	if run.status == "completed" && (b.Status != "" && b.Status != "completed") {
		return reply{}, unprocessable("a completed check run cannot be %s again", b.Status)
	}
	before := run.status
	if bad := run.apply(b, s.now()); bad != nil {
		return reply{}, bad
	}
	if before != run.status {
		s.told(run, "")
	}
	return ok(s.checkShape(run))
}

// told sends the events of a check run that was created, completed or both. GitHub sends
// them to the App that wrote it too.
func (s *Server) told(run *checkRun, created string) {
	for _, action := range []string{created, run.status} {
		if action == "created" || action == "completed" {
			s.deliver([]Delivery{s.checkEvent(action, run, run.app+"[bot]", nil)})
		}
	}
	s.runQueue()
}

// apply applies a request's body.
func (r *checkRun) apply(b checkBody, now time.Time) *problem {
	for name, t := range map[string]*time.Time{"started_at": b.StartedAt, "completed_at": b.CompletedAt} {
		if t != nil && t.Nanosecond() != 0 {
			return unprocessable("%s is not of the form YYYY-MM-DDTHH:MM:SSZ", name)
		}
	}
	if b.Conclusion != "" && b.Status == "" {
		b.Status = "completed"
	}
	if b.Status == "completed" && b.Conclusion == "" && r.conclusion == "" {
		return unprocessable("a completed check run needs a conclusion")
	}
	if b.Conclusion != "" && b.Status != "completed" {
		return unprocessable("a check run that is %s has no conclusion", b.Status)
	}
	set := func(to *string, from *string) {
		if from != nil {
			*to = *from
		}
	}
	if len(b.Actions) > 3 {
		return unprocessable("%d actions, the most is 3", len(b.Actions))
	}
	if b.Actions != nil {
		r.actions = b.Actions
	}
	set(&r.external, b.ExternalID)
	set(&r.details, b.DetailsURL)
	if b.Status != "" {
		r.status = b.Status
	}
	if b.Conclusion != "" {
		r.conclusion, r.completed = b.Conclusion, now
		if b.CompletedAt != nil {
			r.completed = *b.CompletedAt
		}
	}
	if b.StartedAt != nil {
		r.started = *b.StartedAt
	}
	if o := b.Output; o != nil {
		if o.Title != "" {
			r.title = o.Title
		}
		r.summary, r.text = o.Summary, o.Text
		for _, a := range o.Annotations {
			if a.StartLine != a.EndLine && (a.StartColumn != 0 || a.EndColumn != 0) {
				return unprocessable("columns need one line: %s", a.Path)
			}
			if a.StartLine < 1 || a.EndLine < a.StartLine || a.Path == "" || a.Message == "" {
				return unprocessable("annotation on %q, line %d", a.Path, a.StartLine)
			}
		}
		r.annotations = append(r.annotations, o.Annotations...) // never replaced
	}
	return nil
}

// check is a check run by id, or nil. The caller holds mu.
func (s *Server) check(id int64) *checkRun {
	for _, r := range s.checks {
		if r.id == id {
			return r
		}
	}
	return nil
}

func (s *Server) getCheck(c *call) (reply, *problem) {
	run := s.check(number(c, "check_run_id"))
	if run == nil {
		return reply{}, notThere
	}
	return ok(s.checkShape(run))
}

func (s *Server) listAnnotations(c *call) (reply, *problem) {
	run := s.check(number(c, "check_run_id"))
	if run == nil {
		return reply{}, notThere
	}
	var items []any
	for _, a := range run.annotations {
		items = append(items, s.annotationShape(run, a))
	}
	return list(items)
}

func (s *Server) listChecks(c *call) (reply, *problem) {
	q := c.query
	items := []any{}
	latest := map[string]bool{}
	for _, run := range slices.Backward(s.checks) { // newest first
		key := run.app + "/" + run.name
		if run.commit != c.path["ref"] || (q.Get("filter") != "all" && latest[key]) {
			continue
		}
		latest[key] = true
		if (q.Get("check_name") == "" || q.Get("check_name") == run.name) &&
			(q.Get("status") == "" || q.Get("status") == run.status) &&
			(q.Get("app_id") == "" || q.Get("app_id") == strconv.FormatInt(s.userID(run.app), 10)) {
			items = append(items, s.checkShape(run))
		}
	}
	return reply{status: http.StatusOK, list: items, under: "check_runs"}, nil
}

func (s *Server) listStatuses(c *call) (reply, *problem) {
	var items []any
	for _, st := range slices.Backward(s.statuses) {
		if st.commit == c.path["ref"] {
			items = append(items, s.statusShape(st))
		}
	}
	return list(items)
}

func (s *Server) createStatus(c *call) (reply, *problem) {
	var b struct {
		State       string `json:"state"`
		Description string `json:"description"`
		Context     string `json:"context"`
		TargetURL   string `json:"target_url"`
	}
	if bad := c.decode(&b); bad != nil {
		return reply{}, bad
	}
	st := &status{
		id: s.id(), commit: c.path["sha"], state: b.State, description: b.Description, context: b.Context,
		target: b.TargetURL, login: c.who.as(), app: c.who.App, made: s.now(),
	}
	if st.context == "" {
		st.context = "default"
	}
	same := 0
	for _, other := range s.statuses {
		if other.commit == st.commit && other.context == st.context {
			same++
		}
	}
	switch {
	case !s.isCommit(st.commit):
		return reply{}, unprocessable("No commit found for SHA: %s", st.commit)
	case utf8.RuneCountInString(st.description) > 140:
		return reply{}, unprocessable("description is too long (maximum is 140 characters)")
	case same >= 1000:
		return reply{}, unprocessable("This SHA and context has reached the maximum number of statuses.")
	}
	s.statuses = append(s.statuses, st)
	s.runQueue()
	return reply{status: http.StatusCreated, body: s.statusShape(st)}, nil
}

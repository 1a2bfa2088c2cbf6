package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
)

// work is the effect of a plan's worst step on running jobs.
type work int

const (
	workNone     work = iota // no unit that could have jobs
	workStays                // running jobs continue
	workTerms                // running jobs continue, and other queued jobs can start
	workPreempts             // running jobs may end for others
	workDrains               // the step waits for running jobs
	workEnds                 // running jobs may be cancelled
)

// stepsOf returns the actions of a plan, and those of members that wait for it.
func stepsOf(u *plan.Plan) []plan.Action { return slices.Concat(u.Actions, u.Later) }

func workOf(u *plan.Plan) work {
	worst := workNone
	if u.Before != nil && len(u.Actions) > 0 {
		worst = workStays
	}
	for _, a := range stepsOf(u) {
		if worst = max(worst, stepWork(a.Impact)); a.Verb == plan.Stop || a.Verb == plan.Delete {
			worst = max(worst, workDrains)
		}
	}
	if isNew(u) {
		return workNone
	}
	return worst
}

func stepWork(i plan.Impact) work {
	switch {
	case i.EndsJobs:
		return workEnds
	case len(i.Drains)+len(i.Jobs) > 0:
		return workDrains
	case len(i.Preempts) > 0:
		return workPreempts
	case slices.ContainsFunc(i.Terms, func(t plan.JobTerms) bool { return t.Before.Sizes == nil }): // and not only of a cluster's size
		return workTerms
	}
	return workNone
}

// jobsOf returns the impact on the jobs of a unit: that of the pull request's snapshot, or of
// the plan itself; nil if neither has one.
func jobsOf(u *plan.Plan, c *plan.PullContext) *plan.JobImpact {
	i, ok := slices.BinarySearchFunc(c.Jobs, u.Key, func(j plan.UnitJobs, k schema.Key) int { return j.Key.Compare(k) })
	if !ok {
		return u.Jobs
	}
	return &c.Jobs[i].JobImpact
}

// showsJobs reports whether jobs are known for responding hosts: on a pull request, and
// not in a local checkout.
func showsJobs(c *plan.PullContext) bool { return c.Number > 0 }

// lacksJobs reports whether the jobs of a unit are unknown although its pull request shows jobs.
func lacksJobs(u *plan.Plan, c *plan.PullContext) bool { return showsJobs(c) && !jobsOf(u, c).Known() }

// whyUnknown says why the jobs of a unit are unknown, such as that its control node did not
// answer. name formats the node, and words a reason from outside Berth.
func whyUnknown(u *plan.Plan, j *plan.JobImpact, name, words func(string) string) string {
	control, ok := u.Before.Control()
	switch {
	case j != nil && j.Unknown != "":
		return words(short(j.Unknown, maxValue))
	case ok && control.Node != "":
		return name(control.Node) + " did not answer"
	}
	return "its host did not answer"
}

// worstForJobs describes the effects of a merge on jobs in numbers; without a snapshot, its worst
// effect on running jobs. It returns "" if no instance has jobs.
func worstForJobs(p *plan.Proposal, c *plan.PullContext, text, words func(string) string) string {
	worst := workNone
	var sum plan.JobImpact
	var met, silent []*plan.Plan
	known := false
	for _, u := range inOrder(p) {
		of, j := workOf(u), jobsOf(u, c)
		worst = max(worst, of)
		switch {
		case of == workNone:
			continue
		case j.Known():
			known = true
			if of > workStays {
				met = append(met, u)
			}
			for i, set := range fates(j) {
				fates(&sum)[i].Count += set.Count
			}
		case of > workStays:
			silent = append(silent, u)
		}
	}
	var parts []string
	unknown := unknownText(silent, c, text, words)
	switch {
	case worst == workNone:
		return ""
	case known:
		parts = append(parts, sumText(&sum, endReasons(met, c, sum.Ended.Count, text), preemptReasons(met, text)))
	case worst <= workTerms:
		parts = append(parts, noJobEnds(p, c, silent, text, words))
		unknown = "" // it says so
	}
	if len(silent) > 0 {
		parts = append(parts, silentText(silent, text)+unknown)
	}
	return strings.Join(parts, ". ") + "."
}

// unknownText says that the jobs of units are unknown, and why if it is one unit; "" where jobs are not shown.
func unknownText(silent []*plan.Plan, c *plan.PullContext, text, words func(string) string) string {
	switch {
	case !showsJobs(c):
		return ""
	case len(silent) == 1:
		return "; jobs unknown: " + whyUnknown(silent[0], jobsOf(silent[0], c), text, words)
	}
	return "; jobs unknown"
}

// noJobEnds says that no step ends a running job. That none ends is certain only if Berth knows
// what runs. silent are units whose jobs are unknown.
func noJobEnds(p *plan.Proposal, c *plan.PullContext, silent []*plan.Plan, text, words func(string) string) string {
	var nodes, why []string
	for i := range p.Plans {
		for _, b := range p.Plans[i].Blocked {
			if b.Node != "" {
				nodes = withNew(nodes, text(b.Node))
			}
		}
	}
	if len(nodes) > 0 {
		why = append(why, list(nodes, maxNamed)+" did not answer")
	}
	for _, u := range silent {
		if lacksJobs(u, c) {
			why = withNew(why, whyUnknown(u, jobsOf(u, c), text, words))
		}
	}
	switch {
	case p.Assumed:
		why = []string{"berth/status is not available"}
	case len(why) == 0:
		return "No running job ends"
	}
	return "Jobs unknown: " + list(why, maxNamed) + "; no planned step ends one"
}

// isSilent reports whether Berth cannot know which jobs of a unit run.
func isSilent(p *plan.Proposal, u *plan.Plan) bool {
	return p.Assumed || slices.ContainsFunc(u.Blocked, func(b plan.Blocked) bool { return b.Node != "" })
}

// harm describes the jobs that a merge ends, cancels, or lets others preempt; "" for none.
func harm(p *plan.Proposal, c *plan.PullContext) string {
	ended, cancelled, preemptible := 0, 0, 0
	var lost, preempted []plan.JobSet
	var unknown plan.Impact // of the units whose jobs are unknown
	for i := range p.Plans {
		u := &p.Plans[i]
		switch j := jobsOf(u, c); {
		case workOf(u) == workNone:
		case j.Known():
			ended, cancelled = ended+j.Ended.Count, cancelled+j.Cancelled.Count
			lost = append(lost, j.Ended, j.Cancelled)
			preemptible, preempted = preemptible+j.Preemptible.Count, append(preempted, j.Preemptible)
		default:
			for _, a := range stepsOf(u) {
				unknown.EndsJobs = unknown.EndsJobs || a.Impact.EndsJobs
				unknown.Jobs, unknown.Preempts = append(unknown.Jobs, a.Impact.Jobs...), append(unknown.Preempts, a.Impact.Preempts...)
			}
		}
	}
	var parts []string
	switch {
	case ended > 0 && cancelled > 0:
		parts = append(parts, fmt.Sprintf("ends %d running and cancels %d queued jobs%s", ended, cancelled, ofUsers(lost)))
	case ended > 0:
		parts = append(parts, "ends "+count(ended, "job")+ofUsers(lost))
	case cancelled > 0:
		parts = append(parts, "cancels "+count(cancelled, "queued job")+ofUsers(lost))
	}
	if preemptible > 0 {
		parts = append(parts, "may preempt "+count(preemptible, "running job")+ofUsers(preempted))
	}
	if may := possibleHarm(unknown); may != "" {
		parts = append(parts, "may "+may)
	}
	return sentence(parts)
}

// possibleHarm describes the possible harm of an impact to unknown jobs; "" for no harm.
func possibleHarm(i plan.Impact) string {
	var parts []string
	if i.EndsJobs {
		parts = append(parts, "end running jobs")
	}
	if slices.ContainsFunc(i.Jobs, func(r plan.JobRule) bool { return r.CancelsQueued }) {
		parts = append(parts, "cancel queued jobs")
	}
	if len(i.Preempts) > 0 {
		parts = append(parts, "preempt running jobs")
	}
	return sentence(parts)
}

// ofUsers counts the users of jobs; "" if some are not named.
func ofUsers(sets []plan.JobSet) string {
	users := map[string]bool{}
	for _, s := range sets {
		for _, u := range s.Users {
			users[u.User] = true
		}
		if s.More > 0 {
			return ""
		}
	}
	if len(users) == 0 {
		return ""
	}
	return " of " + count(len(users), "user")
}

// sumText lists the numbers of jobs, the worst first. why says which running jobs end, and forWhom for
// whose jobs others may be preempted.
func sumText(sum *plan.JobImpact, why, forWhom string) string {
	if sum.Running()+sum.Queued() == 0 {
		return "No jobs are running or queued"
	}
	affected := sum.Running() + sum.Queued() - sum.Continue.Count - sum.Kept.Count
	var parts []string
	for _, f := range fates(sum) {
		if f.Count == 0 {
			continue
		}
		s := fmt.Sprintf("%s %s", count(f.Count, f.of+" job"), plural(f.Count, f.one, f.many))
		switch f.JobSet {
		case &sum.Ended:
			s += why
		case &sum.Preemptible:
			s += forWhom
		}
		parts = append(parts, s)
	}
	s := strings.Join(parts, ", ")
	if affected == 0 {
		s = "No running job ends: " + s
	}
	return s
}

// fateOf is a set of jobs with what becomes of one or of many of them.
type fateOf struct {
	*plan.JobSet
	of        string // running or queued
	one, many string
	cell      string // for a cell; "": as one and many
	row       string // for the table of jobs; "": they are not affected
}

// fates returns the sets of jobs, the worst first.
func fates(j *plan.JobImpact) []fateOf {
	return []fateOf{
		{&j.Ended, "running", "ends", "end", "", "ended"},
		{&j.Waited, "running", "finishes first", "finish first", "", "finish first"},
		{&j.Cancelled, "queued", "is cancelled", "are cancelled", "cancelled", "cancelled"},
		{&j.Preemptible, "running", "may be preempted", "may be preempted", "", "may be preempted"},
		{&j.CannotStart, "queued", "can no longer start", "can no longer start", "cannot start", "cannot start until changed or cancelled"},
		{&j.Delayed, "queued", "waits until running jobs of its project end", "wait until running jobs of their project end", "",
			"wait until running jobs of their project end"},
		{&j.Moved, "queued", "moves to other partitions", "move to other partitions", "moved to other partitions",
			"moved to other partitions"},
		{&j.MayStart, "queued", "may start", "may start", "", "may start"},
		{&j.Continue, "running", "continues", "continue", "", ""},
		{&j.Kept, "queued", "is kept", "are kept", "kept", ""},
	}
}

// endReasons says in brackets with which instances, and of whom, running jobs end; "" if that
// adds nothing.
func endReasons(met []*plan.Plan, c *plan.PullContext, all int, text func(string) string) string {
	var parts []string
	for _, u := range met {
		switch ended := &jobsOf(u, c).Ended; {
		case ended.Count == 0:
		case does(u, plan.Delete) && (ended.Count < all || len(met) > 1):
			parts = append(parts, fmt.Sprintf("%d with %s", ended.Count, unitAs(u.Key, text)))
		case len(ended.Users) == 1 && ended.Users[0].Count == ended.Count:
			parts = append(parts, fmt.Sprintf("%d of user %s", ended.Count, text(short(ended.Users[0].User, maxName))))
		case ended.Count < all:
			parts = append(parts, fmt.Sprintf("%d on %s", ended.Count, unitAs(u.Key, text)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(atMost(maxNamed, parts, " instances"), "; ") + ")"
}

// preemptReasons says how running jobs may be preempted, and for whose guaranteed share.
func preemptReasons(met []*plan.Plan, text func(string) string) string {
	var ways, names []string
	for _, u := range met {
		for _, a := range stepsOf(u) {
			for _, p := range a.Impact.Preempts {
				ways = withNew(ways, preemptedHow(p))
				names = withNew(names, texts(p.For, text)...)
			}
		}
	}
	return fmt.Sprintf(" (%s) for the guaranteed share of %s", strings.Join(ways, " or "), list(names, maxNamed))
}

// silentText describes the worst effect on the units whose jobs are unknown.
func silentText(silent []*plan.Plan, text func(string) string) string {
	worst := workNone
	var names []string
	for _, u := range silent {
		worst = max(worst, workOf(u))
	}
	for _, u := range silent {
		if workOf(u) == worst {
			names = append(names, unitAs(u.Key, text))
		}
	}
	return map[work]string{
		workEnds: "Running jobs may be cancelled", workDrains: "Running jobs finish first", workPreempts: "Running jobs may be preempted",
		workTerms: "The terms of queued jobs change",
	}[worst] + " on " + list(names, maxNamed)
}

// maxName limits the name of a user.
const maxName = 40

// jobs returns the effects of a plan on the jobs of a unit; "" for no effect. all: it names the
// owners of all affected jobs, and otherwise of running jobs of a unit that stays.
func (d *page) jobs(u *plan.Plan, all bool) string {
	worst := workOf(u)
	if worst == workNone {
		return ""
	}
	switch j := jobsOf(u, d.c); {
	case j.Known():
		return jobsText(j, all || !does(u, plan.Delete), all || isShared(u) && !does(u, plan.Delete))
	case worst == workStays && isSilent(d.p, u):
		return "unknown; none is ended"
	case worst == workStays:
		return "continue"
	case worst == workTerms && lacksJobs(u, d.c):
		return "unknown; none is ended: " + whyUnknown(u, j, code, prose)
	case lacksJobs(u, d.c):
		return "jobs unknown: " + whyUnknown(u, j, code, prose)
	}
	var rules []string
	for _, a := range stepsOf(u) {
		for _, phrase := range jobPhrases(a.Impact) {
			rules = withNew(rules, prose(short(phrase, maxValue)))
		}
	}
	return strings.Join(atMost(4, rules, " effects"), "; ")
}

// jobsText puts an impact into a cell. The numbers add up to those of all jobs. It names the
// owners of running and of queued jobs.
func jobsText(j *plan.JobImpact, ofRunning, ofQueued bool) string {
	if j.Running()+j.Queued() == 0 {
		return "none"
	}
	parts := slices.DeleteFunc([]string{jobsPart(j, "running", j.Running(), ofRunning), jobsPart(j, "queued", j.Queued(), ofQueued)},
		func(s string) bool { return s == "" })
	if len(j.Unread) > 0 {
		parts = append(parts, fmt.Sprintf("%s %s cannot be read fully and %s as running on each node", plural(len(j.Unread), "job", "jobs"),
			prose(strings.Join(j.Unread, ", ")), plural(len(j.Unread), "counts", "count")))
	}
	return strings.Join(parts, "; ")
}

// jobsPart is jobsText of the running or of the queued jobs. whose: it names their owners.
func jobsPart(j *plan.JobImpact, of string, all int, whose bool) string {
	var parts []string
	for _, f := range fates(j) {
		if f.of != of || f.Count == 0 || f.row == "" && len(parts) > 0 {
			continue
		}
		text := fmt.Sprint(f.Count)
		switch {
		case len(parts) == 0 && f.Count < all:
			text = fmt.Sprintf("%d of %d %s", f.Count, all, of)
		case len(parts) == 0:
			text += " " + of
		}
		text += " " + cmp.Or(f.cell, plural(f.Count, f.one, f.many))
		if f.JobSet == &j.Ended {
			text += endAfter(j)
		}
		if names := owners(f.JobSet); names != "" && whose {
			text += " (" + names + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// endAfter says after how many seconds running jobs end.
func endAfter(j *plan.JobImpact) string {
	if len(j.EndAfter) == 0 {
		return ""
	}
	return " after " + strings.Join(each(j.EndAfter, strconv.Itoa), " or ") + " s"
}

// owners names at most three users of jobs, with the number of jobs of each if there are
// several, or at most three projects of more users; "" if they are unknown. The names of a
// project follow it.
func owners(s *plan.JobSet) string {
	users := slices.Clone(s.Users)
	slices.SortStableFunc(users, func(a, b plan.UserJobs) int {
		first := func(account string) int {
			return slices.IndexFunc(s.Users, func(u plan.UserJobs) bool { return u.Account == account })
		}
		return first(a.Account) - first(b.Account)
	})
	all := len(users) + s.More
	if all > 3 && len(s.Accounts) > 0 {
		return projects(s)
	}
	if all > 3 {
		users = users[:2]
	}
	var text strings.Builder
	for i, u := range users {
		switch {
		case i > 0 && u.Account == users[i-1].Account:
			text.WriteString(", ")
		case i > 0:
			text.WriteString("; ")
		}
		if u.Account != "" && (i == 0 || u.Account != users[i-1].Account) {
			text.WriteString(prose(short(u.Account, maxName)) + ": ")
		}
		text.WriteString(prose(short(u.User, maxName)))
		if len(s.Users) > 1 {
			fmt.Fprintf(&text, " %d", u.Count)
		}
	}
	if all > 3 {
		fmt.Fprintf(&text, ", %d more users", all-2)
	}
	return text.String()
}

// projects names at most three projects of jobs, with the number of jobs of each if there are several.
func projects(s *plan.JobSet) string {
	var parts []string
	for _, a := range s.Accounts {
		part := prose(short(a.Account, maxName))
		if len(s.Accounts) > 1 {
			part += fmt.Sprintf(" %d", a.Count)
		}
		parts = append(parts, part)
	}
	return strings.Join(atMost(3, parts, " projects"), ", ")
}

// jobSets writes the affected jobs of a unit with their owners and ids.
func (d *page) jobSets(u *plan.Plan) {
	j := jobsOf(u, d.c)
	if !j.Known() {
		return
	}
	sets := slices.DeleteFunc(fates(j), func(s fateOf) bool { return s.Count == 0 || s.row == "" })
	if len(sets) == 0 {
		return
	}
	d.line("")
	d.table("Jobs", "Number", "Users", "Ids")
	for _, s := range sets {
		d.row(s.of+", "+s.row, fmt.Sprint(s.Count), usersCell(s.JobSet), idsCell(s.JobSet))
	}
}

// usersCell names the users of jobs with their projects and the number of jobs of each.
func usersCell(s *plan.JobSet) string {
	var users []string
	for _, x := range s.Users {
		name := prose(short(x.User, maxName))
		if x.Account != "" {
			name += " (" + prose(short(x.Account, maxName)) + ")"
		}
		users = append(users, fmt.Sprintf("%s %d", name, x.Count))
	}
	if s.More > 0 {
		users = append(users, fmt.Sprintf("%d more users", s.More))
	}
	return dash(strings.Join(users, ", "))
}

// idsCell names the first jobs.
func idsCell(s *plan.JobSet) string {
	ids := texts(s.IDs, prose)
	if len(ids) < s.Count && len(ids) == plan.MaxJobIDs {
		ids = append(ids, "…")
	}
	return dash(strings.Join(ids, ", "))
}

// jobPhrases describes the effects of an action on jobs, a phrase each.
func jobPhrases(i plan.Impact) (out []string) {
	for _, r := range i.Jobs {
		out = append(out, ruleText(r)...)
	}
	for _, t := range i.Terms {
		out = append(out, termsText(t)...)
	}
	for _, p := range i.Preempts {
		out = append(out, preemptionText(p))
	}
	return out
}

// ruleText describes the effects of an action on the jobs that the rule selects, a phrase each.
func ruleText(r plan.JobRule) []string {
	var of []string
	for _, x := range []struct {
		word  string
		names []string
	}{{"on ", r.Nodes}, {"in partition ", r.Partitions}, {"of user ", r.Users}, {"of account ", r.Accounts}, {"of QoS ", r.QoS}} {
		if len(x.names) > 0 {
			of = append(of, x.word+list(x.names, 4))
		}
	}
	running := "running jobs"
	if !r.All {
		running += " " + strings.Join(of, ", ")
	}
	out := []string{running + " finish first"}
	if r.CancelAfter > 0 {
		out[0] = fmt.Sprintf("%s end after %d s", running, r.CancelAfter)
	}
	if r.Leave {
		out = append(out, "queued jobs that name "+list(r.Nodes, 4)+" are cancelled")
	}
	switch {
	case r.All && r.CancelsQueued:
		out = append(out, "queued jobs are cancelled")
	case r.All:
		out = append(out, "queued jobs are kept")
	case r.CancelsQueued && len(r.Partitions) > 0:
		out = append(out, "queued jobs there move to other partitions or are cancelled")
	case r.CancelsQueued:
		out = append(out, "their queued jobs are cancelled")
	}
	return out
}

package report

import (
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
)

// work is the effect of a plan's worst step on running jobs.
type work int

const (
	workNone   work = iota // no unit that could have jobs
	workStays              // running jobs continue
	workDrains             // the step waits for running jobs
	workEnds               // running jobs may be cancelled
)

// stepsOf returns the actions of a plan, and those of members that wait for it.
func stepsOf(u *plan.Plan) []plan.Action { return slices.Concat(u.Actions, u.Later) }

func workOf(u *plan.Plan) work {
	worst := workNone
	if u.Before != nil && len(u.Actions) > 0 {
		worst = workStays
	}
	for _, a := range stepsOf(u) {
		worst = max(worst, stepWork(a))
	}
	if changeOf(u) == creates {
		return workNone
	}
	return worst
}

func stepWork(a plan.Action) work {
	switch {
	case a.Impact.EndsJobs:
		return workEnds
	case len(a.Impact.Drains)+len(a.Impact.Jobs) > 0 || a.Verb == plan.Stop || a.Verb == plan.Delete:
		return workDrains
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

// whyUnknown says why the jobs of a unit are unknown, such as that its control node did not
// answer. name formats the node.
func whyUnknown(u *plan.Plan, j *plan.JobImpact, name func(string) string) string {
	control, ok := u.Before.Control()
	switch {
	case j != nil && j.Unknown != "":
		return prose(short(j.Unknown, maxValue))
	case ok && control.Node != "":
		return name(control.Node) + " did not answer"
	}
	return "its host did not answer"
}

// worstForJobs describes in numbers what a merge does to jobs; without a snapshot, its worst
// effect on running jobs. It returns "" if no instance has jobs. bold highlights the
// beginning.
func worstForJobs(p *plan.Proposal, c *plan.PullContext, name func(schema.Key) string, text, bold func(string) string) string {
	worst := workNone
	var sum plan.JobImpact
	var met, silent []*plan.Plan
	known := false
	for _, u := range inOrder(p.Plans) {
		of := workOf(u)
		if worst = max(worst, of); of == workNone {
			continue
		}
		j := jobsOf(u, c)
		if !j.Known() {
			if of > workStays {
				silent = append(silent, u)
			}
			continue
		}
		known = true
		if of > workStays {
			met = append(met, u)
		}
		for _, x := range []struct{ to, from *plan.JobSet }{{&sum.Ended, &j.Ended}, {&sum.Waited, &j.Waited}, {&sum.Continue, &j.Continue},
			{&sum.Cancelled, &j.Cancelled}, {&sum.Moved, &j.Moved}, {&sum.Kept, &j.Kept}} {
			x.to.Count += x.from.Count
		}
	}
	if worst == workNone {
		return ""
	}
	var parts []string
	if known {
		parts = append(parts, sumText(&sum, endReasons(met, c, sum.Ended.Count, name, text), bold))
	} else if worst == workStays {
		return "No running job ends."
	}
	if len(silent) > 0 {
		parts = append(parts, silentText(silent, c, name, text, bold))
	}
	return strings.Join(parts, ". ") + "."
}

// sumText lists the numbers of jobs, the worst first. why says which running jobs end.
func sumText(sum *plan.JobImpact, why string, bold func(string) string) string {
	if sum.Running()+sum.Queued() == 0 {
		return "No jobs are running or queued"
	}
	affected := sum.Ended.Count + sum.Waited.Count + sum.Cancelled.Count + sum.Moved.Count
	var parts []string
	add := func(n int, noun, one, many string) {
		if n == 0 {
			return
		}
		s := fmt.Sprintf("%s %s", count(n, noun), plural(n, one, many))
		if len(parts) == 0 && affected > 0 {
			s = bold(s)
		}
		if one == "ends" {
			s += why
		}
		parts = append(parts, s)
	}
	add(sum.Ended.Count, "running job", "ends", "end")
	add(sum.Waited.Count, "running job", "is waited for", "are waited for")
	add(sum.Cancelled.Count, "queued job", "is cancelled", "are cancelled")
	add(sum.Moved.Count, "queued job", "moves to other partitions", "move to other partitions")
	add(sum.Continue.Count, "running job", "continues", "continue")
	add(sum.Kept.Count, "queued job", "is kept", "are kept")
	s := strings.Join(parts, ", ")
	if affected == 0 {
		s = "No running job ends: " + s
	}
	return s
}

// endReasons says in brackets with which instances, and of whom, running jobs end; "" if that
// adds nothing.
func endReasons(met []*plan.Plan, c *plan.PullContext, all int, name func(schema.Key) string, text func(string) string) string {
	var parts []string
	for _, u := range met {
		switch ended := &jobsOf(u, c).Ended; {
		case ended.Count == 0:
		case changeOf(u) == deletes && (ended.Count < all || len(met) > 1):
			parts = append(parts, fmt.Sprintf("%d with %s", ended.Count, name(u.Key)))
		case len(ended.Users) == 1 && ended.Users[0].Count == ended.Count:
			parts = append(parts, fmt.Sprintf("%d of user %s", ended.Count, text(short(ended.Users[0].User, maxName))))
		case ended.Count < all:
			parts = append(parts, fmt.Sprintf("%d on %s", ended.Count, name(u.Key)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(atMost(maxNamed, parts, " instances"), "; ") + ")"
}

// silentText describes the worst effect on the units whose jobs are unknown.
func silentText(silent []*plan.Plan, c *plan.PullContext, name func(schema.Key) string, text, bold func(string) string) string {
	worst := workNone
	var names []string
	for _, u := range silent {
		worst = max(worst, workOf(u))
	}
	for _, u := range silent {
		if workOf(u) == worst {
			names = append(names, name(u.Key))
		}
	}
	s := bold(map[work]string{workEnds: "Running jobs may be cancelled", workDrains: "Running jobs are waited for"}[worst]) + " on " + list(names, maxNamed)
	if showsJobs(c) {
		s += "; jobs unknown"
		if len(silent) == 1 {
			s += ": " + whyUnknown(silent[0], jobsOf(silent[0], c), text)
		}
	}
	return s
}

// maxName limits the name of a user.
const maxName = 40

// jobs returns what a plan does to the jobs of a unit; "" for no effect. all: it names the
// owners of all jobs that it affects, and otherwise of running jobs of a unit that stays.
func (d *page) jobs(u *plan.Plan, all bool) string {
	worst := workOf(u)
	if worst == workNone {
		return ""
	}
	switch j := jobsOf(u, d.c); {
	case j.Known():
		return jobsText(j, all || changeOf(u) != deletes, all)
	case worst == workStays:
		return "continue"
	case showsJobs(d.c):
		return "jobs unknown: " + whyUnknown(u, j, code)
	}
	var rules []string
	for _, a := range stepsOf(u) {
		for _, r := range a.Impact.Jobs {
			for _, phrase := range ruleText(r) {
				rules = withNew(rules, prose(short(phrase, maxValue)))
			}
		}
	}
	return strings.Join(atMost(4, rules, " effects"), "; ")
}

// jobsText puts an impact into a cell. The numbers add up to those of all jobs. It names the
// owners of running and of queued jobs.
func jobsText(j *plan.JobImpact, ofRunning, ofQueued bool) string {
	if j.Running()+j.Queued() == 0 {
		return "no jobs"
	}
	part := func(all int, whose bool, noun, nothing string, sets ...jobsWith) string {
		var parts []string
		for _, s := range sets {
			if s.Count == 0 {
				continue
			}
			text := fmt.Sprint(s.Count)
			switch {
			case len(parts) == 0 && s.Count < all:
				text = fmt.Sprintf("%d of %d %s", s.Count, all, noun)
			case len(parts) == 0:
				text += " " + noun
			}
			text += " " + plural(s.Count, s.one, s.many)
			if names := owners(s.JobSet); names != "" && whose {
				text += " (" + names + ")"
			}
			parts = append(parts, text)
		}
		if len(parts) == 0 && all > 0 {
			parts = append(parts, fmt.Sprintf("%d %s %s", all, noun, nothing))
		}
		return strings.Join(parts, ", ")
	}
	after := ""
	if len(j.EndAfter) > 0 {
		var seconds []string
		for _, s := range j.EndAfter {
			seconds = append(seconds, fmt.Sprint(s))
		}
		after = " after " + strings.Join(seconds, " or ") + " s"
	}
	running := part(j.Running(), ofRunning, "running", plural(j.Running(), "continues", "continue"),
		jobsWith{&j.Ended, "ends" + after, "end" + after}, jobsWith{&j.Waited, "is waited for", "are waited for"})
	queued := part(j.Queued(), ofQueued, "queued", "kept",
		jobsWith{&j.Cancelled, "cancelled", "cancelled"}, jobsWith{&j.Moved, "moved to other partitions", "moved to other partitions"})
	return strings.Join(slices.DeleteFunc([]string{running, queued}, func(s string) bool { return s == "" }), "; ")
}

// jobsWith is a set of jobs with what becomes of one or of many.
type jobsWith struct {
	*plan.JobSet
	one, many string
}

// owners names at most three users of jobs, with the number of jobs of each if there are
// several; "" if they are unknown.
func owners(s *plan.JobSet) string {
	var names []string
	for _, u := range s.Users {
		name := prose(short(u.User, maxName))
		if len(s.Users) > 1 {
			name += fmt.Sprintf(" %d", u.Count)
		}
		names = append(names, name)
	}
	all := len(names) + s.More
	if all > 3 {
		names = append(names[:2:2], fmt.Sprintf("%d more users", all-2))
	}
	return strings.Join(names, ", ")
}

// jobSets writes the affected jobs of a unit with their owners and ids.
func (d *page) jobSets(u *plan.Plan) {
	j := jobsOf(u, d.c)
	if !j.Known() {
		return
	}
	head := false
	for _, s := range []jobsWith{
		{&j.Ended, "running, ended", ""}, {&j.Waited, "running, waited for", ""},
		{&j.Cancelled, "queued, cancelled", ""}, {&j.Moved, "queued, moved to other partitions", ""},
	} {
		if s.Count == 0 {
			continue
		}
		if !head {
			d.line("")
			d.table("Jobs", "Number", "Users", "Ids")
			head = true
		}
		var users, ids []string
		for _, x := range s.Users {
			users = append(users, fmt.Sprintf("%s %d", prose(short(x.User, maxName)), x.Count))
		}
		if s.More > 0 {
			users = append(users, fmt.Sprintf("%d more users", s.More))
		}
		for _, id := range s.IDs {
			ids = append(ids, prose(short(id, maxName)))
		}
		if len(ids) > 0 && len(ids) < s.Count && len(ids) == plan.MaxJobIDs {
			ids = append(ids, "…")
		}
		d.row(s.one, fmt.Sprint(s.Count), dash(strings.Join(users, ", ")), dash(strings.Join(ids, ", ")))
	}
}

// ruleText describes what an action does to the jobs that it selects, a phrase each.
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
	out := []string{running + " are waited for"}
	if r.CancelAfter > 0 {
		out[0] = fmt.Sprintf("%s end after %d s", running, r.CancelAfter)
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

//go:build long && jobs

package slurm_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/cluster"
	"berth/schema/queue"
)

// used is the time of CPUs, GPUs and memory of the runs of a job, in seconds.
type used struct{ runs, cpus, gpus, memory int64 }

// compareUsage compares the usage of all jobs with sacct, job by job, and its sums with sreport. All jobs have ended.
func (f *shapeField) compareUsage(t *testing.T) {
	t.Helper()
	var reading runtimes.UsageReading
	scope := runtimes.Scope{Key: f.unit.Effective.Key, Members: f.unit.Members}
	eventually(t, "accounting has all ends", func() (bool, string) {
		var err error
		reading, err = f.rt.ReadUsage(t.Context(), scope, runtimes.Stamp{Epoch: 1}, runtimes.UsageRange{Since: time.Unix(0, 0)})
		return err == nil, fmt.Sprint(err)
	})
	ours, sums := map[string]used{}, amounts{}
	for _, j := range reading.Jobs {
		if j.Held() == 0 {
			continue
		}
		id := strconv.Itoa(j.JobID)
		u := ours[id]
		ours[id] = used{u.runs + 1, u.cpus + j.Elapsed()*int64(j.CPUs), u.gpus + j.Held()*int64(j.GPUs), u.memory +
			j.Held()*int64(j.MemoryMiB)}
		j.ProjectID = ""
		sums.add(j)
	}
	theirs, shapes := f.accounted(t)
	for name, s := range f.jobs {
		var want, got []string
		for raw, whole := range shapes {
			if whole == s.job {
				want = append(want, fmt.Sprintf("%s %+v", raw, theirs[raw]))
				got = append(got, fmt.Sprintf("%s %+v", raw, ours[raw]))
			}
		}
		if s.NoUsage == "" {
			f.table.set(t, name, "usage", difference(want, got))
		}
	}
	f.compareReport(t, sums)
}

// accounted returns what sacct says of each run by its number, and the job that people call it by.
func (f *shapeField) accounted(t *testing.T) (theirs map[string]used, shapes map[string]string) {
	t.Helper()
	theirs, shapes = map[string]used{}, map[string]string{}
	out := f.tool(t, f.unit,
		"SLURM_TIME_FORMAT=%s sacct -nPXaD --noconvert -S now-1days -E now+1hours --format=JobIDRaw,JobID,ElapsedRaw,Start,End,AllocTRES")
	for line := range strings.Lines(out) {
		v := strings.Split(strings.TrimSpace(line), "|")
		require.Len(t, v, 6, line)
		shapes[v[0]] = wholeID(v[1])
		start, err := strconv.ParseInt(v[3], 10, 64)
		end, err2 := strconv.ParseInt(v[4], 10, 64)
		if err != nil || err2 != nil || end <= start {
			continue
		}
		elapsed, err := strconv.ParseInt(v[2], 10, 64)
		require.NoError(t, err)
		given := map[string]int64{}
		for entry := range strings.SplitSeq(v[5], ",") {
			kind, amount, _ := strings.Cut(entry, "=")
			given[kind], _ = strconv.ParseInt(strings.TrimSuffix(amount, "M"), 10, 64)
		}
		u := theirs[v[0]]
		theirs[v[0]] = used{u.runs + 1, u.cpus + elapsed*given["cpu"], u.gpus + (end-start)*given["gres/gpu"], u.memory +
			(end-start)*given["mem"]}
	}
	return theirs, shapes
}

// compareReport moves the records to past hours, which alone sreport adds up, and compares the sums of each user. It leaves out
// the hours of the jobs, which sreport has as well if one of them ended meanwhile.
func (f *shapeField) compareReport(t *testing.T, sums amounts) {
	t.Helper()
	l := ledger{f.company, f.unit, cluster.Name(f.unit.Effective.Key)}
	hour := time.Now().UTC().Truncate(time.Hour)
	from := hour.Add(-5 * time.Hour).Unix()
	const back = 3 * 3600
	shift := func(by int) {
		const columns = "time_start = time_start + %[1]d, time_end = time_end + %[1]d"
		l.sql(t, fmt.Sprintf("UPDATE C_suspend_table SET "+columns+
			";\nUPDATE C_job_table SET time_eligible = time_start + %[1]d, time_submit = time_submit + %[1]d, "+columns+
			" WHERE time_start > 0 AND time_end > 0;", by))
	}
	shift(-back)
	l.sql(t, fmt.Sprintf(`UPDATE C_event_table SET time_start = %[1]d WHERE node_name = '' AND time_end = 0;
UPDATE cluster_table SET creation_time = %[1]d;
UPDATE C_last_ran_table SET hourly_rollup = %[1]d, daily_rollup = %[1]d, monthly_rollup = %[1]d;`, from))
	l.tool(t, l.unit, "sacctmgr -i rollup")
	report := amounts{}
	for key, n := range l.report(t, time.Unix(from, 0).UTC(), hour.Add(-time.Hour)) {
		report[[3]string{"", key[1], key[2]}] += n
	}
	if !maps.Equal(report, sums) {
		t.Errorf("sums of users: sreport has %v, Berth has %v", report, sums)
	}
	shift(back)
}

// compareEnded compares each job with accounting, when slurmctld does not have it any more.
func (f *shapeField) compareEnded(t *testing.T) {
	t.Helper()
	eventually(t, "slurmctld has purged the jobs", func() (bool, string) {
		rows := f.rows(t, "")
		return len(rows) == 0, fmt.Sprint(len(rows))
	})
	for name, s := range f.jobs {
		f.table.set(t, name, "ended", f.compareRecord(t, s))
	}
}

// compareRecord compares a job with its newest record in sacct: that of the array, or of the first part.
func (f *shapeField) compareRecord(t *testing.T, s submitted) string {
	t.Helper()
	last := map[string][]string{}
	for line := range strings.Lines(f.tool(t, f.unit,
		"SLURM_TIME_FORMAT=%s sacct -nPXa --delimiter='|' -S now-1days --format=JobID,State,ExitCode,User,Partition,NodeList,End -j "+
			s.job)) {
		v := strings.Split(strings.TrimSpace(line), "|")
		last[v[0]] = v
	}
	j, err := f.rt.Job(t.Context(), f.at, queue.Ref{JobID: s.job})
	if err != nil {
		return err.Error()
	}
	var want []string
	for _, v := range last {
		state, _, _ := strings.Cut(v[1], " ")
		want = append(want, fmt.Sprintf("%s %s user %s end %s", state, v[2], v[3], v[6]))
	}
	got := fmt.Sprintf("%s %s user %s end %d", j.State, j.ExitCode, j.User, j.Ended.Unix())
	if !slices.Contains(want, got) {
		return fmt.Sprintf("sacct has %q, Berth has %q", want, got)
	}
	if out, err := f.rt.Output(t.Context(), f.at, queue.Ref{JobID: s.job}, 1000); s.api && s.Output != "" &&
		s.Output != "none" && s.Output != "waits" && s.Task == "" && err != nil {
		return fmt.Sprintf("its output was %q and is %q: %v", s.Output, out.Text, err)
	}
	return ""
}

// waveOf is how many shapes with jobs that run are submitted together for a plan.
const waveOf = 5

// comparePlans submits the shapes that are active again, in waves, and makes the changes of each wave. Shapes for whose jobs
// a wave has no room are in a later one.
func (f *shapeField) comparePlans(t *testing.T, all []shape) {
	t.Helper()
	var running, waiting []shape
	for _, s := range all {
		switch _, known := f.jobs[s.name]; {
		case !known || s.NoPlan != "" || slices.Contains(endedStates, s.State[0]):
		case slices.Contains(s.State, "RUNNING") || slices.Contains(s.State, "SUSPENDED"):
			running = append(running, s)
		default:
			waiting = append(waiting, s)
		}
	}
	together := waveOf
	for len(running)+len(waiting) > 0 {
		wave := slices.Clone(running[:min(together, len(running))])
		later := f.wave(t, append(wave, waiting...))
		if together = waveOf; len(later) == len(wave) && len(later) > 0 {
			together = 1 // these had no room beside each other
		}
		running, waiting = append(later, running[len(wave):]...), nil
	}
	f.bringAbout(t, f.unit, true)
}

// fates are how many jobs of a shape each change has for which end.
type fates map[string]int

// wave submits shapes, and compares the prediction of the plan of each change with its effect. It returns the shapes for which
// the cluster had no room beside the others.
func (f *shapeField) wave(t *testing.T, shapes []shape) (later []shape) {
	t.Helper()
	var jobs []submitted
	for _, s := range shapes {
		if job, refused := f.send(t, s); refused == "" {
			jobs = append(jobs, submitted{s, job})
		} else {
			f.table.set(t, s.name, "plan", "refused: "+refused)
		}
	}
	givesUp := hasNoRoom
	if len(shapes) == 1 {
		givesUp = nil
	}
	jobs = slices.DeleteFunc(jobs, func(s submitted) bool {
		if f.bring(t, s.shape, s.job, givesUp) {
			return false
		}
		later = append(later, s.shape)
		f.onControl(t, f.unit, "scancel "+s.job)
		return true
	})
	less := f.unit
	less.Members = slices.DeleteFunc(slices.Clone(f.unit.Members), func(m plan.Member) bool { return m.Node == "gpu-3" })
	less.Effective.Roles = slices.Clone(f.unit.Effective.Roles)
	less.Effective.Roles[1].Count--
	without := less
	without.Effective.Config = []byte(strings.Replace(shapeConfig, `,{"name":"low","priority_tier":1}`, "", 1))
	for _, change := range []struct {
		name string
		to   *plan.Unit
	}{{"leave", &less}, {"partition", &without}, {"instance", nil}} {
		predicted, before := f.predict(t, jobs, change.name, change.to)
		if change.to == nil {
			for _, s := range jobs { // all of them end
				f.judge(t, s, change.name, predicted[s.name], before[s.name], nil)
			}
			break
		}
		f.bringAbout(t, *change.to, false)
		for _, s := range jobs {
			f.judge(t, s, change.name, predicted[s.name], before[s.name], f.rowsAtRest(t, s.job))
		}
	}
	f.endAll(t)
	f.bringAbout(t, f.unit, false)
	return later
}

// hasNoRoom reports whether a job waits for others to end.
func hasNoRoom(rows []jobRow) bool {
	return slices.ContainsFunc(rows, func(r jobRow) bool {
		return r.state == "PENDING" && (r.reason == "Resources" || r.reason == "Priority")
	})
}

// bringAbout applies plans until nothing is left to do.
func (f *shapeField) bringAbout(t *testing.T, u plan.Unit, gone bool) {
	t.Helper()
	eventually(t, "the change is done", func() (bool, string) {
		p := f.plan(t, u, gone)
		if p.Empty() {
			return true, ""
		}
		err := f.apply(t, p)
		return false, fmt.Sprint(p.Actions, err)
	})
}

// rowsAtRest returns the rows of a job when no part of it is completing.
func (f *shapeField) rowsAtRest(t *testing.T, job string) (rows []jobRow) {
	t.Helper()
	eventually(t, "job "+job+" does not complete", func() (bool, string) {
		rows = f.rows(t, job)
		return !slices.ContainsFunc(rows, func(r jobRow) bool { return r.state == "COMPLETING" }), fmt.Sprint(rows)
	})
	return rows
}

// predict returns the prediction of the plan of a change for each shape, and its rows. The plan counts each job once.
func (f *shapeField) predict(t *testing.T, jobs []submitted, name string, to *plan.Unit) (said map[string]*plan.JobImpact,
	before map[string][]jobRow) {
	t.Helper()
	said, before = map[string]*plan.JobImpact{}, map[string][]jobRow{}
	in := plan.Input{Key: f.unit.Effective.Key, Observed: f.observe(t, f.unit), Rules: f.rt}
	if to != nil {
		in.After, in.Members = &to.Effective, to.Members
	}
	p := plan.Make(in)
	all := f.queued(t, f.unit)
	for _, s := range jobs {
		before[s.name] = f.rows(t, s.job)
		var own []cli.QueuedJob
		for _, q := range all {
			if wholeID(q.ID) == s.job {
				own = append(own, q)
			}
		}
		said[s.name] = p.ImpactOn(slurm.JobsOf(own, time.Now()))
	}
	of := slurm.JobsOf(all, time.Now())
	if p.Jobs == nil || !p.Jobs.Known() || p.Jobs.Running()+p.Jobs.Queued() != of.Running+of.Pending {
		t.Errorf("%s: the plan counts %+v, Slurm has %d running and %d pending jobs", name, p.Jobs, of.Running, of.Pending)
	}
	return said, before
}

// judge compares the prediction of a plan for a shape with its end. after is nil where the instance is deleted.
func (f *shapeField) judge(t *testing.T, s submitted, change string, impact *plan.JobImpact, before, after []jobRow) {
	t.Helper()
	predicted, named := fates{}, []string{}
	for fate, of := range sets(impact) {
		for _, set := range of {
			if fate == "cannot start" {
				fate = "queued" // nothing shows it before the job could start
			}
			if set.Count > 0 {
				predicted[fate] += set.Count
			}
			named = append(named, set.IDs...)
		}
	}
	actual := fatesOf(before, after)
	var wrong []string
	if !maps.Equal(predicted, actual) {
		wrong = append(wrong, fmt.Sprintf("%s: the plan said %v, and it was %v: before %+v, after %+v", change, predicted,
			actual, before, after))
	}
	slices.Sort(named)
	if unique := slices.Compact(slices.Clone(named)); len(unique) != len(named) {
		wrong = append(wrong, fmt.Sprintf("%s: the plan names a job twice: %v", change, named))
	}
	for _, id := range named {
		if !slices.ContainsFunc(before, func(r jobRow) bool {
			return r.id == id || strings.Contains(r.id, "+") && wholeID(r.id) == id || strings.HasSuffix(id, "...]")
		}) {
			wrong = append(wrong, fmt.Sprintf("%s: the plan names %s, and squeue has %+v", change, id, before))
		}
	}
	if want := s.Plan[change]; want == "cannot_start" && impact.CannotStart.Count == 0 || want != "" &&
		want != "cannot_start" && actual[want] == 0 {
		wrong = append(wrong, fmt.Sprintf("%s: want %s, the plan said %v, and it was %v", change, want, predicted, actual))
	}
	f.table.mu.Lock()
	earlier := f.table.rows[s.name]["plan"]
	f.table.mu.Unlock()
	if len(wrong) > 0 || earlier == "" {
		if earlier == "ok" {
			earlier = ""
		}
		f.table.set(t, s.name, "plan", strings.TrimSpace(earlier+"\n"+strings.Join(wrong, "\n")))
	}
}

// fatesOf returns the ends of jobs: each task counts, and the parts of a heterogeneous job count as one, with the worst.
func fatesOf(before, after []jobRow) fates {
	now := map[string]jobRow{}
	for _, r := range after {
		for _, id := range tasksOf(r.id) {
			now[id] = r
		}
	}
	order := []string{"queued", "continues", "moved", "cancelled", "ended"}
	all, het := fates{}, ""
	for _, was := range before {
		if slices.Contains(endedStates, was.state) {
			continue
		}
		for _, id := range tasksOf(was.id) {
			fate := fateOfRow(was, now[id])
			switch {
			case !strings.Contains(id, "+"):
				all[fate]++
			case het == "" || slices.Index(order, fate) > slices.Index(order, het):
				het = fate
			}
		}
	}
	if het != "" {
		all[het]++
	}
	return all
}

func fateOfRow(was, now jobRow) string {
	waited := slices.Contains([]string{"PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"}, was.state)
	active := now.state != "" && !slices.Contains(endedStates, now.state)
	switch {
	case now.state == "COMPLETED" && waited:
		return "queued"
	case now.state == "COMPLETED", !waited && active && now.started == was.started:
		return "continues"
	case waited && active && (now.partition == was.partition || now.state != "PENDING"):
		return "queued"
	case waited && active:
		return "moved"
	case waited:
		return "cancelled"
	case active:
		return "requeued"
	}
	return "ended"
}

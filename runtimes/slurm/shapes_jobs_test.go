//go:build long && jobs

package slurm_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/cluster"
	"berth/schema"
	"berth/schema/queue"
)

// Checks of a shape, in the order of the table.
var shapeChecks = []string{"slurm", "list", "get", "output", "cancel", "ended", "usage", "plan"}

// shapeTable has the results of all shapes.
type shapeTable struct {
	mu   sync.Mutex
	rows map[string]map[string]string
}

// set records the result of a check: "" is right.
func (s *shapeTable) set(t testing.TB, name, check, wrong string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows[name] == nil {
		s.rows[name] = map[string]string{}
	}
	if s.rows[name][check] = cmp.Or(wrong, "ok"); wrong != "" {
		t.Errorf("%s of %s: %s", check, name, wrong)
	}
}

// print logs a line for each shape, and what differs below it.
func (s *shapeTable) print(t testing.TB, release string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.rows {
		names = append(names, name)
	}
	slices.Sort(names)
	var out strings.Builder
	right := 0
	fmt.Fprintf(&out, "%-40s %-7s", "shape", "release")
	for _, check := range shapeChecks {
		fmt.Fprintf(&out, " %-6s", check)
	}
	for _, name := range names {
		fmt.Fprintf(&out, "\n%-40s %-7s", name, release)
		var wrong []string
		for _, check := range shapeChecks {
			result := cmp.Or(s.rows[name][check], "-")
			if result != "ok" && result != "-" {
				wrong = append(wrong, check+": "+result)
				result = "WRONG"
			}
			fmt.Fprintf(&out, " %-6s", result)
		}
		for _, w := range wrong {
			out.WriteString("\n    " + strings.ReplaceAll(w, "\n", "\n    "))
		}
		if len(wrong) == 0 {
			right++
		}
	}
	t.Logf("%s\nSlurm %s: %d of %d shapes are right everywhere", out.String(), release, right, len(names))
}

// shapeConfig is the cluster of the shapes. MinJobAge is short, so that accounting answers for ended jobs.
const shapeConfig = `{"partitions":[{"name":"main","default":true},{"name":"low","priority_tier":1},{"name":"first","nodes":{"names":["gpu-1"]}}],
"scheduler":{"interval_seconds":5},"identity":"managed","jobs":{"default_time_minutes":60,"max_time_minutes":10080,"gpu_defaults":"share",
"kill_wait_seconds":2,"unkillable_step_seconds":180,"billing":{"cpu":4,"memory_gib":1,"gpu":32}},
"qos":[{"name":"high","priority":10},{"name":"brief","max_time_minutes":5,"flags":["deny_on_limit"]},{"name":"spare"},
{"name":"urgent","priority":20,"preempts":["spare"]}],"preemption":{"by":"qos","mode":"requeue"},"options":{"MinJobAge":60,"MaxJobCount":50000}}`

// shapeClusters is how many clusters the shapes are on.
const shapeClusters = 3

// Berth reports the same as Slurm for each shape of job: list, get, output, cancel, jobs that ended long ago, usage, and the plan
// of a worker that leaves, a partition that is removed and an instance that is deleted (make jobs).
func TestLongJobs(t *testing.T) {
	t.Parallel()
	table := &shapeTable{rows: map[string]map[string]string{}}
	release := ""
	t.Run("clusters", func(t *testing.T) {
		for n := range shapeClusters {
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				t.Parallel()
				f := newShapeField(t, table)
				if n == 0 {
					release = string(f.version)
				}
				var mine []shape
				for i, s := range readShapes(t, string(f.version)) {
					if i%shapeClusters == n {
						mine = append(mine, s)
					}
				}
				f.try(t, mine)
			})
		}
	})
	table.print(t, release)
}

// shapeField is a cluster on which shapes of jobs are tried.
type shapeField struct {
	*shapeSender
	table *shapeTable

	calls sync.Mutex // one squeue at a time

	mu   sync.Mutex
	next *listing             // that has not begun
	jobs map[string]submitted // by the name of the shape
}

// submitted is a shape that Slurm accepted.
type submitted struct {
	shape
	job string // the number that sbatch printed
}

func newShapeField(t *testing.T, table *shapeTable) *shapeField {
	f := &shapeField{shapeSender: newShapeSender(t, &company{stage: bareStage(t)}), table: table, jobs: map[string]submitted{}}
	f.rt = f.ahead(time.Hour) // a drain before a leave has lasted long enough for on_jobs
	f.unit = f.company.unit(shapeConfig, []schema.UnixUser{alice, bob}, &schema.OnJobs{CancelAfterSeconds: 1}, 0, 1, 2)
	f.carry(t, f.unit, false)
	f.at = f.queueOf(f.unit, f.unit.Effective.Key.ProjectID(), nil)
	eventually(t, "slurmctld knows the user", func() (bool, string) {
		out := f.tool(t, f.unit, "scontrol show assoc_mgr users="+alice.Name+" flags=assoc,users")
		return strings.Contains(out, " UserName="+alice.Name+"(") && knowsUser(out), out
	})
	return f
}

// try submits shapes side by side and compares what becomes of each. Then it makes the three changes.
func (f *shapeField) try(t *testing.T, all []shape) {
	t.Run("jobs", func(t *testing.T) {
		for _, s := range all {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				f.one(t, s)
			})
		}
	})
	f.endAll(t) // also the jobs that shapes wait for
	f.compareUsage(t)
	f.compareEnded(t)
	f.comparePlans(t, all)
}

// endAll cancels all jobs.
func (f *shapeField) endAll(t *testing.T) {
	t.Helper()
	f.onControl(t, f.unit, "squeue -h -o %i | sed 's/[_+].*//' | sort -u | xargs -r scancel")
	eventually(t, "all jobs have ended", func() (bool, string) {
		rows := f.rows(t, "")
		return hasEnded(rows), fmt.Sprint(rows)
	})
}

// one submits a shape and compares it.
func (f *shapeField) one(t *testing.T, s shape) {
	f.table.set(t, s.name, "slurm", "")
	reached := false
	defer func() {
		if !reached {
			f.table.set(t, s.name, "slurm", "the comparison ended before the job was as expected")
		}
	}()
	job, refused := f.send(t, s)
	if want := cmp.Or(s.Berth, s.Refused); want != "" || refused != "" {
		reached = true
		if want == "" || !strings.Contains(refused, want) {
			f.table.set(t, s.name, "slurm", fmt.Sprintf("want the refusal %q, got %q of job %q", want, refused, job))
		}
		return
	}
	defer f.onControl(t, f.unit, "scancel "+job+" || true") // otherwise it keeps other shapes waiting
	f.bring(t, s, job, nil)
	reached = true
	f.mu.Lock()
	f.jobs[s.name] = submitted{s, job}
	f.mu.Unlock()
	f.table.set(t, s.name, "list", f.compareList(t, job))
	f.table.set(t, s.name, "get", f.compareGet(t, s, job))
	f.table.set(t, s.name, "output", f.compareOutput(t, s, job))
	if s.NoCancel == "" {
		f.table.set(t, s.name, "cancel", f.compareCancel(t, s, job))
	}
}

// bring takes a job through its steps to its state, and compares that with what the shape says of Slurm. It gives up, and returns
// false, where givesUp holds for the rows of the job.
func (f *shapeField) bring(t *testing.T, s shape, job string, givesUp func([]jobRow) bool) bool {
	t.Helper()
	for _, step := range s.Steps {
		if _, done := f.awaitStates(t, job, step.In, givesUp); !done {
			return false
		}
		f.step(t, step, job)
	}
	rows, done := f.awaitStates(t, job, strings.Join(s.State, ","), givesUp)
	if !done {
		return false
	}
	var wrong []string
	if s.Reason != "" && !slices.ContainsFunc(rows, func(r jobRow) bool { return regexp.MustCompile(s.Reason).MatchString(r.reason) }) {
		eventually(t, "the reason "+s.Reason, func() (bool, string) {
			rows = f.rows(t, job)
			return slices.ContainsFunc(rows,
				func(r jobRow) bool { return regexp.MustCompile(s.Reason).MatchString(r.reason) }), fmt.Sprint(rows)
		})
	}
	if s.Exit != "" {
		if got := f.exitOf(t, job); got != s.Exit {
			wrong = append(wrong, fmt.Sprintf("want the exit %s, got %s", s.Exit, got))
		}
	}
	f.table.set(t, s.name, "slurm", strings.Join(wrong, "; "))
	return true
}

func (f *shapeField) step(t *testing.T, step shapeStep, job string) {
	t.Helper()
	script := "JOB=" + job + "; " + step.Do
	if step.At == "" {
		f.onControl(t, f.unit, script)
		return
	}
	require.Equal(t, "node", step.At)
	found := regexp.MustCompile(` BatchHost=(\S+)`).FindStringSubmatch(f.tool(t, f.unit, "scontrol -o show job "+job))
	require.NotNil(t, found)
	_, err := f.lab.Run(t.Context(), found[1], "sh", "-c", script)
	require.NoError(t, err)
}

// exitOf returns the exit status and signal of a job.
func (f *shapeField) exitOf(t *testing.T, job string) string {
	t.Helper()
	found := regexp.MustCompile(` ExitCode=([0-9]+:[0-9]+)`).FindStringSubmatch(f.tool(t, f.unit, "scontrol -o show job "+job))
	require.NotNil(t, found)
	return found[1]
}

// jobRow is a row of squeue.
type jobRow struct {
	id, state, user, partition, reason, name, limit, nodes, started string
}

// listing is a call of squeue that several callers share.
type listing struct {
	done chan struct{}
	rows []jobRow
	err  error
}

// rows returns what squeue prints of a job, with its tasks and parts; "": of all jobs. Callers that come before the call
// begins share it: so many of squeue would take most of the processors.
func (f *shapeField) rows(t testing.TB, job string) (all []jobRow) {
	t.Helper()
	f.mu.Lock()
	l := f.next
	if l == nil {
		l = &listing{done: make(chan struct{})}
		f.next = l
		go func() {
			defer close(l.done)
			f.calls.Lock()
			defer f.calls.Unlock()
			f.mu.Lock()
			f.next = nil
			f.mu.Unlock()
			l.rows, l.err = f.list(context.WithoutCancel(t.Context()))
		}()
	}
	f.mu.Unlock()
	<-l.done
	require.NoError(t, l.err)
	for _, r := range l.rows {
		if job == "" || wholeID(r.id) == job {
			all = append(all, r)
		}
	}
	return all
}

func (f *shapeField) list(ctx context.Context) (all []jobRow, err error) {
	sep, end := "s"+rand.Text()[:10], "e"+rand.Text()[:10]
	format := strings.Join([]string{"%i", "%T", "%u", "%P", "%r", "%j", "%l", "%N", "%S"}, sep) + sep + end
	out, err := f.lab.Run(ctx, f.control.Key.Name, "env", "SLURM_CONF=/etc/slurm/"+cluster.Name(f.unit.Effective.Key)+"/slurm.conf",
		"SLURM_BITSTR_LEN=0", "SLURM_TIME_FORMAT=%s", "squeue", "-h", "-a", "-t", "all", "-o", format)
	for row := range strings.SplitSeq(out, sep+end) {
		v := strings.Split(strings.TrimPrefix(row, "\n"), sep)
		if len(v) == 9 {
			all = append(all, jobRow{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8]})
		}
	}
	slices.SortFunc(all, func(a, b jobRow) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.partition, b.partition)) })
	return all, err
}

// awaitStates waits until the rows of a job have these states, and no other ones. It returns false where givesUp holds for other rows.
func (f *shapeField) awaitStates(t *testing.T, job, want string, givesUp func([]jobRow) bool) (rows []jobRow, done bool) {
	t.Helper()
	states := strings.Split(want, ",")
	slices.Sort(states)
	eventually(t, "job "+job+" is "+want, func() (bool, string) {
		rows = f.rows(t, job)
		var got []string
		for _, r := range rows {
			got = append(got, r.state)
		}
		slices.Sort(got)
		done = slices.Equal(slices.Compact(got), states)
		return done || givesUp != nil && givesUp(rows), fmt.Sprintf("%+v", rows)
	})
	return rows, done
}

// settled compares Slurm's rows of a job with what Berth says of it, until Slurm says the same before and after.
func (f *shapeField) settled(t *testing.T, job string, compare func(rows []jobRow) string) string {
	t.Helper()
	before := f.rows(t, job)
	for {
		wrong := compare(before)
		after := f.rows(t, job)
		if wrong == "" || slices.Equal(before, after) {
			return wrong
		}
		before = after
	}
}

// inWords returns a row as Berth shows it: tasks that wait together by the id of their array.
func (r jobRow) inWords() string {
	id := r.id
	if strings.Contains(id, "[") {
		id = wholeID(id)
	}
	reason, _, _ := strings.Cut(r.reason, ", UnavailableNodes:")
	if reason == "None" {
		reason = ""
	}
	name := strings.TrimRight(r.name[:min(len(r.name), 128)], " ")
	return fmt.Sprintf("%s %s user %s in %s reason %q name %q", id, r.state, r.user, r.partition, reason, name)
}

func said(j queue.Job) string {
	return fmt.Sprintf("%s %s user %s in %s reason %q name %q", j.JobID, j.State, j.User, j.Queue, j.Reason, j.Name)
}

func (f *shapeField) compareList(t *testing.T, job string) string {
	t.Helper()
	return f.settled(t, job, func(rows []jobRow) string {
		jobs, err := f.rt.Jobs(t.Context(), f.at.Unit, f.at.Stamp)
		if err != nil {
			return err.Error()
		}
		var want, got []string
		for _, r := range rows {
			want = append(want, r.inWords())
		}
		for _, j := range jobs {
			if wholeID(j.JobID) == job {
				got = append(got, said(j))
			}
		}
		return difference(want, got)
	})
}

// difference names the elements that only one of two lists has.
func difference(want, got []string) string {
	slices.Sort(want)
	slices.Sort(got)
	if slices.Equal(want, got) {
		return ""
	}
	return fmt.Sprintf("Slurm has\n%s\nBerth has\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
}

// compareGet compares each row of a job by its own id, and the whole job.
func (f *shapeField) compareGet(t *testing.T, s shape, job string) string {
	t.Helper()
	return f.settled(t, job, func(rows []jobRow) string {
		for _, r := range rows[:min(len(rows), 3)] {
			id := r.id
			if strings.Contains(id, "[") {
				id = job
			}
			j, err := f.rt.Job(t.Context(), f.at, queue.Ref{JobID: id})
			if err != nil {
				return id + ": " + err.Error()
			}
			if !strings.Contains(r.id, "[") || len(rows) == 1 {
				if want := r.inWords(); said(j) != want {
					return difference([]string{want}, []string{said(j)})
				}
				if want := f.runOf(r); want != fmt.Sprint(j.Members, j.Minutes) {
					return fmt.Sprintf("%s: Slurm has it on and for %s, Berth on and for %v %d", id, want, j.Members, j.Minutes)
				}
			}
		}
		j, err := f.rt.Job(t.Context(), f.at, queue.Ref{JobID: job})
		if err != nil {
			return job + ": " + err.Error()
		}
		if hasEnded(rows) != !j.Ended.IsZero() || !slices.ContainsFunc(rows,
			func(r jobRow) bool { return r.state == j.State }) {
			return fmt.Sprintf("Slurm has %+v, Berth has the state %s with the end %s", rows, j.State, j.Ended)
		}
		if s.Exit != "" && j.ExitCode != s.Exit {
			return fmt.Sprintf("want the exit code %s, got %q", s.Exit, j.ExitCode)
		}
		return f.compareParts(rows, j)
	})
}

// runOf returns the members and the time limit of a row.
func (f *shapeField) runOf(r jobRow) string {
	return fmt.Sprint(f.membersOn(r.nodes), minutesOf(r.limit))
}

// membersOn returns the members of a list of nodes, which squeue writes as gpu-[1-3].
func (f *shapeField) membersOn(nodes string) (names []string) {
	on := f.nodesIn(nodes)
	for i, w := range f.workers {
		if slices.Contains(on, w.Key.Name) {
			names = append(names, fmt.Sprintf("worker-%d", i))
		}
	}
	return names
}

// minutesOf reads a time limit of squeue: 1-02:00:00, 2:00:00 or 30:00; 0: none.
func minutesOf(limit string) (minutes int) {
	days, rest, hasDays := strings.Cut(limit, "-")
	if !hasDays {
		days, rest = "0", limit
	}
	parts := strings.Split(rest, ":")
	if len(parts) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(days)
	minutes = n * 24 * 60
	if len(parts) == 3 {
		n, _ = strconv.Atoi(parts[0])
		minutes += n * 60
	}
	n, _ = strconv.Atoi(parts[len(parts)-2])
	return minutes + n
}

// compareParts compares a heterogeneous job as a whole.
func (f *shapeField) compareParts(rows []jobRow, j queue.Job) string {
	var partitions, members []string
	for _, r := range rows {
		if !strings.Contains(r.id, "+") {
			return ""
		}
		for _, p := range strings.Split(r.partition, ",") {
			if !slices.Contains(partitions, p) {
				partitions = append(partitions, p)
			}
		}
		for _, m := range f.membersOn(r.nodes) {
			if !slices.Contains(members, m) {
				members = append(members, m)
			}
		}
	}
	slices.Sort(members)
	got := slices.Clone(j.Members)
	slices.Sort(got)
	if want := strings.Join(partitions, ","); j.Queue != want || j.JobID != wholeID(rows[0].id) || !slices.Equal(members, got) {
		return fmt.Sprintf("want job %s in %s on %v as a whole, got %s in %s on %v", wholeID(rows[0].id), want, members,
			j.JobID, j.Queue, got)
	}
	return ""
}

func hasEnded(rows []jobRow) bool {
	return !slices.ContainsFunc(rows, func(r jobRow) bool { return !slices.Contains(endedStates, r.state) })
}

// compareOutput compares what Berth shows of the output with what the shape says: a text, none, or waits. For an array it is
// that of the task.
func (f *shapeField) compareOutput(t *testing.T, s shape, job string) string {
	t.Helper()
	id := job
	if s.Task != "" {
		id += "_" + s.Task
	}
	out, err := f.rt.Output(t.Context(), f.at, queue.Ref{JobID: id}, 100_000)
	switch {
	case s.Output == "none" && errors.Is(err, queue.ErrNoOutput), s.Output == "waits" && err == nil && len(out.Text) == 0:
		return ""
	case s.Output == "" && (err == nil || errors.Is(err, queue.ErrNoOutput)): // the shape does not say
		return ""
	case s.Output == "none", s.Output == "waits":
		return fmt.Sprintf("want %q, got %q and the error %v", s.Output, out.Text, err)
	}
	want := strings.NewReplacer("JOB", job, "DIR", f.dir).Replace(s.Output)
	is := func() (bool, string) {
		return err == nil && strings.Contains(string(out.Text), want), fmt.Sprintf("%q %v", out.Text, err)
	}
	if done, _ := is(); !done { // Slurm says RUNNING before the script has begun: its file may be missing, or empty
		eventually(t, "the output "+want, func() (bool, string) {
			out, err = f.rt.Output(t.Context(), f.at, queue.Ref{JobID: id}, 100_000)
			return is()
		})
	}
	return ""
}

// compareCancel cancels a task of an array, then the whole job, and reads the effect back. An ended job stays unchanged.
func (f *shapeField) compareCancel(t *testing.T, s shape, job string) string {
	t.Helper()
	before := f.rows(t, job)
	if s.Task != "" && !hasEnded(before) {
		id := job + "_" + s.Task
		if _, err := f.rt.Cancel(t.Context(), f.at, queue.Ref{JobID: id}); err != nil {
			return id + ": " + err.Error()
		}
		active := activeTasks(before)
		want := slices.DeleteFunc(slices.Clone(active), func(task string) bool { return task == id })
		eventually(t, "only task "+s.Task+" ends", func() (bool, string) {
			now := activeTasks(f.rows(t, job))
			return slices.Equal(now, want), fmt.Sprintf("%v, was %v", now, active)
		})
	}
	wasEnded := hasEnded(before)
	j, err := f.rt.Cancel(t.Context(), f.at, queue.Ref{JobID: job})
	if err != nil {
		return err.Error()
	}
	if wasEnded {
		after := f.rows(t, job)
		if len(after) > 0 && !slices.Equal(before, after) || !slices.ContainsFunc(before,
			func(r jobRow) bool { return r.state == j.State }) {
			return fmt.Sprintf("it has ended: before %+v, after %+v, answer %+v", before, after, j)
		}
		return ""
	}
	var rows []jobRow
	eventually(t, "job "+job+" has ended", func() (bool, string) {
		rows = f.rows(t, job)
		return hasEnded(rows), fmt.Sprint(rows)
	})
	j, err = f.rt.Job(t.Context(), f.at, queue.Ref{JobID: job})
	if err != nil {
		return err.Error()
	}
	if len(rows) > 0 && !slices.ContainsFunc(rows, func(r jobRow) bool { return r.state == j.State }) {
		return fmt.Sprintf("Slurm has %+v, Berth has %+v", rows, j)
	}
	return ""
}

// activeTasks returns the tasks, parts and jobs that have not ended, each by its own id.
func activeTasks(rows []jobRow) (all []string) {
	for _, r := range rows {
		if !slices.Contains(endedStates, r.state) {
			all = append(all, tasksOf(r.id)...)
		}
	}
	slices.Sort(all)
	return all
}

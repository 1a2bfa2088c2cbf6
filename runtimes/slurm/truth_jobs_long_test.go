//go:build long

package slurm_test

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/cli"
)

// prediction has the plan before the change, with the jobs of that time.
type prediction struct {
	plan plan.Plan
	jobs []cli.QueuedJob
}

// fate returns the end that the plan predicts for rows of squeue of one job, or of tasks of it.
func (p *prediction) fate(rows ...cli.QueuedJob) string {
	for fate, of := range sets(p.plan.ImpactOn(slurm.JobsOf(rows, time.Unix(1, 0)))) {
		if slices.ContainsFunc(of, func(s plan.JobSet) bool { return s.Count > 0 }) {
			return fate
		}
	}
	return "not counted"
}

// together returns the rows that are one job: the parts of a heterogeneous one, and each other row alone.
func together(all []cli.QueuedJob) (jobs [][]cli.QueuedJob) {
	het := map[string]int{}
	for _, q := range all {
		if !strings.Contains(q.ID, "+") {
			jobs = append(jobs, []cli.QueuedJob{q})
		} else if i, known := het[wholeID(q.ID)]; known {
			jobs[i] = append(jobs[i], q)
		} else {
			het[wholeID(q.ID)] = len(jobs)
			jobs = append(jobs, []cli.QueuedJob{q})
		}
	}
	return jobs
}

// truthScripts are those of jobs that are no shapes. A job runs until its file is there, and fails if it cannot start a step.
var truthScripts = []string{
	"while ! test -e /tmp/end-$SLURM_JOB_ID; do sleep 1; done\n",
	"i=0; while ! test -e /tmp/end-$SLURM_JOB_ID; do sleep 1; i=$((i+1)); if [ $((i % 6)) = 3 ]; then srun --export=ALL --overlap " +
		"--ntasks=1 true || exit 9; fi; done\n",
	"srun --export=ALL --overlap --ntasks=1 sh -c 'while ! test -e /tmp/end-$SLURM_JOB_ID; do sleep 1; done' || exit 9\n",
}

// truthShapes are the shapes that people submit with sbatch, and that stay until they are ended.
func truthShapes(t *testing.T, release string) []shape {
	t.Helper()
	return slices.DeleteFunc(readShapes(t, release), func(s shape) bool {
		stays := !slices.ContainsFunc(s.State, func(state string) bool { return state != "RUNNING" && state != "PENDING" })
		return !stays || s.api || len(s.Steps) > 0 || s.NoPlan != "" || s.Refused != "" || strings.Contains(s.Script, "--time=0:30") ||
			!strings.Contains(s.Script+s.Submit, "sleep 600") || !strings.Contains(s.Submit, "sbatch") || s.UID != alice.UID
	})
}

// partitionOption is an option that names partitions.
var partitionOption = regexp.MustCompile(`-p [a-z,]+`)

// wrappedCommand is a script in the arguments of sbatch, such as that of a job on which another one depends.
var wrappedCommand = regexp.MustCompile(`--wrap ('[^']*'|"[^"]*")`)

// suited returns a shape for the declared cluster: in its partitions, with a time that outlasts the test, until its file is there.
func (r *truth) suited(s shape) shape {
	order := r.rng.Perm(len(r.want.Partitions))
	names := map[string]string{}
	for i, name := range []string{"main", "low"} {
		names[name] = r.want.Partitions[order[min(i, len(order)-1)]].Name
	}
	suit := func(text string) string {
		text = partitionOption.ReplaceAllStringFunc(text, func(option string) string {
			var in []string
			for name := range strings.SplitSeq(strings.TrimPrefix(option, "-p "), ",") {
				if in = append(in, names[name]); len(in) == 2 && in[0] == in[1] {
					in = in[:1]
				}
			}
			return "-p " + strings.Join(in, ",")
		})
		// Each job goes on until its file is there, also one on which another depends: else it would end by itself.
		text = wrappedCommand.ReplaceAllStringFunc(text, func(wrap string) string {
			if strings.Contains(wrap, "sleep 600") {
				return wrap
			}
			return "--wrap '" + r.sender.dir + "/wait'"
		})
		return strings.ReplaceAll(strings.ReplaceAll(text, "sleep 600", r.sender.dir+"/wait"), "-t 10 ", "-t 600 ")
	}
	s.Script, s.Submit = suit(s.Script), suit(s.Submit)
	s.UID = r.want.users[r.rng.IntN(len(r.want.users))].UID
	return s
}

// submitShape submits one of the shapes. Slurm refuses those that name a node that is not a worker at this time.
func (r *truth) submitShape(t *testing.T) {
	t.Helper()
	r.sender.unit = r.unit
	refused := ""
	for range 50 {
		s, job := r.suited(r.shapes[r.rng.IntN(len(r.shapes))]), ""
		if job, refused = r.sender.send(t, s); refused == "" {
			t.Logf("    job %s is of the shape %s", job, s.name)
			r.submitted++
			return
		}
	}
	require.Fail(t, "Slurm refuses each shape", refused)
}

// submitPlain submits a job in one or two of the partitions.
func (r *truth) submitPlain(t *testing.T) {
	t.Helper()
	user := r.want.users[r.rng.IntN(len(r.want.users))]
	var in []string
	for _, i := range r.rng.Perm(len(r.want.Partitions))[:1+r.rng.IntN(min(2, len(r.want.Partitions)))] {
		in = append(in, r.want.Partitions[i].Name)
	}
	options := []string{"--mem=200", "--partition=" + strings.Join(in, ","), "--cpus-per-task=1"}
	if r.rng.IntN(2) == 0 {
		options = append(options, "--gres=gpu:1")
	}
	_, err := r.trySubmit(t, r.unit, user, truthScripts[r.rng.IntN(len(truthScripts))], options...)
	require.NoError(t, err)
	r.submitted++
}

// mostQueued is how many jobs may wait before occupy cancels the oldest: many shapes wait until they are cancelled.
const mostQueued = 8

// occupy submits jobs until all workers are busy and some jobs wait, and returns when the
// scheduler has nothing more to start.
func (r *truth) occupy(t *testing.T) {
	t.Helper()
	var running int
	var queued []string
	for _, q := range r.queued(t, r.unit) {
		switch id := wholeID(q.ID); {
		case !q.Pending():
			running++
		case !slices.Contains(queued, id):
			queued = append(queued, id)
		}
	}
	if more := len(queued) - mostQueued; more > 0 {
		slices.SortFunc(queued, func(a, b string) int { return cmp.Or(len(a)-len(b), cmp.Compare(a, b)) })
		r.tool(t, r.unit, "scancel "+strings.Join(queued[:more], " "))
		queued = queued[more:]
	}
	for range max(2, 2*len(r.want.workers)-running+3-len(queued)) {
		if r.rng.IntN(2) == 0 {
			r.submitShape(t)
		} else {
			r.submitPlain(t)
		}
	}
	var last string
	looks := 0 // since the last change: the backfill scheduler starts jobs beside a heterogeneous one, which waits, at its interval
	eventually(t, "the scheduler has started what it can", func() (bool, string) {
		now, moving := "", false
		for _, q := range r.queued(t, r.unit) {
			now += fmt.Sprintln(q.ID, q.State, q.Nodes)
			moving = moving || q.State == "CG" || q.State == "CF"
		}
		if looks++; now != last || moving {
			last, looks = now, 0
		}
		return looks > 5*r.want.Interval, now // a look and the pause after it take more than a fifth of a second
	})
}

// finishWaited ends the jobs for which a change waits by its plan, as they end by themselves: also those that have started since.
func (r *truth) finishWaited(t *testing.T, said *prediction) {
	t.Helper()
	for _, rows := range together(r.queued(t, r.unit)) {
		if said.fate(rows...) != "waited" {
			continue
		}
		var files []string
		nodes := map[string]bool{}
		for _, q := range rows {
			files = append(files, "/tmp/end-"+q.Raw)
			for _, n := range q.Nodes {
				nodes[n] = true
			}
		}
		for n := range nodes {
			_, err := r.lab.Run(t.Context(), n, append([]string{"touch"}, files...)...)
			require.NoError(t, err)
		}
	}
}

// compareJobs compares the jobs of a snapshot with their state after the change.
func (r *truth) compareJobs(t *testing.T, row *truthRow, said *prediction) {
	t.Helper()
	of := slurm.JobsOf(said.jobs, time.Unix(1, 0))
	p := said.plan.Jobs
	require.True(t, p.Known(), "%+v", p)
	row.jobs = of.Running + of.Pending
	if p.Running() != of.Running || p.Queued() != of.Pending {
		row.wrong = append(row.wrong, fmt.Sprintf("jobs: predicted for %d running and %d queued, there were %d and %d",
			p.Running(), p.Queued(), of.Running, of.Pending))
	}
	now := r.settledQueue(t, said.jobs)
	became := map[string]int{}
	for _, rows := range together(said.jobs) {
		ids := tasksOf(rows[0].ID)
		if len(rows) > 1 {
			ids = ids[:1]
		}
		for _, id := range ids {
			want, got := said.outcome(rows, id, now)
			became[got]++
			if want == got {
				continue
			}
			row.wrong = append(row.wrong, fmt.Sprintf("job %s: predicted %s, actual %s: was %+v, is %+v", id, want, got, rows, now[id]))
			if got == "ended" || got == "cancelled" {
				row.lost++
				row.wrong[len(row.wrong)-1] += "; " + r.outputOf(t, now[id])
			}
		}
	}
	row.fates = strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(became), "map["), "]")
}

// outputOf returns the output of a job on its nodes, which shows why it failed.
func (r *truth) outputOf(t *testing.T, q cli.QueuedJob) string {
	t.Helper()
	text := ""
	for _, n := range q.Nodes {
		out, err := r.lab.Run(t.Context(), n, "sh", "-c",
			"find /tmp /var/lib/slurm -xdev -name 'slurm-"+q.ID+".out' -exec tail -v -n 5 {} +")
		text += fmt.Sprintf("output of job %s on %s: %s %v", q.ID, n, out, err)
	}
	return text
}

// outcome returns the predicted and the actual end of a job with the given rows of squeue in the snapshot. For a job that has
// started since, the prediction is that for a job that runs there.
func (p *prediction) outcome(rows []cli.QueuedJob, id string, now map[string]cli.QueuedJob) (want, got string) {
	was, is := rows[0], now[id]
	active := is.State != "" && !slices.Contains(endedStates, is.State)
	switch {
	case was.Pending() && is.Pending():
		if want = p.fate(rows...); !slices.Equal(was.Partitions, is.Partitions) {
			return want, "moved"
		} else if want == "cannot start" {
			return want, want
		}
		return want, "queued"
	case was.Pending() && len(is.Nodes) == 0:
		return p.fate(rows...), "cancelled"
	case was.Pending():
		started := slices.Clone(rows)
		for i := range started {
			element := now[id]
			if len(rows) > 1 {
				element = now[started[i].ID]
			}
			started[i].State, started[i].Nodes, started[i].Partitions, started[i].Tasks = "R", element.Nodes, element.Partitions, 1
		}
		want = p.fate(started...)
	default:
		want = p.fate(rows...)
	}
	switch {
	case is.State == "COMPLETED":
		return want, "waited"
	case active && was.Pending(): // perhaps on a node that has left and joined since
		if want = p.fate(rows...); want == "queued" || want == "moved" {
			return want, want
		}
		return want, "started"
	case active && (was.Started == is.Started && slices.Equal(was.Nodes, is.Nodes)):
		return want, "continues"
	case active:
		return want, "requeued"
	}
	return want, "ended"
}

// settledQueue returns the jobs and tasks of a snapshot by their ids, once each is active or has ended in accounting: then with
// the state of sacct.
func (r *truth) settledQueue(t *testing.T, of []cli.QueuedJob) map[string]cli.QueuedJob {
	t.Helper()
	var now map[string]cli.QueuedJob
	looks := 0
	eventually(t, "the jobs have ended in accounting, or are active", func() (bool, string) {
		now = map[string]cli.QueuedJob{}
		settled := true
		for _, q := range r.queued(t, r.unit) {
			settled = settled && q.State != "CG"
			for _, id := range tasksOf(q.ID) {
				now[id] = q
			}
		}
		var gone, whole []string
		for _, q := range of {
			for _, id := range tasksOf(q.ID) {
				if _, active := now[id]; !active {
					gone, whole = append(gone, id), append(whole, wholeID(id))
				}
			}
		}
		ended := map[string]cli.QueuedJob{}
		if len(gone) > 0 {
			ended = r.accounted(t, slices.Compact(slices.Sorted(slices.Values(whole))))
		}
		for _, id := range gone {
			q, hasEnded := ended[id], slices.Contains(endedStates, ended[id].State)
			if !hasEnded {
				q.State = "VANISHED"
			}
			now[id], settled = q, settled && hasEnded
		}
		looks++
		return settled || looks > 200, fmt.Sprint(now) // a job that vanished is compared as such
	})
	return now
}

// accounted returns the records of sacct of jobs and their tasks, by id.
func (r *truth) accounted(t *testing.T, jobs []string) map[string]cli.QueuedJob {
	t.Helper()
	ended := map[string]cli.QueuedJob{}
	for line := range strings.Lines(r.tool(t, r.unit,
		"SLURM_BITSTR_LEN=0 sacct -a -X -n -P -o JobID,State,NodeList,Partition -j "+strings.Join(jobs, ","))) {
		v := strings.Split(strings.TrimSpace(line), "|")
		require.Len(t, v, 4, line)
		state, _, _ := strings.Cut(v[1], " ")
		for _, id := range tasksOf(v[0]) {
			ended[id] = cli.QueuedJob{ID: v[0], State: state, Nodes: r.nodesIn(v[2]), Partitions: strings.Split(v[3], ",")}
		}
	}
	return ended
}

// newShapes prepares the shapes of jobs.
func (r *truth) newShapes(t *testing.T) {
	t.Helper()
	r.shapes = truthShapes(t, string(r.version))
	require.Greater(t, len(r.shapes), 50)
	r.sender = newShapeSender(t, r.company)
	for _, w := range r.workers {
		_, err := r.lab.Run(t.Context(), w.Key.Name, "sh", "-c",
			"printf '#!/bin/sh\\nwhile ! test -e /tmp/end-$SLURM_JOB_ID; do sleep 1; done\\n' >"+
				r.sender.dir+"/wait; chmod 755 "+r.sender.dir+"/wait")
		require.NoError(t, err)
	}
}

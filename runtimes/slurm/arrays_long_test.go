//go:build long

package slurm_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
	"berth/schema/queue"
)

// A leave cancels the tasks of an array that run on its node, and no others.
func TestLongLeaveKeepsTasksOnOtherNodes(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, onePartition, 0, 1)
	id, err := c.trySubmit(t, u, alice, "#SBATCH --array=1-2\nsleep 600\n", "--time=20", "--gres=gpu:2")
	require.NoError(t, err)
	on := func(node string) string {
		return strings.TrimSpace(c.tool(t, u, "squeue -h -o %i -t running -w "+node))
	}
	eventually(t, "both tasks run", func() (bool, string) {
		out := c.tool(t, u, "squeue -h -o '%i %A %T %N %r'")
		return on("gpu-1") != "" && on("gpu-2") != "", out
	})
	last := map[bool]int{true: 0, false: 1}[on("gpu-1") == id+"_2"] // the worker of the task with the id of the array
	other := on(c.workers[1-last].Key.Name)
	left := c.unit(onePartition, []schema.UnixUser{alice}, nil, 1-last)
	left.Members[1].Name = fmt.Sprintf("worker-%d", 1-last)
	require.ErrorIs(t, c.apply(t, c.plan(t, left, false)), runtimes.ErrWaiting)
	left.Effective.OnJobs = &schema.OnJobs{CancelAfterSeconds: 1}
	c.rt = c.ahead(time.Hour) // since the drain began
	c.carry(t, left, false)
	require.Equal(t, other, on(c.workers[1-last].Key.Name))
}

// The tasks of an array with a step leave a partition that goes, each by its own id, and a task that is cancelled over
// the API leaves the others.
func TestLongTasksOfAnArrayWithAStep(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, twoPartitions, 0)
	id, err := c.trySubmit(t, u, alice, "#SBATCH --array=1-300:7%3\n#SBATCH --hold\nsleep 9\n", "--partition=quick,main", "--time=10")
	require.NoError(t, err)
	waiting := func() []string { // but for the last task, which squeue --array of 22.05 leaves out
		return strings.Fields(c.tool(t, u, "squeue --array -h -o %i -t pending -j "+id))
	}
	all := len(waiting())
	require.GreaterOrEqual(t, all, 42)
	_, err = c.rt.Cancel(t.Context(), c.queueOf(u, u.Effective.Key.ProjectID(), nil), queue.Ref{JobID: id + "_15"})
	require.NoError(t, err)
	require.NotContains(t, waiting(), id+"_15")
	require.GreaterOrEqual(t, len(waiting()), all-1)

	c.carry(t, c.unit(onePartition, []schema.UnixUser{alice}, nil, 0), false) // quick goes
	require.GreaterOrEqual(t, len(waiting()), all-1)
	for _, line := range strings.Fields(c.tool(t, u, "squeue -h -o %P -t pending -j "+id)) {
		require.Equal(t, "main", line)
	}
}

// A job that its user requeues and holds in a special state waits, and delays no removal.
func TestLongHeldJobHoldsUpNoRemoval(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, onePartition, 0)
	id := c.submit(t, u, alice, "sleep 600", 1)
	c.await(t, u, id, slurmtest.Running)
	c.tool(t, u, "scontrol requeuehold State=SpecialExit "+id)
	eventually(t, "the job is held", func() (bool, string) {
		out := c.tool(t, u, "squeue -h -o %t")
		return strings.TrimSpace(out) == "SE", out
	})
	require.Empty(t, c.observe(t, u).Jobs.Unknown)
	c.carry(t, c.unit(onePartition, nil, nil, 0), false)
	require.Empty(t, strings.TrimSpace(c.tool(t, u, "squeue -h")))
}

// A task of an array that waits again has an id of its own, also while its QoS is removed.
func TestLongTaskThatWaitsAgainLeavesItsQoS(t *testing.T) {
	t.Parallel()
	c, _ := newCompany(t, onePartition, 0)
	const others = `{"name":"other","priority":5},{"name":"third","priority":5}` // two with equal settings
	with := c.unit(qosConfig(`{"name":"high"},`+others), []schema.UnixUser{alice, bob}, nil, 0)
	c.carry(t, with, false)
	id, err := c.trySubmit(t, with, alice, "#SBATCH --array=1-6%4\nsleep 600\n", "--qos=high", "--gres=gpu:1", "--mem=100")
	require.NoError(t, err)
	show := func() string {
		return strings.TrimSpace(c.tool(t, with, "squeue -h -r -o '%i %t %q' -j "+id+" | sort"))
	}
	eventually(t, "two tasks run", func() (bool, string) { return strings.Count(show(), " R ") == 2, show() })
	c.tool(t, with, "scontrol requeuehold "+id+"_1")
	eventually(t, "the task waits, and another runs", func() (bool, string) {
		return strings.HasPrefix(show(), id+"_1 PD") && strings.Count(show(), " R ") == 2,
			show() + "\n" + c.tool(t, with, "sinfo -N -o '%N %T %E'") + c.tool(t, with, "squeue -h -o '%i %T %r'")
	})

	// Withdrawn from bob, whose job goes on with the default QoS.
	job, err := c.trySubmit(t, with, bob, "sleep 600\n", "--qos=high", "--gres=gpu:2")
	require.NoError(t, err)
	c.await(t, with, job, slurmtest.Pending)
	withdrawn := c.unit(qosConfig(`{"name":"high","users":["`+alice.Name+`"]},`+others), []schema.UnixUser{alice, bob}, nil, 0)
	p := c.plan(t, withdrawn, false)
	require.Contains(t, fmt.Sprint(p.Actions[0].Impact.Notes), "queued jobs of user "+bob.Name+" in QoS high go on with the default QoS")
	c.carry(t, withdrawn, false)
	require.Equal(t, "normal PD", strings.TrimSpace(c.tool(t, with, "squeue -h -o '%q %t' -j "+job)))

	without := c.unit(qosConfig(others), []schema.UnixUser{alice, bob}, nil, 0)
	err = c.removal(t, without)
	require.ErrorIs(t, err, runtimes.ErrWaiting)
	require.ErrorContains(t, err, "QoS high still has running jobs")
	var want []string
	for task, state := range []string{"PD normal", "R high", "R high", "PD normal", "PD normal", "PD normal"} {
		want = append(want, fmt.Sprintf("%s_%d %s", id, task+1, state))
	}
	require.Equal(t, strings.Join(want, "\n"), show())
}

// A removal cancels or moves the tasks of a job array that wait, and leaves those that run:
// the tasks that wait have the id of the array, with which scancel ends all of them.
func TestLongRemovalKeepsRunningTasksOfAnArray(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, twoPartitions, 0)
	array := func(partitions string) string {
		id, err := c.trySubmit(t, u, alice, "#SBATCH --array=1-4\nsleep 600\n", "--partition="+partitions, "--time=20", "--gres=gpu:1")
		require.NoError(t, err)
		return id
	}
	tasks := func(id, state string) []string {
		return strings.Fields(c.tool(t, u, "squeue --array -h -o %i,%P -t "+state+" -j "+id))
	}
	id := array("main,quick")
	eventually(t, "two tasks run", func() (bool, string) {
		out := c.tool(t, u, "squeue -h --array -o '%i %T %P %r'")
		return len(tasks(id, "running")) == 2 && len(tasks(id, "pending")) == 2, out
	})
	running := tasks(id, "running")
	u = c.unit(onePartition, []schema.UnixUser{alice}, nil, 0) // quick goes
	c.carry(t, u, false)
	require.Equal(t, running, tasks(id, "running"))
	require.Equal(t, []string{id + "_3,main", id + "_4,main"}, tasks(id, "pending"))

	service := fmt.Sprintf(`{"reservations":[{"name":"service","start":%q,"duration_minutes":60}],`,
		time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	u = c.unit(strings.Replace(onePartition, "{", service, 1), nil, nil, 0) // and alice
	c.carryUntilWaiting(t, u)
	require.Equal(t, running, tasks(id, "running"))
	require.Empty(t, tasks(id, "pending"))

	// Nothing else waits with it.
	c.tool(t, u, "scontrol delete reservationname=berth-service")
	require.ErrorIs(t, c.apply(t, c.plan(t, u, false)), runtimes.ErrWaiting)
	require.Contains(t, c.tool(t, u, "scontrol -o show reservations"), "ReservationName=berth-service ")

	// Then her jobs are cancelled at once. The last task to start has the id of the array.
	u.Effective.OnJobs = &schema.OnJobs{CancelAfterSeconds: 1}
	c.removed(t, u)
	require.Empty(t, strings.TrimSpace(c.tool(t, u, "squeue -h -t running")))
}

// Slurm does with queued jobs as the plan predicts: a job that names a node that leaves ends, one that asks for more
// nodes than are left waits for ever, and a heterogeneous job ends as a whole with the partition of one of its parts.
func TestLongPlanNamesWhatSlurmEnds(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, twoPartitions, 0, 1)
	submit := func(script string, options ...string) string {
		id, err := c.trySubmit(t, u, alice, script+"sleep 9\n", append([]string{"--time=10"}, options...)...)
		require.NoError(t, err)
		return id
	}
	const held = "#SBATCH --hold\n"
	names, large := submit(held+"#SBATCH -w gpu-2\n", "--partition=main"), submit(held+"#SBATCH -N2\n", "--partition=main")
	het, array := submit(held+"#SBATCH -p main\n#SBATCH hetjob\n#SBATCH -p quick\n"),
		submit(held+"#SBATCH --array=1-300:7%3\n", "--partition=quick")
	stays, both := submit(held+"#SBATCH -w gpu-1\n", "--partition=main"), submit(held, "--partition=quick,main")

	less := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0) // gpu-2 and quick go
	before := c.observe(t, u)
	require.Equal(t, 5+43, before.Jobs.Pending)
	said := plan.Make(plan.Input{Key: u.Effective.Key, After: &less.Effective, Members: less.Members, Observed: before, Rules: c.rt}).Jobs
	require.ElementsMatch(t, []string{names, het, array + "_[1-295:7%3]"}, said.Cancelled.IDs)
	require.Equal(t, 2+43, said.Cancelled.Count)
	require.Equal(t, []string{large}, said.CannotStart.IDs)
	require.Equal(t, []string{both}, said.Moved.IDs)

	c.carry(t, less, false)
	eventually(t, "the jobs are what the plan said", func() (bool, string) {
		out := c.tool(t, u, "squeue -h -o '%i %P' -t pending")
		rest := strings.Split(strings.TrimSpace(out), "\n")
		slices.Sort(rest)
		want := []string{large + " main", stays + " main", both + " main"}
		slices.Sort(want)
		return slices.Equal(rest, want), out
	})
}

// A job is shown as one: the parts of a heterogeneous job with all their members, a requeued job by its last run, and the
// output of each by the name that Slurm gave it.
func TestLongQueueShowsAJobAsOne(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, twoPartitions, 0, 1)
	at := c.queueOf(u, u.Effective.Key.ProjectID(), nil)
	submit := func(script string) string { // as its user does on a login host
		return strings.TrimSpace(c.tool(t, u,
			fmt.Sprintf("sbatch --parsable --uid=%s --time=10 --chdir=/tmp <<'EOF'\n#!/bin/sh\n%sEOF", alice.Name, script)))
	}
	output := func(id, want string) {
		t.Helper()
		eventually(t, "the output of job "+id, func() (bool, string) {
			out, err := c.rt.Output(t.Context(), at, queue.Ref{JobID: id}, 1000)
			return err == nil && string(out.Text) == want, fmt.Sprintf("%q %v", out.Text, err)
		})
	}
	array := submit("#SBATCH --array=7\necho task\n")
	output(array+"_7", "task\n")
	wide := submit("#SBATCH --array=3\n#SBATCH -o /tmp/%A-%4a-%N.txt\necho wide\n")
	output(wide+"_3", "wide\n")

	steps, err := c.rt.Submit(t.Context(), at,
		queue.Submission{ProjectID: u.Effective.Key.ProjectID(),
			Request: queue.Request{Script: "#!/bin/sh\nsrun -n1 sh -c 'echo in a step'\n"}, User: alice, IdempotencyKey: rand.Text()})
	require.NoError(t, err)
	output(steps.JobID, "in a step\n")

	titan := rand.Text()
	for range 3 { // a call does not take the refusal of an earlier one for its job, nor once slurmdbd has that
		_, err = c.rt.Submit(t.Context(), at,
			queue.Submission{ProjectID: u.Effective.Key.ProjectID(),
				Request: queue.Request{Script: "#!/bin/sh\n#SBATCH --gres=gpu:TitanX:1\n"}, User: alice, IdempotencyKey: titan})
		require.ErrorIs(t, err, queue.ErrDenied)
		require.ErrorContains(t, err, "Requested node configuration is not available")
		eventually(t, "slurmdbd has the job that slurmctld refused", func() (bool, string) {
			out := c.tool(t, u, "sacct -X -n -P -S now-1hour -o state,submitline")
			return regexp.MustCompile("(?m)^FAILED.*:" + titan + ":").MatchString(out), out
		})
	}

	het := submit("#SBATCH -p main -w gpu-1\n#SBATCH hetjob\n#SBATCH -p quick -w gpu-2\necho leader; sleep 600\n")
	output(het, "leader\n")
	j, err := c.rt.Job(t.Context(), at, queue.Ref{JobID: het})
	require.NoError(t, err)
	require.Equal(t, "main,quick", j.Queue)
	require.Equal(t, []string{"worker-0", "worker-1"}, j.Members)
	all, err := c.rt.Jobs(t.Context(), at.Unit, at.Stamp)
	require.NoError(t, err)
	var ids []string
	for _, j := range all {
		ids = append(ids, j.JobID)
	}
	require.Subset(t, ids, []string{het + "+0", het + "+1"})
	_, err = c.rt.Cancel(t.Context(), at, queue.Ref{JobID: het})
	require.NoError(t, err)

	none := submit("#SBATCH -o /dev/null\necho nothing\n")
	eventually(t, "the job has no output", func() (bool, string) {
		_, err := c.rt.Output(t.Context(), at, queue.Ref{JobID: none}, 1000)
		return errors.Is(err, queue.ErrNoOutput), fmt.Sprint(err)
	})

	again := submit("sleep 600\n")
	first := c.await(t, u, again, slurmtest.Running)
	require.NotZero(t, first)
	was, err := c.rt.Job(t.Context(), at, queue.Ref{JobID: again})
	require.NoError(t, err)
	c.tool(t, u, "scontrol requeue "+again)
	eventually(t, "the requeued job waits for its second run", func() (bool, string) {
		j, err := c.rt.Job(t.Context(), at, queue.Ref{JobID: again, Submitted: was.Submitted})
		require.NotEqual(t, "LOST", j.State)
		return err == nil && j.State == "PENDING" && !j.Submitted.Equal(was.Submitted), fmt.Sprintf("%+v %v", j, err)
	})
	gone, err := c.rt.Cancel(t.Context(), at, queue.Ref{JobID: again, Submitted: was.Submitted})
	require.NoError(t, err)
	require.NotEqual(t, "LOST", gone.State)
	eventually(t, "the requeued job is cancelled", func() (bool, string) {
		j, err := c.rt.Job(t.Context(), at, queue.Ref{JobID: again, Submitted: was.Submitted})
		return err == nil && j.State == "CANCELLED", fmt.Sprintf("%+v %v", j, err)
	})
}

package jobs

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cli"
	"berth/schema/queue"
)

// find returns a job of the project with its cluster.
func (q *Queue) find(ctx context.Context, at runtimes.QueueScope, ref queue.Ref) (*cluster, *cli.Job, error) {
	c, err := q.cluster(at)
	if err != nil {
		return nil, nil, err
	}
	j, err := c.find(ctx, ref)
	return c, j, err
}

// find returns a job of the project: from slurmctld, else from slurmdbd. A job whose newest record at slurmdbd has no
// end was lost by slurmctld in a crash, unless a call a moment later finds it.
func (c *cluster) find(ctx context.Context, ref queue.Ref) (*cli.Job, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	id := "--jobs=" + called(ref.JobID)
	now, _, err := c.jobs(ctx, c.queuedJobs(id))
	if err != nil {
		return nil, err
	}
	if j := pick(now, ref); j != nil {
		return j, nil
	}
	before, _, err := c.jobs(ctx, c.accountedJobs(id))
	if err != nil {
		return nil, err
	}
	ref = lastRun(slices.Concat(before, now), ref)
	if j := pick(now, ref); j != nil {
		return j, nil
	}
	if !ref.Submitted.IsZero() { // slurmctld may have given the id again
		before = slices.DeleteFunc(before, func(j cli.Job) bool { return j.Submitted != ref.Submitted.Unix() })
	}
	j := pick(newest(before), ref)
	if j == nil {
		return nil, fmt.Errorf("%w: job %s", queue.ErrNotFound, ref.JobID)
	}
	if !j.HasEnded() {
		if err := c.confirmLost(ctx, j); err != nil {
			return nil, err
		}
		j.State, j.Reason, j.Nodes = cli.Lost, "slurmctld accepted the job and lost it in a crash; submit it again", nil
	}
	return j, nil
}

// confirmLost returns nil if slurmctld lost a job that it does not have and that has not ended in the
// accounting. While the accounting lacks messages of slurmctld, the job may have ended long ago.
func (c *cluster) confirmLost(ctx context.Context, j *cli.Job) error {
	ask := cli.Unsent()
	res, err := c.do(ctx, c.host, c.op(ask.Program, ask.Args...))
	if err != nil {
		return err
	}
	unsent, err := ask.Decode(cli.Answer{Exit: res[0].Exit, Stdout: res[0].Data, Stderr: res[0].Stderr})
	if err == nil && unsent > 0 {
		err = fmt.Errorf("the accounting has job %s as %s and lacks %d messages", j.ID, j.State, unsent)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", queue.ErrUnavailable, err)
	}
	return nil
}

// lastRun returns ref with the submission of the last run of its job: slurmctld gives a job that it requeues a new time
// of submission, and slurmdbd then has a record of each run. A run that ended otherwise, such as NODE_FAIL, is not followed:
// after a crash slurmctld may have given its id to another job.
func lastRun(records []cli.Job, ref queue.Ref) queue.Ref {
	for !ref.Submitted.IsZero() {
		requeued, next := false, int64(0)
		for i := range records {
			j := &records[i]
			switch {
			case !names(ref.JobID, j.ID):
			case j.Submitted == ref.Submitted.Unix():
				requeued = requeued || j.State == "REQUEUED"
			case j.Submitted > ref.Submitted.Unix() && (next == 0 || j.Submitted < next):
				next = j.Submitted
			}
		}
		if !requeued || next == 0 {
			break
		}
		ref.Submitted = unix(next)
	}
	return ref
}

// newest leaves out all records of a job but its newest: each run of a requeued job has one.
func newest(records []cli.Job) (out []cli.Job) {
	when := func(j cli.Job) int64 {
		if ran := max(j.Started, j.Ended); ran > 0 {
			return ran
		}
		return math.MaxInt64 // it waits
	}
	at := map[string]int{}
	for _, j := range records {
		i, known := at[j.ID]
		switch {
		case !known:
			at[j.ID] = len(out)
			out = append(out, j)
		case j.Submitted > out[i].Submitted || j.Submitted == out[i].Submitted && when(j) >= when(out[i]):
			out[i] = j
		}
	}
	return out
}

// names reports whether a job that squeue or sacct prints belongs to the one that a caller names: it itself, a task of its
// array, or a part of it. A task that waits is in the entry of its array.
func names(ref, printed string) bool {
	return printed == ref || whole(printed) == ref || cli.HasTask(printed, ref)
}

// represents reports whether a row is that of the job that a caller names. The whole of a heterogeneous job is its first part.
func represents(ref, printed string) bool {
	return names(ref, printed) && (printed == ref || !isLaterPart(printed))
}

// pick returns the last job of ref: the job of its id, else the array or a task of it that has not ended, else
// the first of them. The parts of a heterogeneous job are one, as its first part has it.
func pick(jobs []cli.Job, ref queue.Ref) *cli.Job {
	var found *cli.Job
	for i := range jobs {
		j := &jobs[i]
		if !represents(ref.JobID, j.ID) || !ref.Submitted.IsZero() && j.Submitted != ref.Submitted.Unix() {
			continue
		}
		if found == nil || found.HasEnded() && !j.HasEnded() || found.HasEnded() == j.HasEnded() && j.Submitted > found.Submitted {
			found = j
		}
	}
	if found == nil || found.ID == ref.JobID || !strings.Contains(found.ID, "+") {
		return found
	}
	return withParts(*found, jobs)
}

// isLaterPart reports whether an id is that of a part of a heterogeneous job other than its first.
func isLaterPart(printed string) bool {
	_, part, isPart := strings.Cut(printed, "+")
	return isPart && part != "0"
}

// withParts returns the first part of a heterogeneous job with the nodes, partitions and resources of all.
func withParts(first cli.Job, jobs []cli.Job) *cli.Job {
	partitions := strings.Split(first.Partition, ",") // several while it waits
	first.Nodes = slices.Clone(first.Nodes)
	for i := range jobs {
		j := &jobs[i]
		if !isLaterPart(j.ID) || whole(j.ID) != whole(first.ID) || j.Submitted != first.Submitted {
			continue
		}
		for _, n := range j.Nodes {
			if !slices.Contains(first.Nodes, n) {
				first.Nodes = append(first.Nodes, n)
			}
		}
		for p := range strings.SplitSeq(j.Partition, ",") {
			if !slices.Contains(partitions, p) {
				partitions = append(partitions, p)
			}
		}
		first.CPUs, first.GPUs, first.MemoryMiB = first.CPUs+j.CPUs, first.GPUs+j.GPUs, first.MemoryMiB+j.MemoryMiB
		first.Unread = append(first.Unread, j.Unread...)
	}
	first.ID, first.Partition = whole(first.ID), strings.Join(partitions, ",")
	return &first
}

// whole returns the id of the job to which a task of an array or a part of a heterogeneous job belongs.
func whole(printed string) string {
	if i := strings.IndexAny(printed, "_+"); i >= 0 {
		return printed[:i]
	}
	return printed
}

// called returns the id by which Slurm's tools call a job: that of the whole job for a part of it.
func called(ref string) string {
	if strings.Contains(ref, "+") {
		return whole(ref)
	}
	return ref
}

// id returns the id by which people call a job: squeue prints tasks that wait as 12_[1-9].
func id(printed string) string {
	if strings.Contains(printed, "[") {
		return whole(printed)
	}
	return printed
}

// memberOn returns the index of the member that runs jobs on a node, or -1.
func memberOn(u *plan.Unit, node string) int {
	return slices.IndexFunc(u.Members, func(m plan.Member) bool { return m.Node == node && !m.ControlPlane })
}

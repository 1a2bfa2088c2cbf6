package slurm

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"berth/runtimes/slurm/cli"
)

// launchFailed is the reason of a job that a node could not start. Slurm holds the job, does not say on which node it failed,
// and gives the next job to the same node.
const launchFailed = "launch failed requeued held"

// heldByAdmin is the reason of a job that an administrator holds. Slurm 22.05 gives it about one in forty jobs that a node could
// not start, on a busy machine. In accounting, the last run of such a job was requeued within shortRun. So a job that an administrator
// requeues and holds that soon counts as one that could not start.
const (
	heldByAdmin = "JobHeldAdmin"
	shortRun    = 10 // seconds
)

// maxLaunches limits the held jobs of which accounting is asked for the node: the newest.
const maxLaunches = 300

// heldJob is a waiting job that a node may have failed to start.
type heldJob struct{ id, reason string } // the id as squeue prints it

// failedOn returns the nodes that could not start the job; last is its newest run that had nodes.
func (j heldJob) failedOn(last cli.Run) []string {
	if j.reason == launchFailed || last.State == "REQUEUED" && last.Ended-last.Started <= shortRun {
		return last.Nodes
	}
	return nil
}

// readLaunches sets the nodes on which the launch of held jobs failed last.
func (v *observation) readLaunches(ctx context.Context, all []cli.QueuedJob) {
	held := map[int]heldJob{}
	for i := range all {
		reason := all[i].Reason
		if id, err := strconv.Atoi(all[i].Raw); err == nil && (reason == launchFailed || reason == heldByAdmin) {
			held[id] = heldJob{shortList(all[i].ID), reason}
		}
	}
	if len(held) == 0 {
		return
	}
	jobs := cli.RunIDs(slices.Sorted(maps.Keys(held)))
	jobs = jobs[max(0, len(jobs)-maxLaunches):]
	c, now := v.ctl, v.ctl.env.now()
	last, ok := c.env.launches.get(c.stack.Cluster, jobs, now)
	if !ok {
		runs, err := ask(ctx, c, cli.RunsWithin(jobs, now.AddDate(0, -1, 0), now.Add(time.Hour)))
		if err != nil {
			c.log.Debug("nodes of failed launches unknown", "reason", err.Error())
			return
		}
		last = lastRuns(runs)
		c.env.launches.put(c.stack.Cluster, launchAnswer{now, jobs, last})
	}
	v.jobs.launches = map[string][]string{}
	for _, id := range jobs {
		for _, node := range held[id].failedOn(last[id]) {
			v.jobs.launches[node] = append(v.jobs.launches[node], held[id].id)
		}
	}
}

// lastRuns returns the newest run of each job that had nodes.
func lastRuns(runs []cli.Run) map[int]cli.Run {
	last := map[int]cli.Run{}
	for _, r := range runs {
		if len(r.Nodes) > 0 && r.Submitted >= last[r.ID].Submitted && r.Started >= last[r.ID].Started {
			last[r.ID] = r
		}
	}
	return last
}

// shortList cuts off a list of tasks in an id, as squeue does: 12_[1,3,5,...].
func shortList(id string) string {
	const longest = 64
	if len(id) <= longest {
		return id
	}
	return id[:longest-4] + "...]"
}

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

// maxLaunches limits the held jobs of which accounting is asked for the node: the newest.
const maxLaunches = 300

// readLaunches sets the nodes on which the launch of held jobs failed last.
func (v *observation) readLaunches(ctx context.Context, all []cli.QueuedJob) {
	ids := map[int]string{} // as squeue prints them
	for i := range all {
		if id, err := strconv.Atoi(all[i].Raw); all[i].Reason == launchFailed && err == nil {
			ids[id] = shortList(all[i].ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	jobs := cli.RunIDs(slices.Sorted(maps.Keys(ids)))
	jobs = jobs[max(0, len(jobs)-maxLaunches):]
	c, now := v.ctl, v.ctl.env.now()
	nodes, ok := c.env.launches.get(c.stack.Cluster, jobs, now)
	if !ok {
		ran, err := ask(ctx, c, cli.RunsWithin(jobs, now.AddDate(0, -1, 0), now.Add(time.Hour)))
		if err != nil {
			c.log.Debug("nodes of failed launches unknown", "reason", err.Error())
			return
		}
		nodes = lastNodes(ran)
		c.env.launches.put(c.stack.Cluster, launchAnswer{now, jobs, nodes})
	}
	v.jobs.launches = map[string][]string{}
	for node, of := range nodes {
		for _, id := range of {
			if name := ids[id]; name != "" {
				v.jobs.launches[node] = append(v.jobs.launches[node], name)
			}
		}
	}
}

// lastNodes returns the jobs by the nodes of their newest run that had nodes.
func lastNodes(runs []cli.Run) map[string][]int {
	last := map[int]cli.Run{}
	for _, r := range runs {
		if len(r.Nodes) > 0 && r.Submitted >= last[r.ID].Submitted && r.Started >= last[r.ID].Started {
			last[r.ID] = r
		}
	}
	nodes := map[string][]int{}
	for _, id := range slices.Sorted(maps.Keys(last)) {
		for _, node := range last[id].Nodes {
			nodes[node] = append(nodes[node], id)
		}
	}
	return nodes
}

// shortList cuts off a list of tasks in an id, as squeue does: 12_[1,3,5,...].
func shortList(id string) string {
	const longest = 64
	if len(id) <= longest {
		return id
	}
	return id[:longest-4] + "...]"
}

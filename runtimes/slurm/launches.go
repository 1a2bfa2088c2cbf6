package slurm

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/runtimes/slurm/cli"
)

// launchFailed is the reason of a job that a node could not start: Slurm keeps it held, with nodes that it does not say, and
// gives the next job to the same node.
const launchFailed = "launch failed requeued held"

// maxLaunches limits the held jobs of which accounting is asked for the node.
const maxLaunches = 50

// readLaunches sets the nodes on which the launch of held jobs failed last.
func (v *observation) readLaunches(ctx context.Context, all []cli.QueuedJob) {
	ids := map[int]string{} // as squeue prints them
	var runs cli.RunIDs
	for i := range all {
		if id, err := strconv.Atoi(all[i].Raw); all[i].Reason == launchFailed && err == nil && len(runs) < maxLaunches {
			ids[id], runs = shortList(all[i].ID), append(runs, id)
		}
	}
	if len(runs) == 0 {
		return
	}
	now := v.ctl.env.now()
	ran, err := ask(ctx, v.ctl, cli.RunsWithin(runs, now.AddDate(0, -1, 0), now.Add(time.Hour)))
	if err != nil {
		v.ctl.log.Debug("nodes of failed launches unknown", "reason", err.Error())
		return
	}
	last := map[int]cli.Run{}
	for _, r := range ran {
		if _, held := ids[r.ID]; held && len(r.Nodes) > 0 && r.Submitted >= last[r.ID].Submitted && r.Started >= last[r.ID].Started {
			last[r.ID] = r
		}
	}
	v.jobs.launches = map[string][]string{}
	slices.Sort(runs)
	for _, id := range runs {
		for _, node := range last[id].Nodes {
			v.jobs.launches[node] = append(v.jobs.launches[node], ids[id])
		}
	}
}

// failedLaunches names the held jobs that a node could not start, with the next step; "": none.
func (s snapshot) failedLaunches(node string) string {
	jobs := s.launches[node]
	if len(jobs) == 0 {
		return ""
	}
	const most = 5
	names := strings.Join(jobs[:min(len(jobs), most)], ",")
	more := ""
	if len(jobs) > most {
		more = fmt.Sprintf(" and %d more", len(jobs)-most)
	}
	return fmt.Sprintf("it could not start the jobs %s%s, which Slurm holds: the log of slurmd says why; then scontrol release %s", names, more, names)
}

// joinNotes joins those that are not empty.
func joinNotes(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(n string) bool { return n == "" }), "; ")
}

package slurm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/runtimes/slurm/cli"
)

// launchFailed is the reason of a job that a node could not start. Slurm holds the job, does not say on which node it failed,
// and gives the next job to the same node.
const launchFailed = "launch failed requeued held"

const (
	// maxLaunches limits the held jobs of which accounting is asked for the node: the newest.
	maxLaunches = 300
	// launchLife is how long an answer of accounting about the same jobs counts.
	launchLife = time.Minute
)

// launchAnswers has what accounting said last of the held jobs of each cluster.
type launchAnswers struct {
	mu sync.Mutex
	of map[string]launchAnswer
}

type launchAnswer struct {
	at    time.Time
	jobs  cli.RunIDs
	nodes map[string][]int // ids of jobs, by node
}

func (l *launchAnswers) get(cluster string, jobs cli.RunIDs, now time.Time) (map[string][]int, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of[cluster]
	return a.nodes, slices.Equal(a.jobs, jobs) && now.Sub(a.at) < launchLife
}

func (l *launchAnswers) put(cluster string, a launchAnswer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[string]launchAnswer{}
	}
	l.of[cluster] = a
}

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
	return fmt.Sprintf("it could not start the jobs %s%s, which Slurm holds: the log of slurmd says why; then scontrol release %s",
		names, more, names)
}

// joinNotes joins those that are not empty.
func joinNotes(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(n string) bool { return n == "" }), "; ")
}

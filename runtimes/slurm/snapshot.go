package slurm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

// snapshotJobs asks slurmctld for the jobs. A failure says nothing about slurmctld: a very
// long queue exceeds what a host returns.
func (v *observation) snapshotJobs(ctx context.Context) {
	c := v.ctl
	at := c.env.now().UTC()
	all, err := ask(ctx, c, cli.Snapshot())
	if slices.ContainsFunc(all, func(j cli.QueuedJob) bool { return j.Pending() }) {
		var excluded map[string]cli.NodeList
		if excluded, err = ask(ctx, c, cli.Excluded()); err == nil {
			Exclude(all, excluded, c.rec.Joined)
		}
	}
	if err != nil {
		if op := new(runtimes.OpError); errors.As(err, &op) {
			v.jobs.Unknown = "squeue on " + c.host.Name() + ": " + op.Message
		}
		c.log.Debug("jobs unknown", "host", c.host.Name(), "reason", err.Error())
		return
	}
	names := map[string]string{}
	for _, u := range c.rec.people() {
		names[strconv.Itoa(u.UID)] = u.Name
	}
	account := accountOf(&c.rec.Unit)
	for i := range all { // squeue prints the uid of a user whom the directory has no more
		all[i].User = cmp.Or(names[all[i].User], all[i].User)
		if all[i].Account == account {
			all[i].Account = cluster.MembersAccount
		}
	}
	v.jobs = snapshot{Jobs: JobsOf(all, at), earliest: earliestStarts(all)}
	v.readLaunches(ctx, all)
}

// maxAllowed limits the names in Asked.Allowed. A job that can have more nodes counts as one that excludes none: a change
// seldom takes that many.
const maxAllowed = 64

// Exclude sets Asks.Allowed of the waiting jobs that exclude nodes: the workers that each does not exclude, whatever their
// partition. excluded is by QueuedJob.Raw.
func Exclude(all []cli.QueuedJob, excluded map[string]cli.NodeList, workers []plan.Member) {
	known := map[cli.NodeList][]string{} // many jobs exclude the same nodes
	for i := range all {
		list, excludes := excluded[all[i].Raw]
		if !excludes || !all[i].Pending() {
			continue
		}
		allowed, isKnown := known[list]
		if !isKnown {
			var err error
			if allowed, err = allowedBy(list, workers); err != nil {
				all[i].Unread = true
				continue
			}
			known[list] = allowed
		}
		all[i].Asks.Allowed = allowed
	}
}

// allowedBy returns the nodes of workers that are not in a list; nil: more than maxAllowed.
func allowedBy(list cli.NodeList, workers []plan.Member) (allowed []string, err error) {
	names, err := list.Names()
	if err != nil {
		return nil, err
	}
	without := map[string]bool{}
	for _, n := range names {
		without[n] = true
	}
	for _, m := range workers {
		if !without[m.Node] {
			allowed = append(allowed, m.Node)
		}
	}
	if len(allowed) > maxAllowed {
		return nil, nil
	}
	return allowed, nil
}

// earliestStarts returns the start of the earliest running job of each node.
func earliestStarts(all []cli.QueuedJob) map[string]int64 {
	first := map[string]int64{}
	for i := range all {
		j := &all[i]
		for _, n := range j.Nodes {
			if at, ok := first[n]; !j.Pending() && (!ok || j.Started < at) {
				first[n] = j.Started
			}
		}
	}
	return first
}

// whyNoSnapshot returns the reason for a missing snapshot of jobs.
func (v *observation) whyNoSnapshot() string {
	switch {
	case !v.runs(profile.Slurmctld):
		return "slurmctld on " + v.ctl.host.Name() + " does not run"
	case !v.runs(profile.Munged):
		return "munged on " + v.ctl.host.Name() + " does not run"
	case v.modified[v.ctl.stack.Conf()] != "": // it may name no controller, or another one
		return "slurm.conf on " + v.ctl.host.Name() + " was changed"
	}
	return v.ctl.host.Name() + " did not answer"
}

// JobsOf returns the snapshot of jobs at a time. Jobs that differ in their ids only are one group. The parts of a
// heterogeneous job are one job, by the id of its first part.
func JobsOf(all []cli.QueuedJob, at time.Time) *plan.Jobs {
	to := &plan.Jobs{At: at}
	index := map[string]int{}
	for _, job := range wholeJobs(all) {
		group := job.group
		if group.Pending {
			to.Pending += group.Count
		} else {
			to.Running += group.Count
		}
		n, ok := index[job.like()]
		if !ok {
			n, index[job.like()] = len(to.Groups), len(to.Groups)
			to.Groups = append(to.Groups, group)
			to.Groups[n].Count = 0
		}
		g := &to.Groups[n]
		g.Count += group.Count
		if len(g.IDs) < plan.MaxJobIDs && !slices.Contains(g.IDs, job.id) {
			g.IDs = append(g.IDs, job.id)
		}
	}
	return to
}

// wholeJob is a job with its parts, for the snapshot.
type wholeJob struct {
	id    string
	group plan.JobGroup // of this job alone, without its id
}

// like is equal for jobs that differ in their ids and numbers only.
func (w wholeJob) like() string {
	g := w.group
	g.Count = 0
	text, _ := json.Marshal(g) // plain data
	return string(text)
}

// wholeJobs returns the jobs of which squeue printed a line for each part.
func wholeJobs(all []cli.QueuedJob) []wholeJob {
	var jobs []wholeJob
	parts := map[string]int{} // index of a heterogeneous job by its id
	for i := range all {
		leader, _, isPart := strings.Cut(all[i].ID, "+")
		group := groupOf(&all[i])
		n, known := parts[leader]
		switch {
		case !isPart:
			jobs = append(jobs, wholeJob{shortList(all[i].ID), group})
		case known:
			jobs[n].group.Parts = append(jobs[n].group.Parts, group)
		default:
			parts[leader] = len(jobs)
			jobs = append(jobs, wholeJob{leader, group})
		}
	}
	return jobs
}

func groupOf(j *cli.QueuedJob) plan.JobGroup {
	g := plan.JobGroup{
		Count: max(j.Tasks, 1), Pending: j.Pending(), User: j.User, Account: j.Account, QoS: j.QoS, Partitions: j.Partitions,
		Nodes: j.Nodes,
		JobRequest: plan.JobRequest{GPUs: j.Asks.GPUs, CPUs: j.Asks.CPUs, NodeCount: j.Asks.Nodes, Named: j.Asks.Named,
			Allowed: j.Asks.Allowed},
		Minutes: j.Minutes, Unread: j.Unread,
	}
	if each := j.Asks.Each; j.Pending() {
		g.Each = plan.NodeResources{CPUs: each.CPUs, MemoryMiB: each.MemoryMiB, Features: each.Features}
		if each.GPUs > 0 {
			g.Each.GPUs = map[string]int{each.GPUType: each.GPUs}
		}
	}
	if g.Account == cluster.MembersAccount {
		g.Account = "" // the account of all users, which is not a project
	}
	return g
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

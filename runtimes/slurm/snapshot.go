package slurm

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
)

// snapshot is the jobs of an observation.
type snapshot struct {
	*plan.Jobs
	// earliest has the start of the earliest running job of each node, seconds since 1970.
	earliest map[string]int64
}

// snapshotJobs asks slurmctld for the jobs. A failure says nothing about slurmctld: a very
// long queue exceeds what a host returns.
func (v *observation) snapshotJobs(ctx context.Context) {
	c := v.ctl
	at := c.env.now().UTC()
	all, err := ask(ctx, c, cli.Snapshot())
	if err != nil {
		c.log.Debug("jobs unknown", "host", c.host.Name(), "reason", err.Error())
		return
	}
	names := map[string]string{}
	for _, u := range c.rec.people() {
		names[strconv.Itoa(u.UID)] = u.Name
	}
	for i := range all { // squeue prints the uid of a user whom the directory has no more
		all[i].User = cmp.Or(names[all[i].User], all[i].User)
	}
	v.jobs = snapshot{JobsOf(all, at), earliestStarts(all)}
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

// whyNoSnapshot returns why the jobs are unknown if there is no snapshot.
func (v *observation) whyNoSnapshot() string {
	switch {
	case !v.runs(profile.Slurmctld):
		return "slurmctld on " + v.ctl.host.Name() + " does not run"
	case !v.runs(profile.Munged):
		return "munged on " + v.ctl.host.Name() + " does not run"
	case slices.Contains(v.modified, v.ctl.stack.Conf()): // it may name no controller, or another one
		return "slurm.conf on " + v.ctl.host.Name() + " was changed"
	}
	return v.ctl.host.Name() + " did not answer"
}

// JobsOf returns the snapshot of jobs at a time. Jobs that differ in their ids only are one group.
func JobsOf(all []cli.QueuedJob, at time.Time) *plan.Jobs {
	to := &plan.Jobs{At: at}
	index := map[string]int{}
	for i := range all {
		j := &all[i]
		if j.Pending() {
			to.Pending++
		} else {
			to.Running++
		}
		key := strings.Join([]string{strconv.FormatBool(j.Pending()), j.User, j.Account, j.QoS, strconv.Itoa(j.GPUs), strconv.Itoa(j.CPUs),
			strconv.FormatBool(j.Unread), strconv.Itoa(j.Minutes), strings.Join(j.Partitions, ","), strings.Join(j.Nodes, ",")}, "|")
		n, ok := index[key]
		if !ok {
			n, index[key] = len(to.Groups), len(to.Groups)
			g := plan.JobGroup{
				Pending: j.Pending(), User: j.User, Account: j.Account, QoS: j.QoS, Partitions: j.Partitions, Nodes: j.Nodes,
				GPUs: j.GPUs, CPUs: j.CPUs, Minutes: j.Minutes, Unread: j.Unread,
			}
			if g.Account == membersAccount {
				g.Account = "" // it is no project, and tells users apart from nobody
			}
			to.Groups = append(to.Groups, g)
		}
		g := &to.Groups[n]
		g.Count++
		if len(g.IDs) < plan.MaxJobIDs && !slices.Contains(g.IDs, j.ID) {
			g.IDs = append(g.IDs, j.ID)
		}
	}
	return to
}

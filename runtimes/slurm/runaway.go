package slurm

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
)

// endRunaways ends the jobs in the accounting database that slurmctld lost in a crash.
// slurmdbd refuses to delete their user, as it has them as active. A job is ended by its
// id, and after the crash slurmctld gives the ids of lost jobs away again. So it first
// gets a higher FirstJobId, which the next configure writes, and nothing is ended
// before: no job that runs, or comes meanwhile, is ever meant.
func (c jobRecords) endRunaways(ctx context.Context) error {
	lost, err := c.runaways(ctx)
	if err != nil || len(lost) == 0 {
		return err
	}
	active, err := ask(ctx, c.control, cli.Snapshot())
	if err != nil {
		return err
	}
	config, err := ask(ctx, c.control, cli.ShowConfig())
	if err != nil {
		return err
	}
	if config.NextJob == 0 {
		return fmt.Errorf("host %s: scontrol show config has no NEXT_JOB_ID", c.host.Name())
	}
	if highest := slices.Max(lost); highest >= config.NextJob {
		if c.disk.Files == nil {
			c.disk.Files = c.disk.input()
			c.rec.Files = c.disk.Files
		}
		c.rec.FirstJob, c.disk.FirstJob = highest+1, highest+1
		if err := c.saveDisk(ctx); err != nil {
			return err
		}
		return waiting("slurmctld lost jobs in a crash that accounting has as active; they are ended once it gives no id up to %d to "+
			"another job", highest)
	}
	for _, id := range lost {
		if slices.ContainsFunc(active, func(j cli.QueuedJob) bool { return j.Raw == strconv.Itoa(id) }) {
			return waiting("job %d is active again", id)
		}
	}
	runs, err := ask(ctx, c.control, cli.RunsWithin(lost, time.Unix(earliest, 0), c.env.now().Add(24*time.Hour)))
	if err != nil {
		return err
	}
	if c.tellLost != nil {
		c.tellLost(usersOf(lost, runs))
	}
	// They are marked first: once they are ended, nothing tells them from jobs that completed.
	if marked := newestActive(lost, runs); len(marked) > 0 {
		if _, err := c.runChecked(ctx, c.sacctmgr(profile.LostArgs(c.stack.Cluster, marked...)...)); err != nil {
			return err
		}
	}
	fix := c.sacctmgr(profile.RunawayArgs(c.stack.Cluster, true)...)
	if _, err := c.runChecked(ctx, fix); err != nil {
		return err
	}
	c.log.Warn("jobs that slurmctld lost ended in the accounting database", "cluster", c.stack.Cluster, "jobs", lost)
	return nil
}

// newestActive returns the ids whose newest run has no end. sacctmgr marks the newest record of an id, and slurmctld may have given
// an id to another job since.
func newestActive(ids []int, runs []cli.Run) []int {
	newest := map[int]cli.Run{}
	for _, r := range runs {
		if last, ok := newest[r.ID]; !ok || r.Submitted > last.Submitted {
			newest[r.ID] = r
		}
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id int) bool {
		r, ok := newest[id]
		return !ok || r.Ended != 0
	})
}

// usersOf returns lost jobs with their users.
func usersOf(lost []int, runs []cli.Run) []plan.LostJob {
	jobs := make([]plan.LostJob, len(lost))
	for i, id := range lost {
		jobs[i].ID = id
		for _, r := range runs {
			if r.ID == id {
				jobs[i].User = r.User
			}
		}
	}
	return jobs
}

// endLost ends the jobs that slurmctld lost in a crash, once slurmdbd has heard of all that ended. It waits for nothing: what
// it leaves is ended with the usage, or with the user.
func (c jobRecords) endLost(ctx context.Context) {
	unsent, err := ask(ctx, c.control, cli.Unsent())
	if err == nil && unsent == 0 {
		err = c.endRunaways(ctx)
	}
	if err != nil {
		c.log.Debug("lost jobs not ended", "cluster", c.stack.Cluster, "reason", err.Error())
	}
}

// runaways returns the jobs that accounting has as active and slurmctld does not know.
func (c jobRecords) runaways(ctx context.Context) ([]int, error) {
	list := queryOp(c.control, cli.Runaways(c.stack.Cluster))
	list.Run.Stdin = []byte(profile.RunawayAnswer)
	res, err := c.do(ctx, list)
	if err != nil {
		return nil, err
	}
	return answer(c.site, cli.Runaways(c.stack.Cluster), res[0])
}

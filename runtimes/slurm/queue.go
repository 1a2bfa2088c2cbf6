package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/runtimes"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// jobQueue ends jobs of the cluster.
type jobQueue struct{ *control }

// jobFilter selects jobs; zero: all.
type jobFilter struct {
	options []string // of squeue
	// uids selects by owner; nil: all. squeue does not find jobs by a user name that the directory
	// no longer has.
	uids []int
}

func only(option string) jobFilter { return jobFilter{options: []string{option}} }

// end returns nil once no job that filter selects runs on target. It waits for
// jobs, or cancels them after the time in the unit's on_jobs, counted from the
// recorded time of close.
func (c jobQueue) end(ctx context.Context, target string, filter jobFilter) error {
	return c.endBy(ctx, c.rec.Unit.Effective.OnJobs, target, filter)
}

// endBy is end by another rule; nil: it waits.
func (c jobQueue) endBy(ctx context.Context, rule *schema.OnJobs, target string, filter jobFilter) error {
	running, _, err := c.list(ctx, filter)
	if err != nil {
		return err
	}
	if len(running) == 0 {
		return nil
	}
	if err := c.close(ctx, target); err != nil {
		return err
	}
	// The message has no number of jobs: each change of it is a commit on
	// berth/status.
	if rule == nil || rule.CancelAfterSeconds == 0 {
		return waiting("%s still has running jobs, and Berth waits for their end", target)
	}
	deadline := c.rec.Closing[target].Add(time.Duration(rule.CancelAfterSeconds) * time.Second)
	if c.env.now().Before(deadline) {
		return waiting("%s still has running jobs; they are cancelled at %s", target, deadline.UTC().Format(time.RFC3339))
	}
	if err := c.cancel(ctx, running); err != nil {
		return err
	}
	err = c.env.poll(ctx, "cancel jobs on "+target, func(ctx context.Context) (bool, string, error) {
		running, _, err = c.list(ctx, filter)
		return len(running) == 0, fmt.Sprintf("%d jobs left", len(running)), err
	})
	if err != nil && len(running) > 0 && ctx.Err() == nil {
		return waiting("cancelled jobs on %s have not ended yet", target) // KillWait may be longer
	}
	return err
}

// list lists running and pending jobs.
func (c jobQueue) list(ctx context.Context, filter jobFilter) (running, pending []cli.Queued, err error) {
	jobs, err := ask(ctx, c.control, cli.Queue(filter.options...))
	if err != nil {
		return nil, nil, err
	}
	for _, j := range jobs {
		switch {
		case filter.uids != nil && !slices.Contains(filter.uids, j.UID):
		case j.Pending():
			pending = append(pending, j)
		default:
			running = append(running, j)
		}
	}
	return running, pending, nil
}

// takeFrom takes the pending jobs out of a partition: a job with another partition in stay
// goes there, any other is cancelled. refused is why slurmctld did not move a job.
func (c jobQueue) takeFrom(ctx context.Context, partition string, stay []string) (refused string, err error) {
	_, pending, err := c.list(ctx, only("--partition="+partition))
	if err != nil {
		return "", err
	}
	rest := func(j cli.Queued) []string {
		return slices.DeleteFunc(slices.Clone(j.Partitions), func(p string) bool { return !slices.Contains(stay, p) })
	}
	var moved, cancelled []cli.Queued
	for _, j := range pending {
		if len(rest(j)) == 0 {
			cancelled = append(cancelled, j)
		} else {
			moved = append(moved, j)
		}
	}
	refused, err = c.update(ctx, moved, func(j cli.Queued) string { return "partition=" + strings.Join(rest(j), ",") })
	if err != nil {
		return "", err
	}
	return refused, c.cancel(ctx, cancelled, profile.CancelPending)
}

// update changes pending jobs, and of an array only the tasks that wait. refused is what scontrol printed for the first
// change that slurmctld refused; "": it took all of them.
func (c jobQueue) update(ctx context.Context, pending []cli.Queued, setting func(cli.Queued) string) (refused string, err error) {
	var ops []runtimes.Op
	for _, j := range pending {
		ids := j.Tasks
		if len(ids) == 0 {
			_, each, err := c.list(ctx, jobFilter{options: []string{"--array", "--jobs=" + j.ID}})
			if err != nil {
				return "", err
			}
			ids = jobIDs(each)
		}
		for _, id := range ids {
			ops = append(ops, c.cli("scontrol", "update", "jobid="+id, setting(j)))
		}
	}
	for part := range slices.Chunk(ops, batch) {
		res, err := c.do(ctx, part...)
		if err != nil {
			return "", err
		}
		for i, r := range res {
			if r.Exit != 0 && refused == "" {
				refused = c.exitError(part[i], r).Error()
			}
		}
	}
	return refused, nil
}

// cancelPending cancels the pending jobs that filter selects.
func (c jobQueue) cancelPending(ctx context.Context, filter jobFilter) error {
	_, pending, err := c.list(ctx, filter)
	if err != nil || len(pending) == 0 {
		return err
	}
	return c.cancel(ctx, pending, profile.CancelPending)
}

// cancelNaming cancels the waiting jobs that ask for a node by name. Without its line, slurmctld 22.05 ends them as NODE_FAIL; 24.11
// does so only if it is the last of their nodes, and starts the others on nodes that nobody asked for.
func (c jobQueue) cancelNaming(ctx context.Context, node string) error {
	return c.env.poll(ctx, "cancel jobs that name "+node, func(ctx context.Context) (bool, string, error) {
		all, err := ask(ctx, c.control, cli.Snapshot())
		if op := new(runtimes.OpError); errors.As(err, &op) { // as for a queue that is longer than what a host prints
			c.log.Info("jobs that name a leaving node left to slurmctld", "node", node, "reason", err.Error())
			return true, "", nil
		} else if err != nil {
			return false, "", err
		}
		var ids []string
		for i := range all {
			if j := &all[i]; j.Pending() && slices.Contains(j.Asks.Named, node) {
				leader, _, isPart := strings.Cut(j.ID, "+")
				if !isPart {
					leader = j.Raw
				}
				ids = append(ids, leader)
			}
		}
		slices.Sort(ids)
		for part := range slices.Chunk(slices.Compact(ids), 500) {
			if err := c.doAll(ctx, c.cli("scancel", append([]string{profile.CancelPending}, part...)...)); err != nil {
				return false, "", err
			}
		}
		return len(ids) == 0, fmt.Sprintf("%d jobs left", len(ids)), nil
	})
}

// cancel cancels jobs with as many calls of scancel as their number needs.
func (c jobQueue) cancel(ctx context.Context, jobs []cli.Queued, options ...string) error {
	for ids := range slices.Chunk(jobIDs(jobs), 500) {
		if err := c.doAll(ctx, c.cli("scancel", slices.Concat(options, ids)...)); err != nil {
			return err
		}
	}
	return nil
}

// jobIDs returns the ids of jobs without duplicates: tasks of an array that wait share one.
func jobIDs(jobs []cli.Queued) []string {
	var ids []string
	for _, j := range jobs {
		if !slices.Contains(ids, j.ID) {
			ids = append(ids, j.ID)
		}
	}
	return ids
}

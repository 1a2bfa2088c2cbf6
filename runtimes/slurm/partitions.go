package slurm

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"berth/runtimes"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/cluster"
	"berth/schema"
)

// partitionSet removes partitions from slurmctld.
type partitionSet struct {
	*control
	jobs jobQueue
}

// closeUndeclared removes the partitions that slurmctld has and that are not declared, before
// their lines are removed: without its line, a reconfigure ends each job that was
// submitted to a partition, also one that runs in another partition. A closed partition is
// inactive, as a draining one still starts queued jobs. One whose jobs run is recorded as
// leaving, and waits says so. Nobody knows the line of one that was made by hand, so
// all files wait for its jobs.
func (c partitionSet) closeUndeclared(ctx context.Context) (waits waitList, err error) {
	set, err := cluster.Parse(c.rec.Unit.Effective.Config)
	if err != nil {
		return nil, err
	}
	var lines []cluster.Partition
	applied, unread := c.disk.applied() // if nobody can read the lines that were applied, each is taken for one of them
	if unread == nil {
		lines = applied.Partitions()
	}
	known, err := ask(ctx, c.control, cli.Partitions())
	if err != nil {
		return nil, err
	}
	stay := cluster.PartitionNames(set.Partitions)
	c.rec.Leaving = nil
	for _, p := range known {
		if slices.Contains(stay, p.Name) {
			continue
		}
		i := slices.IndexFunc(lines, func(a cluster.Partition) bool { return a.Name == p.Name })
		rule := c.rec.Unit.Effective.OnJobs
		if i < 0 && unread == nil {
			rule = nil // no plan named the jobs in a partition that a person made: it waits for them
		}
		err := c.closePartition(ctx, p.Name, rule, stay)
		switch {
		case i >= 0 && errors.Is(err, runtimes.ErrWaiting):
			c.rec.Leaving, waits = append(c.rec.Leaving, lines[i]), append(waits, err)
		case err != nil:
			return nil, err
		}
	}
	for target := range c.rec.Closing {
		if p, ok := strings.CutPrefix(target, partitionTarget("")); ok && !slices.Contains(stay, p) && !c.rec.leaves(p) {
			c.rec.reopen(target)
		}
	}
	return waits, nil
}

// closePartition closes a partition, ends its jobs by rule, and deletes it.
func (c partitionSet) closePartition(ctx context.Context, p string, rule *schema.OnJobs, stay []string) error {
	if err := c.close(ctx, partitionTarget(p)); err != nil {
		return err
	}
	if _, err := c.runChecked(ctx, c.cli("scontrol", "update", "partitionname="+p, "state=inactive")); err != nil {
		return err
	}
	if err := c.jobs.endBy(ctx, rule, partitionTarget(p), only("--partition="+p)); err != nil {
		return err
	}
	return c.deletePartition(ctx, p, stay)
}

// deletePartition deletes a closed partition from slurmctld. Pending jobs go to their
// other partitions and are cancelled if they have none: only now, because until then
// the partition may be wanted again.
func (c partitionSet) deletePartition(ctx context.Context, p string, stay []string) error {
	remove := c.cli("scontrol", "delete", "partitionname="+p)
	return c.env.poll(ctx, "delete partition "+p, func(ctx context.Context) (bool, string, error) {
		refused, err := c.jobs.takeFrom(ctx, p, stay)
		if err != nil {
			return false, "", err
		}
		res, err := c.do(ctx, remove, queryOp(c.control, cli.Partitions()))
		if err != nil {
			return false, "", err
		}
		left, err := answer(c.site, cli.Partitions(), res[1])
		gone := err == nil && !slices.ContainsFunc(left, func(known cli.Partition) bool { return known.Name == p })
		return gone, cmp.Or(refused, c.exitError(remove, res[0]).Error()), nil
	})
}

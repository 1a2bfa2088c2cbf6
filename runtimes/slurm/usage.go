package slurm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"berth/runtimes"
	"berth/runtimes/slurm/cli"
	"berth/schema/usage"
)

// recordUsage gives the records of an account's jobs to Berth, before what has them is removed: the
// jobs have ended, and slurmdbd may hear of it a moment later. account "" means every one. A job
// that never ran has used nothing.
func (c associations) recordUsage(ctx context.Context, account string) error {
	if c.keepUsage == nil {
		return nil
	}
	var ended []usage.Job
	began := time.Now()
	err := c.env.poll(ctx, "accounting records at "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
		unsent, err := ask(ctx, c.control, cli.Unsent())
		if err != nil {
			return false, "", err
		}
		var active int
		if unsent > 0 {
			seen := fmt.Sprintf("slurmctld has %d messages that accounting lacks", unsent)
			if time.Since(began) < c.env.timeouts.Ready/2 {
				return false, seen, nil
			}
			return false, seen, waiting("%s", seen)
		}
		if ended, active, err = c.usage(ctx, account); err != nil || active == 0 {
			return err == nil, "", err
		}
		seen := fmt.Sprintf("accounting has job %d as running, which has ended", active)
		if err := c.endRunaways(ctx); err != nil || time.Since(began) < c.env.timeouts.Ready/2 {
			return false, seen, err
		}
		return false, seen, waiting("%s", seen)
	})
	if err != nil || len(ended) == 0 {
		return err
	}
	return c.keepUsage(ctx, ended)
}

// earliest is before all jobs of clusters that Berth made. sacct refuses a time near 1970.
const earliest = 1_577_836_800 // 2020-01-01

// usage returns the runs of an account's jobs, and the id of one that has not ended; 0: all have.
func (c associations) usage(ctx context.Context, account string) (ended []usage.Job, active int, err error) {
	runs, err := c.runs(ctx, account, earliest, time.Now().Add(24*time.Hour).Unix()) // the host's clock may be ahead
	if err != nil {
		return nil, 0, err
	}
	seen := map[usage.Run]bool{} // a run may be in two parts
	for _, r := range runs {
		j := usage.Job{
			Cluster: r.Cluster, JobID: r.ID, Submitted: unixTime(r.Submitted), Started: unixTime(r.Started), Ended: unixTime(r.Ended),
			State: r.State, User: r.User, CPUs: r.CPUs, GPUs: r.GPUs, MemoryMiB: r.MemoryMiB,
		}
		if strings.Contains(r.Account, ".") { // no other account is named as a project
			j.ProjectID = r.Account
		}
		switch {
		case r.Started == 0 || seen[j.Run()]:
		case r.Ended == 0:
			active = r.ID
		default:
			seen[j.Run()] = true
			ended = append(ended, j)
		}
	}
	return ended, active, nil
}

func unixTime(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }

// runs asks sacct for the runs between two times, in parts if they are more than a host prints at
// once.
func (c associations) runs(ctx context.Context, account string, from, to int64) ([]cli.Run, error) {
	q := cli.Runs(account, time.Unix(from, 0), time.Unix(to, 0))
	op := queryOp(c.control, q)
	op.Run.TimeoutMS = int(c.env.timeouts.Ready.Milliseconds())
	res, err := c.do(ctx, op)
	var failed *runtimes.OpError
	if errors.As(err, &failed) && failed.Code == "output" && to-from > 1 {
		first, err := c.runs(ctx, account, from, (from+to)/2)
		if err != nil {
			return nil, err
		}
		second, err := c.runs(ctx, account, (from+to)/2, to)
		return append(first, second...), err
	}
	if err != nil {
		return nil, err
	}
	return answer(c.site, q, res[0])
}

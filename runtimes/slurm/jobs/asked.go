package jobs

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"berth/runtimes"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
	"berth/schema/queue"
)

// asked is a call of a tool, with the query that decodes its answer.
type asked[T any] struct {
	op    runtimes.Op
	query cli.Query[T]
}

// manyJobs asks for jobs, and for their ids alone: with those, a long answer can be asked for in parts.
type manyJobs struct {
	jobs asked[[]cli.Job]
	ids  asked[[]string]
	of   func(filter ...string) manyJobs
}

// queuedJobs asks slurmctld for jobs of the project.
func (c *cluster) queuedJobs(filter ...string) manyJobs {
	filter, separator := c.mine("--account=", filter), newSeparator()
	return manyJobs{
		asked[[]cli.Job]{c.op("squeue", profile.QueueJobsArgs(separator, filter...)...), cli.QueueJobs(separator)},
		asked[[]string]{c.op("squeue", profile.QueueIDsArgs(filter...)...), cli.QueueIDs()},
		c.queuedJobs,
	}
}

// accountedJobs asks slurmdbd for jobs of the project.
func (c *cluster) accountedJobs(filter ...string) manyJobs {
	filter, separator := c.mine("--accounts=", filter), newSeparator()
	return manyJobs{
		asked[[]cli.Job]{c.op("sacct", profile.AccountedJobsArgs(separator, filter...)...), cli.AccountedJobs(separator)},
		asked[[]string]{c.op("sacct", profile.AccountedIDsArgs(filter...)...), cli.AccountedIDs()},
		c.accountedJobs,
	}
}

// queuedFiles asks slurmctld where a job writes, and accountedFiles asks slurmdbd where it wrote.
func (c *cluster) queuedFiles(id string) asked[[]cli.JobFiles] {
	separator := newSeparator()
	return asked[[]cli.JobFiles]{c.op("squeue", profile.QueueFilesArgs(separator, c.mine("--account=", []string{"--jobs=" + id})...)...),
		cli.QueueFiles(separator)}
}

func (c *cluster) accountedFiles(id string) asked[[]cli.JobFiles] {
	separator := newSeparator()
	return asked[[]cli.JobFiles]{c.op("sacct",
		profile.AccountedFilesArgs(separator, c.mine("--accounts=", []string{"--jobs=" + id})...)...), cli.AccountedFiles(separator)}
}

// mine adds the filter for the jobs of the project.
func (c *cluster) mine(option string, filter []string) []string {
	if c.filter == "" {
		return filter
	}
	return append(slices.Clone(filter), option+c.filter)
}

// newSeparator returns text that no user can guess.
func newSeparator() string { return "s" + strings.ToLower(rand.Text()[:10]) }

// decode decodes the answer to a query.
func decode[T any](c *cluster, a asked[T], res runtimes.Result) (T, error) {
	answer, err := a.query.Decode(cli.Answer{Exit: res.Exit, Stdout: res.Data, Stderr: res.Stderr})
	if err != nil {
		err = fmt.Errorf("%w: %s", queue.ErrUnavailable, c.withoutHosts(err.Error()))
	}
	return answer, err
}

// answer decodes jobs. Those of other projects are left out.
func (c *cluster) answer(a asked[[]cli.Job], res runtimes.Result) ([]cli.Job, error) {
	jobs, err := decode(c, a, res)
	return slices.DeleteFunc(jobs, func(j cli.Job) bool { return c.filter != "" && j.Account != c.filter }), err
}

// jobs returns the jobs that a query asks for. An operation that comes first is in the same batch, so that the ledger of the
// host records the fault of either. If the answer is longer than berth-host takes, the jobs are asked for in parts: at slurmctld,
// from some 12,000 jobs on.
func (c *cluster) jobs(ctx context.Context, ask manyJobs, first ...runtimes.Op) (jobs []cli.Job, done runtimes.Result, err error) {
	res, err := c.do(ctx, c.host, append(first, ask.jobs.op)...)
	if len(first) > 0 && len(res) > 0 {
		done = res[0]
	}
	switch {
	case runtimes.IsTooLong(err) && len(res) == len(first):
		jobs, err = c.inParts(ctx, ask)
	case err == nil:
		jobs, err = c.answer(ask.jobs, res[len(first)])
	}
	return jobs, done, err
}

// partOf is the number of jobs that are asked for together.
const partOf = 2000

func (c *cluster) inParts(ctx context.Context, ask manyJobs) (all []cli.Job, err error) {
	res, err := c.do(ctx, c.host, ask.ids.op)
	if err != nil {
		return nil, err
	}
	ids, err := decode(c, ask.ids, res[0])
	if err != nil {
		return nil, err
	}
	known := map[string]bool{} // the number of an array names its tasks as well
	for part := range slices.Chunk(ids, partOf) {
		jobs, err := c.part(ctx, ask, part)
		if err != nil {
			return nil, err
		}
		for _, j := range jobs {
			run := fmt.Sprint(j.ID, j.State, j.JobTimes)
			if !known[run] {
				all = append(all, j)
			}
			known[run] = true
		}
	}
	return all, nil
}

// part asks for some jobs, and for halves of them while the answer is too long. A single job whose answer is too long is left
// out: slurmdbd has a line of millions of characters of its submission, so it is not Berth's.
func (c *cluster) part(ctx context.Context, ask manyJobs, ids []string) ([]cli.Job, error) {
	one := ask.of("--jobs=" + strings.Join(ids, ","))
	res, err := c.do(ctx, c.host, one.jobs.op)
	switch {
	case runtimes.IsTooLong(err) && len(ids) == 1:
		return nil, nil
	case runtimes.IsTooLong(err):
		half := len(ids) / 2
		left, err := c.part(ctx, ask, ids[:half])
		if err != nil {
			return nil, err
		}
		right, err := c.part(ctx, ask, ids[half:])
		return append(left, right...), err
	case err != nil:
		return nil, err
	}
	return c.answer(one.jobs, res[0])
}

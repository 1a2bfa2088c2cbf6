// Package jobs submits, reads and cancels jobs of a cluster for the people of a project. It keeps
// nothing: a job's project is its account, and its idempotency key is in the path of its script, which Slurm keeps.
//
// It must not know permissions, which the caller checks, and must not change the cluster.
package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
	"berth/schema"
	"berth/schema/queue"
)

// Options are the dependencies of a Queue. All are needed.
type Options struct {
	Hosts   runtimes.Hosts
	Cluster func(schema.Key) string // name of the cluster of a unit
	Account func(*plan.Unit) string // of the jobs of a unit without attachments
	Timeout time.Duration           // of one program
	// KeepsEnded returns how long slurmctld of a unit has ended jobs.
	KeepsEnded func(*plan.Unit) time.Duration
	Now        func() time.Time
}

// Queue implements all of runtimes.Queue except Nodes. It is safe for concurrent use.
type Queue struct {
	o     Options
	mu    sync.Mutex
	under map[string]chan struct{} // submissions by user and key: closed when the call ends
}

// New returns a Queue.
func New(o Options) *Queue { return &Queue{o: o, under: map[string]chan struct{}{}} }

// durableAfter is how long slurmctld may lose a job that it accepted. It writes its state every 5 s.
const durableAfter = 10 * time.Second

// cluster is the controller of a unit, for one call.
type cluster struct {
	runtimes.QueueScope
	o     Options
	host  runtimes.Host
	stack profile.Stack
	// account is that of the project; filter is "" where all jobs of the unit are asked for.
	account, filter string
}

func (q *Queue) cluster(at runtimes.QueueScope) (*cluster, error) {
	member, ok := at.Unit.Control()
	if !ok {
		return nil, fmt.Errorf("%w: the unit has no control plane yet", queue.ErrUnavailable)
	}
	c := &cluster{QueueScope: at, o: q.o, host: q.o.Hosts.Host(member), stack: profile.Stack{Cluster: q.o.Cluster(at.Unit.Effective.Key)},
		account: q.o.Account(at.Unit)}
	if isShared(at.Unit) {
		c.account, c.filter = at.ProjectID, at.ProjectID
	}
	return c, nil
}

// isShared reports whether jobs of several projects run on a unit. The account of each is the id of its project.
func isShared(u *plan.Unit) bool {
	return u.Effective.Key.Kind == schema.KindSharedRuntime || len(u.Effective.Attachments) > 0
}

// projectOf returns the project of a job, by its account where several projects have jobs.
func (c *cluster) projectOf(j *cli.Job) string {
	if isShared(c.Unit) {
		return j.Account
	}
	return c.Unit.Effective.Key.ProjectID()
}

// op returns a call of one of Slurm's tools. Its exit status is a result.
func (c *cluster) op(program string, args ...string) runtimes.Op {
	run := &runtimes.Run{Program: program, Args: args, Env: map[string]string{"SLURM_CONF": c.stack.Conf()},
		TimeoutMS: int(c.o.Timeout.Milliseconds()), AllowExit: true}
	if program == "squeue" || program == "sacct" {
		run.Env["SLURM_TIME_FORMAT"] = "%s"
	}
	return runtimes.Op{Run: run}
}

// do sends operations to a host. Its error is a class of package queue, unless the host has another leader.
func (c *cluster) do(ctx context.Context, host runtimes.Host, ops ...runtimes.Op) ([]runtimes.Result, error) {
	res, err := host.Do(ctx, c.Stamp, ops...)
	if err != nil && !errors.Is(err, runtimes.ErrStaleEpoch) {
		err = fmt.Errorf("%w: %w", queue.ErrUnavailable, err)
	}
	return res, err
}

// Jobs implements runtimes.Queue. Without a project the scope has no filter.
func (q *Queue) Jobs(ctx context.Context, u *plan.Unit, s runtimes.Stamp) ([]queue.Job, error) {
	c, err := q.cluster(runtimes.QueueScope{Unit: u, Stamp: s})
	if err != nil {
		return nil, err
	}
	jobs, _, err := c.jobs(ctx, c.queuedJobs())
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(jobs, func(a, b cli.Job) int { return cmp.Compare(number(a.Raw), number(b.Raw)) })
	all := make([]queue.Job, 0, len(jobs))
	for i := range jobs {
		all = append(all, c.job(&jobs[i]))
	}
	return all, nil
}

// number is the number that Slurm gave a job or a task; tasks that wait have that of their array.
func number(raw string) int {
	n, _ := strconv.Atoi(raw)
	return n
}

// Job implements runtimes.Queue.
func (q *Queue) Job(ctx context.Context, at runtimes.QueueScope, ref queue.Ref) (queue.Job, error) {
	c, j, err := q.find(ctx, at, ref)
	if err != nil {
		return queue.Job{}, err
	}
	return c.job(j), nil
}

// job returns a job in the words of package queue. Nodes are members: their names are the platform's.
func (c *cluster) job(j *cli.Job) queue.Job {
	out := queue.Job{
		JobID: id(j.ID), Submitted: unix(j.Submitted), ProjectID: c.projectOf(j), User: j.User,
		Name: j.Name, Queue: j.Partition, State: j.State, Reason: reason(j),
		Run: queue.Run{Started: unix(j.Started), Ended: unix(j.Ended), CPUs: j.CPUs, GPUs: j.GPUs, MemoryMiB: j.MemoryMiB,
			Minutes: j.Minutes},
	}
	if j.HasEnded() {
		out.ExitCode = j.Exit
	}
	for _, m := range c.Unit.Members {
		if slices.Contains(j.Nodes, m.Node) {
			out.Members = append(out.Members, m.Name)
		}
	}
	if script, ok := c.script(j); ok && j.State != cli.Lost {
		out.IdempotencyKey, out.Durability = script.Key, queue.Durable
		if !j.HasEnded() && c.o.Now().Sub(out.Submitted) < durableAfter {
			out.Durability = queue.Accepted
		}
	}
	return out
}

// reason is why a job waits, without the names of nodes that squeue lists behind it.
func reason(j *cli.Job) string {
	text, _, _ := strings.Cut(j.Reason, ", UnavailableNodes:")
	if len(j.Unread) > 0 {
		text = strings.TrimPrefix(text+"; not known: "+strings.Join(j.Unread, ", "), "; ")
	}
	return text
}

func unix(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}

// Cancel implements runtimes.Queue. The jobs that find reads are of the project. scancel compares the owner and the
// account again, other than for a task of an array (profile.CancelArgs).
func (q *Queue) Cancel(ctx context.Context, at runtimes.QueueScope, ref queue.Ref) (queue.Job, error) {
	c, j, err := q.find(ctx, at, ref)
	if err == nil && called(ref.JobID) != ref.JobID {
		err = fmt.Errorf("%w: job %s is a part of job %s: cancel that", queue.ErrDenied, ref.JobID, called(ref.JobID))
	}
	if err != nil {
		return queue.Job{}, err
	}
	if j.HasEnded() || j.State == cli.Lost {
		return c.job(j), nil
	}
	res, err := c.do(ctx, c.host, c.op("scancel", profile.CancelArgs(ref.JobID, j.User, c.filter)...))
	if err != nil {
		return queue.Job{}, err
	}
	if after, err := c.find(ctx, queue.Ref{JobID: ref.JobID, Submitted: unix(j.Submitted)}); err == nil &&
		(after.HasEnded() || after.State == "COMPLETING") {
		return c.job(after), nil
	}
	if res[0].Exit != 0 {
		return queue.Job{}, fmt.Errorf("%w: scancel %s: %s", queue.ErrUnavailable, ref.JobID, message(res[0]))
	}
	j.State = "COMPLETING" // scancel was accepted; the job ends within KillWait
	return c.job(j), nil
}

// message is the output of a failed program as one line without its prefixes.
func message(res runtimes.Result) string {
	text := strings.TrimSpace(cmp.Or(string(res.Stderr), string(res.Data)))
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		for _, prefix := range []string{"sbatch: ", "scancel: ", "error: ", "Batch job submission failed: "} {
			line = strings.TrimPrefix(line, prefix)
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
	text = strings.Join(lines, "; ")
	return text[:min(len(text), 400)]
}

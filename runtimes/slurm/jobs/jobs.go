// Package jobs submits, reads and cancels jobs of a cluster for the people of a project. It keeps
// nothing: a job's project is its account, and its idempotency key is in its comment at Slurm.
//
// It must not know permissions, which the caller checks, and must not change the cluster.
package jobs

import (
	"cmp"
	"context"
	"crypto/rand"
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

// Options say what a Queue works with. All are needed.
type Options struct {
	Hosts   runtimes.Hosts
	Cluster func(schema.Key) string // name of the cluster of a unit
	Account string                  // of the jobs of a unit without attachments
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
	// account is that of the project; filter is "" where all jobs of the unit are the project's.
	account, filter string
}

func (q *Queue) cluster(at runtimes.QueueScope) (*cluster, error) {
	member, ok := at.Unit.Control()
	if !ok {
		return nil, fmt.Errorf("%w: the unit has no control plane yet", queue.ErrUnavailable)
	}
	c := &cluster{QueueScope: at, o: q.o, host: q.o.Hosts.Host(member), stack: profile.Stack{Cluster: q.o.Cluster(at.Unit.Effective.Key)}, account: q.o.Account}
	if u := at.Unit.Effective; u.Key.Kind == schema.KindSharedRuntime || len(u.Attachments) > 0 {
		c.account, c.filter = at.ProjectID, at.ProjectID
	}
	return c, nil
}

// op returns a call of one of Slurm's tools. Its exit status is a result.
func (c *cluster) op(program string, args ...string) runtimes.Op {
	run := &runtimes.Run{Program: program, Args: args, Env: map[string]string{"SLURM_CONF": c.stack.Conf()}, TimeoutMS: int(c.o.Timeout.Milliseconds()), AllowExit: true}
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

// asked is a query with its separator.
type asked struct {
	op    runtimes.Op
	query cli.Query[[]cli.Job]
}

// queued asks slurmctld for jobs of the project.
func (c *cluster) queued(filter ...string) asked {
	separator := newSeparator()
	if c.filter != "" {
		filter = append(filter, "--account="+c.filter)
	}
	return asked{c.op("squeue", profile.QueueJobsArgs(separator, filter...)...), cli.QueueJobs(separator)}
}

// accounted asks slurmdbd for jobs of the project.
func (c *cluster) accounted(filter ...string) asked {
	separator := newSeparator()
	if c.filter != "" {
		filter = append(filter, "--accounts="+c.filter)
	}
	return asked{c.op("sacct", profile.AccountedJobsArgs(separator, filter...)...), cli.AccountedJobs(separator)}
}

// newSeparator returns text that no user can guess.
func newSeparator() string { return "s" + strings.ToLower(rand.Text()[:10]) }

// answer decodes the answer to a query. Jobs of other projects are left out.
func (c *cluster) answer(a asked, res runtimes.Result) ([]cli.Job, error) {
	jobs, err := a.query.Decode(cli.Answer{Exit: res.Exit, Stdout: res.Data, Stderr: res.Stderr})
	if err != nil {
		return nil, fmt.Errorf("%w: %s", queue.ErrUnavailable, c.withoutHosts(err.Error()))
	}
	return slices.DeleteFunc(jobs, func(j cli.Job) bool { return c.filter != "" && j.Account != c.filter }), nil
}

// Jobs implements runtimes.Queue.
func (q *Queue) Jobs(ctx context.Context, at runtimes.QueueScope) ([]queue.Job, error) {
	c, err := q.cluster(at)
	if err != nil {
		return nil, err
	}
	ask := c.queued()
	res, err := c.do(ctx, c.host, ask.op)
	if err != nil {
		return nil, err
	}
	jobs, err := c.answer(ask, res[0])
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

// find returns a job of the project with its cluster.
func (q *Queue) find(ctx context.Context, at runtimes.QueueScope, ref queue.Ref) (*cluster, *cli.Job, error) {
	c, err := q.cluster(at)
	if err != nil {
		return nil, nil, err
	}
	j, err := c.find(ctx, ref)
	return c, j, err
}

// lost is the state of a job that slurmctld accepted and does not have any more.
const lost = "LOST"

// find returns a job of the project: from slurmctld, else from slurmdbd. A job that slurmdbd has and
// that has not ended was lost by slurmctld in a crash, unless a call a moment later finds it.
func (c *cluster) find(ctx context.Context, ref queue.Ref) (*cli.Job, error) {
	if err := ref.Check(); err != nil {
		return nil, err
	}
	live, past := c.queued("--jobs="+ref.JobID), c.accounted("--jobs="+ref.JobID)
	res, err := c.do(ctx, c.host, live.op, past.op)
	if err != nil {
		return nil, err
	}
	jobs, err := c.answer(live, res[0])
	if err != nil {
		return nil, err
	}
	if j := pick(jobs, ref); j != nil {
		return j, nil
	}
	if jobs, err = c.answer(past, res[1]); err != nil {
		return nil, err
	}
	j := pick(jobs, ref)
	if j == nil {
		return nil, fmt.Errorf("%w: job %s", queue.ErrNotFound, ref.JobID)
	}
	if !j.HasEnded() {
		if err := c.confirmLost(ctx, j); err != nil {
			return nil, err
		}
		j.State, j.Reason, j.Nodes = lost, "slurmctld accepted the job and lost it in a crash; submit it again", nil
	}
	return j, nil
}

// confirmLost returns nil if slurmctld lost a job that it does not have and that has not ended in the
// accounting. While the accounting lacks messages of slurmctld, the job may have ended long ago.
func (c *cluster) confirmLost(ctx context.Context, j *cli.Job) error {
	ask := cli.Unsent()
	res, err := c.do(ctx, c.host, c.op(ask.Program, ask.Args...))
	if err != nil {
		return err
	}
	unsent, err := ask.Decode(cli.Answer{Exit: res[0].Exit, Stdout: res[0].Data, Stderr: res[0].Stderr})
	if err == nil && unsent > 0 {
		err = fmt.Errorf("the accounting has job %s as %s and lacks %d messages", j.ID, j.State, unsent)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", queue.ErrUnavailable, err)
	}
	return nil
}

// pick returns the last job of ref: the job of its id, else the array or a task of it that has not ended, else
// the first of them. A task that waits is in the entry of its array.
func pick(jobs []cli.Job, ref queue.Ref) *cli.Job {
	var found *cli.Job
	array, _, _ := strings.Cut(ref.JobID, "_")
	for i := range jobs {
		j := &jobs[i]
		named := j.ID == ref.JobID || whole(j.ID) == ref.JobID || whole(j.ID) == array && id(j.ID) == array
		if !named || !ref.Submitted.IsZero() && j.Submitted != ref.Submitted.Unix() {
			continue
		}
		if found == nil || found.HasEnded() && !j.HasEnded() || found.HasEnded() == j.HasEnded() && j.Submitted > found.Submitted {
			found = j
		}
	}
	return found
}

// whole returns the id of the job to which a task of an array or a part of a heterogeneous job belongs.
func whole(printed string) string {
	if i := strings.IndexAny(printed, "_+"); i >= 0 {
		return printed[:i]
	}
	return printed
}

// id returns the id by which a job is called: squeue prints tasks that wait as 12_[1-9], and parts of a
// heterogeneous job as 12+0.
func id(printed string) string {
	if strings.ContainsAny(printed, "[+") {
		return whole(printed)
	}
	return printed
}

// job returns a job in the words of package queue. Nodes are members: their names are the platform's.
func (c *cluster) job(j *cli.Job) queue.Job {
	out := queue.Job{
		JobID: id(j.ID), Submitted: unix(j.Submitted), ProjectID: c.ProjectID, User: j.User, Name: j.Name, Queue: j.Partition, State: j.State, Reason: reason(j),
		Run: queue.Run{Started: unix(j.Started), Ended: unix(j.Ended), CPUs: j.CPUs, GPUs: j.GPUs, MemoryMiB: j.MemoryMiB, Minutes: j.Minutes},
	}
	if j.HasEnded() {
		out.ExitCode = j.Exit
	}
	for _, m := range c.Unit.Members {
		if slices.Contains(j.Nodes, m.Node) {
			out.Members = append(out.Members, m.Name)
		}
	}
	if key, _, ok := parseMark(j.Comment); ok && j.State != lost {
		out.IdempotencyKey, out.Durability = key, queue.Durable
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
	if err != nil {
		return queue.Job{}, err
	}
	if j.HasEnded() || j.State == lost {
		return c.job(j), nil
	}
	res, err := c.do(ctx, c.host, c.op("scancel", profile.CancelArgs(ref.JobID, j.User, c.filter)...))
	if err != nil {
		return queue.Job{}, err
	}
	if after, err := c.find(ctx, queue.Ref{JobID: ref.JobID, Submitted: unix(j.Submitted)}); err == nil && (after.HasEnded() || after.State == "COMPLETING") {
		return c.job(after), nil
	}
	if res[0].Exit != 0 {
		return queue.Job{}, fmt.Errorf("%w: scancel %s: %s", queue.ErrUnavailable, ref.JobID, message(res[0]))
	}
	j.State = "COMPLETING" // scancel was accepted; the job ends within KillWait
	return c.job(j), nil
}

// Output implements runtimes.Queue. It reads the file on the job's first node, if it is a regular file.
func (q *Queue) Output(ctx context.Context, at runtimes.QueueScope, ref queue.Ref, limit int) (queue.Output, error) {
	c, j, err := q.find(ctx, at, ref)
	if err != nil {
		return queue.Output{}, err
	}
	i := slices.IndexFunc(c.Unit.Effective.Users, func(u schema.UnixUser) bool { return u.Name == j.User })
	k := slices.IndexFunc(c.Unit.Members, func(m plan.Member) bool { return len(j.Nodes) > 0 && m.Node == j.Nodes[0] && !m.ControlPlane })
	switch {
	case len(j.Nodes) == 0 && slices.Contains(j.Unread, "nodes"):
		return queue.Output{}, fmt.Errorf("%w: the nodes of job %s are not known", queue.ErrUnavailable, j.ID)
	case len(j.Nodes) == 0:
		return queue.Output{}, nil // it waits
	case i < 0:
		return queue.Output{}, fmt.Errorf("%w: %s, who submitted the job, is not a user of the unit any more", queue.ErrDenied, j.User)
	case k < 0:
		return queue.Output{}, fmt.Errorf("%w: the node of the job left the unit", queue.ErrUnavailable)
	}
	path, ok := outputPath(j)
	if !ok {
		return queue.Output{}, fmt.Errorf("%w: the accounting does not have where job %s wrote its output", queue.ErrUnavailable, j.ID)
	}
	user, member := c.Unit.Effective.Users[i], c.Unit.Members[k]
	as := func(program string, args ...string) ([]byte, error) {
		op := runtimes.Op{Run: &runtimes.Run{
			Program: program, Args: args, As: &runtimes.Person{Name: user.Name, UID: user.UID}, TimeoutMS: int(c.o.Timeout.Milliseconds()), AllowExit: true,
		}}
		res, err := c.do(ctx, c.o.Hosts.Host(member), op)
		if err == nil && res[0].Exit != 0 {
			err = fmt.Errorf("%w: the output of job %s on %s: %s", queue.ErrUnavailable, j.ID, member.Name, c.withoutHosts(message(res[0])))
		}
		if err != nil {
			return nil, err
		}
		return res[0].Data, nil
	}
	text, err := as("find", profile.SizeArgs(path, user.UID)...)
	if err != nil {
		return queue.Output{}, err
	}
	size, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return queue.Output{}, fmt.Errorf("%w: the output of job %s on %s is not a regular file of %s", queue.ErrUnavailable, j.ID, member.Name, user.Name)
	}
	skip := max(0, size-int64(limit))
	text, err = as("dd", profile.ReadArgs(path, skip, int64(limit))...)
	return queue.Output{Text: text, Truncated: skip > 0}, err
}

// outputPath expands the patterns of sbatch(1) in the path of a job's output. The accounting does not have the
// path; it is known for jobs that Berth submitted, to which it gave one.
func outputPath(j *cli.Job) (path string, ok bool) {
	whole, task, _ := strings.Cut(j.ID, "_")
	if _, _, isOurs := parseMark(j.Comment); j.Output == "" && !isOurs {
		return "", false
	}
	path = cmp.Or(j.Output, outputName("%j"))
	path = strings.NewReplacer("%%", "%", "%j", j.Raw, "%A", whole, "%a", task, "%x", j.Name, "%u", j.User).Replace(path)
	if strings.HasPrefix(path, "/") {
		return path, true
	}
	return j.WorkDir + "/" + path, true
}

// outputName is the file that sbatch writes without an option, in the job's directory.
func outputName(id string) string { return "slurm-" + id + ".out" }

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

package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/runtimes"
	"berth/runtimes/slurm/boundary"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
	"berth/schema"
	"berth/schema/queue"
)

// remembered is how long an ended job is found by its idempotency key.
const remembered = 24 * time.Hour

// Submit implements runtimes.Queue. A submission without an answer is looked up before it is sent
// again, at most boundary.MaxRetries times here.
func (q *Queue) Submit(ctx context.Context, at runtimes.QueueScope, s queue.Submission) (queue.Job, error) {
	if err := errors.Join(queue.CheckKey(s.IdempotencyKey), s.Check(), directivesOf(s.Script).check(s.Request)); err != nil {
		return queue.Job{}, err
	}
	c, err := q.cluster(at)
	if err != nil {
		return queue.Job{}, err
	}
	resolved, err := c.resolve(ctx, at.Map, s.Queue)
	if err != nil {
		return queue.Job{}, err
	}
	args, err := c.arguments(s, resolved)
	if err != nil {
		return queue.Job{}, err
	}
	done, err := q.alone(ctx, c.stack.Cluster+" "+s.User.Name+" "+s.IdempotencyKey)
	if err != nil {
		return queue.Job{}, err
	}
	defer done()
	for try := 0; ; try++ {
		job, err := c.submit(ctx, s, args, resolved.Mapping != nil)
		if err == nil {
			if resolved.Mapping == nil || resolved.Mapping.Partition == job.Queue {
				job.Resolution = &resolved
			}
			return job, nil
		}
		if !errors.Is(err, queue.ErrUnavailable) || try == boundary.MaxRetries {
			return queue.Job{}, err
		}
		select {
		case <-ctx.Done():
			return queue.Job{}, err
		case <-time.After(100 * time.Millisecond << try):
		}
	}
}

// resolve returns the mapping of a queue, once the cluster fulfils the preconditions of its mode.
func (c *cluster) resolve(ctx context.Context, m *schema.QueueMap, name string) (queue.Resolution, error) {
	mode := boundary.ModeOf(m)
	var partitions []cli.Partition
	if mode == boundary.RealPolicy {
		evidence, known, err := c.preconditions(ctx)
		if err == nil {
			err = boundary.Ready(evidence)
		}
		if err != nil {
			return queue.Resolution{}, err
		}
		partitions = known
	}
	return boundary.Resolve(mode, m, name, func(m queue.Mapping) error { return confirm(partitions, m) })
}

// alone waits until no other call submits under name.
func (q *Queue) alone(ctx context.Context, name string) (done func(), err error) {
	for {
		q.mu.Lock()
		other := q.under[name]
		if other == nil {
			mine := make(chan struct{})
			q.under[name] = mine
			q.mu.Unlock()
			return func() {
				q.mu.Lock()
				defer q.mu.Unlock()
				delete(q.under, name)
				close(mine)
			}, nil
		}
		q.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: another call with this idempotency key is not done", queue.ErrUnavailable)
		}
	}
}

// arguments returns those of sbatch.
func (c *cluster) arguments(s queue.Submission, r queue.Resolution) ([]string, error) {
	minutes, err := boundary.Minutes(r, s.Minutes)
	if err != nil {
		return nil, err
	}
	partition, account, qos := r.ResolvedQueue, c.account, ""
	if m := r.Mapping; m != nil {
		partition, qos = m.Partition, m.QOS
		if c.filter != "" && m.Account != "" && !strings.EqualFold(m.Account, c.account) {
			return nil, fmt.Errorf("%w: queue %s is of the account %s, and the project's is %s; the platform corrects the QueueMap",
				queue.ErrConfiguration, m.Queue, m.Account, c.account)
		}
		if m.Account != "" {
			account = m.Account
		}
	}
	args, err := c.places(s)
	if err != nil {
		return nil, err
	}
	args = append(args, "--account="+account)
	for _, option := range []struct{ name, value string }{{"job-name", s.Name}, {"partition", partition}, {"qos", qos}} {
		if option.value != "" {
			args = append(args, "--"+option.name+"="+option.value)
		}
	}
	for _, option := range []struct {
		name string
		n    int
		unit string
	}{{"time", minutes, ""}, {"nodes", s.Nodes, ""}, {"ntasks", s.Tasks, ""}, {"cpus-per-task", s.CPUsPerTask, ""},
		{"mem", s.MemoryMiB, "M"}} {
		if option.n > 0 {
			args = append(args, "--"+option.name+"="+strconv.Itoa(option.n)+option.unit)
		}
	}
	if s.GPUs > 0 {
		args = append(args, "--gres=gpu:"+strconv.Itoa(s.GPUs))
	}
	return profile.SubmitArgs(args...), nil
}

// directory is where a person submits. It is a variable of the job, as with sbatch.
func (c *cluster) directory(s queue.Submission) string {
	if s.WorkDir != "" {
		return s.WorkDir
	}
	return c.stack.JobsOf(s.User.Name, s.User.UID) // accounts that Berth makes have no home directory
}

// places returns the options that make a job run and write where sbatch does, called in the directory of the person. What the
// script says holds unless the request says otherwise. sbatch completes a relative directory with the directory that it runs in,
// which is another one here. The output is always an option of the command, as slurmdbd keeps those and not the script's.
func (c *cluster) places(s queue.Submission) ([]string, error) {
	var args []string
	own := directivesOf(s.Script).firstPart()
	dir, line := own.get("chdir", 'D')
	switch {
	case line == 0 || s.WorkDir != "":
		dir = c.directory(s)
		args = append(args, "--chdir="+dir)
	case !strings.HasPrefix(dir, "/"):
		whole := path.Join(c.directory(s), dir)
		option := "--chdir=" + whole
		if !profile.IsSubmitOption(option) || strings.HasPrefix(path.Clean(dir), "..") {
			return nil, fmt.Errorf("%w: line %d of the script names the directory %q: name the whole path", queue.ErrDenied, line, dir)
		}
		args, dir = append(args, option), whole
	}
	output, line := own.get("output", 'o')
	if line == 0 {
		output = outputName("%j")
		if _, line := own.get("array", 'a'); line > 0 {
			output = outputName("%A_%a")
		}
	}
	if strings.HasPrefix(path.Clean(output), "../") {
		output = path.Join(dir, output) // berth-host takes no option with ..
	}
	if option := "--output=" + output; profile.IsSubmitOption(option) {
		args = append(args, option)
	}
	// With NONE, sbatch also drops the directory of the submission. ALL adds nothing else: sbatch has no environment here.
	if export, _ := own.get("export", 0); strings.EqualFold(export, "NONE") || strings.EqualFold(export, "NIL") {
		args = append(args, profile.ExportAll)
	}
	return args, nil
}

// submit submits a job unless Slurm has one with its key. The first request makes a directory that
// exists: as an effect it waits until an earlier leader's sbatch on this host has ended. mapped: the names in args
// are those of a QueueMap.
func (c *cluster) submit(ctx context.Context, s queue.Submission, args []string, mapped bool) (queue.Job, error) {
	user := "--user=" + s.User.Name
	fence := runtimes.Op{Dir: &runtimes.MakeDir{Path: profile.EtcDir, Mode: 0o755}}
	live, _, err := c.jobs(ctx, c.queuedJobs(user), fence)
	if err != nil {
		return queue.Job{}, err
	}
	j := c.earlier(s, live, anyJob)
	if j == nil {
		if j, err = c.accounted(ctx, s, user); err != nil {
			return queue.Job{}, err
		}
	}
	if j != nil {
		return c.same(j, s)
	}
	live, res, err := c.jobs(ctx, c.queuedJobs(user), c.sbatch(s, args))
	if err != nil {
		return queue.Job{}, err
	}
	// A job that slurmctld has was submitted, whatever the status of sbatch, unless it is one that isRefused.
	if res.Exit != 0 {
		if j := c.earlier(s, live, anyJob); j != nil {
			return c.same(j, s)
		}
		return queue.Job{}, refusal(c.withoutHosts(message(res)), mapped)
	}
	// Options of a script make sbatch print no id (--quiet), or submit no job and succeed (--test-only).
	printed, _, _ := strings.Cut(strings.TrimSpace(string(res.Data)), ";")
	_, noID := strconv.Atoi(printed)
	j = c.earlier(s, live, func(j cli.Job) bool { return noID != nil || whole(j.ID) == printed })
	switch text := message(res); {
	case j == nil && testOnly.MatchString(text):
		return queue.Job{}, fmt.Errorf("%w: sbatch submitted no job: %s", queue.ErrDenied, c.withoutHosts(text))
	case j == nil && printed == "":
		return queue.Job{}, fmt.Errorf("%w: sbatch printed no id, and slurmctld has no job of this key", queue.ErrUnavailable)
	case j == nil:
		return queue.Job{}, fmt.Errorf("%w: sbatch answered job %s, and slurmctld does not have it", queue.ErrUnavailable, printed)
	}
	return c.same(j, s)
}

// accounted returns the job with the key of s that ended and that slurmctld has no longer; nil: none.
func (c *cluster) accounted(ctx context.Context, s queue.Submission, user string) (*cli.Job, error) {
	// sacct of 22.05 takes 90 ms. A job of a newer key is in slurmctld, also if it has ended.
	if queue.MadeWithin(s.IdempotencyKey, c.o.Now(), c.o.KeepsEnded(c.Unit)*3/4) {
		return nil, nil
	}
	past, _, err := c.jobs(ctx, c.accountedJobs(user, fmt.Sprintf("--starttime=uts%d", c.o.Now().Add(-remembered).Unix())))
	if err != nil {
		return nil, err
	}
	if j := c.earlier(s, past, func(j cli.Job) bool { return j.HasEnded() }); j != nil {
		return j, nil
	}
	// slurmctld has each job that has not ended, unless it lost the job.
	if j := c.earlier(s, past, anyJob); j != nil {
		return nil, c.confirmLost(ctx, j)
	}
	return nil, nil
}

func anyJob(cli.Job) bool { return true }

// testOnly is what sbatch prints with --test-only, and begins the sentence with its own name.
var testOnly = regexp.MustCompile(`Job [0-9]+ to start at`)

// sbatch returns the call that submits a job as its owner.
func (c *cluster) sbatch(s queue.Submission, args []string) runtimes.Op {
	op := c.op("sbatch", args...)
	op.Run.Stdin, op.Run.As = []byte(s.Script), &runtimes.Person{Name: s.User.Name, UID: s.User.UID}
	file := cmp.Or(s.ScriptName, "sbatch") // as sbatch calls a script on its input
	op.Run.Script = profile.Script{Cluster: c.stack.Cluster, UID: s.User.UID, Key: s.IdempotencyKey, Digest: s.Digest(), Name: file}.Path()
	op.Run.Export = map[string]string{profile.SubmitDirectory: c.directory(s)}
	inScript, _ := directivesOf(s.Script).firstPart().get("job-name", 'J')
	if name := cmp.Or(s.Name, inScript, file); profile.IsJobName(name) {
		op.Run.Export[profile.SubmitName] = name
	}
	return op
}

// earlier returns the job with the key of s, or nil.
func (c *cluster) earlier(s queue.Submission, jobs []cli.Job, counts func(cli.Job) bool) *cli.Job {
	i := slices.IndexFunc(jobs, func(j cli.Job) bool {
		script, ok := c.script(&j)
		return ok && script.Key == s.IdempotencyKey && script.UID == s.User.UID && j.User == s.User.Name && counts(j) && !isRefused(j)
	})
	if i < 0 {
		return nil
	}
	return &jobs[i]
}

// script returns the script of a job that Berth submitted to this cluster.
func (c *cluster) script(j *cli.Job) (profile.Script, bool) {
	s, ok := profile.ScriptOf(j.Command)
	return s, ok && s.Cluster == c.stack.Cluster
}

// isRefused reports whether slurmctld refused a job and kept it as one that failed and never had a node: nothing in the
// cluster, or in its partition, has what it asks for. slurmdbd gets a record of it within 5 s: 24.11 then has no start for it,
// 22.05 has no reason.
func isRefused(j cli.Job) bool {
	return j.State == "FAILED" && len(j.Nodes) == 0
}

// same returns the job of an earlier submission if that was of the same request.
func (c *cluster) same(j *cli.Job, s queue.Submission) (queue.Job, error) {
	if script, _ := c.script(j); script.Digest != s.Digest() {
		return queue.Job{}, fmt.Errorf("%w: %q is that of job %s, whose request differs; use another key", queue.ErrConflict,
			s.IdempotencyKey, j.ID)
	}
	job := c.job(j)
	job.JobID = whole(j.ID) // j may be a task that runs already
	return job, nil
}

// Messages of sbatch, which has one exit status for all errors.
var (
	unanswered = []string{
		"Unable to contact slurm controller", "Socket timed out", "Connection refused", "Connection timed out", "Connection reset",
		"Zero Bytes were transmitted",
		"temporarily unable to accept job", "Transport endpoint is not connected", "Unexpected message received",
		"Communication connection failure", "No route to host",
		"Slurm backup controller in standby mode", "slurm_receive_msg", "Controller not found",
	}
	unknownNames = []string{"invalid partition specified", "Invalid partition name specified", "Invalid qos specification",
		"Invalid account or account/partition combination"}
)

// refusal returns the error of sbatch in its class. A name that a QueueMap gives is the platform's.
func refusal(text string, mapped bool) error {
	in := func(words []string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(w)) })
	}
	switch {
	case text == "" || in(unanswered):
		return fmt.Errorf("%w: sbatch: %s", queue.ErrUnavailable, text)
	case mapped && in(unknownNames):
		return fmt.Errorf("%w: sbatch: %s", queue.ErrConfiguration, text)
	}
	return fmt.Errorf("%w: sbatch: %s", queue.ErrDenied, text)
}

// confirm returns an error if the partition of a mapping does not exist, or does not take its account or QoS.
func confirm(partitions []cli.Partition, m queue.Mapping) error {
	i := slices.IndexFunc(partitions, func(p cli.Partition) bool { return p.Name == m.Partition })
	switch {
	case i < 0:
		return fmt.Errorf("%w: queue %s is the partition %s, which Slurm does not have", queue.ErrConfiguration, m.Queue, m.Partition)
	case m.Account != "" && partitions[i].Accounts != nil && !slices.Contains(partitions[i].Accounts, strings.ToLower(m.Account)):
		return fmt.Errorf("%w: queue %s: the partition %s does not take the account %s", queue.ErrConfiguration, m.Queue, m.Partition,
			m.Account)
	case m.QOS != "" && partitions[i].QoS != nil && !slices.Contains(partitions[i].QoS, strings.ToLower(m.QOS)):
		return fmt.Errorf("%w: queue %s: the partition %s does not take the QoS %s", queue.ErrConfiguration, m.Queue, m.Partition, m.QOS)
	}
	return nil
}

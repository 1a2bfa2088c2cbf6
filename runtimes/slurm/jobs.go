package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/profile"
)

var (
	jobName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	jobID     = regexp.MustCompile(`^[1-9][0-9]{0,9}$`)
	jobOutput = regexp.MustCompile(`^/[A-Za-z0-9._/%-]{1,180}$`)
)

// maxScript is the maximum size of a script. Slurm's own limit is 4 MiB.
const maxScript = 1 << 20

// Submit implements runtimes.Jobs. It runs sbatch as the user: sbatch follows options
// in the script, and as root it could read any file into the job.
func (r *Runtime) Submit(ctx context.Context, u *plan.Unit, stamp runtimes.Stamp, spec runtimes.JobSpec) (string, error) {
	if err := checkJob(u, spec); err != nil {
		return "", fmt.Errorf("submit: %w", err)
	}
	c, err := r.controlOf(u, stamp)
	if err != nil {
		return "", fmt.Errorf("submit %s: %w", spec.Name, err)
	}
	output := spec.Output
	if output == "" {
		output = "/dev/null"
	}
	options := []string{"--job-name=" + spec.Name, "--chdir=/", "--output=" + output}
	if spec.GPUs > 0 {
		options = append(options, fmt.Sprintf("--gres=gpu:%d", spec.GPUs))
	}
	if spec.Nodes > 0 {
		options = append(options, fmt.Sprintf("--nodes=%d", spec.Nodes))
	}
	op := c.cli("sbatch", profile.SubmitArgs(options...)...)
	op.Run.Stdin, op.Run.As = spec.Script, &runtimes.Person{Name: spec.User.Name, UID: spec.User.UID}
	res, err := c.do(ctx, op)
	if failed := (*runtimes.OpError)(nil); errors.As(err, &failed) && failed.Code == "timeout" {
		return "", fmt.Errorf("submit %s: %w: %w", spec.Name, err, runtimes.ErrUncertain)
	}
	if err != nil {
		return "", fmt.Errorf("submit %s: %w", spec.Name, err)
	}
	id, _, _ := strings.Cut(strings.TrimSpace(string(res[0].Data)), ";")
	if res[0].Exit != 0 || !jobID.MatchString(id) {
		err := c.exitError(op, res[0])
		// slurmctld may have accepted the job although the answer got lost.
		if strings.Contains(string(res[0].Stderr), "timed out") {
			return "", fmt.Errorf("submit %s: %w: %w", spec.Name, err, runtimes.ErrUncertain)
		}
		return "", fmt.Errorf("submit %s: %w", spec.Name, err)
	}
	return id, nil
}

func checkJob(u *plan.Unit, spec runtimes.JobSpec) error {
	switch {
	case u == nil:
		return errors.New("no unit to submit to")
	case !jobName.MatchString(spec.Name):
		return fmt.Errorf("job name %q: want letters, digits, dot, dash and underscore", spec.Name)
	case !bytes.HasPrefix(spec.Script, []byte("#!")):
		return errors.New("the script has no #! line at its start")
	case len(spec.Script) > maxScript:
		return fmt.Errorf("the script is longer than %d bytes", maxScript)
	case spec.Output != "" && (!jobOutput.MatchString(spec.Output) || strings.Contains(spec.Output, "..")):
		return fmt.Errorf("output %q: want an absolute path", spec.Output)
	case spec.GPUs < 0 || spec.Nodes < 0:
		return errors.New("the number of GPUs or nodes is negative")
	}
	for _, user := range u.Instance.Users {
		if user == spec.User {
			return nil
		}
	}
	return fmt.Errorf("%s with uid %d is not a user of %s", spec.User.Name, spec.User.UID, u.Instance.Key)
}

func (r *Runtime) controlOf(u *plan.Unit, stamp runtimes.Stamp) (*control, error) {
	m, ok := u.Control()
	if !ok {
		return nil, errors.New("the unit has no control plane")
	}
	return r.control(m, u.Instance.Key, stamp), nil
}

// Job implements runtimes.Jobs. The state of a pending or running job comes from
// slurmctld, in fields that no user writes, and all other fields from slurmdbd. Both
// queries name the job, because the list of a busy cluster exceeds an answer.
func (r *Runtime) Job(ctx context.Context, u *plan.Unit, id string) (runtimes.Job, error) {
	if !jobID.MatchString(id) {
		return runtimes.Job{}, fmt.Errorf("%q is not a job id", id)
	}
	c, err := r.controlOf(u, runtimes.Stamp{})
	if err != nil {
		return runtimes.Job{}, err
	}
	queue := c.cli("squeue", "--noheader", "--all", profile.JobFormat, "--jobs="+id)
	queue.Run.Env["SLURM_TIME_FORMAT"] = "%s"
	res, err := c.do(ctx, queue, c.cli("sacct", "--json", "--allusers", "--jobs="+id))
	if err != nil {
		return runtimes.Job{}, fmt.Errorf("job %s: %w", id, err)
	}
	var live, accounted job
	var lives, known bool
	if res[0].Exit == 0 { // it also fails for an unknown id
		if live, lives, err = parseQueueJob(res[0].Data, id); err != nil {
			return runtimes.Job{}, fmt.Errorf("job %s: host %s: %w", id, c.host.Name(), err)
		}
	}
	switch {
	case res[1].Exit == 0:
		if accounted, known, err = parseAccountedJob(res[1].Data, id); err != nil {
			return runtimes.Job{}, fmt.Errorf("job %s: host %s: %w", id, c.host.Name(), err)
		}
	case !lives:
		return runtimes.Job{}, fmt.Errorf("job %s: %w", id, c.exitError(c.cli("sacct", "--json", "--allusers", "--jobs="+id), res[1]))
	}
	switch {
	case lives && known && accounted.Submit.Equal(live.Submit):
		live.Comment = accounted.Comment
		return describe(live), nil
	case lives:
		return describe(live), nil // slurmdbd does not have it yet
	case known:
		return describe(accounted), nil
	}
	return runtimes.Job{}, fmt.Errorf("cluster %s has no job %s", c.stack.Cluster, id)
}

func describe(j job) runtimes.Job {
	out := runtimes.Job{ID: fmt.Sprint(j.ID), Detail: j.State, Comment: j.Comment, Submitted: j.Submit}
	if j.Reason != "" && j.Reason != "None" {
		out.Detail += " (" + j.Reason + ")"
	}
	if j.Nodes != "" && j.Nodes != "None assigned" {
		out.Nodes = []string{j.Nodes}
	}
	switch j.State {
	case "PENDING":
		out.State = runtimes.JobPending
	case "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT", "REQUEUED":
		out.State = runtimes.JobRunning
	case "COMPLETED":
		out.State = runtimes.JobCompleted
	default:
		out.State = runtimes.JobFailed
	}
	return out
}

// Package slurmtest submits and reads jobs of a cluster through berth-host, and names the
// packages of its hosts, for the lab and for tests. The daemon does not use it.
//
// It must not know the purpose of a job.
package slurmtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// State is the state of a job.
type State string

// The states of a job.
const (
	Pending   State = "pending"
	Running   State = "running"
	Completed State = "completed" // succeeded
	Failed    State = "failed"    // failed or was cancelled
)

// Job is a job of a cluster. After a crash an id may be reused, so a job is identified
// by ID and Submitted together.
type Job struct {
	ID        string
	State     State
	Detail    string // in Slurm's terms, such as COMPLETED or PENDING (Resources)
	Nodes     []string
	Comment   string // from the job or its owner: untrusted text
	Submitted time.Time
}

// Jobs submits and reads jobs.
type Jobs struct{ Hosts runtimes.Hosts }

// Submit submits a script with options of sbatch and returns the job's id. It runs
// sbatch as the user: sbatch follows options in the script, and as root it could read
// any file into the job.
func (j Jobs) Submit(
	ctx context.Context, u *plan.Unit, stamp runtimes.Stamp, user schema.UnixUser, script string, options ...string,
) (string, error) {
	op := tool(u, "sbatch", profile.SubmitArgs(append([]string{"--job-name=job", "--chdir=/", "--output=/dev/null"}, options...)...)...)
	op.Run.Stdin, op.Run.As, op.Run.AllowExit = []byte(script), &runtimes.Person{Name: user.Name, UID: user.UID}, false
	op.Run.Script = profile.Script{Cluster: "test", UID: user.UID, Key: rand.Text(), Digest: "0123456789abcdef", Name: "job.sh"}.Path()
	res, err := j.do(ctx, u, stamp, op)
	if err != nil {
		return "", fmt.Errorf("submit: %w", err)
	}
	id, _, _ := strings.Cut(strings.TrimSpace(string(res[0].Data)), ";")
	return id, nil
}

// Job reads a job. Its state comes from slurmctld while it is pending or running, and
// else from slurmdbd. Both queries name the job, because the list of a busy cluster
// exceeds an answer.
func (j Jobs) Job(ctx context.Context, u *plan.Unit, id string) (Job, error) {
	queue := tool(u, "squeue", "--noheader", "--all", profile.JobFormat, "--jobs="+id)
	queue.Run.Env["SLURM_TIME_FORMAT"] = "%s"
	accounting, err := j.accounting(ctx, u)
	if err != nil {
		return Job{}, fmt.Errorf("job %s: %w", id, err)
	}
	accounting = accounting.With("--jobs=" + id)
	res, err := j.do(ctx, u, runtimes.Stamp{}, queue, tool(u, accounting.Program, accounting.Args...))
	if err != nil {
		return Job{}, fmt.Errorf("job %s: %w", id, err)
	}
	var live, accounted *Job
	if res[0].Exit == 0 { // it also fails for an unknown id
		if live, err = parseQueue(res[0].Data, id); err != nil {
			return Job{}, err
		}
	}
	if res[1].Exit == 0 {
		all, err := accounting.Decode(cli.Answer{Stdout: res[1].Data})
		if err != nil {
			return Job{}, err
		}
		accounted = latest(all, id)
	}
	switch {
	case live != nil && accounted != nil && accounted.Submitted.Equal(live.Submitted):
		live.Comment = accounted.Comment
		return *live, nil
	case live != nil:
		return *live, nil // slurmdbd does not have it yet
	case accounted != nil:
		return *accounted, nil
	}
	return Job{}, fmt.Errorf("the cluster of %s has no job %s: %s", u.Effective.Key, id, res[1].Stderr)
}

// Queued returns the state of a job that slurmctld has, and "" of one that it does not have. It
// costs far less than Job.
func (j Jobs) Queued(ctx context.Context, u *plan.Unit, id string) (State, error) {
	res, err := j.do(ctx, u, runtimes.Stamp{}, tool(u, "squeue", "--noheader", "--all", profile.JobFormat, "--jobs="+id))
	if err != nil || res[0].Exit != 0 {
		return "", err
	}
	words := strings.Split(string(res[0].Data), "|")
	if len(words) < 2 || words[0] != id {
		return "", nil
	}
	return newJob(id, words[1], "", "", 0).State, nil
}

// accounting returns the query for jobs in slurmdbd, by the installed version.
func (j Jobs) accounting(ctx context.Context, u *plan.Unit) (q cli.Query[[]cli.Accounted], err error) {
	ask := cli.Installed(profile.Slurmctld)
	res, err := j.do(ctx, u, runtimes.Stamp{}, runtimes.Op{Run: &runtimes.Run{Program: ask.Program, Args: ask.Args, AllowExit: true}})
	if err != nil {
		return q, err
	}
	version, err := ask.Decode(cli.Answer{Exit: res[0].Exit, Stdout: res[0].Data, Stderr: res[0].Stderr})
	if err != nil {
		return q, err
	}
	tools, err := version.Tools()
	if err != nil {
		return q, err
	}
	return tools.Accounting, nil
}

func (j Jobs) do(ctx context.Context, u *plan.Unit, stamp runtimes.Stamp, ops ...runtimes.Op) ([]runtimes.Result, error) {
	m, ok := u.Control()
	if !ok {
		return nil, errors.New("the unit has no control plane")
	}
	return j.Hosts.Host(m).Do(ctx, stamp, ops...)
}

func tool(u *plan.Unit, program string, args ...string) runtimes.Op {
	s := profile.Stack{Cluster: cluster.Name(u.Effective.Key)}
	return runtimes.Op{Run: &runtimes.Run{
		Program: program, Args: args, Env: map[string]string{"SLURM_CONF": s.Conf()}, TimeoutMS: 60_000, AllowExit: true,
	}}
}

// parseQueue finds a job in the output of squeue with profile.JobFormat. The tasks of an
// array have a line each; the first one counts.
func parseQueue(raw []byte, id string) (*Job, error) {
	for line := range strings.Lines(string(raw)) {
		words := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		if len(words) != 5 {
			return nil, fmt.Errorf("squeue: want id, state, time, nodes and reason, got %q", strings.TrimSpace(line))
		}
		if words[0] != id {
			continue
		}
		at, err := strconv.ParseInt(words[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("squeue: %q is not a time", words[2])
		}
		return newJob(id, words[1], words[4], words[3], at), nil
	}
	return nil, nil
}

// latest finds the latest job of an id. Slurm may reuse ids.
func latest(all []cli.Accounted, id string) *Job {
	var found *Job
	for _, a := range all {
		j := newJob(id, a.State, a.Reason, a.Nodes, a.Submitted)
		j.Comment = a.Comment
		if strconv.Itoa(a.ID) == id && (found == nil || j.Submitted.After(found.Submitted)) {
			found = j
		}
	}
	return found
}

func newJob(id, state, reason, nodes string, submitted int64) *Job {
	j := &Job{ID: id, State: Failed, Detail: state, Submitted: time.Unix(submitted, 0).UTC()}
	if state == "PENDING" && reason != "" && reason != "None" { // a running job has the reason Prolog for a moment
		j.Detail += " (" + reason + ")"
	}
	if nodes != "" && nodes != "None assigned" {
		j.Nodes = []string{nodes}
	}
	switch state {
	case "PENDING":
		j.State = Pending
	case "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT", "REQUEUED":
		j.State = Running
	case "COMPLETED":
		j.State = Completed
	}
	return j
}

// Package slurmtest submits and reads jobs of a cluster through berth-host, and names the
// packages of its hosts, for the lab
// and for tests. The daemon does none of it.
//
// It must not know what a job is for.
package slurmtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm"
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
func (j Jobs) Submit(ctx context.Context, u *plan.Unit, stamp runtimes.Stamp, user schema.UnixUser, script string, options ...string) (string, error) {
	op := tool(u, "sbatch", profile.SubmitArgs(append([]string{"--job-name=job", "--chdir=/", "--output=/dev/null"}, options...)...)...)
	op.Run.Stdin, op.Run.As, op.Run.AllowExit = []byte(script), &runtimes.Person{Name: user.Name, UID: user.UID}, false
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
	res, err := j.do(ctx, u, runtimes.Stamp{}, queue, tool(u, "sacct", "--json", "--allusers", "--jobs="+id))
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
		if accounted, err = parseAccounting(res[1].Data, id); err != nil {
			return Job{}, err
		}
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
	return Job{}, fmt.Errorf("the cluster of %s has no job %s: %s", u.Instance.Key, id, res[1].Stderr)
}

func (j Jobs) do(ctx context.Context, u *plan.Unit, stamp runtimes.Stamp, ops ...runtimes.Op) ([]runtimes.Result, error) {
	m, ok := u.Control()
	if !ok {
		return nil, errors.New("the unit has no control plane")
	}
	return j.Hosts.Host(m).Do(ctx, stamp, ops...)
}

func tool(u *plan.Unit, program string, args ...string) runtimes.Op {
	s := profile.Stack{Cluster: slurm.ClusterName(u.Instance.Key)}
	return runtimes.Op{Run: &runtimes.Run{
		Program: program, Args: args, Env: map[string]string{"SLURM_CONF": s.Conf()}, TimeoutMS: 5_000, AllowExit: true,
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

// parseAccounting finds the latest job of an id in `sacct --json`. Slurm may reuse ids.
func parseAccounting(raw []byte, id string) (*Job, error) {
	var doc struct {
		Jobs []struct {
			JobID   int                              `json:"job_id"`
			Nodes   string                           `json:"nodes"`
			State   struct{ Current, Reason string } `json:"state"`
			Comment struct{ Job string }             `json:"comment"`
			Time    struct{ Submission int64 }       `json:"time"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("sacct --json: %w", err)
	}
	var latest *Job
	for _, j := range doc.Jobs {
		found := newJob(id, j.State.Current, j.State.Reason, j.Nodes, j.Time.Submission)
		found.Comment = j.Comment.Job
		if strconv.Itoa(j.JobID) == id && (latest == nil || found.Submitted.After(latest.Submitted)) {
			latest = found
		}
	}
	return latest, nil
}

func newJob(id, state, reason, nodes string, submitted int64) *Job {
	j := &Job{ID: id, State: Failed, Detail: state, Submitted: time.Unix(submitted, 0).UTC()}
	if reason != "" && reason != "None" {
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

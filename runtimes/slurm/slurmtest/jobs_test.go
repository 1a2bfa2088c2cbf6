package slurmtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cli"
	"berth/schema"
)

func TestParseJobs(t *testing.T) {
	j, err := parseQueue([]byte("7|PENDING|1700000000||Resources\n"), "7")
	require.NoError(t, err)
	require.Equal(t, &Job{ID: "7", State: Pending, Detail: "PENDING (Resources)", Submitted: time.Unix(1700000000, 0).UTC()}, j)
	j, err = parseQueue(nil, "7")
	require.NoError(t, err)
	require.Nil(t, j)
	for _, bad := range []string{"7|PENDING\n", "slurm error\n", "7|RUNNING|2023-11-14T22:13:20|n|None\n"} {
		_, err = parseQueue([]byte(bad), "7")
		require.Error(t, err, bad)
	}
	// Slurm reuses an id after a crash: the later job counts.
	j = latest([]cli.Accounted{{ID: 7, State: "FAILED", Submitted: 100}, {ID: 7, State: "COMPLETED", Submitted: 200, Comment: "hi"},
		{ID: 8, Submitted: 300}}, "7")
	require.Equal(t, Completed, j.State)
	require.Equal(t, "hi", j.Comment)
}

// hostOf is a host whose programs answer with a function.
type hostOf func(*runtimes.Run) (string, int)

func (h hostOf) Host(plan.Member) runtimes.Host { return h }
func (h hostOf) Close() error                   { return nil }
func (h hostOf) Name() string                   { return "ctl" }

func (h hostOf) Do(_ context.Context, _ runtimes.Stamp, ops ...runtimes.Op) (out []runtimes.Result, err error) {
	for _, op := range ops {
		text, exit := h(op.Run)
		out = append(out, runtimes.Result{Data: []byte(text), Exit: exit})
	}
	return out, nil
}

// The query names the job, as the list of all jobs exceeds an answer.
func TestJobIsFoundInABusyCluster(t *testing.T) {
	jobs := Jobs{hostOf(func(run *runtimes.Run) (string, int) {
		if run.Program == "slurmctld" {
			return "slurm-wlm 22.05.8\n", 0
		}
		if !slices.Contains(run.Args, "--jobs=7") {
			return "", 1 // more than an answer holds
		}
		if run.Program == "sacct" {
			return `{"errors":[],"jobs":[{"job_id":7,"nodes":"","state":{"current":"PENDING","reason":"None"},"time":{"submission":1700000000},"comment":{"job":"mine"}}]}`, 0
		}
		require.Equal(t, "%s", run.Env["SLURM_TIME_FORMAT"])
		return "7|RUNNING|1700000000|gpu-1|None\n", 0
	})}
	u := plan.Unit{Effective: schema.EffectiveUnit{Key: schema.InstanceKey("t", "p", "one")},
		Members: []plan.Member{{Name: "controller-0", ControlPlane: true}}}
	got, err := jobs.Job(t.Context(), &u, "7")
	require.NoError(t, err)
	require.Equal(t, Job{ID: "7", State: Running, Detail: "RUNNING", Nodes: []string{"gpu-1"}, Comment: "mine",
		Submitted: time.Unix(1_700_000_000, 0).UTC()}, got)
}

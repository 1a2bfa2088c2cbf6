package slurm_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
	"berth/schema/usage"
)

var (
	alice = schema.UnixUser{Name: "berthtest0", UID: 42001}
	bob   = schema.UnixUser{Name: "berthtest1", UID: 42002}
)

// company is a unit on a stage, driven the way the loop does.
type company struct {
	*stage
	rt     *slurm.Runtime
	used   map[usage.Run]usage.Job // recorded
	parts  []usage.Job             // recorded, by day
	remote error                   // of recording usage
	lost   []plan.LostJob          // told
}

func (c *company) recordUsage(_ context.Context, jobs []usage.Job) error {
	if c.remote != nil {
		return c.remote
	}
	if c.used == nil {
		c.used = map[usage.Run]usage.Job{}
	}
	c.parts = append(c.parts, jobs...)
	for _, j := range jobs {
		c.used[j.Run()] = j
	}
	return nil
}

func (c *company) unit(config string, users []schema.UnixUser, onJobs *schema.OnJobs, workers ...int) plan.Unit {
	u := plan.Unit{Effective: schema.EffectiveUnit{
		Key: schema.InstanceKey("physics", "lattice", "train"), DesiredState: schema.DesiredRunning,
		AppSelection: schema.AppSelection{RuntimeBackend: "slurm", SoftwareVersion: string(c.version)},
		Config:       []byte(config), Users: users, OnJobs: onJobs,
		Roles: []schema.EffectiveRole{
			{Name: "controller", ControlPlane: true, Shareable: true, Count: 1},
			{Name: "worker", Count: len(workers)},
		},
	}}
	add := func(role string, i int, control bool, n *schema.Node) {
		u.Members = append(u.Members, plan.Member{
			Name: fmt.Sprintf("%s-%d", role, i), Role: role, ControlPlane: control, Node: n.Key.Name, Address: n.Spec.Address, SSHPort: 22,
			CPUs: n.Spec.Capacity.CPUs, Shape: n.Spec.Capacity.Shape, MemoryMiB: n.Spec.Capacity.MemoryMiB, GPUs: n.Spec.Capacity.GPUs,
		})
	}
	add("controller", 0, true, c.control)
	for i, w := range workers {
		add("worker", i, false, c.workers[w])
	}
	return u
}

func (c *company) observe(t testing.TB, u plan.Unit) plan.Observed {
	t.Helper()
	return c.rt.Observe(t.Context(), runtimes.Scope{Key: u.Effective.Key, Candidates: []*schema.Node{c.control}, Instance: &u.Effective})
}

func (c *company) plan(t testing.TB, u plan.Unit, gone bool) plan.Plan {
	t.Helper()
	in := plan.Input{Key: u.Effective.Key, Observed: c.observe(t, u), Rules: c.rt}
	if !gone {
		in.After, in.Members = &u.Effective, u.Members
	}
	return plan.Make(in)
}

// apply applies a plan's actions and returns the first error.
func (c *company) apply(t testing.TB, p plan.Plan) error {
	t.Helper()
	require.Empty(t, p.Blocked)
	for _, a := range p.Actions {
		c.attempt++
		stamp := runtimes.Stamp{Epoch: 1, CorrelationID: "jobs", ActionID: fmt.Sprintf("%s.%d", a.ID, c.attempt), Verb: string(a.Verb)}
		a.ID = stamp.ActionID
		if err := c.rt.Apply(t.Context(), runtimes.Change{Plan: &p, Action: a, Stamp: stamp, RecordUsage: c.recordUsage,
			JobsLost: func(jobs []plan.LostJob) { c.lost = append(c.lost, jobs...) }}); err != nil {
			return err
		}
	}
	return nil
}

// side applies a plan with its joins side by side, as the daemon does.
func (c *company) side(t testing.TB, p plan.Plan) {
	t.Helper()
	var joins errgroup.Group
	for i, a := range p.Actions {
		apply := func() error {
			a.ID = fmt.Sprintf("%s.side%d", a.ID, i)
			return c.rt.Apply(t.Context(),
				runtimes.Change{Plan: &p, Action: a, Stamp: runtimes.Stamp{Epoch: 1, ActionID: a.ID, Verb: string(a.Verb)}})
		}
		if a.Verb == plan.Join {
			joins.Go(apply)
		} else {
			require.NoError(t, apply())
		}
	}
	require.NoError(t, joins.Wait())
}

func (c *company) carry(t testing.TB, u plan.Unit, gone bool) {
	t.Helper()
	require.NoError(t, c.apply(t, c.plan(t, u, gone)))
	again := c.plan(t, u, gone)
	require.True(t, again.Empty(), "still to do: %+v", again.Actions)
}

// carryUntilWaiting makes the change of which a removal has to wait for jobs.
func (c *company) carryUntilWaiting(t *testing.T, u plan.Unit) {
	t.Helper()
	require.NoError(t, c.apply(t, c.plan(t, u, false)), "the rest of the change")
	require.ErrorIs(t, c.apply(t, c.plan(t, u, false)), runtimes.ErrWaiting)
}

func (c *company) submit(t testing.TB, u plan.Unit, user schema.UnixUser, script string, gpus int) string {
	t.Helper()
	id, err := c.trySubmit(t, u, user, script+"\n", fmt.Sprintf("--gres=gpu:%d", gpus))
	require.NoError(t, err)
	return id
}

func (c *company) trySubmit(t testing.TB, u plan.Unit, user schema.UnixUser, script string, options ...string) (string, error) {
	t.Helper()
	return slurmtest.Jobs{Hosts: c.hosts}.Submit(t.Context(), &u, runtimes.Stamp{Epoch: 1}, user, "#!/bin/sh\n"+script, options...)
}

func (c *company) await(t testing.TB, u plan.Unit, id string, want slurmtest.State) slurmtest.Job {
	t.Helper()
	var job slurmtest.Job
	eventually(t, "job "+id+" is "+string(want), func() (bool, string) {
		jobs := slurmtest.Jobs{Hosts: c.hosts}
		if state, err := jobs.Queued(t.Context(), &u, id); err == nil && state != "" && state != want {
			return false, string(state)
		}
		var err error
		job, err = jobs.Job(t.Context(), &u, id)
		require.NoError(t, err)
		return job.State == want, fmt.Sprintf("%+v", job)
	})
	return job
}

// workersOf returns a unit without its control plane.
func workersOf(u plan.Unit) plan.Unit {
	u.Members = slices.DeleteFunc(slices.Clone(u.Members), func(m plan.Member) bool { return m.ControlPlane })
	return u
}

const onePartition = `{"partitions":[{"name":"main","default":true}],"scheduler":{"interval_seconds":30},"identity":"managed"}`

// TestJobs runs jobs as their owners on GPUs while the cluster changes.
func TestJobs(t *testing.T) {
	t.Parallel()
	c := &company{stage: bareStage(t)}
	c.rt = c.runtime(t)
	u := c.unit(onePartition, []schema.UnixUser{alice, bob}, nil, 0)
	began := time.Now()
	c.carry(t, u, false)
	t.Logf("from nothing to one worker: %.1f s", time.Since(began).Seconds())

	// A GPU job of a declared user.
	began = time.Now()
	id := c.submit(t, u, alice, `test -n "$CUDA_VISIBLE_DEVICES" || exit 3
scontrol update jobid=$SLURM_JOB_ID comment="cuda=$CUDA_VISIBLE_DEVICES user=$(id -un) home=$HOME"`, 1)
	job := c.await(t, u, id, slurmtest.Completed)
	t.Logf("job of one GPU: %.1f s", time.Since(began).Seconds())
	require.Contains(t, job.Comment, "cuda=0 user="+alice.Name)
	require.NotContains(t, job.Comment, "home=/root")
	require.Equal(t, []string{c.workers[0].Key.Name}, job.Nodes)

	// The helper submits for no administrator.
	_, err := c.trySubmit(t, u, schema.UnixUser{Name: "root", UID: 0}, "")
	require.ErrorContains(t, err, "is not a user that this host's profile allows")

	// A script's own options are obeyed with its owner's rights and no others.
	_, err = c.trySubmit(t, u, alice, "#SBATCH --bbf=/etc/shadow\n")
	require.ErrorContains(t, err, "Invalid --bbf", "read without the rights of its owner")
	_, err = c.trySubmit(t, u, alice, "#SBATCH --uid=0\n")
	require.Error(t, err)

	// A worker comes while a job runs: the job and its node's daemons stay.
	long := c.submit(t, u, alice, "sleep 600", 1)
	running := c.await(t, u, long, slurmtest.Running)
	node := c.fingerprint(t, workersOf(u))
	two := c.unit(onePartition, []schema.UnixUser{alice, bob}, nil, 0, 1)
	began = time.Now()
	c.carry(t, two, false)
	t.Logf("worker added: %.1f s", time.Since(began).Seconds())
	require.Equal(t, node, c.fingerprint(t, workersOf(u)))
	require.Equal(t, running, c.await(t, u, long, slurmtest.Running))
	require.Equal(t, 1, c.observe(t, two).Jobs.Running)

	// A change that needs a restart, and one that a reconfigure does.
	more := c.unit(strings.Replace(onePartition, `"partitions":[`, `"partitions":[{"name":"quick","max_time_minutes":30},`, 1),
		[]schema.UnixUser{alice, bob}, nil, 0, 1)
	p := c.plan(t, more, false)
	require.Len(t, p.Actions, 1)
	require.True(t, p.Actions[0].Impact.Reconfigure)
	c.carry(t, more, false)
	require.Equal(t, running, c.await(t, u, long, slurmtest.Running))

	// Taking away the partition of a running job waits for it, and for nothing else.
	moved := c.unit(strings.ReplaceAll(onePartition, "main", "other"), []schema.UnixUser{alice, bob}, nil, 0, 1)
	c.carryUntilWaiting(t, moved)
	require.Equal(t, running, c.await(t, u, long, slurmtest.Running))
	quick := c.submit(t, u, bob, "true", 0)
	c.await(t, u, quick, slurmtest.Completed)
	_, err = c.trySubmit(t, u, bob, "true\n", "--partition=main")
	require.Error(t, err)
	c.carry(t, more, false) // and is taken back
	quick = c.submit(t, u, bob, "true", 0)
	c.await(t, u, quick, slurmtest.Completed)

	// The removal of its owner waits too; the owner cannot submit meanwhile.
	onlyBob := c.unit(string(more.Effective.Config), []schema.UnixUser{bob}, nil, 0, 1)
	c.carryUntilWaiting(t, onlyBob)
	_, err = c.trySubmit(t, more, alice, "")
	require.Error(t, err)
	c.carry(t, more, false) // and is taken back
	quick = c.submit(t, u, alice, "true", 0)
	c.await(t, u, quick, slurmtest.Completed)

	// A configuration that does not work is rolled back.
	conf := func() string {
		out, err := c.lab.Run(t.Context(), c.control.Key.Name, "sh", "-c", "cat /etc/slurm/*/slurm.conf /etc/slurm/*/gres.conf")
		require.NoError(t, err)
		return out
	}
	before := conf()
	plain := c.unit(onePartition, []schema.UnixUser{alice, bob}, nil, 0, 1)
	p = c.plan(t, plain, false)
	c.hosts.failAt("reconfigure", fmt.Errorf("scripted fault"))
	require.ErrorContains(t, c.apply(t, p), "the old one is restored")
	require.Equal(t, before, conf())
	require.Empty(t, c.observe(t, more).Drift)
	require.Equal(t, running, c.await(t, u, long, slurmtest.Running))

	// A killed control plane comes back, the job with it.
	c.kill(t, more, "controller-0")
	c.carry(t, more, false)
	require.Equal(t, running, c.await(t, u, long, slurmtest.Running))

	// Drift is seen and undone.
	before = conf() // with another FirstJobId since the kill
	_, err = c.lab.Run(t.Context(), c.control.Key.Name, "sh", "-c",
		"echo PartitionName=mine Nodes=ALL >> /etc/slurm/"+cluster.Name(u.Effective.Key)+"/slurm.conf")
	require.NoError(t, err)
	require.NotEmpty(t, c.observe(t, more).Drift)
	c.carry(t, more, false)
	require.Equal(t, before, conf())

	// A worker with a job leaves only when the job is done with, or cancelled.
	free := c.unit(string(more.Effective.Config), []schema.UnixUser{alice, bob}, nil, 1)
	free.Members[1].Name = "worker-1"
	p = c.plan(t, free, false)
	require.Equal(t, "worker-0", p.Actions[0].Member)
	require.ErrorIs(t, c.apply(t, p), runtimes.ErrWaiting)
	i := slices.IndexFunc(c.observe(t, more).Members, func(m plan.MemberState) bool { return m.Name == "worker-0" })
	require.Equal(t, plan.Draining, c.observe(t, more).Members[i].State)
	require.Equal(t, running, c.await(t, u, long, slurmtest.Running))

	// Wanted again after all, it joins, and the drain is taken back.
	p = plan.Plan{Key: more.Effective.Key, After: &more,
		Actions: []plan.Action{{ID: "back", Verb: plan.Join, Member: "worker-0", Node: more.Members[1].Node}}}
	require.NoError(t, c.apply(t, p))
	i = slices.IndexFunc(c.observe(t, more).Members, func(m plan.MemberState) bool { return m.Name == "worker-0" })
	back := c.observe(t, more).Members[i]
	back.References, back.Scheduler, back.HasJobs = nil, plan.NoView, false // right after a start, slurmctld has not heard of it yet
	require.Equal(t, plan.MemberState{Name: "worker-0", Node: more.Members[1].Node, State: plan.Running}, back)
	require.Equal(t, running, c.await(t, u, long, slurmtest.Running))

	// A whole deletion waits too, and ends the job once the instance says so.
	p = c.plan(t, more, true)
	require.ErrorIs(t, c.apply(t, p), runtimes.ErrWaiting)
	hasty := c.unit(string(more.Effective.Config), []schema.UnixUser{alice, bob}, &schema.OnJobs{CancelAfterSeconds: 1}, 0, 1)
	require.NoError(t, c.apply(t, c.plan(t, hasty, false)))
	began = time.Now()
	var last error
	eventually(t, "deletion", func() (bool, string) {
		last = c.apply(t, c.plan(t, hasty, true))
		return last == nil, fmt.Sprint(last)
	})
	t.Logf("deleted: %.1f s", time.Since(began).Seconds())
	require.Equal(t, plan.Absent, c.observe(t, hasty).Presence)
	require.Empty(t, c.remains(t, hasty))
}

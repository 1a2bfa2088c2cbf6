package slurm_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema"
	"berth/schema/estate"
	"berth/schema/queue"
)

func (c *company) queueOf(u plan.Unit, project string, m *schema.QueueMap) runtimes.QueueScope {
	return runtimes.QueueScope{Unit: &u, ProjectID: project, Map: m, Stamp: runtimes.Stamp{Epoch: 1, CorrelationID: "queue", Verb: "queue"}}
}

func submission(project string, user schema.UnixUser, key, script string) queue.Submission {
	return queue.Submission{ProjectID: project, User: user, IdempotencyKey: key,
		Request: queue.Request{Script: "#!/bin/sh\n" + script + "\n"}}
}

// jobsOf returns the jobs of a project, of those that the runtime lists for all.
func (c *company) jobsOf(t *testing.T, at runtimes.QueueScope) (jobs []queue.Job) {
	t.Helper()
	all, err := c.rt.Jobs(t.Context(), at.Unit, at.Stamp)
	require.NoError(t, err)
	for _, j := range all {
		if j.ProjectID == at.ProjectID {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

func (c *company) awaitState(t *testing.T, at runtimes.QueueScope, id, want string) (job queue.Job) {
	t.Helper()
	eventually(t, "job "+id+" is "+want, func() (bool, string) {
		var err error
		job, err = c.rt.Job(t.Context(), at, queue.Ref{JobID: id})
		require.NoError(t, err)
		return job.State == want, fmt.Sprintf("%+v", job)
	})
	return job
}

// attackOutput lets another user of the node try to read, take and replace what a job of alice's
// wrote, and what her next jobs write (issue of names that others can foresee in /tmp).
func (c *company) attackOutput(t *testing.T, at runtimes.QueueScope, j queue.Job) {
	t.Helper()
	node, _ := strconv.Atoi(strings.TrimPrefix(j.Members[0], "worker-"))
	run := func(uid int, script string) string {
		return c.onWorker(t, node, fmt.Sprintf("setpriv --reuid=%d --regid=%[1]d --clear-groups sh -c '%s' 2>&1 || true", uid, script))
	}
	dir := profile.Stack{Cluster: cluster.Name(at.Unit.Effective.Key)}.JobsOf(alice.Name, alice.UID)
	file := dir + "/slurm-" + j.JobID + ".out"
	require.Contains(t, run(alice.UID, "cat "+file), "secret")
	mallory := alice.UID + 7
	for _, try := range []string{"cat " + file, "ls " + dir, "touch " + dir + "/slurm-999.out", "mv " + dir + " " + dir + ".old",
		"ln -s /tmp " + dir + "/x", "rmdir " + dir} {
		require.Contains(t, run(mallory, try), "ermission denied", try)
	}
	// Berth shows neither a file that is another user's nor one behind a link.
	for _, replace := range []string{
		fmt.Sprintf("echo forged >f; chmod 644 f; chown %d f", mallory),
		fmt.Sprintf("echo private >private; chmod 600 private; chown %d private; ln -s private f", alice.UID),
	} {
		c.onWorker(t, node, "cd "+dir+" && "+replace+" && mv f "+file)
		_, err := c.rt.Output(t.Context(), at, queue.Ref{JobID: j.JobID}, 100)
		require.ErrorContains(t, err, "is not a regular file of "+alice.Name)
	}
}

// People of two projects use the queue of one cluster: each project sees and ends its own jobs only, an
// idempotency key makes one job, and an output is read as the job's user (requirement B1).
func TestQueueOfProjects(t *testing.T) {
	t.Parallel()
	c := newSharing(t)
	u := c.share(c.unit(twoPartitions, nil, nil, 0, 1), genes(), lhc(), ligo())
	c.carry(t, u, false)
	lhcs, genesAt := c.queueOf(u, "physics.lhc", nil), c.queueOf(u, "bio.genes", nil)

	began := time.Now()
	first, err := c.rt.Submit(t.Context(), lhcs, submission("physics.lhc", alice, "run-1", "id -un; echo secret; umask"))
	require.NoError(t, err)
	t.Logf("submit: %s", time.Since(began))
	require.Equal(t, []string{"physics.lhc", alice.Name, "run-1", "passthrough"},
		[]string{first.ProjectID, first.User, first.IdempotencyKey, first.Resolution.Adapter})
	again, err := c.rt.Submit(t.Context(), lhcs, submission("physics.lhc", alice, "run-1", "id -un; echo secret; umask"))
	require.NoError(t, err)
	require.Equal(t, []any{first.JobID, first.Submitted}, []any{again.JobID, again.Submitted})
	_, err = c.rt.Submit(t.Context(), lhcs, submission("physics.lhc", alice, "run-1", "other"))
	require.ErrorIs(t, err, queue.ErrConflict)
	ended := c.awaitState(t, lhcs, first.JobID, "COMPLETED")
	require.Equal(t, []any{"0:0", 1}, []any{ended.ExitCode, len(ended.Members)})
	out, err := c.rt.Output(t.Context(), lhcs, queue.Ref{JobID: first.JobID}, 100)
	require.NoError(t, err)
	require.Contains(t, string(out.Text), alice.Name+"\nsecret\n0077\n", "nobody else reads what a job writes")
	t.Logf("output: %q", out.Text)
	short, err := c.rt.Output(t.Context(), lhcs, queue.Ref{JobID: first.JobID}, 5)
	require.NoError(t, err)
	require.True(t, short.Truncated)
	require.Len(t, short.Text, 5)
	c.attackOutput(t, lhcs, ended)
	// The key still names the job after it has ended.
	again, err = c.rt.Submit(t.Context(), lhcs, submission("physics.lhc", alice, "run-1", "id -un; echo secret; umask"))
	require.NoError(t, err)
	require.Equal(t, first.JobID, again.JobID)

	failing, err := c.rt.Submit(t.Context(), lhcs, submission("physics.lhc", alice, "run-failing", "exit 3"))
	require.NoError(t, err)
	require.Equal(t, "3:0", c.awaitState(t, lhcs, failing.JobID, "FAILED").ExitCode)

	_, err = c.rt.Submit(t.Context(), lhcs, submission("physics.lhc", alice, "run-wait", "#SBATCH --wait\nexit 4"))
	require.ErrorIs(t, err, queue.ErrDenied)
	// An array is called by the id that sbatch printed.
	array, err := c.rt.Submit(t.Context(), lhcs, submission("physics.lhc", alice, "run-array", "#SBATCH --array=1-40\nsleep 600"))
	require.NoError(t, err)
	require.NotContains(t, array.JobID, "_")
	task, err := c.rt.Job(t.Context(), lhcs, queue.Ref{JobID: array.JobID + "_40"})
	require.NoError(t, err)
	require.Equal(t, "PENDING", task.State)
	_, err = c.rt.Cancel(t.Context(), lhcs, queue.Ref{JobID: array.JobID, Submitted: array.Submitted})
	require.NoError(t, err)
	eventually(t, "the array has ended", func() (bool, string) {
		j, err := c.rt.Job(t.Context(), lhcs, queue.Ref{JobID: array.JobID})
		require.NoError(t, err)
		return !j.Ended.IsZero() && j.State == "CANCELLED", fmt.Sprintf("%+v", j)
	})

	long, err := c.rt.Submit(t.Context(), lhcs, submission("physics.lhc", alice, "run-2", "sleep 600"))
	require.NoError(t, err)
	for name, call := range map[string]func() error{
		"read":   func() error { _, err := c.rt.Job(t.Context(), genesAt, queue.Ref{JobID: long.JobID}); return err },
		"cancel": func() error { _, err := c.rt.Cancel(t.Context(), genesAt, queue.Ref{JobID: long.JobID}); return err },
		"output": func() error {
			_, err := c.rt.Output(t.Context(), genesAt, queue.Ref{JobID: long.JobID}, 10)
			return err
		},
		"another submission time": func() error {
			_, err := c.rt.Cancel(t.Context(), lhcs, queue.Ref{JobID: long.JobID, Submitted: long.Submitted.Add(time.Second)})
			return err
		},
		"no id": func() error { _, err := c.rt.Cancel(t.Context(), lhcs, queue.Ref{JobID: "1;2"}); return err },
	} {
		require.ErrorIs(t, call(), queue.ErrNotFound, name)
	}
	require.Empty(t, c.jobsOf(t, genesAt))
	c.awaitState(t, lhcs, long.JobID, "RUNNING")
	_, err = c.rt.Cancel(t.Context(), lhcs, queue.Ref{JobID: long.JobID, Submitted: long.Submitted})
	require.NoError(t, err)
	c.awaitState(t, lhcs, long.JobID, "CANCELLED")

	// A name and a comment with line breaks and separators make no other job.
	hostile, err := c.trySubmit(t, u, alice, "sleep 600\n", "--account=physics.lhc")
	require.NoError(t, err)
	c.onControl(t, u, "scontrol update jobid="+hostile+` name="$(printf 'a|\n77|evil')" comment="$(printf 'berth/run-9/x\n78|')"`)
	mine := c.jobsOf(t, lhcs)
	require.True(t, slices.ContainsFunc(mine, func(j queue.Job) bool { return j.JobID == long.JobID }))
	for i, j := range mine {
		require.False(t, i > 0 && j.Submitted.Before(mine[i-1].Submitted), "in the order of ids")
	}
	nodes, err := c.rt.Nodes(t.Context(), lhcs.Unit, lhcs.Stamp)
	require.NoError(t, err)
	require.Len(t, nodes, 2)

	_, err = c.rt.Submit(t.Context(), lhcs, submission("physics.lhc", bob, "run-3", "true"))
	require.ErrorIs(t, err, queue.ErrDenied, "bob is not of lhc")
	unknown := &schema.QueueMap{Spec: schema.QueueMapSpec{Queues: []schema.QueueMapping{{Queue: "gpu", Partition: "nothing"},
		{Queue: "foreign", Partition: "main", Account: "bio.genes"}, {Queue: "fast", Partition: "quick", MaxWalltimeMinutes: 5}}}}
	for name, want := range map[string]error{"gpu": queue.ErrConfiguration, "foreign": queue.ErrConfiguration, "none": queue.ErrDenied} {
		s := submission("physics.lhc", alice, "map-"+name, "true")
		s.Queue = name
		_, err = c.rt.Submit(t.Context(), c.queueOf(u, "physics.lhc", unknown), s)
		require.ErrorIs(t, err, want, name)
	}
	s := submission("physics.lhc", alice, "map-fast", "true")
	s.Queue, s.Name, s.Nodes, s.MemoryMiB, s.GPUs = "fast", "a.job", 1, 100, 1
	mapped, err := c.rt.Submit(t.Context(), c.queueOf(u, "physics.lhc", unknown), s)
	require.NoError(t, err)
	require.Equal(t, []any{"quick", "a.job", 5, "fast"}, []any{mapped.Queue, mapped.Name, mapped.Minutes, mapped.Resolution.ResolvedQueue})
}

// mapDocument loads a QueueMap as an estate has it, with its runbook. Two of them differ in their mode and partition only.
func mapDocument(t *testing.T, mode, partition string) (m *schema.QueueMap, hasRunbook bool) {
	t.Helper()
	loader, err := estate.New(estate.Options{Backends: map[string]string{"slurm": slurm.Backend{}.ConfigCUE()}})
	require.NoError(t, err)
	res, err := loader.Load(t.Context(), estate.Files(map[string]string{
		"platform/catalog/slurm/app.yaml": "apiVersion: berth/v1\nkind: App\nmetadata: {name: slurm}\nspec: {display_name: Slurm, " +
			"category: scheduler, publisher: us}\n",
		"platform/queues/README.md": "# How to go back\n",
		"platform/queues/all.yaml": "apiVersion: berth/v1\nkind: QueueMap\nmetadata: {name: all}\nspec:\n  app: slurm\n  fallback_queue: " +
			"quick\n  runbook: platform/queues/README.md\n" +
			"  queues: [{queue: quick, partition: " + partition + ", max_walltime_minutes: 5}]\n  mode: " + mode + "\n",
	}))
	require.NoError(t, err)
	require.Empty(t, res.Diagnostics)
	require.Len(t, res.Desired.QueueMaps(), 1)
	m = res.Desired.QueueMaps()[0]
	return m, res.Desired.Publishes(m.Spec.Runbook)
}

// The document of the map alone switches passthrough, stub-policy, real-policy and back: the same submissions
// have the same answers in stub-policy and real-policy, and a key that was used in one mode makes no second job in
// another. real-policy serves only while its five preconditions hold (requirements C2, C4, C5, C7).
func TestRealPolicyServesOnlyIfReady(t *testing.T) {
	t.Parallel()
	c := &company{stage: newStage(t)}
	c.rt = c.runtime(t)
	u := c.unit(twoPartitions, []schema.UnixUser{alice, bob}, nil, 0)
	c.carry(t, u, false)
	scopeOf := func(mode, partition string) runtimes.QueueScope {
		m, hasRunbook := mapDocument(t, mode, partition)
		at := c.queueOf(u, "physics.lattice", m)
		at.HasRunbook = hasRunbook
		return at
	}
	submit := func(at runtimes.QueueScope, key, requested string) (queue.Job, error) {
		s := submission("physics.lattice", alice, key, "true")
		s.Queue = requested
		return c.rt.Submit(t.Context(), at, s)
	}
	answers := map[string]map[string]queue.Resolution{}
	var first queue.Job
	for turn, mode := range []string{schema.ModePassthrough, schema.ModeStubPolicy, schema.ModeRealPolicy, schema.ModeStubPolicy,
		schema.ModePassthrough} {
		at := scopeOf(mode, "quick")
		seen := map[string]queue.Resolution{}
		for _, requested := range []string{"quick", "other", ""} {
			job, err := submit(at, fmt.Sprintf("turn-%d-%s", turn, requested), requested)
			if mode == schema.ModePassthrough && requested == "other" {
				require.ErrorIs(t, err, queue.ErrDenied, "no partition has this name")
				continue
			}
			require.NoError(t, err, "%s %q", mode, requested)
			require.Equal(t, mode, job.Resolution.Adapter)
			seen[requested] = *job.Resolution
			if mode != schema.ModePassthrough {
				require.Equal(t, []any{"quick", 5, requested != "quick"}, []any{job.Queue, job.Minutes, job.Resolution.UsedFallback})
			}
		}
		kept, err := submit(at, "kept", "quick")
		require.NoError(t, err, mode)
		if first.JobID == "" {
			first = kept
		}
		require.Equal(t, []any{first.JobID, first.Submitted}, []any{kept.JobID, kept.Submitted}, "a key of another mode")
		answers[mode] = seen
	}
	for requested, r := range answers[schema.ModeStubPolicy] {
		r.Adapter = schema.ModeRealPolicy
		require.Equal(t, r, answers[schema.ModeRealPolicy][requested], requested)
	}

	n := 0
	refused := func(at runtimes.QueueScope, class error, precondition string) {
		t.Helper()
		n++
		_, err := submit(at, fmt.Sprintf("refused-%d", n), "quick")
		require.ErrorIs(t, err, class)
		require.ErrorContains(t, err, precondition)
		ready, err := c.rt.Readiness(t.Context(), at)
		require.NoError(t, err)
		require.False(t, ready.Serves)
		t.Log(ready)
	}
	ready, err := c.rt.Readiness(t.Context(), scopeOf(schema.ModeRealPolicy, "quick"))
	require.NoError(t, err)
	require.True(t, ready.Serves)
	for _, e := range ready.Preconditions {
		require.True(t, e.Holds, "%+v", e)
		t.Logf("%s: %s", e.Precondition, e.Seen)
	}
	noRunbook := scopeOf(schema.ModeRealPolicy, "quick")
	noRunbook.HasRunbook = false
	refused(noRunbook, queue.ErrConfiguration, "rollback runbook published")
	refused(scopeOf(schema.ModeRealPolicy, "nothing"), queue.ErrConfiguration, "policy valid")
	_, err = submit(scopeOf(schema.ModeStubPolicy, "nothing"), "stub-nothing", "quick")
	require.ErrorIs(t, err, queue.ErrConfiguration, "the same class without the preconditions")
	for _, broken := range []struct{ daemon, precondition string }{{"slurmdbd", "dependencies healthy"},
		{"slurmctld", "control plane reachable"}, {"munged", "credentials of the environment readable"}} {
		c.onControl(t, u, "pkill -STOP -x "+broken.daemon+" || true; pkill -KILL -x "+broken.daemon)
		refused(scopeOf(schema.ModeRealPolicy, "quick"), queue.ErrUnavailable, broken.precondition)
	}
}

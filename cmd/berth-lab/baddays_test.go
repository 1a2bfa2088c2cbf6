package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/runtimes/host/hosttest"
	"berth/runtimes/slurm/profile"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// TestBadDays injects failures on real Slurm, over real SSH, with real Git. The daemon is a
// separate process, so that it can be killed. TestLongBadDays injects more of them, and bad
// input by users, forges and other daemons, on each version of Slurm.
func TestBadDays(t *testing.T) {
	t.Parallel()
	s := newScene(t, hosttest.Image())
	s.playBadDays()
	require.Empty(s, s.forge.Violations(), "calls that the forge forbids")
}

func (s *scene) playBadDays() {
	s.Helper()
	s.play("slurmctld is killed", controllerKilled)
	s.play("a worker's sshd is gone", workerUnreachable)
	s.play("Git is down, then back", gitDown)
	s.play("the daemon is killed while it applies", func(s *scene) { daemonKilled(s, []kill{{applying, 0}, {applying, 0}}) })
}

// sleeper is a job that outlasts every test.
const sleeper = "#!/bin/sh\nsleep 600\n"

// saved waits until Slurm's state file has a change of a job. The file then has all earlier
// changes too. Slurm may lose later ones in a crash.
func (s *scene) saved(key schema.Key, job string) {
	s.Helper()
	var state struct{ Conf, Controller string }
	require.NoError(s, json.Unmarshal(s.statusOf(key).RuntimeState, &state))
	const mark = "saved-by-now"
	s.on(state.Controller, "SLURM_CONF="+state.Conf+" scontrol update jobid="+job+" comment="+mark)
	s.eventually("the job's comment in the state file", func() string {
		return s.on(state.Controller, "export SLURM_CONF="+state.Conf+
			"; d=$(scontrol show config | awk '/^StateSaveLocation/ {print $3}'); grep -qa "+mark+" $d/job_state || ls -l $d")
	})
}

func controllerKilled(s *scene) {
	// One that runs on each worker, and one that waits for them.
	var jobs []slurmtest.Job
	for _, state := range []slurmtest.State{slurmtest.Running, slurmtest.Running, slurmtest.Pending} {
		id, err := s.submit(s.Context(), labtest.Train, sleeper, "/dev/null", 2)
		require.NoError(s, err)
		job, err := s.untilJob(s.Context(), labtest.Train, id, state)
		require.NoError(s, err)
		jobs = append(jobs, job)
	}
	s.saved(labtest.Train, jobs[len(jobs)-1].ID)
	tip, events := s.git.Tip(reconciler.BranchStatus), len(s.told())
	before := s.statusOf(labtest.Train)
	daemons, err := s.fingerprint(s.Context(), labtest.Assembly)
	require.NoError(s, err)
	slurmd := s.startedAt("dev-gpu-1", profile.WorkerPID)
	require.NotEmpty(s, slurmd)

	s.restarted(labtest.Train)
	s.eventually("the status is running again", func() string {
		if st := s.statusOf(labtest.Train); st.Attempt == before.Attempt || st.Phase != plan.PhaseRunning || !settled(st) {
			return show(st)
		}
		return ""
	})

	var seen []plan.Status
	for _, st := range s.history(tip, labtest.Train) {
		if member(st, "controller-0").State == plan.Stopped && condition(st, "Ready").Status == "False" &&
			condition(st, "Reconciling").Message == "start controller-0" {
			seen = append(seen, st)
		}
	}
	require.NotEmpty(s, seen, "the status never showed that slurmctld was down")
	require.Equal(s, []string{"running"}, s.toldOf(labtest.Train, events))
	for _, was := range jobs {
		now, err := s.jobOf(labtest.Train, was.ID)
		require.NoError(s, err)
		require.Equal(s, was.State, now.State, show(now))
		require.Equal(s, was.Nodes, now.Nodes)
		require.True(s, was.Submitted.Equal(now.Submitted), show(now))
	}
	if !s.slurm.Reexecutes() { // later releases restart slurmd at a reconfigure, and a raised FirstJobId needs one
		require.Equal(s, slurmd, s.startedAt("dev-gpu-1", profile.WorkerPID), "the worker was touched")
	}
	after, err := s.fingerprint(s.Context(), labtest.Assembly)
	require.NoError(s, err)
	require.Equal(s, daemons, after, "the neighbour was touched")
	s.asDeclared(labtest.Train, labtest.Assembly)
	s.cancelJobs(labtest.Train)
}

func workerUnreachable(s *scene) {
	job, err := s.startJob(s.Context(), labtest.Train, sleeper)
	require.NoError(s, err)
	lost, other := job.Nodes[0], "dev-gpu-2"
	if lost == other {
		other = "dev-gpu-1"
	}
	on := func(st plan.Status, node string) plan.MemberStatus {
		i := slices.IndexFunc(st.Members, func(m plan.MemberStatus) bool { return m.Node == node })
		require.GreaterOrEqual(s, i, 0, show(st))
		return st.Members[i]
	}
	events := len(s.told())
	slurmd := s.startedAt(lost, profile.WorkerPID)

	s.sshd(lost, "KILL")
	s.eventually("the member is reported unreachable", func() string {
		st := s.statusOf(labtest.Train)
		if on(st, lost).State != plan.Unreachable || condition(st, "Degraded").Status != "True" {
			return show(st)
		}
		return ""
	})
	st := s.statusOf(labtest.Train)
	require.Equal(s, plan.PhaseRunning, st.Phase, "the running members are kept")
	require.Equal(s, plan.ConditionTrue, condition(st, "Ready").Status, "one of two workers may be missing")
	require.Contains(s, condition(st, "Degraded").Message, "1 of 2 workers out of service: "+on(st, lost).Name+" on "+lost+": unreachable")
	require.Equal(s, plan.Running, on(st, other).State)
	require.Equal(s, plan.Running, on(st, "dev-lab-1").State)

	// Others go on, of this instance too.
	s.repaired(other)
	s.restarted(labtest.Assembly)
	s.ready(labtest.Assembly)

	s.sshd(lost, "start")
	s.ready(labtest.Train)
	require.Equal(s, slurmd, s.startedAt(lost, profile.WorkerPID), "the worker was touched")
	require.NoError(s, s.stillRunning(s.Context(), labtest.Train, job))
	require.NotContains(s, s.toldOf(labtest.Train, events), "deleting")
	require.NotContains(s, s.toldOf(labtest.Train, events), "failed")
	s.asDeclared(labtest.Train, labtest.Assembly)
	s.cancelJobs(labtest.Train)
}

func gitDown(s *scene) {
	events, tip := len(s.told()), s.git.Tip(reconciler.BranchStatus)
	s.git.SetFaults(gittest.Faults{Down: true})
	// A user merges a third worker. The webhook arrives, and Git does not answer.
	s.put("train: a third worker", labtest.Train, labtest.InstanceYAML("train", 3))
	s.repaired("dev-gpu-1")
	s.restarted(labtest.Assembly)
	require.Empty(s, s.daemons("dev-gpu-4"), "something new was started that Git does not know of")
	require.Equal(s, tip, s.git.Tip(reconciler.BranchStatus))

	s.git.SetFaults(gittest.Faults{})
	require.NoError(s, s.forge.Redeliver(s.lastDelivery()))
	st := s.ready(labtest.Train)
	require.Len(s, st.Members, 4)
	s.asDeclared(labtest.Train, labtest.Assembly)
	// The events of the outage are published once.
	require.NotEmpty(s, s.toldOf(labtest.Assembly, events))
	require.NotContains(s, s.toldOf(labtest.Train, events), "failed")
}

// kill is a moment at which the daemon is killed: a delay after a log line.
type kill struct {
	after string
	delay time.Duration
}

// Log lines after which the daemon is killed.
const decided, applying, ended = `"msg":"decision in force"`, `"msg":"plan application started"`, `"msg":"action ended"`

// daemonKilled deletes train and creates it again, once for each kill. The daemon
// loses its mirror with each.
func daemonKilled(s *scene, kills []kill) {
	without := maps.Clone(s.base)
	delete(without, pathOf(s, labtest.Train))
	for _, m := range kills {
		cluster, _, err := s.clusterOf(s.Context(), labtest.Train)
		deleting := err == nil // it is there
		events := len(s.told())
		_, end := s.logged(0, "")
		pull := 0
		if deleting {
			s.declare(without)
		} else {
			pull = s.merge("train, once more",
				gittest.Commit{Files: map[string]string{pathOf(s, labtest.Train): s.base[pathOf(s, labtest.Train)]}})
		}
		s.eventually("the daemon logs "+m.after, func() string {
			if lines, _ := s.logged(end, m.after); len(lines) == 0 {
				return "not yet"
			}
			return ""
		})
		time.Sleep(m.delay) // the moment of the kill
		s.daemon.kill()
		phases, _ := s.logged(end, `"phase changed"`)
		require.NoError(s, os.RemoveAll(filepath.Join(s.dir, s.config.name+"-mirror")))
		s.serve()

		if deleting {
			s.eventually("train is gone", func() string {
				if st := s.statusOf(labtest.Train); st.Phase != "" {
					return show(st)
				}
				return ""
			})
			require.Equal(s, []string{"deleting", "deleted"}, s.toldOf(labtest.Train, events))
			left, err := s.remains(s.Context(), labtest.Train, cluster)
			require.NoError(s, err)
			require.Empty(s, left)
			s.asDeclared(labtest.Assembly)
		} else {
			st := s.ready(labtest.Train)
			ended, _ := s.logged(end, `"action ended"`)
			require.Equal(s, []string{"requested", "running"}, s.toldOf(labtest.Train, events), ended)
			require.Len(s, st.Members, 3)
			require.Equal(s, "dev-gpu-1 idle\ndev-gpu-2 idle", s.nodesOf(labtest.Train))
			s.asDeclared(labtest.Train, labtest.Assembly)
			_, err := s.untilComment(s.Context(), pull, "**Done: 1 instance running.**")
			require.NoError(s, err)
		}
		s.Logf("deleting=%v, killed %.2f s after %s and %d phases: as declared", deleting, m.delay.Seconds(), m.after, len(phases))
	}
}

//go:build long

package main

import (
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/labtest"
	"berth/examples/explore"
	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

// TestLongBadDays plays those of TestBadDays, and failures of hosts and of the daemon that
// take long, on each version of Slurm in a lab of its own, at the same time.
func TestLongBadDays(t *testing.T) {
	for _, suite := range explore.Draw(t, 1, []string{"bookworm", "trixie"}) { // Slurm 22.05 and 24.11
		t.Run(suite, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, suite)
			draw := rand.New(rand.NewPCG(explore.Seed(t), 0))
			random := func(most time.Duration) time.Duration { return time.Duration(draw.Int64N(int64(most))) }
			s.playBadDays()
			s.play("a host accepts and hangs", hostHangs)
			s.play("the control host's cable is out", controllerCutOff)
			s.play("the daemon is killed anywhere", func(s *scene) {
				daemonKilled(s, []kill{{applying, 0}, {applying, 0}, {decided, 0}, {ended, 0}, {applying, random(time.Second)}, {applying, random(3 * time.Second)}})
			})
			require.Empty(s, s.forge.Violations(), "calls that the forge forbids")
		})
	}
}

// hostHangs: the worker of assembly accepts connections and never answers.
func hostHangs(s *scene) {
	s.repaired("dev-gpu-1")
	goroutines := s.measure(s.daemon, "go_goroutines")

	s.sshd("dev-gpu-3", "STOP")
	s.eventually("the member is reported unreachable", func() string {
		if st := s.statusOf(labtest.Assembly); member(st, "worker-0").State != plan.Unreachable {
			return show(st)
		}
		return ""
	})
	s.repaired("dev-gpu-1") // of another tenant, while the host hangs
	require.Equal(s, plan.PhaseRunning, s.statusOf(labtest.Assembly).Phase)
	s.observed(6)
	s.eventually("calls to the host do not pile up", func() string {
		if now := s.measure(s.daemon, "go_goroutines"); now > goroutines+15 {
			return show([]float64{goroutines, now})
		}
		return ""
	})

	s.sshd("dev-gpu-3", "CONT")
	s.ready(labtest.Assembly)
	s.eventually("the calls left no process", func() string {
		if now := s.measure(s.daemon, "go_goroutines"); now > goroutines+8 {
			return show([]float64{goroutines, now})
		}
		return ""
	})
	s.asDeclared(labtest.Train, labtest.Assembly)
}

// controllerCutOff: the network drops all packets to the host of both control planes.
// Meanwhile a user deletes an instance and reverts that.
func controllerCutOff(s *scene) {
	before, events := s.everything(), len(s.told())
	job, err := s.startJob(s.Context(), labtest.Train, sleeper)
	require.NoError(s, err)
	s.on("dev-lab-1", "ip link set eth0 down")
	for _, key := range []schema.Key{labtest.Train, labtest.Assembly} {
		s.eventually("the state of "+key.Name+" is unknown", func() string {
			if c := condition(s.statusOf(key), "Ready"); c.Status != "Unknown" || !strings.Contains(c.Message, "dev-lab-1") {
				return show(c)
			}
			return ""
		})
		require.Equal(s, plan.PhaseRunning, s.statusOf(key).Phase)
	}
	tip := s.git.Tip(reconciler.BranchStatus)
	s.observed(8) // each with another failure
	news, err := s.git.Git("log", "--format=%h", tip+".."+reconciler.BranchStatus)
	require.NoError(s, err)
	require.LessOrEqual(s, len(strings.Fields(news)), 4, "the status is written repeatedly without a change")

	without := maps.Clone(s.base)
	delete(without, pathOf(s, labtest.Assembly))
	s.declare(without)
	s.decided()
	require.Equal(s, plan.PhaseDeleting, s.statusOf(labtest.Assembly).Phase)
	s.observed(4)
	require.Equal(s, plan.PhaseDeleting, s.statusOf(labtest.Assembly).Phase)
	s.declare(s.base)
	s.decided()

	s.on("dev-lab-1", "ip link set eth0 up")
	s.ready(labtest.Train)
	s.ready(labtest.Assembly)
	require.Equal(s, before, s.everything(), "a daemon was touched")
	require.Equal(s, []string{"deleting", "requested", "running"}, s.toldOf(labtest.Assembly, events))
	require.Empty(s, s.toldOf(labtest.Train, events))
	require.NoError(s, s.stillRunning(s.Context(), labtest.Train, job))
	s.cancelJobs(labtest.Train)
}

package slurm

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/profile"
)

// endsAtRestart lets slurmctld end at its restart, with slurmdbd if accounting ends, too.
func (c *fakeCluster) endsAtRestart(withAccounting bool) {
	ended := false
	c.ctl.before = func(op runtimes.Op) error {
		switch s := op.Service; {
		case s == nil:
		case s.Name == profile.Slurmctld && s.Verb == "restart":
			c.ctl.services[profile.Slurmctld], ended = false, true
			if withAccounting {
				c.ctl.services[profile.Slurmdbd] = false
			}
			return &runtimes.OpError{Host: "ctl", Op: "restart slurmctld", Message: "fatal: bad configuration"}
		case s.Name == profile.Slurmdbd && s.Verb == "start" && ended && withAccounting:
			return &runtimes.OpError{Host: "ctl", Op: "start slurmdbd", Message: "no database"}
		}
		return nil
	}
}

// A change whose files slurmctld does not start with is rolled back, also without accounting. It raises no id of a job: slurmctld was
// stopped, and did not crash.
func TestRollBackNeedsNoAccounting(t *testing.T) {
	for _, withAccounting := range []bool{false, true} {
		c := newCluster(t)
		c.lastJob = 70
		s := profile.Stack{Cluster: c.record(t).Cluster}
		c.ctl.files[s.SavedAssociations()], c.ctl.files[profile.DatabaseData] = []byte("x"), nil
		before := c.conf()
		after := c.unit
		after.Effective.Config = []byte(`{"options":{"MaxJobCount":20002}}`)
		c.endsAtRestart(withAccounting)
		err := c.apply(t, plan.Configure, after)
		require.ErrorContains(t, err, "the old one is restored")
		require.True(t, c.ctl.services[profile.Slurmctld])
		require.Equal(t, before, c.conf())
		require.Zero(t, c.record(t).FirstJob)
		require.Equal(t, journal{}, c.record(t).journal)
	}
}

// A configure that finds slurmctld down starts it through the gate.
func TestConfigureStartsSlurmctldThroughTheGate(t *testing.T) {
	c := crashed(t)
	c.lastJob = 70
	c.ctl.files[profile.DatabaseData] = nil
	require.NoError(t, c.on(t).files.activate(t.Context(), c.on(t).disk.Owed, false))
	require.True(t, c.ctl.services[profile.Slurmctld])
	require.Equal(t, 70+jobMargin, c.record(t).FirstJob)
}

// A daemon that runs and answers is not started again.
func TestDaemonThatServesIsLeftAlone(t *testing.T) {
	c := crashed(t)
	require.NoError(t, c.startController(t))
	for _, name := range []string{profile.Munged, profile.MariaDB, profile.Slurmdbd} {
		require.False(t, c.ctl.ran("start "+name), name)
	}
}

// A creation that goes on after the loss of the record, and meets a slurmdbd that hangs, keeps the new record.
func TestHungSlurmdbdKeepsTheRecordOfACreation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // probes of a daemon that hangs are waited for
		c := newCluster(t)
		c.loseRecord()
		inner := c.ctl.before
		c.ctl.before = func(op runtimes.Op) error {
			switch {
			case op.Run != nil && op.Run.Program == "sacctmgr" && op.Run.Args[len(op.Run.Args)-1] == "format=cluster":
				return &runtimes.OpError{Host: "ctl", Op: "run sacctmgr", Code: runtimes.CodeTimeout}
			case op.Service != nil && op.Service.Name == profile.Slurmdbd && op.Service.Verb == "stop":
				return errCrash
			case inner != nil:
				return inner(op)
			}
			return nil
		}
		p := plan.Plan{Key: c.unit.Effective.Key, After: &c.unit}
		err := c.rt.Apply(t.Context(), runtimes.Change{Plan: &p, Action: plan.Action{ID: "action.1", Verb: plan.Create},
			Stamp: runtimes.Stamp{Epoch: 1, ActionID: "action.1"}})
		require.ErrorIs(t, err, errCrash)
		rec := c.record(t)
		require.Equal(t, []any{recordFormat, c.unit.Effective.Key}, []any{rec.Format, rec.Unit.Effective.Key})
		require.Contains(t, rec.Hung, profile.Slurmdbd)
	})
}

package slurm

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

func (c *fakeCluster) state(t *testing.T, member string) plan.State {
	t.Helper()
	for _, m := range c.observe(t).Members {
		if m.Name == member {
			return m.State
		}
	}
	return ""
}

// A member with an unexplained drain of Berth is partial, and joining undoes the drain.
func TestForgottenDrainIsUndone(t *testing.T) {
	c := newCluster(t)
	for _, reason := range []string{drainLeave.reason("action.1"), drainStop.reason("action.1")} {
		c.node = nodeDrained(reason)
		require.Equal(t, plan.Partial, c.state(t, "worker-0"), reason)
		require.NoError(t, c.apply(t, plan.Join, c.unit))
		require.Equal(t, plan.Running, c.state(t, "worker-0"), reason)
	}
	c.node = nodeDrained("bad fan")
	require.Equal(t, plan.Running, c.state(t, "worker-0"), "a person's drain stays that person's")
}

// A start undoes the drains of the stop on workers whose slurmd never stopped.
func TestStartAfterAnIncompleteStop(t *testing.T) {
	c := newCluster(t)
	rec := c.freshRecord()
	rec.Stopped = true
	c.put(t, rec)
	c.node = nodeDrained(drainStop.reason("action.1"))
	for _, name := range controlServices() {
		c.ctl.services[name] = false
	}
	ctl := c.on(t)
	require.NoError(t, ctl.start(t.Context(), &c.unit, plan.Action{Verb: plan.Start, Member: "controller-0"}))
	require.Equal(t, idleNode, c.node)
	require.False(t, c.record(t).Stopped)
	require.Equal(t, cluster.Steps{}, c.record(t).Owed)
}

// The steps that follow a written file are recorded before it, and the next attempt
// does them.
func TestPendingStepsAreDoneAfterACrash(t *testing.T) {
	c := newCluster(t)
	conf := profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}.Conf()
	// Its port changes, which takes a restart.
	old := strings.Replace(string(c.ctl.files[conf]), "SlurmctldPort=20000", "SlurmctldPort=20500", 1)
	require.NotEqual(t, old, string(c.ctl.files[conf]))
	c.ctl.files[conf] = []byte(old)
	c.hash = "HASH_VAL = Different Ours=0x1 Slurmctld=0x2" // slurmctld has read it
	c.ctl.before = func(op runtimes.Op) error {
		if op.Service != nil && op.Service.Verb == "restart" {
			return runtimes.ErrUncertain
		}
		return nil
	}
	require.ErrorIs(t, c.apply(t, plan.Configure, c.unit), runtimes.ErrUncertain)
	require.Contains(t, string(c.ctl.files[conf]), "SlurmctldPort=20000", "it was written")
	require.True(t, c.record(t).Owed.Restart)
	require.Contains(t, c.observe(t).Drift,
		plan.Drift{Member: "controller-0", What: "configuration", Detail: "unfinished change: restart of slurmctld, reconfigure"})

	c.ctl.before = func(op runtimes.Op) error {
		if op.Service != nil && op.Service.Verb == "restart" {
			c.say(func() { c.hash = "HASH_VAL = Match" })
		}
		return nil
	}
	require.NoError(t, c.apply(t, plan.Configure, c.unit))
	require.True(t, c.ctl.ran("restart slurmctld"))
	require.True(t, c.ctl.ran("scontrol reconfigure"))
	require.Equal(t, cluster.Steps{}, c.record(t).Owed)
	require.Empty(t, c.observe(t).Drift)
}

// slurmctld loses its last changes in a crash. The attempt after a crash of Berth
// repairs the nodes.
func TestNodesAreRepairedAfterACrash(t *testing.T) {
	c := newCluster(t)
	c.ctl.services[profile.Slurmctld] = false
	c.node = nodeDrained(drainLeave.reason("gone"))
	c.ctl.before = func(op runtimes.Op) error {
		if op.Run != nil && slices.Contains(op.Run.Args, "state=undrain") {
			return errCrash
		}
		return nil
	}
	require.ErrorIs(t, c.on(t).daemons.start(t.Context(), false), errCrash)
	require.True(t, c.ctl.services[profile.Slurmctld])
	require.NotEmpty(t, c.observe(t).Drift)
	c.ctl.before = nil
	require.NoError(t, c.apply(t, plan.Configure, c.unit))
	require.Equal(t, idleNode, c.node)
	require.Empty(t, c.observe(t).Drift)
}

// Users are recorded before they get accounts, so undoing an interrupted change
// removes the accounts.
func TestUsersAreRecordedBeforeTheirAccounts(t *testing.T) {
	c := newCluster(t)
	more := c.unit
	more.Effective.Users = append([]schema.UnixUser{{Name: "bob", UID: 2002}}, more.Effective.Users...)
	c.ctl.before = func(op runtimes.Op) error {
		if op.User != nil && op.User.Name == "bob" && !op.User.Absent {
			require.Contains(t, c.record(t).People, schema.UnixUser{Name: "bob", UID: 2002})
		}
		if op.Run != nil && op.Run.Program == "scontrol" {
			return errCrash
		}
		return nil
	}
	require.ErrorIs(t, c.apply(t, plan.Configure, more), errCrash)
	c.ctl.before = nil
	require.Contains(t, c.ctl.users, "bob")
	require.Contains(t, c.wk.users, "bob")
	require.Contains(t, c.people(), "bob")
	require.Equal(t, c.unit.Effective.Users, c.observe(t).Unit.Effective.Users, "the applied unit is still the old one")
	require.NotEmpty(t, c.observe(t).Drift)

	require.NoError(t, c.apply(t, plan.Configure, c.unit))
	require.NotContains(t, c.ctl.users, "bob")
	require.NotContains(t, c.wk.users, "bob")
	require.NotContains(t, c.people(), "bob")
	require.Empty(t, c.record(t).People)
	require.Empty(t, c.observe(t).Drift)
}

func TestUserOfAnotherInstanceKeepsTheAccount(t *testing.T) {
	c := newCluster(t)
	neighbour := c.freshRecord()
	neighbour.Unit.Effective.Key = schema.InstanceKey("t", "p", "two")
	neighbour.Unit.Effective.Users = nil
	neighbour.Cluster = cluster.Name(neighbour.Unit.Effective.Key)
	neighbour.People = c.unit.Effective.Users
	c.ctl.files[profile.Stack{Cluster: neighbour.Cluster}.Record()] = neighbour.encode()
	nobody := c.unit
	nobody.Effective.Users = nil
	// While it is looked whose account is needed, nobody gets to need one.
	c.ctl.before = func(op runtimes.Op) error {
		if op.List != nil {
			l := c.rt.env.locks["host ctl"]
			require.False(t, l.TryLock(), "the host is not locked")
		}
		return nil
	}
	require.NoError(t, c.apply(t, plan.Configure, nobody))
	require.Contains(t, c.ctl.users, "alice")
	require.NotContains(t, c.wk.users, "alice")
}

// Two instances may remove a user at the same time: the account must not stay because each of them
// still finds the user in the record of the other. The record forgets users with their accounts,
// before the host is unlocked.
func TestRemovedUserIsForgottenWithTheAccount(t *testing.T) {
	c := newCluster(t)
	nobody := c.unit
	nobody.Effective.Users = nil
	decided, unlocked := false, false
	c.ctl.before = func(op runtimes.Op) error {
		decided = decided || op.List != nil // who else needs the account
		if l := c.rt.env.locks["host ctl"]; decided && !unlocked && l.TryLock() {
			l.Unlock()
			unlocked = true
			rec := c.record(t)
			require.Empty(t, rec.people())
		}
		return nil
	}
	require.NoError(t, c.apply(t, plan.Configure, nobody))
	require.True(t, unlocked)
	require.NotContains(t, c.ctl.users, "alice")
	require.NotContains(t, c.wk.users, "alice")
}

func TestInstanceWithDriftedFilesCanBeDeleted(t *testing.T) {
	c := newCluster(t)
	c.hash = "HASH_VAL = Different Ours=0x1 Slurmctld=0x2"
	require.NoError(t, c.apply(t, plan.Delete, c.unit))
	require.Equal(t, plan.Absent, c.observe(t).Presence)
}

func TestRemovedUsersAreDriftAndMadeAgain(t *testing.T) {
	for name, one := range map[string]struct {
		what  plan.DriftKind
		drift func(*fakeCluster)
	}{
		"no association": {"accounting", func(c *fakeCluster) { delete(c.db.Users, "alice") }},
		"one more":       {"accounting", func(c *fakeCluster) { c.db.AddUser("eve", cluster.MembersAccount, accounting.Settings{}) }},
		"no account":     {"users", func(c *fakeCluster) { delete(c.ctl.users, "alice") }},
		"another uid":    {"users", func(c *fakeCluster) { c.ctl.users["alice"] = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			require.Empty(t, c.observe(t).Drift)
			one.drift(c)
			require.Len(t, c.observe(t).Drift, 1)
			require.Equal(t, one.what, c.observe(t).Drift[0].What)
			require.NoError(t, c.apply(t, plan.Configure, c.unit))
			require.Empty(t, c.observe(t).Drift)
		})
	}
}

// A stop that was taken back before it ended leaves a cluster in which jobs may run: a later
// delete waits for them.
func TestDeleteAfterAnInterruptedStopWaitsForJobs(t *testing.T) {
	c := newCluster(t)
	c.queue = []string{"7 R 2001 main"}
	rec := c.record(t)
	rec.Stopped = true
	c.put(t, rec)
	require.ErrorIs(t, c.apply(t, plan.Delete, c.unit), runtimes.ErrWaiting)
	require.False(t, c.record(t).Deleting)
	require.ErrorIs(t, c.apply(t, plan.Stop, c.unit), runtimes.ErrWaiting)

	c.ctl.services[profile.Slurmctld] = false // the stop has ended
	require.NoError(t, c.apply(t, plan.Delete, c.unit))
	require.False(t, c.ctl.ran("scancel"))
}

// A unit whose accounting is destroyed neither stops nor goes before a person gives up the usage that berth/status lacks. What can be
// recorded is recorded all the same, and accounting that serves again ends the decision.
func TestUnitWithoutAccountingIsStoppedOnceItsUsageIsGivenUp(t *testing.T) {
	giveUp := func(c *fakeCluster) error {
		p := plan.Plan{Key: c.unit.Effective.Key, Before: &c.unit, After: &c.unit}
		a := plan.Action{ID: "action.2", Verb: plan.AbandonUsage, Node: "ctl", Operation: &plan.ActionOperation{ID: "op.1", Name: "dead"}}
		return c.rt.Apply(t.Context(), runtimes.Change{Plan: &p, Action: a, Stamp: runtimes.Stamp{Epoch: 1, ActionID: a.ID}})
	}
	for _, verb := range []plan.Verb{plan.Stop, plan.Delete} {
		c := newCluster(t)
		broken := true
		c.ctl.services[profile.Slurmdbd], c.ctl.services[profile.Slurmctld] = false, false
		c.ctl.files[profile.DatabaseData] = nil
		c.ctl.files[profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}.SavedAssociations()] = []byte("x")
		c.ctl.before = func(op runtimes.Op) error {
			if broken && op.Service != nil && op.Service.Name == profile.Slurmdbd && op.Service.Verb == "start" {
				return &runtimes.OpError{Host: "ctl", Op: "start slurmdbd", Message: "fatal: no database", Code: "io"}
			}
			return nil
		}
		require.ErrorContains(t, c.apply(t, verb, c.unit), "fatal: no database")
		require.NoError(t, giveUp(c))
		require.True(t, c.record(t).UsageAbandoned)
		require.NoError(t, c.apply(t, verb, c.unit))
		require.False(t, c.ctl.services[profile.Slurmctld])
		if verb == plan.Stop {
			broken = false
			require.NoError(t, c.startController(t))
			require.False(t, c.record(t).UsageAbandoned, "accounting serves")
		}
	}
}

// A node that leaves does not count against a file: its slurmd may have ended, and does not register again.
func TestNodeThatLeavesIsNoEvidence(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		c := newCluster(t)
		c.rt = c.runtime(time.Millisecond)
		rec := c.record(t)
		if leaves {
			rec.Closing = map[string]time.Time{nodeTarget("gpu-1"): c.now}
		}
		c.put(t, rec)
		c.ctl.before = func(op runtimes.Op) error {
			if op.Service != nil && op.Service.Name == profile.Slurmctld && op.Service.Verb != "state" {
				c.node = strings.Replace(idleNode, `"state":"idle","state_flags":[]`, `"state":"unknown","state_flags":["NOT_RESPONDING"]`,
					1)
			}
			return nil
		}
		u := c.unit
		u.Effective.Config = []byte(`{"options":{"MaxJobCount":20002}}`)
		u.Members = u.Members[:1]
		err := c.apply(t, plan.Configure, u)
		if leaves {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "the old one is restored")
		}
	}
}

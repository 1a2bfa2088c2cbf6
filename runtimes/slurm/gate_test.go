package slurm

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// crashed is a cluster whose slurmctld was killed.
func crashed(t *testing.T) *fakeCluster {
	t.Helper()
	c := newCluster(t)
	c.ctl.services[profile.Slurmctld] = false
	return c
}

func (c *fakeCluster) startController(t *testing.T) error {
	t.Helper()
	p := plan.Plan{Key: c.unit.Effective.Key, Before: &c.unit, After: &c.unit}
	a := plan.Action{ID: "action.1", Verb: plan.Start, Member: "controller-0", Node: "ctl"}
	return c.rt.Apply(t.Context(), runtimes.Change{Plan: &p, Action: a, Stamp: runtimes.Stamp{Epoch: 1, ActionID: a.ID}})
}

// Accounting has the QoS and accounts that the files name before slurmctld starts: it ends at once without one of them.
func TestAccountingIsRestoredBeforeSlurmctldStarts(t *testing.T) {
	c := crashed(t)
	c.unit.Effective.Config = []byte(`{"partitions":[{"name":"main","qos":"high"}],"qos":[{"name":"high"}]}`)
	c.put(t, c.freshRecord())
	require.NotContains(t, c.db.QoS, "high")
	require.NoError(t, c.startController(t))
	require.Contains(t, c.db.QoS, "high")
	require.Less(t, c.ctl.when("sacctmgr", "add", "qos", "high"), c.ctl.when("start slurmctld"))
	require.False(t, c.ctl.ran("restart slurmdbd"))
}

// If slurmdbd adds nothing to its lists, its memory differs from its database, and it is restarted once.
func TestSlurmdbdThatAddsNothingIsRestartedOnce(t *testing.T) {
	c := crashed(t)
	c.unit.Effective.Config = []byte(`{"partitions":[{"name":"main","qos":"high"}],"qos":[{"name":"high"}]}`)
	c.put(t, c.freshRecord())
	inner, refused := c.ctl.answer, 0
	c.ctl.answer = func(run *runtimes.Run) (string, int) {
		if run.Program == "sacctmgr" && slices.Contains(run.Args, "add") && !slices.Contains(c.ctl.runs, "restart slurmdbd") {
			refused++
			return "Request didn't affect anything\nNothing added.\n", 1
		}
		return inner(run)
	}
	require.NoError(t, c.startController(t))
	require.Equal(t, 1, refused)
	require.Contains(t, c.db.QoS, "high")
	require.Less(t, c.ctl.when("restart slurmdbd"), c.ctl.when("start slurmctld"))
}

// Without slurmdbd, slurmctld starts from its saved associations, and not without them. Either way accounting is the error.
func TestSlurmctldStartsWithoutSlurmdbd(t *testing.T) {
	for _, saved := range []bool{true, false} {
		c := crashed(t)
		c.ctl.services[profile.Slurmdbd] = false
		c.ctl.files[profile.DatabaseData] = nil
		c.ctl.before = func(op runtimes.Op) error {
			if op.Service != nil && op.Service.Name == profile.Slurmdbd && op.Service.Verb == "start" {
				return &runtimes.OpError{Host: "ctl", Op: "start slurmdbd", Message: "fatal: no database", Code: "io"}
			}
			return nil
		}
		if saved {
			c.ctl.files[profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}.SavedAssociations()] = []byte("x")
		}
		err := c.startController(t)
		require.ErrorContains(t, err, "fatal: no database")
		require.Equal(t, saved, c.ctl.services[profile.Slurmctld])
		require.Equal(t, saved, strings.Contains(err.Error(), "accounting is down, and slurmctld serves without it"))
	}
}

// After a crash, the first new job has an id above each known one, and above each that slurmctld may have given since.
// A stop by Berth does not count as a crash.
func TestFirstJobIsAboveEachKnownOneAfterACrash(t *testing.T) {
	c := newCluster(t)
	c.lastJob = 204
	c.hash = "NEXT_JOB_ID = 301\nHASH_VAL = Match"
	c.observe(t) // accounting is late
	crash := func(want int) {
		t.Helper()
		c.ctl.services[profile.Slurmctld] = false
		require.NoError(t, c.startController(t))
		require.Equal(t, want, c.record(t).FirstJob)
		require.Contains(t, c.conf(), fmt.Sprintf("\nFirstJobId=%d\n", want))
		require.Empty(t, c.observe(t).Drift)
	}
	crash(300 + jobMargin)
	crash(1300 + jobMargin) // it has given ids since, which nobody saw
	c.lastJob = 5000
	crash(5000 + jobMargin)

	rec := c.record(t)
	rec.Stopped = true
	c.put(t, rec)
	crash(5000 + jobMargin)
}

// A cluster that slurmdbd no longer knows is not started with empty accounting.
func TestSlurmctldWaitsForItsCluster(t *testing.T) {
	c := crashed(t)
	delete(c.db.Accounts, "root")
	require.ErrorContains(t, c.startController(t), "slurmdbd does not know the cluster")
	require.False(t, c.ctl.services[profile.Slurmctld])
}

// Lost state and lost accounting are not replaced by empty ones before a person accepts the loss.
func TestLostStateWaitsForAPerson(t *testing.T) {
	accepted := func(c *fakeCluster) error {
		p := plan.Plan{Key: c.unit.Effective.Key, Before: &c.unit, After: &c.unit}
		a := plan.Action{ID: "action.2", Verb: plan.AcceptLoss, Node: "ctl", Operation: &plan.ActionOperation{ID: "op.1", Name: "anew"}}
		return c.rt.Apply(t.Context(), runtimes.Change{Plan: &p, Action: a, Stamp: runtimes.Stamp{Epoch: 1, ActionID: a.ID}})
	}
	c := crashed(t)
	mark := profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}.StateMark()
	delete(c.ctl.files, mark)
	err := c.startController(t)
	require.ErrorContains(t, err, "slurmctld has lost its state, with all jobs that were queued or running")
	require.ErrorContains(t, err, "accept_loss")
	require.False(t, c.ctl.services[profile.Slurmctld])
	require.NoError(t, accepted(c))
	require.NoError(t, c.startController(t))
	require.False(t, c.record(t).Anew, "once")

	c.ctl.services[profile.Slurmctld] = false
	require.ErrorContains(t, c.startController(t), "has lost its state")

	c = crashed(t)
	lost := maps.Clone(c.db.Accounts)
	delete(c.db.Accounts, "root")
	require.ErrorContains(t, c.startController(t), "accounting of the cluster "+cluster.Name(c.unit.Effective.Key)+" is lost")
	inner := c.ctl.answer
	c.ctl.answer = func(run *runtimes.Run) (string, int) {
		if run.Program == "sacctmgr" && slices.Contains(run.Args, "load") {
			c.db.Accounts = lost
		}
		return inner(run)
	}
	require.NoError(t, accepted(c))
	require.NoError(t, c.startController(t))
}

// A host that lost the record alone still has the state: its unit is absent, and not lost.
func TestStateRemainsWithoutItsRecord(t *testing.T) {
	c := newCluster(t)
	stack := profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}
	c.ctl.files[stack.State()] = []byte{}
	c.loseRecord()
	o := c.observe(t)
	require.Equal(t, plan.Absent, o.Presence)
	require.True(t, o.Remains)
	require.Contains(t, o.Reason, stack.Record()+" on ctl and its copy are missing or damaged")
	delete(c.ctl.files, stack.State())
	o = c.observe(t)
	require.False(t, o.Remains)
	require.Empty(t, o.Reason)
}

// A record that was removed, cut off or edited is restored from its copy by the next action, which then goes on.
func TestRecordIsRestoredFromItsCopy(t *testing.T) {
	for name, damage := range map[string]func(files map[string][]byte, record string){
		"removed": func(files map[string][]byte, record string) { delete(files, record) },
		"cut off": func(files map[string][]byte, record string) { files[record] = files[record][:200] },
		"edited": func(files map[string][]byte, record string) {
			files[record] = bytes.Replace(files[record], []byte(`"complete": true`), []byte(`"complete": null`), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			stack := profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}
			require.NoError(t, c.apply(t, plan.Configure, c.unit))
			want := string(c.ctl.files[stack.Record()])
			damage(c.ctl.files, stack.Record())
			o := c.observe(t)
			require.Equal(t, plan.Present, o.Presence)
			require.True(t, o.Complete)
			require.Contains(t, fmt.Sprint(o.Drift), stack.Record()+" on ctl or its copy is missing or damaged")
			require.NoError(t, c.apply(t, plan.Configure, c.unit))
			require.JSONEq(t, want, string(c.ctl.files[stack.Record()]))
			require.Empty(t, c.observe(t).Drift)
			_, aside := c.ctl.files[stack.DamagedRecord()]
			require.Equal(t, name != "removed", aside)

			damage(c.ctl.files, stack.Record())
			require.NoError(t, c.apply(t, plan.Delete, c.unit), "a deletion needs no person")
			require.NotContains(t, c.ctl.files, stack.Record())
			require.NotContains(t, c.ctl.files, stack.RecordCopy())
		})
	}
}

// The copy follows the record: one that is older, damaged or gone is written again, and never taken for the record.
func TestCopyOfTheRecordFollowsIt(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *fakeCluster) []byte{
		"gone":    func(*testing.T, *fakeCluster) []byte { return nil },
		"damaged": func(*testing.T, *fakeCluster) []byte { return []byte("{") },
		"older": func(t *testing.T, c *fakeCluster) []byte {
			older := c.record(t)
			older.Stopped = true
			return older.encode()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			stack := profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}
			c.ctl.files[stack.RecordCopy()] = change(t, c)
			if name == "gone" {
				delete(c.ctl.files, stack.RecordCopy())
			}
			require.Contains(t, fmt.Sprint(c.observe(t).Drift), stack.Record()+" on ctl or its copy is missing or damaged")
			require.NoError(t, c.apply(t, plan.Configure, c.unit))
			require.False(t, c.record(t).Stopped)
			require.Equal(t, c.ctl.files[stack.Record()], c.ctl.files[stack.RecordCopy()])
			require.NotContains(t, c.ctl.files, stack.DamagedRecord())
			require.Empty(t, c.observe(t).Drift)
		})
	}
}

// A neighbour whose record is gone and whose copy is there still has its ports, accounts and accounting.
func TestNeighbourWithItsCopyOnlyIsSeen(t *testing.T) {
	c := newCluster(t)
	neighbour := c.freshRecord()
	neighbour.Unit.Effective.Key = schema.InstanceKey("t", "p", "two")
	neighbour.Cluster = cluster.Name(neighbour.Unit.Effective.Key)
	c.ctl.files[profile.Stack{Cluster: neighbour.Cluster}.RecordCopy()] = neighbour.encode()
	others, err := c.on(t).file().others(t.Context())
	require.NoError(t, err)
	require.Len(t, others, 1)
	require.Equal(t, neighbour.Cluster, others[0].Cluster)
}

// A controller and a worker whose records are all damaged find each other by the munge key, and the stack keeps its ports.
func TestDamagedRecordsOfAllHostsAreMadeAgain(t *testing.T) {
	c := newCluster(t)
	stack := profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}
	c.ctl.files[stack.State()] = []byte{}
	for host, paths := range map[*fakeHost][]string{c.ctl: {stack.Record(), stack.RecordCopy()}, c.wk: {workerRecordPath}} {
		for _, path := range paths {
			host.files[path] = []byte("{}")
		}
	}
	p := plan.Plan{Key: c.unit.Effective.Key, After: &c.unit}
	do := func(verb plan.Verb, member, node string) error {
		a := plan.Action{ID: "action.1", Verb: verb, Member: member, Node: node}
		return c.rt.Apply(t.Context(), runtimes.Change{Plan: &p, Action: a, Stamp: runtimes.Stamp{Epoch: 1, ActionID: a.ID}})
	}
	require.NoError(t, do(plan.Create, "controller-0", "ctl"))
	require.ErrorIs(t, do(plan.Join, "worker-0", "gpu-1"), runtimes.ErrWaiting, "the line of the node lacks the shape of its host")
	require.NoError(t, do(plan.Configure, "controller-0", "ctl"))
	require.NoError(t, do(plan.Join, "worker-0", "gpu-1"))
	require.Equal(t, cluster.Ports{Slurmctld: cluster.FirstPort, Slurmdbd: cluster.FirstPort + 1}, c.record(t).Ports)
	require.Equal(t, plan.Running, c.observe(t).Members[1].State)
}

// A truncated record and its truncated copy are set aside, and rebuilt from the other files of the host. A deletion needs them.
func TestDamagedRecordIsMadeAgain(t *testing.T) {
	c := newCluster(t)
	stack := profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}
	c.ctl.files[stack.State()] = []byte{}
	half := c.ctl.files[stack.Record()][:200]
	c.ctl.files[stack.Record()], c.ctl.files[stack.RecordCopy()] = half, half
	scope := runtimes.Scope{Key: c.unit.Effective.Key, Members: c.unit.Members, Instance: &c.unit.Effective}
	o := c.rt.Observe(t.Context(), scope)
	require.Equal(t, plan.Absent, o.Presence)
	require.True(t, o.Remains)
	scope.Instance = nil
	o = c.rt.Observe(t.Context(), scope)
	require.Equal(t, plan.Unknown, o.Presence)
	require.True(t, o.NeedsPerson)
	require.Contains(t, o.Reason, "its deletion needs the record")
	do := func(verb plan.Verb) error {
		p := plan.Plan{Key: c.unit.Effective.Key, Before: &c.unit, After: &c.unit}
		a := plan.Action{ID: "action.1", Verb: verb, Member: "controller-0", Node: "ctl"}
		return c.rt.Apply(t.Context(), runtimes.Change{Plan: &p, Action: a, Stamp: runtimes.Stamp{Epoch: 1, ActionID: a.ID}})
	}
	require.ErrorContains(t, do(plan.Delete), "damaged")
	require.Equal(t, half, c.ctl.files[stack.Record()])

	conf := c.ctl.files[stack.Conf()]
	c.ctl.files[stack.Conf()] = append(slices.Clone(conf), "NodeName=gone NodeAddr=10.0.0.9 CPUs=2 RealMemory=1000\n"...)
	require.ErrorContains(t, do(plan.Create), "has the node gone, which")
	c.ctl.files[stack.Conf()] = append(slices.Clone(conf), "PartitionName=old State=UP\n"...)
	require.ErrorContains(t, do(plan.Create), "has the partition old, which")
	require.Equal(t, half, c.ctl.files[stack.Record()])
	c.ctl.files[stack.Conf()] = conf
	require.NoError(t, do(plan.Create))
	require.Equal(t, cluster.NodeLines(conf), cluster.NodeLines(c.ctl.files[stack.Conf()]), "the lines of nodes stay as they were")
	require.Contains(t, string(c.ctl.files[stack.DamagedRecord()]), `"record": "{`)
	require.Equal(t, plan.Present, c.observe(t).Presence)
}

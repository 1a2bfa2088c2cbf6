package slurm

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// A lost file must not cost every instance its accounting.
func TestExistingDatabaseIsNotOverwritten(t *testing.T) {
	c := newCluster(t)
	neighbour := c.freshRecord()
	neighbour.Unit.Effective.Key = schema.InstanceKey("t", "p", "two")
	neighbour.Cluster = cluster.Name(neighbour.Unit.Effective.Key)
	records := profile.Stack{Cluster: neighbour.Cluster}.Record()
	delete(c.ctl.files, profile.DatabaseInstalled)
	c.ctl.files[profile.DatabaseData+"/ibdata1"] = []byte("accounting")

	// Its server runs.
	require.ErrorContains(t, databaseServer{c.on(t).control}.make(t.Context()), profile.DatabaseInstalled)
	// Another instance is complete.
	c.ctl.services[profile.MariaDB] = false
	c.ctl.files[records] = neighbour.encode()
	require.ErrorContains(t, databaseServer{c.on(t).control}.make(t.Context()), "two")
	require.Equal(t, "accounting", string(c.ctl.files[profile.DatabaseData+"/ibdata1"]))
	require.False(t, c.ctl.ran("mariadb-install-db"))
	// An interrupted attempt is repeated.
	delete(c.ctl.files, records)
	require.NoError(t, databaseServer{c.on(t).control}.make(t.Context()))
	require.True(t, c.ctl.ran("mariadb-install-db"))
	require.Contains(t, c.ctl.files, profile.DatabaseInstalled)
}

// A partition is removed only when no job can start or runs in it. Until then it stays in the
// file, and the rest of the change is done.
func TestPartitionIsClosedBeforeItsRemoval(t *testing.T) {
	c := newCluster(t)
	c.queue = []string{"7 R 2001 main"}
	after := c.withPartition("other")
	require.NoError(t, c.apply(t, plan.Configure, after), "the new partition is there")
	require.True(t, c.ctl.ran("partitionname=main", "state=inactive"))
	require.Less(t, c.ctl.when("state=inactive"), c.ctl.when("scontrol reconfigure"))
	require.False(t, c.ctl.ran("scancel"), "its queued jobs may be wanted again")
	require.Contains(t, c.conf(), "PartitionName=other Nodes=ALL State=UP MaxTime=UNLIMITED Default=YES\nPartitionName=main Nodes=ALL "+
		"State=INACTIVE MaxTime=UNLIMITED\n")
	require.Contains(t, fmt.Sprint(c.observe(t).Drift), "partition main is closed")
	require.ErrorIs(t, c.apply(t, plan.Configure, after), runtimes.ErrWaiting, "nothing else is left to do")

	// Meanwhile, other changes go through.
	more := c.unit
	more.Effective.Config = []byte(`{"partitions":[{"name":"other","default":true},{"name":"quick"}]}`)
	require.NoError(t, c.apply(t, plan.Configure, more))
	require.Contains(t, c.conf(), "PartitionName=quick Nodes=ALL State=UP")
	require.Contains(t, c.conf(), "PartitionName=main Nodes=ALL State=INACTIVE")

	// The job ends; another waits, and does not start.
	c.ctl.runs = nil
	c.queue = []string{"8 PD 2001 main"}
	c.ctl.before = func(op runtimes.Op) error {
		if op.Run != nil && op.Run.Program == "scancel" {
			c.say(func() { c.queue = nil })
		}
		return nil
	}
	require.NoError(t, c.apply(t, plan.Configure, more))
	require.Less(t, c.ctl.when("state=inactive"), c.ctl.when("scancel --state=PENDING 8"))
	// The last look at the queue is after the last that was cancelled.
	require.Less(t, c.ctl.when("scancel --state=PENDING 8"), c.ctl.when("scontrol delete partitionname=main"))
	require.Less(t, c.ctl.when("scontrol delete partitionname=main"), c.ctl.when("scontrol reconfigure"))
	require.NotContains(t, c.conf(), "PartitionName=main")
	require.Empty(t, c.record(t).Closing)
	require.Empty(t, c.record(t).Leaving)
	require.Empty(t, c.observe(t).Drift)
}

// The files wait for the jobs in a partition that was made by hand. Nobody knows its line.
func TestPartitionMadeByHandDelaysTheFiles(t *testing.T) {
	c := newCluster(t)
	c.partitions = []string{"main", "byhand"}
	c.queue = []string{"7 R 2001 byhand"}
	before, after := c.conf(), c.unit
	after.Effective.Config = []byte(`{"partitions":[{"name":"main","default":true},{"name":"quick"}]}`)
	for range 2 {
		require.ErrorIs(t, c.apply(t, plan.Configure, after), runtimes.ErrWaiting)
		require.True(t, c.ctl.ran("partitionname=byhand", "state=inactive"))
		require.Equal(t, before, c.conf())
		require.NotContains(t, string(c.record(t).Unit.Effective.Config), "quick")
	}
	c.queue = nil
	require.NoError(t, c.apply(t, plan.Configure, after))
	require.Less(t, c.ctl.when("scontrol delete partitionname=byhand"), c.ctl.when("scontrol reconfigure"))
	require.Contains(t, c.conf(), "PartitionName=quick")
}

// A worker that waits for its jobs keeps its line and its shape, and delays no change.
func TestWorkerThatLeavesKeepsItsLine(t *testing.T) {
	c := newCluster(t)
	after := c.withPartition("main")
	after.Members = slices.Clone(c.unit.Members)
	after.Members[1].CPUs, after.Members[1].Address = 2, "10.77.0.99"
	require.NoError(t, c.apply(t, plan.Configure, after))
	require.Contains(t, c.conf(), "NodeName=gpu-1 NodeAddr=10.77.0.11 CPUs=4 ")
	seen := c.observe(t)
	require.Equal(t, c.unit.Members, seen.Unit.Members, "it still is as it joined")
	require.Empty(t, seen.Drift)

	gone := after
	gone.Members = c.unit.Members[:1]
	require.NoError(t, c.apply(t, plan.Configure, gone))
	require.Contains(t, c.conf(), "NodeName=gpu-1 ")
	require.NoError(t, c.apply(t, plan.Leave, gone))
	require.Contains(t, c.conf(), "NodeName=gpu-1 ", "a leave does not write the file")
	require.Contains(t, fmt.Sprint(c.observe(t).Drift), "not written yet: gres.conf, slurm.conf DefMemPerCPU, slurm.conf NodeName=gpu-1")
	c.node = ""
	require.NoError(t, c.apply(t, plan.Configure, gone))
	require.NotContains(t, c.conf(), "NodeName=gpu-1 ")
	require.Empty(t, c.observe(t).Drift)
}

func TestManyJobsAreCancelledInSeveralCalls(t *testing.T) {
	c := newCluster(t)
	for i := range 5000 {
		c.queue = append(c.queue, fmt.Sprintf("%d PD 2001 main", i+1))
	}
	c.ctl.before = func(op runtimes.Op) error {
		if op.Run != nil && len(op.Run.Args) > 4096 {
			return fmt.Errorf("more arguments than an agent takes")
		}
		return nil
	}
	require.NoError(t, c.on(t).jobs.cancelPending(t.Context(), jobFilter{}))
	require.True(t, c.ctl.ran("scancel", " 5000"))
}

func TestChangeNeedsAnAnswerAsProof(t *testing.T) {
	for name, silent := range map[string]func(*fakeCluster){
		"controller":        func(c *fakeCluster) { c.hash = "SLURM_VERSION = 22.05" },
		"worker":            func(c *fakeCluster) { c.workerHash = "" },
		"worker in another": func(c *fakeCluster) { c.workerHash = "HASH_VAL = Different Ours=0x1 Slurmctld=0x2" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // the answer is waited for
				c := newCluster(t)
				silent(c)
				require.ErrorContains(t, c.apply(t, plan.Configure, c.withPartition("other")), "configuration")
			})
		})
	}
	require.False(t, hashMatches(runtimes.Result{Data: []byte("HASH_VAL = Match"), Exit: 1}))
}

// A worker without its record joins again. While its node has jobs, nothing is cleared. It keeps
// the drain of an administrator.
func TestRejoiningNodeKeepsJobsAndDrain(t *testing.T) {
	c := newCluster(t)
	delete(c.wk.files, workerRecordPath)
	c.node = nodeDrained("bad fan")
	c.queue = []string{"7 R 2001 main"}
	require.NoError(t, c.apply(t, plan.Join, c.unit))
	require.False(t, c.wk.ran("stop slurmd"))
	require.Contains(t, c.wk.files, workerRecordPath)

	c.queue = nil
	delete(c.wk.files, workerRecordPath)
	require.NoError(t, c.apply(t, plan.Join, c.unit))
	require.True(t, c.wk.ran("stop slurmd"), "what may be left of another cluster is cleared")
	require.True(t, c.wk.ran("start slurmd"))
	require.Contains(t, c.node, "bad fan")
	require.False(t, c.ctl.ran("state=undrain"))
}

// A host joins only if it has what its node declares and can confine jobs.
func TestJoinComparesTheHostWithItsNode(t *testing.T) {
	c := newCluster(t)
	more := c.unit
	more.Members = slices.Clone(c.unit.Members)
	more.Members[1].MemoryMiB = 8000
	require.ErrorContains(t, c.apply(t, plan.Join, more), "host gpu-1 has 4 CPUs and 4000 MiB, but its node declares 4 CPUs and 8000 MiB")
	c.wk.noCgroups = true
	require.ErrorContains(t, c.apply(t, plan.Join, c.unit), "host gpu-1 cannot confine jobs")
	require.False(t, c.wk.ran("start slurmd"))
	accepts := c.unit
	accepts.Effective.Config = []byte(`{"confinement":"none"}`)
	require.NoError(t, c.apply(t, plan.Join, accepts))
}

// Confinement that is switched on restarts slurmctld and then the slurmd of each worker, also
// after a crash between the two.
func TestConfinementRestartsTheWorkers(t *testing.T) {
	c := newCluster(t)
	rec := c.freshRecord()
	rec.Unit.Effective.Config = []byte(`{"confinement":"none"}`)
	c.put(t, rec)
	c.wk.before = func(op runtimes.Op) error {
		if op.Service != nil && op.Service.Verb == "restart" {
			return errCrash
		}
		return nil
	}
	p := cluster.Rules{}.Impact(plan.Configure, "", &rec.Unit, &c.unit)
	require.Equal(t, []string{"slurmctld", "slurmd on gpu-1"}, p.Restarts)
	c.ctl.before = func(op runtimes.Op) error {
		if op.Run != nil && op.Run.Args[0] == "reconfigure" {
			return runtimes.ErrUncertain
		}
		return nil
	}
	require.ErrorIs(t, c.apply(t, plan.Configure, c.unit), runtimes.ErrUncertain)
	require.True(t, c.ctl.ran("restart slurmctld"))
	require.Equal(t, []string{"gpu-1"}, c.record(t).RestartDue)
	c.ctl.before, c.wk.before = nil, nil
	require.NoError(t, c.apply(t, plan.Configure, c.unit))
	require.True(t, c.wk.ran("restart slurmd"))
	require.Equal(t, journal{}, c.record(t).journal)
}

// A slurmd that does not restart delays no other change. A change that needs the restarts, all of which fail, does not work.
func TestSlurmdThatDoesNotRestart(t *testing.T) {
	begin := func(due ...string) *fakeCluster {
		c := newCluster(t)
		rec := c.freshRecord()
		rec.Unit.Effective.Config, rec.RestartDue = []byte(`{"confinement":"none"}`), due
		c.put(t, rec)
		c.wk.before = func(op runtimes.Op) error {
			if op.Service != nil && op.Service.Verb == "restart" {
				return &runtimes.OpError{Host: "gpu-1", Op: "restart slurmd", Message: "it ended"}
			}
			return nil
		}
		return c
	}
	c := begin()
	require.ErrorContains(t, c.apply(t, plan.Configure, c.unit), "it ended")
	require.Contains(t, c.conf(), "ProctrackType=proctrack/linuxproc", "the old files are back")

	c = begin("gpu-1")
	other := c.unit
	other.Effective.Config = []byte(`{"confinement":"none","partitions":[{"name":"main","default":true},{"name":"quick"}]}`)
	require.NoError(t, c.apply(t, plan.Configure, other))
	require.Contains(t, c.conf(), "PartitionName=quick")
	require.Equal(t, []string{"gpu-1"}, c.record(t).RestartDue)
}

// A worker joins only a controller that has its node.
func TestJoinNeedsTheNodeInTheConfiguration(t *testing.T) {
	c := newCluster(t)
	c.node = ""
	require.ErrorContains(t, c.apply(t, plan.Join, c.unit), "slurmctld on ctl does not have it")
	require.False(t, c.wk.ran("start slurmd"))
}

func TestAdministratorsOfADirectoryAreRefused(t *testing.T) {
	c := newCluster(t)
	groups := "users sudo"
	c.ctl.answer = func(run *runtimes.Run) (string, int) {
		if run.Args[0] == "-Gn" {
			return groups + "\n", 0
		}
		return "2001\n", 0
	}
	ctl := c.on(t)
	lacks := &lackingUsers{}
	require.NoError(t, checkDirectory(t.Context(), ctl.site, c.unit.Effective.Users, lacks))
	require.ErrorContains(t, lacks, "sudo")
	require.Equal(t, []string{c.unit.Effective.Users[0].Name}, lackingIn(fmt.Errorf("create: %w", lacks)).taken)
	groups, lacks = "users", &lackingUsers{}
	require.NoError(t, checkDirectory(t.Context(), ctl.site, c.unit.Effective.Users, lacks))
	require.NoError(t, lacks.unlessNone(nil))
}

// A removal that was made, and whose record was not written, is not left open.
func TestClosingEndsWithItsRemoval(t *testing.T) {
	c := newCluster(t)
	rec := c.freshRecord()
	rec.Closing = map[string]time.Time{userTarget("ghost"): time.Now(), qosTarget("old"): time.Now()}
	c.put(t, rec)
	require.Contains(t, fmt.Sprint(c.observe(t).Drift), "user ghost is closed")
	require.NoError(t, c.apply(t, plan.Configure, c.unit))
	require.Empty(t, c.record(t).Closing)
}

// A change of the cluster that waits for a job gives the reason with which slurmctld refused to change that job (one
// sentence for all jobs was wrong for most).
func TestRefusedChangeOfAJobIsSaid(t *testing.T) {
	c := newCluster(t)
	c.queue = []string{"12 PD 2001 main,low"}
	c.ctl.answer = func(run *runtimes.Run) (string, int) {
		if run.Program == "scontrol" && slices.Contains(run.Args, "jobid=12") {
			return "slurm_update error: Job violates accounting/QOS policy", 1
		}
		return c.answer(run)
	}
	l := c.on(t)
	err := l.associations.leaveQoS(t.Context(), "small", jobFilter{},
		accounting.Tree{Accounts: map[string]accounting.Account{"members": {}}})
	require.ErrorIs(t, err, runtimes.ErrWaiting)
	require.ErrorContains(t, err, "job 12 still waits in QoS small")
	require.ErrorContains(t, err, "Job violates accounting/QOS policy")
	refused, err := l.jobs.takeFrom(t.Context(), "low", []string{"main"})
	require.NoError(t, err)
	require.Contains(t, refused, "scontrol update jobid=12 partition=main: exit status 1: slurm_update error: Job violates "+
		"accounting/QOS policy")
}

// A worker without the spool of its slurmd holds each job that it starts, and looks idle (case spool-removed-swallows-the-queue).
func TestDirectoryOfAWorkerIsMadeAgain(t *testing.T) {
	for what, fault := range map[string]struct {
		path string
		mode uint32
		told string
	}{
		"missing": {profile.WorkerSpoolDir, 0, "the directory " + profile.WorkerSpoolDir + " on gpu-1 is missing"},
		"closed": {profile.JobsDir, 0o700,
			"the directory " + profile.JobsDir +
				" on gpu-1 has the mode 0700 and the uid 0; want 0711 and 0; if a file system is mounted over it, unmount that"},
	} {
		t.Run(what, func(t *testing.T) {
			c := newCluster(t)
			require.NoError(t, c.apply(t, plan.Join, c.unit))
			c.wk.changedDirs = map[string]uint32{fault.path: fault.mode}
			state := func() plan.MemberState { return c.observe(t).Members[1] }
			require.Equal(t, []any{plan.Partial, fault.told}, []any{state().State, state().Detail})
			require.NoError(t, c.apply(t, plan.Join, c.unit))
			require.Equal(t, plan.Running, state().State, state().Detail)
		})
	}
}

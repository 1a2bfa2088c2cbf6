package slurm

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

// An observation shows a change of a worker or a partition by a person or a crash, and the plan
// repairs it. TestLongFaults does so on real daemons.
func TestFaultsAreShown(t *testing.T) {
	for want, cause := range map[string]func(*fakeCluster){
		"":                     func(*fakeCluster) {},
		"is not the munge key": func(c *fakeCluster) { c.wk.files[profile.WorkerMungeKey] = []byte("other") },
		"no directory for jobs of alice on gpu-1": func(c *fakeCluster) {
			delete(c.wk.files, profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}.JobsOf("alice", 2001))
		},
		"partition main is DOWN":     func(c *fakeCluster) { c.partitions = []string{"main DOWN"} },
		"partition main was deleted": func(c *fakeCluster) { c.partitions = nil },
		"partition main is INACTIVE": func(c *fakeCluster) { c.partitions = []string{"main INACTIVE"} },
		"munged down":                func(c *fakeCluster) { c.ctl.services[profile.Munged] = false },
		"slurmd runs but":            func(c *fakeCluster) { c.node = "" },
		"may say why: host ctl: sacctmgr": func(c *fakeCluster) {
			inner := c.ctl.answer
			c.ctl.answer = func(run *runtimes.Run) (string, int) {
				if run.Program == "sacctmgr" {
					return "sacctmgr: error: Sending PersistInit msg: Connection refused", 1
				}
				return inner(run)
			}
		},
		"mariadbd is read-only": func(c *fakeCluster) { c.readOnly = 1 },
		"the database of the cluster is locked": func(c *fakeCluster) {
			inner := c.ctl.answer
			c.ctl.answer = func(run *runtimes.Run) (string, int) {
				if run.Program == "mariadb" {
					return "ERROR 1205 (HY000) at line 2: Lock wait timeout exceeded; try restarting transaction", 1
				}
				return inner(run)
			}
		},
		"gres.conf on ctl is not as Berth writes it": func(c *fakeCluster) {
			c.ctl.files[profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}.Etc()+"/gres.conf"] = []byte("x")
		},
	} {
		t.Run(want, func(t *testing.T) {
			c := newCluster(t)
			cause(c)
			obs := c.observe(t)
			if want == "" {
				require.Empty(t, obs.Drift)
				for _, m := range obs.Members {
					require.Equal(t, plan.Running, m.State, m.Detail)
				}
				return
			}
			require.Contains(t, fmt.Sprint(obs.Members, obs.Drift), want)
			p := plan.Make(plan.Input{Key: c.unit.Effective.Key, After: &c.unit.Effective, Members: c.unit.Members, Observed: obs,
				Rules: cluster.Rules{}})
			require.NotEmpty(t, p.Actions)
		})
	}
}

// A slurmctld that ends while it is asked does not run: it does not hang.
func TestDaemonThatEndsDuringAnObservationIsStopped(t *testing.T) {
	c := newCluster(t)
	c.ctl.before = func(op runtimes.Op) error {
		if op.Run != nil && op.Run.Program == "scontrol" {
			c.ctl.services[profile.Slurmctld] = false
			return &runtimes.OpError{Host: "ctl", Op: "run scontrol ping", Code: "timeout", Message: "took longer than 5s"}
		}
		return nil
	}
	require.Equal(t, plan.Stopped, c.state(t, "controller-0"))
}

// If the control host is lost during an observation, nothing is known: slurmctld must
// not be reported dead, or the loop would start it. If only its programs time out,
// slurmctld does not answer.
func TestLostControlHostIsUnknown(t *testing.T) {
	for name, test := range map[string]struct {
		err      error
		presence plan.Presence
		state    plan.State
	}{
		"lost": {fmt.Errorf("host ctl: %w: i/o timeout", runtimes.ErrUnreachable), plan.Unknown, ""},
		"no answer": {&runtimes.OpError{Host: "ctl", Op: "run scontrol ping", Code: "timeout", Message: "took longer than 5s"},
			plan.Present, plan.Hung},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.ctl.before = func(op runtimes.Op) error {
				if op.Run != nil && op.Run.Program == "scontrol" {
					return test.err
				}
				return nil
			}
			obs := c.rt.Observe(t.Context(),
				runtimes.Scope{Key: c.unit.Effective.Key, Members: c.unit.Members, Instance: &c.unit.Effective})
			require.Equal(t, test.presence, obs.Presence)
			if test.presence == plan.Unknown {
				require.Contains(t, obs.Reason, "host ctl")
				require.Empty(t, obs.Members)
				return
			}
			require.Equal(t, test.state, obs.Members[0].State)
			require.True(t, strings.Contains(obs.Members[0].Detail, "does not answer"), obs.Members[0].Detail)
		})
	}
}

// Each request of an observation names the leader that observes: hosts refuse earlier ones from then on.
func TestObservationNamesItsLeader(t *testing.T) {
	c := newCluster(t)
	stamp := runtimes.Stamp{Epoch: 7, Leader: "me"}
	var mu sync.Mutex
	asked := map[string]int{}
	for _, h := range []*fakeHost{c.ctl, c.wk} {
		h.asked = func(s runtimes.Stamp) {
			mu.Lock()
			defer mu.Unlock()
			if asked[h.Name()]++; s != stamp {
				asked["another leader"]++
			}
		}
	}
	c.rt.Observe(t.Context(), runtimes.Scope{Key: c.unit.Effective.Key, Members: c.unit.Members, Stamp: stamp})
	require.Positive(t, asked["ctl"])
	require.Positive(t, asked["gpu-1"])
	require.NotContains(t, asked, "another leader")
}

// A program that berth-host does not compare is named with its size.
func TestLargeProgramIsRefused(t *testing.T) {
	st := runtimes.FileStat{Path: profile.ProgramDir + "/prolog", Exists: true, Type: "file", Mode: 0o755, Size: 2 << 20}
	require.ErrorContains(t, programFault("gpu-1", []cluster.Program{{Program: "prolog", Digest: "sha256:00"}}, st),
		"has 2097152 bytes, and berth-host compares files of up to 1 MiB")
}

// A change says all that it waits for, unless that is much.
func TestReasonsOfAWaitingChange(t *testing.T) {
	var w waitList
	require.NoError(t, w.err())
	failed := errors.New("no")
	require.Equal(t, failed, w.unless(failed))
	for _, reason := range []string{"job 7", "job 8", "job 9", "job 10"} {
		require.NoError(t, w.unless(waiting("%s", reason)))
	}
	require.ErrorIs(t, w.err(), runtimes.ErrWaiting)
	require.EqualError(t, w.err(), "job 7; job 8; job 9; and 1 more: waiting")
}

// A worker that has joined has the names by which Slurm knows it, whether it answers or not
// (requirement A17). The controller has none, because it is not a node of the cluster.
func TestJoinedWorkersHaveReferences(t *testing.T) {
	c := newCluster(t)
	obs := c.observe(t)
	require.Nil(t, obs.Members[0].References)
	want := map[string]string{"cluster": cluster.Name(c.unit.Effective.Key), "node": obs.Members[1].Node}
	require.Equal(t, want, obs.Members[1].References)
	c.node = ""
	require.Equal(t, want, c.observe(t).Members[1].References)
}

// An observation reports a full disk with its host before a daemon fails for it. Berth frees no space itself.
func TestFullDiskIsSaid(t *testing.T) {
	c := newCluster(t)
	s := profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}
	for _, path := range append([]string{s.State()}, writtenPaths(s)...) {
		c.ctl.full = path
		want := plan.Drift{Member: "controller-0", What: "disk",
			Detail: "the disk of " + path + " on ctl is full: it has no space or no inode left; delete files there"}
		require.Equal(t, []plan.Drift{want}, c.observe(t).Drift)
	}
	c.ctl.full, c.wk.full = "", profile.WorkerSpoolDir
	require.Equal(t, "the disk of "+profile.WorkerSpoolDir+" on gpu-1 is full: it has no space or no inode left; delete files there",
		c.observe(t).Members[1].Detail)
}

// A worker is missing if its host has neither its record nor its spool, and no daemon of it runs. With a part of that it is made
// whole at once.
func TestWorkerWithoutAnyStateIsMissing(t *testing.T) {
	c := newCluster(t)
	state := func() plan.State { return c.observe(t).Members[1].State }
	delete(c.wk.files, workerRecordPath)
	require.Equal(t, plan.Partial, state(), "its daemons run")
	c.wk.services[profile.MungedWorker], c.wk.services[profile.Slurmd] = false, false
	require.Equal(t, plan.Partial, state(), "its spool is there")
	c.wk.changedDirs = map[string]uint32{profile.WorkerSpoolDir: 0}
	require.Equal(t, plan.Missing, state())
	c.wk.services[profile.Slurmd] = true
	require.Equal(t, plan.Partial, state(), "slurmd runs")
}

// Each directory of a controller belongs to the account of its daemon. Without one of the accounts, no owner is known.
func TestDirectoriesOfTheControllerHaveTheirOwners(t *testing.T) {
	s := profile.Stack{Cluster: "c1"}
	uids := map[string]uint32{profile.SlurmUser: 64, profile.DatabaseUser: 110, profile.MungeUser: 111}
	res := make([]runtimes.Result, 2)
	for _, d := range controlDirectories(s) {
		res[0].Stats = append(res[0].Stats, runtimes.FileStat{Path: d.path, Exists: true, Type: "dir", Mode: d.mode, UID: uids[d.owner]})
	}
	res[1].Data = []byte("64\n110\n111\n")
	require.Empty(t, controlFaults(s, "ctl", res))
	for i := range res[0].Stats {
		res[0].Stats[i].UID = 0
	}
	require.Len(t, controlFaults(s, "ctl", res), len(controlDirectories(s)))
	require.Contains(t, controlFaults(s, "ctl", res)[profile.DatabaseData], "has the mode 0700 and the uid 0; want 0700 and 110")
	res[1].Data = []byte("64\n110\n")
	require.Empty(t, controlFaults(s, "ctl", res))
}

// Without its copy of slurm.conf on the worker, srun fails in jobs. The slurmd of the worker starts again and fetches it.
func TestLostCopyOfSlurmConfIsFetchedAgain(t *testing.T) {
	c := newCluster(t)
	s := profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}
	there := s.FetchedFiles()[s.Conf()]
	delete(c.wk.fetched, there)
	require.Equal(t, ""+profile.WorkerSpoolDir+"/conf-cache/slurm.conf on gpu-1 is missing; slurmd fetches it when it starts",
		c.observe(t).Members[1].Detail)
	c.wk.before = func(op runtimes.Op) error {
		if op.Service != nil && op.Service.Name == profile.Slurmd && op.Service.Verb == "restart" {
			c.wk.fetched[there] = s.Conf()
		}
		return nil
	}
	require.NoError(t, c.apply(t, plan.Join, c.unit))
	require.Equal(t, plan.Running, c.observe(t).Members[1].State)
}

//go:build long

package slurm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/checksum"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
)

// member returns the state of a member.
func (c *company) member(t *testing.T, u plan.Unit, name string) plan.MemberState {
	t.Helper()
	for _, m := range c.observe(t, u).Members {
		if m.Name == name {
			return m
		}
	}
	require.Fail(t, "no member "+name)
	return plan.MemberState{}
}

// untilDone is the script of a job that ends when the test says so.
const untilDone = "while test ! -e /tmp/berthtest-done; do sleep 0.2; done"

// done ends the jobs of that script on a worker.
func (c *company) done(t *testing.T, worker int) {
	t.Helper()
	c.onWorker(t, worker, "touch /tmp/berthtest-done")
	t.Cleanup(func() {
		_, err := c.lab.Run(context.Background(), c.workers[worker].Key.Name, "rm", "/tmp/berthtest-done")
		require.NoError(t, err)
	})
}

// A worker that did not answer while the configuration changed has the new one after it is back.
func TestLongReturnedWorkerGetsTheConfiguration(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, onePartition, 0, 1)
	long := c.submit(t, u, alice, untilDone, 1)
	c.await(t, u, long, slurmtest.Running)
	name := c.workers[1].Key.Name
	require.Equal(t, plan.Running, c.member(t, u, "worker-1").State, c.member(t, u, "worker-1").Detail)
	dev := strings.TrimSpace(c.onWorker(t, 1, "ip -o link show up | awk -F'[ :@]+' '$2 != \"lo\" {print $2; exit}'"))
	c.onWorker(t, 1, "ip link set "+dev+" down")
	c.hosts.setReachable(name, false)
	more := c.unit(strings.Replace(onePartition, "{", `{"nodes":{"timeout_seconds":77,"return_to_service":1},`, 1),
		[]schema.UnixUser{alice}, nil, 0, 1)
	p := c.plan(t, more, false)
	require.Len(t, p.Blocked, 1)
	p.Blocked = nil
	require.NoError(t, c.apply(t, p))
	c.onWorker(t, 1, "ip link set "+dev+" up")
	c.hosts.setReachable(name, true)
	eventually(t, "repaired", func() (bool, string) {
		p := c.plan(t, more, false)
		if p.Empty() {
			return true, ""
		}
		return false, fmt.Sprint(p.Actions, c.apply(t, p))
	})
	require.Contains(t, c.onWorker(t, 1, "cat /run/slurm/conf/slurm.conf"), "SlurmdTimeout=77")
	c.done(t, 0)
	c.await(t, more, long, slurmtest.Completed)
}

// A user whose account cannot be made keeps no daemon down.
func TestLongStartDespiteAUserThatCannotBeMade(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, onePartition, 0)
	c.spoiled = true // slurmctld has read her without a Unix user, and refuses her jobs until it looks again
	c.changeFile(t, c.control.Key.Name, "/etc/passwd",
		"sed -i '/^"+alice.Name+":/d' /etc/passwd && echo 'other:x:"+fmt.Sprint(alice.UID)+":100::/:/bin/sh' >>/etc/passwd")
	c.kill(t, u, "controller-0")
	eventually(t, "the daemons run", func() (bool, string) {
		p := c.plan(t, u, false)
		err := c.apply(t, p)
		return c.member(t, u, "controller-0").State == plan.Running, fmt.Sprint(p.Actions, err)
	})
	require.ErrorContains(t, c.apply(t, c.plan(t, u, false)), alice.Name)
}

// With return_to_service 0 a node that slurmctld set DOWN is left to the administrator, and
// holds up nothing.
func TestLongNodeStaysDownWithoutReturnToService(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, strings.Replace(onePartition, "{", `{"nodes":{"timeout_seconds":300,"return_to_service":0},`, 1), 0)
	node := c.workers[0].Key.Name
	c.tool(t, u, "scontrol update nodename="+node+" state=down reason='Not responding'")
	m := c.member(t, u, "worker-0")
	require.Equal(t, plan.Running, m.State, m.Detail)
	require.Contains(t, m.OutOfService, "down: Not responding")
	c.kill(t, u, "worker-0")
	eventually(t, "its slurmd stopped", func() (bool, string) {
		m := c.member(t, u, "worker-0")
		return m.State == plan.Stopped, fmt.Sprint(m)
	})
	c.carry(t, u, false)
	require.Contains(t, c.tool(t, u, "sinfo -h -N -o %T"), "down")
}

// A worker that cannot store the configuration does not undo it for the others.
func TestLongWorkerThatCannotStoreTheConfiguration(t *testing.T) {
	t.Parallel()
	c, u := newCompanyOn(bareStage(t), t, onePartition, 0, 1)
	c.rt = slurm.New(slurm.Options{Hosts: c.hosts, Timeouts: slurm.Timeouts{Ready: 10 * time.Second}})
	const cache = "/var/lib/slurm/berth-slurmd/conf-cache"
	c.onWorker(t, 1, "mount --bind "+cache+" "+cache+" && mount -o remount,bind,ro "+cache)
	more := c.unit(twoPartitions, []schema.UnixUser{alice}, nil, 0, 1)
	require.NoError(t, c.apply(t, c.plan(t, more, false)))
	require.Contains(t, c.tool(t, more, "sinfo -h -o %R"), "quick")
	require.Contains(t, c.onWorker(t, 0, "cat /run/slurm/conf/slurm.conf"), "PartitionName=quick")
	m := c.member(t, more, "worker-1")
	require.NotEqual(t, plan.Running, m.State, m.Detail)
	c.onWorker(t, 1, "umount "+cache)
	eventually(t, "repaired", func() (bool, string) {
		p := c.plan(t, more, false)
		return p.Empty(), fmt.Sprint(p.Actions, c.apply(t, p))
	})
	require.Contains(t, c.onWorker(t, 1, "cat /run/slurm/conf/slurm.conf"), "PartitionName=quick")
	require.NoError(t, c.apply(t, c.plan(t, u, true)))
}

// A worker whose slurmd had to restart while Berth did not reach it restarts it when it is back.
func TestLongReturnedWorkerIsRestarted(t *testing.T) {
	t.Parallel()
	c, u := newCompanyOn(bareStage(t), t, strings.Replace(onePartition, `"identity"`, `"confinement":"none","identity"`, 1), 0, 1)
	name := c.workers[1].Key.Name
	pid := func() string { return c.onWorker(t, 1, "cat /run/slurm/slurmd.pid") }
	c.hosts.setReachable(name, false)
	more := c.unit(onePartition, []schema.UnixUser{alice}, nil, 0, 1)
	p := c.plan(t, more, false)
	p.Blocked = nil
	require.NoError(t, c.apply(t, p))
	before := pid()
	c.hosts.setReachable(name, true)
	if c.version.Reexecutes() { // slurmctld has restarted it
		require.Equal(t, plan.Running, c.member(t, more, "worker-1").State)
		return
	}
	require.Equal(t, plan.Partial, c.member(t, more, "worker-1").State)
	c.carry(t, more, false)
	require.NotEqual(t, before, pid())
	c.carry(t, u, true)
}

// A user whose uid another account of a worker has gets no access, and delays no other change.
func TestLongUserWhoseUIDIsTakenOnAWorker(t *testing.T) {
	t.Parallel()
	c, _ := newCompany(t, onePartition, 0)
	c.onWorker(t, 0, fmt.Sprintf("echo 'admin:x:%d:100::/:/bin/bash' >>/etc/passwd", bob.UID))
	more := c.unit(twoPartitions, []schema.UnixUser{alice, bob}, nil, 0)
	require.NoError(t, c.apply(t, c.plan(t, more, false)))
	require.Contains(t, c.tool(t, more, "sinfo -h -o %R"), "quick")
	require.NotContains(t, c.tool(t, more, "sacctmgr -n -P list user format=user"), bob.Name)
	require.ErrorContains(t, c.apply(t, c.plan(t, more, false)), "belongs to account admin")
	c.onWorker(t, 0, "sed -i '/^admin:/d' /etc/passwd")
	c.carry(t, more, false)
	c.await(t, more, c.submit(t, more, bob, "true", 1), slurmtest.Completed)
}

// A worker that cannot write to its disk delays no change of the cluster. It gets its missing files and
// accounts once it can.
func TestLongFaultyWorkerHoldsUpNothing(t *testing.T) {
	t.Parallel()
	c, _ := newCompany(t, onePartition, 0, 1)
	name := c.workers[1].Key.Name
	c.onWorker(t, 1, "mount --bind /etc /etc && mount -o remount,bind,ro /etc")
	more := c.unit(twoPartitions, []schema.UnixUser{alice, bob}, nil, 0, 1)
	require.NoError(t, c.apply(t, c.plan(t, more, false)))
	require.Contains(t, c.tool(t, more, "sinfo -h -o %R"), "quick")
	require.Contains(t, c.tool(t, more, "scontrol show assoc_mgr users="+bob.Name+" flags=users"), bob.Name)
	id, err := c.trySubmit(t, more, bob, "sleep 1\n", "--nodelist="+c.workers[0].Key.Name)
	require.NoError(t, err)
	c.await(t, more, id, slurmtest.Completed)

	require.ErrorContains(t, c.apply(t, c.plan(t, more, false)), name)
	less := c.unit(twoPartitions, []schema.UnixUser{alice, bob}, nil, 0)
	err = c.apply(t, c.plan(t, less, false))
	require.ErrorIs(t, err, runtimes.ErrWaiting, "it leaves when its host is mended")
	require.ErrorContains(t, err, name)

	// The node that could not leave does not count against a file that slurmctld is restarted for.
	other := c.unit(strings.Replace(twoPartitions, "{", `{"options":{"MaxJobCount":20002},`, 1), []schema.UnixUser{alice, bob}, nil, 0)
	p := c.plan(t, other, false)
	p.Actions = slices.DeleteFunc(p.Actions, func(a plan.Action) bool { return a.Verb == plan.Leave }) // the daemon goes on with the others
	require.NoError(t, c.apply(t, p))
	require.Regexp(t, `MaxJobCount += 20002\n`, c.tool(t, other, "scontrol show config"))

	c.onWorker(t, 1, "umount /etc")
	c.carry(t, less, false)
	c.carry(t, more, false)
}

// A cluster whose recorded configuration this Berth cannot read can be configured and deleted.
func TestLongUnreadableConfigurationIsReplaced(t *testing.T) {
	t.Parallel()
	c, u := newCompanyOn(bareStage(t), t, onePartition, 0)
	c.renameInRecord(t, u, "partitions", "partition_list")
	require.Contains(t, fmt.Sprint(c.observe(t, u).Drift), "partition_list")
	more := c.unit(twoPartitions, []schema.UnixUser{alice}, nil, 0)
	require.NoError(t, c.apply(t, c.plan(t, more, false)), "a valid configuration replaces it")
	require.Contains(t, c.tool(t, more, "sinfo -h -o %R"), "quick")

	c.renameInRecord(t, u, "partitions", "partition_list")
	require.NoError(t, c.apply(t, c.plan(t, more, true)))
	require.Empty(t, c.remains(t, more))
}

// renameInRecord gives a field of the record of a cluster another name, as another release of Berth would.
func (c *company) renameInRecord(t *testing.T, u plan.Unit, from, to string) {
	t.Helper()
	path := "/var/lib/berth/instances/" + cluster.Name(u.Effective.Key) + ".json"
	text := c.onControl(t, u, "cat "+path)
	require.Contains(t, text, `"`+from+`"`)
	var record map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(strings.ReplaceAll(text, `"`+from+`"`, `"`+to+`"`)), &record))
	delete(record, "sha256")
	other, err := checksum.Encode(record)
	require.NoError(t, err)
	c.onControl(t, u, "cat >"+path+" <<'END'\n"+string(other)+"END\n")
}

// A worker that lost its record while jobs run joins again, and its jobs go on.
func TestLongLostWorkerRecordKeepsJobs(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, onePartition, 0)
	long := c.submit(t, u, alice, untilDone, 1)
	c.await(t, u, long, slurmtest.Running)
	c.onWorker(t, 0, "rm /var/lib/berth/instances/worker.json")
	require.Equal(t, plan.Partial, c.member(t, u, "worker-0").State)
	c.carry(t, u, false)
	c.done(t, 0)
	c.await(t, u, long, slurmtest.Completed)
}

// A worker whose file systems are not mounted is missing, and is left alone until they are.
func TestLongWorkerWithoutItsFileSystemsIsMissing(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, onePartition, 0)
	const move = "mkdir -p /root/away; pkill -x slurmd; pkill -x munged; for p in /var/lib/berth/instances/worker.json " +
		profile.WorkerSpoolDir + "; do mv $p /root/away/; done"
	c.onWorker(t, 0, move)
	require.Equal(t, plan.Missing, c.member(t, u, "worker-0").State)
	after := &u.Effective
	p := plan.Make(plan.Input{Key: after.Key, After: after, Members: u.Members, Observed: c.observe(t, u)})
	require.Empty(t, p.Actions)
	c.onWorker(t, 0, "mv /root/away/worker.json /var/lib/berth/instances/; mv /root/away/* "+path.Dir(profile.WorkerSpoolDir)+"/")
	require.Equal(t, plan.Stopped, c.member(t, u, "worker-0").State)
	c.carry(t, u, false)
}

package slurm

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

// A key that a person puts on the controller splits the cluster, as a running munged keeps the key that it read at its start: no worker
// gets it, and the cluster's comes back from a worker.
func TestMungeKeyOfTheControllerIsRestoredFromAWorker(t *testing.T) {
	for what, breakIt := range map[string]func(c *fakeCluster, path string){
		"is not the munge key": func(c *fakeCluster, path string) { c.ctl.files[path] = []byte("other") },
		"ctl is missing":       func(c *fakeCluster, path string) { delete(c.ctl.files, path) },
		"has the mode 0644":    func(c *fakeCluster, path string) { c.ctl.modes[path] = 0o644 },
	} {
		c := newCluster(t)
		path := profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}.Munge().Key()
		breakIt(c, path)
		seen := c.observe(t)
		require.Equal(t, driftMungeKey, seen.Drift[0].What, what)
		require.Contains(t, seen.Drift[0].Detail, what)
		require.Equal(t, plan.Running, seen.Members[1].State, "the worker has the right key: %s", seen.Members[1].Detail)
		require.NoError(t, c.apply(t, plan.Configure, c.unit))
		require.Equal(t, "key", string(c.ctl.files[path]))
		require.Equal(t, uint32(keyMode), c.ctl.modes[path])
		require.GreaterOrEqual(t, c.ctl.when("stop", profile.Munged), 0, "munged may have read the other key")
		require.Less(t, c.ctl.when("stop", profile.Munged), c.ctl.when("start", profile.Munged))
		require.Equal(t, "key", string(c.wk.files[profile.WorkerMungeKey]))
		require.Empty(t, c.observe(t).Drift)
	}
}

// Without a copy, a person decides: no worker gets the new key, and no text has a key.
func TestMungeKeyWithoutACopyIsLeftToAPerson(t *testing.T) {
	c := newCluster(t)
	path := profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}.Munge().Key()
	c.ctl.files[path] = []byte("planted")
	delete(c.wk.files, profile.WorkerMungeKey)
	require.Contains(t, fmt.Sprint(c.observe(t).Drift), lostKey)
	require.NoError(t, c.apply(t, plan.Configure, c.unit), "the rest goes on")
	err := c.apply(t, plan.Start, c.unit)
	require.ErrorContains(t, err, path+" is not the munge key of the cluster; "+lostKey)
	require.NotContains(t, fmt.Sprint(err, c.observe(t)), "planted")
	require.Empty(t, c.wk.files[profile.WorkerMungeKey])
	require.NotContains(t, string(encode(c.record(t))), "planted")

	c.ctl.files[path] = []byte("key") // from a backup
	require.NoError(t, c.apply(t, plan.Start, c.unit))
	require.Equal(t, "key", string(c.wk.files[profile.WorkerMungeKey]))
}

// A host that refuses the write, such as with a full disk, has munged running as before, and the other actions go on.
func TestMungeKeyThatCannotBeWrittenStopsNothing(t *testing.T) {
	for _, joined := range []bool{true, false} {
		c := newCluster(t)
		if !joined {
			rec := c.freshRecord()
			rec.dropJoined("worker-0")
			c.put(t, rec)
		}
		path := profile.Stack{Cluster: cluster.Name(c.unit.Effective.Key)}.Munge().Key()
		c.ctl.modes[path] = 0o644
		c.ctl.before = func(op runtimes.Op) error {
			if op.Write != nil && op.Write.Path == path {
				return &runtimes.OpError{Host: "ctl", Op: "write", Code: "io", Message: "no space left on device"}
			}
			return nil
		}
		c.on(t)
		require.True(t, c.ctl.services[profile.Munged])
		require.NotEmpty(t, c.observe(t).Drift)
		c.ctl.before = nil
		c.on(t)
		require.Equal(t, uint32(keyMode), c.ctl.modes[path])
		require.True(t, c.ctl.services[profile.Munged])
		require.Empty(t, c.observe(t).Drift)
	}
}

// Without workers, nobody else has the key: the one on the controller, which is made if it is missing, is the cluster's.
func TestMungeKeyOfAClusterWithoutWorkersIsMadeAgain(t *testing.T) {
	c := newCluster(t)
	rec := c.freshRecord()
	rec.dropJoined("worker-0")
	c.put(t, rec)
	path := profile.Stack{Cluster: rec.Cluster}.Munge().Key()
	delete(c.ctl.files, path)
	c.on(t)
	require.Equal(t, digest(c.ctl.files[path]), c.record(t).MungeKey)
}

// A record without the digest takes the key on the controller for the cluster's, and a create records it.
func TestMungeKeyIsRecorded(t *testing.T) {
	c := newCluster(t)
	rec := c.freshRecord()
	rec.MungeKey = ""
	c.put(t, rec)
	require.Empty(t, c.observe(t).Drift)
	require.NoError(t, c.on(t).updateRecord(t.Context(), func(*record) {}))
	require.Equal(t, digest([]byte("key")), c.record(t).MungeKey)

	c = newCluster(t)
	c.ctl.files, c.ctl.services = map[string][]byte{}, map[string]bool{}
	p := plan.Plan{Key: c.unit.Effective.Key, After: &c.unit}
	a := plan.Action{ID: "action.1", Verb: plan.Create, Member: "controller-0", Node: "ctl"}
	require.NoError(t, c.rt.Apply(t.Context(), runtimes.Change{Plan: &p, Action: a, Stamp: runtimes.Stamp{Epoch: 1, ActionID: a.ID}}))
	require.Equal(t, digest([]byte("secret")), c.record(t).MungeKey)
}

package slurm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

var twoByEightByTwo = schema.Shape{Sockets: 2, CoresPerSocket: 8, ThreadsPerCore: 2}

// withShape returns the unit with a worker of so many CPUs and that shape.
func (c *fakeCluster) withShape(cpus int, declared schema.Shape) plan.Unit {
	u := c.unit
	u.Members = slices.Clone(u.Members)
	u.Members[1].CPUs, u.Members[1].Shape = cpus, declared
	return u
}

// withoutWorker makes the cluster one whose worker has not joined, and has no line in slurm.conf.
// Its host has two sockets with eight cores of two threads.
func (c *fakeCluster) withoutWorker(t *testing.T) {
	t.Helper()
	rec := c.freshRecord()
	rec.Unit.Members, rec.Joined = rec.Unit.Members[:1], nil
	c.put(t, rec)
	c.hardware = "CPUs=32 Boards=1 SocketsPerBoard=2 CoresPerSocket=8 ThreadsPerCore=2"
	c.node = strings.Replace(idleNode, `"cpus":4`, `"cpus":32`, 1)
}

// nodeLine returns the line of the worker in slurm.conf on the host, from its CPUs to its memory.
func (c *fakeCluster) nodeLine(t *testing.T) string {
	t.Helper()
	_, line, ok := strings.Cut(c.conf(), "NodeName=gpu-1 NodeAddr=10.77.0.11 ")
	require.True(t, ok, c.conf())
	line, _, _ = strings.Cut(line, " RealMemory=")
	return line
}

func TestNodeLineFitsItsHost(t *testing.T) {
	for _, one := range []struct {
		cpus     int
		declared schema.Shape
		line     string
		unused   string
	}{
		{32, schema.Shape{}, "CPUs=32 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2", ""},
		{16, schema.Shape{}, "CPUs=16 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2",
			"Slurm has 16 of the host's 32 CPUs (sockets:cores:threads 2:8:2 of 2:8:2), as the node declares 16"},
		{28, schema.Shape{}, "CPUs=28 Sockets=1 CoresPerSocket=14 ThreadsPerCore=2",
			"Slurm has 28 of the host's 32 CPUs (sockets:cores:threads 1:14:2 of 2:8:2), as the node declares 28"},
		{31, schema.Shape{}, "CPUs=30 Sockets=1 CoresPerSocket=15 ThreadsPerCore=2",
			"Slurm has 30 of the host's 32 CPUs (sockets:cores:threads 1:15:2 of 2:8:2), as the node declares 31"},
		{8, schema.Shape{}, "CPUs=8 Sockets=1 CoresPerSocket=4 ThreadsPerCore=2",
			"Slurm has 8 of the host's 32 CPUs (sockets:cores:threads 1:4:2 of 2:8:2), as the node declares 8"},
		{1, schema.Shape{}, "CPUs=1 Sockets=1 CoresPerSocket=1 ThreadsPerCore=2",
			"Slurm has 1 of the host's 32 CPUs (sockets:cores:threads 1:1:2 of 2:8:2), as the node declares 1"},
		{16, schema.Shape{Sockets: 2, CoresPerSocket: 4, ThreadsPerCore: 2}, "CPUs=16 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2",
			"Slurm has 16 of the host's 32 CPUs (sockets:cores:threads 2:4:2 of 2:8:2), as the node declares 16"},
		{32, twoByEightByTwo, "CPUs=32 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2", ""},
		{64, schema.Shape{}, "CPUs=64", ""}, // its join is refused
	} {
		rec := example()
		m := &rec.Unit.Members[1]
		m.CPUs, m.Shape = one.cpus, one.declared
		rec.setFound(m.Node, twoByEightByTwo)
		if one.unused != "" || one.cpus == 32 {
			require.Equal(t, one.unused, cluster.UnusedHardware(*m, rec.Found[m.Node]))
		}
		all, err := files(&rec)
		require.NoError(t, err)
		conf := all[profile.Stack{Cluster: rec.Cluster}.Conf()]
		require.Contains(t, string(conf.Data), " "+one.line+" RealMemory=8000 ")
		require.NoError(t, profile.Profile().CheckMake(runtimes.Making{Kind: "file", Path: profile.Stack{Cluster: rec.Cluster}.Conf(),
			Data: conf.Data, Mode: conf.Mode}))
	}
	fourSockets := schema.Shape{Sockets: 4, CoresPerSocket: 8, ThreadsPerCore: 2}
	require.Equal(t, fourSockets, cluster.WithShape(plan.Member{CPUs: 32}, fourSockets).Shape, "one CPU of each core")
	require.Equal(t, schema.Shape{Sockets: 3, CoresPerSocket: 8, ThreadsPerCore: 2},
		cluster.WithShape(plan.Member{CPUs: 48}, fourSockets).Shape, "whole sockets")
}

// The line of a new worker has the shape of its host, and nothing writes it again.
func TestNewWorkerGetsTheShapeOfItsHost(t *testing.T) {
	c := newCluster(t)
	c.withoutWorker(t)
	more := c.withShape(32, schema.Shape{})
	require.NoError(t, c.apply(t, plan.Configure, more))
	require.Equal(t, "CPUs=32 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2", c.nodeLine(t))
	require.NoError(t, c.apply(t, plan.Join, more))
	require.Equal(t, map[string]schema.Shape{"gpu-1": twoByEightByTwo}, c.record(t).Found)
	seen := c.observe(t)
	require.Empty(t, seen.Drift)
	require.Equal(t, plan.MemberState{Name: "worker-0", Node: "gpu-1", State: plan.Running, Scheduler: plan.Responds,
		References: map[string]string{"cluster": c.record(t).Cluster, "node": "gpu-1"}}, seen.Members[1])

	// A host that changes under a worker changes no line: Slurm reports the missing hardware.
	c.hardware = "CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=2"
	require.NoError(t, c.apply(t, plan.Join, more))
	require.NoError(t, c.apply(t, plan.Configure, more))
	require.Empty(t, c.observe(t).Drift)
	require.Equal(t, map[string]schema.Shape{"gpu-1": twoByEightByTwo}, c.record(t).Found)
}

func TestFewerCPUsThanTheHostHasAreShown(t *testing.T) {
	c := newCluster(t)
	c.withoutWorker(t)
	c.node = strings.Replace(idleNode, `"cpus":4`, `"cpus":30`, 1)
	less := c.withShape(31, schema.Shape{})
	require.NoError(t, c.apply(t, plan.Configure, less))
	require.NoError(t, c.apply(t, plan.Join, less))
	w := c.observe(t).Members[1]
	require.Equal(t, plan.Running, w.State, "%+v", w)
	require.Equal(t, "Slurm has 30 of the host's 32 CPUs (sockets:cores:threads 1:15:2 of 2:8:2), as the node declares 31", w.Note)
}

// A host that is silent while the line of its node is written is asked at the join, which waits
// until a plan has written the line.
func TestSilentHostGetsItsShapeBeforeItJoins(t *testing.T) {
	c := newCluster(t)
	c.withoutWorker(t)
	more := c.withShape(32, schema.Shape{})
	c.wk.before = func(runtimes.Op) error { return fmt.Errorf("host gpu-1: %w", runtimes.ErrUnreachable) }
	require.NoError(t, c.apply(t, plan.Configure, more))
	require.Equal(t, "CPUs=32", c.nodeLine(t))
	c.wk.before = nil
	require.Empty(t, c.observe(t).Drift)
	require.NoError(t, c.apply(t, plan.Configure, more))
	require.Equal(t, "CPUs=32", c.nodeLine(t), "no plan showed a change of the line")

	err := c.apply(t, plan.Join, more)
	require.ErrorIs(t, err, runtimes.ErrWaiting)
	require.ErrorContains(t, err, "node gpu-1: its line in slurm.conf lacks the sockets, cores and threads of the host")
	require.Empty(t, c.record(t).Joined)
	require.Equal(t, "CPUs=32", c.nodeLine(t), "a join writes no slurm.conf")
	drift := c.observe(t).Drift
	require.Len(t, drift, 1)
	require.Equal(t, driftConfiguration, drift[0].What)
	require.NoError(t, c.apply(t, plan.Configure, more))
	require.Equal(t, "CPUs=32 Sockets=2 CoresPerSocket=8 ThreadsPerCore=2", c.nodeLine(t))
	require.NoError(t, c.apply(t, plan.Join, more))
	require.Empty(t, c.observe(t).Drift)
}

// A worker that joined before Berth read shapes keeps its line, on any host, until it
// joins again.
func TestJoinedWorkerKeepsItsLine(t *testing.T) {
	c := newCluster(t)
	c.hardware = "CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=2"
	before := c.conf()
	require.Empty(t, c.observe(t).Drift)
	require.NoError(t, c.apply(t, plan.Configure, c.unit))
	require.NoError(t, c.apply(t, plan.Join, c.unit))
	require.Equal(t, before, c.conf())
	require.False(t, c.ctl.ran("restart slurmctld"))
	require.Empty(t, c.observe(t).Drift)

	require.NoError(t, c.apply(t, plan.Leave, c.unit))
	require.Equal(t, before, c.conf())
	require.ErrorIs(t, c.apply(t, plan.Join, c.unit), runtimes.ErrWaiting)
	require.NoError(t, c.apply(t, plan.Configure, c.unit))
	require.Equal(t, "CPUs=4 Sockets=1 CoresPerSocket=2 ThreadsPerCore=2", c.nodeLine(t))
	require.NoError(t, c.apply(t, plan.Join, c.unit))
}

// A configuration that does not work takes the shape back with the line.
func TestShapeIsRolledBackWithItsLine(t *testing.T) {
	rec := example()
	node := rec.Unit.Members[1].Node
	rec.Files = rec.input()
	rec.setFound(node, twoByEightByTwo)
	applied, err := rec.appliedFiles()
	require.NoError(t, err)
	require.NotContains(t, string(applied[profile.Stack{Cluster: rec.Cluster}.Conf()].Data), "Sockets=")
	rec.Files = rec.input()
	rec.setFound(node, schema.Shape{})
	require.Equal(t, twoByEightByTwo, rec.Files.Found[node])
}

func TestMoreThanTheHostHasIsRefused(t *testing.T) {
	c := newCluster(t)
	c.withoutWorker(t)
	for _, one := range []struct {
		cpus     int
		declared schema.Shape
		why      string
	}{
		{33, schema.Shape{}, "host gpu-1 has 32 CPUs and 4000 MiB, but its node declares 33 CPUs and 4000 MiB"},
		{32, schema.Shape{Sockets: 4, CoresPerSocket: 4, ThreadsPerCore: 2},
			"host gpu-1 has 2 sockets with 8 cores of 2 threads, but its node declares 4 with 4 of 2; correct sockets, cores_per_socket " +
				"and threads_per_core in the node's document, or leave them out"},
		{32, schema.Shape{Sockets: 2, CoresPerSocket: 16, ThreadsPerCore: 1}, "but its node declares 2 with 16 of 1"},
		{32, schema.Shape{Sockets: 2, CoresPerSocket: 4, ThreadsPerCore: 4}, "but its node declares 2 with 4 of 4"},
	} {
		more := c.withShape(one.cpus, one.declared)
		require.NoError(t, c.apply(t, plan.Configure, more))
		require.ErrorContains(t, c.apply(t, plan.Join, more), one.why)
		require.False(t, c.wk.ran("start slurmd"))
	}
	has := cli.Resources{CPUs: 32, Sockets: 2, CoresPerSocket: 8, ThreadsPerCore: 2}
	for _, less := range []schema.Shape{{}, twoByEightByTwo, {Sockets: 1, CoresPerSocket: 16, ThreadsPerCore: 2},
		{Sockets: 2, CoresPerSocket: 8, ThreadsPerCore: 1}} {
		require.NoError(t, cluster.CheckShape(plan.Member{Shape: less}, has))
	}
	require.NoError(t, cluster.CheckShape(plan.Member{Shape: twoByEightByTwo}, cli.Resources{CPUs: 31}), "slurmd finds no shape")
}

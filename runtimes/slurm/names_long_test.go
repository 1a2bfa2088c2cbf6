//go:build long

package slurm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/slurmtest"
	"berth/schema"
	"berth/schema/queue"
)

// A cluster has the names that clusters have: of partitions, QoS, accounts, nodes, GPU types and users
// (case partition-names). Jobs run under them, and accounting and the queue show them.
func TestLongNamesOfClusters(t *testing.T) {
	t.Parallel()
	c := &company{stage: newStageOf(t, 2, "gpu01.cs.example.org", "slurm_node1")}
	c.rt = c.runtime(t)
	for i, gpu := range []string{"nvidia_geforce_rtx_3090", "2080ti"} {
		c.workers[i].Spec.Capacity.GPUs[0].Type = gpu
	}
	first, capital := schema.UnixUser{Name: "first.last", UID: 4200000001}, schema.UnixUser{Name: "J.Doe_3", UID: 165536}
	users := []schema.UnixUser{first, capital}
	config := `{
		"partitions": [{"name": "Mem128", "default": true, "allow_accounts": ["Phys_Lab.2"], "allow_qos": ["normal", "Long.q"]},
			{"name": "std.q", "nodes": {"names": ["slurm_node1"]}}, {"name": "2080ti", "nodes": {"gpu_types": ["2080ti"]}},
			{"name": "PGR-Standard", "nodes": {"gpu_types": ["nvidia_geforce_rtx_3090"]}, "qos": "4h"}],
		"qos": [{"name": "Long.q", "users": ["first.last", "J.Doe_3"]}, {"name": "4h", "max_time_minutes": 240}],
		"topology": {"switches": [{"name": "IB.Leaf_1", "nodes": ["gpu01.cs.example.org", "slurm_node1"]}]},
		"account": "Phys_Lab.2"
	}`
	u := c.unit(config, users, nil, 0, 1)
	c.carry(t, u, false)
	submits := func(user schema.UnixUser, partition string, options ...string) slurmtest.Job {
		t.Helper()
		id, err := c.trySubmit(t, u, user, "id -un\n", append([]string{"--partition=" + partition}, options...)...)
		require.NoError(t, err)
		return c.await(t, u, id, slurmtest.Completed)
	}
	job := submits(first, "Mem128", "--qos=Long.q", "--account=Phys_Lab.2", "--gres=gpu:nvidia_geforce_rtx_3090:1")
	require.Equal(t, []string{"gpu01.cs.example.org"}, job.Nodes)
	require.Equal(t, []string{"slurm_node1"}, submits(capital, "2080ti", "--gres=gpu:2080ti:2").Nodes)
	require.Equal(t, []string{"slurm_node1"}, submits(capital, "std.q", "--qos=long.q").Nodes)
	require.Equal(t, []string{"gpu01.cs.example.org"}, submits(first, "PGR-Standard").Nodes)
	for _, unknown := range []string{"--partition=mem128", "--partition=MEM128", "--account=members", "--qos=Short.q"} {
		_, err := c.trySubmit(t, u, first, "true\n", unknown)
		require.Error(t, err, unknown)
	}
	require.Contains(t, c.tool(t, u, "sacct -n -P -X --allusers -o User,Account,Partition,QOS,NodeList"),
		"first.last|phys_lab.2|Mem128|long.q|gpu01.cs.example.org")
	require.Contains(t, c.tool(t, u, "sacctmgr -n -P list user format=user"), capital.Name+"\n")

	// The queue shows the jobs of the users.
	m, hasRunbook := mapDocument(t, schema.ModeRealPolicy, "Mem128")
	m.Spec.Queues[0].Account, m.Spec.Queues[0].QOS = "Phys_Lab.2", "Long.q"
	at := c.queueOf(u, "physics.lattice", m)
	at.HasRunbook = hasRunbook
	asked := submission("physics.lattice", first, "names", "sleep 1; id -un")
	asked.Queue = m.Spec.Queues[0].Queue
	done, err := c.rt.Submit(t.Context(), at, asked)
	require.NoError(t, err)
	require.Equal(t, "Mem128", c.awaitState(t, at, done.JobID, "COMPLETED").Queue)
	list, err := c.rt.Jobs(t.Context(), at.Unit, at.Stamp)
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(list, func(j queue.Job) bool { return j.JobID == done.JobID && j.User == first.Name }))
	out, err := c.rt.Output(t.Context(), at, queue.Ref{JobID: done.JobID}, 100)
	require.NoError(t, err)
	require.Contains(t, string(out.Text), first.Name+"\n")

	// Another account takes the place of the first.
	u = c.unit(strings.ReplaceAll(config, "Phys_Lab.2", "Bio-7"), users, nil, 0, 1)
	c.carry(t, u, false)
	submits(first, "Mem128", "--account=bio-7")
	require.NotContains(t, c.tool(t, u, "sacctmgr -n -P list account format=account"), "phys_lab.2")

	// An account with a dot belongs to no project.
	require.NoError(t, c.apply(t, c.plan(t, u, true)))
	var seen []string
	for _, j := range c.used {
		seen = append(seen, fmt.Sprint(j.User, " ", j.GPUType, " ", j.ProjectID))
	}
	require.Contains(t, strings.Join(seen, "\n")+"\n", "first.last nvidia_geforce_rtx_3090 \n")
}

package slurm

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/schema"
)

const sinfoJSON = `{"meta":{"Slurm":{"version":{"major":22,"micro":8,"minor":5},"release":"22.05.8"}},"errors":[],
"nodes":[{"name":"w1","state":"idle","state_flags":["DRAIN","DYNAMIC_NORM"],"reason":"berth:leave-x","gres":"gpu:a100:2(S:0-1)","cpus":4,"real_memory":8000},
{"name":"w2","state":"down","state_flags":["NOT_RESPONDING"],"gres":"","cpus":4,"real_memory":8000}]}`

func TestParseNodes(t *testing.T) {
	nodes, version, err := parseNodes([]byte(sinfoJSON))
	require.NoError(t, err)
	require.Equal(t, "22.05.8", version)
	require.Len(t, nodes, 2)
	require.True(t, nodes[0].registered())
	require.True(t, nodes[0].flag("DRAIN"))
	require.False(t, nodes[1].registered())
	two := plan.Member{CPUs: 4, MemoryMiB: 8000, GPUs: []schema.GPU{{Type: "a100", Count: 2}}}
	require.True(t, hasShape(nodes[0], two))
	require.False(t, hasShape(nodes[1], two))
	two.GPUs[0].Count = 1
	require.False(t, hasShape(nodes[0], two))
	_, _, err = parseNodes([]byte(`{"errors":[{"error":"no"}]}`))
	require.Error(t, err)
	_, _, err = parseNodes([]byte("slurm_load_node error"))
	require.Error(t, err)
}

func TestParseQueue(t *testing.T) {
	jobs, err := parseQueue([]byte("12 R 2001 main\n13 PD 2001 main,quick\n13 PD 2001 main,quick\n"))
	require.NoError(t, err)
	require.Equal(t, []string{"12", "13"}, jobIDs(jobs))
	require.True(t, jobs[1].pending())
	for _, bad := range []string{"12 R\n", "slurm error: x y\n", "12 R x main\n"} {
		_, err := parseQueue([]byte(bad))
		require.Error(t, err, bad)
	}
}

func TestHashAndPing(t *testing.T) {
	says := func(text string) runtimes.Result { return runtimes.Result{Data: []byte(text)} }
	require.True(t, hashMatches(says("FOO = 1\nHASH_VAL                = Match\n")))
	require.False(t, hashMatches(says("HASH_VAL                = Different Ours=0x1 Slurmctld=0x2\n")))
	require.False(t, hashMatches(says("FOO = 1\n")))
	require.Equal(t, []string{"main", "Mine"}, parsePartitions([]byte("PartitionName=main\n   AllowGroups=ALL\n\nPartitionName=Mine\n   State=UP\n")))
	require.True(t, pingUp([]byte("Slurmctld(primary) at ctl is UP\n")))
	require.False(t, pingUp([]byte("Slurmctld(primary) at ctl is DOWN\n")))
}

func TestImpact(t *testing.T) {
	rec := example()
	before := rec.Unit
	cancel := before
	cancel.Instance.OnJobs = &schema.OnJobs{CancelAfterSeconds: 60}
	fewer := before
	fewer.Instance.Config = []byte(`{"partitions":[{"name":"quick","max_time_minutes":30,"default":true}],"scheduler":{"interval_seconds":60},"identity":"managed"}`)
	fewer.Instance.Users = before.Instance.Users[:1]
	grown := before
	grown.Members = append(grown.Members[:2:2], plan.Member{Name: "worker-1", Role: "worker", Node: "dev-gpu-2", Address: "10.77.0.12", CPUs: 4, MemoryMiB: 8000, GPUs: before.Members[1].GPUs})
	moved := before
	moved.Members = slices.Clone(before.Members)
	moved.Members[1].GPUs = []schema.GPU{{Type: "a100", Count: 2, Devices: "/dev/nvidia[2-3]"}}
	rules := Rules{}
	for _, c := range []struct {
		why           string
		verb          plan.Verb
		member        string
		before, after *plan.Unit
		want          plan.Impact
	}{
		{"nothing is there yet", plan.Create, "", nil, &before, plan.Impact{}},
		{"nothing changes", plan.Configure, "", &before, &before, plan.Impact{}},
		{"a partition and a user go", plan.Configure, "", &before, &fewer, plan.Impact{
			Reconfigure: true, Note: "running jobs go on; running jobs of partition main, user bob are waited for; their queued jobs are cancelled"}},
		{"a node comes", plan.Configure, "", &before, &grown, plan.Impact{
			Restarts: []string{"control plane"}, Note: "running jobs go on"}},
		{"other devices", plan.Configure, "", &before, &moved, plan.Impact{Reconfigure: true}},
		{"a worker with GPUs joins", plan.Join, "worker-0", nil, &before, plan.Impact{}},
		{"a worker leaves", plan.Leave, "worker-0", &before, &before, plan.Impact{
			Drains: []string{"dev-gpu-1"}, Note: "jobs on the node are waited for"}},
		{"a worker leaves in a hurry", plan.Leave, "worker-0", &cancel, &cancel, plan.Impact{
			Drains: []string{"dev-gpu-1"}, EndsJobs: true, Note: "jobs on the node are cancelled after 60 s"}},
		{"the control plane is started", plan.Start, "controller-0", &before, &before, plan.Impact{Restarts: []string{"control plane"}, Note: "running jobs go on"}},
		{"all goes", plan.Delete, "", &before, nil, plan.Impact{
			Drains: []string{"dev-gpu-1"}, Note: "running jobs are waited for; queued jobs are cancelled; the accounting records are removed"}},
	} {
		require.Equal(t, c.want, rules.Impact(c.verb, c.member, c.before, c.after), c.why)
	}
}

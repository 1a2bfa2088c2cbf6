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
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

func TestNodeHasTheShapeOfItsMember(t *testing.T) {
	two := plan.Member{CPUs: 4, MemoryMiB: 8000, GPUs: []schema.GPU{{Type: "a100", Count: 2}}}
	require.True(t, hasShape(node{Gres: "gpu:a100:2(S:0-1)", CPUs: 4, Memory: 8000}, two))
	require.False(t, hasShape(node{CPUs: 4, Memory: 8000}, two))
	two.GPUs[0].Count = 1
	require.False(t, hasShape(node{Gres: "gpu:a100:2(S:0-1)", CPUs: 4, Memory: 8000}, two))
}

func TestTasksOfAnArrayAreCancelledOnce(t *testing.T) {
	require.Equal(t, []string{"12", "13"}, jobIDs([]cli.Queued{{ID: "12"}, {ID: "13"}, {ID: "13"}}))
}

// Every call of a query is one that the root helper allows, and that needs no epoch.
func TestHelperAllowsEveryQuery(t *testing.T) {
	c := newCluster(t).on(t)
	var ops []runtimes.Op
	for _, r := range cli.Releases() {
		if r.Tools != nil {
			ops = append(ops, queryOp(c.control, r.Tools.Nodes), queryOp(c.control, r.Tools.Accounting))
		}
	}
	ops = append(ops, queryOp(c.control, cli.Queue("--nodelist=w1")), queryOp(c.control, cli.Snapshot()),
		queryOp(c.control, cli.EndedJobs("")), queryOp(c.control, cli.EndedJobs("physics.lhc")), queryOp(c.control, cli.Partitions()),
		queryOp(c.control, cli.ShowConfig()),
		queryOp(c.control, cli.Ping()), queryOp(c.control, cli.Associations()), queryOp(c.control, cli.QoSNames()),
		queryOp(c.control, cli.Unsent()), queryOp(c.control, cli.Runs("physics.lhc", time.Now(), time.Now())), askSlurmdbd(c.control),
		versionOp(profile.Slurmctld), versionOp(profile.Slurmd))
	for _, q := range accounting.Queries(c.stack.Cluster) {
		ops = append(ops, queryOp(c.control, q))
	}
	for _, op := range ops {
		program := profile.Profile().Programs[op.Run.Program]
		require.NoError(t, program.Check(op.Run.Args), "%s %v", op.Run.Program, op.Run.Args)
		require.True(t, program.Reads(op.Run.Args), "%s %v", op.Run.Program, op.Run.Args)
	}
}

func TestImpact(t *testing.T) {
	rec := example()
	before := rec.Unit
	cancel := before
	cancel.Effective.OnJobs = &schema.OnJobs{CancelAfterSeconds: 60}
	fewer := before
	fewer.Effective.Config = []byte(
		`{"partitions":[{"name":"quick","max_time_minutes":30,"default":true}],"scheduler":{"interval_seconds":60},"identity":"managed"}`,
	)
	fewer.Effective.Users = before.Effective.Users[:1]
	grown := before
	grown.Members = append(grown.Members[:2:2],
		plan.Member{Name: "worker-1", Role: "worker", Node: "dev-gpu-2", Address: "10.77.0.12", CPUs: 4, MemoryMiB: 8000,
			GPUs: before.Members[1].GPUs})
	urgent := before
	urgent.Effective.Config = []byte(strings.Replace(string(before.Effective.Config), "{",
		`{"qos":[{"name":"urgent"},{"name":"idle","users":["bob"]}],`, 1))
	shorter := before
	shorter.Effective.Config = []byte(strings.Replace(string(before.Effective.Config), "{", `{"retention":{"usage_months":12},`, 1))
	moved := before
	moved.Members = slices.Clone(before.Members)
	moved.Members[1].GPUs = []schema.GPU{{Type: "a100", Count: 2, Devices: "/dev/nvidia[2-3]"}}
	rules := cluster.Rules{}
	differs := func(class plan.Class, what ...string) (out []plan.Difference) {
		for _, w := range what {
			out = append(out, plan.Difference{What: w, Class: class})
		}
		return out
	}
	drains := differs(plan.ClassDrain, "node dev-gpu-1")
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
			Reconfigure: true,
			Differences: append(differs(plan.ClassReconfigure, "slurm.conf PartitionName=main"), differs(plan.ClassLive, "user bob")...),
			Jobs: []plan.JobRule{{Partitions: []string{"main"}, CancelsQueued: true},
				{Users: []string{"bob"}, CancelsQueued: true}}}},
		{"QoS come", plan.Configure, "", &before, &urgent, plan.Impact{
			Differences: differs(plan.ClassLive, "QoS idle", "QoS urgent", "account members", "user bob")}},
		{"QoS go", plan.Configure, "", &urgent, &before, plan.Impact{
			Differences: differs(plan.ClassLive, "QoS idle", "QoS urgent", "account members", "user bob"),
			Jobs:        []plan.JobRule{{QoS: []string{"idle", "urgent"}}}}},
		{"old records go", plan.Configure, "", &before, &shorter, plan.Impact{
			Restarts: []string{"slurmdbd"}, Interruption: "sacct does not answer while slurmdbd restarts",
			Differences: differs(plan.ClassRestart, "slurmdbd.conf"),
			Notes:       []string{"accounting records older than retention are removed for good"}}},
		{"old records stay", plan.Configure, "", &shorter, &before, plan.Impact{
			Restarts: []string{"slurmdbd"}, Interruption: "sacct does not answer while slurmdbd restarts",
			Differences: differs(plan.ClassRestart, "slurmdbd.conf")}},
		{"a node comes", plan.Configure, "", &before, &grown, plan.Impact{
			Restarts: []string{"slurmctld"}, Interruption: "no job starts for some seconds",
			Differences: append(differs(plan.ClassReconfigure, "gres.conf"),
				differs(plan.ClassRestart, "slurm.conf NodeName=dev-gpu-2")...)}},
		{"other devices", plan.Configure, "", &before, &moved,
			plan.Impact{Reconfigure: true, Differences: differs(plan.ClassReconfigure, "gres.conf")}},
		{"a worker with GPUs joins", plan.Join, "worker-0", nil, &before, plan.Impact{}},
		{"a worker leaves and joins again", plan.Leave, "worker-0", &before, &before, plan.Impact{
			Drains: []string{"dev-gpu-1"}, Differences: drains, Jobs: []plan.JobRule{{Nodes: []string{"dev-gpu-1"}}}}},
		{"a worker leaves in a hurry and joins again", plan.Leave, "worker-0", &cancel, &cancel, plan.Impact{
			Drains: []string{"dev-gpu-1"}, EndsJobs: true, Differences: drains,
			Jobs: []plan.JobRule{{Nodes: []string{"dev-gpu-1"}, CancelAfter: 60}}}},
		{"a worker leaves with a new rule and joins again", plan.Leave, "worker-0", &before, &cancel, plan.Impact{
			Drains: []string{"dev-gpu-1"}, EndsJobs: true, Differences: drains,
			Jobs: []plan.JobRule{{Nodes: []string{"dev-gpu-1"}, CancelAfter: 60}}}},
		{"the control plane is started", plan.Start, "controller-0", &before, &before, plan.Impact{Restarts: []string{"control plane"}}},
		{"a worker is started", plan.Start, "worker-0", &before, &before, plan.Impact{Restarts: []string{"slurmd on dev-gpu-1"}}},
		{"a worker is restarted", plan.Restart, "worker-0", &before, &before, plan.Impact{
			Restarts: []string{"slurmd on dev-gpu-1"}, Interruption: "no job starts on a node while its slurmd restarts"}},
		{"all stops", plan.Stop, "", &before, &before, plan.Impact{Drains: []string{"dev-gpu-1"}, Jobs: []plan.JobRule{{All: true}}}},
		{"all goes", plan.Delete, "", &before, nil, plan.Impact{
			Drains: []string{"dev-gpu-1"}, Jobs: []plan.JobRule{{All: true, CancelsQueued: true}},
			Notes: []string{"its records in sacct are removed for good, and the usage that Berth recorded stays"}}},
	} {
		require.Equal(t, c.want, rules.Impact(c.verb, c.member, c.before, c.after), c.why)
	}
}

package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/cli"
)

// A value of slurm.conf and that of scontrol are compared in one form. The forms are those of Slurm 22.05 to 26.05.
func TestPartitionIsComparedWithItsLine(t *testing.T) {
	const conf = "NodeName=gpu-1 CPUs=4\nNodeName=gpu-2 CPUs=4\n" +
		"PartitionName=main Nodes=ALL State=UP DefaultTime=60 MaxTime=10080 Default=YES PriorityTier=10 AllowAccounts=b.x,A QOS=Normal " +
		"TRESBillingWeights=CPU=4,Mem=1G,GRES/gpu=32 DefMemPerCPU=500\n" +
		"PartitionName=quick Nodes=gpu-1 State=UP MaxTime=UNLIMITED\n"
	answer := func(edit func(main, quick map[string]string)) []cli.Partition {
		main := map[string]string{"State": "UP", "DefaultTime": "01:00:00", "MaxTime": "7-00:00:00", "Default": "YES", "PriorityTier": "10",
			"AllowAccounts": "a,b.x", "AllowQos": "ALL", "Hidden": "NO", "RootOnly": "NO", "MaxNodes": "UNLIMITED", "OverSubscribe": "NO",
			"Nodes": "gpu-[1-2]",
			"QoS":   "normal", "AllocNodes": "ALL", "MaxMemPerNode": "UNLIMITED", "OverTimeLimit": "NONE", "MinNodes": "0",
			"DefMemPerCPU":       "500",
			"TRESBillingWeights": "CPU=4,Mem=1G,GRES/gpu=32"}
		quick := map[string]string{"State": "UP", "DefaultTime": "NONE", "MaxTime": "UNLIMITED", "Default": "NO", "PriorityTier": "1",
			"Nodes": "gpu-1"}
		edit(main, quick)
		return []cli.Partition{{Name: "main", Nodes: []string{"gpu-1", "gpu-2"}, Values: main},
			{Name: "quick", Nodes: []string{"gpu-1"}, Values: quick}}
	}
	none := func(string) bool { return false }
	require.Empty(t, changedPartitions(ParseConf([]byte(conf)), answer(func(main, quick map[string]string) {}), none))
	for want, edit := range map[string]func(main, quick map[string]string){
		"partition main is DOWN by hand; it is declared UP": func(main,
			_ map[string]string) {
			main["State"] = "DOWN"
		},
		"partition main has MaxTime 0-00:05:00 in slurmctld, and 7-00:00:00 in slurm.conf": func(main,
			_ map[string]string) {
			main["MaxTime"] = "00:05:00"
		},
		"partition quick has MaxTime 1-00:00:00 in slurmctld, and UNLIMITED in slurm.conf": func(_,
			quick map[string]string) {
			quick["MaxTime"] = "1-00:00:00"
		},
		"partition main has AllowAccounts nobody in slurmctld, and a,b.x in slurm.conf": func(main,
			_ map[string]string) {
			main["AllowAccounts"] = "nobody"
		},
		"partition main has Hidden YES in slurmctld, and NO in slurm.conf": func(main,
			_ map[string]string) {
			main["Hidden"] = "YES"
		},
		"partition main has QoS high in slurmctld, and normal in slurm.conf": func(main,
			_ map[string]string) {
			main["QoS"] = "high"
		},
		"partition main has AllocNodes gpu-2 in slurmctld, and ALL in slurm.conf": func(main,
			_ map[string]string) {
			main["AllocNodes"] = "gpu-2"
		},
		"partition main has MaxMemPerNode 1 in slurmctld, and UNLIMITED in slurm.conf": func(main,
			_ map[string]string) {
			main["MaxMemPerNode"] = "1"
		},
		"partition main has MinNodes 9 in slurmctld, and 0 in slurm.conf": func(main,
			_ map[string]string) {
			main["MinNodes"] = "9"
		},
		"partition main has OverTimeLimit UNLIMITED in slurmctld, and NONE in slurm.conf": func(main,
			_ map[string]string) {
			main["OverTimeLimit"] = "UNLIMITED"
		},
		"partition quick has TRESBillingWeights cpu=9 in slurmctld, and (none) in slurm.conf": func(_, quick map[string]string) {
			quick["TRESBillingWeights"] = "cpu=9"
		},
		"partition quick has Default YES in slurmctld, and NO in slurm.conf": func(_, quick map[string]string) { quick["Default"] = "YES" },
	} {
		require.Equal(t, []string{want}, changedPartitions(ParseConf([]byte(conf)), answer(edit), none))
	}
	lacks := answer(func(main, quick map[string]string) {})
	lacks[0].Nodes = []string{"gpu-1"}
	require.Equal(t, []string{"partition main lacks gpu-2 in slurmctld"}, changedPartitions(ParseConf([]byte(conf)), lacks, none))
	require.Equal(t, []string{"partition quick was deleted by hand"},
		changedPartitions(ParseConf([]byte(conf)), answer(func(main, quick map[string]string) {})[:1], none))
	more := append(answer(func(main, quick map[string]string) {}), cli.Partition{Name: "mine"}, cli.Partition{Name: "old"})
	require.Equal(t, []string{"partition mine was made by hand"},
		changedPartitions(ParseConf([]byte(conf)), more, func(name string) bool { return name == "old" }))
}

// The order of features has no meaning. Another check reports a node that slurmctld does not have.
func TestNodeIsComparedWithItsLine(t *testing.T) {
	const conf = "NodeName=gpu-1 NodeAddr=10.0.0.1 CPUs=4 Feature=worker,gpu,a100\nNodeName=gpu-2 CPUs=4 Feature=worker\n"
	changed := func(weight int, features ...string) []string {
		return changedNodes(ParseConf([]byte(conf)), []cli.Node{{Name: "gpu-1", Weight: weight, Features: features}})
	}
	require.Empty(t, changed(1, "a100", "gpu", "worker"))
	require.Equal(t, []string{"node gpu-1 has the weight 5 in slurmctld, and 1 in slurm.conf"}, changed(5, "a100", "gpu", "worker"))
	for address, want := range map[string][]string{"": nil, "10.0.0.1": nil,
		"192.0.2.9": {"node gpu-1 has the address 192.0.2.9 in slurmctld, and 10.0.0.1 in slurm.conf"}} {
		known := []cli.Node{{Name: "gpu-1", Weight: 1, Features: []string{"a100", "gpu", "worker"}, Address: address}}
		require.Equal(t, want, changedNodes(ParseConf([]byte(conf)), known), address)
	}
	require.Equal(t, []string{"node gpu-1 has the features mine in slurmctld, and a100,gpu,worker in slurm.conf"}, changed(1, "mine"))
}

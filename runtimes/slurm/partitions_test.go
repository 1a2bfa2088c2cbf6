package slurm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/slurm/cli"
)

// A value of slurm.conf and that of scontrol are compared in one form. The forms are those of Slurm 22.05 to 26.05.
func TestPartitionIsComparedWithItsLine(t *testing.T) {
	const conf = "NodeName=gpu-1 CPUs=4\nNodeName=gpu-2 CPUs=4\n" +
		"PartitionName=main Nodes=ALL State=UP DefaultTime=60 MaxTime=10080 Default=YES PriorityTier=10 AllowAccounts=b.x,A QOS=normal\n" +
		"PartitionName=quick Nodes=gpu-1 State=UP MaxTime=UNLIMITED\n"
	answer := func(edit func(main, quick map[string]string)) []cli.Partition {
		main := map[string]string{"State": "UP", "DefaultTime": "01:00:00", "MaxTime": "7-00:00:00", "Default": "YES", "PriorityTier": "10",
			"AllowAccounts": "a,b.x", "AllowQos": "ALL", "Hidden": "NO", "RootOnly": "NO", "MaxNodes": "UNLIMITED", "OverSubscribe": "NO", "Nodes": "gpu-[1-2]"}
		quick := map[string]string{"State": "UP", "DefaultTime": "NONE", "MaxTime": "UNLIMITED", "Default": "NO", "PriorityTier": "1", "Nodes": "gpu-1"}
		edit(main, quick)
		return []cli.Partition{{Name: "main", Nodes: []string{"gpu-1", "gpu-2"}, Values: main}, {Name: "quick", Nodes: []string{"gpu-1"}, Values: quick}}
	}
	c := &control{}
	require.Empty(t, c.changedPartitions([]byte(conf), answer(func(main, quick map[string]string) {})))
	for want, edit := range map[string]func(main, quick map[string]string){
		"partition main is DOWN by hand; it is declared UP":                              func(main, _ map[string]string) { main["State"] = "DOWN" },
		"partition main has MaxTime 0-00:05:00 in slurmctld, and 7-00:00:00 by its file": func(main, _ map[string]string) { main["MaxTime"] = "00:05:00" },
		"partition quick has MaxTime 1-00:00:00 in slurmctld, and UNLIMITED by its file": func(_, quick map[string]string) { quick["MaxTime"] = "1-00:00:00" },
		"partition main has AllowAccounts nobody in slurmctld, and a,b.x by its file":    func(main, _ map[string]string) { main["AllowAccounts"] = "nobody" },
		"partition main has Hidden YES in slurmctld, and NO by its file":                 func(main, _ map[string]string) { main["Hidden"] = "YES" },
		"partition quick has Default YES in slurmctld, and NO by its file":               func(_, quick map[string]string) { quick["Default"] = "YES" },
	} {
		require.Equal(t, []string{want}, c.changedPartitions([]byte(conf), answer(edit)))
	}
	lacks := answer(func(main, quick map[string]string) {})
	lacks[0].Nodes = []string{"gpu-1"}
	require.Equal(t, []string{"partition main lacks gpu-2 in slurmctld"}, c.changedPartitions([]byte(conf), lacks))
	require.Equal(t, []string{"partition quick was deleted by hand"}, c.changedPartitions([]byte(conf), answer(func(main, quick map[string]string) {})[:1]))
}

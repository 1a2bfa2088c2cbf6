package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// declared returns a cluster with a config and a version of Slurm, on a host.
func declared(t *testing.T, config, version string, edit func(*Declaration)) *Cluster {
	t.Helper()
	u := plan.Unit{
		Effective: schema.EffectiveUnit{Key: schema.InstanceKey("physics", "lattice", "train"), Config: json.RawMessage(config)},
		Members: []plan.Member{
			{Name: "controller-0", Role: "controller", ControlPlane: true, Node: "ctl", Address: "10.77.0.10"},
			{Name: "worker-0", Role: "worker", Node: "gpu-1", Address: "10.77.0.11", CPUs: 4, MemoryMiB: 8000},
		},
	}
	u.Effective.SoftwareVersion = version
	of := Declaration{Name: Name(u.Effective.Key), Unit: &u, At: ControlHost{Hostname: "ctl", Ports: Ports{Slurmctld: 22710, Slurmdbd: 22711}}}
	edit(&of)
	c, err := New(of)
	require.NoError(t, err)
	return c
}

// The step by which the daemons take over a change depends on the changed field and on the version of Slurm (slurm.conf(5)).
func TestStepsOfChanges(t *testing.T) {
	const main = `{"partitions":[{"name":"main","max_time_minutes":30,"default":true}]}`
	same := func(*Declaration) {}
	for _, c := range []struct {
		config     string
		edit       func(*Declaration)
		what       string
		old, newer Steps // on 22.05.8 and 24.11.5
	}{
		{main, same, "[]", Steps{}, Steps{}},
		{`{"partitions":[{"name":"main","max_time_minutes":60,"default":true}]}`, same,
			"[slurm.conf PartitionName=main]", Steps{Reconfigure: true}, Steps{Reconfigure: true}},
		{`{"partitions":[{"name":"main","max_time_minutes":30,"default":true},{"name":"x"}]}`, same,
			"[slurm.conf PartitionName=x]", Steps{Reconfigure: true}, Steps{Reconfigure: true}},
		{main, func(d *Declaration) { d.At.Ports.Slurmctld = 22712 },
			"[slurm.conf SlurmctldPort]", Steps{Restart: true, Reconfigure: true}, Steps{Restart: true, Reconfigure: true}},
		{main, func(d *Declaration) { d.At.Ports.Slurmdbd = 22713 }, "[slurm.conf AccountingStoragePort slurmdbd.conf]",
			Steps{Restart: true, Reconfigure: true, Database: true}, Steps{Restart: true, Reconfigure: true, Database: true}},
		{main, func(d *Declaration) { d.Unit.Members[1].MemoryMiB = 4000 }, // a reconfigure ends slurmctld 22.05 if nodes differ
			"[slurm.conf DefMemPerCPU slurm.conf NodeName=gpu-1]", Steps{Restart: true, Reconfigure: true}, Steps{Reconfigure: true}},
	} {
		for version, want := range map[string]Steps{"22.05.8": c.old, "24.11.5": c.newer} {
			diff, err := Compare(declared(t, main, version, same), declared(t, c.config, version, c.edit))
			require.NoError(t, err)
			var names []string
			for _, ch := range diff.Changes {
				names = append(names, ch.What)
			}
			require.Equal(t, c.what, fmt.Sprint(names), version)
			require.Equal(t, want, diff.Steps(), c.what, version)
		}
	}
}

// slurmctld compares hashes of the text, so that partitions in another order need a reconfigure.
func TestStepsOfAnotherOrder(t *testing.T) {
	same := func(*Declaration) {}
	before := declared(t, `{"partitions":[{"name":"x","default":true},{"name":"y"}]}`, "22.05.8", same)
	after := declared(t, `{"partitions":[{"name":"y"},{"name":"x","default":true}]}`, "22.05.8", same)
	diff, err := Compare(before, after)
	require.NoError(t, err)
	require.Equal(t, Steps{Reconfigure: true}, diff.Steps())
	require.Len(t, diff.Changes, 1)
}

// Another text of slurm.conf needs what its lines need, as after another release of Berth or a change by hand.
func TestStepsOverAnotherText(t *testing.T) {
	c := declared(t, `{}`, "22.05.8", func(*Declaration) {})
	all, err := c.Files()
	require.NoError(t, err)
	text := string(all[c.stack().Conf()].Data)
	require.Equal(t, Steps{Reconfigure: true}, c.StepsOver([]byte("# by hand\n"+text)))
	require.Equal(t, Steps{Reconfigure: true}, c.StepsOver([]byte(strings.Replace(text, "FirstJobId=1", "FirstJobId=9", 1))))
	require.Equal(t, Steps{Restart: true, Workers: true, Reconfigure: true},
		c.StepsOver([]byte(strings.Replace(text, "proctrack/cgroup", "proctrack/linuxproc", 1))))
}

// slurmd 22.05 reads cgroup.conf and what confines jobs at its start only.
func TestStepsOfConfinement(t *testing.T) {
	for version, workers := range map[string]bool{"22.05.8": true, "24.11.5": false} {
		diff, err := Compare(declared(t, `{"confinement":"none"}`, version, func(*Declaration) {}),
			declared(t, `{}`, version, func(*Declaration) {}))
		require.NoError(t, err)
		require.Equal(t, workers, diff.Steps().Workers, version)
		i := slices.IndexFunc(diff.Changes, func(ch Change) bool { return ch.What == "cgroup.conf" })
		require.GreaterOrEqual(t, i, 0)
	}
}

// If the state of the host is unknown, each file is written and each daemon starts again.
func TestUnknownClusterChangesWholly(t *testing.T) {
	want := declared(t, `{}`, "24.11.5", func(*Declaration) {})
	diff, err := Compare(nil, want)
	require.NoError(t, err)
	all, err := want.Files()
	require.NoError(t, err)
	require.Equal(t, all, diff.Want)
	for path := range all {
		require.True(t, diff.Changed(path), path)
	}
	require.Equal(t, Steps{Restart: true, Workers: true, Reconfigure: true, Database: true}, diff.Steps())
}

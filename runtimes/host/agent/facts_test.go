package agent_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
	"berth/runtimes/host/agent"
)

// A host with two GPUs, and the VGA controller of its management board.
func TestFactsOfAHost(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"proc/loadavg":                                "0.52 1.50 2.25 3/400 1234\n",
		"proc/meminfo":                                "MemTotal: 16384000 kB\nMemAvailable: 8192000 kB\nHugePages_Total: 0\n",
		"proc/sys/kernel/osrelease":                   "6.12.0-1-amd64\n",
		"proc/sys/kernel/random/boot_id":              "11111111-2222-3333-4444-555555555555\n",
		"sys/devices/system/cpu/online":               "0-3,8,10-11\n",
		"sys/bus/pci/devices/0000:01/class":           "0x030200\n",
		"sys/bus/pci/devices/0000:01/vendor":          "0x10de\n",
		"sys/bus/pci/devices/0000:02/class":           "0x030000\n",
		"sys/bus/pci/devices/0000:02/vendor":          "0x10de\n",
		"sys/bus/pci/devices/0000:03/class":           "0x030000\n",
		"sys/bus/pci/devices/0000:03/vendor":          "0x1a03\n",
		"proc/driver/nvidia/gpus/0000:01/information": "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ: 1\n",
		"var/lib/state/file":                          "",
		"dev/nvidia0":                                 "a plain file",
	} {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	require.NoError(t, os.Symlink("/dev/null", filepath.Join(root, "dev/nvidia1")))
	facts, state := factsOf(t, root, "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2")
	require.Equal(t, &runtimes.LoadFacts{One: 0.52, Five: 1.5, Fifteen: 2.25}, facts.Load)
	require.Equal(t, 7, facts.CPUs)
	require.Equal(t, 16000, facts.MemoryMiB)
	require.Equal(t, 8000, facts.AvailableMiB)
	require.Equal(t, "6.12.0-1-amd64", facts.Kernel)
	require.Equal(t, "11111111-2222-3333-4444-555555555555", facts.BootID)
	require.Equal(t, 2, *facts.GPUs)
	require.Equal(t, []string{"NVIDIA A100-SXM4-40GB"}, facts.GPUModels)
	require.Equal(t, []string{"/dev/nvidia0", "/dev/nvidia2"}, facts.Missing)
	require.Equal(t, agent.Protocol, facts.Protocol)
	require.Equal(t, "test", facts.Version)
	require.False(t, facts.At.IsZero())
	require.Len(t, facts.Disks, 3)
	for i, path := range []string{"/", "/var/lib/state", state} {
		require.Equal(t, path, facts.Disks[i].Path)
		require.Positive(t, facts.Disks[i].SizeMiB)
	}
}

func TestMissingSourceLeavesTheFactAbsent(t *testing.T) {
	facts, _ := factsOf(t, t.TempDir())
	require.Len(t, facts.Disks, 2, "that of / and that of the ledger")
	facts.Disks = nil
	require.Equal(t, runtimes.HostFacts{At: facts.At, Version: "test", Protocol: agent.Protocol}, *facts)
}

// Facts read no other path than those of device files, need no leader and make no entry in the ledger.
func TestFactsHaveNoEffect(t *testing.T) {
	f := newFar(t)
	require.False(t, agent.MayEffect(runtimes.Op{Facts: &runtimes.ReadFacts{}}))
	for _, path := range []string{"/etc/shadow", "/dev/../etc/shadow", "dev/null", "/dev"} {
		fault := f.ask(runtimes.Stamp{}, runtimes.Op{Facts: &runtimes.ReadFacts{Devices: []string{path}}}).Fault
		require.NotNil(t, fault, path)
	}
	many := make([]string, runtimes.MaxDevices+1)
	require.Equal(t, runtimes.CodeInvalid, f.ask(runtimes.Stamp{}, runtimes.Op{Facts: &runtimes.ReadFacts{Devices: many}}).Fault.Code)
	answer := f.ask(runtimes.Stamp{}, runtimes.Op{Facts: &runtimes.ReadFacts{}})
	require.Nil(t, answer.Fault)
	require.Positive(t, answer.Results[0].Facts.CPUs)
	require.NoFileExists(t, filepath.Join(f.state, "ledger"))
}

// factsOf returns the facts of a host below root, and the directory with its ledger.
func factsOf(t *testing.T, root string, devices ...string) (facts *runtimes.HostFacts, state string) {
	t.Helper()
	f := &far{T: t, state: t.TempDir()}
	a := agent.New(agent.Options{Root: root, StateDir: f.state, EtcDir: t.TempDir(), Version: "test",
		Profiles: []runtimes.Profile{{DiskPaths: []string{"/var/lib/state", "/var/lib/missing", "/"}}}})
	answer := f.askOf(a, runtimes.Stamp{}, runtimes.Op{Facts: &runtimes.ReadFacts{Devices: devices}})
	require.Nil(t, answer.Fault)
	return answer.Results[0].Facts, f.state
}

package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

func TestDeviceFiles(t *testing.T) {
	got, err := schema.GPU{Devices: "/dev/nvidia[0-2]"}.DeviceFiles()
	require.NoError(t, err)
	require.Equal(t, []string{"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2"}, got)
	got, err = schema.GPU{Devices: "/dev/dri/card0"}.DeviceFiles()
	require.NoError(t, err)
	require.Equal(t, []string{"/dev/dri/card0"}, got)
	// A worker with fewer GPUs than its node has gets exactly those it asked for.
	for devices, want := range map[string][]string{
		"/dev/nvidia0": {"/dev/nvidia0"}, "/dev/nvidia[3-3]": {"/dev/nvidia3"}, "/dev/nvidia[2-3]": {"/dev/nvidia2", "/dev/nvidia3"},
	} {
		got, err = schema.GPU{Devices: devices}.DeviceFiles()
		require.NoError(t, err)
		require.Equal(t, want, got)
		gres, err := renderGresConf([]plan.Member{{Node: "n",
			GPUs: []schema.GPU{{Type: "a100", Devices: devices, Count: len(want)}}}})
		require.NoError(t, err)
		require.Contains(t, string(gres), "File="+devices+"\n")
		require.NoError(t, profile.Profile().CheckMake(runtimes.Making{Kind: "file", Path: "/etc/slurm/c1/gres.conf", Mode: 0o644,
			Data: gres}))
	}
	for _, bad := range []string{"/dev/../etc/x", "/etc/nvidia0", "/dev/nvidia[3-1]", "/dev/nvidia[0-999]", "/dev/a[0-1][0-1]", "/dev/",
		"/dev/a b", ""} {
		_, err := schema.GPU{Devices: bad}.DeviceFiles()
		require.Error(t, err, bad)
	}
}

// A job of one GPU gets whole cores, so the share of each GPU is one of whole cores.
func TestShareOfAGPUIsOfWholeCores(t *testing.T) {
	gpus := func(n int) []schema.GPU { return []schema.GPU{{Type: "a100", Count: n}} }
	for _, one := range []struct{ cpus, gpus, share int }{{32, 4, 8}, {32, 6, 4}, {31, 4, 6}, {16, 4, 4}, {16, 3, 5}, {4, 4, 1}} {
		host := schema.Shape{Sockets: 2, CoresPerSocket: 8, ThreadsPerCore: 2}
		require.Equal(t, one.share, cpusPerGPU(WithShape(plan.Member{CPUs: one.cpus, GPUs: gpus(one.gpus)}, host)),
			"%+v", one)
	}
	require.Equal(t, 5, cpusPerGPU(plan.Member{CPUs: 32, GPUs: gpus(6)}), "without a shape")
	require.Zero(t, cpusPerGPU(plan.Member{CPUs: 32}))
}

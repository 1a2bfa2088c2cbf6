package lab_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/examples/need"
	"berth/runtimes/host/hosttest"
	"berth/runtimes/host/lab"
	"berth/schema"
)

func config(t *testing.T) lab.Config {
	helper := filepath.Join(t.TempDir(), "berth-host")
	require.NoError(t, os.WriteFile(helper, []byte("#!/bin/sh\necho helper $(id -u)\n"), 0o755))
	return lab.Config{
		Dir: filepath.Join(t.TempDir(), "lab"), Helper: helper, Auto: true,
		Nodes: []lab.Node{
			lab.NodeOf("ctl", schema.NodeSpec{Address: "10.77.0.10"}),
			lab.NodeOf("gpu-1", schema.NodeSpec{Address: "10.77.0.11",
				Capacity: schema.Capacity{GPUs: []schema.GPU{{Type: "a100", Count: 2, Devices: "/dev/nvidia[0-1]"}}}}),
		},
	}
}

// machine describes mounts, files and accounts that a lab must not change. Mounts of other tests,
// in their temporary directories, are left out.
func machine(t *testing.T) map[string]string {
	t.Helper()
	read := func(path string) string {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(data)
	}
	entries, err := filepath.Glob("/etc/*")
	require.NoError(t, err)
	devices, err := filepath.Glob("/dev/nvidia*")
	require.NoError(t, err)
	var mounts []string
	for line := range strings.Lines(read("/proc/self/mounts")) {
		if at := strings.Fields(line)[1]; !strings.HasPrefix(at, os.TempDir()+"/") || strings.Contains(at, t.Name()) {
			mounts = append(mounts, line)
		}
	}
	return map[string]string{
		"mounts": strings.Join(mounts, ""), "passwd": read("/etc/passwd"), "group": read("/etc/group"), "hosts": read("/etc/hosts"),
		"etc": strings.Join(entries, "\n"), "devices": strings.Join(devices, "\n"),
	}
}

func links(t *testing.T, bridge string) []string {
	t.Helper()
	all, err := net.Interfaces()
	require.NoError(t, err)
	var out []string
	for _, i := range all {
		if strings.HasPrefix(i.Name, bridge) {
			out = append(out, i.Name)
		}
	}
	return out
}

func TestUpAndDownLeavesNothing(t *testing.T) {
	hosttest.NeedLab(t)
	before := machine(t)
	c := config(t)
	for range 2 { // the second time on the same directory
		l, err := lab.Up(t.Context(), c)
		require.NoError(t, err)
		t.Cleanup(func() { // after a failure
			if err := l.Down(context.Background()); err != nil {
				t.Error(err)
			}
		})

		ssh := func(key, login string, argv ...string) (string, error) {
			n, _ := l.Node("gpu-1")
			args := append([]string{"-F", "none", "-i", key, "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes",
				"-o", "UserKnownHostsFile=" + l.KnownHosts(), login + "@" + n.Address}, argv...)
			out, err := exec.CommandContext(t.Context(), "ssh", args...).CombinedOutput()
			return strings.TrimSpace(string(out)), err
		}
		// A person sees a separate host.
		out, err := ssh(l.LoginKeyFile(), "root", "hostname; ls /dev/nvidia*; getent hosts ctl; test -c /dev/nvidia1 && echo device")
		require.NoError(t, err, out)
		require.Contains(t, out, "gpu-1\n/dev/nvidia0\n/dev/nvidia1\n")
		require.Contains(t, out, "ctl\ndevice")
		// Berth's key always starts the helper, as root.
		out, err = ssh(l.KeyFile(), l.User(), "id")
		require.NoError(t, err, out)
		require.Equal(t, "helper 0", out)
		// Hosts reach each other and have separate processes and files.
		out, err = l.Run(t.Context(), "ctl", "bash", "-c",
			"exec 3<>/dev/tcp/gpu-1/22 && head -c4 <&3; echo; echo mine > /etc/mine; ls /proc | grep -c '^[0-9]'")
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(out, "SSH-"), out)
		for _, s := range l.Status() {
			require.True(t, s.Up && s.Answers, s.Name)
		}
		require.NotEmpty(t, links(t, l.Bridge))

		require.NoError(t, l.Kill("gpu-1"))
		require.False(t, l.Status()[1].Up)
		require.NoError(t, l.Boot(t.Context(), "gpu-1"))

		found, err := lab.Open(c.Dir)
		require.NoError(t, err)
		require.NoError(t, found.Down(t.Context()))
		require.NoError(t, l.Down(t.Context()), "a second time")
		require.Empty(t, links(t, l.Bridge))
		require.Empty(t, leftovers(t, l.Bridge))
		require.NoDirExists(t, c.Dir)
		require.Empty(t, hosttest.Processes(t, c.Dir))
		require.Equal(t, before, machine(t))
	}
}

func TestInterruptedUpLeavesNothing(t *testing.T) {
	hosttest.NeedLab(t)
	c := config(t)
	for _, after := range []time.Duration{5, 10, 20, 30, 40, 60, 80} {
		ctx, cancel := context.WithTimeout(t.Context(), after*time.Millisecond) // the moment of the interruption
		l, err := lab.Up(ctx, c)
		cancel()
		if err == nil { // a fast machine
			require.NoError(t, l.Down(t.Context()))
			continue
		}
		require.NoDirExists(t, c.Dir, err.Error())
		// A host that was about to enter its control groups ends by itself.
		await.True(t, "the end of its hosts", func() bool { return len(hosttest.Processes(t, c.Dir)) == 0 },
			func() any { return hosttest.Processes(t, c.Dir) })
	}
}

// The default directory is in /var, which hosts cover with their own files.
func TestLabDirectoryInsideACoveredDirectory(t *testing.T) {
	hosttest.NeedLab(t)
	dir, err := os.MkdirTemp("/var/tmp", "berth-lab-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	c := config(t)
	c.Dir = filepath.Join(dir, "lab")
	l, err := lab.Up(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Down(context.Background())) })
	_, err = l.Run(t.Context(), "gpu-1", "mountpoint", "-q", "/dev/pts")
	require.NoError(t, err, "terminals for logins")
}

func TestPossibleChangesNothing(t *testing.T) {
	hosttest.NeedLab(t)
	before := machine(t)
	require.NoError(t, lab.Possible(t.Context()))
	require.Equal(t, before, machine(t))
}

func TestDirectoryWithOtherFilesIsKept(t *testing.T) {
	hosttest.NeedLab(t)
	c := config(t)
	require.NoError(t, os.MkdirAll(c.Dir, 0o755))
	mine := filepath.Join(c.Dir, "thesis.tex")
	require.NoError(t, os.WriteFile(mine, []byte("x"), 0o644))
	_, err := lab.Up(t.Context(), c)
	require.ErrorContains(t, err, "not empty")
	require.FileExists(t, mine)
	// A foreign file beside a lab stays when the lab is removed.
	require.NoError(t, os.Remove(mine))
	l, err := lab.Up(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(mine, []byte("x"), 0o644))
	require.ErrorContains(t, l.Down(t.Context()), "contains other files")
	require.FileExists(t, mine)
	require.Empty(t, links(t, l.Bridge))
}

func TestInvalidConfigIsRefused(t *testing.T) {
	hosttest.NeedLab(t)
	for _, bad := range []struct {
		why    string
		change func(*lab.Config)
	}{
		{"address", func(c *lab.Config) { c.Nodes[0].Address = "lab.example" }},
		{"is listed twice", func(c *lab.Config) { c.Nodes[1].Address = c.Nodes[0].Address }},
		{"is not in", func(c *lab.Config) { c.Nodes[1].Address = "10.78.0.11" }},
		{"host name", func(c *lab.Config) { c.Nodes[0].Name = "../ctl" }},
		{"device", func(c *lab.Config) { c.Nodes[0].Devices = []string{"/dev/../etc/passwd"} }},
		{"this machine has", func(c *lab.Config) { c.Nodes[0].CPUs = 10_000 }},
		{"this machine has", func(c *lab.Config) { c.Nodes[0].MemoryMiB = 1 << 40 }},
		{"the helper", func(c *lab.Config) { c.Helper += ".missing" }},
		{"directory", func(c *lab.Config) { c.Dir = "relative" }},
	} {
		c := config(t)
		c.Nodes = slices.Clone(c.Nodes)
		bad.change(&c)
		_, err := lab.Up(t.Context(), c)
		require.ErrorContains(t, err, bad.why)
	}
}

// leftovers are the control groups of a lab.
func leftovers(t *testing.T, bridge string) []string {
	t.Helper()
	out, err := filepath.Glob("/sys/fs/cgroup/*/berth-lab-" + bridge)
	require.NoError(t, err)
	return out
}

// A host has its own root filesystem: a file written anywhere on it stays there.
func TestHostHasItsOwnRoot(t *testing.T) {
	hosttest.NeedLab(t)
	before := machine(t)
	c := config(t)
	l, err := lab.Up(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Down(context.Background())) })
	in := func(node, script string) string {
		t.Helper()
		out, err := l.Run(t.Context(), node, "bash", "-ec", script)
		require.NoError(t, err, out)
		return strings.TrimSpace(out)
	}
	const files = "/usr/berth-lab-test /usr/lib/berth-lab-test /opt/berth-lab-test /berth-lab-test /var/lib/berth-lab-test " +
		"/tmp/berth-lab-test"
	in("gpu-1", "touch "+files+"; rm /usr/bin/nsenter /etc/hostname; useradd lena; mkdir /sys/fs/cgroup/memory/job 2>/dev/null || mkdir "+
		"/sys/fs/cgroup/job")
	require.FileExists(t, "/usr/bin/nsenter", "the machine keeps what a host deletes")
	for _, path := range strings.Fields(files) {
		require.NoFileExists(t, path)
	}
	require.Empty(t, in("ctl", "ls "+files+" 2>/dev/null || true"), "another host does not see it")
	require.NotContains(t, in("ctl", "cat /etc/passwd"), "lena")
	require.Contains(t, in("gpu-1", "cat /etc/passwd"), "lena")
	require.Equal(t, "/", in("gpu-1", "grep -v ' /proc\\| /sys\\| /dev\\| /run\\| /tmp' /proc/mounts | cut -d' ' -f2"),
		"no mount of the machine")

	// Processes and control groups of the host itself.
	require.Equal(t, "1", in("gpu-1", "cat /proc/1/status | awk '/^NSpid/ {print $NF}'"))
	require.NotContains(t, in("gpu-1", "cut -d: -f3 /proc/self/cgroup /proc/1/cgroup"), "/.", "inside the host's group")
	require.NotEmpty(t, leftovers(t, l.Bridge))
	const conf = "/etc/slurm/one/slurm.conf"
	require.Equal(t, conf, in("ctl", "mkdir -p /etc/slurm/one && touch "+conf+" && bash -ic 'echo $SLURM_CONF' 2>/dev/null"),
		"for sinfo of who logs in")

	require.NoError(t, l.Kill("gpu-1"))
	require.NoError(t, l.Boot(t.Context(), "gpu-1"))
	in("gpu-1", "test -x /usr/bin/nsenter && ! test -e /usr/berth-lab-test && ! grep lena /etc/passwd && ! find /sys/fs/cgroup -name job "+
		"| grep .")
	require.NoError(t, l.Down(t.Context()))
	require.Empty(t, leftovers(t, l.Bridge))
	require.Equal(t, before, machine(t))
}

// In a container the machine's root is an overlay itself, as that of a lab host is.
func TestPossibleOnAnOverlay(t *testing.T) {
	hosttest.NeedLab(t)
	c := config(t)
	var err error
	c.Helper, err = os.Executable()
	require.NoError(t, err)
	l, err := lab.Up(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Down(context.Background())) })
	out, err := l.Run(t.Context(), "ctl", "/usr/local/sbin/berth-host", "-test.v", "-test.run=^TestPossibleChangesNothing$")
	require.NoError(t, err)
	require.Contains(t, out, "--- PASS: TestPossibleChangesNothing")
}

// A job's device control group distinguishes GPUs by their numbers, and the job opens
// its own ones.
func TestGPUsHaveTheirOwnNumbers(t *testing.T) {
	hosttest.NeedLab(t)
	c := config(t)
	c.Nodes[1] = lab.NodeOf("gpu-1", schema.NodeSpec{Address: "10.77.0.11",
		Capacity: schema.Capacity{GPUs: []schema.GPU{{Type: "a100", Count: 6, Devices: "/dev/nvidia[0-5]"}}}})
	l, err := lab.Up(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Down(context.Background())) })
	out, err := l.Run(t.Context(), "gpu-1", "bash", "-ec",
		"for d in /dev/nvidia*; do setpriv --reuid 65534 bash -c \": <>$d\"; stat -c %Hr:%Lr $d; done")
	require.NoError(t, err, out)
	numbers := strings.Fields(out)
	require.Len(t, numbers, 6)
	slices.Sort(numbers)
	require.Len(t, slices.Compact(numbers), 6, out)
	common, err := l.Run(t.Context(), "gpu-1", "bash", "-ec",
		"stat -c %Hr:%Lr /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/ptmx")
	require.NoError(t, err)
	for _, n := range strings.Fields(common) {
		require.NotContains(t, numbers, n, "a job without GPUs needs that device")
	}

	t.Run("confined", func(t *testing.T) {
		if _, err := os.Stat("/sys/fs/cgroup/devices"); err != nil {
			t.Skip(need.NotRun + "this machine has no control groups of version 1; machines with version 2 are emulated")
		}
		out, err := l.Run(t.Context(), "gpu-1", "bash", "-c", `cd /sys/fs/cgroup
			mkdir {devices,cpuset,memory}/job; cp cpuset/cpuset.mems cpuset/job; echo 0 >cpuset/job/cpuset.cpus; echo 60M >memory/job/memory.limit_in_bytes
			echo "c $(stat -c %Hr:%Lr /dev/nvidia1) rwm" >devices/job/devices.deny
			for group in devices cpuset memory; do echo 0 >$group/job/cgroup.procs; done
			(: <>/dev/nvidia0) && echo own; (: <>/dev/nvidia1) 2>/dev/null || echo denied; nproc
			(head -c 200M /dev/zero | tail) >/dev/null 2>&1; echo $?`)
		require.NoError(t, err, out)
		require.Equal(t, "own denied 1 137", strings.Join(strings.Fields(out), " "))
	})

	c.Nodes[1].Devices = nil
	for i := range 40 {
		c.Nodes[1].Devices = append(c.Nodes[1].Devices, "/dev/nvidia"+strconv.Itoa(i))
	}
	c.Dir += "-2"
	_, err = lab.Up(t.Context(), c)
	require.ErrorContains(t, err, "declare fewer GPUs on gpu-1")
	require.NoDirExists(t, c.Dir)
}

//go:build machines

package lab_test

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/need"
	"berth/runtimes/host/hosttest"
	"berth/runtimes/host/lab"
	"berth/runtimes/slurm/slurmtest"
)

// A machine has systemd, control groups of version 2 and its GPUs, and keeps its disk when
// it loses power. Down removes it, also after a kill -9 of Up.
func TestMachine(t *testing.T) {
	need.Root(t)
	c := config(t)
	c.Machines, c.Packages, c.Nodes = true, slurmtest.Packages(), c.Nodes[1:]
	c.Image = cmp.Or(hosttest.Image(), lab.Suites()[0])
	c.Nodes[0].CPUs, c.Nodes[0].MemoryMiB = 2, 900
	if dir := os.Getenv(killedDir); dir != "" {
		c.Dir = dir
		_, err := lab.Up(t.Context(), c)
		require.NoError(t, err)
		return
	}
	_, err := lab.BuildMachineImage(t.Context(), lab.DefaultImages, c.Image, c.Packages, nil)
	require.NoError(t, err)
	before := machine(t)
	nothing := func(l *lab.Lab) {
		t.Helper()
		require.NoError(t, l.Down(t.Context()))
		require.Empty(t, links(t, l.Bridge))
		require.Empty(t, leftovers(t, l.Bridge))
		require.Empty(t, hosttest.Processes(t, c.Dir))
		require.NoDirExists(t, c.Dir)
		require.Equal(t, before, machine(t))
	}
	for _, after := range []time.Duration{time.Second, 5 * time.Second} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMachine$")
		cmd.Env = append(os.Environ(), killedDir+"="+c.Dir)
		require.NoError(t, cmd.Start())
		time.Sleep(after) // the moment of the kill
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // killed
		l, err := lab.Open(c.Dir)
		require.NoError(t, err)
		nothing(l)
	}

	start := time.Now()
	l, err := lab.Up(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Down(context.Background())) })
	t.Logf("up after %.0f s", time.Since(start).Seconds())
	in := func(script string) string {
		t.Helper()
		out, err := l.Run(t.Context(), "gpu-1", "bash", "-ec", script)
		require.NoError(t, err, out)
		return strings.TrimSpace(out)
	}
	require.Equal(t, "systemd gpu-1 cgroup2fs", in("echo $(cat /proc/1/comm) $(hostname) $(stat --file-system --format=%T /sys/fs/cgroup)"))
	devices := in("for d in /dev/nvidia*; do setpriv --reuid 65534 bash -c \": <>$d\"; stat -c %n=%Hr:%Lr $d; done")
	require.Equal(t, "/dev/nvidia0=10:229\n/dev/nvidia1=10:237", devices)
	require.Equal(t, "2", in("nproc"))
	require.Equal(t, "it's quoted", in("systemctl --failed --no-legend; echo it\\'s quoted"), "no unit has failed")
	n, _ := l.Node("gpu-1")
	out, err := exec.Command("ssh", "-F", "none", "-o", "BatchMode=yes", "-i", l.KeyFile(), "-o", "UserKnownHostsFile="+l.KnownHosts(),
		l.User()+"@"+n.Address, "id").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "helper 0", "Berth's key starts the helper, as root")

	in("echo mine >/etc/mine; sync; echo lost >/dev/shm/lost")
	require.NoError(t, l.Kill("gpu-1"))
	require.False(t, l.Status()[0].Up)
	require.ErrorContains(t, l.Reboot(t.Context(), "gpu-1"), "gpu-1")
	start = time.Now()
	require.NoError(t, l.Boot(t.Context(), "gpu-1"))
	t.Logf("up after power loss in %.0f s", time.Since(start).Seconds())
	require.Equal(t, "mine", in("cat /etc/mine; ! test -e /dev/shm/lost"))
	require.Equal(t, devices, in("for d in /dev/nvidia*; do stat -c %n=%Hr:%Lr $d; done"))
	require.True(t, l.Status()[0].Answers)
	require.NoError(t, l.PowerOff(t.Context(), "gpu-1"))
	require.False(t, l.Status()[0].Up)
	nothing(l)
}

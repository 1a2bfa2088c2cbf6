package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// namespaces returns the command that starts a program in the namespaces of a host.
func namespaces() []string {
	return []string{"unshare", "--mount", "--uts", "--net", "--pid", "--ipc", "--cgroup", "--fork", "--kill-child"}
}

// prerequisites checks for root and the programs of a lab.
func prerequisites() error {
	if os.Geteuid() != 0 {
		return errors.New("only root can make network namespaces; run it as root")
	}
	for _, p := range []string{"unshare", "nsenter", "ip", "mount", "pivot_root", "bash", "/usr/sbin/sshd", "sudo"} {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("%s is missing: install openssh-server, iproute2, mount and sudo", filepath.Base(p))
		}
	}
	return nil
}

// MachineSize returns the number of CPUs and the memory in MiB of this machine, which
// every lab host has.
func MachineSize() (cpus, mebibytes int, err error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0, err
	}
	var kib int
	if _, err := fmt.Sscanf(string(data), "MemTotal: %d kB", &kib); err != nil {
		return 0, 0, fmt.Errorf("/proc/meminfo: %w", err)
	}
	return runtime.NumCPU(), kib / 1024, nil
}

// probe tries each kernel feature of a host in new namespaces.
const probe = `set -e
mount --make-rprivate /
mount -t tmpfs probe /tmp
mkdir /tmp/changed /tmp/work /tmp/root
mount -t overlay -o lowerdir=/,upperdir=/tmp/changed,workdir=/tmp/work probe /tmp/root || {
	echo "/ cannot be below an overlay: run it on a machine whose root is on a disk, or in one container at most"
	exit 1
}
mkdir /tmp/root/machine
cd /tmp/root
pivot_root . machine
cd /
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 probe /sys/fs/cgroup
mount -t "$1" -o "$2" probe /sys/fs/cgroup
mount -t tmpfs -o mode=755 probe /dev
mknod /dev/null c 1 3
echo >/dev/null
ip link add bridge0 type bridge
ip link add cable0 type veth peer name cable1
`

// fit refuses hosts that declare more than this machine has: a job that is confined to
// a CPU that is not there fails.
func fit(nodes []Node) error {
	cpus, mebibytes, err := MachineSize()
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if n.CPUs > cpus || n.MemoryMiB > mebibytes {
			return fmt.Errorf("host %s: declares %d CPUs and %d MiB of memory, and this machine has %d and %d; declare what it has at "+
				"most, in spec.capacity",
				n.Name, n.CPUs, n.MemoryMiB, cpus, mebibytes)
		}
	}
	return nil
}

// Possible returns an error if this machine cannot run a lab of the hosts: in a
// container, for example, root often cannot make namespaces, mounts, control groups or
// devices. It tries and leaves nothing behind.
func Possible(ctx context.Context, nodes ...Node) (err error) {
	if err := errors.Join(prerequisites(), fit(nodes)); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("root cannot make hosts on this machine: %w", err)
		}
	}()
	mounts, err := hierarchies()
	if err != nil {
		return err
	}
	l := &Lab{Bridge: fmt.Sprintf("probe-%d", os.Getpid())}
	defer func() { err = errors.Join(err, l.controlGroups().remove(context.WithoutCancel(ctx), "")) }()
	if err := l.controlGroups().make("host"); err != nil {
		return err
	}
	args, err := l.controlGroups().start("host", append(namespaces(), "bash", "-c", probe, "probe", mounts[0].kind, mounts[0].options)...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if text := strings.TrimSpace(string(out)); err != nil && text != "" {
		return errors.New(strings.ReplaceAll(text, "\n", "; "))
	}
	return err
}

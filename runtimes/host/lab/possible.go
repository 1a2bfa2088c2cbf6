package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// namespaces are the arguments of unshare for the namespaces of a host.
func namespaces() []string {
	return []string{"--mount", "--uts", "--net", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"}
}

// prerequisites checks for root and the programs of a lab.
func prerequisites() error {
	if os.Geteuid() != 0 {
		return errors.New("only root can make network namespaces; run it as root")
	}
	for _, p := range []string{"unshare", "nsenter", "ip", "mount", "bash", "/usr/sbin/sshd", "sudo"} {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("%s is missing: install openssh-server, iproute2, mount and sudo", filepath.Base(p))
		}
	}
	return nil
}

// probe tries each kernel feature of a host in new namespaces.
const probe = `set -e
mount --make-rprivate /
mount -t tmpfs probe /tmp
mkdir /tmp/changed /tmp/work
mount -t overlay -o lowerdir=/etc,upperdir=/tmp/changed,workdir=/tmp/work probe /etc
mknod /tmp/null c 1 3
echo >/tmp/null
ip link add bridge0 type bridge
ip link add cable0 type veth peer name cable1
`

// Possible returns an error if this machine cannot run a lab: in a container, for
// example, root often cannot make namespaces, mounts or devices. It tries and leaves
// nothing behind.
func Possible(ctx context.Context) error {
	if err := prerequisites(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "unshare", append(namespaces(), "bash", "-c", probe)...).CombinedOutput()
	if err == nil {
		return nil
	}
	if text := strings.TrimSpace(string(out)); text != "" {
		err = errors.New(strings.ReplaceAll(text, "\n", "; "))
	}
	return fmt.Errorf("root cannot make hosts on this machine: %w", err)
}

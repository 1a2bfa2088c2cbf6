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

// namespaces are the arguments that have unshare make those of one host.
func namespaces() []string {
	return []string{"--mount", "--uts", "--net", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"}
}

// prerequisites says what of this machine a lab lacks at first sight.
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

// probe does, in namespaces of its own, one of each thing that hosts need.
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

// Possible says why there can be no lab on this machine, or nil: root in a
// container, for one, often may not make namespaces, mounts or devices. It
// tries, and leaves nothing.
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
	if said := strings.TrimSpace(string(out)); said != "" {
		err = errors.New(strings.ReplaceAll(said, "\n", "; "))
	}
	return fmt.Errorf("root cannot make hosts on this machine: %w", err)
}

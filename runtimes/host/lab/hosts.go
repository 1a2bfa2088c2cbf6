package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// HostStatus is the state of a host.
type HostStatus struct {
	Node
	Up        bool // its first process runs
	Answers   bool // its sshd answers
	Processes int  // of this machine
}

// Status returns the state of every host.
func (l *Lab) Status() []HostStatus {
	var out []HostStatus
	for _, n := range l.Nodes {
		s := HostStatus{Node: n}
		if l.Machines {
			s.Processes = len((machine{lab: l, Node: n}).emulators())
			s.Up = s.Processes > 0
			s.Answers = s.Up && answers(n.Address, 5*time.Second)
		} else if pid := l.init(n.Name); pid > 0 {
			s.Up = true
			s.Answers = answers(n.Address, time.Second)
			s.Processes = len(processes(pid))
		}
		out = append(out, s)
	}
	return out
}

// Command returns a program on a host, run as root, for tests and people. Berth uses
// SSH instead.
func (l *Lab) Command(ctx context.Context, node string, argv ...string) (*exec.Cmd, error) {
	if l.Machines {
		return l.login(ctx, node, argv)
	}
	pid := l.init(node)
	if pid == 0 {
		return nil, fmt.Errorf("host %s is not up", node)
	}
	args, err := l.controlGroups().start(node, append([]string{"nsenter", "--target", strconv.Itoa(pid), "--all", "--"}, argv...)...)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
	return cmd, nil
}

// Run runs a program on a host and returns its output.
func (l *Lab) Run(ctx context.Context, node string, argv ...string) (string, error) {
	cmd, err := l.Command(ctx, node, argv...)
	if err != nil {
		return "", err
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s: %s: %w: %s", node, strings.Join(argv, " "), err, bytes.TrimSpace(out))
	}
	return string(out), nil
}

// PackageVersion returns the version of a Debian package on a host, without the
// revision of Debian: 24.11.5 of 24.11.5-4.
func (l *Lab) PackageVersion(ctx context.Context, node, name string) (string, error) {
	out, err := l.Run(ctx, node, "dpkg-query", "-W", "-f", "${Version}", name)
	if err != nil {
		return "", err
	}
	_, upstream, ok := strings.Cut(out, ":") // an epoch
	if !ok {
		upstream = out
	}
	if i := strings.LastIndex(upstream, "-"); i >= 0 {
		upstream = upstream[:i]
	}
	return upstream, nil
}

// Kill ends a host as a power failure does. Boot starts it again.
func (l *Lab) Kill(node string) error {
	if err := l.kill(node); err != nil {
		return err
	}
	return l.controlGroups().remove(context.Background(), node)
}

// Boot starts a host that was killed or powered off. A machine has its disk and starts
// its services; other hosts are as if reinstalled: with an empty disk, and only sshd runs.
func (l *Lab) Boot(ctx context.Context, node string) error {
	i := slices.IndexFunc(l.Nodes, func(n Node) bool { return n.Name == node })
	if i < 0 {
		return fmt.Errorf("unknown host %s", node)
	}
	return l.boot(ctx, i, l.Nodes[i])
}

// Down removes the lab: processes, namespaces, mounts, network and directory. It can be
// repeated, and also removes an incomplete lab.
func (l *Lab) Down(ctx context.Context) error {
	if err := l.kill(""); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	if err := l.controlGroups().remove(ctx, ""); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	if err := l.bridge().remove(ctx); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	// Only the files of Up: the directory may contain others.
	for _, name := range ownFiles() {
		if err := os.RemoveAll(filepath.Join(l.Dir, name)); err != nil {
			return fmt.Errorf("lab: %w", err)
		}
	}
	if err := os.Remove(l.Dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("lab: directory kept, as it contains other files: %w", err)
	}
	return nil
}

// ownFiles returns the names of the lab's files, lab.json last: until it is removed,
// Open finds the lab.
func ownFiles() []string {
	return []string{"hosts", "hosts.txt", "fstab", "known_hosts", "id_ed25519", "login_ed25519", "login_keys", "authorized_keys", "init.sh",
		"berth-host", "berth-host.sha256", "lab.json"}
}

// parents returns the unshare processes whose children are the first processes of this
// lab's hosts; node "": of all hosts. It finds them by their command lines, so no
// list can be out of date.
func (l *Lab) parents(node string) []int {
	return slices.DeleteFunc(pids(), func(pid int) bool { return !l.isParent(pid, node) })
}

func (l *Lab) isParent(pid int, node string) bool {
	args := cmdline(pid)
	i := slices.Index(args, filepath.Join(l.Dir, "init.sh"))
	// sh becomes unshare once it is in the host's control groups.
	return i > 0 && slices.Contains([]string{"unshare", "sh"}, filepath.Base(args[0])) &&
		i+2 < len(args) && (node == "" || args[i+2] == node)
}

// init returns the process id on this machine of a host's first process; 0: none. Its parent is
// one of the few processes in the host's control group, mostly the first one.
func (l *Lab) init(node string) int {
	groups, err := l.controlGroups().of(node)
	if err != nil || len(groups) == 0 {
		return 0
	}
	for _, pid := range direct(groups[0]) {
		if l.isParent(pid, node) {
			return firstOf(pid)
		}
	}
	return 0
}

// firstOf returns the first process of a host by its parent; 0: none.
func firstOf(parent int) int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
	if err != nil {
		return 0 // it has ended
	}
	for _, field := range strings.Fields(string(data)) {
		pid, _ := strconv.Atoi(field)
		// Before it has executed bash it may be outside its namespaces, with the
		// command line of a parent.
		if args := cmdline(pid); len(args) > 0 && filepath.Base(args[0]) == "bash" && first(pid) {
			return pid
		}
	}
	return 0
}

// first reports whether a process is the first one of its PID namespace.
func first(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(data), "\nNSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	numbers := strings.Fields(line)
	return len(numbers) > 0 && numbers[len(numbers)-1] == "1"
}

// processes returns the processes in the PID namespace of pid.
func processes(pid int) []int {
	mine, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return nil
	}
	var out []int
	for _, p := range pids() {
		if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", p)); err == nil && ns == mine {
			out = append(out, p)
		}
	}
	return out
}

// kill ends a host; node "": all hosts. The parents go first, so that no process comes
// from outside. Then nothing but the control groups of the host says which processes
// are left: a first process that has just been made has no sign of its parent's end yet.
// The kernel ends a PID namespace with its first process and unmounts after the last one.
func (l *Lab) kill(node string) error {
	parents := l.parents(node)
	if err := killAll(parents); err != nil {
		return err
	}
	groups, err := l.controlGroups().of(node)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		left := slices.DeleteFunc(slices.Clone(parents), func(pid int) bool { return !alive(pid) })
		for _, group := range groups {
			left = append(left, members(group)...)
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("host processes %v do not end", left)
		}
		if err := killAll(left); err != nil {
			return err
		}
	}
}

// killAll sends SIGKILL to processes that may have ended.
func killAll(pids []int) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("end host process %d: %w", pid, err)
		}
	}
	return nil
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, ok := strings.Cut(string(data), ") ")
	return ok && !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

func pids() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

func cmdline(pid int) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
}

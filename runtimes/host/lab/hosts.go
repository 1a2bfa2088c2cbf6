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

// HostStatus is how one host is.
type HostStatus struct {
	Node
	Up        bool // its first process runs
	Answers   bool // its sshd does
	Processes int
}

// Status looks at every host.
func (l *Lab) Status() []HostStatus {
	var out []HostStatus
	for _, n := range l.Nodes {
		s := HostStatus{Node: n}
		if pid := l.init(n.Name); pid > 0 {
			s.Up = true
			s.Answers = answers(n.Address)
			s.Processes = len(l.processes(pid))
		}
		out = append(out, s)
	}
	return out
}

// Command is a program run inside a host, as its root. For tests and people;
// Berth itself comes by SSH.
func (l *Lab) Command(ctx context.Context, node string, argv ...string) (*exec.Cmd, error) {
	pid := l.init(node)
	if pid == 0 {
		return nil, fmt.Errorf("host %s is not up", node)
	}
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--target", strconv.Itoa(pid), "--all", "--"}, argv...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
	return cmd, nil
}

// Run runs a program inside a host and returns what it printed.
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

// Kill takes a host's power away. Boot gives it back.
func (l *Lab) Kill(node string) error {
	return l.kill(l.parents(node))
}

// Boot starts a host that was killed, with its disk empty again and nothing
// running but sshd: what a host is after it was set up anew.
func (l *Lab) Boot(ctx context.Context, node string) error {
	i := slices.IndexFunc(l.Nodes, func(n Node) bool { return n.Name == node })
	if i < 0 {
		return fmt.Errorf("no host %s", node)
	}
	return l.boot(ctx, i, l.Nodes[i])
}

// Down takes the whole lab away: processes, namespaces and mounts, network,
// directory. It works on whatever an interrupted Up left, and when called again.
func (l *Lab) Down(ctx context.Context) error {
	if err := l.kill(l.parents("")); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	if err := l.unlink(ctx); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	// Only what Up makes: the directory may be somebody's.
	for _, name := range ownFiles() {
		if err := os.RemoveAll(filepath.Join(l.Dir, name)); err != nil {
			return fmt.Errorf("lab: %w", err)
		}
	}
	if err := os.Remove(l.Dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("lab: its directory stays, as it holds something else: %w", err)
	}
	return nil
}

// ownFiles are the names in a lab's directory that are the lab's, lab.json
// last: as long as it is there, Open finds what is left to take away.
func ownFiles() []string {
	return []string{"hosts", "hosts.txt", "known_hosts", "id_ed25519", "login_ed25519", "login_keys", "authorized_keys", "init.sh", "berth-host", "lab.json"}
}

// parents are the processes that hold hosts of this lab: the unshare that each
// host's first process is a child of. node "" means all. They are told by
// their command line, so that no list can be out of date.
func (l *Lab) parents(node string) []int {
	script := filepath.Join(l.Dir, "init.sh")
	var out []int
	for _, pid := range pids() {
		args := cmdline(pid)
		i := slices.Index(args, script)
		if i > 0 && filepath.Base(args[0]) == "unshare" && i+2 < len(args) && (node == "" || args[i+2] == node) {
			out = append(out, pid)
		}
	}
	return out
}

// init is the first process of a host, as the machine numbers it; 0: none.
func (l *Lab) init(node string) int {
	for _, parent := range l.parents(node) {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
		if err != nil {
			continue // it went meanwhile
		}
		if fields := strings.Fields(string(data)); len(fields) > 0 {
			pid, _ := strconv.Atoi(fields[0])
			// Before it has become bash it may not be in its namespaces yet, and
			// then counts as a parent too: a child of its own is no first process.
			if args := cmdline(pid); len(args) > 0 && filepath.Base(args[0]) == "bash" && first(pid) {
				return pid
			}
		}
	}
	return 0
}

// first says whether a process is the first one of its PID namespace.
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

// processes are those in the PID namespace of pid.
func (l *Lab) processes(pid int) []int {
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

// kill ends hosts: the kernel ends everything in a PID namespace with its
// first process, and unmounts when the last process has gone.
func (l *Lab) kill(parents []int) error {
	var all []int
	for _, parent := range parents {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
		if err == nil {
			for _, child := range strings.Fields(string(data)) {
				if pid, err := strconv.Atoi(child); err == nil {
					all = append(all, l.processes(pid)...)
				}
			}
		}
		all = append(all, parent)
		if err := syscall.Kill(parent, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("end host process %d: %w", parent, err)
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		left := slices.DeleteFunc(slices.Clone(all), func(pid int) bool { return !alive(pid) })
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("host processes %v do not end", left)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// alive: there, and more than a zombie somebody has yet to bury.
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

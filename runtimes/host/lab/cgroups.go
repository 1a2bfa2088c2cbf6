package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// hierarchy is a control group hierarchy that the machine has mounted: one for each
// controller of version 1, and one of version 2.
type hierarchy struct {
	dir     string // on the machine, and on each host
	kind    string // cgroup: version 1; cgroup2
	options string // of mount
}

// hierarchies returns the machine's hierarchies below /sys/fs/cgroup. On a machine with
// version 2 alone, a host has its own group without controllers below it.
func hierarchies() ([]hierarchy, error) {
	lists, err := os.ReadFile("/proc/self/cgroup") // cgroups(7): hierarchy-ID:controller-list:path
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var out []hierarchy
	for line := range strings.Lines(string(lists)) {
		_, rest, _ := strings.Cut(line, ":")
		list, _, _ := strings.Cut(rest, ":")
		if list == "cpu" {
			// All hosts together would get the processor time of one process that is
			// in the root of this hierarchy: 50 hosts started in 16 s beside other work
			// instead of 6 s. Processes share the processors as those of the machine do.
			continue
		}
		h := hierarchy{kind: "cgroup2", options: "rw"}
		var want []string
		if list != "" {
			h.kind, h.options, want = "cgroup", list, strings.Split(list, ",")
			if strings.HasPrefix(list, "name=") {
				h.options = "none," + list // a hierarchy without a controller
			}
		}
		for mount := range strings.Lines(string(mounts)) {
			f := strings.Fields(mount)
			if len(f) < 4 || f[2] != h.kind || !strings.HasPrefix(f[1], "/sys/fs/cgroup") {
				continue
			}
			have := strings.Split(f[3], ",")
			if !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(have, w) }) {
				h.dir = f[1]
				out = append(out, h)
				break
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no control groups are mounted at /sys/fs/cgroup: mount them as cgroups(7) says")
	}
	return out, nil
}

// controlGroups are the control groups of a lab's hosts, named after its bridge.
type controlGroups struct{ lab string }

func (l *Lab) controlGroups() controlGroups { return controlGroups{l.Bridge} }

// of returns the directories of the control groups of a host; node "": of the lab.
func (g controlGroups) of(node string) ([]string, error) {
	all, err := hierarchies()
	var out []string
	for _, h := range all {
		out = append(out, filepath.Join(h.dir, "berth-lab-"+g.lab, node))
	}
	return out, err
}

// make makes the control groups of a host.
func (g controlGroups) make(node string) error {
	groups, err := g.of(node)
	if err != nil {
		return err
	}
	for _, group := range groups {
		for _, dir := range []string{filepath.Dir(group), group} {
			if err := makeGroup(dir); err != nil {
				return fmt.Errorf("%w; in a container, run it with writable control groups", err)
			}
		}
	}
	return nil
}

// makeGroup makes a control group. A new one of cpuset is empty and admits no process,
// so it gets the processors and memory nodes of its parent (cpuset(7)).
func makeGroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		data, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if errors.Is(err, os.ErrNotExist) {
			continue // another controller, or the root of version 2
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// remove removes the control groups of a host, with those that its programs made;
// node "": of the lab. Their processes have ended.
func (g controlGroups) remove(ctx context.Context, node string) error {
	groups, err := g.of(node)
	if err != nil {
		return err
	}
	for _, group := range groups {
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			err := removeGroup(group)
			if err == nil {
				break
			}
			// A group is busy until the kernel has released its last process, or when a
			// process that just executed sh, and so had no command line yet, entered it.
			// It ends here, or by itself, as the groups that it is to enter are gone.
			if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) || ctx.Err() != nil {
				return err
			}
			if err := killAll(members(group)); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeGroup removes a control group with the groups in it. Its files go with it.
func removeGroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroup(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("remove control group %s: %w", dir, err)
	}
	return nil
}

// members returns the processes in a control group and in the groups below it.
func members(dir string) []int {
	out := direct(dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return out
	}
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, members(filepath.Join(dir, e.Name()))...)
		}
	}
	return out
}

// direct lists the processes in a control group, without those in groups below it.
func direct(dir string) []int {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil // it was removed
	}
	var out []int
	for _, field := range strings.Fields(string(data)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 { // 0: outside this PID namespace
			out = append(out, pid)
		}
	}
	return out
}

// enter moves the process to the groups before --, and becomes the program after it.
const enter = `while [ "$1" != -- ]; do echo 0 >"$1/cgroup.procs"; shift; done; shift; exec "$@"`

// start returns the arguments that start a program in the control groups of a host.
func (g controlGroups) start(node string, argv ...string) ([]string, error) {
	groups, err := g.of(node)
	return slices.Concat([]string{"sh", "-ec", enter, "sh"}, groups, []string{"--"}, argv), err
}

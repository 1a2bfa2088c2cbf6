package slurm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

// hardware checks that the hosts of workers have what their nodes declare.
type hardware struct{ *control }

// checkConfinement returns an error if the host of a member cannot confine jobs and the
// unit has not accepted that. Slurm needs the controllers below of control groups v2, or
// those hierarchies of v1 (cgroup.conf(5)).
func (c hardware) checkConfinement(ctx context.Context, u *plan.Unit, m plan.Member) error {
	set, err := cluster.Parse(u.Effective.Config)
	if err != nil || set.Confinement == cluster.ConfinementNone {
		return err
	}
	const root = "/sys/fs/cgroup/"
	v2 := []string{root + "cgroup.controllers", root + "cpuset.cpus.effective", root + "memory.stat"}
	v1 := []string{root + "cpuset/tasks", root + "memory/tasks", root + "devices/tasks", root + "freezer/tasks"}
	res, err := c.worker(m).do(ctx, statOp(v2...), statOp(v1...))
	if err != nil {
		return err
	}
	lacks := func(stats []runtimes.FileStat) []string {
		var out []string
		for _, st := range stats {
			if !st.Exists {
				out = append(out, st.Path)
			}
		}
		return out
	}
	if len(lacks(res[0].Stats)) == 0 || len(lacks(res[1].Stats)) == 0 {
		return nil
	}
	return fmt.Errorf("host %s cannot confine jobs: it lacks %s of control groups v2 and %s of v1; enable the controllers cpuset and "+
		"memory, or accept unconfined jobs with manifest.parameters.confinement: none in the version",
		m.Node, strings.Join(lacks(res[0].Stats), ", "), strings.Join(lacks(res[1].Stats), ", "))
}

// check returns the resources of the host of a member of u, and an error if the member needs more.
func (c hardware) check(ctx context.Context, u *plan.Unit, m plan.Member) (cli.Resources, error) {
	if err := c.checkDevices(ctx, m); err != nil {
		return cli.Resources{}, err
	}
	has, err := c.find(ctx, m)
	if err != nil {
		return has, err
	}
	if err := checkCapacity(m, has); err != nil {
		return has, err
	}
	if err := cluster.CheckShape(m, has); err != nil {
		return has, err
	}
	if err := c.checkPrograms(ctx, u, m); err != nil {
		return has, err
	}
	return has, c.checkConfinement(ctx, u, m)
}

// find returns the CPUs and the memory that slurmd finds on the host of a member.
func (c hardware) find(ctx context.Context, m plan.Member) (cli.Resources, error) {
	q := cli.Hardware()
	res, err := c.worker(m).do(ctx,
		runtimes.Op{Run: &runtimes.Run{Program: q.Program, Args: q.Args, TimeoutMS: int(c.env.timeouts.Call.Milliseconds()),
			AllowExit: true}})
	if err != nil {
		return cli.Resources{}, err
	}
	return answer(c.worker(m), q, res[0])
}

// checkCapacity compares the CPUs and memory that a member's node declares with those of its
// host. Slurm drains a node with less memory or CPUs than its line.
func checkCapacity(m plan.Member, has cli.Resources) error {
	if has.CPUs < m.CPUs || has.Memory < m.MemoryMiB {
		return fmt.Errorf("host %s has %d CPUs and %d MiB, but its node declares %d CPUs and %d MiB; correct capacity in the node's "+
			"document", m.Node, has.CPUs, has.Memory, m.CPUs, m.MemoryMiB)
	}
	return nil
}

// checkDevices returns an error if a device file of a member is missing. slurmd exits if a line
// of gres.conf names a missing file.
func (c hardware) checkDevices(ctx context.Context, m plan.Member) error {
	var paths []string
	for _, g := range m.GPUs {
		fs, err := g.DeviceFiles()
		if err != nil {
			return err
		}
		if len(fs) != g.Count {
			return fmt.Errorf("node %s: %s names %d files for %d GPUs", m.Node, g.Devices, len(fs), g.Count)
		}
		paths = append(paths, fs...)
	}
	if len(paths) == 0 {
		return nil
	}
	res, err := c.worker(m).do(ctx, statOp(paths...))
	if err != nil {
		return err
	}
	for _, st := range res[0].Stats {
		if st.Type != "char" {
			return fmt.Errorf("host %s: %s is not a device file: the node declares GPUs that it does not have", m.Node, st.Path)
		}
	}
	return nil
}

// programPaths returns the path of the directory of programs, followed by their paths; nil without programs.
func programPaths(programs []cluster.Program) []string {
	var paths []string
	for _, p := range programs {
		paths = append(paths, p.Path())
	}
	if len(paths) > 0 {
		paths = append([]string{profile.ProgramDir}, slices.Compact(paths)...)
	}
	return paths
}

// programFault returns why a file or directory below ProgramDir cannot be used: it is missing,
// another account than root can change it, or it is not the program of the version.
func programFault(node string, programs []cluster.Program, st runtimes.FileStat) error {
	want := "file"
	if st.Path == profile.ProgramDir {
		want = "dir"
	}
	if st.Type != want || st.UID != 0 || st.Mode&0o022 != 0 || st.Mode&0o100 == 0 {
		return fmt.Errorf("%s on %s is not a %s that only root can change and run; put it there as root with mode 0755", st.Path, node,
			want)
	}
	if want == "file" && st.SHA256 == "" {
		return fmt.Errorf("%s on %s has %d bytes, and berth-host compares files of up to 1 MiB; put a script there that starts it", st.Path,
			node, st.Size)
	}
	for _, p := range programs {
		if p.Path() == st.Path && "sha256:"+st.SHA256 != p.Digest {
			return fmt.Errorf("%s on %s is not the program of the version, whose digest is %s; put that one there", st.Path, node, p.Digest)
		}
	}
	return nil
}

// checkPrograms returns an error if the host of a member lacks a program of u. Without its
// health check slurmd goes on without a word, and without a prolog it drains its node.
func (c hardware) checkPrograms(ctx context.Context, u *plan.Unit, m plan.Member) error {
	programs := cluster.Programs(u.Effective.Config)
	paths := programPaths(programs)
	if len(paths) == 0 {
		return nil
	}
	res, err := c.worker(m).do(ctx, statOp(paths...))
	if err != nil {
		return err
	}
	for _, st := range res[0].Stats {
		if err := programFault(m.Node, programs, st); err != nil {
			return err
		}
	}
	return nil
}

// checkNewPrograms checks the workers for programs that the record's unit does not have, before
// slurm.conf names them.
func (c hardware) checkNewPrograms(ctx context.Context, after *plan.Unit) error {
	if slices.Equal(cluster.Programs(after.Effective.Config), cluster.Programs(c.rec.Unit.Effective.Config)) {
		return nil
	}
	return c.onWorkers(ctx, func(ctx context.Context, _ site, m plan.Member) error { return c.checkPrograms(ctx, after, m) })
}

package slurm

import (
	"context"
	"fmt"
	"slices"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

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

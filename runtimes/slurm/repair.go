package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

// restoration restores files and directories of Berth on a controller that a person changed or removed.
type restoration struct{ *control }

// load reads the record of the unit and restores files of a complete stack that were changed
// or removed. Every action begins with it, before it asks a client of Slurm: with a
// broken slurm.conf a client says nothing about slurmctld, and no daemon starts. The
// caller holds the lock of the cluster.
func (c *control) load(ctx context.Context) error {
	ops := append(c.file().readOps(), statOp(repairedPaths(c.stack)...), statOp(c.stack.Munge().Key()))
	res, err := c.do(ctx, append(ops, controlDirectoryOps(c.stack)...)...)
	if err != nil {
		return err
	}
	directories, owners := res[len(ops):], ownersOf(res[len(ops):])
	if err := c.openRecord(ctx, res[0], res[1]); err != nil || !c.rec.Complete || c.rec.Deleting {
		return err
	}
	if err := (mungeKey{c}).restore(ctx, res[3].Stats[0], owners); err != nil {
		return err
	}
	restoration{c}.restoreDirectories(ctx, directories)
	want, err := c.disk.hostFiles()
	if err != nil {
		c.log.Warn("files not checked", "host", c.host.Name(), "reason", "the recorded configuration cannot be rendered: "+err.Error())
		return nil // a stop and a deletion need no rendering, and configure reports it
	}
	broken := map[string]cluster.File{}
	for _, st := range res[2].Stats {
		if fileFault(want, c.host.Name(), st, owners) != "" {
			broken[st.Path] = want[0][st.Path]
		}
	}
	if len(broken) == 0 {
		return nil
	}
	return restoration{c}.repair(ctx, broken)
}

// repairedPaths are the files that have to be as rendered: all except the list of
// accounts, which is read once.
func repairedPaths(s profile.Stack) []string {
	return []string{s.Conf(), s.Etc() + "/cgroup.conf", s.Etc() + "/gres.conf", s.TopologyConf(), s.Etc() + "/plugstack.conf", s.DBDConf(),
		s.LogRotation()}
}

// fileFault describes a file on a node that has none of its possible contents; "": it has one of them. A file that is not rendered
// stays unchanged. slurm.conf no longer names it; but a slurmd that was started with topology.conf reads it at each
// reconfigure, and ends if it is missing.
func fileFault(wanted []map[string]cluster.File, node string, st runtimes.FileStat, owners map[string]uint32) (fault string) {
	for _, files := range slices.Backward(wanted) {
		if fault = faultOf(files[st.Path], node, st, owners); fault == "" {
			return ""
		}
	}
	return fault
}

// faultOf says how a file on a node differs from f in content, mode or owner.
func faultOf(f cluster.File, node string, st runtimes.FileStat, owners map[string]uint32) string {
	if f.Data == nil {
		return ""
	}
	owner, isKnown := owners[f.Owner]
	if !isKnown {
		owner = st.UID
	}
	there := st.Path + " on " + node
	switch {
	case !st.Exists:
		return there + " is missing"
	case st.Type == "link":
		return there + " is a symbolic link; remove it"
	case st.SHA256 != digest(f.Data):
		return there + " is not as Berth writes it"
	case st.Mode != f.Mode || st.UID != owner:
		return fmt.Sprintf("%s has the mode %04o and the uid %d; want %04o and %d", there, st.Mode, st.UID, f.Mode, owner)
	}
	return ""
}

// repair writes files of the stack. It records the steps that follow before the write, as a daemon may have read the broken files.
func (c restoration) repair(ctx context.Context, broken map[string]cluster.File) error {
	found, err := c.do(ctx, readOp(c.stack.Conf()))
	if err != nil {
		return err
	}
	applied, err := c.disk.applied()
	if err != nil {
		return err
	}
	unread := c.disk.journal // the steps that remain if slurmctld never read the broken slurm.conf
	for path := range broken {
		c.log.Warn("changed or removed file restored", "host", c.host.Name(), "file", path)
		if path != c.stack.Conf() {
			unread = unread.with(applied.StepsOf(path), c.rec.Nodes())
		}
	}
	ops := append([]runtimes.Op{dirOp(c.stack.Etc(), 0o755, "")}, writeOps(broken)...)
	all := unread
	if _, isBroken := broken[c.stack.Conf()]; isBroken {
		all = all.with(applied.StepsOver(found[0].Data), c.rec.Nodes())
		if !found[0].Missing {
			ops = slices.Insert(ops, 1, writeOp(c.stack.Conf()+".previous", cluster.File{Data: found[0].Data, Mode: 0o644}))
		}
	}
	if err := c.setJournal(ctx, all); err != nil {
		return err
	}
	res, err := c.do(ctx, append(ops, c.service(profile.Slurmctld, "state"))...)
	if err != nil || !res[len(ops)].Service.Running {
		return err // its start reads the files
	}
	res, err = c.do(ctx, c.cli("scontrol", "show", "config"))
	switch op := new(runtimes.OpError); {
	case errors.As(err, &op):
		return nil // it does not answer, and the steps stay recorded
	case err != nil:
		return err
	case hashMatches(res[0]):
		return c.setJournal(ctx, unread)
	}
	return nil
}

// updateRecord reads the record, changes it and writes it, for actions that run
// while another action of the same cluster runs.
func (c *control) updateRecord(ctx context.Context, change func(*record)) error {
	defer c.env.lock("cluster " + c.stack.Cluster)()
	if err := c.load(ctx); err != nil {
		return err
	}
	change(&c.rec)
	return c.save(ctx)
}

// restoreDirectories corrects those of the controller. A file system may refuse that, which ends no action.
func (c restoration) restoreDirectories(ctx context.Context, res []runtimes.Result) {
	var ops []runtimes.Op
	faults := controlFaults(c.stack, c.host.Name(), res)
	for _, d := range controlDirectories(c.stack) {
		if fault := faults[d.path]; fault != "" {
			c.log.Warn("changed or removed directory restored", "host", c.host.Name(), "directory", d.path)
			ops = append(ops, ownDirOp(d.path, d.mode, d.owner))
		}
	}
	if len(ops) == 0 {
		return
	}
	if err := c.doAll(ctx, ops...); err != nil {
		c.log.Warn("directory not corrected", "host", c.host.Name(), "error", err.Error())
	}
}

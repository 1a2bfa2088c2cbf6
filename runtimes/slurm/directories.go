package slurm

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"berth/runtimes"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// directory is a directory as Berth makes it: on a worker it is root's, on a controller the Slurm user's.
type directory struct {
	path string
	mode uint32
}

// workerDirectories are those without which slurmd starts no job, or keeps no log of one.
func workerDirectories(s profile.Stack) []directory {
	return append([]directory{{profile.WorkerSpoolDir, 0o755}, {profile.WorkerOldLogs, 0o755}}, jobDirectories(s)...)
}

// jobDirectories have the directories of users in which their jobs run by default.
func jobDirectories(s profile.Stack) []directory {
	return []directory{{profile.JobsDir, 0o711}, {s.Jobs(), 0o711}}
}

// controlDirectories are those without which slurmctld keeps no state, or no log.
func controlDirectories(s profile.Stack) []directory {
	return []directory{{s.Lib(), 0o755}, {s.State(), 0o700}, {s.Log(), 0o755}}
}

// controlDirectoryOps read the controlDirectories of a host, and the uid of the Slurm user.
func controlDirectoryOps(s profile.Stack) []runtimes.Op {
	return []runtimes.Op{statOp(pathsOf(controlDirectories(s))...), uidsOp([]schema.UnixUser{{Name: profile.SlurmUser}})}
}

// controlFaults returns how the directories on a controller are otherwise than Berth makes them, by path, from what
// controlDirectoryOps answered. A state that is gone is a loss, of which another part tells.
func controlFaults(s profile.Stack, node string, res []runtimes.Result) map[string]string {
	faults := map[string]string{}
	uid, known := slurmUID(res)
	if !known {
		return faults
	}
	for i, d := range controlDirectories(s) {
		st := res[0].Stats[i]
		isLink := st.Type == "link" // an administrator's, to another disk
		if !isLink && (st.Exists || d.path == s.Log()) {
			if fault := d.fault(node, st, uid); fault != "" {
				faults[d.path] = fault
			}
		}
	}
	return faults
}

// slurmUID returns the uid of the Slurm user from what controlDirectoryOps answered.
func slurmUID(res []runtimes.Result) (uid uint32, known bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(string(res[1].Data)), 10, 32)
	return uint32(n), err == nil
}

// restoreDirectories corrects those of the controller. A file system may refuse that, which ends no action.
func (c *control) restoreDirectories(ctx context.Context, res []runtimes.Result) {
	var ops []runtimes.Op
	faults := controlFaults(c.stack, c.host.Name(), res)
	for _, d := range controlDirectories(c.stack) {
		if fault := faults[d.path]; fault != "" {
			c.log.Warn("changed or removed directory restored", "host", c.host.Name(), "directory", d.path)
			ops = append(ops, ownDirOp(d.path, d.mode, profile.SlurmUser))
		}
	}
	if len(ops) == 0 {
		return
	}
	if err := c.doAll(ctx, ops...); err != nil {
		c.log.Warn("directory not corrected", "host", c.host.Name(), "error", err.Error())
	}
}

// fault returns how a directory is otherwise than Berth makes it; "": it is as made.
func (d directory) fault(node string, st runtimes.FileStat, uid uint32) string {
	switch {
	case !st.Exists:
		return fmt.Sprintf("the directory %s on %s is missing", d.path, node)
	case st.Type != "dir":
		return d.path + " on " + node + " is not a directory"
	case st.Mode != d.mode || st.UID != uid:
		return fmt.Sprintf("the directory %s on %s has the mode %04o and the uid %d; want %04o and %d", d.path, node, st.Mode, st.UID, d.mode, uid)
	}
	return ""
}

// makeOps makes directories, or corrects their mode and owner.
func makeOps(all []directory) (ops []runtimes.Op) {
	for _, d := range all {
		ops = append(ops, ownDirOp(d.path, d.mode, ""))
	}
	return ops
}

func pathsOf(all []directory) (paths []string) {
	for _, d := range all {
		paths = append(paths, d.path)
	}
	return paths
}

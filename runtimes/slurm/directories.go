package slurm

import (
	"fmt"

	"berth/runtimes"
	"berth/runtimes/slurm/profile"
)

// directory is a directory of root on a worker, as Berth makes it.
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

// fault returns how a directory is otherwise than Berth makes it; "": it is as made.
func (d directory) fault(node string, st runtimes.FileStat) string {
	switch {
	case !st.Exists:
		return fmt.Sprintf("the directory %s on %s is missing", d.path, node)
	case st.Type != "dir":
		return d.path + " on " + node + " is not a directory"
	case st.Mode != d.mode || st.UID != 0:
		return fmt.Sprintf("the directory %s on %s has the mode %04o and the uid %d; want %04o and 0", d.path, node, st.Mode, st.UID, d.mode)
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

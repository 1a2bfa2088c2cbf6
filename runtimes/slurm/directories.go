package slurm

import (
	"fmt"
	"strconv"
	"strings"

	"berth/runtimes"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// directory is a directory as Berth makes it.
type directory struct {
	path  string
	mode  uint32
	owner string // empty: root
}

// workerDirectories are those without which slurmd starts no job, or keeps no log of one.
func workerDirectories(s profile.Stack) []directory {
	return append([]directory{{profile.WorkerSpoolDir, 0o755, ""}, {profile.WorkerOldLogs, 0o755, ""}}, jobDirectories(s)...)
}

// jobDirectories have the directories of users in which their jobs run by default.
func jobDirectories(s profile.Stack) []directory {
	return []directory{{profile.JobsDir, 0o711, ""}, {s.Jobs(), 0o711, ""}}
}

// controlDirectories are those without which the daemons of a controller keep no state, or no log.
func controlDirectories(s profile.Stack) []directory {
	return []directory{
		{s.Lib(), 0o755, profile.SlurmUser}, {s.State(), 0o700, profile.SlurmUser}, {s.Log(), 0o755, profile.SlurmUser},
		{profile.DatabaseDir, 0o755, profile.DatabaseUser}, {profile.DatabaseData, 0o700, profile.DatabaseUser},
	}
}

// daemonAccounts own files and directories on a controller.
func daemonAccounts() []string {
	return []string{profile.SlurmUser, profile.DatabaseUser, profile.MungeUser}
}

// controlDirectoryOps read the controlDirectories of a host, and the uids of daemonAccounts.
func controlDirectoryOps(s profile.Stack) []runtimes.Op {
	var users []schema.UnixUser
	for _, name := range daemonAccounts() {
		users = append(users, schema.UnixUser{Name: name})
	}
	return []runtimes.Op{statOp(pathsOf(controlDirectories(s))...), uidsOp(users)}
}

// ownersOf returns the uids of root, which is "", and of daemonAccounts from what controlDirectoryOps answered. If an account is
// missing, nobody knows which uid is whose, and it has root only.
func ownersOf(res []runtimes.Result) map[string]uint32 {
	owners := map[string]uint32{"": 0}
	words := strings.Fields(string(res[1].Data))
	if len(words) != len(daemonAccounts()) {
		return owners
	}
	for i, name := range daemonAccounts() {
		if uid, err := strconv.ParseUint(words[i], 10, 32); err == nil {
			owners[name] = uint32(uid)
		}
	}
	return owners
}

// controlFaults returns how the directories on a controller are otherwise than Berth makes them, by path, from what
// controlDirectoryOps answered. A state that is gone is a loss, of which another part tells.
func controlFaults(s profile.Stack, node string, res []runtimes.Result) map[string]string {
	faults, owners := map[string]string{}, ownersOf(res)
	for i, d := range controlDirectories(s) {
		st := res[0].Stats[i]
		uid, isKnown := owners[d.owner]
		isLink := st.Type == "link" // an administrator's, to another disk
		if isKnown && !isLink && (st.Exists || d.path == s.Log()) {
			if fault := d.fault(node, st, uid); fault != "" {
				faults[d.path] = fault
			}
		}
	}
	return faults
}

// writtenPaths are the directories on a controller on whose disks the daemons and Berth write, the state first.
func writtenPaths(s profile.Stack) []string {
	return []string{s.State(), s.Log(), profile.DatabaseData, profile.InstanceDir}
}

// diskFaults returns those of directories.
func diskFaults(node string, stats []runtimes.FileStat) (faults []string) {
	for _, st := range stats {
		if fault := diskFault(node, st); fault != "" {
			faults = append(faults, fault)
		}
	}
	return faults
}

// diskFault describes a disk that cannot be written to, and the repair by a person; "": a writable disk. Berth deletes no files
// of others.
func diskFault(node string, st runtimes.FileStat) string {
	switch {
	case st.ReadOnly:
		return fmt.Sprintf("the disk of %s on %s is read-only; mount it for writing", st.Path, node)
	case st.Full:
		return fmt.Sprintf("the disk of %s on %s is full: it has no space or no inode left; delete files there", st.Path, node)
	}
	return ""
}

// fault returns how a directory is otherwise than Berth makes it; "": it is as made.
func (d directory) fault(node string, st runtimes.FileStat, uid uint32) string {
	switch {
	case !st.Exists:
		return fmt.Sprintf("the directory %s on %s is missing", d.path, node)
	case st.Type != "dir":
		return d.path + " on " + node + " is not a directory"
	case st.Mode != d.mode || st.UID != uid:
		return fmt.Sprintf("the directory %s on %s has the mode %04o and the uid %d; want %04o and %d; "+
			"if a file system is mounted over it, unmount that", d.path, node, st.Mode, st.UID, d.mode, uid)
	}
	return ""
}

// makeOps makes directories, or corrects their mode and owner.
func makeOps(all []directory) (ops []runtimes.Op) {
	for _, d := range all {
		ops = append(ops, ownDirOp(d.path, d.mode, d.owner))
	}
	return ops
}

func pathsOf(all []directory) (paths []string) {
	for _, d := range all {
		paths = append(paths, d.path)
	}
	return paths
}

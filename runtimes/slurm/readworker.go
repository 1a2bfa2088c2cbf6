package slurm

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

func (v *observation) readWorker(ctx context.Context, m plan.Member) workerReading {
	c := v.ctl
	control, _ := c.rec.Unit.Control()
	users := c.rec.users()
	programs := cluster.Programs(c.rec.Unit.Effective.Config)
	ops := []runtimes.Op{
		readOp(workerRecordPath), c.service(profile.MungedWorker, "state"), c.slurmd(m, control, "state"),
		statOp(slices.Concat(gpuFiles(m), programPaths(programs), pathsOf(workerDirectories(c.stack)),
			[]string{profile.WorkerMungeKey})...),
		{List: &runtimes.List{Path: c.stack.Jobs()}},
	}
	for part := range slices.Chunk(users, batch) {
		ops = append(ops, uidsOp(part))
	}
	ops = append(ops, statOp(c.stack.FetchedPaths()...))
	res, err := c.worker(m).do(ctx, ops...)
	if err != nil {
		return workerReading{err: err}
	}
	rec, err := c.worker(m).readWorker(res[0])
	if errors.Is(err, errDamaged) {
		err = nil
	}
	w := workerReading{err: err, record: rec, detail: res[2].Service.Detail, lacks: v.lacks(m, programs, res[3].Stats)}
	key := res[3].Stats[len(res[3].Stats)-1].SHA256
	w.hasKey = key != "" && key == c.rec.MungeKey
	if len(res) == len(ops) && len(v.modified) == 0 && len(v.change.Changes) == 0 {
		w.earlier = v.fetched.fault(m.Node, res[len(ops)-1].Stats)
	}
	for i, name := range []string{"munged", "slurmd"} {
		st := res[i+1].Service
		if !st.Running {
			w.down = append(w.down, name)
		}
		if st.Running && st.Outdated {
			w.outdated = append(w.outdated, name)
		}
	}
	w.isMissing = res[0].Missing && len(w.down) == 2 &&
		!slices.ContainsFunc(res[3].Stats, func(st runtimes.FileStat) bool { return st.Path == profile.WorkerSpoolDir && st.Exists })
	for _, u := range users {
		if _, ok := slices.BinarySearch(res[4].Names, path.Base(c.stack.JobsOf(u.Name, u.UID))); !ok && w.lacks == "" {
			w.lacks = "no directory for jobs of " + u.Name + " on " + m.Node
		}
	}
	if !slices.Equal(rec.Users, users) { // they are being changed, or belong to a directory service
		return w
	}
	next := 5
	for part := range slices.Chunk(users, batch) {
		if w.lacks == "" && string(res[next].Data) != uids(part) {
			w.lacks = "accounts on " + m.Node + " differ from the declared users: " + strings.TrimSpace(string(res[next].Stderr))
		}
		next++
	}
	return w
}

// lacks compares the device files, the programs, the directories and the munge key of a worker with what it
// needs. It returns the first difference.
func (v *observation) lacks(m plan.Member, programs []cluster.Program, stats []runtimes.FileStat) string {
	directories := workerDirectories(v.ctl.stack)
	for _, st := range stats {
		i := slices.IndexFunc(directories, func(d directory) bool { return d.path == st.Path })
		switch {
		case diskFault(m.Node, st) != "":
			return diskFault(m.Node, st)
		case i >= 0:
			if fault := directories[i].fault(m.Node, st, 0); fault != "" {
				return fault
			}
		case st.Path == profile.WorkerMungeKey:
			if fault := v.ctl.rec.keyFault(m.Node, st, nil); fault != "" {
				return fault
			}
		case strings.HasPrefix(st.Path, profile.ProgramDir):
			if err := programFault(m.Node, programs, st); err != nil {
				return err.Error()
			}
		case !st.Exists:
			return st.Path + " on " + m.Node + " is missing; bring the GPU back, or correct gpus in the node's document"
		case st.Type != "char":
			return st.Path + " on " + m.Node + " is not a device file; bring the GPU back, or correct gpus in the node's document"
		}
	}
	return ""
}

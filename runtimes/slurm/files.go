package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// configFiles keeps the files of the control stack as rendered from the record.
type configFiles struct {
	*control
	daemons stackDaemons
	nodes   nodeSet
	jobs    jobQueue
}

// replace brings the files to the record. A removed partition whose jobs run stays in the
// files, and waits says so.
func (c configFiles) replace(ctx context.Context) (waits waitList, err error) {
	if c.disk.Files == nil {
		c.disk.Files = c.disk.input()
		c.rec.Files = c.disk.Files
	}
	if waits, err = c.closePartitions(ctx); err != nil {
		return nil, err
	}
	return waits, c.write(ctx)
}

// write writes the files that differ and activates them with a reconfigure or
// a restart. It verifies that slurmctld runs them, that registered nodes still are,
// and that each worker has them; otherwise it restores the old files.
func (c configFiles) write(ctx context.Context) error {
	want, err := c.rec.cluster()
	if err != nil {
		return err
	}
	applied, unreadable := c.disk.applied()
	var before map[string]cluster.File
	if unreadable == nil {
		before, unreadable = applied.Files()
	}
	if unreadable != nil {
		applied = nil
	}
	diff, err := cluster.Compare(applied, want)
	if err != nil {
		return err
	}
	found, err := c.compare(ctx, want)
	if err != nil {
		return err
	}
	todo := c.disk.Owed.Or(diff.Steps())
	if c.disk.Writing != nil { // a daemon that has started since has read its files
		if begun, err := c.disk.rendering(c.disk.Writing).cluster(); err == nil {
			back, err := cluster.Compare(begun, want)
			if err != nil {
				return err
			}
			todo = todo.Or(back.Steps())
		}
	}
	todo.Reconfigure = todo.Reconfigure || found.differs
	for path := range found.changed {
		// A person changed it since the record was read.
		if _, isChange := diff.Files[path]; !isChange && c.disk.Writing == nil {
			todo = todo.Or(want.StepsOf(path))
		}
	}
	if len(found.changed) == 0 && todo == (cluster.Steps{}) {
		return c.end(ctx) // of a change that was reverted before its first file
	}
	if err := c.begin(ctx, todo); err != nil {
		return err
	}
	ops := writeOps(found.changed)
	if conf, isKnown := before[c.stack.Conf()]; isKnown {
		ops = append([]runtimes.Op{writeOp(c.stack.Conf()+".previous", conf)}, ops...)
	}
	if err := c.doAll(ctx, ops...); err != nil {
		return err
	}
	err = c.activate(ctx, todo)
	if err == nil {
		err = c.verifyNodes(ctx, found.nodes)
	}
	switch {
	case err == nil:
		c.rec.Files, c.disk.Leaving = c.rec.input(), c.rec.Leaving
		c.disk.Files = c.rec.Files
		return c.end(ctx)
	case errors.Is(err, runtimes.ErrUncertain), errors.Is(err, runtimes.ErrUnreachable), errors.Is(err, runtimes.ErrStaleEpoch):
		return err // the host cannot be asked to roll back
	case ctx.Err() != nil:
		return err // Berth ends; nobody knows yet whether the configuration works
	}
	if unreadable != nil {
		return fmt.Errorf("%w; and the old configuration cannot be restored: %w", err, unreadable)
	}
	if back := c.rollBack(context.WithoutCancel(ctx), before, todo); back != nil {
		return fmt.Errorf("%w; and restoring the old configuration failed: %w", err, back)
	}
	return fmt.Errorf("the new configuration did not work, and the old one is restored: %w", err)
}

// begin records a change before its first file is written: after a crash the next attempt knows which files may be on the host, and
// which steps follow.
func (c configFiles) begin(ctx context.Context, todo cluster.Steps) error {
	j := c.disk.journal.with(todo, c.rec.Nodes())
	j.Writing = c.rec.input()
	return c.setJournal(ctx, j)
}

// end records that the files work. Nodes whose slurmd has not restarted stay recorded.
func (c configFiles) end(ctx context.Context) error {
	return c.setJournal(ctx, journal{RestartDue: c.disk.RestartDue})
}

// fetched has the digest of each file that the slurmd of a worker fetches from slurmctld, by its
// path on the worker.
type fetched map[string]string

// fetchedFiles returns what workers have once no step of a change is owed; nil: unknown.
func (c *control) fetchedFiles() fetched {
	applied, err := c.rec.appliedFiles()
	if err != nil || c.rec.Owed != (cluster.Steps{}) || c.rec.Writing != nil {
		return nil
	}
	out := fetched{}
	for here, there := range c.stack.FetchedFiles() {
		if f := applied[here]; len(f.Data) > 0 {
			out[there] = digest(f.Data)
		}
	}
	return out
}

// fault names the first file whose copy on the node differs from slurmctld's: the node did not answer while the file changed, or
// a person removed the copy, without which srun fails in jobs. slurmd fetches it at its next start.
func (f fetched) fault(node string, stats []runtimes.FileStat) string {
	for _, st := range stats {
		switch want := f[st.Path]; {
		case want == "":
		case !st.Exists:
			return st.Path + " on " + node + " is missing; slurmd fetches it when it starts"
		case st.SHA256 != "" && want != st.SHA256:
			return st.Path + " on " + node + " is outdated; slurmd fetches the current one when it starts"
		}
	}
	return ""
}

// hostState is how a host differs from the wanted cluster.
type hostState struct {
	changed map[string]cluster.File // files that have to be written
	differs bool                    // slurmctld's memory differs from its files
	// nodes are those of joined workers as the controller has them now. A fault of a node that leaves does not count against a file: its
	// slurmd may be stopped already.
	nodes []node
}

func (c configFiles) compare(ctx context.Context, want *cluster.Cluster) (found hostState, err error) {
	rendered, err := want.Files()
	if err != nil {
		return found, err
	}
	tools, err := c.tools(ctx)
	if err != nil {
		return found, err
	}
	res, err := c.do(ctx, statOp(slices.Sorted(maps.Keys(rendered))...), queryOp(c.control, cli.ShowConfig()),
		queryOp(c.control, tools.Nodes), queryOp(c.control, cli.Partitions()))
	if err != nil {
		return found, err
	}
	found.changed = map[string]cluster.File{}
	for _, st := range res[0].Stats {
		if f := rendered[st.Path]; !st.Exists || st.SHA256 != digest(f.Data) {
			found.changed[st.Path] = f
		}
	}
	found.differs = !hashMatches(res[1])
	for _, p := range cluster.PartitionNames(want.Partitions()) {
		if c.rec.closing(partitionTarget(p)) && !c.rec.leaves(p) {
			found.differs = true // it was being removed and is wanted again
			c.rec.reopen(partitionTarget(p))
		}
	}
	nodes, err := answer(c.site, tools.Nodes, res[2])
	if err != nil {
		return found, err
	}
	known, err := answer(c.site, cli.Partitions(), res[3])
	if err != nil {
		return found, err
	}
	found.differs = found.differs || len(want.ChangedByHand(known, nodes, c.disk.closes)) > 0
	found.nodes = slices.DeleteFunc(nodes, func(n node) bool { return !c.rec.HasJoined(n.Name) || c.rec.closing(nodeTarget(n.Name)) })
	return found, nil
}

// activate does the steps of todo and waits until slurmctld runs its file.
func (c configFiles) activate(ctx context.Context, todo cluster.Steps) error {
	if todo.Database {
		if err := (slurmdbd{c.control}).restart(ctx); err != nil {
			return err
		}
	}
	if todo.Restart {
		if err := c.doAll(ctx, c.service(profile.Slurmctld, "restart")); err != nil {
			return err
		}
		if err := c.daemons.await(ctx); err != nil {
			return err
		}
	}
	if todo.Restart || todo.Settle {
		if err := c.nodes.reconcile(ctx); err != nil {
			return err
		}
	}
	push := c.daemons.await
	if todo.Restart || todo.Reconfigure || todo.Settle { // a start does not push the configuration to running nodes
		push = c.daemons.reconfigure
	}
	if err := push(ctx); err != nil || len(c.disk.RestartDue) == 0 {
		return err
	}
	return c.restartWorkers(ctx, todo.Workers)
}

// restartWorkers restarts each slurmd that has to restart and runs. Jobs go on. One that does not restart stays recorded: a start of the
// worker restarts it, and one bad worker delays no change. isProof: the change needs these restarts, so that it does not work if all
// of them fail.
func (c configFiles) restartWorkers(ctx context.Context, isProof bool) error {
	control, _ := c.rec.Unit.Control()
	var mu sync.Mutex
	var due []string
	restarted := 0
	var failed error
	err := c.onEachWorker(func(m plan.Member) error {
		if !slices.Contains(c.disk.RestartDue, m.Node) {
			return nil
		}
		wk := c.worker(m)
		res, err := wk.do(ctx, c.service(profile.Slurmd, "state"))
		if err == nil && res[0].Service.Running {
			if err = wk.doAll(ctx, c.slurmd(m, control, "restart")); err == nil {
				mu.Lock()
				defer mu.Unlock()
				restarted++
			}
		}
		if err == nil || ctx.Err() != nil || errors.Is(err, runtimes.ErrStaleEpoch) {
			return err
		}
		c.log.Warn("slurmd not restarted", "worker", m.Name, "reason", err.Error())
		mu.Lock()
		defer mu.Unlock()
		due = append(due, m.Node)
		if !isContactLost(err) {
			failed = err
		}
		return nil
	})
	if err != nil {
		return err
	}
	if isProof && restarted == 0 && failed != nil {
		return failed
	}
	slices.Sort(due)
	c.rec.RestartDue, c.disk.RestartDue = due, due // saved with the end of the change
	return nil
}

// reaches reports whether the host of a worker answers. A worker that does not answer proves nothing against
// a configuration.
func (c configFiles) reaches(ctx context.Context, node string) bool {
	i := slices.IndexFunc(c.rec.Joined, func(m plan.Member) bool { return m.Node == node })
	if i < 0 {
		return true
	}
	_, err := c.worker(c.rec.Joined[i]).do(ctx, c.service(profile.Slurmd, "state"))
	return ctx.Err() != nil || !isContactLost(err)
}

// verifyNodes waits until all nodes of before are registered with the new file. A node that leaves says nothing about the
// file, as its slurmd may have ended already; where all leave, the answer of slurmctld is the only proof.
func (c configFiles) verifyNodes(ctx context.Context, before []node) error {
	before = slices.DeleteFunc(slices.Clone(before), func(n node) bool { return c.rec.closing(nodeTarget(n.Name)) })
	err := c.env.poll(ctx, "nodes at "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
		nodes, err := c.nodes.list(ctx)
		if err != nil {
			return false, "", err
		}
		for _, was := range before {
			if n, ok := findNode(nodes, was.Name); was.Registered() && (!ok || !n.Registered()) && c.reaches(ctx, was.Name) {
				return false, fmt.Sprintf("node %s was %s and is %s %s", was.Name, was.State, n.State, strings.Join(n.Flags, "+")), nil
			}
		}
		return true, "", nil
	})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	took := false // by any worker
	err = c.onWorkers(ctx, func(ctx context.Context, wk site, m plan.Member) error {
		if n, ok := findNode(before, m.Node); !ok || !n.Registered() {
			return nil
		}
		show := cliOp(profile.WorkerConfLink+"/slurm.conf", c.env.timeouts.Call, "scontrol", "show", "config")
		err := c.env.poll(ctx, "configuration on "+m.Node, func(ctx context.Context) (bool, string, error) {
			res, err := wk.do(ctx, show)
			if err != nil {
				return false, "", err
			}
			return hashMatches(res[0]), "differs from the controller's, or is unreadable", nil
		})
		mu.Lock()
		defer mu.Unlock()
		took = took || err == nil
		return err
	})
	if err != nil && took && ctx.Err() == nil {
		// The host is faulty, not the configuration. Its slurmd is started again later.
		c.log.Warn("worker without the new configuration", "reason", err.Error())
		return nil
	}
	return err
}

func (c configFiles) rollBack(ctx context.Context, old map[string]cluster.File, todo cluster.Steps) error {
	if err := c.doAll(ctx, writeOps(old)...); err != nil {
		return err
	}
	up, err := c.daemons.answers(ctx)
	if err != nil {
		return err
	}
	todo.Restart = todo.Restart || !up
	c.disk.journal = c.disk.journal.with(todo, c.rec.Nodes()) // a slurmd may have restarted with the new files
	if err := c.activate(ctx, todo); err != nil {
		return err
	}
	// The restart or reconfigure has opened the partitions that were closed since.
	for target := range c.disk.Closing {
		if p, ok := strings.CutPrefix(target, partitionTarget("")); ok && !c.disk.leaves(p) {
			c.disk.reopen(target)
		}
	}
	return c.end(ctx)
}

// closePartitions removes the partitions that slurmctld has and that are not declared, before
// their lines are removed: without its line, a reconfigure ends each job that was
// submitted to a partition, also one that runs in another partition. A closed partition is
// inactive, as a draining one still starts queued jobs. One whose jobs run is recorded as
// leaving, and waits says so. Nobody knows the line of one that was made by hand, so
// all files wait for its jobs.
func (c configFiles) closePartitions(ctx context.Context) (waits waitList, err error) {
	set, err := cluster.Parse(c.rec.Unit.Effective.Config)
	if err != nil {
		return nil, err
	}
	var lines []cluster.Partition
	applied, unread := c.disk.applied() // if nobody can read the lines that were applied, each is taken for one of them
	if unread == nil {
		lines = applied.Partitions()
	}
	known, err := ask(ctx, c.control, cli.Partitions())
	if err != nil {
		return nil, err
	}
	stay := cluster.PartitionNames(set.Partitions)
	c.rec.Leaving = nil
	for _, p := range known {
		if slices.Contains(stay, p.Name) {
			continue
		}
		i := slices.IndexFunc(lines, func(a cluster.Partition) bool { return a.Name == p.Name })
		rule := c.rec.Unit.Effective.OnJobs
		if i < 0 && unread == nil {
			rule = nil // no plan named the jobs in a partition that a person made: it waits for them
		}
		err := c.closePartition(ctx, p.Name, rule, stay)
		switch {
		case i >= 0 && errors.Is(err, runtimes.ErrWaiting):
			c.rec.Leaving, waits = append(c.rec.Leaving, lines[i]), append(waits, err)
		case err != nil:
			return nil, err
		}
	}
	for target := range c.rec.Closing {
		if p, ok := strings.CutPrefix(target, partitionTarget("")); ok && !slices.Contains(stay, p) && !c.rec.leaves(p) {
			c.rec.reopen(target)
		}
	}
	return waits, nil
}

// closePartition closes a partition, ends its jobs by rule, and deletes it.
func (c configFiles) closePartition(ctx context.Context, p string, rule *schema.OnJobs, stay []string) error {
	if err := c.close(ctx, partitionTarget(p)); err != nil {
		return err
	}
	if _, err := c.runChecked(ctx, c.cli("scontrol", "update", "partitionname="+p, "state=inactive")); err != nil {
		return err
	}
	if err := c.jobs.endBy(ctx, rule, partitionTarget(p), only("--partition="+p)); err != nil {
		return err
	}
	return c.deletePartition(ctx, p, stay)
}

// deletePartition deletes a closed partition from slurmctld. Pending jobs go to their
// other partitions and are cancelled if they have none: only now, because until then
// the partition may be wanted again.
func (c configFiles) deletePartition(ctx context.Context, p string, stay []string) error {
	remove := c.cli("scontrol", "delete", "partitionname="+p)
	return c.env.poll(ctx, "delete partition "+p, func(ctx context.Context) (bool, string, error) {
		refused, err := c.jobs.takeFrom(ctx, p, stay)
		if err != nil {
			return false, "", err
		}
		res, err := c.do(ctx, remove, queryOp(c.control, cli.Partitions()))
		if err != nil {
			return false, "", err
		}
		left, err := answer(c.site, cli.Partitions(), res[1])
		gone := err == nil && !slices.ContainsFunc(left, func(known cli.Partition) bool { return known.Name == p })
		return gone, cmp.Or(refused, c.exitError(remove, res[0]).Error()), nil
	})
}

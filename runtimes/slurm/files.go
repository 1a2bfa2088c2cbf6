package slurm

import (
	"bytes"
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
	d, err := c.compare(ctx)
	if err != nil {
		return err
	}
	todo := c.disk.Owed.Or(cluster.StepsAfter(c.stack, c.rec.version(), d.how, d.changed))
	if len(d.changed) == 0 && todo == (cluster.Steps{}) {
		return nil
	}
	before, unreadable := c.disk.appliedFiles()
	// Recorded before the write: after a crash the files do not differ, and the next
	// attempt still has to know the steps that follow.
	if err := c.addPending(ctx, todo); err != nil {
		return err
	}
	ops := writeOps(d.changed)
	if d.oldConf != nil {
		previous := writeOp(c.stack.Conf()+".previous", cluster.File{Data: d.oldConf, Mode: 0o644})
		ops = append([]runtimes.Op{previous}, ops...)
	}
	if err := c.doAll(ctx, ops...); err != nil {
		return err
	}
	err = c.activate(ctx, todo)
	if err == nil {
		err = c.verifyNodes(ctx, d.nodes)
	}
	switch {
	case err == nil:
		c.rec.Files, c.disk.Leaving = c.rec.input(), c.rec.Leaving
		c.disk.Files = c.rec.Files
		return c.clearPending(ctx, todo)
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

// fetched has the digest of each file that the slurmd of a worker fetches from slurmctld, by its
// path on the worker.
type fetched map[string]string

// fetchedFiles returns what workers have once no step of a change is owed; nil: unknown.
func (c *control) fetchedFiles() fetched {
	applied, err := c.rec.appliedFiles()
	if err != nil || c.rec.Owed != (cluster.Steps{}) {
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
// somebody removed the copy, without which srun fails in jobs. slurmd fetches it at its next start.
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

// fileDiff is the difference between the rendered files and those on the host.
type fileDiff struct {
	changed map[string]cluster.File
	how     profile.Activation
	conf    []byte // slurm.conf as rendered
	oldConf []byte // slurm.conf on the host; nil: missing
	// nodes are those of joined workers as the controller has them now. One that leaves is no evidence against a file: its
	// slurmd may be stopped already.
	nodes []node
}

func (c configFiles) compare(ctx context.Context) (*fileDiff, error) {
	rendered, err := files(&c.rec)
	if err != nil {
		return nil, err
	}
	paths := slices.Sorted(maps.Keys(rendered))
	var ops []runtimes.Op
	for _, p := range paths {
		ops = append(ops, readOp(p))
	}
	tools, err := c.tools(ctx)
	if err != nil {
		return nil, err
	}
	res, err := c.do(ctx, append(ops, queryOp(c.control, cli.ShowConfig()), queryOp(c.control, tools.Nodes), queryOp(c.control, cli.Partitions()))...)
	if err != nil {
		return nil, err
	}
	d := &fileDiff{changed: map[string]cluster.File{}, conf: rendered[c.stack.Conf()].Data}
	for i, p := range paths {
		if p == c.stack.Conf() && !res[i].Missing {
			d.oldConf = res[i].Data
		}
		if res[i].Missing || !bytes.Equal(res[i].Data, rendered[p].Data) {
			d.changed[p] = rendered[p]
		}
	}
	d.how = cluster.ActivationOf(c.stack, cluster.ClassifyText(d.oldConf, d.conf, c.rec.version()), d.changed)
	if !hashMatches(res[len(paths)]) {
		d.how = max(d.how, profile.Reconfigure) // a written file was never read
	}
	for _, p := range cluster.ParseConf(d.conf).Partitions() {
		if c.rec.closing(partitionTarget(p)) && !c.rec.leaves(p) {
			d.how = max(d.how, profile.Reconfigure) // it was being removed and is wanted again
			c.rec.reopen(partitionTarget(p))
		}
	}
	known, err := answer(c.site, cli.Partitions(), res[len(paths)+2])
	if err != nil {
		return nil, err
	}
	nodes, err := answer(c.site, tools.Nodes, res[len(paths)+1])
	if len(cluster.ChangedByHand(d.conf, known, nodes, c.disk.closes)) > 0 {
		d.how = max(d.how, profile.Reconfigure) // which brings them to what the file says
	}
	d.nodes = slices.DeleteFunc(nodes, func(n node) bool { return !c.rec.hasJoined(n.Name) || c.rec.closing(nodeTarget(n.Name)) })
	return d, err
}

// stepsAfter returns the steps that follow the write of changed files over a slurm.conf.
func (c *control) stepsAfter(before, after []byte, changed map[string]cluster.File) cluster.Steps {
	how := cluster.ActivationOf(c.stack, cluster.ClassifyText(before, after, c.rec.version()), changed)
	return cluster.StepsAfter(c.stack, c.rec.version(), how, changed)
}

// activate does the steps of todo and waits until slurmctld runs its file.
func (c configFiles) activate(ctx context.Context, todo cluster.Steps) error {
	if todo.Database {
		if err := c.restartSlurmdbd(ctx); err != nil {
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
	if err := push(ctx); err != nil || !todo.Workers {
		return err
	}
	return c.restartWorkers(ctx)
}

// restartWorkers restarts the slurmd of each worker where it runs. Jobs go on. It records those
// that do not answer.
func (c configFiles) restartWorkers(ctx context.Context) error {
	control, _ := c.rec.Unit.Control()
	var mu sync.Mutex
	due := c.disk.RestartDue
	err := c.onEachWorker(func(m plan.Member) error {
		wk := c.worker(m)
		res, err := wk.do(ctx, c.service(profile.Slurmd, "state"))
		if err == nil && res[0].Service.Running {
			err = wk.doAll(ctx, c.slurmd(m, control, "restart"))
		}
		if ctx.Err() == nil && isContactLost(err) {
			mu.Lock()
			defer mu.Unlock()
			due = append(slices.Clone(due), m.Node)
			return nil
		}
		return err
	})
	slices.Sort(due)
	c.rec.RestartDue = slices.Compact(due)
	c.disk.RestartDue = c.rec.RestartDue // saved with the steps that are done
	return err
}

// reaches reports whether the host of a worker answers. What became of one that does not is no
// proof against a configuration.
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
	if err := c.activate(ctx, todo); err != nil {
		return err
	}
	// The restart or reconfigure has opened the partitions that were closed since.
	for target := range c.disk.Closing {
		if p, ok := strings.CutPrefix(target, partitionTarget("")); ok && !c.disk.leaves(p) {
			c.disk.reopen(target)
		}
	}
	c.rec.Owed, c.disk.Owed = cluster.Steps{}, cluster.Steps{}
	return c.saveDisk(ctx)
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
	applied, unread := c.disk.appliedPartitions() // if nobody can read the lines that were applied, each is taken for one of them
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
		i := slices.IndexFunc(applied, func(a cluster.Partition) bool { return a.Name == p.Name })
		rule := c.rec.Unit.Effective.OnJobs
		if i < 0 && unread == nil {
			rule = nil // no plan named the jobs in a partition that a person made: it waits for them
		}
		err := c.closePartition(ctx, p.Name, rule, stay)
		switch {
		case i >= 0 && errors.Is(err, runtimes.ErrWaiting):
			c.rec.Leaving, waits = append(c.rec.Leaving, applied[i]), append(waits, err)
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

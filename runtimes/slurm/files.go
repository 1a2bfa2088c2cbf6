package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

// configFiles keeps the files of the control stack as rendered from the record.
type configFiles struct {
	*control
	daemons    stackDaemons
	nodes      nodeSet
	partitions partitionSet
}

// replace brings the files to the record. A removed partition whose jobs run stays in the
// files, and waits says so.
func (c configFiles) replace(ctx context.Context) (waits waitList, err error) {
	if c.disk.Files == nil {
		c.disk.Files = c.disk.input()
		c.rec.Files = c.disk.Files
	}
	if waits, err = c.partitions.closeUndeclared(ctx); err != nil {
		return nil, err
	}
	return waits, c.write(ctx)
}

// write writes the files that differ and activates them with a reconfigure or
// a restart. It verifies that slurmctld runs them, that registered nodes still are,
// and that each worker has them; otherwise it restores the old files.
func (c configFiles) write(ctx context.Context) error {
	ch, err := c.disk.changeTo(&c.rec)
	if err != nil {
		return err
	}
	found, err := c.compareHost(ctx, ch)
	if err != nil {
		return err
	}
	todo := ch.stepsFrom(c.disk.journal, found)
	if len(found.changed) == 0 && todo == (cluster.Steps{}) {
		return c.end(ctx) // of a change that was reverted before its first file
	}
	if err := c.begin(ctx, todo); err != nil {
		return err
	}
	ops := writeOps(found.changed)
	if conf, isKnown := ch.Have[c.stack.Conf()]; isKnown {
		ops = append([]runtimes.Op{writeOp(c.stack.Conf()+".previous", conf)}, ops...)
	}
	if err := c.doAll(ctx, ops...); err != nil {
		return err
	}
	err = c.activate(ctx, todo, false)
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
	if ch.unreadable != nil {
		return fmt.Errorf("%w; and the old configuration cannot be restored: %w", err, ch.unreadable)
	}
	if back := c.rollBack(context.WithoutCancel(ctx), todo); back != nil {
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

// activate does the steps of todo and waits until slurmctld runs its file. afterStop: if slurmctld does not run, a step of this change
// stopped it.
func (c configFiles) activate(ctx context.Context, todo cluster.Steps, afterStop bool) error {
	if todo.Database {
		if _, err := c.daemons.bring(ctx, c.daemons.slurmdbd(), true); err != nil {
			return err
		}
	}
	g := &gate{control: c.control, afterStop: afterStop, accounting: func(ctx context.Context) error {
		_, err := c.daemons.bringAccounting(ctx)
		return err
	}}
	if _, err := c.daemons.bringController(ctx, todo, g); err != nil || len(c.disk.RestartDue) == 0 {
		return err
	}
	return c.restartWorkers(ctx, todo.Workers)
}

// restartWorkers restarts each slurmd that has to restart and runs. Jobs go on. One that does not restart stays recorded: a start of the
// worker restarts it, and one bad worker delays no change. isProof: the change needs these restarts, so that it does not work if all
// of them fail.
func (c configFiles) restartWorkers(ctx context.Context, isProof bool) error {
	control, _ := c.rec.Unit.Control()
	tried, err := c.tryOnWorkers(ctx, func(wk site, m plan.Member) (done bool, err error) {
		if !slices.Contains(c.disk.RestartDue, m.Node) {
			return false, nil
		}
		if runs, err := wk.runs(ctx, c.service(profile.Slurmd, "state")); err != nil || !runs {
			return false, err
		}
		return true, wk.doAll(ctx, c.slurmd(m, control, "restart"))
	})
	if err != nil {
		return err
	}
	var due []string
	for _, w := range tried {
		if w.err != nil {
			c.log.Warn("slurmd not restarted", "worker", w.name, "reason", w.err.Error())
			due = append(due, w.node)
		}
	}
	if err := provedBy(tried); isProof && err != nil {
		return err
	}
	slices.Sort(due)
	c.rec.RestartDue, c.disk.RestartDue = due, due // saved with the end of the change
	return nil
}

// onWorker is how a step of a change went on a worker.
type onWorker struct {
	name, node string
	done       bool // false: nothing was to do there
	err        error
}

// tryOnWorkers calls f for all joined workers in parallel. Its error is one that ends the action.
func (c configFiles) tryOnWorkers(ctx context.Context, f func(site, plan.Member) (bool, error)) ([]onWorker, error) {
	tried := inParallel(c.rec.Joined, func(m plan.Member) onWorker {
		done, err := f(c.worker(m), m)
		return onWorker{m.Name, m.Node, done, err}
	})
	for _, w := range tried {
		if w.err != nil && (ctx.Err() != nil || errors.Is(w.err, runtimes.ErrStaleEpoch)) {
			return nil, w.err
		}
	}
	return tried, nil
}

// provedBy returns why a change does not work: it failed on each worker that answers and has something to do. If it works on any worker, it
// works, and a worker on which it failed is mended by its start.
func provedBy(tried []onWorker) error {
	var failed []error
	for _, w := range tried {
		if w.done && w.err == nil {
			return nil
		}
		if !isContactLost(w.err) {
			failed = append(failed, w.err)
		}
	}
	return errors.Join(failed...)
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
	before = slices.DeleteFunc(slices.Clone(before), func(n node) bool {
		return c.rec.closing(nodeTarget(n.Name)) || !n.Registered()
	})
	err := c.env.poll(ctx, "nodes at "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
		nodes, err := c.nodes.list(ctx)
		if err != nil {
			return false, "", err
		}
		for _, was := range before {
			if n, ok := findNode(nodes, was.Name); (!ok || !n.Registered()) && c.reaches(ctx, was.Name) {
				return false, fmt.Sprintf("node %s was %s and is %s %s", was.Name, was.State, n.State, strings.Join(n.Flags, "+")), nil
			}
		}
		return true, "", nil
	})
	if err != nil {
		return err
	}
	return c.verifyOnWorkers(ctx, before)
}

// verifyOnWorkers waits until the workers of nodes have the new configuration.
func (c configFiles) verifyOnWorkers(ctx context.Context, nodes []node) error {
	show := cliOp(profile.WorkerConfLink+"/slurm.conf", c.env.timeouts.Call, "scontrol", "show", "config")
	tried, err := c.tryOnWorkers(ctx, func(wk site, m plan.Member) (done bool, err error) {
		if _, ok := findNode(nodes, m.Node); !ok {
			return false, nil
		}
		return true, c.env.poll(ctx, "configuration on "+m.Node, func(ctx context.Context) (bool, string, error) {
			res, err := wk.do(ctx, show)
			if err != nil {
				return false, "", err
			}
			return hashMatches(res[0]), "differs from the controller's, or is unreadable", nil
		})
	})
	if err == nil {
		err = provedBy(tried)
	}
	if err != nil {
		return err
	}
	for _, w := range tried {
		if w.err != nil { // its slurmd is started again later
			c.log.Warn("worker without the new configuration", "worker", w.name, "reason", w.err.Error())
		}
	}
	return nil
}

// rollBack restores the old files, and what runs with them.
func (c configFiles) rollBack(ctx context.Context, todo cluster.Steps) error {
	old, err := c.disk.appliedFiles() // with the FirstJob that a start within the change has raised
	if err != nil {
		return err
	}
	if err := c.doAll(ctx, writeOps(old)...); err != nil {
		return err
	}
	up, err := c.daemons.answers(ctx)
	if err != nil {
		return err
	}
	stopped := todo.Restart
	todo.Restart = todo.Restart || !up
	c.disk.journal = c.disk.journal.with(todo, c.rec.Nodes()) // a slurmd may have restarted with the new files
	if err := c.activate(ctx, todo, stopped); err != nil {
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

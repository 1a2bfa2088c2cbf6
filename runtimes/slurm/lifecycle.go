package slurm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema/usage"
)

// lifecycle applies the verbs of a plan to a unit. Each part has its own type and
// changes the record through the shared control.
type lifecycle struct {
	*control
	jobs         jobQueue
	nodes        nodeSet
	daemons      stackDaemons
	files        configFiles
	users        hostUsers
	associations associations
	workers      workerHosts
	backups      backups
	reservations reservations
}

func newLifecycle(c *control) lifecycle {
	l := lifecycle{control: c, jobs: jobQueue{c}, users: hostUsers{c}}
	l.nodes = nodeSet{c, l.jobs}
	l.daemons = stackDaemons{controlDaemons{c}, l.nodes}
	l.files = configFiles{c, l.daemons, l.nodes, partitionSet{c, l.jobs}}
	l.backups = backups{c, l.daemons}
	l.reservations = reservations{c}
	l.associations = associations{control: c, users: l.users, jobs: l.jobs}
	l.workers = workerHosts{c, l.nodes, l.users, hardware{c}}
	return l
}

// configure changes a complete control stack to the plan's unit. Users and accounts are
// added before the files, which name them, and removed after. Files that do not work are
// rolled back. A removal that waits for jobs holds up nothing else, and neither does a faulty
// worker: the rest is done and recorded, and only a configure that has nothing else to do waits.
func (c lifecycle) configure(ctx context.Context, after *plan.Unit) error {
	defer c.env.lock("cluster " + c.stack.Cluster)()
	if err := c.load(ctx); err != nil {
		return err
	}
	if err := c.workers.hardware.checkNewPrograms(ctx, after); err != nil {
		return err
	}
	if err := c.recordUsers(ctx, after.Effective.Users); err != nil {
		return err
	}
	c.rec.Detaching = cluster.Detached(&c.disk.Unit, c.disk.Detaching, after)
	c.rec.Unit = *after
	c.rec.follow(after)
	c.rec.Found = c.workers.hardware.shapes(ctx, &c.disk.Unit, nil)

	var waits waitList
	err := waits.unless(c.associations.add(ctx))
	if err == nil {
		var leaving waitList
		leaving, err = c.associations.detach(ctx)
		waits = append(waits, leaving...)
	}
	if err == nil {
		var leaving waitList
		leaving, err = c.files.replace(ctx)
		waits = append(waits, leaving...)
	}
	if isContactLost(err) || errors.Is(err, runtimes.ErrStaleEpoch) {
		return err
	}
	removed := c.associations.remove(ctx)
	if removed == nil && len(c.rec.Detaching) == 0 {
		c.rec.People = nil
	}
	if removed == nil && len(waits) == 0 {
		removed = c.associations.await(ctx)
	}
	if err = errors.Join(err, waits.unless(removed), waits.unless(c.daemons.updateUnits(ctx))); err != nil {
		reserved := c.reservations.reconcile(ctx)
		c.rec = c.disk // the record without the change that failed
		if upkeep := errors.Join(reserved, c.backups.makeDue(ctx)); upkeep != nil {
			return fmt.Errorf("%w; and %v", err, upkeep)
		}
		return err
	}
	idle := bytes.Equal(encode(c.disk.Unit), encode(c.rec.Unit))
	if err := c.save(ctx); err != nil {
		return err
	}
	of := len(waits)
	if err := waits.unless(asWaiting(errors.Join(c.checkVersions(ctx), c.reservations.reconcile(ctx),
		c.backups.makeDue(ctx)))); err != nil {
		return err
	}
	if idle || len(waits) > of {
		return waits.err()
	}
	return nil
}

// start starts a member of a complete unit.
func (c lifecycle) start(ctx context.Context, after *plan.Unit, a plan.Action) error {
	m, ok := after.Member(a.Member)
	if !ok {
		return fmt.Errorf("the plan has no member %q", a.Member)
	}
	if !m.ControlPlane {
		unlock := c.env.lock("cluster " + c.stack.Cluster)
		err := c.load(ctx)
		unlock()
		if err != nil {
			return err
		}
		return c.workers.start(ctx, m)
	}
	defer c.env.lock("cluster " + c.stack.Cluster)()
	if err := c.load(ctx); err != nil {
		return err
	}
	// Before slurmctld, which refuses a name that does not resolve for as long as it runs. A user
	// that cannot be made keeps no daemon down: configure reports it.
	if err := c.users.make(ctx, c.site, c.rec.users()); isContactLost(err) || errors.Is(err, runtimes.ErrStaleEpoch) {
		return err
	} else if err != nil {
		c.log.Warn("user account missing", "host", c.host.Name(), "reason", err.Error())
	}
	afterStop := c.rec.Stopped
	if afterStop {
		// First, because nodeSet.reconcile undoes drains of a stop only after it. The
		// start of each worker undoes the others.
		c.rec.Stopped = false
		if err := c.save(ctx); err != nil {
			return err
		}
	}
	return c.daemons.start(ctx, afterStop)
}

// stop ends running jobs as on_jobs says and then stops all daemons of the unit. It
// keeps state and queued jobs, and the database server, which other instances may
// use.
func (c lifecycle) stop(ctx context.Context) error {
	defer c.env.lock("cluster " + c.stack.Cluster)()
	if err := c.load(ctx); err != nil {
		return err
	}
	runs, err := c.mayHaveJobs(ctx)
	if err != nil {
		return err
	}
	if runs {
		c.ends = c.rec.UsageAbandoned
		down, err := c.drainCluster(ctx, drainStop)
		if err != nil {
			return err
		}
		// A deletion finds no slurmdbd that it could ask.
		if err := c.recordLastUsage(ctx, down); err != nil {
			return err
		}
		c.rec.Stopped = true
		if err := c.save(ctx); err != nil {
			return err
		}
	}
	stopErr := c.onEachWorker(func(m plan.Member) error {
		_, err := c.worker(m).do(ctx, c.service(profile.Slurmd, "stop"), c.service(profile.MungedWorker, "stop"))
		return err
	})
	if err := c.doAll(ctx, c.service(profile.Slurmctld, "stop"), c.service(profile.Slurmdbd, "stop"),
		c.service(profile.Munged, "stop")); err != nil {
		return err
	}
	return stopErr
}

// recordLastUsage records what all jobs used, unless accounting cannot be read and a person gave that usage up. down is why accounting
// is known not to serve; nil: it is asked.
func (c lifecycle) recordLastUsage(ctx context.Context, down error) error {
	ended, err := c.lastUsage(ctx, down)
	if c.givesUp(ctx, err) {
		c.log.Warn("usage abandoned", "cluster", c.stack.Cluster, "operation", plan.AbandonUsage, "reason", err.Error())
		return nil
	}
	if err == nil && len(ended) > 0 {
		err = c.keepUsage(ctx, ended)
	}
	if err == nil {
		err = c.daemons.endAbandonment(ctx)
	}
	return err
}

// lastUsage returns what all jobs used. Nothing repairs the daemons of a unit that is to stop, so accounting that does not run is
// started.
func (c lifecycle) lastUsage(ctx context.Context, down error) ([]usage.Job, error) {
	if down != nil {
		return nil, down
	}
	if _, err := c.daemons.bring(ctx, c.daemons.munged(), false); err != nil {
		return nil, err
	}
	_, down = c.daemons.bringAccounting(ctx)
	if err := cmp.Or(losses{c.control}.checkAccounting(ctx, down), down); err != nil {
		return nil, err
	}
	ended, err := jobRecords{c.control}.finalUsage(ctx, "")
	if c.rec.FirstJob == 0 || !errors.Is(err, runtimes.ErrWaiting) {
		return ended, err
	}
	// Jobs that slurmctld lost are ended once it runs with the new FirstJobId. It is written here, as
	// no configure of this unit follows.
	if err := c.files.write(ctx); err != nil {
		return nil, err
	}
	return jobRecords{c.control}.finalUsage(ctx, "")
}

// mayHaveJobs reports whether jobs of the unit have to end before its daemons. While slurmctld
// runs, jobs may have started since a stop that was taken back before it ended.
func (c lifecycle) mayHaveJobs(ctx context.Context) (bool, error) {
	if !c.rec.Complete || !c.rec.Stopped {
		return c.rec.Complete, nil
	}
	return c.runs(ctx, c.service(profile.Slurmctld, "state"))
}

// drainCluster drains all nodes and ends their jobs. It needs the controller, which
// alone knows the jobs. down is why accounting does not serve: it is lost, or its usage is given up.
func (c lifecycle) drainCluster(ctx context.Context, owner drainOwner) (down, err error) {
	if err := c.doAll(ctx, c.service(profile.Munged, "start")); err != nil {
		return nil, err
	}
	// A slurmctld that answers is enough, whatever configuration it runs.
	up, err := c.daemons.answers(ctx)
	if err == nil && !up {
		// If accounting alone is at fault, slurmctld serves without it.
		if err = c.daemons.start(ctx, false); errors.Is(err, errLost) || err != nil && c.rec.UsageAbandoned {
			if up, unknown := c.daemons.answers(ctx); up || unknown != nil {
				down, err = err, unknown
			}
		}
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range c.rec.Joined {
		names = append(names, m.Node)
	}
	if err := c.close(ctx, c.clusterTarget()); err != nil {
		return nil, err
	}
	if err := c.nodes.drain(ctx, owner.reason(c.stamp.ActionID), names...); err != nil {
		return nil, err
	}
	if err := c.jobs.end(ctx, c.clusterTarget(), jobFilter{}); err != nil {
		return nil, err
	}
	c.rec.reopen(c.clusterTarget())
	return down, nil
}

// remove removes jobs, whose usage is on berth/status then, workers, daemons, database, files, accounts, and the record
// last. It skips what is already gone.
func (c lifecycle) remove(ctx context.Context) error {
	defer c.env.lock("cluster " + c.stack.Cluster)()
	// interrupted after the removal of the record, or never made
	if err := c.load(ctx); errors.Is(err, errNoRecord) && !errors.Is(err, errDamaged) {
		return c.doAll(ctx, removeEmptyOp(profile.InstanceDir))
	} else if err != nil {
		return err
	}
	if !c.rec.Deleting {
		runs, err := c.mayHaveJobs(ctx)
		if err != nil {
			return err
		}
		if runs {
			// A lost state has no jobs to end, and lost accounting no usage to record: the deletion is the decision about it.
			c.ends = true
			if err := c.endAll(ctx); err != nil && !errors.Is(err, errLost) && !errors.Is(err, accounting.ErrNoCluster) {
				return err
			}
		}
		c.rec.Deleting = true
		if err := c.save(ctx); err != nil {
			return err
		}
	}
	if err := c.onEachWorker(func(m plan.Member) error { return c.workers.clean(ctx, c.worker(m)) }); err != nil {
		return err
	}
	if err := c.doAll(ctx, c.service(profile.Slurmctld, "clear"), c.service(profile.Slurmdbd, "clear")); err != nil {
		return err
	}
	return c.removeStack(ctx)
}

// endAll ends all jobs, and records their usage. If the accounting was lost, there is no usage to record: slurmctld has entered the
// cluster in the new database by then, which looks complete but lacks all earlier jobs.
func (c lifecycle) endAll(ctx context.Context) error {
	down, err := c.drainCluster(ctx, drainStop)
	if err != nil {
		return err
	}
	if err := c.jobs.cancelPending(ctx, jobFilter{}); err != nil {
		return err
	}
	return c.recordLastUsage(ctx, down)
}

// removeStack removes the unit from its control host, and with the last unit the
// database server.
func (c lifecycle) removeStack(ctx context.Context) error {
	defer c.env.lock("host " + c.host.Name())()
	others, err := c.file().others(ctx)
	if err != nil {
		return err
	}
	var ops []runtimes.Op
	if len(others) == 0 {
		ops = append(ops,
			c.service(profile.MariaDB, "clear"),
			removeTreeOp(profile.DatabaseDir), removeTreeOp(profile.DatabaseRunDir))
	} else {
		res, err := c.do(ctx, statOp(profile.DatabaseInstalled))
		if err != nil {
			return err
		}
		if res[0].Stats[0].Exists {
			if err := c.dropDatabase(ctx); err != nil {
				return err
			}
		}
	}
	if len(others) == 0 {
		if err := c.doAll(ctx, c.service(profile.MariaDB, "clear"), removeTreeOp(profile.DatabaseFiles)); err != nil {
			return err
		}
	}
	gone, err := c.users.unneeded(ctx, c.site, c.rec.people())
	if err != nil {
		return err
	}
	s := c.stack
	ops = append(ops, c.service(profile.Munged, "clear"),
		removeOp(s.Munge().Key()), removeOp(s.LogRotation()), removeTreeOp(s.Lib()), removeTreeOp(s.Log()),
		removeTreeOp(s.Backups()), removeEmptyOp(profile.BackupDir),
		removeTreeOp(s.Run()), removeTreeOp(s.Munge().Run()), removeOp(s.Munge().Log()), removeOp(s.Munge().Seed()))
	ops = append(append(ops, removeOps(s.ConfigFiles())...), removeEmptyOp(s.Etc()))
	if len(others) == 0 {
		ops = append(ops, removeSharedDirs()...)
	}
	ops = append(ops, userOps(gone, true)...) // without effect on accounts that Berth did not make
	return c.doAll(ctx, append(ops, removeOp(s.DamagedRecord()), removeOp(s.RecordCopy()), removeOp(s.Record()),
		removeEmptyOp(profile.InstanceDir))...)
}

// dropDatabase removes the database of the unit from a server that other units use. If a person gave up the usage, a server
// that does not start keeps it.
func (c lifecycle) dropDatabase(ctx context.Context) error {
	err := c.doAll(ctx, c.service(profile.MariaDB, "start"))
	if err == nil {
		err = databaseServer{c.control}.sql(ctx, c.stack.Database().DropSQL())
	}
	if c.givesUp(ctx, err) {
		c.log.Warn("database of a deleted cluster left in place", "cluster", c.stack.Cluster, "host", c.host.Name(), "reason", err.Error())
		return nil
	}
	return err
}

// givesUp returns true if a stop or deletion ignores an error of accounting, because an operation abandoned the usage. What comes by
// itself, such as the end of a job that accounting still lacks, is waited for all the same.
func (c lifecycle) givesUp(ctx context.Context, err error) bool {
	return err != nil && c.rec.UsageAbandoned && !isContactLost(err) && !errors.Is(err, runtimes.ErrStaleEpoch) &&
		!errors.Is(err, runtimes.ErrWaiting) && ctx.Err() == nil
}

// leave removes a worker: it drains the node, ends its jobs as on_jobs says, stops slurmd
// and cleans the host. The line of the node stays in slurm.conf until the next
// configure, so several workers leave with one change of the file.
// The on_jobs of the loan of a lent node counts, or that of after: a configure may apply it while
// the leave waits.
func (c lifecycle) leave(ctx context.Context, after *plan.Unit, a plan.Action) error {
	defer c.env.lock("cluster " + c.stack.Cluster)()
	if err := c.load(ctx); err != nil {
		return err
	}
	applied := c.rec.Unit.Effective.OnJobs
	c.rec.Unit.Effective.OnJobs = after.Effective.OnJobs
	m, ok := c.rec.joined(a.Member)
	if !ok {
		return nil // it has left
	}
	nodes, err := c.nodes.list(ctx)
	if err != nil {
		return err
	}
	wk := c.worker(m)
	if _, known := findNode(nodes, m.Node); known {
		if err := c.close(ctx, nodeTarget(m.Node)); err != nil {
			return err
		}
		if err := c.nodes.drain(ctx, drainLeave.reason(a.ID), m.Node); err != nil {
			return err
		}
		if err := c.jobs.endBy(ctx, cluster.OnJobs(m, &c.rec.Unit), nodeTarget(m.Node), only("--nodelist="+m.Node)); err != nil {
			return err
		}
		if !cluster.Stays(a.Verb, m.Node, after) {
			if err := c.jobs.cancelNaming(ctx, m.Node); err != nil {
				return err
			}
		}
	}
	if err := asWaiting(c.workers.clean(ctx, wk)); err != nil {
		return err
	}
	c.rec.dropJoined(m.Name)
	c.rec.Marked = maps.Clone(c.rec.Marked)
	delete(c.rec.Marked, m.Node)
	c.rec.reopen(nodeTarget(m.Node))
	c.rec.Unit.Effective.OnJobs = applied
	return c.save(ctx)
}

// checkVersions compares the installed versions of all hosts of the unit that can be
// reached.
func (c lifecycle) checkVersions(ctx context.Context) error {
	i := &c.rec.Unit.Effective
	err := c.checkVersion(ctx, i)
	return errors.Join(err, c.onWorkers(ctx, func(ctx context.Context, wk site, _ plan.Member) error {
		return wk.checkVersion(ctx, i)
	}))
}

package slurm

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/profile"
)

// start brings one member of a complete unit back.
func (c *control) start(ctx context.Context, after *plan.Unit, a plan.Action) error {
	m, ok := after.Member(a.Member)
	if !ok {
		return fmt.Errorf("the plan has no member %q", a.Member)
	}
	if !m.ControlPlane {
		if err := c.load(ctx); err != nil {
			return err
		}
		nodes, err := c.nodes(ctx)
		if err != nil {
			return err
		}
		return c.bringIn(ctx, m, nodes)
	}
	defer c.r.lock("cluster " + c.stack.Cluster)()
	if err := c.load(ctx); err != nil {
		return err
	}
	if err := c.makeUsers(ctx, c.site, c.rec.Unit.Instance.Users); err != nil {
		return err
	}
	if c.rec.Stopped {
		// First: what settles after the start takes drains of the stop back only
		// if it is over. The others go as each worker is started.
		c.rec.Stopped = false
		if err := c.save(ctx); err != nil {
			return err
		}
	}
	return c.bringUp(ctx)
}

// stop brings every daemon of the unit down and keeps its state: queued jobs
// wait, running ones are dealt with first. The database server stays, as it
// may be another instance's too.
func (c *control) stop(ctx context.Context) error {
	defer c.r.lock("cluster " + c.stack.Cluster)()
	if err := c.load(ctx); err != nil {
		return err
	}
	if c.rec.Complete && !c.rec.Stopped {
		if err := c.quiesce(ctx, drainStop); err != nil {
			return err
		}
		c.rec.Stopped = true
		if err := c.save(ctx); err != nil {
			return err
		}
	}
	var g errgroup.Group // one that fails must not cut another off half way
	for _, m := range c.rec.Joined {
		g.Go(func() error {
			_, err := c.worker(m).do(ctx, c.service(profile.Slurmd, "stop"), c.service(profile.MungedWorker, "stop"))
			return err
		})
	}
	away := g.Wait()
	if away != nil && !errors.Is(away, runtimes.ErrUnreachable) {
		return away
	}
	if _, err := c.do(ctx, c.service(profile.Slurmctld, "stop"), c.service(profile.Slurmdbd, "stop"), c.service(profile.Munged, "stop")); err != nil {
		return err
	}
	return away
}

// quiesce drains every node and sees to the jobs that run. The controller has
// to answer for that: without it nobody knows what runs.
func (c *control) quiesce(ctx context.Context, reason string) error {
	res, err := c.do(ctx, c.service(profile.Munged, "start"), c.cli("scontrol", "ping"))
	if err != nil {
		return err
	}
	// What answers will do, even if its files are not what it runs.
	if !pingUp(res[1].Data) {
		if err := c.bringUp(ctx); err != nil {
			return err
		}
	}
	var names []string
	for _, m := range c.rec.Joined {
		names = append(names, m.Node)
	}
	if err := c.close(ctx, c.clusterThing()); err != nil {
		return err
	}
	if err := c.drain(ctx, reason+short(c.stamp.ActionID), names...); err != nil {
		return err
	}
	if err := c.clearJobs(ctx, c.clusterThing()); err != nil {
		return err
	}
	c.rec.reopen(c.clusterThing())
	return nil
}

// remove takes the unit away: jobs, workers, daemons, database, files, people,
// and the record last. What is gone already is no error.
func (c *control) remove(ctx context.Context) error {
	defer c.r.lock("cluster " + c.stack.Cluster)()
	if err := c.load(ctx); errors.Is(err, errNoRecord) { // cut off after the record went, or never made
		_, err := c.do(ctx, removeEmptyOp(profile.InstanceDir))
		return err
	} else if err != nil {
		return err
	}
	if !c.rec.Deleting {
		if c.rec.Complete && !c.rec.Stopped {
			if err := c.quiesce(ctx, drainStop); err != nil {
				return err
			}
			if err := c.cancelPending(ctx); err != nil {
				return err
			}
		}
		c.rec.Deleting = true
		if err := c.save(ctx); err != nil {
			return err
		}
	}
	var g errgroup.Group
	for _, m := range c.rec.Joined {
		g.Go(func() error { return c.clean(ctx, c.worker(m)) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if _, err := c.do(ctx, c.service(profile.Slurmctld, "clear"), c.service(profile.Slurmdbd, "clear")); err != nil {
		return err
	}
	return c.removeStack(ctx)
}

// removeStack removes what the control host has of the unit. The database
// server goes with the last unit of the host.
func (c *control) removeStack(ctx context.Context) error {
	defer c.r.lock("host " + c.host.Name())()
	others, err := c.others(ctx)
	if err != nil {
		return err
	}
	var ops []runtimes.Op
	if len(others) == 0 {
		ops = append(ops,
			c.service(profile.MariaDB, "clear"),
			removeTreeOp(profile.DatabaseDir), removeTreeOp(profile.DatabaseRunDir))
	} else {
		res, err := c.do(ctx, runtimes.Op{Stat: &runtimes.Stat{Paths: []string{profile.DatabaseInstalled}}})
		if err != nil {
			return err
		}
		if res[0].Stats[0].Exists {
			if _, err := c.do(ctx, c.service(profile.MariaDB, "start")); err != nil {
				return err
			}
			if err := c.sql(ctx, c.stack.DropDatabaseSQL()); err != nil {
				return err
			}
		}
	}
	gone, err := c.unneeded(ctx, c.site, c.rec.people())
	if err != nil {
		return err
	}
	s := c.stack
	ops = append(ops, c.service(profile.Munged, "clear"),
		removeOp(s.MungeKey()), removeTreeOp(s.Lib()), removeTreeOp(s.Log()),
		removeTreeOp(s.Run()), removeTreeOp(s.MungeRun()), removeOp(s.MungeLog()), removeOp(s.MungeSeed()))
	ops = append(append(ops, removeOps(s.ConfigFiles())...), removeEmptyOp(s.Etc()))
	if len(others) == 0 {
		ops = append(ops, removeSharedDirs()...)
	}
	if set, err := parseSettings(c.rec.Unit.Instance.Config); err != nil {
		return err
	} else if set.Identity == identityManaged {
		ops = append(ops, userOps(gone, true)...)
	}
	return c.doAll(ctx, append(ops, removeOp(s.Record()), removeEmptyOp(profile.InstanceDir)))
}

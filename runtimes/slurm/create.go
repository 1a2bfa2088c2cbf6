package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

// create makes the control stack, from nothing or from an interrupted attempt. The
// order is database, slurmdbd, accounts, slurmctld. Accounts that are loaded while
// slurmctld starts may never reach it, and then it refuses every job. A slurmctld
// that starts without slurmdbd makes up a cluster id that slurmdbd later refuses.
func (c lifecycle) create(ctx context.Context, after *plan.Unit) error {
	claimed, conf, err := c.claim(ctx, after)
	if err != nil {
		return err
	}
	if !claimed {
		if err := c.load(ctx); err != nil {
			return err
		}
		return c.daemons.start(ctx, false)
	}
	c.rec.Found = c.workers.hardware.shapes(ctx, nil, cluster.NodeLines(conf))
	if err := c.writeStack(ctx); err != nil {
		return err
	}
	if err := (databaseServer{c.control}).make(ctx); err != nil {
		return err
	}
	want, err := c.rec.accounting()
	if err != nil {
		return err
	}
	if _, err := c.daemons.bring(ctx, c.daemons.slurmdbd(), false); err != nil {
		return err
	}
	ops := []runtimes.Op{c.sacctmgr("-i", "load", "file="+c.stack.Accounts())}
	// Partitions name QoS. Their limits follow, as slurmdbd knows GPUs only from slurmctld.
	if add := accounting.MissingQoS(want); len(add.Names) > 0 {
		ops = append(ops, c.sacctmgr(add.Args(c.stack.Cluster)...))
	}
	_, res, err := c.associations.read(ctx, ops...)
	if err != nil && len(res) > 0 {
		err = fmt.Errorf("after sacctmgr load: %w; its output: %s", err, strings.TrimSpace(string(res[0].Data)+string(res[0].Stderr)))
	}
	if err != nil {
		return err
	}
	if _, err := c.daemons.bring(ctx, c.daemons.slurmctld(), false); err != nil {
		return err
	}
	if err := c.associations.settleNow(ctx); err != nil {
		return err
	}
	if err := c.daemons.writeState(ctx); err != nil {
		return err
	}
	if err := c.daemons.verifyConfig(ctx); err != nil {
		return err
	}
	c.rec.Complete, c.rec.Files, c.rec.BackedUp = true, c.rec.input(), c.env.now().UTC().Truncate(time.Second)
	if err := c.save(ctx); err != nil {
		return err
	}
	return c.reservations.reconcile(ctx) // last, as nothing else depends on them
}

// claim writes the record of a unit that is not complete, with new ports or those
// it already has. It returns false if the unit is complete. conf is slurm.conf on the host; nil: it has none.
func (c lifecycle) claim(ctx context.Context, after *plan.Unit) (claimed bool, conf []byte, err error) {
	defer c.env.lock("host " + c.host.Name())()
	res, err := c.do(ctx, append([]runtimes.Op{{Info: &runtimes.Info{}}}, c.file().readOps()...)...)
	if err != nil {
		return false, nil, err
	}
	before, err := c.do(ctx, readOp(c.stack.Conf()))
	if err != nil && !isRefused(err) { // the preflight reports a foreign file
		return false, nil, err
	}
	if err == nil {
		conf = before[0].Data
	}
	var aside []runtimes.Op
	switch err := c.openRecord(ctx, res[1], res[2]); {
	case err == nil && c.rec.Complete && !c.rec.Deleting:
		return false, nil, nil
	case errors.Is(err, errNoRecord):
		aside = c.file().putAside(res[1])
		if err := c.checkEarlier(conf, after); err != nil {
			return false, nil, err
		}
		p, ok := portsOf(conf)
		if !ok {
			others, err := c.file().others(ctx)
			if err != nil {
				return false, nil, err
			}
			if p, err = choosePorts(c.stack.Cluster, others); err != nil {
				return false, nil, fmt.Errorf("host %s: %w", c.host.Name(), err)
			}
		}
		c.rec = record{Format: recordFormat, Cluster: c.stack.Cluster, Ports: p}
	case err != nil:
		return false, nil, err
	}
	// Before any write, and again after an interrupted attempt.
	if err := c.checkVersion(ctx, &after.Effective); err != nil {
		return false, nil, err
	}
	st := c.stack
	paths := append(st.ConfigFiles(), st.Record(), st.Etc(), st.Munge().Key(), st.Lib(), st.Log(), st.LogRotation(), profile.DatabaseDir)
	if err := c.doAll(ctx, c.preflightOp(controlServices(), paths...)); err != nil {
		return false, nil, err
	}
	c.rec.Unit, c.rec.Hostname, c.rec.Stopped = *after, shortName(res[0].Info.Hostname), false
	ops := append([]runtimes.Op{dirOp(profile.InstanceDir, 0o755, "")}, aside...)
	if c.rec.Deleting {
		// The database may be gone, and slurmctld does not start with its old state
		// and a new database.
		ops = append(ops, c.service(profile.Slurmctld, "stop"), removeTreeOp(c.stack.State()))
		c.rec.Deleting, c.rec.Complete = false, false
		c.rec.journal, c.rec.Files = journal{}, nil
	}
	if _, err = c.do(ctx, append(ops, c.file().write(&c.rec)...)...); err == nil {
		c.disk = c.rec
	}
	return true, conf, err
}

// checkEarlier returns an error if slurm.conf has a node or a partition that the unit no longer declares. Only the lost
// record said how the jobs there end.
func (c lifecycle) checkEarlier(conf []byte, after *plan.Unit) error {
	set, err := cluster.Parse(after.Effective.Config)
	if err != nil {
		return err
	}
	gone := func(what, name string) error {
		return runtimes.NeedsPerson(fmt.Errorf("host %s: the record %s is gone, and %s has the %s %s, which %s no longer declares: "+
			"declare it again, and remove it once the record is made again",
			c.host.Name(), c.stack.Record(), c.stack.Conf(), what, name, c.key))
	}
	for node := range cluster.NodeLines(conf) {
		if !slices.ContainsFunc(after.Members, func(m plan.Member) bool { return m.Node == node }) {
			return gone("node", node)
		}
	}
	for _, p := range cluster.ParseConf(conf).Partitions() {
		if !slices.Contains(cluster.PartitionNames(set.Partitions), p) {
			return gone("partition", p)
		}
	}
	return nil
}

// writeStack makes directories, key, accounts and files, and starts munged. It stops
// a slurmctld of an interrupted attempt, which must not run when accounts are
// loaded.
func (c lifecycle) writeStack(ctx context.Context) error {
	rendered, err := files(&c.rec)
	if err != nil {
		return err
	}
	if err := c.users.make(ctx, c.site, c.rec.users()); err != nil {
		return err
	}
	s := c.stack
	ops := slices.Concat([]runtimes.Op{c.service(profile.Slurmctld, "stop")}, c.file().write(&c.rec), makeSharedDirs())
	ops = append(ops,
		dirOp(s.Etc(), 0o755, ""),
		ownDirOp(s.Lib(), 0o755, profile.SlurmUser),
		ownDirOp(s.State(), 0o700, profile.SlurmUser),
		ownDirOp(s.Log(), 0o755, profile.SlurmUser),
		makeKey(s))
	ops = append(ops, writeOps(rendered)...)
	ops = append(ops, c.service(profile.Munged, "start"))
	if err := c.doAll(ctx, ops...); err != nil {
		return err
	}
	key, err := c.do(ctx, statOp(s.Munge().Key()))
	if err == nil {
		c.rec.MungeKey = key[0].Stats[0].SHA256
	}
	return err
}

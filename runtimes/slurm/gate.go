package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/profile"
)

// openGate brings about what slurmctld needs before it starts: accounting that has what its files name, and an id for the
// next job that no job has. down is why accounting does not serve; nil: it does.
func (c stackDaemons) openGate(ctx context.Context, down error, afterStop bool) error {
	if err := c.checkState(ctx); err != nil {
		return err
	}
	if err := c.addPending(ctx, owed{Settle: true}); err != nil {
		return err
	}
	switch {
	case down == nil:
		if err := c.restoreAccounting(ctx); err != nil {
			return err
		}
	default:
		// slurmctld takes associations and limits from its last state, and keeps the records of jobs for later.
		saved, err := c.do(ctx, statOp(c.stack.SavedAssociations()))
		if isContactLost(err) {
			return err
		}
		if err != nil || !saved[0].Stats[0].Exists {
			return down
		}
		c.log.Warn("slurmctld starts without accounting", "cluster", c.stack.Cluster, "reason", down.Error())
	}
	if afterStop {
		return nil
	}
	return c.raiseFirstJob(ctx, down == nil)
}

// accept is how a person decides about a loss.
const accept = "put its backup back, or accept the loss with the operation accept_loss"

// checkState refuses to start slurmctld over a state that is gone: it would begin with no job, and end those that run.
func (c stackDaemons) checkState(ctx context.Context) error {
	if c.rec.Anew {
		return nil
	}
	res, err := c.do(ctx, statOp(c.stack.StateMark()))
	if isRefused(err) {
		return nil // by a berth-host of an earlier release
	}
	if err != nil || res[0].Stats[0].Exists {
		return err
	}
	return fmt.Errorf("host %s: slurmctld has lost its state, with all jobs that were queued or running: %s is not there; %s", c.host.Name(), c.stack.StateMark(), accept)
}

// beginAnew makes what is gone of the state and of accounting, empty.
func (c stackDaemons) beginAnew(ctx context.Context) error {
	c.rec.Anew, c.disk.Anew = true, true // until slurmctld serves
	if err := c.saveDisk(ctx); err != nil {
		return err
	}
	if err := c.doAll(ctx, ownDirOp(c.stack.Lib(), 0o755, profile.SlurmUser), ownDirOp(c.stack.State(), 0o700, profile.SlurmUser)); err != nil {
		return err
	}
	if err := c.startMunged(ctx); err != nil {
		return err
	}
	if err := c.makeDatabase(ctx); err != nil {
		return err
	}
	if _, err := c.startAccounting(ctx); err != nil {
		return err
	}
	if _, _, err := (associations{control: c.control}).read(ctx); !errors.Is(err, accounting.ErrNoCluster) {
		return err
	}
	list, err := files(&c.rec)
	if err != nil {
		return err
	}
	_, _, err = (associations{control: c.control}).read(ctx,
		writeOp(c.stack.Accounts(), list[c.stack.Accounts()]), c.sacctmgr("-i", "load", "file="+c.stack.Accounts()))
	return err
}

// restoreAccounting adds the QoS and accounts that slurmdbd lacks: slurmctld ends at once if a partition names a QoS that
// is missing. Users follow with a configure. A slurmdbd that adds nothing has something else in its memory than in its
// database, such as after a restore, and is restarted once.
func (c stackDaemons) restoreAccounting(ctx context.Context) error {
	of := associations{control: c.control}
	missing, err := of.addMissing(ctx)
	if errors.Is(err, accounting.ErrNoCluster) && !c.rec.Anew {
		return fmt.Errorf("host %s: accounting of the cluster %s is lost: %w; %s", c.host.Name(), c.stack.Cluster, err, accept)
	}
	if err != nil || len(missing) == 0 {
		return err
	}
	if err := c.restartSlurmdbd(ctx); err != nil {
		return err
	}
	if missing, err = of.addMissing(ctx); err == nil && len(missing) > 0 {
		err = fmt.Errorf("host %s: sacctmgr did not change this: %s", c.host.Name(), missing[0])
	}
	return err
}

func (c stackDaemons) restartSlurmdbd(ctx context.Context) error {
	c.log.Warn("slurmdbd restarted, as it does not list what it says that it added", "host", c.host.Name(), "cluster", c.stack.Cluster)
	if err := c.doAll(ctx, c.service(profile.Slurmdbd, "restart"), c.waitSlurmdbd()); err != nil {
		return err
	}
	return c.awaitDatabase(ctx)
}

// addMissing adds the QoS and accounts that slurmdbd lacks, and returns those that it still lacks.
func (c associations) addMissing(ctx context.Context) ([]accounting.Change, error) {
	want, err := c.rec.accounting()
	if err != nil {
		return nil, err
	}
	missing := func() ([]accounting.Change, error) {
		have, _, err := c.read(ctx)
		return slices.DeleteFunc(accounting.Diff(have, want), func(ch accounting.Change) bool {
			return ch.Verb != accounting.Add || ch.Kind != accounting.OfQoS && ch.Kind != accounting.OfAccount
		}), err
	}
	lacks, err := missing()
	if err != nil || len(lacks) == 0 {
		return nil, err
	}
	if _, _, err := c.call(ctx, lacks); err != nil {
		return nil, err
	}
	return missing()
}

// jobMargin is how far the id of the first job after a crash is above each known one. slurmctld saves its state every
// 5 s, slurmdbd gets records late, and an observation is seconds old: all may lack the last ids that were given.
const jobMargin = 1000

// raiseFirstJob sets FirstJobId above each id that a job may have: after a crash, slurmctld would give the ids of the
// last seconds again, and a slurmd that has the first of two such jobs drains its node. counts: accounting answers.
func (c stackDaemons) raiseFirstJob(ctx context.Context, counts bool) error {
	highest := max(c.env.lastJobs.of(c.stack.Cluster), c.rec.FirstJob)
	if counts {
		recorded, err := c.recordedJob(ctx)
		if err != nil {
			return err
		}
		highest = max(highest, recorded)
	}
	first := highest + jobMargin
	c.rec.FirstJob, c.disk.FirstJob = first, first
	pending := c.disk.Owed.or(owed{Reconfigure: true}) // for the nodes that run already
	c.rec.Owed, c.disk.Owed = pending, pending
	if err := c.saveDisk(ctx); err != nil {
		return err
	}
	applied, err := c.disk.appliedFiles()
	if err != nil {
		return err
	}
	return c.doAll(ctx, writeOp(c.stack.Conf(), applied[c.stack.Conf()]))
}

// recordedJob returns the highest id of a job in the accounting database; 0: it has none.
func (c stackDaemons) recordedJob(ctx context.Context) (int, error) {
	op := askMariaDB()
	op.Run.Stdin = []byte(c.stack.LastJobSQL())
	res, err := c.runChecked(ctx, op)
	if err != nil {
		return 0, err
	}
	text := strings.TrimSpace(string(res.Data))
	id, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("host %s: the highest id of a job in the database %s is %q", c.host.Name(), c.stack.Database(), text)
	}
	return id, nil
}

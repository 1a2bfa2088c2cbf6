package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"berth/runtimes"
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
		if isRefused(err) || err == nil && !saved[0].Stats[0].Exists {
			return down
		}
		if err != nil {
			return err
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

// errLost: the state of slurmctld is gone.
var errLost = errors.New("slurmctld has lost its state")

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
	return fmt.Errorf("host %s: %w, with all jobs that were queued or running: %s is not there; %s", c.host.Name(), errLost, c.stack.StateMark(), accept)
}

// beginAnew makes what is gone of the state and of accounting, empty. What is there stays.
func (c stackDaemons) beginAnew(ctx context.Context) error {
	if err := c.startMunged(ctx); err != nil {
		return err
	}
	if err := c.anewAccounting(ctx); err != nil {
		return err
	}
	res, err := c.do(ctx, statOp(c.stack.StateMark()))
	if err != nil || res[0].Stats[0].Exists {
		return err
	}
	c.rec.Anew, c.disk.Anew = true, true // until slurmctld serves
	if err := c.saveDisk(ctx); err != nil {
		return err
	}
	return c.doAll(ctx, ownDirOp(c.stack.Lib(), 0o755, profile.SlurmUser), ownDirOp(c.stack.State(), 0o700, profile.SlurmUser))
}

// anewAccounting makes the accounting of the cluster if it is gone.
func (c stackDaemons) anewAccounting(ctx context.Context) error {
	res, err := c.do(ctx, statOp(profile.DatabaseData))
	if err != nil {
		return err
	}
	_, down := c.startAccounting(ctx)
	if isContactLost(down) || errors.Is(down, runtimes.ErrStaleEpoch) || ctx.Err() != nil {
		return down
	}
	of := associations{control: c.control}
	if down == nil {
		if _, _, err = of.read(ctx); !errors.Is(err, accounting.ErrNoCluster) {
			return err
		}
	} else if !res[0].Stats[0].Exists || c.lacksDatabase(ctx) { // else its server is to be repaired
		if err := c.makeDatabase(ctx); err != nil {
			return err
		}
		if _, err := c.startAccounting(ctx); err != nil {
			return err
		}
	} else {
		return down
	}
	list, err := files(&c.rec)
	if err != nil {
		return err
	}
	_, _, err = of.read(ctx, writeOp(c.stack.Accounts(), list[c.stack.Accounts()]), c.sacctmgr("-i", "load", "file="+c.stack.Accounts()))
	return err
}

// lacksDatabase reports whether the database server runs without the database of the cluster, from which slurmdbd then
// ends.
func (c stackDaemons) lacksDatabase(ctx context.Context) bool {
	op := askMariaDB()
	op.Run.Stdin = []byte(c.stack.LastJobSQL())
	res, err := c.do(ctx, op)
	return err == nil && res[0].Exit != 0 && strings.Contains(string(res[0].Stderr), "ERROR 1049")
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
	c.log.Warn("slurmdbd restarted: it did not keep what sacctmgr added", "host", c.host.Name(), "cluster", c.stack.Cluster)
	if err := c.doAll(ctx, c.service(profile.Slurmdbd, "restart"), c.waitSlurmdbd()); err != nil {
		return err
	}
	return c.awaitDatabase(ctx)
}

// addMissing adds the QoS and accounts that slurmdbd lacks, and returns those that it still lacks.
func (c associations) addMissing(ctx context.Context) ([]accounting.Change, error) {
	want, err := c.rec.accounting()
	if err != nil {
		c.log.Warn("accounting not checked", "host", c.host.Name(), "reason", err.Error())
		return nil, nil // a configure reports it
	}
	missing := func() ([]accounting.Change, error) {
		have, _, err := c.read(ctx)
		lacks := slices.DeleteFunc(accounting.Diff(have, want), func(ch accounting.Change) bool {
			return ch.Verb != accounting.Add || ch.Kind != accounting.OfQoS && ch.Kind != accounting.OfAccount
		})
		for i := range lacks {
			lacks[i].Set = nil // a new slurmdbd knows GPUs only from slurmctld: limits follow with a configure
		}
		return lacks, err
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

// maxFirstJob is half of the highest id that slurmctld gives by default (MaxJobId). Above, ids may have begun again.
const maxFirstJob = 0x3ff0000 / 2

// raiseFirstJob sets FirstJobId above each id that a job may have: after a crash, slurmctld would give the ids of the
// last seconds again, and a slurmd that has the first of two such jobs drains its node. answers: accounting does.
func (c stackDaemons) raiseFirstJob(ctx context.Context, answers bool) error {
	highest := c.env.lastJobs.of(c.stack.Cluster)
	if !c.disk.Raised { // it has served since the last raise, and may have given ids
		highest = max(highest, c.rec.FirstJob)
	}
	if answers {
		recorded, err := c.recordedJob(ctx)
		if err != nil && !isRefused(err) { // by a berth-host of an earlier release
			return err
		}
		highest = max(highest, recorded)
	}
	first := max(highest+jobMargin, c.rec.FirstJob)
	if first > maxFirstJob {
		return nil
	}
	c.rec.FirstJob, c.disk.FirstJob = first, first
	c.rec.Raised, c.disk.Raised = true, true
	pending := c.disk.Owed.or(owed{Reconfigure: true}) // for the nodes that run already
	c.rec.Owed, c.disk.Owed = pending, pending
	if err := c.saveDisk(ctx); err != nil {
		return err
	}
	applied, err := c.disk.appliedFiles()
	if err != nil {
		return nil // a configure says why they cannot be rendered
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

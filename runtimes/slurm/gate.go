package slurm

import (
	"context"
	"errors"
	"slices"

	"berth/runtimes"
	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/cluster"
)

// gate is what a start of a slurmctld that does not run has to pass, other than its first one.
type gate struct {
	*control
	// accounting brings accounting, if the gate opens; nil: down is known already.
	accounting func(context.Context) error
	down       error // why accounting does not serve; nil: it does
	afterStop  bool  // slurmctld ended by a stop of Berth's
}

// open prepares a start of slurmctld: it checks the state, adds what the files name to accounting, and sets an id for the next job that
// no job has.
func (c *gate) open(ctx context.Context) error {
	if c.accounting != nil {
		if c.down = c.accounting(ctx); isContactLost(c.down) || errors.Is(c.down, runtimes.ErrStaleEpoch) || ctx.Err() != nil {
			return c.down
		}
	}
	if err := (losses{c.control}).checkState(ctx); err != nil {
		return err
	}
	if err := c.addPending(ctx, cluster.Steps{Settle: true}); err != nil {
		return err
	}
	if c.down == nil {
		if err := c.restoreAccounting(ctx); err != nil {
			return err
		}
	} else {
		// slurmctld takes associations and limits from its last state, and keeps the records of jobs for later.
		saved, err := c.do(ctx, statOp(c.stack.SavedAssociations()))
		if err != nil {
			return err
		}
		if !saved[0].Stats[0].Exists {
			return c.down
		}
		c.log.Warn("slurmctld starts without accounting", "cluster", c.stack.Cluster, "reason", c.down.Error())
	}
	if c.afterStop {
		return nil
	}
	return c.raiseFirstJob(ctx)
}

// endStart finishes a start of slurmctld that serves: it clears Anew and Raised in the record, and ends the jobs that a crash lost. A
// slurmctld that requires its state is restarted to write it: if it were killed before, it would have none.
func (c *gate) endStart(ctx context.Context) error {
	anew, crashed := c.disk.Anew, c.disk.Raised
	if !anew && !crashed {
		return nil
	}
	if anew {
		if err := (controlDaemons{c.control}).writeState(ctx); err != nil {
			return err
		}
	}
	c.rec.Anew, c.disk.Anew, c.rec.Raised, c.disk.Raised = false, false, false, false
	if err := c.saveDisk(ctx); err != nil || !crashed || c.down != nil {
		return err
	}
	(jobRecords{c.control}).endLost(ctx)
	return nil
}

// restoreAccounting adds the QoS and accounts that slurmdbd lacks: slurmctld ends at once if a partition names a QoS that
// is missing. Users and limits follow with a configure: a new slurmdbd knows GPUs only from slurmctld.
func (c *gate) restoreAccounting(ctx context.Context) error {
	of := associations{control: c.control}
	want, err := c.rec.accounting()
	if err != nil {
		c.log.Warn("accounting not checked", "host", c.host.Name(), "reason", err.Error())
		return nil // a configure reports it
	}
	have, _, err := of.read(ctx)
	if err != nil {
		return err
	}
	return of.apply(ctx, have, func(have accounting.Tree) []accounting.Change {
		lacks := slices.DeleteFunc(accounting.Diff(have, want), func(ch accounting.Change) bool {
			return ch.Verb != accounting.Add || ch.Kind != accounting.OfQoS && ch.Kind != accounting.OfAccount
		})
		for i := range lacks {
			lacks[i].Set = nil
		}
		return lacks
	})
}

// jobMargin is how far the id of the first job after a crash is above each known one. slurmctld saves its state every
// 5 s, slurmdbd gets records late, and an observation is seconds old: all may lack the last ids that were given.
const jobMargin = 1000

// maxFirstJob is half of the highest id that slurmctld gives by default (MaxJobId). Above, ids may have begun again.
const maxFirstJob = 0x3ff0000 / 2

// raiseFirstJob sets FirstJobId above each id that a job may have: after a crash, slurmctld would give the ids of the
// last seconds again, and a slurmd that has the first of two such jobs drains its node.
func (c *gate) raiseFirstJob(ctx context.Context) error {
	highest := c.env.lastJobs.of(c.stack.Cluster)
	if !c.disk.Raised { // it has served since the last raise, and may have given ids
		highest = max(highest, c.rec.FirstJob)
	}
	if c.down == nil {
		recorded, err := databaseServer{c.control}.recordedJob(ctx)
		if err != nil {
			return err
		}
		highest = max(highest, recorded)
	}
	first := max(highest+jobMargin, c.rec.FirstJob)
	if first > maxFirstJob {
		return nil
	}
	return c.writeFirstJob(ctx, first)
}

// writeFirstJob records the id of the next job and writes it into the slurm.conf that the host has: that of the last change, or that of
// an unfinished one, in whose partitions jobs may run already.
func (c *gate) writeFirstJob(ctx context.Context, first int) error {
	res, err := c.do(ctx, statOp(c.stack.Conf()))
	if err != nil {
		return err
	}
	input := c.disk.rendering(c.disk.Files).input()
	pending := c.disk.journal.with(cluster.Steps{Reconfigure: true}, nil) // for the nodes that run already
	inFile := input
	if begun := pending.Writing; begun != nil {
		next, err := files(c.disk.rendering(begun))
		raised := *begun
		raised.FirstJob = first
		if pending.Writing = &raised; err == nil && digest(next[c.stack.Conf()].Data) == res[0].Stats[0].SHA256 {
			inFile = &raised
		}
	}
	input.FirstJob = first
	c.rec.FirstJob, c.rec.Raised, c.rec.journal, c.rec.Files = first, true, pending, input
	c.disk.FirstJob, c.disk.Raised, c.disk.journal, c.disk.Files = first, true, pending, input
	if err := c.saveDisk(ctx); err != nil {
		return err
	}
	raised, err := files(c.disk.rendering(inFile))
	if err != nil {
		return nil // a configure says why they cannot be rendered
	}
	return c.doAll(ctx, writeOp(c.stack.Conf(), raised[c.stack.Conf()]))
}

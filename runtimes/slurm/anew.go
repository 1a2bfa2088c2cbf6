package slurm

import (
	"context"
	"errors"

	"berth/runtimes"
	"berth/runtimes/slurm/profile"
)

// beginAnew replaces a lost state and lost accounting by empty ones. It keeps a state or accounting that exists.
func (c stackDaemons) beginAnew(ctx context.Context) error {
	if _, err := c.bring(ctx, c.munged(), false); err != nil {
		return err
	}
	_, down := c.bringAccounting(ctx)
	if isContactLost(down) || errors.Is(down, runtimes.ErrStaleEpoch) || ctx.Err() != nil {
		return down
	}
	gone, err := losses{c.control}.lostAccounting(ctx, down)
	if err != nil {
		return err
	}
	if gone == nil && down != nil {
		return down // to be repaired
	}
	res, err := c.do(ctx, statOp(c.stack.StateMark()))
	if err != nil || gone == nil && res[0].Stats[0].Exists {
		return err
	}
	if gone != nil && down != nil {
		if err := (databaseServer{c.control}).make(ctx); err != nil {
			return err
		}
		if _, err := c.bringAccounting(ctx); err != nil {
			return err
		}
	}
	c.rec.Anew, c.disk.Anew = true, true // until slurmctld serves
	if err := c.saveDisk(ctx); err != nil {
		return err
	}
	ops := []runtimes.Op{ownDirOp(c.stack.Lib(), 0o755, profile.SlurmUser), ownDirOp(c.stack.State(), 0o700, profile.SlurmUser)}
	if gone == nil {
		return c.doAll(ctx, ops...)
	}
	list, err := files(&c.rec)
	if err != nil {
		return err
	}
	// New accounting has a new id of the cluster. slurmctld 24.11 refuses it while its state has the old one.
	ops = append(ops, c.service(profile.Slurmctld, "stop"), removeOp(c.stack.StateMark()),
		writeOp(c.stack.Accounts(), list[c.stack.Accounts()]), c.sacctmgr("-i", "load", "file="+c.stack.Accounts()))
	_, _, err = (associations{control: c.control}).read(ctx, ops...)
	return err
}

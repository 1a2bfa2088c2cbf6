package slurm

import (
	"context"
	"errors"
	"fmt"

	"berth/runtimes"
	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/profile"
)

// accept is how a person decides about a loss.
const accept = "put its backup back, or accept the loss with the operation accept_loss"

// errLost: the state of slurmctld or the accounting of the cluster is gone.
var errLost = errors.New("lost")

// checkState refuses to start slurmctld without its state: slurmctld would know no job, and end those that run.
func (c stackDaemons) checkState(ctx context.Context) error {
	if c.rec.Anew {
		return nil
	}
	res, err := c.do(ctx, statOp(c.stack.StateMark()))
	if err != nil || res[0].Stats[0].Exists {
		return err
	}
	return fmt.Errorf("host %s: slurmctld has %w its state, with all jobs that were queued or running: %s is not there; %s", c.host.Name(),
		errLost, c.stack.StateMark(), accept)
}

// checkAccounting returns an error if the accounting is lost: slurmctld would keep an id of the cluster that new accounting
// does not accept.
func (c stackDaemons) checkAccounting(ctx context.Context, down error) error {
	gone, err := c.lostAccounting(ctx, down)
	if err != nil || gone == nil || c.rec.Anew {
		return err
	}
	return fmt.Errorf("host %s: accounting of the cluster %s is %w: %w; %s", c.host.Name(), c.stack.Cluster, errLost, gone, accept)
}

// lostAccounting returns how the accounting of the cluster was lost; nil: it exists, or the database server does not
// answer. If the database does not exist, slurmdbd 22.05 makes one without the cluster, and slurmdbd 24.11 ends.
func (c stackDaemons) lostAccounting(ctx context.Context, down error) (gone, err error) {
	if down == nil {
		if _, _, err = (associations{control: c.control}).read(ctx); errors.Is(err, accounting.ErrNoCluster) {
			return err, nil
		}
		return nil, err
	}
	res, err := c.do(ctx, statOp(profile.DatabaseData))
	if err != nil {
		return nil, err
	}
	if !res[0].Stats[0].Exists {
		return fmt.Errorf("%s is not there", profile.DatabaseData), nil
	}
	if _, err := c.recordedJob(ctx); errors.Is(err, errNoDatabase) {
		return err, nil
	}
	return nil, nil
}

// beginAnew replaces a lost state and lost accounting by empty ones. It keeps a state or accounting that exists.
func (c stackDaemons) beginAnew(ctx context.Context) error {
	if _, err := c.bring(ctx, c.munged(), false); err != nil {
		return err
	}
	_, down := c.bringAccounting(ctx)
	if isContactLost(down) || errors.Is(down, runtimes.ErrStaleEpoch) || ctx.Err() != nil {
		return down
	}
	gone, err := c.lostAccounting(ctx, down)
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
		if err := c.makeDatabase(ctx); err != nil {
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

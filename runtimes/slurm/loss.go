package slurm

import (
	"context"
	"errors"
	"fmt"

	"berth/runtimes/slurm/accounting"
	"berth/runtimes/slurm/profile"
)

// accept is how a person decides about a loss.
const accept = "put its backup back, or accept the loss with the operation accept_loss"

// errLost: the state of slurmctld or the accounting of the cluster is gone.
var errLost = errors.New("lost")

// losses tells whether a cluster has lost its state or its accounting.
type losses struct{ *control }

// checkState refuses to start slurmctld without its state: slurmctld would know no job, and end those that run.
func (c losses) checkState(ctx context.Context) error {
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
func (c losses) checkAccounting(ctx context.Context, down error) error {
	gone, err := c.lostAccounting(ctx, down)
	if err != nil || gone == nil || c.rec.Anew {
		return err
	}
	return fmt.Errorf("host %s: accounting of the cluster %s is %w: %w; %s", c.host.Name(), c.stack.Cluster, errLost, gone, accept)
}

// lostAccounting returns how the accounting of the cluster was lost; nil: it exists, or the database server does not
// answer. If the database does not exist, slurmdbd 22.05 makes one without the cluster, and slurmdbd 24.11 ends.
func (c losses) lostAccounting(ctx context.Context, down error) (gone, err error) {
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
	if _, err := databaseServer(c).recordedJob(ctx); errors.Is(err, errNoDatabase) {
		return err, nil
	}
	return nil, nil
}

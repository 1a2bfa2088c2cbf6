package slurm

import (
	"context"

	"berth/runtimes/slurm/profile"
)

// bring makes a daemon serve: it stops one that hangs, starts one that does not run, and waits until it serves. restart: if it runs, it
// restarts, as its files have changed. began: its process is new.
func (c controlDaemons) bring(ctx context.Context, d daemon, restart bool) (began bool, err error) {
	var runs bool
	if restart || d.answered {
		runs, err = d.runs(ctx, d.op("state"))
	} else {
		runs, err = hungDaemons(c).stop(ctx, d)
	}
	if err == nil && !runs && d.gate != nil {
		err = d.gate(ctx)
	}
	if err != nil {
		return false, err
	}
	if !runs || restart {
		verb := "start"
		if runs {
			verb = "restart"
		}
		res, err := d.do(ctx, d.op(verb))
		if err != nil {
			return false, err
		}
		began = res[0].Changed
	}
	if d.ready == nil {
		return began, nil
	}
	return began, d.ready(ctx)
}

// munged returns that daemon of the control stack.
func (c controlDaemons) munged() daemon {
	return c.daemon(profile.Munged, askMunged(c.stack.Munge().Socket()), nil)
}

// database returns the database server of the control host. It serves once it knows the user of slurmdbd.
func (c controlDaemons) database() daemon {
	return c.daemon(profile.MariaDB, askMariaDB(), func(ctx context.Context) error {
		return databaseServer(c).sql(ctx, c.stack.Database().GrantSQL())
	})
}

// slurmdbd returns that daemon of the control stack.
func (c controlDaemons) slurmdbd() daemon {
	return c.daemon(profile.Slurmdbd, askSlurmdbd(c.control), c.awaitSlurmdbd)
}

// slurmctld returns that daemon of the control stack.
func (c controlDaemons) slurmctld() daemon {
	return c.daemon(profile.Slurmctld, c.cli("scontrol", "ping"), c.awaitSlurmctld)
}

// writeState restarts a new slurmctld that requires its state, which it writes at its end.
func (c controlDaemons) writeState(ctx context.Context) error {
	if !c.rec.version().RequiresState() {
		return nil
	}
	_, err := c.bring(ctx, c.slurmctld(), true)
	return err
}

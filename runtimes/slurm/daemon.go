package slurm

import (
	"context"

	"berth/runtimes"
	"berth/runtimes/slurm/profile"
)

// daemon is a daemon of a cluster: how it is started and asked, and what has to hold before and after its start.
type daemon struct {
	site
	name  string                        // in the record, the log and errors
	log   string                        // directory of its log
	op    func(verb string) runtimes.Op // on its service
	probe runtimes.Op                   // a call that needs an answer of the daemon
	gate  func(context.Context) error   // precedes a start of one that does not run; nil: nothing does
	ready func(context.Context) error   // waits until it serves; nil: its start does
}

// bring makes a daemon serve: it stops one that hangs, starts one that does not run, and waits until it serves. restart: one that runs has
// files to read. began: its process is new.
func (c *control) bring(ctx context.Context, d daemon, restart bool) (began bool, err error) {
	var runs bool
	if restart {
		runs, err = d.runs(ctx, d.op("state"))
	} else {
		runs, err = hungDaemons{c}.stop(ctx, d)
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

// controlServices are the daemons of a control stack in the order of their start.
func controlServices() []string {
	return []string{profile.Munged, profile.MariaDB, profile.Slurmdbd, profile.Slurmctld}
}

// daemon returns a daemon of the control stack.
func (c *control) daemon(service string, probe runtimes.Op, ready func(context.Context) error) daemon {
	return daemon{site: c.site, name: service, log: c.stack.Log(), probe: probe, ready: ready,
		op: func(verb string) runtimes.Op { return c.service(service, verb) }}
}

// munged returns that daemon of the control stack.
func (c *control) munged() daemon {
	return c.daemon(profile.Munged, askMunged(c.stack.Munge().Socket()), nil)
}

// database returns the database server of the control host. It serves once it knows the user of slurmdbd.
func (c stackDaemons) database() daemon {
	return c.daemon(profile.MariaDB, askMariaDB(), func(ctx context.Context) error { return c.sql(ctx, c.stack.Database().GrantSQL()) })
}

// slurmdbd returns that daemon of the control stack.
func (c *control) slurmdbd() daemon {
	return c.daemon(profile.Slurmdbd, askSlurmdbd(c), c.awaitSlurmdbd)
}

// slurmctld returns that daemon of the control stack.
func (c stackDaemons) slurmctld() daemon {
	return c.daemon(profile.Slurmctld, c.cli("scontrol", "ping"), c.awaitSlurmctld)
}

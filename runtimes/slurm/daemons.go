package slurm

import (
	"context"
	"errors"
	"fmt"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

// stackDaemons runs the daemons of the control stack and its database.
type stackDaemons struct {
	controlDaemons
	nodes nodeSet
}

// start brings the daemons of a complete control stack to what should run, in the order in which each needs the others: munged, the
// database, slurmdbd, what slurmctld needs of accounting, slurmctld, the nodes. If accounting cannot serve, slurmctld starts nevertheless,
// and the error names accounting. afterStop: the daemons ended by a stop of Berth's.
func (c stackDaemons) start(ctx context.Context, afterStop bool) error {
	if _, err := c.bring(ctx, c.munged(), false); err != nil {
		return err
	}
	began, down := c.bringAccounting(ctx)
	if isContactLost(down) || errors.Is(down, runtimes.ErrStaleEpoch) || ctx.Err() != nil {
		return down
	}
	if err := (losses{c.control}).checkAccounting(ctx, down); err != nil {
		if !c.ends {
			return err
		}
		down = err
	}
	done, err := c.bringController(ctx, cluster.Steps{}, &gate{control: c.control, down: down, afterStop: afterStop})
	if err != nil {
		return err
	}
	done.Database = began // a daemon that was started has read its files; one that already ran may not have
	if err := c.clearPending(ctx, done); err != nil {
		return err
	}
	if down == nil {
		return c.endAbandonment(ctx)
	}
	return fmt.Errorf("accounting is down, and slurmctld serves without it: %w", down)
}

// endAbandonment clears UsageAbandoned once accounting serves.
func (c stackDaemons) endAbandonment(ctx context.Context) error {
	if !c.disk.UsageAbandoned {
		return nil
	}
	c.rec.UsageAbandoned, c.disk.UsageAbandoned = false, false
	return c.saveDisk(ctx)
}

// bringAccounting makes the database server and slurmdbd serve. A slurmdbd that its database refuses runs, and listens nowhere. began:
// the process of slurmdbd is new.
func (c stackDaemons) bringAccounting(ctx context.Context) (began bool, err error) {
	if _, err := c.bring(ctx, c.database(), false); err != nil {
		return false, err
	}
	return c.bring(ctx, c.slurmdbd(), false)
}

// bringController makes slurmctld serve with its files, and then brings its nodes there. todo are the steps of a change, if slurmctld
// runs; else it starts through the gate g. done are the steps that a start has made needless.
//
// Until a node is registered, which takes some seconds after a start, its jobs start no step, and its slurmd 22.05 crashes if slurmctld
// sends it a reconfigure. A node that does not register in time holds up nothing else.
func (c stackDaemons) bringController(ctx context.Context, todo cluster.Steps, g *gate) (done cluster.Steps, err error) {
	d := c.slurmctld()
	d.gate, d.answered = g.open, g.accounting != nil // a change asks slurmctld before it writes files
	if done.Restart, err = c.bring(ctx, d, todo.Restart); err != nil {
		return done, err
	}
	if err := g.endStart(ctx); err != nil {
		return done, err
	}
	owed := c.disk.Owed
	if owed.Settle {
		if err := c.nodes.awaitRegistration(ctx); ctx.Err() != nil {
			return done, err
		}
		done.Settle, done.Reconfigure = true, true
	}
	if owed.Settle || todo.Restart {
		if err := c.nodes.reconcile(ctx); err != nil {
			return done, err
		}
	}
	// A start does not push files to nodes that run already.
	if todo.Restart || todo.Reconfigure || owed.Settle && owed.Reconfigure {
		if err := c.reconfigure(ctx); err != nil {
			return done, err
		}
	}
	return done, c.verifyConfig(ctx)
}

// updateUnits corrects the units of running daemons, which go on with their old settings.
func (c stackDaemons) updateUnits(ctx context.Context) error {
	var starts []runtimes.Op
	for _, name := range controlServices() {
		starts = append(starts, c.service(name, "start"))
	}
	if err := c.updateUnitsOn(ctx, c.site, starts); err != nil {
		return err
	}
	control, _ := c.rec.Unit.Control()
	return c.tryWorkers(ctx, func(ctx context.Context, wk site, m plan.Member) error {
		return c.updateUnitsOn(ctx, wk, []runtimes.Op{c.service(profile.MungedWorker, "start"), c.slurmd(m, control, "start")})
	})
}

func (c stackDaemons) updateUnitsOn(ctx context.Context, s site, starts []runtimes.Op) error {
	var states []runtimes.Op
	for _, op := range starts {
		state := *op.Service
		state.Verb = "state"
		states = append(states, runtimes.Op{Service: &state})
	}
	res, err := s.do(ctx, states...)
	if err != nil {
		return err
	}
	for i, op := range starts {
		if st := res[i].Service; st.Running && st.Outdated {
			if err := s.doAll(ctx, op); err != nil {
				return err
			}
		}
	}
	return nil
}

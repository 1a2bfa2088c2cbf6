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
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

// serviceStates asks for the states of controlServices.
func (c stackDaemons) serviceStates() []runtimes.Op {
	var ops []runtimes.Op
	for _, name := range controlServices() {
		ops = append(ops, c.service(name, "state"))
	}
	return ops
}

// stackDaemons runs the daemons of the control stack and its database.
type stackDaemons struct {
	*control
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
	if err := c.checkAccounting(ctx, down); err != nil {
		if !c.ends {
			return err
		}
		down = err
	}
	done, err := c.bringController(ctx, cluster.Steps{}, gate{down, afterStop})
	if err != nil {
		return err
	}
	done.Database = began // a daemon that was started has read its files; one that already ran may not have
	if err := c.clearPending(ctx, done); err != nil || down == nil {
		return err
	}
	return fmt.Errorf("accounting is down, and slurmctld serves without it: %w", down)
}

// bringAccounting makes the database server and slurmdbd serve. A slurmdbd that its database refuses runs, and listens nowhere. began:
// the process of slurmdbd is new.
func (c stackDaemons) bringAccounting(ctx context.Context) (began bool, err error) {
	if _, err := c.bring(ctx, c.database(), false); err != nil {
		return false, err
	}
	return c.bring(ctx, c.slurmdbd(), false)
}

// bringController makes slurmctld serve with its files, and then brings its nodes there. todo has the steps that one that runs needs, and
// g opens for one that does not run. done are the steps that a start did.
//
// Until a node is registered, which takes some seconds after a start, its jobs start no step, and its slurmd 22.05 crashes if slurmctld
// sends it a reconfigure. A node that does not register in time holds up nothing else.
func (c stackDaemons) bringController(ctx context.Context, todo cluster.Steps, g gate) (done cluster.Steps, err error) {
	d := c.slurmctld()
	d.gate = func(ctx context.Context) error { return c.open(ctx, g) }
	if done.Restart, err = c.bring(ctx, d, todo.Restart); err != nil {
		return done, err
	}
	if err := c.endStart(ctx, g); err != nil {
		return done, err
	}
	owed := c.disk.Owed
	if owed.Settle {
		if err := c.nodes.awaitRegistration(ctx); ctx.Err() != nil {
			return done, err
		}
		done.Settle, done.Reconfigure = true, true
	}
	// A start does not push files to nodes that run already.
	if todo.Restart || todo.Reconfigure || owed.Settle && owed.Reconfigure {
		if err := c.reconfigure(ctx); err != nil {
			return done, err
		}
	}
	if err := c.verifyConfig(ctx); err != nil || !owed.Settle && !todo.Restart {
		return done, err
	}
	return done, c.nodes.reconcile(ctx)
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

// awaitSlurmctld waits until slurmctld answers. It exits 0 before it has read its configuration. Where a reconfigure
// restarts it, its pid file names the old process for a moment.
func (c stackDaemons) awaitSlurmctld(ctx context.Context) error {
	ping := c.cli("scontrol", "ping")
	var ended time.Time
	return c.env.poll(ctx, "slurmctld on "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
		res, err := c.do(ctx, c.service(profile.Slurmctld, "state"), ping)
		if len(res) > 0 && !res[0].Service.Running {
			if ended.IsZero() {
				ended = time.Now()
			}
			seen := c.whyEnded(profile.Slurmctld, res[0])
			if c.rec.version().Reexecutes() && time.Since(ended) < 2*time.Second {
				return false, seen, nil
			}
			return false, "", errors.New(seen)
		}
		ended = time.Time{}
		if timedOut(err) { // a slow host
			return false, err.Error(), nil
		}
		if err != nil {
			return false, "", err
		}
		return pingUp(res[1]), strings.TrimSpace(string(res[1].Data) + string(res[1].Stderr)), nil
	})
}

// answers reports whether slurmctld answers.
func (c stackDaemons) answers(ctx context.Context) (bool, error) {
	res, err := c.do(ctx, c.cli("scontrol", "ping"))
	if timedOut(err) {
		return false, nil
	}
	return err == nil && pingUp(res[0]), err
}

// reconfigure makes slurmctld and the nodes read their files. slurmctld tries for about 10 s
// to reach a node that does not answer, and a slurmd 22.05 that starts in that time for
// the first time crashes. So it waits for the end of the request if a worker is to join.
func (c stackDaemons) reconfigure(ctx context.Context) error {
	call := c.cli("scontrol", "reconfigure")
	call.Run.TimeoutMS = int(c.env.timeouts.Ready.Milliseconds()) // with many nodes and jobs it takes longer than other calls
	if _, err := c.runChecked(ctx, call); err != nil {
		return err
	}
	joins := !c.rec.version().Reexecutes() &&
		slices.ContainsFunc(c.rec.workers(), func(m plan.Member) bool { return !c.rec.HasJoined(m.Node) })
	if joins {
		if err := c.env.poll(ctx, "reconfigure at "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
			agents, err := ask(ctx, c.control, cli.Agents())
			return agents == 0, fmt.Sprintf("slurmctld sends %d requests to nodes", agents), err
		}); err != nil {
			return err
		}
	}
	return c.awaitSlurmctld(ctx)
}

// verifyConfig waits until slurmctld reports the configuration of its file.
func (c stackDaemons) verifyConfig(ctx context.Context) error {
	return c.env.poll(ctx, "configuration of slurmctld on "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
		res, err := c.do(ctx, c.cli("scontrol", "show", "config"))
		if err != nil {
			return false, "", err
		}
		return hashMatches(res[0]), "slurmctld does not report the configuration of its file", nil
	})
}

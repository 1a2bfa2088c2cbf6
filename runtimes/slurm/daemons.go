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

// controlServices are the daemons of a control stack in the order of their start.
func controlServices() []string {
	return []string{profile.Munged, profile.MariaDB, profile.Slurmdbd, profile.Slurmctld}
}

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

// start starts the daemons of a complete control stack that do not run, in the order of dependency, and checks that
// the stack serves. If accounting cannot serve, slurmctld starts nevertheless, and the error names accounting.
// afterStop: the daemons ended by a stop of Berth's.
func (c stackDaemons) start(ctx context.Context, afterStop bool) error {
	if err := c.startMunged(ctx); err != nil {
		return err
	}
	var done cluster.Steps // a daemon that was started has read its files; one that already ran may not have
	var down error
	if done.Database, down = c.startAccounting(ctx); isContactLost(down) || errors.Is(down, runtimes.ErrStaleEpoch) || ctx.Err() != nil {
		return down
	}
	if err := c.checkAccounting(ctx, down); err != nil {
		if !c.ends {
			return err
		}
		down = err
	}
	if err := (hungDaemons{c.control}).stop(ctx, c.daemon(profile.Slurmctld, c.cli("scontrol", "ping"))); err != nil {
		return err
	}
	res, err := c.do(ctx, c.service(profile.Slurmctld, "state"))
	if err != nil {
		return err
	}
	if !res[0].Service.Running {
		if err := c.openGate(ctx, down, afterStop); err != nil {
			return err
		}
		if res, err = c.do(ctx, c.service(profile.Slurmctld, "start")); err != nil {
			return err
		}
		done.Restart = res[0].Changed
	}
	if err := c.await(ctx); err != nil {
		return err
	}
	if c.disk.Anew || c.disk.Raised {
		if err := c.serves(ctx, down); err != nil {
			return err
		}
	}
	if c.disk.Owed.Settle {
		if err := c.settle(ctx); err != nil {
			return err
		}
		done.Reconfigure, done.Settle = true, true
	}
	if err := c.clearPending(ctx, done); err != nil || down == nil {
		return err
	}
	return fmt.Errorf("accounting is down, and slurmctld serves without it: %w", down)
}

// serves finishes a start of slurmctld: it clears Anew and FirstJob in the record, and ends the jobs that a crash lost. down is
// the reason why accounting does not answer. A slurmctld that requires its state is restarted to write it: if it were killed
// before, it would have none.
func (c stackDaemons) serves(ctx context.Context, down error) error {
	if c.disk.Anew && c.rec.version().RequiresState() {
		if err := c.doAll(ctx, c.service(profile.Slurmctld, "stop"), c.service(profile.Slurmctld, "start")); err != nil {
			return err
		}
		if err := c.await(ctx); err != nil {
			return err
		}
	}
	c.rec.Anew, c.disk.Anew = false, false
	crashed := c.disk.Raised
	c.rec.Raised, c.disk.Raised = false, false
	if err := c.saveDisk(ctx); err != nil || !crashed || down != nil {
		return err
	}
	(jobRecords{c.control}).endLost(ctx)
	return nil
}

// startMunged starts munged if it does not run.
func (c stackDaemons) startMunged(ctx context.Context) error {
	if err := (hungDaemons{c.control}).stop(ctx, c.daemon(profile.Munged, askMunged(c.stack.Munge().Socket()))); err != nil {
		return err
	}
	return c.doAll(ctx, c.service(profile.Munged, "start"))
}

// startAccounting starts the database server and slurmdbd if they do not run, ends one that hangs, and waits until
// slurmdbd answers. A slurmdbd that its database refuses runs, and listens nowhere. began: it started slurmdbd.
func (c stackDaemons) startAccounting(ctx context.Context) (began bool, err error) {
	if err := (hungDaemons{c.control}).stop(ctx, c.daemon(profile.MariaDB, askMariaDB())); err != nil {
		return false, err
	}
	if err := c.doAll(ctx, c.service(profile.MariaDB, "start")); err != nil {
		return false, err
	}
	if err := c.sql(ctx, c.stack.Database().GrantSQL()); err != nil {
		return false, err
	}
	if err := (hungDaemons{c.control}).stop(ctx, c.daemon(profile.Slurmdbd, askSlurmdbd(c.control))); err != nil {
		return false, err
	}
	res, err := c.do(ctx, c.service(profile.Slurmdbd, "start"))
	if err != nil {
		return false, err
	}
	return res[0].Changed, (slurmdbd{c.control}).await(ctx)
}

// settle follows a start of slurmctld. Until a node is registered, which takes some seconds,
// its jobs start no step, and its slurmd 22.05 crashes if slurmctld sends it a
// reconfigure. A node that does not register in time holds up nothing else.
func (c stackDaemons) settle(ctx context.Context) error {
	if err := c.nodes.awaitRegistration(ctx); ctx.Err() != nil {
		return err
	}
	if c.disk.Owed.Reconfigure { // a start does not push files to nodes that run already
		if err := c.reconfigure(ctx); err != nil {
			return err
		}
	}
	return c.nodes.reconcile(ctx)
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

// await waits until slurmctld answers and runs the configuration of its
// file. slurmctld exits 0 before it has read its configuration. Where a reconfigure
// restarts it, its pid file names the old process for a moment.
func (c stackDaemons) await(ctx context.Context) error {
	ping := c.cli("scontrol", "ping")
	var ended time.Time
	err := c.env.poll(ctx, "slurmctld on "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
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
	if err != nil {
		return err
	}
	return c.verifyConfig(ctx)
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
	return c.await(ctx)
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

// sql runs statements as soon as the server accepts connections.
func (c stackDaemons) sql(ctx context.Context, statements string) error {
	op := sqlOp(statements)
	op.Run.TimeoutMS = int(c.env.timeouts.Ready.Milliseconds())
	return c.env.poll(ctx, "database on "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
		res, err := c.do(ctx, op)
		if err != nil {
			return false, "", err
		}
		if res[0].Exit == 0 {
			return true, "", nil
		}
		refusal := c.exitError(op, res[0])
		// 2002 and 2013: no server listens on the socket yet.
		if text := string(res[0].Stderr); strings.Contains(text, "ERROR 2002") || strings.Contains(text, "ERROR 2013") {
			return false, refusal.Error(), nil
		}
		return false, "", refusal
	})
}

// makeDatabase makes the stack's own database, and first the server if the host has
// none. One stack of a host does so at a time.
func (c stackDaemons) makeDatabase(ctx context.Context) error {
	defer c.env.lock("host " + c.host.Name())()
	res, err := c.do(ctx, statOp(profile.DatabaseInstalled, profile.DatabaseData), c.service(profile.MariaDB, "state"))
	if err != nil {
		return err
	}
	if stats := res[0].Stats; !stats[0].Exists || !stats[1].Exists {
		if err := c.checkNoDatabase(ctx, res[1].Service.Running); err != nil {
			return err
		}
		_, err := c.do(ctx,
			removeTreeOp(profile.DatabaseData), // of an interrupted attempt
			ownDirOp(profile.DatabaseDir, 0o755, profile.DatabaseUser),
			ownDirOp(profile.DatabaseData, 0o700, profile.DatabaseUser),
			runtimes.Op{Run: &runtimes.Run{Program: "mariadb-install-db", Args: profile.InstallDBArgs(),
				TimeoutMS: 2 * int(c.env.timeouts.Ready.Milliseconds())}},
			writeOp(profile.DatabaseInstalled, cluster.File{Data: []byte("made by Berth\n"), Mode: 0o644}),
		)
		if err != nil {
			return err
		}
	}
	if err := c.doAll(ctx, c.service(profile.MariaDB, "start")); err != nil {
		return err
	}
	return c.sql(ctx, c.stack.Database().CreateSQL())
}

// checkNoDatabase refuses to make the server over a database that may be in use: if
// only the file DatabaseInstalled was lost, every instance of the host would lose
// its accounting.
func (c stackDaemons) checkNoDatabase(ctx context.Context, running bool) error {
	others, err := c.file().others(ctx)
	if err != nil {
		return err
	}
	const lost = "host %s: %s is missing, but %s; if the database in %s is intact, create that file again"
	for _, o := range others {
		if o.Complete {
			return fmt.Errorf(lost, c.host.Name(), profile.DatabaseInstalled, o.Unit.Effective.Key.String()+" has its accounting in it",
				profile.DatabaseData)
		}
	}
	if running {
		return fmt.Errorf(lost, c.host.Name(), profile.DatabaseInstalled, "the server runs", profile.DatabaseData)
	}
	return nil
}

package slurm

import (
	"context"
	"slices"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
)

// slurmdFault is why a slurmd that runs has to start again. An observation shows it, and a start of the worker mends it. Jobs go on.
type slurmdFault struct {
	state  plan.State // Partial, Stopped or Hung
	detail string     // empty: it need not
}

// wantedSlurmds is what the record says of the slurmds of all workers.
type wantedSlurmds struct {
	leavesDown returnRule
	restartDue []string
}

func (r *record) slurmds() wantedSlurmds { return wantedSlurmds{r.returnRule(), r.RestartDue} }

// fault compares the running slurmd of a worker with the wanted one. n is its node in slurmctld. outdated says which file
// of slurmctld it has not fetched. hasLostJobs says that slurmctld has jobs on it that a boot ended.
func (w wantedSlurmds) fault(n node, outdated string, hasLostJobs bool) slurmdFault {
	isLeft := n.State == "down" && w.leavesDown.isLeftDown(n)
	switch {
	case n.State == "down" && !isLeft && n.Has("NOT_RESPONDING"): // first: a munged that hangs has to end, too
		return slurmdFault{plan.Hung, "slurmd runs and does not answer the controller"}
	case outdated != "":
		return slurmdFault{plan.Partial, outdated}
	case slices.Contains(w.restartDue, n.Name):
		return slurmdFault{plan.Partial, "its slurmd has to restart: it did not answer when the configuration changed"}
	case isLeft:
		return slurmdFault{}
	case n.State == "down" || n.State == "error":
		return slurmdFault{plan.Stopped, "slurmd runs but the controller has the node as " + stateOf(n) + ": " + n.Reason}
	case hasLostJobs:
		return slurmdFault{plan.Hung, "the controller has jobs from before the boot of the node, and has them without processes until " +
			"slurmd registers again"}
	}
	return slurmdFault{}
}

// workerSlurmds are the slurmds of the workers.
type workerSlurmds struct{ *control }

// slurmdFault asks the hosts for what the comparison of a slurmd needs.
func (c workerSlurmds) slurmdFault(ctx context.Context, wk site, n node) (slurmdFault, error) {
	have, err := wk.do(ctx, statOp(c.stack.FetchedPaths()...))
	if err != nil {
		return slurmdFault{}, err
	}
	res, err := c.do(ctx, c.service(profile.Slurmctld, "state"))
	if err != nil {
		return slurmdFault{}, err
	}
	all, err := ask(ctx, c.control, cli.Snapshot())
	if err != nil {
		return slurmdFault{}, err
	}
	var files fetched
	if applied, err := c.rec.appliedFiles(); err == nil {
		files = c.rec.fetched(applied)
	}
	lost := hasLostJobs(n, earliestStarts(all), c.env.now().Sub(res[0].Service.Since))
	return c.rec.slurmds().fault(n, files.fault(n.Name, have[0].Stats), lost), nil
}

// slurmdVerb returns the verb for a running slurmd at a start of its worker: restart if it has a fault or is not registered. owned: it
// belongs to this cluster, so that a restart of one that hangs is recorded.
func (c workerSlurmds) slurmdVerb(ctx context.Context, wk site, n node, owned bool) (string, error) {
	fault, err := c.slurmdFault(ctx, wk, n)
	if err != nil {
		return "", err
	}
	if fault.state == plan.Hung && owned {
		if err := c.prepareHungWorker(ctx, wk, n.Name); err != nil {
			return "", err
		}
	}
	if fault.detail == "" && n.Registered() {
		return "start", nil
	}
	return "restart", nil
}

// prepareHungWorker stops the munged of a worker if it hangs, and records that its slurmd is
// restarted. Either keeps the node from answering slurmctld.
func (c workerSlurmds) prepareHungWorker(ctx context.Context, wk site, node string) error {
	defer c.env.lock("cluster " + c.stack.Cluster)()
	if err := c.load(ctx); err != nil {
		return err
	}
	hung := hungDaemons(c)
	munged := daemon{site: wk, name: "munged on " + node, log: profile.WorkerMungeLog, probe: askMunged(profile.WorkerMungeSocket),
		op: func(verb string) runtimes.Op { return c.service(profile.MungedWorker, verb) }}
	if _, err := hung.stop(ctx, munged); err != nil {
		return err
	}
	return hung.recordRestart(ctx, wk, "slurmd on "+node, profile.WorkerLog)
}

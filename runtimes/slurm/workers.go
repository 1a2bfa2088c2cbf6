package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// workerHosts sets up and cleans the hosts of workers.
type workerHosts struct {
	*control
	nodes    nodeSet
	users    hostUsers
	hardware hardware
}

// join adds a worker whose node has its lines in the files of the control stack: it checks
// the host, starts the worker, and waits for the node at the controller.
func (c workerHosts) join(ctx context.Context, after *plan.Unit, a plan.Action) error {
	m, ok := after.Member(a.Member)
	if !ok {
		return fmt.Errorf("the plan has no member %q", a.Member)
	}
	if own, ok := after.Control(); ok && own.Node == m.Node {
		return fmt.Errorf("node %s has the control plane of this instance and cannot be its worker as well", m.Node)
	}
	has, err := c.hardware.check(ctx, after, m)
	if err != nil {
		return err
	}
	wk := c.worker(m)
	if err := wk.checkVersion(ctx, &after.Effective); err != nil {
		return err
	}
	unlock := c.env.lock("cluster " + c.stack.Cluster)
	err = c.load(ctx)
	unlock()
	if err != nil {
		return err
	}
	res, err := wk.do(ctx, readOp(workerRecordPath), statOp(profile.WorkerMungeKey))
	if err != nil {
		return err
	}
	switch owned, err := c.owned(wk, res[0], res[1].Stats[0]); {
	case err != nil:
		return err
	case !owned: // before any write, also at the controller
		if err := wk.doAll(ctx, c.preflightOp([]string{profile.MungedWorker, profile.Slurmd}, workerRecordPath, profile.WorkerMungeKey,
			profile.WorkerSpoolDir)); err != nil {
			return err
		}
	}
	if _, err := c.known(ctx, m); err != nil {
		return err
	}
	if err := c.awaitShape(ctx, m, cluster.ShapeOf(has)); err != nil {
		return err
	}
	if err := c.recordMember(ctx, m, cluster.ShapeOf(has)); err != nil {
		return err
	}
	return c.start(ctx, m)
}

// known returns the node of a member as slurmctld has it.
func (c workerHosts) known(ctx context.Context, m plan.Member) (node, error) {
	nodes, err := c.nodes.list(ctx)
	if err != nil {
		return node{}, err
	}
	n, ok := findNode(nodes, m.Node)
	if !ok {
		return n, fmt.Errorf("node %s: slurmctld on %s does not have it; the configuration with its line has to be applied first", m.Node,
			c.host.Name())
	}
	return n, nil
}

// recordMember adds a member to the record, with the shape of its host if it is new.
func (c workerHosts) recordMember(ctx context.Context, m plan.Member, found schema.Shape) error {
	return c.updateRecord(ctx, func(r *record) {
		if !r.HasJoined(m.Node) {
			r.setFound(m.Node, found)
		}
		r.setJoined(m)
		r.reopen(nodeTarget(m.Node), c.clusterTarget()) // it is wanted again
	})
}

// start sets up a worker and waits until the controller has the node with its
// shape. It does not restart daemons that are right.
func (c workerHosts) start(ctx context.Context, m plan.Member) error {
	known, err := c.known(ctx, m)
	if err != nil {
		return err
	}
	control, _ := c.rec.Unit.Control()
	wk := c.worker(m)
	if err := c.drainUnfit(ctx, wk, m); err != nil {
		return err
	}
	key, err := mungeKey{c.control}.read(ctx)
	if err != nil {
		return err
	}
	res, err := wk.do(ctx, readOp(workerRecordPath),
		statOp(profile.WorkerMungeKey),
		c.service(profile.MungedWorker, "state"), c.service(profile.Slurmd, "state"))
	if err != nil {
		return err
	}
	owned, err := c.owned(wk, res[0], res[1].Stats[0])
	if err != nil {
		return err
	}
	if !owned { // a new worker, or one whose record is lost while its jobs run
		running, _, err := c.nodes.jobs.list(ctx, only("--nodelist="+m.Node))
		if err != nil {
			return err
		}
		owned = len(running) > 0
	}
	verb := "start"
	if res[3].Service.Running {
		if verb, err = (workerSlurmds{c.control}).slurmdVerb(ctx, wk, known, owned); err != nil {
			return err
		}
	}
	ops, err := c.render(m, key, owned)
	if err != nil {
		return err
	}
	munge := "start"
	if res[2].Service.Running && res[1].Stats[0].SHA256 != c.rec.MungeKey {
		munge = "restart" // munged reads its key at start only
	}
	ops = append(ops, c.service(profile.MungedWorker, munge))
	if err := c.write(ctx, wk, ops); err != nil {
		return err
	}
	if err := c.users.makeOnWorker(ctx, wk, c.rec.users()); err != nil {
		return err
	}
	if err := wk.doAll(ctx, c.slurmd(m, control, verb)); err != nil {
		return err
	}
	if err := c.endRestartDue(ctx, m.Node); err != nil {
		return err
	}
	return c.nodes.await(ctx, wk, m)
}

// endRestartDue records that the slurmd of a node has restarted.
func (c workerHosts) endRestartDue(ctx context.Context, node string) error {
	if !slices.Contains(c.rec.RestartDue, node) {
		return nil
	}
	return c.updateRecord(ctx, func(r *record) {
		r.RestartDue = slices.DeleteFunc(slices.Clone(r.RestartDue), func(name string) bool { return name == node })
	})
}

// drainUnfit drains a worker on whose spool nothing can be written: slurmd could start no job, and Slurm would give it one
// after the other and hold them. The drain ends when the worker has been set up.
func (c workerHosts) drainUnfit(ctx context.Context, wk site, m plan.Member) error {
	res, err := wk.do(ctx, statOp(profile.WorkerSpoolDir))
	if err != nil {
		return err
	}
	fault := diskFault(m.Node, res[0].Stats[0])
	if fault == "" {
		return nil
	}
	if err := c.nodes.drain(ctx, drainUnfit.reason(c.stamp.ActionID), m.Node); err != nil {
		return err
	}
	return fmt.Errorf("host %s: the node is drained, as jobs may fail to start: %s", m.Node, fault)
}

// render returns the operations that write the files of a worker. A new worker is
// cleared first.
func (c workerHosts) render(m plan.Member, key []byte, owned bool) ([]runtimes.Op, error) {
	users, err := c.rec.managedUsers()
	if err != nil {
		return nil, err
	}
	var ops []runtimes.Op
	if !owned {
		ops = append(ops, c.service(profile.Slurmd, "stop"), c.service(profile.MungedWorker, "stop"),
			removeTreeOp(profile.WorkerSpoolDir), removeOp(profile.WorkerConfLink))
	}
	ops = append(ops,
		dirOp(profile.InstanceDir, 0o755, ""),
		c.writeWorkerRecord(m, users))
	ops = append(ops, makeSharedDirs()[1:]...) // without the configuration, which slurmd fetches
	ops = append(ops, makeOps(workerDirectories(c.stack))...)
	return append(ops,
		writeOp(profile.WorkerLogRotation, cluster.File{Data: profile.WorkerLogRules(), Mode: 0o644}),
		writeOp(profile.WorkerMungeKey, cluster.File{Data: key, Mode: keyMode, Owner: profile.MungeUser})), nil
}

// write writes a worker's record and files. The lock keeps another
// instance from reading the record at the same time.
func (c workerHosts) write(ctx context.Context, wk site, ops []runtimes.Op) error {
	defer c.env.lock("host " + wk.host.Name())()
	return wk.doAll(ctx, ops...)
}

// owned reports whether the worker belongs to this cluster. A worker of another
// cluster is an error. Where its record is damaged, it is one that has joined, or has the munge key of this cluster.
func (c workerHosts) owned(wk site, res runtimes.Result, key runtimes.FileStat) (bool, error) {
	rec, err := wk.readWorker(res)
	isOurs := c.rec.HasJoined(wk.host.Name()) || key.SHA256 != "" && key.SHA256 == c.rec.MungeKey
	if res.Missing || errors.Is(err, errDamaged) && isOurs {
		return false, nil
	}
	if errors.Is(err, errDamaged) {
		return false, fmt.Errorf("%w; remove it if the host is a worker of no other cluster", err)
	}
	if err != nil {
		return false, err
	}
	if rec.Cluster != c.stack.Cluster {
		return false, fmt.Errorf("host %s is a worker of %s (cluster %s) and has to leave it first", wk.host.Name(), rec.Key, rec.Cluster)
	}
	return true, nil
}

// clean removes everything of the cluster from a worker, its record last. It
// does nothing on a worker of another cluster.
func (c workerHosts) clean(ctx context.Context, wk site) error {
	res, err := wk.do(ctx, readOp(workerRecordPath))
	if err != nil {
		return err
	}
	if res[0].Missing { // interrupted after the removal of the record, or never joined
		return wk.doAll(ctx, removeEmptyOp(profile.InstanceDir))
	}
	rec, err := wk.readWorker(res[0])
	if errors.Is(err, errDamaged) && c.rec.HasJoined(wk.host.Name()) {
		rec, err = workerRecord{Cluster: c.stack.Cluster, Node: wk.host.Name()}, nil
	}
	if err != nil || rec.Cluster != c.stack.Cluster {
		return err
	}
	clear := c.service(profile.Slurmd, "clear")
	clear.Service.Params = map[string]string{profile.ParamNode: rec.Node}
	ops := []runtimes.Op{clear, c.service(profile.MungedWorker, "clear")}
	ops = append(ops, removeOps(profile.WorkerFiles())...)
	ops = append(ops, removeOp(c.stack.Munge().Run()), removeOp(profile.WorkerLogRotation), removeTreeOp(profile.WorkerOldLogs),
		removeTreeOp(profile.WorkerSpoolDir),
		removeEmptyOp(profile.WorkerMungeRun), removeEmptyOp(profile.WorkerRunDir))
	if err := wk.doAll(ctx, ops...); err != nil {
		return err
	}
	ops = []runtimes.Op{removeEmptyOp(c.stack.Jobs()), removeEmptyOp(profile.JobsDir)}
	ops = append(ops, removeSharedDirs()...)
	ops = append(ops, removeOp(workerRecordPath), removeEmptyOp(profile.InstanceDir))
	// Users that are being added or removed are in the instance's record only.
	return c.users.drop(ctx, wk, cluster.UnionOfUsers(rec.Users, c.rec.People), ops...)
}

// awaitShape returns an error if the line of a new worker has another shape than its host, which
// did not answer when the line was written, or has changed since. It records the shape: the next
// plan writes the line, and then the worker joins. A shape of nodes with jobs is not changed.
func (c workerHosts) awaitShape(ctx context.Context, m plan.Member, found schema.Shape) error {
	have, want := cluster.WithShape(m, c.rec.Found[m.Node]), cluster.WithShape(m, found)
	if c.rec.HasJoined(m.Node) || have.CPUs == want.CPUs && have.Shape == want.Shape {
		return nil
	}
	if err := c.updateRecord(ctx, func(r *record) { r.setFound(m.Node, found) }); err != nil {
		return err
	}
	return waiting("node %s: its line in slurm.conf lacks the sockets, cores and threads of the host; the next plan writes them before "+
		"the join", m.Node)
}

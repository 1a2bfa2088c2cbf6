package slurm

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

// keptOperations limits record.Done.
const keptOperations = 200

// operate carries out an operation. It ends with a record on the control host that the operation is
// done: a lost status does not bring it back.
func (c lifecycle) operate(ctx context.Context, a plan.Action) error {
	if a.Verb == plan.RetryUnit {
		return nil // the loop has begun a new attempt
	}
	defer c.env.lock("cluster " + c.stack.Cluster)()
	if err := c.load(ctx); err != nil {
		return err
	}
	if slices.Contains(c.rec.Done, a.Operation.ID) {
		return nil
	}
	comment, err := c.operateOn(ctx, a)
	if err != nil {
		return err
	}
	c.rec = c.disk // an effect on a member changes no other part of the record
	c.rec.Done = append(slices.Clone(c.rec.Done), a.Operation.ID)
	c.rec.Done = c.rec.Done[max(0, len(c.rec.Done)-keptOperations):]
	c.rec.Restarting = maps.Clone(c.rec.Restarting)
	delete(c.rec.Restarting, a.Operation.ID)
	c.mark(a, comment)
	c.rec.reopen(operationTarget(a))
	return c.save(ctx)
}

// mark records the change of an operation at a node, and removes the marks that slurmctld has saved by now.
func (c lifecycle) mark(a plan.Action, comment string) {
	now := c.env.now().UTC()
	marked := maps.Clone(c.rec.Marked)
	maps.DeleteFunc(marked, func(_ string, m nodeMark) bool { return now.Sub(m.At) > markLife })
	if marked == nil {
		marked = map[string]nodeMark{}
	}
	m := marked[a.Node]
	switch a.Verb {
	case plan.Drain, plan.Replace, plan.Remove, plan.Cordon:
		m.Drain, m.Resume = operationReason(a), false
	case plan.Resume, plan.Uncordon:
		m.Drain, m.Resume = "", true
	case plan.Label:
		m.Comment = comment
	default:
		return
	}
	m.At = now
	marked[a.Node] = m
	c.rec.Marked = marked
}

// operateOn has the effect of an operation on its member. It returns the comment of its node for labels.
func (c lifecycle) operateOn(ctx context.Context, a plan.Action) (comment string, err error) {
	switch a.Verb {
	case plan.AcceptLoss:
		return "", c.daemons.beginAnew(ctx)
	case plan.AbandonUsage:
		c.disk.UsageAbandoned = true // saved with the operation
		return "", nil
	}
	if control, _ := c.rec.Unit.Control(); a.Verb == plan.Restart && a.Member == control.Name {
		return "", c.restartControl(ctx, a)
	}
	m, ok := c.rec.joined(a.Member)
	if !ok {
		return "", fmt.Errorf("%s is not a worker of the cluster", a.Member)
	}
	n, err := c.workers.known(ctx, m)
	if err != nil {
		return "", err
	}
	switch a.Verb {
	case plan.Drain, plan.Replace, plan.Remove:
		return "", c.drainMember(ctx, m, a)
	case plan.Cordon:
		return "", c.nodes.drain(ctx, operationReason(a), m.Node)
	case plan.Resume, plan.Uncordon:
		return "", c.resumeMember(ctx, n)
	case plan.Restart:
		return "", c.restartWorker(ctx, m, a)
	case plan.Label:
		return c.label(ctx, n, a)
	}
	return "", fmt.Errorf("unknown operation %q", a.Verb)
}

// operationReason is the reason of a drain by an operation.
func operationReason(a plan.Action) string { return drainOperation.reason(a.Operation.Name) }

func operationTarget(a plan.Action) string {
	return nodeTarget(a.Node) + " (operation " + a.Operation.Name + ")"
}

// drainMember closes a node to new jobs, and waits for those that run or cancels them. A node that an
// administrator drained keeps that reason.
func (c lifecycle) drainMember(ctx context.Context, m plan.Member, a plan.Action) error {
	if err := c.nodes.drain(ctx, operationReason(a), m.Node); err != nil {
		return err
	}
	on := cmp.Or(a.Operation.OnJobs, cluster.OnJobs(m, &c.rec.Unit))
	return c.jobs.endBy(ctx, on, operationTarget(a), only("--nodelist="+m.Node))
}

// resumeMember takes back a drain of an operation, and no other.
func (c lifecycle) resumeMember(ctx context.Context, n node) error {
	isOurs := drainOwnerOf(n) == drainOperation
	switch {
	case !n.Has("DRAIN") && (n.State != "down" || !isOurs):
		return nil
	case drainOwnerOf(n) == drainUnfit:
		return fmt.Errorf("node %s: Berth has drained it, as nothing can be written to the spool of slurmd, and takes that back when it "+
			"can be", n.Name)
	case !isOurs:
		return fmt.Errorf("node %s: it was drained by a person or by Slurm (reason %q), not by an operation; take that drain back with: "+
			"scontrol update nodename=%s state=undrain", n.Name, n.Reason, n.Name)
	case n.State == "down" && !n.Has("NOT_RESPONDING"): // it was silent for a while, and slurmctld kept the reason
		op := c.cli("scontrol", "update", "nodename="+n.Name, "state=resume")
		if _, err := c.runChecked(ctx, op); err != nil {
			return err
		}
		return c.env.poll(ctx, "resume "+n.Name, func(ctx context.Context) (bool, string, error) {
			nodes, err := c.nodes.list(ctx)
			now, ok := findNode(nodes, n.Name)
			return ok && !now.Has("DRAIN") && now.State != "down", now.State + " " + strings.Join(now.Flags, "+"), err
		})
	}
	return c.nodes.undrain(ctx, n.Name)
}

// restartWorker restarts slurmd, whose jobs go on, and waits until slurmctld has the node again.
func (c lifecycle) restartWorker(ctx context.Context, m plan.Member, a plan.Action) error {
	control, _ := c.rec.Unit.Control()
	wk := c.worker(m)
	if err := c.restartOnce(ctx, wk, a, c.service(profile.Slurmd, "state"), c.slurmd(m, control, "restart")); err != nil {
		return err
	}
	return c.nodes.await(ctx, wk, m)
}

// restartControl restarts slurmctld and checks the nodes as after any start of it.
func (c lifecycle) restartControl(ctx context.Context, a plan.Action) error {
	if runs, err := c.runs(ctx, c.service(profile.Slurmctld, "state")); err != nil {
		return err
	} else if !runs && len(c.disk.Restarting) == 0 {
		return c.daemons.start(ctx, false)
	}
	if err := c.addPending(ctx, cluster.Steps{Settle: true}); err != nil {
		return err
	}
	if err := c.restartOnce(ctx, c.site, a, c.service(profile.Slurmctld, "state"), c.service(profile.Slurmctld, "restart")); err != nil {
		return err
	}
	return c.daemons.start(ctx, true)
}

// restartOnce restarts a daemon unless that was done before a crash: the process that it had before
// is recorded first.
func (c lifecycle) restartOnce(ctx context.Context, s site, a plan.Action, state, restart runtimes.Op) error {
	res, err := s.do(ctx, state)
	if err != nil {
		return err
	}
	pid, isRecorded := c.disk.Restarting[a.Operation.ID]
	if isRecorded && res[0].Service.Running && res[0].Service.PID != pid {
		return nil
	}
	if !isRecorded {
		restarting := map[string]int{a.Operation.ID: res[0].Service.PID}
		maps.Copy(restarting, c.disk.Restarting)
		c.rec.Restarting, c.disk.Restarting = restarting, restarting
		if err := c.saveDisk(ctx); err != nil {
			return err
		}
	}
	return s.doAll(ctx, restart)
}

// label sets labels in the comment of a node, besides those that it has, and returns the comment.
// slurmctld keeps it across restarts.
func (c lifecycle) label(ctx context.Context, n node, a plan.Action) (comment string, err error) {
	old, isOurs := strings.CutPrefix(n.Comment, labelMark)
	if n.Comment != "" && !isOurs {
		return "", fmt.Errorf("node %s: its comment %q is not of Berth; clear it first with: scontrol update nodename=%s comment=", n.Name,
			n.Comment, n.Name)
	}
	labels := map[string]string{}
	for pair := range strings.SplitSeq(old, ",") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			labels[name] = value
		}
	}
	maps.Copy(labels, a.Operation.Labels)
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, name+"="+labels[name])
	}
	want := labelMark + strings.Join(pairs, ",")
	if n.Comment == want {
		return want, nil
	}
	op := c.cli("scontrol", "update", "nodename="+n.Name, "comment="+want)
	res, err := c.do(ctx, op)
	if err != nil {
		return "", err
	}
	nodes, err := c.nodes.list(ctx)
	if err != nil {
		return "", err
	}
	if now, ok := findNode(nodes, n.Name); !ok || now.Comment != want {
		return "", c.exitError(op, res[0])
	}
	return want, nil
}

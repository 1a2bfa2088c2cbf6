package slurm

import (
	"context"
	"maps"

	"berth/reconciler/plan"
)

// abandon takes a worker whose host is lost out of the cluster: it drains the node, so that it takes no job if it comes back, and
// leaves the host as it is. The line of the node stays in slurm.conf until the next configure. A node that has jobs stays.
func (c lifecycle) abandon(ctx context.Context, a plan.Action) error {
	defer c.env.lock("cluster " + c.stack.Cluster)()
	if err := c.load(ctx); err != nil {
		return err
	}
	m, ok := c.rec.joined(a.Member)
	if !ok || m.Node != a.Node {
		return nil // it is out
	}
	nodes, err := c.nodes.list(ctx)
	if err != nil {
		return err
	}
	if n, known := findNode(nodes, m.Node); known {
		if viewOf(n, true) != plan.Unresponsive {
			return waiting("node %s responds to slurmctld again", m.Node)
		}
		if err := c.nodes.drain(ctx, drainLeave.reason(a.ID), m.Node); err != nil {
			return err
		}
		running, _, err := c.jobs.list(ctx, only("--nodelist="+m.Node))
		if err != nil {
			return err
		}
		if len(running) > 0 {
			return waiting("node %s does not respond, and slurmctld has %d jobs there", m.Node, len(running))
		}
		if err := c.jobs.cancelNaming(ctx, m.Node); err != nil {
			return err
		}
	}
	c.rec.dropJoined(m.Name)
	c.rec.Marked = maps.Clone(c.rec.Marked)
	delete(c.rec.Marked, m.Node)
	c.rec.reopen(nodeTarget(m.Node))
	return c.save(ctx)
}

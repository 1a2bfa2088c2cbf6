package slurm

import (
	"cmp"
	"context"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/cluster"
	"berth/schema"
)

// shapes returns the shapes of the hosts with a line in slurm.conf, as far as they are known. It asks the hosts of members
// that are new or changed since before. A worker that has joined, or that has a line in lines, keeps its line. A host that does not
// answer is asked at the join.
func (c hardware) shapes(ctx context.Context, before *plan.Unit, lines map[string]schema.Shape) map[string]schema.Shape {
	all := map[string]schema.Shape{}
	var unknown []plan.Member
	for _, m := range c.rec.listed() {
		was, ok := before.Member(m.Name)
		keeps := c.rec.HasJoined(m.Node) || ok && was.Node == m.Node && was.HasResourcesOf(m)
		kept, hasLine := lines[m.Node]
		if found, ok := c.rec.Found[m.Node]; ok || kept != (schema.Shape{}) {
			all[m.Node] = cmp.Or(found, kept)
		} else if !keeps && !hasLine {
			unknown = append(unknown, m)
		}
	}
	for i, shape := range inParallel(unknown, func(m plan.Member) schema.Shape {
		has, err := c.find(ctx, m)
		if err != nil {
			c.log.Info("shape of the host unknown; read at the join", "host", m.Node, "reason", err.Error())
		}
		return cluster.ShapeOf(has)
	}) {
		if shape != (schema.Shape{}) {
			all[unknown[i].Node] = shape
		}
	}
	return all
}

// awaitShape returns an error if the line of a new worker has another shape than its host, which
// did not answer when the line was written, or has changed since. It records the shape: the next
// plan writes the line, and then the worker joins. A shape of nodes with jobs is not changed.
func (c workerHosts) awaitShape(ctx context.Context, m plan.Member, found schema.Shape) error {
	have, want := cluster.Fitted(m, c.rec.Found[m.Node]), cluster.Fitted(m, found)
	if c.rec.HasJoined(m.Node) || have.CPUs == want.CPUs && have.Shape == want.Shape {
		return nil
	}
	if err := c.updateRecord(ctx, func(r *record) { r.setFound(m.Node, found) }); err != nil {
		return err
	}
	return waiting("node %s: its line in slurm.conf lacks the sockets, cores and threads of the host; the next plan writes them before "+
		"the join", m.Node)
}

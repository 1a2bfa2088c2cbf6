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
	for _, m := range c.rec.withLine() {
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

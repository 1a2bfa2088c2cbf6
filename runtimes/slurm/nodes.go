package slurm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/profile"
)

// Prefixes of the reasons of Berth's drains, followed by the action's id. Berth
// undoes no other drain.
const (
	drainLeave = "berth:leave-"
	drainStop  = "berth:stop-"
)

// nodeSet changes the nodes of the cluster in slurmctld.
type nodeSet struct {
	*control
	jobs jobQueue
}

// list returns the nodes that the controller knows.
func (c nodeSet) list(ctx context.Context) ([]node, error) {
	res, err := c.runChecked(ctx, c.cli("sinfo", "--json"))
	if err != nil {
		return nil, err
	}
	nodes, _, err := parseNodes(res.Data)
	return nodes, err
}

func findNode(nodes []node, name string) (node, bool) {
	i := slices.IndexFunc(nodes, func(n node) bool { return n.Name == name })
	if i < 0 {
		return node{}, false
	}
	return nodes[i], true
}

// hasShape reports whether the controller knows n with the CPUs, memory and GPUs of
// m. A node that joins with another shape silently keeps the known one.
func hasShape(n node, m plan.Member) bool {
	if n.CPUs != m.CPUs || n.Memory != m.MemoryMiB {
		return false
	}
	var want, have []string
	for _, g := range m.GPUs {
		want = append(want, fmt.Sprintf("gpu:%s:%d", g.Type, g.Count))
	}
	for word := range strings.SplitSeq(n.Gres, ",") {
		word, _, _ = strings.Cut(word, "(") // (S:0-1): the sockets
		if word != "" {
			have = append(have, word)
		}
	}
	slices.Sort(want)
	slices.Sort(have)
	return slices.Equal(want, have)
}

// await waits until the node is registered with its shape, and undoes a drain of
// Berth. slurmd with a wrong key exits 0 and never registers.
func (c nodeSet) await(ctx context.Context, wk site, m plan.Member) error {
	var last node
	err := c.env.poll(ctx, "node "+m.Node+" at "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
		nodes, err := c.list(ctx)
		if err != nil {
			return false, err.Error(), nil // the controller may be busy for a moment
		}
		n, ok := findNode(nodes, m.Node)
		if !ok {
			return false, "the controller does not know it", nil
		}
		last = n
		return n.registered() && hasShape(n, m), fmt.Sprintf("%s %s, %d CPUs, %d MiB, gres %q, reason %q",
			n.State, strings.Join(n.Flags, "+"), n.CPUs, n.Memory, n.Gres, n.Reason), nil
	})
	if err != nil {
		res, stateErr := wk.do(context.WithoutCancel(ctx), c.service(profile.Slurmd, "state"))
		if stateErr == nil && res[0].Service.Detail != "" {
			return fmt.Errorf("%w; slurmd's log: %s", err, res[0].Service.Detail)
		}
		return err
	}
	if last.flag("DRAIN") && ownDrain(last) {
		return c.undrain(ctx, m.Node)
	}
	return nil
}

// drain drains nodes and verifies it. Nodes that an administrator drained keep that
// reason.
func (c nodeSet) drain(ctx context.Context, reason string, names ...string) error {
	nodes, err := c.list(ctx)
	if err != nil {
		return err
	}
	var todo []string
	for _, n := range nodes {
		if slices.Contains(names, n.Name) && !n.flag("DRAIN") {
			todo = append(todo, n.Name)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	op := c.cli("scontrol", "update", "nodename="+strings.Join(todo, ","), "state=drain", "reason="+reason)
	res, err := c.do(ctx, op)
	if err != nil {
		return err
	}
	if nodes, err = c.list(ctx); err != nil {
		return err
	}
	for _, name := range todo {
		if n, ok := findNode(nodes, name); ok && !n.flag("DRAIN") {
			return c.exitError(op, res[0])
		}
	}
	return nil
}

func (c nodeSet) undrain(ctx context.Context, name string) error {
	op := c.cli("scontrol", "update", "nodename="+name, "state=undrain")
	return c.repeat(ctx, "undrain "+name, op, func(nodes []node) bool {
		n, ok := findNode(nodes, name)
		return ok && !n.flag("DRAIN")
	})
}

func (c nodeSet) delete(ctx context.Context, name string) error {
	op := c.cli("scontrol", "delete", "nodename="+name)
	return c.repeat(ctx, "delete node "+name, op, func(nodes []node) bool {
		_, ok := findNode(nodes, name)
		return !ok
	})
}

// repeat runs op until the controller's nodes are as wanted.
func (c nodeSet) repeat(ctx context.Context, what string, op runtimes.Op, wanted func([]node) bool) error {
	return c.env.poll(ctx, what, func(ctx context.Context) (bool, string, error) {
		res, err := c.do(ctx, op)
		if err != nil {
			return false, "", err
		}
		nodes, err := c.list(ctx)
		return err == nil && wanted(nodes), c.exitError(op, res[0]).Error(), err
	})
}

// remove deletes a node without jobs from the controller. It stops slurmd first,
// as the node would come back otherwise, and records a drain that Berth did not make.
func (c nodeSet) remove(ctx context.Context, wk site, m plan.Member, n node) error {
	if err := c.drain(ctx, drainLeave+"rejoin", m.Node); err != nil {
		return err
	}
	running, _, err := c.jobs.list(ctx, "--nodelist="+m.Node)
	if err != nil {
		return err
	}
	if len(running) > 0 {
		return waiting("node %s has to join again and still has running jobs", m.Node)
	}
	if n.flag("DRAIN") && !ownDrain(n) {
		if err := c.updateRecord(ctx, func(r *record) { r.rememberDrain(m.Node, n.Reason) }); err != nil {
			return err
		}
	}
	if err := wk.doAll(ctx, c.service(profile.Slurmd, "stop")); err != nil {
		return err
	}
	return c.delete(ctx, m.Node)
}

// ownDrain reports whether Berth drained the node.
func ownDrain(n node) bool {
	return strings.HasPrefix(n.Reason, drainLeave) || strings.HasPrefix(n.Reason, drainStop)
}

// restoreDrain drains a node that an administrator had drained before it was deleted
// from the controller.
func (c nodeSet) restoreDrain(ctx context.Context, m plan.Member) error {
	why, kept := c.rec.Drained[m.Node]
	if !kept {
		return nil
	}
	if err := c.drain(ctx, cleanReason(why), m.Node); err != nil {
		return err
	}
	return c.updateRecord(ctx, func(r *record) { r.rememberDrain(m.Node, "") })
}

// cleanReason returns a person's reason as an argument for scontrol.
func cleanReason(why string) string {
	why = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune("\"'\\\x60$", r) {
			return '?'
		}
		return r
	}, why)
	if why = strings.TrimSpace(why[:min(len(why), 200)]); why == "" {
		return "drained"
	}
	return why
}

// short returns an action's id for the reason of a drain.
func short(id string) string {
	id = strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '.' || r == '-' {
			return r
		}
		return '.'
	}, id)
	return id[:min(len(id), 40)]
}

// reconcile repairs the nodes of a slurmctld that was killed. It loses the
// changes of the last seconds: deleted nodes and removed drains come back, and nodes
// that had just joined are unknown.
func (c nodeSet) reconcile(ctx context.Context) error {
	nodes, err := c.list(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		member := slices.ContainsFunc(c.rec.Joined, func(m plan.Member) bool { return m.Node == n.Name })
		switch {
		case !member:
			if err := c.drain(ctx, drainLeave+"gone", n.Name); err != nil {
				return err
			}
			if err := c.delete(ctx, n.Name); err != nil {
				return err
			}
		case n.flag("DRAIN") && strings.HasPrefix(n.Reason, drainLeave) && !c.rec.closing(nodeTarget(n.Name)),
			n.flag("DRAIN") && strings.HasPrefix(n.Reason, drainStop) && !c.rec.Stopped && !c.rec.closing(c.clusterTarget()):
			if err := c.undrain(ctx, n.Name); err != nil {
				return err
			}
		}
	}
	control, _ := c.rec.Unit.Control()
	return c.onWorkers(ctx, func(ctx context.Context, wk site, m plan.Member) error {
		if _, known := findNode(nodes, m.Node); known {
			return nil
		}
		res, err := wk.do(ctx, c.service(profile.Slurmd, "state"))
		if err != nil || !res[0].Service.Running {
			return err // Start starts a stopped worker
		}
		if err := wk.doAll(ctx, c.slurmd(m, control, "restart")); err != nil {
			return err
		}
		return c.await(ctx, wk, m)
	})
}

package slurm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

// drainOwner says who drained a node. It is the prefix of the node's reason in Slurm; the id of the action or the name of the
// operation follows.
type drainOwner string

const (
	drainLeave     drainOwner = "berth:leave-"     // an action: the worker leaves
	drainStop      drainOwner = "berth:stop-"      // an action: the cluster stops
	drainUnfit     drainOwner = "berth:unfit-"     // a repair: its host cannot start any job
	drainOperation drainOwner = "berth:operation-" // an operation; only operations undo it
	drainOther     drainOwner = ""                 // an administrator or Slurm; Berth never undoes it
)

// drainOwnerOf returns who drained a node.
func drainOwnerOf(n node) drainOwner {
	for _, owner := range []drainOwner{drainLeave, drainStop, drainUnfit, drainOperation} {
		if strings.HasPrefix(n.Reason, string(owner)) {
			return owner
		}
	}
	return drainOther
}

// isOwn reports whether an action or a repair of Berth made the drain, so that Berth ends it.
func (o drainOwner) isOwn() bool { return o == drainLeave || o == drainStop || o == drainUnfit }

// reason returns the reason of a drain.
func (o drainOwner) reason(id string) string { return string(o) + short(id) }

// Reasons of slurmctld for nodes that it set DOWN. Only silent ones return to service by
// themselves with ReturnToService=1.
const (
	reasonSilent   = "Not responding"
	reasonRebooted = "Node unexpectedly rebooted"
)

// returnRule is ReturnToService (slurm.conf(5)): which DOWN nodes return when they register.
type returnRule int

// returnsAll: each node returns when its slurmd registers.
const returnsAll returnRule = 2

// returnRule returns that of the cluster.
func (r *record) returnRule() returnRule {
	set, err := cluster.Parse(r.Unit.Effective.Config)
	if err != nil || set.Nodes == nil {
		return returnsAll
	}
	return returnRule(set.Nodes.ReturnToService)
}

// isLeftDown reports whether a node that is DOWN is left to an administrator: one who set it
// DOWN, or with ReturnToService=0 also one that slurmctld set DOWN and that has registered
// since. slurmctld keeps the reason of a drain when it sets the node DOWN because it is
// silent.
func (r returnRule) isLeftDown(n node) bool {
	switch {
	case drainOwnerOf(n) == drainOperation:
		return true // it was drained before it went silent, and returns with a resume
	case r == returnsAll || n.Reason == "" || drainOwnerOf(n).isOwn():
		return false
	case n.Reason == reasonSilent || n.Reason == reasonRebooted:
		return r == 0 && !n.Has("NOT_RESPONDING")
	}
	return true
}

// nodeSet changes the nodes of the cluster in slurmctld.
type nodeSet struct {
	*control
	jobs jobQueue
}

// list returns the nodes that the controller knows.
func (c nodeSet) list(ctx context.Context) ([]node, error) {
	tools, err := c.tools(ctx)
	if err != nil {
		return nil, err
	}
	return ask(ctx, c.control, tools.Nodes)
}

func findNode(nodes []node, name string) (node, bool) {
	i := slices.IndexFunc(nodes, func(n node) bool { return n.Name == name })
	if i < 0 {
		return node{}, false
	}
	return nodes[i], true
}

// stateOf returns the state of a node with its flags.
func stateOf(n node) string { return strings.TrimSpace(n.State + " " + strings.Join(n.Flags, "+")) }

// hasShape reports whether the controller has n with the CPUs, memory and GPUs of m.
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
// Berth. For a node that stays DOWN it waits only until its slurmd answers. slurmd with a wrong
// key exits 0 and never registers.
func (c nodeSet) await(ctx context.Context, wk site, m plan.Member) error {
	m = cluster.WithShape(m, c.rec.Found[m.Node])
	rule := c.rec.returnRule()
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
		if n.State == "down" && rule.isLeftDown(n) && !n.Has("NOT_RESPONDING") && hasShape(n, m) {
			return true, "", nil // its slurmd answers
		}
		if n.State == "down" && (n.Reason == reasonRebooted || drainOwnerOf(n).isOwn()) && !n.Has("NOT_RESPONDING") && hasShape(n, m) {
			_, err = c.do(ctx, c.cli("scontrol", "update", "nodename="+m.Node, "state=resume"))
			return false, "resumed", err
		}
		return n.Registered() && hasShape(n, m), fmt.Sprintf("%s %s, %d CPUs, %d MiB, gres %q, reason %q",
			n.State, strings.Join(n.Flags, "+"), n.CPUs, n.Memory, n.Gres, n.Reason), nil
	})
	if err != nil {
		res, stateErr := wk.do(context.WithoutCancel(ctx), c.service(profile.Slurmd, "state"))
		if stateErr == nil && res[0].Service.Detail != "" {
			return fmt.Errorf("%w; slurmd: %s", err, res[0].Service.Detail)
		}
		return err
	}
	if last.Has("DRAIN") && drainOwnerOf(last).isOwn() {
		return c.undrain(ctx, m.Node)
	}
	return nil
}

// drain drains nodes and verifies it. Nodes that an administrator drained keep that
// reason. An unfit one gets the new reason, or the drain would end with its repair.
func (c nodeSet) drain(ctx context.Context, reason string, names ...string) error {
	nodes, err := c.list(ctx)
	if err != nil {
		return err
	}
	var todo []string
	for _, n := range nodes {
		if slices.Contains(names, n.Name) && (!n.Has("DRAIN") || drainOwnerOf(n) == drainUnfit) {
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
		if n, ok := findNode(nodes, name); ok && !n.Has("DRAIN") {
			return c.exitError(op, res[0])
		}
	}
	return nil
}

// undrain undoes a drain and reads it back: the exit status says nothing in the seconds
// after a start of slurmctld.
func (c nodeSet) undrain(ctx context.Context, name string) error {
	op := c.cli("scontrol", "update", "nodename="+name, "state=undrain")
	return c.env.poll(ctx, "undrain "+name, func(ctx context.Context) (bool, string, error) {
		res, err := c.do(ctx, op)
		if err != nil {
			return false, "", err
		}
		nodes, err := c.list(ctx)
		n, ok := findNode(nodes, name)
		return ok && !n.Has("DRAIN"), c.exitError(op, res[0]).Error(), err
	})
}

// awaitRegistration waits until slurmctld has heard from each worker whose slurmd runs.
func (c nodeSet) awaitRegistration(ctx context.Context) error {
	return c.env.poll(ctx, "registration of nodes at "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
		nodes, err := c.list(ctx)
		if err != nil {
			return false, "", err
		}
		unheard := slices.DeleteFunc(slices.Clone(c.rec.Joined), func(m plan.Member) bool {
			n, ok := findNode(nodes, m.Node)
			return !ok || n.Version != ""
		})
		runs := inParallel(unheard, func(m plan.Member) bool {
			// From a host that does not answer, nothing is known: slurmctld does not reach it either.
			runs, err := c.worker(m).runs(ctx, c.service(profile.Slurmd, "state"))
			return err == nil && runs
		})
		if i := slices.Index(runs, true); i >= 0 {
			return false, "node " + unheard[i].Node + " is unknown", nil
		}
		return true, "", nil
	})
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

// reconcile undoes Berth's drains that came back, and brings back what operations changed: a slurmctld
// that was killed loses the changes of its last seconds.
func (c nodeSet) reconcile(ctx context.Context) error {
	nodes, err := c.list(ctx)
	if err != nil {
		return err
	}
	if err := c.restoreMarks(ctx, nodes); err != nil {
		return err
	}
	for _, n := range nodes {
		leaves := drainOwnerOf(n) == drainLeave && c.rec.HasJoined(n.Name) && !c.rec.closing(nodeTarget(n.Name))
		stops := drainOwnerOf(n) == drainStop && !c.rec.Stopped && !c.rec.closing(c.clusterTarget())
		if n.Has("DRAIN") && (leaves || stops) {
			if err := c.undrain(ctx, n.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// restoreMarks repeats the changes of operations that slurmctld lost when it was killed just after them.
func (c nodeSet) restoreMarks(ctx context.Context, nodes []node) error {
	now := c.env.now()
	for _, n := range nodes {
		m, ok := c.rec.Marked[n.Name]
		if !ok || now.Sub(m.At) > markLife+c.env.timeouts.Ready {
			continue
		}
		var err error
		switch {
		case m.Drain != "" && !n.Has("DRAIN"):
			err = c.drain(ctx, m.Drain, n.Name)
		case m.Resume && n.Has("DRAIN") && drainOwnerOf(n) == drainOperation:
			err = c.undrain(ctx, n.Name)
		}
		if err == nil && m.Comment != "" && n.Comment != m.Comment && (n.Comment == "" || strings.HasPrefix(n.Comment, labelMark)) {
			_, err = c.runChecked(ctx, c.cli("scontrol", "update", "nodename="+n.Name, "comment="+m.Comment))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

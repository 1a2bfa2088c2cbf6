package sim

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/memory"
	"berth/schema"
)

// errCrash is the scripted end of a daemon within an action.
var errCrash = errors.New("the daemon was killed")

// hosts is the runtime as one daemon reaches it. Each host remembers the highest epoch, as berth-host does.
type hosts struct {
	*memory.Runtime
	sim      *simulation
	daemon   *daemon
	observed map[schema.Key]plan.Presence // last answers
}

// Observe answers Unknown if the question or its answer is lost.
func (h *hosts) Observe(ctx context.Context, s runtimes.Scope) plan.Observed {
	fault := h.sim.call(ctx, h.daemon, "observe "+s.Key.Name, "lost", "slow")
	obs := plan.Observed{Key: s.Key, Presence: plan.Unknown, Reason: "the host was not asked"}
	if !h.daemon.isDead(ctx) && fault != "lost" {
		if err := h.fence(s); err != nil {
			obs.Reason = err.Error()
		} else {
			h.sim.mu.Lock()
			hold := h.sim.knownHold(h.daemon, s.Key)
			h.sim.mu.Unlock()
			if obs = h.Runtime.Observe(ctx, s); obs.Presence != plan.Unknown && hold != "" {
				h.sim.mu.Lock()
				h.sim.checker.held[s.Key] = hold
				h.sim.mu.Unlock()
			}
		}
	}
	h.sim.mu.Lock()
	defer h.sim.mu.Unlock()
	h.observed[s.Key] = obs.Presence
	if h.sim.plant == "unknown is absent" && obs.Presence == plan.Unknown {
		obs = plan.Observed{Key: s.Key, Presence: plan.Absent}
	}
	return obs
}

// Apply does an action with the fault of the call: killed within or after it, contact lost before or after it, or done twice.
func (h *hosts) Apply(ctx context.Context, c runtimes.Change) error {
	fault := h.sim.call(ctx, h.daemon, "apply "+c.Plan.Key.Name, "crash within", "crash after", "failed", "lost", "doubled", "slow", "late")
	h.sim.mu.Lock()
	h.sim.tracef("%s: %s %s %s on %s, epoch %d, fault %q", h.daemon.name, c.Action.Verb, c.Plan.Key.Name, c.Action.Member,
		c.Action.Node, c.Stamp.Epoch, fault)
	err := h.admit(ctx, &c)
	world, step := h.sim.world, 1+h.sim.draw("step", h.sim.count("step")).IntN(3)
	h.sim.mu.Unlock()
	if err != nil {
		return err
	}
	switch fault {
	case "crash within":
		world.FailStep(step, errCrash)
	case "failed":
		world.FailStep(step, runtimes.ErrUnreachable)
	}
	if h.sim.plant == "no effect" {
		return nil
	}
	if h.sim.plant == "one node for all" && c.Plan.After != nil {
		after := *c.Plan.After
		after.Members = slices.Clone(after.Members)
		for i := range after.Members {
			if !after.Members[i].ControlPlane {
				after.Members[i].Node = "gpu-0"
			}
		}
		p := *c.Plan
		p.After, c.Plan = &after, &p
	}
	err = h.Runtime.Apply(ctx, c)
	if fault == "doubled" {
		err = h.Runtime.Apply(ctx, c)
	}
	if fault == "crash within" || fault == "failed" {
		world.FailStep(0, nil)
	}
	h.sim.mu.Lock()
	if err == nil {
		h.sim.applied = append(h.sim.applied, effect{c.Plan.Key, c.Action, c.Stamp, h.observed[c.Plan.Key]})
	}
	if fault == "crash after" || errors.Is(err, errCrash) {
		h.daemon.crash()
	}
	h.sim.check()
	h.sim.mu.Unlock()
	switch {
	case h.daemon.isDead(ctx), fault == "lost":
		return fmt.Errorf("%s: %w", c.Action.Verb, runtimes.ErrUncertain)
	case fault == "late":
		pause(ctx, 7*time.Second)
	}
	return err
}

// admit refuses an earlier epoch at any host of the action. The caller has the lock.
func (h *hosts) admit(ctx context.Context, c *runtimes.Change) error {
	if h.daemon.isDead(ctx) {
		return runtimes.ErrUnreachable
	}
	nodes := map[string]bool{c.Action.Node: true}
	for _, u := range []*plan.Unit{c.Plan.Before, c.Plan.After} {
		if u != nil {
			for _, m := range u.Members {
				nodes[m.Node] = true
			}
		}
	}
	if h.sim.plant == "stale epoch" && len(h.sim.applied) > 2 {
		c.Stamp.Epoch = 0
		return nil
	}
	return h.sim.raise(maps.Keys(nodes), c.Stamp.Epoch)
}

// fence makes the hosts that answer an observation refuse effects of earlier epochs.
func (h *hosts) fence(s runtimes.Scope) error {
	h.sim.mu.Lock()
	defer h.sim.mu.Unlock()
	nodes := map[string]bool{}
	for _, m := range s.Members {
		nodes[m.Node] = true
	}
	for _, n := range s.Candidates {
		nodes[n.Key.Name] = true
	}
	maps.DeleteFunc(nodes, func(n string, _ bool) bool { return h.sim.lost[n] || s.Stamp.Epoch == 0 }) // it fences nothing
	return h.sim.raise(maps.Keys(nodes), s.Stamp.Epoch)
}

// raise records an epoch at hosts, unless one of them knows a later one. The caller has the lock.
func (s *simulation) raise(hosts iter.Seq[string], epoch uint64) error {
	for n := range hosts {
		if s.epochs[n] > epoch {
			return fmt.Errorf("host %s: %w", n, runtimes.ErrStaleEpoch)
		}
	}
	for n := range hosts {
		s.epochs[n] = epoch
	}
	return nil
}

// effect is an action that a runtime did.
type effect struct {
	unit     schema.Key
	action   plan.Action
	stamp    runtimes.Stamp
	observed plan.Presence // by the same daemon before it
}

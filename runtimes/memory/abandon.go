package memory

import (
	"fmt"
	"slices"

	"berth/reconciler/plan"
	"berth/runtimes"
)

// Left returns what abandoned members left on a node.
func (w *World) Left(node string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.left[node])
}

// leave changes what abandoned members left on a node.
func (w *World) leave(node string, change func(left []string) []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left[node] = change(w.left[node])
}

// remainsOf names what a member leaves on its host.
func (a *applier) remainsOf() string { return a.change.Action.Member + " of " + a.key.String() }

// abandon takes a member out at the control plane and leaves its remains on its host.
func (a *applier) abandon() error {
	name, node := a.change.Action.Member, a.change.Action.Node
	control, ok := a.change.Plan.Before.Control()
	if !ok {
		return fmt.Errorf("abandon %s: the unit has no control plane", a.key)
	}
	isBusy := false
	if err := a.step(control.Node, "abandon "+name, func(u *unit) {
		if isBusy = u.Jobs.Running > 0; isBusy || u.Members[name].Node != node {
			return
		}
		a.world.leave(node, func(left []string) []string { return append(left, a.remainsOf()) })
		delete(u.Members, name)
		u.Applied.Members = slices.DeleteFunc(u.Applied.Members, func(m plan.Member) bool { return m.Name == name })
	}); err != nil {
		return err
	}
	if isBusy {
		return fmt.Errorf("abandon %s: jobs run on %s: %w", a.key, node, runtimes.ErrWaiting)
	}
	return nil
}

// clean removes the remains of an abandoned member.
func (a *applier) clean() error {
	node := a.change.Action.Node
	return a.step(node, "clean", func(*unit) {
		a.world.leave(node, func(left []string) []string {
			return slices.DeleteFunc(left, func(what string) bool { return what == a.remainsOf() })
		})
	})
}

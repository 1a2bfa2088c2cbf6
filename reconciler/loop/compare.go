package loop

import (
	"slices"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/reconciler/status"
	"berth/schema"
)

// changes returns true if a unit's plan is compared with a reviewed one after a
// decision: if before is known and the decision changed the desired state of the unit.
// Lost memory or a freed node do not change it; so before has the assignments of the
// present placement.
func changes(before, st *reconciler.State, key schema.Key) bool {
	return before != nil && (!sameUnit(before, st, key) || !sameDenials(before.Effective.Denied(key), st.Effective.Denied(key)))
}

// sameUnit returns true if two decisions mean the same for a unit. Units that were not
// evaluated again are the same value, so the comparison of most units is free.
func sameUnit(a, b *reconciler.State, key schema.Key) bool {
	return sameInstance(a, b, key) && schema.SameOperations(a.Effective.Operations(key), b.Effective.Operations(key)) &&
		slices.EqualFunc(a.Placement.Members(key), b.Placement.Members(key), sameMember)
}

func sameInstance(a, b *reconciler.State, key schema.Key) bool {
	x, y := a.Unit(key), b.Unit(key)
	return x == y || status.EqualJSON(x, y)
}

// sameMember compares two members without the reason of their placement. Every
// decision compares every member, so it does not use reflection.
func sameMember(a, b plan.Member) bool {
	return a.Name == b.Name && a.Role == b.Role && a.ControlPlane == b.ControlPlane && a.Node == b.Node &&
		a.Address == b.Address && a.SSHPort == b.SSHPort && a.Region == b.Region && a.SKU == b.SKU &&
		a.CPUs == b.CPUs && a.Shape == b.Shape && a.MemoryMiB == b.MemoryMiB && a.Misfit == b.Misfit && slices.Equal(a.GPUs, b.GPUs) &&
		sameLoan(a.Loan, b.Loan)
}

func sameLoan(a, b *schema.Loan) bool {
	if a == nil || b == nil {
		return a == b
	}
	sameRule := a.OnJobs == b.OnJobs || a.OnJobs != nil && b.OnJobs != nil && *a.OnJobs == *b.OnJobs
	return a.ProjectID == b.ProjectID && a.Until == b.Until && sameRule
}

func sameDenials(a, b []schema.Decision) bool {
	return len(a) == 0 && len(b) == 0 || status.EqualJSON(a, b)
}

// wasStopped returns true if a unit was stopped as declared before a decision. A unit
// whose review is still awaited never reached the state before.
func wasStopped(before *reconciler.State, prev *plan.Status, key schema.Key) bool {
	if prev != nil && prev.Review != nil {
		return prev.Review.Stopped
	}
	was := before.Unit(key)
	return was != nil && was.DesiredState == schema.DesiredStopped
}

// isNewUnit returns true if a decision creates a unit, rather than changes one.
func isNewUnit(prev *plan.Status) bool {
	return prev == nil || prev.Phase == plan.PhaseDeleting || prev.Phase == plan.PhaseDeleted
}

// changedOwners returns, sorted, the tenants, and "" for the platform, that can
// differ from last, which is nil the first time. Revisions share the parts that did
// not change. The platform's rules hold for everybody, so a change there changes
// every owner.
func changedOwners(last, now *schema.Desired) []string {
	var out []string
	all := last == nil || last.Platform != now.Platform
	if all {
		out = append(out, "")
	}
	for name, t := range now.Tenants {
		if all || last.Tenants[name] != t {
			out = append(out, name)
		}
	}
	if last != nil {
		for name := range last.Tenants {
			if now.Tenants[name] == nil {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return out
}

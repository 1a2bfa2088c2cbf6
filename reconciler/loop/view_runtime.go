package loop

import (
	"context"
	"fmt"

	"berth/reconciler/plan"
	"berth/reconciler/status"
	"berth/runtimes"
	"berth/schema"
)

// viewRuntime is the runtime of instances that use a shared runtime. Such an instance exists while its
// project is attached there. It has no actions: those are the shared runtime's.
type viewRuntime struct{ status *status.Writer }

// Observe implements runtimes.Runtime.
func (r viewRuntime) Observe(_ context.Context, s runtimes.Scope) plan.Observed {
	out := plan.Observed{Key: s.Key, Presence: plan.Absent}
	if s.Instance == nil {
		return out // nothing is left of it: the shared runtime detaches the project
	}
	key := schema.SharedRuntimeKey(s.Key.Tenant, s.Instance.ControlPlaneScope, s.Instance.SharedRuntime)
	out.Reason = fmt.Sprintf("%s has not attached %s", key, s.Key.ProjectID())
	unit := r.status.Unit(key)
	if unit == nil {
		return out
	}
	for _, a := range unit.Attachments {
		if a.ProjectID != s.Key.ProjectID() {
			continue
		}
		if a.Phase == plan.AttachmentAttached {
			return plan.Observed{Key: s.Key, Presence: plan.Present, Complete: true, Unit: &plan.Unit{Effective: *s.Instance}}
		}
		if a.Message != "" {
			out.Reason += ": " + a.Message
		}
	}
	return out
}

// Apply implements runtimes.Runtime.
func (viewRuntime) Apply(_ context.Context, c runtimes.Change) error {
	return fmt.Errorf("%s uses a shared runtime and has no action %s", c.Action.Key, c.Action.Verb)
}

// Impact implements plan.Rules.
func (viewRuntime) Impact(plan.Verb, string, *plan.Unit, *plan.Unit) plan.Impact {
	return plan.Impact{}
}

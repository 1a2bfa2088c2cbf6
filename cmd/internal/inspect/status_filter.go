package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/load"
)

// StatusFilter selects resources; an empty field selects all.
type StatusFilter struct {
	Project string // TENANT.PROJECT
	Phase   string
	Failed  bool // what is not ready, and what is held
}

// phaseNames are the phases of instances and shared runtimes.
func phaseNames() []string {
	return []string{
		string(plan.PhaseRequested), string(plan.PhaseDeploying), string(plan.PhaseRunning), string(plan.PhaseUpdating),
		string(plan.PhaseStopped), string(plan.PhaseFailed), string(plan.PhaseDeleting), string(plan.PhaseDeleted),
	}
}

// Check checks the phase.
func (f StatusFilter) Check() error {
	if names := phaseNames(); f.Phase != "" && !slices.Contains(names, f.Phase) {
		if like := load.Nearest(f.Phase, names); like != "" {
			return fmt.Errorf("--phase: there is no phase %q: did you mean %q?", f.Phase, like)
		}
		return fmt.Errorf("--phase: there is no phase %q; choose one of %s", f.Phase, strings.Join(names, ", "))
	}
	return nil
}

func (f StatusFilter) takes(s ResourceStatus) bool {
	return (f.Project == "" || s.Key.ProjectID() == f.Project) && (f.Phase == "" || s.Phase == f.Phase) && (!f.Failed || s.isTrouble())
}

// takesHeld reports whether a held document is of the project. It has no phase.
func (f StatusFilter) takesHeld(h schema.Held) bool {
	tenant, project, _ := strings.Cut(f.Project, ".")
	return f.Phase == "" && (f.Project == "" || strings.HasPrefix(h.File, "tenants/"+tenant+"/projects/"+project+"/"))
}

// isTrouble reports whether a resource needs attention: it is not ready, or nothing goes on by
// itself.
func (s ResourceStatus) isTrouble() bool {
	return s.Stalled || s.Ready == "False" || s.Ready == "Unknown" || s.Phase == string(plan.PhaseFailed)
}

// Filter leaves what a filter selects. A project that has nothing here is an error if no document
// in force declares it; inForce may be nil.
func (o *Overview) Filter(f StatusFilter, inForce *schema.Desired) error {
	known := names{}
	for _, list := range []*[]ResourceStatus{&o.Instances, &o.Shared, &o.Resources} {
		*list = slices.DeleteFunc(*list, func(s ResourceStatus) bool {
			known.add("project", s.Key.ProjectID())
			return !f.takes(s)
		})
	}
	o.Held = slices.DeleteFunc(o.Held, func(h schema.Held) bool { return !f.takesHeld(h) })
	if inForce != nil {
		known.addUnits(inForce)
	}
	return known.check("project", f.Project, "resource")
}

// troubleFirst orders what needs attention before the rest, each by name as before.
func troubleFirst(all []ResourceStatus) []ResourceStatus {
	return slices.SortedStableFunc(slices.Values(all), func(a, b ResourceStatus) int {
		rank := func(s ResourceStatus) int {
			if s.isTrouble() {
				return 0
			}
			return 1
		}
		return cmp.Compare(rank(a), rank(b))
	})
}

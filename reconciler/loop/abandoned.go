package loop

import (
	"slices"
	"time"

	"berth/reconciler/nodes"
	"berth/reconciler/plan"
)

// lostNodes is what a reconciliation knows of the nodes of a unit that are lost, or were.
type lostNodes struct {
	at      time.Time                 // of the observation
	nodes   map[string]plan.NodeState // by name
	cleaned []plan.Action             // cleans that were done in this reconciliation
}

// noteNodes reads the states of the nodes of the observed and of the abandoned members.
func (r *unitRun) noteNodes() {
	v := &r.view
	v.at, v.nodes = r.now().UTC().Truncate(time.Second), map[string]plan.NodeState{}
	note := func(name string) {
		s := r.status.Resource(nodeKey(name))
		if s == nil {
			return
		}
		is := plan.NodeState{Ready: s.Phase == string(nodes.Ready)}
		if s.Phase == string(nodes.Lost) {
			is.LostFor = v.at.Sub(nodes.ReadRecord(s).Since)
		}
		v.nodes[name] = is
	}
	for _, m := range v.observed.Members {
		note(m.Node)
	}
	for _, a := range v.prev.Abandoned {
		note(a.Node)
	}
}

// cleanedBy returns the cleans of a plan that were done.
func cleanedBy(p plan.Plan, outcomes []plan.Outcome) (done []plan.Action) {
	for i, o := range outcomes { // in the plan's order
		if o.Verb == plan.Clean && o.State == plan.Done {
			done = append(done, p.Actions[i])
		}
	}
	return done
}

// abandoned returns the members that the unit goes on without. One is recorded before the runtime takes it out, and stays until
// its host is clean, or until the runtime observes it there because its host came back first.
func (v unitView) abandoned() []plan.Abandoned {
	out := slices.DeleteFunc(slices.Clone(v.prev.Abandoned), func(a plan.Abandoned) bool {
		return slices.ContainsFunc(v.cleaned, func(c plan.Action) bool { return c.Member == a.Name && c.Node == a.Node }) ||
			slices.ContainsFunc(v.observed.Members, func(s plan.MemberState) bool {
				return s.Name == a.Name && s.Node == a.Node && s.State != plan.Unreachable
			})
	})
	if !v.acting {
		return out
	}
	for _, act := range v.plan.Actions {
		m, ok := v.plan.Before.Member(act.Member)
		isNew := !slices.ContainsFunc(out, func(a plan.Abandoned) bool { return a.Name == act.Member && a.Node == act.Node })
		if act.Verb == plan.Abandon && ok && isNew {
			out = append(out, plan.Abandoned{Member: m, Since: v.at})
		}
	}
	return out
}

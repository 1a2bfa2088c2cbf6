package loop

import (
	"slices"
	"time"

	"berth/reconciler/nodes"
	"berth/reconciler/plan"
	"berth/schema"
)

// lostNodes is what a reconciliation knows of the nodes of a unit that are lost, or were.
type lostNodes struct {
	at      time.Time                 // of the observation
	nodes   map[string]plan.NodeState // by name
	cleaned []plan.Action             // cleans that were done in this reconciliation
	missing map[string]time.Time      // since when the hosts of observed members have nothing of them, by member
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
	v.noteMissing()
}

// noteMissing notes since when the hosts of members have nothing of them. A member whose grace is over, or for which an operation
// asks, is to be made again like one that has joined incompletely, and so is one that has never joined. So plans, and the status that
// pull requests read, need no clock. A unit that is not to run needs no member again.
func (v *unitView) noteMissing() {
	v.missing = map[string]time.Time{}
	isToRun := v.want != nil && !v.want.Suspend && v.want.DesiredState != schema.DesiredStopped
	isAsked := slices.ContainsFunc(v.operations, func(o plan.Operation) bool { return o.Verb() == plan.RetryUnit && !o.IsFinished() })
	for i := range v.observed.Members {
		m := &v.observed.Members[i]
		if m.State != plan.Missing {
			continue
		}
		since, hasJoined := v.missingSince(m)
		if isToRun && !hasJoined {
			m.State = plan.Partial
			continue
		}
		v.missing[m.Name] = since
		end := since.Add(v.missingGrace(m.Name))
		m.Detail = "its host has nothing of it since " + since.Format(time.RFC3339)
		switch {
		case !isToRun:
			continue
		case isAsked || !v.at.Before(end):
			m.State = plan.Partial
			continue
		}
		m.Detail += "; Berth makes it again at " + end.Format(time.RFC3339) + ", or after an operation retry"
	}
}

// missingSince returns the recorded time since which the host of a member has nothing of it, else that of this observation; and
// whether the member has joined before.
func (v *unitView) missingSince(m *plan.MemberState) (since time.Time, hasJoined bool) {
	since = v.at
	for _, was := range v.prev.Members {
		if was.Name != m.Name || was.Node != m.Node {
			continue
		}
		hasJoined = was.State != "" && was.State != plan.Partial
		if !was.MissingSince.IsZero() && was.MissingSince.Before(since) { // a clock may have gone back
			since, hasJoined = was.MissingSince, true
		}
	}
	return since, hasJoined
}

// missingGrace returns how long the host of a member may have nothing of it before Berth makes it again.
func (v *unitView) missingGrace(member string) time.Duration {
	m, _ := v.observed.Unit.Member(member)
	if v.want != nil {
		for _, role := range v.want.Roles {
			if role.Name == m.Role {
				return role.MissingGrace()
			}
		}
	}
	return schema.DefaultMissingGrace
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

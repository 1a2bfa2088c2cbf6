package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
)

// readyToMerge is the verdict on a change that costs nobody anything.
const readyToMerge = "Ready to merge"

// verdict describes whether the change can be merged, and the loss if there is one, without a
// full stop. text escapes all text from outside Berth.
func verdict(p *plan.Proposal, c *plan.PullContext, text func(string) string) string {
	switch bad, move := obstacles(p), partialMove(p); {
	case len(p.Conflicts) > 0:
		return "Blocked: conflicts with the base in " + count(len(p.Conflicts), "file")
	case bad == "" && awaited(p, text) != "":
		return "Waits for " + awaited(p, text)
	case bad == "" && harm(p, c) != "":
		return "Mergeable, and it " + harm(p, c)
	case bad == "":
		return readyToMerge
	case awaitsAcknowledgement(p):
		return "Waiting for approval: " + count(len(p.Diagnostics), "deletion")
	case move != "":
		return "Blocked: it " + text(move)
	default:
		return "Blocked: " + bad
	}
}

// awaited names the conditions that a merge waits for, if it has no effect until then; "" otherwise, also
// if documents suspend or stop a unit.
func awaited(p *plan.Proposal, text func(string) string) string {
	var all []string
	for i := range p.Plans {
		if changeOf(p, &p.Plans[i]) == creates {
			continue // it waits for the shared runtime of another plan
		}
		stays := func(b plan.Blocked) bool {
			return !b.Wait || b.Code == plan.CodeSuspended || b.Code == plan.CodeStopped
		}
		if len(p.Plans[i].Actions) > 0 || slices.ContainsFunc(p.Plans[i].Blocked, stays) {
			return ""
		}
		all = withNew(all, waitsFor(&p.Plans[i], text))
	}
	return list(all, maxNamed)
}

// waitsFor names the conditions that a unit waits for.
func waitsFor(u *plan.Plan, text func(string) string) string {
	var all []string
	for _, b := range u.Blocked {
		what := map[plan.BlockedCode]string{
			plan.CodeSuspended: "the end of the suspension", plan.CodeStopped: "the next start",
			plan.CodeNoNode: "a free node", plan.CodeUnavailable: "other members",
		}[b.Code]
		switch {
		case b.Node != "":
			what = "host " + text(b.Node)
		case b.Artifact != "":
			what = "verification of artifact " + text(short(b.Artifact, maxValue))
		case b.Code == plan.CodeShared && isView(u):
			what = unitAs(sharedBy(u), text) + " to attach its project"
		}
		all = withNew(all, cmp.Or(what, "a condition that is named below"))
	}
	return list(all, maxNamed)
}

// partialMove describes a move between tenants of which a merge makes only the deletion
// or only the creation; "" otherwise. Why is a finding of its own.
func partialMove(p *plan.Proposal) string {
	moves := map[plan.MoveHalf][]string{}
	for _, c := range p.Documents {
		if m := c.Partial; m != nil {
			moves[m.Half] = append(moves[m.Half], m.String())
		}
	}
	all := slices.Concat(moves[plan.HalfDeletion], moves[plan.HalfCreation])
	switch len(all) {
	case 0:
		return ""
	case 1:
		return short(all[0], maxProse)
	}
	return short(all[0], maxProse) + fmt.Sprintf(" (and %s more)", count(len(all)-1, "document"))
}

// awaitsAcknowledgement reports whether a merge needs only an acknowledgement.
func awaitsAcknowledgement(p *plan.Proposal) bool {
	return obstacles(p) == count(len(p.Diagnostics), "error") && !slices.ContainsFunc(p.Diagnostics, func(f schema.Diagnostic) bool {
		return acknowledgement(f) == ""
	})
}

// obstacles counts the obstacles of a merge; "" without one.
func obstacles(p *plan.Proposal) string {
	n := 0
	var blocked []schema.Key
	for _, f := range p.Diagnostics {
		if f.Severity == schema.SeverityError {
			n++
		}
	}
	for i := range p.Plans {
		if u := &p.Plans[i]; len(p.Obstacles(u)) > 0 {
			blocked = append(blocked, u.Key)
		}
	}
	var parts []string
	if n > 0 {
		parts = append(parts, count(n, "error"))
	}
	if len(blocked) > 0 {
		parts = append(parts, count(len(blocked), noun(blocked))+" blocked")
	}
	if held := len(unexplained(p)); held > 0 {
		parts = append(parts, count(held, "document")+" held")
	}
	return sentence(parts)
}

// blockOf returns the first block of a unit that takes more than time; nil without one.
func blockOf(u *plan.Plan) *plan.Blocked {
	if i := slices.IndexFunc(u.Blocked, func(b plan.Blocked) bool { return !b.Wait }); i >= 0 {
		return &u.Blocked[i]
	}
	return nil
}

// unexplained returns the held documents without an error that explains them.
func unexplained(p *plan.Proposal) []schema.Held {
	return slices.DeleteFunc(slices.Clone(p.Held), func(h schema.Held) bool {
		return slices.ContainsFunc(p.Diagnostics,
			func(d schema.Diagnostic) bool { return d.File == h.File && d.Severity == schema.SeverityError })
	})
}

// effects describes the effects of a merge on instances in one sentence, the worst
// first. It names the instances if they are few.
func effects(p *plan.Proposal, text func(string) string) string {
	if len(p.Conflicts) > 0 {
		if p.Head == "" {
			return "Nothing can be planned: make the change again from the base."
		}
		return "Nothing can be planned: merge the base into the branch and push again."
	}
	would := obstacles(p) != ""
	by := map[change][]*plan.Plan{}
	for _, u := range inOrder(p) {
		by[changeOf(p, u)] = append(by[changeOf(p, u)], u)
	}
	if !would && awaited(p, text) != "" {
		return "Until then, " + unitsText(p, by[blocks], text) + plural(len(p.Plans), " stays unchanged.", " stay unchanged.")
	}
	var parts []string
	for c := deletes; c <= changes; c++ {
		if units := by[c]; c != blocks && len(units) > 0 {
			parts = append(parts, c.verb(would)+" "+objects(p, c, units, len(parts) == 0, would, text))
		}
	}
	begin := "No " + changeable(p) + " changes"
	switch {
	case len(parts) > 0 && would:
		begin = "A merge would " + sentence(parts)
	case len(parts) > 0:
		begin = upper(sentence(parts))
	case would:
		begin = "A merge would change no " + changeable(p)
	}
	return begin + pending(p, by[blocks], text) + "."
}

// pending describes the units that wait, and those that are blocked.
func pending(p *plan.Proposal, units []*plan.Plan, text func(string) string) (s string) {
	var wait, blocked []*plan.Plan
	var reasons []string
	for _, u := range units {
		if blockOf(u) != nil {
			blocked = append(blocked, u)
			continue
		}
		wait, reasons = append(wait, u), withNew(reasons, waitsFor(u, text))
	}
	if n := len(wait); n > 0 {
		s = "; " + unitsText(p, wait, text) + plural(n, " waits for ", " wait for ") + list(reasons, maxNamed)
	}
	if n := len(blocked); n > 0 {
		s += "; " + unitsText(p, blocked, text) + plural(n, " stays unchanged", " stay unchanged")
	}
	return s
}

// objects returns the grammatical object for the verb of units, or counts the units if a proposal has many.
// withNoun: the number has a noun. would: the merge is blocked.
func objects(p *plan.Proposal, c change, units []*plan.Plan, withNoun, would bool, text func(string) string) string {
	switch {
	case len(p.Plans) <= maxNamed:
		return sentence(each(units, func(u *plan.Plan) string { return c.object(u, would, text) }))
	case withNoun:
		return c.objects() + count(len(units), noun(keysOf(p.Plans)))
	}
	return c.objects() + fmt.Sprint(len(units))
}

// unitsText names units, or counts them if a proposal has many.
func unitsText(p *plan.Proposal, units []*plan.Plan, text func(string) string) string {
	if len(p.Plans) > maxNamed {
		return count(len(units), noun(keysOf(p.Plans)))
	}
	return sentence(each(units, func(u *plan.Plan) string { return unitAs(u.Key, text) }))
}

// changeable returns the noun for the units that a change is about: instance, shared runtime or both.
func changeable(p *plan.Proposal) string {
	has := func(kinds ...schema.Kind) bool {
		return slices.ContainsFunc(p.Documents, func(d plan.DocumentChange) bool { return slices.Contains(kinds, d.Key.Kind) })
	}
	instance, shared := kindWord(schema.KindInstance), kindWord(schema.KindSharedRuntime)
	switch {
	case !has(schema.KindSharedRuntime, schema.KindAttachment, schema.KindContribution):
		return instance
	case has(schema.KindInstance):
		return instance + " or " + shared
	}
	return shared
}

// ofPolicy describes the units that a policy will stop, and the denials that a change of policies ends.
func ofPolicy(p *plan.Proposal, text func(string) string) string {
	return strings.TrimSpace(later(p) + " " + allowed(p, text))
}

// allowed describes the denials and the required approvals that the change removes from policies.
func allowed(p *plan.Proposal, text func(string) string) string {
	var all []string
	for _, d := range p.Documents {
		if d.Key.Kind != schema.KindPolicy {
			continue
		}
		for _, f := range d.Fields {
			switch {
			case f.Field == "spec.require_approval" && f.Before == "true":
				all = append(all, text(d.File)+" no longer requires approval.")
			case f.Field == "spec.hard_deny.apps":
				after := strings.Split(strings.Trim(f.After, "[]"), ", ")
				apps := slices.DeleteFunc(strings.Split(strings.Trim(f.Before, "[]"), ", "),
					func(a string) bool { return a == "" || slices.Contains(after, a) })
				if len(apps) > 0 {
					all = append(all, text(d.File)+" no longer denies "+text(short(strings.Join(apps, ", "), maxValue))+".")
				}
			}
		}
	}
	if n := len(all); n > maxNamed {
		all = append(all[:maxNamed-1:maxNamed-1], fmt.Sprintf("%d more are named below.", n-maxNamed+1))
	}
	return strings.Join(all, " ")
}

// later describes the units that a policy will stop.
func later(p *plan.Proposal) string {
	var stop []schema.Key
	for _, x := range p.Impacted {
		if x.Fate == schema.FateStopping {
			stop = append(stop, x.Key)
		}
	}
	if len(stop) == 0 {
		return ""
	}
	return "A policy stops " + count(len(stop), noun(stop)) + " later."
}

// released lists the held documents that come into force with the next merge, and the
// blocks among them. It is a section of its own, because this change need not fix them.
func released(p *plan.Proposal, text, words func(string) string) string {
	var names, blocked []string
	for _, k := range p.Released {
		names = append(names, unitAs(k, text))
	}
	for i := range p.Plans {
		u := &p.Plans[i]
		if b := blockOf(u); b != nil && p.Comes(u.Key) {
			blocked = append(blocked, unitAs(u.Key, text)+" is blocked: "+words(short(strings.TrimSuffix(b.Message, "."), maxProse))+".")
		}
	}
	s := fmt.Sprintf("%s %s held and %s into force with the next merge, whatever that changes.", list(names, maxNamed),
		plural(len(names), "was", "were"), plural(len(names), "comes", "come"))
	if n := len(blocked); n > maxNamed {
		blocked = append(blocked[:maxNamed-1:maxNamed-1], fmt.Sprintf("%d more are blocked.", n-maxNamed+1))
	}
	return strings.Join(append([]string{s}, blocked...), " ")
}

// mergeConflicts lists the files in which branch and base conflict. A patch that does not apply has a
// finding there instead.
func mergeConflicts(p *plan.Proposal) []string {
	return slices.DeleteFunc(slices.Clone(p.Conflicts), func(file string) bool {
		return slices.ContainsFunc(p.Diagnostics, func(d schema.Diagnostic) bool { return d.File == file })
	})
}

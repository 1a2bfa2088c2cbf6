package policy

import (
	"slices"

	"berth/schema"
)

// strictest is what the layers say becomes of instances that are no longer
// allowed, and the layer that says it: stop before hold, the earlier day before
// the later, the wider layer of equal ones. A stop without a day would be a
// silent one; the reader lets none through, and it is none.
func strictest(layers []layer) (n schema.Noncompliant, by layer, ok bool) {
	stops := func(n schema.Noncompliant) bool { return n.Action == schema.NoncompliantStop }
	for _, l := range layers {
		said := l.noncompliant
		switch {
		case said.Action == "":
		case !ok, stops(said) && (!stops(n) || said.GraceUntil < n.GraceUntil):
			n, by, ok = said, l, true
		}
	}
	if !stops(n) {
		n.GraceUntil = ""
	}
	return n, by, ok
}

// becomes says what becomes of an instance that exists and is refused.
func (j *judgement) becomes(today string) {
	if j.new || !j.denied() {
		return
	}
	const rule, field = "noncompliant", "spec.desired_state"
	n, by, said := strictest(j.layers)
	out := &schema.Noncompliance{Key: j.key, Fate: schema.FateHeld, Day: n.GraceUntil}
	source := j.decisions[slices.IndexFunc(j.decisions, isDeny)].Source
	if said {
		source = by.at("noncompliant")
		out.Source = &source
	}
	was, is := string(j.instance.Spec.DesiredState), string(schema.DesiredStopped)
	switch {
	case n.GraceUntil == "":
		j.say(schema.Allow, rule, source, field, was, was, "policy no longer allows it; it stays as it is, and takes no change that does not comply")
	case today < n.GraceUntil: // as it is where nobody says which day it is
		out.Fate = schema.FateStopping
		j.say(schema.Allow, rule, source, field, was, was, "policy no longer allows it; it stays as it is until %s begins, UTC, and is then stopped unless it complies", n.GraceUntil)
	default:
		out.Fate = schema.FateStopped
		stopped := *j.result
		stopped.DesiredState = schema.DesiredStopped
		j.result, j.decisions = &stopped, slices.Clone(j.decisions)
		for i := range j.decisions {
			if isDeny(j.decisions[i]) {
				j.decisions[i].Verdict = schema.Stop
			}
		}
		j.say(schema.Narrow, rule, source, field, was, is, "policy no longer allows it, and its grace was over when %s began, UTC: it is stopped until it complies", n.GraceUntil)
	}
	for _, d := range j.decisions {
		if d.Verdict == schema.Deny || d.Verdict == schema.Stop {
			out.Because = append(out.Because, d)
		}
	}
	j.noncompliance = out
}

func isDeny(d schema.Decision) bool { return d.Verdict == schema.Deny }

func (j *judgement) denied() bool { return slices.ContainsFunc(j.decisions, isDeny) }

func compareNoncompliance(a, b schema.Noncompliance) int { return a.Key.Compare(b.Key) }

func sortNoncompliant(ns []schema.Noncompliance) { slices.SortFunc(ns, compareNoncompliance) }

// Impacted says of which instances that exist a change makes policy refuse
// them, or no longer refuse them, or what becomes of them another thing, and
// what that is, sorted by Key. before and after were evaluated with the same
// instances existing. What the change takes away is not told.
func Impacted(before, after *schema.Effective) []schema.Noncompliance {
	var out []schema.Noncompliance
	for key := range schema.Differing(before, after) {
		was, now := before.Noncompliance(key), after.Noncompliance(key)
		switch {
		case now != nil && (was == nil || !sameFate(*was, *now)):
			out = append(out, *now)
		case now == nil && was != nil && after.Instance(key) != nil:
			complies := *was
			complies.Fate, complies.Day = schema.FateComplies, ""
			out = append(out, complies)
		}
	}
	sortNoncompliant(out)
	return out
}

// sameFate says whether two say the same of an instance, wherever what they
// rest on stands now.
func sameFate(a, b schema.Noncompliance) bool {
	return a.Fate == b.Fate && a.Day == b.Day && slices.EqualFunc(a.Because, b.Because, func(x, y schema.Decision) bool {
		return x.Rule == y.Rule && x.Field == y.Field && x.Source.File == y.Source.File
	})
}

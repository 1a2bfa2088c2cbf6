package policy

import (
	"slices"

	"berth/schema"
)

// strictest returns the strictest rule for instances that are no longer allowed, and its
// layer: stop before hold, the earlier day before the later, the wider layer of equal
// ones. A stop without a day has no effect; the reader refuses it.
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

// fate returns the decision of the layers about an instance that policy stopped allowing,
// without Because and Key.
func fate(layers []layer, today string) schema.Noncompliance {
	n, by, said := strictest(layers)
	out := schema.Noncompliance{Fate: schema.FateHeld, Day: n.GraceUntil}
	if said {
		source := by.at("noncompliant")
		out.Source = &source
	}
	switch {
	case n.GraceUntil == "":
	case today < n.GraceUntil: // unchanged if the day is unknown
		out.Fate = schema.FateStopping
	default:
		out.Fate = schema.FateStopped
	}
	return out
}

// limits returns the limits of the layers on the nodes of members; nil if no layer has a
// limit.
func limits(layers []layer) *schema.Limits {
	says := func(k list) (all []schema.Allowed) {
		for _, l := range layers {
			if values := k.of(l.Overlay); values != nil {
				all = append(all, schema.Allowed{Values: values, Source: l.at(k.key)})
			}
		}
		return all
	}
	out := &schema.Limits{Regions: says(allowedRegions()), SKUs: says(allowedSKUs())}
	k := maxGPUs()
	if most, by, ok := k.least(layers); ok {
		source := by.at(k.key)
		out.GPUs, out.MaxGPUs = &source, most
	}
	if out.Regions == nil && out.SKUs == nil && out.GPUs == nil {
		return nil
	}
	return out
}

// bound sets the allowed nodes of the instance, and its fate on others.
func (j *judgement) bound(today string) {
	if j.limits == nil {
		return
	}
	f := fate(j.all, today)
	j.bounds = &schema.Bounds{Instance: j.instance, Limits: j.limits, Fate: f.Fate, Day: f.Day, Source: f.Source}
}

// becomes sets the fate of an existing instance that is denied.
func (j *judgement) becomes(today string) {
	if j.new || !j.denied() {
		return
	}
	f := fate(j.all, today)
	out := &schema.Noncompliance{Key: j.key, Fate: f.Fate, Day: f.Day, Source: f.Source}
	j.fares(f, j.decisions[slices.IndexFunc(j.decisions, isDeny)].Source)
	for _, d := range j.decisions {
		if d.Verdict == schema.Deny || d.Verdict == schema.Stop {
			out.Because = append(out.Because, d)
		}
	}
	j.noncompliance = out
}

// fares applies a fate to an instance that the rule at because denies.
func (j *judgement) fares(f schema.Noncompliance, because schema.Position) {
	const rule, field = "noncompliant", "spec.desired_state"
	source := because
	if f.Source != nil {
		source = *f.Source
	}
	was, is := string(j.instance.Spec.DesiredState), string(schema.DesiredStopped)
	switch f.Fate {
	case schema.FateHeld:
		j.say(schema.Allow, rule, source, field, was, was,
			"policy no longer allows it; it stays unchanged, and takes no change that does not comply")
	case schema.FateStopping:
		j.say(schema.Allow, rule, source, field, was, was,
			"policy no longer allows it; it stays unchanged until %s begins, UTC, and is then stopped unless it complies", f.Day)
	default:
		j.result, j.decisions = j.result.Stopped(), slices.Clone(j.decisions)
		for i := range j.decisions {
			if isDeny(j.decisions[i]) {
				j.decisions[i].Verdict = schema.Stop
			}
		}
		j.say(schema.Narrow, rule, source, field, was, is,
			"policy no longer allows it, and its grace was over when %s began, UTC: it is stopped until it complies", f.Day)
	}
}

// outside adds the noncompliance caused by the nodes of the members, if any.
func (j *judgement) outside(n *schema.Noncompliance) *judgement {
	if n == nil {
		return j
	}
	out, both := *j, *n
	out.decisions = slices.Clip(j.decisions)
	if j.noncompliance != nil {
		both = *j.noncompliance
		both.Because = slices.Concat(both.Because, n.Because)
	} else {
		out.fares(*n, n.Because[0].Source)
	}
	for _, d := range n.Because {
		if d.Rule == maxGPUs().key {
			d.Field = "spec.roles" // the maximum is explained there
		}
		out.decisions = append(out.decisions, d)
	}
	out.noncompliance = &both
	return &out
}

func isDeny(d schema.Decision) bool { return d.Verdict == schema.Deny }

func (j *judgement) denied() bool { return slices.ContainsFunc(j.decisions, isDeny) }

func compareNoncompliance(a, b schema.Noncompliance) int { return a.Key.Compare(b.Key) }

func sortNoncompliant(ns []schema.Noncompliance) { slices.SortFunc(ns, compareNoncompliance) }

// Impacted returns the existing instances and shared runtimes that a change makes
// noncompliant, or compliant again, or whose fate it changes, sorted by Key. before
// and after were evaluated with the same existing units. Deleted ones are left
// out.
func Impacted(before, after *schema.Effective) []schema.Noncompliance {
	var out []schema.Noncompliance
	for key := range schema.Differing(before, after) {
		was, now := before.Noncompliance(key), after.Noncompliance(key)
		switch {
		case now != nil && (was == nil || !sameFate(*was, *now)):
			out = append(out, *now)
		case now == nil && was != nil && after.Unit(key) != nil:
			out = append(out, compliesAgain(*was))
		}
	}
	sortNoncompliant(out)
	return out
}

func compliesAgain(n schema.Noncompliance) schema.Noncompliance {
	n.Fate, n.Day = schema.FateComplies, ""
	return n
}

// sameFate reports whether two noncompliances have the same fate and rules, wherever
// the rules stand.
func sameFate(a, b schema.Noncompliance) bool {
	return a.Fate == b.Fate && a.Day == b.Day && slices.EqualFunc(a.Because, b.Because, func(x, y schema.Decision) bool {
		return x.Rule == y.Rule && x.Field == y.Field && x.Source.File == y.Source.File
	})
}

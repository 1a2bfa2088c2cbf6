package plan

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"berth/schema"
)

// Limits of a review of one unit. Its digest identifies it; the text is for people.
const (
	maxReviewed     = 60 // lines of steps, and of facts
	maxReviewedText = 200
	maxDiff         = 80 // lines of a difference
)

// Reviewed returns the review of a plan that was made from o.
func Reviewed(p Plan, o Observed) ReviewedUnit {
	return ReviewedUnit{Key: p.Key, Digest: p.Digest, Steps: Steps(p), Facts: Facts(p, o)}
}

// ReviewedUnits returns the reviews of a proposal that was made from m.
func ReviewedUnits(p Proposal, m Memory) []ReviewedUnit {
	out := make([]ReviewedUnit, len(p.Plans))
	for i, u := range p.Plans {
		out[i] = Reviewed(u, m.observed(u.Key))
	}
	return out
}

// Steps lists the actions of a plan in order, a line each, with the changes of each
// indented below it.
func Steps(p Plan) []string {
	var out []string
	for _, a := range p.Actions {
		words := string(a.Verb)
		if a.Member != "" {
			words += " " + a.Member
		}
		if a.Node != "" {
			words += " on " + a.Node
		}
		if a.Operation != nil {
			words += " by operation " + a.Operation.Name
		}
		out = append(out, words)
		for _, c := range a.Changes {
			out = append(out, fmt.Sprintf("  %s: %s → %s", c.Field, orNone(c.Before), orNone(c.After)))
		}
		for _, x := range p.impactOf(a) {
			out = append(out, "  "+x)
		}
	}
	for _, b := range p.Blocked {
		out = append(out, blockedMark+string(b.Code))
	}
	return bounded(out)
}

func (p *Plan) impactOf(a Action) []string {
	var out []string
	if a.Impact.EndsJobs {
		out = append(out, "ends jobs")
	}
	if len(a.Impact.Restarts) > 0 {
		out = append(out, "restarts "+list(a.Impact.Restarts))
	}
	if len(a.Impact.Drains) > 0 {
		out = append(out, "drains "+list(a.Impact.Drains))
	}
	return out
}

// Facts lists the inputs of a plan that was made from o, a line each: the observed
// state, the nodes of its members, and the values of a new unit. Two plans of a unit
// with different digests differ in their steps or their facts.
func Facts(p Plan, o Observed) []string {
	o = Structural(o)
	is := "it is " + string(o.Presence)
	if o.Presence == Present && !o.Complete {
		is += ", half made"
	}
	out := []string{is}
	for _, m := range o.Members {
		out = append(out, fmt.Sprintf("%s on %s is %s", m.Name, m.Node, m.State))
	}
	for _, d := range o.Drift {
		out = append(out, strings.TrimSuffix(fmt.Sprintf("%s drifted on %s", d.What, d.Member), " on "))
	}
	if p.After != nil {
		for _, m := range p.After.Members {
			out = append(out, fmt.Sprintf("%s shall be on %s", m.Name, m.Node))
		}
		if p.Before == nil {
			values := fields(p.After)
			for _, f := range slices.Sorted(maps.Keys(values)) {
				if !strings.HasPrefix(f, "members.") {
					out = append(out, "made with "+f+" = "+values[f])
				}
			}
		}
	}
	return append(bounded(out), restMark+digest([]any{p.Before, p.After, p.Observed})[:12])
}

// blockedMark begins the line of a block among steps.
const blockedMark = "blocked: "

// restMark begins the fact with the digest of everything that the other facts leave out.
const restMark = "all of it: "

func orNone(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// bounded returns lines within the limits of a review. A digest replaces the omitted
// lines, so every difference stays visible.
func bounded(lines []string) []string {
	for i, l := range lines {
		if r := []rune(l); len(r) > maxReviewedText {
			lines[i] = string(r[:maxReviewedText]) + "… (" + digest(l)[:12] + ")"
		}
	}
	if len(lines) > maxReviewed {
		rest := lines[maxReviewed-1:]
		lines = append(lines[:maxReviewed-1:maxReviewed-1], fmt.Sprintf("and %d more (%s)", len(rest), digest(rest)[:12]))
	}
	return lines
}

// Stale returns the difference between the reviewed plan and the current one, which was
// made from o. reviewed is nil without a review. The result is nil if the plans are
// equal.
func Stale(reviewed *ReviewedUnit, now Plan, o Observed) *StalePlan {
	s := &StalePlan{Now: now.Digest}
	is, was := Reviewed(now, o), ReviewedUnit{}
	if reviewed != nil {
		if reviewed.Digest == now.Digest {
			return nil
		}
		was, s.Reviewed = *reviewed, reviewed.Digest
	}
	part := func(name string, a, b []string) {
		// A review from a branch can have any length.
		if lines := difference(a[:min(len(a), maxReviewed+1)], b[:min(len(b), maxReviewed+1)]); len(lines) > 0 {
			s.Diff = append(append(s.Diff, DiffLine{"@", name}), lines...)
		}
	}
	part("steps", was.Steps, is.Steps)
	if reviewed != nil {
		part("what it rests on", worded(was.Facts), worded(is.Facts))
	}
	if len(s.Diff) == 0 {
		part("what it rests on", was.Facts, is.Facts)
	}
	if more := len(s.Diff) - maxDiff; more > 0 {
		s.Diff = append(s.Diff[:maxDiff:maxDiff], DiffLine{"@", fmt.Sprintf("%d more lines", more)})
	}
	return s
}

// ShownInParts reports whether several reviews of a unit together show a plan that was made from o:
// each step, and each fact that it rests on. Only a shared runtime is shown in parts: projects that
// do not know of each other change it, and the pull request of one must not hold the others. A plan
// that makes or deletes it was shown only as a whole.
func ShownInParts(now Plan, o Observed, parts []*ReviewedUnit) bool {
	if now.Key.Kind != schema.KindSharedRuntime || len(parts) < 2 || now.Before == nil || now.After == nil {
		return false
	}
	known := map[[2]string]bool{}
	for _, u := range parts {
		for line := range reviewLines(u.Steps, u.Facts) {
			known[line] = true
		}
	}
	for line := range reviewLines(Steps(now), Facts(now, o)) {
		if !known[line] {
			return false
		}
	}
	return true
}

// reviewLines iterates over steps, each with the line of its action, and facts.
func reviewLines(steps, facts []string) iter.Seq[[2]string] {
	return func(yield func([2]string) bool) {
		action := ""
		for _, l := range steps {
			if !strings.HasPrefix(l, "  ") {
				action = l
			}
			if !yield([2]string{action, l}) {
				return
			}
		}
		for _, l := range worded(facts) {
			if !yield([2]string{"rests on", l}) {
				return
			}
		}
	}
}

// worded returns facts without the digest of the rest.
func worded(facts []string) []string {
	return slices.DeleteFunc(slices.Clone(facts), func(f string) bool { return strings.HasPrefix(f, restMark) })
}

// difference returns the differing lines of two short lists, with one unchanged line
// around them; nil if the lists are equal.
func difference(a, b []string) []DiffLine {
	common := commonLines(a, b)
	var all []DiffLine
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			all = append(all, DiffLine{" ", a[i]})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			all = append(all, DiffLine{"-", a[i]})
			i++
		default:
			all = append(all, DiffLine{"+", b[j]})
			j++
		}
	}
	var out []DiffLine
	for i, l := range all {
		if slices.ContainsFunc(all[max(0, i-1):min(len(all), i+2)], differs) {
			out = append(out, l)
		}
	}
	return out
}

func differs(l DiffLine) bool { return l.Sign != " " }

// commonLines returns the length of the longest common subsequence of a[i:] and b[j:], by i and j. Both are bounded.
func commonLines(a, b []string) [][]int {
	n := make([][]int, len(a)+1)
	for i := range n {
		n[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			n[i][j] = max(n[i+1][j], n[i][j+1])
			if a[i] == b[j] {
				n[i][j] = n[i+1][j+1] + 1
			}
		}
	}
	return n
}

// Since returns the difference in steps between before and now, as PullContext has it.
// It stays the same while the head stays the same.
func Since(before, now *Shown) []DiffLine {
	switch {
	case before == nil || before.Digest == "" || now.Digest == "":
		return nil
	case before.Head == now.Head:
		return before.Since
	}
	steps := func(s *Shown, key schema.Key) ([]string, string) {
		if u, _ := s.Unit(key, ""); u != nil {
			return u.Steps, u.Digest
		}
		return nil, ""
	}
	var keys []schema.Key
	for _, u := range slices.Concat(before.Units, now.Units) {
		keys = append(keys, u.Key)
	}
	slices.SortFunc(keys, schema.Key.Compare)
	var out []DiffLine
	for _, key := range slices.Compact(keys) {
		was, wasDigest := steps(before, key)
		is, isDigest := steps(now, key)
		if wasDigest == isDigest {
			continue
		}
		out = append(out, DiffLine{"@", key.String()})
		if planned(was) != planned(is) {
			// The comment shows every step of a new plan.
			out = append(out, DiffLine{map[bool]string{true: "+", false: "-"}[planned(is)], "plan of " + key.String()})
			continue
		}
		lines := difference(was[:min(len(was), maxReviewed+1)], is[:min(len(is), maxReviewed+1)])
		out = append(out, slices.DeleteFunc(lines, func(l DiffLine) bool { return !differs(l) })...)
		if len(out) > maxSince {
			return out[:maxSince]
		}
	}
	if len(out) == 0 {
		out = append(out, DiffLine{" ", "no change"})
	}
	return out
}

// planned reports whether steps have an action, and not only blocks.
func planned(steps []string) bool {
	return slices.ContainsFunc(steps, func(l string) bool { return !strings.HasPrefix(l, blockedMark) })
}

// maxSince limits the lines of a difference between two heads.
const maxSince = 12

package report

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"berth/reconciler/plan"
	"berth/schema"
)

// change is what a plan does to its unit as a whole.
type change int

// In the order people should see them.
const (
	deletes change = iota
	blocks         // does nothing, and not for want of something to do
	creates
	changes
	repairs // starts what stands still, and nothing else
)

func changeOf(p *plan.Plan) change {
	has := func(v plan.Verb) bool {
		return slices.ContainsFunc(p.Actions, func(a plan.Action) bool { return a.Verb == v })
	}
	switch {
	case len(p.Actions) == 0:
		return blocks
	case has(plan.Delete):
		return deletes
	case has(plan.Create) && p.Before == nil:
		return creates
	case !slices.ContainsFunc(p.Actions, func(a plan.Action) bool { return a.Verb != plan.Start }):
		return repairs
	}
	return changes
}

// sign of a change, as diffs have it.
func (c change) sign() string { return [...]string{"-", "!", "+", "~", "~"}[c] }

func (c change) word() string {
	return [...]string{"delete", "blocked", "create", "change", "start"}[c]
}

// signOf is the sign of one action.
func signOf(v plan.Verb) string {
	switch v {
	case plan.Create, plan.Join:
		return "+"
	case plan.Delete, plan.Leave:
		return "-"
	}
	return "~"
}

// inOrder is the plans, the ones with most at stake first, each kind by key.
func inOrder(plans []plan.Plan) []*plan.Plan {
	out := make([]*plan.Plan, len(plans))
	for i := range plans {
		out[i] = &plans[i]
	}
	slices.SortStableFunc(out, func(a, b *plan.Plan) int { return int(changeOf(a)) - int(changeOf(b)) })
	return out
}

// tally counts the plans of a proposal by what they do.
func tally(plans []plan.Plan) (n [repairs + 1]int) {
	for i := range plans {
		n[changeOf(&plans[i])]++
	}
	return n
}

// count is "1 instance" or "2 instances".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// unitName is the short name of a unit, clean: "physics.lhc/train".
func unitName(k schema.Key) string {
	if k.Kind == schema.KindInstance {
		return clean(k.ProjectID() + "/" + k.Name)
	}
	return clean(k.String())
}

// headline says in one sentence what a merge does to instances.
func headline(p *plan.Proposal) string {
	n := tally(p.Plans)
	var parts []string
	say := func(n int, what string) {
		if n == 0 {
			return
		}
		noun := count(n, "instance")
		if len(parts) > 0 {
			noun = fmt.Sprint(n)
		}
		verb := "will be "
		if what == "blocked" {
			verb = map[bool]string{true: "is ", false: "are "}[n == 1]
		}
		parts = append(parts, noun+" "+verb+what)
	}
	say(n[deletes], "deleted")
	say(n[creates], "created")
	say(n[changes], "changed")
	say(n[repairs], "started")
	say(n[blocks], "blocked")
	if len(parts) == 0 {
		return "No instance changes"
	}
	return sentence(parts)
}

// destroyed says what a merge takes away, or that it takes nothing; "" where
// there is no plan to say it of.
func destroyed(p *plan.Proposal) string {
	if len(p.Plans) == 0 {
		return ""
	}
	units, members, jobs := 0, 0, false
	for _, u := range p.Plans {
		for _, a := range u.Actions {
			switch a.Verb {
			case plan.Delete:
				units++
			case plan.Leave:
				members++
			}
			jobs = jobs || a.Impact.EndsJobs
		}
	}
	var parts []string
	if units > 0 {
		parts = append(parts, count(units, "instance")+" with all state")
	}
	if members > 0 {
		parts = append(parts, count(members, "member")+" "+map[bool]string{true: "leaves", false: "leave"}[members == 1])
	}
	switch {
	case units == 0 && members == 0 && !jobs:
		return "Nothing is destroyed."
	case units == 0 && members == 0:
		return "Running jobs are ended."
	case units == 0:
		return upper(parts[0]) + "; " + map[bool]string{true: "running jobs are ended.", false: "no instance is destroyed."}[jobs]
	}
	s := "Destroyed: " + parts[0]
	if members > 0 {
		s += "; " + parts[1]
	}
	if jobs {
		s += "; running jobs are ended"
	}
	return s + "."
}

// sentence joins parts as in speech.
func sentence(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}

// list is a sentence's list, of which the last are counted where there are more
// than max.
func list(parts []string, max int) string {
	if len(parts) > max {
		parts = append(parts[:max-1:max-1], fmt.Sprintf("%d more", len(parts)-max+1))
	}
	return sentence(parts)
}

// upper is s as a sentence begins. What begins with a name, a path or the words of
// others is none of ours to write otherwise.
func upper(s string) string {
	if s == "" {
		return ""
	}
	r, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[n:]
}

// told says whether a document that is held is told of by a finding.
func told(h plan.Held, ds []schema.Diagnostic) bool {
	return slices.ContainsFunc(ds, func(d schema.Diagnostic) bool { return d.File == h.File && d.Severity == schema.SeverityError })
}

// impact is what an action means, one phrase each.
func impact(i plan.Impact) []string {
	var out []string
	if i.EndsJobs {
		out = append(out, "ends jobs")
	}
	if len(i.Restarts) > 0 {
		out = append(out, "restarts "+sentence(i.Restarts))
	}
	if i.Reconfigure {
		out = append(out, "reconfigures without a restart")
	}
	if len(i.Drains) > 0 {
		out = append(out, "drains "+sentence(i.Drains))
	}
	if i.Note != "" {
		out = append(out, i.Note)
	}
	return out
}

// severities counts findings: errors, warnings, notes.
func severities(ds []schema.Diagnostic) string {
	var parts []string
	for _, s := range []schema.Severity{schema.SeverityError, schema.SeverityWarning, schema.SeverityNote} {
		n := 0
		for _, d := range ds {
			if d.Severity == s {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, count(n, string(s)))
		}
	}
	return sentence(parts)
}

// placed is why the member an action brings in is on its node, or "".
func placed(p *plan.Plan, a plan.Action) string {
	if a.Verb == plan.Join {
		return p.Placed[a.Member]
	}
	if a.Verb == plan.Create && p.After != nil {
		for _, m := range p.After.Members {
			if m.ControlPlane {
				return p.Placed[m.Name]
			}
		}
	}
	return ""
}

// commit is an id as short as people use it.
func commit(id string) string {
	if len(id) > 10 {
		id = id[:10]
	}
	return clean(id)
}

package report

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
)

// change is the effect of a plan on its whole unit.
type change int

// The changes, in display order.
const (
	deletes change = iota
	blocks         // no action, and a block
	creates
	changes
	repairs // only starts members
)

func changeOf(p *plan.Plan) change {
	has := func(v plan.Verb) bool {
		return slices.ContainsFunc(p.Actions, func(a plan.Action) bool { return a.Verb == v })
	}
	switch {
	case len(p.Actions) == 0 && isView(p) && p.Before == nil:
		return creates // the shared runtime has the actions
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

// sign returns the sign of a change, as in a diff.
func (c change) sign() string { return [...]string{"-", "!", "+", "~", "~"}[c] }

func (c change) verb() string {
	return [...]string{"delete", "blocked", "create", "change", "start"}[c]
}

// signOf returns the sign of one action.
func signOf(v plan.Verb) string {
	switch v {
	case plan.Create, plan.Join:
		return "+"
	case plan.Delete, plan.Leave, plan.Remove:
		return "-"
	}
	return "~"
}

// inOrder returns the plans in the order of their changes, then by key.
func inOrder(plans []plan.Plan) []*plan.Plan {
	out := make([]*plan.Plan, len(plans))
	for i := range plans {
		out[i] = &plans[i]
	}
	slices.SortStableFunc(out, func(a, b *plan.Plan) int { return int(changeOf(a)) - int(changeOf(b)) })
	return out
}

// count returns "1 instance" or "2 instances".
func count(n int, noun string) string {
	return fmt.Sprintf("%d %s%s", n, noun, plural(n, "", "s"))
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// unitName returns the short name of a unit: "physics.lhc/train" or "shared runtime physics/all".
func unitName(k schema.Key) string { return unitAs(k, clean) }

// unitCode returns unitName with the name as a code span.
func unitCode(k schema.Key) string { return unitAs(k, code) }

// unitAs returns unitName with the name as text formats it.
func unitAs(k schema.Key, text func(string) string) string {
	kind := kindWord(k.Kind) + " "
	if k.Kind == schema.KindInstance {
		kind = ""
	}
	return kind + text(clean(k.ResourceName()))
}

// kindWord returns the word for a kind of units.
func kindWord(k schema.Kind) string {
	switch k {
	case schema.KindInstance:
		return "instance"
	case schema.KindSharedRuntime:
		return "shared runtime"
	}
	return "unit"
}

// noun returns the word for all of several units.
func noun(keys []schema.Key) string {
	for _, k := range keys {
		if k.Kind != keys[0].Kind {
			return "unit"
		}
	}
	if len(keys) == 0 {
		return "instance"
	}
	return kindWord(keys[0].Kind)
}

func keysOf(plans []plan.Plan) []schema.Key {
	var keys []schema.Key
	for i := range plans {
		keys = append(keys, plans[i].Key)
	}
	return keys
}

// sentence joins parts with commas and "and".
func sentence(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}

// list is sentence with at most max parts.
func list(parts []string, max int) string { return sentence(atMost(max, parts, "")) }

// atMost returns at most max parts; the last part counts the others.
func atMost(max int, parts []string, noun string) []string {
	if len(parts) <= max {
		return parts
	}
	return append(parts[:max-1:max-1], fmt.Sprintf("%d more%s", len(parts)-max+1, noun))
}

// withNew adds s to parts, unless they contain it.
func withNew(parts []string, s string) []string {
	if slices.Contains(parts, s) {
		return parts
	}
	return append(parts, s)
}

// upper returns s with a capital first letter.
func upper(s string) string {
	if s == "" {
		return ""
	}
	r, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[n:]
}

// impact lists the effects of an action, one phrase each.
func impact(i plan.Impact) []string {
	var out []string
	if len(i.Restarts) > 0 {
		out = append(out, "restarts "+sentence(i.Restarts))
	}
	if i.Reconfigure {
		out = append(out, "reconfigures without a restart")
	}
	if len(i.Drains) > 0 {
		out = append(out, "drains "+sentence(i.Drains))
	}
	out = append(out, jobPhrases(i)...)
	if i.EndsJobs && len(i.Jobs) == 0 {
		out = append(out, "ends jobs")
	}
	if i.Note != "" {
		out = append(out, i.Note)
	}
	var changes []string
	for _, d := range i.Differences {
		changes = append(changes, fmt.Sprintf("%s (%s)", d.What, d.Class))
	}
	if len(changes) > 0 {
		out = append(out, "changes "+list(changes, maxDifferences))
	}
	return out
}

// placed returns the reason for the node of a joining member, or "".
func placed(p *plan.Plan, a plan.Action) string {
	if a.Verb == plan.Join {
		return p.Placed[a.Member]
	}
	if control, ok := p.After.Control(); ok && a.Verb == plan.Create {
		return p.Placed[control.Name]
	}
	return ""
}

// commit shortens a commit id.
func commit(id string) string {
	if len(id) > 10 {
		id = id[:10]
	}
	return clean(id)
}

func dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// maxNamed limits the units or files that a sentence names; it counts more.
const maxNamed = 3

// isBreakGlass reports whether break-glass access gives a permission.
func isBreakGlass(x authority.Decision) bool { return x.Allowed && x.BreakGlass }

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

// change is the worst effect of a plan on its unit.
type change int

// The changes, in display order.
const (
	deletes change = iota
	blocks         // no action, and a block
	stops
	detaches // projects
	drains   // nodes
	removes  // nodes that need no drain
	attaches // projects
	adds     // nodes
	closes   // projects, to new jobs
	restarts // services that run
	creates
	starts // the unit, or some members
	changes
)

func changeOf(p *plan.Proposal, u *plan.Plan) change {
	switch {
	case len(u.Actions) == 0 && u.Before == nil && isAttachedBy(p, u):
		return creates // the shared runtime has the actions
	case len(u.Actions) == 0:
		return blocks
	case does(u, plan.Delete):
		return deletes
	case does(u, plan.Stop):
		return stops
	case len(detachedBy(u)) > 0:
		return detaches
	case isNew(u):
		return creates
	case len(drainedBy(u)) > 0:
		return drains
	case len(nodesOf(u, plan.Leave)) > 0:
		return removes
	case len(attached(u.After, u.Before)) > 0:
		return attaches
	case len(nodesOf(u, plan.Join)) > 0 && !does(u, plan.Create):
		return adds
	case len(closedBy(u)) > 0:
		return closes
	case !slices.ContainsFunc(u.Actions, func(a plan.Action) bool { return a.Verb != plan.Start }):
		return starts
	case len(restartedBy(u)) > 0:
		return restarts
	}
	return changes
}

// isNew reports whether a plan makes a unit that had no members.
func isNew(u *plan.Plan) bool {
	return does(u, plan.Create) && (u.Before == nil || u.Before.Effective.SharedRuntime != "")
}

// does reports whether a plan has an action of a verb.
func does(u *plan.Plan, v plan.Verb) bool {
	return slices.ContainsFunc(u.Actions, func(a plan.Action) bool { return a.Verb == v })
}

// drainedBy names the nodes that a plan drains.
func drainedBy(u *plan.Plan) (nodes []string) {
	for _, a := range stepsOf(u) {
		nodes = withNew(nodes, a.Impact.Drains...)
	}
	return nodes
}

// nodesOf names the nodes of the members that join or leave.
func nodesOf(u *plan.Plan, v plan.Verb) (nodes []string) {
	for _, a := range u.Actions {
		if a.Verb == v && a.Node != "" {
			nodes = withNew(nodes, a.Node)
		}
	}
	return nodes
}

// restartedBy names the services that a plan restarts.
func restartedBy(u *plan.Plan) (services []string) {
	for _, a := range u.Actions {
		services = withNew(services, a.Impact.Restarts...)
	}
	return services
}

// restartedByOperation names the services that operations restart.
func restartedByOperation(u *plan.Plan) (services []string) {
	for _, a := range u.Actions {
		if a.Verb == plan.Restart && a.Operation != nil {
			services = withNew(services, a.Impact.Restarts...)
		}
	}
	return services
}

// sign returns the sign of a change, as in a diff.
func (c change) sign() string {
	switch c {
	case deletes:
		return "-"
	case blocks:
		return "!"
	case creates:
		return "+"
	}
	return "~"
}

// verb returns the verb of a change, as in "would drain" or in "drains".
func (c change) verb(would bool) string {
	verb := [...]string{
		deletes: "delete", blocks: "blocked", stops: "stop", detaches: "detach", drains: "drain", removes: "remove", attaches: "attach",
		adds:   "add",
		closes: "close", restarts: "restart", creates: "create", starts: "start", changes: "change",
	}[c]
	switch {
	case would:
		return verb
	case c == detaches || c == attaches:
		return verb + "es"
	}
	return verb + "s"
}

// verbOf returns the verb of a change beside its unit.
func (c change) verbOf(u *plan.Plan) string {
	if c == blocks && blockOf(u) == nil {
		return "waits"
	}
	return c.verb(true)
}

// object returns the grammatical object for the verb of a change: the unit, or parts of it.
func (c change) object(u *plan.Plan, would bool, text func(string) string) string {
	var parts []string
	preposition, after := " of ", ""
	named := func(nodes []string) []string {
		return []string{plural(len(nodes), "node ", "nodes ") + list(texts(nodes, text), maxNamed)}
	}
	switch c {
	case detaches:
		parts, preposition = []string{projectsOf(detachedBy(u), text)}, " from "
	case attaches:
		parts, preposition = []string{projectsOf(attached(u.After, u.Before), text)}, " to "
	case closes:
		parts, after = []string{projectsOf(closedBy(u), text)}, " to new jobs"
	case adds:
		parts, preposition = named(nodesOf(u, plan.Join)), " to "
	case removes:
		parts, preposition = named(nodesOf(u, plan.Leave)), " from "
	case drains:
		parts = texts(drainedBy(u), text)
		if also := restartedByOperation(u); len(also) > 0 {
			parts = []string{list(parts, maxNamed), restarts.verb(would) + " " + list(texts(also, text), maxNamed)}
		}
	case restarts:
		parts = texts(restartedBy(u), text)
	case starts:
		for _, a := range u.Actions {
			if m, _ := u.After.Member(a.Member); m.ControlPlane {
				return unitAs(u.Key, text)
			}
			parts = append(parts, text(a.Member))
		}
	}
	if len(parts) == 0 {
		return unitAs(u.Key, text)
	}
	return list(parts, maxNamed) + preposition + unitAs(u.Key, text) + after
}

// objects is object for units that are counted.
func (c change) objects() string {
	return map[change]string{
		detaches: "projects from ", attaches: "projects to ", closes: "projects to new jobs of ", drains: "nodes of ",
		removes: "nodes from ", adds: "nodes to ",
		restarts: "services of ", starts: "members of ",
	}[c]
}

// texts applies text to each name.
func texts(names []string, text func(string) string) []string {
	return each(names, func(name string) string { return text(short(name, maxName)) })
}

// each applies of to all items.
func each[T, R any](all []T, of func(T) R) []R {
	var out []R
	for _, x := range all {
		out = append(out, of(x))
	}
	return out
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
func inOrder(p *plan.Proposal) []*plan.Plan {
	out := make([]*plan.Plan, len(p.Plans))
	for i := range p.Plans {
		out[i] = &p.Plans[i]
	}
	slices.SortStableFunc(out, func(a, b *plan.Plan) int { return int(changeOf(p, a)) - int(changeOf(p, b)) })
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
	return each(plans, func(u plan.Plan) schema.Key { return u.Key })
}

func unitKey(u *plan.Plan) schema.Key { return u.Key }

// sentence joins parts with commas and "and".
func sentence(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}

// phrase names what a verb is about; empty without names.
func phrase(verb string, names []string) []string {
	if len(names) == 0 {
		return nil
	}
	return []string{verb + " " + list(names, 4)}
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

// withNew adds each of more to parts, unless they contain it.
func withNew(parts []string, more ...string) []string {
	for _, s := range more {
		if !slices.Contains(parts, s) {
			parts = append(parts, s)
		}
	}
	return parts
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
		noJobs := ""
		if stepWork(i) <= workTerms {
			noJobs = "; this step ends no job" // others of its plan may
		}
		out = append(out, noticed("restarts "+sentence(i.Restarts), i.Interruption, noJobs))
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
	return append(out, i.Notes...)
}

// noticed joins the interruption that users notice, the actions of daemons in brackets, and the effect on
// running jobs.
func noticed(daemons, interruption, jobs string) string {
	if interruption == "" {
		return daemons
	}
	return interruption + jobs + " (" + daemons + ")"
}

// differencesText names what an action changes at the runtime, each with its class; "": nothing.
func differencesText(i plan.Impact) string {
	parts := each(i.Differences, func(d plan.Difference) string { return fmt.Sprintf("%s (%s)", d.What, d.Class) })
	return strings.Join(phrase("changes", parts), "")
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

// shortID shortens the id of a commit or of a plan.
func shortID(id string) string {
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

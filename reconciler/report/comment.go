package report

import (
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
)

const (
	// maxNamed is how many units a sentence names before it counts them.
	maxNamed = 3
	// maxRows is how many units have a row of their own before those to which the
	// same happens share one.
	maxRows = 30
	// maxLosses is how many deletions are told at length.
	maxLosses = 3
	// maxLost is how many deletions are named at the head of the page.
	maxLost = 60
	// maxOpen is how many findings are not folded away.
	maxOpen = 20
)

// Markdown is Plan at a desk.
func Markdown(p plan.Proposal) string { return Plan(p, plan.PullContext{}) }

// Plan is the part of the comment on a pull request that says what its merge
// would do. A reviewer reads it from the top and may stop anywhere: the verdict,
// what is lost, what happens to each unit, what is in the way and how to clear
// it, what was decided and by which line; the steps are folded away. Where there
// is nothing to say it is two lines.
func Plan(p plan.Proposal, c plan.PullContext) string {
	var d doc
	if quiet(&p, &c) {
		d.line(quietVerdict(&p), "")
		d.note(&p)
		return d.cut(MaxMarkdown, "<sub>"+origin(&p)+"</sub>", planCommand(&p))
	}
	d.line("### Berth plan", "")
	d.overview(&p, &c)
	written, allowed := sides(p.Diagnostics)
	d.inTheWay(&p, allowed)
	d.findings("To correct", "To know", append(written, mild(allowed)...))
	d.policy(&p)
	d.authority(p.Authority)
	d.allSteps(p.Plans)
	d.rights(p.Authority)
	d.documents(p.Documents)
	return d.cut(MaxMarkdown, footer(&p, &c), planCommand(&p))
}

// quiet says that there is nothing that a reviewer has to know.
func quiet(p *plan.Proposal, c *plan.PullContext) bool {
	return len(p.Plans)+len(p.Diagnostics)+len(p.Conflicts)+len(p.Held)+len(p.Impacted) == 0 && c.Paused == "" &&
		!slices.ContainsFunc(p.Authority, broken) && !slices.ContainsFunc(p.Decisions, narrows)
}

func quietVerdict(p *plan.Proposal) string {
	if len(p.Documents) == 0 {
		return "**Nothing of the estate changes.**"
	}
	var names []string
	for _, c := range p.Documents {
		names = append(names, word(c.Change)+" "+code(c.File))
	}
	return "**No instance changes.** Of the estate: " + list(names, maxNamed) + "."
}

// overview is what has to be known at a glance: verdict, circumstances, losses,
// and a row for each unit.
func (d *doc) overview(p *plan.Proposal, c *plan.PullContext) {
	d.line(verdict(p), "")
	d.circumstances(p, c)
	d.losses(p, c)
	if n := tally(p.Plans); len(p.Plans) > maxLosses || n[deletes] < len(p.Plans) {
		d.units(p, c)
	}
}

// verdict is the sentence that must be true if nothing else is read.
func verdict(p *plan.Proposal) string {
	if len(p.Conflicts) > 0 {
		mend := "Merge the base into it and push again."
		if p.Head == "" {
			mend = "Make it again from the base."
		}
		return fmt.Sprintf("**This %s conflicts with its base in %s**, so nothing can be planned. %s", noun(p), count(len(p.Conflicts), "file"), mend)
	}
	subject := "A merge"
	if p.Head == "" {
		subject = "It"
	}
	does := happens(p, subject, func(k schema.Key) string { return code(unitName(k)) })
	if bad := obstacles(p); bad != "" {
		if move := partialMove(p); move != "" {
			bad = "it " + prose(short(move, 1000)) + "; " + bad
		}
		if subject == "A merge" {
			subject = "a merge"
		}
		does = happens(p, "As it stands, "+strings.ToLower(subject), func(k schema.Key) string { return code(unitName(k)) })
		return strings.TrimSpace(fmt.Sprintf("**Not ready to merge: %s.** %s %s", bad, does, cost(p)))
	}
	return strings.TrimSpace(fmt.Sprintf("**%s** %s", does, strings.TrimSpace(cost(p)+" "+later(p))))
}

// later says that a policy stops instances that go on for now.
func later(p *plan.Proposal) string {
	n := 0
	for _, x := range p.Impacted {
		if x.Fate == schema.FateStopping {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return "**Its policy stops " + count(n, "instance") + " later.**"
}

// cost says what a merge takes from people, or that it takes nothing; "" where
// there is no plan to say it of.
func cost(p *plan.Proposal) string {
	leave, gone, ends := 0, false, false
	for _, u := range p.Plans {
		for _, a := range u.Actions {
			gone = gone || a.Verb == plan.Delete
			ends = ends || a.Impact.EndsJobs
			if a.Verb == plan.Leave {
				leave++
			}
		}
	}
	var parts []string
	if ends {
		parts = append(parts, "running jobs may be cancelled")
	}
	if leave > 0 {
		parts = append(parts, count(leave, "member")+map[bool]string{true: " leaves", false: " leave"}[leave == 1])
	}
	switch {
	case !p.Changes() || len(parts) == 0 && gone:
		return ""
	case len(parts) == 0:
		return "Nothing is destroyed."
	}
	return upper(sentence(parts)) + "."
}

// happens is a sentence of what becomes of the units, by name where they are few.
// What is gravest comes first.
func happens(p *plan.Proposal, subject string, name func(schema.Key) string) string {
	by := map[change][]string{}
	for _, u := range inOrder(p.Plans) {
		by[changeOf(u)] = append(by[changeOf(u)], name(u.Key))
	}
	var parts []string
	counted := false
	for _, c := range []change{deletes, creates, changes, repairs} {
		names := by[c]
		verb := map[change]string{deletes: "deletes", creates: "creates", changes: "changes", repairs: "starts"}[c]
		switch {
		case len(names) == 0:
		case len(p.Plans) <= maxNamed:
			parts = append(parts, verb+" "+sentence(names))
		case !counted:
			counted = true
			parts = append(parts, verb+" "+count(len(names), "instance"))
		default:
			parts = append(parts, fmt.Sprintf("%s %d", verb, len(names)))
		}
	}
	waiting := ""
	switch names := by[blocks]; {
	case len(names) == 0:
	case len(p.Plans) <= maxNamed:
		waiting = sentence(names) + map[bool]string{true: " stays as it is", false: " stay as they are"}[len(names) == 1]
	default:
		waiting = fmt.Sprintf("%d stay as they are", len(names))
	}
	switch {
	case len(parts) == 0 && waiting == "":
		return subject + " changes no instance."
	case len(parts) == 0:
		return strings.TrimSpace(subject+" changes nothing yet") + ": " + waiting + "."
	case waiting != "":
		return subject + " " + sentence(parts) + "; " + waiting + "."
	}
	return subject + " " + sentence(parts) + "."
}

// partialMove says what a merge deletes and does not create in another tenant, or
// creates there and does not delete; "" for nothing.
func partialMove(p *plan.Proposal) string {
	first, n := "", 0
	for _, f := range p.Diagnostics {
		if f.Code != plan.CodePartialMove {
			continue
		}
		if n++; first == "" || strings.HasPrefix(f.Message, "deletes") && !strings.HasPrefix(first, "deletes") {
			first = f.Message
		}
	}
	if n > 1 {
		first += fmt.Sprintf(" (and %s more)", count(n-1, "document"))
	}
	return first
}

// obstacles counts what keeps a merge from doing all that the change asks; "" is
// nothing.
func obstacles(p *plan.Proposal) string {
	n, blocked, waiting := 0, 0, 0
	for _, f := range p.Diagnostics {
		if f.Severity == schema.SeverityError {
			n++
		}
	}
	for i := range p.Plans {
		if u := &p.Plans[i]; stuck(u) && !p.Comes(u.Key) {
			blocked++
		}
	}
	for _, h := range p.Held {
		if !told(h, p.Diagnostics) {
			waiting++
		}
	}
	var parts []string
	if n > 0 {
		parts = append(parts, count(n, "error"))
	}
	if blocked > 0 {
		parts = append(parts, count(blocked, "instance")+" blocked")
	}
	if waiting > 0 {
		parts = append(parts, count(waiting, "document")+" held")
	}
	return sentence(parts)
}

// stuck says whether a unit is blocked by more than time.
func stuck(u *plan.Plan) bool {
	return slices.ContainsFunc(u.Blocked, func(b plan.Blocked) bool { return !b.Wait })
}

// circumstances is what else makes the plan what it is.
func (d *doc) circumstances(p *plan.Proposal, c *plan.PullContext) {
	box := func(kind, text string) { d.line("> [!"+kind+"]", "> "+text, "") }
	d.note(p)
	if c.Paused != "" {
		box("NOTE", fmt.Sprintf("**Berth is paused:** %s. A merge has its effect when the pause is over.", prose(short(strings.TrimSuffix(c.Paused, "."), 1000))))
	}
	if len(p.Released) > 0 {
		box("NOTE", released(p, func(k schema.Key) string { return code(unitName(k)) }, prose))
	}
	if c.Queue {
		d.line("Planned on the merge queue's own commit. Whose right each change is, and who acknowledges a large deletion, was asked on its pull request, and is asked again after the merge.", "")
	}
	if c.Fork {
		d.line("From a fork: read as data, with no secret in reach; nothing of it was run.", "")
	}
}

// note says in a box why the plan may not be Berth's.
func (d *doc) note(p *plan.Proposal) {
	if p.Note != "" {
		d.line("> [!NOTE]", "> "+prose(p.Note), "")
	}
}

// released says what comes into force with a change that does not ask for it, and
// what of that is blocked: told here alone, as it is not this change that has to
// clear it.
func released(p *plan.Proposal, name func(schema.Key) string, words func(string) string) string {
	var names, blocked []string
	for _, k := range p.Released {
		names = append(names, name(k))
	}
	for i := range p.Plans {
		u := &p.Plans[i]
		if b := slices.IndexFunc(u.Blocked, func(b plan.Blocked) bool { return !b.Wait }); b >= 0 && p.Comes(u.Key) {
			blocked = append(blocked, name(u.Key)+" is blocked: "+words(short(strings.TrimSuffix(u.Blocked[b].Message, "."), 1000))+".")
		}
	}
	was, comes := "was", "comes"
	if len(names) > 1 {
		was, comes = "were", "come"
	}
	s := fmt.Sprintf("What %s held of %s may come into force by now, and %s with the next merge, whatever that changes.", was, list(names, maxNamed), comes)
	if n := len(blocked); n > maxNamed {
		blocked = append(blocked[:maxNamed-1:maxNamed-1], fmt.Sprintf("%d more are blocked.", n-maxNamed+1))
	}
	return strings.Join(append([]string{s}, blocked...), " ")
}

// losses say in a box what cannot be had back: of a few instances all of it, of
// many their number, the names of the first, and how to see those of all.
func (d *doc) losses(p *plan.Proposal, c *plan.PullContext) {
	var gone []*plan.Plan
	for _, u := range inOrder(p.Plans) {
		if changeOf(u) == deletes {
			gone = append(gone, u)
		}
	}
	var lines []string
	for _, u := range gone {
		line := fmt.Sprintf("**%s is deleted with all its state**", code(unitName(u.Key)))
		if where := placesOf(u.Before); where != "" {
			line += ": " + where
		}
		line += "."
		if jobs := jobsOf(u.Key, c); jobs != "" {
			line += " It had " + jobs + "."
		}
		if all := impactsOf(u); len(all) > 0 {
			line += " This " + strings.Join(all, "; ") + "."
		}
		lines = append(lines, "> - "+line)
	}
	switch n := len(gone); {
	case n == 0:
		return
	case n == 1:
		lines[0] = "> " + strings.TrimPrefix(lines[0], "> - ")
	case n > maxLosses:
		var names, notes []string
		for _, u := range gone {
			names = append(names, code(unitName(u.Key)))
			for _, a := range u.Actions {
				for note := range strings.SplitSeq(a.Impact.Note, "; ") {
					if note = prose(short(note, maxValue)); note != "" && !slices.Contains(notes, note) && len(notes) < 10 {
						notes = append(notes, note)
					}
				}
			}
		}
		lines = []string{fmt.Sprintf("> **%d instances are deleted with all their state:** %s.", n, list(names, maxLost))}
		if n > maxLost {
			lines = append(lines, ">", "> All of them are named by "+code(planCommand(p))+".")
		}
		if len(notes) > 0 {
			lines = append(lines, ">", "> This means: "+strings.Join(notes, "; ")+".")
		}
	}
	d.line("> [!CAUTION]")
	d.line(lines...)
	d.line("")
}

// placesOf is the members of a unit and where they are.
func placesOf(u *plan.Unit) string {
	if u == nil || len(u.Members) == 0 {
		return ""
	}
	var nodes []string
	for _, m := range u.Members {
		if m.Node != "" && !slices.Contains(nodes, code(m.Node)) {
			nodes = append(nodes, code(m.Node))
		}
	}
	s := count(len(u.Members), "member")
	if len(nodes) > 0 {
		s += " on " + list(nodes, 6)
	}
	return s
}

// jobsOf is the work on a unit as far as it is known.
func jobsOf(k schema.Key, c *plan.PullContext) string {
	i, ok := slices.BinarySearchFunc(c.Jobs, k, func(j plan.UnitJobs, k schema.Key) int { return j.Key.Compare(k) })
	if !ok {
		return ""
	}
	j := c.Jobs[i]
	return fmt.Sprintf("%d running and %d queued %s when this was planned", j.Running, j.Pending, map[bool]string{true: "job", false: "jobs"}[j.Running+j.Pending == 1])
}

// units is a row for each unit, or for those to which the same happens.
func (d *doc) units(all *plan.Proposal, c *plan.PullContext) {
	plans := all.Plans
	d.table("", "Instance", "What happens", "Jobs, services, nodes")
	type row struct{ sign, what, impact string }
	names := map[row][]string{}
	var rows []row
	n := tally(plans)
	for i, p := range inOrder(plans) {
		ch := changeOf(p)
		r := row{ch.sign(), whatHappens(p, ch, all.Comes(p.Key)), impactCell(p, c)}
		switch {
		case ch == deletes && n[deletes] <= maxLosses:
			r.impact = "see above"
		case ch == deletes:
			r.impact = impactCell(withoutNotes(p), c) // the box has them
		}
		if len(plans) <= maxRows || ch == deletes {
			r.sign += strings.Repeat(" ", i+1) // a row of its own
		}
		if names[r] == nil {
			rows = append(rows, r)
		}
		names[r] = append(names[r], code(unitName(p.Key)))
	}
	for _, r := range rows {
		who := names[r]
		if len(who) > 3 {
			who = append(who[:2:2], fmt.Sprintf("and %d more", len(who)-2))
		}
		d.row("**"+strings.TrimSpace(r.sign)+"**", strings.Join(who, "<br>"), r.what, r.impact)
	}
	d.line("")
}

// withoutNotes is a plan without what its impacts say in words.
func withoutNotes(p *plan.Plan) *plan.Plan {
	q := *p
	q.Actions = slices.Clone(p.Actions)
	for i := range q.Actions {
		q.Actions[i].Impact.Note = ""
	}
	return &q
}

// whatHappens is a plan in a few words; comes: with any merge.
func whatHappens(p *plan.Plan, c change, comes bool) string {
	by := map[plan.Verb][]plan.Action{}
	for _, a := range p.Actions {
		by[a.Verb] = append(by[a.Verb], a)
	}
	var parts []string
	members := func(v plan.Verb, word string) {
		if len(by[v]) == 0 {
			return
		}
		var names []string
		for _, a := range by[v] {
			names = append(names, fmt.Sprintf("%s (%s)", code(a.Member), prose(a.Node)))
		}
		parts = append(parts, word+" "+list(names, 4))
	}
	switch {
	case c == deletes:
		s := "**deletes** it"
		if p.Before != nil {
			s += " with " + count(len(p.Before.Members), "member")
		}
		return s
	case c == blocks && !stuck(p):
		return "nothing yet: it waits, see below"
	case c == blocks && comes:
		return "nothing: it is **blocked**, see above"
	case c == blocks:
		return "nothing: it is **blocked**, see below"
	case len(by[plan.Create]) > 0 && p.Before != nil:
		parts = append(parts, "carries on making it")
	case len(by[plan.Create]) > 0:
		parts = append(parts, "**creates** it on "+code(by[plan.Create][0].Node))
	}
	if len(by[plan.Stop]) > 0 {
		parts = append(parts, "**stops** it")
	}
	members(plan.Leave, "**removes**")
	for _, a := range by[plan.Configure] {
		parts = append(parts, "sets "+valuesOf(a))
	}
	members(plan.Join, "adds")
	members(plan.Start, "starts")
	if len(p.Blocked) > 0 {
		parts = append(parts, map[bool]string{true: "the rest is **blocked**", false: "the rest waits"}[stuck(p)])
	}
	return strings.Join(parts, "<br>")
}

// valuesOf names what a configure changes, with the values where they are short.
func valuesOf(a plan.Action) string {
	var names []string
	for _, c := range a.Changes {
		if strings.HasPrefix(c.Field, "members.") && (c.Before == "" || c.After == "") {
			continue // told by who comes and goes
		}
		name := code(short(c.Field, 60))
		if len(c.Before) <= 24 && len(c.After) <= 24 {
			name += " " + code(dash(c.Before)) + " → " + code(dash(c.After))
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return "its members: " + prose(short(a.Reason, maxValue))
	}
	return list(names, 3)
}

// impactCell is what a plan means for jobs, services and nodes.
func impactCell(p *plan.Plan, c *plan.PullContext) string {
	all := impactsOf(p)
	if changeOf(p) == creates {
		all = nil // there is nobody there yet
	}
	if jobs := jobsOf(p.Key, c); jobs != "" && len(p.Actions) > 0 {
		all = append(all, jobs)
	}
	if len(all) == 0 {
		return "–"
	}
	return strings.Join(all, "<br>")
}

// impactsOf are the impacts of a plan's actions, each said once.
func impactsOf(p *plan.Plan) []string {
	var restarts, drains, notes []string
	ends, reconfigures := false, false
	add := func(to *[]string, word string) {
		if word != "" && !slices.Contains(*to, word) {
			*to = append(*to, word)
		}
	}
	for _, a := range p.Actions {
		for _, r := range a.Impact.Restarts {
			add(&restarts, prose(short(r, maxValue)))
		}
		for _, n := range a.Impact.Drains {
			add(&drains, code(n))
		}
		for note := range strings.SplitSeq(a.Impact.Note, "; ") {
			add(&notes, prose(short(note, maxValue)))
		}
		ends, reconfigures = ends || a.Impact.EndsJobs, reconfigures || a.Impact.Reconfigure
	}
	var all []string
	if ends {
		all = append(all, "**may cancel running jobs**")
	}
	if len(restarts) > 0 {
		all = append(all, "restarts "+list(restarts, 4))
	} else if reconfigures {
		all = append(all, "reconfigures, restarts nothing")
	}
	if len(drains) > 0 {
		all = append(all, "drains "+list(drains, 4))
	}
	return append(all, notes...)
}

// allSteps folds away the steps of all plans, those of many once more.
func (d *doc) allSteps(plans []plan.Plan) {
	show := func() {
		for _, u := range inOrder(plans) {
			d.steps(u)
		}
	}
	n := 0
	for i := range plans {
		if len(plans[i].Actions) > 0 {
			n++
		}
	}
	if n > maxNamed {
		d.details("Steps of "+count(n, "instance"), show)
		return
	}
	show()
}

// steps folds away each step of one plan, the values it changes and why its
// members are where they are.
func (d *doc) steps(p *plan.Plan) {
	if len(p.Actions) == 0 {
		return
	}
	d.details(fmt.Sprintf("%s: %s", htmlCode(unitName(p.Key)), count(len(p.Actions), "step")), func() {
		number := map[string]string{}
		for i, a := range p.Actions {
			number[a.ID] = fmt.Sprint(i + 1)
		}
		d.table("#", "Step", "Node", "Why", "After")
		for i, a := range p.Actions {
			var needs []string
			for _, id := range a.Needs {
				needs = append(needs, number[id])
			}
			why := prose(short(a.Reason, maxValue))
			if reason := placed(p, a); reason != "" {
				why += "; placed: " + prose(short(reason, maxValue))
			}
			if phrases := impact(a.Impact); len(phrases) > 0 {
				why += "; " + prose(short(strings.Join(phrases, "; "), maxValue))
			}
			d.row(fmt.Sprint(i+1), strings.TrimSpace(signOf(a.Verb)+" "+string(a.Verb)+" "+optional(a.Member)), optional(a.Node), why, strings.Join(needs, ", "))
		}
		if lines := diffLines(p); len(lines) > 0 {
			d.line("")
			d.line(fence("diff", lines)...)
		}
	})
}

func optional(s string) string {
	if s == "" {
		return ""
	}
	return code(s)
}

// diffLines is what values a plan changes, as a diff.
func diffLines(p *plan.Plan) []string {
	var lines []string
	for _, a := range p.Actions {
		for _, c := range a.Changes {
			if c.Before != "" {
				lines = append(lines, "- "+c.Field+": "+short(c.Before, maxValue))
			}
			if c.After != "" {
				lines = append(lines, "+ "+c.Field+": "+short(c.After, maxValue))
			}
		}
	}
	return lines
}

func (d *doc) documents(ds []plan.DocumentChange) {
	if len(ds) == 0 {
		return
	}
	d.details(count(len(ds), "document")+" in this change", func() {
		for _, c := range ds {
			from := ""
			if c.From != "" {
				from = " from " + code(c.From)
			}
			d.line(fmt.Sprintf("- %s %s%s", word(c.Change), code(c.File), from))
		}
	})
}

// origin says which plan this is, of which commits.
func origin(p *plan.Proposal) string {
	s := "Plan " + code(short(p.Digest, 13))
	if how := between(p.Base, p.Head, code); how != "" {
		s += " · " + how
	}
	if p.Assumed {
		s += " · " + assumedNote
	}
	return s
}

// commands is what can be said to Berth on a pull request.
const commands = "Say in a comment: `/berth plan` · `/berth explain INSTANCE [FIELD]` · `/berth help`"

func footer(p *plan.Proposal, c *plan.PullContext) string {
	s := "<sub>" + origin(p)
	if c.Number > 0 {
		s += "</sub><br><sub>" + commands
	}
	return s + "</sub>"
}

// noun is what a proposal is of: a branch, or a change that is no commit yet.
func noun(p *plan.Proposal) string {
	if p.Head == "" {
		return "change"
	}
	return "branch"
}

// between says what is merged into what; it is empty where no base is known.
func between(base, head string, name func(string) string) string {
	switch {
	case base == "":
		return ""
	case head == "":
		return "a change on " + name(commit(base))
	}
	return name(commit(head)) + " merged into " + name(commit(base))
}

// planCommand is the command line that prints the whole proposal in a clone.
func planCommand(p *plan.Proposal) string {
	if p.Head == "" {
		return fmt.Sprintf("berth plan --base %s --patch FILE", commit(p.Base))
	}
	return fmt.Sprintf("berth plan --base %s --head %s", commit(p.Base), commit(p.Head))
}

// assumedNote says what a plan rests on where no status branch is at hand.
const assumedNote = "no berth/status is at hand: the base is taken to run as declared"

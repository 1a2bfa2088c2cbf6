package report

import (
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
)

// MaxMarkdown is the most bytes any Markdown of this package has: forges take
// 65,536 characters, and whoever sends it may add a line.
const MaxMarkdown = 60000

// maxValue is the most characters of one value that is shown.
const maxValue = 300

// Markdown is Plan at a desk.
func Markdown(p plan.Proposal) string { return Plan(p, plan.PullContext{}) }

// Plan is the comment on a pull request: what its merge would do. The first line
// says it; what stands in the way comes next; the reasons are folded away.
func Plan(p plan.Proposal, _ plan.PullContext) string {
	var d doc
	d.line("### Berth plan", "")
	d.line(verdict(&p)...)
	d.line("")
	if len(p.Plans) > 0 {
		d.units(p.Plans)
	}
	d.obstacles(&p)
	d.findings(p.Diagnostics)
	d.glass(p.Authority)
	d.impacted(p.Impacted)
	d.narrowed(p.Decisions)
	for _, u := range inOrder(p.Plans) {
		d.unitDetails(u)
	}
	d.rights(p.Authority)
	d.documents(p.Documents)
	return d.cut(MaxMarkdown, footer(&p), command(&p))
}

// verdict is the headline, in bold, and a line for what makes it bad.
func verdict(p *plan.Proposal) []string {
	var lines []string
	switch {
	case len(p.Conflicts) > 0:
		mend := "Merge the base into it and push again."
		if p.Head == "" {
			mend = "Make it again from the base."
		}
		lines = append(lines, fmt.Sprintf("**This %s conflicts with its base in %s**, so nothing can be planned. %s", noun(p), count(len(p.Conflicts), "file"), mend))
		return lines
	case schema.HasErrors(p.Diagnostics):
		lines = append(lines, fmt.Sprintf("**%s to correct before this can be merged.** What the rest of the change does:", upper(severities(p.Diagnostics))), "")
	}
	return append(lines, strings.TrimSpace(fmt.Sprintf("**%s.** %s", headline(p), destroyed(p))))
}

func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
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

// command prints all of a proposal at a desk.
func command(p *plan.Proposal) string {
	if p.Head == "" {
		return fmt.Sprintf("berth plan --base %s --patch FILE", commit(p.Base))
	}
	return fmt.Sprintf("berth plan --base %s --head %s", commit(p.Base), commit(p.Head))
}

func footer(p *plan.Proposal) string {
	s := fmt.Sprintf("<sub>Plan %s", code(short(p.Digest, 13)))
	if how := between(p.Base, p.Head, code); how != "" {
		s += " · " + how
	}
	if p.Assumed {
		s += " · " + assumedNote
	}
	return s + "</sub>"
}

// assumedNote says what a plan rests on where no status branch is at hand.
const assumedNote = "no berth/status is at hand: the base is taken to run as declared"

// doc is a Markdown document in lines. Tables, fences and details open and
// close on lines of their own, so that it can be cut between any two.
type doc struct{ lines []string }

func (d *doc) line(s ...string) { d.lines = append(d.lines, s...) }

func (d *doc) table(heads ...string) {
	d.line("| "+strings.Join(heads, " | ")+" |", "|"+strings.Repeat(" --- |", len(heads)))
}

func (d *doc) row(cells ...string) { d.line("| " + strings.Join(cells, " | ") + " |") }

func (d *doc) details(summary string, body func()) {
	d.line("<details><summary>"+summary+"</summary>", "")
	body()
	d.line("", "</details>", "")
}

// units is the table of what happens to each instance.
func (d *doc) units(plans []plan.Plan) {
	d.table("", "Instance", "What happens", "Impact")
	for _, p := range inOrder(plans) {
		c := changeOf(p)
		d.row("**"+c.sign()+"**", code(unitName(p.Key)), whatHappens(p, c), impactCell(p))
	}
	d.line("")
}

// whatHappens is a plan in a few words.
func whatHappens(p *plan.Plan, c change) string {
	by := map[plan.Verb][]plan.Action{}
	for _, a := range p.Actions {
		by[a.Verb] = append(by[a.Verb], a)
	}
	var parts []string
	members := func(v plan.Verb, word string) {
		as := by[v]
		if len(as) == 0 {
			return
		}
		var names []string
		for i, a := range as {
			if i == 3 && len(as) > 4 {
				names = append(names, fmt.Sprintf("%d more", len(as)-3))
				break
			}
			names = append(names, fmt.Sprintf("%s (%s)", code(a.Member), prose(a.Node)))
		}
		parts = append(parts, word+" "+sentence(names))
	}
	switch {
	case c == deletes:
		return "**deletes** it " + unitSize(p.Before)
	case c == blocks:
		return "blocked, see below"
	case len(by[plan.Create]) > 0 && p.Before != nil:
		parts = append(parts, "carries on making it")
	case len(by[plan.Create]) > 0:
		parts = append(parts, "**creates** it on "+code(by[plan.Create][0].Node))
	}
	if len(by[plan.Stop]) > 0 {
		parts = append(parts, "stops it")
	}
	for _, a := range by[plan.Configure] {
		parts = append(parts, "configures "+valuesOf(a))
	}
	members(plan.Leave, "removes")
	members(plan.Join, "adds")
	members(plan.Start, "starts")
	return strings.Join(parts, "; ")
}

// valuesOf names what a configure changes; how is told in the details.
func valuesOf(a plan.Action) string {
	if len(a.Changes) == 0 {
		return prose(short(a.Reason, maxValue))
	}
	var names []string
	for i, c := range a.Changes {
		if i == 3 && len(a.Changes) > 4 {
			names = append(names, fmt.Sprintf("%d more", len(a.Changes)-3))
			break
		}
		names = append(names, code(short(c.Field, 60)))
	}
	return sentence(names)
}

func unitSize(u *plan.Unit) string {
	if u == nil {
		return ""
	}
	return "with " + count(len(u.Members), "member")
}

// impactCell gathers the impacts of a plan's actions, each said once.
func impactCell(p *plan.Plan) string {
	var all []string
	for _, a := range p.Actions {
		for _, phrase := range impact(a.Impact) {
			phrase = prose(short(phrase, maxValue))
			if a.Impact.EndsJobs && phrase == "ends jobs" {
				phrase = "**ends jobs**"
			}
			if !slices.Contains(all, phrase) {
				all = append(all, phrase)
			}
		}
	}
	if len(all) == 0 {
		return "–"
	}
	return strings.Join(all, "; ")
}

// obstacles lists what is in the way: conflicts, blocked units, held documents.
func (d *doc) obstacles(p *plan.Proposal) {
	var lines []string
	for _, f := range p.Conflicts {
		lines = append(lines, fmt.Sprintf("- Conflict: %s was changed on both sides.", code(f)))
	}
	for i := range p.Plans {
		u := &p.Plans[i]
		for _, b := range u.Blocked {
			word := "**blocked**"
			if b.Wait {
				word = "waits"
			}
			lines = append(lines, fmt.Sprintf("- %s %s: %s (%s)", code(unitName(u.Key)), word, prose(short(b.Message, 1000)), code(b.Code)))
		}
	}
	for _, h := range p.Held {
		if told(h, p.Diagnostics) {
			continue
		}
		lines = append(lines, fmt.Sprintf("- %s is held (%s): %s", code(h.File), prose(h.Reason), prose(short(h.Message, 1000))))
	}
	if len(lines) > 0 {
		d.line("**In the way**", "")
		d.line(lines...)
		d.line("")
	}
}

func (d *doc) findings(ds []schema.Diagnostic) {
	if len(ds) == 0 {
		return
	}
	d.line("**"+upper(severities(ds))+"**", "")
	d.table("Where", "", "Finding")
	for _, f := range ds {
		word := string(f.Severity)
		if f.Severity == schema.SeverityError {
			word = "**error**"
		}
		d.row(code(place(f.File, f.Line, f.Column)), word, prose(short(f.Message, 1000))+" ("+code(f.Code)+")")
	}
	d.line("")
}

// narrowed tells what policy changed of what was asked. What it denies is told
// as an obstacle.
func (d *doc) narrowed(ds []schema.Decision) {
	var lines []string
	for _, x := range ds {
		if x.Verdict == schema.Narrow {
			lines = append(lines, fmt.Sprintf("- %s: %s of %s: %s → %s (rule %s, %s)", code(unitName(x.Key)), prose(x.Message), code(x.Field),
				code(short(x.Before, maxValue)), code(short(x.After, maxValue)), code(x.Rule), code(place(x.Source.File, x.Source.Line, 0))))
		}
	}
	if len(lines) > 0 {
		d.line("**Narrowed by policy**", "")
		d.line(lines...)
		d.line("")
	}
}

// unitDetails folds away each step of one plan, the values it changes and why
// its members are where they are.
func (d *doc) unitDetails(p *plan.Plan) {
	if len(p.Actions) == 0 {
		return
	}
	d.details(fmt.Sprintf("%s: %s", htmlCode(unitName(p.Key)), count(len(p.Actions), "action")), func() {
		steps := stepNumbers(p)
		d.table("#", "Step", "Node", "Why", "After")
		for i, a := range p.Actions {
			var needs []string
			for _, id := range a.Needs {
				needs = append(needs, steps[id])
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

// stepNumbers gives each action the number its row has.
func stepNumbers(p *plan.Plan) map[string]string {
	out := map[string]string{}
	for i, a := range p.Actions {
		out[a.ID] = fmt.Sprint(i + 1)
	}
	return out
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
			d.line(fmt.Sprintf("- %s %s%s", prose(c.Change), code(c.File), from))
		}
	})
}

// cut is the document within max bytes, foot and all. What does not fit goes
// from the end, whole lines at a time; what is open is closed, and a line says
// how much is missing and how to see it.
func (d *doc) cut(max int, foot, command string) string {
	total := 0
	for _, l := range d.lines {
		total += len(l) + 1
	}
	if total+len(foot)+1 <= max {
		return strings.Join(append(d.lines, foot), "\n") + "\n"
	}
	note := fmt.Sprintf("**%d more lines do not fit into this comment.** All of it: %s", len(d.lines), code(command))
	size := len(foot) + len(note) + 4 // with the line ends around them
	var kept []string
	var now open
	for i, l := range d.lines {
		next := now.after(l)
		if size+len(l)+1+next.closing() > max {
			if now.fence != "" {
				kept = append(kept, now.fence)
			}
			for range now.details {
				kept = append(kept, "", "</details>")
			}
			kept = append(kept, "", fmt.Sprintf("**%d more lines do not fit into this comment.** All of it: %s", len(d.lines)-i, code(command)), "")
			break
		}
		size += len(l) + 1
		kept = append(kept, l)
		now = next
	}
	return strings.Join(append(kept, foot), "\n") + "\n"
}

// open is what a text has opened and not closed.
type open struct {
	fence   string // its backticks
	details int
}

// after is what is open after one more line.
func (o open) after(line string) open {
	ticks := line[:len(line)-len(strings.TrimLeft(line, "`"))]
	switch {
	case o.fence != "" && line == o.fence:
		o.fence = ""
	case o.fence == "" && len(ticks) > 2 && !strings.Contains(line[len(ticks):], "`"):
		o.fence = ticks
	case o.fence == "" && strings.HasPrefix(line, "<details>"):
		o.details++
	case o.fence == "" && line == "</details>":
		o.details--
	}
	return o
}

// closing is how many bytes it takes to close it.
func (o open) closing() int { return len(o.fence) + 1 + o.details*len("\n</details>\n") }

// place is file:line:column, as far as they are known.
func place(file string, line, column int) string {
	switch {
	case line == 0:
		return file
	case column == 0:
		return fmt.Sprintf("%s:%d", file, line)
	}
	return fmt.Sprintf("%s:%d:%d", file, line, column)
}

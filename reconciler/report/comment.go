package report

import (
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
)

// Markdown returns the plan of a local checkout.
func Markdown(p plan.Proposal) string { return Plan(p, plan.PullContext{}) }

// Plan returns the part of a pull request's comment about the effects of its merge. The
// order is that of importance: verdict, effects, deletions, a table of instances, blocks
// and their next steps. Steps and documents are folded. A proposal without anything to
// read takes two lines.
func Plan(p plan.Proposal, c plan.PullContext) string {
	d := newPage(&p, &c)
	if isQuiet(&p, &c) {
		d.line(quietVerdict(&p), "")
		for _, c := range p.Documents[:min(len(p.Documents), maxNamed)] {
			if len(c.Fields) > 0 {
				d.line("- " + code(c.File))
				d.fields(c)
			}
		}
		if more := len(p.Documents) - maxNamed; more > 0 {
			d.line("- and " + count(more, "more document"))
		}
		d.note()
		return d.cut(MaxMarkdown, "<sub>"+origin(&p)+"</sub>", planCommand(&p))
	}
	d.line("### Berth plan", "")
	d.overview()
	written, permitted := sides(p.Diagnostics)
	d.blocking(permitted)
	d.findings(append(written, withoutErrors(permitted)...))
	d.waiting()
	d.policy()
	d.approved()
	d.allSteps()
	d.permissions()
	d.documents()
	return d.cut(MaxMarkdown, footer(&p, &c), planCommand(&p))
}

// isQuiet reports whether a proposal has no information that a reviewer needs.
func isQuiet(p *plan.Proposal, c *plan.PullContext) bool {
	return len(p.Plans)+len(p.Diagnostics)+len(p.Conflicts)+len(p.Held)+len(p.Impacted) == 0 && c.Paused == "" &&
		!slices.ContainsFunc(p.Authority, isBreakGlass) && !slices.ContainsFunc(p.Decisions, narrows)
}

func quietVerdict(p *plan.Proposal) string {
	if len(p.Documents) == 0 {
		return "**Ready to merge.** No file of the estate changes."
	}
	names := each(p.Documents, func(c plan.DocumentChange) string { return word(c.Change) + " " + code(c.File) })
	return "**Ready to merge.** No " + changeable(p) + " changes. Documents: " + list(names, maxNamed) + "."
}

// overview writes the first lines for a reviewer.
func (d *page) overview() {
	p, c := d.p, d.c
	d.line(bold(verdict(p, c, prose)+".")+" "+effects(p, code), "")
	if p.Changes() || ofPolicy(p, prose) != "" {
		if s := strings.TrimSpace(worstForJobs(p, c, code, prose) + " " + ofPolicy(p, prose)); s != "" {
			d.line(s, "")
		}
	}
	if len(c.Since) > 0 {
		d.line("Since the last push: "+sinceText(c.Since)+".", "")
	}
	d.circumstances()
	d.deletions()
	d.breakGlass()
	if len(p.Plans) > 0 {
		d.units()
	}
}

// circumstances writes facts about the pull request that affect a merge.
func (d *page) circumstances() {
	d.note()
	if d.c.Paused != "" {
		d.box("NOTE", fmt.Sprintf("**Berth is paused:** %s. A merge takes effect when the pause ends.",
			prose(strings.TrimSuffix(short(d.c.Paused, maxProse), "."))))
	}
	if len(d.p.Released) > 0 {
		d.box("NOTE", released(d.p, code, prose))
	}
	if d.c.Queue {
		d.line("Planned on the commit of the merge queue. Permissions and acknowledgements are checked on its pull requests, and again "+
			"after the merge.", "")
	}
	if d.c.Fork {
		d.line("From a fork: Berth reads its files as data. It runs none of them, and no secret is in reach.", "")
	}
}

// note writes the reason why the plan may differ from Berth's.
func (d *page) note() {
	if d.p.Note != "" {
		d.box("NOTE", prose(d.p.Note))
	}
}

const (
	// maxDeletions limits the deletions described one by one.
	maxDeletions = 3
	// maxDeletedNames limits the deleted instances that are named.
	maxDeletedNames = 60
	// maxDeletionNotes limits the different effects listed for many deletions.
	maxDeletionNotes = 10
)

// deletions warns of losses: each instance with its members and jobs. For many deletions
// it shows their number and the first names.
func (d *page) deletions() {
	gone := slices.DeleteFunc(inOrder(d.p), func(u *plan.Plan) bool { return changeOf(d.p, u) != deletes })
	switch n := len(gone); {
	case n == 0:
	case n > maxDeletions:
		d.box("CAUTION", d.manyDeletions(gone)...)
	default:
		bullet := strings.Repeat("- ", min(1, n-1))
		d.box("CAUTION", each(gone, func(u *plan.Plan) string { return bullet + d.deletion(u) })...)
	}
}

// manyDeletions warns of more than maxDeletions.
func (d *page) manyDeletions(gone []*plan.Plan) []string {
	keys := each(gone, unitKey)
	var notes []string
	for _, u := range gone {
		if len(notes) < maxDeletionNotes {
			notes = withNew(notes, notesOf(u)...)
		}
	}
	lines := []string{fmt.Sprintf("**%s are deleted with all their state:** %s.", count(len(gone), noun(keys)),
		list(each(keys, unitCode), maxDeletedNames))}
	if len(gone) > maxDeletedNames {
		lines = append(lines, "", "All of them are named by "+code(planCommand(d.p))+".")
	}
	if len(notes) > 0 {
		lines = append(lines, "", "Effects: "+strings.Join(notes[:min(len(notes), maxDeletionNotes)], "; ")+".")
	}
	return lines
}

func (d *page) deletion(u *plan.Plan) string {
	s := bold(upper(unitCode(u.Key))+" is deleted with all its state") + ": "
	if u.Before != nil && len(u.Before.Members) > 0 {
		var nodes []string
		for _, m := range u.Before.Members {
			if m.Node != "" {
				nodes = withNew(nodes, code(m.Node))
			}
		}
		s += count(len(u.Before.Members), "member")
		if len(nodes) > 0 {
			s += " on " + list(nodes, 6)
		}
		s += "; "
	}
	switch jobs := d.jobs(u, true); {
	case jobs != "" && lacksJobs(u, d.c):
		s += jobs // it says that jobs are unknown
	case jobs != "":
		s += "jobs: " + jobs
	}
	s = strings.TrimSuffix(strings.TrimSuffix(s, "; "), ": ") + "."
	if others := notesOf(u); len(others) > 0 {
		s += " Also: " + strings.Join(others, "; ") + "."
	}
	return s
}

// fields lists the fields of a document that change.
func (d *page) fields(c plan.DocumentChange) {
	for k, f := range c.Fields {
		if k == maxFields {
			d.line("  - and " + count(len(c.Fields)-k+c.MoreFields, "more field"))
			return
		}
		d.line(fmt.Sprintf("  - %s: %s → %s", code(f.Field), code(short(dash(f.Before), maxValue)), code(short(dash(f.After), maxValue))))
	}
}

// documents folds the files of the change.
func (d *page) documents() {
	if len(d.p.Documents) == 0 {
		return
	}
	listed := map[string]bool{}
	for _, c := range withoutPlans(d.p) {
		listed[c.File] = true
	}
	d.section(count(len(d.p.Documents), "document")+" in this change", func() {
		for _, c := range d.p.Documents {
			from := ""
			if c.From != "" {
				from = " from " + d.place(c.From, 0, 0)
			}
			d.line(fmt.Sprintf("- %s %s%s", word(c.Change), d.place(c.File, 0, 0), from))
			if listed[c.File] {
				d.fields(c)
			}
		}
	})
}

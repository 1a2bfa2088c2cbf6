package report

import (
	"fmt"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
)

// Conclusions of a check, as forges name them.
const (
	Success = "success"
	Failure = "failure"
)

// maxTitle keeps a title within what forges take for the description of a
// commit status.
const maxTitle = 140

// Check is p as a check on a commit: a title of one line, a summary in
// Markdown, and success or failure. It fails when a merge would not do what
// the change asks. What merely waits does not fail it.
func Check(p plan.Proposal) (title, summary, conclusion string) {
	conclusion = Success
	if p.Blocked() {
		conclusion = Failure
	}
	var d doc
	d.line(verdict(&p)...)
	d.line("")
	d.obstacles(&p)
	d.findings(p.Diagnostics)
	summary = d.cut(MaxMarkdown, footer(&p), command(&p))
	return short(clean(checkTitle(&p)), maxTitle), summary, conclusion
}

func checkTitle(p *plan.Proposal) string {
	if len(p.Conflicts) > 0 {
		return "conflicts with the base in " + count(len(p.Conflicts), "file")
	}
	var parts []string
	if len(p.Diagnostics) > 0 && schema.HasErrors(p.Diagnostics) {
		parts = append(parts, severities(p.Diagnostics))
	}
	n := tally(p.Plans)
	for _, c := range []change{deletes, creates, changes, repairs} {
		if n[c] > 0 {
			parts = append(parts, fmt.Sprintf("%d to %s", n[c], c.word()))
		}
	}
	if n[blocks] > 0 {
		parts = append(parts, fmt.Sprintf("%d blocked", n[blocks]))
	}
	if len(parts) == 0 {
		return "no instance changes"
	}
	return strings.Join(parts, ", ")
}

package report

import (
	"fmt"

	"berth/reconciler/plan"
)

// page is the Markdown of one proposal.
type page struct {
	doc
	*links
	p *plan.Proposal
	c *plan.PullContext
}

func newPage(p *plan.Proposal, c *plan.PullContext) *page {
	l := &links{prefix: c.Files, base: p.Base, head: p.Head, changed: map[string]bool{}}
	for _, d := range p.Documents {
		l.changed[d.File] = d.Change != "deleted"
	}
	return &page{links: l, p: p, c: c}
}

// origin names the plan and its commits.
func origin(p *plan.Proposal) string {
	s := "Plan " + code(shortID(p.Digest))
	if how := between(p.Base, p.Head, code); how != "" {
		s += " · " + how
	}
	if p.Assumed {
		s += " · " + assumedNote
	}
	return s
}

func footer(p *plan.Proposal, c *plan.PullContext) string {
	s := "<sub>" + origin(p)
	if !c.Observed.IsZero() {
		s += " · live state of " + c.Observed.UTC().Format("2006-01-02 15:04 UTC")
	}
	if c.Number > 0 {
		s += " · help: `/berth help`"
	}
	return s + "</sub>"
}

// between describes which commit is merged into which; "" without a base.
func between(base, head string, name func(string) string) string {
	switch {
	case base == "":
		return ""
	case head == "":
		return "a change on " + name(shortID(base))
	}
	return name(shortID(head)) + " merged into " + name(shortID(base))
}

// planCommand returns the command that prints the whole proposal in a local checkout.
func planCommand(p *plan.Proposal) string {
	if p.Head == "" {
		return fmt.Sprintf("berth plan --base %s --patch FILE", shortID(p.Base))
	}
	return fmt.Sprintf("berth plan --base %s --head %s", shortID(p.Base), shortID(p.Head))
}

// assumedNote describes the assumption of a plan without a status branch.
const assumedNote = "berth/status is not available: the plan assumes that the base runs as declared"

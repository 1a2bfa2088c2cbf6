package report

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
)

const (
	// maxTitle keeps a title within what forges take for the description of a
	// commit status.
	maxTitle = 140
	// maxNotes is the most findings of a check that go beside their lines; the
	// others are told in its summary.
	maxNotes = 200
)

// Checks is p as two checks on its head: whether what is written is right, and
// whether what it would do is allowed and possible. There are always both, also
// where nothing concerns Berth: a required check that stays silent blocks for
// ever. What merely waits fails none.
func Checks(p plan.Proposal, c plan.PullContext) []plan.Check {
	out := []plan.Check{checkValidate(p, c), checkPlan(p, c)}
	p, c = steady(p, c)
	for i, k := range []plan.Check{checkValidate(p, c), checkPlan(p, c)} {
		out[i].Key = keyOf(k)
	}
	return out
}

// checkValidate is about what is written.
func checkValidate(p plan.Proposal, c plan.PullContext) plan.Check {
	found, _ := sides(p.Diagnostics)
	k := plan.Check{Name: plan.CheckValidate, Conclusion: plan.Success}
	switch {
	case len(p.Conflicts) > 0:
		k.Conclusion, k.Title = plan.Failure, "conflicts with its base in "+count(len(p.Conflicts), "file")
	case schema.HasErrors(found):
		k.Conclusion, k.Title = plan.Failure, severities(found)
	case len(found) > 0:
		k.Title = "valid, with " + severities(found)
	case len(p.Documents) == 0:
		k.Title = "nothing of the estate changes"
	default:
		k.Title = count(len(p.Documents), "document") + " changed, all valid"
	}
	var d doc
	d.line("**"+upper(prose(k.Title))+".**", "")
	d.line(conflicts(&p)...)
	finish(&k, &d, &p, &c, found)
	return k
}

// Key is over everything that is shown of p but its base, and what changes by
// itself: the work on units, and which other nodes would have done. While it is
// the same, nobody needs to be shown anything.
func Key(p plan.Proposal, c plan.PullContext) string {
	p, c = steady(p, c)
	shown := []any{p.Head, Plan(p, c)}
	for _, x := range Checks(p, c) {
		shown = append(shown, x.Key)
	}
	return keyOf(shown)
}

// steady is a proposal without what changes by itself.
func steady(p plan.Proposal, c plan.PullContext) (plan.Proposal, plan.PullContext) {
	if p.Base != "" {
		p.Base = strings.Repeat("0", 40)
	}
	p.Plans = slices.Clone(p.Plans)
	for i := range p.Plans {
		p.Plans[i].Placed = nil
	}
	c.Jobs, c.Main = nil, ""
	return p, c
}

func keyOf(shown any) string {
	raw, err := json.Marshal(shown)
	if err != nil {
		panic(fmt.Sprintf("report: encode what is shown: %v", err)) // strings and numbers
	}
	sum := sha256.Sum256(raw)
	return "v2:" + hex.EncodeToString(sum[:16])
}

// sides parts findings into those about what is written and those about what is
// allowed.
func sides(ds []schema.Diagnostic) (written, allowed []schema.Diagnostic) {
	for _, d := range ds {
		if decided(d.Code) {
			allowed = append(allowed, d)
		} else {
			written = append(written, d)
		}
	}
	return written, allowed
}

// decided says whether a finding of that code is about what a change may do, which
// other documents, people and what is in force decide: berth/plan tells it.
func decided(code string) bool {
	family, _, _ := strings.Cut(strings.TrimPrefix(code, "base."), ".")
	return slices.Contains([]string{"policy", "authority", "deletion", "estate", "feature"}, family)
}

// checkPlan is about what it would do.
func checkPlan(p plan.Proposal, c plan.PullContext) plan.Check {
	_, found := sides(p.Diagnostics)
	k := plan.Check{Name: plan.CheckPlan, Conclusion: plan.Success, Title: short(clean(checkTitle(&p)), maxTitle)}
	if p.Blocked() {
		k.Conclusion = plan.Failure
	}
	var d doc
	d.line(verdict(&p)...)
	d.line("")
	if len(p.Plans) > 0 {
		d.units(p.Plans)
	}
	d.obstacles(&p)
	finish(&k, &d, &p, &c, found)
	return k
}

// finish puts what was found beside its lines, as far as the change shows those,
// and the rest into the summary.
func finish(k *plan.Check, d *doc, p *plan.Proposal, c *plan.PullContext, found []schema.Diagnostic) {
	var outside []schema.Diagnostic
	for _, f := range gravest(found) {
		if len(k.Notes) < maxNotes && c.Lines.Has(f.File, f.Line) {
			k.Notes = append(k.Notes, f)
		} else {
			outside = append(outside, f)
		}
	}
	if len(outside) > 0 {
		d.line("**Outside the lines of this change**", "")
		d.findings(outside)
	}
	if len(k.Notes) > 0 {
		d.line(count(len(k.Notes), "finding")+" "+map[bool]string{true: "is", false: "are"}[len(k.Notes) == 1]+" shown beside the lines of the change.", "")
	}
	k.Summary = d.cut(MaxMarkdown, footer(p), command(p))
}

// gravest is findings with the errors first, each kind as it was.
func gravest(ds []schema.Diagnostic) []schema.Diagnostic {
	rank := func(d schema.Diagnostic) int {
		return slices.Index([]schema.Severity{schema.SeverityError, schema.SeverityWarning, schema.SeverityNote}, d.Severity)
	}
	out := slices.Clone(ds)
	slices.SortStableFunc(out, func(a, b schema.Diagnostic) int { return rank(a) - rank(b) })
	return out
}

// conflicts lists the files that both sides changed.
func conflicts(p *plan.Proposal) []string {
	var lines []string
	for _, f := range p.Conflicts {
		lines = append(lines, fmt.Sprintf("- Conflict: %s was changed on both sides.", code(f)))
	}
	return lines
}

func checkTitle(p *plan.Proposal) string {
	if len(p.Conflicts) > 0 {
		return "nothing can be planned: conflicts with the base in " + count(len(p.Conflicts), "file")
	}
	var parts []string
	if schema.HasErrors(p.Diagnostics) {
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

// Check is the check of berth/plan with everything in it, for who shows but one.
func Check(p plan.Proposal) (title, summary, conclusion string) {
	k := checkPlan(p, plan.PullContext{})
	return k.Title, k.Summary, string(k.Conclusion)
}

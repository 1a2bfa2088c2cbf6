package report

import (
	"cmp"
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
	// maxTitlePath is the longest path that a title tells, in bytes: half of one is
	// none.
	maxTitlePath = 100
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
		out[i].Key = keyOf([]any{k, p.Digest}) // its text has but the first digits
	}
	return out
}

// Key is over everything that is shown of p but its base, and what changes by
// itself: how much work is on units (that it is known is part of it), and which
// other nodes would have done. While it is the same, nobody needs to be shown
// anything.
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
	c.Jobs = slices.Clone(c.Jobs)
	for i := range c.Jobs {
		c.Jobs[i].Jobs = plan.Jobs{}
	}
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
	return slices.Contains([]string{"policy", "authority", "deletion", "estate", "feature", "capacity", "kind"}, family(strings.TrimPrefix(code, "base.")))
}

// checkValidate is about what is written.
func checkValidate(p plan.Proposal, c plan.PullContext) plan.Check {
	found, _ := sides(p.Diagnostics)
	k := plan.Check{Name: plan.CheckValidate, Conclusion: plan.Success}
	said := "" // what the title says, as Markdown
	switch {
	case len(p.Conflicts) > 0:
		k.Conclusion, k.Title = plan.Failure, "conflicts with its base in "+count(len(p.Conflicts), "file")
	case len(found) == 1 && schema.HasErrors(found) && len(found[0].File) <= maxTitlePath:
		k.Conclusion, k.Title = plan.Failure, place(found[0].File, found[0].Line, 0)+": "+found[0].Message
		said = "Error at " + code(place(found[0].File, found[0].Line, 0)) + ": " + prose(strings.TrimSuffix(found[0].Message, "."))
	case schema.HasErrors(found):
		k.Conclusion, k.Title = plan.Failure, severities(found)+" in "+where(found, nil)
		said = upper(severities(found)) + " in " + where(found, code)
	case len(found) > 0:
		k.Title = "valid, with " + severities(found) + " in " + where(found, nil)
		said = "Valid, with " + severities(found) + " in " + where(found, code)
	case len(p.Documents) == 0:
		k.Title = "nothing of the estate changes"
	default:
		k.Title = count(len(p.Documents), "document") + " changed, all valid"
	}
	if said == "" {
		said = upper(k.Title)
	}
	k.Title = short(clean(k.Title), maxTitle)
	var d doc
	d.line("**"+said+".**", "")
	for _, f := range p.Conflicts {
		d.line("- " + code(f) + " was changed on both sides")
	}
	if len(p.Conflicts) > 0 {
		d.line("", "→ merge the base into the branch and push again", "")
	}
	finish(&k, &d, &p, &c, found)
	return k
}

// where is the file of findings as name has it, or how many files. Without a name
// it is a title's: the file as it is, unless it would not be whole there.
func where(ds []schema.Diagnostic, name func(string) string) string {
	var files []string
	for _, f := range ds {
		if !slices.Contains(files, f.File) {
			files = append(files, f.File)
		}
	}
	switch {
	case len(files) == 1 && name != nil:
		return name(files[0])
	case len(files) == 1 && len(files[0]) <= maxTitlePath:
		return files[0]
	}
	return count(len(files), "file")
}

// checkPlan is about what it would do.
func checkPlan(p plan.Proposal, c plan.PullContext) plan.Check {
	_, found := sides(p.Diagnostics)
	k := plan.Check{Name: plan.CheckPlan, Conclusion: plan.Success, Title: short(clean(planTitle(&p)), maxTitle)}
	if p.Blocked() {
		k.Conclusion = plan.Failure
	}
	var d doc
	if quiet(&p, &c) {
		d.line(quietVerdict(&p), "")
	} else {
		d.overview(&p, &c)
		d.inTheWay(&p, found)
		d.policy(&p)
		d.authority(p.Authority)
	}
	finish(&k, &d, &p, &c, found)
	return k
}

// planTitle is what it would do, or why not, in a line that stands alone.
func planTitle(p *plan.Proposal) string {
	if len(p.Conflicts) > 0 {
		return "nothing can be planned: conflicts with the base in " + count(len(p.Conflicts), "file")
	}
	if move := partialMove(p); move != "" {
		return "a merge " + move
	}
	if bad := obstacles(p); bad != "" {
		return bad + ": " + firstObstacle(p)
	}
	if len(p.Documents) == 0 && len(p.Plans) == 0 {
		return "nothing of the estate changes"
	}
	does := strings.TrimSpace(strings.TrimSuffix(happens(p, "", unitName), "."))
	for _, more := range []string{cost(p), strings.Trim(later(p), "*")} {
		if more != "" {
			does += ". " + strings.TrimSuffix(more, ".")
		}
	}
	return does
}

// firstObstacle is one of what is in the way, in words; what is written wrongly is
// told by the other check.
func firstObstacle(p *plan.Proposal) string {
	_, allowed := sides(p.Diagnostics)
	for _, f := range allowed {
		if f.Severity == schema.SeverityError {
			return f.Message
		}
	}
	for _, u := range inOrder(p.Plans) {
		for _, b := range u.Blocked {
			if !b.Wait && !p.Comes(u.Key) {
				return unitName(u.Key) + ": " + b.Message
			}
		}
	}
	for _, h := range p.Held {
		switch {
		case told(h, p.Diagnostics):
		case len(h.File) <= maxTitlePath:
			return h.File + ": " + h.Message
		default:
			return h.Message
		}
	}
	return "what is not valid stays out of force, see " + plan.CheckValidate
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
	if n := len(k.Notes); n > 0 {
		d.line("Beside the lines of the change: "+cmp.Or(severities(k.Notes), count(n, "finding"))+".", "")
	}
	if k.Name == plan.CheckPlan {
		outside = mild(outside) // the others stand in the way
	}
	d.findings("Elsewhere than in the lines of the change", "Elsewhere than in the lines of the change", outside)
	k.Summary = d.cut(MaxMarkdown, "<sub>"+origin(p)+"</sub>", planCommand(p))
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

package report

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/schema"
)

const (
	// maxTitle limits a title, in characters: a forge's limit for the description of a
	// commit status.
	maxTitle = 140
	// maxTitlePath limits a path in a title, in bytes. A title omits a longer
	// path instead of cutting it.
	maxTitlePath = 100
	// maxNotes limits the findings that a check shows at their lines; the others are in
	// its summary.
	maxNotes = 200
)

// Checks returns two checks on the head: the documents are valid, and a merge is
// permitted and possible. Both are always present, because a required check that is
// never reported blocks forever. A plan that waits fails no check.
func Checks(p plan.Proposal, c plan.PullContext) []plan.Check {
	out := []plan.Check{checkValidate(p, c), checkPlan(p, c)}
	p, c = steady(p, c)
	for i, k := range []plan.Check{checkValidate(p, c), checkPlan(p, c)} {
		out[i].Key = keyOf([]any{k, p.Digest}) // the text shows only the first digits of the digest
	}
	return out
}

// Key covers the displayed content of p except its base and values that change without a
// new plan: the number of jobs, other free nodes, times. The comment is not rewritten
// while the key is equal.
func Key(p plan.Proposal, c plan.PullContext) string {
	p, c = steady(p, c)
	shown := []any{p.Head, Plan(p, c)}
	for _, x := range Checks(p, c) {
		shown = append(shown, x.Key)
	}
	return keyOf(shown)
}

// steady removes the parts of a proposal that its key does not cover.
func steady(p plan.Proposal, c plan.PullContext) (plan.Proposal, plan.PullContext) {
	if p.Base != "" {
		p.Base = strings.Repeat("0", 40)
	}
	p.Plans = slices.Clone(p.Plans)
	for i := range p.Plans {
		p.Plans[i].Placed, p.Plans[i].Jobs = nil, nil
	}
	c.Jobs = slices.Clone(c.Jobs)
	for i := range c.Jobs {
		c.Jobs[i].JobImpact = plan.JobImpact{Unknown: c.Jobs[i].Unknown, At: c.Jobs[i].At}
		if c.Jobs[i].Known() {
			c.Jobs[i].At = time.Unix(1, 0)
		}
	}
	c.Since, c.Observed, c.Files = nil, time.Time{}, ""
	return p, c
}

func keyOf(shown any) string {
	raw, err := json.Marshal(shown)
	if err != nil {
		panic(fmt.Sprintf("report: encode what is shown: %v", err)) // strings and numbers only
	}
	sum := sha256.Sum256(raw)
	return "v2:" + hex.EncodeToString(sum[:16])
}

// checkValidate returns the check of the documents.
func checkValidate(p plan.Proposal, c plan.PullContext) plan.Check {
	found, _ := sides(p.Diagnostics)
	d := newPage(&p, &c)
	k := plan.Check{Name: plan.CheckValidate, Conclusion: plan.Success}
	title := func(name func(string) string) string {
		switch {
		case len(p.Conflicts) > 0:
			return "conflicts with the base in " + count(len(p.Conflicts), "file")
		case schema.HasErrors(found):
			return severities(found) + " in " + files(found, name)
		case len(found) > 0:
			return "valid, with " + severities(found) + " in " + files(found, name)
		case len(p.Documents) == 0:
			return "no file of the estate changes"
		}
		return count(len(p.Documents), "document") + " changed, all valid"
	}
	k.Title = title(clean)
	if len(p.Conflicts) > 0 || schema.HasErrors(found) {
		k.Conclusion = plan.Failure
	}
	if len(p.Conflicts) == 0 && len(found) == 1 && schema.HasErrors(found) && len(found[0].File) <= maxTitlePath {
		k.Title = place(found[0].File, found[0].Line, 0) + ": " + found[0].Message
	}
	k.Title = short(clean(k.Title), maxTitle)
	d.line(bold(upper(title(code))+"."), "")
	for _, f := range p.Conflicts {
		d.line("- " + d.place(f, 0, 0) + ": changed in the branch and in the base")
	}
	if len(p.Conflicts) > 0 {
		d.line("", "→ merge the base into the branch and push again", "")
	}
	d.finish(&k, found, found)
	return k
}

// files returns the only file of findings, or the number of files.
func files(ds []schema.Diagnostic, name func(string) string) string {
	names := map[string]bool{}
	for _, f := range ds {
		names[f.File] = true
	}
	if len(names) != 1 || len(ds[0].File) > maxTitlePath {
		return count(len(names), "file")
	}
	return name(ds[0].File)
}

// checkPlan returns the check of the effects of a merge.
func checkPlan(p plan.Proposal, c plan.PullContext) plan.Check {
	_, found := sides(p.Diagnostics)
	k := plan.Check{Name: plan.CheckPlan, Conclusion: plan.Success, Title: short(clean(planTitle(&p, &c)), maxTitle)}
	if p.Blocked() {
		k.Conclusion = plan.Failure
	}
	d := newPage(&p, &c)
	if isQuiet(&p, &c) {
		d.line(quietVerdict(&p), "")
	} else {
		d.overview()
		d.blocking(found)
		d.waiting()
		d.policy()
		d.approved()
	}
	d.finish(&k, found, withoutErrors(found))
	return k
}

// planTitle describes in one line the effects of a merge, or its obstacles.
func planTitle(p *plan.Proposal, c *plan.PullContext) string {
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
		return "no file of the estate changes"
	}
	s := effects(p, clean) + " " + worstForJobs(p, c, clean, clean) + " " + ofPolicy(p, clean)
	if v := verdict(p, c, clean); v != readyToMerge {
		s = v + ". " + s
	}
	return lower(strings.TrimSuffix(strings.Join(strings.Fields(s), " "), "."))
}

// lower returns s with a small first letter.
func lower(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// firstObstacle returns one reason why a merge is blocked. It ignores invalid documents,
// which are part of the other check.
func firstObstacle(p *plan.Proposal) string {
	_, permitted := sides(p.Diagnostics)
	for _, f := range permitted {
		if f.Severity == schema.SeverityError {
			return f.Message
		}
	}
	for _, u := range inOrder(p) {
		if all := p.Obstacles(u); len(all) > 0 {
			return unitName(u.Key) + ": " + all[0].Message
		}
	}
	if held := unexplained(p); len(held) > 0 {
		h := held[0]
		if len(h.File) <= maxTitlePath {
			return h.File + ": " + h.Message
		}
		return h.Message
	}
	if p.Changes() { // a merge deploys the valid documents
		return lower(strings.TrimSuffix(effects(p, clean), ".")) + ", see " + plan.CheckValidate
	}
	return "invalid documents stay out of force, see " + plan.CheckValidate
}

// finish adds found as notes at the lines of the change. The summary has the findings of
// listed that are at other lines.
func (d *page) finish(k *plan.Check, found, listed []schema.Diagnostic) {
	var elsewhere []schema.Diagnostic
	for _, f := range bySeverity(found) {
		switch {
		case len(k.Notes) < maxNotes && d.c.Lines.Has(f.File, f.Line):
			k.Notes = append(k.Notes, f)
		case slices.Contains(listed, f):
			elsewhere = append(elsewhere, f)
		}
	}
	if len(k.Notes) > 0 {
		d.line("Beside the lines of the change: "+severities(k.Notes)+".", "")
	}
	d.findings(elsewhere)
	k.Summary = d.cut(MaxMarkdown, "<sub>"+origin(d.p)+"</sub>", planCommand(d.p))
}

package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"berth/reconciler/plan"
	"berth/schema"
)

// JSON encodes p as indented JSON with a final newline. Its format is plan.Format.
func JSON(p plan.Proposal) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(p); err != nil {
		return nil, fmt.Errorf("encode the plan of %s: %w", p.Head, err)
	}
	return b.Bytes(), nil
}

// Text formats p for a terminal: one line for each action with its node, reason and
// changes, then findings and held documents. It has no colour and moves no cursor.
func Text(p plan.Proposal) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. %s\n", verdict(&p, &plan.PullContext{}, clean), effects(&p, clean))
	if s := strings.TrimSpace(worstForJobs(&p, &plan.PullContext{}, clean, clean) + " " + ofPolicy(&p, clean)); s != "" {
		fmt.Fprintf(&b, "%s\n", s)
	}
	for _, f := range mergeConflicts(&p) {
		fmt.Fprintf(&b, "\n! conflict: %s: changed in the branch and in the base\n", clean(f))
	}
	if len(p.Released) > 0 {
		fmt.Fprintf(&b, "\n%s\n", released(&p, clean, clean))
	}
	for _, u := range inOrder(&p) {
		b.WriteString("\n")
		unitText(&b, &p, u)
	}
	documentsText(&b, &p)
	if len(p.Diagnostics) > 0 {
		fmt.Fprintf(&b, "\n%s:\n", upper(severities(p.Diagnostics)))
		diagnosticsText(&b, p.Diagnostics)
	}
	for _, h := range unexplained(&p) {
		fmt.Fprintf(&b, "\n! held (%s): %s: %s\n", clean(h.Why()), clean(h.File), clean(h.Message))
	}
	for _, x := range p.Authority {
		if isBreakGlass(x) {
			fmt.Fprintf(&b, "\n! break-glass access: %s, by %s as %s\n", clean(x.Why), clean(x.By), clean(x.Role))
		}
	}
	policyText(&b, &p)
	quotasText(&b, &p)
	if p.Assumed {
		fmt.Fprintf(&b, "\n%s\n", assumedNote)
	}
	if p.Note != "" {
		fmt.Fprintf(&b, "\n%s\n", clean(p.Note))
	}
	fmt.Fprintf(&b, "\nplan %s", shortID(p.Digest))
	if s := between(p.Base, p.Head, clean); s != "" {
		fmt.Fprintf(&b, ", %s", s)
	}
	b.WriteString("\n")
	return b.String()
}

// policyText lists the fates of units that policy denies, and the values that policy narrows.
func policyText(b *strings.Builder, p *plan.Proposal) {
	for _, n := range p.Impacted {
		fmt.Fprintf(b, "\nPolicy: %s %s\n", unitName(n.Key), strings.TrimSuffix(clean(fate(n)+": "+because(n)), ": "))
	}
	for _, d := range p.Decisions {
		if narrows(d) && isShown(p, d) {
			fmt.Fprintf(b, "\nNarrowed: %s %s: %s → %s (rule %s, %s)\n", unitName(d.Key), clean(d.Field), clean(d.Before), clean(d.After),
				clean(d.Rule), clean(place(d.Source.File, d.Source.Line, 0)))
		}
	}
}

// quotasText lists the quotas whose use the change moves.
func quotasText(b *strings.Builder, p *plan.Proposal) {
	for _, q := range p.Quotas {
		fmt.Fprintf(b, "\nQuota: %s uses %d of %d %s (was %d), left: %s (%s, %s)\n", clean(q.Owner), q.Used, q.Most, clean(q.What), q.Was,
			left(q), clean(q.Rule), clean(place(q.Source.File, q.Source.Line, 0)))
	}
}

// diagnosticsText lists findings. Those that differ in their place alone are one.
func diagnosticsText(b *strings.Builder, ds []schema.Diagnostic) {
	type subject struct {
		severity            schema.Severity
		code, path, message string
	}
	places := map[subject][]string{}
	for _, d := range ds {
		s := subject{d.Severity, d.Code, d.Path, d.Message}
		place := d.File
		if d.Line > 1 { // else it is the whole document
			place += ":" + strconv.Itoa(d.Line)
		}
		places[s] = append(places[s], place)
	}
	for _, d := range ds {
		s := subject{d.Severity, d.Code, d.Path, d.Message}
		if all := places[s]; len(all) > 0 {
			fmt.Fprintf(b, "  %s\n", clean(d.String()))
			if len(all) > 1 {
				fmt.Fprintf(b, "    also: %s\n", clean(list(all[1:], maxFiles)))
			}
			delete(places, s)
		}
	}
}

// Limits of the documents that a text names, and of the fields of each.
const (
	maxDocuments = 20
	maxFields    = 12
	maxFiles     = 10 // with one finding
)

// documentsText lists the changed documents, with the fields that change, but for units of which the plan says more.
func documentsText(b *strings.Builder, p *plan.Proposal) {
	listed := withoutPlans(p)
	if len(listed) > 0 {
		b.WriteString("\n")
	}
	for i, c := range listed {
		if i == maxDocuments {
			fmt.Fprintf(b, "and %s\n", count(len(listed)-i, "more document"))
			break
		}
		sign := map[string]string{"added": "+", "deleted": "-"}[c.Change]
		fmt.Fprintf(b, "%s %s  (%s)\n", cmp.Or(sign, "~"), clean(c.File), clean(c.Change))
		for k, f := range c.Fields {
			if k == maxFields {
				fmt.Fprintf(b, "    and %s\n", count(len(c.Fields)-k+c.MoreFields, "more field"))
				break
			}
			fmt.Fprintf(b, "    %s: %s → %s\n", clean(f.Field), dash(clean(short(f.Before, maxValue))),
				dash(clean(short(f.After, maxValue))))
		}
	}
}

// withoutPlans leaves out the documents of units that have a plan.
func withoutPlans(p *plan.Proposal) []plan.DocumentChange {
	planned := map[schema.Key]bool{}
	for _, u := range p.Plans {
		planned[u.Key] = true
	}
	return slices.DeleteFunc(slices.Clone(p.Documents), func(c plan.DocumentChange) bool { return planned[c.Key] })
}

func unitText(b *strings.Builder, in *plan.Proposal, p *plan.Plan) {
	c := changeOf(in, p)
	fmt.Fprintf(b, "%s %s  (%s)\n", c.sign(), unitName(p.Key), c.verbOf(p))
	if c == creates && isView(p) {
		fmt.Fprintf(b, "    uses %s\n", unitName(sharedBy(p)))
	}
	for _, phrase := range sharing(p, clean) {
		fmt.Fprintf(b, "    %s\n", clean(phrase))
	}
	stepsText(b, p)
	for _, k := range p.Blocked {
		word := "blocked"
		switch {
		case k.Wait && isAttachedBy(in, p):
			continue
		case k.Wait:
			word = "waits"
		}
		fmt.Fprintf(b, "    ! %s: %s [%s]\n", word, clean(k.Message), clean(string(k.Code)))
	}
}

// stepsText lists the steps of a plan in columns, each with its changes, its node and its effects below.
func stepsText(b *strings.Builder, p *plan.Plan) {
	steps := stepsOf(p)
	var verbs, members, nodes []string
	for i, a := range steps {
		verb := signOf(a.Verb) + " " + string(a.Verb)
		if i >= len(p.Actions) {
			verb += ", later"
		}
		verbs, members, nodes = append(verbs, verb), append(members, clean(a.Member)), append(nodes, clean(a.Node))
	}
	verbs, members, nodes = column(verbs), column(members), column(nodes)
	for i, a := range steps {
		fmt.Fprintf(b, "    %s%s%s%s\n", verbs[i], members[i], nodes[i], clean(a.Reason))
		for _, detail := range details(p, a) {
			fmt.Fprintf(b, "    %*s%s\n", utf8.RuneCountInString(verbs[i]), "", detail)
		}
	}
}

// details describes the changes of a step, the reason of its node, and its effects.
func details(p *plan.Plan, a plan.Action) (lines []string) {
	for _, c := range a.Changes {
		if !isShownOtherwise(p, c) {
			lines = append(lines, fmt.Sprintf("%s: %s → %s", clean(c.Field), dash(clean(short(c.Before, maxValue))),
				dash(clean(short(c.After, maxValue)))))
		}
	}
	if reason := placed(p, a); reason != "" {
		lines = append(lines, "node: "+clean(reason))
	}
	phrases := impact(a.Impact)
	if text := differencesText(a.Impact); text != "" {
		phrases = append(phrases, text)
	}
	if len(phrases) > 0 {
		lines = append(lines, clean(strings.Join(phrases, "; ")))
	}
	return lines
}

// column pads cells to one width, and two spaces more; it leaves empty cells if all are empty.
func column(cells []string) []string {
	width := 0
	for _, s := range cells {
		width = max(width, utf8.RuneCountInString(s))
	}
	if width == 0 {
		return cells
	}
	padded := make([]string, len(cells))
	for i, s := range cells {
		padded[i] = fmt.Sprintf("%-*s", width+2, s)
	}
	return padded
}

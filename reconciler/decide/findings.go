package decide

import (
	"fmt"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/estate"
	"berth/schema/policy"
	"berth/schema/signature"
)

// codeWider is policy's code of an overlay that allows more than those above it.
const codeWider = "policy.wider"

// treeRules find what is wrong in a tree. The findings that a change does not cause are left out.
func (d *Decider) treeRules(in Input, touched []schema.PathChange) []func(*forced) []schema.Diagnostic {
	return []func(*forced) []schema.Diagnostic{
		func(f *forced) []schema.Diagnostic { return d.findings(f, in.Today) },
		func(f *forced) []schema.Diagnostic { return d.configsWithoutEffect(touched, f, in.Today) },
		func(f *forced) []schema.Diagnostic { return widerLimits(touched, f.Main.Desired) },
		func(f *forced) []schema.Diagnostic {
			return signature.Findings(f.Main.Desired, func(file string) bool { return touches(touched, file) })
		},
	}
}

// findingsOf are the findings of a proposal.
func (d *Decider) findingsOf(in Input, touched []schema.PathChange, waited map[string]bool, base, head *forced) []schema.Diagnostic {
	c := comparison{touched, base.Result.Desired, head.Main.Desired, in.Today, in.Memory}
	out := append([]schema.Diagnostic{}, withoutEffect(touched, head.Main)...)
	for _, find := range d.treeRules(in, touched) {
		out = append(out, caused(touched, waited, find(base), find(head))...)
	}
	for _, find := range changeRules() {
		out = append(out, find(c)...)
	}
	schema.SortDiagnostics(out)
	if in.Seen != nil {
		out = append(out, in.Seen(c.before, head.Result.Desired)...)
		schema.SortDiagnostics(out)
	}
	return out // never nil: null in JSON
}

// findings are all findings about a tree: those of the loader, policy and
// guards, and units that can never run.
func (d *Decider) findings(f *forced, today string) []schema.Diagnostic {
	all := slices.Clone(f.Main.Diagnostics)
	judged := f.Main.Desired
	if slices.ContainsFunc(all, isInvalidPolicy) {
		judged = f.Result.Desired // without it, others would be judged by less than all policies
	}
	all = append(all, d.refused(judged, f.before, today, func(string) bool { return true })...)
	all = append(all, operations(f.before, f.guard.facts)(judged)...)
	for _, held := range gpuHours(f.before, f.guard.facts)(judged) {
		all = append(all, as(schema.SeverityWarning, held)) // it waits for the next month, and nothing is wrong
	}
	all = append(all, schema.Upgrades(f.before, f.Main.Desired)...)
	all = append(all, schema.Shadowing(f.Main.Desired)...)
	all = append(all, policy.ChangedUIDs(f.before, f.Main.Desired)...)
	all = append(all, f.guard.found...)
	all = append(all, d.refusals(f, today, all)...)
	all = append(all, d.capacity.Check(judged, d.Evaluate(judged, f.before, today), f.Main.AllNodes())...)
	schema.SortDiagnostics(all)
	return all
}

// isInvalidPolicy reports whether a finding makes a policy of the platform invalid: its last valid
// version stays in force.
func isInvalidPolicy(d schema.Diagnostic) bool {
	key, ok := schema.KeyAt(d.File)
	return ok && d.Severity == schema.SeverityError && key.Kind == schema.KindPolicy && key.Tenant == ""
}

// refusals returns the findings of the rules in the version that comes into force and in vetoed
// files, and the refusals of all checks. It leaves out refusals that are in known.
func (d *Decider) refusals(f *forced, today string, known []schema.Diagnostic) []schema.Diagnostic {
	ruled := d.ruled(f.before, today)
	out := slices.DeleteFunc(ruled(f.Result.Desired), func(d schema.Diagnostic) bool {
		return d.Severity == schema.SeverityError && !touches(f.guard.changes, d.File)
	})
	for _, d := range ruled(f.Main.Desired) {
		if _, vetoed := f.guard.vetoes[d.File]; vetoed {
			out = append(out, d)
		}
	}
	for _, refused := range f.Refused {
		if refused.Code == schema.CodeUsedUp {
			refused.Severity = schema.SeverityWarning
		}
		same := func(d schema.Diagnostic) bool {
			return d.File == refused.File && d.Code == refused.Code && d.Path == refused.Path
		}
		if !slices.ContainsFunc(known, same) && !slices.ContainsFunc(out, same) {
			out = append(out, refused)
		}
	}
	return out
}

// caused are the findings of head in touched files, and those elsewhere that base
// lacks, regardless of their wording: the author of the change cannot fix earlier
// errors.
func caused(touched []schema.PathChange, waited map[string]bool, base, head []schema.Diagnostic) []schema.Diagnostic {
	type place struct {
		file, code, path string
		severity         schema.Severity
	}
	before, said := map[place]bool{}, map[string]bool{}
	for _, d := range base {
		before[place{d.File, d.Code, d.Path, d.Severity}] = true
		said[subjectOf(d)] = true
	}
	out := []schema.Diagnostic{}
	for _, d := range head {
		d = d.At(func(file string) bool { return touches(touched, file) }) // the author of the change can fix it there
		known := waited[d.File] || before[place{d.File, d.Code, d.Path, d.Severity}]
		if d.Code == codeWider && !touches(touched, d.File) {
			d.Severity = schema.SeverityWarning // the layers above narrow it anyway
		}
		if touches(touched, d.File) || !known {
			if !known && touches(touched, d.File) && !said[subjectOf(d)] {
				d = mistake(d)
			}
			out = append(out, d)
		}
	}
	return out
}

// subjectOf returns the code and the message of a finding without its position: a field of a list, or a document, may
// have moved.
func subjectOf(d schema.Diagnostic) string {
	_, message, _ := strings.Cut(d.Message, ": ")
	return d.Code + " " + message
}

// mistake makes an error of a warning about a field that a change adds and that has no effect: a
// name that nothing has, such as a mistyped one, or a time that is over. For a field of an earlier change it stays a
// warning: the document is valid, and the named object may have been removed since.
func mistake(d schema.Diagnostic) schema.Diagnostic {
	named := []string{
		"ref.missing-owner", "ref.missing-project", "ref.missing-shared-runtime", "ref.missing-site", "ref.missing-app",
		"ref.missing-version",
		"ref.missing-rates", "ref.node-role", codeNoUser, policy.CodeUselessAdmission,
	}
	selects := d.Code == "ref.no-node" && (strings.HasPrefix(d.Path, "spec.roles.") || strings.HasPrefix(d.Path, "spec.config."))
	switch {
	case d.Severity != schema.SeverityWarning:
	case selects || slices.Contains(named, d.Code):
		d.Severity = schema.SeverityError
		d.Message += "; if another pull request adds it, merge that one first"
	case slices.Contains([]string{estate.CodeNoEffect, codePast, codeProjectName, policy.CodeGuarantee, policy.CodeDeniedApp,
		signature.CodeUnusableKey, "conflict.unix-user", "conflict.key", "conflict.currency"}, d.Code):
		d.Severity = schema.SeverityError
	}
	return d
}

// maxWithoutEffect is how many documents and fields without effect are named.
const maxWithoutEffect = 10

// withoutEffect warns of documents of a change, and of their fields, that have no effect yet.
func withoutEffect(touched []schema.PathChange, head *estate.Result) (out []schema.Diagnostic) {
	more := 0
	for _, c := range touched {
		for _, f := range head.WithoutEffectAt(c.Path) {
			if len(out) < maxWithoutEffect {
				out = append(out, f)
			} else {
				more++
			}
		}
	}
	if more > 0 {
		last := out[len(out)-1]
		last.Severity, last.Path, last.Message = schema.SeverityNote, "",
			fmt.Sprintf("%d more documents or fields of this change have no effect yet; berth validate lists them", more)
		out = append(out, last)
	}
	return out
}

// halfMove is a partial move with the file of the half that does not come into force.
type halfMove struct {
	plan.PartialMove
	file string
}

// partialMoves returns the documents that a change deletes in one tenant and creates
// with the same uid in another, if only one half of that comes into force. Deletions
// come first.
func partialMoves(touched []schema.PathChange, base *estate.Result, head *forced) []halfMove {
	created := map[identity][]schema.PathChange{} // without a tree
	for _, c := range touched {
		if id, ok := identityOf(head.Main.HeaderAt(c.Path)); ok && c.From == "" {
			id.tree = ""
			created[id] = append(created[id], c)
		}
	}
	var lost, doubled []halfMove
	for _, c := range touched {
		id, ok := identityOf(base.HeaderAt(c.Path))
		if !ok || c.To != "" {
			continue
		}
		from := base.Key(c.Path)
		id.tree = ""
		for _, n := range created[id] {
			to := head.Main.Key(n.Path)
			_, kept := head.Replace[c.Path]
			_, missing := head.Replace[n.Path]
			switch {
			case tree(from) == tree(to) || kept == missing:
			case missing:
				lost = append(lost, halfMove{plan.PartialMove{From: from, To: to, Half: plan.HalfDeletion}, n.Path})
			default:
				doubled = append(doubled, halfMove{plan.PartialMove{From: from, To: to, Half: plan.HalfCreation}, c.Path})
			}
		}
	}
	return append(lost, doubled...)
}

// reportMoves marks the document of each partial move, and adds an error with the reason why it is held before the others.
func (f *forced) reportMoves(moves []halfMove, out *plan.ProposeInput) {
	for n, m := range moves {
		message := m.String()
		if i := slices.IndexFunc(f.Held, func(h schema.Held) bool { return h.File == m.file }); i >= 0 {
			message += ": " + f.Held[i].Message
		}
		out.Diagnostics = slices.Insert(out.Diagnostics, n, errorAt(m.file, plan.CodePartialMove, message))
		if i := slices.IndexFunc(out.Documents, func(c plan.DocumentChange) bool { return c.File == m.file }); i >= 0 {
			out.Documents[i].Partial = &m.PartialMove
		}
	}
}

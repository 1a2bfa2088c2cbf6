package decide

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/estate"
	"berth/schema/policy"
	"berth/schema/signature"
)

// CodeNoAdministrator is the code of the finding that nobody may give roles at the
// platform or in a tenant. The loader reports role bindings that name no
// administrator; a change that deletes the binding is reported here.
const CodeNoAdministrator = "ref.no-administrator"

// codeWider is policy's code of an overlay that allows more than those above it.
const codeWider = "policy.wider"

// findingsOf are the findings of a proposal.
func (d *Decider) findingsOf(in Input, touched []schema.PathChange, waited map[string]bool, base, head *forced) []schema.Diagnostic {
	now := base.Result.Desired
	out := caused(touched, waited, d.findings(base, in.Today), d.findings(head, in.Today))
	out = append(out, lastAdministrators(touched, now, head.Main.Desired)...)
	out = append(out, withoutEffect(touched, head.Main)...)
	out = append(out, notAccepted(touched, head.Main.Desired)...)
	out = append(out, caused(touched, waited, d.configsWithoutEffect(touched, base, in.Today), d.configsWithoutEffect(touched, head, in.Today))...)
	out = append(out, caused(touched, waited, widerLimits(touched, now), widerLimits(touched, head.Main.Desired))...)
	out = append(out, movedAccounts(touched, now, head.Main.Desired)...)
	out = append(out, changedPrices(touched, now, head.Main.Desired)...)
	out = append(out, reservedInUse(touched, now, head.Main.Desired, in.Memory)...)
	out = append(out, pastDates(touched, now, head.Main.Desired, in.Today)...)
	out = append(out, stillAttached(touched, now)...)
	out = append(out, signature.Findings(head.Main.Desired, func(file string) bool { return touches(touched, file) })...)
	schema.SortDiagnostics(out)
	if in.Seen != nil {
		out = append(out, in.Seen(now, head.Result.Desired)...)
		schema.SortDiagnostics(out)
	}
	return slices.Insert(out, 0, partialMoves(touched, base.Result, head)...) // never nil: null in JSON
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
		if !touches(touched, d.File) && !d.Other.IsZero() && touches(touched, d.Other.File) {
			d = d.Swapped() // the change causes the conflict, and its author can fix it there
		}
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

// subjectOf is what a finding is about wherever it stands: a field of a list, or a document, may have
// moved.
func subjectOf(d schema.Diagnostic) string {
	_, message, _ := strings.Cut(d.Message, ": ")
	return d.Code + " " + message
}

// mistake makes an error of a warning about a field that a change adds and that has no effect: a
// name that nothing has, such as a mistyped one, or a time that is over. An earlier one stays a
// warning: the document is valid, and what it names may have gone since.
func mistake(d schema.Diagnostic) schema.Diagnostic {
	named := []string{
		"ref.missing-owner", "ref.missing-project", "ref.missing-shared-runtime", "ref.missing-site", "ref.missing-app", "ref.missing-version",
		"ref.missing-rates", "ref.node-role", codeNoUser,
	}
	selects := d.Code == "ref.no-node" && (strings.HasPrefix(d.Path, "spec.roles.") || strings.HasPrefix(d.Path, "spec.config."))
	switch {
	case d.Severity != schema.SeverityWarning:
	case selects || slices.Contains(named, d.Code):
		d.Severity = schema.SeverityError
		d.Message += "; if another pull request adds it, merge that one first"
	case slices.Contains([]string{estate.CodeNoEffect, codePast, "conflict.unix-user", "conflict.key", "conflict.currency"}, d.Code):
		d.Severity = schema.SeverityError
	}
	return d
}

// maxWithoutEffect is how many documents without effect are named.
const maxWithoutEffect = 10

// withoutEffect warns of documents of a change that have no effect yet.
func withoutEffect(touched []schema.PathChange, head *estate.Result) (out []schema.Diagnostic) {
	more := 0
	for _, c := range touched {
		f := head.WithoutEffectAt(c.Path)
		switch {
		case f == nil:
		case len(out) < maxWithoutEffect:
			out = append(out, *f)
		default:
			more++
		}
	}
	if more > 0 {
		last := out[len(out)-1]
		last.Severity, last.Path, last.Message = schema.SeverityNote, "", fmt.Sprintf("%d more documents of this change have no effect yet; berth validate lists them", more)
		out = append(out, last)
	}
	return out
}

// Codes of findings about attachments. CodeAttached is the code of the finding that a change deletes
// a shared runtime and not its attachments.
const (
	codeNotAccepted = "attachment.not-accepted"
	CodeAttached    = "deletion.attached"
)

// notAccepted notes the attachments of a change whose project has not accepted their terms.
func notAccepted(touched []schema.PathChange, head *schema.Desired) (out []schema.Diagnostic) {
	for _, c := range touched {
		key, _ := schema.KeyAt(c.Path)
		a, ok := head.Document(key).(*schema.Attachment)
		of := head.SharedRuntime(key.Tenant, key.Parent)
		if !ok || of == nil || of.Runtime == nil {
			continue
		}
		tenant, project, _ := strings.Cut(a.Spec.ProjectID, ".")
		t := head.Tenants[tenant]
		if t == nil || t.Projects[project] == nil || policy.Acceptance(of.Runtime, t.Projects[project]) != nil {
			continue
		}
		at := a.At("spec.project_id")
		out = append(out, schema.Diagnostic{
			Severity: schema.SeverityNote, Code: codeNotAccepted, File: at.File, Line: at.Line, Column: at.Column, Path: "spec.project_id",
			Message: fmt.Sprintf("%s has not accepted these terms: it is attached when one of its Instances has shared_runtime: %s", a.Spec.ProjectID, of.Name),
		})
	}
	return out
}

// stillAttached returns an error for each deleted shared runtime whose attachments are not deleted
// with it, and names their projects.
func stillAttached(touched []schema.PathChange, before *schema.Desired) (out []schema.Diagnostic) {
	for _, c := range touched {
		key, _ := schema.KeyAt(c.Path)
		of := before.SharedRuntime(key.Tenant, key.Name)
		if key.Kind != schema.KindSharedRuntime || c.To != "" || of == nil {
			continue
		}
		var projects []string
		for _, name := range slices.Sorted(maps.Keys(of.Attachments)) {
			a := of.Attachments[name]
			path, err := a.Key.Path()
			goes := slices.ContainsFunc(touched, func(c schema.PathChange) bool { return err == nil && c.Path == path && c.To == "" })
			if !goes {
				projects = append(projects, a.Spec.ProjectID)
			}
		}
		if len(projects) > 0 {
			out = append(out, schema.Diagnostic{
				Severity: schema.SeverityError, Code: CodeAttached, File: c.Path, Line: 1, Column: 1,
				Message: fmt.Sprintf("%s still has attachments: %s", key, strings.Join(projects, ", ")),
			})
		}
	}
	return out
}

// lastAdministrators warns about deleted role bindings that named the last
// administrators of the platform, or of a tenant that stays.
func lastAdministrators(touched []schema.PathChange, before, after *schema.Desired) (out []schema.Diagnostic) {
	for _, c := range touched {
		key, _ := schema.KeyAt(c.Path)
		binding, ok := before.Document(key).(*schema.RoleBinding)
		if !ok || key.Project != "" || !authority.Administers(binding) {
			continue
		}
		of := "platform"
		if key.Tenant != "" {
			of = "tenant " + key.Tenant
		}
		if next, ok := after.Document(key).(*schema.RoleBinding); ok && authority.Administers(next) && !authority.SharesAdministrator(binding, next) {
			out = append(out, warnAt(next.Head(), "spec.members", CodeNoAdministrator, "each administrator of the %s here is a new one, and none of the present ones stays: check the logins", of))
		}
		if c.To != "" || administered(after, key.Tenant) {
			continue
		}
		out = append(out, schema.Diagnostic{
			Severity: schema.SeverityWarning, Code: CodeNoAdministrator, File: c.Path, Line: 1, Column: 1,
			Message: fmt.Sprintf("this deletes the last administrators of the %s: keep one with the role %s", of, strings.Join(authority.AdministratorRoles(key.Tenant), " or ")),
		})
	}
	return out
}

// administered returns true if a user may grant roles in a tenant, or on the platform
// for "". It also returns true for a deleted tenant.
func administered(d *schema.Desired, tenant string) bool {
	if tenant == "" {
		return slices.ContainsFunc(slices.Collect(maps.Values(d.Platform.Roles)), authority.Administers)
	}
	t := d.Tenants[tenant]
	return t == nil || t.Tenant == nil || authority.Administers(t.Roles)
}

// partialMoves returns an error for each document that a change deletes in one
// tenant and creates with the same uid in another, if only one half of that comes
// into force. Lost documents come first.
func partialMoves(touched []schema.PathChange, base *estate.Result, head *forced) []schema.Diagnostic {
	created := map[identity][]schema.PathChange{} // without a tree
	for _, c := range touched {
		if id, ok := identityOf(head.Main.HeaderAt(c.Path)); ok && c.From == "" {
			id.tree = ""
			created[id] = append(created[id], c)
		}
	}
	var lost, doubled []schema.Diagnostic
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
				lost = append(lost, partialMove(n.Path, fmt.Sprintf("deletes %s and does not create %s", from, to), head))
			default:
				doubled = append(doubled, partialMove(c.Path, fmt.Sprintf("creates %s and does not delete %s", to, from), head))
			}
		}
	}
	return append(lost, doubled...)
}

func partialMove(file, what string, head *forced) schema.Diagnostic {
	if i := slices.IndexFunc(head.Held, func(h schema.Held) bool { return h.File == file }); i >= 0 {
		what += ": " + head.Held[i].Message
	}
	return schema.Diagnostic{Severity: schema.SeverityError, Code: plan.CodePartialMove, File: file, Line: 1, Column: 1, Message: what}
}

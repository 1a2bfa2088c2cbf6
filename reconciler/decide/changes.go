package decide

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/policy"
)

// CodeNoAdministrator is the code of the finding that nobody may give roles at the
// platform or in a tenant. The loader reports role bindings that name no
// administrator; a change that deletes the binding is reported here.
const CodeNoAdministrator = "ref.no-administrator"

// comparison is the input of the rules of a change.
type comparison struct {
	touched       []schema.PathChange
	before, after *schema.Desired // in force, and as proposed
	today         string
	memory        *plan.Memory
}

// changed yields the documents of a type that a change touches, before and after it; a missing one is the zero value.
func changed[D comparable](c comparison) iter.Seq2[D, D] {
	return func(yield func(was, is D) bool) {
		var none D
		for _, p := range c.touched {
			key, _ := schema.KeyAt(p.Path)
			was, _ := c.before.Document(key).(D)
			is, _ := c.after.Document(key).(D)
			if (was != none || is != none) && !yield(was, is) {
				return
			}
		}
	}
}

// changeRules find the side effects of a change. They do not judge documents in force.
func changeRules() []func(comparison) []schema.Diagnostic {
	return []func(comparison) []schema.Diagnostic{
		lastAdministrators, notAccepted, movedAccounts, uselessAccounts, changedPrices, otherCards, movedSources, reservedInUse,
		unusualDates, stillAttached, endedPolicies,
		recordedOnly, paused, holds, outside, keysOfOthers, withoutPeople, shortTimes, movedKeys, lostFallbacks, otherMaps, sharedRepositories,
		renamedOwners,
		listedProjects,
	}
}

// Codes of findings about attachments. CodeAttached is the code of the finding that a change deletes
// a shared runtime and not its attachments.
const (
	codeNotAccepted = "attachment.not-accepted"
	CodeAttached    = "deletion.attached"
)

// notAccepted notes the attachments of a change whose project has not accepted their terms.
func notAccepted(c comparison) (out []schema.Diagnostic) {
	for _, a := range changed[*schema.Attachment](c) {
		if a == nil {
			continue
		}
		of := c.after.SharedRuntime(a.Key.Tenant, a.Key.Parent)
		if of == nil || of.Runtime == nil {
			continue
		}
		tenant, project, _ := strings.Cut(a.Spec.ProjectID, ".")
		t := c.after.Tenants[tenant]
		if t == nil || t.Projects[project] == nil || policy.Acceptance(of.Runtime, t.Projects[project]) != nil {
			continue
		}
		at := a.At("spec.project_id")
		out = append(out, schema.Diagnostic{
			Severity: schema.SeverityNote, Code: codeNotAccepted, File: at.File, Line: at.Line, Column: at.Column, Path: "spec.project_id",
			Message: fmt.Sprintf("%s has not accepted these terms: it is attached when one of its Instances has shared_runtime: %s",
				a.Spec.ProjectID, of.Name),
		})
	}
	return out
}

// stillAttached returns an error for each deleted shared runtime whose attachments are not deleted
// with it, and names their projects.
func stillAttached(c comparison) (out []schema.Diagnostic) {
	for _, p := range c.touched {
		key, _ := schema.KeyAt(p.Path)
		of := c.before.SharedRuntime(key.Tenant, key.Name)
		if key.Kind != schema.KindSharedRuntime || p.To != "" || of == nil {
			continue
		}
		var projects []string
		for _, name := range slices.Sorted(maps.Keys(of.Attachments)) {
			a := of.Attachments[name]
			path, err := a.Key.Path()
			goes := slices.ContainsFunc(c.touched,
				func(other schema.PathChange) bool { return err == nil && other.Path == path && other.To == "" })
			if !goes {
				projects = append(projects, a.Spec.ProjectID)
			}
		}
		if len(projects) > 0 {
			out = append(out, errorAt(p.Path, CodeAttached, fmt.Sprintf("%s still has attachments: %s", key, strings.Join(projects, ", "))))
		}
	}
	return out
}

// lastAdministrators warns about deleted role bindings that named the last
// administrators of the platform, or of a tenant that stays.
func lastAdministrators(c comparison) (out []schema.Diagnostic) {
	for _, p := range c.touched {
		key, _ := schema.KeyAt(p.Path)
		binding, ok := c.before.Document(key).(*schema.RoleBinding)
		if !ok || key.Project != "" || !authority.Administers(binding) {
			continue
		}
		of := "platform"
		if key.Tenant != "" {
			of = "tenant " + key.Tenant
		}
		if next, ok := c.after.Document(key).(*schema.RoleBinding); ok && authority.Administers(next) &&
			!authority.SharesAdministrator(binding, next) {
			out = append(out, next.Head().Warning("spec.members", CodeNoAdministrator,
				"each administrator of the %s here is a new one, and none of the present ones stays: check the logins", of))
		}
		if p.To != "" || administered(c.after, key.Tenant) {
			continue
		}
		out = append(out, as(schema.SeverityWarning, errorAt(p.Path, CodeNoAdministrator,
			fmt.Sprintf("this deletes the last administrators of the %s: keep one with the role %s", of,
				strings.Join(authority.AdministratorRoles(key.Tenant), " or ")))))
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

// recordedOnly notes a boundary of tenants that a change declares: it is a record for people and the API.
func recordedOnly(c comparison) (out []schema.Diagnostic) {
	for was, is := range changed[*schema.Instance](c) {
		const path, shared = "spec.tenant_boundary_mode", "shared_service"
		if is == nil || is.Spec.TenantBoundaryMode != shared || was != nil && was.Spec.TenantBoundaryMode == shared {
			continue
		}
		out = append(out, as(schema.SeverityNote, is.Warning(path, "schema.recorded-only",
			"tenant_boundary_mode is shown in status and by the API, and gives nobody access: that comes from the users of the project")))
	}
	return out
}

// paused notes that nothing of a change happens while Berth is paused.
func paused(c comparison) []schema.Diagnostic {
	p := c.after.Platform.Pause
	if p == nil || p.Suspend {
		return nil
	}
	at := p.At("")
	return []schema.Diagnostic{{
		Severity: schema.SeverityNote, Code: "platform.paused", File: at.File, Line: at.Line, Column: at.Column,
		Message: "Berth is paused, so nothing changes on any host until this file is deleted: " + p.Spec.Reason,
	}}
}

// holds notes the units that a change holds: no plan shows that.
func holds(c comparison) (out []schema.Diagnostic) {
	for was, is := range changed[*schema.MemberOperation](c) {
		if was != nil || is.Spec.Operation != schema.OpHold {
			continue
		}
		out = append(out, as(schema.SeverityNote, is.Warning("spec.operation", "operation.hold",
			"Berth changes nothing on %s from then on, until an operation release or until this file is deleted", is.Unit())))
	}
	return out
}

// outside notes the YAML files that a change adds or edits and that Berth does not read.
func outside(c comparison) []schema.Diagnostic {
	var files []string
	for _, p := range c.touched {
		top, _, _ := strings.Cut(p.Path, "/")
		isYAML := strings.HasSuffix(p.Path, ".yaml") || strings.HasSuffix(p.Path, ".yml")
		if isYAML && p.To != "" && strings.Contains(p.Path, "/") && top != "platform" && top != "tenants" && !strings.HasPrefix(top, ".") {
			files = append(files, p.Path)
		}
	}
	if len(files) == 0 {
		return nil
	}
	const most = 3
	list := strings.Join(files[:min(most, len(files))], ", ")
	if len(files) > most {
		list += fmt.Sprintf(" and %d more", len(files)-most)
	}
	return []schema.Diagnostic{as(schema.SeverityNote, errorAt(files[0], "estate.outside",
		"Berth reads documents below platform/ and tenants/ only, so this changes nothing: "+list))}
}

// keysOfOthers returns an error for each signing key that a change gives to a person and that a person of another tenant,
// or of the platform, has: a signature would not show who signed. The error does not name the other person. Within one
// tree, the loader reports such a key.
func keysOfOthers(c comparison) (out []schema.Diagnostic) {
	for was, is := range changed[*schema.RoleBinding](c) {
		for k := range signingKeys(is) {
			taken := func(b *schema.RoleBinding) bool { return hasKeyOfAnother(b, k.login, k.key) }
			if hasKey(was, k.login, k.key) || !slices.ContainsFunc(bindings(c.after, is.Key.Tenant), taken) {
				continue
			}
			out = append(out, as(schema.SeverityError, is.Head().Warning(k.field, "conflict.key",
				"is a key of somebody else, in another tenant or on the platform: a key shows who signed, so each person has their own")))
		}
	}
	return out
}

// signingKey is a signing key of a member of a role binding, with its field.
type signingKey struct{ login, key, field string }

// signingKeys yields the signing keys in a role binding; nil: none.
func signingKeys(b *schema.RoleBinding) iter.Seq[signingKey] {
	return func(yield func(signingKey) bool) {
		if b == nil {
			return
		}
		for i, m := range b.Spec.Members {
			for k, key := range m.SigningKeys {
				if !yield(signingKey{m.Login, key, fmt.Sprintf("spec.members[%d].signing_keys[%d]", i, k)}) {
					return
				}
			}
		}
	}
}

// bindings returns the role bindings outside a tenant; "": outside the platform.
func bindings(d *schema.Desired, without string) (all []*schema.RoleBinding) {
	if without != "" {
		all = bindingsOf(d, "")
	}
	for name := range d.Tenants {
		if name != without {
			all = append(all, bindingsOf(d, name)...)
		}
	}
	return all
}

// bindingsOf returns the role bindings of a tenant and its projects; "": of the platform.
func bindingsOf(d *schema.Desired, tenant string) (all []*schema.RoleBinding) {
	if tenant == "" {
		return slices.Collect(maps.Values(d.Platform.Roles))
	}
	if t := d.Tenants[tenant]; t != nil {
		all = append(all, t.Roles)
		for _, p := range t.Projects {
			all = append(all, p.Roles)
		}
	}
	return slices.DeleteFunc(all, func(b *schema.RoleBinding) bool { return b == nil })
}

// sameKey compares two keys, which have no comment.
func sameKey(a, b string) bool { return strings.TrimSpace(a) == strings.TrimSpace(b) }

func hasKey(b *schema.RoleBinding, login, key string) bool {
	return b != nil && slices.ContainsFunc(b.Spec.Members, func(m schema.RoleMember) bool {
		return strings.EqualFold(m.Login, login) && slices.ContainsFunc(m.SigningKeys, func(k string) bool { return sameKey(k, key) })
	})
}

func hasKeyOfAnother(b *schema.RoleBinding, login, key string) bool {
	return slices.ContainsFunc(b.Spec.Members, func(m schema.RoleMember) bool {
		return !strings.EqualFold(m.Login, login) && slices.ContainsFunc(m.SigningKeys, func(k string) bool { return sameKey(k, key) })
	})
}

// withoutPeople warns of a new tenant without a role binding of its own.
func withoutPeople(c comparison) (out []schema.Diagnostic) {
	for was, is := range changed[*schema.Tenant](c) {
		if was != nil || is == nil || is.Spec.Repository != nil {
			continue
		}
		roles := "tenants/" + is.Key.Name + "/roles.yaml"
		if c.after.Tenants[is.Key.Name].Roles == nil && !touches(c.touched, roles) {
			out = append(out, is.Head().Warning("metadata.name", CodeNoAdministrator,
				"nobody has a role in this tenant: add %s, or only administrators of the platform can change it", roles))
		}
	}
	return out
}

// endedPolicies warns of policies that a change deletes: nothing else shows the bounds that end with them.
func endedPolicies(c comparison) (out []schema.Diagnostic) {
	for _, p := range c.touched {
		key, _ := schema.KeyAt(p.Path)
		if key.Kind == schema.KindPolicy && p.To == "" && c.before.Document(key) != nil &&
			(key.Tenant == "" || c.after.Tenants[key.Tenant] != nil) {
			out = append(out, as(schema.SeverityWarning, errorAt(p.Path, "policy.ended",
				fmt.Sprintf("deletes %s: what it alone bounds or denies is allowed from the merge on", key))))
		}
	}
	return out
}

package authority

import (
	"fmt"
	"slices"
	"strings"

	"berth/schema"
)

// Needs returns the permissions that the change c of the document key needs. base is
// the estate before the change and next after it; nil is an empty estate. Where one
// of them lacks a document that its blob says is there (it is invalid, or not a
// regular file), the effect is unknown, and the change needs every permission of its
// kind. A zero key is a file that is not a document: in the estate it needs the
// permission to give every role of its place; elsewhere nothing.
//
// The path decides, never a claim about an earlier path: a move is a deletion and a
// creation, each with its own needs.
func Needs(base, next *schema.Desired, key schema.Key, c schema.PathChange) []Need {
	place, inside := placeOf(c.Path)
	if !inside {
		return nil
	}
	base, next = base.OrEmpty(), next.OrEmpty()
	need := func(why, atLeast string, s Scope, p Permission) Need {
		return Need{Permission: p, Scope: s, AtLeast: atLeast, Key: key, File: c.Path, Why: why}
	}
	stray := "changes the file " + quote(c.Path)
	switch path, err := key.Path(); {
	case place.Tenant != "" && base.Tenants[place.Tenant] == nil:
		// Nobody has a role in a tenant that does not exist yet, so the platform
		// creates its first documents together with it.
		return []Need{need("founds the tenant "+place.Tenant, "", Scope{}, TenantsWrite)}
	case key.IsZero() && isNote(c.Path):
		return []Need{need(stray, "", place, NotesWrite)}
	case err != nil || path != c.Path || home(key) != place:
		return []Need{need(stray+", which is not a document of an estate", highest(place), place, RolesWrite)}
	}

	d := newDiff(base, next, key, c)
	why, scope := d.verb()+key.String(), d.scope(place)
	if key.Kind == schema.KindRoleBinding {
		role, who := d.touched(place)
		if who != "" {
			why += fmt.Sprintf(" (%s, %s)", who, role)
		}
		return []Need{need(why, role, scope, RolesWrite)}
	}
	permissions := d.permissions()
	if d.isOfScheduler(base, next) {
		permissions = alsoScheduler(permissions)
	}
	var needs []Need
	for _, p := range permissions {
		n := need(why, "", scope, p)
		n.EndsApproval = d.endsApproval()
		needs = append(needs, n)
	}
	for _, tenant := range d.foreign() {
		needs = append(needs, need(why+" for a project of "+tenant, "", Scope{Tenant: tenant}, SharedRuntimeAttach))
	}
	return needs
}

// isOfScheduler reports whether d is a scheduler in the catalogue, or an instance of one, before or after
// the change. An app that neither estate has may be one.
func (d diff) isOfScheduler(base, next *schema.Desired) bool {
	var slugs []string
	switch d.key.Kind {
	case schema.KindApp:
		slugs = []string{d.key.Name}
	case schema.KindAppVersion:
		slugs = []string{d.key.Parent}
	case schema.KindInstance:
		was, is := pair[schema.Instance](d)
		slugs = []string{was.Spec.App, is.Spec.App}
	default:
		return false
	}
	return d.unknown || slices.ContainsFunc(slugs, func(slug string) bool {
		before, after := base.App(d.key.Tenant, slug), next.App(d.key.Tenant, slug)
		return slug != "" && (before == nil && after == nil || before.IsScheduler() || after.IsScheduler())
	})
}

// alsoScheduler adds the permissions scheduler.* that belong to those of apps.* (document SPA).
func alsoScheduler(all []Permission) []Permission {
	beside := map[Permission]Permission{
		CatalogWrite: SchedulerCatalogRead, CatalogPropose: SchedulerCatalogRead, InstanceCreate: SchedulerInstanceCreate,
		InstanceUpdate: SchedulerInstanceUpdate, InstanceDelete: SchedulerInstanceDelete,
	}
	for _, p := range slices.Clone(all) {
		if also, ok := beside[p]; ok {
			all = append(all, also)
		}
	}
	return all
}

// placeOf returns the place of a path in the estate, and whether it is inside. A path
// with an unusual spelling that could be mistaken for an estate path belongs to the
// platform.
func placeOf(path string) (place Scope, inside bool) {
	segments := strings.Split(path, "/")
	odd := slices.ContainsFunc(segments, func(s string) bool {
		return s == "" || s == "." || s == ".." || strings.Contains(s, `\`)
	})
	switch {
	case odd:
		return Scope{}, true
	case !strings.EqualFold(segments[0], "tenants"):
		return Scope{}, strings.EqualFold(segments[0], "platform")
	case segments[0] != "tenants" || len(segments) < 3 || !schema.ValidName(segments[1]):
		return Scope{}, true
	case segments[2] != "projects" || len(segments) < 5 || !schema.ValidName(segments[3]):
		return Scope{Tenant: segments[1]}, true
	}
	return Scope{segments[1], segments[3]}, true
}

func isNote(path string) bool {
	base := path[strings.LastIndexByte(path, '/')+1:]
	return base == "README.md" || base == ".gitkeep"
}

// home returns the place of a document. The documents of a tenant and of a project are
// inside it.
func home(k schema.Key) Scope {
	switch k.Kind {
	case schema.KindTenant:
		return Scope{Tenant: k.Name}
	case schema.KindProject:
		return Scope{k.Tenant, k.Name}
	}
	return Scope{k.Tenant, k.Project}
}

// highest returns the highest role that can be given at a place.
func highest(s Scope) string {
	switch {
	case s.Project != "":
		return projectOwner
	case s.Tenant != "":
		return tenantOwner
	}
	return superadmin
}

// document returns the valid document of k, or nil without one. For kinds whose
// content does not matter it returns the header.
func document(d *schema.Desired, k schema.Key) any {
	switch doc := d.Document(k).(type) {
	case nil:
		return nil
	case *schema.App, *schema.AppVersion, *schema.SharedRuntime, *schema.Attachment, *schema.Instance, *schema.Artifact,
		*schema.RoleBinding, *schema.Policy,
		*schema.MemberOperation:
		return doc
	default:
		return doc.Head()
	}
}

// diff is one document before and after a change.
type diff struct {
	key              schema.Key
	was, is          any // nil: none, or none that can be read
	created, deleted bool
	unknown          bool // the document before or after is unreadable
}

func newDiff(base, next *schema.Desired, key schema.Key, c schema.PathChange) diff {
	d := diff{key: key, was: document(base, key), is: document(next, key)}
	had, has := c.From != "" || d.was != nil, c.To != "" || d.is != nil
	d.unknown = had && d.was == nil || has && d.is == nil || !had && !has
	d.created, d.deleted = !had, !has
	return d
}

// scope returns where the change needs its permissions: a tenant belongs to the platform, and a
// project to its tenant, except for a change within it.
func (d diff) scope(place Scope) Scope {
	switch {
	case d.key.Kind == schema.KindTenant:
		return Scope{}
	case d.key.Kind == schema.KindProject && d.within():
		return place
	}
	return Scope{d.key.Tenant, d.key.Project}
}

// verb says what the change does, for the reason of a need.
func (d diff) verb() string {
	switch {
	case d.unknown:
		return "changes, in a way that cannot be read, "
	case d.created:
		return "creates "
	case d.deleted:
		return "deletes "
	}
	return "changes "
}

// pair returns a diff's document before and after; zero values for a missing one.
func pair[T any](d diff) (was, is T) {
	if w, ok := d.was.(*T); ok {
		was = *w
	}
	if i, ok := d.is.(*T); ok {
		is = *i
	}
	return was, is
}

// within reports whether a change of a project affects only its spec, and not its
// existence, its suspension or its identity.
func (d diff) within() bool {
	was, is := pair[schema.Header](d)
	return !d.created && !d.deleted && !d.unknown && was.Suspend == is.Suspend && was.UID == is.UID
}

// endsApproval reports whether a policy stops requiring approval.
func (d diff) endsApproval() bool {
	was, is := pair[schema.Policy](d)
	return !d.unknown && was.Spec.RequireApproval && !is.Spec.RequireApproval
}

// operates returns the permission for operations on a unit, or for that which accepts a loss.
func operates(isShared, accepts bool) Permission {
	switch {
	case isShared && accepts:
		return SharedRuntimeLossAccept
	case isShared:
		return SharedRuntimeMemberOperate
	case accepts:
		return LossAccept
	}
	return MemberOperate
}

// operation returns the permissions that a change of a member operation needs.
func (d diff) operation() (ps []Permission) {
	was, is := pair[schema.MemberOperation](d)
	accepts, operatesOn := false, d.unknown
	for _, operation := range []string{was.Spec.Operation, is.Spec.Operation} {
		accepts = accepts || schema.AcceptsLoss(operation)
		operatesOn = operatesOn || operation != "" && !schema.AcceptsLoss(operation)
	}
	if operatesOn || !accepts {
		ps = append(ps, operates(d.key.Parent != "", false))
	}
	if accepts || d.unknown {
		ps = append(ps, operates(d.key.Parent != "", true))
	}
	return ps
}

// permissions returns the permissions that d needs at its place, each once.
func (d diff) permissions() []Permission {
	if p := d.key.Kind.Info().Permission; p != "" {
		return []Permission{Permission(p)}
	}
	var ps []Permission
	switch d.key.Kind {
	case schema.KindMemberOperation:
		ps = d.operation()
	case schema.KindApp:
		was, is := pair[schema.App](d)
		ps = d.catalog(was.Spec.Status, is.Spec.Status)
	case schema.KindAppVersion:
		was, is := pair[schema.AppVersion](d)
		ps = d.catalog(was.Spec.Status, is.Spec.Status)
	case schema.KindArtifact:
		ps = d.artifact()
	case schema.KindInstance:
		was, is := pair[schema.Instance](d)
		ps = d.lifecycle(InstanceCreate, InstanceUpdate, InstanceDelete,
			was.UID != is.UID || was.Spec.App != is.Spec.App,
			was.Spec.DeletionProtection && !is.Spec.DeletionProtection)
	case schema.KindSharedRuntime:
		was, is := pair[schema.SharedRuntime](d)
		ps = d.lifecycle(SharedRuntimeCreate, SharedRuntimeUpdate, SharedRuntimeDelete,
			was.UID != is.UID || was.Spec.App != is.Spec.App,
			was.Spec.DeletionProtection && !is.Spec.DeletionProtection)
		ps = append(ps, d.attaching(was.Spec.AttachedProjectIDs, is.Spec.AttachedProjectIDs)...)
	case schema.KindAttachment:
		was, is := pair[schema.Attachment](d)
		ps = d.attaching(projects(was.Spec.ProjectID), projects(is.Spec.ProjectID))
		if !d.deleted {
			ps = append(ps, SharedRuntimeAttach) // the terms
		}
	default: // a kind without a rule
		ps = append(ps, RolesWrite)
	}
	slices.Sort(ps)
	return slices.Compact(ps)
}

// lifecycle returns the permissions that a change of an instance or shared runtime needs. Another
// identity or app in its place is a deletion and a creation.
func (d diff) lifecycle(create, update, del Permission, replaced, unprotected bool) []Permission {
	switch {
	case d.unknown:
		return []Permission{create, update, del}
	case d.created:
		return []Permission{create}
	case d.deleted:
		return []Permission{del}
	case replaced:
		return []Permission{create, update, del}
	case unprotected:
		return []Permission{update, del}
	}
	return []Permission{update}
}

// catalog returns the permissions that a change of a catalogue entry needs: writing it, and the
// permissions to reach its new status and to leave its old one. Deleting follows
// disabling.
func (d diff) catalog(statuses ...schema.CatalogStatus) []Permission {
	if d.key.Tenant != "" {
		return []Permission{CatalogPropose} // without an admission of the platform, no status has an effect
	}
	by := map[schema.CatalogStatus]Permission{
		schema.StatusActive: CatalogPublish, schema.StatusDeprecated: CatalogDeprecate, schema.StatusDisabled: CatalogDisable,
	}
	if d.unknown {
		return []Permission{CatalogWrite, CatalogPublish, CatalogDeprecate, CatalogDisable}
	}
	ps := []Permission{CatalogWrite}
	for _, s := range statuses {
		if p, ok := by[s]; ok {
			ps = append(ps, p)
		}
	}
	if d.deleted {
		ps = append(ps, CatalogDisable)
	}
	return ps
}

// artifact is catalog for an artifact. Deleting follows retiring.
func (d diff) artifact() []Permission {
	by := map[schema.ArtifactStatus]Permission{
		schema.ArtifactPromoted: ArtifactPromote, schema.ArtifactDeprecated: ArtifactDeprecate, schema.ArtifactRetired: ArtifactRetire,
	}
	if d.unknown {
		return []Permission{ArtifactPublish, ArtifactPromote, ArtifactDeprecate, ArtifactRetire}
	}
	was, is := pair[schema.Artifact](d)
	ps := []Permission{ArtifactPublish}
	for _, s := range []schema.ArtifactStatus{was.Spec.Status, is.Spec.Status} {
		if p, ok := by[s]; ok {
			ps = append(ps, p)
		}
	}
	if d.deleted {
		ps = append(ps, ArtifactRetire)
	}
	return ps
}

// attaching returns the permissions that a change of the attached projects needs.
func (d diff) attaching(was, is []string) (ps []Permission) {
	lacks := func(list []string) func(string) bool {
		return func(id string) bool { return !slices.Contains(list, id) }
	}
	if d.unknown || slices.ContainsFunc(is, lacks(was)) {
		ps = append(ps, SharedRuntimeAttach)
	}
	if d.unknown || slices.ContainsFunc(was, lacks(is)) {
		ps = append(ps, SharedRuntimeDetach)
	}
	return ps
}

func projects(id string) []string {
	if id == "" {
		return nil
	}
	return []string{id}
}

// foreign returns the other tenants whose projects a tenant's shared runtime is to
// be attached to; they would have to agree. Shared runtimes of the platform serve
// every tenant.
func (d diff) foreign() (tenants []string) {
	if d.key.Tenant == "" {
		return nil
	}
	var ids []string
	switch is := d.is.(type) {
	case *schema.SharedRuntime:
		ids = is.Spec.AttachedProjectIDs
	case *schema.Attachment:
		ids = projects(is.Spec.ProjectID)
	}
	for _, id := range ids {
		if tenant, _, _ := strings.Cut(id, "."); tenant != d.key.Tenant {
			tenants = append(tenants, tenant)
		}
	}
	slices.Sort(tenants)
	return slices.Compact(tenants)
}

// touched returns the highest role among the members of a role binding that d adds,
// changes or removes, and a member with that role; "" without one. A member counts by
// the highest role of its name here, before or after. Otherwise a user could add a key
// for a member with a higher role.
func (d diff) touched(place Scope) (role, who string) {
	if d.unknown {
		return highest(place), "everybody in it"
	}
	was, is := pair[schema.RoleBinding](d)
	if was.Suspend {
		was.Spec.Members = nil
	}
	if is.Suspend {
		is.Spec.Members = nil
	}
	top := map[string]string{}
	for _, m := range slices.Concat(was.Spec.Members, is.Spec.Members) {
		if name := memberName(m); outranks(m.Role, top[name]) {
			top[name] = m.Role
		}
	}
	visit := func(members, others []schema.RoleMember) {
		same := map[string]bool{}
		for _, m := range others {
			same[fingerprint(m)] = true
		}
		for _, m := range members {
			if r := top[memberName(m)]; !same[fingerprint(m)] && (!outranks(role, r) || role == "") {
				role, who = r, displayName(m)
			}
		}
	}
	visit(was.Spec.Members, is.Spec.Members)
	visit(is.Spec.Members, was.Spec.Members)
	return role, who
}

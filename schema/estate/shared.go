package estate

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"berth/schema"
	"berth/schema/load"
)

// unitCheck judges units, instances and shared runtimes, and the documents about them: their roles, config and
// operator, the attachments of projects, and the operations on members.
type unitCheck struct {
	*references
	loader       *Loader
	apps         *appCheck
	environments map[string]*load.Document // shared runtimes by environment
	attached     attachments               // attachments to the tree's own shared runtimes
}

// entitled reports whether a project of this tenant may use an app.
func (u *unitCheck) entitled(doc *load.Document, at, tenant, project, app string) bool {
	key := schema.Key{Kind: schema.KindEntitlement, Tenant: tenant, Project: project, Name: app}
	path, _ := key.Path()
	switch e := u.tree.at(path); {
	case e == nil:
		u.refuse(doc, at, "ref.missing-entitlement", fmt.Sprintf("the project is not entitled to %s (no %s)", app, path), path)
	case u.bad(e):
		u.without(doc, path)
	default:
		return true
	}
	return false
}

// project reports whether a project of this tenant, given by its id, exists and may use
// an app.
func (u *unitCheck) project(doc *load.Document, at, id, app string) bool {
	tenant, project, _ := strings.Cut(id, ".")
	key := schema.Key{Kind: schema.KindProject, Tenant: tenant, Name: project}
	return u.need(doc, at, "ref.missing-project", key, "there is no project "+id) != nil && u.entitled(doc, at, tenant, project, app)
}

// operator checks the service account that operates a resource: one of its own project
// or, for a shared runtime, of its tenant.
func (u *unitCheck) operator(doc *load.Document, at string, key schema.Key) {
	if key.Name == "" {
		return
	}
	if path, _ := key.Path(); u.tree.at(path) != nil {
		u.need(doc, at, "ref.missing-service-account", key, "")
		return
	}
	missing := "there is no service account " + key.Name
	for _, other := range u.tree.docs {
		if k := other.Key; k.Kind == key.Kind && k.Name == key.Name && k != key {
			owner := "the tenant's"
			if k.Project != "" {
				owner = "the project " + k.Project + "'s"
			}
			if key.Project != "" {
				missing += fmt.Sprintf(" of this project: that of %s is %s, and an instance is operated by its own project's only",
					other.File.Path, owner)
			} else {
				missing += fmt.Sprintf(" of the tenant: that of %s is %s, and a project's is never reused", other.File.Path, owner)
			}
			break
		}
	}
	u.need(doc, at, "ref.missing-service-account", key, missing)
}

// sharedRuntime checks a shared runtime, a tenant's or the platform's.
func (u *unitCheck) sharedRuntime(ctx context.Context, doc *load.Document, d *schema.SharedRuntime) error {
	if !u.apps.exists(doc, "spec.app", d.Spec.App) {
		return nil
	}
	v := u.apps.version(doc, d.Spec.App, d.Spec.Version)
	if v == nil {
		return nil
	}
	u.roles(doc, d.Spec.Roles, v)
	if p := d.Spec.PlacementIntent; p != nil {
		u.stockedAll(doc, load.Items("spec.placement_intent.regions"), region, p.Regions)
		u.stockedAll(doc, load.Items("spec.placement_intent.skus"), sku, p.SKUs)
		u.stocked(doc, "spec.placement_intent.spread_by", topology, p.SpreadBy)
	}
	if err := u.config(ctx, doc, v); err != nil {
		return err
	}
	u.rates(doc, d.Spec.BillingPolicyRef, d.Key.Tenant, "its shared cost")
	u.onJobs(doc, "spec.on_jobs", d.Spec.OnJobs)
	card, _ := schema.Key{Kind: schema.KindRateCard, Name: d.Spec.BillingPolicyRef}.Path()
	if there := u.catalog.byFile[card]; there != nil {
		if of, ok := there.Decl.(*schema.RateCard); ok && of.Spec.Shared == nil {
			u.warn(doc, "spec.billing_policy_ref", CodeNoEffect,
				fmt.Sprintf("the rate card %s has no shared_cost (%s), so it bills nothing here: add that, or leave this out",
					d.Spec.BillingPolicyRef, card))
		}
	}
	for i, id := range d.Spec.AttachedProjectIDs {
		at := load.Item("spec.attached_project_ids", i)
		if d.Key.Tenant == "" || u.project(doc, at, id, d.Spec.App) {
			u.termed(doc, at, id)
		}
	}
	if d.Key.Tenant == "" {
		return nil
	}
	u.operator(doc, "spec.operator_identity_ref",
		schema.Key{Kind: schema.KindServiceAccount, Tenant: d.Key.Tenant, Name: d.Spec.OperatorIdentityRef})
	u.operates(doc, d)
	if other := u.environments[d.Spec.Environment]; other != nil {
		u.clash(end{doc, "spec.environment"}, end{other, "spec.environment"}, "conflict.environment", func(of end) string {
			return fmt.Sprintf("the shared runtime %s is in the environment %s, too (%s): a tenant has one in each",
				of.doc.Key.Name, d.Spec.Environment, of.place())
		})
	} else if !u.bad(doc) {
		u.environments[d.Spec.Environment] = doc
	}
	return nil
}

// operates refuses an operator of a shared runtime that may not operate it.
func (u *unitCheck) operates(doc *load.Document, d *schema.SharedRuntime) {
	path, _ := schema.Key{Kind: schema.KindServiceAccount, Tenant: d.Key.Tenant, Name: d.Spec.OperatorIdentityRef}.Path()
	other := u.tree.at(path)
	if other == nil {
		return
	}
	account, ok := other.Decl.(*schema.ServiceAccount)
	if !ok || slices.Contains(account.Spec.Scopes, operatorScope) {
		return
	}
	there := account.At("spec.scopes")
	u.refuse(doc, "spec.operator_identity_ref", "ref.operator-scope",
		fmt.Sprintf("the service account %s lacks %s (%s:%d): add it to its scopes", account.Key.Name, operatorScope, there.File,
			there.Line), there.File)
}

// operatorScope is the permission of the operator of a shared runtime, as in package authority.
const operatorScope = "shared_runtimes.member.operate"

// termed warns about a project that is attached to a shared runtime without terms. An
// unreadable attachment may contain them.
func (u *unitCheck) termed(doc *load.Document, at, id string) {
	of := u.attached[doc.Key.Name]
	if len(of[id])+len(of[""]) > 0 {
		return
	}
	where := strings.TrimSuffix(doc.File.Path, "runtime.yaml") + "attachments/"
	u.warn(doc, at, "ref.missing-attachment",
		fmt.Sprintf("no document in %s states terms for %s: it has neither limits nor a status of its own, and offers no nodes", where, id))
}

// attachment checks an attachment. The project of a platform attachment is checked when
// every tenant is known.
func (u *unitCheck) attachment(doc *load.Document, d *schema.Attachment) {
	of := schema.Key{Kind: schema.KindSharedRuntime, Tenant: d.Key.Tenant, Name: d.Key.Parent}
	runtime := u.need(doc, "", "ref.missing-shared-runtime", of, fmt.Sprintf("there is no shared runtime %s to attach to", of.Name))
	if runtime == nil {
		return
	}
	u.terms(doc, d)
	tenant, _, _ := strings.Cut(d.Spec.ProjectID, ".")
	u.rates(doc, d.Spec.BillingPolicyRef, tenant, "the use by "+d.Spec.ProjectID)
	if d.Key.Tenant != "" && !u.project(doc, "spec.project_id", d.Spec.ProjectID, runtime.Decl.(*schema.SharedRuntime).Spec.App) {
		return
	}
	for _, other := range u.attached[d.Key.Parent][d.Spec.ProjectID] {
		if other == doc {
			return
		}
		if !u.bad(other) {
			u.clash(end{doc, "spec.project_id"}, end{other, "spec.project_id"}, "conflict.attachment", func(of end) string {
				return fmt.Sprintf("%s has terms on %s in %s, too: keep one", d.Spec.ProjectID, d.Key.Parent, of.place())
			})
			return
		}
	}
}

// terms warns about a limit or a share that another limit never lets a project reach.
func (u *unitCheck) terms(doc *load.Document, d *schema.Attachment) {
	s, g := &d.Spec.SubmissionPolicy, &d.Spec.ContributionPolicy.Guaranteed
	const submission, guaranteed = "spec.submission_policy.", "spec.contribution_policy.guaranteed."
	for _, t := range []struct {
		path      string
		n         int
		limit     string
		mostOfAll int
	}{
		{submission + "max_gpus_per_job", s.MaxGPUsPerJob, "max_gpus", s.MaxGPUs},
		{submission + "max_cpus_per_job", s.MaxCPUsPerJob, "max_cpus", s.MaxCPUs},
		{submission + "max_running_jobs", s.MaxRunningJobs, "max_submitted_jobs", s.MaxSubmittedJobs},
		{guaranteed + "gpus", g.GPUs, "max_gpus", s.MaxGPUs},
		{guaranteed + "cpus", g.CPUs, "max_cpus", s.MaxCPUs},
	} {
		if t.mostOfAll > 0 && t.n > t.mostOfAll {
			u.warn(doc, t.path, CodeNoEffect,
				fmt.Sprintf("is %d, and %s of submission_policy is %d: the project never gets more than that", t.n, t.limit, t.mostOfAll))
		}
	}
}

// rates warns about a rate card that does not exist, or that does not price the use of a tenant. what
// names the usage that the default card prices then.
func (u *unitCheck) rates(doc *load.Document, name, tenant, what string) {
	path, _ := schema.Key{Kind: schema.KindRateCard, Name: name}.Path()
	if name == "" {
		return
	}
	message := ""
	other := u.catalog.byFile[path]
	if other == nil {
		message = fmt.Sprintf("there is no rate card %s (%s)", name, path)
	} else if card, ok := other.Decl.(*schema.RateCard); ok && !card.Spec.PricesFor(tenant) {
		message = fmt.Sprintf("the rate card %s does not apply to %s (%s)", name, tenant, path)
	}
	if message != "" {
		u.warn(doc, "spec.billing_policy_ref", "ref.missing-rates",
			message+fmt.Sprintf(": the card %s prices %s; name a card that exists and applies, or leave this out", schema.DefaultRates,
				what))
	}
}

// operation checks an operation on a shared runtime, or on an instance.
func (u *unitCheck) operation(doc *load.Document, d *schema.MemberOperation) {
	key, at, code, what := schema.InstanceKey(d.Key.Tenant, d.Key.Project, d.Spec.Instance), "spec.instance", "ref.missing-instance",
		"instance"
	if d.Key.Parent != "" {
		key, at, code, what = schema.Key{Kind: schema.KindSharedRuntime, Tenant: d.Key.Tenant, Name: d.Key.Parent}, "",
			"ref.missing-shared-runtime", "shared runtime"
	}
	target := u.need(doc, at, code, key, fmt.Sprintf("there is no %s %s", what, key.Name))
	if target == nil {
		return
	}
	if i, ok := target.Decl.(*schema.Instance); ok && i.Spec.SharedRuntime != "" &&
		(d.Spec.Operation == schema.OpHold || d.Spec.Operation == schema.OpRelease) {
		u.refuse(doc, "spec.operation", "ref.missing-member",
			fmt.Sprintf("%s has nothing of its own to hold: the shared runtime %s has", key.Name, i.Spec.SharedRuntime), target.File.Path)
		return
	}
	if d.Spec.Member == "" {
		return
	}
	var app, version string
	var roles map[string]schema.InstanceRole
	switch t := target.Decl.(type) {
	case *schema.SharedRuntime:
		app, version, roles = t.Spec.App, t.Spec.Version, t.Spec.Roles
	case *schema.Instance:
		app, version, roles = t.Spec.App, t.Spec.Version, t.Spec.Roles
		if t.Spec.SharedRuntime != "" {
			u.refuse(doc, "spec.member", "ref.missing-member",
				fmt.Sprintf("%s has no members of its own: the shared runtime %s has", key.Name, t.Spec.SharedRuntime), target.File.Path)
			return
		}
	}
	versions, _, _ := u.apps.versions(app)
	u.member(doc, d, key, target, roles, versions[version].Decl.(*schema.AppVersion).Spec.Manifest.Roles)
}

// member checks the member of an operation on a unit.
func (u *unitCheck) member(
	doc *load.Document, d *schema.MemberOperation, key schema.Key, target *load.Document,
	roles map[string]schema.InstanceRole, manifest map[string]schema.ManifestRole,
) {
	name, number, _ := cutLast(d.Spec.Member, "-")
	m, ok := manifest[name]
	if !ok && len(manifest) > 0 {
		u.refuse(doc, "spec.member", "ref.missing-member",
			fmt.Sprintf("%s is no member of %s, as no role is called %s: its roles are %s, and its members have names such as %s-0",
				d.Spec.Member, key.Name, name, strings.Join(sortedKeys(manifest), ", "), sortedKeys(manifest)[len(manifest)-1]),
			target.File.Path)
		return
	}
	count := m.Min
	if role, ok := roles[name]; ok {
		count = role.Count
	}
	n, err := strconv.Atoi(number)
	switch removes := d.Spec.Operation == schema.OpRemove; {
	case removes && err == nil && n < count && !m.ControlPlane:
		u.refuse(doc, "spec.member", "conflict.member-count",
			fmt.Sprintf("%s declares %s of the role %s, numbered from 0, so %s would come back: lower spec.roles.%s.count to %d at most "+
				"in %s, or use replace",
				key.Name, members(count), name, d.Spec.Member, name, n, target.File.Path), target.File.Path)
	case removes && err == nil && !m.ControlPlane:
	case err != nil || n >= count:
		u.refuse(doc, "spec.member", "ref.missing-member",
			fmt.Sprintf("%s has %s of the role %s (%s), numbered from 0", key.Name, members(count), name, target.File.Path),
			target.File.Path)
	case m.ControlPlane && d.Spec.Operation != schema.OpRestart:
		u.refuse(doc, "spec.member", "ref.missing-member",
			fmt.Sprintf("%s is the control plane of %s: only restart is done on it", d.Spec.Member, key.Name), target.File.Path)
	}
}

func members(n int) string {
	if n == 1 {
		return "1 member"
	}
	return fmt.Sprintf("%d members", n)
}

// cutLast is strings.Cut at the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// roles checks the requested roles of doc against the manifest. An unlisted role has its
// minimum number of members.
func (u *unitCheck) roles(doc *load.Document, roles map[string]schema.InstanceRole, v *schema.AppVersion) {
	manifest, of := v.Spec.Manifest.Roles, v.Key.Parent+"/"+v.Key.Name
	for _, name := range sortedKeys(roles) {
		role, path := roles[name], "spec.roles."+name
		if n := role.MaxUnavailable.Number; n > role.Count && role.Count > 0 {
			u.warn(doc, path+".max_unavailable", CodeNoEffect,
				fmt.Sprintf("is %d, and the role has %d: a change may drain all of them at once; write fewer than count to keep some", n,
					role.Count))
		}
		m, ok := manifest[name]
		if !ok {
			message := fmt.Sprintf("%s has no such role, there is %s", of, strings.Join(sortedKeys(manifest), ", "))
			u.refuse(doc, path, "ref.unknown-role", message+load.DidYouMean(name, sortedKeys(manifest)), v.File)
			continue
		}
		if m.ControlPlane && role.OnNodeLost.ReplaceAfter() > 0 {
			u.warn(doc, path+".on_node_lost", CodeNoEffect, "is about a control plane, which never moves by itself: take it away")
		}
		if m.ControlPlane && role.MissingGraceSeconds != nil {
			u.warn(doc, path+".missing_grace_seconds", CodeNoEffect, "is about a control plane, which always waits for a person: take it away")
		}
		if role.Count < m.Min || role.Count > m.Max {
			u.refuse(doc, path+".count", "ref.role-count",
				fmt.Sprintf("got %d, the manifest of %s allows %s", role.Count, of, span(m.Min, m.Max)), v.File)
		}
		u.stocked(doc, path+".sku", sku, role.SKU)
		if role.GPUs == nil {
			continue
		}
		u.stocked(doc, path+".gpus.type", gpuType, role.GPUs.Type)
		if !m.GPUs {
			u.refuse(doc, path+".gpus", "ref.role-gpus", "members of this role have no GPUs in "+of, v.File)
		}
	}
}

func span(low, high int) string {
	if low == high {
		return fmt.Sprintf("exactly %d", low)
	}
	return fmt.Sprintf("%d to %d", low, high)
}

// config checks the config of doc against its runtime's definition.
func (u *unitCheck) config(ctx context.Context, doc *load.Document, v *schema.AppVersion) error {
	backend := v.Spec.RuntimeBackend
	if _, ok := u.loader.backends[backend]; !ok {
		u.refuse(doc, "spec.version", "ref.no-runtime", u.noRuntime(backend), v.File)
		return nil
	}
	of, err := u.loader.reader.Config(ctx, doc, v)
	if err != nil {
		return err
	}
	for _, n := range of.Names {
		switch n.Sort {
		case schema.UserName, schema.ProjectName, schema.ReservedName: // known once policy has said which projects the unit serves
			continue
		case nodeName:
			u.nodes = append(u.nodes, n.Name)
		}
		u.stocked(doc, n.Path, n.Sort, n.Name)
	}
	u.findings = append(u.findings, of.Findings...)
	if len(of.Findings) > 0 {
		u.without(doc, v.File)
	}
	return nil
}

// noRuntime says that a runtime is not built in, and which are.
func (u *unitCheck) noRuntime(backend string) string {
	return fmt.Sprintf("no runtime for %s is built in, there is %s", backend, strings.Join(sortedKeys(u.loader.backends), ", "))
}

// onJobs warns of a rule for jobs that says nothing.
func (u *unitCheck) onJobs(doc *load.Document, at string, on *schema.OnJobs) {
	if on != nil && !on.Wait && on.CancelAfterSeconds == 0 {
		u.warn(doc, at, CodeNoEffect, "sets neither field, so Berth waits for jobs without limit: set cancel_after_seconds, or remove "+
			"on_jobs")
	}
}

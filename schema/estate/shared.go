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

// entitled reports whether a project of this tenant may use an app.
func (c *check) entitled(doc *load.Document, at, tenant, project, app string) bool {
	key := schema.Key{Kind: schema.KindEntitlement, Tenant: tenant, Project: project, Name: app}
	path, _ := key.Path()
	switch e := c.tree.at(path); {
	case e == nil:
		c.refuse(doc, at, "ref.missing-entitlement", fmt.Sprintf("the project is not entitled to %s (no %s)", app, path), path)
	case c.bad(e):
		c.without(doc, path)
	default:
		return true
	}
	return false
}

// project reports whether a project of this tenant, given by its id, exists and may use
// an app.
func (c *check) project(doc *load.Document, at, id, app string) bool {
	tenant, project, _ := strings.Cut(id, ".")
	key := schema.Key{Kind: schema.KindProject, Tenant: tenant, Name: project}
	return c.need(doc, at, "ref.missing-project", key, "there is no project "+id) != nil && c.entitled(doc, at, tenant, project, app)
}

// operator checks the service account that operates a resource: one of its own project
// or, for a shared runtime, of its tenant.
func (c *check) operator(doc *load.Document, at string, key schema.Key) {
	if key.Name == "" {
		return
	}
	if path, _ := key.Path(); c.tree.at(path) != nil {
		c.need(doc, at, "ref.missing-service-account", key, "")
		return
	}
	missing := "there is no service account " + key.Name
	for _, other := range c.tree.docs {
		if k := other.Key; k.Kind == key.Kind && k.Name == key.Name && k != key {
			owner := "the tenant's"
			if k.Project != "" {
				owner = "the project " + k.Project + "'s"
			}
			if key.Project != "" {
				missing += fmt.Sprintf(" of this project: that of %s is %s, and an instance is operated by its own project's only", other.File.Path, owner)
			} else {
				missing += fmt.Sprintf(" of the tenant: that of %s is %s, and a project's is never reused", other.File.Path, owner)
			}
			break
		}
	}
	c.need(doc, at, "ref.missing-service-account", key, missing)
}

// sharedRuntime checks a shared runtime, a tenant's or the platform's.
func (c *check) sharedRuntime(ctx context.Context, doc *load.Document, d *schema.SharedRuntime) error {
	if !c.app(doc, "spec.app", d.Spec.App) {
		return nil
	}
	v := c.version(doc, d.Spec.App, d.Spec.Version)
	if v == nil {
		return nil
	}
	c.roles(doc, d.Spec.Roles, v)
	if p := d.Spec.PlacementIntent; p != nil {
		c.stockedAll(doc, load.Items("spec.placement_intent.regions"), region, p.Regions)
		c.stockedAll(doc, load.Items("spec.placement_intent.skus"), sku, p.SKUs)
		c.stocked(doc, "spec.placement_intent.spread_by", topology, p.SpreadBy)
	}
	if err := c.config(ctx, doc, v); err != nil {
		return err
	}
	c.rates(doc, d.Spec.BillingPolicyRef, d.Key.Tenant, "its shared cost")
	c.onJobs(doc, "spec.on_jobs", d.Spec.OnJobs)
	card, _ := schema.Key{Kind: schema.KindRateCard, Name: d.Spec.BillingPolicyRef}.Path()
	if there := c.catalog.byFile[card]; there != nil {
		if of, ok := there.Decl.(*schema.RateCard); ok && of.Spec.Shared == nil {
			c.warn(doc, "spec.billing_policy_ref", CodeNoEffect, fmt.Sprintf("the rate card %s has no shared_cost (%s), so it bills nothing here: add that, or leave this out", d.Spec.BillingPolicyRef, card))
		}
	}
	for i, id := range d.Spec.AttachedProjectIDs {
		at := load.Item("spec.attached_project_ids", i)
		if d.Key.Tenant == "" || c.project(doc, at, id, d.Spec.App) {
			c.termed(doc, at, id)
		}
	}
	if d.Key.Tenant == "" {
		return nil
	}
	c.operator(doc, "spec.operator_identity_ref", schema.Key{Kind: schema.KindServiceAccount, Tenant: d.Key.Tenant, Name: d.Spec.OperatorIdentityRef})
	c.operates(doc, d)
	if other := c.environments[d.Spec.Environment]; other != nil {
		c.clash(end{doc, "spec.environment"}, end{other, "spec.environment"}, "conflict.environment", func(of end) string {
			return fmt.Sprintf("the shared runtime %s is in the environment %s, too (%s): a tenant has one in each",
				of.doc.Key.Name, d.Spec.Environment, of.place())
		})
	} else if !c.bad(doc) {
		c.environments[d.Spec.Environment] = doc
	}
	return nil
}

// operates refuses an operator of a shared runtime that may not operate it.
func (c *check) operates(doc *load.Document, d *schema.SharedRuntime) {
	path, _ := schema.Key{Kind: schema.KindServiceAccount, Tenant: d.Key.Tenant, Name: d.Spec.OperatorIdentityRef}.Path()
	other := c.tree.at(path)
	if other == nil {
		return
	}
	account, ok := other.Decl.(*schema.ServiceAccount)
	if !ok || slices.Contains(account.Spec.Scopes, operatorScope) {
		return
	}
	there := account.At("spec.scopes")
	c.refuse(doc, "spec.operator_identity_ref", "ref.operator-scope",
		fmt.Sprintf("the service account %s lacks %s (%s:%d): add it to its scopes", account.Key.Name, operatorScope, there.File, there.Line), there.File)
}

// operatorScope is the permission of the operator of a shared runtime, as in package authority.
const operatorScope = "shared_runtimes.member.operate"

// termed warns about a project that is attached to a shared runtime without terms. An
// unreadable attachment may contain them.
func (c *check) termed(doc *load.Document, at, id string) {
	of := c.attached[doc.Key.Name]
	if len(of[id])+len(of[""]) > 0 {
		return
	}
	where := strings.TrimSuffix(doc.File.Path, "runtime.yaml") + "attachments/"
	c.warn(doc, at, "ref.missing-attachment", fmt.Sprintf("no document in %s states terms for %s: it has neither limits nor a status of its own, and offers no nodes", where, id))
}

// attachment checks an attachment. The project of a platform attachment is checked when
// every tenant is known.
func (c *check) attachment(doc *load.Document, d *schema.Attachment) {
	of := schema.Key{Kind: schema.KindSharedRuntime, Tenant: d.Key.Tenant, Name: d.Key.Parent}
	runtime := c.need(doc, "", "ref.missing-shared-runtime", of, fmt.Sprintf("there is no shared runtime %s to attach to", of.Name))
	if runtime == nil {
		return
	}
	c.terms(doc, d)
	tenant, _, _ := strings.Cut(d.Spec.ProjectID, ".")
	c.rates(doc, d.Spec.BillingPolicyRef, tenant, "the use by "+d.Spec.ProjectID)
	if d.Key.Tenant != "" && !c.project(doc, "spec.project_id", d.Spec.ProjectID, runtime.Decl.(*schema.SharedRuntime).Spec.App) {
		return
	}
	for _, other := range c.attached[d.Key.Parent][d.Spec.ProjectID] {
		if other == doc {
			return
		}
		if !c.bad(other) {
			c.clash(end{doc, "spec.project_id"}, end{other, "spec.project_id"}, "conflict.attachment", func(of end) string {
				return fmt.Sprintf("%s has terms on %s in %s, too: keep one", d.Spec.ProjectID, d.Key.Parent, of.place())
			})
			return
		}
	}
}

// terms warns about a limit or a share that another limit never lets a project reach.
func (c *check) terms(doc *load.Document, d *schema.Attachment) {
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
			c.warn(doc, t.path, CodeNoEffect, fmt.Sprintf("is %d, and %s of submission_policy is %d: the project never gets more than that", t.n, t.limit, t.mostOfAll))
		}
	}
}

// rates warns about a rate card that does not exist, or that does not price the use of a tenant. what is
// priced by the default one then.
func (c *check) rates(doc *load.Document, name, tenant, what string) {
	path, _ := schema.Key{Kind: schema.KindRateCard, Name: name}.Path()
	if name == "" {
		return
	}
	message := ""
	other := c.catalog.byFile[path]
	if other == nil {
		message = fmt.Sprintf("there is no rate card %s (%s)", name, path)
	} else if card, ok := other.Decl.(*schema.RateCard); ok && !card.Spec.PricesFor(tenant) {
		message = fmt.Sprintf("the rate card %s does not apply to %s (%s)", name, tenant, path)
	}
	if message != "" {
		c.warn(doc, "spec.billing_policy_ref", "ref.missing-rates", message+fmt.Sprintf(": the card %s prices %s; name a card that exists and applies, or leave this out", schema.DefaultRates, what))
	}
}

// operation checks an operation on a shared runtime, or on an instance.
func (c *check) operation(doc *load.Document, d *schema.MemberOperation) {
	key, at, code, what := schema.InstanceKey(d.Key.Tenant, d.Key.Project, d.Spec.Instance), "spec.instance", "ref.missing-instance", "instance"
	if d.Key.Parent != "" {
		key, at, code, what = schema.Key{Kind: schema.KindSharedRuntime, Tenant: d.Key.Tenant, Name: d.Key.Parent}, "", "ref.missing-shared-runtime", "shared runtime"
	}
	target := c.need(doc, at, code, key, fmt.Sprintf("there is no %s %s", what, key.Name))
	if target == nil || d.Spec.Member == "" {
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
			c.refuse(doc, "spec.member", "ref.missing-member", fmt.Sprintf("%s has no members of its own: the shared runtime %s has", key.Name, t.Spec.SharedRuntime), target.File.Path)
			return
		}
	}
	versions, _, _ := c.versions(app)
	c.member(doc, d, key, target, roles, versions[version].Decl.(*schema.AppVersion).Spec.Manifest.Roles)
}

// member checks the member of an operation on a unit.
func (c *check) member(doc *load.Document, d *schema.MemberOperation, key schema.Key, target *load.Document, roles map[string]schema.InstanceRole, manifest map[string]schema.ManifestRole) {
	name, number, _ := cutLast(d.Spec.Member, "-")
	m, ok := manifest[name]
	if !ok && len(manifest) > 0 {
		c.refuse(doc, "spec.member", "ref.missing-member", fmt.Sprintf("%s is no member of %s, as no role is called %s: its roles are %s, and its members have names such as %s-0", d.Spec.Member, key.Name, name, strings.Join(sortedKeys(manifest), ", "), sortedKeys(manifest)[len(manifest)-1]), target.File.Path)
		return
	}
	count := m.Min
	if role, ok := roles[name]; ok {
		count = role.Count
	}
	n, err := strconv.Atoi(number)
	switch removes := d.Spec.Operation == schema.OpRemove; {
	case removes && err == nil && n < count && !m.ControlPlane:
		c.refuse(doc, "spec.member", "conflict.member-count", fmt.Sprintf("%s declares %s of the role %s, numbered from 0, so %s would come back: lower spec.roles.%s.count to %d at most in %s, or use replace",
			key.Name, members(count), name, d.Spec.Member, name, n, target.File.Path), target.File.Path)
	case removes && err == nil && !m.ControlPlane:
	case err != nil || n >= count:
		c.refuse(doc, "spec.member", "ref.missing-member", fmt.Sprintf("%s has %s of the role %s (%s), numbered from 0", key.Name, members(count), name, target.File.Path), target.File.Path)
	case m.ControlPlane && d.Spec.Operation != schema.OpRestart:
		c.refuse(doc, "spec.member", "ref.missing-member", fmt.Sprintf("%s is the control plane of %s: only restart is done on it", d.Spec.Member, key.Name), target.File.Path)
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

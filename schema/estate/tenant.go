package estate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/authority"
	"berth/schema/load"
)

// checkTenant judges a tenant's documents against each other and against a catalog. The
// error is ctx's.
func checkTenant(ctx context.Context, l *Loader, t *tree, cat *catalog, refused []refusal, gone []string) (*verdict, error) {
	c := newTenantCheck(l, t, cat, refused)
	c.apps.gone = gone
	if err := c.documents(ctx, t.docs); err != nil {
		return nil, err
	}
	return c.verdict, c.drafts(ctx)
}

func newTenantCheck(l *Loader, t *tree, cat *catalog, refused []refusal) *tenantCheck {
	return &tenantCheck{
		check: newCheck(l, t, cat, refused), lost: map[string]bool{}, offers: map[string]*load.Document{},
		offered: map[string]int{}, lent: map[string]int{}, views: map[string]*load.Document{},
	}
}

// documents judges documents of the part, by path.
func (c *tenantCheck) documents(ctx context.Context, docs []*load.Document) error {
	for _, doc := range c.ranked(docs) {
		if c.belongs(doc) {
			if err := c.document(ctx, doc); err != nil {
				return err
			}
		}
	}
	return nil
}

type tenantCheck struct {
	*check
	home    string                    // project of the last document that belongs, by which the next ones mostly do
	lost    map[string]bool           // tenant.yaml or project.yaml reported missing
	offers  map[string]*load.Document // contributions, by node
	offered map[string]int            // nodes, by shared runtime and project
	lent    map[string]int            // GPUs of these nodes
	views   map[string]*load.Document // instances that accept terms, by shared runtime and project

	keyed map[string]*load.Document // first service account with a key, by the key's bytes; nil: not computed yet

	operated map[schema.Key][]operatedUnit // units by the service account that operates them; nil: not computed yet
}

// belongs reports whether doc's tenant and project exist and are valid. A missing one is
// reported once, at the first document that needs it.
func (c *tenantCheck) belongs(doc *load.Document) bool {
	if doc.Key.Project != "" && doc.Key.Project == c.home {
		return true
	}
	for _, k := range []schema.Key{
		{Kind: schema.KindTenant, Name: doc.Key.Tenant},
		{Kind: schema.KindProject, Tenant: doc.Key.Tenant, Name: doc.Key.Project},
	} {
		if k.Name == "" {
			continue
		}
		path, _ := k.Path()
		owner := c.tree.at(path)
		switch {
		case owner == nil && !c.lost[path]:
			c.lost[path] = true
			code := "ref.missing-tenant"
			if k.Kind == schema.KindProject {
				code = "ref.missing-project"
			}
			c.refuse(doc, "", code, fmt.Sprintf("there is no %s, which everything in this directory needs", path), path)
			return false
		case owner == nil || c.bad(owner):
			c.without(doc, path)
			return false
		}
	}
	c.home = doc.Key.Project
	return true
}

func (c *tenantCheck) document(ctx context.Context, doc *load.Document) error {
	switch d := doc.Decl.(type) {
	case *schema.Tenant:
		c.approvals(doc, d)
	case *schema.App:
		c.proposal(doc, d)
	case *schema.AppVersion:
		c.ownVersion(doc, d)
	case *schema.Policy:
		c.policy(doc, d)
		c.secondPerson(doc, d)
	case *schema.Entitlement:
		c.apps.exists(doc, "metadata.name", d.Key.Name)
		c.overlay(doc, "spec.policy_overrides", &d.Spec.PolicyOverrides)
	case *schema.Instance:
		return c.instance(ctx, doc, d)
	case *schema.SharedRuntime:
		return c.units.sharedRuntime(ctx, doc, d)
	case *schema.Attachment:
		c.units.attachment(doc, d)
	case *schema.Artifact:
		c.artifact(doc, d)
	case *schema.Contribution:
		c.contribution(doc, d)
	case *schema.MemberOperation:
		c.units.operation(doc, d)
	case *schema.RoleBinding:
		c.machines(doc, d)
		c.administered(doc, d)
		c.people(doc, d)
	case *schema.ServiceAccount:
		c.keys(doc, d)
		c.granted(doc, d)
		c.scopes(doc, d)
		c.endpoints(doc, "spec.allowed_endpoints", d.Spec.AllowedEndpoints, "spec.scopes", d.Spec.Scopes)
		c.beyondApps(doc, d)
	}
	return nil
}

// approvals warns about policies that require approval in a tenant's own repository,
// where a commit is authorised by its signature alone. It is not an error: a user with
// permission to write the policy can end that.
func (c *tenantCheck) approvals(tenant *load.Document, d *schema.Tenant) {
	if d.Spec.Repository == nil {
		return
	}
	const code, why = "conflict.approval",
		"but nobody can approve a commit in a repository of the tenant's own: nothing there can change but by the signature of an " +
			"administrator of berth.yaml, with the trailer `Break-Glass: reason`"
	path, _ := schema.Key{Kind: schema.KindPolicy, Tenant: d.Key.Name, Name: "policy"}.Path()
	if doc := c.tree.at(path); doc != nil {
		if p, ok := doc.Decl.(*schema.Policy); ok && p.Spec.RequireApproval {
			c.findings = append(c.findings, load.Found(doc, "spec.require_approval", schema.SeverityWarning, code,
				fmt.Sprintf("is asked for, %s; take it away, or take repository out of %s", why, tenant.File.Path)))
		}
	}
	if p := c.catalog.approval; p != nil {
		c.findings = append(c.findings, load.Found(tenant, "spec.repository", schema.SeverityWarning, code,
			fmt.Sprintf("%s (%s) wants approvals, %s; take require_approval away there, or repository here", p.Key, p.File.Path, why)))
	}
}

// secondPerson warns about a policy that asks for the approval of a second person where only one may write the
// documents of the tenant itself. In a repository of the tenant's own, approvals says so.
func (c *tenantCheck) secondPerson(doc *load.Document, d *schema.Policy) {
	path, _ := schema.Key{Kind: schema.KindRoleBinding, Tenant: d.Key.Tenant}.Path()
	tenantPath, _ := schema.Key{Kind: schema.KindTenant, Name: d.Key.Tenant}.Path()
	binding, tenant := c.tree.at(path), c.tree.at(tenantPath)
	if !d.Spec.RequireApproval || binding == nil || tenant == nil {
		return
	}
	b, ok := binding.Decl.(*schema.RoleBinding)
	if t, isTenant := tenant.Decl.(*schema.Tenant); !ok || b.Suspend || !isTenant || t.Spec.Repository != nil {
		return
	}
	may := map[string]bool{}
	for _, m := range b.Spec.Members {
		if m.Login != "" && authority.RoleHas(m.Role, authority.PolicyWrite) {
			may[strings.ToLower(m.Login)] = true
		}
	}
	if len(may) == 1 {
		only := sortedKeys(may)[0]
		c.warn(doc, "spec.require_approval", "conflict.approval",
			fmt.Sprintf("%s alone may write the tenant's own documents (%s), so nobody of the tenant can approve a change of them by %s: "+
				"name a second one there", only, path, only))
	}
}

// machines checks the service accounts in a binding. They must be at the binding's own
// place, because no other binding can give them a role.
func (c *tenantCheck) machines(doc *load.Document, d *schema.RoleBinding) {
	for i, m := range d.Spec.Members {
		if m.ServiceAccount == "" {
			continue
		}
		key := schema.Key{Kind: schema.KindServiceAccount, Tenant: d.Key.Tenant, Project: d.Key.Project, Name: m.ServiceAccount}
		c.need(doc, load.Item("spec.members", i)+".service_account", "ref.missing-service-account", key,
			"there is no service account "+m.ServiceAccount+" here")
	}
}

// keys ensures that a key belongs to one account of the tenant, because a project's
// account is never the tenant's operator too (requirement D3). The tenant's own account
// has priority, then the first project by name. Another tenant may use the same key:
// public keys are public.
func (c *tenantCheck) keys(doc *load.Document, d *schema.ServiceAccount) {
	keyed := c.accountsByKey()
	for i, k := range d.Spec.PublicKeys {
		if other := keyed[load.KeyBytes(k.Key)]; other != doc {
			c.clash(end{doc, load.Item("spec.public_keys", i) + ".key"}, end{other, "spec.public_keys"}, "conflict.key",
				func(of end) string {
					return fmt.Sprintf("is a key of %s, too (%s): a key is of one account, make another for this one", of.doc.Key,
						of.place())
				})
		}
	}
}

// accountsByKey returns the first service account with each key, by the key's bytes.
func (c *tenantCheck) accountsByKey() map[string]*load.Document {
	if c.keyed != nil {
		return c.keyed
	}
	c.keyed = map[string]*load.Document{}
	var accounts []*schema.ServiceAccount
	for _, doc := range c.tree.docs {
		if a, ok := doc.Decl.(*schema.ServiceAccount); ok && !c.bad(doc) {
			accounts = append(accounts, a)
		}
	}
	slices.SortFunc(accounts, func(a, b *schema.ServiceAccount) int { return a.Key.Compare(b.Key) })
	for _, a := range accounts {
		for _, k := range a.Spec.PublicKeys {
			if key := load.KeyBytes(k.Key); c.keyed[key] == nil {
				c.keyed[key] = c.tree.at(a.File)
			}
		}
	}
	return c.keyed
}

// granted warns about an account without its role in the binding beside it.
func (c *tenantCheck) granted(doc *load.Document, d *schema.ServiceAccount) {
	path, _ := schema.Key{Kind: schema.KindRoleBinding, Tenant: d.Key.Tenant, Project: d.Key.Project}.Path()
	if binding := c.tree.at(path); binding != nil {
		b, ok := binding.Decl.(*schema.RoleBinding)
		if !ok || slices.ContainsFunc(b.Spec.Members, func(m schema.RoleMember) bool { return m.ServiceAccount == d.Key.Name }) {
			return
		}
	}
	c.warn(doc, "metadata.name", "ref.missing-role",
		fmt.Sprintf("the account may do nothing, as nobody gives it its role: add a member with service_account: %s and role: "+
			"service_account to %s", d.Key.Name, path))
}

// administered warns about a tenant's role binding that names no administrator.
func (c *tenantCheck) administered(doc *load.Document, d *schema.RoleBinding) {
	if d.Key.Project == "" && !authority.Administers(d) {
		c.warn(doc, "spec.members", codeNoAdministrator,
			fmt.Sprintf("nobody here has the role %s: only administrators of the platform can give roles in this tenant",
				strings.Join(authority.AdministratorRoles(d.Key.Tenant), " or ")))
	}
}

func (c *tenantCheck) instance(ctx context.Context, doc *load.Document, d *schema.Instance) error {
	c.units.operator(doc, "spec.operator_service_account",
		schema.Key{Kind: schema.KindServiceAccount, Tenant: d.Key.Tenant, Project: d.Key.Project, Name: d.Spec.OperatorServiceAccount})
	if !c.apps.exists(doc, "spec.app", d.Spec.App) {
		return nil
	}
	version := c.apps.version(doc, d.Spec.App, d.Spec.Version)
	if version == nil {
		return nil
	}
	c.units.entitled(doc, "spec.app", d.Key.Tenant, d.Key.Project, d.Spec.App)
	c.stockedAll(doc, load.Items("spec.regions"), region, d.Spec.Regions)
	c.units.roles(doc, d.Spec.Roles, version)
	if d.Spec.SharedRuntime != "" {
		c.carried(doc, d)
		for _, f := range []struct {
			path string
			set  bool
		}{{"spec.on_jobs", d.Spec.OnJobs != nil}, {"spec.regions", len(d.Spec.Regions) > 0}} {
			if f.set {
				c.warn(doc, f.path, CodeNoEffect, "has no effect with shared_runtime: the shared runtime and its Attachment set it")
			}
		}
	} else {
		c.units.onJobs(doc, "spec.on_jobs", d.Spec.OnJobs)
	}
	return c.units.config(ctx, doc, version)
}

// runtime returns the shared runtime that doc refers to, of its tenant or of the
// platform, and its attachments. A missing one is only a warning: what a project accepts and offers
// must not keep the owner from ending the attachment, or the runtime.
func (c *tenantCheck) runtime(doc *load.Document, scope, name string) (*load.Document, attachments) {
	key := schema.Key{Kind: schema.KindSharedRuntime, Name: name}
	ofPlatform, _ := key.Path()
	need, docs, all, owner := c.needOfPlatform, c.catalog.byFile, c.catalog.attached, "platform"
	if scope != "platform" {
		key.Tenant = doc.Key.Tenant
		need, docs, all, owner = c.need, c.tree.byFile, c.units.attached, "tenant"
	}
	path, _ := key.Path()
	missing := fmt.Sprintf("there is no shared runtime %s of the %s", name, owner)
	if docs[path] == nil {
		advice := "it refers to nothing until there is one"
		if c.catalog.byFile[ofPlatform] != nil {
			advice = fmt.Sprintf("the platform has one (%s): write control_plane_scope: platform to use it", ofPlatform)
		}
		c.warn(doc, "spec.shared_runtime", "ref.missing-shared-runtime", fmt.Sprintf("%s (%s): %s", missing, path, advice))
		return nil, nil
	}
	return need(doc, "spec.shared_runtime", "ref.missing-shared-runtime", key, missing), all
}

// terms returns the attachment of doc's project to a runtime. It is nil, true if the
// project is attached without terms, and nil, false if it is not attached or its attachment is invalid.
func (c *tenantCheck) terms(doc, runtime *load.Document, all attachments) (*load.Document, bool) {
	id, of := doc.Key.ProjectID(), all[runtime.Key.Name]
	bad := func(a *load.Document) bool {
		if a.Key.Tenant == "" {
			return c.catalog.bad(a)
		}
		return c.bad(a)
	}
	for _, a := range of[id] {
		if !bad(a) {
			c.uses[doc.File.Path] = append(c.uses[doc.File.Path], a.File.Path)
			return a, true
		}
	}
	if slices.Contains(runtime.Decl.(*schema.SharedRuntime).Spec.AttachedProjectIDs, id) {
		return nil, true
	}
	if broken := slices.Concat(of[id], of[""]); len(broken) > 0 {
		for _, a := range broken {
			c.without(doc, a.File.Path)
		}
		return nil, false
	}
	where := strings.TrimSuffix(runtime.File.Path, "runtime.yaml") + "attachments/"
	c.warn(doc, "spec.shared_runtime", "ref.not-attached",
		fmt.Sprintf("the project %s is not attached to %s: that takes a document in %s", id, runtime.Key.Name, where))
	return nil, false
}

// carried checks an instance on a shared runtime.
func (c *tenantCheck) carried(doc *load.Document, d *schema.Instance) {
	runtime, all := c.runtime(doc, d.Spec.ControlPlaneScope, d.Spec.SharedRuntime)
	if runtime == nil {
		return
	}
	if r := runtime.Decl.(*schema.SharedRuntime); r.Spec.App != d.Spec.App {
		there := r.At("spec.app")
		c.refuse(doc, "spec.shared_runtime", "ref.other-app",
			fmt.Sprintf("%s runs %s, not %s (%s:%d)", r.Key.Name, r.Spec.App, d.Spec.App, there.File, there.Line), there.File)
		return
	}
	if _, ok := c.terms(doc, runtime, all); !ok {
		return
	}
	key := runtime.File.Path + " " + d.Key.ProjectID()
	if other := c.views[key]; other != nil {
		c.clash(end{doc, "spec.shared_runtime"}, end{other, "spec.shared_runtime"}, "conflict.attachment", func(of end) string {
			return fmt.Sprintf("%s names %s, too (%s): a project accepts the terms with one Instance", of.doc.Key.Name,
				d.Spec.SharedRuntime, of.place())
		})
		return
	}
	c.views[key] = doc
}

// contribution checks that the project may offer the nodes, and that the attachment
// accepts them.
func (c *tenantCheck) contribution(doc *load.Document, d *schema.Contribution) {
	id := d.Key.ProjectID()
	for i, name := range d.Spec.Nodes {
		c.reserved(doc, load.Item("spec.nodes", i), name, id)
	}
	runtime, all := c.runtime(doc, d.Spec.ControlPlaneScope, d.Spec.SharedRuntime)
	if runtime == nil {
		return
	}
	attached, ok := c.terms(doc, runtime, all)
	if !ok {
		return
	}
	if attached == nil {
		c.refuse(doc, "spec.shared_runtime", "ref.contribution-denied",
			fmt.Sprintf("the project is attached to %s without terms (%s), which takes no nodes: an Attachment that allows it would",
				d.Spec.SharedRuntime, runtime.File.Path), runtime.File.Path)
		return
	}
	terms := attached.Decl.(*schema.Attachment)
	there := terms.At("spec.contribution_policy")
	if !terms.Spec.ContributionPolicy.Allow {
		c.refuse(doc, "spec.shared_runtime", "ref.contribution-denied",
			fmt.Sprintf("the attachment to %s takes no nodes (%s:%d)", d.Spec.SharedRuntime, there.File, there.Line), there.File)
		return
	}
	if ends := terms.Spec.ContributionPolicy.Until; ends != "" && d.Spec.Until > ends {
		c.warn(doc, "spec.until", "ref.later-day",
			fmt.Sprintf("is %s, and the terms of the attachment end on %s (%s): the nodes return on the earlier day", d.Spec.Until, ends,
				terms.At("spec.contribution_policy.until").Place()))
	}
	c.lentRole(doc, d, runtime.Decl.(*schema.SharedRuntime))
	key := runtime.File.Path + " " + id
	c.offered[key] += len(d.Spec.Nodes)
	c.lentGPUs(doc, d, key, terms)
	if most := terms.Spec.ContributionPolicy.MaxNodes; most > 0 && c.offered[key] > most {
		c.refuse(doc, "spec.nodes", "ref.contribution-denied",
			fmt.Sprintf("the project offers %d nodes to %s, which takes at most %d (%s:%d)", c.offered[key], d.Spec.SharedRuntime, most,
				there.File, there.Line), there.File)
	}
}

// lentRole checks the role of lent nodes, which must not be that of a control plane. A document may omit it
// where the app has only one other role.
func (c *tenantCheck) lentRole(doc *load.Document, d *schema.Contribution, r *schema.SharedRuntime) {
	versions := c.catalog.versions[r.Spec.App]
	if r.Key.Tenant != "" {
		versions, _, _ = c.apps.versions(r.Spec.App)
	}
	version := versions[r.Spec.Version]
	if version == nil {
		return
	}
	var workers []string
	manifest := version.Decl.(*schema.AppVersion).Spec.Manifest.Roles
	for _, name := range sortedKeys(manifest) {
		if !manifest[name].ControlPlane {
			workers = append(workers, name)
		}
	}
	switch list := strings.Join(workers, ", "); {
	case d.Spec.Role == "" && len(workers) != 1:
		c.refuse(doc, "spec.role", "ref.unknown-role", fmt.Sprintf("is missing: name one of %s, a role of %s", list, r.Key.Name), r.File)
	case d.Spec.Role != "" && !slices.Contains(workers, d.Spec.Role):
		c.refuse(doc, "spec.role", "ref.unknown-role", fmt.Sprintf("%s has no such role for a lent node, there is %s", r.Key.Name, list),
			r.File)
	}
}

// lentGPUs checks the GPUs of all nodes that a project lends to a runtime.
func (c *tenantCheck) lentGPUs(doc *load.Document, d *schema.Contribution, key string, terms *schema.Attachment) {
	for _, name := range d.Spec.Nodes {
		path, _ := schema.Key{Kind: schema.KindNode, Name: name}.Path()
		if node := c.catalog.byFile[path]; node != nil && !c.catalog.bad(node) {
			for _, g := range node.Decl.(*schema.Node).Spec.Capacity.GPUs {
				c.lent[key] += g.Count
			}
		}
	}
	if most := terms.Spec.ContributionPolicy.MaxGPUs; most > 0 && c.lent[key] > most {
		there := terms.At("spec.contribution_policy.max_gpus")
		c.refuse(doc, "spec.nodes", "ref.contribution-denied",
			fmt.Sprintf("the project lends %d GPUs to %s, which takes at most %d (%s:%d)", c.lent[key], d.Spec.SharedRuntime, most,
				there.File, there.Line), there.File)
	}
}

// reserved checks that a node is the project's own, and offered once. It knows only the
// nodes reserved for the tenant, because a tenant must not learn about others.
func (c *tenantCheck) reserved(doc *load.Document, at, name, id string) {
	path, _ := schema.Key{Kind: schema.KindNode, Name: name}.Path()
	node := c.catalog.byFile[path]
	var n *schema.Node
	if node != nil {
		n, _ = node.Decl.(*schema.Node)
	}
	owner := ""
	if node != nil && n == nil {
		c.without(doc, path)
		return
	}
	if n != nil {
		if tenant, _, _ := strings.Cut(n.Spec.Reserved, "."); tenant == doc.Key.Tenant {
			owner = n.Spec.Reserved
		}
	}
	switch {
	case owner == "":
		c.refuse(doc, at, "ref.node-not-reserved", fmt.Sprintf("no node %s is reserved for %s (%s): %s", name, id, path, c.reservedFor(id)),
			path)
	case owner != id:
		c.refuse(doc, at, "ref.node-not-reserved",
			fmt.Sprintf("the node %s is reserved for %s, not for %s (%s:%d)", name, owner, id, path, n.At("spec.reserved_for").Line), path)
	case c.catalog.bad(node):
		c.without(doc, path)
	case c.offers[name] != nil:
		c.clash(end{doc, at}, end{c.offers[name], "spec.nodes"}, "conflict.contribution", func(of end) string {
			return fmt.Sprintf("the node %s is offered by %s, too", name, of.doc.File.Path)
		})
	default:
		c.offers[name] = doc
	}
}

// reservedFor says which nodes are reserved for a project.
func (c *tenantCheck) reservedFor(id string) string {
	var names []string
	if len(c.findings) > load.MaxFindings { // further findings are cut, and the search is expensive
		return "its nodes have reserved_for with its name"
	}
	for _, doc := range c.catalog.byFile {
		if n, ok := doc.Decl.(*schema.Node); ok && n.Spec.Reserved == id {
			names = append(names, n.Key.Name)
		}
	}
	slices.Sort(names)
	switch most := 5; {
	case len(names) == 0:
		return "it has no node of its own"
	case len(names) > most:
		return fmt.Sprintf("its nodes are %s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return "its nodes are " + strings.Join(names, ", ")
}

// artifact checks an artifact of a project. A source of the tenant has priority over one
// of the platform with the same name.
func (c *tenantCheck) artifact(doc *load.Document, d *schema.Artifact) {
	if c.apps.exists(doc, "spec.app", d.Spec.App) {
		path, _ := schema.Key{Kind: schema.KindEntitlement, Tenant: d.Key.Tenant, Project: d.Key.Project, Name: d.Spec.App}.Path()
		if c.tree.at(path) == nil {
			c.warn(doc, "spec.app", "ref.missing-entitlement",
				fmt.Sprintf("the project is not entitled to %s (no %s), so no instance of it can use this", d.Spec.App, path))
		}
	}
	c.source(doc, "spec.source", d.Spec.Source)
	if host, _, path := strings.Cut(d.Spec.Reference, "/"); path && strings.Contains(host, ".") {
		c.warn(doc, "spec.reference", CodeNoEffect,
			fmt.Sprintf("begins with a host, %s: the source has the host, so write what follows it", host))
	}
	c.sameBytes(doc, d)
}

// sameBytes warns of two artifacts in use with one reference.
func (c *tenantCheck) sameBytes(doc *load.Document, d *schema.Artifact) {
	if d.Spec.Status == schema.ArtifactRetired || d.Spec.Status == schema.ArtifactDeprecated {
		return
	}
	about := "reference " + d.Key.ProjectID() + " " + d.Spec.Source + " " + d.Spec.Reference
	c.agree(c.known.bytes, about, statement{end{doc, "spec.reference"}, d.Key.Name}, "conflict.artifact", func(of statement) string {
		return of.doc.File.Path + " has the same reference, too: correct one"
	})
}

// source checks a source that a field of doc names.
func (c *tenantCheck) source(doc *load.Document, at, name string) {
	const code = "ref.missing-source"
	own := schema.Key{Kind: schema.KindArtifactSource, Tenant: doc.Key.Tenant, Name: name}
	path, _ := own.Path()
	if c.tree.at(path) != nil {
		c.need(doc, at, code, own, "")
		return
	}
	shared := schema.Key{Kind: schema.KindArtifactSource, Name: name}
	there, _ := shared.Path()
	if c.catalog.byFile[there] != nil {
		c.needOfPlatform(doc, at, code, shared, "")
		return
	}
	names := slices.Concat(c.beside(c.tree.byFile, own), c.beside(c.catalog.byFile, shared))
	message := fmt.Sprintf("there is no artifact source %s, of the tenant (%s) or of the platform (%s)", name, path, there)
	c.refuse(doc, at, code, message+Meant(name, names), path, there)
}

// drafts checks the drafts of a tenant's invalid documents.
func (c *tenantCheck) drafts(ctx context.Context) error {
	return c.eachDraft(func(doc *load.Document) (*verdict, error) {
		if doc.Key.Kind == schema.KindServiceAccount {
			return nil, nil // its keys are compared only with those of valid accounts
		}
		scratch := newTenantCheck(c.loader, c.tree, c.catalog, nil)
		scratch.out, scratch.lost = c.out, c.lost
		scratch.apps.shadows, scratch.apps.gone = c.apps.shadows, c.apps.gone
		if !scratch.belongs(doc) {
			return scratch.verdict, nil
		}
		return scratch.verdict, scratch.document(ctx, doc)
	})
}

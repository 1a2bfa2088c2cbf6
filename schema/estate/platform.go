package estate

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/authority"
	"berth/schema/load"
)

// checkPlatform judges the platform's documents against each other, and makes the
// catalog from them. The error is ctx's.
func checkPlatform(ctx context.Context, l *Loader, t *tree, refused []refusal) (*verdict, error) {
	cat := newCatalog(t.docs, t.byFile)
	c := platformCheck{
		check: newCheck(l, t, cat, refused),
		hosts: map[string]end{}, addresses: map[string]end{}, regions: map[string]end{}, queues: map[string]end{},
	}
	cat.out = c.out
	for _, doc := range c.ranked(t.docs) {
		if err := c.document(ctx, doc); err != nil {
			return nil, err
		}
	}
	c.sites()
	c.unlikeOthers()
	c.nodeRoles()
	c.defaultRates()
	c.administered()
	if err := c.drafts(ctx); err != nil {
		return nil, err
	}
	cat.seal(t.docs)
	c.verdict.catalog = cat
	return c.verdict, nil
}

type platformCheck struct {
	*check
	hosts     map[string]end // nodes by name: tools for host names and records in databases fold case
	addresses map[string]end // nodes
	regions   map[string]end // sites
	queues    map[string]end // queue maps, by app and the people they apply to
}

func (c *platformCheck) document(ctx context.Context, doc *load.Document) error {
	switch d := doc.Decl.(type) {
	case *schema.App:
		c.page(doc, d)
		c.endpoints(doc, "spec.requires.endpoints", d.Spec.Requires.Endpoints, "spec.requires.permissions", d.Spec.Requires.Permissions)
	case *schema.AppVersion:
		c.appVersion(doc, d)
	case *schema.Policy:
		c.policy(doc, d)
	case *schema.RoleBinding:
		c.people(doc, d)
	case *schema.Node:
		address := fmt.Sprintf("%s port %d", canonicalHost(d.Spec.Address), d.Spec.SSHPort)
		c.one(c.addresses, address, end{doc, "spec.address"}, "conflict.node-address", func(of end) string {
			return fmt.Sprintf("%s is the address of the node %s, too (%s)", address, of.doc.Key.Name, of.place())
		})
		c.one(c.hosts, strings.ToLower(d.Key.Name), end{doc, "metadata.name"}, "conflict.node-name", func(of end) string {
			return fmt.Sprintf("differs only in case from the name of the node %s (%s): rename one", of.doc.Key.Name, of.place())
		})
	case *schema.Site:
		for i, region := range d.Spec.Regions {
			c.one(c.regions, region, end{doc, load.Item("spec.regions", i)}, "conflict.region", func(of end) string {
				return fmt.Sprintf("the region %s is in the site %s, too (%s)", region, of.doc.Key.Name, of.place())
			})
		}
	case *schema.QueueMap:
		c.queueMap(doc, d)
	case *schema.RateCard:
		c.replaces(doc, d)
		if s := d.Spec.Shared; s != nil && *s == (schema.SharedCost{Split: s.Split}) {
			c.warn(doc, "spec.shared_cost", CodeNoEffect,
				"has no price, so it costs nobody anything: add control_plane_day, idle_cpu_hour or idle_gpu_hour, or leave it out")
		}
		c.gpuPrices(doc, "spec", &d.Spec.Prices)
		for i := range d.Spec.By {
			c.gpuPrices(doc, load.Item("spec.by", i), &d.Spec.By[i].Prices)
		}
	case *schema.AppAdmission:
		built := sortedKeys(c.loader.backends)
		c.warnUnknown(doc, load.Items("spec.allowed_runtime_backends"), d.Spec.AllowedRuntimeBackends, unknown{
			code:  CodeNoEffect,
			known: func(name string) bool { return slices.Contains(built, name) },
			all:   func() []string { return built },
			says:  func(name string) string { return "no runtime " + name + " is built in" },
		})
		c.namesHosts(doc, "spec.artifact_source_allowlist", d.Spec.ArtifactSourceAllowlist)
	case *schema.HookRule:
		for i, app := range d.Spec.Apps {
			c.apps.exists(doc, load.Item("spec.apps", i), app)
		}
	case *schema.SharedRuntime:
		return c.units.sharedRuntime(ctx, doc, d)
	case *schema.Attachment:
		c.units.attachment(doc, d)
	case *schema.MemberOperation:
		c.units.operation(doc, d)
	}
	return nil
}

// one refuses a document that claims a name that another document has.
func (c *platformCheck) one(owners map[string]end, what string, at end, code string, says func(of end) string) {
	if other, taken := owners[what]; taken && other.doc != at.doc {
		c.clash(at, other, code, says)
		return
	}
	owners[what] = at
}

func (c *platformCheck) appVersion(doc *load.Document, d *schema.AppVersion) {
	c.catalogued(doc, d)
	for _, name := range sortedKeys(d.Spec.Manifest.Artifacts) {
		source := schema.Key{Kind: schema.KindArtifactSource, Name: d.Spec.Manifest.Artifacts[name].Source}
		c.need(doc, "spec.manifest.artifacts."+name+".source", "ref.missing-source", source,
			fmt.Sprintf("there is no artifact source %s of the platform", source.Name))
	}
}

// page warns about an app whose page nobody can read.
func (c *check) page(doc *load.Document, d *schema.App) {
	if page := d.Spec.Runbook; page != "" && !schema.IsPublished(page, c.tree.pages) {
		c.warn(doc, "spec.runbook", "ref.missing-page",
			fmt.Sprintf("%s is not a README.md below %s/: name one there, or an https link", page, c.tree.name))
	}
}

// catalogued checks the references of a version to its own catalogue.
func (c *check) catalogued(doc *load.Document, d *schema.AppVersion) {
	app := schema.Key{Kind: schema.KindApp, Tenant: d.Key.Tenant, Name: d.Key.Parent}
	c.need(doc, "metadata.name", "ref.missing-app", app, "there is no app "+app.Name)
	if release := d.Release(); release != nil && release.Step {
		c.warn(doc, "spec.version", "ref.upgrade-step",
			fmt.Sprintf("Berth does not run %s: an instance only passes through it in an upgrade between %s", d.Spec.Version,
				strings.Join(d.Releases.Run(), ", ")))
	}
	if _, ok := c.loader.backends[d.Spec.RuntimeBackend]; !ok {
		c.warn(doc, "spec.runtime_backend", "ref.no-runtime", "no instance can run this version: "+c.units.noRuntime(d.Spec.RuntimeBackend))
	}
	for _, name := range sortedKeys(d.Spec.Manifest.Artifacts) {
		a, path := d.Spec.Manifest.Artifacts[name], "spec.manifest.artifacts."+name+".digest"
		c.agree(c.known.bytes, "digest "+a.Digest, statement{end{doc, path}, a.Reference}, "conflict.artifact", func(of statement) string {
			return fmt.Sprintf("is also the digest of %s (%s): check that one of them was not copied by mistake", of.value, of.place())
		})
	}
	for i, from := range d.Spec.Manifest.UpgradeFrom {
		path, _ := schema.Key{Kind: schema.KindAppVersion, Tenant: d.Key.Tenant, Parent: d.Key.Parent, Name: from}.Path()
		if c.tree.at(path) == nil {
			c.findings = append(c.findings, load.Found(doc, load.Item("spec.manifest.upgrade_from", i), schema.SeverityWarning,
				"ref.missing-version", fmt.Sprintf("there is no version %s of %s (%s)", from, d.Key.Parent, path)))
		}
	}
}

// gpuPrices warns of prices of types of GPU that no node has.
func (c *platformCheck) gpuPrices(doc *load.Document, path string, p *schema.Prices) {
	for i, g := range p.GPUHours {
		c.stocked(doc, load.Item(path+".gpu_hours", i)+".type", gpuType, g.Type)
	}
}

// queueMap checks that at most one map applies to the same queues and people.
func (c *platformCheck) queueMap(doc *load.Document, d *schema.QueueMap) {
	if !c.apps.exists(doc, "spec.app", d.Spec.App) {
		return
	}
	if len(d.Spec.AppliesTo) == 0 {
		c.one(c.queues, d.Spec.App, end{doc, "spec.app"}, "conflict.queue-map", func(of end) string {
			return fmt.Sprintf("everybody's queues of %s are mapped by %s, too (%s)", d.Spec.App, of.doc.Key.Name, of.place())
		})
	}
	for i, owner := range d.Spec.AppliesTo {
		c.one(c.queues, d.Spec.App+" "+owner, end{doc, load.Item("spec.applies_to", i)}, "conflict.queue-map", func(of end) string {
			return fmt.Sprintf("the queues of %s are mapped for %s by %s, too (%s)", d.Spec.App, owner, of.doc.Key.Name, of.place())
		})
	}
}

// sites warns about nodes without a site, if there are sites.
func (c *platformCheck) sites() {
	unsure := slices.ContainsFunc(c.tree.docs, func(d *load.Document) bool { return d.Key.Kind == schema.KindSite && c.bad(d) })
	if len(c.regions) == 0 || unsure {
		return
	}
	for _, doc := range c.tree.docs {
		n, ok := doc.Decl.(*schema.Node)
		if !ok || c.bad(doc) {
			continue
		}
		if _, hasSite := c.regions[n.Spec.Region]; !hasSite {
			c.findings = append(c.findings, load.Found(doc, "spec.region", schema.SeverityWarning, "ref.missing-site",
				fmt.Sprintf("no site has the region %s%s", n.Spec.Region, Meant(n.Spec.Region, sortedKeys(c.regions)))))
		}
	}
}

// replaces warns about a rate card that replaces none, or not the one that attachments name.
func (c *platformCheck) replaces(doc *load.Document, d *schema.RateCard) {
	if d.Spec.Replaces == "" {
		return
	}
	path, _ := schema.Key{Kind: schema.KindRateCard, Name: d.Spec.Replaces}.Path()
	other := c.catalog.byFile[path]
	if other == nil {
		var names []string
		for _, doc := range c.tree.docs {
			if doc.Key.Kind == schema.KindRateCard && doc.Key.Name != d.Key.Name {
				names = append(names, doc.Key.Name)
			}
		}
		c.warn(doc, "spec.replaces", "ref.missing-rates",
			fmt.Sprintf("there is no rate card %s (%s)%s", d.Spec.Replaces, path, Meant(d.Spec.Replaces, names)))
		return
	}
	card, ok := other.Decl.(*schema.RateCard)
	switch {
	case !ok:
	case card.Spec.Replaces != "":
		c.warn(doc, "spec.replaces", CodeNoEffect,
			fmt.Sprintf("%s replaces %s itself, and replacements do not follow each other: write replaces: %s", d.Spec.Replaces,
				card.Spec.Replaces, card.Spec.Replaces))
	case card.Spec.Currency != d.Spec.Currency:
		c.warn(doc, "spec.currency", "conflict.currency",
			fmt.Sprintf("is %s, and the card that it replaces has %s (%s)", d.Spec.Currency, card.Spec.Currency, path))
	}
}

// defaultRates warns if there are rate cards and none is the default.
func (c *platformCheck) defaultRates() {
	var first *load.Document
	for _, doc := range c.tree.docs {
		if doc.Key.Kind != schema.KindRateCard {
			continue
		}
		if doc.Key.Name == schema.DefaultRates {
			return
		}
		if first == nil && doc.Valid() {
			first = doc
		}
	}
	if first != nil {
		c.warn(first, "metadata.name", "ref.no-default-rates",
			fmt.Sprintf("there is no rate card %s: use costs nothing unless the attachment or the shared runtime names a card in "+
				"billing_policy_ref", schema.DefaultRates))
	}
}

// codeNoAdministrator: nobody may give roles at the platform, or in a tenant.
const codeNoAdministrator = "ref.no-administrator"

// administered warns where the platform's role bindings name no administrator.
func (c *platformCheck) administered() {
	var first *load.Document
	for _, doc := range c.tree.docs {
		if doc.Key.Kind != schema.KindRoleBinding {
			continue
		}
		b, ok := doc.Decl.(*schema.RoleBinding)
		if !ok || authority.Administers(b) {
			return
		}
		if first == nil {
			first = doc
		}
	}
	if first != nil {
		c.warn(first, "spec.members", codeNoAdministrator,
			fmt.Sprintf("nobody has the role %s: only the administrators that berth.yaml names can give roles, and change nodes and "+
				"policies of the platform", authority.AdministratorRoles("")[0]))
	}
}

// canonicalHost returns the canonical form of an IP address or a host name.
func canonicalHost(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.String()
	}
	return strings.ToLower(host)
}

// drafts checks the drafts of the platform's invalid documents, of the kinds that
// refer to others.
func (c *platformCheck) drafts(ctx context.Context) error {
	kinds := []schema.Kind{schema.KindAppVersion, schema.KindHookRule, schema.KindSharedRuntime, schema.KindAttachment,
		schema.KindMemberOperation}
	return c.eachDraft(func(doc *load.Document) (*verdict, error) {
		if !slices.Contains(kinds, doc.Key.Kind) {
			return nil, nil
		}
		scratch := platformCheck{check: newCheck(c.loader, c.tree, c.catalog, nil)}
		scratch.out = c.out
		return scratch.verdict, scratch.document(ctx, doc)
	})
}

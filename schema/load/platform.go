package load

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/authority"
)

// checkPlatform judges the platform's documents among themselves, and makes
// the catalog of them. The error is ctx's.
func checkPlatform(ctx context.Context, l *Loader, p *part, refused []refusal) (*verdict, error) {
	cat := newCatalog(p)
	c := platformCheck{
		check:     newCheck(l, p, cat, refused),
		addresses: map[string]*document{}, regions: map[string]*document{}, queues: map[string]*document{},
	}
	cat.out = c.out
	for _, doc := range c.ranked(p.docs) {
		if err := c.document(ctx, doc); err != nil {
			return nil, err
		}
	}
	c.sites()
	c.administered()
	if err := c.drafts(ctx); err != nil {
		return nil, err
	}
	cat.seal(p)
	c.verdict.catalog = cat
	c.wants, c.lacking = nil, false // the nodes are its own: it meets no others
	return c.verdict, nil
}

type platformCheck struct {
	*check
	addresses map[string]*document // nodes
	regions   map[string]*document // sites
	queues    map[string]*document // queue maps, by app and whom they apply to
}

func (c *platformCheck) document(ctx context.Context, doc *document) error {
	switch d := doc.spec.(type) {
	case *schema.AppVersion:
		c.appVersion(doc, d)
	case *schema.Policy:
		c.noSuspension(doc)
		c.policy(doc, d)
	case *schema.Node:
		address := fmt.Sprintf("%s port %d", canonicalHost(d.Spec.Address), d.Spec.SSHPort)
		c.one(c.addresses, address, doc, "spec.address", "conflict.node-address", func(other *document, where string) string {
			return fmt.Sprintf("%s is the node %s's already (%s)", address, other.key.Name, where)
		})
	case *schema.Site:
		for i, region := range d.Spec.Regions {
			c.one(c.regions, region, doc, item("spec.regions", i), "conflict.region", func(other *document, where string) string {
				return fmt.Sprintf("the region %s is of the site %s already (%s)", region, other.key.Name, where)
			})
		}
	case *schema.QueueMap:
		c.queueMap(doc, d)
	case *schema.HookRule:
		for i, app := range d.Spec.Apps {
			c.app(doc, item("spec.apps", i), app)
		}
	case *schema.SharedRuntime:
		return c.sharedRuntime(ctx, doc, d)
	case *schema.Attachment:
		c.attachment(doc, d)
	case *schema.MemberOperation:
		c.operation(doc, d)
	}
	return nil
}

// one refuses a document that claims what another has.
func (c *platformCheck) one(owners map[string]*document, what string, doc *document, at, code string, message func(other *document, where string) string) {
	if other := owners[what]; other != nil && other != doc {
		there := other.header.At(at)
		c.refuse(doc, at, code, message(other, fmt.Sprintf("%s:%d", there.File, there.Line)), there.File)
		return
	}
	owners[what] = doc
}

func (c *platformCheck) appVersion(doc *document, d *schema.AppVersion) {
	app := schema.Key{Kind: schema.KindApp, Name: d.Key.Parent}
	c.need(doc, "metadata.name", "ref.missing-app", app, "there is no app "+app.Name)
	for i, from := range d.Spec.Manifest.UpgradeFrom {
		path, _ := schema.Key{Kind: schema.KindAppVersion, Parent: d.Key.Parent, Name: from}.Path()
		if c.part.at(path) == nil {
			c.findings = append(c.findings, found(doc, item("spec.manifest.upgrade_from", i), schema.SeverityWarning,
				"ref.missing-version", fmt.Sprintf("there is no version %s of %s (%s)", from, d.Key.Parent, path)))
		}
	}
	for _, name := range sortedNames(d.Spec.Manifest.Artifacts) {
		source := schema.Key{Kind: schema.KindArtifactSource, Name: d.Spec.Manifest.Artifacts[name].Source}
		c.need(doc, "spec.manifest.artifacts."+name+".source", "ref.missing-source", source, fmt.Sprintf("there is no artifact source %s of the platform", source.Name))
	}
}

// queueMap checks that of two maps it is always clear which holds.
func (c *platformCheck) queueMap(doc *document, d *schema.QueueMap) {
	if !c.app(doc, "spec.app", d.Spec.App) {
		return
	}
	if len(d.Spec.AppliesTo) == 0 {
		c.one(c.queues, d.Spec.App, doc, "spec.app", "conflict.queue-map", func(other *document, where string) string {
			return fmt.Sprintf("everybody's queues of %s are mapped by %s already (%s)", d.Spec.App, other.key.Name, where)
		})
	}
	for i, owner := range d.Spec.AppliesTo {
		c.one(c.queues, d.Spec.App+" "+owner, doc, item("spec.applies_to", i), "conflict.queue-map", func(other *document, where string) string {
			return fmt.Sprintf("the queues of %s are mapped for %s by %s already (%s)", d.Spec.App, owner, other.key.Name, where)
		})
	}
}

// sites warns about nodes of no site, where there are sites at all.
func (c *platformCheck) sites() {
	unsure := slices.ContainsFunc(c.part.docs, func(d *document) bool { return d.key.Kind == schema.KindSite && c.bad(d) })
	if len(c.regions) == 0 || unsure {
		return
	}
	for _, doc := range c.part.docs {
		n, ok := doc.spec.(*schema.Node)
		if ok && !c.bad(doc) && c.regions[n.Spec.Region] == nil {
			c.findings = append(c.findings, found(doc, "spec.region", schema.SeverityWarning, "ref.missing-site",
				fmt.Sprintf("no site has the region %s, there is %s", n.Spec.Region, strings.Join(sortedNames(c.regions), ", "))))
		}
	}
}

// codeNoAdministrator: nobody may give roles at the platform, or in a tenant.
const codeNoAdministrator = "ref.no-administrator"

// administered warns where the platform's role bindings name no administrator.
func (c *platformCheck) administered() {
	var first *document
	for _, doc := range c.part.docs {
		if doc.key.Kind != schema.KindRoleBinding {
			continue
		}
		b, ok := doc.spec.(*schema.RoleBinding)
		if !ok || authority.Administers(b) {
			return
		}
		if first == nil {
			first = doc
		}
	}
	if first != nil {
		c.warn(first, "spec.members", codeNoAdministrator, fmt.Sprintf("nobody has the role %s: only the administrators that berth.yaml names can give roles, and change nodes and policies of the platform", authority.AdministratorRoles("")[0]))
	}
}

// canonicalHost is the one way to write an IP address or a host name.
func canonicalHost(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.String()
	}
	return strings.ToLower(host)
}

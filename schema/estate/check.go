package estate

import (
	"cmp"
	"fmt"
	"slices"

	"berth/schema"
	"berth/schema/load"
)

// check judges the documents of one tree together and against the platform's catalog.
type check struct {
	*references
	loader *Loader
	apps   *appCheck
	units  *unitCheck
	known  statements
}

func newCheck(l *Loader, t *tree, cat *catalog, refused []refusal) *check {
	refs := &references{verdict: newVerdict(), tree: t, catalog: cat}
	apps := &appCheck{references: refs, shadows: map[string]bool{}}
	units := &unitCheck{references: refs, loader: l, apps: apps, environments: map[string]*load.Document{}, attached: attachments{}}
	for _, r := range refused {
		if r.finding.Code == schema.CodeAppShadowed {
			apps.shadows[r.doc.Key.Name] = true
		}
		refs.findings = append(refs.findings, r.finding)
		refs.without(r.doc, r.needs...)
	}
	for _, doc := range t.docs {
		if doc.Key.Kind == schema.KindAttachment {
			units.attached.add(doc)
		}
	}
	return &check{references: refs, loader: l, apps: apps, units: units, known: newStatements()}
}

// overlay warns about missing names in a layer of policy.
func (c *check) overlay(doc *load.Document, at string, o *schema.Overlay) {
	c.stockedAll(doc, load.Items(at+".allowed_regions"), region, o.AllowedRegions)
	c.stockedAll(doc, load.Items(at+".allowed_skus"), sku, o.AllowedSKUs)
	c.namesHosts(doc, at+".artifact_source_allowlist", o.ArtifactSourceAllowlist)
}

// namesHosts warns of the name of an artifact source in a list of hosts.
func (c *check) namesHosts(doc *load.Document, at string, list []string) {
	for i, host := range list {
		own, _ := schema.Key{Kind: schema.KindArtifactSource, Tenant: c.tree.tenant, Name: host}.Path()
		shared, _ := schema.Key{Kind: schema.KindArtifactSource, Name: host}.Path()
		if source := cmp.Or(c.tree.byFile[own], c.catalog.byFile[shared]); source != nil && !isHostOf(host, source) {
			c.warn(doc, load.Item(at, i), CodeNoEffect, sourceNotHost(host, source))
		}
	}
}

// isHostOf reports whether a source has a host, by which it may be named.
func isHostOf(host string, source *load.Document) bool {
	s, ok := source.Decl.(*schema.ArtifactSource)
	return !ok || s.Spec.Host == host
}

func sourceNotHost(name string, source *load.Document) string {
	return fmt.Sprintf("%s is the name of an artifact source (%s), and the list has hosts: write its spec.host", name, source.File.Path)
}

// policy warns about missing names in a policy. A denied app may come later, and a
// misspelt name denies no app.
func (c *check) policy(doc *load.Document, d *schema.Policy) {
	c.overlay(doc, "spec", &d.Spec.Overlay)
	c.warnUnknown(doc, load.Items("spec.hard_deny.apps"), d.Spec.HardDeny.Apps, unknown{
		code:  "ref.missing-app",
		known: func(name string) bool { return c.catalog.apps[name] != nil || c.apps.own(name) != nil },
		all:   c.apps.names,
		says: func(name string) string {
			path, _ := schema.Key{Kind: schema.KindApp, Name: name}.Path()
			return fmt.Sprintf("there is no app %s to deny (%s)", name, path)
		},
	})
	sitePath := func(name string) string {
		path, _ := schema.Key{Kind: schema.KindSite, Name: name}.Path()
		return path
	}
	c.warnUnknown(doc, load.Items("spec.allowed_sites"), d.Spec.AllowedSites, unknown{
		code:  "ref.missing-site",
		known: func(name string) bool { return c.catalog.byFile[sitePath(name)] != nil },
		all:   func() []string { return nil },
		says: func(name string) string {
			return fmt.Sprintf("there is no site %s to allow (%s)", name, sitePath(name))
		},
	})
	if d.Suspend { // suspension must not lift limits
		c.warn(doc, "suspend", CodeNoEffect, "lifts nothing: a policy holds while it is there; change its limits, or take the file away")
	}
}

// eachDraft adds the errors that check finds in drafts, for present fields without a
// problem of their own. They hold no further document, because the draft's document is
// already invalid.
func (c *check) eachDraft(check func(draft *load.Document) (*verdict, error)) error {
	if c.tree.valid {
		return nil
	}
	for _, doc := range c.tree.docs {
		if doc.Draft == nil {
			continue
		}
		v, err := check(doc.Draft)
		if err != nil {
			return err
		}
		if v == nil {
			continue
		}
		for _, f := range v.findings {
			there := doc.Draft.Has(f.Path)
			if f.Severity == schema.SeverityError && there &&
				!slices.ContainsFunc(doc.Findings, func(own schema.Diagnostic) bool { return load.Within(f.Path, own.Path) }) {
				c.findings = append(c.findings, f)
			}
		}
	}
	return nil
}

package load

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"berth/schema"
)

// catalog is what tenants may refer to: apps and their versions, invalid ones
// too, so that a reference to one is not called a reference to nothing.
type catalog struct {
	apps     map[string]*document
	versions map[string]map[string]*document
	bad      map[string]bool // files that cannot stand
	print    string          // equal prints, equal catalogs
}

func newCatalog(platform *part) *catalog {
	c := &catalog{apps: map[string]*document{}, versions: map[string]map[string]*document{}, bad: map[string]bool{}}
	if platform == nil {
		return c
	}
	v := platform.verdict("", func() *verdict { return checkPlatform(platform) })
	var print strings.Builder
	for _, doc := range platform.docs {
		switch doc.key.Kind {
		case schema.KindApp:
			c.apps[doc.key.Name] = doc
		case schema.KindAppVersion:
			if c.versions[doc.key.Parent] == nil {
				c.versions[doc.key.Parent] = map[string]*document{}
			}
			c.versions[doc.key.Parent][doc.key.Name] = doc
		default:
			continue
		}
		bad := !doc.valid() || v.out[doc.file.Path]
		c.bad[doc.file.Path] = bad
		fmt.Fprintf(&print, "%s %s %o %t\x00", doc.file.Path, doc.file.Blob, doc.file.Mode, bad)
	}
	c.print = print.String()
	return c
}

// checkPlatform judges the platform's documents among themselves.
func checkPlatform(p *part) *verdict {
	v := newVerdict()
	addresses := map[string]*document{}
	for _, doc := range p.docs {
		if !doc.valid() {
			continue
		}
		switch d := doc.spec.(type) {
		case *schema.AppVersion:
			path, _ := schema.Key{Kind: schema.KindApp, Name: d.Key.Parent}.Path()
			switch app := p.byFile[path]; {
			case app == nil:
				v.refuse(doc, "metadata.name", "ref.missing-app", fmt.Sprintf("there is no app %s (%s)", d.Key.Parent, path), path)
			case !app.valid():
				v.without(doc, path)
			}
			for i, from := range d.Spec.Manifest.UpgradeFrom {
				path, _ := schema.Key{Kind: schema.KindAppVersion, Parent: d.Key.Parent, Name: from}.Path()
				if p.byFile[path] == nil {
					v.findings = append(v.findings, found(doc, item("spec.manifest.upgrade_from", i), schema.SeverityWarning,
						"ref.missing-version", fmt.Sprintf("there is no version %s of %s (%s)", from, d.Key.Parent, path)))
				}
			}
		case *schema.Node:
			address := fmt.Sprintf("%s port %d", strings.ToLower(d.Spec.Address), d.Spec.SSHPort)
			if other := addresses[address]; other != nil {
				there := other.header.At("spec.address")
				v.refuse(doc, "spec.address", "conflict.node-address",
					fmt.Sprintf("%s is the node %s's already (%s:%d)", address, other.key.Name, there.File, there.Line), there.File)
				continue
			}
			addresses[address] = doc
		}
	}
	return v
}

// checkTenant judges a tenant's documents among themselves and against a
// catalog. The error is ctx's.
func checkTenant(ctx context.Context, l *Loader, p *part, cat *catalog) (*verdict, error) {
	c := tenantCheck{verdict: newVerdict(), loader: l, part: p, catalog: cat, lost: map[string]bool{}}
	for _, doc := range p.docs {
		if c.belongs(doc) {
			if err := c.document(ctx, doc); err != nil {
				return nil, err
			}
		}
	}
	return c.verdict, nil
}

type tenantCheck struct {
	*verdict
	loader  *Loader
	part    *part
	catalog *catalog
	lost    map[string]bool // tenant.yaml or project.yaml reported missing
}

// belongs says whether doc's tenant and project stand. One that is missing is
// told once, at the first document that misses it.
func (c *tenantCheck) belongs(doc *document) bool {
	if doc.key.IsZero() || !doc.valid() {
		return false
	}
	for _, k := range []schema.Key{
		{Kind: schema.KindTenant, Name: doc.key.Tenant},
		{Kind: schema.KindProject, Tenant: doc.key.Tenant, Name: doc.key.Project},
	} {
		if k.Name == "" {
			continue
		}
		path, _ := k.Path()
		owner := c.part.byFile[path]
		switch {
		case owner == nil && !c.lost[path]:
			c.lost[path] = true
			code := "ref.missing-tenant"
			if k.Kind == schema.KindProject {
				code = "ref.missing-project"
			}
			c.refuse(doc, "", code, fmt.Sprintf("there is no %s, which everything in this directory needs", path), path)
			return false
		case owner == nil || !owner.valid() || c.out[path]:
			c.without(doc, path)
			return false
		}
	}
	return true
}

func (c *tenantCheck) document(ctx context.Context, doc *document) error {
	switch d := doc.spec.(type) {
	case *schema.Entitlement:
		c.app(doc, "metadata.name", d.Key.Name)
	case *schema.Instance:
		return c.instance(ctx, doc, d)
	}
	return nil
}

// app says whether the app of this name stands.
func (c *tenantCheck) app(doc *document, at, name string) bool {
	path, _ := schema.Key{Kind: schema.KindApp, Name: name}.Path()
	switch app := c.catalog.apps[name]; {
	case app == nil:
		message := fmt.Sprintf("there is no app %s (%s)", name, path)
		if guess := nearest(name, sortedNames(c.catalog.apps)); guess != "" {
			message += fmt.Sprintf(": did you mean %q?", guess)
		}
		c.refuse(doc, at, "ref.missing-app", message, path)
		return false
	case c.catalog.bad[path]:
		c.without(doc, path)
		return false
	}
	return true
}

func (c *tenantCheck) instance(ctx context.Context, doc *document, d *schema.Instance) error {
	if !c.app(doc, "spec.app", d.Spec.App) {
		return nil
	}
	version := c.version(doc, d)
	if version == nil {
		return nil
	}
	c.entitled(doc, d)
	c.roles(doc, d, version)
	return c.config(ctx, doc, d, version)
}

func (c *tenantCheck) version(doc *document, d *schema.Instance) *schema.AppVersion {
	path, _ := schema.Key{Kind: schema.KindAppVersion, Parent: d.Spec.App, Name: d.Spec.Version}.Path()
	there := c.catalog.versions[d.Spec.App]
	v := there[d.Spec.Version]
	if v == nil {
		message := fmt.Sprintf("there is no version %s of %s (%s)", d.Spec.Version, d.Spec.App, path)
		if names := sortedNames(there); len(names) > 0 {
			message += ", there is " + strings.Join(names, ", ")
		}
		c.refuse(doc, "spec.version", "ref.missing-version", message, path)
		return nil
	}
	if c.catalog.bad[path] {
		c.without(doc, path)
		return nil
	}
	return v.spec.(*schema.AppVersion)
}

func (c *tenantCheck) entitled(doc *document, d *schema.Instance) {
	path, _ := schema.Key{Kind: schema.KindEntitlement, Tenant: d.Key.Tenant, Project: d.Key.Project, Name: d.Spec.App}.Path()
	switch e := c.part.byFile[path]; {
	case e == nil:
		c.refuse(doc, "spec.app", "ref.missing-entitlement", fmt.Sprintf("the project is not entitled to %s (no %s)", d.Spec.App, path), path)
	case !e.valid() || c.out[path]:
		c.without(doc, path)
	}
}

// roles checks an instance's roles against the manifest. A role that is not
// listed has as many members as it must have.
func (c *tenantCheck) roles(doc *document, d *schema.Instance, v *schema.AppVersion) {
	manifest := v.Spec.Manifest.Roles
	for _, name := range sortedNames(d.Spec.Roles) {
		role, path := d.Spec.Roles[name], "spec.roles."+name
		m, ok := manifest[name]
		if !ok {
			message := fmt.Sprintf("%s/%s has no such role, there is %s", d.Spec.App, d.Spec.Version, strings.Join(sortedNames(manifest), ", "))
			if guess := nearest(name, sortedNames(manifest)); guess != "" {
				message += fmt.Sprintf(": did you mean %q?", guess)
			}
			c.refuse(doc, path, "ref.unknown-role", message, v.File)
			continue
		}
		if role.Count < m.Min || role.Count > m.Max {
			c.refuse(doc, path+".count", "ref.role-count", fmt.Sprintf("got %d, the manifest of %s/%s allows %s", role.Count, d.Spec.App, d.Spec.Version, span(m.Min, m.Max)), v.File)
		}
		if role.GPUs != nil && !m.GPUs {
			c.refuse(doc, path+".gpus", "ref.role-gpus", fmt.Sprintf("members of this role have no GPUs in %s/%s", d.Spec.App, d.Spec.Version), v.File)
		}
	}
}

func span(low, high int) string {
	if low == high {
		return fmt.Sprintf("exactly %d", low)
	}
	return fmt.Sprintf("%d to %d", low, high)
}

// config checks an instance's config against its runtime's definition.
func (c *tenantCheck) config(ctx context.Context, doc *document, d *schema.Instance, v *schema.AppVersion) error {
	backend := v.Spec.RuntimeBackend
	if _, ok := c.loader.backends[backend]; !ok {
		c.refuse(doc, "spec.version", "ref.no-runtime", fmt.Sprintf("no runtime for %s is built in, there is %s", backend, strings.Join(sortedNames(c.loader.backends), ", ")), v.File)
		return nil
	}
	if doc.tree == nil {
		return nil
	}
	value := doc.tree.value["spec"].(map[string]any)["config"]
	err := c.loader.withJudge(ctx, func(j *judge) error {
		_, problems := j.judge(configDef(backend), value)
		for _, p := range problems {
			p.path = join("spec.config", p.path)
			c.findings = append(c.findings, diagnose(doc.tree, doc.file.Path, p))
			c.without(doc, v.File)
		}
		return nil
	})
	if errors.Is(err, errBroke) {
		c.refuse(doc, "spec.config", "file.unreadable", err.Error())
		return nil
	}
	return err
}

package estate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/load"
)

// check judges the documents of one tree together and against the platform's catalog.
type check struct {
	*verdict
	loader  *Loader
	tree    *tree
	catalog *catalog

	shadows      map[string]bool           // slugs of own apps that are refused, and mean the platform's
	gone         []string                  // slugs of own apps in force that this tree no longer has
	environments map[string]*load.Document // shared runtimes by environment
	attached     attachments               // attachments to the part's own shared runtimes
	known        statements
}

func newCheck(l *Loader, t *tree, cat *catalog, refused []refusal) *check {
	c := &check{verdict: newVerdict(), loader: l, tree: t, catalog: cat, shadows: map[string]bool{}, environments: map[string]*load.Document{}, attached: attachments{}, known: newStatements()}
	for _, r := range refused {
		if r.finding.Code == schema.CodeAppShadowed {
			c.shadows[r.doc.Key.Name] = true
		}
		c.findings = append(c.findings, r.finding)
		c.without(r.doc, r.needs...)
	}
	for _, doc := range t.docs {
		if doc.Key.Kind == schema.KindAttachment {
			c.attached.add(doc)
		}
	}
	return c
}

// ranked returns the documents that can be judged: first those that others need, then by
// path.
func (c *check) ranked(docs []*load.Document) []*load.Document {
	var by [][]*load.Document
	for _, doc := range docs {
		if doc.Valid() && !c.out[doc.File.Path] {
			r := doc.Key.Kind.Info().Rank
			by = slices.Grow(by, r+1)[:max(len(by), r+1)]
			by[r] = append(by[r], doc)
		}
	}
	return slices.Concat(by...)
}

// bad reports whether a document of this part is not in Desired, as far as is known.
func (c *check) bad(doc *load.Document) bool { return !doc.Valid() || c.out[doc.File.Path] }

// need returns the document of this tree that a field of doc refers to. If that is
// missing or invalid, it records a finding or a dependency of doc, and returns nil.
func (c *check) need(doc *load.Document, at, code string, key schema.Key, missing string) *load.Document {
	return c.needIn(c.tree.byFile, c.bad, doc, at, code, key, missing)
}

// needOfPlatform is need for a document of the platform.
func (c *check) needOfPlatform(doc *load.Document, at, code string, key schema.Key, missing string) *load.Document {
	return c.needIn(c.catalog.byFile, c.catalog.bad, doc, at, code, key, missing)
}

func (c *check) needIn(docs map[string]*load.Document, bad func(*load.Document) bool, doc *load.Document, at, code string, key schema.Key, missing string) *load.Document {
	path, _ := key.Path()
	switch to := docs[path]; {
	case to == nil:
		c.refuse(doc, at, code, fmt.Sprintf("%s (%s)%s", missing, path, c.likely(docs, key)), path)
		return nil
	case bad(to):
		c.without(doc, path)
		return nil
	default:
		return to
	}
}

// ownApp returns the tree's own document of an app, or nil. In a tenant it has priority over one of
// the platform, as in schema.Platform.AppFor.
func (c *check) ownApp(name string) *load.Document {
	if c.tree.tenant == "" || c.shadows[name] {
		return nil
	}
	return c.tree.names.apps[name]
}

// maxSuggested limits a tenant's own apps among which a misspelt one is looked for: a tenant may
// declare thousands, and misspell as many.
const maxSuggested = 32

// apps lists the apps that may be meant by a misspelt one.
func (c *check) apps() []string {
	all := sortedKeys(c.catalog.apps)
	if own := c.tree.names.apps; c.tree.tenant != "" && len(own) <= maxSuggested {
		all = append(all, sortedKeys(own)...)
	}
	return all
}

// app reports whether the app exists and is valid.
func (c *check) app(doc *load.Document, at, name string) bool {
	if c.ownApp(name) != nil || slices.Contains(c.gone, name) {
		return c.need(doc, at, "ref.missing-app", c.ownKey(name), "there is no app "+name+" any more") != nil
	}
	if of := c.catalog.apps[name]; of != nil {
		if c.catalog.bad(of) {
			c.without(doc, of.File.Path)
			return false
		}
		return true
	}
	path, _ := schema.Key{Kind: schema.KindApp, Name: name}.Path()
	message := fmt.Sprintf("there is no app %s (%s)", name, path)
	if guess := load.Nearest(name, c.apps()); guess != "" {
		message += fmt.Sprintf(": did you mean %q?", guess)
	} else if of := c.tenantsOf(name); len(of) > 0 {
		message += fmt.Sprintf(": it is an app of the tenant %s alone; name one of the platform", strings.Join(of, ", "))
	}
	c.refuse(doc, at, "ref.missing-app", message, path)
	return false
}

// tenantsOf lists the tenants whose own app of a name the platform has admitted, for a document of the platform.
func (c *check) tenantsOf(app string) (tenants []string) {
	if c.tree.tenant != "" {
		return nil // a tenant must not learn about others
	}
	for _, tenant := range sortedKeys(c.catalog.admitted) {
		if c.catalog.admitted[tenant][app] != nil {
			tenants = append(tenants, tenant)
		}
	}
	return tenants
}

func (c *check) ownKey(app string) schema.Key {
	return schema.Key{Kind: schema.KindApp, Tenant: c.tree.tenant, Name: app}
}

// versions returns the versions of an app that documents of this tree name, by name, and whether one
// of them is not in Desired. tenant is that of their keys.
func (c *check) versions(app string) (all map[string]*load.Document, tenant string, bad func(*load.Document) bool) {
	if c.ownApp(app) == nil {
		return c.catalog.versions[app], "", c.catalog.bad
	}
	return c.tree.names.releases[app], c.tree.tenant, c.bad
}

// version returns the version that doc runs, or nil if it is missing or invalid.
func (c *check) version(doc *load.Document, app, version string) *schema.AppVersion {
	there, tenant, bad := c.versions(app)
	v := there[version]
	if v == nil {
		path, _ := schema.Key{Kind: schema.KindAppVersion, Tenant: tenant, Parent: app, Name: version}.Path()
		message := fmt.Sprintf("there is no version %s of %s (%s)", version, app, path)
		if names := sortedKeys(there); len(names) > 0 {
			message += ", there is " + strings.Join(names, ", ")
		}
		needs := []string{path}
		if tenant != "" { // the platform's app had the version, and this one is new
			own, _ := c.ownKey(app).Path()
			needs = append(needs, own)
		}
		c.refuse(doc, "spec.version", "ref.missing-version", message, needs...)
		return nil
	}
	if bad(v) {
		c.without(doc, v.File.Path)
		return nil
	}
	return v.Decl.(*schema.AppVersion)
}

// likely suggests the name of a document beside the one that is missing, for the end of a message.
func (c *check) likely(docs map[string]*load.Document, missing schema.Key) string {
	return Meant(missing.Name, c.beside(docs, missing))
}

// beside lists the names of the documents beside one that is missing.
func (c *check) beside(docs map[string]*load.Document, missing schema.Key) (names []string) {
	if len(c.findings) > load.MaxFindings { // further findings are cut, and the search is expensive
		return nil
	}
	for _, doc := range docs {
		beside := doc.Key
		if beside.Name = missing.Name; beside == missing {
			names = append(names, doc.Key.Name)
		}
	}
	slices.Sort(names)
	return names
}

// roles checks the requested roles of doc against the manifest. An unlisted role has its
// minimum number of members.
func (c *check) roles(doc *load.Document, roles map[string]schema.InstanceRole, v *schema.AppVersion) {
	manifest, of := v.Spec.Manifest.Roles, v.Key.Parent+"/"+v.Key.Name
	for _, name := range sortedKeys(roles) {
		role, path := roles[name], "spec.roles."+name
		if n := role.MaxUnavailable.Number; n > role.Count && role.Count > 0 {
			c.warn(doc, path+".max_unavailable", CodeNoEffect, fmt.Sprintf("is %d, and the role has %d: a change may drain all of them at once; write fewer than count to keep some", n, role.Count))
		}
		m, ok := manifest[name]
		if !ok {
			message := fmt.Sprintf("%s has no such role, there is %s", of, strings.Join(sortedKeys(manifest), ", "))
			if guess := load.Nearest(name, sortedKeys(manifest)); guess != "" {
				message += fmt.Sprintf(": did you mean %q?", guess)
			}
			c.refuse(doc, path, "ref.unknown-role", message, v.File)
			continue
		}
		if role.Count < m.Min || role.Count > m.Max {
			c.refuse(doc, path+".count", "ref.role-count", fmt.Sprintf("got %d, the manifest of %s allows %s", role.Count, of, span(m.Min, m.Max)), v.File)
		}
		c.stocked(doc, path+".sku", sku, role.SKU)
		if role.GPUs != nil {
			c.stocked(doc, path+".gpus.type", gpuType, role.GPUs.Type)
		}
		if role.GPUs != nil && !m.GPUs {
			c.refuse(doc, path+".gpus", "ref.role-gpus", "members of this role have no GPUs in "+of, v.File)
		}
	}
}

// warn records a finding that holds no document.
func (c *check) warn(doc *load.Document, at, code, message string) {
	c.findings = append(c.findings, load.Found(doc, at, schema.SeverityWarning, code, message))
}

// end is the field of a document that clashes with one of another.
type end struct {
	doc  *load.Document
	path string
}

func (e end) place() string { return e.doc.Header.At(e.path).Place() }

// clash returns a finding at one of two fields that may not say the same. says is the message at one end about the
// other. A change that brings the other end gets the finding there.
func clash(at, other end, severity schema.Severity, code string, says func(of end) string) schema.Diagnostic {
	f := load.Found(at.doc, at.path, severity, code, says(other))
	f.Other = schema.Place{Position: other.doc.Header.At(other.path), Path: other.path, Says: says(at)}
	return f
}

// clash records a clash that holds its document.
func (c *check) clash(at, other end, code string, says func(of end) string) {
	c.findings = append(c.findings, clash(at, other, schema.SeverityError, code, says))
	c.without(at.doc, other.doc.File.Path)
}

// unknown is what warnUnknown has to know about the names of a list.
type unknown struct {
	code  string
	known func(name string) bool
	all   func() []string // names to suggest from
	says  func(name string) string
}

// warnUnknown warns about names of a list that are not known, and suggests others. Further
// findings are cut, and the search for suggestions is expensive, so it stops early.
func (c *check) warnUnknown(doc *load.Document, at func(int) string, list []string, u unknown) {
	told, all := 0, []string(nil)
	for i, name := range list {
		if told > load.MaxFindings {
			return
		}
		if u.known(name) {
			continue
		}
		if told == 0 {
			all = u.all()
		}
		message := u.says(name)
		if told < load.MaxFindings {
			message += Meant(name, all)
		}
		c.warn(doc, at(i), u.code, message)
		told++
	}
}

// Meant suggests a name for an unknown one, or lists the names if they are few, for the end of a
// message.
func Meant(name string, names []string) string {
	if guess := load.Nearest(name, names); guess != "" {
		return fmt.Sprintf(": did you mean %q?", guess)
	}
	if len(names) == 0 || len(names) > 20 { // a long list does not help
		return ""
	}
	return ", there is " + strings.Join(names, ", ")
}

// stocked warns about a name that no available node has. It is not an error, because the
// node may come later.
func (c *check) stocked(doc *load.Document, at, what, name string) {
	if name != "" {
		c.stockedAll(doc, func(int) string { return at }, what, []string{name})
	}
}

// stockedAll is stocked for the names of a list. Without nodes nothing is known.
func (c *check) stockedAll(doc *load.Document, at func(int) string, what string, names []string) {
	if c.catalog.unsure || !slices.ContainsFunc(c.catalog.available(c.tree.tenant), func(s stock) bool { return len(s[what]) > 0 }) {
		return
	}
	c.warnUnknown(doc, at, names, unknown{
		code:  "ref.no-node",
		known: func(name string) bool { return c.catalog.has(c.tree.tenant, what, name) },
		all:   func() []string { return c.catalog.names(c.tree.tenant, what) },
		says: func(name string) string {
			if c.tree.tenant != "" {
				return fmt.Sprintf("no node that %s may be given has the %s %s", c.tree.tenant, what, name)
			}
			return fmt.Sprintf("no node has the %s %s", what, name)
		},
	})
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
		known: func(name string) bool { return c.catalog.apps[name] != nil || c.ownApp(name) != nil },
		all:   c.apps,
		says: func(name string) string {
			path, _ := schema.Key{Kind: schema.KindApp, Name: name}.Path()
			return fmt.Sprintf("there is no app %s to deny (%s)", name, path)
		},
	})
	if d.Suspend { // suspension must not lift limits
		c.warn(doc, "suspend", CodeNoEffect, "lifts nothing: a policy holds while it is there; change its limits, or take the file away")
	}
}

func span(low, high int) string {
	if low == high {
		return fmt.Sprintf("exactly %d", low)
	}
	return fmt.Sprintf("%d to %d", low, high)
}

// config checks the config of doc against its runtime's definition.
func (c *check) config(ctx context.Context, doc *load.Document, v *schema.AppVersion) error {
	backend := v.Spec.RuntimeBackend
	if _, ok := c.loader.backends[backend]; !ok {
		c.refuse(doc, "spec.version", "ref.no-runtime", c.noRuntime(backend), v.File)
		return nil
	}
	of, err := c.loader.reader.Config(ctx, doc, v)
	if err != nil {
		return err
	}
	for _, n := range of.Names {
		switch n.Sort {
		case schema.UserName, schema.ProjectName, schema.ReservedName: // known once policy has said which projects the unit serves
			continue
		case nodeName:
			c.nodes = append(c.nodes, n.Name)
		}
		c.stocked(doc, n.Path, n.Sort, n.Name)
	}
	c.findings = append(c.findings, of.Findings...)
	if len(of.Findings) > 0 {
		c.without(doc, v.File)
	}
	return nil
}

// noRuntime says that a runtime is not built in, and which are.
func (c *check) noRuntime(backend string) string {
	return fmt.Sprintf("no runtime for %s is built in, there is %s", backend, strings.Join(sortedKeys(c.loader.backends), ", "))
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
			if f.Severity == schema.SeverityError && there && !slices.ContainsFunc(doc.Findings, func(own schema.Diagnostic) bool { return load.Within(f.Path, own.Path) }) {
				c.findings = append(c.findings, f)
			}
		}
	}
	return nil
}

package policy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

// estateFiles returns a small estate of one project, with random choices of c.
func (c chooser) estate() (*schema.Platform, *schema.TenantEstate) {
	head := func(file string, k schema.Key) schema.Header {
		return schema.Header{Key: k, File: file, Fields: []schema.FieldPos{{Path: "spec", Line: 5, Column: 1}}}
	}
	noncompliant := func() schema.Noncompliant {
		switch c(3) {
		case 0:
			return schema.Noncompliant{Action: schema.NoncompliantHold}
		case 1:
			return schema.Noncompliant{Action: schema.NoncompliantStop, GraceUntil: fmt.Sprintf("2027-01-0%d", 1+c(4))}
		}
		return schema.Noncompliant{}
	}
	raw := func() json.RawMessage {
		return json.RawMessage([]string{"", `{}`, `{"a":1,"b":{"x":1}}`, `{"b":{"x":2,"y":3}}`, `{"b":[1],"c":"<"}`}[c(5)])
	}
	status := func() schema.CatalogStatus {
		return []schema.CatalogStatus{schema.StatusActive, schema.StatusDeprecated, schema.StatusDisabled}[c(3)]
	}
	p := &schema.Platform{Apps: map[string]*schema.App{}, Versions: map[string]map[string]*schema.AppVersion{},
		Policies: map[string]*schema.Policy{}, ArtifactSources: map[string]*schema.ArtifactSource{}}
	for _, name := range []string{"p", "q"}[:c(3)] {
		spec := schema.PolicySpec{Overlay: c.overlay(), Quotas: c.wideQuotas(), Noncompliant: noncompliant()}
		if c(4) == 0 {
			spec.HardDeny.Apps = []string{"one", "two"}[:1+c(2)]
		}
		p.Policies[name] = &schema.Policy{Header: head("platform/policy/"+name+".yaml", schema.Key{Kind: schema.KindPolicy, Name: name}),
			Spec: spec}
	}
	p.ArtifactSources["s"] = &schema.ArtifactSource{Header: head("platform/artifact-sources/s.yaml",
		schema.Key{Kind: schema.KindArtifactSource, Name: "s"}),
		Spec: schema.ArtifactSourceSpec{Type: schema.SourceOCI, Host: []string{"a.x", "y:2", "x"}[c(3)]}}
	project := &schema.ProjectEstate{Name: "p", Entitlements: map[string]*schema.Entitlement{}, Instances: map[string]*schema.Instance{}}
	t := &schema.TenantEstate{Name: "t", Projects: map[string]*schema.ProjectEstate{"p": project}}
	if c(2) == 0 {
		t.Policy = &schema.Policy{Header: head("tenants/t/policy.yaml", schema.Key{Kind: schema.KindPolicy, Tenant: "t", Name: "policy"}),
			Spec: schema.PolicySpec{Overlay: c.overlay(), Quotas: c.wideQuotas(), Noncompliant: noncompliant()}}
	}
	for _, app := range []string{"one", "two"} {
		p.Apps[app] = &schema.App{Header: head("platform/catalog/"+app+"/app.yaml", schema.Key{Kind: schema.KindApp, Name: app}),
			Spec: schema.AppSpec{Status: status(),
				Supports: schema.AppSupports{OperatingModes: names[c(7)/6:], ControlPlaneScopes: names[:4-c(7)/6]}}}
		manifest := schema.Manifest{Parameters: raw(),
			Roles: map[string]schema.ManifestRole{"control": {ControlPlane: true, Min: 1, Max: 1}, "worker": {Max: 9}}}
		if c(2) == 0 {
			manifest.Artifacts = map[string]schema.ManifestArtifact{"image": {Source: "s"}}
		}
		p.Versions[app] = map[string]*schema.AppVersion{"v": {Header: head("platform/catalog/"+app+"/v.yaml",
			schema.Key{Kind: schema.KindAppVersion, Parent: app, Name: "v"}),
			Spec: schema.AppVersionSpec{Status: status(), Manifest: manifest}}}
		project.Entitlements[app] = &schema.Entitlement{Header: head("tenants/t/projects/p/entitlements/"+app+".yaml",
			schema.Key{Kind: schema.KindEntitlement, Tenant: "t", Project: "p", Name: app}),
			Spec: schema.EntitlementSpec{Enabled: c(6) > 0, PolicyOverrides: c.overlay()}}
	}
	p.Admissions = map[string]map[string]*schema.AppAdmission{"t": {}, "u": {}}
	for _, tenant := range []string{"t", "u"} {
		if c(2) == 0 {
			p.Admissions[tenant]["two"] = &schema.AppAdmission{Header: head("platform/admissions/"+tenant+"/two.yaml",
				schema.AdmissionKey(tenant, "two")), Spec: schema.AppAdmissionSpec{
				AllowedControlPlaneScopes: slices.Clone(names[:1+c(4)]), AllowedRuntimeBackends: []string{"b"}[c(2):],
				ArtifactSourceAllowlist: []string{"a.x", "y:2", "x"}[c(3):]}}
		}
	}
	if c(2) == 0 {
		own(c, t, "two")
	}
	for i := range 1 + c(4) {
		name := fmt.Sprintf("i%d", i)
		spec := schema.InstanceSpec{App: []string{"one", "two"}[c(2)], Version: "v",
			DesiredState: []schema.DesiredState{schema.DesiredRunning, schema.DesiredStopped}[c(2)],
			ProductMode:  schema.ProductMode{OperatingMode: names[c(4)], ControlPlaneScope: names[c(4)]},
			Config:       raw(), Roles: map[string]schema.InstanceRole{}}
		if c(2) == 0 {
			spec.Regions = c.list(names)
		}
		if c(2) == 0 {
			r := schema.InstanceRole{Count: c(3)}
			if c(2) == 0 {
				r.SKU = names[c(4)]
			}
			if c(2) == 0 {
				r.GPUs = &schema.GPURequest{Count: c(4)}
			}
			spec.Roles["worker"] = r
		}
		project.Instances[name] = &schema.Instance{Header: head("tenants/t/projects/p/instances/"+name+".yaml",
			schema.InstanceKey("t", "p", name)), Spec: spec}
	}
	return p, t
}

// wideQuotas returns quotas that some units of a random estate exceed, and of which most set nothing.
func (c chooser) wideQuotas() (q schema.Quotas) {
	few := func() *int {
		if c(6) > 0 {
			return nil
		}
		n := c(14)
		return &n
	}
	q.MaxInstancesPerTenant, q.MaxGPUsPerProject, q.MaxGPUsPerTenant = few(), few(), few()
	q.MaxNodesPerProject, q.MaxNodesPerTenant = few(), few()
	return q
}

// own gives a tenant an app of its own with a version v.
func own(c chooser, t *schema.TenantEstate, slug string) {
	file := "tenants/" + t.Name + "/catalog/" + slug
	spec := schema.AppVersionSpec{RuntimeBackend: "b",
		Manifest: schema.Manifest{Roles: map[string]schema.ManifestRole{"control": {ControlPlane: true, Min: 1, Max: 1},
			"worker": {Max: 2}}}}
	if c(2) == 0 {
		spec.Manifest.Artifacts = map[string]schema.ManifestArtifact{"image": {Source: []string{"s", "own"}[c(2)]}}
	}
	t.Apps = map[string]*schema.App{slug: {Header: schema.Header{Key: schema.Key{Kind: schema.KindApp, Tenant: t.Name, Name: slug},
		File: file + "/app.yaml"},
		Spec: schema.AppSpec{Status: schema.StatusActive, Supports: schema.AppSupports{OperatingModes: names, ControlPlaneScopes: names}}}}
	t.Versions = map[string]map[string]*schema.AppVersion{slug: {"v": {Header: schema.Header{Key: schema.Key{Kind: schema.KindAppVersion,
		Tenant: t.Name, Parent: slug, Name: "v"}, File: file + "/v.yaml"}, Spec: spec}}}
}

// The last step of every value, and the value itself, match Effective. A limit is
// exceeded exactly if it denies. Every decision about the instance is at one of
// its values.
func TestExplanationMatchesEvaluation(t *testing.T) { explanationMatchesEvaluation(t, 3, 300) }

func explanationMatchesEvaluation(t *testing.T, seed uint64, cases int) {
	r := rand.New(rand.NewPCG(seed, 4))
	c := chooser(r.IntN)
	denied := 0
	for range cases {
		p, tenant := c.estate()
		opts := []Option{At(fmt.Sprintf("2027-01-0%d", 1+c(4)))}
		if c(2) == 0 {
			opts = append(opts, Existing(func(k schema.Key) bool { return k.Name < "i2" }))
		}
		e := EvaluateTenant(p, tenant, opts...)
		for _, inst := range e.Projects["p"].Units {
			key := inst.Key
			x, ok := Explain(p, tenant, key, opts...)
			require.True(t, ok)
			if err := explains(x, inst, e); err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			if x.Denied {
				denied++
			}
		}
	}
	require.Greater(t, denied, 100)
}

func explains(x Explanation, inst *schema.EffectiveUnit, e *schema.EffectiveTenant) error {
	of := map[string]any{"operating_mode": inst.OperatingMode, "control_plane_scope": inst.ControlPlaneScope, "regions": inst.Regions,
		"desired_state": string(inst.DesiredState)}
	for _, r := range inst.Roles {
		of["roles."+r.Name+".sku"] = r.SKUs
	}
	for k, v := range object(inst.Config) {
		of["config."+k] = canonical(v)
	}
	var told, made []schema.Decision
	refused := map[string]bool{}
	for _, d := range e.Decisions() {
		if d.Key == x.Key {
			made = append(made, d)
			if d.Verdict == schema.Deny || d.Verdict == schema.Stop {
				refused[d.Rule] = true
			}
		}
	}
	for _, v := range x.Values {
		told = append(told, v.Decisions...)
		if want, ok := of[v.Field]; ok {
			delete(of, v.Field)
			if Text(v.Value) != Text(orAny(want)) {
				return fmt.Errorf("%s is explained to be %s, and is %s", v.Field, Text(v.Value), Text(orAny(want)))
			}
		}
		if n := len(v.Steps); n > 0 && Text(v.Steps[n-1].Value) != Text(v.Value) {
			return fmt.Errorf("%s ends at %s, and is %s", v.Field, Text(v.Steps[n-1].Value), Text(v.Value))
		}
		if n := len(v.Steps); n == 0 && v.Value != nil && v.Field != "hard_deny" {
			return fmt.Errorf("%s is %s by nobody", v.Field, Text(v.Value))
		}
		if most, ok := v.Value.(int); ok && v.Field == "max_gpus_per_instance" && (v.Asked.(int) > most) != refused[v.Field] {
			return fmt.Errorf("%s: asked %d of %d, refused %v", v.Field, v.Asked, most, refused[v.Field])
		}
	}
	if len(of) > 0 {
		return fmt.Errorf("not explained: %v", of)
	}
	if x.Denied != (len(refused) > 0) {
		return fmt.Errorf("denied %v by %v", x.Denied, refused)
	}
	order := func(a, b schema.Decision) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }
	slices.SortFunc(told, order)
	slices.SortFunc(made, order)
	if !slices.Equal(told, made) {
		return fmt.Errorf("decided %v\ntold %v", made, told)
	}
	return nil
}

// orAny replaces a nil list by nil, which Text formats as any.
func orAny(v any) any {
	if list, ok := v.([]string); ok {
		return orNil(list)
	}
	return v
}

// A value other than a JSON object counts as empty.
func TestConfigIgnoresNonObjects(t *testing.T) {
	for _, tc := range [][3]string{
		{``, ``, `{}`},
		{`null`, `[1]`, `{}`},
		{`{"a":`, `{"b":1}`, `{"b":1}`},
		{`{"b":{"x":1,"y":[1,2]},"a":1.50}`, `{"b":{"y":[3]}}`, `{"a":1.50,"b":{"x":1,"y":[3]}}`},
		{`{"b":{"x":1}}`, `{"b":2}`, `{"b":2}`},
		{`{"b":2}`, `{"b":{"x":1}}`, `{"b":{"x":1}}`},
	} {
		v := &schema.AppVersion{Spec: schema.AppVersionSpec{Manifest: schema.Manifest{Parameters: json.RawMessage(tc[0])}}}
		c := newConfigs(map[string]map[string]*schema.AppVersion{"a": {"v": v}})
		for range 2 { // a merge does not change the parameters
			require.Equal(t, tc[2], string(c.under(v, json.RawMessage(tc[1]))))
		}
	}
}

// Documents that the reader refuses are skipped, not evaluated.
func TestInvalidReferencesAreSkipped(t *testing.T) {
	p, tenant := chooser(func(int) int { return 0 }).estate()
	project := tenant.Projects["p"]
	project.Artifacts = map[string]*schema.Artifact{"a": {Spec: schema.ArtifactSpec{App: "one", Source: "nowhere"}}}
	p.Versions["one"]["v"].Spec.Manifest.Artifacts = map[string]schema.ManifestArtifact{"image": {Source: "nowhere"}}
	before := len(EvaluateTenant(p, tenant).Projects["p"].Units)
	require.Positive(t, before)
	for _, d := range EvaluateTenant(p, tenant).Decisions() {
		require.NotEqual(t, "artifact_source_allowlist", d.Rule)
	}
	delete(project.Entitlements, "one")
	delete(p.Versions, "two")
	require.Empty(t, EvaluateTenant(p, tenant).Projects["p"].Units)
}

// The reader refuses a service account with a Unix user; policy gives it none
// either.
func TestServiceAccountsHaveNoUser(t *testing.T) {
	who := &schema.UnixUser{Name: "ci", UID: 20100}
	project := &schema.ProjectEstate{Roles: &schema.RoleBinding{Spec: schema.RoleBindingSpec{Members: []schema.RoleMember{
		{ServiceAccount: "ci", Role: "service_account", UnixUser: who}, {Login: "ben", Role: "project_member"}}}}}
	require.Empty(t, users(&schema.TenantEstate{}, project))
}

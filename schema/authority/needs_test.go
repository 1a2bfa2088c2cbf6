package authority_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/authority"
)

const (
	none = ""
	old  = "1111111111111111111111111111111111111111"
	now  = "2222222222222222222222222222222222222222"
)

// short formats needs as "permission@scope", with >=role if a least role is required.
func short(needs []authority.Need) (out []string) {
	for _, n := range needs {
		s := string(n.Permission) + "@" + n.Scope.String()
		if n.AtLeast != "" {
			s += ">=" + n.AtLeast
		}
		out = append(out, s)
	}
	return out
}

func change(path, from, to string) schema.PathChange {
	return schema.PathChange{Path: path, From: from, To: to}
}

// pathOf returns the path of the document of k.
func pathOf(t require.TestingT, k schema.Key) string {
	path, err := k.Path()
	require.NoError(t, err)
	return path
}

// Every kind of document: what creating, changing and deleting it needs, and
// what a version of it needs that nobody can read.
func TestEveryKindNeedsItsPermission(t *testing.T) {
	project := schema.Key{Tenant: "physics", Project: "lattice", Name: "x"}
	tenant := schema.Key{Tenant: "physics", Name: "x"}
	platform := schema.Key{Name: "x"}
	of := func(k schema.Key, kind schema.Kind, parent string) schema.Key {
		k.Kind, k.Parent = kind, parent
		return k
	}
	fixed := func(k schema.Key, name string) schema.Key { k.Name = name; return k }
	for _, tc := range []struct {
		key                             schema.Key
		created, changed, gone, unknown string
	}{
		{of(fixed(platform, "physics"), schema.KindTenant, ""), "tenants.write@the platform", "", "", ""},
		{of(tenant, schema.KindProject, ""), "projects.write@physics", "projects.write@physics.x", "projects.write@physics",
			"projects.write@physics"},
		{of(platform, schema.KindPolicy, ""), "policy.write@the platform", "", "", ""},
		{of(fixed(tenant, "policy"), schema.KindPolicy, ""), "policy.write@physics", "", "", ""},
		{of(project, schema.KindEntitlement, ""), "apps.entitlement.write@physics.lattice", "", "", ""},
		{of(platform, schema.KindNode, ""), "nodes.write@the platform", "", "", ""},
		{of(platform, schema.KindSite, ""), "sites.write@the platform", "", "", ""},
		{of(platform, schema.KindRateCard, ""), "rates.write@the platform", "", "", ""},
		{of(platform, schema.KindQueueMap, ""), "queues.write@the platform", "", "", ""},
		{of(platform, schema.KindHookRule, ""), "hooks.write@the platform", "", "", ""},
		{of(fixed(platform, "pause"), schema.KindPause, ""), "platform.pause@the platform", "", "", ""},
		{of(platform, schema.KindArtifactSource, ""), "artifact_sources.write@the platform", "", "", ""},
		{of(tenant, schema.KindArtifactSource, ""), "artifact_sources.write@physics", "", "", ""},
		{of(tenant, schema.KindServiceAccount, ""), "service_accounts.write@physics", "", "", ""},
		{of(project, schema.KindServiceAccount, ""), "service_accounts.write@physics.lattice", "", "", ""},
		{of(project, schema.KindContribution, ""), "contributions.write@physics.lattice", "", "", ""},
		{of(project, schema.KindMemberOperation, ""), "apps.instance.member.operate@physics.lattice", "", "",
			"apps.instance.member.operate@physics.lattice apps.instance.loss.accept@physics.lattice"},
		{of(tenant, schema.KindMemberOperation, "cluster"), "shared_runtimes.member.operate@physics", "", "",
			"shared_runtimes.member.operate@physics shared_runtimes.loss.accept@physics"},
		{of(platform, schema.KindMemberOperation, "common"), "shared_runtimes.member.operate@the platform", "", "",
			"shared_runtimes.member.operate@the platform shared_runtimes.loss.accept@the platform"},
		{of(project, schema.KindInstance, ""), "apps.instance.create@physics.lattice", "apps.instance.update@physics.lattice",
			"apps.instance.delete@physics.lattice",
			"apps.instance.create@physics.lattice apps.instance.update@physics.lattice apps.instance.delete@physics.lattice " +
				"scheduler.instance.create@physics.lattice scheduler.instance.update@physics.lattice " +
				"scheduler.instance.delete@physics.lattice"},
		{of(fixed(tenant, "cluster"), schema.KindSharedRuntime, ""), "shared_runtimes.create@physics", "shared_runtimes.update@physics",
			"shared_runtimes.delete@physics",
			"shared_runtimes.attach@physics shared_runtimes.create@physics shared_runtimes.delete@physics shared_runtimes.detach@physics " +
				"shared_runtimes.update@physics"},
		{of(fixed(platform, "common"), schema.KindSharedRuntime, ""), "shared_runtimes.create@the platform",
			"shared_runtimes.update@the platform", "shared_runtimes.delete@the platform",
			"shared_runtimes.attach@the platform shared_runtimes.create@the platform shared_runtimes.delete@the platform " +
				"shared_runtimes.detach@the platform shared_runtimes.update@the platform"},
		{of(tenant, schema.KindAttachment, "cluster"), "shared_runtimes.attach@physics", "shared_runtimes.attach@physics",
			"shared_runtimes.detach@physics",
			"shared_runtimes.attach@physics shared_runtimes.detach@physics"},
		{of(platform, schema.KindAttachment, "common"), "shared_runtimes.attach@the platform", "shared_runtimes.attach@the platform",
			"shared_runtimes.detach@the platform",
			"shared_runtimes.attach@the platform shared_runtimes.detach@the platform"},
		{of(platform, schema.KindApp, ""), "apps.catalog.publish@the platform apps.catalog.write@the platform",
			"apps.catalog.publish@the platform apps.catalog.write@the platform",
			"apps.catalog.disable@the platform apps.catalog.publish@the platform apps.catalog.write@the platform",
			"apps.catalog.deprecate@the platform apps.catalog.disable@the platform apps.catalog.publish@the platform " +
				"apps.catalog.write@the platform scheduler.catalog.read@the platform"},
		{of(platform, schema.KindAppVersion, "notebooks"), "apps.catalog.publish@the platform apps.catalog.write@the platform",
			"apps.catalog.publish@the platform apps.catalog.write@the platform",
			"apps.catalog.disable@the platform apps.catalog.publish@the platform apps.catalog.write@the platform",
			"apps.catalog.deprecate@the platform apps.catalog.disable@the platform apps.catalog.publish@the platform " +
				"apps.catalog.write@the platform scheduler.catalog.read@the platform"},
		{of(tenant, schema.KindApp, ""), "apps.catalog.propose@physics", "", "",
			"apps.catalog.propose@physics scheduler.catalog.read@physics"},
		{of(tenant, schema.KindAppVersion, "notebooks"), "apps.catalog.propose@physics", "", "",
			"apps.catalog.propose@physics scheduler.catalog.read@physics"},
		{of(platform, schema.KindAppAdmission, "physics"), "apps.catalog.admit@the platform", "", "", ""},
		{of(project, schema.KindArtifact, ""), "apps.artifact.publish@physics.lattice", "apps.artifact.publish@physics.lattice",
			"apps.artifact.publish@physics.lattice apps.artifact.retire@physics.lattice",
			"apps.artifact.deprecate@physics.lattice apps.artifact.promote@physics.lattice apps.artifact.publish@physics.lattice " +
				"apps.artifact.retire@physics.lattice"},
		{of(fixed(project, "roles"), schema.KindRoleBinding, ""), "roles.write@physics.lattice", "", "",
			"roles.write@physics.lattice>=project_owner"},
		{of(fixed(tenant, "roles"), schema.KindRoleBinding, ""), "roles.write@physics", "", "", "roles.write@physics>=tenant_owner"},
		{of(fixed(platform, "roles"), schema.KindRoleBinding, ""), "roles.write@the platform", "", "",
			"roles.write@the platform>=platform_superadmin"},
	} {
		without, with := campus(), campus()
		if tc.key.Kind != schema.KindTenant {
			declare(with, tc.key)
		} else {
			without.Tenants["physics"].Tenant = nil
		}
		for _, list := range []*string{&tc.changed, &tc.gone, &tc.unknown} {
			if *list == "" {
				*list = tc.created
			}
		}
		path := pathOf(t, tc.key)
		for what, c := range map[string]struct {
			base, next *schema.Desired
			from, to   string
			want, why  string
		}{
			"created":           {without.Desired, with.Desired, none, now, tc.created, "creates "},
			"changed":           {with.Desired, with.Desired, old, now, tc.changed, "changes "},
			"deleted":           {with.Desired, without.Desired, old, none, tc.gone, "deletes "},
			"created, invalid":  {without.Desired, without.Desired, none, now, tc.unknown, "changes, in a way that cannot be read, "},
			"changed, invalid":  {with.Desired, without.Desired, old, now, tc.unknown, "changes, in a way"},
			"was invalid":       {without.Desired, with.Desired, old, now, tc.unknown, "changes, in a way"},
			"invalid goes":      {without.Desired, without.Desired, old, none, tc.unknown, "changes, in a way"},
			"nobody knows what": {without.Desired, without.Desired, none, none, tc.unknown, "changes, in a way"},
		} {
			needs := authority.Needs(c.base, c.next, tc.key, change(path, c.from, c.to))
			require.ElementsMatch(t, strings.Split(strings.ReplaceAll(c.want, "the platform", "platform"), " "),
				strings.Split(strings.ReplaceAll(strings.Join(short(needs), " "), "the platform", "platform"), " "), "%s %s", tc.key, what)
			for _, n := range needs {
				require.Equal(t, tc.key, n.Key)
				require.Equal(t, path, n.File)
				require.Contains(t, n.Why, c.why)
				require.Contains(t, n.Why, tc.key.String())
			}
		}
	}
}

// declare adds a valid document of k.
func declare(w world, k schema.Key) {
	var doc schema.Document
	switch k.Kind {
	case schema.KindProject:
		if t := w.Tenants[k.Tenant]; t.Projects[k.Name] == nil {
			t.Projects[k.Name] = empty(k.Tenant, k.Name)
		}
		return
	case schema.KindRoleBinding:
		w.put(&schema.RoleBinding{Header: head(k)})
		return
	case schema.KindAttachment:
		doc = &schema.Attachment{Spec: schema.AttachmentSpec{ProjectID: "physics.lattice"}}
	case schema.KindApp:
		doc = &schema.App{Spec: schema.AppSpec{Status: schema.StatusActive}}
	case schema.KindAppVersion:
		doc = &schema.AppVersion{Spec: schema.AppVersionSpec{Status: schema.StatusActive}}
	default:
		doc = k.Kind.New()
	}
	*doc.Head() = head(k)
	switch {
	case k.Project != "":
		w.Tenants[k.Tenant].Projects[k.Project].Put(doc)
	case k.Tenant != "":
		w.Tenants[k.Tenant].Put(doc)
	default:
		w.Platform.Put(doc)
	}
}

// A change that removes require_approval from a policy is detected by the
// documents before and after, never by an unreadable one.
func TestEndsApprovalIsDetected(t *testing.T) {
	for _, place := range []string{"", "physics"} {
		k := bindingKey(place)
		k.Kind, k.Name = schema.KindPolicy, "policy"
		w := func(asks bool) *schema.Desired {
			w := campus()
			declare(w, k)
			p := w.Platform.Policies[k.Name]
			if place != "" {
				p = w.Tenants[place].Policy
			}
			p.Spec.RequireApproval, p.Spec.AllowedRegions = asks, []string{"lab"}
			return w.Desired
		}
		for name, tc := range map[string]struct {
			base, next *schema.Desired
			c          schema.PathChange
			want       bool
		}{
			"loosened": {w(true), w(false), change(pathOf(t, k), old, now), true},
			"deleted":  {w(true), campus().Desired, change(pathOf(t, k), old, none), true},
			"kept":     {w(true), w(true), change(pathOf(t, k), old, now), false},
			"added":    {w(false), w(true), change(pathOf(t, k), old, now), false},
			"neither":  {w(false), campus().Desired, change(pathOf(t, k), old, none), false},
			"unread":   {w(true), campus().Desired, change(pathOf(t, k), old, now), false},
		} {
			needs := authority.Needs(tc.base, tc.next, k, tc.c)
			require.Len(t, needs, 1)
			require.Equal(t, tc.want, needs[0].EndsApproval, name)
		}
	}
}

// A path that belongs to no document needs the highest role of its place, so that
// no spelling bypasses a permission.
func TestStrayPathsNeedTheHighestRole(t *testing.T) {
	w := campus()
	for path, want := range map[string]string{
		"README.md":                                            "",
		".github/workflows/berth.yaml":                         "",
		"docs/tenants/physics/roles.yaml":                      "",
		"tenant/physics/roles.yaml":                            "",
		"platform":                                             "roles.write@the platform>=platform_superadmin",
		"tenants":                                              "roles.write@the platform>=platform_superadmin",
		"platform/x":                                           "roles.write@the platform>=platform_superadmin",
		"platform/nodes/deep/x.yaml":                           "roles.write@the platform>=platform_superadmin",
		"Platform/nodes/x.yaml":                                "roles.write@the platform>=platform_superadmin",
		"TENANTS/physics/roles.yaml":                           "roles.write@the platform>=platform_superadmin",
		"tenantſ/physics/roles.yaml":                           "roles.write@the platform>=platform_superadmin",
		"tenants/x":                                            "roles.write@the platform>=platform_superadmin",
		"tenants/Physics/roles.yaml":                           "roles.write@the platform>=platform_superadmin",
		"tenants/physics./roles.yaml":                          "roles.write@the platform>=platform_superadmin",
		"tenants/-x/roles.yaml":                                "roles.write@the platform>=platform_superadmin",
		"tenants/ph\u0443sics/x":                               "roles.write@the platform>=platform_superadmin",
		"tenants/" + strings.Repeat("a", 41) + "/x":            "roles.write@the platform>=platform_superadmin",
		"tenants//roles.yaml":                                  "roles.write@the platform>=platform_superadmin",
		"tenants/physics/../biology/roles.yaml":                "roles.write@the platform>=platform_superadmin",
		"./tenants/physics/roles.yaml":                         "roles.write@the platform>=platform_superadmin",
		"../tenants/physics/roles.yaml":                        "roles.write@the platform>=platform_superadmin",
		"/tenants/physics/roles.yaml":                          "roles.write@the platform>=platform_superadmin",
		`tenants\physics\roles.yaml`:                           "roles.write@the platform>=platform_superadmin",
		"tenants/physics/Roles.yaml":                           "roles.write@physics>=tenant_owner",
		"tenants/physics/roles.yml":                            "roles.write@physics>=tenant_owner",
		"tenants/physics/x\ny.yaml":                            "roles.write@physics>=tenant_owner",
		"tenants/physics/Projects/lattice/roles.yaml":          "roles.write@physics>=tenant_owner",
		"tenants/physics/projects/lattice":                     "roles.write@physics>=tenant_owner",
		"tenants/physics/projects/Lattice/roles.yaml":          "roles.write@physics>=tenant_owner",
		"tenants/physics/projects/lattice/instances/x.yml":     "roles.write@physics.lattice>=project_owner",
		"tenants/physics/projects/lattice/Instances/x.yaml":    "roles.write@physics.lattice>=project_owner",
		"tenants/physics/projects/lattice/x/README.md/y":       "roles.write@physics.lattice>=project_owner",
		"tenants/physics/projects/lattice/instances/README.md": "notes.write@physics.lattice",
		"tenants/physics/.gitkeep":                             "notes.write@physics",
		"platform/README.md":                                   "notes.write@the platform",
	} {
		for _, c := range []schema.PathChange{change(path, none, now), change(path, old, none), change(path, old, now)} {
			needs := authority.Needs(w.Desired, w.Desired, schema.Key{}, c)
			require.Equal(t, want, strings.Join(short(needs), " "), "%q", path)
			for _, n := range needs {
				require.NotContains(t, n.Why, "\n")
			}
		}
	}
	// A key that differs from the path is ignored.
	for path, key := range map[string]schema.Key{
		"tenants/biology/roles.yaml":                             bindingKey("physics"),
		"tenants/physics/projects/lattice/instances/train.yaml":  schema.InstanceKey("physics", "qcd", "train"),
		"tenants/physics/projects/lattice/instances/train.yaml2": schema.InstanceKey("physics", "lattice", "train"),
		"tenants/physics/projects/qcd/instances/x.yaml":          {Kind: "Unheard", Tenant: "physics", Project: "qcd", Name: "x"},
		"tenants/physics/projects/qcd/artifacts/x.yaml":          {Kind: schema.KindArtifact, Tenant: "physics/projects/qcd", Name: "x"},
	} {
		needs := authority.Needs(w.Desired, w.Desired, key, change(path, none, now))
		require.Len(t, needs, 1)
		require.Equal(t, authority.RolesWrite, needs[0].Permission, path)
		require.NotEmpty(t, needs[0].AtLeast)
	}
}

// The platform founds a new tenant with all documents in the same change; nil is
// the estate before the first commit.
func TestOnlyPlatformFoundsTenants(t *testing.T) {
	next := campus().bind("physics", members("petra tenant_owner")...)
	base := campus()
	delete(base.Tenants, "physics")
	for _, b := range []*schema.Desired{nil, base.Desired} {
		for _, path := range []string{"tenants/physics/tenant.yaml", "tenants/physics/roles.yaml", "tenants/physics/odd",
			"tenants/physics/README.md"} {
			key := bindingKey("physics")
			if !strings.HasSuffix(path, "roles.yaml") {
				key = schema.Key{}
			}
			needs := authority.Needs(b, next.Desired, key, change(path, none, now))
			require.Equal(t, []string{"tenants.write@the platform"}, short(needs))
			require.Equal(t, "founds the tenant physics", needs[0].Why)
		}
	}
	r := authority.Rules{Administrators: []string{"Root"}}
	needs := authority.Needs(nil, next.Desired, bindingKey("physics"), change("tenants/physics/roles.yaml", none, now))
	d := authority.Decide(r, authority.Actor{Login: "root", Proof: authority.ProofPullRequest}, needs)[0]
	require.True(t, d.Allowed, "the first administrator has to break no glass to begin")
	require.False(t, d.BreakGlass)
	require.Equal(t, schema.Position{}, d.Source)
	// After its creation the tenant decides.
	needs = authority.Needs(next.Desired, next.Desired, bindingKey("physics"), change("tenants/physics/roles.yaml", old, now))
	require.Equal(t, []string{"roles.write@physics"}, short(needs))
	require.False(t, authority.Decide(r, authority.Actor{Login: "root", Proof: authority.ProofPullRequest}, needs)[0].Allowed)
	// The role platform_ops cannot found a tenant.
	base.bind("", members("otto platform_ops")...)
	needs = authority.Needs(base.Desired, next.Desired, bindingKey("physics"), change("tenants/physics/roles.yaml", none, now))
	require.False(t, authority.Decide(authority.Rules{Base: base.Desired},
		authority.Actor{Login: "otto", Proof: authority.ProofPullRequest, BreakGlass: "x"}, needs)[0].Allowed)
	// After its deletion the platform decides again.
	needs = authority.Needs(next.Desired, base.Desired, schema.Key{Kind: schema.KindTenant, Name: "physics"},
		change("tenants/physics/tenant.yaml", old, none))
	require.Equal(t, []string{"tenants.write@the platform"}, short(needs))
}

// What changes a scheduler in the catalogue, or an instance of one, needs the permission scheduler.* beside
// that of apps.*: neither is a way round the other. An app that is not known may be a scheduler.
func TestSchedulersNeedTheirPermissionsToo(t *testing.T) {
	train := schema.InstanceKey("physics", "lattice", "train")
	app := func(slug, category string) *schema.App {
		return &schema.App{Header: head(schema.Key{Kind: schema.KindApp, Name: slug}), Spec: schema.AppSpec{Category: category}}
	}
	estate := func(instance string) world {
		w := campus()
		w.Platform.Apps = map[string]*schema.App{"batch": app("batch", "scheduler"), "models": app("models", "serving")}
		if instance != "" {
			declare(w, train)
			w.Instance(train).Spec.App = instance
		}
		return w
	}
	for what, c := range map[string]struct {
		was, is string // app of the instance
		want    string
	}{
		"created":           {"", "batch", "apps.instance.create scheduler.instance.create"},
		"changed":           {"batch", "batch", "apps.instance.update scheduler.instance.update"},
		"deleted":           {"batch", "", "apps.instance.delete scheduler.instance.delete"},
		"of another app":    {"models", "models", "apps.instance.update"},
		"of an unknown app": {"", "nowhere", "apps.instance.create scheduler.instance.create"},
		"becomes a scheduler": {"models", "batch",
			"apps.instance.create apps.instance.delete apps.instance.update scheduler.instance.create scheduler.instance.delete " +
				"scheduler.instance.update"},
	} {
		from, to := old, now
		if c.was == "" {
			from = none
		}
		if c.is == "" {
			to = none
		}
		base, next := estate(c.was), estate(c.is)
		var want []string
		for p := range strings.FieldsSeq(c.want) {
			want = append(want, p+"@physics.lattice")
		}
		require.ElementsMatch(t, want, short(authority.Needs(base.Desired, next.Desired, train, change(pathOf(t, train), from, to))), what)
	}
	for slug, want := range map[string][]string{
		"batch": {"apps.catalog.write@platform", "scheduler.catalog.read@platform"}, "models": {"apps.catalog.write@platform"},
	} {
		w := estate("")
		key := schema.Key{Kind: schema.KindApp, Name: slug}
		for i, n := range short(authority.Needs(w.Desired, w.Desired, key, change(pathOf(t, key), old, now))) {
			require.Equal(t, want[i], strings.ReplaceAll(n, "the ", ""), slug)
		}
	}
}

// Each status of an entry needs its permission, to reach it and to leave it.
func TestStatusesNeedTheirPermission(t *testing.T) {
	version := schema.Key{Kind: schema.KindAppVersion, Parent: "notebooks", Name: "v1"}
	catalog := func(s schema.CatalogStatus) *schema.Desired {
		w := campus()
		if s != "" {
			w.Platform.Versions["notebooks"]["v1"] = &schema.AppVersion{Header: head(version), Spec: schema.AppVersionSpec{Status: s}}
		}
		return w.Desired
	}
	app := schema.Key{Kind: schema.KindApp, Name: "batch"}
	apps := func(s schema.CatalogStatus) *schema.Desired {
		w := campus()
		if s != "" {
			w.Platform.Apps["batch"] = &schema.App{Header: head(app), Spec: schema.AppSpec{Status: s}}
		}
		return w.Desired
	}
	artifact := schema.Key{Kind: schema.KindArtifact, Tenant: "physics", Project: "lattice", Name: "image"}
	artifacts := func(s schema.ArtifactStatus) *schema.Desired {
		w := campus()
		if s != "none" {
			w.Tenants["physics"].Projects["lattice"].Artifacts["image"] = &schema.Artifact{Header: head(artifact),
				Spec: schema.ArtifactSpec{Status: s}}
		}
		return w.Desired
	}
	blob := func(there bool, id string) string {
		if there {
			return id
		}
		return ""
	}
	permissions := func(needs []authority.Need) string {
		var ps []string
		for _, n := range needs {
			p := string(n.Permission)
			ps = append(ps, p[strings.LastIndexByte(p, '.')+1:])
		}
		return strings.Join(ps, " ")
	}
	for _, tc := range []struct {
		was, is schema.CatalogStatus
		want    string
	}{
		{"", "active", "publish write"}, {"", "deprecated", "deprecate write"}, {"", "disabled", "disable write"},
		{"active", "active", "publish write"}, {"active", "deprecated", "deprecate publish write"},
		{"active", "disabled", "disable publish write"},
		{"deprecated", "active", "deprecate publish write"}, {"disabled", "active", "disable publish write"},
		{"deprecated", "disabled", "deprecate disable write"},
		{"deprecated", "", "deprecate disable write"}, {"active", "", "disable publish write"},
	} {
		c := func(k schema.Key) schema.PathChange {
			return change(pathOf(t, k), blob(tc.was != "", old), blob(tc.is != "", now))
		}
		require.Equal(t, tc.want, permissions(authority.Needs(catalog(tc.was), catalog(tc.is), version, c(version))), "%s → %s", tc.was,
			tc.is)
		require.Equal(t, tc.want, permissions(authority.Needs(apps(tc.was), apps(tc.is), app, c(app))), "%s → %s", tc.was, tc.is)
	}
	for _, tc := range []struct {
		was, is schema.ArtifactStatus
		want    string
	}{
		{"none", "", "publish"}, {"", "registered", "publish"}, {"none", "promoted", "promote publish"},
		{"registered", "promoted", "promote publish"}, {"promoted", "promoted", "promote publish"},
		{"promoted", "registered", "promote publish"},
		{"promoted", "deprecated", "deprecate promote publish"}, {"deprecated", "registered", "deprecate publish"},
		{"registered", "retired", "publish retire"}, {"retired", "promoted", "promote publish retire"},
		{"registered", "none", "publish retire"},
	} {
		c := change(pathOf(t, artifact), blob(tc.was != "none", old), blob(tc.is != "none", now))
		require.Equal(t, tc.want, permissions(authority.Needs(artifacts(tc.was), artifacts(tc.is), artifact, c)), "%s → %s", tc.was, tc.is)
	}
}

// A change that deletes in effect needs the delete permission: lifting the
// deletion protection, and replacing a document by another one.
func TestChangesThatDeleteNeedDelete(t *testing.T) {
	instance := schema.InstanceKey("physics", "lattice", "train")
	runtime := schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "cluster"}
	for what, tc := range map[string]struct {
		was, is schema.InstanceSpec
		uid     string
		suspend bool
		want    []string
	}{
		"protected":   {is: schema.InstanceSpec{DeletionProtection: true}, want: []string{"update"}},
		"unprotected": {was: schema.InstanceSpec{DeletionProtection: true}, want: []string{"update", "delete"}},
		"another app": {was: schema.InstanceSpec{App: "models"}, is: schema.InstanceSpec{App: "notebooks"},
			want: []string{"create", "update", "delete"}},
		"another uid": {uid: "b", want: []string{"create", "update", "delete"}},
		"suspended":   {suspend: true, want: []string{"update"}},
		"stopped":     {is: schema.InstanceSpec{DesiredState: schema.DesiredStopped}, want: []string{"update"}},
	} {
		base, next := campus(), campus()
		declare(base, instance)
		declare(next, instance)
		b, n := base.Instance(instance), next.Instance(instance)
		b.Spec, n.Spec, n.UID, n.Suspend = tc.was, tc.is, tc.uid, tc.suspend
		declare(base, runtime)
		declare(next, runtime)
		rb, rn := base.SharedRuntime("physics", "cluster").Runtime, next.SharedRuntime("physics", "cluster").Runtime
		rb.Spec.App, rn.Spec.App, rn.UID, rn.Suspend = tc.was.App, tc.is.App, tc.uid, tc.suspend
		rb.Spec.DeletionProtection, rn.Spec.DeletionProtection = tc.was.DeletionProtection, tc.is.DeletionProtection
		rb.Spec.DesiredState, rn.Spec.DesiredState = tc.was.DesiredState, tc.is.DesiredState
		var wantInstance, wantRuntime []string
		for _, w := range tc.want {
			wantInstance = append(wantInstance, "apps.instance."+w+"@physics.lattice")
			wantRuntime = append(wantRuntime, "shared_runtimes."+w+"@physics")
		}
		require.ElementsMatch(t, wantInstance,
			short(authority.Needs(base.Desired, next.Desired, instance, change(pathOf(t, instance), old, now))), what)
		require.ElementsMatch(t, wantRuntime,
			short(authority.Needs(base.Desired, next.Desired, runtime, change(pathOf(t, runtime), old, now))), what)
	}
}

// A project's owner may change its description. The tenant decides about its
// existence, its suspension and its identity.
func TestProjectDescriptionIsTheProjects(t *testing.T) {
	key := schema.Key{Kind: schema.KindProject, Tenant: "physics", Name: "lattice"}
	for what, tc := range map[string]struct {
		edit func(*schema.Project)
		want string
	}{
		"renamed":   {func(p *schema.Project) { p.Spec.DisplayName = "x" }, "projects.write@physics.lattice"},
		"suspended": {func(p *schema.Project) { p.Suspend = true }, "projects.write@physics"},
		"uid":       {func(p *schema.Project) { p.UID = "x" }, "projects.write@physics"},
	} {
		next := campus()
		tc.edit(next.Tenants["physics"].Projects["lattice"].Project)
		require.Equal(t, []string{tc.want}, short(authority.Needs(campus().Desired, next.Desired, key, change(pathOf(t, key), old, now))),
			what)
	}
}

// An attachment needs a permission of the runtime's owner, and of no attached
// project.
func TestAttachmentsNeedTheRuntimesOwner(t *testing.T) {
	key := schema.Key{Kind: schema.KindAttachment, Tenant: "physics", Parent: "cluster", Name: "a"}
	with := func(project string, list ...string) *schema.Desired {
		w := campus()
		s := w.Tenants["physics"].SharedRuntimes["cluster"]
		s.Runtime = &schema.SharedRuntime{Header: head(schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "cluster"}),
			Spec: schema.SharedRuntimeSpec{AttachedProjectIDs: list}}
		if project != "" {
			s.Attachments["a"] = &schema.Attachment{Header: head(key), Spec: schema.AttachmentSpec{ProjectID: project}}
		}
		return w.Desired
	}
	attachment := func(base, next *schema.Desired, from, to string) []string {
		return short(authority.Needs(base, next, key, change(pathOf(t, key), from, to)))
	}
	require.Equal(t, []string{"shared_runtimes.attach@physics"}, attachment(with("physics.lattice"), with("physics.lattice"), old, now),
		"the terms")
	require.Equal(t, []string{"shared_runtimes.attach@physics", "shared_runtimes.detach@physics"},
		attachment(with("physics.lattice"), with("physics.qcd"), old, now))
	require.Equal(t, []string{"shared_runtimes.attach@physics", "shared_runtimes.attach@biology"},
		attachment(with(""), with("biology.genomes"), none, now))
	require.Equal(t, []string{"shared_runtimes.detach@physics"}, attachment(with("biology.genomes"), with(""), old, none))

	runtime := schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "cluster"}
	list := func(base, next *schema.Desired) []string {
		return short(authority.Needs(base, next, runtime, change(pathOf(t, runtime), old, now)))
	}
	require.Equal(t, []string{"shared_runtimes.attach@physics", "shared_runtimes.update@physics"}, list(with(""), with("", "physics.qcd")))
	require.Equal(t, []string{"shared_runtimes.detach@physics", "shared_runtimes.update@physics"}, list(with("", "physics.qcd"), with("")))
	require.Equal(t, []string{"shared_runtimes.attach@physics", "shared_runtimes.update@physics", "shared_runtimes.attach@biology"},
		list(with(""), with("", "biology.genomes", "biology.genomes")))
	// The platform's shared runtimes serve all tenants.
	common := schema.Key{Kind: schema.KindAttachment, Parent: "common", Name: "a"}
	w := campus()
	w.Platform.SharedRuntimes["common"].Attachments["a"] = &schema.Attachment{Header: head(common),
		Spec: schema.AttachmentSpec{ProjectID: "biology.genomes"}}
	require.Equal(t, []string{"shared_runtimes.attach@the platform"},
		short(authority.Needs(campus().Desired, w.Desired, common, change(pathOf(t, common), none, now))))
}

// A move is a deletion and a creation, and needs permission at both ends: kinds ×
// users with permission at each end (threat 2).
func TestMovesNeedPermissionAtBothEnds(t *testing.T) {
	kinds := []schema.Kind{schema.KindInstance, schema.KindEntitlement, schema.KindServiceAccount, schema.KindArtifact,
		schema.KindContribution}
	for _, kind := range kinds {
		for to, pairs := range map[string]map[string][2]string{
			"physics.qcd": {
				"both": {"project_admin", "project_admin"}, "here only": {"project_admin", ""},
				"there only": {"", "project_admin"}, "neither": {"", ""}, "viewer there": {"project_admin", "project_viewer"},
			},
			"biology.genomes": {
				"both": {"project_admin", "project_admin"}, "here only": {"project_owner", ""},
				"there only": {"", "project_owner"}, "neither": {"", ""}, "viewer here": {"project_viewer", "project_owner"},
			},
		} {
			for pair, roles := range pairs {
				here := schema.Key{Kind: kind, Tenant: "physics", Project: "lattice", Name: "x"}
				there := here
				there.Tenant, there.Project, _ = strings.Cut(to, ".")
				base, next := campus(), campus()
				declare(base, here)
				declare(next, there)
				for i, place := range []string{"physics.lattice", to} {
					if roles[i] != "" {
						base.bind(place, members("anna "+roles[i])...)
					}
				}
				needs := append(authority.Needs(base.Desired, next.Desired, here, change(pathOf(t, here), old, none)),
					authority.Needs(base.Desired, next.Desired, there, change(pathOf(t, there), none, old))...)
				allowed := true
				for _, d := range authority.Decide(authority.Rules{Base: base.Desired},
					authority.Actor{Login: "anna", Proof: authority.ProofPullRequest}, needs) {
					allowed = allowed && d.Allowed
				}
				require.Equal(t, pair == "both", allowed, "%s to %s: %s", kind, to, pair)
			}
		}
	}
}

// The rules are those of the base. A user who adds a role or lifts a policy gains
// nothing in the same commit (threat 3).
func TestBaseDecides(t *testing.T) {
	instance := schema.InstanceKey("physics", "lattice", "train")
	base := campus().bind("physics.lattice", members("mallory project_viewer", "anna project_owner")...)
	next := campus().bind("physics.lattice", members("mallory project_owner", "anna project_owner")...)
	declare(next, instance)
	r := authority.Rules{Base: base.Desired}
	mallory := authority.Actor{Login: "mallory", Proof: authority.ProofPullRequest}
	for key, from := range map[schema.Key]string{instance: none, bindingKey("physics.lattice"): old} {
		for _, d := range authority.Decide(r, mallory,
			authority.Needs(base.Desired, next.Desired, key, change(pathOf(t, key), from, now))) {
			require.False(t, d.Allowed)
			require.Contains(t, d.Next, "anna")
		}
	}
}

// To accept a loss needs a permission of its own; a document that was, or becomes, another operation needs both.
func TestAcceptingALossHasItsPermission(t *testing.T) {
	key := schema.Key{Kind: schema.KindMemberOperation, Tenant: "physics", Project: "lattice", Name: "x"}
	with := func(operation string) *schema.Desired {
		w := campus()
		declare(w, key)
		w.Desired.Document(key).(*schema.MemberOperation).Spec.Operation = operation
		return w.Desired
	}
	const both = "apps.instance.member.operate@physics.lattice apps.instance.loss.accept@physics.lattice"
	for _, c := range []struct {
		before, after *schema.Desired
		from          string
		want          string
	}{
		{campus().Desired, with(schema.OpAccept), none, "apps.instance.loss.accept@physics.lattice"},
		{campus().Desired, with(schema.OpAbandonUsage), none, "apps.instance.loss.accept@physics.lattice"},
		{with(schema.OpAbandonUsage), with(schema.OpAccept), old, "apps.instance.loss.accept@physics.lattice"},
		{with(schema.OpRestart), with(schema.OpAccept), old, both},
		{with(schema.OpAccept), with(schema.OpRestart), old, both},
	} {
		needs := authority.Needs(c.before, c.after, key, change(pathOf(t, key), c.from, now))
		require.ElementsMatch(t, strings.Split(c.want, " "), short(needs))
	}
}

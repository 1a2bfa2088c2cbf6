package authority_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/authority"
)

// requiring declares an App that requires what r says, with its lines.
func (w world) requiring(name string, r schema.AppRequires) world {
	app := &schema.App{Header: head(schema.Key{Kind: schema.KindApp, Name: name}), Spec: schema.AppSpec{Requires: r}}
	app.Fields = []schema.FieldPos{{Path: "spec.requires.endpoints", Line: 21, Column: 7},
		{Path: "spec.requires.permissions", Line: 20, Column: 7}}
	w.Platform.Apps[name] = app
	return w
}

// operates declares a unit of app that the account ci of a place operates.
func (w world) operates(place, unit, app string) {
	k := bindingKey(place)
	if k.Project == "" {
		rt := &schema.SharedRuntime{Header: head(schema.Key{Kind: schema.KindSharedRuntime, Tenant: k.Tenant, Name: unit})}
		rt.Spec = schema.SharedRuntimeSpec{App: app, OperatorIdentityRef: "ci"}
		w.Tenants[k.Tenant].SharedRuntimes[unit] = &schema.SharedRuntimeEstate{Name: unit, Runtime: rt}
		return
	}
	i := &schema.Instance{Header: head(schema.InstanceKey(k.Tenant, k.Project, unit)),
		Spec: schema.InstanceSpec{App: app, OperatorServiceAccount: "ci"}}
	w.Tenants[k.Tenant].Projects[k.Project].Instances[unit] = i
}

// A unit of a tenant's own app is bound by that app, not by one of the platform with its slug.
func TestOwnAppsBoundServiceAccounts(t *testing.T) {
	w := campus().bind("physics.lattice", members("anna project_owner", "ci service_account")...)
	a := authority.Actor{ServiceAccount: w.account("physics.lattice", "apps.instance.read"), Proof: authority.ProofToken}
	w.requiring("one", schema.AppRequires{}).operates("physics.lattice", "unit", "one")
	read := authority.Need{Permission: authority.InstanceRead, Scope: lattice}
	rules := authority.Rules{Base: w.Desired}
	require.True(t, authority.May(rules, a, read.Permission, read.Scope).Allowed)
	app := &schema.App{Header: head(schema.Key{Kind: schema.KindApp, Tenant: "physics", Name: "one"}),
		Spec: schema.AppSpec{Requires: schema.AppRequires{Permissions: []string{}}}}
	w.Tenants["physics"].Put(app)
	d := authority.May(rules, a, read.Permission, read.Scope)
	require.False(t, d.Allowed)
	require.Equal(t, app.File, d.Source.File)
	require.Contains(t, d.Message(), "ask a user with apps.catalog.propose to add it")
}

// Requirement B5: a service account has at most what the Apps of the units that it
// operates require. A list that an App does not declare sets no bound, and no App gives
// anything.
func TestAppsBoundServiceAccounts(t *testing.T) {
	read := authority.Need{Permission: authority.InstanceRead, Scope: lattice}
	operate := authority.Need{Permission: authority.MemberOperate, Scope: lattice}
	both := []string{"apps.instance.read", "apps.instance.member.operate"}
	for name, tc := range map[string]struct {
		apps          map[string]schema.AppRequires // each with an instance that the account operates
		read, operate bool
	}{
		"no App":                    {nil, true, true},
		"one that declares nothing": {map[string]schema.AppRequires{"one": {}}, true, true},
		"both": {map[string]schema.AppRequires{"one": {Permissions: both, Endpoints: []string{endpoint}}}, true,
			true},
		"only reading":   {map[string]schema.AppRequires{"one": {Permissions: both[:1]}}, true, false},
		"nothing at all": {map[string]schema.AppRequires{"one": {Permissions: []string{}}}, false, false},
		"more than its scopes": {map[string]schema.AppRequires{"one": {Permissions: append(both, "apps.instance.create")}},
			true, true},
		"no endpoint": {map[string]schema.AppRequires{"one": {Permissions: both, Endpoints: []string{}}}, false,
			false},
		"another endpoint": {map[string]schema.AppRequires{"one": {Endpoints: []string{"GET /api/v1/apps/catalog"}}}, false,
			false},
		"two: the narrower": {map[string]schema.AppRequires{"one": {Permissions: both}, "two": {Permissions: both[:1]}},
			true, false},
		"two: one that declares no bound": {map[string]schema.AppRequires{"one": {}, "two": {Permissions: both[:1]}}, true, false},
		"two that have nothing in common": {map[string]schema.AppRequires{"one": {Permissions: both[1:]}, "two": {Permissions: both[:1]}},
			false, false},
		"endpoints of one, actions of two": {map[string]schema.AppRequires{"one": {Endpoints: []string{endpoint}},
			"two": {Permissions: both}}, true, true},
	} {
		w := campus().bind("physics.lattice", members("anna project_owner", "ci service_account")...)
		a := authority.Actor{ServiceAccount: w.account("physics.lattice", both...), Proof: authority.ProofToken, Endpoint: endpoint}
		for app, requires := range tc.apps {
			w.requiring(app, requires).operates("physics.lattice", app, app)
		}
		require.Equal(t, tc.read, one(w, a, read).Allowed, name)
		require.Equal(t, tc.operate, one(w, a, operate).Allowed, name)
		require.False(t, one(w, a, authority.Need{Permission: authority.InstanceCreate, Scope: lattice}).Allowed,
			"%s: no App gives a permission", name)
		require.True(t, one(w, authority.Actor{Login: "anna", Proof: authority.ProofPullRequest}, operate).Allowed,
			"%s: it bounds no person", name)
	}

	// The denial has the rule, the App's line and the next step, through Git and the API.
	w := campus().bind("physics.lattice", members("ci service_account")...)
	a := authority.Actor{ServiceAccount: w.account("physics.lattice", both...), Proof: authority.ProofSignature}
	w.requiring("one", schema.AppRequires{Permissions: both[:1], Endpoints: []string{}}).operates("physics.lattice", "train", "one")
	d := one(w, a, operate)
	require.Equal(t, "app_requires", d.Rule)
	require.Equal(t, schema.Position{File: "platform/catalog/one/app.yaml", Line: 20, Column: 7}, d.Source)
	require.Equal(t, "ServiceAccount physics.lattice/ci operates units of the app one, which does not require "+
		"apps.instance.member.operate: use another account, or ask a user with apps.catalog.write to add it to requires.permissions in "+
		"platform/catalog/one/app.yaml", d.Message())
	require.True(t, one(w, a, read).Allowed, "Git has no endpoints")
	a.Proof, a.Endpoint = authority.ProofToken, endpoint
	d = one(w, a, read)
	require.Equal(t, 21, d.Source.Line)
	again, beyond := authority.BeyondApps(authority.Rules{Base: w.Desired}, a.ServiceAccount, endpoint)
	require.True(t, beyond)
	require.Equal(t, d.Message(), again.Message())

	// Another account of the project is not bound by it.
	w.Tenants["physics"].Projects["lattice"].Instances["train"].Spec.OperatorServiceAccount = "other"
	require.True(t, one(w, a, read).Allowed)
	_, beyond = authority.BeyondApps(authority.Rules{Base: w.Desired}, a.ServiceAccount, endpoint)
	require.False(t, beyond)
}

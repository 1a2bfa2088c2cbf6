package authority_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/authority"
)

// Requirement D3, as TSR divides it: actions of a shared runtime's owner need a
// role in its tenant, actions of a consumer a role in the project. The operator
// identity is a service account of the tenant, never of a project.
func TestSharedRuntimeAuthorisationIsSplit(t *testing.T) {
	runtime := schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "cluster"}
	attachment := schema.Key{Kind: schema.KindAttachment, Tenant: "physics", Parent: "cluster", Name: "lattice"}
	operation := schema.Key{Kind: schema.KindMemberOperation, Tenant: "physics", Parent: "cluster", Name: "drain"}
	contribution := schema.Key{Kind: schema.KindContribution, Tenant: "physics", Project: "lattice", Name: "nodes"}

	// who is a person with one role and nothing else.
	type who struct{ login, place, role string }
	var (
		platformOps   = who{"otto", "", "platform_ops"}
		tenantOwner   = who{"petra", "physics", "tenant_owner"}
		tenantAdmin   = who{"paul", "physics", "tenant_admin"}
		otherOwner    = who{"boris", "biology", "tenant_owner"}
		projectOwner  = who{"olga", "physics.lattice", "project_owner"}
		projectAdmin  = who{"anna", "physics.lattice", "project_admin"}
		member        = who{"ben", "physics.lattice", "project_member"}
		otherProject  = who{"quentin", "physics.qcd", "project_owner"}
		tenantAccount = who{"ci", "physics", "service_account"}
		account       = who{"ci", "physics.lattice", "service_account"}
		all           = []who{platformOps, tenantOwner, tenantAdmin, otherOwner, projectOwner, projectAdmin, member, otherProject,
			tenantAccount, account}
	)
	build := func(w who) (world, authority.Actor) {
		base := campus()
		declare(base, attachment)
		base.Tenants["physics"].SharedRuntimes["cluster"].Attachments["lattice"].Spec.ProjectID = "physics.lattice"
		base.bind(w.place, members(w.login+" "+w.role)...)
		actor := authority.Actor{Login: w.login, Proof: authority.ProofPullRequest}
		if w.role == "service_account" {
			scopes := []string{"shared_runtimes.read", "shared_runtimes.create", "shared_runtimes.update", "shared_runtimes.delete",
				"shared_runtimes.attach", "shared_runtimes.detach", "shared_runtimes.member.operate", "contributions.write"}
			actor = authority.Actor{ServiceAccount: base.account(w.place, scopes...), Proof: authority.ProofSignature}
		}
		return base, actor
	}

	for action, c := range map[string]struct {
		needs   func(base world) []authority.Need
		allowed []who
	}{
		"create a shared runtime": {func(world) []authority.Need {
			next := campus()
			declare(next, runtime)
			return authority.Needs(campus().Desired, next.Desired, runtime, change(pathOf(t, runtime), none, now))
		}, []who{tenantOwner, tenantAdmin}},
		"delete a shared runtime": {func(world) []authority.Need {
			base := campus()
			declare(base, runtime)
			return authority.Needs(base.Desired, campus().Desired, runtime, change(pathOf(t, runtime), old, none))
		}, []who{tenantOwner, tenantAdmin}},
		"attach a project": {func(base world) []authority.Need {
			return authority.Needs(campus().Desired, base.Desired, attachment, change(pathOf(t, attachment), none, now))
		}, []who{tenantOwner, tenantAdmin}},
		"detach a project": {func(base world) []authority.Need {
			return authority.Needs(base.Desired, campus().Desired, attachment, change(pathOf(t, attachment), old, none))
		}, []who{tenantOwner, tenantAdmin}},
		"change the terms": {func(base world) []authority.Need {
			next := campus()
			declare(next, attachment)
			next.Tenants["physics"].SharedRuntimes["cluster"].Attachments["lattice"].Spec = schema.AttachmentSpec{ProjectID: "physics.lattice", BillingPolicyRef: "x"}
			return authority.Needs(base.Desired, next.Desired, attachment, change(pathOf(t, attachment), old, now))
		}, []who{tenantOwner, tenantAdmin}},
		"contribute the project's nodes": {func(base world) []authority.Need {
			next, _ := build(tenantOwner)
			declare(next, contribution)
			return authority.Needs(base.Desired, next.Desired, contribution, change(pathOf(t, contribution), none, now))
		}, []who{tenantOwner, tenantAdmin, projectOwner, projectAdmin}},
		"operate the runtime's members": {func(base world) []authority.Need {
			next, _ := build(tenantOwner)
			declare(next, operation)
			return authority.Needs(base.Desired, next.Desired, operation, change(pathOf(t, operation), none, now))
		}, []who{tenantOwner, tenantAdmin, tenantAccount}},
		"see it in the project": {func(world) []authority.Need {
			return []authority.Need{{Permission: authority.SharedRuntimeRead, Scope: lattice}}
		}, []who{tenantOwner, tenantAdmin, projectOwner, projectAdmin, member, account}},
		"see it in the tenant": {func(world) []authority.Need {
			return []authority.Need{{Permission: authority.SharedRuntimeRead, Scope: authority.Scope{Tenant: "physics"}}}
		}, []who{tenantOwner, tenantAdmin, tenantAccount}},
	} {
		for _, somebody := range all {
			base, actor := build(somebody)
			needs := c.needs(base)
			require.NotEmpty(t, needs, action)
			allowed := true
			for _, d := range authority.Decide(authority.Rules{Base: base.Desired}, actor, needs) {
				allowed = allowed && d.Allowed
			}
			want := false
			for _, a := range c.allowed {
				want = want || a == somebody
			}
			require.Equal(t, want, allowed, "%s: %s in %q, %v", action, somebody.role, somebody.place, short(needs))
		}
	}
}

// The App of a shared runtime bounds the tenant's account that operates it. It gives the
// owner's actions to no account, and a project's account never operates a shared runtime,
// whatever the App requires and whatever name the account has (requirements B5, D3).
func TestAppsBoundTheOperatorOfASharedRuntime(t *testing.T) {
	owner := []string{"shared_runtimes.create", "shared_runtimes.update", "shared_runtimes.delete", "shared_runtimes.attach",
		"shared_runtimes.detach"}
	operator := []string{"shared_runtimes.read", "shared_runtimes.member.operate"}
	all := append(append([]string{"contributions.write"}, owner...), operator...)
	tenant := authority.Scope{Tenant: "physics"}
	has := func(requires schema.AppRequires, place string) (scopes []string) {
		w := campus().bind("physics", members("ci service_account")...).bind("physics.lattice", members("ci service_account")...)
		w.requiring("batch", requires).operates("physics", "cluster", "batch")
		a := authority.Actor{ServiceAccount: w.account(place, all...), Proof: authority.ProofSignature}
		for _, p := range all {
			if one(w, a, authority.Need{Permission: authority.Permission(p), Scope: tenant}).Allowed {
				scopes = append(scopes, p)
			}
		}
		return scopes
	}
	require.Equal(t, operator, has(schema.AppRequires{}, "physics"))
	require.Equal(t, operator, has(schema.AppRequires{Permissions: all}, "physics"))
	require.Equal(t, operator[:1],
		has(schema.AppRequires{Permissions: []string{"shared_runtimes.read", "shared_runtimes.delete"}}, "physics"))
	require.Empty(t, has(schema.AppRequires{Permissions: []string{}}, "physics"))
	for _, requires := range []schema.AppRequires{{}, {Permissions: all}} {
		require.Empty(t, has(requires, "physics.lattice"))
	}

	// The runtime's App does not bound the account of the same name of a project.
	w := campus().bind("physics.lattice", members("ci service_account")...)
	w.requiring("batch", schema.AppRequires{Permissions: []string{}}).operates("physics", "cluster", "batch")
	a := authority.Actor{ServiceAccount: w.account("physics.lattice", "shared_runtimes.read"), Proof: authority.ProofSignature}
	require.True(t, one(w, a, authority.Need{Permission: authority.SharedRuntimeRead, Scope: lattice}).Allowed)
}

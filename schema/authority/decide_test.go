package authority_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/authority"
)

var lattice = authority.Scope{Tenant: "physics", Project: "lattice"}

func one(w world, a authority.Actor, n authority.Need) authority.Decision {
	return authority.Decide(authority.Rules{Base: w.Desired}, a, []authority.Need{n})[0]
}

func author(login string, approvers ...string) authority.Actor {
	return authority.Actor{Login: login, Approvers: approvers, Proof: authority.ProofPullRequest}
}

// A decision has its reason and the next step, in one line.
func TestDecisionNamesReasonAndNextStep(t *testing.T) {
	w := campus().
		bind("", members("Olga platform_superadmin", "otto platform_ops")...).
		bind("physics", members("petra tenant_owner")...).
		bind("physics.lattice", members("zoe project_admin", "Anna project_admin", "ben project_owner", "carl project_member")...)
	del := authority.Need{Permission: authority.InstanceDelete, Scope: lattice}
	breaking := author("OLGA")
	breaking.BreakGlass = "node\non fire"
	signed := authority.Actor{Login: "anna", Proof: authority.ProofSignature, SigningKey: "ssh-ed25519 AAAA"}
	const lacks = " lacks apps.instance.delete in physics.lattice: ask Anna or ben or petra"
	for want, d := range map[string]authority.Decision{
		"anna is project_admin in physics.lattice": one(w, author("anna"), del),
		"carl" + lacks:               one(w, author("carl"), del),
		"\"mallory\\n@all\"" + lacks: one(w, author("mallory\n@all"), del),
		"Olga has apps.instance.delete in physics.lattice only as break-glass access: add the trailer `Break-Glass: reason` to the " +
			"commit, which is shown and audited, or ask Anna or ben or petra": one(w, author("Olga"), del),
		"OLGA used break-glass access as platform_superadmin; reason: \"node\\non fire\"": one(w, breaking, del),
		"carl lacks nodes.write in the platform: ask Olga or otto": one(w, author("carl"),
			authority.Need{Permission: authority.NodesWrite}),
		"zoe lacks roles.write in physics.lattice as project_owner or above: ask ben or petra": one(w, author("zoe"),
			authority.Need{Permission: authority.RolesWrite, Scope: lattice, AtLeast: "project_owner"}),
		"petra lacks policy.write in biology: ask an administrator of the platform, as no other user has it there": one(w, author("petra"),
			authority.Need{Permission: authority.PolicyWrite, Scope: authority.Scope{Tenant: "biology"}}),
		"the author is unknown: open a pull request, or sign the commit with a key that a role binding names": one(w, authority.Actor{},
			del),
		"there is no permission \"apps.*\"": one(w, author("Olga"), authority.Need{Permission: "apps.*"}),
		"the key that signed the commit is unknown: sign it with a key that a role binding names": one(w,
			authority.Actor{Login: "anna", Proof: authority.ProofSignature}, del),
		"the role binding of anna does not name the key that signed the commit: add the key to signing_keys there, or ask ben or petra " +
			"or zoe": one(w, signed, del),
	} {
		require.Equal(t, want, d.Message())
		require.NotContains(t, d.Message(), "\n")
	}
	long := one(w, author(strings.Repeat("x", 5000)), del)
	require.Less(t, len(long.Reason), 500, "no reason grows with its input")
	breaking.BreakGlass = strings.Repeat("y", 1<<20)
	require.Less(t, len(one(w, breaking, del).Reason), 500)
}

// A decision uses break-glass access only if nobody involved has the permission
// without it.
func TestBreakGlassIsTheLastResort(t *testing.T) {
	w := campus().bind("", members("olga platform_superadmin")...).bind("physics", members("petra tenant_owner", "olga project_viewer")...)
	need := authority.Need{Permission: authority.InstanceDelete, Scope: lattice}
	a := author("olga", "petra")
	a.BreakGlass = "hurry"
	d := one(w, a, need)
	require.True(t, d.Allowed)
	require.False(t, d.BreakGlass)
	require.Equal(t, "petra", d.By)
	a.Approvers = nil
	d = one(w, a, need)
	require.True(t, d.Allowed && d.BreakGlass)
	require.Equal(t, "platform_superadmin", d.Role)
	w.bind("physics.lattice", members("olga project_admin")...)
	d = one(w, a, need)
	require.True(t, d.Allowed && !d.BreakGlass)
	// Of two users with break-glass access, the decision names the author.
	w = campus().bind("", members("olga platform_superadmin", "otto platform_ops")...)
	a.Approvers = []string{"otto"}
	require.Equal(t, "olga", one(w, a, need).By)
	// An administrator of berth.yaml is a superadmin, with the same break-glass access.
	r := authority.Rules{Base: campus().Desired, Administrators: []string{"Root"}}
	require.False(t, authority.May(r, author("root"), need.Permission, lattice).Allowed)
	a = author("root")
	a.BreakGlass = "hurry"
	d = authority.May(r, a, need.Permission, lattice)
	require.True(t, d.Allowed && d.BreakGlass)
	require.Equal(t, schema.Position{}, d.Source)
	require.True(t, authority.May(r, author("ROOT"), authority.RolesWrite, authority.Scope{}).Allowed)
	require.True(t, authority.May(authority.Rules{Administrators: []string{"root"}}, author("root"), authority.NodesWrite,
		authority.Scope{}).Allowed)
}

// Logins are compared as GitHub does, in ASCII: no letter of another alphabet
// folds into an ASCII letter.
func TestLoginsAreComparedInASCII(t *testing.T) {
	w := campus().bind("physics.lattice", members("Kirsten-S project_admin")...)
	for login, want := range map[string]bool{"kirsten-s": true, "KIRSTEN-S": true, "\u212Airsten-s": false, "kirsten-\u017f": false,
		"kirsten": false, "": false, "kirsten-s ": false} {
		require.Equal(t, want, one(w, author(login), authority.Need{Permission: authority.InstanceRead, Scope: lattice}).Allowed, "%q",
			login)
	}
}

// A suspended binding gives no role and proves no key. A role that its binding may
// not give has no effect.
func TestSuspendedBindingsGiveNothing(t *testing.T) {
	for _, place := range []string{"", "physics", "physics.lattice"} {
		role := map[string]string{"": "platform_superadmin", "physics": "tenant_owner", "physics.lattice": "project_owner"}[place]
		w := campus().bind(place, members("anna "+role)...)
		a := author("anna")
		a.BreakGlass = "x"
		need := authority.Need{Permission: authority.InstanceDelete, Scope: lattice}
		require.True(t, one(w, a, need).Allowed)
		w.binding(place).Suspend = true
		require.False(t, one(w, a, need).Allowed)
	}
	for place, role := range map[string]string{"": "tenant_owner", "physics": "platform_superadmin", "physics.lattice": "tenant_owner"} {
		require.False(t, one(campus().bind(place, members("anna "+role)...), author("anna"),
			authority.Need{Permission: authority.InstanceRead, Scope: lattice}).Allowed, "%s of %q", role, place)
	}
	person := schema.RoleMember{Login: "anna", Role: "service_account"}
	require.False(t, one(campus().bind("physics.lattice", person), author("anna"),
		authority.Need{Permission: authority.InstanceRead, Scope: lattice}).Allowed)
	w := campus().bind("physics.lattice", members("ci service_account")...)
	sa := w.account("physics.lattice", "apps.instance.read")
	actor := authority.Actor{ServiceAccount: sa, Proof: authority.ProofToken}
	need := authority.Need{Permission: authority.InstanceRead, Scope: lattice}
	require.True(t, one(w, actor, need).Allowed)
	w.binding("physics.lattice").Suspend = true
	require.Contains(t, one(w, actor, need).Reason, "has no role")
}

// A signature proves its login in the scope that names the key, and in the
// projects below. Elsewhere one tenant could sign for the people of another.
func TestKeyProvesOnlyWhereItIsNamed(t *testing.T) {
	const key = "ssh-ed25519 AAAAkey"
	all := map[string]string{"": "platform_superadmin", "physics": "tenant_owner", "physics.lattice": "project_owner",
		"physics.qcd": "project_owner", "biology": "tenant_owner"}
	scopes := map[string]authority.Scope{"": {}, "physics": {Tenant: "physics"}, "physics.lattice": lattice,
		"physics.qcd": {Tenant: "physics", Project: "qcd"}, "biology": {Tenant: "biology"}}
	for named, reach := range map[string][]string{
		"": {""}, "physics": {"physics", "physics.lattice", "physics.qcd"}, "physics.lattice": {"physics.lattice"}, "biology": {"biology"},
		"nowhere": {},
	} {
		w := campus()
		for place, role := range all {
			m := members("anna " + role)
			if place == named {
				m[0].SigningKeys = []string{"ssh-ed25519 AAAAother", key}
			}
			w.bind(place, m...)
		}
		for place, scope := range scopes {
			a := authority.Actor{Login: "Anna", Proof: authority.ProofSignature, SigningKey: key}
			d := one(w, a, authority.Need{Permission: authority.RolesWrite, Scope: scope})
			require.Equal(t, contains(reach, place), d.Allowed, "key of %q in %q: %s", named, place, d.Reason)
			if d.Allowed {
				require.False(t, d.BreakGlass)
			}
			// A pull request needs no key, even if other proof exists.
			a.Proof = authority.ProofPullRequest
			require.True(t, one(w, a, authority.Need{Permission: authority.RolesWrite, Scope: scope}).Allowed)
		}
	}
	// The key of another person in the same binding.
	m := members("anna tenant_owner", "ben project_viewer")
	m[1].SigningKeys = []string{key}
	w := campus().bind("physics", m...)
	require.False(t, one(w, authority.Actor{Login: "anna", Proof: authority.ProofSignature, SigningKey: key},
		authority.Need{Permission: authority.RolesWrite, Scope: lattice}).Allowed)
	// The key of an administrator, without an estate.
	r := authority.Rules{Administrators: []string{"root"}, AdministratorKeys: []string{key}}
	a := authority.Actor{Login: "root", Proof: authority.ProofSignature, SigningKey: key}
	require.True(t, authority.May(r, a, authority.TenantsWrite, authority.Scope{}).Allowed)
	r.AdministratorKeys = nil
	require.False(t, authority.May(r, a, authority.TenantsWrite, authority.Scope{}).Allowed)
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

// If a policy requires approval, a user with the permission other than the author
// must approve. This holds at the policy's own level too.
func TestRequiredApproval(t *testing.T) {
	build := func(place string) world {
		w := campus().bind("", members("olga platform_superadmin", "osku platform_superadmin")...).
			bind("physics", members("petra tenant_owner", "paul tenant_admin")...).
			bind("biology", members("boris tenant_owner", "bea tenant_owner")...).
			bind("physics.lattice", members("anna project_admin", "carl project_viewer", "ci service_account")...)
		p := &schema.Policy{Header: head(schema.Key{Kind: schema.KindPolicy, Tenant: place, Name: "policy"}),
			Spec: schema.PolicySpec{RequireApproval: true}}
		if place == "" {
			w.Platform.Policies["policy"] = p
			w.Platform.Policies["a"] = &schema.Policy{}
		} else {
			w.Tenants[place].Policy = p
		}
		return w
	}
	inLattice := authority.Need{Permission: authority.InstanceCreate, Scope: lattice}
	inPhysics := authority.Need{Permission: authority.PolicyWrite, Scope: authority.Scope{Tenant: "physics"}}
	inBiology := authority.Need{Permission: authority.PolicyWrite, Scope: authority.Scope{Tenant: "biology"}}
	atPlatform := authority.Need{Permission: authority.NodesWrite}
	for _, place := range []string{"", "physics"} {
		w := build(place)
		for _, n := range []struct {
			authority.Need
			author, other string
			asked         bool
		}{
			{inLattice, "anna", "paul", true}, {inPhysics, "petra", "paul", true},
			{inBiology, "boris", "bea", place == ""}, {atPlatform, "olga", "osku", place == ""},
		} {
			require.Equal(t, !n.asked, one(w, author(n.author), n.Need).Allowed, "alone")
			require.Equal(t, !n.asked, one(w, author(n.author, n.author, strings.ToUpper(n.author), ""), n.Need).Allowed, "by oneself")
			require.Equal(t, !n.asked, one(w, author(n.author, "carl", "nobody"), n.Need).Allowed, "by a user without the permission")
			d := one(w, author(n.author, "carl", n.other), n.Need)
			require.True(t, d.Allowed)
			if n.asked {
				require.Equal(t, n.other, d.By)
			}
			require.True(t, one(w, author("stranger", n.other), n.Need).Allowed, "the approver's right is enough")
			// Reading and calling are not changes.
			require.True(t, authority.May(authority.Rules{Base: w.Desired}, author(n.author), n.Permission, n.Scope).Allowed)
		}
		d := one(w, author("petra"), inPhysics)
		require.Contains(t, d.Message(), "requires the approval of another user than the author: ask paul")
		require.Contains(t, d.Message(), "policy.yaml")

		// Changes by signature and by a service account need approval too.
		account := w.account("physics.lattice", "apps.instance.create")
		for approvers, want := range map[string]bool{"": false, "anna": true} {
			a := authority.Actor{ServiceAccount: account, Proof: authority.ProofPullRequest, Approvers: []string{approvers}}
			require.Equal(t, want, one(w, a, inLattice).Allowed)
		}
		a := authority.Actor{Login: "anna", Approvers: []string{"paul"}, Proof: authority.ProofSignature, SigningKey: "k"}
		w.binding("physics.lattice").Spec.Members[0].SigningKeys = []string{"k"}
		require.False(t, one(w, a, inLattice).Allowed)

		// Break-glass access does not replace the approval.
		glass := author("olga")
		glass.BreakGlass = "x"
		require.False(t, one(w, glass, inLattice).Allowed)
		glass.Approvers = []string{"osku"}
		d = one(w, glass, inLattice)
		require.True(t, d.Allowed && d.BreakGlass)
		require.Equal(t, "olga", d.By)
		require.Equal(t, "olga used break-glass access as platform_superadmin, approved by osku; reason: \"x\"", d.Reason)

		// A suspended policy still requires approval.
		for _, p := range w.Platform.Policies {
			p.Suspend = true
		}
		if p := w.Tenants["physics"].Policy; p != nil {
			p.Suspend = true
		}
		require.False(t, one(w, author("anna"), inLattice).Allowed)
	}
}

// Only the author can use break-glass access. The approval of a platform user is
// an approval, and no request for break-glass access.
func TestApproverGetsNoBreakGlass(t *testing.T) {
	w := campus().bind("", members("olga platform_superadmin", "otto platform_ops")...).bind("physics", members("petra tenant_owner")...)
	need := authority.Need{Permission: authority.InstanceDelete, Scope: lattice}
	a := author("eve", "olga")
	for _, reason := range []string{"", "urgent"} {
		a.BreakGlass = reason
		d := one(w, a, need)
		require.False(t, d.Allowed || d.BreakGlass)
		require.Equal(t, "the approver olga has apps.instance.delete in physics.lattice only as break-glass access, which an approval "+
			"never gives: a platform administrator makes the change in a pull request of their own with the trailer `Break-Glass: "+
			"reason`, or ask petra", d.Message())
	}
	// Platform users may approve platform documents, like any user with the permission.
	d := one(w, a, authority.Need{Permission: authority.NodesWrite})
	require.True(t, d.Allowed)
	require.False(t, d.BreakGlass)
	require.Equal(t, "olga", d.By)
	// The record names the author, even if a platform user approves.
	a = author("otto", "olga")
	d = one(w, a, need)
	require.Contains(t, d.Message(), "only as break-glass access: add the trailer")
	a.BreakGlass = "urgent"
	require.Equal(t, "otto", one(w, a, need).By)
}

// If nobody can approve, a user with permission to write the policy can end its
// requirement, and nothing else. An administrator of berth.yaml can sign.
func TestRequiredApprovalWithoutApprovers(t *testing.T) {
	const key, other = "ssh-ed25519 AAAAroot", "ssh-ed25519 AAAApetra"
	physics := authority.Scope{Tenant: "physics"}
	policyKey := schema.Key{Kind: schema.KindPolicy, Tenant: "physics", Name: "policy"}
	build := func(names ...string) (world, authority.Rules) {
		ms := members(names...)
		ms[0].SigningKeys = []string{other}
		w := campus().bind("physics", ms...)
		w.Tenants["physics"].Policy = &schema.Policy{Header: head(policyKey), Spec: schema.PolicySpec{RequireApproval: true}}
		return w, authority.Rules{Base: w.Desired, Administrators: []string{"Root"}, AdministratorKeys: []string{key}}
	}
	ends := authority.Need{Permission: authority.PolicyWrite, Scope: physics, Key: policyKey, EndsApproval: true}
	keeps := authority.Need{Permission: authority.PolicyWrite, Scope: physics, Key: policyKey}
	del := authority.Need{Permission: authority.InstanceDelete, Scope: lattice}
	signed := authority.Actor{Login: "petra", Proof: authority.ProofSignature, SigningKey: other}
	ask := func(r authority.Rules, a authority.Actor, n authority.Need) authority.Decision {
		return authority.Decide(r, a, []authority.Need{n})[0]
	}

	// In a tenant's own repository, and without a forge.
	repository := func(w world, r authority.Rules) authority.Rules {
		w.Tenants["physics"].Tenant.Spec.Repository = &schema.TenantRepository{URL: "https://git.example/physics"}
		return r
	}
	noForge := func(_ world, r authority.Rules) authority.Rules {
		r.NoForge = true
		return r
	}
	for name, place := range map[string]func(world, authority.Rules) authority.Rules{"repository": repository, "no forge": noForge} {
		w, r := build("petra tenant_owner", "paul tenant_owner")
		require.False(t, ask(r, signed, ends).Allowed, "paul can approve a pull request")
		r = place(w, r)
		d := ask(r, signed, ends)
		require.True(t, d.Allowed, "%s: %s", name, d.Reason)
		require.False(t, d.BreakGlass)
		require.Equal(t, "petra", d.By)
		for _, n := range []authority.Need{keeps, del} {
			d := ask(r, signed, n)
			require.False(t, d.Allowed)
			require.Contains(t, d.Message(),
				"which a commit without a pull request cannot get: remove require_approval from the policy, or an administrator")
		}
		pull := author("petra")
		require.False(t, ask(r, pull, ends).Allowed, "a pull request can be approved wherever it is")
		stranger := signed
		stranger.SigningKey = "ssh-ed25519 AAAAeve"
		require.False(t, ask(r, stranger, ends).Allowed)
		// Two policies of one place do not protect each other.
		first, second := schema.Key{Kind: schema.KindPolicy, Name: "first"}, schema.Key{Kind: schema.KindPolicy, Name: "second"}
		for _, k := range []schema.Key{first, second} {
			w.Platform.Policies[k.Name] = &schema.Policy{Header: head(k), Spec: schema.PolicySpec{RequireApproval: true}}
		}
		root := authority.Actor{Login: "root", Proof: authority.ProofSignature, SigningKey: key}
		d = ask(r, root, authority.Need{Permission: authority.PolicyWrite, Key: first, EndsApproval: true})
		require.True(t, d.Allowed, d.Reason)
		clear(w.Platform.Policies)
		// A tenant cannot end the platform's policy.
		global := schema.Key{Kind: schema.KindPolicy, Name: "campus"}
		w.Platform.Policies["campus"] = &schema.Policy{Header: head(global), Spec: schema.PolicySpec{RequireApproval: true}}
		require.Contains(t, ask(r, signed, ends).Reason, "campus")
	}

	// The only user of a place, with a forge.
	_, r := build("petra tenant_owner", "anna tenant_admin")
	require.False(t, ask(r, author("petra"), ends).Allowed)
	_, r = build("petra tenant_owner")
	require.True(t, ask(r, author("petra"), ends).Allowed)
	require.False(t, ask(r, author("petra"), keeps).Allowed)
	require.False(t, ask(r, author("eve"), ends).Allowed)

	// An administrator of berth.yaml signs and gives a reason.
	w, r := build("petra tenant_owner", "paul tenant_owner")
	w.Platform.Policies["campus"] = &schema.Policy{Header: head(schema.Key{Kind: schema.KindPolicy, Name: "campus"}),
		Spec: schema.PolicySpec{RequireApproval: true}}
	root := authority.Actor{Login: "root", Proof: authority.ProofSignature, SigningKey: key, BreakGlass: "locked"}
	for _, n := range []authority.Need{keeps, del, {Permission: authority.NodesWrite}} {
		d := ask(r, root, n)
		require.True(t, d.Allowed && d.BreakGlass)
		require.Equal(t, `root used break-glass access as platform_superadmin, without the approval that Policy campus (platform/policy/campus.yaml) requires; reason: "locked"`, d.Reason)
		for what, change := range map[string]func(*authority.Actor, *authority.Rules){
			"no reason":           func(a *authority.Actor, _ *authority.Rules) { a.BreakGlass = "" },
			"a pull request":      func(a *authority.Actor, _ *authority.Rules) { a.Proof = authority.ProofPullRequest },
			"no administrator":    func(_ *authority.Actor, r *authority.Rules) { r.Administrators = []string{"other"} },
			"a key of a binding":  func(a *authority.Actor, _ *authority.Rules) { a.SigningKey = other },
			"a superadmin's only": func(_ *authority.Actor, r *authority.Rules) { r.AdministratorKeys = nil },
		} {
			// A superadmin by role binding is not an operator of Berth.
			a, r := root, r
			m := members("root platform_superadmin")
			m[0].SigningKeys = []string{key, other}
			w.bind("", m...)
			change(&a, &r)
			require.False(t, ask(r, a, n).Allowed, what)
		}
	}
}

// A service account has a permission only if its document, its project's binding,
// its scopes and the table agree, and only in its own scope.
func TestServiceAccountPermissions(t *testing.T) {
	build := func() (world, authority.Actor) {
		w := campus().bind("physics.lattice", members("anna project_owner", "ci service_account")...).
			bind("physics", members("ci service_account", "petra tenant_owner")...)
		sa := w.account("physics.lattice", "apps.instance.read", "apps.instance.member.operate", "apps.instance.delete", "nodes.write")
		return w, authority.Actor{ServiceAccount: sa, Proof: authority.ProofToken, Endpoint: endpoint}
	}
	need := authority.Need{Permission: authority.InstanceRead, Scope: lattice}
	w, a := build()
	d := one(w, a, need)
	require.True(t, d.Allowed, d.Reason)
	require.Equal(t, "ServiceAccount physics.lattice/ci", d.By)
	require.Equal(t, "service_account", d.Role)
	require.Equal(t, schema.Position{File: "tenants/physics/projects/lattice/roles.yaml", Line: 11, Column: 5}, d.Source)

	account := func(w world) *schema.ServiceAccount {
		return w.Tenants["physics"].Projects["lattice"].ServiceAccounts["ci"]
	}
	for what, tc := range map[string]struct {
		do     func(w world, a *authority.Actor, n *authority.Need)
		reason string
	}{
		"gone": {func(w world, a *authority.Actor, n *authority.Need) {
			delete(w.Tenants["physics"].Projects["lattice"].ServiceAccounts, "ci")
		}, "is not in force"},
		"another key": {func(w world, a *authority.Actor, n *authority.Need) { a.ServiceAccount.Name = "cd" }, "is not in force"},
		"no account": {func(w world, a *authority.Actor, n *authority.Need) { a.ServiceAccount = bindingKey("physics.lattice") },
			"is not in force"},
		"suspended": {func(w world, a *authority.Actor, n *authority.Need) { account(w).Suspend = true }, "is suspended"},
		"keyless":   {func(w world, a *authority.Actor, n *authority.Need) { account(w).Spec.PublicKeys = nil }, "has no key"},
		"unbound": {func(w world, a *authority.Actor, n *authority.Need) {
			w.bind("physics.lattice", members("ci project_owner")...)
		}, "has no role in physics.lattice"},
		"no binding": {func(w world, a *authority.Actor, n *authority.Need) {
			w.Tenants["physics"].Projects["lattice"].Roles = nil
		}, "has no role in physics.lattice"},
		"other project": {func(w world, a *authority.Actor, n *authority.Need) { n.Scope.Project = "qcd" },
			"acts in physics.lattice only, not in physics.qcd"},
		"its tenant": {func(w world, a *authority.Actor, n *authority.Need) { n.Scope.Project = "" }, "not in physics:"},
		"the platform": {func(w world, a *authority.Actor, n *authority.Need) {
			n.Permission, n.Scope = authority.NodesWrite, authority.Scope{}
		}, "not in the platform"},
		"no scope": {func(w world, a *authority.Actor, n *authority.Need) { n.Permission = authority.InstanceCreate },
			"does not have apps.instance.create in its scopes: add it"},
		"not for it": {func(w world, a *authority.Actor, n *authority.Need) { n.Permission = authority.InstanceDelete },
			"no service account can have: ask anna or petra"},
		"role above it": {func(w world, a *authority.Actor, n *authority.Need) { n.AtLeast = "project_owner" }, "no service account can"},
		"other endpoint": {func(w world, a *authority.Actor, n *authority.Need) { a.Endpoint = "GET /api/v1/x" },
			"may not call GET /api/v1/x: add that to allowed_endpoints"},
		"listed, no call": {func(w world, a *authority.Actor, n *authority.Need) {
			n.Permission, a.Endpoint = authority.MemberOperate, ""
		}, "may not call"},
	} {
		w, a := build()
		n := need
		tc.do(w, &a, &n)
		a.Login, a.BreakGlass = "anna", "x"
		d := one(w, a, n)
		require.False(t, d.Allowed, what)
		require.Contains(t, d.Message(), tc.reason, what)
	}
	// Git has no endpoints; the scopes decide.
	w, a = build()
	a.Proof, a.Endpoint = authority.ProofSignature, ""
	require.True(t, one(w, a, authority.Need{Permission: authority.MemberOperate, Scope: lattice}).Allowed)
	// A person may approve with a permission that the account lacks.
	a.Proof, a.Approvers = authority.ProofPullRequest, []string{"carl", "anna"}
	d = one(w, a, authority.Need{Permission: authority.InstanceDelete, Scope: lattice})
	require.Equal(t, "anna", d.By)
	a.Approvers = []string{"carl"}
	require.Contains(t, one(w, a, authority.Need{Permission: authority.InstanceDelete, Scope: lattice}).Reason,
		"ServiceAccount physics.lattice/ci lacks apps.instance.delete")

	// A tenant's account works on its shared runtimes, and on no project.
	w, _ = build()
	sa := w.account("physics", "shared_runtimes.read", "shared_runtimes.member.operate", "scheduler.node.operate", "apps.instance.read")
	a = authority.Actor{ServiceAccount: sa, Proof: authority.ProofToken, Endpoint: endpoint}
	tenant := authority.Scope{Tenant: "physics"}
	for _, p := range []authority.Permission{authority.SharedRuntimeRead, authority.SharedRuntimeMemberOperate, authority.NodeOperate} {
		require.True(t, one(w, a, authority.Need{Permission: p, Scope: tenant}).Allowed)
		require.False(t, one(w, a, authority.Need{Permission: p, Scope: lattice}).Allowed)
		require.False(t, one(w, a, authority.Need{Permission: p, Scope: authority.Scope{Tenant: "biology"}}).Allowed)
	}
	require.Contains(t, one(w, a, authority.Need{Permission: authority.InstanceRead, Scope: tenant}).Reason, "acts on shared runtimes only")
}

package authority_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/schema"
	"berth/schema/authority"
)

var (
	logins = []string{"anna", "Anna", "ben", "carl", "petra"}
	keys   = []string{"k1", "k2"}
	places = []string{"", "physics", "physics.lattice", "physics.qcd", "biology", "biology.genomes"}
)

// member draws an entry of a role binding, with any role at any place. The reader
// refuses many of them; none may matter here.
func member(t *rapid.T, who []string) schema.RoleMember {
	m := schema.RoleMember{Role: rapid.SampledFrom(authority.Roles()).Draw(t, "role")}
	if m.Role == "service_account" && rapid.Bool().Draw(t, "account") {
		m.ServiceAccount = "ci"
		return m
	}
	m.Login = rapid.SampledFrom(who).Draw(t, "login")
	if rapid.Bool().Draw(t, "has a key") {
		m.SigningKeys = []string{rapid.SampledFrom(keys).Draw(t, "key")}
	}
	return m
}

// estate draws an estate: people at places, policies and service accounts.
func estate(t *rapid.T, who func(place string) []string) world {
	w := campus()
	for _, place := range places {
		var ms []schema.RoleMember
		for range rapid.IntRange(0, 3).Draw(t, "members of "+place) {
			ms = append(ms, member(t, who(place)))
		}
		w.bind(place, ms...)
		w.binding(place).Suspend = rapid.IntRange(0, 9).Draw(t, "suspended") == 0
		if place != "" {
			w.account(place, scopes(t)...)
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "approval") == 0 {
		w.Tenants["physics"].Policy = &schema.Policy{Spec: schema.PolicySpec{RequireApproval: true}}
	}
	return w
}

func scopes(t *rapid.T) (out []string) {
	for range rapid.IntRange(0, 4).Draw(t, "scopes") {
		out = append(out, string(permission(t)))
	}
	return out
}

var permissions = func() (ps []authority.Permission) {
	for _, row := range authority.Table() {
		ps = append(ps, row.Permission)
	}
	return ps
}()

func permission(t *rapid.T) authority.Permission {
	return rapid.SampledFrom(permissions).Draw(t, "permission")
}

func actor(t *rapid.T, account schema.Key) authority.Actor {
	a := authority.Actor{
		Login:     rapid.SampledFrom(logins).Draw(t, "author"),
		Approvers: rapid.SliceOfN(rapid.SampledFrom(logins), 0, 2).Draw(t, "approvers"),
		Proof: rapid.SampledFrom([]authority.Proof{authority.ProofNone, authority.ProofPullRequest, authority.ProofSignature,
			authority.ProofToken}).Draw(t, "proof"),
		SigningKey: rapid.SampledFrom(keys).Draw(t, "signed by"),
		Endpoint:   rapid.SampledFrom([]string{"", endpoint, "GET /other"}).Draw(t, "endpoint"),
		BreakGlass: rapid.SampledFrom([]string{"", "hurry"}).Draw(t, "glass"),
	}
	if rapid.IntRange(0, 2).Draw(t, "is an account") == 0 {
		a.ServiceAccount = account
	}
	return a
}

// anyKey draws a document of any kind at any place.
func anyKey(t *rapid.T) schema.Key {
	k := bindingKey(rapid.SampledFrom(places).Draw(t, "place"))
	k.Kind = rapid.SampledFrom([]schema.Kind{schema.KindTenant, schema.KindProject, schema.KindApp, schema.KindAppVersion, schema.KindNode,
		schema.KindPolicy,
		schema.KindEntitlement, schema.KindRoleBinding, schema.KindInstance, schema.KindSite, schema.KindArtifactSource,
		schema.KindArtifact,
		schema.KindServiceAccount, schema.KindSharedRuntime, schema.KindAttachment, schema.KindContribution, schema.KindMemberOperation,
		schema.KindQueueMap, schema.KindHookRule, schema.KindPause, "Unheard"}).Draw(t, "kind")
	k.Name = rapid.SampledFrom([]string{"x", "cluster", "common", "physics", "biology", "lattice", "operators", "roles"}).Draw(t, "name")
	k.Parent = rapid.SampledFrom([]string{"", "cluster", "common", "batch"}).Draw(t, "parent")
	return k
}

// anyPath draws a path: that of k, a similar one, or any text.
func anyPath(t *rapid.T, k schema.Key) string {
	path, _ := k.Path()
	switch rapid.IntRange(0, 3).Draw(t, "path") {
	case 0:
		return rapid.SampledFrom([]string{"platform/", "tenants/", "tenants/physics/", "tenants/biology/",
			"tenants/biology/projects/genomes/", "Tenants/", ""}).Draw(t, "dir") +
			rapid.StringN(0, 12, 40).Draw(t, "rest")
	case 1:
		at := rapid.IntRange(0, len(path)).Draw(t, "twisted at")
		return path[:at] + rapid.SampledFrom([]string{"A", "/", ".", "\\", "ſ", "-", "/../", "\n"}).Draw(t,
			"twist") + path[min(at+1, len(path)):]
	}
	return path
}

// declareAny declares k if such a document has a valid place.
func declareAny(w world, k schema.Key) {
	if path, err := k.Path(); err != nil || path == "" || k.Kind == schema.KindTenant {
		return
	}
	switch needs := w.SharedRuntime(k.Tenant, k.Parent); {
	case k.Kind == schema.KindAttachment && needs == nil, k.Kind == schema.KindMemberOperation && needs == nil && k.Project == "",
		k.Kind == schema.KindSharedRuntime && w.SharedRuntime(k.Tenant, k.Name) == nil,
		k.Kind == schema.KindAppVersion && w.Platform.Versions[k.Parent] == nil,
		slices.Contains([]schema.Kind{schema.KindEntitlement, schema.KindInstance, schema.KindArtifact, schema.KindContribution}, k.Kind) &&
			k.Project == "",
		slices.Contains([]schema.Kind{schema.KindProject, schema.KindServiceAccount}, k.Kind) && k.Tenant == "",
		k.Kind == schema.KindRoleBinding: // already declared
		return
	}
	declare(w, k)
}

// isolation: a user with roles only in physics has no permission in another tenant or at
// the platform, for any documents. Every change of a path there needs a permission
// there.
func isolation(t *rapid.T) {
	who := func(place string) []string {
		if strings.HasPrefix(place, "physics") {
			return logins
		}
		return []string{"boris", "olga"}
	}
	base, next := estate(t, who), estate(t, func(string) []string { return logins })
	account := base.account(rapid.SampledFrom([]string{"physics", "physics.lattice"}).Draw(t, "account of"), scopes(t)...)
	r := authority.Rules{Base: base.Desired, Administrators: []string{"root"}, AdministratorKeys: keys}
	for range 5 {
		k := anyKey(t)
		for _, w := range []world{base, next} {
			if rapid.Bool().Draw(t, "there") {
				declareAny(w, k)
			}
		}
		path := anyPath(t, k)
		if rapid.IntRange(0, 4).Draw(t, "no key") == 0 {
			k = schema.Key{}
		}
		blob := rapid.SampledFrom([]string{none, old, now})
		needs := authority.Needs(base.Desired, next.Desired, k, change(path, blob.Draw(t, "from"), blob.Draw(t, "to")))
		abroad := strings.HasPrefix(path, "platform/") || strings.HasPrefix(path, "tenants/") &&
			!strings.HasPrefix(path, "tenants/physics/")
		require.False(t, len(needs) == 0 && (abroad || strings.HasPrefix(path, "tenants/")), "%q needs nothing", path)
		all := true
		for _, d := range authority.Decide(r, actor(t, account), needs) {
			all = all && d.Allowed
			require.False(t, d.Allowed && d.Scope.Tenant != "physics", "%q: %s", path, d.Reason)
			require.False(t, d.BreakGlass)
			require.NotEmpty(t, d.Reason)
			require.NotContains(t, d.Reason+d.Why, "\n")
		}
		require.False(t, abroad && all, "%q is allowed by %d needs", path, len(needs))
		s := authority.Scope{Tenant: rapid.SampledFrom([]string{"", "biology"}).Draw(t, "tenant"),
			Project: rapid.SampledFrom([]string{"", "lattice", "genomes"}).Draw(t, "project")}
		require.False(t, authority.May(r, actor(t, account), permission(t), s).Allowed)
	}
}

// monotone: an additional role removes no permission, so removing a role adds none.
func monotone(t *rapid.T) {
	less := estate(t, func(string) []string { return logins })
	more := world{&schema.Desired{Platform: less.Platform, Tenants: less.Tenants}}
	var questions []func() bool
	for range 20 {
		a := actor(t, less.account(rapid.SampledFrom(places[1:]).Draw(t, "account of"), scopes(t)...))
		need := authority.Need{Permission: permission(t),
			AtLeast: rapid.SampledFrom(append(authority.Roles(), "", "", "")).Draw(t, "at least")}
		need.Scope.Tenant, need.Scope.Project, _ = strings.Cut(rapid.SampledFrom(places).Draw(t, "scope"), ".")
		questions = append(questions, func() bool { return one(more, a, need).Allowed })
	}
	before := make([]bool, len(questions))
	for i, q := range questions {
		before[i] = q()
	}
	b := less.binding(rapid.SampledFrom(places).Draw(t, "given at"))
	b.Spec.Members = slices.Insert(slices.Clone(b.Spec.Members), rapid.IntRange(0, len(b.Spec.Members)).Draw(t, "at"), member(t, logins))
	for i, q := range questions {
		require.False(t, before[i] && !q(), "question %d", i)
	}
}

// The users of one tenant cannot change another tenant or the platform.
func TestTenantsAreIsolated(t *testing.T) { rapid.Check(t, isolation) }

func TestRolesOnlyAdd(t *testing.T) { rapid.Check(t, monotone) }

func FuzzIsolation(f *testing.F) { f.Fuzz(rapid.MakeFuzz(isolation)) }

func FuzzRolesOnlyAdd(f *testing.F) { f.Fuzz(rapid.MakeFuzz(monotone)) }

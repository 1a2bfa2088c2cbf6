package authority_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/authority"
)

// edit is what changing the role binding of a place needs.
func edit(t *testing.T, place string, was, is *schema.RoleBinding) authority.Need {
	t.Helper()
	base, next := campus(), campus()
	c := change(pathOf(t, bindingKey(place)), none, none)
	for _, side := range []struct {
		w    world
		b    *schema.RoleBinding
		blob *string
	}{{base, was, &c.From}, {next, is, &c.To}} {
		if side.b != nil {
			suspend := side.b.Suspend
			side.b.Header = head(bindingKey(place))
			side.b.Suspend = suspend
			side.w.put(side.b)
			*side.blob = now
		}
	}
	needs := authority.Needs(base.Desired, next.Desired, bindingKey(place), c)
	require.Len(t, needs, 1)
	require.Equal(t, authority.RolesWrite, needs[0].Permission)
	return needs[0]
}

func roles(list ...string) *schema.RoleBinding {
	return &schema.RoleBinding{Spec: schema.RoleBindingSpec{Members: members(list...)}}
}

// Nobody gives or removes a role above their own: the need names the highest role
// that a change of a binding touches.
func TestRoleChangesNeedAtLeastThatRole(t *testing.T) {
	for what, tc := range map[string]struct {
		place   string
		was, is *schema.RoleBinding
		want    string
	}{
		"given":               {"physics", roles(), roles("anna tenant_admin"), "tenant_admin"},
		"given with the file": {"physics", nil, roles("anna tenant_admin", "ben project_viewer"), "tenant_admin"},
		"taken": {"physics", roles("petra tenant_owner", "ben project_viewer"), roles("ben project_viewer"),
			"tenant_owner"},
		"taken with the file": {"physics", roles("petra tenant_owner"), nil, "tenant_owner"},
		"raised":              {"physics", roles("anna project_viewer"), roles("anna tenant_owner"), "tenant_owner"},
		"lowered":             {"physics", roles("anna tenant_owner"), roles("anna project_viewer"), "tenant_owner"},
		"a lower one besides": {"physics", roles("anna tenant_owner"), roles("anna tenant_owner", "anna project_viewer"), "tenant_owner"},
		"and in capitals":     {"physics", roles("anna tenant_owner"), roles("anna tenant_owner", "ANNA project_viewer"), "tenant_owner"},
		"others stay": {"physics", roles("petra tenant_owner"), roles("petra tenant_owner", "ben project_member"),
			"project_member"},
		"order": {"physics", roles("petra tenant_owner", "ben project_member"),
			roles("ben project_member", "petra tenant_owner"), ""},
		"nothing":              {"physics.lattice", roles("anna project_owner"), roles("anna project_owner"), ""},
		"at the platform":      {"", roles(), roles("otto platform_ops"), "platform_ops"},
		"a service account":    {"physics.lattice", roles(), roles("ci service_account"), "service_account"},
		"account and a member": {"physics.lattice", roles(), roles("ci service_account", "ben project_member"), "service_account"},
		"account and an owner": {"physics.lattice", roles(), roles("ci service_account", "ben project_owner"), "project_owner"},
		"account called so too": {"physics.lattice", roles("ci project_owner"), roles("ci project_owner", "ci service_account"),
			"service_account"},
	} {
		n := edit(t, tc.place, tc.was, tc.is)
		require.Equal(t, tc.want, n.AtLeast, what)
		require.Equal(t, tc.want != "", n.Why != "" && n.Why[len(n.Why)-1] == ')', "%s: %s", what, n.Why)
	}
	require.Equal(t, "changes RoleBinding physics/roles (Anna, tenant_admin)",
		edit(t, "physics", roles(), roles("ben project_viewer", "Anna tenant_admin")).Why)
	require.Equal(t, "creates RoleBinding physics.lattice/roles (service account ci, service_account)",
		edit(t, "physics.lattice", nil, roles("ci service_account")).Why)
}

// A key or a Unix user needs the role beside it, and every other role of the same
// login there.
func TestKeysNeedTheRoleBesideThem(t *testing.T) {
	plain := func() *schema.RoleBinding {
		return roles("petra tenant_owner", "petra project_viewer", "ben project_member")
	}
	for what, tc := range map[string]struct {
		do   func(*schema.RoleBinding)
		want string
	}{
		"key":             {func(b *schema.RoleBinding) { b.Spec.Members[2].SigningKeys = []string{"k"} }, "project_member"},
		"owner's key":     {func(b *schema.RoleBinding) { b.Spec.Members[0].SigningKeys = []string{"k"} }, "tenant_owner"},
		"owner as viewer": {func(b *schema.RoleBinding) { b.Spec.Members[1].SigningKeys = []string{"k"} }, "tenant_owner"},
		"Unix user": {func(b *schema.RoleBinding) { b.Spec.Members[2].UnixUser = &schema.UnixUser{Name: "ben", UID: 2000} },
			"project_member"},
		"the owner's": {func(b *schema.RoleBinding) { b.Spec.Members[0].UnixUser = &schema.UnixUser{Name: "petra", UID: 2000} },
			"tenant_owner"},
		"suspended, all lose": {func(b *schema.RoleBinding) { b.Suspend = true }, "tenant_owner"},
	} {
		with, without := plain(), plain()
		tc.do(with)
		require.Equal(t, tc.want, edit(t, "physics", without, with).AtLeast, what)
		require.Equal(t, tc.want, edit(t, "physics", with, without).AtLeast, "%s, taken back", what)
	}
	uid := func(n int) *schema.RoleBinding {
		b := roles("ben project_member")
		b.Spec.Members[0].UnixUser = &schema.UnixUser{Name: "ben", UID: n}
		return b
	}
	require.Equal(t, "project_member", edit(t, "physics", uid(2000), uid(2001)).AtLeast)
	require.Equal(t, "", edit(t, "physics", uid(2000), uid(2000)).AtLeast)
}

// Permission to change a binding, by the role of the user and the role that the
// change touches.
func TestBindingChangesCannotEscalate(t *testing.T) {
	type cell struct{ place, holds, touches string }
	allowed := map[cell]bool{}
	for _, c := range []cell{
		{"", "platform_superadmin", "platform_superadmin"}, {"", "platform_superadmin", "platform_ops"},
		{"physics", "tenant_owner", "tenant_owner"}, {"physics", "tenant_owner", "tenant_admin"},
		{"physics", "tenant_owner", "project_owner"},
		{"physics", "tenant_owner", "project_member"}, {"physics", "tenant_owner", "service_account"},
		{"physics", "tenant_admin", "tenant_admin"}, {"physics", "tenant_admin", "project_owner"},
		{"physics", "tenant_admin", "project_member"}, {"physics", "tenant_admin", "service_account"},
		{"physics.lattice", "tenant_owner", "project_owner"}, {"physics.lattice", "tenant_owner", "project_member"},
		{"physics.lattice", "tenant_owner", "service_account"},
		{"physics.lattice", "tenant_admin", "project_owner"}, {"physics.lattice", "tenant_admin", "project_member"},
		{"physics.lattice", "tenant_admin", "service_account"},
		{"physics.lattice", "project_owner", "project_owner"}, {"physics.lattice", "project_owner", "project_member"},
		{"physics.lattice", "project_owner", "service_account"},
	} {
		allowed[c] = true
	}
	given := map[string][]string{
		"":                {"platform_superadmin", "platform_ops"},
		"physics":         {"tenant_owner", "tenant_admin", "project_owner", "project_member", "service_account"},
		"physics.lattice": {"project_owner", "project_member", "service_account"},
	}
	holders := map[string]string{"platform_superadmin": "", "platform_ops": "", "tenant_owner": "physics", "tenant_admin": "physics",
		"project_owner": "physics.lattice", "project_admin": "physics.lattice", "project_member": "physics.lattice"}
	for place, touched := range given {
		for holds, where := range holders {
			for _, touches := range touched {
				base, next := campus(), campus()
				if where == place {
					base.bind(place, members("anna "+holds)...)
					next.bind(place, members("anna "+holds, "new "+touches)...)
				} else {
					base.bind(where, members("anna "+holds)...).bind(place)
					next.bind(place, members("new "+touches)...)
				}
				needs := authority.Needs(base.Desired, next.Desired, bindingKey(place), change(pathOf(t, bindingKey(place)), old, now))
				d := authority.Decide(authority.Rules{Base: base.Desired},
					authority.Actor{Login: "anna", Proof: authority.ProofPullRequest}, needs)[0]
				require.Equal(t, allowed[cell{place, holds, touches}], d.Allowed, "%s edits %s of %q: %s", holds, touches, place, d.Reason)
			}
		}
	}
}

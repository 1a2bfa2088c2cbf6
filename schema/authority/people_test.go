package authority_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/authority"
)

// A login is known wherever a binding names it, in any case.
func TestKnowsTheLoginsOfAllBindings(t *testing.T) {
	binding := func(login string) *schema.RoleBinding {
		return &schema.RoleBinding{Spec: schema.RoleBindingSpec{Members: []schema.RoleMember{{Login: login,
			Role: "project_viewer"}, {ServiceAccount: "ci"}}}}
	}
	r := authority.Rules{Administrators: []string{"olga"}, Base: &schema.Desired{
		Platform: &schema.Platform{Roles: map[string]*schema.RoleBinding{"operators": binding("Pia")}},
		Tenants: map[string]*schema.TenantEstate{"physics": {Roles: binding("tom"),
			Projects: map[string]*schema.ProjectEstate{"lattice": {Roles: binding("ana")}, "empty": {}}}},
	}}
	for _, login := range []string{"olga", "pia", "tom", "ANA"} {
		require.True(t, authority.Knows(r, login), login)
	}
	require.False(t, authority.Knows(r, "nobody"))
	require.False(t, authority.Knows(authority.Rules{}, "ana"))
}

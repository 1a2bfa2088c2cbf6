package authority

import (
	"slices"

	"berth/schema"
)

// Administers says whether a role binding of the platform or a tenant names a
// person who may give roles there. A suspended one names nobody; neither does one
// of a project, which its tenant administers.
func Administers(b *schema.RoleBinding) bool {
	if b == nil || b.Suspend || b.Key.Project != "" {
		return false
	}
	return slices.ContainsFunc(b.Spec.Members, func(m schema.RoleMember) bool {
		return m.Login != "" && slices.Contains(AdministratorRoles(b.Key.Tenant), m.Role)
	})
}

// AdministratorRoles are the roles of people who may give roles in a tenant, or at
// the platform for "".
func AdministratorRoles(tenant string) []string {
	if tenant == "" {
		return []string{superadmin}
	}
	return []string{"tenant_owner", "tenant_admin"}
}

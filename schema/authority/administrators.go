package authority

import (
	"slices"

	"berth/schema"
)

// Administers reports whether a role binding of the platform or a tenant names a person
// with permission to give roles there. A suspended binding names nobody. A project's
// binding does not count, because its tenant administers the project.
func Administers(b *schema.RoleBinding) bool {
	if b == nil || b.Suspend || b.Key.Project != "" {
		return false
	}
	return slices.ContainsFunc(b.Spec.Members, func(m schema.RoleMember) bool {
		return m.Login != "" && slices.Contains(AdministratorRoles(b.Key.Tenant), m.Role)
	})
}

// AdministratorRoles returns the roles with permission to give roles in a tenant, or at
// the platform for "".
func AdministratorRoles(tenant string) []string {
	if tenant == "" {
		return []string{superadmin}
	}
	return []string{"tenant_owner", "tenant_admin"}
}

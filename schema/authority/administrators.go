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

// SharesAdministrator reports whether both role bindings have an administrator in common.
func SharesAdministrator(a, b *schema.RoleBinding) bool {
	for _, m := range a.Spec.Members {
		if m.Login == "" || !slices.Contains(AdministratorRoles(a.Key.Tenant), m.Role) {
			continue
		}
		for _, n := range b.Spec.Members {
			if sameLogin(m.Login, n.Login) && slices.Contains(AdministratorRoles(b.Key.Tenant), n.Role) {
				return true
			}
		}
	}
	return false
}

// Includes reports whether a role has all permissions of another one, which it adds nothing to.
func Includes(role, other string) bool {
	for p := range rows() {
		if p.cell(other) == Allow && p.cell(role) != Allow {
			return false
		}
	}
	return true
}

// AdministratorRoles returns the roles with permission to give roles in a tenant, or at
// the platform for "".
func AdministratorRoles(tenant string) []string {
	if tenant == "" {
		return []string{superadmin}
	}
	return []string{"tenant_owner", "tenant_admin"}
}

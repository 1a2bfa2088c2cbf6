package policy

import (
	"cmp"
	"slices"

	"berth/schema"
)

// mayCreate says whether a role may create instances and submit work: the row
// apps.instance.create of the action matrix (ACP). Who may only look has no
// account.
func mayCreate(role string) bool {
	switch role {
	case "tenant_owner", "tenant_admin", "project_owner", "project_admin", "project_member", "service_account":
		return true
	}
	return false // platform roles are for operating, on explicit admin endpoints only
}

// users are the people that may submit work in a project: those of its own
// binding and of its tenant's. Sorted by name, each once.
func users(t *schema.TenantEstate, p *schema.ProjectEstate) []schema.UnixUser {
	us := []schema.UnixUser{}
	for _, b := range []*schema.RoleBinding{t.Roles, p.Roles} {
		if b == nil || b.Suspend {
			continue
		}
		for _, m := range b.Spec.Members {
			if m.UnixUser != nil && mayCreate(m.Role) {
				us = append(us, *m.UnixUser)
			}
		}
	}
	slices.SortFunc(us, func(a, b schema.UnixUser) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return slices.Compact(us)
}

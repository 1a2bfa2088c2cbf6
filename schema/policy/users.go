package policy

import (
	"cmp"
	"slices"

	"berth/schema"
	"berth/schema/authority"
)

// users returns the people with permission to submit work in a project, by its own role binding and
// by its tenant's, sorted by name, without duplicates. Viewers and service accounts have
// no account on the hosts.
func users(t *schema.TenantEstate, p *schema.ProjectEstate) []schema.UnixUser {
	us := []schema.UnixUser{}
	for _, b := range []*schema.RoleBinding{t.Roles, p.Roles} {
		if b == nil || b.Suspend {
			continue
		}
		for _, m := range b.Spec.Members {
			if m.UnixUser != nil && m.ServiceAccount == "" && authority.RoleHas(m.Role, authority.QueueSubmit) {
				us = append(us, *m.UnixUser)
			}
		}
	}
	slices.SortFunc(us, func(a, b schema.UnixUser) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return slices.Compact(us)
}

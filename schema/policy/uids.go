package policy

import (
	"fmt"

	"berth/schema"
)

// CodeUIDChanged is the code of a finding about a person whose uid differs from the one in
// force.
const CodeUIDChanged = "user.uid-changed"

// ChangedUIDs finds the people of instances in force whose uid changes: their files on the
// hosts belong to the uid. before is in force; after is what would be.
func ChangedUIDs(before, after *schema.Desired) []schema.Diagnostic {
	var out []schema.Diagnostic
	for was, is := range schema.Changed(before.Tenants, after.Tenants) {
		changed := changedRoles(was, is)
		if len(changed) == 0 {
			continue // most changes leave the people alone
		}
		uids := map[string]int{}
		for _, p := range was.Projects {
			if len(p.Instances) == 0 {
				continue
			}
			for _, u := range users(was, p) {
				uids[u.Name] = u.UID
			}
		}
		for _, b := range changed {
			out = append(out, changedUIDs(b, uids)...)
		}
	}
	return out
}

// changedRoles returns the role bindings of a tenant that was does not have. Those in force have one uid for
// each person, so the same binding changes none.
func changedRoles(was, is *schema.TenantEstate) (changed []*schema.RoleBinding) {
	if is.Roles != nil && is.Roles != was.Roles {
		changed = append(changed, is.Roles)
	}
	for old, p := range schema.Changed(was.Projects, is.Projects) {
		if p.Roles != nil && p.Roles != old.Roles {
			changed = append(changed, p.Roles)
		}
	}
	return changed
}

// changedUIDs are the findings about the members of a role binding. uids are those in force,
// by user name.
func changedUIDs(b *schema.RoleBinding, uids map[string]int) (out []schema.Diagnostic) {
	for i, m := range b.Spec.Members {
		if m.UnixUser == nil {
			continue
		}
		was, ok := uids[m.UnixUser.Name]
		if !ok || was == m.UnixUser.UID {
			continue
		}
		path := fmt.Sprintf("spec.members[%d].unix_user.uid", i)
		out = append(out, b.At(path).Finding(schema.SeverityError, path, CodeUIDChanged,
			"user %s has uid %d in force, and a uid never changes, as files on the hosts belong to it: put uid %d back, or give the "+
				"person another user name", m.UnixUser.Name, was, was))
	}
	return out
}

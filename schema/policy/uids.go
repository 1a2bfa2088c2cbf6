package policy

import (
	"fmt"
	"maps"
	"slices"

	"berth/schema"
)

// CodeUIDChanged is the code of a finding about a person whose uid differs from the one in
// force.
const CodeUIDChanged = "user.uid-changed"

// ChangedUIDs finds the people of instances in force whose uid changes: their files on the
// hosts belong to the uid. before is in force; after is what would be.
func ChangedUIDs(before, after *schema.Desired) []schema.Diagnostic {
	var out []schema.Diagnostic
	for _, name := range slices.Sorted(maps.Keys(after.Tenants)) {
		was, is := before.Tenants[name], after.Tenants[name]
		if was == nil || was == is {
			continue
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
		out = append(out, changedUIDs(is.Roles, uids)...)
		for _, project := range slices.Sorted(maps.Keys(is.Projects)) {
			out = append(out, changedUIDs(is.Projects[project].Roles, uids)...)
		}
	}
	return out
}

// changedUIDs are the findings about the members of a role binding. uids are those in force,
// by user name.
func changedUIDs(b *schema.RoleBinding, uids map[string]int) (out []schema.Diagnostic) {
	if b == nil {
		return nil
	}
	for i, m := range b.Spec.Members {
		if m.UnixUser == nil {
			continue
		}
		was, ok := uids[m.UnixUser.Name]
		if !ok || was == m.UnixUser.UID {
			continue
		}
		path := fmt.Sprintf("spec.members[%d].unix_user.uid", i)
		at := b.At(path)
		out = append(out, schema.Diagnostic{Severity: schema.SeverityError, Code: CodeUIDChanged, File: at.File, Line: at.Line, Column: at.Column, Path: path,
			Message: fmt.Sprintf("%s: user %s has uid %d in force, and a uid never changes, as files on the hosts belong to it: put uid %d back, or give the person another user name",
				path, m.UnixUser.Name, was, was)})
	}
	return out
}

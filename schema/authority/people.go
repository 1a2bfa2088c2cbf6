package authority

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"berth/schema"
)

// member is an entry of a role binding in force, or an administrator of berth.yaml.
type member struct {
	schema.RoleMember
	from  Scope          // of the binding
	in    *schema.Header // the binding; nil for an administrator
	index int
}

// at returns the position of the entry; zero for an administrator.
func (m member) at() schema.Position {
	if m.in == nil {
		return schema.Position{}
	}
	return m.in.At(fmt.Sprintf("spec.members[%d]", m.index))
}

// members yields the entries along the chain project, tenant, platform above s,
// nearest first.
func (r Rules) members(s Scope) iter.Seq[member] {
	return func(yield func(member) bool) {
		for _, b := range r.bindings(s) {
			for i, m := range b.Spec.Members {
				if !yield(member{m, Scope{b.Key.Tenant, b.Key.Project}, &b.Header, i}) {
					return
				}
			}
		}
		for _, login := range r.Administrators {
			if !yield(member{RoleMember: schema.RoleMember{Login: login, Role: superadmin, SigningKeys: r.AdministratorKeys}}) {
				return
			}
		}
	}
}

// bindings returns the role bindings along the chain of members that are not suspended.
func (r Rules) bindings(s Scope) (bs []*schema.RoleBinding) {
	base := r.Base.OrEmpty()
	if t := base.Tenants[s.Tenant]; t != nil {
		if p := t.Projects[s.Project]; p != nil {
			bs = append(bs, p.Roles)
		}
		bs = append(bs, t.Roles)
	}
	for _, b := range schema.Sorted(base.Platform.Roles) {
		bs = append(bs, b)
	}
	return slices.DeleteFunc(bs, func(b *schema.RoleBinding) bool { return b == nil || b.Suspend })
}

// holds reports whether the entry's role counts at s, and whether only as
// break-glass access. A role counts only where its binding may give it, which the
// reader checks too.
func (m member) holds(s Scope) (holds, glass bool) {
	switch {
	case m.Login == "":
		return false, false
	case strings.HasPrefix(m.Role, "platform_"):
		return m.from == Scope{}, s != Scope{}
	case strings.HasPrefix(m.Role, "tenant_"):
		return m.from.Tenant != "" && m.from.Project == "", false
	case strings.HasPrefix(m.Role, "project_"):
		return m.from.Tenant != "" && s.Project != "", false
	}
	return false, false
}

// meets reports whether the entry's role has what n needs.
func (m member) meets(n Need) (meets, glass bool) {
	holds, glass := m.holds(n.Scope)
	return holds && RoleHas(m.Role, n.Permission) && outranks(m.Role, n.AtLeast), glass
}

// speaksFor reports whether a key in the entry m proves its login for the roles of a binding in a scope: in that of m, or in a
// project of m's tenant. A key in an entry of the platform proves no login for a tenant: with such a key the platform could
// act in a tenant without break-glass access, which is audited.
func (m member) speaksFor(scope Scope) bool {
	return m.from == scope || m.from.Project == "" && m.from.Tenant != "" && m.from.Tenant == scope.Tenant
}

// best returns the entry by which login has what n needs, preferably without
// break-glass access. key, unless "", must speak for it.
func (r Rules) best(login, key string, n Need) (best member, found, glass bool) {
	for m := range r.members(n.Scope) {
		if !sameLogin(m.Login, login) {
			continue
		}
		meets, glass := m.meets(n)
		switch {
		case !meets || key != "" && !r.vouched(login, key, m.from, n.Scope):
		case !glass:
			return m, true, false
		case !found:
			best, found = m, true
		}
	}
	return best, found, found
}

// vouched reports whether some entry for login that speaks for from names key.
func (r Rules) vouched(login, key string, from, s Scope) bool {
	for m := range r.members(s) {
		if sameLogin(m.Login, login) && m.speaksFor(from) && slices.Contains(m.SigningKeys, key) {
			return true
		}
	}
	return false
}

// holders returns the logins that have what n needs without break-glass access,
// sorted, each once, without except.
func (r Rules) holders(n Need, except string) []string {
	logins := map[string]string{}
	for m := range r.members(n.Scope) {
		if meets, glass := m.meets(n); meets && !glass && !sameLogin(m.Login, except) {
			if l := lower(m.Login); logins[l] == "" {
				logins[l] = m.Login
			}
		}
	}
	return slices.Sorted(maps.Values(logins))
}

// sameLogin compares logins as GitHub does. Logins are ASCII, and so is this
// comparison, because Unicode has letters that fold into ASCII letters.
func sameLogin(a, b string) bool { return len(a) == len(b) && lower(a) == lower(b) }

func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// memberName identifies the person or account of an entry, equal for every spelling.
func memberName(m schema.RoleMember) string {
	return lower(m.Login) + " " + m.ServiceAccount
}

func displayName(m schema.RoleMember) string {
	if m.Login != "" {
		return m.Login
	}
	return "service account " + m.ServiceAccount
}

// fingerprint is equal for entries with the same content.
func fingerprint(m schema.RoleMember) string {
	unix := schema.UnixUser{}
	if m.UnixUser != nil {
		unix = *m.UnixUser
	}
	return fmt.Sprintf("%q %q %q %+v", memberName(m), m.Role, m.SigningKeys, unix)
}

// Knows reports whether a role binding anywhere, or the list of administrators, names a login. A
// suspended binding counts: it gives no permission, but the login is known.
func Knows(r Rules, login string) bool {
	base := r.Base.OrEmpty()
	all := slices.Collect(maps.Values(base.Platform.Roles))
	for _, t := range base.Tenants {
		all = append(all, t.Roles)
		for _, p := range t.Projects {
			all = append(all, p.Roles)
		}
	}
	return slices.ContainsFunc(r.Administrators, func(a string) bool { return sameLogin(a, login) }) ||
		slices.ContainsFunc(all, func(b *schema.RoleBinding) bool {
			return b != nil && slices.ContainsFunc(b.Spec.Members, func(m schema.RoleMember) bool { return sameLogin(m.Login, login) })
		})
}

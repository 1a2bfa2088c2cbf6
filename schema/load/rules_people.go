package load

import (
	"cmp"
	"encoding/base64"
	"strings"

	"berth/schema"
	"berth/schema/authority"
)

// Rules of Unix users, for messages.
const (
	OneUID   = "one name has one uid everywhere"
	OneLogin = "one Unix user is one login everywhere"
)

// peopleRules are the rules of documents about people and accounts.
type peopleRules struct{ *problemList }

func (r peopleRules) binding(b *schema.RoleBinding) {
	type grant struct{ login, account, role string }
	seen := map[grant]bool{}
	users := unixUsers{uids: map[string]int{}, names: map[int]string{}, logins: map[string]string{}}
	for i, m := range b.Spec.Members {
		path := Item("spec.members", i)
		if !r.member(path, b.Key, &m) {
			continue
		}
		g := grant{m.Login, m.ServiceAccount, m.Role}
		if seen[g] {
			r.broken(path+".login", "%s has the role %s here already", cmp.Or(m.Login, m.ServiceAccount), m.Role)
		}
		seen[g] = true
		if m.UnixUser != nil {
			r.unixUser(&users, path, m.Login, m.UnixUser)
		}
	}
}

// member checks a member of a role binding by itself, and reports whether it names a person or a service account.
func (r peopleRules) member(path string, binding schema.Key, m *schema.RoleMember) bool {
	if where, ok := roleAllowed(m.Role, binding); !ok {
		var here []string
		for _, role := range authority.Roles() {
			if _, ok := roleAllowed(role, binding); ok {
				here = append(here, role)
			}
		}
		r.broken(path+".role", "the role %s is not given %s: here there are %s", m.Role, where, strings.Join(here, ", "))
	}
	account := m.ServiceAccount != ""
	switch {
	case m.Login == "" && !account:
		r.broken(path, "whose role is it? Add login or service_account")
		return false
	case m.Login != "" && account:
		r.needless(path+".service_account", "a member is a person or a service account: keep one of login and service_account")
	case account != (m.Role == "service_account"):
		r.broken(path+".role", "service_account is the role of service accounts, and their only one: write service_account: NAME for an "+
			"account, and login: LOGIN for a person")
	case account && binding.Tenant == "":
		r.broken(path+".service_account", "the platform has no service accounts: give the role where the account is")
	}
	if account && (m.UnixUser != nil || len(m.SigningKeys) > 0) {
		r.broken(path, "unix_user and signing_keys are a person's: a service account's keys are in its own document")
	}
	return true
}

// roleAllowed reports whether a role may be given at a place, and names the place: a
// project cannot make a tenant's owner.
func roleAllowed(role string, key schema.Key) (where string, ok bool) {
	where = "at the platform"
	if key.Project != "" {
		where = "in a project"
	} else if key.Tenant != "" {
		where = "in a tenant"
	}
	switch role {
	case "platform_superadmin", "platform_ops":
		return where, key.Tenant == ""
	case "tenant_owner", "tenant_admin":
		return where, key.Tenant != "" && key.Project == ""
	}
	return where, key.Tenant != "" // project roles apply in one project, or in all of a tenant
}

// unixUsers has the Unix users of the earlier members of a binding.
type unixUsers struct {
	uids   map[string]int // by name
	names  map[int]string // by uid
	logins map[string]string
}

func (r peopleRules) unixUser(seen *unixUsers, path, login string, u *schema.UnixUser) {
	const code = "conflict.unix-user"
	folded := strings.ToLower(u.Name) // databases of accounting fold case
	if uid, ok := seen.uids[folded]; ok && uid != u.UID {
		r.refuse(path+".unix_user.uid", code, "the Unix user %s has the uid %d above: %s", u.Name, uid, OneUID)
	} else if name, ok := seen.names[u.UID]; ok && name != u.Name {
		r.refuse(path+".unix_user.name", code, "the uid %d is %s's above: %s", u.UID, name, OneUID)
	} else if other, ok := seen.logins[folded]; ok && !strings.EqualFold(other, login) {
		r.refuse(path+".login", code, "the Unix user %s is %s's above: %s", u.Name, other, OneLogin)
	}
	seen.uids[folded], seen.names[u.UID], seen.logins[folded] = u.UID, u.Name, login
}

func (r peopleRules) account(s *schema.ServiceAccountSpec) {
	ids := map[string]string{}
	for i, k := range s.PublicKeys {
		key := KeyBytes(k.Key)
		if id, ok := ids[key]; ok {
			r.broken(Item("spec.public_keys", i)+".key", "is the key %s already", id)
		}
		ids[key] = k.ID
	}
	r.repeated("spec.scopes", s.Scopes)
	r.repeated("spec.allowed_endpoints", s.AllowedEndpoints)
	r.permissions("spec.scopes", s.Scopes)
}

// KeyBytes returns the decoded key, equal for all base64 spellings.
func KeyBytes(text string) string {
	kind, encoded, _ := strings.Cut(text, " ")
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(encoded, "="))
	if err != nil {
		return text
	}
	return kind + " " + string(raw)
}

package signature

import (
	"fmt"

	"berth/schema"
	"berth/schema/authority"
)

// declaredKey is a key of a document.
type declaredKey struct {
	text   string
	path   string // field path of the key in the document
	header *schema.Header
	claim  claim
}

// declaredKeys returns the keys of role bindings and service accounts, the widest scope
// first, then by name.
func declaredKeys(d *schema.Desired) []declaredKey {
	var all keyList
	for _, b := range schema.Sorted(d.Platform.Roles) {
		all.addBinding(b, authority.Scope{})
	}
	for tenant, t := range schema.Sorted(d.Tenants) {
		scope := authority.Scope{Tenant: tenant}
		all.addBinding(t.Roles, scope)
		all.addAccounts(t.ServiceAccounts, scope)
		for project, p := range schema.Sorted(t.Projects) {
			scope.Project = project
			all.addBinding(p.Roles, scope)
			all.addAccounts(p.ServiceAccounts, scope)
		}
	}
	return all
}

type keyList []declaredKey

// addBinding adds the keys of the members of b, which may be nil.
func (l *keyList) addBinding(b *schema.RoleBinding, scope authority.Scope) {
	if b == nil {
		return
	}
	for i, m := range b.Spec.Members {
		for j, key := range m.SigningKeys {
			*l = append(*l, declaredKey{key, fmt.Sprintf("spec.members[%d].signing_keys[%d]", i, j), &b.Header,
				claim{login: m.Login, text: key, scope: scope}})
		}
	}
}

func (l *keyList) addAccounts(accounts map[string]*schema.ServiceAccount, scope authority.Scope) {
	for _, a := range schema.Sorted(accounts) {
		for i, key := range a.Spec.PublicKeys {
			*l = append(*l, declaredKey{key.Key, fmt.Sprintf("spec.public_keys[%d].key", i), &a.Header,
				claim{account: a.Key, scope: scope}})
		}
	}
}

// CodeUnusableKey is the code of the finding for a declared key that proves nothing.
const CodeUnusableKey = "key.unusable"

// Findings warns of declared keys that prove nothing, and of host keys that no host can
// have, for files that asked accepts, sorted by file and position. Such a key gives nobody
// a permission.
func Findings(d *schema.Desired, asked func(file string) bool) (out []schema.Diagnostic) {
	for _, k := range declaredKeys(d) {
		if !asked(k.header.File) {
			continue
		}
		err := CheckKey(k.text)
		if err == nil {
			continue
		}
		effect := "commits that it signs count as unsigned"
		if k.claim.login == "" && !k.claim.account.IsZero() {
			effect = "no token that it signs is accepted"
		}
		out = append(out, k.header.Warning(k.path, CodeUnusableKey, "the key proves nothing, so %s: %s; replace it", effect, err))
	}
	for _, n := range schema.Sorted(d.Platform.Nodes) {
		const path = "spec.host_key"
		if n.Spec.HostKey == "" || !asked(n.File) {
			continue
		}
		if _, err := sshBlob(n.Spec.HostKey); err != nil {
			out = append(out, n.Warning(path, CodeUnusableKey,
				"the host key is not valid, so Berth cannot reach the node: %s; replace it", err))
		}
	}
	schema.SortDiagnostics(out)
	return out
}

package signature

import (
	"fmt"
	"maps"
	"slices"

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
func declaredKeys(d *schema.Desired) (out []declaredKey) {
	binding := func(b *schema.RoleBinding, scope authority.Scope) {
		if b == nil {
			return
		}
		for i, m := range b.Spec.Members {
			for j, key := range m.SigningKeys {
				out = append(out, declaredKey{key, fmt.Sprintf("spec.members[%d].signing_keys[%d]", i, j), &b.Header,
					claim{login: m.Login, text: key, scope: scope}})
			}
		}
	}
	accounts := func(all map[string]*schema.ServiceAccount, scope authority.Scope) {
		for _, a := range sorted(all) {
			for i, key := range a.Spec.PublicKeys {
				out = append(out, declaredKey{key.Key, fmt.Sprintf("spec.public_keys[%d].key", i), &a.Header,
					claim{account: a.Key, scope: scope}})
			}
		}
	}
	for _, b := range sorted(d.Platform.Roles) {
		binding(b, authority.Scope{})
	}
	for _, tenant := range slices.Sorted(maps.Keys(d.Tenants)) {
		t, scope := d.Tenants[tenant], authority.Scope{Tenant: tenant}
		binding(t.Roles, scope)
		accounts(t.ServiceAccounts, scope)
		for _, project := range slices.Sorted(maps.Keys(t.Projects)) {
			p := t.Projects[project]
			scope.Project = project
			binding(p.Roles, scope)
			accounts(p.ServiceAccounts, scope)
		}
	}
	return out
}

func sorted[V any](m map[string]V) []V {
	out := make([]V, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[name])
	}
	return out
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
		at := k.header.At(k.path)
		out = append(out, schema.Diagnostic{
			Severity: schema.SeverityWarning, Code: CodeUnusableKey, File: at.File, Line: at.Line, Column: at.Column, Path: k.path,
			Message: fmt.Sprintf("%s: the key proves nothing, so %s: %s; replace it", k.path, effect, err),
		})
	}
	for _, n := range sorted(d.Platform.Nodes) {
		const path = "spec.host_key"
		if n.Spec.HostKey == "" || !asked(n.File) {
			continue
		}
		if _, err := sshBlob(n.Spec.HostKey); err != nil {
			out = append(out, n.At(path).Warning(path, CodeUnusableKey,
				"the host key is not valid, so Berth cannot reach the node: %s; replace it", err))
		}
	}
	schema.SortDiagnostics(out)
	return out
}

package signature

import (
	"fmt"
	"maps"
	"slices"

	"berth/schema"
)

// CodeUnusableKey: a declared key that can prove nothing.
const CodeUnusableKey = "key.unusable"

// Findings warns of the keys that d declares and that can prove nothing, of the
// documents that asked takes by their files, sorted by file and place. It is no
// error: such a key gives nobody anything.
func Findings(d *schema.Desired, asked func(file string) bool) (out []schema.Diagnostic) {
	check := func(h *schema.Header, path, key, effect string) {
		if err := CheckKey(key); err != nil {
			at := h.At(path)
			out = append(out, schema.Diagnostic{
				Severity: schema.SeverityWarning, Code: CodeUnusableKey, File: at.File, Line: at.Line, Column: at.Column, Path: path,
				Message: fmt.Sprintf("%s: the key proves nothing, so %s: %s; replace it", path, effect, err),
			})
		}
	}
	binding := func(b *schema.RoleBinding) {
		if b == nil || !asked(b.File) {
			return
		}
		for i, m := range b.Spec.Members {
			for j, key := range m.SigningKeys {
				check(&b.Header, fmt.Sprintf("spec.members[%d].signing_keys[%d]", i, j), key, "commits that it signs count as unsigned")
			}
		}
	}
	accounts := func(all map[string]*schema.ServiceAccount) {
		for _, a := range all {
			for i, key := range a.Spec.PublicKeys {
				if asked(a.File) {
					check(&a.Header, fmt.Sprintf("spec.public_keys[%d].key", i), key.Key, "no token that it signs is accepted")
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Platform.Roles)) {
		binding(d.Platform.Roles[name])
	}
	for _, t := range d.Tenants {
		binding(t.Roles)
		accounts(t.ServiceAccounts)
		for _, p := range t.Projects {
			binding(p.Roles)
			accounts(p.ServiceAccounts)
		}
	}
	schema.SortDiagnostics(out)
	return out
}

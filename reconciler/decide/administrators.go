package decide

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/authority"
)

// CodeNoAdministrator: nobody may give roles at the platform or in a tenant. The
// reader warns of role bindings that name no administrator; where a change deletes
// the binding, there is nothing left to warn at but the change.
const CodeNoAdministrator = "ref.no-administrator"

// lastAdministrators warns about deleted role bindings that named the last
// administrators of the platform, or of a tenant that stays.
func lastAdministrators(touched []schema.PathChange, before, after *schema.Desired) (out []schema.Diagnostic) {
	for _, c := range touched {
		if c.To != "" {
			continue
		}
		b := bindingAt(before, c.Path)
		if b == nil {
			continue
		}
		tenant := b.Key.Tenant
		stays := tenant == "" || after.Tenants[tenant] != nil && after.Tenants[tenant].Tenant != nil
		if !stays || !authority.Administers(b) || administered(after, tenant) {
			continue
		}
		of := "platform"
		if tenant != "" {
			of = "tenant " + tenant
		}
		out = append(out, schema.Diagnostic{
			Severity: schema.SeverityWarning, Code: CodeNoAdministrator, File: c.Path, Line: 1, Column: 1,
			Message: fmt.Sprintf("this deletes the last administrators of the %s: keep one with the role %s", of, strings.Join(authority.AdministratorRoles(tenant), " or ")),
		})
	}
	return out
}

// bindingAt is the role binding of the platform or a tenant at a path, or nil.
func bindingAt(d *schema.Desired, path string) *schema.RoleBinding {
	if name, ok := strings.CutPrefix(path, "platform/roles/"); ok {
		return d.Platform.Roles[strings.TrimSuffix(name, ".yaml")]
	}
	rest, ok := strings.CutPrefix(path, "tenants/")
	name, file, _ := strings.Cut(rest, "/")
	if t := d.Tenants[name]; ok && file == "roles.yaml" && t != nil {
		return t.Roles
	}
	return nil
}

// administered says whether somebody may give roles in a tenant, or at the platform
// for "".
func administered(d *schema.Desired, tenant string) bool {
	if tenant == "" {
		return slices.ContainsFunc(slices.Collect(maps.Values(d.Platform.Roles)), authority.Administers)
	}
	return authority.Administers(d.Tenants[tenant].Roles)
}

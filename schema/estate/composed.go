package estate

import (
	"context"
	"fmt"
	"maps"
	slashed "path"
	"slices"
	"strings"

	"berth/schema"
)

// WithTenants returns base with other directories instead of some tenants' own, as Berth
// composes them (requirement F8). From such a tenant's directory in base only
// tenant.yaml is read. From the other directory everything else is read, except hidden
// files and files such as LICENSE. All directories are read at once. shadowed are the
// unread files of base, sorted.
func WithTenants(
	ctx context.Context, base schema.Snapshot, tenants map[string]string,
) (composed schema.Snapshot, shadowed []string, err error) {
	if len(tenants) == 0 {
		return base, nil, nil
	}
	from := &memory{files: map[string][]schema.File{}, data: map[string][]byte{}}
	over := map[string]*schema.File{}
	parts, err := base.Parts(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(tenants)) {
		if !schema.ValidName(name) {
			return nil, nil, fmt.Errorf("%q is not a tenant's name", name)
		}
		at := tenantsDir + name
		files, err := besides(ctx, base, parts, name)
		if err != nil {
			return nil, nil, err
		}
		for _, path := range files {
			over[path] = nil
		}
		shadowed = append(shadowed, files...)
		if err := from.walk(tenants[name], at, belongsToTenant(at)); err != nil {
			return nil, nil, err
		}
		for _, f := range from.files[at] {
			over[f.Path] = &f
		}
	}
	composed, err = newOverlay(ctx, base, from, over)
	return composed, shadowed, err
}

// belongsToTenant returns whether WithTenants reads a path below the directory of a tenant.
func belongsToTenant(at string) func(path string, dir bool) bool {
	return func(path string, dir bool) bool {
		file := strings.TrimPrefix(path, at+"/")
		return strings.Contains(file, "/") || file != tenantFile && !strings.HasPrefix(file, ".") && (dir || strings.Contains(file, "."))
	}
}

// HaveTenants returns an error if an estate does not declare a tenant whose directory is given.
func HaveTenants(ctx context.Context, snap schema.Snapshot, tenants map[string]string) error {
	if len(tenants) == 0 {
		return nil
	}
	parts, err := snap.Parts(ctx)
	if err != nil {
		return err
	}
	var declared []string
	for _, p := range parts {
		name, ok := strings.CutPrefix(p.Name, tenantsDir)
		if !ok || !p.Dir || tenants[name] == "" {
			continue
		}
		files, err := snap.Files(ctx, p)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(files, func(f schema.File) bool { return f.Path == slashed.Join(p.Name, tenantFile) }) {
			declared = append(declared, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tenants)) {
		if schema.ValidName(name) && !slices.Contains(declared, name) {
			return fmt.Errorf("the estate declares no tenant %s: %s is missing", name, slashed.Join(tenantsDir+name, tenantFile))
		}
	}
	return nil
}

// besides returns the files of a tenant's directory except tenant.yaml, sorted.
func besides(ctx context.Context, snap schema.Snapshot, parts []schema.Part, tenant string) ([]string, error) {
	at := tenantsDir + tenant
	i := slices.IndexFunc(parts, func(p schema.Part) bool { return p.Name == at && p.Dir })
	if i < 0 {
		return nil, nil
	}
	files, err := snap.Files(ctx, parts[i])
	if err != nil {
		return nil, err
	}
	var out []string
	for _, f := range files {
		if f.Path != slashed.Join(at, tenantFile) {
			out = append(out, f.Path)
		}
	}
	slices.Sort(out)
	return out, nil
}

// CodeShadowed is the code of a warning about an unread file of the platform's
// repository, whose tenant has its own repository.
const CodeShadowed = "tenant.shadowed"

// Further codes of findings about the repositories of tenants.
const (
	codeNoRepository = "tenant.no-repository" // a directory was given for a tenant that names no repository
	codeRepository   = "conflict.repository"  // two tenants name one repository
)

// Repositories warns where documents of a tenant come from an unexpected repository.
// platform is the platform's repository; desired was read from it with own, by tenant,
// in the place of tenants' directories.
func Repositories(
	ctx context.Context, platform schema.Snapshot, own map[string]string, desired *schema.Desired,
) ([]schema.Diagnostic, error) {
	parts, err := platform.Parts(ctx)
	if err != nil {
		return nil, err
	}
	var out []schema.Diagnostic
	warn := func(file, code, format string, args ...any) {
		out = append(out, schema.Diagnostic{Severity: schema.SeverityWarning, Code: code, File: file, Line: 1, Column: 1,
			Message: fmt.Sprintf(format, args...)})
	}
	named := map[string]*schema.Tenant{} // first tenant that names a repository, by URL
	for name, e := range schema.Sorted(desired.Tenants) {
		t := e.Tenant
		const field = "spec.repository"
		switch dir, given := own[name]; {
		case t == nil:
			continue // already reported
		case t.Spec.Repository == nil && given:
			warn(t.File, codeNoRepository,
				"%s stands in the place of %s%s here, and would not for Berth, as the tenant names no repository: add %s, or leave out "+
					"--tenant %s", dir, tenantsDir, name, field, name)
			continue
		case t.Spec.Repository == nil:
			continue
		}
		place := schema.RepositoryPlace(t.Spec.Repository.URL)
		if other := named[place]; other != nil {
			out = append(out, sharedRepository(t, other), sharedRepository(other, t))
		} else {
			named[place] = t
		}
		files, err := besides(ctx, platform, parts, name)
		if err != nil {
			return nil, err
		}
		at := t.At(field)
		for _, file := range files {
			warn(file, CodeShadowed,
				"Berth does not read it: the documents of %s come from its own repository (%s:%d); move it there, or delete it", name,
				at.File, at.Line)
		}
	}
	schema.SortDiagnostics(out)
	return out, nil
}

// sharedRepository is the warning at a tenant whose repository is that of another one.
func sharedRepository(t, other *schema.Tenant) schema.Diagnostic {
	const path = "spec.repository.url"
	return t.Warning(path, codeRepository,
		"tenant %s names the same repository (%s): who may push there acts in both; give each one of its own", other.Key.Name, other.File)
}

package composed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
	"berth/schema"
)

// tenantFile is the only file of a tenant tree that remains in the platform's
// repository when the tenant has its own repository.
const tenantFile = "tenant.yaml"

// builder composes trees. It also reads trees that it has built and that no store
// holds yet.
type builder struct {
	repo *object.Reader
	also *object.Reader // also holds objects of a tenant that repo lacks; may be nil
	set  object.Batch
}

func (b *builder) tree(h plumbing.Hash) ([]object.Entry, error) {
	if data, ok := b.set.Get(h); ok {
		return object.ParseTree(data)
	}
	if b.also != nil && b.also.Mirror.Has(h) {
		return b.also.Tree(h)
	}
	return b.repo.Tree(h)
}

func (b *builder) put(entries []object.Entry) plumbing.Hash {
	return b.set.Add(plumbing.TreeObject, object.EncodeTree(entries))
}

// findEntry returns the entry with the given name, or the zero entry.
func findEntry(entries []object.Entry, name string) object.Entry {
	if i := slices.IndexFunc(entries, func(e object.Entry) bool { return e.Name == name }); i >= 0 {
		return entries[i]
	}
	return object.Entry{}
}

// withEntry returns entries with e in place of the entry of the same name. An e
// without id removes that entry.
func withEntry(entries []object.Entry, e object.Entry) []object.Entry {
	out := slices.DeleteFunc(slices.Clone(entries), func(x object.Entry) bool { return x.Name == e.Name })
	if !e.ID.IsZero() {
		out = append(out, e)
	}
	return out
}

// tenantsDirectory returns the entries of the directory of tenants; nil if it is
// missing or is not a directory.
func (b *builder) tenantsDirectory(entries []object.Entry) ([]object.Entry, error) {
	if e := findEntry(entries, object.TenantsDir); e.IsDir() {
		return b.tree(e.ID)
	}
	return nil, nil
}

// isIgnored reports whether an entry in the root of a tenant's repository is
// ignored: hidden entries such as .github, and files without an extension such as
// LICENSE. schema/estate reads directories by the same rule.
func isIgnored(e object.Entry) bool {
	return strings.HasPrefix(e.Name, ".") || !e.IsDir() && !strings.Contains(e.Name, ".")
}

// joinTenant returns a tenant tree with tenant.yaml from own and everything else
// from other.
func (b *builder) joinTenant(own, other plumbing.Hash) (plumbing.Hash, error) {
	of, err := b.tree(own)
	if err != nil {
		return own, err
	}
	rest, err := b.tree(other)
	if err != nil {
		return own, err
	}
	file := findEntry(of, tenantFile)
	file.Name = tenantFile
	return b.put(withEntry(slices.DeleteFunc(rest, isIgnored), file)), nil
}

// tenant replaces one tenant tree in whole by the root tree of the tenant's
// repository. It keeps the tenant.yaml of whole.
func (b *builder) tenant(whole plumbing.Hash, tenant string, root plumbing.Hash) (plumbing.Hash, error) {
	top, err := b.tree(whole)
	if err != nil {
		return whole, err
	}
	tenants, err := b.tenantsDirectory(top)
	if err != nil {
		return whole, err
	}
	dir, err := b.joinTenant(findEntry(tenants, tenant).ID, root)
	if err != nil {
		return whole, fmt.Errorf("%s/%s: %w", object.TenantsDir, tenant, err)
	}
	return b.withTenants(top, withEntry(tenants, object.Entry{Mode: object.ModeDir, Name: tenant, ID: dir})), nil
}

// withTenants returns the tree top with the given tenants.
func (b *builder) withTenants(top, tenants []object.Entry) plumbing.Hash {
	dir := object.Entry{Name: object.TenantsDir, Mode: object.ModeDir}
	if len(tenants) > 0 {
		dir.ID = b.put(tenants)
	}
	return b.put(withEntry(top, dir))
}

// platform returns the platform's tree with the tenant trees of st. Each keeps
// the tenant.yaml of the platform's tree. Tenants for which back returns true get
// the tree of the platform instead; platform returns their names, sorted. It does
// not read unchanged tenant directories.
func (b *builder) platform(
	st composed, tree plumbing.Hash, back func(tenant string, dir object.Entry) bool,
) (whole plumbing.Hash, returned []string, err error) {
	if len(st.tenants) == 0 {
		return tree, nil, nil
	}
	var tops, tenants [3][]object.Entry // the new tree, the previous one, and the last composed one
	last, err := b.repo.Commit(st.platform)
	if err != nil {
		return tree, nil, err
	}
	for i, h := range []plumbing.Hash{tree, last.Tree, st.tree} {
		if tops[i], err = b.tree(h); err != nil {
			return tree, nil, err
		}
		if tenants[i], err = b.tenantsDirectory(tops[i]); err != nil {
			return tree, nil, err
		}
	}
	now := tenants[0]
	for _, t := range slices.Sorted(maps.Keys(st.tenants)) {
		dir, before, current := findEntry(tenants[0], t), findEntry(tenants[1], t), findEntry(tenants[2], t)
		switch {
		case dir == before:
		case back(t, dir):
			returned = append(returned, t)
			continue
		default:
			if current.ID, err = b.joinTenant(dir.ID, current.ID); err != nil {
				return tree, nil, fmt.Errorf("%s/%s: %w", object.TenantsDir, t, err)
			}
		}
		now = withEntry(now, current)
	}
	if len(returned) == len(st.tenants) {
		return tree, returned, nil
	}
	return b.withTenants(tops[0], now), returned, nil
}

// returns returns a function that reports whether the platform's repository owns
// a tenant tree again: tenant.yaml is missing or names no repository. An
// unreadable tenant.yaml changes nothing.
func (k *estateComposer) returns(ctx context.Context, b *builder) func(string, object.Entry) bool {
	return func(tenant string, dir object.Entry) bool {
		if !dir.IsDir() {
			return true
		}
		n, err := k.names(ctx, b, tenant, dir.ID)
		return err == nil && n.known && n.repository == nil
	}
}

// naming is the repository that a tenant.yaml names.
type naming struct {
	dir        plumbing.Hash
	known      bool
	repository *TenantRepository
}

// names reads the tenant.yaml in a tenant's directory.
func (k *estateComposer) names(ctx context.Context, b *builder, tenant string, dir plumbing.Hash) (naming, error) {
	n := naming{dir: dir}
	entries, err := b.tree(dir)
	if errors.Is(err, reconciler.ErrUnreadable) {
		return n, nil
	}
	if err != nil {
		return n, err
	}
	file := findEntry(entries, tenantFile)
	if file.ID.IsZero() {
		n.known = true
		return n, nil
	}
	if file.Mode != schema.ModePlain {
		return n, nil
	}
	const most = 64<<10 + 1 // a longer file is not a valid document
	_, data, _, err := b.repo.Read(file.ID, most)
	if err != nil {
		return n, err
	}
	n.repository, n.known = k.composition.Document(ctx, tenant, data)
	return n, nil
}

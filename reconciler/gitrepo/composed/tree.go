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
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/object"
	"berth/schema"
)

// tenantFile is what stays in the platform's repository of a tenant that has one
// of its own.
const tenantFile = "tenant.yaml"

// builder composes trees. It reads those it made itself too, before any store
// holds them.
type builder struct {
	repo *gitrepo.Repo
	also *gitrepo.Repo // where a tenant's objects are that repo does not hold yet; nil: nowhere
	set  object.Batch
	made map[plumbing.Hash][]byte
}

func (b *builder) tree(h plumbing.Hash) ([]object.Entry, error) {
	if data, ok := b.made[h]; ok {
		return object.ParseTree(data)
	}
	if b.also != nil && b.also.Mirror.Has(h) {
		return b.also.Tree(h)
	}
	return b.repo.Tree(h)
}

func (b *builder) put(entries []object.Entry) plumbing.Hash {
	if b.made == nil {
		b.made = map[plumbing.Hash][]byte{}
	}
	data := object.EncodeTree(entries)
	h := b.set.Add(plumbing.TreeObject, data)
	b.made[h] = data
	return h
}

// named is the entry of a name; the zero one where there is none.
func named(entries []object.Entry, name string) object.Entry {
	if i := slices.IndexFunc(entries, func(e object.Entry) bool { return e.Name == name }); i >= 0 {
		return entries[i]
	}
	return object.Entry{}
}

// with is entries with e in the place of what has its name; an entry without id
// takes that away.
func with(entries []object.Entry, e object.Entry) []object.Entry {
	out := slices.DeleteFunc(slices.Clone(entries), func(x object.Entry) bool { return x.Name == e.Name })
	if !e.ID.IsZero() {
		out = append(out, e)
	}
	return out
}

// directory is the directory of a name among entries, none if something else
// stands there.
func (b *builder) directory(entries []object.Entry, name string) ([]object.Entry, error) {
	if e := named(entries, name); e.IsDir() {
		return b.tree(e.ID)
	}
	return nil, nil
}

// passedOver says of what stands in the root of a tenant's repository that it is
// about the repository and not of the estate: what is hidden, such as .github, and
// files such as LICENSE. schema/estate reads directories by the same rule.
func passedOver(e object.Entry) bool {
	return strings.HasPrefix(e.Name, ".") || !e.IsDir() && !strings.Contains(e.Name, ".")
}

// joined is a tenant's directory: its tenant.yaml as in own, and everything else
// as in other, whatever that holds.
func (b *builder) joined(own, other plumbing.Hash) (plumbing.Hash, error) {
	of, err := b.tree(own)
	if err != nil {
		return own, err
	}
	rest, err := b.tree(other)
	if err != nil {
		return own, err
	}
	file := named(of, tenantFile)
	file.Name = tenantFile
	return b.put(with(slices.DeleteFunc(rest, passedOver), file)), nil
}

// tenant is a tree of the estate with a tenant's directory holding, besides its
// tenant.yaml, what the root of the tenant's repository does.
func (b *builder) tenant(whole plumbing.Hash, tenant string, root plumbing.Hash) (plumbing.Hash, error) {
	top, err := b.tree(whole)
	if err != nil {
		return whole, err
	}
	tenants, err := b.directory(top, object.TenantsDir)
	if err != nil {
		return whole, err
	}
	dir, err := b.joined(named(tenants, tenant).ID, root)
	if err != nil {
		return whole, fmt.Errorf("%s/%s: %w", object.TenantsDir, tenant, err)
	}
	return b.placed(top, with(tenants, object.Entry{Mode: object.ModeDir, Name: tenant, ID: dir})), nil
}

// placed is a tree with these tenants.
func (b *builder) placed(top, tenants []object.Entry) plumbing.Hash {
	dir := object.Entry{Name: object.TenantsDir, Mode: object.ModeDir}
	if len(tenants) > 0 {
		dir.ID = b.put(tenants)
	}
	return b.put(with(top, dir))
}

// platform is a tree of the platform with the directories of tenants as they are
// in st, each with the tenant.yaml that the platform's tree has. Those that back
// says of stay as the platform has them, and are returned, sorted. It reads
// nothing of the tenants whose directories are as they were.
func (b *builder) platform(st composed, tree plumbing.Hash, back func(tenant string, dir object.Entry) bool) (whole plumbing.Hash, returned []string, err error) {
	if len(st.tenants) == 0 {
		return tree, nil, nil
	}
	var tops, tenants [3][]object.Entry // now, before, and as composed before
	last, err := b.repo.Commit(st.platform)
	if err != nil {
		return tree, nil, err
	}
	for i, h := range []plumbing.Hash{tree, last.Tree, st.tree} {
		if tops[i], err = b.tree(h); err != nil {
			return tree, nil, err
		}
		if tenants[i], err = b.directory(tops[i], object.TenantsDir); err != nil {
			return tree, nil, err
		}
	}
	now := tenants[0]
	for _, t := range slices.Sorted(maps.Keys(st.tenants)) {
		dir, before, stands := named(tenants[0], t), named(tenants[1], t), named(tenants[2], t)
		switch {
		case dir == before:
		case back(t, dir):
			returned = append(returned, t)
			continue
		default:
			if stands.ID, err = b.joined(dir.ID, stands.ID); err != nil {
				return tree, nil, fmt.Errorf("%s/%s: %w", object.TenantsDir, t, err)
			}
		}
		now = with(now, stands)
	}
	if len(returned) == len(st.tenants) {
		return tree, returned, nil
	}
	return b.placed(tops[0], now), returned, nil
}

// returns says of a tenant's directory in the platform's repository whether it is
// the tenant's again: it has no tenant.yaml, or one that names no repository. One
// that cannot be read says nothing.
func (k *estateComposer) returns(ctx context.Context, b *builder) func(string, object.Entry) bool {
	return func(tenant string, dir object.Entry) bool {
		if !dir.IsDir() {
			return true
		}
		n, err := k.names(ctx, b, tenant, dir.ID)
		return err == nil && n.known && n.repository == nil
	}
}

// naming is what a tenant's directory says of where the tenant's documents are.
type naming struct {
	dir        plumbing.Hash
	known      bool
	repository *TenantRepository
}

// names reads it.
func (k *estateComposer) names(ctx context.Context, b *builder, tenant string, dir plumbing.Hash) (naming, error) {
	n := naming{dir: dir}
	entries, err := b.tree(dir)
	if errors.Is(err, reconciler.ErrUnreadable) {
		return n, nil
	}
	if err != nil {
		return n, err
	}
	file := named(entries, tenantFile)
	if file.ID.IsZero() {
		n.known = true
		return n, nil
	}
	if file.Mode != schema.ModePlain {
		return n, nil
	}
	const most = 64<<10 + 1 // what is longer is no document
	_, data, _, err := b.repo.Read(file.ID, most)
	if err != nil {
		return n, err
	}
	n.repository, n.known = k.composition.Document(ctx, tenant, data)
	return n, nil
}

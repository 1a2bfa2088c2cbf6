package localplan

import (
	"context"
	"slices"
	"strings"

	"berth/reconciler/decide"
	"berth/schema"
	"berth/schema/estate"
)

// withTenants is a repository whose tenants' documents are replaced by those in
// directories, except in the commit in force, which Berth composed.
type withTenants struct {
	decide.Repo
	dirs    map[string]string
	inForce string // commit, or ""
}

func (w *withTenants) Snapshot(ctx context.Context, commit string) (schema.Snapshot, error) {
	snap, err := w.Repo.Snapshot(ctx, commit)
	if err != nil || commit == w.inForce {
		return snap, err
	}
	snap, _, err = estate.WithTenants(ctx, snap, w.dirs)
	return snap, err
}

// Diff leaves out the files that are replaced.
func (w *withTenants) Diff(ctx context.Context, from, to string) ([]schema.PathChange, error) {
	changes, err := w.Repo.Diff(ctx, from, to)
	return slices.DeleteFunc(slices.Clone(changes), func(c schema.PathChange) bool {
		rest, below := strings.CutPrefix(c.Path, "tenants/")
		tenant, file, _ := strings.Cut(rest, "/")
		_, own := w.dirs[tenant]
		return below && own && file != "tenant.yaml"
	}), err
}

package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"berth/cmd/internal/localestate"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/schema"
	"berth/schema/estate"
)

// basis has the estates and the status to explain from.
type basis struct {
	repo    *gitrepo.Local         // nil: none
	asked   schema.Snapshot        // the estate to explain
	inForce schema.Snapshot        // nil: missing
	status  *reconciler.StatusTree // nil: missing
}

func (b *basis) close() error {
	if b.repo == nil {
		return nil
	}
	return b.repo.Close()
}

// open reads the estate, and the branches of its repository. The caller closes it,
// unless there is an error.
func (o ExplainOptions) open(ctx context.Context) (_ *basis, err error) {
	where, rev := cmp.Or(o.Repo, o.Dir, "."), o.Rev
	place, err := gitrepo.Locate(where)
	if err != nil && (o.Repo != "" || rev != "") {
		return nil, localestate.NoRepository(where, "--repo DIR", err)
	}
	if rev == "" && o.Dir == "" && place.GitDir != "" && place.WorkTree == "" {
		rev = "main" // a bare repository
	}
	b := &basis{}
	if rev == "" {
		dir, err := o.directory(place)
		if err != nil {
			return nil, err
		}
		if b.asked, err = openDirectory(ctx, dir); err != nil {
			return nil, err
		}
		if root, err := filepath.Abs(dir); err != nil || place.WorkTree != root {
			return b, err // the branches of a repository around it are about another estate
		}
	}
	if b.repo, err = gitrepo.OpenLocal(where); err != nil {
		return nil, err
	}
	if err = b.readCommits(ctx, rev); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// openDirectory reads the estate in a directory, which has documents.
func openDirectory(ctx context.Context, dir string) (schema.Snapshot, error) {
	snap, err := estate.Dir(dir)
	if err != nil {
		return nil, err
	}
	if has, err := localestate.HasDocuments(ctx, snap); has || err != nil {
		return snap, err
	}
	return nil, localestate.Missing(dir, localestate.NoDocuments, "--dir DIR")
}

// directory returns the directory of the estate, if no revision is asked for.
func (o ExplainOptions) directory(place gitrepo.Place) (string, error) {
	if o.Dir == "" && o.Repo == "" {
		return localestate.Root(".", "--dir DIR")
	}
	return cmp.Or(o.Dir, place.WorkTree), nil
}

// readCommits reads a revision of the estate, unless it is "", and those of Berth's
// branches that the repository has.
func (b *basis) readCommits(ctx context.Context, rev string) error {
	if rev != "" {
		commit, err := b.repo.Resolve(ctx, rev)
		if err != nil {
			return fmt.Errorf("--rev: %w", err)
		}
		if b.asked, err = b.repo.Snapshot(ctx, commit); err != nil {
			return err
		}
	}
	tips, err := b.repo.Latest(ctx)
	if err != nil {
		return err
	}
	if tips.InForce != "" {
		if b.inForce, err = b.repo.Snapshot(ctx, tips.InForce); err != nil {
			return err
		}
	}
	if tips.Status == "" {
		return nil
	}
	status, err := b.repo.ReadStatus(ctx, tips.Status)
	if err != nil {
		return fmt.Errorf("%s: %w", reconciler.BranchStatus, err)
	}
	b.status = &status
	return nil
}

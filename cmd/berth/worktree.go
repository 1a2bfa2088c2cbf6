package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/watch"
	"berth/reconciler/decide"
	"berth/reconciler/gitrepo"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/estate"
)

// worktree plans the difference between the base and the work tree.
func (r *planRequest) worktree(ctx context.Context, loader *estate.Loader, decider *decide.Decider, repo *gitrepo.Repo, in decide.Input) (plan.Proposal, error) {
	at, err := gitrepo.Locate(r.repo)
	if err != nil {
		return plan.Proposal{}, err
	}
	if at.WorkTree == "" {
		return plan.Proposal{}, cli.Usage(fmt.Errorf("plan: %s has no work tree; give --head or --patch", at.GitDir))
	}
	head, err := workTree(ctx, repo, at)
	if err != nil {
		return plan.Proposal{}, err
	}
	if head, _, err = estate.WithTenants(ctx, head, r.tenants); err != nil {
		return plan.Proposal{}, err
	}
	base, err := in.Repo.Snapshot(ctx, in.Base)
	if err != nil {
		return plan.Proposal{}, err
	}
	touched, err := loader.Compare(ctx, base, head)
	if err != nil {
		return plan.Proposal{}, err
	}
	return decider.Change(ctx, in, head, touched)
}

// workTree returns the work tree as a snapshot, without ignored files.
func workTree(ctx context.Context, repo *gitrepo.Repo, at gitrepo.Place) (schema.Snapshot, error) {
	ignored, err := repo.Ignored(ctx, at)
	if err != nil {
		return nil, err
	}
	return estate.WorkTree(at.WorkTree, ignored)
}

// again plans whenever the change or its base moves.
func (r *planRequest) again(cmd *cobra.Command, loader *estate.Loader) error {
	at, err := gitrepo.Locate(r.repo)
	if err != nil {
		return cli.Usage(fmt.Errorf("plan: %w", err))
	}
	what := "the work tree " + at.WorkTree
	switch {
	case r.patch != "":
		what = r.patch
	case r.head != "":
		what = r.head
	case at.WorkTree == "":
		return cli.Usage(fmt.Errorf("plan: %s has no work tree; give --head or --patch", at.GitDir))
	}
	return watch.Repeat(cmd.Context(), watch.Command{
		Name: what, IsText: r.output == "text", Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(),
		Scan: func() (watch.Files, error) { return r.scan(at) },
		Run: func() error {
			p, err := r.proposal(cmd.Context(), loader, nil)
			if err != nil {
				return err
			}
			return writePlan(cmd.OutOrStdout(), p, r.output)
		},
	})
}

// scan returns the state of the refs, and of the change unless it is a commit.
func (r *planRequest) scan(at gitrepo.Place) (watch.Files, error) {
	s := watch.Files{Stamps: map[string]string{}}
	switch {
	case r.patch != "":
		s.Dirs = append(s.Dirs, filepath.Dir(r.patch))
		if err := s.AddFile(r.patch, r.patch); err != nil {
			return s, err
		}
	case r.head == "":
		var err error
		if s, err = watch.Estate(at.WorkTree, slices.Collect(maps.Values(r.tenants))...); err != nil {
			return s, err
		}
	}
	for _, dir := range []string{at.GitDir, at.CommonDir} {
		for _, name := range []string{"HEAD", "packed-refs"} {
			if err := s.AddFile(filepath.Join(dir, name), name); err != nil {
				return s, err
			}
		}
		if !slices.Contains(s.Dirs, dir) {
			s.Dirs = append(s.Dirs, dir)
		}
	}
	err := s.AddTree(filepath.Join(at.CommonDir, "refs"), "refs/", func(string) bool { return true })
	return s, err
}

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

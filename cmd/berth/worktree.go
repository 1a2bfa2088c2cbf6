package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/reconciler/decide"
	"berth/reconciler/gitrepo"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/load"
)

// worktree plans what the work tree holds, committed or not, over the base.
func (r *planRequest) worktree(ctx context.Context, loader *load.Loader, decider *decide.Decider, repo *gitrepo.Repo, in decide.Input) (plan.Proposal, error) {
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
	if head, _, err = load.WithTenants(ctx, head, r.tenants); err != nil {
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

// workTree is the work tree as a snapshot, without files that Git ignores.
func workTree(ctx context.Context, repo *gitrepo.Repo, at gitrepo.Place) (schema.Snapshot, error) {
	ignored, err := repo.Ignored(ctx, at)
	if err != nil {
		return nil, err
	}
	return load.WorkTree(at.WorkTree, ignored)
}

// again plans whenever the change moves, or what it is planned against.
func (r *planRequest) again(cmd *cobra.Command, loader *load.Loader) error {
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
	return watch(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), rounds{
		what: what, text: r.output == "text",
		scan: func() (sight, error) { return r.see(at) },
		once: func() error {
			p, err := r.proposal(cmd.Context(), loader, nil)
			if err != nil {
				return err
			}
			return writePlan(cmd.OutOrStdout(), p, r.output)
		},
	})
}

// see sees the refs, and what is planned if that is no commit.
func (r *planRequest) see(at gitrepo.Place) (sight, error) {
	s := sight{stamps: map[string]string{}}
	switch {
	case r.patch != "":
		s.dirs = append(s.dirs, filepath.Dir(r.patch))
		if err := s.file(r.patch, r.patch); err != nil {
			return s, err
		}
	case r.head == "":
		var err error
		if s, err = seeEstate(at.WorkTree, slices.Collect(maps.Values(r.tenants))...); err != nil {
			return s, err
		}
	}
	for _, dir := range []string{at.GitDir, at.CommonDir} {
		for _, name := range []string{"HEAD", "packed-refs"} {
			if err := s.file(filepath.Join(dir, name), name); err != nil {
				return s, err
			}
		}
		if !slices.Contains(s.dirs, dir) {
			s.dirs = append(s.dirs, dir)
		}
	}
	err := s.tree(filepath.Join(at.CommonDir, "refs"), "refs/", func(string) bool { return true })
	return s, err
}

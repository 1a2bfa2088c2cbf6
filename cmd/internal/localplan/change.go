package localplan

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/localestate"
	"berth/reconciler/decide"
	"berth/reconciler/gitrepo"
	"berth/reconciler/patch"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/estate"
)

// planWorkTree plans the difference between the base and the work tree. missing
// describes commits that it leaves out.
func (p *planner) planWorkTree(ctx context.Context) (proposal plan.Proposal, missing string, err error) {
	at, err := gitrepo.Locate(p.Repo)
	if err != nil {
		return proposal, "", err
	}
	if at.WorkTree == "" {
		return proposal, "", noWorkTree(at)
	}
	head, err := localestate.WorkTree(ctx, p.repo, at)
	if err != nil {
		return proposal, "", err
	}
	if err := estate.HaveTenants(ctx, head, p.Tenants); err != nil {
		return proposal, "", cli.Usage(fmt.Errorf("--tenant: %w", err))
	}
	if head, _, err = estate.WithTenants(ctx, head, p.Tenants); err != nil {
		return proposal, "", err
	}
	base, err := p.in.Repo.Snapshot(ctx, p.in.Base)
	if err != nil {
		return proposal, "", err
	}
	touched, err := p.loader.Compare(ctx, base, head)
	if err != nil {
		return proposal, "", err
	}
	if proposal, err = p.decider.Change(ctx, p.in, head, touched); err != nil {
		return proposal, "", err
	}
	missing, err = p.unmerged(ctx)
	return proposal, missing, err
}

func noWorkTree(at gitrepo.Place) error {
	return cli.Usage(fmt.Errorf("%s has no work tree; give --head or --patch", at.GitDir))
}

// maxUnmerged bounds how many commits of HEAD are counted.
const maxUnmerged = 1000

// unmerged describes commits of HEAD that are not on main, or returns "".
func (p *planner) unmerged(ctx context.Context) (string, error) {
	if p.Base != "" || p.tips.Main == "" || p.tips.Main == p.in.Base {
		return "", nil
	}
	ahead, err := p.repo.Log(ctx, p.tips.Main, p.in.Base, maxUnmerged)
	if err != nil || len(ahead) == 0 {
		return "", err
	}
	return fmt.Sprintf("HEAD has %s that main lacks; this plan covers uncommitted changes only; berth plan --base main --head HEAD "+
		"covers the commits.", cli.Count(len(ahead), "commit")), nil
}

// planPatch plans the patch. missing names files that the work tree changes and the
// patch lacks.
func (p *planner) planPatch(ctx context.Context, stdin io.Reader) (proposal plan.Proposal, missing string, err error) {
	from, name := stdin, "standard input"
	if p.Patch != "-" {
		f, err := os.Open(p.Patch)
		if err != nil {
			return proposal, "", cli.Usage(fmt.Errorf("--patch: %w", err))
		}
		defer f.Close()
		from, name = f, p.Patch
	}
	parsed, err := patch.Parse(from)
	if err != nil {
		return proposal, "", cli.Usage(fmt.Errorf("--patch: %s: %w", name, err))
	}
	base, err := p.in.Repo.Snapshot(ctx, p.in.Base)
	if err != nil {
		return proposal, "", err
	}
	tree, conflicts, err := parsed.Apply(ctx, base)
	switch {
	case err != nil:
		return proposal, "", fmt.Errorf("--patch: %s: %w", name, err)
	case len(conflicts) > 0:
		return decide.Conflicting(p.in, conflicts), "", nil
	}
	if p.Base == "" {
		if missing, err = p.leftOut(ctx, base, tree.Touched()); err != nil {
			return proposal, "", err
		}
	}
	if len(tree.Touched()) == 0 && missing == "" {
		missing = "The patch changes no file, so there is nothing to plan."
	}
	proposal, err = p.decider.Change(ctx, p.in, tree, tree.Touched())
	return proposal, missing, err
}

// maxLeftOut bounds how many files that a patch lacks are named.
const maxLeftOut = 5

// leftOut names the files of the estate that the work tree or the index changes and
// the patch lacks, or returns "". Ignored files do not count.
func (p *planner) leftOut(ctx context.Context, base schema.Snapshot, touched []schema.PathChange) (string, error) {
	at, err := gitrepo.Locate(p.Repo)
	if err != nil || at.WorkTree == "" {
		return "", err
	}
	staged, err := p.repo.Staged(ctx, at)
	if err != nil {
		return "", err
	}
	work, err := localestate.WorkTree(ctx, p.repo, at)
	if err != nil {
		return "", err
	}
	changed, err := p.loader.Compare(ctx, base, work)
	if err != nil {
		return "", err
	}
	lacking := map[string]bool{}
	for _, path := range staged {
		lacking[path] = true
	}
	for _, c := range changed {
		lacking[c.Path] = true
	}
	for _, c := range touched {
		delete(lacking, c.Path)
	}
	paths := slices.Sorted(maps.Keys(lacking))
	switch n := len(paths); {
	case n == 0:
		return "", nil
	case n > maxLeftOut:
		paths = append(paths[:maxLeftOut], fmt.Sprintf("%d more", n-maxLeftOut))
	}
	return fmt.Sprintf("The patch lacks what the work tree or the index changes in %s: berth plan without --patch plans the work tree; "+
		"git add -N makes git diff HEAD show untracked files.", strings.Join(paths, ", ")), nil
}

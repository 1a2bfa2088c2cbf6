package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/gitrepo"
	"berth/reconciler/plan"
	"berth/reconciler/report"
	"berth/runtimes/memory"
	"berth/runtimes/slurm"
	"berth/schema/load"
)

// planForms are the forms `berth plan` writes.
func planForms() []string { return []string{"text", "json", "markdown"} }

func newPlanCmd() *cobra.Command {
	var (
		repo, base, head, output string
		detailed                 bool
	)
	cmd := &cobra.Command{
		Use:   "plan [--repo DIR] --base REV --head REV",
		Short: "what merging one revision into another would do",
		Long: `Show what merging --head into --base would do to what runs: the same plan that
Berth shows on the pull request. It rests on what the branch berth/status
remembers, as far as the repository has it; nothing is changed and no host is
asked.

Exit status: 0 nothing is in the way, 1 something is, 2 usage;
with --detailed-exitcode 3 when nothing is in the way and there is something to do.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(planForms(), output) {
				return &exitError{2, fmt.Errorf("-o %s: there is %s", output, strings.Join(planForms(), ", "))}
			}
			p, err := proposal(cmd.Context(), repo, base, head)
			if err != nil {
				return err
			}
			text, err := formOf(p, output)
			if err != nil {
				return &exitError{1, err}
			}
			if _, err := cmd.OutOrStdout().Write(text); err != nil {
				return &exitError{1, err}
			}
			switch {
			case p.Blocked():
				return &exitError{code: 1}
			case detailed && p.Changes():
				return &exitError{code: 3}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&repo, "repo", ".", "Git repository of the estate, or a directory in it")
	cmd.Flags().StringVar(&base, "base", "", "revision that would be merged into, such as main")
	cmd.Flags().StringVar(&head, "head", "", "revision that would be merged")
	cmd.Flags().StringVarP(&output, "output", "o", "text", strings.Join(planForms(), ", "))
	cmd.Flags().BoolVar(&detailed, "detailed-exitcode", false, "exit 3 when there is something to do")
	for _, f := range []string{"base", "head"} {
		cobra.CheckErr(cmd.MarkFlagRequired(f))
	}
	return cmd
}

func formOf(p plan.Proposal, form string) ([]byte, error) {
	switch form {
	case "json":
		return report.JSON(p)
	case "markdown":
		return []byte(report.Markdown(p)), nil
	}
	return []byte(report.Text(p)), nil
}

// proposal plans the merge of head into base in the repository at dir.
func proposal(ctx context.Context, dir, base, head string) (p plan.Proposal, err error) {
	repo, err := gitrepo.OpenLocal(dir)
	if err != nil {
		return p, &exitError{2, fmt.Errorf("plan: %w", err)}
	}
	defer func() { err = errors.Join(err, repo.Close()) }()
	in := decide.Input{Repo: repo, Rules: planningRules}
	for _, r := range []struct {
		flag, revision string
		commit         *string
	}{{"--base", base, &in.Base}, {"--head", head, &in.Head}} {
		if *r.commit, err = repo.Resolve(ctx, r.revision); err != nil {
			return p, &exitError{2, fmt.Errorf("plan: %s: %w", r.flag, err)}
		}
	}
	tips, err := repo.Fetch(ctx) // of the local branches: nothing is fetched
	if err != nil && !errors.Is(err, reconciler.ErrNotFound) {
		return p, &exitError{1, fmt.Errorf("plan: %w", err)}
	}
	if tips.Main == in.Base {
		in.InForce = tips.InForce
	}
	status, err := repo.ReadStatus(ctx, tips.Status)
	if err != nil {
		return p, &exitError{1, fmt.Errorf("plan: %s: %w", reconciler.BranchStatus, err)}
	}
	in.Memory = status.Units
	if in.Loader, err = load.New(load.Options{Backends: backends()}); err != nil {
		return p, &exitError{1, err}
	}
	if p, err = decide.Proposal(ctx, in); err != nil {
		return p, &exitError{1, fmt.Errorf("plan: %w", err)}
	}
	return p, nil
}

// planningRules are what a backend knows of a change without looking anywhere.
func planningRules(backend string) plan.Rules {
	switch backend {
	case "slurm":
		return slurm.Rules{}
	case "bare_metal":
		return rulesFunc(memory.Impact)
	}
	return nil
}

// rulesFunc is a function as plan.Rules.
type rulesFunc func(plan.Verb, string, *plan.Unit, *plan.Unit) plan.Impact

func (f rulesFunc) Impact(verb plan.Verb, member string, before, after *plan.Unit) plan.Impact {
	return f(verb, member, before, after)
}

package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/localestate"
	"berth/cmd/internal/localplan"
	"berth/cmd/internal/watch"
	"berth/reconciler/plan"
	"berth/reconciler/report"
)

// planForms are the output forms of `berth plan`.
func planForms() []string { return []string{"text", "json", "markdown", "junit"} }

func newPlanCmd() *cobra.Command {
	var req localplan.Request
	var output cli.Output
	var detailed, watched bool
	cmd := &cobra.Command{
		Use:   "plan [--repo DIR] [--base REV] [--head REV | --patch FILE] [--watch]",
		Short: "Show what a change would do to running instances",
		Long: `Show what a change would do to running instances: the same plan that Berth shows
on the pull request. Nothing is changed, and no host is asked.

The change is one of:
  (no flag)      the difference between HEAD and the work tree, with untracked files
                 and without ignored ones
  --head REV     a merge of REV into --base
  --patch FILE   a patch, applied to --base exactly where it says, such as
                 git diff HEAD | berth plan --patch -
                 The plan names changed files of the work tree that the patch lacks:
                 git diff leaves out untracked files.

The plan uses the branches berth/status and berth/in-force, if the repository has
them. They describe the commit that Berth decided last. A plan against another
commit assumes that all of that commit is in force, and says so.

With --author, the plan also says whether this person may make the change. The
trailers Berth-Ack-Delete and Break-Glass in the message of --head count as on a
pull request. The forge is not asked: give each approval with --approver.

With --tenant NAME=DIR, the plan includes what the change does to the tenant whose
own repository is in DIR.

With --watch, the plan is shown again after every change, until interrupted.

Exit status: 0 nothing blocks the change, 1 something does, 2 usage; with
--detailed-exitcode 3 if nothing blocks it and there is something to do; with
--watch 0.`,
		Example: `  berth plan
  berth plan --base main --head my-branch --author anna
  git diff HEAD | berth plan --patch -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := req.Check(); err != nil {
				return cli.Usage(err)
			}
			loader, err := localestate.NewLoader()
			if err != nil {
				return err
			}
			planOnce := func() (plan.Proposal, error) {
				p, err := req.Plan(cmd.Context(), loader, cmd.InOrStdin())
				if err != nil {
					return p, err
				}
				if watched || output.Form != "text" {
					return p, writePlan(cmd.OutOrStdout(), p, output.Form)
				}
				return p, cli.Paged(cmd.OutOrStdout(), func(w io.Writer) error { return writePlan(w, p, output.Form) })
			}
			if watched {
				return watchPlan(cmd, &req, output.Form == "text", planOnce)
			}
			p, err := planOnce()
			switch {
			case err != nil:
				return err
			case p.Blocked():
				return cli.Exit(1)
			case detailed && p.Changes():
				return cli.Exit(3)
			}
			return nil
		},
	}
	requestFlags(cmd, &req)
	output.Flag(cmd, planForms()...)
	cmd.Flags().BoolVar(&detailed, "detailed-exitcode", false, "exit 3 when there is something to do")
	cmd.Flags().BoolVar(&watched, "watch", false, "show the plan again whenever something changes")
	return cmd
}

// requestFlags adds the flags that say which change to plan, and for whom.
func requestFlags(cmd *cobra.Command, req *localplan.Request) {
	flags := cmd.Flags()
	flags.StringVar(&req.Repo, "repo", ".", "Git repository of the estate, or a directory in it")
	flags.StringVar(&req.Base, "base", "", "revision that would be merged into, such as main (default HEAD, without --head)")
	flags.StringVar(&req.Head, "head", "", "revision that would be merged (default the work tree)")
	flags.StringVar(&req.Patch, "patch", "", "patch that would be applied, as git diff writes it; - is standard input")
	flags.StringVar(&req.Author, "author", "", "login of the author; the plan then says whether they may make the change")
	flags.StringSliceVar(&req.Approvers, "approver", nil, "login that approved the change, with --author; may be repeated")
	flags.StringSliceVar(&req.Administrators, "administrator", nil, "login that berth.yaml names as an administrator, for --author")
	flags.StringToStringVar(&req.Tenants, "tenant", nil,
		"NAME=DIR: a tenant whose documents are in a directory of their own; may be repeated")
}

// watchPlan plans whenever the change or its base moves.
func watchPlan(cmd *cobra.Command, req *localplan.Request, isText bool, planOnce func() (plan.Proposal, error)) error {
	if req.Patch == "-" {
		return cli.Usage(errors.New("plan: --watch needs a patch in a file: standard input is read once"))
	}
	name, scan, err := req.Watched()
	if err != nil {
		return err
	}
	return watch.Repeat(cmd.Context(), watch.Command{
		Name: name, Scan: scan, IsText: isText, Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(),
		Run: func() error {
			_, err := planOnce()
			return err
		},
	})
}

// writePlan writes a plan in a form, in colour where w shows colours.
func writePlan(w io.Writer, p plan.Proposal, form string) error {
	text, err := formOf(p, form)
	if err != nil {
		return err
	}
	if form == "text" {
		text = []byte(cli.Colored(w, string(text)))
	}
	_, err = w.Write(text)
	return err
}

// formOf is a plan in a form.
func formOf(p plan.Proposal, form string) ([]byte, error) {
	switch form {
	case "json":
		return report.JSON(p)
	case "markdown":
		return []byte(report.Markdown(p)), nil
	case "junit":
		return report.JUnitPlan(p)
	}
	return []byte(report.Text(p)), nil
}

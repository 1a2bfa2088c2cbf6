package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/inspect"
	"berth/cmd/internal/watch"
	"berth/reconciler"
)

func newStatusCmd() *cobra.Command {
	var req logFlags
	var want inspect.StatusFilter
	var watched bool
	cmd := &cobra.Command{
		Use:   "status [--project TENANT.PROJECT] [--phase PHASE] [--site SITE] [--failed] [-c berth.yaml | --repo DIR]",
		Short: "Show what runs, where, and what is held, paused or failing, and why",
		Long: `Show the estate at a glance, as Berth last recorded it on the branch
` + reconciler.BranchStatus + `: each instance and shared runtime with its phase and nodes, what
needs attention, and the documents on main that are held, with the reason. What
needs attention comes first.

In a clone, the branch is read as the last git fetch brought it. In the
directory of a berth.yaml that names a local repository, that one is read.

With --watch, it is shown again whenever Berth records something, until interrupted.

The exit status does not tell whether everything runs: see .instances[].ready
of -o json.

Exit status: 0, 1 ` + reconciler.BranchStatus + ` is missing or the project or site is unknown, 2 usage.`,
		Example: `  berth status
  berth status --project physics.lattice --failed
  berth status -o json | jq -r '.instances[] | .name + " " + .phase'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := want.Check(); err != nil {
				return cli.Usage(err)
			}
			show := func() error {
				return req.source.With(cmd.Context(), func(r *inspect.Repository) error {
					overview, err := r.Overview(cmd.Context(), want)
					if err != nil {
						return fmt.Errorf("status: %w", err)
					}
					if watched {
						return req.output.Print(cmd.OutOrStdout(), overview)
					}
					return req.output.PrintLong(cmd.OutOrStdout(), overview)
				})
			}
			if !watched {
				return show()
			}
			gitDir, commonDir, err := req.source.Refs()
			if err != nil {
				return err
			}
			return watch.Repeat(cmd.Context(), watch.Command{
				Name: gitDir, Run: show, IsText: req.output.Form != "json", Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(),
				Scan: func() (watch.Files, error) {
					f := watch.Files{Stamps: map[string]string{}}
					return f, f.AddRefs(gitDir, commonDir)
				},
			})
		},
	}
	req.addTable(cmd)
	cmd.Flags().StringVar(&want.Project, "project", "", "only resources of this project, as TENANT.PROJECT")
	cmd.Flags().StringVar(&want.Phase, "phase", "", "only resources in this phase, such as failed")
	cmd.Flags().StringVar(&want.Site, "site", "", "only nodes of this site, and units with a member on one")
	cmd.Flags().BoolVar(&watched, "watch", false, "show it again whenever Berth records something")
	cmd.Flags().BoolVar(&want.Failed, "failed", false, "only resources that are not ready, and held documents")
	return cmd
}

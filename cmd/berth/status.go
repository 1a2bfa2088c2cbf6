package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/inspect"
	"berth/reconciler"
)

func newStatusCmd() *cobra.Command {
	var req logFlags
	var want inspect.StatusFilter
	cmd := &cobra.Command{
		Use:   "status [--project TENANT.PROJECT] [--phase PHASE] [--failed] [-c berth.yaml | --repo DIR]",
		Short: "Show what runs, where, and what is held, paused or failing, and why",
		Long: `Show the estate at a glance, as Berth last recorded it on the branch
` + reconciler.BranchStatus + `: each instance and shared runtime with its phase and nodes, what
needs attention, and the documents on main that are held, with the reason. What
needs attention comes first.

In a clone, the branch is read as the last git fetch brought it. In the
directory of a berth.yaml that names a local repository, that one is read.

The exit status does not tell whether everything runs: see .instances[].ready
of -o json.

Exit status: 0, 1 ` + reconciler.BranchStatus + ` is missing or the project is unknown, 2 usage.`,
		Example: `  berth status
  berth status --project physics.lattice --failed
  berth status -o json | jq -r '.instances[] | .name + " " + .phase'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := want.Check(); err != nil {
				return cli.Usage(err)
			}
			return req.source.With(cmd.Context(), func(r *inspect.Repository) error {
				overview, err := r.Overview(cmd.Context(), want)
				if err != nil {
					return fmt.Errorf("status: %w", err)
				}
				return req.output.Print(cmd.OutOrStdout(), overview)
			})
		},
	}
	req.addTable(cmd)
	cmd.Flags().StringVar(&want.Project, "project", "", "only resources of this project, as TENANT.PROJECT")
	cmd.Flags().StringVar(&want.Phase, "phase", "", "only resources in this phase, such as failed")
	cmd.Flags().BoolVar(&want.Failed, "failed", false, "only resources that are not ready, and held documents")
	return cmd
}

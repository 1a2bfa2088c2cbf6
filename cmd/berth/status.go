package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"berth/cmd/internal/inspect"
	"berth/reconciler"
)

func newStatusCmd() *cobra.Command {
	var req logFlags
	cmd := &cobra.Command{
		Use:   "status [-c berth.yaml | --repo DIR]",
		Short: "Show what runs, where, and what is held, paused or failing, and why",
		Long: `Show the estate at a glance, as Berth last recorded it on the branch
` + reconciler.BranchStatus + `: each instance and shared runtime with its phase and nodes, what
needs attention, and the documents on main that are held, with the reason.

In a clone, the branch is read as the last git fetch brought it. In the
directory of a berth.yaml that names a local repository, that one is read.

The exit status does not tell whether everything runs: see .instances[].ready
of -o json.

Exit status: 0, 1 there is no ` + reconciler.BranchStatus + ` to read, 2 usage.`,
		Example: `  berth status
  berth status -o json | jq -r '.instances[] | .name + " " + .phase'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return req.source.With(cmd.Context(), func(r *inspect.Repository) error {
				overview, err := r.Overview(cmd.Context())
				if err != nil {
					return fmt.Errorf("status: %w", err)
				}
				return req.output.Print(cmd.OutOrStdout(), overview)
			})
		},
	}
	req.addTable(cmd)
	return cmd
}

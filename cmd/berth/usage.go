package main

import (
	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/inspect"
	"berth/reconciler"
)

func newUsageCmd() *cobra.Command {
	var req logFlags
	var want inspect.UsageFilter
	cmd := &cobra.Command{
		Use:   "usage [--from DAY] [--to DAY] [--org TENANT] [--project TENANT.PROJECT]",
		Short: "Show what jobs used, by project and unit",
		Long: `Add up the records of usage on ` + reconciler.BranchStatus + `: CPU hours, GPU hours and GiB hours of
memory that jobs used on the selected days (UTC). A job over a midnight has a record for each of
its days. While a job is suspended it uses memory and GPUs, and no CPUs, as in sreport.

Berth records jobs that have ended at the interval usage_interval of berth.yaml, and before a
project is detached or a unit is stopped or deleted. A job that runs is recorded for the days
that are over.

-o csv and -o json have whole seconds, so that sums are exact.

Exit status: 0, 1 part of the records cannot be read, 2 usage.`,
		Example: `  berth usage --from 2026-11-01 --to 2026-11-30
  berth usage --project physics.lattice -o csv`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := want.Check(); err != nil {
				return cli.Usage(err)
			}
			return req.source.With(cmd.Context(), func(r *inspect.Repository) error {
				u, err := r.Used(cmd.Context(), cmd.ErrOrStderr(), want)
				if err != nil {
					return err
				}
				if req.output.Form == "csv" {
					err = u.CSV(cmd.OutOrStdout())
				} else {
					err = req.output.Print(cmd.OutOrStdout(), u)
				}
				if err != nil || u.Complete {
					return err
				}
				return cli.Exit(1)
			})
		},
	}
	req.addTable(cmd, "text", "csv", "json")
	cmd.Flags().StringVar(&want.From, "from", "", "first day, such as 2026-11-01 (default: that of the first record)")
	cmd.Flags().StringVar(&want.To, "to", "", "last day, such as 2026-11-30 (default: that of the last record)")
	cmd.Flags().StringVar(&want.Org, "org", "", "only jobs billed to this tenant")
	cmd.Flags().StringVar(&want.Project, "project", "", "only jobs billed to this project, as TENANT.PROJECT")
	return cmd
}

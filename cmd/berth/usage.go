package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/inspect"
	"berth/reconciler"
)

func newUsageCmd() *cobra.Command {
	var req logFlags
	var want inspect.UsageFilter
	var daemon usageServer
	var by string
	cmd := &cobra.Command{
		Use:   "usage [--from DAY] [--to DAY] [--org TENANT] [--project TENANT.PROJECT] [--by user] [--server URL]",
		Short: "Show what jobs used, by project and unit",
		Long: `Add up the records of usage on ` + reconciler.BranchStatus + `: CPU hours, GPU hours and GiB hours of
memory that jobs used on the selected days (UTC). A job over a midnight has a record for each of
its days. While a job is suspended it uses memory and GPUs, and no CPUs, as in sreport.

Berth writes the open days of a unit at the interval usage_interval of berth.yaml, and before a
project is detached or a unit is stopped or deleted. They have the jobs that have ended, and of a
job that runs the days that are over. The last line says when usage was written last.

With --server the daemon answers for one project: what it used of each unit on the last 31 days
(UTC) until now, also by jobs that run, without costs. Accounting is read at most once a minute for
each unit while somebody asks, and with --live at most every 10 seconds. If it does not answer, the
days are those that were written last, and the line of the unit says until when they are known, and
the reason. Units that are deleted, and shared runtimes that the project left, are on the branch
only.

A month of a unit is closed once no record of it can come any more: accounting has added up its
last day, or the unit is gone. A correction of a closed day is a record of the first open day, at
the prices of the closed day. Sums with a correction may be negative.

COST is the price of the use by the RateCard named in RATES: billing_policy_ref of the attachment
when the job was recorded, if that card exists and applies to the tenant, otherwise default; or the
card that replaces it on that day. KIND shared is the idle time and the control plane of the unit,
as billed to the project or to the owner. It counts closed days, by shared_cost of the RateCard that
the unit names. The shared lines of a unit and a card add up exactly. The
second table has the totals of each project and of all; its hours are those of jobs. It names the
number of lines without a price.

-o csv has a line of headers and one line for each line of the first table. -o json has the same in
"sums". Both have whole seconds (cpu_seconds, gpu_seconds, memory_mib_seconds) and whole millionths
of the currency (cost_millionths, price.millionths), so that sums are exact.

Exit status: 0, 1 part of the records cannot be read, or the daemon refuses, 2 usage.`,
		Example: `  berth usage --from 2026-11-01 --to 2026-11-30
  berth usage --server https://berth.example.org --project physics.lattice
  berth usage --project physics.lattice -o csv`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asked, err := daemon.isAsked(cmd); err != nil {
				return err
			} else if asked {
				return daemon.run(cmd, want.Project, &req.output)
			}
			if err := want.Check(); err != nil {
				return cli.Usage(err)
			}
			if by != "" && by != "user" {
				return cli.Usage(fmt.Errorf("--by %s: give user, or leave it out", cli.Visible(by)))
			}
			want.Users = by == "user"
			return printUsage(cmd, &req, want)
		},
	}
	req.addTable(cmd, "text", "csv", "json")
	cmd.Flags().StringVar(&want.From, "from", "", "first day, such as 2026-11-01 (default: that of the first record)")
	cmd.Flags().StringVar(&want.To, "to", "", "last day, such as 2026-11-30 (default: that of the last record)")
	cmd.Flags().StringVar(&want.Org, "org", "", "only lines billed to this tenant")
	cmd.Flags().StringVar(&want.Project, "project", "", "only lines billed to this project, as TENANT.PROJECT")
	cmd.Flags().StringVar(&by, "by", "", "user: a line for the jobs of each Unix user")
	daemon.flags(cmd)
	cmd.AddCommand(newUsageExportCmd())
	return cmd
}

// printUsage prints what the branch says of usage.
func printUsage(cmd *cobra.Command, req *logFlags, want inspect.UsageFilter) error {
	return req.source.With(cmd.Context(), func(r *inspect.Repository) error {
		u, err := r.Used(cmd.Context(), cmd.ErrOrStderr(), want)
		if err != nil {
			return err
		}
		if req.output.Form == "csv" {
			err = u.CSV(cmd.OutOrStdout())
		} else {
			err = req.output.PrintLong(cmd.OutOrStdout(), u)
		}
		if err != nil || u.Complete {
			return err
		}
		return cli.Exit(1)
	})
}

func newUsageExportCmd() *cobra.Command {
	var req logFlags
	var cursor string
	cmd := &cobra.Command{
		Use:   "export [--cursor COMMIT]",
		Short: "Write the records of usage for a billing system",
		Long: `Write the records of days of ` + reconciler.BranchStatus + ` that are closed as JSON Lines: {"record": …} for each
record, {"closing": …} for each closed day of a cluster, and at the end {"cursor": …}. Open days are
not written. The next export with that cursor has the days that were closed since: each record
comes once. Without its last line an export is not complete: repeat it with the same cursor.

A record that has "corrects" corrects that day, which is closed and does not change: its seconds
are the difference, and may be negative. Add all records up. The last days of a deleted unit have
no closing; they are written once they are over.

Exit status: 0, 1 a record cannot be read, 2 usage.`,
		Example: `  berth usage export > usage.jsonl
  berth usage export --cursor 0f2c41d29c1b7f6f4b6b1d0b3d0f5a4e2a9c8d71 >> usage.jsonl`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !isCommit(cursor) && cursor != "" {
				return cli.Usage(fmt.Errorf("--cursor %s: give the cursor of the last line of an export", cli.Visible(cursor)))
			}
			return req.source.With(cmd.Context(), func(r *inspect.Repository) error {
				return r.ExportUsage(cmd.Context(), cmd.OutOrStdout(), cursor)
			})
		},
	}
	req.addSource(cmd)
	cmd.Flags().StringVar(&cursor, "cursor", "", "cursor of the export before (default: from the first record)")
	cli.AllowEmpty(cmd, "cursor")
	return cmd
}

// isCommit reports whether text is the id of a commit.
func isCommit(text string) bool {
	return len(text) == 40 && strings.Trim(text, "0123456789abcdef") == ""
}

package main

import (
	"io"
	"time"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/inspect"
	"berth/reconciler"
	"berth/schema"
)

func newEventsCmd() *cobra.Command {
	var req logFlags
	var want inspect.EventFilter
	var follow bool
	cmd := &cobra.Command{
		Use:   "events [--correlation ID] [--instance TENANT.PROJECT/NAME] [--since TIME] [--follow]",
		Short: "Show the events of the estate, oldest first",
		Long: `Show the events on the branch ` + reconciler.BranchStatus + `, oldest first. The branch is read as the
repository has it; nothing is fetched.

With -o json, each line is one event in its envelope; berth schema export --events
DIR writes the schemas.

With --follow, new events are shown as the branch gets them, until interrupted.

Exit status: 0, 1 the log is missing or partly unreadable, or no entry has a name
that a flag gives, 2 usage.`,
		Example: `  berth events --follow
  berth events --instance physics.lattice/train --since 24h`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := want.Begin(time.Now()); err != nil {
				return cli.Usage(err)
			}
			show := func(w io.Writer) error {
				return req.source.Events(cmd.Context(), req.output.Entries(w, inspect.EventColumns()...), cmd.ErrOrStderr(), want, follow)
			}
			if follow || req.output.Form == "json" {
				return show(cmd.OutOrStdout())
			}
			return cli.Paged(cmd.OutOrStdout(), show)
		},
	}
	req.addTable(cmd)
	cmd.Flags().StringVar(&want.Correlation, "correlation", "", "only events of this correlation id")
	cmd.Flags().StringVar(&want.Instance, "instance", "", "only events of this instance, as TENANT.PROJECT/NAME")
	_ = cmd.RegisterFlagCompletionFunc("instance", completeNames(schema.KindInstance)) // the flag is there
	sinceFlag(cmd, &want.Since, "events")
	cmd.Flags().BoolVar(&follow, "follow", false, "show new events as the branch gets them")
	return cmd
}

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"berth/cmd/internal/inspect"
	"berth/cmd/internal/ledgers"
)

func newTraceCmd() *cobra.Command {
	var req logFlags
	var hosts bool
	cmd := &cobra.Command{
		Use:   "trace CORRELATION_ID|COMMIT",
		Short: "Trace one change from commit to hosts",
		Long: `Show what one change caused: its commit and author, the documents that came into
force or were held, the audit records and events in order of time, and the resources
that follow the change now. The correlation id of a change is in the comment on the
pull request, in log lines, events, audit records and errors. A commit of main, such as
HEAD, stands for its id.

The branches are read as the repository has them; nothing is fetched.

With -c and a section ssh in berth.yaml, the nodes of the estate are asked in parallel
for the entries of their ledgers: what was done on each host, by time, and where it
stopped. This takes the daemon's SSH key, so run it as the daemon's user. A node that
does not answer within 15 s is listed as unknown, and the rest is shown.

Exit status: 0, 1 nothing has the id, 2 usage.`,
		Example: `  berth trace c630b41a29591b1bb3f0d
  berth trace c630b41a29591b1bb3f0d -c /etc/berth/berth.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return req.source.With(cmd.Context(), func(r *inspect.Repository) error {
				var ask inspect.AskHosts
				if hosts && req.source.Config != "" {
					var err error
					if ask, err = ledgers.Ask(req.source.Config); err != nil {
						return err
					}
				}
				trace, err := r.Trace(cmd.Context(), args[0], ask)
				if err != nil {
					return fmt.Errorf("trace: %w", err)
				}
				return req.output.PrintLong(cmd.OutOrStdout(), trace)
			})
		},
	}
	req.add(cmd)
	cmd.Flags().BoolVar(&hosts, "hosts", true, "with -c, also read the ledgers of the hosts; --hosts=false reads the branches only")
	return cmd
}

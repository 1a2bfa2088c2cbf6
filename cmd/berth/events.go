package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/inspect"
	"berth/cmd/internal/remote"
	"berth/reconciler"
	"berth/schema"
)

func newEventsCmd() *cobra.Command {
	var req logFlags
	var want inspect.EventFilter
	var follow bool
	var server remote.Server
	cmd := &cobra.Command{
		Use:   "events [--correlation ID] [--instance TENANT.PROJECT/NAME] [--since TIME] [--follow]",
		Short: "Show the events of the estate, oldest first",
		Long: `Show the events on the branch ` + reconciler.BranchStatus + `, oldest first. The branch is read as the
repository has it; nothing is fetched.

With -o json, each line is one event in its envelope; berth schema export --events
DIR writes the schemas.

With --follow, new events are shown as the branch gets them, until interrupted.

With --follow and --server, the daemon sends the events that you may read: new ones,
or those since --since. The branch and the repository are not needed. If the
connection ends, it is made again, and no event is lost or shown twice.

Exit status: 0, 1 the log is missing or partly unreadable, or no entry has a name
that a flag gives, 2 usage.`,
		Example: `  berth events --follow
  berth events --follow --server https://berth.example.org --token-file token
  berth events --instance physics.lattice/train --since 24h`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := want.Begin(time.Now()); err != nil {
				return cli.Usage(err)
			}
			if isAsked, err := asksServer(cmd, &server, follow); err != nil {
				return err
			} else if isAsked {
				return followServer(cmd, &server, req.output.Entries(cmd.OutOrStdout(), inspect.EventColumns()...), want)
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
	server.Flags(cmd)
	cmd.Flags().Lookup("server").Usage = "`URL` of the daemon to follow instead of the branch"
	return cmd
}

// asksServer reports whether the daemon is asked, and not the branch. It refuses flags of the other one.
func asksServer(cmd *cobra.Command, server *remote.Server, follow bool) (bool, error) {
	names, text := []string{"token-file", "break-glass"}, "events: --%s is for the daemon; give --server too, or leave it out"
	if server.URL != "" {
		names, text = []string{"repo", "config", "rev"}, "events: --%s is for the branch; leave out --server, or this flag"
		if !follow {
			return false, cli.Usage(errors.New("events: --server is for --follow; leave it out to read the branch"))
		}
	}
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			return false, cli.Usage(fmt.Errorf(text, name))
		}
	}
	return server.URL != "", nil
}

// followServer prints the events that a daemon sends, until interrupted.
func followServer(cmd *cobra.Command, server *remote.Server, out *cli.Entries, want inspect.EventFilter) error {
	query := url.Values{}
	if project := want.Project(); project != "" {
		query.Set("project", project)
	}
	if from := want.From(); !from.IsZero() {
		query.Set("since", from.UTC().Format(time.RFC3339))
	}
	lost := func(err error) { fmt.Fprintf(cmd.ErrOrStderr(), "berth: %v; connecting again\n", err) }
	return server.Events(cmd.Context(), query, lost, func(data string) error { return inspect.PrintEvent(out, want, data) })
}

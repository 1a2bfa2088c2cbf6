package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/daemon"
)

func newSyncCmd() *cobra.Command {
	var (
		paths   []string
		once    bool
		verbose bool
		output  cli.Output
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use:   "sync -c berth.yaml [-c another.yaml …] [--once]",
		Short: "Reconcile the estates without webhooks",
		Long: `Reconcile the estates until interrupted, without webhooks and without serving
anything.

With --once, exit when everything has converged. It exits immediately when waiting
cannot help, for example when a change is held. With -o json, it writes one line of
JSON for each estate. On a terminal, sync prints a line for each instance that it
created, changed or deleted. It logs only warnings and errors; with -v, each step.

Exit status: 0 converged, 1 not converged or failed, 2 usage.`,
		Example: `  berth sync -c berth.yaml --once
  berth sync -c berth.yaml --once --timeout 30s -o json | jq .converged`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needsOnce(cmd, once); err != nil {
				return err
			}
			level := slog.LevelInfo
			if once && !verbose {
				level = slog.LevelWarn
			}
			d, err := daemon.New(paths, daemon.NewLogger(cmd.ErrOrStderr(), level))
			if err != nil {
				return conflictsAreUsage(err)
			}
			if !once {
				return d.Follow(cmd.Context())
			}
			var errs []error
			progress := func(line string) {
				if cli.IsTerminal(cmd.ErrOrStderr()) {
					fmt.Fprintln(cmd.ErrOrStderr(), cli.Visible(line))
				}
			}
			d.Once(cmd.Context(), timeout, progress, func(o daemon.Outcome) {
				errs = append(errs, printOutcome(cmd, o, output.Form, len(paths) > 1))
			})
			return errors.Join(errs...)
		},
	}
	configFlag(cmd, &paths)
	cmd.Flags().BoolVar(&once, "once", false, "exit when everything has converged, or waiting cannot help")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long --once may take")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "with --once, also log each step")
	output.Flag(cmd)
	return cmd
}

// needsOnce refuses the flags of --once without it.
func needsOnce(cmd *cobra.Command, once bool) error {
	for _, name := range []string{"timeout", "verbose", "output"} {
		if cmd.Flags().Changed(name) && !once {
			return cli.Usage(fmt.Errorf("sync: --%s needs --once: without it, sync follows the branch until it is interrupted, and logs "+
				"each step", name))
		}
	}
	return nil
}

// printOutcome prints the outcome of one estate, and returns its error.
func printOutcome(cmd *cobra.Command, o daemon.Outcome, form string, several bool) error {
	prefix := ""
	if several {
		prefix = "estate " + o.Estate + ": "
	}
	for _, left := range o.Left {
		fmt.Fprintln(cmd.ErrOrStderr(), "not converged:", cli.VisibleLines(prefix+left))
	}
	for _, warning := range o.Warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), cli.Visible(warning))
	}
	err := o.Err
	switch {
	case form == "json" && o.Ran:
		err = errors.Join(err, json.NewEncoder(cmd.OutOrStdout()).Encode(o.Summary))
	case form == "text" && err == nil:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%sconverged %s\n", prefix, o.Text())
	}
	if err != nil {
		return fmt.Errorf("%s%w", prefix, err)
	}
	return nil
}

package main

import (
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/daemon"
)

func newServeCmd() *cobra.Command {
	var (
		paths []string
		check bool
	)
	cmd := &cobra.Command{
		Use:   "serve -c berth.yaml [-c another.yaml …]",
		Short: "Run the daemon: webhooks, reconciliation, read API, metrics",
		Long: `Run the daemon for one or more estates until it is interrupted: receive webhooks,
reconcile, answer the read API, and serve /health, /readyz and /metrics.

A valid new configuration is applied at once: running work is recorded, then the
daemon continues with it. An invalid one is logged and ignored. SIGHUP reads the
configurations again.

Exit status: 0 interrupted, 1 it failed or the configuration is invalid, 2 usage.`,
		Example: `  berth serve -c /etc/berth/berth.yaml
  berth serve --check -c /etc/berth/berth.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if check {
				return conflictsAreUsage(daemon.Check(cmd.OutOrStdout(), paths))
			}
			d, err := daemon.New(paths, daemon.NewLogger(cmd.ErrOrStderr(), slog.LevelInfo))
			if err != nil {
				return conflictsAreUsage(err)
			}
			limitGarbage()
			reread := make(chan os.Signal, 1)
			signal.Notify(reread, syscall.SIGHUP)
			defer signal.Stop(reread)
			return d.Serve(cmd.Context(), reread)
		},
	}
	configFlag(cmd, &paths)
	cmd.Flags().BoolVar(&check, "check", false, "check the configuration and the files that it names, and exit")
	return cmd
}

// gcPercent is how much garbage the daemon makes before a collection, as a percentage of what it keeps. The estate is kept, so with
// Go's default of 100 half of the memory would be garbage.
const gcPercent = 50

// limitGarbage sets gcPercent unless the environment says otherwise.
func limitGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// conflictsAreUsage makes a usage error of configurations that conflict.
func conflictsAreUsage(err error) error {
	var conflict *daemon.ConflictError
	if errors.As(err, &conflict) {
		return cli.Usage(err)
	}
	return err
}

func configFlag(cmd *cobra.Command, paths *[]string) {
	cmd.Flags().StringArrayVarP(paths, "config", "c", []string{"berth.yaml"}, "configuration `file`, once for each estate")
}

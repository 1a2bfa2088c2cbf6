package main

import (
	"os"
	"os/signal"
	"syscall"

	"berth/cmd/internal/daemon"

	"github.com/spf13/cobra"
)

func newServeCmd() *cobra.Command {
	var (
		paths []string
		check bool
	)
	cmd := &cobra.Command{
		Use:   "serve -c berth.yaml [-c another.yaml …]",
		Short: "Run the daemon: webhooks, reconciliation, read API, metrics",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if check {
				return daemon.CheckConfigs(cmd.OutOrStdout(), paths)
			}
			s, err := daemon.NewEstates(paths, daemon.NewLogger(os.Stderr))
			if err != nil {
				return err
			}
			reread := make(chan os.Signal, 1)
			signal.Notify(reread, syscall.SIGHUP)
			defer signal.Stop(reread)
			return s.Serve(cmd.Context(), reread)
		},
	}
	configFlag(cmd, &paths)
	cmd.Flags().BoolVar(&check, "check", false, "only check the configuration and the files that it names")
	return cmd
}

func configFlag(cmd *cobra.Command, paths *[]string) {
	cmd.Flags().StringArrayVarP(paths, "config", "c", []string{"berth.yaml"}, "configuration; once for each estate")
}

package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/daemon"
)

func newSyncCmd() *cobra.Command {
	var (
		paths   []string
		once    bool
		form    string
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use:   "sync -c berth.yaml [-c another.yaml …] [--once]",
		Short: "Bring the estate to what is declared, without webhooks",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := daemon.NewEstates(paths, daemon.NewLogger(os.Stderr))
			if err != nil {
				return err
			}
			if once {
				err = s.Once(cmd.Context(), cmd.OutOrStdout(), form, timeout)
			} else {
				err = s.Keep(cmd.Context())
			}
			return err
		},
	}
	configFlag(cmd, &paths)
	cmd.Flags().BoolVar(&once, "once", false, "end when everything is converged: exit 0; or 1 when waiting does not help, or at the timeout")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long --once may take")
	cli.OutputFlag(cmd, &form, "text", "json")
	return cmd
}

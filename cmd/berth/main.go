// Command berth is Berth's command line and daemon. It wires the packages
// together and knows everything; nothing knows it. Names, flags and exit codes
// are a contract (DESIGN §7).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := newRoot().ExecuteContext(ctx)
	var exit *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		if exit.err != nil {
			fmt.Fprintln(os.Stderr, "berth:", visibleLines(exit.err.Error())) // it may name files of an estate
		}
		return exit.code
	default: // what cobra refuses is a usage error
		fmt.Fprintln(os.Stderr, "berth:", visibleLines(err.Error()))
		return 2
	}
}

// exitError ends the process with code; err may be nil when everything has
// been said already. Commands return it; only main exits.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "berth",
		Short:         "GitOps control plane for schedulers as platform apps",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	info, _ := debug.ReadBuildInfo()
	root.Version = versionOf(info).text()
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(newAuditCmd(), newDemoCmd(), newDescribeCmd(), newEventsCmd(), newExplainCmd(), newGetCmd(), newInitCmd(), newLabCmd(), newPlanCmd(), newSchemaCmd(), newServeCmd(), newStatusCmd(), newSyncCmd(), newTokenCmd(), newTraceCmd(), newValidateCmd(), newVersionCmd())
	return root
}

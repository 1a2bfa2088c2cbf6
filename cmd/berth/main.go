// Command berth is Berth's command line and daemon. Names of commands, flags and exit
// codes are a contract.
package main

import (
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/schema/load"
)

func main() {
	os.Exit(run())
}

func run() int { return cli.Main(newRoot()) }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "berth",
		Short:         "Run Slurm clusters that are declared in Git",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	info, _ := debug.ReadBuildInfo()
	root.Version = versionOf(info).text()
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(newAuditCmd(), newDescribeCmd(), newDocsCmd(), newEventsCmd(), newExplainCmd(), newGetCmd(), newInitCmd(), newNodeCmd(),
		newOnboardCmd(), newPlanCmd(), newQueueCmd(), newSchemaCmd(), newServeCmd(), newStatusCmd(), newSyncCmd(), newTokenCmd(),
		newTraceCmd(), newUsageCmd(), newValidateCmd(), newVersionCmd())
	cli.WrapHelp(root)
	cli.NameArguments(root, cli.Elsewhere{Commands: foreignCommands(), Flags: foreignFlags(), Arguments: extraArguments(),
		Nearest: load.Nearest})
	cli.WrapErrors(root)
	return root
}

package main

import (
	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/inspect"
	"berth/reconciler"
)

// logFlags are the flags of a command that reads berth/status in a local repository.
type logFlags struct {
	source inspect.Source
	output cli.Output
}

// add adds the flags that all such commands have; forms are those of cli.Output.Flag.
func (f *logFlags) add(cmd *cobra.Command, forms ...string) {
	f.addSource(cmd)
	f.output.Flag(cmd, forms...)
}

// addSource adds the flags that name the branch.
func (f *logFlags) addSource(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.source.Repo, "repo", "",
		"Git repository of the estate, or a directory in it (default: the local repository that ./berth.yaml names, else the working "+
			"directory)")
	cmd.Flags().StringVarP(&f.source.Config, "config", "c", "",
		"berth.yaml that names the local repository of the estate, or the directory of the daemon's mirror")
	cmd.Flags().StringVar(&f.source.Rev, "rev", "",
		"revision of "+reconciler.BranchStatus+" to read (default: the branch itself, or origin's where that is newer)")
}

// addTable adds the flags of such a command that writes a table.
func (f *logFlags) addTable(cmd *cobra.Command, forms ...string) {
	f.addSource(cmd)
	f.output.TableFlags(cmd, forms...)
}

// sinceFlag adds the flag that selects the entries of a log by time.
func sinceFlag(cmd *cobra.Command, since *string, entries string) {
	cmd.Flags().StringVar(since, "since", "",
		"only "+entries+" since a time or day, such as 2026-08-01T10:00:00Z, or since a duration ago, such as 24h or 7d")
}

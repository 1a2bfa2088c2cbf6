package main

import (
	"io"
	"maps"
	"runtime/debug"
	"slices"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/localestate"
	"berth/cmd/internal/validation"
	"berth/cmd/internal/watch"
)

func newValidateCmd() *cobra.Command {
	var (
		output cli.Output
		again  bool
		own    map[string]string
	)
	cmd := &cobra.Command{
		Use:   "validate [DIR]",
		Short: "Check a whole estate",
		Long: `Check a whole estate: every document, the references between documents, and the
instances against policy. A warning is about a document that can never run, has no
effect yet, or proves nothing.

With --tenant NAME=DIR, the documents of that tenant are read from its own repository
in DIR, except tenant.yaml.

If two documents contradict each other, the finding names both. If DIR is a clone, the
finding is at the document that is new compared with berth/in-force, or with HEAD if
that branch is missing.

With --watch, check it again whenever a file changes, until interrupted.

Exit status: 0 no errors, whatever the warnings, 1 errors, 2 usage; with --watch 0.`,
		Example: `  berth validate .
  berth validate -o github .
  berth validate --watch .`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			// A short process: memory is cheaper than garbage collection, up to a limit.
			debug.SetGCPercent(400)
			debug.SetMemoryLimit(256 << 20)
			loader, err := localestate.NewLoader()
			if err != nil {
				return err
			}
			once := func() error {
				v, err := validation.Validate(cmd.Context(), loader, dir, own)
				if err != nil {
					return err
				}
				write := func(w io.Writer) error { return v.Write(w, output.Form) }
				if again || output.Form != "text" {
					err = write(cmd.OutOrStdout())
				} else {
					err = cli.Paged(cmd.OutOrStdout(), write)
				}
				if err != nil {
					return err
				}
				if v.Summary.Errors > 0 {
					return cli.Exit(1)
				}
				return nil
			}
			if !again {
				return once()
			}
			return watch.Repeat(cmd.Context(), watch.Command{
				Name: dir, Run: once, IsText: output.Form == "text", Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(),
				Scan: func() (watch.Files, error) { return watch.Estate(dir, slices.Collect(maps.Values(own))...) },
			})
		},
	}
	output.Flag(cmd, validation.Forms()...)
	cmd.Flags().StringToStringVar(&own, "tenant", nil,
		"NAME=DIR: a tenant whose documents are in a directory of their own; may be repeated")
	cmd.Flags().BoolVar(&again, "watch", false, "check again whenever a file changes")
	return cmd
}

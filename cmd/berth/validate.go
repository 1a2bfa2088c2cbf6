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
	"berth/schema/estate"
)

func newValidateCmd() *cobra.Command {
	var call validateCall
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
			once := func() error { return call.once(cmd, loader, dir) }
			if !call.again {
				return once()
			}
			return watch.Repeat(cmd.Context(), watch.Command{
				Name: dir, Run: once, IsText: call.output.Form == "text", Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(),
				Scan: func() (watch.Files, error) { return watch.Estate(dir, slices.Collect(maps.Values(call.own))...) },
			})
		},
	}
	call.output.Flag(cmd, validation.Forms()...)
	cmd.Flags().StringToStringVar(&call.own, "tenant", nil,
		"NAME=DIR: a tenant whose documents are in a directory of their own; may be repeated")
	cmd.Flags().BoolVar(&call.again, "watch", false, "check again whenever a file changes")
	return cmd
}

// validateCall is a call of validate.
type validateCall struct {
	output cli.Output
	again  bool              // until interrupted
	own    map[string]string // directories, by tenant
}

// once checks the estate in dir, and prints the result.
func (c *validateCall) once(cmd *cobra.Command, loader *estate.Loader, dir string) error {
	v, err := validation.Validate(cmd.Context(), loader, dir, c.own)
	if err != nil {
		return err
	}
	write := func(w io.Writer) error { return v.Write(w, c.output.Form) }
	if c.again || c.output.Form != "text" {
		err = write(cmd.OutOrStdout())
	} else {
		err = cli.Paged(cmd.OutOrStdout(), write)
	}
	if err == nil && v.Summary.Errors > 0 {
		return cli.Exit(1)
	}
	return err
}

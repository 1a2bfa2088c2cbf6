package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"berth/schema"
	"berth/schema/load"
)

func newSchemaCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "what documents look like",
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "export [KIND]",
		Short: "write the JSON Schema of a kind of document, or of all, for editors",
		Long: `Write the JSON Schema of one kind of document, or of every kind, to standard
output. An editor that reads it completes fields and marks what is wrong with
them while you type; what documents say of each other, berth validate checks.

In Visual Studio Code and others that use yaml-language-server, write it beside
the estate and name it in the first line of a document:

    berth schema export > estate.schema.json
    # yaml-language-server: $schema=/path/to/estate.schema.json

or once for all of them, in .vscode/settings.json:

    {"yaml.schemas": {"./estate.schema.json": ["platform/**/*.yaml", "tenants/**/*.yaml"]}}`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var kind schema.Kind
			if len(args) == 1 {
				kind = schema.Kind(args[0])
			}
			data, err := load.JSONSchema(backends(), kind)
			if err != nil {
				return &exitError{2, fmt.Errorf("schema export: %w", err)}
			}
			_, err = cmd.OutOrStdout().Write(data)
			return err
		},
	})
	return cmd
}

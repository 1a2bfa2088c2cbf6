package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/localestate"
	"berth/runtimes"
	"berth/runtimes/backends"
	"berth/schema"
	"berth/schema/event"
	"berth/schema/load"
)

func newSchemaCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Export schemas and the reference of documents and events",
	}
	var events, estate string
	export := &cobra.Command{
		Use:   "export [KIND | --events DIR]",
		Short: "Write the JSON Schema of a kind of document, or of all, for editors",
		Long: `Write the JSON Schema of one kind of document, or of every kind, to standard
output. An editor that reads it completes fields and marks what is wrong with
them while you type; what documents say of each other, berth validate checks.

In Visual Studio Code and others that use yaml-language-server, write it beside
the estate and name it in the first line of a document:

    berth schema export --estate . > estate.schema.json
    # yaml-language-server: $schema=/path/to/estate.schema.json

or once for all of them, in .vscode/settings.json:

    {"yaml.schemas": {"./estate.schema.json": ["platform/**/*.yaml", "tenants/**/*.yaml"]}}

What an instance's config may hold is up to the runtime of its version. With
--estate DIR, the schema knows the versions of the estate in DIR, and checks the
config of instances and shared runtimes by them. Without it, every runtime's
fields are offered, and none is marked as wrong.

With --events, write into DIR what events look like: asyncapi.yaml, and the JSON
Schema of each type of event that it refers to.`,
		Example: `  berth schema export --estate . > estate.schema.json
  berth schema export --events schemas`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeResource(func(k schema.Kind) string { return string(k) }),
		RunE: func(cmd *cobra.Command, args []string) error {
			if events != "" {
				if len(args) == 1 {
					return cli.Usage(errors.New("schema export: --events writes those of all events: no KIND goes with it"))
				}
				return exportEvents(events)
			}
			var kind schema.Kind
			if len(args) == 1 {
				kind = schema.Kind(args[0])
			}
			versions, err := versionsOf(cmd.Context(), estate)
			if err != nil {
				return cli.Usage(fmt.Errorf("schema export: --estate %s: %w", estate, err))
			}
			data, err := load.JSONSchema(backends.Definitions(), kind, versions)
			if err != nil {
				return cli.Usage(fmt.Errorf("schema export: %w", err))
			}
			_, err = cmd.OutOrStdout().Write(data)
			return err
		},
	}
	export.Flags().StringVar(&events, "events", "", "directory to write the schemas of events to")
	export.Flags().StringVar(&estate, "estate", "", "directory of an estate; its app versions define the fields of config")
	cmd.AddCommand(export, newSchemaDocsCmd())
	return cmd
}

func newSchemaDocsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "docs [BACKEND]",
		Short: "Write the reference of kinds and fields as Markdown",
		Long: `Write the reference of kinds and fields to standard output, as Markdown: the path
of each kind of document, what deleting one means, and every field with its type,
default and description. The definitions that berth validate uses are its source.

With BACKEND, such as slurm, write the fields of config and manifest.parameters
of that runtime instead, with examples.`,
		Example: `  berth schema docs > kinds.md
  berth schema docs slurm > slurm-config.md`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return backends.Names(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			page, err := referenceOf(args)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(page)
			return err
		},
	}
}

// referenceOf returns the page of the backend that args name, or of the kinds of documents.
func referenceOf(args []string) ([]byte, error) {
	if len(args) == 0 {
		page, err := load.Reference()
		if err != nil {
			return nil, fmt.Errorf("schema docs: %w", err)
		}
		return page, nil
	}
	i := slices.Index(backends.Names(), args[0])
	if i < 0 {
		if slices.ContainsFunc(schema.Kinds(), func(k schema.Kind) bool { return strings.EqualFold(string(k), args[0]) }) {
			return nil, cli.Usage(fmt.Errorf("schema docs: %s is a kind: berth schema docs without an argument describes all kinds",
				args[0]))
		}
		return nil, cli.Usage(fmt.Errorf("schema docs: no backend %q; the backends are %s", args[0], strings.Join(backends.Names(), ", ")))
	}
	b := backends.All()[i]
	page, err := load.ConfigReference(backends.Definitions(), b.Name(), configIntro(b), []byte(b.ConfigExample()))
	if err != nil {
		return nil, fmt.Errorf("schema docs %s: %w", b.Name(), err)
	}
	return page, nil
}

// configIntro returns the text after the title of the page of a backend's fields.
func configIntro(b runtimes.Backend) string {
	effect := ""
	if b.Reference() != nil {
		effect = " [" + b.Name() + "-options.md](" + b.Name() + "-options.md) says what a change does to a running cluster."
	}
	return "These fields configure an app whose version has `runtime_backend: " + b.Name() +
		"`. This page is generated: `berth schema docs " + b.Name() + "` prints it.\n\n" +
		"| Layer | Field of the document | Sets |\n|---|---|---|\n" +
		"| 1 | – | the defaults on this page |\n" +
		"| 2 | `spec.manifest.parameters` of the AppVersion | defaults for the instances of the version |\n" +
		"| 3 | `spec.config` of the Instance or SharedRuntime | values for this one |\n\n" +
		"A later layer overrides an earlier one: a mapping field by field, a list as a whole. " +
		"`berth explain TENANT.PROJECT/INSTANCE config.FIELD`, with a field of the first table, shows the layer that set its value." +
		effect + "\n\n" +
		"`berth validate` refuses an unknown field or a value out of range, with file and line. `[]` stands for each item of a list. " +
		"Without a default, a field is absent and the software's own default counts."
}

// versionsOf are the valid versions of the estate in dir, by app and name; none for
// no directory.
func versionsOf(ctx context.Context, dir string) (map[string]map[string]*schema.AppVersion, error) {
	if dir == "" {
		return nil, nil
	}
	r, err := localestate.Load(ctx, dir)
	if err != nil {
		return nil, err
	}
	if len(r.Desired.Platform.Versions) == 0 {
		return nil, errors.New("no valid version of an app is declared below platform/catalog; berth validate shows why")
	}
	return r.Desired.Platform.Versions, nil
}

// exportEvents writes what describes the events below dir.
func exportEvents(dir string) error {
	files, err := event.Published()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		at := filepath.Join(dir, filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		if err == nil {
			err = os.WriteFile(at, files[name], 0o644)
		}
		if err != nil {
			return fmt.Errorf("schema export: %w", err)
		}
	}
	return nil
}

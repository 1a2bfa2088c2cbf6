package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/daemon"
	"berth/runtimes/backends"
)

func newDocsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "docs",
		Short: "Write man pages and reference pages",
		Long: `Write documentation that is made from the program itself: man pages, and the
reference pages of the commands, of berth.yaml and of each runtime. berth schema docs writes the
reference of kinds and fields.`,
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "man DIR",
		Short:   "Write a man page for each command to a directory",
		Example: "  berth docs man /usr/local/share/man/man1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return doc.GenManTree(undated(cmd.Root()), manHeader(), args[0])
		},
	}, &cobra.Command{
		Use:     "commands",
		Short:   "Write the reference of commands as Markdown",
		Example: "  berth docs commands > commands.md",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(commandReference(cmd.Root()))
			return err
		},
	}, &cobra.Command{
		Use:     "configuration",
		Short:   "Write the reference of berth.yaml as Markdown",
		Example: "  berth docs configuration > configuration.md",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := daemon.Reference()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(page)
			return err
		},
	})
	for _, b := range backends.All() {
		if b.Reference() == nil {
			continue
		}
		cmd.AddCommand(&cobra.Command{
			Use:     b.Name(),
			Short:   "Write the reference of the runtime " + b.Name() + " as Markdown",
			Example: "  berth docs " + b.Name() + " > " + b.Name() + "-options.md",
			Args:    cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := cmd.OutOrStdout().Write(b.Reference())
				return err
			},
		})
	}
	return cmd
}

// manHeader has the date of the build, so that a build makes the same pages again.
func manHeader() *doc.GenManHeader {
	h := &doc.GenManHeader{Section: "1", Source: "Berth " + buildVersion, Manual: "Berth"}
	if date, err := time.Parse(time.RFC3339, buildDate); err == nil {
		h.Date = &date
	}
	return h
}

// undated leaves the date out of a command's pages.
func undated(cmd *cobra.Command) *cobra.Command {
	cmd.DisableAutoGenTag = true
	return cmd
}

// commandReference is one page about all commands, with a section for each.
func commandReference(root *cobra.Command) []byte {
	var b bytes.Buffer
	b.WriteString("# Commands\n\nAll commands of `berth`, as `--help` shows them. This page is generated: `berth docs commands` prints " +
		"it.\n\n")
	var list func(cmd *cobra.Command)
	var sections []*cobra.Command
	list = func(cmd *cobra.Command) {
		if !cmd.IsAvailableCommand() || cmd.Name() == "completion" {
			return
		}
		if !cli.IsGroup(cmd) {
			sections = append(sections, cmd)
		}
		for _, sub := range cmd.Commands() {
			list(sub)
		}
	}
	for _, cmd := range root.Commands() {
		list(cmd)
	}
	b.WriteString("| Command | Description |\n|---|---|\n")
	for _, cmd := range sections {
		path := cmd.CommandPath()
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", path, strings.ReplaceAll(path, " ", "-"), cmd.Short)
	}
	for _, cmd := range sections {
		cmd.InitDefaultHelpFlag()
		text := cmd.Long
		if text == "" {
			text = cmd.Short + "."
		}
		fmt.Fprintf(&b, "\n## %s\n\n```text\n%s\n\nUsage:\n  %s\n", cmd.CommandPath(), text, cmd.UseLine())
		if cmd.Example != "" {
			fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
		}
		fmt.Fprintf(&b, "\nFlags:\n%s```\n", cmd.LocalFlags().FlagUsages())
	}
	return b.Bytes()
}

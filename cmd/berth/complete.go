package main

import (
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"berth/cmd/internal/localestate"
	"berth/schema"
)

// completeResource completes KIND NAME: kinds in the form of word, and the names of
// that kind in the estate of the working directory.
func completeResource(word func(schema.Kind) string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			var words []cobra.Completion
			for _, k := range schema.Kinds() {
				words = append(words, word(k))
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		case 1:
			if kind, ok := schema.ParseKind(args[0]); ok {
				return estateNames(kind), cobra.ShellCompDirectiveNoFileComp
			}
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNames completes one argument, or the value of a flag, with names of
// documents of some kinds.
func completeNames(kinds ...schema.Kind) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return estateNames(kinds...), cobra.ShellCompDirectiveNoFileComp
	}
}

// estateNames returns the names of documents of some kinds in the estate of the
// working directory, by their paths, sorted. It leaves out what cannot be read.
func estateNames(kinds ...schema.Kind) []cobra.Completion {
	dir, err := localestate.Root(".", "--repo DIR")
	if err != nil {
		return nil
	}
	var names []cobra.Completion
	for _, top := range []string{"platform", "tenants"} {
		_ = filepath.WalkDir(filepath.Join(dir, top), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return nil //nolint:nilerr // a completion offers what it can read
			}
			rel, err := filepath.Rel(dir, path)
			if err != nil {
				return nil //nolint:nilerr // as above
			}
			if key, ok := schema.KeyAt(filepath.ToSlash(rel)); ok && slices.Contains(kinds, key.Kind) {
				names = append(names, key.ResourceName())
			}
			return nil
		})
	}
	slices.Sort(names)
	return names
}

package main

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

//go:embed estate
var estateFiles embed.FS

func newInitCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "init DIR",
		Short: "write a commented, valid estate to start from",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := initEstate(args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d files in %s: read README.md there, change what is yours, and check it with: berth validate %s\n", n, args[0], args[0])
			return nil
		},
	}
}

// initEstate writes the estate into dir, which must be empty or not there; a
// .git directory does not count.
func initEstate(dir string) (files int, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return 0, &exitError{2, fmt.Errorf("init: %w", err)}
	}
	for _, e := range entries {
		if e.Name() != ".git" {
			return 0, &exitError{2, fmt.Errorf("init: %s is not empty: choose a new directory", dir)}
		}
	}
	estate, err := fs.Sub(estateFiles, "estate")
	if err != nil {
		return 0, &exitError{1, err}
	}
	err = fs.WalkDir(estate, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(path))
		if e.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		data, err := fs.ReadFile(estate, path)
		if err != nil {
			return err
		}
		files++
		return os.WriteFile(to, data, 0o644)
	})
	if err != nil {
		return files, &exitError{1, fmt.Errorf("init: %w", err)}
	}
	return files, nil
}

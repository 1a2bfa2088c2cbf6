package main

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"berth/cmd/internal/cli"
)

//go:embed all:estate
var estateFiles embed.FS

func newInitCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "init DIR",
		Short: "Write a commented, valid estate and a berth.yaml to start from",
		Long: `Write a commented, valid estate to DIR, which must be empty or new, and a
berth.yaml with which it runs as it is: in the local repository, with instances
that exist in memory only. The output names the next commands.

Exit status: 0, 1 DIR cannot be written, 2 usage.`,
		Example: `  berth init estate`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := args[0]
			if strings.HasPrefix(dir, "-") { // cd takes it for something else
				dir = "./" + dir
			}
			n, err := initEstate(dir)
			if err != nil {
				return err
			}
			start := "git init -b main && "
			if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
				start = ""
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"%d files in %s; README.md there explains them\nnext: cd %s && %sgit add . && git commit -m estate && berth sync -c "+
					"berth.yaml --once\n", n, dir, dir, start)
			return err
		},
	}
}

// initEstate writes the estate to dir, which must be empty or missing, except for a
// .git directory.
func initEstate(dir string) (files int, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return 0, cli.Usage(fmt.Errorf("init: %w", err))
	}
	for _, e := range entries {
		if e.Name() != ".git" {
			return 0, cli.Usage(fmt.Errorf("init: %s is not empty: choose a new directory", dir))
		}
	}
	estate, err := fs.Sub(estateFiles, "estate")
	if err != nil {
		return 0, err
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
		return files, fmt.Errorf("init: %w", err)
	}
	return files, nil
}

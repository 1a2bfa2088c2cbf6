package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"berth/runtimes/host/lab"
)

// runDirectory names the directory that deploy/in-memory made for the files of this run.
const runDirectory = "BERTH_RUN_DIRECTORY"

// removeLabs removes the labs of this run whose tests were interrupted or timed out.
func removeLabs() error {
	dir := os.Getenv(runDirectory)
	if dir == "" {
		return nil
	}
	var failed error
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "lab.json" {
			return nil // another user's directory, or another file
		}
		l, err := lab.Open(filepath.Dir(path))
		if err == nil {
			fmt.Println("Removing a lab that a test left:", l.Dir)
			err = l.Down(context.Background())
		}
		failed = errors.Join(failed, err)
		return nil
	})
	return errors.Join(err, failed)
}

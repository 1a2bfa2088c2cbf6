package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// startLoad starts the processes of the load and returns what ends them.
func startLoad(dir string) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var load []*exec.Cmd
	stop = func() {
		for _, cmd := range load {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		_ = os.Remove(diskFile(dir))
	}
	for i := range busyLoops + 1 {
		what := "" // a loop
		if i == busyLoops {
			what = diskFile(dir)
		}
		cmd := exec.Command(self, "busy", what)
		if err := cmd.Start(); err != nil {
			stop()
			return nil, fmt.Errorf("start the load: %w", err)
		}
		load = append(load, cmd)
	}
	return stop, nil
}

func diskFile(dir string) string { return filepath.Join(dir, "busy-disk") }

// busy is a process of the load. Without a file it is a loop; with one it writes and syncs the
// file. It ends with the process that started it.
func busy(file string) {
	parent := os.Getppid()
	data := make([]byte, 8<<20)
	for os.Getppid() == parent {
		if file == "" {
			for i := range data {
				data[i]++
			}
			continue
		}
		f, err := os.Create(file)
		if err != nil {
			return
		}
		for range 4 {
			_, _ = f.Write(data)
			_ = f.Sync()
		}
		_ = f.Close()
	}
}

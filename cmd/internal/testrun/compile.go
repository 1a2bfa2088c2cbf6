package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// binary is a compiled test of a package.
type binary struct {
	pkg, dir, file string
}

// compile builds the tests of packages into dir. It links no binary that is up to
// date: linking takes a tenth of the processor time of a run. tags are build tags.
func compile(ctx context.Context, dir, tags string, packages []string) ([]binary, error) {
	list := exec.CommandContext(ctx, "go",
		append([]string{"list", "-tags", tags, "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}{{end}}"},
			packages...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	dir = filepath.Join(dir, cmp.Or(strings.ReplaceAll(tags, ",", "-"), "short"))
	// `go test -c` names a binary by the last element of its package's path: packages that have
	// the same one go to different directories.
	var binaries []binary
	var rounds [][]string
	seen := map[string]int{}
	for line := range strings.Lines(string(out)) {
		pkg, src, _ := strings.Cut(strings.TrimSpace(line), "\t")
		base := path.Base(pkg)
		round := seen[base]
		seen[base]++
		if round == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[round] = append(rounds[round], pkg)
		binaries = append(binaries, binary{pkg: pkg, dir: src, file: filepath.Join(dir, fmt.Sprint(round), base+".test")})
	}
	for round, packages := range rounds {
		into := filepath.Join(dir, fmt.Sprint(round))
		if err := os.MkdirAll(into, 0o755); err != nil {
			return nil, err
		}
		args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-tags", tags, "-o", into + "/"}
		build := exec.CommandContext(ctx, "go", append(args, packages...)...)
		build.Stdout, build.Stderr = os.Stdout, os.Stderr
		if err := build.Run(); err != nil {
			return nil, fmt.Errorf("compile the tests: %w", err)
		}
	}
	// The tests of real Slurm wait much of their time: they begin first, and others run beside
	// them.
	slices.SortStableFunc(binaries, func(a, b binary) int {
		return cmp.Compare(rank(a.pkg), rank(b.pkg))
	})
	return binaries, nil
}

func rank(pkg string) int {
	if strings.HasSuffix(pkg, "/runtimes/slurm") || strings.HasSuffix(pkg, "/berth-lab") {
		return 0
	}
	return 1
}

// command is a command of a test binary, which ends with ctx.
func (b binary) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = b.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	return cmd
}

// list returns the names of the tests that match pattern; empty: of all.
func (b binary) list(ctx context.Context, pattern string) ([]string, error) {
	cmd := b.command(ctx, b.file, "-test.list", cmp.Or(pattern, ".")) // with an empty one it runs the tests
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", b.pkg, err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool {
		return !strings.HasPrefix(name, "Test")
	}), nil
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// outcome is what became of a mutant or of the tests without one.
type outcome string

const (
	killed   outcome = "killed"   // the test failed
	survived outcome = "survived" // the test passed
	invalid  outcome = "invalid"  // the mutant cannot show anything
)

// runner runs go test in a module.
type runner struct {
	root string
	// timeout ends a test that hangs. A hang does not count as a kill: it shows no assertion.
	timeout time.Duration
}

// try applies the mutant and runs its test. why is the output of the test, or the reason why the mutant is
// invalid.
func (r runner) try(ctx context.Context, s source, m mutant) (what outcome, why string) {
	overlay, remove, err := writeOverlay(s, m)
	if err != nil {
		return invalid, err.Error()
	}
	defer remove()
	dir, name := m.target()
	result, err := r.test(ctx, dir, []string{name}, overlay)
	crash := regexp.MustCompile(`panic: runtime error: .*`).FindString(result.output)
	switch {
	case err != nil:
		return invalid, err.Error()
	case result.tests[name] == "pass":
		return survived, ""
	case result.tests[name] != "fail":
		return invalid, "the test did not run to its end: " + result.tail()
	case crash != "":
		return invalid, "the test ended by a " + crash
	}
	return killed, result.tail()
}

// compile compiles the package of the mutant.
func (r runner) compile(ctx context.Context, s source, m mutant) error {
	overlay, remove, err := writeOverlay(s, m)
	if err != nil {
		return err
	}
	defer remove()
	dir, err := filepath.Rel(r.root, filepath.Dir(s[m.In][0].file))
	if err != nil {
		return err
	}
	cmd := r.command(ctx, overlay, "build", "-o", os.DevNull, "./"+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the mutant does not compile: %w\n%s", err, out)
	}
	return nil
}

// unmutated runs the tests of the mutants as the code is, and returns those that do not
// pass: they would fail with any mutant. The tests of a directory run together.
func (r runner) unmutated(ctx context.Context, table []mutant) error {
	type group struct {
		dir, subtests string
		long          bool
	}
	var groups []group
	names := map[group][]string{}
	for _, m := range table {
		dir, name := m.target()
		_, subtests, _ := strings.Cut(name, "/")
		g := group{dir, subtests, isLong(name)}
		if names[g] == nil {
			groups = append(groups, g)
		}
		if !slices.Contains(names[g], name) {
			names[g] = append(names[g], name)
		}
	}
	var faults []error
	for _, g := range groups {
		res, err := r.test(ctx, g.dir, names[g], "")
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", g.dir, err))
			continue
		}
		for _, name := range names[g] {
			if res.tests[name] != "pass" {
				faults = append(faults, fmt.Errorf("%s.%s does not pass without a mutant: %s", g.dir, name, res.tail()))
			}
		}
	}
	return errors.Join(faults...)
}

// isLong reports whether the test is one of make test-long.
func isLong(name string) bool { return strings.HasPrefix(name, "TestLong") }

// result is what go test reported: the last action of each test.
type result struct {
	tests  map[string]string
	output string
}

// tail returns the end of the output.
func (r result) tail() string {
	lines := strings.Split(strings.TrimSpace(r.output), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// test runs tests of one directory that differ in the names of the functions only, with an
// overlay if one is given. It fails if they do not compile or hang. Without an overlay, the
// go command may know the results.
func (r runner) test(ctx context.Context, dir string, names []string, overlay string) (result, error) {
	args := []string{"test", "-json", "-vet=off", "-ldflags=-s -w", "-timeout", r.timeout.String(), "-run", pattern(names)}
	if overlay != "" {
		args = append(args, "-count=1")
	}
	if isLong(names[0]) {
		args = append(args, "-tags", "long")
	}
	cmd := r.command(ctx, overlay, append(args, "./"+dir)...)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return result{}, err
	}
	res := result{tests: map[string]string{}}
	var output strings.Builder
	built := true
	for lines := bufio.NewReader(bytes.NewReader(out)); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(line, &event) != nil {
			output.Write(line)
			continue
		}
		output.WriteString(event.Output)
		built = built && event.Action != "build-fail"
		if event.Test != "" && slices.Contains([]string{"pass", "fail", "skip"}, event.Action) {
			res.tests[event.Test] = event.Action
		}
	}
	res.output = output.String()
	switch {
	case !built || strings.Contains(res.output, "[build failed]") || strings.Contains(res.output, "[setup failed]"):
		return result{}, fmt.Errorf("the mutant does not compile: %s", res.tail())
	case strings.Contains(res.output, "panic: test timed out after"):
		return result{}, fmt.Errorf("the test hung for %v", r.timeout)
	}
	return res, nil
}

// pattern returns what -run takes for tests that have the same subtests.
func pattern(names []string) string {
	tests := make([]string, len(names))
	var subtests []string
	for i, name := range names {
		parts := strings.Split(name, "/")
		tests[i], subtests = parts[0], parts[1:]
	}
	run := "^(" + strings.Join(tests, "|") + ")$"
	for _, part := range subtests {
		run += "/^" + regexp.QuoteMeta(part) + "$"
	}
	return run
}

// command returns a go command. Programs that a test builds itself contain the mutant, too.
func (r runner) command(ctx context.Context, overlay string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = r.root
	cmd.Env = os.Environ()
	if overlay != "" {
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" '-overlay="+overlay+"'"))
	}
	return cmd
}

// writeOverlay applies the mutant, and writes the file that -overlay takes.
func writeOverlay(s source, m mutant) (overlay string, remove func(), err error) {
	file, content, err := s.mutate(m)
	if err != nil {
		return "", nil, err
	}
	if file, err = filepath.Abs(file); err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return "", nil, err
	}
	mutated := filepath.Join(dir, filepath.Base(file))
	overlay = filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{file: mutated}})
	err = errors.Join(err, os.WriteFile(mutated, content, 0o600), os.WriteFile(overlay, replace, 0o600))
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return overlay, func() { _ = os.RemoveAll(dir) }, nil
}

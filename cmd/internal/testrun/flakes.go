package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// busyLoops is the load beside the tests: that many processes that never wait, and one that
// writes to the disk and syncs it.
const busyLoops = 4

// flakeRun is one run of all tests, as a line of the results' file has it.
type flakeRun struct {
	Commit  string             `json:"commit"`
	Began   time.Time          `json:"began"`
	Seconds float64            `json:"seconds"`
	Tests   map[string]float64 `json:"tests"` // seconds of each test that passed
	Failed  []string           `json:"failed,omitempty"`
	NotRun  []string           `json:"not_run,omitempty"`
}

// runFlakes runs the tests of a commit n times beside load, atOnce of the runs side by side. It
// stops at no failure. The runs of one commit add up in a file of dir. It returns an error if a
// test of any of them failed or was not run.
func runFlakes(ctx context.Context, n, atOnce int, commit, dir string, t tests) (err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file := filepath.Join(dir, commit+".jsonl")
	stopLoad, err := startLoad(dir)
	if err != nil {
		return err
	}
	defer stopLoad()
	var group errgroup.Group
	group.SetLimit(max(atOnce, 1))
	for i := range n {
		group.Go(func() error {
			run, err := runFlake(ctx, commit, file, t)
			if err == nil && ctx.Err() == nil {
				fmt.Printf("run %d of %d: %s, %d failures\n", i+1, n, duration(time.Duration(run.Seconds*float64(time.Second))),
					len(run.Failed))
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	runs, err := readRuns(file)
	if errors.Is(err, fs.ErrNotExist) && ctx.Err() != nil {
		return ctx.Err() // interrupted in the first run
	}
	if err != nil {
		return err
	}
	table, failures := flakeTable(runs)
	fmt.Print(table)
	if failures > 0 {
		return fmt.Errorf("%d failures or tests that were not run in %d runs of %s; the output is beside %s", failures, len(runs), commit,
			file)
	}
	return ctx.Err()
}

// runFlake runs the tests of a commit once, and appends the run to a file. An interrupted run
// does not count.
func runFlake(ctx context.Context, commit, file string, t tests) (flakeRun, error) {
	run, output := flakeRun{Commit: commit, Began: time.Now().UTC()}, strings.Builder{}
	r := newReport(&output)
	t.run(ctx, r)
	if ctx.Err() != nil {
		return run, nil
	}
	run.Seconds, run.Tests, run.Failed = time.Since(run.Began).Seconds(), r.seconds, r.broken
	run.NotRun = slices.Concat(slices.Collect(maps.Values(r.skipped))...)
	if len(run.Failed) > 0 {
		log := strings.TrimSuffix(file, ".jsonl") + run.Began.Format("-20060102T150405.000.log")
		if err := appendLine(log, output.String()); err != nil {
			return run, err
		}
	}
	line, err := json.Marshal(run)
	if err != nil {
		return run, err
	}
	return run, appendLine(file, string(line)+"\n")
}

// cleanCommit returns the commit of a work tree without changes.
func cleanCommit() (string, error) {
	status, err := exec.Command("git", "status", "--porcelain").Output()
	if err != nil {
		return "", fmt.Errorf("git status: %w", err)
	}
	if len(status) > 0 {
		return "", errors.New("the work tree has changes, and runs are counted by commit; commit them first")
	}
	head, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "", fmt.Errorf("git rev-parse: %w", err)
	}
	return strings.TrimSpace(string(head)), nil
}

func readRuns(file string) ([]flakeRun, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var runs []flakeRun
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return runs, nil
		}
		if err != nil {
			return nil, err
		}
		var run flakeRun
		if err := json.Unmarshal(line, &run); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		runs = append(runs, run)
	}
}

// slowest is how many tests without a failure the table shows.
const slowest = 20

// flakeRow is a test in the table.
type flakeRow struct {
	test                   string
	runs, failures, notRun int
	longest                float64 // seconds
}

// flakeRows has the rows of a table by test.
type flakeRows map[string]*flakeRow

func (rows flakeRows) of(test string) *flakeRow {
	if rows[test] == nil {
		rows[test] = &flakeRow{test: test}
	}
	return rows[test]
}

func (rows flakeRows) add(run flakeRun) {
	for test, seconds := range run.Tests {
		r := rows.of(test)
		r.runs++
		r.longest = max(r.longest, seconds)
	}
	for _, test := range run.Failed {
		if slices.ContainsFunc(run.Failed, func(other string) bool { return strings.HasPrefix(other, test+"/") }) {
			continue // it failed for its subtest
		}
		r := rows.of(test)
		r.runs++
		r.failures++
	}
	for _, test := range run.NotRun {
		rows.of(test).notRun++
	}
}

// flakeTable returns the table of the runs and the number of failures: the tests that failed
// or were not run, then the slowest.
func flakeTable(runs []flakeRun) (string, int) {
	rows := flakeRows{}
	failures, whole, longest := 0, 0, 0.0
	for _, run := range runs {
		rows.add(run)
		bad := len(run.Failed) + len(run.NotRun)
		failures += bad
		if bad == 0 {
			whole++
		}
		longest = max(longest, run.Seconds)
	}
	sorted := slices.SortedFunc(maps.Values(rows), func(a, b *flakeRow) int {
		return cmp.Or(cmp.Compare(b.failures+b.notRun, a.failures+a.notRun), cmp.Compare(b.longest, a.longest), cmp.Compare(a.test, b.test))
	})
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-90s %5s %9s %8s %10s\n", "TEST", "RUNS", "FAILURES", "NOT RUN", "LONGEST")
	shown := 0
	for _, r := range sorted {
		if r.failures+r.notRun == 0 {
			if shown++; shown > slowest {
				continue
			}
		}
		fmt.Fprintf(&b, "%-90s %5d %9d %8d %8.1f s\n", r.test, r.runs, r.failures, r.notRun, r.longest)
	}
	if shown > slowest {
		fmt.Fprintf(&b, "and %d more tests, none of which failed.\n", shown-slowest)
	}
	fmt.Fprintf(&b, "%d of %d runs without a failure, %d tests; the longest run took %s.\n", whole, len(runs), len(rows),
		duration(time.Duration(longest*float64(time.Second))))
	return b.String(), failures
}

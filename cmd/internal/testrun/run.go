package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// run is how one run of the tests reports.
type run struct {
	stage, tally string // a line for the run goes to this file
	pattern      string // of the names of its tests; empty: all
	drawn        string // which part of the tests it is; empty: all
	complete     bool   // a test that could not run is an error
}

// runOnce runs the tests and reports while it runs and at the end. Its seconds count from began.
func runOnce(ctx context.Context, o run, began time.Time, binaries []binary) error {
	r := newReport(os.Stdout)
	runAll(ctx, binaries, o.pattern, r)
	took := time.Since(began)
	fmt.Println(r.summary(took, o.drawn))
	if o.tally != "" {
		if err := appendLine(o.tally, fmt.Sprintf("%s\t%.0f\t%d\t%d\t%d\n", o.stage, took.Seconds(), r.passed, r.failed, r.notRun())); err != nil {
			return err
		}
	}
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case len(r.broken) > 0:
		return fmt.Errorf("%s failed", count(len(r.broken), "test"))
	case r.passed == 0:
		return errors.New("no test ran")
	case o.complete && r.notRun() > 0:
		return fmt.Errorf("%d tests were not run, and this run has to be complete", r.notRun())
	}
	return nil
}

// runAll runs the tests whose names match pattern, one binary more at a time than there are CPUs,
// as the tests of real Slurm wait half of their time.
func runAll(ctx context.Context, binaries []binary, pattern string, r *report) {
	var waiting sync.WaitGroup
	slots := make(chan struct{}, runtime.NumCPU()+1)
	for _, b := range binaries {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		waiting.Go(func() {
			defer func() { <-slots }()
			if err := runBinary(ctx, b, pattern, r); err != nil {
				r.packageBroke(b.pkg, err)
			}
		})
	}
	waiting.Wait()
}

// runBinary runs a binary as `go test -v` does (go doc test2json). It returns an error if the
// binary ends with one, of which the report may have the reason.
func runBinary(ctx context.Context, b binary, pattern string, r *report) error {
	args := []string{"go", "tool", "test2json", "-t", "-p", b.pkg, b.file, "-test.v=test2json", "-test.paniconexit0", "-test.timeout=" + runTimeout.String()}
	if pattern != "" {
		args = append(args, "-test.run", pattern)
	}
	cmd := b.command(ctx, args...)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		err = errors.Join(r.read(out), cmd.Wait())
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w\n%s", err, problems.Bytes())
	}
	return err
}

func appendLine(file, line string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(line); err != nil {
		return err
	}
	return f.Close()
}

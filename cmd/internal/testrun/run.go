package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// run is how one run of the tests reports.
type run struct {
	stage, tally string // a line for the run goes to this file
	drawn        string // which part of the tests it is; empty: all
	complete     bool   // a test that could not run is an error
}

// runOnce runs the tests and reports while it runs and at the end. Its seconds count from began.
func runOnce(ctx context.Context, o run, began time.Time, t tests) error {
	r := newReport(os.Stdout)
	t.run(ctx, r)
	took := time.Since(began)
	fmt.Println(r.summary(took, o.drawn))
	if o.tally != "" {
		if err := appendLine(o.tally, fmt.Sprintf("%s\t%.0f\t%d\t%d\t%d\n", o.stage, took.Seconds(), r.passed, r.failed,
			r.notRun())); err != nil {
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

// tests are the tests of one run.
type tests struct {
	binaries []binary
	pattern  string        // of their names; empty: all
	timeout  time.Duration // ends a binary that hangs
	linger   time.Duration // how long a process that a test left may hold the output of its binary
}

// run runs the tests, one binary more at a time than there are CPUs, as the tests of real Slurm
// wait half of their time.
func (t tests) run(ctx context.Context, r *report) {
	var waiting sync.WaitGroup
	slots := make(chan struct{}, runtime.NumCPU()+1)
	for _, b := range t.binaries {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		waiting.Go(func() {
			defer func() { <-slots }()
			if err := t.runBinary(ctx, b, r); err != nil {
				r.packageBroke(b.pkg, err)
			}
		})
	}
	waiting.Wait()
}

// runBinary runs a binary as `go test -v` does (go doc test2json). It returns an error if the
// binary ends with one, of which the report may have the reason.
func (t tests) runBinary(ctx context.Context, b binary, r *report) error {
	args := []string{b.file, "-test.v=test2json", "-test.paniconexit0", "-test.timeout=" + t.timeout.String()}
	if t.pattern != "" {
		args = append(args, "-test.run", t.pattern)
	}
	decoder := exec.Command("go", "tool", "test2json", "-t", "-p", b.pkg)
	decoder.Stderr = os.Stderr
	in, inErr := decoder.StdinPipe()
	out, outErr := decoder.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return err
	}
	if err := decoder.Start(); err != nil {
		return err
	}
	read := make(chan error, 1)
	go func() { read <- errors.Join(r.read(out), decoder.Wait()) }()
	err := t.pipe(b.command(ctx, args...), in)
	return errors.Join(err, in.Close(), <-read)
}

// pipe runs cmd, and writes all of its output to out. Processes that it leaves are ended, those that
// hold its output after a while.
func (t tests) pipe(cmd *exec.Cmd, out io.Writer) error {
	from, to, err := os.Pipe()
	if err != nil {
		return err
	}
	defer from.Close()
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = to, to, t.linger // files: Wait ends although another process holds them
	if err := errors.Join(cmd.Start(), to.Close()); err != nil {
		return err
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(out, from)
		copied <- err
	}()
	endLeft := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // usually no process is left
	err = cmd.Wait()
	select {
	case end := <-copied:
		endLeft()
		return errors.Join(err, end)
	case <-time.After(t.linger):
	}
	endLeft()
	err = errors.Join(err, fmt.Errorf("its tests left a process, which held its output for %s and was ended", t.linger))
	select {
	case end := <-copied: // what it wrote before
		return errors.Join(err, end)
	case <-time.After(t.linger + time.Minute): // a process has left the group
		return err
	}
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

// Testrun runs tests and reports how many ran, how long they took, and what this machine could
// not run, and why. `make test`, `make flakes` and .ci/run use it.
//
//	testrun [-complete] [-part N] [-tally FILE -stage NAME] -- ARGUMENT-OF-go-test...
//	testrun -flakes N [-results DIR]
//
// It must not know what a test does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"berth/examples/need"
	"berth/runtimes/host/hosttest"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "busy" {
		busy(os.Args[2])
		return
	}
	complete := flag.Bool("complete", false, "fail if a test could not run on this machine")
	tally := flag.String("tally", "", "append a line for this run to `FILE`")
	part := flag.Int("part", 1, "run one in `N` of the tests, drawn by the seed")
	stage := flag.String("stage", "test", "the `NAME` of this run in that file")
	flakes := flag.Int("flakes", 0, "run the compiled tests `N` times beside load")
	results := flag.String("results", "bin/flakes", "the `DIR` for the results of -flakes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *flakes > 0 {
		err = runFlakes(ctx, *flakes, *results)
	} else {
		args, drawn := flag.Args(), ""
		if *part > 1 {
			args, drawn, err = drawTests(ctx, *part, args)
		}
		if err == nil {
			err = runOnce(ctx, run{*stage, *tally, drawn, *complete}, args)
		}
	}
	err = errors.Join(err, removeLabs())
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

// lacks returns what this machine lacks for tests, one sentence each.
func lacks() []string {
	var out []string
	if os.Geteuid() != 0 {
		out = append(out, "tests that need root: this user is not root")
	}
	if why := hosttest.LabImpossible(); why != "" {
		out = append(out, "tests that need lab hosts, real Slurm among them: "+why)
	}
	if missing := need.Missing("git", "gpg", "docker-registry", "slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd"); missing != "" {
		out = append(out, "tests that need "+missing+": deploy/prepare installs Debian's packages")
	}
	return out
}

// run is how one run of `go test` reports.
type run struct {
	stage, tally string // a line for the run goes to this file
	drawn        string // which part of the tests it is; empty: all
	complete     bool   // a test that could not run is an error
}

// runOnce runs `go test` and reports while it runs and at the end.
func runOnce(ctx context.Context, o run, args []string) error {
	fmt.Println(opening(lacks()))
	began := time.Now()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-vet=off"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r := newReport(os.Stdout)
	readErr := r.read(out)
	runErr := cmd.Wait()
	took := time.Since(began)
	fmt.Println(r.summary(took, o.drawn))
	if o.tally != "" {
		if err := appendLine(o.tally, fmt.Sprintf("%s\t%.0f\t%d\t%d\t%d\n", o.stage, took.Seconds(), r.passed, r.failed, r.notRun())); err != nil {
			return err
		}
	}
	switch {
	case readErr != nil:
		return readErr
	case runErr != nil:
		return fmt.Errorf("go test: %w", runErr)
	case r.passed+r.failed == 0:
		return fmt.Errorf("no test ran")
	case o.complete && r.notRun() > 0:
		return fmt.Errorf("%d tests were not run, and this run has to be complete", r.notRun())
	}
	return nil
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

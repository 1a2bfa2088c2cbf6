// Testrun compiles the tests of packages, runs them, and reports how many ran, how long they
// took, and what this machine could not run, and why. `make test`, `make flakes` and .ci/run use
// it.
//
//	testrun [-complete] [-tags T] [-run R] [-part N] [-tally FILE -stage NAME] PACKAGE...
//	testrun -flakes N [-at-once K] [-results DIR] PACKAGE...
//
// It must not know particular tests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"berth/examples/need"
	"berth/runtimes/host/hosttest"
)

// compiled is where the compiled tests are.
const compiled = "bin/tests"

// options are the flags.
type options struct {
	run
	tests
	tags, results        string
	part, flakes, atOnce int
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "busy" {
		busy(os.Args[2])
		return
	}
	var o options
	flag.BoolVar(&o.complete, "complete", false, "fail if a test could not run on this machine")
	flag.StringVar(&o.tags, "tags", "", "compile with the build `TAGS`")
	flag.StringVar(&o.pattern, "run", "", "run the tests whose names match `REGEXP`")
	flag.DurationVar(&o.timeout, "timeout", time.Hour, "end a test binary that takes `LONGER`")
	flag.IntVar(&o.part, "part", 1, "run one in `N` of the tests, drawn by the seed")
	flag.StringVar(&o.tally, "tally", "", "append a line for this run to `FILE`")
	flag.StringVar(&o.stage, "stage", "test", "the `NAME` of this run in that file")
	flag.IntVar(&o.flakes, "flakes", 0, "run the tests `N` times beside load")
	flag.IntVar(&o.atOnce, "at-once", 1, "of -flakes, `K` runs side by side")
	flag.StringVar(&o.results, "results", "bin/flakes", "the `DIR` for the results of -flakes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := errors.Join(runTests(ctx, o, flag.Args()), removeLabs()); err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

func runTests(ctx context.Context, o options, packages []string) error {
	began, commit := time.Now(), ""
	fmt.Println(opening(lacks()))
	dir, err := filepath.Abs(compiled)
	if err == nil && o.flakes > 0 {
		commit, err = cleanCommit()
	}
	if err != nil {
		return err
	}
	o.linger = time.Minute
	if o.binaries, err = compile(ctx, dir, o.tags, packages); err != nil {
		return err
	}
	if o.flakes > 0 {
		return runFlakes(ctx, o.flakes, o.atOnce, commit, o.results, o.tests)
	}
	if o.part > 1 {
		if o.pattern, o.drawn, err = drawTests(ctx, o.part, o.binaries, o.pattern); err != nil {
			return err
		}
	}
	return runOnce(ctx, o.run, began, o.tests)
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

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type options struct {
	root, ids, row         string
	list, apply, unchecked bool
	verbose                bool
	timeout                time.Duration
}

func run(ctx context.Context, out io.Writer, args []string) error {
	var o options
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", ".", "root `directory` of the module")
	flags.StringVar(&o.ids, "run", "", "only the mutants whose id matches the `regexp`")
	flags.StringVar(&o.row, "row", "", "only the mutants of the `row` of examples/requirements.md")
	flags.BoolVar(&o.list, "list", false, "list the mutants")
	flags.BoolVar(&o.apply, "apply-only", false, "apply and compile each mutant, and run no test")
	flags.BoolVar(&o.unchecked, "unchecked", false, "do not check that the tests pass without a mutant")
	flags.BoolVar(&o.verbose, "v", false, "show how the tests fail")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Minute, "end of a test that hangs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	table, err := selected(o)
	if err != nil {
		return err
	}
	if o.list {
		for _, m := range table {
			fmt.Fprintf(out, "%s: %s (%s)\n", m.ID, m.Effect, m.Test)
		}
		return nil
	}
	s, err := readSource(o.root)
	if err != nil {
		return err
	}
	r := runner{root: o.root, timeout: o.timeout}
	if o.apply {
		return r.applyAll(ctx, out, s, table)
	}
	if !o.unchecked {
		start := time.Now()
		if err := r.unmutated(ctx, table); err != nil {
			return err
		}
		fmt.Fprintf(out, "the tests pass without a mutant (%.0f s)\n", time.Since(start).Seconds())
	}
	return r.tryAll(ctx, out, s, table, o.verbose)
}

// selected returns the mutants that the options name, of a table without faults.
func selected(o options) ([]mutant, error) {
	table, err := readTable(o.root)
	if err != nil {
		return nil, err
	}
	rows, err := readRequirements(o.root)
	if err != nil {
		return nil, err
	}
	if err := checkTable(table, rows); err != nil {
		return nil, err
	}
	ids, err := regexp.Compile(o.ids)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	var some []mutant
	for _, m := range table {
		if ids.MatchString(m.ID) && (o.row == "" || o.row == m.row()) {
			some = append(some, m)
		}
	}
	if len(some) == 0 {
		return nil, errors.New("no mutant has such an id and row")
	}
	return some, nil
}

func (r runner) applyAll(ctx context.Context, out io.Writer, s source, table []mutant) error {
	var faults []error
	for _, m := range table {
		if err := r.compile(ctx, s, m); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", m.ID, err))
		}
	}
	fmt.Fprintf(out, "%d of %d mutants apply and compile\n", len(table)-len(faults), len(table))
	return errors.Join(faults...)
}

func (r runner) tryAll(ctx context.Context, out io.Writer, s source, table []mutant, verbose bool) error {
	begin := time.Now()
	ids := map[outcome][]string{}
	for _, m := range table {
		start := time.Now()
		what, why := r.try(ctx, s, m)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		ids[what] = append(ids[what], m.ID)
		fmt.Fprintf(out, "%-8s  %s  by %s  %.1f s\n", what, m.ID, m.Test, time.Since(start).Seconds())
		if what == invalid || verbose && why != "" {
			fmt.Fprintf(out, "          %s\n", strings.ReplaceAll(why, "\n", "\n          "))
		}
	}
	fmt.Fprintf(out, "%d of %d mutants killed in %.0f s\n", len(ids[killed]), len(table), time.Since(begin).Seconds())
	if len(ids[survived])+len(ids[invalid]) > 0 {
		return fmt.Errorf("survived: %s\ninvalid: %s", strings.Join(ids[survived], " "), strings.Join(ids[invalid], " "))
	}
	return nil
}

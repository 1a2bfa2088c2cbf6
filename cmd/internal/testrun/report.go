package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/examples/need"
)

// event is a line of the output of `go tool test2json`.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64 // seconds
	Output  string
}

// report is what came of the tests of one run. Its numbers count tests, not their subtests. Its
// methods are safe for concurrent use until the run has ended.
type report struct {
	mu       sync.Mutex
	out      io.Writer
	passed   int
	failed   int
	packages int
	ran      map[string]bool     // the packages of which a test ended
	ended    map[string]bool     // the packages that said how they ended
	seconds  map[string]float64  // of each test that passed
	broken   []string            // packages and tests that failed
	causes   map[string]string   // what each of these tests printed of its failure
	skipped  map[string][]string // the tests, by reason
	output   map[string]string   // of what has not ended, by package and test
}

func newReport(out io.Writer) *report {
	return &report{out: out, ran: map[string]bool{}, ended: map[string]bool{}, seconds: map[string]float64{}, causes: map[string]string{},
		skipped: map[string][]string{}, output: map[string]string{}}
}

// read takes events until their end.
func (r *report) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.takeLine(line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the events of a test: %w", err)
		}
	}
}

// takeLine takes an event, and shows any other line.
func (r *report) takeLine(line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e event
	if json.Unmarshal(line, &e) != nil {
		fmt.Fprintf(r.out, "%s", line)
		return
	}
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		r.output[key] += e.Output
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.packageEnded(e, r.output[key])
		} else {
			r.testEnded(e, r.output[key])
		}
		delete(r.output, key)
	}
}

// testEnded counts a test. A subtest counts where it failed or was not run.
func (r *report) testEnded(e event, output string) {
	_, _, sub := strings.Cut(e.Test, "/")
	name := e.Package + "." + e.Test
	switch {
	case e.Action == "fail":
		fmt.Fprint(r.out, output)
		r.broken = append(r.broken, name)
		r.causes[name] = cause(output)
		if !sub {
			r.failed++
		}
	case e.Action == "skip":
		why := reason(output)
		r.skipped[why] = append(r.skipped[why], name)
	case !sub:
		r.passed++
		r.seconds[name] = e.Elapsed
	}
	r.ran[e.Package] = true
}

func (r *report) packageEnded(e event, output string) {
	r.ended[e.Package] = true
	if e.Action == "skip" { // it has no tests
		return
	}
	if r.ran[e.Package] || e.Action == "fail" {
		r.packages++
	}
	if e.Action == "pass" {
		fmt.Fprintf(r.out, "ok    %-44s %6.1f s\n", e.Package, e.Elapsed)
		return
	}
	r.testsWithoutEnd(e.Package)
	fmt.Fprintf(r.out, "%sFAIL  %-44s %6.1f s\n", output, e.Package, e.Elapsed)
	if !r.isBroken(e.Package) {
		r.broken = append(r.broken, e.Package)
	}
}

// testsWithoutEnd shows the output of the tests of a package that a timeout or a panic left without an end: test2json has no
// event for it. The test that panicked failed; if none did, each of them.
func (r *report) testsWithoutEnd(pkg string) {
	var keys, panicked []string
	for _, key := range slices.Sorted(maps.Keys(r.output)) {
		if test, ok := strings.CutPrefix(key, pkg+" "); ok && test != "" {
			keys = append(keys, key)
			if strings.Contains(r.output[key], "panic: ") {
				panicked = append(panicked, key)
			}
		}
	}
	for _, key := range keys {
		if len(panicked) == 0 || slices.Contains(panicked, key) {
			r.testEnded(event{Action: "fail", Package: pkg, Test: strings.TrimPrefix(key, pkg+" ")}, r.output[key])
		} else {
			fmt.Fprintf(r.out, "%s did not end\n", strings.TrimPrefix(key, pkg+" "))
		}
		delete(r.output, key)
	}
}

// packageBroke reports a package whose binary could not run or did not say how it ended.
func (r *report) packageBroke(pkg string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended[pkg] && r.isBroken(pkg) {
		return
	}
	r.testsWithoutEnd(pkg)
	fmt.Fprintf(r.out, "%sFAIL  %s: %v\n", r.output[pkg+" "], pkg, err)
	if r.isBroken(pkg) { // by a test
		return
	}
	r.broken = append(r.broken, pkg)
	r.causes[pkg] = cause(err.Error())
}

func (r *report) isBroken(pkg string) bool {
	return slices.ContainsFunc(r.broken, func(name string) bool {
		return name == pkg || strings.HasPrefix(name, pkg+".")
	})
}

// failureMarks are in the line of a test's output that says what failed: of an assertion of
// testify, of a wait of package await, of a panic.
var failureMarks = []string{"Error:", "waited ", "panic: "}

// logLine matches a line of a daemon's log that a test prints.
var logLine = regexp.MustCompile(`^\s*(\w+\.go:\d+: )?\{"time":"`)

// cause returns the output of a test about its failure, indented: 12 lines from the first one with a
// mark, or from the first one, without lines of logs.
func cause(output string) string {
	lines := slices.DeleteFunc(strings.Split(output, "\n"), func(line string) bool {
		return strings.TrimSpace(line) == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(strings.TrimSpace(line), "--- ") ||
			logLine.MatchString(line)
	})
	first := slices.IndexFunc(lines, func(line string) bool {
		return slices.ContainsFunc(failureMarks, func(mark string) bool { return strings.Contains(line, mark) })
	})
	lines = lines[max(first, 0):]
	var b strings.Builder
	for _, line := range lines[:min(len(lines), 12)] {
		line = strings.TrimSpace(line)
		fmt.Fprintf(&b, "    %s\n", line[:min(len(line), 300)])
	}
	return b.String()
}

// reason is why a test was skipped, as need.NotRun begins it.
func reason(output string) string {
	for line := range strings.Lines(output) {
		if _, why, ok := strings.Cut(line, need.NotRun); ok {
			return strings.TrimSpace(why)
		}
	}
	return "the test was skipped without a reason that begins with " + need.NotRun
}

func (r *report) notRun() (n int) {
	for _, tests := range r.skipped {
		n += len(tests)
	}
	return n
}

// opening is the first line of a run: the needs that this machine lacks.
func opening(lacks []string) string {
	if len(lacks) == 0 {
		return "This machine can run every test."
	}
	return "Not run on this machine:\n  " + strings.Join(lacks, "\n  ")
}

// summary is the last lines of a run.
func (r *report) summary(took time.Duration, drawn string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s of %s passed in %s.\n", count(r.passed, "test"), count(r.packages, "package"), duration(took))
	if drawn != "" {
		fmt.Fprintf(&b, "These are %s.\n", drawn)
	}
	if len(r.broken) > 0 {
		b.WriteString("Failed:\n")
		for _, name := range r.broken {
			fmt.Fprintf(&b, "  %s\n%s", name, r.causes[name])
		}
	}
	if n := r.notRun(); n == 0 {
		fmt.Fprintf(&b, "%s was run.", map[bool]string{true: "Every test", false: "Each of them"}[drawn == ""])
	} else {
		fmt.Fprintf(&b, "Not run, %s:\n", count(n, "test"))
		for _, why := range slices.Sorted(maps.Keys(r.skipped)) {
			tests := r.skipped[why]
			fmt.Fprintf(&b, "  %d: %s (%s)\n", len(tests), why, few(tests))
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// few names at most three.
func few(names []string) string {
	if len(names) <= 3 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func duration(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%d s", int(d.Seconds()+0.5))
	}
	return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
}

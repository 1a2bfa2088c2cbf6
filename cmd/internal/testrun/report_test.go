package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
)

// events are lines of a run: a test that passes with its case, one that fails, one that is not
// run, a package without a failure, and one whose only test hangs.
const events = `{"Action":"output","Package":"berth/a","Test":"TestWell","Output":"=== RUN   TestWell\n"}
{"Action":"pass","Package":"berth/a","Test":"TestWell/case","Elapsed":0.1}
{"Action":"pass","Package":"berth/a","Test":"TestWell","Elapsed":0.2}
{"Action":"output","Package":"berth/a","Test":"TestBad/case","Output":"    a_test.go:7: two is not three\n"}
{"Action":"fail","Package":"berth/a","Test":"TestBad/case","Elapsed":0.1}
{"Action":"fail","Package":"berth/a","Test":"TestBad","Elapsed":0.1}
{"Action":"output","Package":"berth/a","Test":"TestLab","Output":"    a_test.go:9: not run: it needs root\n"}
{"Action":"skip","Package":"berth/a","Test":"TestLab","Elapsed":0}
{"Action":"fail","Package":"berth/a","Elapsed":1.5}
{"Action":"pass","Package":"berth/b","Test":"TestOld","Elapsed":0}
{"Action":"pass","Package":"berth/without","Elapsed":0.01}
{"Action":"pass","Package":"berth/b","Elapsed":0.01}
{"Action":"output","Package":"berth/c","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"output","Package":"berth/c","Output":"FAIL\tberth/c\t60.0s\n"}
{"Action":"fail","Package":"berth/c","Elapsed":60}
{"Action":"skip","Package":"berth/d","Elapsed":0}
not an event
`

func TestReportOfARun(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	require.NoError(t, r.read(strings.NewReader(events)))
	require.Equal(t, `    a_test.go:7: two is not three
FAIL  berth/a                                         1.5 s
ok    berth/without                                   0.0 s
ok    berth/b                                         0.0 s
panic: test timed out
FAIL	berth/c	60.0s
FAIL  berth/c                                        60.0 s
not an event
`, out.String())
	require.Equal(t, `
2 tests of 3 packages passed in 1 min 5 s.
Failed:
  berth/a.TestBad/case
    a_test.go:7: two is not three
  berth/a.TestBad
  berth/c.TestHangs
    panic: test timed out
Not run, 1 test:
  1: it needs root (berth/a.TestLab)`, r.summary(65*time.Second, ""))
}

// The last lines say what failed, also where a test printed logs before and after it.
func TestCauseIsTheFailureAmongTheLogs(t *testing.T) {
	logs := strings.Repeat("    lab.go:5: a line of a log\n", 20)
	require.Equal(t, "    a_test.go:9: waited 5m0s for the job; saw PENDING\n"+strings.Repeat("    lab.go:5: a line of a log\n", 11),
		cause("=== RUN   TestBad\n"+logs+"    a_test.go:9: waited 5m0s for the job; saw PENDING\n"+logs+"--- FAIL: TestBad (301s)\n"))
	daemon := strings.Repeat("    a_test.go:5: {\"time\":\"2026-01-01T00:00:00Z\",\"msg\":\"Error: 1\"}\n        "+
		"{\"time\":\"2026-01-01T00:00:00Z\"}\n", 20)
	require.Equal(t, "    Error: not equal\n    Test: TestBad\n", cause(daemon+"    \tError: not equal\n"+daemon+"    \tTest: TestBad\n"))
	require.Empty(t, cause("=== RUN   TestBad\n--- FAIL: TestBad (0s)\n"))
}

func TestRunWithoutASkipSaysSo(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	require.NoError(t, r.read(strings.NewReader(`{"Action":"pass","Package":"berth/a","Test":"TestWell"}
{"Action":"pass","Package":"berth/a","Elapsed":1}`)))
	require.Equal(t, "\n1 test of 1 package passed in 9 s.\nEvery test was run.", r.summary(9*time.Second, ""))
	require.Equal(t, "\n1 test of 1 package passed in 9 s.\nThese are 1 of 3 tests, drawn by the seed 7.\nEach of them was run.",
		r.summary(9*time.Second, "1 of 3 tests, drawn by the seed 7"))
}

// A skip without a reason in the words of need.NotRun is named as well.
func TestSkipWithoutAReasonIsNotHidden(t *testing.T) {
	r := newReport(&strings.Builder{})
	require.NoError(t, r.read(strings.NewReader(`{"Action":"output","Package":"berth/a","Test":"TestX/y","Output":"    later\n"}
{"Action":"skip","Package":"berth/a","Test":"TestX/y"}`)))
	require.Equal(t, 1, r.notRun())
	require.Contains(t, r.summary(0, ""), "without a reason that begins with not run:  (berth/a.TestX/y)")
}

func TestRunsOfACommitAddUp(t *testing.T) {
	table, failures := flakeTable([]flakeRun{
		{Seconds: 100, Tests: map[string]float64{"berth/a.TestWell": 1, "berth/a.TestSlow": 50}},
		{Seconds: 130, Tests: map[string]float64{"berth/a.TestWell": 2}, Failed: []string{"berth/a.TestSlow"}},
		{Seconds: 110, Tests: map[string]float64{"berth/a.TestWell": 1.5}, NotRun: []string{"berth/a.TestSlow"}},
	})
	require.Equal(t, 2, failures)
	require.Equal(t, []string{
		"TEST RUNS FAILURES NOT RUN LONGEST",
		"berth/a.TestSlow 2 1 1 50.0 s",
		"berth/a.TestWell 3 0 0 2.0 s",
		"1 of 3 runs without a failure, 2 tests; the longest run took 2 min 10 s.",
	}, words(table))
}

// words returns the lines of a table with single spaces.
func words(table string) (lines []string) {
	for line := range strings.Lines(strings.TrimSpace(table)) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

func TestSeedDrawsTests(t *testing.T) {
	all := []string{"TestA", "TestB", "TestC", "TestD", "TestE"}
	drawn := map[string]bool{}
	for seed := range uint64(60) {
		names := drawNames(seed, 3, all)
		require.Equal(t, names, drawNames(seed, 3, all), "a seed repeats its tests")
		for _, name := range names {
			drawn[name] = true
		}
	}
	require.Len(t, drawn, 5, "each test is drawn by some seed")
}

// A binary that does not start, or ends without a word, is a failure with its reason; one whose
// failed test is known adds none.
func TestBinaryThatEndsWithoutAWordIsAFailure(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	require.NoError(t, r.read(strings.NewReader(`{"Action":"fail","Package":"berth/a","Test":"TestBad"}`)))
	r.packageBroke("berth/a", errors.New("exit status 1"))
	r.packageBroke("berth/b", errors.New("signal: killed"))
	require.Equal(t, []string{"berth/a.TestBad", "berth/b"}, r.broken)
	require.Contains(t, r.summary(0, ""), "  berth/b\n    signal: killed\n")
	require.Equal(t, "FAIL  berth/a: exit status 1\nFAIL  berth/b: signal: killed\n", out.String())
}

// A test that panics is a failed test with its panic, also after another failure, although test2json has no event for its end.
// A test that still runs beside it does not count as failed.
func TestPanicIsAFailedTestWithItsOutput(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	dir := t.TempDir()
	file := filepath.Join(dir, "a.test")
	require.NoError(t, os.WriteFile(file, []byte(`#!/bin/sh
cat <<END
=== RUN   TestWell
--- PASS: TestWell (0.00s)
=== RUN   TestWorse
--- FAIL: TestWorse (0.00s)
=== RUN   TestBeside
=== PAUSE TestBeside
=== RUN   TestBad
    a_test.go:7: a line of a log
--- FAIL: TestBad (0.00s)
panic: index out of range [recovered, repanicked]

goroutine 20 [running]:
END
exit 2
`), 0o755))
	tests{binaries: []binary{{pkg: "berth/a", dir: dir, file: file}}, timeout: time.Minute, linger: time.Minute}.run(t.Context(), r)
	require.Equal(t, 1, r.passed)
	require.Equal(t, 2, r.failed)
	require.Equal(t, []string{"berth/a.TestWorse", "berth/a.TestBad"}, r.broken)
	require.Contains(t, r.causes["berth/a.TestBad"], "panic: index out of range")
	require.Contains(t, out.String(), "goroutine 20 [running]:\nTestBeside did not end\nFAIL  berth/a: exit status 2\n")
}

// Each package gets a binary of its own, also packages whose paths end alike.
func TestBinariesOfPackagesThatEndAlike(t *testing.T) {
	binaries, err := compile(t.Context(), t.TempDir(), "", []string{"berth/cmd/internal/cli", "berth/runtimes/slurm/cli"})
	require.NoError(t, err)
	require.Len(t, binaries, 2)
	tests := map[string]string{"berth/cmd/internal/cli": "TestPlansAreColored", "berth/runtimes/slurm/cli": "TestRunaways"}
	for _, b := range binaries {
		names, err := b.list(t.Context(), "^Test")
		require.NoError(t, err)
		require.Contains(t, names, tests[b.pkg], b.pkg)
	}
}

// A process that a test leaves does not keep the run from its end, and is ended.
func TestProcessThatATestLeavesIsEnded(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.test")
	require.NoError(t, os.WriteFile(file,
		[]byte("#!/bin/sh\nsleep 600 &\necho $! >left\necho '=== RUN   TestA'\necho '--- PASS: TestA (0.00s)'\necho PASS\n"), 0o755))
	r := newReport(io.Discard)
	tests{binaries: []binary{{pkg: "berth/a", dir: dir, file: file}}, timeout: time.Minute, linger: time.Millisecond}.run(t.Context(), r)
	require.Equal(t, 1, r.passed)
	require.Equal(t, []string{"berth/a"}, r.broken)
	require.Contains(t, r.causes["berth/a"], "left a process")
	left, err := os.ReadFile(filepath.Join(dir, "left"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(left)))
	require.NoError(t, err)
	stat := func() string {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // none: it has ended
		return string(text)
	}
	await.True(t, "the process has ended", func() bool {
		return stat() == "" || strings.Contains(stat(), ") Z ")
	}, func() any { return stat() })
}

func TestTestsOfABinaryAreListed(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	b := binary{pkg: "berth/cmd/internal/testrun", dir: ".", file: self}
	all, err := b.list(t.Context(), "")
	require.NoError(t, err)
	require.Contains(t, all, t.Name())
	some, err := b.list(t.Context(), "^"+t.Name()+"$")
	require.NoError(t, err)
	require.Equal(t, []string{t.Name()}, some)
}

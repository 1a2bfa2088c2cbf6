package main

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRequirements: examples/requirements.md names every requirement once, and
// each test or command that it names exists and runs in `make test` or in
// `make test-long`.
func TestRequirements(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(moduleRoot, "examples/requirements.md"))
	require.NoError(t, err)
	makefile, err := os.ReadFile(filepath.Join(moduleRoot, "Makefile"))
	require.NoError(t, err)
	var want, have []string
	for _, family := range []struct {
		letter string
		count  int
	}{{"A", 18}, {"B", 10}, {"C", 7}, {"D", 7}, {"E", 13}, {"F", 9}} {
		for n := range family.count {
			want = append(want, fmt.Sprintf("%s%d", family.letter, n+1))
		}
	}
	tests := testNames{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		id := strings.TrimSpace(cells[0])
		if !regexp.MustCompile(`^[A-Z]\d+$`).MatchString(id) {
			continue
		}
		require.Len(t, cells, 4, line)
		have = append(have, id)
		stands, shown := strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])
		if strings.HasPrefix(stands, "Not yet") {
			require.Equal(t, "–", shown, "%s: an absent feature has no test", id)
			continue
		}
		named := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(shown, -1)
		require.NotEmpty(t, named, "%s: no test or command is named", id)
		for _, n := range named {
			switch first, rest, _ := strings.Cut(n[1], " "); {
			case first == "make":
				require.Contains(t, string(makefile), "\n"+rest+":", "%s: there is no %s", id, n[1])
			case first == "berth":
				cmd, _, err := newRoot().Find([]string{rest})
				require.NoError(t, err, "%s: there is no %s", id, n[1])
				require.Equal(t, rest, cmd.Name(), "%s: there is no %s", id, n[1])
			default:
				dot := strings.LastIndex(n[1], ".")
				require.Positive(t, dot, "%s: %s is neither a test nor a command", id, n[1])
				require.Contains(t, tests.of(t, n[1][:dot]), n[1][dot+1:], "%s: neither make test nor make test-long runs %s", id, n[1])
			}
		}
	}
	require.Equal(t, want, have)
}

// testNames are the tests of packages that `make test` or `make test-long`
// runs, by directory.
type testNames map[string][]string

func (n testNames) of(t *testing.T, dir string) []string {
	t.Helper()
	if names, ok := n[dir]; ok {
		return names
	}
	files, err := filepath.Glob(filepath.Join(moduleRoot, dir, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		for name, fn := range testsIn(t, file) {
			if runs(t, file, name) && !skips(fn) {
				n[dir] = append(n[dir], name)
			}
		}
	}
	slices.Sort(n[dir])
	return n[dir]
}

// testsIn returns the test functions of a file, by name.
func testsIn(t *testing.T, file string) map[string]*ast.FuncDecl {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	tests := map[string]*ast.FuncDecl{}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && regexp.MustCompile(`^Test[^a-z]`).MatchString(fn.Name.Name) {
			tests[fn.Name.Name] = fn
		}
	}
	return tests
}

// runs reports whether `make test`, which runs every test of the default build,
// or `make test-long` or `make test-machines`, which run the tests named TestLong… and
// TestMachine… of the builds with the tags long and machines, runs the test.
// TestMakeRunsTheTests holds the Makefile to that.
func runs(t *testing.T, file, name string) bool {
	t.Helper()
	matches := func(tags ...string) bool {
		ctx := build.Default
		ctx.BuildTags = tags
		ok, err := ctx.MatchFile(filepath.Dir(file), filepath.Base(file))
		require.NoError(t, err)
		return ok
	}
	return matches() || matches("long") && strings.HasPrefix(name, "TestLong") || matches("machines") &&
		strings.HasPrefix(name, "TestMachine") ||
		matches("long", "jobs") && name == "TestLongJobs" || matches("long", "baddays") && name == "TestLongBadDays" ||
		matches("crash") && name == "TestCrashes" || matches("long", "crash") && name == "TestCrashesOnSlurm"
}

// skips reports whether a test's own body skips the test. The package need skips tests that
// a machine cannot run, which .ci/run does not accept. Function literals are not
// searched: there rapid skips an action, or a subtest itself.
func skips(fn *ast.FuncDecl) bool {
	skip := false
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.SelectorExpr:
			skip = skip || slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, n.Sel.Name)
		}
		return true
	})
	return skip
}

// TestMakeRunsTheTests: `make test`, `make test-long` and `make test-machines` together
// run each test of the repository, .ci/run runs them, and no test depends on go test -short.
func TestMakeRunsTheTests(t *testing.T) {
	read := func(file string) string {
		t.Helper()
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(text)
	}
	makefile := read(filepath.Join(moduleRoot, "Makefile"))
	recipe := func(target string) string {
		t.Helper()
		m := regexp.MustCompile(`(?m)^` + target + `:.*\n(?:\t@deploy/prepare --optional\n)?\t(.*)$`).FindStringSubmatch(makefile)
		require.NotNil(t, m, target)
		return m[1]
	}
	require.Equal(t, "@$(TESTRUN) ./...", recipe("test"))
	require.Equal(t, "@$(TESTRUN) -tags long -timeout 2h -run '^$(or $(RUN),TestLong)' $(LONG)", recipe("test-long"))
	require.Contains(t, makefile, `LONG = $(shell grep -rl --include='*_test.go' '^//go:build long' . | xargs -n1 dirname | sort -u)`)
	require.Contains(t, makefile, "\n\t@$(TESTRUN) -tags long,machines -run '^TestMachine' $(MACHINES)\n")
	require.Contains(t, makefile, `MACHINES = $(shell grep -rl --include='*_test.go' '^//go:build machines' . | xargs -n1 dirname | sort -u)`)
	require.Contains(t, makefile, " -tags long,jobs -run '^TestLongJobs$$")
	require.Contains(t, makefile, " -tags long,baddays -run '^TestLongBadDays$$")
	require.Contains(t, makefile, " $(GO) test -run '^TestSimulatedSchedules$$' -v -count=1 -timeout 10h ./reconciler/sim\n")
	require.Contains(t, makefile, " $(GO) test -tags crash -run '^TestCrashes$$' -v -count=1 ")
	require.Contains(t, makefile, " $(GO) test -tags long,crash -run '^TestCrashesOnSlurm$$' -v -count=1 ")
	for _, target := range []string{"check", "test", "test-long", "test-slurm", "test-slurm-next", "test-machines"} {
		require.Contains(t, strings.Split(read(filepath.Join(moduleRoot, ".ci/run")), "\n"), "stage "+target+" make "+target)
	}
	err := filepath.WalkDir(moduleRoot, func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		for name := range testsIn(t, file) {
			require.True(t, runs(t, file, name),
				"%s: a test of the build with the tag long is named TestLong…, one with the tag machines TestMachine…: %s", file, name)
		}
		require.NotContains(t, read(file), "testing."+"Short()", "%s: neither target runs with -short", file)
		return nil
	})
	require.NoError(t, err)
}

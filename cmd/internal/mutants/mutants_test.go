package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const moduleRoot = "../../.."

// TestEachMutantApplies: each row of examples/requirements.md has a mutant in
// examples/mutants.yaml, the row names its test, and the code contains the text that it replaces. `make
// mutants` shows that the tests fail, which takes minutes.
func TestEachMutantApplies(t *testing.T) {
	table, err := readTable(moduleRoot)
	require.NoError(t, err)
	rows, err := readRequirements(moduleRoot)
	require.NoError(t, err)
	assert.NoError(t, checkTable(table, rows))
	assert.GreaterOrEqual(t, len(table), 60)
	s, err := readSource(moduleRoot)
	require.NoError(t, err)
	for _, m := range table {
		if _, _, err := s.mutate(m); err != nil {
			t.Errorf("%s: %v", m.ID, err)
		}
	}
}

// module is a small module with one row. Its test checks the result of Limit, and calls
// greet without checking it.
func module(t *testing.T, mutants string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "a module") // a path may have spaces
	for name, text := range map[string]string{
		"go.mod": "module small\n\ngo 1.24\n",
		"pkg/pkg.go": `// Package pkg has a bound.
package pkg

const most = 3

// Limit bounds n.
func Limit(n int) int {
	if n > most { // the bound
		return most
	}
	return n
}

type greeter struct{ names []string }

func (g *greeter) greet(i int) string { return "hello " + g.names[i] }

func (g greeter) len() int { return len(g.names) }
`,
		"pkg/pkg_test.go": `package pkg

import "testing"

func TestLimit(t *testing.T) {
	g := &greeter{names: []string{"a"}}
	_ = g.greet(0)
	if Limit(5) != 3 || Limit(2) != 2 {
		t.Error("no limit")
	}
}

func TestSkips(t *testing.T) { t.Skip("there is no cluster") }

func TestFails(t *testing.T) { t.Error("always") }
`,
		"examples/requirements.md": "| id | requirement | stands now | shown by |\n|---|---|---|---|\n" +
			"| A1 | bound | a bound | `pkg.TestLimit`, `pkg.TestSkips`, `pkg.TestFails`, `make demo` |\n| A2 | later | Not yet | – |\n",
		"examples/mutants.yaml": mutants,
	} {
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	return root
}

func entry(id, in, was, is, test string) string {
	return "- {id: " + id + ", effect: it is wrong, in: '" + in + "', was: '" + was + "', is: '" + is + "', test: " + test + "}\n"
}

func TestOutcomesOfMutants(t *testing.T) {
	for name, c := range map[string]struct{ mutant, out, err string }{
		"the test fails": {entry("A1-a", "Limit", "if n>most {\n return most }", "if false { return 0 }", "pkg.TestLimit"),
			"killed    A1-a  by pkg.TestLimit", ""},
		"a constant": {entry("A1-a", "pkg.most", "3", "30", "pkg.TestLimit"), "1 of 1 mutants killed", ""},
		"the test passes": {entry("A1-a", "(*greeter).greet", `"hello "`, `"bye "`, "pkg.TestLimit"), "survived  A1-a",
			"survived: A1-a"},
		"it does not compile": {entry("A1-a", "Limit", "n > most", "m > most", "pkg.TestLimit"), "does not compile",
			"invalid: A1-a"},
		"the test is skipped": {entry("A1-a", "Limit", "n > most", "false", "pkg.TestSkips"), "did not run to its end",
			"invalid: A1-a"},
		"the test is not there": {entry("A1-a", "Limit", "n > most", "false", "pkg.TestLimit/nothing"), "did not run to its end",
			"invalid: A1-a"},
		"a crash shows no assertion": {entry("A1-a", "(*greeter).greet", "[i]", "[i+1]", "pkg.TestLimit"), "index out of range",
			"invalid: A1-a"},
		"a hang shows no assertion": {entry("A1-a", "Limit", "", "select {}", "pkg.TestLimit"), "the test hung for 1s", "invalid: A1-a"},
		"the function is gone": {entry("A1-a", "Bound", "n > most", "false", "pkg.TestLimit"), "0 declarations Bound",
			"invalid: A1-a"},
		"the text is there twice": {entry("A1-a", "Limit", "return", "return 1 +", "pkg.TestLimit"), "2 times, not once",
			"invalid: A1-a"},
		"a method without its pointer": {entry("A1-a", "greeter.greet", `"hello "`, `""`, "pkg.TestLimit"), "0 declarations",
			"invalid: A1-a"},
		"it is not Go": {entry("A1-a", "Limit", "n > most", "n >", "pkg.TestLimit"), "is not Go", "invalid: A1-a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			args := []string{"-unchecked", "-root", module(t, c.mutant)}
			if strings.Contains(c.out, "hung") {
				args = append(args, "-timeout", "1s")
			}
			err := run(t.Context(), &out, args)
			require.Contains(t, out.String(), c.out)
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
			}
		})
	}
}

func TestTestsPassWithoutAMutant(t *testing.T) {
	r := runner{root: module(t, ""), timeout: time.Minute}
	require.NoError(t, r.unmutated(t.Context(), []mutant{{Test: "pkg.TestLimit"}}))
	err := r.unmutated(t.Context(), []mutant{{Test: "pkg.TestLimit"}, {Test: "pkg.TestFails"}, {Test: "pkg.TestSkips"}})
	require.ErrorContains(t, err, "pkg.TestFails does not pass without a mutant")
	require.ErrorContains(t, err, "pkg.TestSkips does not pass without a mutant")
	require.NotContains(t, err.Error(), "pkg.TestLimit does not")
}

func TestMutantsApplyAndCompile(t *testing.T) {
	good := entry("A1-a", "Limit", "n > most", "false", "pkg.TestLimit")
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, []string{"-apply-only", "-root", module(t, good)}))
	err := run(t.Context(), &out, []string{"-apply-only", "-root", module(t, good+entry("A1-b", "greeter.len", "g", "h", "pkg.TestLimit"))})
	require.ErrorContains(t, err, "A1-b: the mutant does not compile")
	require.NotContains(t, err.Error(), "A1-a")
	require.Contains(t, out.String(), "1 of 2 mutants apply and compile")
}

func TestFaultsOfTheTable(t *testing.T) {
	good := entry("A1-a", "Limit", "n > most", "false", "pkg.TestLimit")
	for fault, table := range map[string]string{
		"A1: the row has no mutant":           "[]",
		"A1-a: the id is used twice":          good + good,
		"no row A2, or the row says Not yet":  good + entry("A2-a", "Limit", "n", "1", "pkg.TestLimit"),
		"does not name pkg.TestLonger":        good + entry("A1-b", "Limit", "n", "1", "pkg.TestLonger"),
		"id, effect, in, is or test is empty": good + entry("A1-b", "Limit", "n", "1", "make demo"),
		"unknown field":                       "- {id: A1-a, by: pkg.TestLimit}",
	} {
		err := run(t.Context(), &bytes.Buffer{}, []string{"-list", "-root", module(t, table)})
		require.ErrorContains(t, err, fault)
	}
}

func TestSelectionOfMutants(t *testing.T) {
	root := module(t, entry("A1-a", "Limit", "n > most", "false", "pkg.TestLimit")+entry("A1-b", "Limit", "n > most", "false",
		"pkg.TestFails"))
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, []string{"-list", "-row", "A1", "-run", "b$", "-root", root}))
	require.Equal(t, "A1-b: it is wrong (pkg.TestFails)\n", out.String())
	require.ErrorContains(t, run(t.Context(), &out, []string{"-run", "c$", "-root", root}), "no mutant has such an id and row")
}

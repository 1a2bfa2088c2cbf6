package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// standIns are files that sleep because they replace programs that sleep. No test depends on
// the time that this takes.
var standIns = map[string]string{
	"runtimes/host/agent/main_test.go": "child processes that stand in for daemons",
}

// TestNoTestDependsOnSpeed: no test bounds wall time, sleeps to let something happen, or waits
// other than by berth/examples/await. Inside a bubble of synctest, where time is the test's
// own, everything is allowed; a function that only such tests call says "in a bubble" in its
// comment. A line whose comment begins with "the moment" chooses when a fault happens, one
// with "the pace" spares the machine between two looks; nothing is expected of how long they
// take. Benchmarks measure.
func TestNoTestDependsOnSpeed(t *testing.T) {
	files := 0
	for _, path := range goFiles(t) {
		rel, err := filepath.Rel(moduleRoot, path)
		require.NoError(t, err)
		if !strings.HasSuffix(rel, "_test.go") || strings.HasSuffix(rel, "bench_test.go") || standIns[rel] != "" {
			continue
		}
		files++
		for _, found := range dependsOnSpeed(t, path) {
			t.Errorf("%s:%s", rel, found)
		}
	}
	t.Logf("%d files with tests bound no wall time", files)
}

// dependsOnSpeed returns the places of a file that bound wall time or sleep, each with why.
func dependsOnSpeed(t *testing.T, path string) (found []string) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
	require.NoError(t, err)
	allowed := map[int]bool{}
	for _, group := range f.Comments {
		text := group.Text()
		allowed[fset.Position(group.Pos()).Line] = strings.HasPrefix(text, "the moment") || strings.HasPrefix(text, "the pace")
	}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || strings.Contains(fn.Doc.Text(), "in a bubble") || strings.HasPrefix(fn.Name.Name, "Benchmark") || takesB(fn) {
			continue
		}
		elapsed := durations{}
		ast.Inspect(fn, func(n ast.Node) bool {
			why := ""
			switch n := n.(type) {
			case *ast.AssignStmt:
				elapsed.add(n)
			case *ast.BinaryExpr:
				why = elapsed.comparison(n)
			case *ast.CallExpr:
				pkg, name := callee(n)
				if pkg == "synctest" && name == "Test" || name == "bubble" {
					return false
				}
				if why = speedOf(pkg, name, n, elapsed); isLimit(n) {
					why = ""
				}
			}
			if why != "" && !allowed[fset.Position(n.Pos()).Line] {
				found = append(found, fset.Position(n.Pos()).String()[len(path)+1:]+": "+why)
			}
			return true
		})
	}
	return found
}

// isLimit reports whether the time of a call is await.Limit, which only ends a hang.
func isLimit(call *ast.CallExpr) bool {
	return slices.ContainsFunc(call.Args, func(arg ast.Expr) bool {
		sel, ok := arg.(*ast.SelectorExpr)
		return ok && sel.Sel.Name == "Limit"
	})
}

// speedOf returns why a call depends on the speed of the machine, or "".
func speedOf(pkg, name string, call *ast.CallExpr, elapsed durations) string {
	asserts := pkg == "require" || pkg == "assert"
	switch {
	case asserts && slices.Contains([]string{"Eventually", "Eventuallyf", "EventuallyWithT", "Never", "Neverf"}, name):
		return name + " has a deadline of its own; wait by berth/examples/await"
	case pkg == "time" && slices.Contains([]string{"Sleep", "After", "Tick", "NewTimer", "NewTicker"}, name):
		return "time." + name + " passes wall time; wait by berth/examples/await, or use synctest"
	case pkg == "context" && slices.Contains([]string{"WithTimeout", "WithDeadline", "WithTimeoutCause", "WithDeadlineCause"}, name):
		return "context." + name + " bounds wall time; use await.Context, or synctest"
	case asserts && elapsed.bounded(name, call.Args):
		return name + " bounds wall time; make it a row of make bench, or use synctest"
	}
	return ""
}

// durations are the variables of a function that have time that passed.
type durations map[string]bool

// add notes the variables of an assignment from time.Since.
func (d durations) add(a *ast.AssignStmt) {
	for i, to := range a.Lhs {
		if id, ok := to.(*ast.Ident); ok && len(a.Rhs) == len(a.Lhs) && d.measures(a.Rhs[i]) {
			d[id.Name] = true
		}
	}
}

// bounded reports whether an assertion bounds time that passed from above.
func (d durations) bounded(name string, args []ast.Expr) bool {
	least := map[string]int{"Less": 1, "LessOrEqual": 1, "Greater": 2, "GreaterOrEqual": 2} // the argument that has to be less
	if i, ok := least[name]; ok {
		return len(args) > i && d.measures(args[i])
	}
	return slices.Contains([]string{"InDelta", "WithinDuration", "True", "False"}, name) && slices.ContainsFunc(args, d.measures)
}

// comparison returns why a comparison depends on the speed of the machine, or "".
func (d durations) comparison(e *ast.BinaryExpr) string {
	compares := slices.Contains([]token.Token{token.LSS, token.LEQ, token.GTR, token.GEQ}, e.Op)
	if compares && (d.measures(e.X) || d.measures(e.Y)) {
		return "a comparison with time that passed depends on the machine; wait by berth/examples/await"
	}
	return ""
}

// measures reports whether an expression has time that passed.
func (d durations) measures(e ast.Expr) (yes bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.Ident:
			yes = yes || d[n.Name]
		case *ast.CallExpr:
			if pkg, name := callee(n); pkg == "time" && name == "Since" {
				yes = true
			}
		}
		return true
	})
	return yes
}

// takesB reports whether a function is part of a benchmark.
func takesB(fn *ast.FuncDecl) bool {
	return slices.ContainsFunc(fn.Type.Params.List, func(p *ast.Field) bool {
		star, ok := p.Type.(*ast.StarExpr)
		if !ok {
			return false
		}
		sel, ok := star.X.(*ast.SelectorExpr)
		return ok && sel.Sel.Name == "B"
	})
}

// callee returns the qualifier and the name of what a call calls.
func callee(call *ast.CallExpr) (pkg, name string) {
	fun := call.Fun
	if generic, ok := fun.(*ast.IndexExpr); ok {
		fun = generic.X
	}
	if id, ok := fun.(*ast.Ident); ok {
		return "", id.Name
	}
	sel, ok := fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	if id, ok := sel.X.(*ast.Ident); ok {
		pkg = id.Name
	}
	return pkg, sel.Sel.Name
}

func TestWallTimeInTestsIsFound(t *testing.T) {
	var found []string
	for _, f := range dependsOnSpeed(t, "testdata/waits.txt") {
		line, _, _ := strings.Cut(f, ":")
		found = append(found, line)
	}
	require.Equal(t, []string{"14", "15", "16", "17", "18", "24", "26"}, found)
}

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// examples/requirements.md names every requirement once, and what it says
// shows one exists.
func TestRequirements(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(moduleRoot, "examples/requirements.md"))
	require.NoError(t, err)
	makefile, err := os.ReadFile(filepath.Join(moduleRoot, "Makefile"))
	require.NoError(t, err)
	var want, have []string
	for _, family := range []struct {
		letter string
		count  int
	}{{"A", 18}, {"B", 10}, {"C", 7}, {"D", 7}, {"E", 13}, {"F", 8}} {
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
			require.Equal(t, "–", shown, "%s: what is not there cannot be shown", id)
			continue
		}
		named := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(shown, -1)
		require.NotEmpty(t, named, "%s: nothing shows it", id)
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
				require.Positive(t, dot, "%s: %s is no test and no command", id, n[1])
				require.Contains(t, tests.of(t, n[1][:dot]), n[1][dot+1:], "%s: there is no test %s", id, n[1])
			}
		}
	}
	require.Equal(t, want, have)
}

// testNames are the tests of packages, by directory.
type testNames map[string][]string

func (n testNames) of(t *testing.T, dir string) []string {
	t.Helper()
	if names, ok := n[dir]; ok {
		return names
	}
	files, err := filepath.Glob(filepath.Join(moduleRoot, dir, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				n[dir] = append(n[dir], fn.Name.Name)
			}
		}
	}
	slices.Sort(n[dir])
	return n[dir]
}

package main

import (
	"cmp"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Requirement F7: Berth uses each required library for its purpose. A use is a
// package of Berth and a call of the library in its code without tests: a function
// by its package, a method by its name.
func TestLibrariesAreUsed(t *testing.T) {
	for library, uses := range map[string][]struct{ purpose, dir, calls string }{
		"github.com/go-git/go-git/v5": {
			{"fetch", "reconciler/gitrepo", ".NewUploadPackSession"},
			{"push", "reconciler/gitrepo", ".NewReceivePackSession"},
			{"keep the mirror", "reconciler/gitrepo/object", "filesystem.NewStorageWithOptions"},
			{"store a pack", "reconciler/gitrepo/object", "packfile.WritePackfileToObjectStorage"},
		},
		"sigs.k8s.io/yaml": {
			{"write status files", "reconciler/gitrepo/statusbranch", "yaml.Marshal"},
			{"read status files", "reconciler/gitrepo/statusbranch", "yaml.Unmarshal"},
		},
		"cuelang.org/go": {
			{"compile the definitions", "schema/load", ".BuildInstance"},
			{"hold a document against its definition", "schema/load", ".Unify"},
			{"and say whether it fits", "schema/load", ".Validate"},
		},
		"github.com/fsnotify/fsnotify": {
			{"berth validate --watch", "cmd/internal/watch", "fsnotify.NewWatcher"},
			{"see a change", "cmd/internal/watch", ".Add"},
		},
		"github.com/google/go-github/v62": {
			{"read webhooks", "webhooks/github", "github.ParseWebHook"},
			{"speak to the forge", "webhooks/github", "github.NewClient"},
			{"check runs", "webhooks/github", ".CreateCheckRun"},
			{"commit statuses", "webhooks/github", ".CreateStatus"},
			{"comments", "webhooks/github", ".CreateComment"},
		},
		"github.com/bluekeyes/go-gitdiff": {
			{"read patches", "reconciler/patch", "gitdiff.Parse"},
			{"apply patches", "reconciler/patch", "gitdiff.NewTextApplier"},
		},
		"github.com/prometheus/client_golang": {
			{"count events of the loop", "reconciler/loop", "prometheus.NewCounterVec"},
			{"time tasks of the loop", "reconciler/loop", "prometheus.NewHistogramVec"},
			{"show it at /metrics", "webhooks", "promhttp.HandlerFor"},
		},
	} {
		for _, use := range uses {
			require.True(t, calls(t, use.dir, library, use.calls), "%s: no file of %s imports it and calls %s, to %s", library, use.dir,
				use.calls, use.purpose)
		}
	}
	// Testify is for tests: most packages' tests use it, and no program has it in.
	const testify = "github.com/stretchr/testify"
	require.NotContains(t, string(goCommand(t, "list", "-deps", "./cmd/berth", "./cmd/berth-host")), testify)
	require.False(t, calls(t, "reconciler", testify, "require.Equal"), "a call in a test file counts")
	tested := strings.Count(string(goCommand(t, "list", "-f", `{{join .TestImports " "}} {{join .XTestImports " "}}`, "./...")),
		testify+"/require")
	require.GreaterOrEqual(t, tested, 25)
}

// calls says whether a file of a package, tests aside, imports a library and
// refers to what: "package.Function", with the package's own name whatever the
// file calls it, or ".Method".
func calls(t *testing.T, dir, library, what string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(moduleRoot, dir, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files, dir)
	wantPackage, wantName, found := strings.Cut(what, ".")
	require.True(t, found)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), built(t, name), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		local := map[string]string{} // name in the file → the package's own
		for _, imp := range f.Imports {
			p, err := strconv.Unquote(imp.Path.Value)
			require.NoError(t, err)
			if p != library && !strings.HasPrefix(p, library+"/") {
				continue
			}
			own := path.Base(p)
			local[own] = own
			if imp.Name != nil {
				local[imp.Name.Name] = own
			}
		}
		hit := false
		ast.Inspect(f, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != wantName || len(local) == 0 {
				return true
			}
			if wantPackage == "" {
				hit = true
			} else if id, isName := sel.X.(*ast.Ident); isName && local[id.Name] == wantPackage {
				hit = true
			}
			return true
		})
		if hit {
			return true
		}
	}
	return false
}

// built returns the file that go build reads instead of a file: `make mutants` names one by
// -overlay in GOFLAGS.
func built(t *testing.T, file string) string {
	t.Helper()
	_, overlay, found := strings.Cut(os.Getenv("GOFLAGS"), "-overlay=")
	if !found {
		return file
	}
	text, err := os.ReadFile(strings.TrimSuffix(overlay, "'"))
	require.NoError(t, err)
	var by struct{ Replace map[string]string }
	require.NoError(t, json.Unmarshal(text, &by))
	file, err = filepath.Abs(file)
	require.NoError(t, err)
	return cmp.Or(by.Replace[file], file)
}

package main

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

const moduleRoot = "../.."

// law lists the packages of Berth that each package may import outside of tests.
// A trailing /... includes everything below. An unlisted package may
// import no package of Berth, so that each new package needs a decision. The package of a
// backend, such as runtimes/slurm, needs no line; each package below that one does.
var law = map[string][]string{
	"berth/schema":      {},
	"berth/schema/cue":  {},
	"berth/schema/load": {"berth/schema", "berth/schema/cue", "berth/schema/authority", "berth/schema/event"},
	"berth/schema/estate": {"berth/schema", "berth/schema/load", "berth/schema/parallel",
		"berth/schema/authority"},
	"berth/schema/parallel":  {},
	"berth/schema/policy":    {"berth/schema", "berth/schema/authority"},
	"berth/schema/authority": {"berth/schema"},
	"berth/schema/audit":     {"berth/schema"},
	"berth/schema/event":     {"berth/schema"},
	"berth/schema/usage":     {"berth/schema"},
	"berth/schema/queue":     {"berth/schema"},
	"berth/schema/onboard":   {"berth/schema", "berth/schema/authority", "berth/schema/event"},
	"berth/schema/signature": {"berth/schema", "berth/schema/authority"},
	"berth/reconciler/plan":  {"berth/schema", "berth/schema/authority"},
	"berth/reconciler/report": {"berth/schema", "berth/schema/authority", "berth/schema/policy",
		"berth/reconciler/plan"},
	"berth/reconciler/decide": {"berth/schema", "berth/schema/estate", "berth/schema/parallel",
		"berth/schema/policy", "berth/schema/authority", "berth/schema/signature", "berth/reconciler/plan"},
	"berth/reconciler/command": {"berth/schema"},
	"berth/reconciler/fair":    {},
	"berth/reconciler/sim":     {}, // has tests only
	"berth/reconciler/nodes":   {"berth/schema", "berth/reconciler/plan"},
	"berth/reconciler/rules":   {"berth/schema", "berth/schema/event", "berth/reconciler/plan", "berth/reconciler/nodes"},
	"berth/reconciler/patch":   {"berth/schema"},
	"berth/runtimes":           {"berth/schema", "berth/schema/queue", "berth/schema/usage", "berth/reconciler/plan"},
	"berth/reconciler/apply":   {"berth/schema", "berth/schema/usage", "berth/reconciler/plan", "berth/runtimes"},
	"berth/reconciler":         {"berth/schema", "berth/schema/usage", "berth/schema/audit", "berth/reconciler/plan"},
	"berth/reconciler/provenance": {"berth/schema", "berth/schema/authority", "berth/reconciler",
		"berth/reconciler/decide"},
	"berth/reconciler/pulls": {"berth/schema", "berth/schema/estate", "berth/schema/policy",
		"berth/schema/authority", "berth/schema/audit", "berth/reconciler", "berth/reconciler/plan", "berth/reconciler/command",
		"berth/reconciler/decide", "berth/reconciler/provenance"},
	"berth/reconciler/status": {"berth/schema", "berth/schema/usage", "berth/schema/audit", "berth/schema/event",
		"berth/reconciler", "berth/reconciler/plan", "berth/reconciler/rules"},
	"berth/reconciler/loop": {"berth/schema", "berth/schema/usage", "berth/schema/estate", "berth/schema/policy",
		"berth/schema/authority", "berth/schema/audit", "berth/schema/event", "berth/schema/signature", "berth/reconciler",
		"berth/reconciler/fair", "berth/reconciler/plan", "berth/reconciler/nodes", "berth/reconciler/rules",
		"berth/reconciler/status", "berth/reconciler/decide", "berth/reconciler/provenance",
		"berth/reconciler/pulls", "berth/reconciler/apply", "berth/runtimes"},
	"berth/reconciler/gitrepo": {"berth/schema", "berth/schema/audit", "berth/schema/signature",
		"berth/reconciler/plan", "berth/reconciler", "berth/reconciler/gitrepo/object", "berth/reconciler/gitrepo/statusbranch"},
	"berth/reconciler/gitrepo/composed": {"berth/schema", "berth/reconciler", "berth/reconciler/gitrepo",
		"berth/reconciler/gitrepo/object"},
	"berth/reconciler/gitrepo/object": {"berth/schema", "berth/schema/signature", "berth/reconciler",
		"berth/reconciler/plan"},
	"berth/reconciler/gitrepo/statusbranch": {"berth/schema", "berth/schema/usage", "berth/schema/audit", "berth/schema/parallel",
		"berth/reconciler/plan", "berth/reconciler", "berth/reconciler/gitrepo/object"},
	"berth/reconciler/gitrepo/gittest": {},
	"berth/runtimes/artifact":          {"berth/schema", "berth/runtimes"},
	"berth/runtimes/backends":          {"berth/reconciler/plan", "berth/runtimes", "berth/runtimes/...", "berth/schema"},
	"berth/runtimes/memory": {"berth/schema", "berth/schema/parallel", "berth/schema/queue", "berth/schema/usage", "berth/reconciler/plan",
		"berth/runtimes"},
	"berth/runtimes/runtimetest":    {"berth/schema", "berth/reconciler/plan", "berth/runtimes"},
	"berth/runtimes/slurm/profile":  {"berth/runtimes"},
	"berth/runtimes/slurm/boundary": {"berth/schema", "berth/schema/queue"},
	"berth/runtimes/slurm/cli":      {"berth/runtimes/slurm/profile"},
	"berth/runtimes/slurm/jobs": {"berth/schema", "berth/schema/queue", "berth/reconciler/plan", "berth/runtimes",
		"berth/runtimes/slurm/boundary", "berth/runtimes/slurm/cli", "berth/runtimes/slurm/profile"},
	"berth/reconciler/queueing": {"berth/schema", "berth/schema/queue", "berth/schema/usage", "berth/reconciler/fair", "berth/reconciler/plan",
		"berth/runtimes"},
	"berth/runtimes/slurm/accounting":                {"berth/runtimes/slurm/cli"},
	"berth/runtimes/slurm/accounting/accountingtest": {"berth/runtimes/slurm/accounting", "berth/runtimes/slurm/cli"},
	"berth/runtimes/slurm/cluster": {"berth/reconciler/plan", "berth/runtimes/slurm/accounting",
		"berth/runtimes/slurm/cli", "berth/runtimes/slurm/profile", "berth/schema"},
	"berth/runtimes/slurm/slurmtest": {"berth/examples/need", "berth/schema", "berth/reconciler/plan", "berth/runtimes",
		"berth/runtimes/slurm", "berth/runtimes/slurm/cli", "berth/runtimes/slurm/cluster", "berth/runtimes/slurm/profile"},
	"berth/runtimes/host":       {"berth/reconciler/fair", "berth/reconciler/plan", "berth/runtimes", "berth/runtimes/host/agent"},
	"berth/runtimes/host/agent": {"berth/runtimes", "berth/runtimes/checksum"},
	"berth/runtimes/host/lab":   {"berth/schema"},
	"berth/runtimes/host/hosttest": {"berth/examples/await", "berth/examples/need", "berth/reconciler/plan", "berth/runtimes",
		"berth/runtimes/host", "berth/runtimes/host/lab"},
	"berth/webhooks":          {},
	"berth/webhooks/journal":  {},
	"berth/webhooks/outgoing": {},
	"berth/webhooks/secret":   {},
	"berth/webhooks/api": {"berth/schema", "berth/schema/authority", "berth/schema/audit", "berth/schema/event", "berth/schema/policy",
		"berth/schema/queue", "berth/reconciler/fair", "berth/reconciler/nodes", "berth/reconciler/plan",
		"berth/reconciler/queueing", "berth/runtimes"},
	"berth/cmd/internal/remote": {"berth/cmd/internal/cli", "berth/schema"},
	"berth/webhooks/forge":      {"berth/webhooks", "berth/webhooks/secret", "berth/reconciler"},
	"berth/webhooks/github": {"berth/webhooks", "berth/webhooks/forge", "berth/webhooks/secret", "berth/schema",
		"berth/reconciler/plan", "berth/reconciler/report", "berth/reconciler"},
	"berth/webhooks/github/githubtest": {},
	"berth/webhooks/forgetest":         {"berth/schema", "berth/reconciler", "berth/reconciler/plan"},
	"berth/examples":                   {},
	"berth/examples/await":             {},
	"berth/examples/explore":           {},
	"berth/examples/need":              {},
	"berth/examples/large":             {"berth/examples"},
	"berth/cmd/internal/cli":           {},
	"berth/cmd/internal/daemon": {"berth/runtimes/backends", "berth/cmd/internal/cli", "berth/cmd/internal/watch",
		"berth/reconciler/...", "berth/reconciler", "berth/runtimes/...", "berth/runtimes", "berth/schema/...", "berth/schema",
		"berth/webhooks/...", "berth/webhooks"},
	"berth/cmd/internal/watch": {"berth/cmd/internal/cli"},
	"berth/cmd/internal/localestate": {"berth/reconciler", "berth/reconciler/gitrepo",
		"berth/runtimes/backends", "berth/schema", "berth/schema/estate"},
	"berth/cmd/internal/localplan": {"berth/cmd/internal/cli", "berth/cmd/internal/localestate", "berth/cmd/internal/watch",
		"berth/reconciler/...", "berth/reconciler", "berth/runtimes/backends", "berth/schema/...", "berth/schema"},
	"berth/cmd/internal/validation": {"berth/cmd/internal/cli", "berth/cmd/internal/localestate",
		"berth/reconciler/gitrepo", "berth/reconciler/report", "berth/reconciler", "berth/schema/...", "berth/schema"},
	"berth/cmd/internal/mutants": {},
	"berth/cmd/internal/inspect": {"berth/cmd/internal/cli", "berth/cmd/internal/daemon", "berth/cmd/internal/localestate",
		"berth/reconciler/...", "berth/reconciler", "berth/schema/...", "berth/schema"},
	"berth/cmd/internal/ledgers": {"berth/cmd/internal/daemon", "berth/cmd/internal/inspect", "berth/reconciler/plan", "berth/runtimes",
		"berth/schema"},
	"berth/cmd/internal/testrun": {"berth/examples/explore", "berth/examples/need", "berth/runtimes/host/hosttest",
		"berth/runtimes/host/lab"},
	"berth/cmd/internal/labtest": {"berth/examples", "berth/reconciler/plan", "berth/schema", "berth/webhooks/github/githubtest"},
	"berth/cmd/berth":            {"berth/..."},
	"berth/cmd/berth-lab":        {"berth/..."},
	"berth/cmd/berth-host":       {"berth/runtimes/backends", "berth/runtimes/host/agent"},
}

// allowedFor returns the imports that the law allows a package. A runtime's backend has
// no line: it may import the contract and the packages below it.
func allowedFor(path string) (allowed []string, ok bool) {
	if allowed, ok = law[path]; ok {
		return allowed, true
	}
	name, below := strings.CutPrefix(path, "berth/runtimes/")
	return []string{"berth/schema", "berth/schema/queue", "berth/schema/usage", "berth/reconciler/plan", "berth/runtimes",
		"berth/runtimes/checksum",
		path + "/..."}, below && !strings.Contains(name, "/")
}

// pure packages may import nothing that reaches out of the process.
var pure = []string{"berth/schema", "berth/schema/queue", "berth/schema/onboard", "berth/schema/policy", "berth/schema/authority",
	"berth/schema/audit", "berth/schema/event", "berth/schema/usage", "berth/schema/signature", "berth/reconciler/plan",
	"berth/reconciler/command", "berth/reconciler/rules", "berth/runtimes/slurm/cluster", "berth/reconciler/report", "berth/runtimes/slurm/boundary",
	"berth/runtimes/slurm/cli", "berth/runtimes/slurm/accounting"}

var impure = []string{"net", "net/http", "os/exec", "os", "context", "math/rand", "math/rand/v2", "crypto/rand", "log/slog"}

type listed struct {
	ImportPath string
	Imports    []string
}

func TestImportLaw(t *testing.T) {
	out := goCommand(t, "list", "-json=ImportPath,Imports", "./...")
	dec := json.NewDecoder(bytes.NewReader(out))
	seen := map[string]bool{}
	for dec.More() {
		var p listed
		require.NoError(t, dec.Decode(&p))
		seen[p.ImportPath] = true
		allowed, ok := allowedFor(p.ImportPath)
		if !ok {
			t.Errorf("%s has no line in the import law: decide which packages it may import", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			if strings.HasPrefix(imp, "berth/") && !slices.ContainsFunc(allowed, func(a string) bool { return covers(a, imp) }) {
				t.Errorf("%s imports %s; the law allows it only %v", p.ImportPath, imp, allowed)
			}
		}
		if p.ImportPath == "berth/schema" {
			for _, imp := range p.Imports {
				require.NotContains(t, imp, ".", "schema imports the standard library only")
			}
		}
		if slices.Contains(pure, p.ImportPath) && p.ImportPath != "berth/schema" {
			for _, imp := range p.Imports {
				if slices.Contains(impure, imp) {
					t.Errorf("%s is pure, yet imports %s", p.ImportPath, imp)
				}
			}
		}
	}
	for p := range law {
		if !seen[p] {
			t.Errorf("the law speaks of %s, which is not there", p)
		}
	}
}

func covers(allowed, imp string) bool {
	if below, ok := strings.CutSuffix(allowed, "/..."); ok {
		return strings.HasPrefix(imp, below+"/")
	}
	return allowed == imp
}

// The daemon has no test server, no test estate and no test library in it.
func TestNoTestServerInBerth(t *testing.T) {
	for dep := range strings.Lines(string(goCommand(t, "list", "-deps", "./cmd/berth"))) {
		dep = strings.TrimSpace(dep)
		first, _, _ := strings.Cut(dep, "/")
		berth := first == "berth" && (strings.HasSuffix(dep, "test") || strings.HasSuffix(dep, "/lab") ||
			strings.HasPrefix(dep, "berth/examples"))
		library := strings.Contains(dep, "kin-openapi") || strings.Contains(dep, "testify") ||
			strings.Contains(dep, "pgregory.net/rapid") || dep == "testing" || dep == "net/http/httptest"
		if berth || library {
			t.Errorf("berth depends on %s", dep)
		}
	}
}

// TestHostHelperIsSmall checks what is linked into berth-host: code of Berth and of the
// standard library, and of a backend its profile only. The linker drops the methods
// that the helper does not call.
func TestHostHelperIsSmall(t *testing.T) {
	helper := filepath.Join(t.TempDir(), "berth-host")
	goCommand(t, "build", "-o", helper, "./cmd/berth-host")
	symbols := string(goCommand(t, "tool", "nm", helper))
	require.Contains(t, symbols, " T berth/runtimes/slurm/profile.Profile")
	require.NotContains(t, symbols, "berth/runtimes/slurm.(*Runtime)")
	// The path of a module begins with a domain.
	for _, found := range regexp.MustCompile(`(?m) T ([a-z0-9-]+\.[a-z]+/.*)$`).FindAllStringSubmatch(symbols, -1) {
		if !strings.HasPrefix(found[1], "golang.org/x/sys/") {
			t.Errorf("berth-host contains %s", found[1])
		}
	}
}

// The core knows no scheduler.
func TestNoSchedulerInCore(t *testing.T) {
	for _, path := range goFiles(t) {
		rel, err := filepath.Rel(moduleRoot, path)
		require.NoError(t, err)
		if strings.HasPrefix(rel, "runtimes/slurm/") || rel == "runtimes/backends/backends.go" || strings.HasPrefix(rel, "cmd/") ||
			strings.HasSuffix(rel, "_test.go") {
			continue
		}
		src, err := os.ReadFile(path)
		require.NoError(t, err)
		for n, line := range strings.Split(string(src), "\n") {
			if strings.Contains(strings.ToLower(line), "slurm") {
				t.Errorf("%s:%d names a scheduler: %s", rel, n+1, strings.TrimSpace(line))
			}
		}
	}
}

// The daemon names a forge in one file only: a second one is a package and a line there.
func TestDaemonNamesNoForge(t *testing.T) {
	const dir, registry = "cmd/internal/daemon/", "cmd/internal/daemon/forges.go"
	module := regexp.MustCompile(`^\s*(\w+ )?"github\.com/[^"]+"$`)
	paths := append(goFiles(t), filepath.Join(moduleRoot, dir+"config.cue"))
	read := 0
	for _, path := range paths {
		rel, err := filepath.Rel(moduleRoot, path)
		require.NoError(t, err)
		if !strings.HasPrefix(rel, dir) || rel == registry || strings.HasSuffix(rel, "_test.go") {
			continue
		}
		read++
		src, err := os.ReadFile(path)
		require.NoError(t, err)
		for n, line := range strings.Split(string(src), "\n") {
			if strings.Contains(strings.ToLower(line), "github") && !module.MatchString(line) {
				t.Errorf("%s:%d names a forge: %s", rel, n+1, strings.TrimSpace(line))
			}
		}
	}
	require.Greater(t, read, 20)
}

// Every package comment states a purpose; every package but main also states what
// the package must not know.
func TestPackageDocs(t *testing.T) {
	docs := map[string]string{}
	names := map[string]string{}
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.PackageClauseOnly|parser.ParseComments)
		require.NoError(t, err)
		dir := filepath.Dir(path)
		names[dir] = f.Name.Name
		if f.Doc != nil {
			docs[dir] += f.Doc.Text()
		}
	}
	notKnow := regexp.MustCompile(`(?s)(must|does|do|may)\s+not|never|nothing of|knows no|no\s`)
	for dir, name := range names {
		switch {
		case docs[dir] == "":
			t.Errorf("%s has no package comment", dir)
		case name != "main" && !notKnow.MatchString(docs[dir]):
			t.Errorf("%s: the package comment does not say what it must not know", dir)
		}
	}
}

// Exported names are explained.
func TestExportedDocs(t *testing.T) {
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/cmd/") {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && (d.Recv == nil || exportedReceiver(d.Recv)) && !obvious(d.Name.Name) {
					t.Errorf("%s: %s has no comment", fset.Position(d.Pos()), d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if ts, ok := s.(*ast.TypeSpec); ok && ts.Name.IsExported() && d.Doc == nil && ts.Doc == nil {
						t.Errorf("%s: type %s has no comment", fset.Position(ts.Pos()), ts.Name.Name)
					}
				}
			}
		}
	}
}

// obvious methods implement an interface of the standard library.
func obvious(name string) bool {
	return slices.Contains([]string{"String", "Error", "Unwrap", "Close", "Read", "Write", "Len", "ServeHTTP", "MarshalJSON",
		"UnmarshalJSON", "RoundTrip"}, name)
}

func exportedReceiver(r *ast.FieldList) bool {
	typ := r.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	id, ok := typ.(*ast.Ident)
	return ok && id.IsExported()
}

// Versions below these have known holes (past advisories on go-git, go-billy
// and x/crypto).
func TestModuleFloors(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(moduleRoot, "go.mod"))
	require.NoError(t, err)
	mod, err := modfile.Parse("go.mod", data, nil)
	require.NoError(t, err)
	require.Empty(t, mod.Replace, "nothing is replaced")
	have := map[string]string{}
	for _, r := range mod.Require {
		have[r.Mod.Path] = r.Mod.Version
	}
	for path, floor := range map[string]string{
		"github.com/go-git/go-git/v5":   "v5.19.2",
		"github.com/go-git/go-billy/v5": "v5.9.0",
		"golang.org/x/crypto":           "v0.52.0",
	} {
		require.GreaterOrEqual(t, semver.Compare(have[path], floor), 0, "%s %s is below %s", path, have[path], floor)
	}
	// The card's libraries are here, and directly used (requirement F7).
	for _, path := range []string{"github.com/go-git/go-git/v5", "sigs.k8s.io/yaml", "cuelang.org/go",
		"github.com/google/go-github/v62", "github.com/prometheus/client_golang", "github.com/stretchr/testify",
		"github.com/bluekeyes/go-gitdiff", "github.com/fsnotify/fsnotify"} {
		require.Contains(t, have, path)
	}
}

// The top level is what the product card lists, and a few dot files.
func TestTopLevel(t *testing.T) {
	out, err := exec.Command("git", "-C", moduleRoot, "ls-files", "-z").Output()
	require.NoError(t, err)
	want := []string{"cmd", "reconciler", "schema", "runtimes", "webhooks", "examples", "deploy", "Makefile", "go.mod", "go.sum",
		"README.md", "LICENSE", "CHANGELOG.md", ".ci", ".gitignore", ".golangci.yml"}
	for _, f := range strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		top, _, _ := strings.Cut(f, "/")
		require.Contains(t, want, top, "%s", f)
	}
}

func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	require.NoError(t, filepath.WalkDir(moduleRoot, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if err == nil && strings.HasSuffix(path, ".go") {
			files = append(files, path)
		}
		return err
	}))
	return files
}

func goCommand(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = moduleRoot
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", stderr.String())
	return out
}

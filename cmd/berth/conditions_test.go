package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// namedTypes are the types whose values are constants with a line of documentation each, in the
// order of the page of conditions.
var namedTypes = []struct{ name, title string }{
	{"berth/reconciler/plan.ConditionType", "Conditions"},
	{"berth/reconciler/plan.ConditionStatus", "Statuses"},
	{"berth/reconciler/plan.Reason", "Reasons"},
	{"berth/reconciler/plan.BlockedCode", "Codes of what blocks a unit"},
	{"berth/reconciler/plan.DriftKind", "Kinds of drift"},
	{"berth/runtimes.SightReason", "Results of the verification of bytes"},
	{"berth/schema.HeldReason", "Reasons of held changes"},
	{"berth/reconciler/plan.MoveHalf", "Halves of moves between tenants that come into force alone"},
	{"berth/runtimes.OpCode", "Codes of failed operations on hosts"},
}

// namedValue is a constant of one of namedTypes.
type namedValue struct{ value, doc string }

// namedValues collects the constants of namedTypes from the type-checked packages of Berth.
type namedValues struct {
	t     *testing.T
	fset  *token.FileSet
	found map[string][]namedValue // by type, in the order of the source
}

// No code outside of tests writes a value of these types as a string: a typing error would compile, and
// nobody could list what exists. Each constant has a comment, and deploy/reference/conditions.md has all.
func TestConditionsAndReasonsAreNamed(t *testing.T) {
	v := &namedValues{t, token.NewFileSet(), map[string][]namedValue{}}
	exports := map[string]string{}
	var packages []exportedPackage
	for dec := json.NewDecoder(bytes.NewReader(goCommand(t, "list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles,Deps",
		"./..."))); ; {
		var p exportedPackage
		err := dec.Decode(&p)
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		exports[p.ImportPath] = p.Export
		if strings.HasPrefix(p.ImportPath, "berth/") && v.canHave(p) {
			packages = append(packages, p)
		}
	}
	imports := importer.ForCompiler(v.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, p := range packages {
		v.read(p, imports)
	}
	const path = moduleRoot + "/deploy/reference/conditions.md"
	if *update {
		require.NoError(t, os.WriteFile(path, v.page(), 0o644))
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(v.page()), string(got), "make reference writes it again")
	definitions, err := os.ReadFile(moduleRoot + "/schema/cue/platform.cue")
	require.NoError(t, err)
	types := regexp.MustCompile(`type!: ("Ready".*)`).FindSubmatch(definitions)
	require.NotNil(t, types)
	for name := range strings.SplitSeq(string(types[1]), " | ") { // those that a rule can name
		require.Contains(t, string(got), "- `"+strings.Trim(name, `"`)+"`:")
	}
}

// exportedPackage is a package as go list -export describes it.
type exportedPackage struct {
	ImportPath, Export, Dir string
	GoFiles, Deps           []string
}

// canHave reports whether a package declares one of namedTypes or depends on a package that does.
func (v *namedValues) canHave(p exportedPackage) bool {
	return slices.ContainsFunc(namedTypes, func(n struct{ name, title string }) bool {
		pkg, _, _ := strings.Cut(n.name, ".")
		return p.ImportPath == pkg || slices.Contains(p.Deps, pkg)
	})
}

// read type-checks a package, collects its constants of namedTypes, and fails for each other string that
// has one of these types.
func (v *namedValues) read(p exportedPackage, imports types.Importer) {
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(v.fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(v.t, err)
		files = append(files, f)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: imports}
	_, err := config.Check(p.ImportPath, v.fset, files, info)
	require.NoError(v.t, err)
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				return !v.declares(n, info)
			case *ast.BasicLit:
				if is := info.Types[n]; isNamed(is.Type) && constant.StringVal(is.Value) != "" {
					v.t.Errorf("%s: %s is written as a string: use its constant", v.fset.Position(n.Pos()), n.Value)
				}
			case *ast.Ident:
				if c, ok := info.Uses[n].(*types.Const); ok && isNamed(info.Types[n].Type) && !isNamed(c.Type()) {
					v.t.Errorf("%s: the constant %s has no type: use one of type %s", v.fset.Position(n.Pos()), n.Name, info.Types[n].Type)
				}
			}
			return true
		})
	}
}

// declares reports whether spec declares constants of namedTypes, and collects them.
func (v *namedValues) declares(spec *ast.ValueSpec, info *types.Info) bool {
	for _, name := range spec.Names {
		c, ok := info.Defs[name].(*types.Const)
		if !ok || !isNamed(c.Type()) {
			return false
		}
		doc := strings.TrimSpace(spec.Comment.Text())
		if doc == "" || strings.Contains(doc, "\n") {
			v.t.Errorf("%s: %s has no comment of one line behind it", v.fset.Position(name.Pos()), name.Name)
		}
		of := c.Type().String()
		v.found[of] = append(v.found[of], namedValue{constant.StringVal(c.Val()), doc})
	}
	return true
}

func isNamed(t types.Type) bool {
	return t != nil && slices.ContainsFunc(namedTypes, func(n struct{ name, title string }) bool { return n.name == t.String() })
}

// page returns the page of all constants.
func (v *namedValues) page() []byte {
	var b bytes.Buffer
	b.WriteString("# Conditions and reasons\n\n" +
		"`berth describe`, the API and berth/status show conditions: each has a type, a status, a reason and a message.\n" +
		"Programs read the type, the status and the reason; the message is for people, and changes.\n\n" +
		"The reason of a condition is one of the reasons below, a phase with a capital letter such as `Running`, the code\n" +
		"of what blocks the unit, the kind of a drift, or the result of a verification of bytes. A change that is held has a\n" +
		"reason of its own. A plan names the half of a move between tenants that comes into force alone.\n")
	for _, n := range namedTypes {
		require.NotEmpty(v.t, v.found[n.name], n.name)
		fmt.Fprintf(&b, "\n## %s\n", n.title)
		for _, one := range v.found[n.name] {
			fmt.Fprintf(&b, "- `%s`: %s\n", one.value, one.doc)
		}
	}
	return b.Bytes()
}

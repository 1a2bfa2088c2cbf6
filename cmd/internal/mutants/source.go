package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// place is the position of a function's body, or of a variable or constant, in a file.
type place struct {
	file       string
	start, end int
	isFunction bool
}

// source is the Go code of a module outside of tests: its declarations by name, without
// and with the last element of the package's path.
type source map[string][]place

// readSource parses the module whose root is given.
func readSource(root string) (source, error) {
	s := source{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		if built, err := build.Default.MatchFile(filepath.Dir(path), d.Name()); err != nil || !built {
			return err
		}
		return s.add(path)
	})
	return s, err
}

func (s source) add(path string) error {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	add := func(name string, node ast.Node, isFunction bool) {
		p := place{path, fset.Position(node.Pos()).Offset, fset.Position(node.End()).Offset, isFunction}
		s[name] = append(s[name], p)
		long := filepath.Base(filepath.Dir(path)) + "." + name
		s[long] = append(s[long], p)
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Body != nil {
				add(receiver(d)+d.Name.Name, d.Body, true)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					for _, name := range v.Names {
						add(name.Name, v, false)
					}
				}
			}
		}
	}
	return nil
}

// receiver returns what precedes a method's name: "(*Type)." or "Type.".
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	typ, form := d.Recv.List[0].Type, "%s."
	if star, ok := typ.(*ast.StarExpr); ok {
		typ, form = star.X, "(*%s)."
	}
	if generic, ok := typ.(*ast.IndexExpr); ok {
		typ = generic.X
	}
	if id, ok := typ.(*ast.Ident); ok {
		return fmt.Sprintf(form, id.Name)
	}
	return ""
}

// mutate returns the file that the mutant changes, and its new content.
func (s source) mutate(m mutant) (file string, content []byte, err error) {
	places := s[m.In]
	if len(places) != 1 {
		return "", nil, fmt.Errorf("the module has %d declarations %s, not one", len(places), m.In)
	}
	p := places[0]
	if content, err = os.ReadFile(p.file); err != nil {
		return "", nil, err
	}
	is := strings.TrimSpace(m.Is)
	switch {
	case m.Was != "":
		if p.start, p.end, err = find(content[p.start:p.end], p.start, m.Was); err != nil {
			return "", nil, fmt.Errorf("%s: %w", m.In, err)
		}
	case p.isFunction:
		is = "{\n" + is + "\n}"
	default:
		return "", nil, fmt.Errorf("%s is not a function, so was must not be empty", m.In)
	}
	content = bytes.Join([][]byte{content[:p.start], []byte(is), content[p.end:]}, nil)
	if _, err := parser.ParseFile(token.NewFileSet(), "", content, parser.SkipObjectResolution); err != nil {
		return "", nil, fmt.Errorf("the mutant is not Go: %w", err)
	}
	return p.file, content, nil
}

// find returns where the tokens of was are in the text, which begins at the offset.
func find(text []byte, offset int, was string) (start, end int, err error) {
	have, want := tokens(text), tokens([]byte(was))
	found := 0
	for i := range max(0, len(have)-len(want)+1) {
		match := len(want) > 0
		for j := range want {
			match = match && have[i+j].text == want[j].text
		}
		if match {
			found++
			start, end = offset+have[i].start, offset+have[i+len(want)-1].end
		}
	}
	if found != 1 {
		return 0, 0, fmt.Errorf("the text of was is there %d times, not once: %s", found, was)
	}
	return start, end, nil
}

type goToken struct {
	text       string
	start, end int
}

// tokens returns the tokens of a piece of Go, without comments and without the semicolons
// that Go inserts at line ends.
func tokens(text []byte) []goToken {
	file := token.NewFileSet().AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, func(token.Position, string) {}, 0)
	var all []goToken
	for {
		pos, tok, literal := s.Scan()
		start := file.Offset(pos)
		switch {
		case tok == token.EOF:
			return all
		case tok == token.SEMICOLON && literal == "\n":
		case tok.IsOperator(): // a semicolon has a literal, too
			all = append(all, goToken{tok.String(), start, start + len(tok.String())})
		default:
			all = append(all, goToken{literal, start, start + len(literal)})
		}
	}
}

package load

import (
	"slices"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"
)

// Most documents are valid, and CUE takes most of the time to confirm that. A definition
// that is plain enough is therefore checked first by its shape, which expresses it
// completely. CUE accepts all documents that such a shape accepts, with the same
// defaults; CUE decides about all others. A test compares the two.

// static reports whether shapes can express a source completely: definitions of structs,
// lists, alternatives, bounds and patterns, without computation.
func static(n ast.Node) bool {
	is := true
	ast.Walk(n, func(n ast.Node) bool {
		isPlain, descend := plainNode(n)
		is = is && isPlain
		return is && descend
	}, nil)
	return is
}

// plainNode reports whether shapes can express a node, and whether the nodes below it matter.
func plainNode(n ast.Node) (isPlain, descend bool) {
	switch n := n.(type) {
	case *ast.Field:
		if pattern, ok := n.Label.(*ast.ListLit); ok && slices.ContainsFunc(pattern.Elts, func(e ast.Expr) bool { return !static(e) }) {
			return false, false
		}
		return static(n.Value), false
	case *ast.Ident: // a type, or a named definition
		return n.Name[0] == '_' || n.Name[0] == '#' || slices.Contains([]string{"string", "int", "bool"}, n.Name), true
	case *ast.Comprehension, *ast.LetClause, *ast.CallExpr, *ast.SelectorExpr, *ast.IndexExpr, *ast.SliceExpr, *ast.Alias:
		return false, false
	case *ast.BinaryExpr:
		return n.Op == token.AND || n.Op == token.OR, true
	case *ast.Package:
		return true, false
	case *ast.UnaryExpr: // the shape of a list that has a default is loose
		_, isList := n.X.(*ast.ListLit)
		return true, !isList || n.Op != token.MUL
	case *ast.ListLit:
		return uniform(n), true
	}
	return true, true
}

// uniform reports whether a list has items of one sort: [...T] or, with at least one,
// [T, ...T].
func uniform(list *ast.ListLit) bool {
	n := len(list.Elts)
	if n == 0 || n > 2 {
		return false
	}
	rest, ok := list.Elts[n-1].(*ast.Ellipsis)
	if !ok || n == 1 {
		return ok
	}
	first, named := list.Elts[0].(*ast.Ident)
	others, alike := rest.Type.(*ast.Ident)
	return named && alike && first.Name == others.Name
}

// exact reports whether a shape expresses its value completely.
func (s *shape) exact() bool {
	switch {
	case s.loose:
		return false
	case len(s.either) > 0:
		return !slices.ContainsFunc(s.either, func(one *shape) bool { return !one.exact() })
	case s.kind == cue.StructKind:
		if s.element != nil && (len(s.fields) > 0 || !s.element.exact()) {
			return false
		}
		for _, f := range s.fields {
			if !f.shape.exact() {
				return false
			}
		}
		return true
	case s.kind == cue.ListKind:
		return s.element != nil && s.element.exact()
	}
	return s.kind == cue.StringKind || s.kind == cue.IntKind || s.kind == cue.BoolKind
}

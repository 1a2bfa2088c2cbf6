package load

import (
	"bytes"
	"encoding/json"
	"strconv"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"
)

// Most documents are valid, and CUE takes most of the time to confirm that. A definition
// that is plain enough is therefore checked first by its shape, which expresses it
// completely. CUE accepts all documents that the shape accepts, with the same defaults;
// CUE decides about all others. A test compares the two.

// static reports whether shapes can express a source completely: definitions of structs,
// lists, alternatives, bounds and patterns, without computation.
func static(n ast.Node) bool {
	is := true
	ast.Walk(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if pattern, ok := n.Label.(*ast.ListLit); ok {
				for _, e := range pattern.Elts {
					is = is && static(e)
				}
			}
			is = is && static(n.Value)
			return false
		case *ast.Ident: // a type, or a named definition
			is = is && (n.Name[0] == '_' || n.Name[0] == '#' || n.Name == "string" || n.Name == "int" || n.Name == "bool")
		case *ast.Comprehension, *ast.LetClause, *ast.CallExpr, *ast.SelectorExpr, *ast.IndexExpr, *ast.SliceExpr, *ast.Alias:
			is = false
		case *ast.BinaryExpr:
			is = is && (n.Op == token.AND || n.Op == token.OR)
		case *ast.Package:
			return false
		case *ast.UnaryExpr: // the shape of a list that has a default is loose
			if _, list := n.X.(*ast.ListLit); list && n.Op == token.MUL {
				return false
			}
		case *ast.ListLit:
			is = is && uniform(n)
		}
		return is
	}, nil)
	return is
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

// accept returns value with its defaults, if s, which is exact, surely allows it.
func (s *shape) accept(value any) (any, bool) {
	switch s.kind {
	case cue.StructKind:
		m, ok := value.(map[string]any)
		if !ok {
			return nil, false
		}
		return s.acceptFields(m)
	case cue.ListKind:
		list, ok := value.([]any)
		if !ok || s.nonEmpty && len(list) == 0 {
			return nil, false
		}
		out := make([]any, len(list))
		for i, v := range list {
			if out[i], ok = s.element.accept(v); !ok {
				return nil, false
			}
		}
		return out, true
	}
	return value, s.acceptScalar(value)
}

func (s *shape) acceptFields(m map[string]any) (map[string]any, bool) {
	out := make(map[string]any, len(m)+2)
	for name, v := range m {
		at := s.element
		if f := s.fields[name]; f != nil {
			at = f.shape
		} else if at != nil && !allow(s.keys, name) {
			return nil, false
		}
		switch {
		case at != nil:
			var ok bool
			if out[name], ok = at.accept(v); !ok {
				return nil, false
			}
		case s.open:
			out[name] = v
		default:
			return nil, false
		}
	}
	for name, f := range s.fields {
		if _, there := m[name]; there || f.optional {
			continue
		}
		v, ok := f.shape.absent()
		if f.required || !ok {
			return nil, false
		}
		out[name] = v
	}
	return out, true
}

// absent returns the value of an absent field.
func (s *shape) absent() (any, bool) {
	switch s.kind {
	case cue.StructKind:
		return s.acceptFields(nil)
	case cue.ListKind:
		return []any{}, !s.nonEmpty
	}
	text := s.fallback
	if text == "" && len(s.enum) == 1 {
		text = s.enum[0]
	}
	return json.RawMessage(text), text != ""
}

func (s *shape) acceptScalar(value any) bool {
	switch v := value.(type) {
	case string:
		if s.kind != cue.StringKind {
			return false
		}
		if s.enum != nil {
			return s.listed(strconv.Quote(v))
		}
		return allow(s.rules, v)
	case int64:
		if s.kind != cue.IntKind {
			return false
		}
		if s.enum != nil {
			return s.listed(strconv.FormatInt(v, 10))
		}
		for _, r := range s.rules {
			n := float64(v)
			switch {
			case r.op == cue.GreaterThanEqualOp && n >= r.num, r.op == cue.GreaterThanOp && n > r.num,
				r.op == cue.LessThanEqualOp && n <= r.num, r.op == cue.LessThanOp && n < r.num:
			default:
				return false
			}
		}
		return v > -1<<53 && v < 1<<53 // a larger float64 is not exact
	case bool:
		return s.kind == cue.BoolKind && (s.enum == nil || s.listed(strconv.FormatBool(v)))
	}
	return false
}

func (s *shape) listed(text string) bool {
	for _, e := range s.enum {
		if e == text {
			return true
		}
	}
	return false
}

// allow reports whether text satisfies all rules.
func allow(rules []rule, text string) bool {
	for _, r := range rules {
		switch {
		case r.op == cue.RegexMatchOp && r.form.MatchString(text), r.op == cue.NotRegexMatchOp && !r.form.MatchString(text):
		default:
			return false
		}
	}
	return true
}

// encode returns JSON as CUE writes it.
func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(value)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

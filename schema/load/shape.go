package load

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
)

// shape is the part of a definition that people need to correct a value. CUE decides;
// the shape only explains, because CUE's messages hide the cause ("4 errors in empty
// disjunction") and place a missing field in the schema. It is made once and holds no
// cue.Value.
type shape struct {
	mappingShape
	kind     cue.Kind
	element  *shape   // of a list, or of a mapping with free keys
	enum     []string // as JSON, in the definition's order
	either   []*shape // of a value that is a whole number or a text
	rules    []rule
	nonEmpty bool
	unique   string // field that must be unique among the items of a list
	single   string // field that is true for at most one item of a list
	fallback string // default of a scalar, as JSON
	loose    bool   // the value is stricter than the shape
	doc      string // the definition's comments
}

// mappingShape is the part of a shape that only a mapping has.
type mappingShape struct {
	fields map[string]*field
	keys   []rule   // rules for free keys
	open   bool     // it takes any key
	lacks  []string // names that people expect, in the spelling of the program behind, and that no field has yet
	most   int      // maximum number of entries; 0: no limit
}

type field struct {
	shape    *shape
	required bool
	optional bool
}

// rule is one bound or pattern.
type rule struct {
	op   cue.Op
	text string         // description of the requirement
	form *regexp.Regexp // for a pattern
	num  float64        // the bound
}

// shaper makes shapes. said explains patterns. err is the first invalid pattern: CUE
// would take it for one that matches nothing.
type shaper struct {
	empty cue.Value // an empty list
	said  map[string]string
	err   error
}

func (h *shaper) shape(v cue.Value) *shape {
	s := &shape{kind: v.IncompleteKind(), doc: comments(v)}
	h.alternatives(s, v)
	if len(choices(v)) > 1 && (s.kind == cue.StructKind || s.kind == cue.ListKind) {
		s.loose = true
	}
	switch s.kind {
	case cue.StructKind:
		h.fields(s, v)
		s.lacks = lackedNames(v)
		s.most, _ = strconv.Atoi(attribute(v, "most"))
	case cue.ListKind:
		for _, list := range choices(v) { // a default has items of its own only
			if e := list.LookupPath(cue.MakePath(cue.AnyIndex)); e.Exists() && s.element == nil {
				s.element = h.shape(e)
			}
		}
		s.unique, s.single = attribute(v, "unique"), attribute(v, "single")
		s.nonEmpty = v.Subsume(h.empty) != nil
	}
	return s
}

// lackedNames returns the arguments of the attribute @lacks of a mapping.
func lackedNames(v cue.Value) (names []string) {
	for _, a := range v.Eval().Attributes(cue.DeclAttr) {
		for i := range a.NumArgs() {
			if name, err := a.String(i); a.Name() == "lacks" && err == nil {
				names = append(names, name)
			}
		}
	}
	return names
}

// comments returns the comments of a field or definition, in one line.
func comments(v cue.Value) string {
	var words []string
	groups := v.Doc()
	if source := v.Source(); source != nil {
		groups = append(groups, ast.Comments(source)...)
	}
	for i, g := range groups {
		if text := g.Text(); !slices.ContainsFunc(groups[:i], func(o *ast.CommentGroup) bool { return o.Text() == text }) {
			words = append(words, strings.Fields(text)...)
		}
	}
	return strings.TrimPrefix(strings.Join(words, " "), "#")
}

// attribute returns the only argument of a field's attribute, as in @unique(name).
func attribute(v cue.Value, name string) string {
	a := v.Attribute(name)
	text, err := a.String(0)
	if err != nil {
		return ""
	}
	return text
}

func (h *shaper) fields(s *shape, v cue.Value) {
	s.fields = map[string]*field{}
	it, err := v.Fields(cue.Optional(true), cue.Patterns(true))
	if err != nil {
		s.open = true
		return
	}
	for it.Next() {
		sel := it.Selector()
		if sel.ConstraintType() == cue.PatternConstraint {
			s.loose = s.loose || s.element != nil
			s.element = h.shape(it.Value())
			keys, known := h.leaves(sel.Pattern())
			s.keys = append(s.keys, keys...)
			s.loose = s.loose || !known
			continue
		}
		of := h.shape(it.Value())
		of.nameRules(comments(it.Value()))
		s.fields[sel.Unquoted()] = &field{shape: of, required: sel.ConstraintType() == cue.RequiredConstraint,
			optional: sel.ConstraintType() == cue.OptionalConstraint}
	}
	s.open = v.Allows(cue.AnyString) && s.element == nil
}

// unnamed begins the text of a pattern that the definitions do not explain.
const unnamed = "text that matches "

// nameRules explains patterns without a text by the comment of their field.
func (s *shape) nameRules(comment string) {
	for i := range s.rules {
		if r := &s.rules[i]; comment != "" && strings.HasPrefix(r.text, unnamed) {
			r.text = comment
		}
	}
}

// alternatives collects the allowed values of a scalar.
func (h *shaper) alternatives(s *shape, v cue.Value) {
	s.fallback = fallback(v)
	if s.kind == cue.StructKind || s.kind == cue.ListKind {
		return
	}
	if s.kind == cue.IntKind|cue.StringKind {
		for _, alt := range flatten(cue.OrOp, v) {
			one := &shape{kind: alt.IncompleteKind()}
			h.alternatives(one, alt)
			s.either = append(s.either, one)
		}
		return
	}
	var ranges []cue.Value
	for _, alt := range flatten(cue.OrOp, v) {
		if !alt.IsConcrete() {
			ranges = append(ranges, alt)
		} else if b, err := alt.MarshalJSON(); err == nil && !slices.Contains(s.enum, string(b)) {
			s.enum = append(s.enum, string(b))
		}
	}
	if len(ranges) > 0 { // a default beside a range is not a list of alternatives, and the shape makes one of several ranges
		isOther := func(e string) bool { return e != s.fallback }
		s.loose = len(ranges) > 1 || slices.ContainsFunc(s.enum, isOther)
		s.enum = nil
	}
	for _, alt := range ranges {
		rules, known := h.leaves(alt)
		s.loose = s.loose || !known
		s.addRules(rules)
	}
}

// addRules adds rules, each once.
func (s *shape) addRules(rules []rule) {
	for _, r := range rules {
		if !slices.ContainsFunc(s.rules, func(o rule) bool { return o.op == r.op && o.num == r.num && o.text == r.text }) {
			s.rules = append(s.rules, r)
		}
	}
}

// leaves returns the rules of a value, and whether they and its type express it
// completely.
func (h *shaper) leaves(v cue.Value) (rules []rule, known bool) {
	known = true
	for _, c := range flatten(cue.AndOp, v) {
		op, args := c.Expr()
		if len(args) != 1 {
			known = false
			continue
		}
		switch op {
		case cue.GreaterThanEqualOp, cue.GreaterThanOp, cue.LessThanEqualOp, cue.LessThanOp, cue.NotEqualOp:
			if !args[0].IncompleteKind().IsAnyOf(cue.NumberKind) {
				known = false
				continue
			}
			num, _ := args[0].Float64()
			rules = append(rules, rule{op: op, num: num})
		case cue.RegexMatchOp, cue.NotRegexMatchOp:
			pattern, _ := args[0].String()
			rules = append(rules, h.pattern(op, pattern))
		default:
			known = known && op == cue.NoOp
		}
	}
	return rules, known
}

// pattern returns the rule that a text matches a pattern, or does not, by op.
func (h *shaper) pattern(op cue.Op, pattern string) rule {
	form, err := regexp.Compile(pattern)
	if err != nil && h.err == nil {
		h.err = err
	}
	r := rule{op: op, form: form, text: h.said[pattern]}
	switch {
	case r.text != "":
	case op == cue.NotRegexMatchOp:
		r.text = "text that does not match " + pattern
	default:
		r.text = unnamed + pattern
	}
	return r
}

// fallback returns the default of a value as JSON, or "".
func fallback(v cue.Value) string {
	d, ok := v.Default()
	if !ok || len(choices(v)) == 1 && v.IsConcrete() {
		return ""
	}
	if b, err := d.MarshalJSON(); err == nil {
		return string(b)
	}
	return ""
}

// choices lists the alternatives of a value.
func choices(v cue.Value) []cue.Value {
	if op, args := v.Expr(); op == cue.OrOp {
		return args
	}
	return []cue.Value{v}
}

// flatten lists the operands of nested op, references resolved.
func flatten(op cue.Op, v cue.Value) []cue.Value {
	v = v.Eval()
	got, args := v.Expr()
	if got == cue.NoOp && len(args) == 1 { // remainder of a default that is among the alternatives
		if inner, _ := args[0].Expr(); inner != cue.NoOp {
			return flatten(op, args[0])
		}
	}
	if got != op {
		return []cue.Value{v}
	}
	var vs []cue.Value
	for _, a := range args {
		vs = append(vs, flatten(op, a)...)
	}
	return vs
}

// wants describes the valid values.
func (s *shape) wants() string {
	if len(s.enum) == 1 {
		return s.enum[0]
	}
	if len(s.enum) > 1 {
		return "one of " + strings.Join(s.enum, ", ")
	}
	if len(s.either) > 0 {
		var each []string
		for _, one := range s.either {
			each = append(each, one.wants())
		}
		return strings.Join(each, ", or ")
	}
	switch s.kind {
	case cue.StructKind:
		return "a mapping" + s.fieldNames()
	case cue.ListKind:
		if s.nonEmpty {
			return "a list of at least one item"
		}
		return "a list"
	case cue.BoolKind:
		return "true or false"
	case cue.IntKind, cue.NumberKind, cue.FloatKind:
		word := "a number"
		if s.kind == cue.IntKind {
			word = "a whole number"
		}
		return word + s.bounds()
	case cue.StringKind:
		for _, r := range s.rules {
			if r.op == cue.RegexMatchOp {
				return "text: " + r.text
			}
		}
		return "text"
	}
	return "a value of type " + s.kind.String()
}

// fieldNames lists the fields of a mapping: the required ones, then the others up to a few.
func (s *shape) fieldNames() string {
	var required, others []string
	for _, name := range sortedNames(s.fields) {
		if s.fields[name].required {
			required = append(required, name)
		} else {
			others = append(others, name)
		}
	}
	const few = 12
	names := append(required, others...)
	switch {
	case len(names) == 0:
		return ""
	case len(names) > few:
		names = append(names[:few], "…")
	}
	return " with " + strings.Join(names, ", ")
}

func (s *shape) bounds() string {
	var low, high string
	var except []string
	for _, r := range s.rules {
		n := strconv.FormatFloat(r.num, 'f', -1, 64)
		switch r.op {
		case cue.GreaterThanEqualOp:
			low = n
		case cue.GreaterThanOp:
			low = "more than " + n
		case cue.LessThanEqualOp:
			high = n
		case cue.LessThanOp:
			high = "less than " + n
		case cue.NotEqualOp:
			except = append(except, n)
		}
	}
	switch {
	case low != "" && high != "" && len(except) > 0:
		return fmt.Sprintf(" from %s to %s except %s", low, high, strings.Join(except, " and "))
	case low != "" && high != "":
		return fmt.Sprintf(" from %s to %s", low, high)
	case low != "":
		return " of at least " + low
	case high != "":
		return " of at most " + high
	}
	return ""
}

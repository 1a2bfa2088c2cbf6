package load

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/errors"
)

// problem is a finding without its position yet.
type problem struct {
	path    string
	code    string
	message string
	atKey   bool   // shown at the field's key, not its value
	meant   string // the path that was probably intended, or ""
}

// explain turns CUE's errors about value into one problem per cause.
func (s *shape) explain(errs []errors.Error, value any) []problem {
	causes := map[string]problem{}
	for _, e := range errs {
		path, at, sh, present := s.walk(e.Path(), value)
		if _, ok := causes[path]; ok {
			continue
		}
		format, _ := e.Msg()
		switch {
		case !present || format == "field not allowed": // added below, because CUE reports neither beside other errors
		case sh == nil:
			causes[path] = problem{path: path, code: "schema.value", message: plain(e)}
		default:
			causes[path] = sh.mismatch(path, at, e)
		}
	}
	problems := s.complete(causes, value)
	if len(problems) == 0 && len(errs) > 0 {
		path, _, _, _ := s.walk(errs[0].Path(), value)
		return []problem{{path: path, code: "schema.value", message: plain(errs[0])}}
	}
	return problems
}

// complete adds unknown and missing fields, which CUE does not report beside other
// errors.
func (s *shape) complete(causes map[string]problem, value any) []problem {
	meant := map[string]bool{} // misspelt fields that explain missing ones
	for _, path := range s.strange(value, "") {
		if _, ok := causes[path]; !ok {
			p := s.unknown(path, value)
			causes[path], meant[p.meant] = p, true
		}
	}
	for _, m := range s.missing(value, "") {
		if _, ok := causes[m.path]; !ok && !meant[m.path] {
			causes[m.path] = m
		}
	}
	var problems []problem
	for _, path := range slices.Sorted(maps.Keys(causes)) {
		problems = append(problems, causes[path])
	}
	return problems
}

func plain(e errors.Error) string {
	format, args := e.Msg()
	return fmt.Sprintf(format, args...)
}

// walk follows a CUE path through value and shape. present is false if the
// value has no such field.
func (s *shape) walk(cuePath []string, value any) (path string, at any, sh *shape, present bool) {
	sh, at, present = s, value, true
	for _, step := range cuePath {
		if strings.HasPrefix(step, "#") && path == "" {
			continue // the definition's own name
		}
		if unquoted, err := strconv.Unquote(step); err == nil {
			step = unquoted
		}
		switch v := at.(type) {
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v) {
				return path, at, sh, present
			}
			path, at = Item(path, i), v[i]
			if sh != nil {
				sh = sh.element
			}
		case map[string]any:
			path = child(path, step)
			at, present = v[step], hasKey(v, step)
			if sh != nil {
				sh = sh.child(step)
			}
			if !present {
				return path, nil, sh, false
			}
		default:
			return path, at, sh, present
		}
	}
	return path, at, sh, present
}

func hasKey[V any](m map[string]V, k string) bool { _, ok := m[k]; return ok }

func (s *shape) child(name string) *shape {
	if f, ok := s.fields[name]; ok {
		return f.shape
	}
	return s.element
}

// unknown returns the problem of a field that is not in the definition.
func (s *shape) unknown(path string, value any) problem {
	p := problem{path: path, code: "schema.unknown-field", message: "no such field", atKey: true}
	up, last := lastStep(path)
	name := last.key
	sh, at := s.descend(up, value)
	if sh == nil {
		return p
	}
	if len(sh.keys) > 0 {
		var wants []string
		for _, r := range sh.keys {
			wants = append(wants, r.text)
		}
		p.code, p.message = "schema.pattern", fmt.Sprintf("the key %s is not allowed, want %s", short(name), strings.Join(wants, "; "))
		return p
	}
	names := slices.Sorted(maps.Keys(sh.fields))
	if guess := Nearest(name, names); guess != "" {
		if hasKey(at, guess) {
			p.message = fmt.Sprintf("no such field: %q is there already", guess)
		} else {
			p.message, p.meant = fmt.Sprintf("no such field: did you mean %q?", guess), child(up, guess)
		}
		return p
	}
	if elsewhere := s.place(name, "", 0); elsewhere != "" && elsewhere != path {
		p.message = fmt.Sprintf("no such field here: it belongs to %s; check the indentation", elsewhere)
	} else if len(names) > 0 {
		p.message = "no such field: there are " + strings.Join(names, ", ")
	}
	return p
}

// place returns the first path at which the definition has a field of that name, or "".
// In it, <name> is a free key, and [] an item of a list.
func (s *shape) place(name, path string, depth int) string {
	const deepest = 6 // of any definition
	if depth > deepest {
		return ""
	}
	if _, ok := s.fields[name]; ok {
		return child(path, name)
	}
	for _, field := range sortedNames(s.fields) {
		if found := s.fields[field].shape.place(name, child(path, field), depth+1); found != "" {
			return found
		}
	}
	if s.element == nil {
		return ""
	}
	if s.kind == cue.ListKind {
		return s.element.place(name, path+"[]", depth+1)
	}
	return s.element.place(name, child(path, "<name>"), depth+1)
}

// descend returns the shape and the mapping at one of our own paths.
func (s *shape) descend(path string, value any) (*shape, map[string]any) {
	sh := s
	for path != "" && sh != nil {
		var next step
		next, path = cutStep(path)
		switch at := value.(type) {
		case []any:
			if next.key != "" || next.index >= len(at) {
				return nil, nil
			}
			value, sh = at[next.index], sh.element
		case map[string]any:
			value, sh = at[next.key], sh.child(next.key)
		default:
			return nil, nil
		}
	}
	m, _ := value.(map[string]any)
	return sh, m
}

// mismatch returns the problem of a value that does not match its shape.
func (s *shape) mismatch(path string, got any, cause errors.Error) problem {
	p := problem{path: path, code: "schema.value"}
	kind := kindOf(got)
	want := s.wants()
	if text, ok := got.(string); ok && template.MatchString(text) {
		p.code, p.message = "schema.pattern", fmt.Sprintf("got %s, want %s: %s", describe(got), want, noTemplates)
		if !sameKind(s.kind, kind) {
			p.code = "schema.type"
		}
		return p
	}
	switch {
	case !sameKind(s.kind, kind):
		p.code = "schema.type"
		p.message = fmt.Sprintf("got %s, want %s", describe(got), want)
		switch {
		case s.kind == cue.StructKind && kind == cue.ListKind:
			p.message += ": write key: value lines without dashes"
		case s.kind == cue.ListKind && kind == cue.StructKind:
			p.message += ": begin each item with a dash"
		case s.kind == cue.ListKind:
			p.message += ": put brackets around it, as in [a, b]"
		}
		if s.kind == cue.StringKind && kind&(cue.NumberKind|cue.BoolKind) != 0 {
			p.message += ": put it in quotes"
		}
		if text, ok := got.(string); ok && (s.kind&cue.NumberKind != 0 && plainFloat.MatchString(text+".0") || s.kind == cue.BoolKind && (text == "true" || text == "false")) {
			p.message += ": remove the quotes"
		}
		return p
	case len(s.enum) > 0:
		p.code = "schema.enum"
		if text, ok := got.(string); ok {
			if guess := Nearest(text, unquoteAll(s.enum)); guess != "" && len(s.enum) > 1 {
				p.message = fmt.Sprintf("got %s, want %s: did you mean %q?", describe(got), want, guess)
				return p
			}
		}
	case kind&cue.NumberKind != 0:
		p.code = "schema.range"
	case kind == cue.StringKind:
		p.code = "schema.pattern"
		for _, r := range s.rules {
			if r.op == cue.NotRegexMatchOp && refusedBy(cause, cue.NotRegexMatchOp) {
				want = r.text
			}
		}
	case kind == cue.ListKind && s.nonEmpty:
		p.code = "schema.length"
		p.message = "is empty, want " + want
		return p
	default:
		p.message = plain(cause)
		return p
	}
	p.message = fmt.Sprintf("got %s, want %s", describe(got), want)
	return p
}

// refusedBy reports whether the bound in an error has this operator.
func refusedBy(e errors.Error, op cue.Op) bool {
	_, args := e.Msg()
	return len(args) > 1 && strings.HasPrefix(fmt.Sprint(args[1]), op.String())
}

func unquoteAll(quoted []string) []string {
	var out []string
	for _, j := range quoted {
		var s string
		if json.Unmarshal([]byte(j), &s) == nil {
			out = append(out, s)
		}
	}
	return out
}

func kindOf(v any) cue.Kind {
	switch v.(type) {
	case string:
		return cue.StringKind
	case bool:
		return cue.BoolKind
	case int64:
		return cue.IntKind
	case float64:
		return cue.FloatKind
	case []any:
		return cue.ListKind
	}
	return cue.StructKind
}

func sameKind(want, got cue.Kind) bool { return want&got != 0 }

func describe(v any) string {
	switch v := v.(type) {
	case string:
		return short(v)
	case []any:
		return "a list"
	case map[string]any:
		return "a mapping"
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e15 {
			return strconv.FormatFloat(v, 'f', 1, 64) // 4.0 is not an integer
		}
	}
	return fmt.Sprint(v)
}

// wrong returns the values of a wrong type, and those outside their list of allowed
// values, by path.
func (s *shape) wrong(value any, path string) map[string]problem {
	found := map[string]problem{}
	s.collect(value, path, found)
	return found
}

func (s *shape) collect(value any, path string, found map[string]problem) {
	switch v := value.(type) {
	case map[string]any:
		if s.kind&cue.StructKind != 0 {
			for name, inner := range v {
				if sh := s.child(name); sh != nil {
					sh.collect(inner, child(path, name), found)
				}
			}
			return
		}
	case []any:
		if s.kind&cue.ListKind != 0 {
			for i, inner := range v {
				if s.element != nil {
					s.element.collect(inner, Item(path, i), found)
				}
			}
			return
		}
	default:
		if sameKind(s.kind, kindOf(value)) {
			if len(s.enum) == 0 {
				return
			}
			if text, err := json.Marshal(v); err != nil || slices.Contains(s.enum, string(text)) {
				return
			}
		}
	}
	found[path] = s.mismatch(path, value, nil)
}

// strange returns the fields of value that are not in the definition. It skips a value
// of a wrong type, which is one mistake and one finding.
func (s *shape) strange(value any, path string) (found []string) {
	if !sameKind(s.kind, kindOf(value)) {
		return nil
	}
	switch v := value.(type) {
	case map[string]any:
		for _, name := range sortedNames(v) {
			inner := s.child(name)
			switch _, named := s.fields[name]; {
			case !named && s.element == nil && !s.open, !named && s.element != nil && !s.allows(name):
				found = append(found, child(path, name))
			case inner != nil:
				found = append(found, inner.strange(v[name], child(path, name))...)
			}
		}
	case []any:
		if s.element != nil {
			for i, inner := range v {
				found = append(found, s.element.strange(inner, Item(path, i))...)
			}
		}
	}
	return found
}

// allows reports whether a free key may have that name.
func (s *shape) allows(name string) bool {
	return !slices.ContainsFunc(s.keys, func(r rule) bool {
		return r.form != nil && r.form.MatchString(name) == (r.op == cue.NotRegexMatchOp)
	})
}

// missing returns the required fields that value lacks.
func (s *shape) missing(value any, path string) []problem {
	var found []problem
	if !sameKind(s.kind, kindOf(value)) {
		return nil
	}
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(s.fields)) {
			f := s.fields[name]
			inner, ok := v[name]
			switch {
			case ok:
				found = append(found, f.shape.missing(inner, child(path, name))...)
			case f.required:
				found = append(found, problem{path: child(path, name), code: "schema.missing-field", message: "is missing, want " + f.shape.wants()})
			}
		}
		if s.element != nil {
			for _, name := range slices.Sorted(maps.Keys(v)) {
				if _, named := s.fields[name]; !named {
					found = append(found, s.element.missing(v[name], child(path, name))...)
				}
			}
		}
	case []any:
		if s.element != nil {
			for i, inner := range v {
				found = append(found, s.element.missing(inner, Item(path, i))...)
			}
		}
	}
	return found
}

// lists checks the rules about all items of a list, @unique(field) and @single(field),
// and about the size of a mapping, @most(n). CUE can express them too, but its messages
// cannot become a finding.
func (s *shape) lists(value any, path string) (ps []problem) {
	switch v := value.(type) {
	case map[string]any:
		if s.most > 0 && len(v) > s.most {
			ps = append(ps, problem{path: path, code: "schema.length", message: fmt.Sprintf("has %d entries, want at most %d", len(v), s.most)})
		}
		for _, name := range sortedNames(v) {
			if inner := s.child(name); inner != nil {
				ps = append(ps, inner.lists(v[name], child(path, name))...)
			}
		}
	case []any:
		first, one := map[string]int{}, -1
		for i, it := range v {
			if s.element != nil {
				ps = append(ps, s.element.lists(it, Item(path, i))...)
			}
			m, _ := it.(map[string]any)
			if id, ok := m[s.unique].(string); ok {
				if k, taken := first[id]; taken {
					ps = append(ps, problem{path: child(Item(path, i), s.unique), code: "schema.rule", message: fmt.Sprintf("%s is what %s has already", describe(id), Item(path, k))})
				} else {
					first[id] = i
				}
			}
			if m[s.single] == true {
				if one >= 0 {
					ps = append(ps, problem{path: child(Item(path, i), s.single), code: "schema.rule", message: fmt.Sprintf("only one can be, and %s is", Item(path, one))})
				} else {
					one = i
				}
			}
		}
	}
	return ps
}

// Nearest returns the name closest to got, or "" if none is close: equal except for case
// and dashes, or at most a third of it mistyped.
func Nearest(got string, names []string) string {
	plain := strings.NewReplacer("-", "", "_", "", ".", "")
	fold := func(s string) string { return plain.Replace(strings.ToLower(s)) }
	best, least, folded := "", max(1, len(got)/3)+1, fold(got)
	for _, n := range names {
		if d := distance(folded, fold(n)); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance counts edits: insert, delete, replace, swap neighbours.
func distance(a, b string) int {
	const most = 64
	for a != "" && b != "" && a[0] == b[0] { // cheap for long common prefixes
		a, b = a[1:], b[1:]
	}
	if len(a) > most || len(b) > most {
		return most
	}
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}

// sortedNames lists a map's keys.
func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

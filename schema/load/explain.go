package load

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
)

// problem is a finding without its position yet.
type problem struct {
	path    string
	code    string
	message string
	atKey   bool // shown at the field's key, not its value
}

// mismatch explains a value of a wrong type, outside the allowed values, or against a
// rule; broken is that rule, or nil.
func (s *shape) mismatch(path string, got any, broken *rule) problem {
	code, want := s.mismatchCode(got), s.wants()
	if broken != nil && broken.op == cue.NotRegexMatchOp {
		want = broken.text
	}
	text, isText := got.(string)
	shown := describe(got)
	step := path[strings.LastIndexByte(path, '.')+1:]
	if step == "credential" || step == "secret" {
		shown = "something that may be a secret" // everybody reads findings
	}
	message := fmt.Sprintf("got %s, want %s", shown, want)
	switch {
	case code == "schema.length":
		message = "is empty, want " + want
	case isText && template.MatchString(text):
		message += ": " + noTemplates
		if code != "schema.type" {
			code = "schema.pattern"
		}
	case code == "schema.type":
		message += s.typeHint(got)
	case code == "schema.pattern" && isText:
		message += s.patternHint(path, text)
	case code == "schema.enum" && isText && len(s.enum) > 1:
		message += DidYouMean(text, unquoteAll(s.enum))
	}
	return problem{path: path, code: code, message: message}
}

// patternHint says how to write a text that matches; "" if that is not obvious.
func (s *shape) patternHint(path, text string) string {
	isItem := strings.HasSuffix(path, "]")
	switch {
	case isItem && strings.Contains(text, " - "):
		return ": a dash that is indented deeper continues the text of the line above it: align the dashes"
	case isItem && s.permitsWords(text):
		return ": separate the items by commas in brackets, or give each a dash"
	case path == "metadata.name" || path == "spec.version" || path == "estate":
		return s.nameHint(text)
	}
	return ""
}

func (s *shape) mismatchCode(got any) string {
	switch kind := kindOf(got); {
	case s.kind&kind == 0:
		return "schema.type"
	case len(s.enum) > 0:
		return "schema.enum"
	case kind == cue.ListKind:
		return "schema.length"
	case kind == cue.StringKind:
		return "schema.pattern"
	}
	return "schema.range"
}

// typeHint says how to write a value of the right type; "" if that is not obvious.
func (s *shape) typeHint(got any) string {
	switch kind := kindOf(got); {
	case s.kind == cue.StructKind && kind == cue.ListKind && s.onlyList() != "":
		return fmt.Sprintf(": the line %s: is missing above the list", s.onlyList())
	case s.kind == cue.StructKind && kind == cue.ListKind:
		return ": write key: value lines without dashes"
	case s.kind == cue.ListKind && kind == cue.StructKind:
		return ": begin each item with a dash"
	case s.kind == cue.ListKind:
		return ": begin each item with a dash, or put the items in brackets, as in [a, b]"
	case s.kind == cue.StringKind && kind&(cue.NumberKind|cue.BoolKind) != 0:
		return s.quotesHint(fmt.Sprint(got))
	}
	if text, ok := got.(string); ok &&
		(s.kind&cue.NumberKind != 0 && plainFloat.MatchString(text+".0") || s.kind == cue.BoolKind && (text == "true" || text == "false")) {
		return ": remove the quotes"
	}
	return ""
}

// quotesHint says how to write a number or a boolean as a text; "" if it may not be one.
func (s *shape) quotesHint(shown string) string {
	if _, ok := s.permits(shown); ok {
		return ": put it in quotes"
	}
	if strings.Contains(shown, ".") && plainName.MatchString(notInName.ReplaceAllString(shown, "-")) && !s.takesDots() {
		return ": write a dash for the dot" // the digits behind it may have lost a zero
	}
	return ""
}

// onlyList returns the only required field of a mapping, if it is a list; otherwise "".
func (s *shape) onlyList() string {
	only := ""
	for name, f := range s.fields {
		if f.required {
			if only != "" || f.shape.kind != cue.ListKind {
				return ""
			}
			only = name
		}
	}
	return only
}

// nameHint suggests a name with dashes instead of dots, blanks and underscores, such as 22-05 for 22.05; "" if that is not a
// valid name.
func (s *shape) nameHint(text string) string {
	name := strings.ToLower(notInName.ReplaceAllString(text, "-"))
	if _, isName := s.permits(name); !isName || s.takesDots() || !plainName.MatchString(name) {
		return ""
	}
	return ", such as " + name
}

func (s *shape) takesDots() bool {
	_, ok := s.permits("a.b")
	return ok
}

// permitsWords reports whether a text is of several words which are values each: items of a list that lost their dashes.
func (s *shape) permitsWords(text string) bool {
	words := strings.Fields(text)
	for _, word := range words {
		if _, ok := s.permits(word); !ok {
			return false
		}
	}
	return len(words) > 1
}

var (
	notInName = regexp.MustCompile(`[._ ]+`)
	plainName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
)

// unknown returns the problem of a field of the mapping m at a path that s does not
// have, and the path that was probably intended, or "". root is the whole definition.
func (s *shape) unknown(root *shape, m map[string]any, path, name string) (p problem, meant string) {
	p = problem{path: child(path, name), code: "schema.unknown-field", message: "no such field", atKey: true}
	if len(s.keys) > 0 {
		var wants []string
		for _, r := range s.keys {
			wants = append(wants, r.text)
		}
		p.code, p.message = "schema.pattern", fmt.Sprintf("the key %s is not allowed, want %s", short(name), strings.Join(wants, "; "))
		return p, ""
	}
	names := sortedNames(s.fields)
	isLacked := func(lacked string) bool { return strings.EqualFold(strings.ReplaceAll(name, "_", ""), lacked) }
	if i := slices.IndexFunc(s.lacks, isLacked); i >= 0 {
		p.message += fmt.Sprintf(": Berth does not set %s yet; there are %s", s.lacks[i], strings.Join(names, ", "))
		return p, ""
	}
	if guess := Nearest(name, names); guess != "" && sameWords(name, guess) {
		if hasKey(m, guess) {
			p.message += fmt.Sprintf(": %q is there already", guess)
			return p, ""
		}
		p.message += fmt.Sprintf(": did you mean %q?", guess)
		return p, child(path, guess)
	}
	elsewhere := root.place(name, kindOf(m[name]), "", 0)
	if s == root { // a field below this mapping may take another value
		elsewhere = root.place(name, cue.TopKind, "", 0)
	}
	switch there := "there are " + strings.Join(names, ", "); {
	case elsewhere != "" && elsewhere != p.path && !strings.Contains(elsewhere, "."):
		p.message += fmt.Sprintf(" here: %s is at the top of the document, beside spec", elsewhere)
	case elsewhere != "" && elsewhere != p.path:
		p.message += fmt.Sprintf(" here: a field of that name is %s; here %s", elsewhere, there)
	case len(names) > 0:
		p.message += ": " + there
		if free := root.freeBeside(path, name, kindOf(m[name])); free != "" {
			p.message += fmt.Sprintf("; or the line %s: is missing above it", free)
		}
	}
	return p, ""
}

// freeBeside returns the field beside the mapping at a path that has free keys and accepts this name and kind of value, or "".
func (s *shape) freeBeside(path, name string, kind cue.Kind) string {
	steps := strings.Split(path, ".")
	for _, step := range steps[:len(steps)-1] {
		f, ok := s.fields[step]
		if !ok {
			return ""
		}
		s = f.shape
	}
	for _, field := range sortedNames(s.fields) {
		beside := s.fields[field].shape
		if field != steps[len(steps)-1] && beside.kind == cue.StructKind && beside.element != nil && beside.element.kind&kind != 0 &&
			beside.allows(name) {
			return field
		}
	}
	return ""
}

// place returns the first path at which the definition has a field of that name that takes a value
// of a kind, or "". In it, <name> is a free key, and [] an item of a list.
func (s *shape) place(name string, kind cue.Kind, path string, depth int) string {
	const deepest = 6 // of any definition
	if depth > deepest {
		return ""
	}
	if f, ok := s.fields[name]; ok && f.shape.kind&kind != 0 {
		return child(path, name)
	}
	for _, field := range sortedNames(s.fields) {
		if found := s.fields[field].shape.place(name, kind, child(path, field), depth+1); found != "" {
			return found
		}
	}
	if s.element == nil {
		return ""
	}
	if s.kind == cue.ListKind {
		return s.element.place(name, kind, path+"[]", depth+1)
	}
	return s.element.place(name, kind, child(path, "<name>"), depth+1)
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

// DidYouMean suggests a name close to got, for the end of a message; "" if none is.
func DidYouMean(got string, names []string) string {
	if guess := Nearest(got, names); guess != "" {
		return fmt.Sprintf(": did you mean %q?", guess)
	}
	return ""
}

// Nearest returns the name closest to got, or "" if none is close: equal except for case
// and dashes, or at most a third of it mistyped.
func Nearest(got string, names []string) string {
	plain := strings.NewReplacer("-", "", "_", "", ".", "")
	fold := func(s string) string { return plain.Replace(strings.ToLower(s)) }
	best, least, folded := "", max(1, len(got)/3)+1, fold(got)
	for _, n := range names {
		if d := distance(folded, fold(n)); d < least && !negates(folded, fold(n)) {
			best, least = n, d
		}
	}
	return best
}

// negates reports whether one of two words is the other with a prefix that turns it into its opposite.
func negates(a, b string) bool {
	return slices.ContainsFunc([]string{"in", "un", "no", "not", "dis", "de"},
		func(prefix string) bool { return a == prefix+b || b == prefix+a })
}

// sameWords reports whether a name has the words of another one, each about a third mistyped at
// most, or run together. So max_nodes is not taken for nodes, which means something else.
func sameWords(got, name string) bool {
	isBetween := func(r rune) bool { return r == '_' || r == '-' }
	words, of := strings.FieldsFunc(strings.ToLower(got), isBetween), strings.FieldsFunc(name, isBetween)
	return slices.EqualFunc(words, of, func(x, y string) bool { return distance(x, y) <= (len(x)+2)/3 }) ||
		distance(strings.Join(words, ""), strings.Join(of, "")) <= 1
}

// distance counts edits: insert, delete, replace, swap neighbours.
func distance(a, b string) int {
	const most = 128
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

func hasKey[V any](m map[string]V, k string) bool { _, ok := m[k]; return ok }

// brokenRule returns the problem of a document that contradicts itself.
func brokenRule(path, format string, args ...any) problem {
	return problem{path: path, code: "schema.rule", message: fmt.Sprintf(format, args...)}
}

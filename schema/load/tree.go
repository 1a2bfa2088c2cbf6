package load

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"berth/schema"
)

// The limits of a file. A larger one is refused before it is parsed:
// evaluation costs the square of a document's size and cannot be interrupted.
const (
	MaxBytes = 64 << 10
	maxDepth = 32
	maxNodes = 8_000
	maxKey   = 128 // bytes of a key
	maxPath  = 256 // bytes of a field's path: each field carries its own
)

// tree is a document after the first half of the checks: plain values that all readers
// understand equally, with their positions.
type tree struct {
	value map[string]any // of map[string]any, []any, string, int64, float64, bool
	at    map[string]spot
}

// spot is the position of a field: of its key (or, in a list, the item) and of its
// value.
type spot struct {
	key, value pos
	collection bool
}

type pos struct{ line, column int }

// of returns the displayed position of the field at path: a scalar at its value, a
// collection at its key. A missing path has the position of its nearest ancestor.
func (t *tree) of(path string) pos {
	for {
		if s, ok := t.at[path]; ok {
			if s.collection {
				return s.key
			}
			return s.value
		}
		if path == "" {
			return pos{1, 1}
		}
		path = Parent(path)
	}
}

func (t *tree) keyOf(path string) pos {
	if s, ok := t.at[path]; ok {
		return s.key
	}
	return t.of(path)
}

// readTree is the first half of the checks: it turns bytes into a tree, or findings.
func readTree(file string, data []byte, more bool) (*tree, []schema.Diagnostic) {
	if d := checkText(file, data, more); d != nil {
		return nil, []schema.Diagnostic{*d}
	}
	root, d := parseYAML(file, data)
	if d != nil {
		return nil, []schema.Diagnostic{*d}
	}
	r := treeReader{file: file, tree: &tree{at: map[string]spot{}}, once: map[string]bool{}, marks: marks(data)}
	if root.Kind != yaml.MappingNode {
		r.fail(root, "", "yaml.not-a-mapping", "a document is a mapping of apiVersion, kind, metadata and spec")
		return nil, r.findings
	}
	if !r.enter(root, "", 1) {
		return nil, r.findings
	}
	r.place("", root, root)
	value := r.mapping(root, "", 1)
	if len(r.findings) > 0 {
		return nil, told(r.findings, r.found)
	}
	r.tree.value = value
	return r.tree, nil
}

type treeReader struct {
	file     string
	tree     *tree
	nodes    int
	findings []schema.Diagnostic // the first maxFindings of found
	found    int
	once     map[string]bool
	marks    map[pos]bool // positions of exclamation marks
}

// marks returns the positions of exclamation marks. A node that starts with one has a
// tag, even if the tag is the mark alone. The parser reads "! 4" as a number and drops
// the mark; other readers read text.
func marks(data []byte) map[pos]bool {
	if bytes.IndexByte(data, '!') < 0 {
		return nil
	}
	m, at := map[pos]bool{}, pos{1, 1}
	for _, c := range string(data) {
		switch c {
		case '\n':
			at = pos{at.line + 1, 0}
		case '!':
			m[at] = true
		}
		at.column++
	}
	return m
}

func (r *treeReader) fail(n *yaml.Node, path, code, format string, args ...any) {
	if r.found++; r.found > MaxFindings {
		return
	}
	d := fault(r.file, position(n), code, "%s%s", subject(path), fmt.Sprintf(format, args...))
	d.Path = path
	r.findings = append(r.findings, *d)
}

// failOnce reports only the first problem of a kind: one cause, one finding.
func (r *treeReader) failOnce(n *yaml.Node, path, code, format string, args ...any) {
	if !r.once[code] {
		r.once[code] = true
		r.fail(n, path, code, format, args...)
	}
}

func subject(path string) string {
	if path == "" {
		return ""
	}
	return path + ": "
}

// enter counts a node and refuses anchors, aliases, tags and excess.
func (r *treeReader) enter(n *yaml.Node, path string, depth int) bool {
	r.nodes++
	switch {
	case depth > maxDepth:
		r.failOnce(n, "", "yaml.depth", "nested deeper than %d levels", maxDepth)
	case r.nodes > maxNodes:
		r.failOnce(n, "", "yaml.nodes", "more than %d values in one document", maxNodes)
	case n.Kind == yaml.AliasNode:
		r.failOnce(n, "", "yaml.alias", "aliases and anchors are not read: write the value out")
	case n.Anchor != "":
		r.failOnce(n, "", "yaml.alias", "aliases and anchors are not read: write the value out")
	case n.Style&yaml.TaggedStyle != 0:
		r.fail(n, path, "yaml.tag", "the tag %s is not read: write the plain value", short(n.Tag))
	case r.marks[position(n)]:
		r.fail(n, path, "yaml.tag", `the tag "!" is not read: write the plain value`)
	default:
		return true
	}
	return false
}

func (r *treeReader) node(n *yaml.Node, path string, depth int) any {
	if !r.enter(n, path, depth) {
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		return r.mapping(n, path, depth)
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for i, c := range n.Content {
			p := Item(path, i)
			r.place(p, c, c)
			list = append(list, r.node(c, p, depth+1))
		}
		return list
	default:
		return r.scalar(n, path)
	}
}

func (r *treeReader) place(path string, key, value *yaml.Node) {
	r.tree.at[path] = spot{key: position(key), value: position(value), collection: value.Kind != yaml.ScalarNode}
}

func position(n *yaml.Node) pos { return pos{n.Line, n.Column} }

func (r *treeReader) mapping(n *yaml.Node, path string, depth int) map[string]any {
	m := make(map[string]any, len(n.Content)/2)
	lines := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if !r.enter(k, path, depth) || !r.isKey(n, k, path) || !r.text(k, path) || !r.key(k, path) {
			continue
		}
		p := child(path, k.Value)
		if len(p) > maxPath {
			r.failOnce(k, path, "yaml.depth", "the keys above this one are more than %d bytes long together: use shorter ones", maxPath)
			continue
		}
		if line, ok := lines[k.Value]; ok && path == "" && k.Value == "apiVersion" {
			r.fail(k, p, "yaml.second-document",
				"a second document starts here, as line %d has apiVersion already: a file holds one, put it into a file of its own", line)
			return m
		} else if ok {
			r.fail(k, p, "yaml.duplicate-key", "already defined at line %d: keep one, or restore the missing key or dash above this line",
				line)
			continue
		}
		lines[k.Value] = k.Line
		r.place(p, k, v)
		m[k.Value] = r.node(v, p, depth+1)
	}
	return m
}

// isKey refuses a key of the mapping n that is not a plain word.
func (r *treeReader) isKey(n, k *yaml.Node, path string) bool {
	switch {
	case k.Kind == yaml.MappingNode && k.Style&yaml.FlowStyle != 0 && k.Line == n.Line && k.Column == n.Column+1:
		r.fail(n, path, "yaml.key", noTemplates)
	case k.Kind != yaml.ScalarNode:
		r.fail(k, path, "yaml.key", "a key is a plain word, not a list or mapping")
	case k.Tag == "!!merge":
		r.fail(k, path, "yaml.merge", "merge keys (<<) are not read: write the fields out")
	case k.Tag == "!!null" || k.Value == "":
		r.fail(k, path, "yaml.key", "a key is missing in front of the colon")
	case k.Tag != "!!str" && k.Tag != "!!timestamp":
		r.fail(k, path, "yaml.key", "the key %s reads as %s: quote it", short(k.Value), tagName(k.Tag))
	default:
		return true
	}
	return false
}

// key refuses keys that make a field's path long or ambiguous.
func (r *treeReader) key(k *yaml.Node, path string) bool {
	switch {
	case len(k.Value) > maxKey:
		r.fail(k, path, "yaml.key", "the key %s is longer than %d bytes", short(k.Value), maxKey)
	case !harmless(k.Value) && secretive.MatchString(k.Value): // every reader of a finding sees the path
		r.fail(k, path, "yaml.key", "a key is something that looks like a secret: remove it, and have the secret changed")
	case strings.TrimFunc(k.Value, isUnusualBlank) != k.Value:
		r.fail(k, path, "yaml.key", "the key %s begins or ends with a character that only looks like a space: write spaces",
			short(strings.TrimFunc(k.Value, isUnusualBlank)))
	case strings.ContainsAny(k.Value, "[]"):
		r.fail(k, path, "yaml.key", "the key %s holds a bracket: no field is called so", short(k.Value))
	default:
		return true
	}
	return false
}

// text refuses characters that no string may contain, including escaped ones, and a string of
// unusual blanks alone.
func (r *treeReader) text(n *yaml.Node, path string) bool {
	if unsafe := schema.UnsafeText(n.Value, true); unsafe != "" {
		r.fail(n, path, "file.control", "holds %s", unsafe)
		return false
	}
	if utf8.RuneCountInString(n.Value) < len(n.Value) && strings.TrimSpace(n.Value) == "" {
		r.fail(n, path, "file.control", "shows nothing: it has only blank characters")
		return false
	}
	return true
}

var (
	plainInt   = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)
	plainFloat = regexp.MustCompile(`^-?(0|[1-9][0-9]*)\.[0-9]+$`)
)

// scalar returns the value of a plain node, or nil after a finding.
func (r *treeReader) scalar(n *yaml.Node, path string) any {
	switch n.Tag {
	case "!!str", "!!timestamp": // a date is text: JSON has none
		return r.words(n, path)
	case "!!null":
		r.fail(n, path, "yaml.null", "%s", nullHint(path))
		return nil
	case "!!bool":
		if is, ok := map[string]bool{"true": true, "false": false}[n.Value]; ok {
			return is
		}
		r.fail(n, path, "yaml.scalar", "write true or false in lower case, or quote %s", short(n.Value))
		return nil
	case "!!int":
		if i, err := strconv.ParseInt(n.Value, 10, 64); err == nil && plainInt.MatchString(n.Value) {
			return i
		}
		r.fail(n, path, "yaml.scalar", "%s is not read the same everywhere: write a plain decimal number within 64 bits, or quote it",
			short(n.Value))
		return nil
	case "!!float":
		if f, err := strconv.ParseFloat(n.Value, 64); err == nil && plainFloat.MatchString(n.Value) && !math.IsInf(f, 0) {
			return f
		}
		r.fail(n, path, "yaml.scalar", "%s is not read the same everywhere: write a plain decimal number, or quote it", short(n.Value))
		return nil
	}
	r.fail(n, path, "yaml.tag", "the tag %s is not read: write the plain value", short(n.Tag))
	return nil
}

// words returns the value of a text, or nil after a finding.
func (r *treeReader) words(n *yaml.Node, path string) any {
	if !r.text(n, path) {
		return nil
	}
	if n.Style == 0 && (plainInt.MatchString(n.Value) || plainFloat.MatchString(n.Value)) {
		r.fail(n, path, "yaml.scalar", "%s is too large a number to be read the same everywhere: quote it", short(n.Value))
		return nil
	}
	return n.Value
}

// nullHint says what to write for a field without a value.
func nullHint(path string) string {
	switch {
	case path == "metadata.spec" || path == "spec.metadata":
		return path[strings.LastIndexByte(path, '.')+1:] + " belongs at the start of a line: remove the spaces before it"
	case path == "metadata":
		return "has no value: write name: NAME, the name of the file, below it, indented"
	case path == "spec":
		return "has no value: write its fields below it, indented"
	case strings.Contains(path, "]."):
		return "has no value: write one; or indent the lines below, if they belong to it, and remove the dash, if it is their name"
	}
	return "has no value: write one; or indent the lines below, if they belong to it; or remove the line, if the field is optional"
}

func tagName(tag string) string {
	switch tag {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a boolean"
	}
	return strings.TrimPrefix(tag, "!!")
}

// short quotes s for a message, shortened so that a finding never reveals a file's
// content.
func short(s string) string {
	if secretive.MatchString(s) {
		return "something that looks like a secret"
	}
	const most = 40
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return strconv.Quote(s)
}

// secretive matches text that findings must not repeat: keys, tokens of known form, and
// URLs with a password or a token.
var secretive = regexp.MustCompile(`-----BEGIN|PRIVATE KEY|://[^/@]*:[^/@]*@|[?&](access_)?(token|key|secret|password|signature)=|` +
	`AGE-SECRET-KEY-|gh[opsur]_[A-Za-z0-9]{16}|github_pat_|glpat-|xox[a-z]-|` +
	`A[KS]IA[A-Z0-9]{16}|eyJ[-_A-Za-z0-9]{8,}\.|sk-[-_A-Za-z0-9]{20}`)

// harmless reports that secretive surely does not match. It is fast for keys, which are
// checked most.
func harmless(key string) bool {
	for i := range len(key) {
		if c := key[i]; c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return !strings.Contains(key, "gh") && !strings.Contains(key, "github_pat_")
}

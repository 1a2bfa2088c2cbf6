package estate_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema/load"
)

// schemaOf returns the exported schema of every kind, as a tree.
func schemaOf(t *testing.T) map[string]any {
	data, err := load.JSONSchema(testBackends(t), "", nil)
	require.NoError(t, err)
	var root map[string]any
	require.NoError(t, json.Unmarshal(data, &root))
	return root
}

// properties visits the properties of a schema, except those that it uses only for
// selection.
func properties(at string, node any, visit func(path string, of map[string]any)) {
	switch node := node.(type) {
	case []any:
		for i, n := range node {
			properties(fmt.Sprintf("%s[%d]", at, i), n, visit)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(node)) {
			fields, ok := node[name].(map[string]any)
			switch {
			case name == "if":
			case name == "properties" && ok:
				for _, field := range slices.Sorted(maps.Keys(fields)) {
					property := fields[field].(map[string]any)
					visit(at+"."+field, property)
					properties(at+"."+field, property, visit)
				}
			default:
				properties(at+"/"+name, node[name], visit)
			}
		}
	}
}

// An editor shows a description of each field.
func TestEveryPropertyIsDescribed(t *testing.T) {
	all := 0
	var silent []string
	properties("", schemaOf(t)["definitions"], func(path string, of map[string]any) {
		if strings.HasSuffix(path, "/then.manifest") || strings.HasSuffix(path, "/then.manifest.parameters") {
			return // a choice between properties described elsewhere
		}
		all++
		if text, _ := of["description"].(string); strings.TrimSpace(text) == "" {
			silent = append(silent, path)
		}
	})
	require.Greater(t, all, 350)
	require.Empty(t, silent)
}

// patterns returns all patterns of a schema.
func patterns(node any) (all []string) {
	switch node := node.(type) {
	case []any:
		for _, n := range node {
			all = append(all, patterns(n)...)
		}
	case map[string]any:
		for name, n := range node {
			if text, ok := n.(string); ok && name == "pattern" {
				all = append(all, text)
			}
			all = append(all, patterns(n)...)
		}
	}
	return all
}

// foreign returns the part of a pattern that Go accepts and ECMA-262 rejects, with the
// flag u of validators; "" without one.
func foreign(pattern string) string {
	const syntax = `^$\.*+?()[]{}|/` // characters that may be escaped
	class := false
	for i := 0; i < len(pattern); i++ {
		rest := pattern[i:]
		switch c := pattern[i]; {
		case c == '\\':
			i++
			if i == len(pattern) || !strings.ContainsRune(syntax+"dDwWsSbBfnrtv", rune(pattern[i])) && !(class && pattern[i] == '-') {
				return rest[:min(2, len(rest))]
			}
		case class && strings.HasPrefix(rest, "[:"):
			return "[:"
		case class:
			class = c != ']'
		case c == '[':
			if strings.HasPrefix(rest, "[]") || strings.HasPrefix(rest, "[^]") {
				return "[]" // empty in ECMA-262, a bracket in Go
			}
			class = true
		case c == ']':
			return "]"
		case strings.HasPrefix(rest, "(?") && !strings.HasPrefix(rest, "(?:"):
			return "(?"
		case c == '{':
			bounds := quantifier.FindString(rest)
			if bounds == "" {
				return "{"
			}
			i += len(bounds) - 1
			if i+1 < len(pattern) && pattern[i+1] == '+' {
				return "}+"
			}
		case c == '}':
			return "}"
		case (c == '*' || c == '+' || c == '?') && len(rest) > 1 && (rest[1] == '+' || rest[1] == '*'):
			return rest[:2]
		}
	}
	return ""
}

var quantifier = regexp.MustCompile(`^\{[0-9]+(,[0-9]*)?\}`)

// Editors compile the patterns with an ECMAScript engine. One invalid pattern
// makes an editor refuse the whole schema.
func TestExportedPatternsWorkInECMAScript(t *testing.T) {
	all := patterns(schemaOf(t))
	require.Greater(t, len(all), 150)
	slices.Sort(all)
	for _, pattern := range slices.Compact(all) {
		require.Empty(t, foreign(pattern), pattern)
	}
	for pattern, want := range map[string]string{
		`(?s)^a`: "(?", `(?i:a)`: "(?", `(?P<n>a)`: "(?", `a\z`: `\z`, `\Aa`: `\A`, `[[:alpha:]]`: "[:", `a++`: "++", `a*+`: "*+",
		`a{2}+`: "}+",
		`\pL`:   `\p`, `\Qa`: `\Q`, `a\-b`: `\-`, `a{`: "{", `a}`: "}", `a]`: "]", `[]a]`: "[]", `\x{41}`: `\x`,
		`^(?:a|[-^.$\]\-]{2,}?)\.\{\}$`: "",
	} {
		require.Equal(t, want, foreign(pattern), pattern)
	}
}

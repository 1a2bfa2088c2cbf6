package load

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"

	"cuelang.org/go/cue/parser"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/examples/large"
	"berth/schema"
)

// asked is an input of a judge: a value and its definition.
type asked struct {
	def   string
	value map[string]any
}

func askedOf(t testing.TB) (all []asked) {
	t.Helper()
	for _, files := range []map[string]string{labFiles(t), filesOf(t, "../../examples/campus"), large.Estate(300)} {
		for _, path := range sortedNames(files) {
			key, finding, ignore := Locate(path)
			if finding != nil || ignore {
				continue
			}
			tree, findings := readTree(path, []byte(files[path]), false)
			require.Empty(t, findings, path)
			all = append(all, asked{string(key.Kind), tree.value})
			if c, ok := tree.value["spec"].(map[string]any)["config"].(map[string]any); ok {
				all = append(all, asked{configDef("slurm"), c})
			}
			if m, ok := tree.value["spec"].(map[string]any)["manifest"].(map[string]any); ok {
				if p, ok := m["parameters"].(map[string]any); ok {
					all = append(all, asked{parametersDef("slurm"), p})
				}
			}
		}
	}
	return all
}

func testJudge(t testing.TB) *judge {
	t.Helper()
	source, err := os.ReadFile("../../runtimes/slurm/cluster/config.cue")
	require.NoError(t, err)
	j, err := newJudge(map[string]string{"slurm": string(source)})
	require.NoError(t, err)
	return j
}

// agree checks that CUE accepts a value exactly if the shape accepts it, as the same
// document. It reports whether the shape accepted it.
func agree(t require.TestingT, j *judge, def string, value any) bool {
	d := j.defs[def]
	if !d.plain {
		return false
	}
	got, problems, rules := d.shape.check(value)
	slow, refused := j.ask(d, value, nil, rules)
	if len(problems) > 0 {
		require.NotEmpty(t, refused, "%s: CUE permits what the shape refuses: %v", def, problems)
		return false
	}
	if len(rules) > 0 {
		require.Equal(t, rules, refused)
		return true // refused by both
	}
	fast, err := encode(got)
	require.NoError(t, err)
	require.Empty(t, refused, "%s: CUE refuses %s", def, fast)
	require.JSONEq(t, string(slow), string(fast), def)
	return true
}

// Shapes accept every document of the examples, and CUE agrees. So the definitions
// stay plain, and the fast validation is correct.
func TestExamplesNeedNoCUE(t *testing.T) {
	j := testJudge(t)
	for _, def := range sortedNames(j.defs) {
		if def != parametersDef("slurm") { // its default contains a list, and there are few
			require.True(t, j.defs[def].plain, def)
		}
	}
	for _, a := range askedOf(t) {
		require.Equal(t, j.defs[a.def].plain, agree(t, j, a.def, a.value), "%s %v", a.def, a.value)
	}
}

// For any mutation of a document, the shape accepts exactly the documents that CUE
// accepts, with the same defaults.
func TestShapeAgreesWithCUE(t *testing.T) {
	j, all := testJudge(t), askedOf(t)
	var pool []any // values from documents
	var names []string
	var gather func(v any)
	gather = func(v any) {
		pool = append(pool, v)
		switch v := v.(type) {
		case map[string]any:
			for _, k := range sortedNames(v) {
				names = append(names, k)
				gather(v[k])
			}
		case []any:
			for _, e := range v {
				gather(e)
			}
		}
	}
	for _, a := range all {
		gather(a.value)
	}
	pool = append(pool, "", " ", "-", "x\n", int64(-1), int64(0), int64(1)<<40, int64(1)<<53+1, 1.0, 1.5, true, []any{}, map[string]any{},
		strings.Repeat("a", 41), "root", "..")
	accepted := 0
	rapid.Check(t, func(rt *rapid.T) {
		a := rapid.SampledFrom(all).Draw(rt, "document")
		def := a.def
		if rapid.IntRange(0, 9).Draw(rt, "another") == 0 {
			def = rapid.SampledFrom(sortedNames(j.defs)).Draw(rt, "definition")
		}
		var mutate func(v any) any
		mutate = func(v any) any {
			m, isMap := v.(map[string]any)
			list, isList := v.([]any)
			switch how := rapid.IntRange(0, 5).Draw(rt, "how"); {
			case how == 0:
				return rapid.SampledFrom(pool).Draw(rt, "value")
			case isMap && how == 1:
				m = maps.Clone(m)
				m[rapid.SampledFrom(names).Draw(rt, "name")] = rapid.SampledFrom(pool).Draw(rt, "value")
				return m
			case isMap && len(m) > 0:
				m = maps.Clone(m)
				k := rapid.SampledFrom(sortedNames(m)).Draw(rt, "key")
				if how == 2 {
					delete(m, k)
				} else {
					m[k] = mutate(m[k])
				}
				return m
			case isList && len(list) > 0:
				i := rapid.IntRange(0, len(list)-1).Draw(rt, "index")
				list = slices.Clone(list)
				list[i] = mutate(list[i])
				return list
			}
			return v
		}
		for range 20 {
			value := any(a.value)
			for range rapid.IntRange(1, 3).Draw(rt, "mutations") {
				value = mutate(value)
			}
			if agree(rt, j, def, value) {
				accepted++
			}
		}
	})
	require.Greater(t, accepted, 100)
}

// CUE decides about definitions that compute, choose between structures, or have
// rules about a whole list.
func TestComputedDefinitionsAreNotPlain(t *testing.T) {
	for name, tc := range map[string]struct {
		source string
		want   bool
	}{
		"scalars":           {`#Config: {a!: int & >=1, b?: *"x" | "y", c: *5 | int & >=0, d: bool | *false}`, true},
		"any":               {`#Config: {...}`, true},
		"a comprehension":   {`#Config: {a: *1 | int, if a > 1 {b: int}}`, false},
		"a computation":     {`#Config: {a: *1 | int, b: a + 1}`, false},
		"a reference":       {`#Config: {a: *1 | int, b: a}`, false},
		"two structures":    {`#Config: {a: {b: int} | {c: int}}`, false},
		"two patterns":      {`#Config: {a?: =~"^a" | =~"b$"}`, false},
		"a default beside":  {`#Config: {a: *1 | 2 | (int & >=10)}`, false},
		"but one number":    {`#Config: {a?: int & >=1 & <=5 & !=3}`, true},
		"not equal":         {`#Config: {a?: string & !="b"}`, false},
		"a call":            {`#Config: {a?: string, b: len(a)}`, false},
		"two kinds":         {`#Config: {a?: int | bool}`, false},
		"number or text":    {`#Config: {a?: (int & >=1) | =~"^[1-9]%$"}`, true},
		"two kinds of keys": {`#Config: {[=~"^a"]: int, [=~"b$"]: string}`, false},
		"a tuple":           {`#Config: {a?: [int, string]}`, false},
		"at least one":      {`#Config: {a?: [#B, ...#B]}, #B: {b!: int}`, true},
		"a list by default": {`#Config: {a: *["x"] | [...string]}`, false},
		"a number":          {`#Config: {a?: number}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			j, err := newJudge(map[string]string{"x": tc.source + "\n#Parameters: {...}"})
			require.NoError(t, err)
			require.Equal(t, tc.want, j.defs[configDef("x")].plain)
		})
	}
}

func TestStaticFiles(t *testing.T) {
	f, err := parser.ParseFile("x.cue", `a: [for x in [1] {x}]`)
	require.NoError(t, err)
	require.False(t, static(f))
}

// The fast check before the pattern of secrets misses no secret.
func TestHarmlessKeysAreNoSecrets(t *testing.T) {
	parts := []string{"gh", "ghp_", "github_pat_", "glpat-", "xoxb-", "eyJ", "sk-", "akia", "private key", "token", "_", "a", "0", "A",
		"-----begin", "://u:p@", strings.Repeat("x", 16)}
	rapid.Check(t, func(rt *rapid.T) {
		key := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 1, 4).Draw(rt, "parts"), "")
		if harmless(key) {
			require.False(rt, secretive.MatchString(key), key)
		}
	})
	require.True(t, harmless("display_name"))
	require.False(t, harmless("github_pat_x"))
	for c := range rune(0x80) {
		require.Equal(t, unicode.In(c, unicode.Cc), schema.UnsafeRune(c))
	}
}

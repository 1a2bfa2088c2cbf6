package load

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/schema"
)

func labFiles(t testing.TB) map[string]string {
	t.Helper()
	return filesOf(t, "../../examples/lab")
}

func filesOf(t testing.TB, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		rel, _ := filepath.Rel(root, name)
		files[filepath.ToSlash(rel)] = string(data)
		return err
	}))
	return files
}

func labBackends(t testing.TB) map[string]string {
	t.Helper()
	slurm, err := os.ReadFile("../../runtimes/slurm/cluster/config.cue")
	require.NoError(t, err)
	return map[string]string{"slurm": string(slurm)}
}

// The definitions and the Go types have the same fields. A field without a
// definition could never be written, and one without a Go field would be lost.
func TestDefinitionsMatchTheTypes(t *testing.T) {
	j, err := newJudge(nil)
	require.NoError(t, err)
	for _, kind := range kinds() {
		spec, err := decode(schema.Kind(kind), []byte(`{"spec":{}}`), &schema.Header{})
		require.NoError(t, err)
		s := j.defs[kind].shape.fields["spec"]
		require.NotNil(t, s, kind)
		compareShape(t, kind+".spec", s.shape, reflect.TypeOf(spec).Elem().Field(1).Type)
	}
}

func compareShape(t *testing.T, path string, s *shape, typ reflect.Type) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ == reflect.TypeFor[json.RawMessage]() {
		require.True(t, s.open, path)
		return
	}
	if len(s.either) > 0 {
		require.True(t, reflect.PointerTo(typ).Implements(reflect.TypeFor[json.Unmarshaler]()), path)
		for _, one := range s.either {
			require.True(t, len(one.rules) > 0, "%s: each alternative is bound", path)
		}
		return
	}
	switch typ.Kind() {
	case reflect.Slice:
		compareShape(t, path+"[]", s.element, typ.Elem())
	case reflect.Map:
		require.NotNil(t, s.element, path)
		require.NotEmpty(t, s.keys, "%s: keys are bound", path)
		compareShape(t, path+"{}", s.element, typ.Elem())
	case reflect.Struct:
		fields := map[string]reflect.Type{}
		collect(typ, fields)
		require.Equal(t, sortedNames(fields), sortedNames(s.fields), path)
		require.False(t, s.open, path)
		for name, f := range s.fields {
			compareShape(t, path+"."+name, f.shape, fields[name])
		}
	case reflect.String:
		require.Equal(t, "string", s.kind.String(), path)
		require.True(t, len(s.enum) > 0 || len(s.rules) > 0, "%s: text is bound", path)
	case reflect.Int:
		require.Equal(t, "int", s.kind.String(), path)
		require.Contains(t, s.bounds(), " to ", "%s: numbers are bound", path)
	case reflect.Bool:
		require.Equal(t, "bool", s.kind.String(), path)
	default:
		t.Fatalf("%s: %s", path, typ)
	}
}

func collect(typ reflect.Type, into map[string]reflect.Type) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Anonymous {
			collect(f.Type, into)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		into[name] = f.Type
	}
}

// A definition with a syntax error, a bad pattern or an import is an error of
// NewReader, with its name.
func TestInvalidBackendDefinitionIsRefused(t *testing.T) {
	for source, want := range map[string]string{
		"#Config: {":     "backend x",
		"#Config: {...}": "no definition #Parameters",
		`#Config: {a?: =~"("}` + "\n#Parameters: {...}":     "error parsing regexp",
		"import \"list\"\n#Config: {}\n#Parameters: {...}":  "definitions import nothing",
		"#Config: {a: string & int}\n#Parameters: {...}":    "conflicting values",
		"#Says: {a: 1}\n#Config: {...}\n#Parameters: {...}": "#Says",
	} {
		_, err := NewReader(map[string]string{"x": source}, nil, nil)
		require.ErrorContains(t, err, want, source)
	}
}

// Validation retains no memory: BuildFile would retain 18 KiB for each document.
func TestValidationDoesNotLeak(t *testing.T) {
	j, err := newJudge(nil)
	require.NoError(t, err)
	files := labFiles(t)
	value := func(path string) map[string]any {
		tree, findings := readTree(path, []byte(files[path]), false)
		require.Empty(t, findings)
		return tree.value
	}
	good := value("tenants/physics/projects/lattice/instances/train.yaml")
	bad := value("tenants/physics/projects/lattice/instances/train.yaml")
	bad["spec"].(map[string]any)["desired_state"] = "on"
	round := func(n int) {
		for range n {
			_, problems := j.judge("Instance", good)
			require.Empty(t, problems)
			_, problems = j.judge("Instance", bad)
			require.Len(t, problems, 1)
		}
	}
	round(200)
	before := heap()
	const n = 2000
	round(n)
	grown := heap() - before
	t.Logf("%d documents: heap grew by %d KiB, %d bytes each", 2*n, grown>>10, grown/(2*n))
	require.Less(t, grown, int64(2*n*512))
	runtime.KeepAlive(j)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"count", "cuont", 1}, {"count", "counts", 1}, {"abc", "xyz", 3}} {
		require.Equal(t, tc.want, distance(tc.a, tc.b), tc)
	}
	require.Equal(t, "display_name", Nearest("displayname", []string{"app", "display_name"}))
	require.Empty(t, Nearest("quux", []string{"app", "display_name"}))
	for name, want := range map[string]bool{"dispaly_name": true, "displayName": true, "display-nam": true, "max_nodes": false} {
		require.Equal(t, want, sameWords(name, map[bool]string{true: "display_name", false: "nodes"}[want]), name)
	}
	require.False(t, sameWords("allow_groups", "allow_qos"), "another access rule")
}

// FuzzRead: no bytes make the reader panic, and what it accepts it accepts
// again as canonical JSON, which is YAML too.
func FuzzRead(f *testing.F) {
	for _, content := range labFiles(f) {
		f.Add([]byte(content))
	}
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, findings := readTree("f.yaml", data, false)
		if tree == nil {
			require.NotEmpty(t, findings)
			return
		}
		out, err := json.Marshal(tree.value)
		require.NoError(t, err)
		again, findings := readTree("f.yaml", out, false)
		require.NotNil(t, again, "%s\n%v", out, findings)
		second, err := json.Marshal(again.value)
		require.NoError(t, err)
		require.Equal(t, string(out), string(second))
	})
}

// Paths of different fields differ, and split into the steps they were joined
// from, for any field names.
func TestFieldPathsAreUnambiguous(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(label string) (path string, steps []step) {
			for range rapid.IntRange(1, 4).Draw(rt, label) {
				if path != "" && rapid.Bool().Draw(rt, "index") {
					i := rapid.IntRange(0, 20).Draw(rt, "i")
					path, steps = Item(path, i), append(steps, step{index: i})
					continue
				}
				key := rapid.StringMatching(`[a.\\"0 ]{1,3}`).Draw(rt, "key")
				path, steps = child(path, key), append(steps, step{key: key})
			}
			return path, steps
		}
		path, steps := draw("steps")
		other, others := draw("others")
		require.Equal(rt, slices.Equal(steps, others), path == other, "%s %s", path, other)
		up, last := lastStep(path)
		require.Equal(rt, steps[len(steps)-1], last, path)
		require.Equal(rt, up, Parent(path))
		var got []step
		for rest := path; rest != ""; {
			var next step
			next, rest = cutStep(rest)
			got = append(got, next)
		}
		require.Equal(rt, steps, got, path)
		if len(steps) > 1 {
			_, last = lastStep(up)
			require.Equal(rt, steps[len(steps)-2], last, path)
		}
	})
}

// A panic of the reader on a misplaced file has no further effect.
func TestMisplacedFileSurvivesPanic(t *testing.T) {
	doc := &Document{} // it has no finding to extend
	require.Same(t, doc, misplaced(doc, []byte("kind: Instance\n"), false))
}

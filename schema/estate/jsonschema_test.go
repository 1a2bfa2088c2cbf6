package estate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"berth/schema"
	"berth/schema/estate"
	"berth/schema/load"
)

// exported has the schemas for editors, compiled by an independent validator: one for
// each kind, and under "" the one for all. A test binary compiles them once, those of a kind
// from the schema of all: TestExportedSchemaOfAKind.
func exported(t testing.TB) map[schema.Kind]*jsonschema.Schema {
	t.Helper()
	exportedOnce.Do(func() {
		data, err := load.JSONSchema(testBackends(t), "", nil)
		require.NoError(t, err)
		all := map[schema.Kind]*jsonschema.Schema{"": compiled(t, data)}
		for kind, data := range definitionsOf(t, data) {
			all[kind] = compiled(t, data)
		}
		exportedSchemas = all
	})
	require.NotNil(t, exportedSchemas)
	return exportedSchemas
}

var (
	exportedOnce    sync.Once
	exportedSchemas map[schema.Kind]*jsonschema.Schema
)

// definitionsOf returns the definition of each kind in the schema of all.
func definitionsOf(t testing.TB, data []byte) map[schema.Kind]json.RawMessage {
	t.Helper()
	var all struct {
		Definitions map[schema.Kind]json.RawMessage `json:"definitions"`
	}
	require.NoError(t, json.Unmarshal(data, &all))
	require.ElementsMatch(t, kindsOf(t), slices.Collect(maps.Keys(all.Definitions)))
	return all.Definitions
}

// The schema of a kind is its definition in the schema of all. The same call has the same
// result.
func TestExportedSchemaOfAKind(t *testing.T) {
	backends := testBackends(t)
	_, err := load.JSONSchema(backends, "Nothing", nil)
	require.ErrorContains(t, err, "there is no kind Nothing, there is App, AppAdmission, AppVersion")
	all, err := load.JSONSchema(backends, "", nil)
	require.NoError(t, err)
	again, err := load.JSONSchema(backends, "", nil)
	require.NoError(t, err)
	require.Equal(t, string(all), string(again))
	for _, kind := range []schema.Kind{schema.KindInstance, schema.KindAppVersion, schema.KindTenant} {
		data, err := load.JSONSchema(backends, kind, nil)
		require.NoError(t, err)
		var one map[string]any
		require.NoError(t, json.Unmarshal(data, &one))
		require.Equal(t, string(kind), one["title"])
		require.Equal(t, "http://json-schema.org/draft-07/schema#", one["$schema"])
		delete(one, "title")
		delete(one, "$schema")
		definition, err := json.Marshal(one)
		require.NoError(t, err)
		require.JSONEq(t, string(definitionsOf(t, all)[kind]), string(definition))
	}
}

func compiled(t testing.TB, data []byte) *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft7)
	const name = "https://berth.example/estate.json" // a relative one is resolved in the directory, whose name may have spaces
	require.NoError(t, c.AddResource(name, doc))
	s, err := c.Compile(name)
	require.NoError(t, err)
	return s
}

// kindsOf lists the kinds in the schema of all of them.
func kindsOf(t testing.TB) []schema.Kind {
	data, err := load.JSONSchema(nil, "", nil)
	require.NoError(t, err)
	var all struct {
		Properties struct {
			Kind struct {
				Enum []schema.Kind `json:"enum"`
			} `json:"kind"`
		} `json:"properties"`
	}
	require.NoError(t, json.Unmarshal(data, &all))
	require.Len(t, all.Properties.Kind.Enum, 22)
	return all.Properties.Kind.Enum
}

// instance of a document for the validator.
func plain(t require.TestingT, content string) any {
	var value any
	require.NoError(t, yaml.Unmarshal([]byte(content), &value))
	data, err := json.Marshal(value)
	require.NoError(t, err)
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	require.NoError(t, err)
	return v
}

func TestExamplesPassTheExportedSchema(t *testing.T) {
	schemas := exported(t)
	l := newLoader(t)
	seen := map[schema.Kind]bool{schema.KindPause: true} // no example is paused
	for _, root := range []string{"../../examples/lab", "../../examples/campus", "../../cmd/berth/estate"} {
		files := estateFiles(t, root)
		r, err := l.Load(context.Background(), estate.Files(files))
		require.NoError(t, err)
		require.NotZero(t, r.Len())
		for path, key := range r.Documents() {
			seen[key.Kind] = true
			for _, kind := range []schema.Kind{key.Kind, ""} {
				require.NoError(t, schemas[kind].Validate(plain(t, files[path])), path)
			}
			for kind, s := range schemas {
				if kind != "" && kind != key.Kind {
					require.Error(t, s.Validate(plain(t, files[path])), "%s is no %s", path, kind)
				}
			}
		}
	}
	require.Len(t, seen, 22)
}

// structural returns the result of a document's findings as far as a schema can know:
// bad, good, or not comparable.
func structural(findings []schema.Diagnostic) (bad, comparable bool) {
	shape := []string{"schema.unknown-field", "schema.missing-field", "schema.type", "schema.enum", "schema.range", "schema.pattern",
		"schema.length", "schema.api-version"}
	// Fields that another field's value makes necessary.
	conditional := []string{"spec.host", "spec.directory", "spec.instance", "spec.member", "spec.labels"}
	for _, d := range findings {
		kind, _, _ := strings.Cut(d.Code, ".")
		switch {
		case kind == "yaml" || kind == "file" || d.Code == "file.more" || d.Code == "schema.kind" || strings.HasPrefix(d.Code, "path.") &&
			d.Code != "path.name-mismatch":
			return false, false
		case d.Code == "schema.missing-field" && slices.Contains(conditional, d.Path):
			return false, false
		case strings.HasPrefix(d.Path, "spec.config."): // the version of the config is another document
		case slices.Contains(shape, d.Code):
			bad = true
		}
	}
	return bad, true
}

func of(file string, ds []schema.Diagnostic) (own []schema.Diagnostic) {
	for _, d := range ds {
		if d.File == file {
			own = append(own, d)
		}
	}
	return own
}

// The exported schema refuses exactly the golden documents with a wrong field.
func TestExportedSchemaRefusesGoldenErrors(t *testing.T) {
	schemas := exported(t)
	l := newLoader(t)
	refused, accepted, done := map[schema.Kind]int{}, 0, map[string]bool{}
	for pattern, base := range map[string]func(testing.TB) map[string]string{"testdata/*.txtar": lab, "testdata/campus/*.txtar": campus} {
		archives, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range archives {
			archive, err := txtar.ParseFile(name)
			require.NoError(t, err)
			for c, files := range goldenCases(t, archive, base) {
				r, err := l.Load(context.Background(), estate.Files(files))
				require.NoError(t, err)
				for path, key := range r.Documents() {
					bad, ok := structural(of(path, r.Diagnostics))
					if !ok || done[path+"\n"+files[path]] {
						continue
					}
					done[path+"\n"+files[path]] = true
					for _, kind := range []schema.Kind{key.Kind, ""} {
						err := schemas[kind].Validate(plain(t, files[path]))
						require.Equal(t, bad, err != nil, "%s %s: %s: %v\n%v", name, c, path, err, of(path, r.Diagnostics))
					}
					if bad {
						refused[key.Kind]++
					} else {
						accepted++
					}
				}
			}
		}
	}
	t.Logf("%d accepted, refused by kind: %v", accepted, refused)
	require.GreaterOrEqual(t, len(refused), 19, "of nearly every kind something is refused: %v", refused)
}

// Schema and reader agree on the structure of any mutated document.
func TestExportedSchemaAgreesWithReader(t *testing.T) { exportedSchemaAgreesWithReader(t) }

func exportedSchemaAgreesWithReader(t *testing.T) {
	schemas := exported(t)
	l := newLoader(t)
	files := campus(t)
	files["platform/pause.yaml"] = "apiVersion: berth/v1\nkind: Pause\nmetadata: {name: pause}\nspec: {reason: x}\n"
	r, err := l.Load(context.Background(), estate.Files(files))
	require.NoError(t, err)
	paths := sorted(maps.Collect(r.Documents()))
	refused, all := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		path := rapid.SampledFrom(paths).Draw(rt, "path")
		var value map[string]any
		require.NoError(rt, yaml.Unmarshal([]byte(files[path]), &value))
		for range rapid.IntRange(1, 2).Draw(rt, "changes") {
			mutate(rt, value)
		}
		value["kind"] = string(r.Key(path).Kind)
		content, err := yaml.Marshal(value)
		require.NoError(rt, err)
		got, err := l.Load(context.Background(), estate.Files(map[string]string{path: string(content)}))
		require.NoError(rt, err)
		bad, ok := structural(of(path, got.Diagnostics))
		if !ok {
			return
		}
		all++
		if bad {
			refused++
		}
		for _, kind := range []schema.Kind{r.Key(path).Kind, ""} {
			err := schemas[kind].Validate(plain(rt, string(content)))
			require.Equal(rt, bad, err != nil, "%s\n%v\n%v", content, err, got.Diagnostics)
		}
	})
	t.Logf("%d compared, %d of them refused by both", all, refused)
	require.Greater(t, refused, all/4)
	require.Less(t, refused, all)
}

// mutate changes one place in a value.
func mutate(t *rapid.T, value map[string]any) {
	for {
		keys := append(sorted(value), "")
		key := rapid.SampledFrom(keys).Draw(t, "key")
		if key == "" {
			value[rapid.SampledFrom([]string{"more", "name", "spec", "Display", "config", "count", "x y"}).Draw(t, "new")] = another(t)
			return
		}
		switch v := value[key].(type) {
		case map[string]any:
			if rapid.Bool().Draw(t, "deeper") {
				value = v
				continue
			}
		case []any:
			if m, ok := first(v).(map[string]any); ok && rapid.Bool().Draw(t, "item") {
				value = m
				continue
			}
			if len(v) > 0 && rapid.Bool().Draw(t, "replace") {
				v[0] = another(t)
				return
			}
		}
		if rapid.Bool().Draw(t, "remove") {
			delete(value, key)
		} else {
			value[key] = another(t)
		}
		return
	}
}

func first(list []any) any {
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

func another(t *rapid.T) any {
	return rapid.SampledFrom([]any{
		true, 0, 1, 64, 65, 4096, 4097, -1, 1 << 40, 0.5, "", "x", "worker-0", "Not A Name", "tenant", "platform", "a.b", "root", "anna",
		"sha256:" + strings.Repeat("0", 64), "https://a.example/x", "/srv/x", "/a/../b", "../x", "apps.instance.failed", "restart",
		strings.Repeat("a", 41), "line\ntwo", "é",
		[]any{}, []any{"x"}, []any{"a.b", 1}, map[string]any{}, map[string]any{"x": "y"}, map[string]any{"count": 1},
	}).Draw(t, "value")
}

// With known versions, the config of an instance and the parameters of a version
// have the definition of their backend.
func TestExportedSchemaOfEstateCoversConfig(t *testing.T) {
	backends := testBackends(t)
	r, err := newLoader(t).Load(context.Background(), estate.Files(lab(t)))
	require.NoError(t, err)
	schemas := map[schema.Kind]*jsonschema.Schema{}
	for _, kind := range []schema.Kind{"", schema.KindInstance, schema.KindAppVersion} {
		data, err := load.JSONSchema(backends, kind, r.Desired.Platform.Versions)
		require.NoError(t, err)
		schemas[kind] = compiled(t, data)
	}
	const instance = "apiVersion: berth/v1\nkind: Instance\nmetadata: {name: x}\nspec: {app: slurm, version: 22-05, display_name: X, " +
		"roles: {}, config: %s}\n"
	const version = "apiVersion: berth/v1\nkind: AppVersion\nmetadata: {name: x}\nspec: {version: \"1\", runtime_backend: slurm, status: " +
		"active, manifest: {roles: {}, parameters: %s}}\n"
	for content, refused := range map[string]bool{
		fmt.Sprintf(instance, "{identity: external}"):                                  false,
		fmt.Sprintf(instance, "{identity: nobody}"):                                    true,
		fmt.Sprintf(instance, "{partitons: []}"):                                       true,
		strings.Replace(fmt.Sprintf(instance, "{partitons: []}"), "22-05", "other", 1): false,
		fmt.Sprintf(version, "{identity: external}"):                                   false,
		fmt.Sprintf(version, "{identity: nobody}"):                                     true,
	} {
		value := plain(t, content)
		for _, kind := range []schema.Kind{"", schema.Kind(value.(map[string]any)["kind"].(string))} {
			err := schemas[kind].Validate(value)
			require.Equal(t, refused, err != nil, "%s\n%v", content, err)
		}
	}
}

package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// deploy/README.md shows a configuration that is one, and names every field.
func TestDeployReadme(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(moduleRoot, "deploy/README.md"))
	require.NoError(t, err)
	example := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(text)
	require.NotNil(t, example)
	path := filepath.Join(t.TempDir(), "berth.yaml")
	require.NoError(t, os.WriteFile(path, example[1], 0o600))
	_, err = readConfig(path)
	require.NoError(t, err)
	for _, name := range fieldNames(reflect.TypeFor[config]()) {
		require.Regexp(t, `\b`+name+`\b`, string(text), "the field is not explained")
	}
}

// fieldNames are the JSON names of a struct's fields and of theirs.
func fieldNames(typ reflect.Type) []string {
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice:
		return fieldNames(typ.Elem())
	case reflect.Struct:
		var names []string
		for f := range typ.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names = append(append(names, name), fieldNames(f.Type)...)
		}
		return names
	}
	return nil
}

package schema_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

func TestCanonicalJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"b": 1, "a": {"d": [1, 2.50], "c": null}}`: `{"a":{"c":null,"d":[1,2.50]},"b":1}`,
		`12345678901234567890`:                       `12345678901234567890`,
		` "x" `:                                      `"x"`,
	} {
		got, err := schema.CanonicalJSON([]byte(in))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	for _, in := range []string{"", "{", "1 2", "{} x"} {
		_, err := schema.CanonicalJSON([]byte(in))
		require.Error(t, err, in)
	}
}

// A field that is not there is shown at its nearest ancestor.
func TestHeaderAt(t *testing.T) {
	h := schema.Header{File: "f.yaml", Fields: []schema.FieldPos{
		{Path: "spec", Line: 5, Column: 1}, {Path: "spec.list", Line: 6, Column: 3}, {Path: "spec.list[1]", Line: 8, Column: 5},
	}}
	for path, want := range map[string][2]int{
		"spec": {5, 1}, "spec.x": {5, 1}, "spec.list[1]": {8, 5}, "spec.list[1].name": {8, 5}, "spec.list[0].name": {6, 3},
		"metadata.name": {1, 1}, "": {1, 1},
	} {
		require.Equal(t, schema.Position{File: "f.yaml", Line: want[0], Column: want[1]}, h.At(path), path)
	}
}

func TestKeyString(t *testing.T) {
	for want, k := range map[string]schema.Key{
		"Instance physics.lattice/train": schema.InstanceKey("physics", "lattice", "train"),
		"AppVersion app/1":               {Kind: schema.KindAppVersion, Parent: "app", Name: "1"},
		"Project physics/lattice":        {Kind: schema.KindProject, Tenant: "physics", Name: "lattice"},
		"Node n":                         {Kind: schema.KindNode, Name: "n"},
	} {
		require.Equal(t, want, k.String())
	}
	_, err := schema.Key{Kind: "Thing"}.Path()
	require.Error(t, err)
}

func TestParseKind(t *testing.T) {
	for word, want := range map[string]schema.Kind{
		"Node": schema.KindNode, "nodes": schema.KindNode, "policies": schema.KindPolicy,
		"shared-runtimes": schema.KindSharedRuntime, "AppVersion": schema.KindAppVersion, "rolebindings": schema.KindRoleBinding,
	} {
		got, ok := schema.ParseKind(word)
		require.True(t, ok, word)
		require.Equal(t, want, got, word)
	}
	for _, word := range []string{"", "pod", "nodess", "-"} {
		_, ok := schema.ParseKind(word)
		require.False(t, ok, word)
	}
}

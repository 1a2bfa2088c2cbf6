package load

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

var update = flag.Bool("update", false, "write the generated page")

// The committed reference matches the definitions and the table of kinds.
func TestReferenceIsCurrent(t *testing.T) {
	const page = "../../deploy/reference/kinds.md"
	want, err := Reference()
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.MkdirAll("../../deploy/reference", 0o755))
		require.NoError(t, os.WriteFile(page, want, 0o644))
	}
	got, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "write it again: berth schema docs > deploy/reference/kinds.md")
}

// Each row of the table of kinds has a definition, a comment, a JSON Schema and a
// section in the reference. Each field has a comment.
func TestEveryKindIsDescribed(t *testing.T) {
	j, err := newJudge(nil)
	require.NoError(t, err)
	page, err := Reference()
	require.NoError(t, err)
	for _, kind := range schema.Kinds() {
		s := j.defs[string(kind)].shape
		require.NotNil(t, s, kind)
		require.NotEmpty(t, s.doc, kind)
		require.Contains(t, string(page), "\n## "+string(kind)+"\n")
		data, err := JSONSchema(nil, kind, nil)
		require.NoError(t, err)
		require.Contains(t, string(data), `"const": "`+string(kind)+`"`)
		for _, p := range kind.Info().Places {
			require.Contains(t, string(page), "`"+p.String()+"`")
		}
	}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| `") {
			require.Greater(t, len(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(cells[2]), "|"))), 3, line)
		}
	}
}

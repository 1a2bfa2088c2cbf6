package load

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// With any character of a document removed, doubled or replaced, the findings have
// Berth's messages and are at positions in the file.
func TestParserMessagesAreNotShown(t *testing.T) {
	const path = "tenants/physics/projects/lattice/instances/train.yaml"
	text := labFiles(t)[path]
	broken := 0
	for i := range len(text) {
		for _, with := range []string{"", text[i:i+1] + text[i:i+1], ":", `"`, "'", "[", "{", "-", "\n", " ", "@", "é"} {
			data := text[:i] + with + text[i+1:]
			tree, findings := readTree(path, []byte(data), false)
			if tree != nil {
				continue
			}
			broken++
			lines := strings.Split(data, "\n")
			for _, f := range findings {
				for _, words := range []string{"did not find", "could not find", "not allowed in this context", "found character",
					"found un", "found inv", "yaml:", "stream", "node content"} {
					require.NotContains(t, f.Message, words, data)
				}
				require.True(t, 1 <= f.Line && f.Line <= len(lines), "%s\n%s", f, data)
				require.True(t, 1 <= f.Column && f.Column <= len([]rune(lines[f.Line-1]))+1, "%s\n%s", f, data)
			}
		}
	}
	require.Greater(t, broken, 500)
}

//go:build long

package patch_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/reconciler/patch"
	"berth/schema"
)

// The lines of a change are the lines that git diff shows: each added line and each
// line beside a removed one, under its number in the new file.
func TestLongLinesAreThoseGitShows(t *testing.T) {
	r := newRepository(t)
	rapid.Check(t, func(t *rapid.T) {
		var before, after strings.Builder
		for i := range rapid.IntRange(1, 60).Draw(t, "lines") {
			line := fmt.Sprintf("line %d\n", i)
			switch rapid.IntRange(0, 9).Draw(t, "edit") {
			case 0:
				before.WriteString(line)
			case 1:
				after.WriteString(line)
			case 2:
				before.WriteString(line)
				after.WriteString("other " + line)
			default:
				before.WriteString(line)
				after.WriteString(line)
			}
		}
		from := r.commit(t, map[string]file{node: {schema.ModePlain, before.String()}})
		to := r.commit(t, map[string]file{node: {schema.ModePlain, after.String()}})
		text := r.git(t, "", "diff", from, to)
		lines, err := patch.Lines(strings.NewReader(text))
		require.NoError(t, err)

		content := strings.Split(after.String(), "\n")
		shown := map[string]bool{} // every line has a different text
		for _, l := range strings.Split(text, "\n") {
			if strings.HasPrefix(l, " ") || strings.HasPrefix(l, "+") && !strings.HasPrefix(l, "+++") {
				shown[l[1:]] = true
			}
		}
		for i, l := range content {
			if l != "" {
				require.Equal(t, shown[l], lines.Has(node, i+1), "line %d, %q, of\n%s", i+1, l, text)
			}
		}
	})
}

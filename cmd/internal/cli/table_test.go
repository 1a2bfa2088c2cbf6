package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The columns of a table stay aligned when they are colored.
func TestTableIsAlignedInColor(t *testing.T) {
	for _, color := range []bool{false, true} {
		var b strings.Builder
		table := newTable(&b, false, "NAME", "PHASE", "WHY")
		table.color = color
		table.Row("a", "running", "")
		table.Row("a-longer-name", "failed", "host\n\x1b[2J gone")
		require.NoError(t, table.Flush())
		plain := b.String()
		for _, s := range []Style{Bold, Plain, Red, Green, "0"} {
			plain = strings.ReplaceAll(plain, "\x1b["+string(s)+"m", "")
		}
		require.Equal(t, "NAME            PHASE     WHY\na               running   -\na-longer-name   failed    host��[2J gone\n", plain)
		require.Equal(t, color, strings.Contains(b.String(), "\x1b[31mfailed"), "a failed state is red")
		b.Reset()
		table.color = false
		table.Row("b", "x", "y")
		require.NoError(t, table.Flush())
		require.Equal(t, "b               x         y\n", b.String(), "later rows stay aligned, without another header")
	}
	t.Setenv("NO_COLOR", "1")
	require.False(t, HasColor(os.Stdout))
}

// Marks and severities are colored, and nothing else of a line: text of a document
// is never colored.
func TestPlansAreColored(t *testing.T) {
	require.Equal(t, Green.Paint("+")+" a/b  (create)\n    "+Red.Paint("!")+" blocked: + x\n",
		paintMarks("+ a/b  (create)\n    ! blocked: + x\n"))
	require.Equal(t, "f.yaml:1:2: "+Red.Paint("error")+": warning: x\n", paintMarks("f.yaml:1:2: error: warning: x\n"))
	require.Equal(t, "2 errors:\n", paintMarks("2 errors:\n"))
	require.Equal(t, "+ a\n", Colored(&strings.Builder{}, "+ a\n"), "not into a pipe")
}

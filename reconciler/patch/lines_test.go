package patch_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/patch"
	"berth/schema"
)

func TestLines(t *testing.T) {
	text := diff("x", "@@ -1,3 +1,4 @@\n a\n+b\n c\n d\n@@ -9,2 +9,0 @@\n-i\n-j\n") +
		diff("y", "@@ -4,0 +5,2 @@\n+a\n+b\n") +
		"diff --git a/old.yaml b/new.yaml\nsimilarity index 90%\nrename from old.yaml\nrename to new.yaml\n--- a/old.yaml\n+++ " +
		"b/new.yaml\n@@ -2 +2 @@\n-a\n+b\n" +
		"diff --git a/added b/added\nnew file mode 100644\n--- /dev/null\n+++ b/added\n@@ -0,0 +1,2 @@\n+a\n+b\n" +
		"diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n" +
		"diff --git a/x.png b/x.png\nindex 1234567..89abcde 100644\nBinary files a/x.png and b/x.png differ\n"
	lines, err := patch.Lines(strings.NewReader(text))
	require.NoError(t, err)
	require.Equal(t, schema.Lines{"x": {{First: 1, Last: 4}}, "y": {{First: 5, Last: 6}}, "new.yaml": {{First: 2, Last: 2}},
		"added": {{First: 1, Last: 2}}}, lines)
	for line, want := range []bool{false, true, true, true, true, false} {
		require.Equal(t, want, lines.Has("x", line), "line %d", line)
	}
	require.False(t, lines.Has("gone", 1))
	require.False(t, lines.Has("old.yaml", 2))

	lines, err = patch.Lines(strings.NewReader("\n"))
	require.NoError(t, err)
	require.Empty(t, lines)
	_, err = patch.Lines(strings.NewReader(diff("x", "@@ -1,3 +1,3 @@\n a\n-b\n")))
	require.ErrorContains(t, err, "miscounts", "a truncated diff is refused")
}

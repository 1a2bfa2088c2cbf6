package gitrepo_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
)

// A patch contains the changed files of the estate that main left unchanged.
func TestPatchShowsMergedEstateFiles(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	long := strings.Repeat("line\n", 20)
	from := s.MustCommit(t, "main", gittest.Commit{Message: "M", Files: map[string]string{
		"platform/both.yaml": long, "platform/ours.yaml": long, "platform/moves.yaml": long + "end\n", "README.md": "x\n",
	}})
	head := s.MustCommit(t, "topic",
		gittest.Commit{Message: "T", Parent: from, Remove: []string{"platform/moves.yaml"}, Files: map[string]string{
			"platform/both.yaml": "ours\n" + long, "platform/ours.yaml": long + "more\n", "platform/moved.yaml": long + "END\n",
			"README.md": "y\n", "tenants/physics/new file\n.yaml": "a\nb\n",
			"tenants/physics/huge.yaml": strings.Repeat("0123456789\n", 200_000), ".gitattributes": "* -diff\n",
			"tenants/physics/:(exclude)x": "c\n",
		}})
	base := s.MustCommit(t, "main",
		gittest.Commit{Message: "Meanwhile",
			Files: map[string]string{"platform/both.yaml": long + "theirs\n", "platform/theirs.yaml": "x\n"}})
	require.NoError(t, s.SetPull(1, head))
	r := open(t, s)
	fetch(t, r)
	_, err := r.FetchPull(t.Context(), 1)
	require.NoError(t, err)
	text, err := r.Patch(t.Context(), base, head)
	require.NoError(t, err)
	for _, want := range []string{
		"+++ b/platform/ours.yaml\n@@ -18,3 +18,4 @@", "rename from platform/moves.yaml", "rename to platform/moved.yaml", "+END\n",
		`+++ "b/tenants/physics/new file\n.yaml"`, "+++ b/tenants/physics/:(exclude)x\n",
		"Binary files /dev/null and b/tenants/physics/huge.yaml differ",
	} {
		require.Contains(t, text, want)
	}
	for _, not := range []string{"both.yaml", "theirs.yaml", "README", "gitattributes", "0123456789"} {
		require.NotContains(t, text, not)
	}
	same, err := r.Patch(t.Context(), base, base)
	require.NoError(t, err)
	require.Empty(t, same)
	empty, err := s.Git("-c", "user.name=x", "-c", "user.email=x", "commit-tree", "-m", "alone", from+"^{tree}")
	require.NoError(t, err)
	require.NoError(t, s.SetPull(2, empty))
	_, err = r.FetchPull(t.Context(), 2)
	require.NoError(t, err)
	none, err := r.Patch(t.Context(), base, empty)
	require.NoError(t, err)
	require.Empty(t, none, "the head has no common history with main")
	_, err = r.Patch(t.Context(), base, strings.Repeat("1", 40))
	require.ErrorIs(t, err, reconciler.ErrNotFound)
}

// If one side renames a file and the other edits it, its lines have other numbers
// after the merge.
func TestPatchLeavesOutFilesRenamedAndEdited(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 30 {
		fmt.Fprintf(&b, "line %d\n", i+1)
	}
	long := b.String()
	s := gittest.New(t, estateFiles())
	from := s.MustCommit(t, "main",
		gittest.Commit{Message: "M", Files: map[string]string{"platform/a.yaml": long, "platform/c.yaml": "c\n" + long,
			"platform/e.yaml": "e\n" + long}})
	head := s.MustCommit(t, "topic",
		gittest.Commit{Message: "T", Parent: from, Remove: []string{"platform/a.yaml", "platform/e.yaml"}, Files: map[string]string{
			"platform/b.yaml": strings.Replace(long, "line 20\n", "BAD\n", 1),
			"platform/c.yaml": strings.Replace("c\n"+long, "line 20\n", "BAD\n", 1),
			"platform/f.yaml": strings.Replace("e\n"+long, "line 20\n", "BAD\n", 1),
		}})
	base := s.MustCommit(t, "main", gittest.Commit{Message: "Meanwhile", Remove: []string{"platform/c.yaml"}, Files: map[string]string{
		"platform/a.yaml": "new 1\nnew 2\nnew 3\n" + long, "platform/d.yaml": "c\nnew\n" + long,
	}})
	require.NoError(t, s.SetPull(1, head))
	r := open(t, s)
	fetch(t, r)
	_, err := r.FetchPull(t.Context(), 1)
	require.NoError(t, err)

	merged, conflicts, err := r.Merge(t.Context(), base, head)
	require.NoError(t, err)
	require.Empty(t, conflicts)
	files := contents(t, r, merged)
	require.Equal(t, 23, 1+strings.Count(files["platform/b.yaml"][:strings.Index(files["platform/b.yaml"], "BAD")], "\n"),
		"the line is 20 in the head")
	require.Contains(t, files["platform/d.yaml"], "BAD")

	text, err := r.Patch(t.Context(), base, head)
	require.NoError(t, err)
	for _, not := range []string{"b.yaml", "c.yaml", "d.yaml"} {
		require.NotContains(t, text, "+++ b/platform/"+not)
	}
	require.Contains(t, text, "rename to platform/f.yaml\n")
	require.Contains(t, text, "+++ b/platform/f.yaml\n@@ -18,7 +18,7 @@", "main did not change the renamed file")

	clash := s.MustCommit(t, "main", gittest.Commit{Message: "Clash", Files: map[string]string{"platform/e.yaml": "other\n"}})
	fetch(t, r)
	text, err = r.Patch(t.Context(), clash, head)
	require.NoError(t, err)
	require.Empty(t, text, "a conflict has no patch")
}

func TestGroups(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	main := s.Tip("main")
	group := s.MustCommit(t, "topic", gittest.Commit{Message: "G", Parent: main, Files: map[string]string{"platform/x.yaml": "x\n"}})
	const prefix = "refs/heads/queue/main/"
	require.NoError(t, s.SetRef(prefix+"pr-1-"+main, group))
	r := open(t, s)
	fetch(t, r)
	refs, err := r.Groups(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]string{prefix + "pr-1-" + main: group}, refs)
	got, err := r.FetchGroup(t.Context(), prefix+"pr-1-"+main)
	require.NoError(t, err)
	require.Equal(t, group, got)
	_, conflicts, err := r.Merge(t.Context(), main, group)
	require.NoError(t, err)
	require.Empty(t, conflicts)
	for _, other := range []string{prefix + "pr-2", "refs/heads/queue/develop/pr-1", "refs/heads/main"} {
		_, err = r.FetchGroup(t.Context(), other)
		require.ErrorIs(t, err, reconciler.ErrNotFound)
	}
}

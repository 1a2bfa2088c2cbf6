package patch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/patch"
	"berth/schema"
	"berth/schema/estate"
)

const node = "platform/nodes/n.yaml"

func diff(path, rest string) string {
	return fmt.Sprintf("diff --git a/%s b/%s\n--- a/%s\n+++ b/%s\n%s", path, path, path, path, rest)
}

func TestInvalidPatchIsRefused(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"words", "please apply this\n", "it contains no patch"},
		{"a diff in another form", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", "not in Git's form"},
		{"one of several in another form", diff("x", "@@ -1 +1 @@\n-a\n+b\n") + "--- a/y\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n",
			"not in Git's form"},
		{"cut off in a line", diff("x", "@@ -1 +1 @@\n-a\n+b"), "cut off"},
		{"cut off in a hunk", diff("x", "@@ -1,3 +1,3 @@\n a\n-b\n"), "line 4: fragment header miscounts lines"},
		{"cut off before the hunk", diff("x", ""), `"x": nothing of it changes`},
		{"a new file without content", "diff --git a/x b/x\nnew file mode 100644\nindex 0000000..86ed154\n", `"x": its content is missing`},
		{"a hunk without a file", "@@ -1 +1 @@\n-a\n+b\n", "line 1: patch fragment without file header"},
		{"binary, content left out", "diff --git a/x.png b/x.png\nindex 1234567..89abcde 100644\nBinary files a/x.png and b/x.png differ\n",
			`"x.png": it is binary`},
		{"binary", "diff --git a/x b/x\nnew file mode 100644\nindex 0000000..89abcde\nGIT binary patch\nliteral " +
			"1\nIcmZPo000310RR91\n\nliteral 0\nHcmV?d00001\n\n", `"x": it is binary`},
		{"two names", "diff --git a/x b/y\n--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", `"y": it was "x" and is not renamed`},
		{"a file changed twice", strings.Repeat(diff("x", "@@ -1 +1 @@\n-a\n+b\n"), 2), `"x" is changed twice`},
		{"a file made twice", strings.Repeat("diff --git a/x b/x\nnew file mode 100644\n", 2), `"x" is changed twice`},
		{"hunks in another order", diff("x", "@@ -9 +9 @@\n-a\n+b\n@@ -1 +1 @@\n-a\n+b\n"),
			`"x": hunk 2: it does not follow the hunk before it`},
		{"hunks at other lines", diff("x", "@@ -1 +1 @@\n-a\n+b\n@@ -9 +8 @@\n-a\n+b\n"), `"x": hunk 2: its line numbers contradict`},
		{"a huge line number", diff("x", "@@ -9000000000000000000 +9000000000000000000 @@\n-a\n+b\n"),
			`"x": hunk 1: invalid line number 9000000000000000000`},
		{"a strange mode", "diff --git a/x b/x\nnew file mode 100666\n", `"x": file mode 100666 is unknown to Git`},
		{"another type", "diff --git a/x b/x\nold mode 100644\nnew mode 120000\n", `"x": it was a plain file and becomes a symbolic link`},
		{"up", diff("../x", "@@ -1 +1 @@\n-a\n+b\n"), `a path must not contain ".."`},
		{"up in the middle", diff("platform/../../x", "@@ -1 +1 @@\n-a\n+b\n"), `a path must not contain ".."`},
		{"absolute", "diff --git a/x b/x\nsimilarity index 100%\nrename from x\nrename to /etc/x\n", `a path must not contain ""`},
		{"Git's own directory", diff(".git/config", "@@ -1 +1 @@\n-a\n+b\n"), `a path must not contain ".git"`},
		{"Git's own directory, below", diff("platform/.GIT./hooks/x", "@@ -1 +1 @@\n-a\n+b\n"), `a path must not contain ".GIT."`},
		{"a name with a line end", "diff --git \"a/x\\ny\" \"b/x\\ny\"\nnew file mode 100644\n", "the path is invalid in an estate"},
		{"too much", strings.Repeat("x", patch.MaxBytes) + "\n", "more than 8 MiB"},
		{"too many files", strings.Repeat("diff --git a/x b/x\n", 10_001), "more than 10000 files"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := patch.Parse(strings.NewReader(c.text))
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestConflicts(t *testing.T) {
	base := estate.Files(map[string]string{node: "a\nb\nc\n", "tenants/x/tenant.yaml": "name: x", "tenants/y/z/w.yaml": "w\n",
		"top": "t\n"})
	for _, c := range []struct{ name, text, want string }{
		{"another line", diff(node, "@@ -1,3 +1,3 @@\n a\n-B\n+BB\n c\n"),
			node + `:2:1: error: the base has "b" here, the patch expects "B": make the patch from the base [patch.conflict]`},
		{"the line is elsewhere", diff(node, "@@ -2,2 +2,2 @@\n a\n-b\n+BB\n"),
			node + `:2:1: error: the base has "b" here, the patch expects "a": make the patch from the base [patch.conflict]`},
		{"no end of line", diff("tenants/x/tenant.yaml", "@@ -1 +1 @@\n-name: x\n+name: y\n"),
			`tenants/x/tenant.yaml:1:1: error: the base has "name: x" without an end of line here, the patch expects "name: x": make the patch from the base [patch.conflict]`},
		{"a shorter file", diff(node, "@@ -3,2 +3,2 @@\n c\n-d\n+D\n"),
			node + `:3:1: error: the base ends here, before the lines that the patch changes (3 to 4) [patch.conflict]`},
		{"no such file", diff("platform/nodes/m.yaml", "@@ -1 +1 @@\n-a\n+b\n"),
			`platform/nodes/m.yaml:1:1: error: the patch changes it, but the base has no such file: paths start at the root of the estate, after a/ and b/ [patch.conflict]`},
		{"made already", "diff --git a/top b/top\nnew file mode 100644\n--- /dev/null\n+++ b/top\n@@ -0,0 +1 @@\n+x\n",
			`top:1:1: error: the patch creates it, but it exists already [patch.conflict]`},
		{"more is left", "diff --git a/" + node + " b/" + node + "\ndeleted file mode 100644\n--- a/" + node +
			"\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n",
			node + `:3:1: error: the patch deletes it, but the base has lines that the patch does not delete [patch.conflict]`},
		{"all of one line is left", "diff --git a/tenants/x/tenant.yaml b/tenants/x/tenant.yaml\ndeleted file mode 100644\n",
			`tenants/x/tenant.yaml:1:1: error: the patch deletes it, but the base has lines that the patch does not delete [patch.conflict]`},
		{"another mode", "diff --git a/top b/top\nold mode 100755\nnew mode 100644\n",
			`top:1:1: error: it is a plain file in the base, but the patch expects an executable file [patch.conflict]`},
		{"a file where a directory is", "diff --git a/platform/nodes b/platform/nodes\nnew file mode 100644\n",
			`platform/nodes:1:1: error: the patch creates a file here, but the base has a directory [patch.conflict]`},
		{"a file where all tenants are", "diff --git a/tenants b/tenants\nnew file mode 100644\n",
			`tenants:1:1: error: the patch creates a file here, but the base has a directory [patch.conflict]`},
		{"below a file", "diff --git a/top/x b/top/x\nnew file mode 100644\n",
			`top/x:1:1: error: the patch creates it below top, which is a file [patch.conflict]`},
		{"a submodule without a commit", "diff --git a/m b/m\nnew file mode 160000\n--- /dev/null\n+++ b/m\n@@ -0,0 +1 @@\n+x\n",
			`m:1:1: error: the patch makes it a submodule without a commit [patch.conflict]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := patch.Parse(strings.NewReader(c.text))
			require.NoError(t, err)
			tree, conflicts, err := p.Apply(t.Context(), base)
			require.NoError(t, err)
			require.Nil(t, tree)
			require.Len(t, conflicts, 1)
			require.Equal(t, c.want, conflicts[0].String())
		})
	}
}

// One conflict for each file, in order, whatever their order in the patch.
func TestEveryConflictIsReported(t *testing.T) {
	base := estate.Files(map[string]string{"platform/a": "a\n", "tenants/b/b": "b\n"})
	p, err := patch.Parse(strings.NewReader(diff("tenants/b/b", "@@ -1 +1 @@\n-x\n+y\n") + diff("platform/a", "@@ -1 +1 @@\n-x\n+y\n")))
	require.NoError(t, err)
	_, conflicts, err := p.Apply(t.Context(), base)
	require.NoError(t, err)
	require.Len(t, conflicts, 2)
	require.Equal(t, "platform/a", conflicts[0].File)
	require.Equal(t, "tenants/b/b", conflicts[1].File)
}

func TestEmptyPatchChangesNothing(t *testing.T) {
	base := estate.Files(map[string]string{node: "a\n"})
	p, err := patch.Parse(strings.NewReader("\n"))
	require.NoError(t, err)
	tree, conflicts, err := p.Apply(t.Context(), base)
	require.NoError(t, err)
	require.Empty(t, conflicts)
	require.Empty(t, tree.Touched())
	require.Equal(t, listing(t, base), listing(t, tree))
}

// A patch that makes ten thousand large copies ends, and says why.
func TestContentIsBounded(t *testing.T) {
	files := map[string]string{"big": strings.Repeat("a line of text\n", 200_000), "huge": strings.Repeat("x", 5<<20)}
	var text strings.Builder
	for i := range 40 {
		fmt.Fprintf(&text, "diff --git a/big b/c%d\ncopy from big\ncopy to c%d\n--- a/big\n+++ b/c%d\n@@ -1 +1,2 @@\n+%d\n a line of "+
			"text\n", i, i, i, i)
	}
	p, err := patch.Parse(strings.NewReader(text.String()))
	require.NoError(t, err)
	_, _, err = p.Apply(t.Context(), wholly{files})
	require.ErrorContains(t, err, "more than 64 MiB of content")

	p, err = patch.Parse(strings.NewReader(diff("huge", "@@ -1 +1 @@\n-a\n+b\n")))
	require.NoError(t, err)
	_, conflicts, err := p.Apply(t.Context(), wholly{files})
	require.NoError(t, err)
	require.Len(t, conflicts, 1)
	require.Contains(t, conflicts[0].Message, "more than 4 MiB")
}

// wholly is a snapshot whose files are read as they are, however large.
type wholly struct{ files map[string]string }

func (s wholly) Parts(ctx context.Context) ([]schema.Part, error) {
	return estate.Files(s.files).Parts(ctx)
}

func (s wholly) Files(ctx context.Context, p schema.Part) ([]schema.File, error) {
	return estate.Files(s.files).Files(ctx, p)
}

func (s wholly) Read(_ context.Context, f schema.File, limit int) ([]byte, bool, error) {
	data := s.files[f.Path]
	return []byte(data[:min(limit, len(data))]), len(data) > limit, nil
}

// An unreadable base is an error, not an empty tree.
func TestUnreadableBase(t *testing.T) {
	p, err := patch.Parse(strings.NewReader(diff(node, "@@ -1 +1 @@\n-a\n+b\n")))
	require.NoError(t, err)
	for _, fail := range []string{"parts", "files", "read"} {
		_, _, err := p.Apply(t.Context(), broken{estate.Files(map[string]string{node: "a\n"}), fail})
		require.ErrorIs(t, err, errBroken, fail)
	}
}

var errBroken = errors.New("the disk is gone")

type broken struct {
	schema.Snapshot
	at string
}

func (b broken) Parts(ctx context.Context) ([]schema.Part, error) {
	if b.at == "parts" {
		return nil, errBroken
	}
	return b.Snapshot.Parts(ctx)
}

func (b broken) Files(ctx context.Context, p schema.Part) ([]schema.File, error) {
	if b.at == "files" {
		return nil, errBroken
	}
	return b.Snapshot.Files(ctx, p)
}

func (b broken) Read(ctx context.Context, f schema.File, limit int) ([]byte, bool, error) {
	if b.at == "read" {
		return nil, false, errBroken
	}
	return b.Snapshot.Read(ctx, f, limit)
}

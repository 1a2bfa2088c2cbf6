package patch_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/reconciler/gitrepo"
	"berth/reconciler/patch"
	"berth/schema"
)

// file is a file of a tree to be made.
type file struct {
	mode    uint32
	content string
}

// repository is a bare repository on disk, with git beside it as the oracle.
type repository struct {
	dir  string
	view *gitrepo.Local
}

func newRepository(t testing.TB) *repository {
	t.Helper()
	r := &repository{dir: filepath.Join(t.TempDir(), "repo.git")}
	r.git(t, "", "init", "-q", "--bare", "-b", "main", r.dir)
	view, err := gitrepo.OpenLocal(r.dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, view.Close()) })
	r.view = view
	return r
}

// tester is what testing.TB and rapid.T have in common.
type tester interface {
	require.TestingT
	Helper()
}

func (r *repository) git(t tester, stdin string, args ...string) string {
	t.Helper()
	out, err := r.try(stdin, nil, args...)
	require.NoError(t, err, out)
	return out
}

func (r *repository) try(stdin string, env []string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"LC_ALL=C"}, env...)
	if args[0] != "init" {
		cmd.Env = append(cmd.Env, "GIT_DIR="+r.dir)
	}
	cmd.Stdin = strings.NewReader(stdin)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		return problem.String(), fmt.Errorf("git %s: %w", args[0], err)
	}
	return out.String(), nil
}

// commit makes a commit of files.
func (r *repository) commit(t tester, files map[string]file) string {
	t.Helper()
	var in strings.Builder
	in.WriteString("feature done\nreset refs/heads/made\ncommit refs/heads/made\nmark :1\ncommitter Ada <ada@example.org> 1700000000 " +
		"+0000\ndata 0\n\ndeleteall\n")
	for _, path := range slices.Sorted(maps.Keys(files)) {
		f := files[path]
		if f.mode == schema.ModeSubmodule {
			fmt.Fprintf(&in, "M 160000 %s %q\n", f.content, path)
			continue
		}
		fmt.Fprintf(&in, "M %o inline %q\ndata %d\n%s\n", f.mode, path, len(f.content), f.content)
	}
	in.WriteString("get-mark :1\ndone\n")
	return strings.TrimSpace(r.git(t, in.String(), "fast-import", "--quiet", "--force"))
}

func (r *repository) snapshot(t tester, commit string) schema.Snapshot {
	t.Helper()
	s, err := r.view.Snapshot(context.Background(), commit)
	require.NoError(t, err)
	return s
}

// listing is everything a snapshot holds, as text.
func listing(t tester, s schema.Snapshot) []string {
	t.Helper()
	ctx := context.Background()
	parts, err := s.Parts(ctx)
	require.NoError(t, err)
	out := []string{}
	for _, p := range parts {
		out = append(out, fmt.Sprintf("part %s %t", p.Name, p.Dir))
		files, err := s.Files(ctx, p)
		require.NoError(t, err)
		for _, f := range files {
			line := fmt.Sprintf("%o %s %s", f.Mode, f.Blob, f.Path) // a Git tree does not say sizes
			if f.Mode != schema.ModeSubmodule {
				data, more, err := s.Read(ctx, f, 100)
				require.NoError(t, err)
				line += fmt.Sprintf(" %q %t", data, more)
			}
			out = append(out, line)
		}
	}
	return out
}

func drawTree(t *rapid.T) map[string]file {
	paths := rapid.SampledFrom([]string{"platform/a.yaml", "platform/nodes/n.yaml", "platform", "tenants/x/tenant.yaml",
		"tenants/x/y z.yaml",
		"tenants/x", "tenants/ü/\"q\".yaml", "tenants", "README.md", "a", "a/b"})
	files := map[string]file{}
	for _, path := range rapid.SliceOfNDistinct(paths, 0, 6, rapid.ID).Draw(t, "paths") {
		if slices.ContainsFunc(slices.Collect(maps.Keys(files)), func(p string) bool {
			return strings.HasPrefix(p, path+"/") || strings.HasPrefix(path, p+"/")
		}) {
			continue
		}
		files[path] = drawFile(t)
	}
	return files
}

func drawFile(t *rapid.T) file {
	f := file{mode: rapid.SampledFrom([]uint32{schema.ModePlain, schema.ModePlain, schema.ModePlain, schema.ModeExecutable,
		schema.ModeSymlink, schema.ModeSubmodule}).Draw(t, "mode")}
	if f.mode == schema.ModeSubmodule {
		f.content = strings.Repeat(rapid.SampledFrom([]string{"a", "7"}).Draw(t, "commit"), 40)
		return f
	}
	f.content = strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "c", "same", "-- ", "+x", "@@ -1 +1 @@",
		"diff --git a/a b/a", " d\r", "\\ No newline at end of file"}), 0, 14).Draw(t, "lines"), "\n")
	if f.content != "" && rapid.Bool().Draw(t, "ended") {
		f.content += "\n"
	}
	return f
}

// change is a tree with some of it edited, moved, taken away and added.
func change(t *rapid.T, files map[string]file) map[string]file {
	out := maps.Clone(files)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		f := out[path]
		switch rapid.IntRange(0, 6).Draw(t, "what") {
		case 0:
			delete(out, path)
		case 1: // moved, perhaps to where something else was
			delete(out, path)
			out[rapid.SampledFrom(append(slices.Sorted(maps.Keys(files)), "tenants/x/moved.yaml", "moved")).Draw(t, "to")] = f
		case 2:
			out["platform/copy.yaml"] = f
		case 3:
			out[path] = drawFile(t)
		case 4, 5:
			if f.mode != schema.ModeSubmodule {
				lines := strings.SplitAfter(f.content, "\n")
				at := rapid.IntRange(0, len(lines)).Draw(t, "at")
				f.content = strings.Join(slices.Insert(lines, at, rapid.SampledFrom([]string{"new\n", "a\n", "\n"}).Draw(t, "line")), "")
				out[path] = f
			}
		}
	}
	for path := range out {
		for other := range out {
			if strings.HasPrefix(other, path+"/") {
				delete(out, other)
			}
		}
	}
	return out
}

// What git says differs between two trees makes the one of the other, whatever
// form it says it in.
func TestEveryDiffApplies(t *testing.T) {
	r := newRepository(t)
	rapid.Check(t, func(t *rapid.T) {
		files := drawTree(t)
		base := r.commit(t, files)
		head := r.commit(t, change(t, files))
		flags := rapid.SampledFrom([]string{"-M", "--no-renames", "-C --find-copies-harder", "-M10%", "-C10% -C10%"}).Draw(t, "renames")
		args := append([]string{"diff", "--no-color", "--full-index",
			"-U" + rapid.SampledFrom([]string{"0", "1", "3", "50"}).Draw(t, "context")}, strings.Fields(flags)...)
		text := r.git(t, "", append(args, base, head)...)

		p, err := patch.Parse(strings.NewReader(text))
		require.NoError(t, err, text)
		tree, conflicts, err := p.Apply(context.Background(), r.snapshot(t, base))
		require.NoError(t, err, text)
		require.Empty(t, conflicts, text)
		want := r.snapshot(t, head)
		require.Equal(t, listing(t, want), listing(t, tree), text)
		touched, err := r.view.Diff(context.Background(), base, head)
		require.NoError(t, err)
		require.Equal(t, touched, append([]schema.PathChange{}, tree.Touched()...), text)
	})
}

// baseFiles is what the fuzzer's patches are for.
func baseFiles() map[string]file {
	return map[string]file{
		"platform/nodes/n.yaml": {schema.ModePlain, "a\nb\nc\nd\ne\nf\n"},
		"tenants/x/tenant.yaml": {schema.ModePlain, "one\ntwo"},
		"tenants/y/run":         {schema.ModeExecutable, "#!/bin/sh\n"},
		"tenants/y/link":        {schema.ModeSymlink, "run"},
		"tenants/y/module":      {schema.ModeSubmodule, strings.Repeat("a", 40)},
		"empty":                 {schema.ModePlain, ""},
	}
}

// judge compares a patch with git: git also applies each patch that is applied here,
// with the same tree. The reverse is false: git searches for moved context, which is
// a conflict here.
type judge struct {
	repo   *repository
	base   schema.Snapshot
	commit string
	dir    string
	index  []byte
}

func newJudge(t testing.TB, files map[string]file) *judge {
	r := newRepository(t)
	j := &judge{repo: r, dir: t.TempDir()}
	j.commit = r.commit(t, files)
	j.base = r.snapshot(t, j.commit)
	index := filepath.Join(j.dir, "index")
	out, err := r.try("", []string{"GIT_INDEX_FILE=" + index}, "read-tree", j.commit)
	require.NoError(t, err, out)
	j.index, err = os.ReadFile(index)
	require.NoError(t, err)
	return j
}

// judge reports whether the patch was applied.
func (j *judge) judge(t tester, text string) bool {
	t.Helper()
	p, err := patch.Parse(strings.NewReader(text))
	if err != nil || strings.TrimSpace(text) == "" {
		return false
	}
	tree, conflicts, err := p.Apply(context.Background(), j.base)
	require.NoError(t, err)
	if len(conflicts) > 0 {
		require.Nil(t, tree)
		for _, c := range conflicts {
			require.Equal(t, patch.CodeConflict, c.Code)
			require.Positive(t, c.Line)
			require.NotEmpty(t, c.Message)
		}
		return false
	}
	index := filepath.Join(j.dir, "index")
	require.NoError(t, os.WriteFile(index, j.index, 0o600))
	env := []string{"GIT_INDEX_FILE=" + index}
	out, err := j.repo.try(text, env, "apply", "--cached", "--unidiff-zero", "--whitespace=nowarn", "-")
	if err != nil && (strings.Contains(out, "patch fragment without header") || strings.Contains(out, "lacks filename information")) {
		return false // git wants the names more often; they are clear without
	}
	if err != nil && strings.Contains(out, "Assertion `patch->is_new <= 0' failed") {
		// Git 2.39 aborts at a new file whose old name is given, and leaves its lock. It says nothing about the patch.
		require.NoError(t, os.Remove(index+".lock"))
		return false
	}
	require.NoError(t, err, "git does not apply it: %s\n%s", out, text)
	id, err := j.repo.try("", env, "write-tree", "--missing-ok")
	require.NoError(t, err, id)
	require.Equal(t, listing(t, j.repo.snapshot(t, strings.TrimSpace(id))), listing(t, tree), text)
	return true
}

// diffs are patches for baseFiles.
func (j *judge) diffs(t tester) []string {
	files := baseFiles()
	var out []string
	for _, to := range []func(map[string]file){
		func(m map[string]file) { m["platform/nodes/n.yaml"] = file{schema.ModePlain, "A\nb\nc\nd\ne\nf\ng\n"} },
		func(m map[string]file) {
			delete(m, "platform/nodes/n.yaml")
			m["tenants/x/tenant.yaml"] = file{schema.ModePlain, "one\ntwo\n"}
		},
		func(m map[string]file) { m["tenants/y/moved"] = m["tenants/y/run"]; delete(m, "tenants/y/run") },
		func(m map[string]file) {
			m["tenants/y/run"], m["tenants/y/link"] = m["tenants/y/link"], m["tenants/y/run"]
		},
		func(m map[string]file) { m["tenants/y/run"] = file{schema.ModePlain, "#!/bin/sh\n"} },
		func(m map[string]file) { m["tenants/y/module"] = file{schema.ModeSubmodule, strings.Repeat("b", 40)} },
		func(m map[string]file) { m["new"] = file{schema.ModePlain, ""}; delete(m, "empty") },
		func(m map[string]file) { m["\"ü\"\t"] = file{schema.ModePlain, "x\n"} },
	} {
		head := maps.Clone(files)
		to(head)
		for _, flags := range []string{"-U2 -M", "-U0 --no-renames"} {
			out = append(out, j.repo.git(t, "",
				append(append([]string{"diff"}, strings.Fields(flags)...), j.commit, j.repo.commit(t, head))...))
		}
	}
	return out
}

// Damaged patches: edited by hand, or cut and pasted.
func TestMangledPatches(t *testing.T) {
	j := newJudge(t, baseFiles())
	diffs := j.diffs(t)
	applied := 0
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(diffs), 1, 3).Draw(t, "diffs"), "")
		lines := strings.SplitAfter(text, "\n")
		for n := rapid.IntRange(0, 3).Draw(t, "edits"); n > 0 && len(lines) > 0; n-- {
			at := rapid.IntRange(0, len(lines)-1).Draw(t, "at")
			switch rapid.IntRange(0, 4).Draw(t, "edit") {
			case 0:
				lines = slices.Delete(lines, at, at+1)
			case 1:
				lines = slices.Insert(lines, at, lines[at])
			case 2:
				lines = slices.Insert(lines, at, rapid.SampledFrom(lines).Draw(t, "line"))
			case 3:
				lines[at] = strings.NewReplacer("1", "2", "2", "1", "0", "1").Replace(lines[at])
			case 4:
				lines[at] = strings.NewReplacer("a", "b", "+", "-", "y/", "x/").Replace(lines[at])
			}
		}
		if j.judge(t, strings.Join(lines, "")) {
			applied++
		}
	})
	require.Positive(t, applied)
}

// Whatever the patch.
func FuzzApply(f *testing.F) {
	for _, text := range newJudge(f, baseFiles()).diffs(f) {
		f.Add(text)
	}
	f.Add("--- a/empty\n+++ b/empty\n@@ -0,0 +1 @@\n+x\n")
	f.Add("diff --git a/../x b/../x\nnew file mode 100644\n--- /dev/null\n+++ b/../x\n@@ -0,0 +1 @@\n+x\n")
	j := newJudge(f, baseFiles())
	f.Fuzz(func(t *testing.T, text string) { j.judge(t, text) })
}

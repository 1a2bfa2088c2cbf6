package gitrepo_test

import (
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"berth/reconciler"
	"berth/reconciler/gitrepo"

	"github.com/stretchr/testify/require"
)

// fileAt is the mode and blob of a path, as printed by git ls-tree.
type fileAt struct{ mode, blob string }

// FuzzDiff builds two trees from the input. Names sort differently as files and
// as directories. Files may be links, programs, submodules, or directories on one
// side only. Diff must equal git's diff. Applied to one tree it must give the
// other, and the reverse diff must be its inverse.
func FuzzDiff(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 1, 0, 1})
	f.Add([]byte("a file and a directory of one name"))
	f.Add([]byte{2, 10, 0, 2, 11, 1, 0, 12, 2, 1, 10, 3})
	for i := range byte(30) {
		f.Add([]byte{0, i, 0, 1, i, i, 2, i + 7, i + 1, 1, i + 7, 9, 0, i * 3, 4, 1, i * 5, 5})
	}
	dir := f.TempDir()
	git := func(t require.TestingT, stdin string, args ...string) string {
		cmd := exec.Command("git", append([]string{"--git-dir", dir, "-c", "core.quotePath=false"}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	git(f, "", "init", "-q", "--bare", dir)
	repo, err := gitrepo.OpenLocal(dir)
	require.NoError(f, err)
	f.Cleanup(func() { _ = repo.Close() })

	names := []string{"a", "a-b", "a.b", "a0", "a/x", "a/x/y", "a/x-y", "a/x.y", "b", "README.md", "platform/nodes/a.yaml",
		"platform/nodes",
		"tenants/a/tenant.yaml", "tenants/a-b/tenant.yaml", "tenants/a.b", "tenants/a", "tenants/a/projects/p/instances/i.yaml",
		"tenants/a/projects/p",
		"tenants/\u00e9/x", "tenants/e\u0301/x", "Tenants/a/tenant.yaml", "x y/z", "-x", "tenants/a/\u202ex", "\U0001f600/a",
		"tenants/z/deep/deep/deep/deep/x"}
	modes := []string{"100644", "100755", "120000", "160000"}
	const module = "1234567890123456789012345678901234567890"
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 120 {
			return
		}
		trees := [2]map[string]string{{}, {}} // path → mode and content
		for ; len(data) >= 3; data = data[3:] {
			path, what := names[int(data[1])%len(names)], fmt.Sprintf("%s %d", modes[int(data[2])/4%len(modes)], data[2]%4)
			for i, tree := range trees {
				switch {
				case data[0]%3 == byte(1-i): // copied from the other tree
				case data[2] > 240:
					remove(tree, path)
				default:
					put(tree, path, what)
				}
			}
		}
		var stream strings.Builder
		for i, tree := range trees {
			fmt.Fprintf(&stream, "reset refs/heads/side%d\n\ncommit refs/heads/side%d\ncommitter x <x> 1 +0000\ndata 0\n\n", i, i)
			for _, path := range slices.Sorted(maps.Keys(tree)) {
				mode, content, _ := strings.Cut(tree[path], " ")
				if mode == "160000" {
					fmt.Fprintf(&stream, "M %s %s%s %s\n", mode, module[:39], content, path)
				} else {
					fmt.Fprintf(&stream, "M %s inline %s\ndata %d\n%s\n", mode, path, len(content), content)
				}
			}
		}
		git(t, stream.String(), "-c", "fastimport.unpackLimit=10000", "fast-import", "--quiet", "--force")
		listing := func(side string) map[string]fileAt {
			all := map[string]fileAt{}
			for line := range strings.SplitSeq(strings.TrimSuffix(git(t, "", "ls-tree", "-r", "-z", side), "\x00"), "\x00") {
				if what, path, ok := strings.Cut(line, "\t"); ok {
					w := strings.Fields(what)
					all[path] = fileAt{w[0], w[2]}
				}
			}
			return all
		}
		id := func(side string) string { return strings.TrimSpace(git(t, "", "rev-parse", side)) }
		from, to := id("side0"), id("side1")
		diff, err := repo.Diff(t.Context(), from, to)
		require.NoError(t, err)
		require.True(t, slices.IsSortedFunc(diff, func(a, b reconciler.PathChange) int { return strings.Compare(a.Path, b.Path) }))

		var want []string
		fields := strings.Split(git(t, "", "diff-tree", "-r", "-z", "--no-renames", "--no-abbrev", "--raw", from, to), "\x00")
		for i := 0; i+1 < len(fields); i += 2 {
			w := strings.Fields(fields[i]) // :mode mode id id letter
			want = append(want, fmt.Sprintf("%s %s %s", fields[i+1], w[2], w[3]))
		}
		slices.Sort(want)
		require.Equal(t, want, lines(diff))

		before, after := listing("side0"), listing("side1")
		made := map[string]string{}
		for path, s := range before {
			made[path] = s.blob
		}
		for _, c := range diff {
			require.Equal(t, before[c.Path].blob, c.From)
			delete(made, c.Path)
			if c.To != "" {
				made[c.Path] = c.To
			}
		}
		blobs := map[string]string{}
		for path, s := range after {
			blobs[path] = s.blob
		}
		require.Equal(t, blobs, made)

		back, err := repo.Diff(t.Context(), to, from)
		require.NoError(t, err)
		for i := range back {
			back[i].From, back[i].To = back[i].To, back[i].From
		}
		require.Equal(t, diff, back)
	})
}

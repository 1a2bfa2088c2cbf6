package gitrepo_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
	"berth/schema"

	"github.com/stretchr/testify/require"
)

// rawEntry is an entry of a tree that no Git client would make.
type rawEntry struct {
	mode, name, id string
}

func rawTree(t *testing.T, s *gittest.Server, entries ...rawEntry) string {
	t.Helper()
	var tree []gittest.TreeEntry
	for _, e := range entries {
		tree = append(tree, gittest.TreeEntry{Mode: e.mode, Name: e.name, ID: e.id})
	}
	id, err := s.WriteTree(tree...)
	require.NoError(t, err)
	return id
}

func rawBlob(t *testing.T, s *gittest.Server, content string) string {
	t.Helper()
	out, err := s.GitInput(strings.NewReader(content), "hash-object", "-w", "--stdin")
	require.NoError(t, err)
	return out
}

func rawCommit(t *testing.T, s *gittest.Server, tree string, parents ...string) string {
	t.Helper()
	args := []string{"-c", "user.name=x", "-c", "user.email=x", "commit-tree", "-m", "raw", tree}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	out, err := s.Git(args...)
	require.NoError(t, err)
	return out
}

// poisoned returns an estate with one sound tenant among hostile ones.
func poisoned(t *testing.T, s *gittest.Server) (commit string) {
	b := rawBlob(t, s, "data\n")
	sound := rawTree(t, s, rawEntry{"100644", "tenant.yaml", b})
	odd := rawTree(t, s,
		rawEntry{"100644", "\x01bell\a", b},
		rawEntry{"100644", "..", b},
		rawEntry{"100644", ".git", b},
		rawEntry{"100644", "A.yaml", b},
		rawEntry{"100644", "a.yaml", b},
		rawEntry{"100644", `back\slash`, b},
		rawEntry{"120000", "link", b},
		rawEntry{"100644", "new\nline.yaml", b},
		rawEntry{"100644", "projects/p/instances/forged.yaml", b},
		rawEntry{"100755", "run.sh", b},
		rawEntry{"160000", "sub", strings.Repeat("12", 20)},
		rawEntry{"100644", "tenant.yaml", b},
		rawEntry{"40000", "x/..", sound},
		rawEntry{"100644", "\xff\xfe", b},
	)
	double := rawTree(t, s, rawEntry{"100644", "tenant.yaml", b}, rawEntry{"100644", "tenant.yaml", rawBlob(t, s, "other\n")})
	bomb := rawTree(t, s) // contains no files at all
	for range 12 {
		var es []rawEntry
		for i := range 10 {
			es = append(es, rawEntry{"40000", fmt.Sprint(i), bomb})
		}
		bomb = rawTree(t, s, es...)
	}
	deep := sound
	for range 100 {
		deep = rawTree(t, s, rawEntry{"40000", "d", deep})
	}
	tenants := rawTree(t, s,
		rawEntry{"40000", "bomb", bomb},
		rawEntry{"40000", "deep", deep},
		rawEntry{"40000", "double", double},
		rawEntry{"40000", "new\nline", sound},
		rawEntry{"40000", "odd", odd},
		rawEntry{"40000", "physics", sound},
		rawEntry{"40000", "twin", sound},
		rawEntry{"40000", "twin", odd},
	)
	root := rawTree(t, s, rawEntry{"100644", "platform", b}, rawEntry{"40000", "tenants", tenants}, rawEntry{"120000", "zlink", b})
	return rawCommit(t, s, root, s.Tip("main"))
}

func TestHostileTenantDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	base := s.Tip("main")
	commit := poisoned(t, s)
	require.NoError(t, s.SetRef("refs/heads/main", commit))
	r := open(t, s)
	require.Equal(t, commit, fetch(t, r).Main)
	snap, err := r.Snapshot(t.Context(), commit)
	require.NoError(t, err)
	parts, err := snap.Parts(t.Context())
	require.NoError(t, err)
	got, failed := map[string][]string{}, map[string]string{}
	for _, p := range parts {
		files, err := snap.Files(t.Context(), p)
		if err != nil {
			require.Empty(t, files, "%s: an unreadable part returns no files", p.Name)
			failed[p.Name] = err.Error()
			continue
		}
		for _, f := range files {
			got[p.Name] = append(got[p.Name], fmt.Sprintf("%o %q", f.Mode, strings.TrimPrefix(f.Path, p.Name+"/")))
		}
	}
	require.Equal(t, map[string][]string{
		"platform":          {`100644 "platform"`},
		"zlink":             {`120000 "zlink"`},
		"tenants/new\nline": {`100644 "tenant.yaml"`},
		"tenants/physics":   {`100644 "tenant.yaml"`},
		"tenants/odd": {
			`100644 "\x01bell\a"`, `100644 ".."`, `100644 ".git"`, `100644 "A.yaml"`, `100644 "a.yaml"`, `100644 "back\\\\slash"`,
			`120000 "link"`, `100644 "new\nline.yaml"`, `100644 "projects\\x2fp\\x2finstances\\x2fforged.yaml"`, `100755 "run.sh"`,
			`160000 "sub"`, `100644 "tenant.yaml"`, `100644 "x\\x2f../tenant.yaml"`, `100644 "\xff\xfe"`,
		},
	}, got)
	require.Equal(t, []string{"tenants/bomb", "tenants/deep", "tenants/double", "tenants/twin"}, keys(failed))
	require.Contains(t, failed["tenants/twin"], "twice")
	require.Contains(t, failed["tenants/double"], "twice")

	changes, err := r.Diff(t.Context(), base, commit)
	require.NoError(t, err)
	byPath := map[string]reconciler.PathChange{}
	for _, c := range changes {
		byPath[c.Path] = c
	}
	require.NotEmpty(t, byPath["tenants/physics/tenant.yaml"].To)
	require.NotEmpty(t, byPath["tenants/biology/policy.yaml"].From)
	require.NotEmpty(t, byPath["tenants/bomb/9"].To, "beyond the budget a directory is one change")
	for _, twice := range []string{"tenants/twin", "tenants/double/tenant.yaml"} {
		_, err := r.Snapshot(t.Context(), byPath[twice].To)
		require.Error(t, err, "%s: a duplicate name has an id of no object", twice)
	}
}

func TestOversizedDiffIsOnePath(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	base := s.Tip("main")
	b := rawBlob(t, s, "data\n")
	bomb := rawTree(t, s, rawEntry{"100644", "f", b})
	for range 9 {
		var es []rawEntry
		for i := range 10 {
			es = append(es, rawEntry{"40000", fmt.Sprint(i), bomb})
		}
		bomb = rawTree(t, s, es...)
	}
	tenants := rawTree(t, s, rawEntry{"40000", "bomb", bomb}, rawEntry{"40000", "zoo", rawTree(t, s, rawEntry{"100644", "tenant.yaml", b})})
	commit := rawCommit(t, s, rawTree(t, s, rawEntry{"40000", "tenants", tenants}), base)
	require.NoError(t, s.SetRef("refs/heads/main", commit))
	r := open(t, s)
	fetch(t, r)
	changes, err := r.Diff(t.Context(), base, commit)
	require.NoError(t, err)
	require.Less(t, len(changes), 100_200)
	require.True(t, slices.Contains(paths(changes), "tenants/zoo/tenant.yaml"), "the other tenant's change is complete")
	require.True(t, slices.Contains(paths(changes), "tenants/physics/tenant.yaml"))

	// A reported change can be held: the whole hostile part stays out of force.
	replace := map[string]string{}
	for _, c := range changes {
		if strings.HasPrefix(c.Path, "tenants/bomb/") {
			replace[c.Path] = c.From
		}
	}
	tip, err := r.WriteInForce(t.Context(), "", reconciler.InForce{Commit: commit, Replace: replace})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"tenants/zoo/tenant.yaml": "data\n"}, contents(t, r, tip))
}

func TestOddPathsCanBeHeld(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	b := rawBlob(t, s, "data\n")
	odd := rawTree(t, s, rawEntry{"100644", `a\b`, b}, rawEntry{"100644", "new\nline", b}, rawEntry{"100644", "tenant.yaml", b},
		rawEntry{"100644", "x/y", b})
	commit := rawCommit(t, s, rawTree(t, s, rawEntry{"40000", "tenants", rawTree(t, s, rawEntry{"40000", "odd", odd})}), s.Tip("main"))
	require.NoError(t, s.SetRef("refs/heads/main", commit))
	r := open(t, s)
	fetch(t, r)
	require.Len(t, contents(t, r, commit), 4)
	replace := map[string]string{"tenants/odd/not-there": "", "tenants/odd/tenant.yaml/below-a-file": ""}
	for p := range contents(t, r, commit) {
		if !strings.HasSuffix(p, "tenant.yaml") {
			replace[p] = ""
		}
	}
	tip, err := r.WriteInForce(t.Context(), "", reconciler.InForce{Commit: commit, Replace: replace})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"tenants/odd/tenant.yaml": "data\n"}, contents(t, r, tip))

	_, err = r.WriteInForce(t.Context(), tip, reconciler.InForce{Commit: commit, Replace: map[string]string{"tenants/../x": b}})
	require.ErrorContains(t, err, "not a name")
	_, err = r.WriteInForce(t.Context(), tip, reconciler.InForce{Commit: commit, Replace: map[string]string{"x": strings.Repeat("ab", 20)}})
	require.Error(t, err, "a version in force that does not exist")
}

func TestDuplicateTenantsDirectoryIsRejected(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	a := rawTree(t, s, rawEntry{"100644", "x", rawBlob(t, s, "x")})
	commit := rawCommit(t, s, rawTree(t, s, rawEntry{"40000", "tenants", a}, rawEntry{"100644", "tenants", rawBlob(t, s, "y")}),
		s.Tip("main"))
	require.NoError(t, s.SetRef("refs/heads/main", commit))
	r := open(t, s)
	fetch(t, r)
	_, err := r.Snapshot(t.Context(), commit)
	require.ErrorContains(t, err, "twice")
}

func TestReadIsBounded(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, map[string]string{"platform/large": strings.Repeat("x", 3<<20), "platform/small": "12345"})
	r := open(t, s)
	snap, err := r.Snapshot(t.Context(), fetch(t, r).Main)
	require.NoError(t, err)
	parts, err := snap.Parts(t.Context())
	require.NoError(t, err)
	files, err := snap.Files(t.Context(), parts[0])
	require.NoError(t, err)
	data, more, err := snap.Read(t.Context(), files[0], 64<<10)
	require.NoError(t, err)
	require.True(t, more)
	require.Len(t, data, 64<<10)
	data, more, err = snap.Read(t.Context(), files[1], 5)
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, "12345", string(data))
	_, err = snap.Files(t.Context(), schema.Part{Name: "tenants/none", Dir: true})
	require.ErrorIs(t, err, reconciler.ErrNotFound)
}

// An unreadable part keeps its version in force while other tenants change. A new
// mirror accepts the result as made of main's files.
func TestUnreadablePartKeepsVersionInForce(t *testing.T) {
	t.Parallel()
	for name, poison := range map[string]func(s *gittest.Server, was, b string) []rawEntry{
		"a file twice": func(s *gittest.Server, _, b string) []rawEntry {
			return []rawEntry{{"40000", "physics",
				rawTree(t, s, rawEntry{"100644", "policy.yaml", b}, rawEntry{"100644", "policy.yaml", b})}}
		},
		"directory twice, first unchanged": func(s *gittest.Server, was, b string) []rawEntry {
			return []rawEntry{{"40000", "physics", was}, {"40000", "physics", rawTree(t, s, rawEntry{"100644", "x", b})}}
		},
		"directory twice, last unchanged": func(s *gittest.Server, was, b string) []rawEntry {
			return []rawEntry{{"40000", "physics", rawTree(t, s, rawEntry{"100644", "x", b})}, {"40000", "physics", was}}
		},
		"too deep": func(s *gittest.Server, was, _ string) []rawEntry {
			for range 100 {
				was = rawTree(t, s, rawEntry{"40000", "d", was})
			}
			return []rawEntry{{"40000", "physics", was}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := gittest.New(t, estateFiles())
			r := open(t, s)
			base := fetch(t, r).Main
			one, err := r.WriteInForce(t.Context(), "", reconciler.InForce{Commit: base})
			require.NoError(t, err)
			snap, err := r.Snapshot(t.Context(), one)
			require.NoError(t, err)
			parts, err := snap.Parts(t.Context())
			require.NoError(t, err)
			was := parts[slices.IndexFunc(parts, func(p schema.Part) bool { return p.Name == "tenants/physics" })].Hash

			b := rawBlob(t, s, "changed\n")
			biology := rawTree(t, s, rawEntry{"100644", "tenant.yaml", b})
			tenants := append([]rawEntry{{"40000", "biology", biology}}, poison(s, was, b)...)
			commit := rawCommit(t, s, rawTree(t, s, rawEntry{"40000", "tenants", rawTree(t, s, tenants...)}), base)
			require.NoError(t, s.SetRef("refs/heads/main", commit))
			require.Equal(t, commit, fetch(t, r).Main)
			now, err := r.Snapshot(t.Context(), commit)
			require.NoError(t, err)
			_, err = now.Files(t.Context(), schema.Part{Name: "tenants/physics"})
			require.Error(t, err)

			want := map[string]string{"tenants/biology/tenant.yaml": "changed\n"}
			for path, content := range estateFiles() {
				if strings.HasPrefix(path, "tenants/physics/") {
					want[path] = content
				}
			}
			kept := reconciler.InForce{Commit: commit, Replace: map[string]string{"tenants/physics": was}}
			two, err := r.WriteInForce(t.Context(), one, kept)
			require.NoError(t, err)
			require.Equal(t, want, contents(t, r, two))
			require.Equal(t, two, fetch(t, open(t, s)).InForce)

			// A tree that main never had there is refused.
			kept.Replace["tenants/physics"] = biology
			three, err := r.WriteInForce(t.Context(), two, kept)
			require.NoError(t, err)
			require.Equal(t, "changed\n", contents(t, r, three)["tenants/physics/tenant.yaml"])
			_, err = open(t, s).Fetch(t.Context())
			require.ErrorIs(t, err, reconciler.ErrRewritten)
		})
	}
}

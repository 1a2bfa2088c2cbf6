package gitrepo_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"berth/examples/explore"
	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/schema"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestMain sets the number of random cases of each property, and their seed.
func TestMain(m *testing.M) { os.Exit(explore.RunProperties(m, propertyCases, propertySeed())) }

// The results from raw trees equal those of git, for random changes to an estate.
func TestRandomChangesMatchGit(t *testing.T) {
	t.Parallel()
	randomChangesMatchGit(t)
}

func randomChangesMatchGit(t *testing.T) {
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	fetch(t, r)
	inForce := ""
	current := estateFiles()
	become := func(t require.TestingT, next map[string]string) string {
		c := gittest.Commit{Message: "change", Files: map[string]string{}}
		for p := range current {
			if _, ok := next[p]; !ok {
				c.Remove = append(c.Remove, p)
			}
		}
		for p, content := range next {
			if current[p] != content {
				c.Files[p] = content
			}
		}
		id, err := s.Commit("main", c)
		require.NoError(t, err)
		current = maps.Clone(next)
		return id
	}
	path := rapid.Custom(func(t *rapid.T) string {
		// Names that sort differently as files and as directories are edge cases of
		// Git's order.
		name := rapid.SampledFrom([]string{"a", "a-b", "a.b", "a0", "b", "tenants", "x"})
		return strings.Join(rapid.SliceOfN(name, 1, 4).Draw(t, "path"), "/")
	})
	rapid.Check(t, func(rt *rapid.T) {
		state := map[string]string{}
		edit := func(n int) {
			for range rapid.IntRange(0, n).Draw(rt, "changes") {
				if p := path.Draw(rt, "p"); rapid.IntRange(0, 3).Draw(rt, "remove") == 0 {
					remove(state, p)
				} else {
					put(state, p, rapid.SampledFrom([]string{"1", "2", "3"}).Draw(rt, "content"))
				}
			}
		}
		edit(12)
		before := become(rt, state)
		edit(6)
		after := become(rt, state)
		tips, err := r.Fetch(t.Context())
		require.NoError(rt, err)
		require.Equal(rt, after, tips.Main)

		got, err := tryContents(t.Context(), r, after)
		require.NoError(rt, err)
		require.Equal(rt, state, got)
		changes, err := r.Diff(t.Context(), before, after)
		require.NoError(rt, err)
		require.Equal(rt, gitDiff(rt, s, before, after), lines(changes))

		// Hold a random part of the change, and one more path.
		replace, want := map[string]string{}, maps.Clone(state)
		old := blobs(rt, s, before)
		for _, ch := range changes {
			if rapid.Bool().Draw(rt, "hold") {
				replace[ch.Path] = old[ch.Path]
			}
		}
		if !fits(replace, want) {
			return // a file and a directory of one name exclude each other
		}
		for p, blob := range replace {
			delete(want, p)
			if blob != "" {
				want[p], err = s.Git("cat-file", "blob", blob)
				require.NoError(rt, err)
			}
		}
		inForce, err = r.WriteInForce(t.Context(), inForce,
			reconciler.InForce{Commit: after, Replace: replace, Held: []schema.Held{{File: after}}})
		require.NoError(rt, err)
		files, err := s.Files(inForce)
		require.NoError(rt, err)
		require.Equal(rt, want, files)
		require.NoError(rt, s.Fsck())
	})
}

// put writes a file into a tree of paths and removes conflicting paths.
func put(files map[string]string, path, content string) {
	remove(files, path)
	for p := path; strings.Contains(p, "/"); {
		p = p[:strings.LastIndexByte(p, '/')]
		delete(files, p)
	}
	files[path] = content
}

func remove(files map[string]string, path string) {
	maps.DeleteFunc(files, func(p, _ string) bool { return p == path || strings.HasPrefix(p, path+"/") })
}

// fits reports whether the files restored by replace have no path conflict with
// each other or with a kept file.
func fits(replace, main map[string]string) bool {
	kept := maps.Clone(main)
	for p, blob := range replace {
		delete(kept, p)
		if blob != "" {
			kept[p] = blob
		}
	}
	for p := range kept {
		for q := p; strings.Contains(q, "/"); {
			q = q[:strings.LastIndexByte(q, '/')]
			if _, ok := kept[q]; ok {
				return false
			}
		}
	}
	return true
}

func blobs(t require.TestingT, s *gittest.Server, rev string) map[string]string {
	out, err := s.Git("ls-tree", "-r", "--format=%(objectname) %(path)", rev)
	require.NoError(t, err)
	m := map[string]string{}
	for line := range strings.Lines(out) {
		id, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		m[path] = id
	}
	return m
}

func gitDiff(t require.TestingT, s *gittest.Server, a, b string) []string {
	out, err := s.Git("diff-tree", "-r", "--no-renames", "--no-abbrev", "--raw", a, b)
	require.NoError(t, err)
	var got []string
	for line := range strings.Lines(out) {
		f := strings.Fields(line) // :mode mode id id X path
		got = append(got, fmt.Sprintf("%s %s %s", f[5], f[2], f[3]))
	}
	slices.Sort(got)
	return got
}

func lines(cs []reconciler.PathChange) []string {
	const none = "0000000000000000000000000000000000000000"
	var got []string
	for _, c := range cs {
		from, to := c.From, c.To
		if from == "" {
			from = none
		}
		if to == "" {
			to = none
		}
		got = append(got, fmt.Sprintf("%s %s %s", c.Path, from, to))
	}
	slices.Sort(got)
	return got
}

// The status branch equals a map after random batches. A new reader reads it from
// the start each time.
func TestRandomStatusBatchesMatchModel(t *testing.T) {
	t.Parallel()
	randomStatusBatchesMatchModel(t)
}

func randomStatusBatchesMatchModel(t *testing.T) {
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	main := fetch(t, r).Main
	model, tip, seq := plan.Memory{}, "", uint64(0)
	name := rapid.SampledFrom([]string{"a", "b", "c-1"})
	phase := rapid.SampledFrom([]plan.Phase{plan.PhaseRunning, plan.PhaseFailed, plan.PhaseStopped})
	rapid.Check(t, func(rt *rapid.T) {
		seq++
		b := reconciler.StatusBatch{Revision: reconciler.Revision{Commit: main, Sequence: seq, Epoch: 1}}
		touched := map[schema.Key]bool{}
		for range rapid.IntRange(0, 5).Draw(rt, "units") {
			u := unit(name.Draw(rt, "tenant"), name.Draw(rt, "project"), name.Draw(rt, "name"), phase.Draw(rt, "phase"))
			if touched[u.Key] {
				continue
			}
			touched[u.Key] = true
			if rapid.Bool().Draw(rt, "gone") {
				b.Gone = append(b.Gone, u.Key)
				model = model.Without(u.Key)
				continue
			}
			b.Units = append(b.Units, u)
			u.APIVersion, u.Kind = "berth/v1", "InstanceStatus"
			model = model.With(&u)
		}
		var err error
		tip, err = r.WriteStatus(t.Context(), tip, b)
		require.NoError(rt, err)
		require.Equal(rt, tip, s.Tip("berth/status"))
		for _, reader := range []func() (reconciler.StatusTree, error){
			func() (reconciler.StatusTree, error) { return r.ReadStatus(t.Context(), tip) },
			func() (reconciler.StatusTree, error) {
				fresh := open(t, s)
				defer fresh.Close() //nolint:errcheck // a test's
				if _, err := fresh.Fetch(t.Context()); err != nil {
					return reconciler.StatusTree{}, err
				}
				return fresh.ReadStatus(t.Context(), tip)
			},
		} {
			got, err := reader()
			require.NoError(rt, err)
			require.Equal(rt, b.Revision, got.Revision)
			require.Equal(rt, model, got.Units)
			require.Empty(rt, got.Warnings)
		}
	})
	require.NoError(t, s.Fsck())
}

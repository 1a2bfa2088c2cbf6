package gitrepo

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/gitrepo/object"
	"berth/reconciler/gitrepo/statusbranch"
	"berth/reconciler/plan"
	"berth/schema"
)

// statusHistory returns a server whose berth/status holds 1,000 statuses and has
// as many commits of one file each.
func statusHistory(b *testing.B, commits int) *gittest.Server {
	b.Helper()
	s := gittest.New(b, map[string]string{"tenants/t0/tenant.yaml": "x\n"})
	var in bytes.Buffer
	fmt.Fprint(&in, "feature done\n")
	for i := range commits {
		fmt.Fprintf(&in, "commit refs/heads/berth/status\ncommitter Berth <berth@localhost> %d +0000\ndata 2\nx\n", 1_700_000_000+i)
		files := []int{i % 1000}
		if i == 0 {
			files = files[:0]
			for f := range 1000 {
				files = append(files, f)
			}
		}
		for _, f := range files {
			content := fmt.Sprintf("apiVersion: berth/v1\nkind: InstanceStatus\nkey:\n  kind: Instance\n  tenant: t%d\n  project: p%d\n  "+
				"name: i%d\nphase: running\nattempt: %d\n", f%20, f%5, f, i)
			fmt.Fprintf(&in, "M 100644 inline tenants/t%d/projects/p%d/instances/i%d.yaml\ndata %d\n%s\n", f%20, f%5, f, len(content),
				content)
		}
	}
	fmt.Fprint(&in, "done\n")
	_, err := s.GitInput(&in, "fast-import", "--quiet")
	require.NoError(b, err)
	_, err = s.Git("repack", "-q", "-a", "-d")
	require.NoError(b, err)
	return s
}

// writer makes status commits of one file on a server.
type writer struct {
	repo *Repo
	tip  string
	n    int
}

func newWriter(b *testing.B, s *gittest.Server) *writer {
	b.Helper()
	r, err := Open(b.Context(), Options{URL: s.URL, Dir: b.TempDir()})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, r.Close()) })
	tips, err := r.Fetch(b.Context())
	require.NoError(b, err)
	w := &writer{repo: r, tip: tips.Status}
	w.write(b) // fills the cache, as at the start of a daemon
	return w
}

func (w *writer) write(b *testing.B) {
	w.n++
	u := plan.Status{Key: schema.InstanceKey("t7", "p2", "i7"), Phase: plan.PhaseRunning,
		LastApplied: plan.LastApplied{Attempt: 1_000_000 + w.n}}
	tip, err := w.repo.WriteStatus(b.Context(), w.tip, reconciler.StatusBatch{Units: []plan.Status{u}})
	require.NoError(b, err)
	require.NotEqual(b, w.tip, tip)
	w.tip = tip
}

// BenchmarkStatusCommit creates one status commit of one file and pushes it over
// HTTP, with a short and a long history.
func BenchmarkStatusCommit(b *testing.B) {
	for _, commits := range []int{shortHistory, longHistory} {
		b.Run(fmt.Sprintf("history=%d", commits), func(b *testing.B) {
			commit := byBerth(b, statusHistory(b, commits))
			for b.Loop() {
				commit()
			}
		})
	}
}

const (
	shortHistory = 300
	longHistory  = 10_000
)

// BenchmarkStatusCommitPeers makes the same commit with Berth, with git's own
// programs and with go-git's Push, in turn. It reports medians, because the speed
// of a machine varies.
func BenchmarkStatusCommitPeers(b *testing.B) {
	type series struct {
		name   string
		rounds int // of one b.Loop
		make   func(*testing.B, *gittest.Server) func()
		commit [2]func()
		spent  [2][]time.Duration
	}
	all := []*series{
		{name: "berth", rounds: 15, make: byBerth},
		{name: "git", rounds: 9, make: byGit},
		{name: "go-git", rounds: 1, make: byGoGit},
	}
	histories := []int{shortHistory, longHistory}
	for _, s := range all {
		for i, commits := range histories {
			s.commit[i] = s.make(b, statusHistory(b, commits))
			s.commit[i]() // warm-up
		}
	}
	for b.Loop() {
		for round := range 15 {
			for _, s := range all {
				for i := range histories {
					if round < s.rounds {
						start := time.Now()
						s.commit[i]()
						s.spent[i] = append(s.spent[i], time.Since(start))
					}
				}
			}
		}
	}
	for _, s := range all {
		for i, commits := range histories {
			b.ReportMetric(median(s.spent[i]), fmt.Sprintf("%s-%d-ms", s.name, commits))
		}
	}
}

// median returns the median of ds in milliseconds.
func median(ds []time.Duration) float64 {
	slices.Sort(ds)
	return float64(ds[len(ds)/2].Microseconds()) / 1000
}

func byBerth(b *testing.B, s *gittest.Server) func() {
	w := newWriter(b, s)
	return func() { w.write(b) }
}

func byGit(b *testing.B, s *gittest.Server) func() {
	clone := filepath.Join(b.TempDir(), "clone.git")
	runCLI(b, "", "clone", "-q", "--bare", s.URL, clone)
	n := 0
	return func() {
		n++
		content := fmt.Sprintf("attempt: %d\n", n)
		runCLI(b, fmt.Sprintf("commit refs/heads/berth/status\ncommitter Berth <berth@localhost> %d +0000\ndata 2\nx\nfrom "+
			"refs/heads/berth/status^0\nM 100644 inline tenants/t7/projects/p2/instances/i7.yaml\ndata %d\n%s\n",
			1_800_000_000+n, len(content), content), "-C", clone, "fast-import", "--quiet")
		runCLI(b, "", "-C", clone, "push", "-q", "origin", "berth/status")
	}
}

func byGoGit(b *testing.B, s *gittest.Server) func() {
	dir := b.TempDir()
	peer, err := git.PlainClone(filepath.Join(dir, "clone.git"), true,
		&git.CloneOptions{URL: s.URL, ReferenceName: "refs/heads/berth/status"})
	require.NoError(b, err)
	ref := plumbing.ReferenceName("refs/heads/berth/status")
	at, err := peer.Reference(ref, true)
	require.NoError(b, err)
	tip := at.Hash()
	view, err := OpenLocal(filepath.Join(dir, "clone.git")) // builds the trees
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, view.Close()) })
	n := 0
	return func() {
		n++
		root, err := view.Root(tip.String())
		require.NoError(b, err)
		var set object.Batch
		var over object.Overlay
		over.File("tenants/t7/projects/p2/instances/i7.yaml", set.Add(plumbing.BlobObject, fmt.Appendf(nil, "attempt: %d\n", n)))
		tree, err := view.ApplyOverlay(root, &over, &set)
		require.NoError(b, err)
		tip = set.Add(plumbing.CommitObject, object.EncodeCommit(tree, []plumbing.Hash{tip}, "Berth <berth@localhost>", time.Now(), "x"))
		for _, o := range set.List {
			e := peer.Storer.NewEncodedObject()
			e.SetType(o.Kind)
			w, err := e.Writer()
			require.NoError(b, err)
			_, err = w.Write(o.Data)
			require.NoError(b, err)
			require.NoError(b, w.Close())
			_, err = peer.Storer.SetEncodedObject(e)
			require.NoError(b, err)
		}
		require.NoError(b, peer.Storer.SetReference(plumbing.NewHashReference(ref, tip)))
		require.NoError(b, peer.PushContext(b.Context(), &git.PushOptions{RefSpecs: []config.RefSpec{config.RefSpec(ref + ":" + ref)}}))
	}
}

func runCLI(b *testing.B, stdin string, args ...string) {
	b.Helper()
	cmd := exec.CommandContext(context.Background(), "git", args...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	require.NoError(b, err, string(out))
}

// Many reads the blobs of a repository up to a limit, and no others.
func TestManyReadsUpToItsLimit(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, map[string]string{"a": "one", "b": "two", "c": "three"})
	r, err := OpenLocal(s.Dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	var ids []plumbing.Hash
	for _, name := range []string{"a", "b", "c"} {
		id, err := s.Git("rev-parse", "main:"+name)
		require.NoError(t, err)
		ids = append(ids, plumbing.NewHash(id))
	}
	missing := plumbing.NewHash(strings.Repeat("7", 40))
	want := map[plumbing.Hash][]byte{ids[0]: []byte("one"), ids[1]: []byte("two"), ids[2]: []byte("three")}
	printed := 0
	for _, text := range want {
		printed += len(fmt.Sprintf("%s blob %d\n%s\n", missing, len(text), text))
	}
	require.Equal(t, want, r.Many(t.Context(), ids, printed))
	require.Equal(t, want, r.Many(t.Context(), append([]plumbing.Hash{missing}, ids...), 1<<20))
	delete(want, ids[2])
	require.Equal(t, want, r.Many(t.Context(), ids, printed-1))
	require.Empty(t, r.Many(t.Context(), nil, 10))
}

// BenchmarkLongLog reads 20,000 events, each of a commit of its own, as berth events does. git prints their files in
// the same run.
func BenchmarkLongLog(b *testing.B) {
	s := gittest.New(b, map[string]string{"tenants/t0/tenant.yaml": "x\n"})
	const events = 20_000
	tip := gittest.LongLog(b, s, events)
	_, err := s.Git("repack", "-q", "-a", "-d")
	require.NoError(b, err)
	list, err := s.Git("rev-list", "--objects", "--no-object-names", "berth/status:events")
	require.NoError(b, err)
	r, err := OpenLocal(s.Dir)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, r.Close()) })
	var berth, git []time.Duration
	for b.Loop() {
		start, n := time.Now(), 0
		for _, err := range r.Events(b.Context(), tip, statusbranch.LogOrder{}) {
			require.NoError(b, err)
			n++
		}
		berth = append(berth, time.Since(start))
		require.Equal(b, events, n)
		start = time.Now()
		runCLI(b, list, "-C", s.Dir, "cat-file", "--batch")
		git = append(git, time.Since(start))
	}
	b.ReportMetric(median(berth), "berth-ms")
	b.ReportMetric(median(git), "git-ms")
	b.ReportMetric(median(berth)/median(git), "ratio")
}

// BenchmarkDiff compares two trees of 50,000 files with one difference. The trees
// are cached.
func BenchmarkDiff(b *testing.B) {
	files := map[string]string{}
	for i := range 50_000 {
		files[fmt.Sprintf("tenants/t%d/projects/p%d/instances/i%d.yaml", i%1000, i%2, i)] = fmt.Sprintf("instance %d\n", i)
	}
	s := gittest.New(b, files)
	first := s.Tip("main")
	second := s.MustCommit(b, "main",
		gittest.Commit{Message: "one", Files: map[string]string{"tenants/t7/projects/p1/instances/i7.yaml": "changed\n"}})
	r, err := Open(b.Context(), Options{URL: s.URL, Dir: b.TempDir()})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, r.Close()) })
	_, err = r.Fetch(b.Context())
	require.NoError(b, err)
	for b.Loop() {
		changes, err := r.Diff(b.Context(), first, second)
		require.NoError(b, err)
		require.Len(b, changes, 1)
	}
}

package gitrepo_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/schema"

	"github.com/stretchr/testify/require"
)

func TestFetchAndRead(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	tips := fetch(t, r)
	require.Equal(t, reconciler.Tips{Main: s.Tip("main")}, tips)
	require.Equal(t, estateFiles(), contents(t, r, tips.Main))

	snap, err := r.Snapshot(t.Context(), tips.Main)
	require.NoError(t, err)
	parts, err := snap.Parts(t.Context())
	require.NoError(t, err)
	var names []string
	for _, p := range parts {
		names = append(names, p.Name)
	}
	require.Equal(t, []string{"README.md", "platform", "tenants/biology", "tenants/physics"}, names)

	next := s.MustCommit(t, "main", gittest.Commit{Message: "More", Files: map[string]string{instancePath: "train v2\n"}})
	s.ResetRequests()
	require.Equal(t, next, fetch(t, r).Main)
	require.Equal(t, map[string]int{"GET git-upload-pack": 1, "POST git-upload-pack": 1}, s.Requests())
	s.ResetRequests()
	require.Equal(t, next, fetch(t, r).Main)
	require.Equal(t, map[string]int{"GET git-upload-pack": 1}, s.Requests(), "without new commits, only the refs are read")

	changes, err := r.Diff(t.Context(), tips.Main, next)
	require.NoError(t, err)
	require.Equal(t, []string{instancePath}, paths(changes))
	require.NotEqual(t, changes[0].From, changes[0].To)

	later, err := r.Snapshot(t.Context(), next)
	require.NoError(t, err)
	again, err := later.Parts(t.Context())
	require.NoError(t, err)
	require.Equal(t, parts[:3], again[:3], "unchanged parts keep their hash")
	require.NotEqual(t, parts[3].Hash, again[3].Hash)
}

func TestPullsMergeAndLog(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	base := s.Tip("main")
	head := s.MustCommit(t, "topic",
		gittest.Commit{Message: "Topic", Author: "Bo <bo@example.org>", Files: map[string]string{instancePath: "train v2\n"}})
	main := s.MustCommit(t, "main",
		gittest.Commit{Message: "Meanwhile\n\nlong", Files: map[string]string{"platform/nodes/gpu-2.yaml": "node gpu-2\n"}})
	require.NoError(t, s.SetPull(4, head))
	r := open(t, s)
	fetch(t, r)

	_, err := r.FetchPull(t.Context(), 5)
	require.ErrorIs(t, err, reconciler.ErrNotFound)
	_, err = r.Snapshot(t.Context(), head)
	require.ErrorIs(t, err, reconciler.ErrNotFound, "a head is fetched on demand only")
	got, err := r.FetchPull(t.Context(), 4)
	require.NoError(t, err)
	require.Equal(t, head, got)

	found, err := r.MergeBase(t.Context(), main, head)
	require.NoError(t, err)
	require.Equal(t, base, found)

	tree, conflicts, err := r.Merge(t.Context(), main, head)
	require.NoError(t, err)
	require.Empty(t, conflicts)
	want := estateFiles()
	want[instancePath], want["platform/nodes/gpu-2.yaml"] = "train v2\n", "node gpu-2\n"
	require.Equal(t, want, contents(t, r, tree))
	changes, err := r.Diff(t.Context(), main, tree)
	require.NoError(t, err)
	require.Equal(t, []string{instancePath}, paths(changes))

	clash := s.MustCommit(t, "main", gittest.Commit{Message: "Clash", Files: map[string]string{instancePath: "train v3\n"}})
	fetch(t, r)
	_, conflicts, err = r.Merge(t.Context(), clash, head)
	require.NoError(t, err)
	require.Equal(t, []string{instancePath}, conflicts)

	merged, err := s.Merge("topic2", head, "unused")
	require.Error(t, err, "the branch must not exist: %s", merged)
	merged, err = s.Merge("main", s.MustCommit(t, "other", gittest.Commit{Message: "Other", Files: map[string]string{"x": "y"}}),
		"Merge other")
	require.NoError(t, err)
	fetch(t, r)
	log, err := r.Log(t.Context(), base, merged, 10)
	require.NoError(t, err)
	var subjects []string
	for _, c := range log {
		subjects = append(subjects, c.Subject)
	}
	require.Equal(t, []string{"Merge other", "Clash", "Meanwhile"}, subjects, "first parents only, newest first")
	require.Len(t, log[0].Parents, 2)
	require.Equal(t, "ada@example.org", log[1].Email)
	log, err = r.Log(t.Context(), "", merged, 2)
	require.NoError(t, err)
	require.Len(t, log, 2)

	for _, bad := range []string{"--help", "HEAD", "abc", "", head + "^"} {
		_, _, err = r.Merge(t.Context(), main, bad)
		require.Error(t, err, bad)
		_, err = r.Log(t.Context(), bad+"x", main, 1)
		require.Error(t, err, bad)
	}
}

// A log has the commits that git lists, whatever merges lie between its ends.
func TestLogIsThatOfGit(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles(), gittest.InProcess)
	commits := []string{"", s.Tip("main")}
	add := func(branch string, c gittest.Commit) string {
		c.Message = "On " + branch
		c.Files = map[string]string{instancePath: strings.Repeat("x", len(commits))}
		commits = append(commits, s.MustCommit(t, branch, c))
		return commits[len(commits)-1]
	}
	second := add("main", gittest.Commit{})
	topic := add("topic", gittest.Commit{Parent: commits[1]})
	add("main", gittest.Commit{Parent: second, Merge: topic})
	add("topic", gittest.Commit{Merge: second})
	add("main", gittest.Commit{Merge: s.Tip("topic")})
	last := add("main", gittest.Commit{})
	r := open(t, s)
	require.Equal(t, last, fetch(t, r).Main)
	for _, to := range commits[1:] {
		for _, from := range commits {
			for _, limit := range []int{0, 1, 2, 3, 10} {
				args := []string{"rev-list", "--first-parent", fmt.Sprintf("--max-count=%d", limit), to}
				if from != "" {
					args = append(args, "^"+from)
				}
				want, err := s.Git(args...)
				require.NoError(t, err)
				log, err := r.Log(t.Context(), from, to, limit)
				require.NoError(t, err)
				var ids []string
				for _, c := range log {
					ids = append(ids, c.ID)
				}
				require.Equal(t, strings.Fields(want), append([]string{}, ids...), "%d of %s..%s", limit, from, to)
			}
		}
	}
}

func TestStatusRoundTrip(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	main := fetch(t, r).Main

	empty, err := r.ReadStatus(t.Context(), "")
	require.NoError(t, err)
	require.Zero(t, empty.Units.Len())

	train := unit("physics", "lhc", "train", plan.PhaseRunning)
	train.RuntimeState = []byte(`{"cluster":"c1"}`)
	one, err := r.WriteStatus(t.Context(), "", batch(1, main, train, unit("biology", "cells", "fold", plan.PhaseFailed)))
	require.NoError(t, err)
	require.Equal(t, one, s.Tip("berth/status"))
	files, err := s.Files(one)
	require.NoError(t, err)
	require.Equal(t, []string{
		"README.md", "events/2026/08/01/10/000000000001-3.jsonl", "revision.yaml",
		"tenants/biology/projects/cells/instances/fold.yaml", "tenants/physics/projects/lhc/instances/train.yaml",
	}, keys(files))
	require.Contains(t, files["README.md"], "| … failed | 1 |")
	require.Contains(t, files["README.md"], "tenants/biology/projects/cells/instances/fold.yaml")
	message, err := s.Git("log", "-1", "--format=%B", one)
	require.NoError(t, err)
	require.Contains(t, message, "Config-Commit: "+main+"\nCorrelation-Id: corr-1\nEpoch: 3")

	s.ResetRequests()
	two, err := r.WriteStatus(t.Context(), one, batch(2, main, unit("physics", "lhc", "train", plan.PhaseStopped)))
	require.NoError(t, err)
	require.Equal(t, map[string]int{"POST git-receive-pack": 1}, s.Requests(), "one request per write")
	changed, err := s.Git("diff", "--name-only", one, two)
	require.NoError(t, err)
	require.Equal(t, "README.md\nevents/2026/08/01/10/000000000002-3.jsonl\nrevision.yaml\n"+instancePath, changed)

	got, err := r.ReadStatus(t.Context(), two)
	require.NoError(t, err)
	require.Equal(t, uint64(2), got.Revision.Sequence)
	require.Equal(t, plan.PhaseStopped, got.Units.Get(train.Key).Phase)

	fresh := open(t, s)
	tips := fetch(t, fresh)
	require.Equal(t, two, tips.Status)
	reread, err := fresh.ReadStatus(t.Context(), two)
	require.NoError(t, err)
	require.Equal(t, got, reread, "a restart reads the written status")

	gone := batch(3, main)
	gone.Gone = []schema.Key{train.Key}
	three, err := fresh.WriteStatus(t.Context(), two, gone)
	require.NoError(t, err)
	got, err = fresh.ReadStatus(t.Context(), three)
	require.NoError(t, err)
	require.Nil(t, got.Units.Get(train.Key))

	tips = fetch(t, r)
	require.Equal(t, three, tips.Status)
	got, err = r.ReadStatus(t.Context(), three)
	require.NoError(t, err)
	require.Equal(t, 1, got.Units.Len())
	require.NoError(t, s.Fsck())
}

func TestInForce(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	first := fetch(t, r).Main
	one, err := r.WriteInForce(t.Context(), "", reconciler.InForce{Commit: first, CorrelationID: "c-1", Epoch: 1})
	require.NoError(t, err)
	require.Equal(t, estateFiles(), contents(t, r, one))

	bad := s.MustCommit(t, "main",
		gittest.Commit{Message: "Broken",
			Files: map[string]string{instancePath: "broken\n", "tenants/new/tenant.yaml": "broken too\n",
				"platform/nodes/gpu-2.yaml": "fine\n"}})
	require.Equal(t, bad, fetch(t, r).Main)
	was, err := r.Diff(t.Context(), bad, first)
	require.NoError(t, err)
	replace := map[string]string{}
	for _, c := range was {
		if c.Path != "platform/nodes/gpu-2.yaml" {
			replace[c.Path] = c.To
		}
	}
	write := reconciler.InForce{Commit: bad, Replace: replace, Epoch: 1,
		Held: []schema.Held{{File: instancePath, Reason: "invalid", Message: "no\nsense"}}}
	s.ResetRequests()
	two, err := r.WriteInForce(t.Context(), one, write)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"POST git-receive-pack": 1}, s.Requests())
	want := estateFiles()
	want["platform/nodes/gpu-2.yaml"] = "fine\n"
	require.Equal(t, want, contents(t, r, two))
	held, err := s.Git("diff", "--name-only", two, "main")
	require.NoError(t, err)
	require.Equal(t, "tenants/new/tenant.yaml\n"+instancePath, held, "the diff to main is the held changes")
	message, err := s.Git("log", "-1", "--format=%B%P", two)
	require.NoError(t, err)
	require.Equal(t, "In force: main without 1 held\n\n- "+instancePath+" (invalid): no sense\n\nConfig-Commit: "+bad+"\nEpoch: 1\n"+one+
		" "+bad, message)

	same, err := r.WriteInForce(t.Context(), two, write)
	require.NoError(t, err)
	require.Equal(t, two, same, "an unchanged estate needs no commit")
	require.NoError(t, s.Fsck())

	require.Equal(t, two, fetch(t, open(t, s)).InForce, "a new mirror accepts it as made of main's files")
}

func TestOpenLocal(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	first := s.Tip("main")
	head := s.MustCommit(t, "topic", gittest.Commit{Message: "Topic", Files: map[string]string{instancePath: "train v2\n"}})
	second := s.MustCommit(t, "main", gittest.Commit{Message: "Second", Files: map[string]string{"platform/nodes/gpu-2.yaml": "x\n"}})
	clone := filepath.Join(t.TempDir(), "clone")
	_, err := s.Git("clone", "-q", "--shared", s.Dir, clone)
	require.NoError(t, err)
	tree := filepath.Join(t.TempDir(), "more")
	_, err = s.Git("-C", clone, "worktree", "add", "-q", "-b", "additional", tree)
	require.NoError(t, err)

	for name, dir := range map[string]string{"bare": s.Dir, "shared clone": clone, "below": filepath.Join(clone, "platform"),
		"work tree": tree, "url": "file://" + s.Dir} {
		t.Run(name, func(t *testing.T) {
			r, err := gitrepo.OpenLocal(dir)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, r.Close()) })
			require.Equal(t, second, fetch(t, r).Main)
			for rev, want := range map[string]string{"HEAD": second, "HEAD~1": first, "main": second, second[:9]: second, head: head} {
				got, err := r.Resolve(t.Context(), rev)
				require.NoError(t, err, rev)
				require.Equal(t, want, got, rev)
			}
			for _, bad := range []string{"", "--output=/tmp/x", "-n", "nowhere", "a b", "x\ny"} {
				_, err := r.Resolve(t.Context(), bad)
				require.Error(t, err, bad)
			}
			require.Equal(t, estateFiles(), contents(t, r, first))
			before := countFiles(t, clone) + countFiles(t, s.Dir)
			merged, conflicts, err := r.Merge(t.Context(), second, head)
			require.NoError(t, err)
			require.Empty(t, conflicts)
			require.Equal(t, "train v2\n", contents(t, r, merged)[instancePath])
			require.Equal(t, before, countFiles(t, clone)+countFiles(t, s.Dir), "reading leaves no files behind")
			_, status := any(r).(interface {
				WriteStatus(context.Context, string, reconciler.StatusBatch) (string, error)
			})
			_, inForce := any(r).(interface {
				WriteInForce(context.Context, string, reconciler.InForce) (string, error)
			})
			require.False(t, status || inForce, "a local repository is never written to")
		})
	}
	_, err = gitrepo.OpenLocal(t.TempDir())
	require.Error(t, err)
}

func countFiles(t *testing.T, dir string) int {
	n := 0
	require.NoError(t, filepath.WalkDir(dir, func(string, os.DirEntry, error) error { n++; return nil }))
	return n
}

// Commits with the same tree share one snapshot; a commit that the mirror lacks is still reported as missing.
func TestSnapshotsAreThoseOfTrees(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	first := fetch(t, r).Main
	s.MustCommit(t, "main", gittest.Commit{Message: "Change", Files: map[string]string{instancePath: "train v2\n"}})
	s.MustCommit(t, "main", gittest.Commit{Message: "Undo", Files: map[string]string{instancePath: estateFiles()[instancePath]}})
	undone := fetch(t, r).Main
	require.NotEqual(t, first, undone)
	was, err := r.Snapshot(t.Context(), first)
	require.NoError(t, err)
	is, err := r.Snapshot(t.Context(), undone)
	require.NoError(t, err)
	require.Same(t, was, is)
	_, err = r.Snapshot(t.Context(), strings.Repeat("a", 40))
	require.ErrorIs(t, err, reconciler.ErrNotFound)
}

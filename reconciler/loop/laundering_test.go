package loop_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/schema"
)

// A merge whose first parent is not main is compared with main as a whole. It does not
// undo changes made on main since the branch was created.
func TestMergeOfAnotherHistoryUndoesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := newSigner(t, w)
	base := w.git.Tip("main")
	w.start(governed(root))
	w.eventually("adopted", func() bool { return len(w.audited()) == 1 })
	path, text := instance("train", 1)
	root.push("train\n\nBreak-Glass: nobody else is there", map[string]string{path: text})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	main := w.git.Tip("main")

	other, more := instance("other", 1)
	first := w.git.MustCommit(t, "eve",
		gittest.Commit{Parent: base, Message: "mine", Files: map[string]string{"NOTES.md": "x\n", other: more}})
	tree, err := w.git.Git("merge-tree", "--write-tree", first, main)
	require.NoError(t, err)
	merged, err := w.git.Git("-c", "user.name=E", "-c", "user.email=e@example.org", "commit-tree", "-p", first, "-p", main, "-m",
		"Merge main", tree)
	require.NoError(t, err)
	require.NoError(t, w.git.SetRef("refs/heads/main", merged))
	w.eventually("decided", func() bool { return w.revision().Commit == merged })
	require.Equal(t, map[string]schema.HeldReason{other: schema.HeldUnauthorised}, w.heldReasons())
	require.Zero(t, w.world.Calls("delete"))
	for _, r := range w.audited() {
		require.NotEqual(t, "document.deleted", r.Action)
	}
}

// A forged decision in the status branch grants no permission.
func TestForgedStatusGrantsNoPermission(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := newSigner(t, w)
	d := w.start(governed(root))
	w.eventually("adopted", func() bool { return len(w.audited()) == 1 })
	require.NoError(t, d.stop())
	before := w.git.Tip("main")
	path, text := instance("train", 1)
	w.put(map[string]string{path: text}) // unsigned
	rev, err := w.git.Read(reconciler.BranchStatus, "revision.yaml")
	require.NoError(t, err)
	forged := strings.Replace(rev, "commit: "+before, "commit: "+w.git.Tip("main"), 1)
	require.NotEqual(t, rev, forged)
	w.git.MustCommit(t, reconciler.BranchStatus, gittest.Commit{Message: "forged", Files: map[string]string{"revision.yaml": forged}})
	w.start(governed(root))
	w.eventually("held", func() bool { return w.heldReasons()[path] == schema.HeldUnauthorised })
	w.put(map[string]string{"README.md": "x\n"})
	w.eventually("decided", func() bool { return w.revision().Commit == w.git.Tip("main") })
	require.Equal(t, map[string]schema.HeldReason{path: schema.HeldUnauthorised}, w.heldReasons())
	require.Nil(t, w.status("train"))
}

// A decision made just before a crash is audited once, also when more commits arrived
// meanwhile.
func TestAuditHasEveryDecision(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := newSigner(t, w)
	d := w.start(governed(root))
	w.eventually("adopted", func() bool { return len(w.audited()) == 1 })
	status := w.git.Tip(reconciler.BranchStatus)
	path, text := instance("train", 1)
	root.push("train\n\nBreak-Glass: nobody else is there", map[string]string{path: text})
	w.eventually("decided", func() bool { return w.revision().Commit == w.git.Tip("main") })
	require.NoError(t, d.stop())
	require.NoError(t, w.git.SetRef("refs/heads/"+reconciler.BranchStatus, status)) // simulates the lost status write
	other, more := instance("other", 1)
	root.push("other\n\nBreak-Glass: nobody else is there", map[string]string{other: more})
	w.start(governed(root), func(o *loop.Options) { o.Settings.AuthorLag = 300 * time.Millisecond })
	w.eventually("decided", func() bool { return w.revision().Commit == w.git.Tip("main") })
	added := map[string]int{}
	w.eventually("audited", func() bool {
		clear(added)
		for _, r := range w.audited() {
			if r.Action == "document.added" {
				require.Equal(t, "root", r.Actor)
				require.True(t, r.BreakGlass)
				added[r.File]++
			}
		}
		return len(added) == 2
	})
	require.Equal(t, map[string]int{path: 1, other: 1}, added)
}

// The author of a later commit does not authorize the content of such a merge below
// it, even when one decision covers both.
func TestCommitDoesNotAuthorizeItsAncestors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := newSigner(t, w)
	base := w.git.Tip("main")
	d := w.start(governed(root))
	w.eventually("adopted", func() bool { return len(w.audited()) == 1 })
	require.NoError(t, d.stop())
	const eve = "platform/roles/eve.yaml"
	w.put(map[string]string{eve: strings.Replace(roleBinding("    - {login: eve, role: platform_superadmin}\n"), "name: roles", "name: eve",
		1)})
	pushed := w.git.Tip("main")
	other, more := instance("other", 1)
	first := w.git.MustCommit(t, "eve", gittest.Commit{Parent: base, Message: "mine", Files: map[string]string{other: more}})
	tree, err := w.git.Git("merge-tree", "--write-tree", first, pushed)
	require.NoError(t, err)
	merged, err := w.git.Git("-c", "user.name=E", "-c", "user.email=e@example.org", "commit-tree", "-p", first, "-p", pushed, "-m",
		"Merge main", tree)
	require.NoError(t, err)
	require.NoError(t, w.git.SetRef("refs/heads/main", merged))
	path, text := instance("train", 1)
	root.push("train\n\nBreak-Glass: nobody else is there", map[string]string{path: text})

	d = w.start(governed(root))
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	held := map[string]schema.HeldReason{eve: schema.HeldUnauthorised, other: schema.HeldUnauthorised}
	require.Equal(t, held, w.heldReasons())
	require.NoError(t, d.stop())
	w.start(governed(root))
	w.put(map[string]string{"README.md": "x\n"})
	w.eventually("decided", func() bool { return w.revision().Commit == w.git.Tip("main") })
	require.Equal(t, held, w.heldReasons())
	seen := map[string]int{}
	for _, r := range w.audited() {
		if strings.HasPrefix(r.Action, "document.") {
			seen[r.File]++
		}
	}
	for file, n := range seen {
		require.Equal(t, 1, n, file)
	}
	require.Len(t, seen, 3)
}

// A signature on a merge that updates a branch does not cover the commits on that
// branch. Pushed to main, these commits are unsigned.
func TestSignedMergeAuthorizesOnlyItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := newSigner(t, w)
	base := w.git.Tip("main")
	w.start(governed(root))
	w.eventually("adopted", func() bool { return len(w.audited()) == 1 })
	root.push("notes", map[string]string{"NOTES.md": "x\n"})
	const eve = "platform/roles/eve.yaml"
	w.git.MustCommit(t, "eve", gittest.Commit{Parent: base, Message: "mine", Files: map[string]string{
		eve: strings.Replace(roleBinding("    - {login: eve, role: platform_superadmin}\n"), "name: roles", "name: eve", 1),
	}})
	root.run(root.dir, "git", "fetch", "-q")
	root.run(root.dir, "git", "checkout", "-q", "-B", "eve", "origin/eve")
	root.run(root.dir, "git", "-c", "gpg.format=ssh", "-c", "user.signingkey="+root.key, "merge", "-q", "-S", "-m", "Merge main",
		"origin/main")
	root.run(root.dir, "git", "push", "-q", "origin", "eve:main")
	w.eventually("held", func() bool { return w.heldReasons()[eve] == schema.HeldUnauthorised })
}

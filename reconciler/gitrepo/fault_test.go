package gitrepo_test

import (
	"context"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
)

func TestOnlyOneOfConcurrentWritersSucceeds(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	const writers, rounds = 3, 6
	repos := make([]*gitrepo.Repo, writers)
	for i := range repos {
		repos[i] = open(t, s)
		fetch(t, repos[i])
	}
	main, tip := s.Tip("main"), ""
	for round := range rounds {
		var wg sync.WaitGroup
		errs := make([]error, writers)
		tips := make([]string, writers)
		for i, r := range repos {
			wg.Go(func() {
				b := batch(uint64(round+1), main, unit("physics", "lhc", "train", plan.PhaseRunning))
				b.Revision.Epoch = uint64(i + 1)
				tips[i], errs[i] = r.WriteStatus(t.Context(), tip, b)
			})
		}
		wg.Wait()
		var won []string
		for i, err := range errs {
			if err == nil {
				won = append(won, tips[i])
				continue
			}
			require.ErrorIs(t, err, reconciler.ErrConflict)
		}
		require.Len(t, won, 1, "round %d", round)
		tip = won[0]
		for _, r := range repos {
			require.Equal(t, tip, fetch(t, r).Status)
		}
	}
	count, err := s.Git("rev-list", "--count", "berth/status")
	require.NoError(t, err)
	require.Equal(t, "6", count, "each write is made exactly once")
	require.NoError(t, s.Fsck())
}

func TestUnchangedStatusMakesNoCommit(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	main := fetch(t, r).Main
	b := batch(1, main, unit("physics", "lhc", "train", plan.PhaseRunning))
	tip, err := r.WriteStatus(t.Context(), "", b)
	require.NoError(t, err)
	s.ResetRequests()
	again, err := r.WriteStatus(t.Context(), tip, b)
	require.NoError(t, err)
	require.Equal(t, tip, again)
	b.Events, b.CorrelationIDs = nil, []string{"another"}
	again, err = r.WriteStatus(t.Context(), tip, b)
	require.NoError(t, err)
	require.Equal(t, tip, again)
	require.Empty(t, s.Requests(), "an unchanged status sends no request")

	b.Events = []plan.Event{{EventID: "other"}}
	_, err = r.WriteStatus(t.Context(), tip, b)
	require.NoError(t, err, "a segment of another hour is another file")
	b = batch(1, main)
	b.Events[0].EventID = "forged"
	_, err = r.WriteStatus(t.Context(), tip, b)
	require.ErrorIs(t, err, reconciler.ErrConflict, "a segment never changes")
}

func TestPushWithLostResponse(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	main := fetch(t, r).Main
	one, err := r.WriteStatus(t.Context(), "", batch(1, main, unit("physics", "lhc", "train", plan.PhaseDeploying)))
	require.NoError(t, err)

	s.SetFaults(gittest.Faults{DropReplies: 1})
	two, err := r.WriteStatus(t.Context(), one, batch(2, main, unit("physics", "lhc", "train", plan.PhaseRunning)))
	require.NoError(t, err, "the remote has the commit")
	require.Equal(t, two, s.Tip("berth/status"))

	// If the response is lost and the remote is down, the caller gets an error. It
	// fetches later and writes the same batch on the new tip.
	ctx, cancel := context.WithCancel(t.Context())
	b := batch(3, main, unit("physics", "lhc", "train", plan.PhaseStopped))
	s.SetFaults(gittest.Faults{DropReplies: 1})
	written := make(chan error, 1)
	go func() {
		_, err := r.WriteStatus(ctx, two, b)
		written <- err
	}()
	await.True(t, "the push at the remote", func() bool { return s.Tip("berth/status") != two }, func() any { return s.Requests() })
	cancel()
	if err := await.Receive(t, "the end of the write", written, func() any { return s.Requests() }); err == nil {
		t.Log("the remote was asked before the caller gave up; the same holds")
	}
	three := fetch(t, r).Status
	require.Equal(t, three, s.Tip("berth/status"))
	require.NotEqual(t, two, three)
	again, err := r.WriteStatus(t.Context(), three, b)
	require.NoError(t, err)
	require.Equal(t, three, again, "writing the same batch again makes no second commit")
	count, err := s.Git("rev-list", "--count", "berth/status")
	require.NoError(t, err)
	require.Equal(t, "3", count)
}

// A push succeeded only if the answer names its branch: a cache or a proxy may send the
// answer to another push.
func TestPushWithTheAnswerToAnotherPush(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	for _, answer := range []string{"000eunpack ok\n0021ok refs/heads/berth/in-force\n0000", "000eunpack ok\n0000"} {
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/git-receive-pack") {
				w.Header().Set("Content-Type", "application/x-git-receive-pack-result")
				_, _ = io.WriteString(w, answer)
				return
			}
			s.ServeHTTP(w, r)
		}))
		r := open(t, s, func(o *gitrepo.Options) { o.URL = proxy.URL + "/" + gittest.RepoName })
		_, err := r.WriteStatus(t.Context(), "", batch(1, fetch(t, r).Main, unit("physics", "lhc", "train", plan.PhaseDeploying)))
		require.ErrorContains(t, err, "does not name refs/heads/berth/status")
		require.Empty(t, s.Tip("berth/status"))
		proxy.Close()
	}
}

func TestRemoteDownAndBack(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	dir := t.TempDir()
	reopen := func(timeout time.Duration) *gitrepo.Repo {
		return open(t, s, func(o *gitrepo.Options) { o.Dir, o.Timeout = dir, timeout })
	}
	r := reopen(await.Limit)
	main := fetch(t, r).Main
	tip, err := r.WriteStatus(t.Context(), "", batch(1, main))
	require.NoError(t, err)

	for name, f := range map[string]gittest.Faults{"down": {Down: true}, "hang": {Hang: true}, "unauthorized": {Unauthorized: true}} {
		s.SetFaults(f)
		timeout := await.Limit
		if f.Hang {
			timeout = 50 * time.Millisecond // each call waits for it
		}
		require.NoError(t, r.Close())
		r = reopen(timeout)
		tips, err := r.Fetch(t.Context())
		require.Error(t, err, name)
		require.NotErrorIs(t, err, reconciler.ErrRewritten, name)
		require.Equal(t, reconciler.Tips{Main: main, Status: tip}, tips, "%s: the known tips are kept", name)
		_, err = r.WriteStatus(t.Context(), tip, batch(2, main))
		require.Error(t, err, name)
		require.NotErrorIs(t, err, reconciler.ErrConflict, name)
		_, err = r.FetchPull(t.Context(), 1)
		require.Error(t, err, name)
		require.NotErrorIs(t, err, reconciler.ErrNotFound, name)
		require.Equal(t, estateFiles(), contents(t, r, main), "%s: reading needs no remote", name)
	}
	s.SetFaults(gittest.Faults{})
	require.NoError(t, r.Close())
	r = reopen(await.Limit)
	require.Equal(t, main, fetch(t, r).Main)
	_, err = r.WriteStatus(t.Context(), tip, batch(2, main))
	require.NoError(t, err)
}

func TestOpenWhileRemoteIsDown(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	s.SetFaults(gittest.Faults{Down: true})
	r := open(t, s)
	tips, err := r.Fetch(t.Context())
	require.Error(t, err)
	require.Zero(t, tips)
	s.SetFaults(gittest.Faults{})
	require.Equal(t, s.Tip("main"), fetch(t, r).Main)
}

func TestTokenIsReadForEachCallAndHidden(t *testing.T) {
	t.Parallel()
	s, err := gittest.Start(gittest.Options{Dir: t.TempDir(), Token: "canary-right", Files: estateFiles()})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	token := "canary-wrong"
	r := open(t, s, func(o *gitrepo.Options) {
		o.Auth = func(context.Context) (gitrepo.Credentials, error) { return gitrepo.Credentials{Token: token}, nil }
	})
	_, err = r.Fetch(t.Context())
	require.Error(t, err)
	require.NotContains(t, err.Error(), "canary")
	require.NotContains(t, gitrepo.Credentials{Token: token}.String(), "canary")
	token = "canary-right"
	main := fetch(t, r).Main
	_, err = r.WriteStatus(t.Context(), "", batch(1, main))
	require.NoError(t, err)
}

func TestInvalidURLsAreRejected(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "/srv/estate.git", "file://host/srv/estate.git", "file:srv/estate.git", "file:///srv/estate.git?x",
		"git://host/x", "https://user:canary@host/x", "https://canary@host/x", "http://git.example.org/x", "--upload-pack=x",
		"ext::sh -c x"} {
		_, err := gitrepo.Open(t.Context(), gitrepo.Options{URL: bad, Dir: t.TempDir()})
		require.Error(t, err, bad)
		require.NotContains(t, err.Error(), "canary")
	}
	for _, branch := range []string{"berth", "berth/in-force", "-x", "a..b"} {
		_, err := gitrepo.Open(t.Context(), gitrepo.Options{URL: "https://host/x", Dir: t.TempDir(), Branch: branch})
		require.Error(t, err, branch)
	}
	for _, good := range []string{"https://git.example.org/x.git", "ssh://git@git.example.org/x.git", "http://[::1]:99/x",
		"file:///srv/estate.git"} {
		r, err := gitrepo.Open(t.Context(), gitrepo.Options{URL: good, Dir: t.TempDir()})
		require.NoError(t, err, good)
		require.NoError(t, r.Close())
	}
}

func TestMirrorIsLockedByOneProcess(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	dir := t.TempDir()
	r, err := gitrepo.Open(t.Context(), gitrepo.Options{URL: s.URL, Dir: dir})
	require.NoError(t, err)
	_, err = gitrepo.Open(t.Context(), gitrepo.Options{URL: s.URL, Dir: dir})
	require.ErrorContains(t, err, "in use")
	require.NoError(t, r.Close())
	r, err = gitrepo.Open(t.Context(), gitrepo.Options{URL: s.URL, Dir: dir})
	require.NoError(t, err)
	require.NoError(t, r.Close())
}

func TestMissingAndDeletedBranch(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, nil)
	r := open(t, s)
	tips, err := r.Fetch(t.Context())
	require.ErrorIs(t, err, reconciler.ErrNotFound)
	require.Zero(t, tips)

	main := s.MustCommit(t, "main", gittest.Commit{Message: "First", Files: estateFiles()})
	require.Equal(t, main, fetch(t, r).Main)
	s.MustCommit(t, "other", gittest.Commit{Message: "Other", Files: map[string]string{"x": "y"}})
	require.NoError(t, s.SetRef("refs/heads/main", ""))
	tips, err = r.Fetch(t.Context())
	require.ErrorIs(t, err, reconciler.ErrNotFound)
	require.Equal(t, main, tips.Main, "the old tip is kept")
}

func TestEmptyTree(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	before := s.Tip("main")
	empty := s.MustCommit(t, "main", gittest.Commit{Message: "Everything gone", Remove: []string{"README.md", "platform", "tenants"}})
	r := open(t, s)
	require.Equal(t, empty, fetch(t, r).Main)
	require.Empty(t, contents(t, r, empty))
	changes, err := r.Diff(t.Context(), before, empty)
	require.NoError(t, err)
	require.Equal(t, keys(estateFiles()), paths(changes))
	changes, err = r.Diff(t.Context(), "", empty)
	require.NoError(t, err)
	require.Empty(t, changes)

	// The estate stays in force although main is empty, and the reverse.
	replace := map[string]string{}
	back, err := r.Diff(t.Context(), empty, before)
	require.NoError(t, err)
	for _, c := range back {
		replace[c.Path] = c.To
	}
	one, err := r.WriteInForce(t.Context(), "", reconciler.InForce{Commit: empty, Replace: replace})
	require.NoError(t, err)
	require.Equal(t, estateFiles(), contents(t, r, one))
	two, err := r.WriteInForce(t.Context(), one, reconciler.InForce{Commit: empty})
	require.NoError(t, err)
	require.Empty(t, contents(t, r, two))
	require.NoError(t, s.Fsck())
}

func TestForcePushIsRefused(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	root := s.Tip("main")
	main := s.MustCommit(t, "main", gittest.Commit{Message: "Second", Files: map[string]string{"platform/x": "y"}})
	r := open(t, s)
	require.Equal(t, main, fetch(t, r).Main)
	inForce, err := r.WriteInForce(t.Context(), "", reconciler.InForce{Commit: main})
	require.NoError(t, err)

	forged := s.MustCommit(t, "main", gittest.Commit{Message: "Rewritten", Parent: root, Files: map[string]string{"platform/x": "z"}})
	for range 2 {
		s.ResetRequests()
		tips, err := r.Fetch(t.Context())
		require.ErrorIs(t, err, reconciler.ErrRewritten)
		require.Equal(t, reconciler.Tips{Main: main, InForce: inForce}, tips)
	}
	require.Equal(t, map[string]int{"GET git-upload-pack": 1}, s.Requests(), "a refused branch is not downloaded again")

	// Without a known main in the mirror, in-force names it and is kept. This holds
	// after a restart, and during the next fetches.
	var tips reconciler.Tips
	dir := t.TempDir()
	for range 2 {
		fresh := open(t, s, func(o *gitrepo.Options) { o.Dir = dir })
		for range 2 {
			tips, err = fresh.Fetch(t.Context())
			require.ErrorIs(t, err, reconciler.ErrRewritten)
			require.Equal(t, reconciler.Tips{Main: main, InForce: inForce}, tips, "main is the commit that in-force names")
			require.Equal(t, contents(t, r, inForce), contents(t, fresh, tips.InForce))
			require.NotEmpty(t, contents(t, fresh, tips.Main))
		}
		require.NoError(t, fresh.Close())
	}

	// An in-force with a file that its commit of main lacks is not kept.
	forgedForce := s.MustCommit(t, "berth/in-force", gittest.Commit{
		Message: "In force\n\nConfig-Commit: " + main + "\nEpoch: 1", Parent: inForce, Files: map[string]string{instancePath: "mine\n"}})
	tips, err = open(t, s).Fetch(t.Context())
	require.ErrorIs(t, err, reconciler.ErrRewritten)
	require.NotEqual(t, forgedForce, tips.InForce)
	require.NoError(t, s.SetRef("refs/heads/berth/in-force", inForce))

	// A moved or deleted in-force names the commit to reset it to.
	require.NoError(t, s.SetRef("refs/heads/berth/in-force", forged))
	_, err = r.Fetch(t.Context())
	require.ErrorContains(t, err, "; reset berth/in-force to "+inForce)
	require.NoError(t, s.SetRef("refs/heads/berth/in-force", ""))
	_, err = r.Fetch(t.Context())
	require.ErrorContains(t, err, "; push that commit to it again")
	require.NoError(t, s.SetRef("refs/heads/berth/in-force", inForce))

	_, err = r.Accept(t.Context(), main)
	require.ErrorIs(t, err, reconciler.ErrConflict, "the accepted commit must be the tip")
	tips, err = r.Accept(t.Context(), forged)
	require.NoError(t, err)
	require.Equal(t, forged, tips.Main)
	require.Equal(t, forged, fetch(t, r).Main)
	_, err = r.WriteInForce(t.Context(), inForce, reconciler.InForce{Commit: forged})
	require.NoError(t, err)
	require.Equal(t, forged, fetch(t, open(t, s)).Main, "in-force confirms the accepted history")
}

func TestForeignInForceIsRefused(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	main := s.Tip("main")
	r := open(t, s)
	fetch(t, r)
	tip, err := r.WriteInForce(t.Context(), "", reconciler.InForce{Commit: main})
	require.NoError(t, err)
	forge := func(message, content string) {
		s.MustCommit(t, "berth/in-force", gittest.Commit{Message: message, Parent: tip, Files: map[string]string{instancePath: content}})
	}
	for name, do := range map[string]func(){
		"foreign file": func() { forge("In force: all of main\n\nConfig-Commit: "+main+"\nEpoch: 1", "mine, all mine\n") },
		"no trailer":   func() { forge("hello", "train v1\n") },
		"a main of its own": func() {
			own := rawCommit(t, s, rawTree(t, s, rawEntry{"100644", "mine", rawBlob(t, s, "mine, all mine\n")}), main)
			forged, err := s.Git("-c", "user.name=x", "-c", "user.email=x", "commit-tree", own+"^{tree}", "-p", tip, "-p", own, "-m",
				"In force: all of main\n\nConfig-Commit: "+own+"\nEpoch: 1")
			require.NoError(t, err)
			require.NoError(t, s.SetRef("refs/heads/berth/in-force", forged))
		},
		"unknown commit":     func() { forge("x\n\nConfig-Commit: "+strings.Repeat("ab", 20), "train v1\n") },
		"branch was deleted": func() { require.NoError(t, s.SetRef("refs/heads/berth/in-force", "")) },
	} {
		do()
		tips, err := r.Fetch(t.Context())
		require.ErrorIs(t, err, reconciler.ErrRewritten, name)
		require.Equal(t, reconciler.Tips{Main: main, InForce: tip}, tips, name)
		if name != "branch was deleted" {
			_, err = open(t, s).Fetch(t.Context())
			require.ErrorIs(t, err, reconciler.ErrRewritten, name)
		}
	}
	require.NoError(t, s.SetRef("refs/heads/berth/in-force", tip))
	require.Equal(t, tip, fetch(t, r).InForce)

	// A file that main once had at that path is valid.
	old, err := r.Diff(t.Context(), "", main)
	require.NoError(t, err)
	next := s.MustCommit(t, "main",
		gittest.Commit{Message: "v2", Files: map[string]string{instancePath: "train v2\n", "platform/x": "train v1\n"}})
	fetch(t, r)
	for _, c := range old {
		if c.Path == instancePath {
			kept, err := r.WriteInForce(t.Context(), tip, reconciler.InForce{Commit: next, Replace: map[string]string{instancePath: c.To}})
			require.NoError(t, err)
			require.NoError(t, r.VerifyInForce(t.Context(), next, kept))
			// The same blob at another path is not valid.
			swapped := s.MustCommit(t, "swapped",
				gittest.Commit{Message: "x", Parent: kept, Files: map[string]string{"tenants/physics/tenant.yaml": "train v1\n"}})
			require.NoError(t, s.SetPull(1, swapped))
			_, err = r.FetchPull(t.Context(), 1)
			require.NoError(t, err)
			require.ErrorIs(t, r.VerifyInForce(t.Context(), next, swapped), reconciler.ErrRewritten)
		}
	}
}

func TestForeignStatusFilesAreSkipped(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	main := fetch(t, r).Main
	train := unit("physics", "lhc", "train", plan.PhaseRunning)
	_, err := r.WriteStatus(t.Context(), "", batch(1, main, train))
	require.NoError(t, err)
	at := "tenants/physics/projects/lhc/instances/"
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'j'; c++ {
		bomb += strings.NewReplacer("N", string(c), "P", string(c-1)).Replace("N: &N [*P,*P,*P,*P,*P,*P,*P,*P,*P]\n")
	}
	two := s.MustCommit(t, "berth/status", gittest.Commit{Message: "x", Files: map[string]string{
		at + "evil.yaml": "kind: InstanceStatus\napiVersion: berth/v1\nkey: {kind: Instance, tenant: biology, project: cells, name: " +
			"evil}\n",
		at + "bomb.yaml":  bomb,
		at + "large.yaml": strings.Repeat("#", 2<<20),
		at + "BAD.yaml":   "kind: InstanceStatus\n",
		at + "junk.yaml":  "\x00\xff",
		"stray":           "",
		"revision.yaml":   "event_sequence: many\n",
	}})
	require.Equal(t, two, fetch(t, r).Status)
	got, err := r.ReadStatus(t.Context(), two)
	require.NoError(t, err)
	require.Equal(t, 1, got.Units.Len())
	require.Equal(t, plan.PhaseRunning, got.Units.Get(train.Key).Phase)
	require.Zero(t, got.Revision)
	require.Contains(t, got.Unread, "not a revision: ", "an invalid revision differs from a missing one")
	require.Len(t, got.Warnings, 6)
	for i, name := range []string{"revision.yaml", at + "BAD.yaml", at + "bomb.yaml", at + "evil.yaml", at + "junk.yaml",
		at + "large.yaml"} {
		require.True(t, strings.HasPrefix(got.Warnings[i], name+": "), got.Warnings[i])
	}
	three, err := r.WriteStatus(t.Context(), two, batch(2, main, train))
	require.NoError(t, err)
	got, err = r.ReadStatus(t.Context(), three)
	require.NoError(t, err)
	require.Len(t, got.Warnings, 5, "Berth repaired its own file")
	require.Empty(t, got.Unread)
	_, err = r.WriteStatus(t.Context(), three,
		reconciler.StatusBatch{Revision: reconciler.Revision{Frozen: strings.Repeat("x", reconciler.MaxRevision)}})
	require.ErrorContains(t, err, "more than the 1048576 that are read back")
	require.Equal(t, uint64(2), got.Revision.Sequence)

	rewound := s.MustCommit(t, "berth/status", gittest.Commit{Message: "rewound", Parent: two, Files: map[string]string{"stray": "x"}})
	tips, err := r.Fetch(t.Context())
	require.ErrorIs(t, err, reconciler.ErrRewritten)
	require.Equal(t, reconciler.Tips{Main: main, Status: three}, tips)
	tips, err = r.Accept(t.Context(), main)
	require.NoError(t, err)
	require.Equal(t, rewound, tips.Status)
}

func TestStatusIsFetchedShallow(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	main, tip := fetch(t, r).Main, ""
	var err error
	phases := []plan.Phase{plan.PhaseRunning, plan.PhaseStopped}
	for i := range 6 {
		tip, err = r.WriteStatus(t.Context(), tip, batch(uint64(i+1), main, unit("physics", "lhc", "train", phases[i%2])))
		require.NoError(t, err)
	}
	dir := t.TempDir()
	other := open(t, s, func(o *gitrepo.Options) { o.Dir = dir })
	require.Equal(t, tip, fetch(t, other).Status)
	shallow, err := os.ReadFile(filepath.Join(dir, "mirror.git/shallow"))
	require.NoError(t, err)
	require.Equal(t, tip, strings.TrimSpace(string(shallow)))
	// A return to an earlier state needs a blob that only the unfetched history
	// contains.
	for i := range 4 {
		tip, err = r.WriteStatus(t.Context(), tip, batch(uint64(i+7), main, unit("physics", "lhc", "train", phases[i%2])))
		require.NoError(t, err)
		require.Equal(t, tip, fetch(t, other).Status)
		got, err := other.ReadStatus(t.Context(), tip)
		require.NoError(t, err)
		require.Equal(t, phases[i%2], got.Units.Get(unit("physics", "lhc", "train", "").Key).Phase)
		again := fetch(t, other)
		tip, err = other.WriteStatus(t.Context(), again.Status, batch(uint64(100+i), main))
		require.NoError(t, err)
		require.Equal(t, tip, fetch(t, r).Status)
	}
	require.NoError(t, s.Fsck())
}

func TestStatusInSeparateRepository(t *testing.T) {
	t.Parallel()
	s, confidential := gittest.New(t, estateFiles()), gittest.New(t, nil)
	r := open(t, s, func(o *gitrepo.Options) { o.Status.URL = confidential.URL })
	main := fetch(t, r).Main
	tip, err := r.WriteStatus(t.Context(), "", batch(1, main, unit("physics", "lhc", "train", plan.PhaseRunning)))
	require.NoError(t, err)
	require.Equal(t, tip, confidential.Tip("berth/status"))
	require.Empty(t, s.Tip("berth/status"))
	again := open(t, s, func(o *gitrepo.Options) { o.Status.URL = confidential.URL })
	require.Equal(t, reconciler.Tips{Main: main, Status: tip}, fetch(t, again))
}

// An emptied revision.yaml, or one deleted beside the logs, differs from a new
// branch.
func TestDeletedRevisionIsReported(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	main := fetch(t, r).Main
	_, err := r.WriteStatus(t.Context(), "", batch(1, main))
	require.NoError(t, err)
	for _, text := range []string{"", "null\n", "{}\n"} {
		empty := s.MustCommit(t, "berth/status", gittest.Commit{Message: "x", Files: map[string]string{"revision.yaml": text}})
		fetch(t, r)
		got, err := r.ReadStatus(t.Context(), empty)
		require.NoError(t, err)
		require.Contains(t, got.Unread, "no field is set")
	}
	gone := s.MustCommit(t, "berth/status",
		gittest.Commit{Message: "x", Remove: []string{"revision.yaml"}, Files: map[string]string{"audit/2026/01/01/00/x.jsonl": ""}})
	fetch(t, r)
	got, err := r.ReadStatus(t.Context(), gone)
	require.NoError(t, err)
	require.Contains(t, got.Unread, "missing, although ")
}

// For a remote that names objects by SHA-256, the error says so, and waiting does not help.
func TestRemoteOfSHA256IsNamed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	git := func(args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a",
			"GIT_COMMITTER_EMAIL=a@b")
		out, err := cmd.Output()
		require.NoError(t, err, args)
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", "--bare", "--object-format=sha256", "estate.git")
	handler := &cgi.Handler{Path: filepath.Join(git("--exec-path"), "git-http-backend"), Stderr: io.Discard, Env: []string{
		"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "HOME=/nonexistent",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	tree := git("-C", "estate.git", "hash-object", "-t", "tree", "-w", "/dev/null")
	git("-C", "estate.git", "update-ref", "refs/heads/main", git("-C", "estate.git", "commit-tree", "-m", "estate", tree))
	r, err := gitrepo.Open(t.Context(), gitrepo.Options{URL: server.URL + "/estate.git", Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	_, err = r.Fetch(t.Context())
	require.ErrorIs(t, err, gitrepo.ErrSHA256)
	require.ErrorAs(t, err, new(*reconciler.OperatorError))
}

package composed_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/examples/await"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/composed"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/provenance"
)

// composite is a platform's repository and the repositories of two tenants.
type composite struct {
	t        testing.TB
	platform *gittest.Server
	tenants  map[string]*gittest.Server
	listed   []composed.Tenant
}

func newComposite(t testing.TB) *composite {
	w := &composite{t: t, tenants: map[string]*gittest.Server{
		"physics": gittest.New(t, map[string]string{"policy.yaml": "physics policy\n", "projects/lhc/instances/train.yaml": "train v1\n"}),
		"biology": gittest.New(t, map[string]string{"policy.yaml": "biology policy\n"}),
	}}
	files := map[string]string{"README.md": "estate\n", "platform/nodes/gpu-1.yaml": "node gpu-1\n", "tenants/law/tenant.yaml": "law\n",
		"tenants/law/policy.yaml": "law policy\n"}
	for name, s := range w.tenants {
		files["tenants/"+name+"/tenant.yaml"] = "repository " + s.URL + "\n"
		w.listed = append(w.listed, composed.Tenant{Name: name, URL: s.URL})
	}
	files["tenants/physics/policy.yaml"] = "left from before\n"
	w.platform = gittest.New(t, files)
	return w
}

// document parses the tenant.yaml of these tests.
func document(_ context.Context, _ string, text []byte) (*composed.TenantRepository, bool) {
	url, names := strings.CutPrefix(strings.TrimSpace(string(text)), "repository ")
	if !names {
		return nil, !strings.HasPrefix(string(text), "broken")
	}
	url, branch, ok := strings.Cut(url, " ")
	if !ok {
		branch = "main"
	}
	return &composed.TenantRepository{URL: url, Branch: branch}, true
}

func (w *composite) open(dir string) *composed.Composed {
	w.t.Helper()
	r, err := composed.OpenComposed(w.t.Context(),
		gitrepo.Options{PullRefs: pullRefs(), URL: w.platform.URL, Dir: dir, Timeout: await.Limit},
		composed.Composition{Tenants: w.listed, Document: document, Wait: await.Limit, MaxTenant: 1 << 20})
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = r.Close() })
	return r
}

// enforced puts the current estate in force and fetches again.
func (w *composite) enforced(r *composed.Composed) reconciler.Tips {
	w.t.Helper()
	tips, err := r.Fetch(w.t.Context())
	require.NoError(w.t, err)
	_, err = r.WriteInForce(w.t.Context(), tips.InForce, reconciler.InForce{Commit: tips.Main, CorrelationID: "c", Epoch: 1})
	require.NoError(w.t, err)
	tips, err = r.Fetch(w.t.Context())
	require.NoError(w.t, err)
	return tips
}

func (w *composite) fetch(r *composed.Composed) map[string]string {
	w.t.Helper()
	return contents(w.t, r.Repo, w.tip(r))
}

func (w *composite) tip(r *composed.Composed) string {
	w.t.Helper()
	tips, err := r.Fetch(w.t.Context())
	require.NoError(w.t, err)
	return tips.Main
}

// want returns the expected files of the estate, read from the repositories.
func (w *composite) want() map[string]string {
	w.t.Helper()
	out, err := w.platform.Files("main")
	require.NoError(w.t, err)
	for name, s := range w.tenants {
		maps.DeleteFunc(out, func(p, _ string) bool {
			return strings.HasPrefix(p, "tenants/"+name+"/") && p != "tenants/"+name+"/tenant.yaml"
		})
		files, err := s.Files("main")
		require.NoError(w.t, err)
		for p, text := range files {
			if p != "tenant.yaml" {
				out["tenants/"+name+"/"+p] = text
			}
		}
	}
	return out
}

// subjects returns the sources of the commits between two tips, newest first.
func subjects(t testing.TB, r *composed.Composed, from, to string) (out []string) {
	t.Helper()
	commits, err := r.Log(t.Context(), from, to, 100)
	require.NoError(t, err)
	for _, c := range commits {
		tenant, _ := r.SourceOf(c.ID)
		out = append(out, strings.TrimSpace(tenant+" "+c.Subject))
	}
	return out
}

// Berth fetches a tenant's repository once its tenant.yaml is in force. From then
// on, the estate is the platform's tree with the tenant trees in it.
func TestComposeTenantRepositories(t *testing.T) {
	t.Parallel()
	w := newComposite(t)
	dir := t.TempDir()
	r := w.open(dir)
	require.Equal(t, w.platform.Tip("main"), w.tip(r), "without documents in force no tenant is composed")
	require.Empty(t, w.tenants["physics"].Requests(), "no tenant's repository is fetched")

	first := w.enforced(r)
	require.Equal(t, w.want(), contents(t, r.Repo, first.Main))
	require.Equal(t, first.Main, w.platform.Tip(gitrepo.BranchComposed))
	require.Equal(t, []string{"physics First commit", "biology First commit"}, subjects(t, r, w.platform.Tip("main"), first.Main))
	require.Empty(t, r.Refused())
	require.Equal(t, []string{"tenant physics: policy.yaml in tenants/physics of the platform's repository is ignored, because the " +
		"tenant has its own repository: move it there, or delete it"}, r.Notices())
	require.NoError(t, w.platform.Fsck())

	w.platform.MustCommit(t, "main",
		gittest.Commit{Message: "a node", Files: map[string]string{"platform/nodes/gpu-2.yaml": "node gpu-2\n"}})
	one := w.tenants["physics"].MustCommit(t, "main",
		gittest.Commit{Message: "train more\n\nSource: platform 0000000000000000000000000000000000000000", Author: "Eve <eve@example.org>",
			Files: map[string]string{"projects/lhc/instances/train.yaml": "train v2\n", "tenant.yaml": "mine\n"}})
	two := w.tenants["physics"].MustCommit(t, "main",
		gittest.Commit{Message: "and more", Files: map[string]string{"projects/lhc/instances/more.yaml": "more\n"}})
	tip := w.tip(r)
	require.Equal(t, w.want(), contents(t, r.Repo, tip))
	require.Equal(t, []string{"physics and more", "physics train more", "a node"}, subjects(t, r, first.Main, tip))
	commits, err := r.Log(t.Context(), first.Main, tip, 9)
	require.NoError(t, err)
	for i, source := range []string{two, one, w.platform.Tip("main")} {
		_, got := r.SourceOf(commits[i].ID)
		require.Equal(t, source, got)
		e, err := r.Evidence(t.Context(), commits[i].ID)
		require.NoError(t, err)
		require.Equal(t, source, e.Commit, "the evidence must come from the source")
		require.Equal(t, map[bool]string{true: "physics"}[i < 2], e.Tenant)
		changes, err := r.Diff(t.Context(), commits[i].Parents[0], commits[i].ID)
		require.NoError(t, err)
		for _, c := range changes {
			require.Equal(t, i < 2, strings.HasPrefix(c.Path, "tenants/physics/projects/"), c.Path)
		}
	}

	w.platform.ResetRequests()
	require.Equal(t, tip, w.tip(r))
	require.Equal(t, map[string]int{"GET git-upload-pack": 1}, w.platform.Requests(), "an unchanged estate costs one request")

	// Without local files the result is the same: the composed commits are verified
	// by composing them again.
	require.NoError(t, r.Close())
	again := w.open(t.TempDir())
	require.Equal(t, tip, w.tip(again))
	require.Equal(t, subjects(t, r, first.Main, tip), subjects(t, again, first.Main, tip))
	_, err = again.WriteInForce(t.Context(), w.platform.Tip(reconciler.BranchInForce),
		reconciler.InForce{Commit: tip, CorrelationID: "c", Epoch: 2})
	require.NoError(t, err)
	require.NoError(t, again.VerifyInForce(t.Context(), tip, w.platform.Tip(reconciler.BranchInForce)))
}

// A directory of a tenant's repository never replaces a path outside the tenant
// tree.
func TestTenantRepositoryChangesOnlyItsTenantTree(t *testing.T) {
	t.Parallel()
	w := newComposite(t)
	r := w.open(t.TempDir())
	first := w.enforced(r)
	node, _ := w.platform.Read("main", "platform/nodes/gpu-1.yaml")
	w.tenants["physics"].MustCommit(t, "main", gittest.Commit{Message: "mine", Files: map[string]string{
		"platform/nodes/gpu-1.yaml": "mine\n", "tenants/biology/policy.yaml": "mine\n", "README.md": "mine\n", "tenant.yaml/x": "mine\n",
		".github/workflows/check.yaml": "about the repository\n", "LICENSE": "about the repository\n",
	}})
	tip := w.tip(r)
	changes, err := r.Diff(t.Context(), first.Main, tip)
	require.NoError(t, err)
	require.Equal(t, []string{"tenants/physics/README.md", "tenants/physics/platform/nodes/gpu-1.yaml",
		"tenants/physics/tenants/biology/policy.yaml"}, paths(changes))
	require.Equal(t, node, contents(t, r.Repo, tip)["platform/nodes/gpu-1.yaml"])

	// A file in a tenant's own history is not in the estate's history, so it must
	// not be in force.
	forged, err := w.platform.Git("rev-parse", w.tenants["physics"].Tip("main")+"^{tree}")
	require.NoError(t, err)
	id, err := w.platform.Git("-c", "user.name=E", "-c", "user.email=e@example.org", "commit-tree", "-p", first.InForce, "-p", tip, "-m",
		"In force: all of main\n\nConfig-Commit: "+tip+"\nCorrelation-Id: c\nEpoch: 1", forged)
	require.NoError(t, err)
	require.NoError(t, w.platform.SetRef("refs/heads/"+reconciler.BranchInForce, id))
	_, err = r.Fetch(t.Context())
	require.ErrorIs(t, err, reconciler.ErrRewritten)
}

// A failure of one tenant's repository does not affect the others.
func TestBrokenTenantRepositoryDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 2<<20)
	_, err := rand.Read(noise)
	require.NoError(t, err)
	for _, c := range []struct {
		name string
		harm func(t *testing.T, s *gittest.Server)
		says string
		is   error
		mend func(t *testing.T, s *gittest.Server)
	}{
		{name: "down", says: "EOF",
			harm: func(_ *testing.T, s *gittest.Server) { s.SetFaults(gittest.Faults{Down: true}) },
			mend: func(_ *testing.T, s *gittest.Server) { s.SetFaults(gittest.Faults{}) }},
		{name: "locked", says: "uthenticat",
			harm: func(_ *testing.T, s *gittest.Server) { s.SetFaults(gittest.Faults{Unauthorized: true}) },
			mend: func(_ *testing.T, s *gittest.Server) { s.SetFaults(gittest.Faults{}) }},
		{name: "gone", says: "has no branch", is: reconciler.ErrNotFound,
			harm: func(t *testing.T, s *gittest.Server) {
				require.NoError(t, s.SetRef("refs/heads/kept", s.Tip("main")))
				require.NoError(t, s.SetRef("refs/heads/main", ""))
			},
			mend: func(t *testing.T, s *gittest.Server) { require.NoError(t, s.SetRef("refs/heads/main", s.Tip("kept"))) }},
		{name: "rewritten", says: "does not descend", is: reconciler.ErrRewritten,
			harm: func(t *testing.T, s *gittest.Server) {
				require.NoError(t, s.SetRef("refs/heads/kept", s.Tip("main")))
				empty, err := s.WriteTree()
				require.NoError(t, err)
				id, err := s.Git("-c", "user.name=E", "-c", "user.email=e@example.org", "commit-tree", "-m", "all new", empty)
				require.NoError(t, err)
				require.NoError(t, s.SetRef("refs/heads/main", id))
			},
			mend: func(t *testing.T, s *gittest.Server) { require.NoError(t, s.SetRef("refs/heads/main", s.Tip("kept"))) }},
		{name: "large", says: "limit for a tenant's repository", is: reconciler.ErrRefused,
			harm: func(t *testing.T, s *gittest.Server) {
				require.NoError(t, s.SetRef("refs/heads/kept", s.Tip("main")))
				s.MustCommit(t, "main", gittest.Commit{Message: "large", Files: map[string]string{"policy.yaml": string(noise)}})
			},
			mend: func(t *testing.T, s *gittest.Server) { require.NoError(t, s.SetRef("refs/heads/main", s.Tip("kept"))) }},
		{name: "poison", says: "store cannot be written",
			harm: func(t *testing.T, s *gittest.Server) {
				require.NoError(t, s.SetRef("refs/heads/kept", s.Tip("main")))
				entries, err := s.Tree("main")
				require.NoError(t, err)
				entries = append(entries, gittest.TreeEntry{Mode: "100644", Name: "../../platform/nodes/gpu-1.yaml", ID: entries[0].ID})
				tree, err := s.WriteTree(entries...)
				require.NoError(t, err)
				_, err = s.CommitTree("main", "poison", tree)
				require.NoError(t, err)
			},
			mend: func(t *testing.T, s *gittest.Server) { require.NoError(t, s.SetRef("refs/heads/main", s.Tip("kept"))) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newComposite(t)
			r := w.open(t.TempDir())
			before := contents(t, r.Repo, w.enforced(r).Main)
			c.harm(t, w.tenants["physics"])
			w.tenants["biology"].MustCommit(t, "main", gittest.Commit{Message: "on", Files: map[string]string{"policy.yaml": "on\n"}})
			w.platform.MustCommit(t, "main",
				gittest.Commit{Message: "a node", Files: map[string]string{"platform/nodes/gpu-2.yaml": "node gpu-2\n"}})
			before["tenants/biology/policy.yaml"], before["platform/nodes/gpu-2.yaml"] = "on\n", "node gpu-2\n"
			require.Equal(t, before, w.fetch(r))
			refused := r.Refused()
			require.Equal(t, []string{"physics"}, keys(refused))
			require.ErrorContains(t, refused["physics"], c.says)
			if c.is != nil {
				require.ErrorIs(t, refused["physics"], c.is)
			}
			require.NoError(t, w.platform.Fsck())
			require.NoError(t, r.Close())
			r = w.open(t.TempDir())
			require.Equal(t, before, w.fetch(r), "a restart without a cache keeps the composed trees")

			c.mend(t, w.tenants["physics"])
			w.tenants["physics"].MustCommit(t, "main",
				gittest.Commit{Message: "well again", Files: map[string]string{"policy.yaml": "well\n"}})
			require.Equal(t, w.want(), w.fetch(r))
			require.Empty(t, r.Refused())
		})
	}
}

// A remote that accepts connections and never responds delays the others only
// briefly.
func TestUnresponsiveTenantDelaysFetchBriefly(t *testing.T) {
	t.Parallel()
	w := newComposite(t)
	r, err := composed.OpenComposed(t.Context(),
		gitrepo.Options{PullRefs: pullRefs(), URL: w.platform.URL, Dir: t.TempDir(), Timeout: time.Minute},
		composed.Composition{Tenants: w.listed, Document: document, Wait: 2 * time.Second})
	require.NoError(t, err)
	defer r.Close()
	w.enforced(r)
	w.tenants["physics"].SetFaults(gittest.Faults{Hang: true})
	w.tenants["biology"].MustCommit(t, "main", gittest.Commit{Message: "on", Files: map[string]string{"policy.yaml": "on\n"}})
	require.Equal(t, "on\n", w.fetch(r)["tenants/biology/policy.yaml"])
	require.ErrorContains(t, r.Refused()["physics"], "has not answered yet")
}

// Berth fetches a tenant's repository only if berth.yaml lists the URL in the
// tenant.yaml in force.
func TestFetchOnlyListedTenantRepositories(t *testing.T) {
	t.Parallel()
	w := newComposite(t)
	other := gittest.New(t, map[string]string{"policy.yaml": "other\n"})
	w.listed = slices.DeleteFunc(w.listed, func(l composed.Tenant) bool { return l.Name == "biology" })
	w.listed[0].URL = other.URL
	r := w.open(t.TempDir())
	tips := w.enforced(r)
	require.Equal(t, w.platform.Tip("main"), tips.Main)
	require.ErrorContains(t, r.Refused()["physics"], "make them equal")
	require.ErrorContains(t, r.Refused()["biology"], "list it under tenants")
	require.Len(t, r.Notices(), 2, "each refused tenant has a notice")
	for _, s := range []*gittest.Server{other, w.tenants["physics"], w.tenants["biology"]} {
		require.Empty(t, s.Requests())
	}
	for _, url := range []string{"file:///tmp/x", "git://h/x", "https://u:p@h/x", "/tmp/x"} {
		_, err := composed.OpenComposed(t.Context(), gitrepo.Options{PullRefs: pullRefs(), URL: w.platform.URL, Dir: t.TempDir()},
			composed.Composition{Tenants: []composed.Tenant{{Name: "physics", URL: url}}, Document: document})
		require.Error(t, err, url)
	}

	// A tenant removed from the list keeps its last composed tree.
	w = newComposite(t)
	dir := t.TempDir()
	r = w.open(dir)
	before := contents(t, r.Repo, w.enforced(r).Main)
	require.NoError(t, r.Close())
	w.listed = nil
	r = w.open(dir)
	w.tenants["physics"].MustCommit(t, "main", gittest.Commit{Message: "on", Files: map[string]string{"policy.yaml": "on\n"}})
	require.Equal(t, before, w.fetch(r))
	require.Len(t, r.Refused(), 2)
}

// A server's response becomes one short line of a notice, whatever its length.
func TestLongServerResponseIsOneNotice(t *testing.T) {
	t.Parallel()
	wordy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.WriteHeader(http.StatusForbidden)
		_, _ = rw.Write([]byte("go away\n" + strings.Repeat("x", 2<<20)))
	}))
	defer wordy.Close()
	w := newComposite(t)
	w.platform.MustCommit(t, "main",
		gittest.Commit{Message: "elsewhere", Files: map[string]string{"tenants/physics/tenant.yaml": "repository " + wordy.URL + "/r\n"}})
	w.listed[slices.IndexFunc(w.listed, func(l composed.Tenant) bool { return l.Name == "physics" })].URL = wordy.URL + "/r"
	r := w.open(t.TempDir())
	w.enforced(r)
	require.ErrorContains(t, r.Refused()["physics"], "go away")
	require.Less(t, len(r.Refused()["physics"].Error()), 8<<10)
	said := r.Notices()
	require.Len(t, said, 1)
	require.Contains(t, said[0], "tenant physics: its repository was not composed")
	require.Contains(t, said[0], "go away")
	require.Less(t, len(said[0]), 600)
	require.NotContains(t, said[0], "\n")
}

// A repository shared by two tenants, or with the platform, is reported for any
// spelling of its URL.
func TestSharedTenantRepositoryIsReported(t *testing.T) {
	t.Parallel()
	w := newComposite(t)
	w.platform.MustCommit(t, "main", gittest.Commit{Message: "one for both", Files: map[string]string{
		"tenants/biology/tenant.yaml": "repository " + w.tenants["physics"].URL + "/\n",
		"tenants/law/tenant.yaml":     "repository " + w.platform.URL + "\n",
	}})
	r := w.open(t.TempDir())
	w.enforced(r)
	said := strings.Join(r.Notices(), "\n")
	require.Contains(t, said, "tenant physics: "+w.tenants["physics"].URL+" is also the repository of tenant biology")
	require.Contains(t, said, "tenant law: "+w.platform.URL+" is also the repository of the platform")
}

// A commit in the platform's repository takes a tenant tree back.
func TestTenantReturnsToPlatformRepository(t *testing.T) {
	t.Parallel()
	w := newComposite(t)
	r := w.open(t.TempDir())
	before := w.enforced(r)
	w.platform.MustCommit(t, "main",
		gittest.Commit{Message: "not readable", Files: map[string]string{"tenants/physics/tenant.yaml": "broken\n"}})
	got := w.fetch(r)
	require.Equal(t, "train v1\n", got["tenants/physics/projects/lhc/instances/train.yaml"], "an unreadable tenant.yaml deletes nothing")
	require.Equal(t, "broken\n", got["tenants/physics/tenant.yaml"])

	back := w.platform.MustCommit(t, "main",
		gittest.Commit{Message: "physics is ours", Files: map[string]string{"tenants/physics/tenant.yaml": "physics\n"}})
	w.tenants["physics"].MustCommit(t, "main", gittest.Commit{Message: "on", Files: map[string]string{"policy.yaml": "on\n"}})
	tip := w.tip(r)
	got = contents(t, r.Repo, tip)
	require.Equal(t, "left from before\n", got["tenants/physics/policy.yaml"])
	require.NotContains(t, got, "tenants/physics/projects/lhc/instances/train.yaml")
	require.Equal(t, "biology policy\n", got["tenants/biology/policy.yaml"])
	_, source := r.SourceOf(tip)
	require.Equal(t, back, source, "the source is the commit that returns the tenant")
	require.NoError(t, r.Close())
	again := w.open(t.TempDir())
	require.Equal(t, tip, w.tip(again))

	// The platform deletes a tenant with its own repository.
	w.platform.MustCommit(t, "main", gittest.Commit{Message: "off", Remove: []string{"tenants/biology"}})
	got = w.fetch(again)
	require.NotContains(t, got, "tenants/biology/policy.yaml")
	require.NotEqual(t, before.Main, tip)
}

// Two Berth processes compose the same commits, and each continues from the
// other's tip.
func TestSeveralProcessesComposeTheSameBranch(t *testing.T) {
	t.Parallel()
	w := newComposite(t)
	a := w.open(t.TempDir())
	w.enforced(a)
	b := w.open(t.TempDir())
	require.Equal(t, w.tip(a), w.tip(b))
	for i := range 3 {
		w.tenants["physics"].MustCommit(t, "main",
			gittest.Commit{Message: "p", Files: map[string]string{"policy.yaml": fmt.Sprint("p", i)}})
		w.platform.MustCommit(t, "main",
			gittest.Commit{Message: "n", Files: map[string]string{"platform/nodes/n.yaml": fmt.Sprint("n", i)}})
		tips := make(chan error, 2)
		for _, r := range []*composed.Composed{a, b} {
			go func() {
				_, err := r.Fetch(context.WithoutCancel(t.Context()))
				tips <- err
			}()
		}
		for range 2 {
			if err := <-tips; err != nil {
				require.ErrorIs(t, err, reconciler.ErrConflict)
			}
		}
		require.Equal(t, w.tip(a), w.tip(b))
		require.Equal(t, w.want(), w.fetch(a))
	}
	w.platform.SetFaults(gittest.Faults{DropReplies: 1})
	w.tenants["biology"].MustCommit(t, "main", gittest.Commit{Message: "b", Files: map[string]string{"policy.yaml": "lost\n"}})
	require.Equal(t, "lost\n", w.fetch(a)["tenants/biology/policy.yaml"], "a push with a lost response takes effect")
}

// Berth restores a deleted composed branch, and refuses one that another user
// moved.
func TestComposedBranchIsRestoredAndProtected(t *testing.T) {
	t.Parallel()
	w := newComposite(t)
	dir := t.TempDir()
	r := w.open(dir)
	w.enforced(r)
	was := w.enforced(r)
	gone := func() { require.NoError(t, w.platform.SetRef("refs/heads/"+gitrepo.BranchComposed, "")) }
	gone()
	require.Equal(t, was.Main, w.tip(r))
	require.Equal(t, was.Main, w.platform.Tip(gitrepo.BranchComposed))
	require.NoError(t, r.Close())
	gone()
	r = w.open(t.TempDir())
	require.Equal(t, was.Main, w.tip(r), "the history of in-force contains the tip")
	require.NoError(t, r.Close())

	// A forged commit with Berth's trailers replaces a tenant's tree.
	tree, err := w.platform.Git("rev-parse", w.platform.Tip("main")+"^{tree}")
	require.NoError(t, err)
	forge := func(parent string) string {
		id, err := w.platform.Git("-c", "user.name=Berth", "-c", "user.email=berth@localhost", "commit-tree", "-p", parent, "-p",
			w.platform.Tip("main"), "-m",
			"platform: x\n\nSource: platform "+w.platform.Tip("main"), tree)
		require.NoError(t, err)
		return id
	}
	moved := forge(was.Main)
	for name, dir := range map[string]string{"seen": dir, "not seen": t.TempDir()} {
		require.NoError(t, w.platform.SetRef("refs/heads/"+gitrepo.BranchComposed, moved))
		r = w.open(dir)
		tips, err := r.Fetch(t.Context())
		require.ErrorIs(t, err, reconciler.ErrRewritten, name)
		require.Contains(t, []string{"", was.Main}, tips.Main)
		require.NoError(t, r.Close())
	}
	// On main, such a commit is an ordinary commit.
	require.NoError(t, w.platform.SetRef("refs/heads/"+gitrepo.BranchComposed, was.Main))
	require.NoError(t, w.platform.SetRef("refs/heads/main", forge(w.platform.Tip("main"))))
	r = w.open(t.TempDir())
	require.Equal(t, w.want(), w.fetch(r))
}

// A rewritten platform branch freezes the sync until an operator accepts it; the
// tenant trees stay.
func TestRewrittenPlatformFreezesComposedEstate(t *testing.T) {
	t.Parallel()
	w := newComposite(t)
	dir := t.TempDir()
	r := w.open(dir)
	was := w.enforced(r)
	w.platform.MustCommit(t, "main", gittest.Commit{Message: "one", Files: map[string]string{"platform/nodes/n.yaml": "one\n"}})
	was.Main = w.tip(r)
	id := w.platform.MustCommit(t, "main",
		gittest.Commit{Message: "another", Parent: w.platform.Tip("main") + "^",
			Files: map[string]string{"platform/nodes/n.yaml": "another\n"}})
	for _, dir := range []string{dir, t.TempDir()} {
		require.NoError(t, r.Close())
		r = w.open(dir)
		_, err := r.Fetch(t.Context())
		require.ErrorIs(t, err, reconciler.ErrRewritten)
	}
	tips, err := r.Accept(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, w.want(), contents(t, r.Repo, tips.Main))
	require.Equal(t, tips.Main, w.tip(r))
	require.NoError(t, r.Close())
	require.Equal(t, tips.Main, w.tip(w.open(t.TempDir())))
}

// A platform pull request is merged with the current tenant trees.
func TestMergePullRequestIntoComposedEstate(t *testing.T) {
	t.Parallel()
	w := newComposite(t)
	r := w.open(t.TempDir())
	base := w.enforced(r).Main
	head := w.platform.MustCommit(t, "change", gittest.Commit{Message: "change", Files: map[string]string{
		"platform/nodes/gpu-2.yaml": "node gpu-2\n", "tenants/physics/policy.yaml": "passed over\n",
	}})
	require.NoError(t, w.platform.SetPull(1, head))
	got, err := r.FetchPull(t.Context(), 1)
	require.NoError(t, err)
	tree, conflicts, err := r.Merge(t.Context(), base, got)
	require.NoError(t, err)
	require.Empty(t, conflicts)
	changes, err := r.Diff(t.Context(), base, tree)
	require.NoError(t, err)
	require.Equal(t, []string{"platform/nodes/gpu-2.yaml"}, paths(changes))
	at, err := r.MergeBase(t.Context(), base, got)
	require.NoError(t, err)
	require.Equal(t, w.platform.Tip("main"), at)
	text, err := r.Patch(t.Context(), base, got)
	require.NoError(t, err)
	require.Contains(t, text, "+++ b/platform/nodes/gpu-2.yaml\n")
	require.NotContains(t, text, "tenants/", "the tenant's own repository holds these files")
	unread, err := r.Shadowed(t.Context(), base, got)
	require.NoError(t, err)
	require.Equal(t, []string{"tenants/physics/policy.yaml"}, unread)

	// The merge at the forge gives the same tree, and the forge finds the pull
	// request of the composed commit.
	merged, err := w.platform.Merge("main", head, "Merge 1")
	require.NoError(t, err)
	w.tenants["physics"].MustCommit(t, "main", gittest.Commit{Message: "p", Files: map[string]string{"policy.yaml": "p\n"}})
	tip := w.tip(r)
	commits, err := r.Log(t.Context(), base, tip, 9)
	require.NoError(t, err)
	require.Len(t, commits, 2)
	changes, err = r.Diff(t.Context(), tree, commits[1].ID)
	require.NoError(t, err)
	require.Empty(t, changes)
	forge := r.Forge(asked{commit: merged,
		pr: reconciler.PullRequest{Number: 1, Head: head, Merged: true, BaseBranch: "main", MergeCommit: merged}})
	slices.Reverse(commits)
	pr, ok, err := provenance.NewHistory(r, forge, "main", commits).MergedBy(t.Context(), 0)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, 1, pr.Number)
	prs, err := forge.PullsOf(t.Context(), commits[1].ID)
	require.NoError(t, err)
	require.Empty(t, prs, "the forge is not asked about tenants' commits")
}

// asked is a forge that knows one commit.
type asked struct {
	reconciler.Forge
	commit string
	pr     reconciler.PullRequest
}

func (f asked) PullsOf(_ context.Context, commit string) ([]reconciler.PullRequest, error) {
	if commit != f.commit {
		return nil, errors.New("asked about " + commit)
	}
	return []reconciler.PullRequest{f.pr}, nil
}

// The final estate equals the repositories for any order of changes and fetches.
func TestComposedEstateIsIndependentOfOrder(t *testing.T) {
	t.Parallel()
	w := newComposite(t)
	r := w.open(t.TempDir())
	w.enforced(r)
	change := rapid.SliceOfN(rapid.SampledFrom([]string{"physics", "biology", "platform", "fetch", "restart"}), 3, 8)
	for seed := range 5 {
		for i, what := range change.Example(seed) {
			c := gittest.Commit{Message: "change", Files: map[string]string{fmt.Sprintf("file-%d.yaml", i%3): fmt.Sprint(seed, i)}}
			switch what {
			case "platform":
				w.platform.MustCommit(t, "main", c)
			case "fetch":
				w.tip(r)
			case "restart":
				require.NoError(t, r.Close())
				r = w.open(t.TempDir())
			default:
				w.tenants[what].MustCommit(t, "main", c)
			}
		}
		require.Equal(t, w.want(), w.fetch(r))
	}
}

// pullRefs are those of the test server.
func pullRefs() reconciler.PullRefs {
	return reconciler.PullRefs{Head: gittest.PullRef, Groups: gittest.GroupRefs}
}

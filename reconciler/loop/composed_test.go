package loop_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/composed"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/schema"
)

// ownRepository moves the documents of a tenant, except tenant.yaml, into a repository
// of that tenant. The given signer becomes its administrator.
func ownRepository(t *testing.T, files map[string]string, tenant string) (*world, *signer) {
	t.Helper()
	root := map[string]string{}
	own := &world{t: t, git: gittest.New(t, map[string]string{"README.md": tenant + "\n"}, gittest.InProcess)}
	admin := newSigner(t, own)
	dir := "tenants/" + tenant + "/"
	files[dir+"roles.yaml"] = roleBinding("    - {login: " + tenant + ", role: tenant_admin, signing_keys: [\"" + admin.publicKey +
		"\"]}\n")
	for path, text := range files {
		if rest, ok := strings.CutPrefix(path, dir); ok && rest != "tenant.yaml" {
			root[rest] = text
		}
	}
	files[dir+"tenant.yaml"] = "apiVersion: berth/v1\nkind: Tenant\nmetadata: {name: " + tenant + "}\nspec:\n  display_name: " + tenant +
		"\n  repository: {url: \"" + own.git.URL + "\"}\n"
	admin.push("everything of ours", root)
	return own, admin
}

// composedOf reads the estate from the platform's repository and the given ones.
func (w *world) composedOf(tenants map[string]*world) tune {
	return func(o *loop.Options) {
		c := composed.Composition{Wait: await.Limit,
			Document: func(ctx context.Context, tenant string, document []byte) (*composed.TenantRepository, bool) {
				doc, ok, err := o.Decide.Loader.Tenant(ctx, tenant, document)
				if err != nil || !ok || doc.Spec.Repository == nil {
					return nil, ok && err == nil
				}
				return &composed.TenantRepository{URL: doc.Spec.Repository.URL, Branch: doc.Spec.Repository.Branch}, true
			}}
		for name, own := range tenants {
			c.Tenants = append(c.Tenants, composed.Tenant{Name: name, URL: own.git.URL})
		}
		r, err := composed.OpenComposed(w.t.Context(),
			gitrepo.Options{PullRefs: pullRefs(), URL: w.git.URL, Dir: w.t.TempDir(), Timeout: await.Limit, Log: o.Log}, c)
		require.NoError(w.t, err)
		w.t.Cleanup(func() { _ = r.Close() })
		o.Repo = r
	}
}

// A commit in a tenant's own repository brings an instance up if a user with the
// permission signed it. An unsigned one is held without delay for other tenants. A
// restart with an empty cache changes nothing.
func TestTenantsInTheirOwnRepositories(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	files := estateFiles()
	physics, ana := ownRepository(t, files, "physics")
	biology, bob := ownRepository(t, files, "biology")
	w.put(files)
	root := newSigner(t, w)
	tenants := map[string]*world{"physics": physics, "biology": biology}
	d := w.start(governed(root), w.composedOf(tenants))
	path, text := instance("train", 1)
	at := strings.TrimPrefix(path, "tenants/physics/") // path in either repository

	ana.push("train", map[string]string{at: text})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	require.Len(t, w.status("train").Members, 2)

	_, more := instance("train", 2)
	physics.put(map[string]string{at: more}) // unsigned
	w.eventually("held", func() bool { return w.heldReasons()[path] == schema.HeldUnauthorised })
	bob.push("train", map[string]string{at: text})
	running := func() bool {
		tree := w.tree()
		s := tree.Units.Get(schema.InstanceKey("biology", "lab", "train"))
		return s != nil && s.Phase == plan.PhaseRunning
	}
	w.eventually("instance of the other tenant runs", running)
	require.Equal(t, map[string]schema.HeldReason{path: schema.HeldUnauthorised}, w.heldReasons())
	remarks := func() string { return strings.Join(w.revision().Notices, "\n") }
	require.Contains(t, remarks(), "tenant physics: projects, roles.yaml in tenants/physics of the platform's repository is ignored")

	require.NoError(t, d.stop())
	before := w.git.Tip(gitrepo.BranchComposed)
	// The repository of one tenant is gone at the next start.
	biology.git.SetFaults(gittest.Faults{Down: true})
	d = w.start(governed(root), w.composedOf(tenants))
	ana.push("two", map[string]string{at: more + "# two\n"})
	w.eventually("grown", func() bool { return len(w.status("train").Members) == 3 })
	require.True(t, running())
	require.Empty(t, w.heldReasons())
	require.Contains(t, remarks(), "tenant biology: its repository was not composed")
	ok, err := w.git.Git("merge-base", before, w.git.Tip(gitrepo.BranchComposed))
	require.NoError(t, err)
	require.Equal(t, before, ok, "the tenant keeps its previous commit")

	// Signers of a tenant have no permission for the platform or another tenant: their
	// files stay in their own tenant tree.
	ana.push("theirs", map[string]string{"tenants/biology/policy.yaml": "x\n", "platform/nodes/mine.yaml": node("mine", 99, "worker", "")})
	w.eventually("misplaced", func() bool { return len(w.heldReasons()) > 0 })
	for file := range w.heldReasons() {
		require.True(t, strings.HasPrefix(file, "tenants/physics/"), file)
	}
	require.Nil(t, d.Node("mine"))
}

// A pull request in the platform's repository that changes a tenant with its own
// repository gets a warning: the change has no effect.
func TestShadowedTenantChangeGetsWarning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	files := estateFiles()
	physics, _ := ownRepository(t, files, "physics")
	w.put(files)
	w.start(w.composedOf(map[string]*world{"physics": physics}), func(o *loop.Options) {
		o.Forge = o.Repo.(*composed.Composed).Forge(o.Forge)
	})
	w.eventually("composed", func() bool { return strings.Contains(strings.Join(w.revision().Notices, "\n"), "is ignored") })
	pr := w.topic(7, map[string]string{"tenants/physics/policy.yaml": "unread: true\n"})
	w.eventually("planned", func() bool { p, ok := w.forge.last(7); return ok && p.Head == pr.Head })
	reported, _ := w.forge.last(7)
	require.False(t, reported.Blocked(), "%+v", reported)
	require.Len(t, reported.Diagnostics, 1)
	require.Equal(t, "tenants/physics/policy.yaml tenant.shadowed warning",
		reported.Diagnostics[0].File+" "+reported.Diagnostics[0].Code+" "+string(reported.Diagnostics[0].Severity))
	require.Contains(t, w.forge.check(pr.Head, plan.CheckValidate).Summary,
		"changes nothing: the documents of physics come from its own repository")
}

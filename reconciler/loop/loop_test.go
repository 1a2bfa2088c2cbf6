package loop_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/memory"
	"berth/schema"
	"berth/schema/estate"
)

// These tests run the loop with a real Git server over HTTP and the memory runtime.

// estateFiles is a small valid estate: one controller, four workers, one app of the
// memory runtime, two tenants.
func estateFiles() map[string]string {
	files := map[string]string{
		"platform/catalog/batch/app.yaml": `apiVersion: berth/v1
kind: App
metadata: {name: batch}
spec: {display_name: Batch, category: batch, publisher: platform, status: active, supports: {operating_modes: [tenant_dedicated, platform_managed], control_plane_scopes: [project, tenant, platform]}}
`,
		"platform/catalog/batch/v1.yaml": `apiVersion: berth/v1
kind: AppVersion
metadata: {name: v1}
spec:
  version: "1"
  runtime_backend: bare_metal
  status: active
  manifest:
    roles:
      controller: {node_role: controller, control_plane: true, shareable: true, min: 1, max: 1}
      worker: {node_role: worker, gpus: true, min: 0, max: 8}
`,
		"platform/nodes/ctl.yaml": node("ctl", 10, "controller", ""),
	}
	for i := range 4 {
		name := fmt.Sprintf("gpu-%d", i+1)
		files["platform/nodes/"+name+".yaml"] = node(name, 11+i, "worker", "gpus: [{type: a100, count: 2, devices: \"/dev/nvidia[0-1]\"}]")
	}
	for _, t := range []string{"physics", "biology"} {
		files["tenants/"+t+"/tenant.yaml"] = "apiVersion: berth/v1\nkind: Tenant\nmetadata: {name: " + t + "}\nspec: {display_name: " + t +
			"}\n"
		p := "tenants/" + t + "/projects/lab/"
		files[p+"project.yaml"] = "apiVersion: berth/v1\nkind: Project\nmetadata: {name: lab}\nspec: {display_name: lab}\n"
		files[p+"roles.yaml"] = "apiVersion: berth/v1\nkind: RoleBinding\nmetadata: {name: roles}\nspec: {members: [{login: ada, role: " +
			"project_admin}]}\n"
		files[p+"entitlements/batch.yaml"] = "apiVersion: berth/v1\nkind: Entitlement\nmetadata: {name: batch}\nspec: {enabled: true}\n"
	}
	return files
}

func node(name string, last int, role, extra string) string {
	return fmt.Sprintf(`apiVersion: berth/v1
kind: Node
metadata: {name: %s}
spec:
  address: 10.9.0.%d
  region: eu-1
  sku: standard
  roles: [%s]
  capacity: {cpus: 4, memory_mib: 8000, %s}
`, name, last, role, extra)
}

func instance(name string, workers int) (path, text string) {
	return "tenants/physics/projects/lab/instances/" + name + ".yaml", fmt.Sprintf(`apiVersion: berth/v1
kind: Instance
metadata: {name: %s}
spec:
  app: batch
  version: v1
  display_name: %s
  roles:
    controller: {count: 1}
    worker: {count: %d, gpus: {type: a100, count: 2}}
`, name, name, workers)
}

// world holds everything that outlives a daemon.
type world struct {
	t     testing.TB
	git   *gittest.Server
	world *memory.World
	forge *forge

	mu         sync.Mutex
	local      *gitrepo.Local // nil before the first read
	statusTip  string         // commit of berth/status that statusTree holds
	statusTree reconciler.StatusTree
	filesTip   string // commit of berth/status that filesAt holds
	filesAt    map[string]string

	latest *daemon // that was started last
}

func newWorld(t testing.TB) *world {
	return &world{t: t, git: gittest.New(t, estateFiles(), gittest.InProcess), world: memory.NewWorld(), forge: newForge()}
}

// daemon is one running daemon with an empty cache.
type daemon struct {
	*loop.Reconciler
	w      *world
	cancel context.CancelFunc
	ended  chan error
	repo   *gitrepo.Repo
	seen   *reconciliations
}

type tune func(*loop.Options)

func (w *world) start(tunes ...tune) *daemon {
	w.t.Helper()
	return w.startAt(w.t.TempDir(), tunes...)
}

// startAt starts a daemon with the cache of an earlier one in dir.
func (w *world) startAt(dir string, tunes ...tune) *daemon {
	w.t.Helper()
	return w.startWith(dir, func(*gitrepo.Options) {}, tunes...)
}

// startWith is startAt with other repository options.
func (w *world) startWith(dir string, change func(*gitrepo.Options), tunes ...tune) *daemon {
	w.t.Helper()
	o, repo := w.options(dir, change, tunes...)
	seen := &reconciliations{begun: map[reconciler.Item]int{}, ended: map[reconciler.Item]int{}}
	seen.watch(&o)
	ctx, cancel := context.WithCancel(w.t.Context())
	d := &daemon{Reconciler: loop.New(o), w: w, cancel: cancel, ended: make(chan error, 1), repo: repo, seen: seen}
	go func() { d.ended <- d.Run(ctx) }()
	w.t.Cleanup(func() { d.stop() })
	w.latest = d
	return d
}

// options are those of a daemon with its cache in dir, and its repository.
func (w *world) options(dir string, change func(*gitrepo.Options), tunes ...tune) (loop.Options, *gitrepo.Repo) {
	w.t.Helper()
	options := gitrepo.Options{PullRefs: pullRefs(), URL: w.git.URL, Dir: dir, Timeout: await.Limit}
	change(&options)
	repo, err := gitrepo.Open(w.t.Context(), options)
	require.NoError(w.t, err)
	o := loop.Options{
		Repo: repo, Decide: decide.Options{Loader: newLoader(w.t)}, Forge: w.forge, Render: render(),
		Runtimes: map[string]runtimes.Runtime{"bare_metal": memory.New(w.world)},
		Settings: loop.Settings{
			Interval: 100 * time.Millisecond, Poll: 100 * time.Millisecond, Flush: 20 * time.Millisecond, AuthorLag: 20 * time.Millisecond,
			Workers: 4, MaxAttempts: 10,
		},
		Log: slog.New(slog.NewTextHandler(w.t.Output(), nil)),
	}
	for _, f := range tunes {
		f(&o)
	}
	return o, repo
}

// definitions are those of the backend of these tests, compiled once.
var definitions = sync.OnceValues(func() (*estate.Loader, error) {
	return estate.New(estate.Options{Backends: map[string]string{"bare_metal": "#Config: {...}\n#Parameters: {...}"}})
})

// newLoader returns a loader that has read nothing yet, as that of a new daemon.
func newLoader(t testing.TB) *estate.Loader {
	t.Helper()
	l, err := definitions()
	require.NoError(t, err)
	return l.WithEmptyCache()
}

// ready waits until the state in force is known.
func (d *daemon) ready() {
	d.w.t.Helper()
	await.Receive(d.w.t, "the state in force", d.Ready(), d.w.saw)
}

// end waits until the daemon ends by itself, and returns the reason.
func (d *daemon) end() error {
	d.w.t.Helper()
	err := await.Receive(d.w.t, "the end of the daemon", d.ended, d.w.saw)
	close(d.ended)
	return err
}

func (d *daemon) stop() error {
	d.cancel()
	select {
	case err, ok := <-d.ended:
		if !ok {
			return nil
		}
		close(d.ended)
		_ = d.repo.Close()
		return err
	case <-time.After(await.Limit):
		d.w.t.Errorf("the daemon does not stop; saw %v", d.w.saw())
		return nil
	}
}

func (w *world) put(files map[string]string, remove ...string) string {
	w.t.Helper()
	return w.git.MustCommit(w.t, "main", gittest.Commit{Message: "change", Files: files, Remove: remove})
}

// tree reads berth/status.
func (w *world) tree() reconciler.StatusTree {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	tip := w.git.Tip(reconciler.BranchStatus)
	if tip == w.statusTip {
		return w.statusTree
	}
	if w.local == nil {
		repo, err := gitrepo.OpenLocal(w.git.Dir)
		require.NoError(w.t, err)
		w.t.Cleanup(func() { _ = repo.Close() })
		w.local = repo
	}
	tree, err := w.local.ReadStatus(w.t.Context(), tip)
	require.NoError(w.t, err)
	w.statusTip, w.statusTree = tip, tree
	return tree
}

// status reads the status of a unit from berth/status.
func (w *world) status(name string) *plan.Status {
	return w.tree().Units.Get(schema.InstanceKey("physics", "lab", name))
}

func (w *world) revision() reconciler.Revision {
	return w.tree().Revision
}

func (w *world) phase(name string, p plan.Phase) func() bool {
	return func() bool {
		s := w.status(name)
		return s != nil && s.Phase == p && (p != plan.PhaseRunning || converged(s, len(s.Members)))
	}
}

// files returns all files of berth/status.
func (w *world) files() map[string]string {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if tip := w.git.Tip(reconciler.BranchStatus); tip != w.filesTip {
		files, err := w.git.Files(tip)
		require.NoError(w.t, err)
		w.filesTip, w.filesAt = tip, files
	}
	return w.filesAt
}

// events returns all events on the status branch in order.
func (w *world) events() []plan.Event {
	files := w.files()
	var paths []string
	for p := range files {
		if strings.HasPrefix(p, "events/") {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	var out []plan.Event
	for _, p := range paths {
		for sc := bufio.NewScanner(strings.NewReader(files[p])); sc.Scan(); {
			var e plan.Event
			require.NoError(w.t, json.Unmarshal(sc.Bytes(), &e), p)
			out = append(out, e)
		}
	}
	return out
}

func (w *world) eventTypes() []string {
	var out []string
	for _, e := range w.events() {
		if typ, ok := strings.CutPrefix(e.EventType, "apps.instance."); ok {
			out = append(out, typ)
		}
	}
	return out
}

func (w *world) noEventTwice() {
	w.t.Helper()
	seen := map[string]bool{}
	for _, e := range w.events() {
		require.False(w.t, seen[e.EventID], "event %s %s twice", e.EventType, e.EventID)
		seen[e.EventID] = true
		require.NotEmpty(w.t, e.CorrelationID)
	}
}

func TestInstanceLifecycle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.start()
	path, text := instance("train", 2)
	commit := w.put(map[string]string{path: text})
	w.eventually("running", w.phase("train", plan.PhaseRunning))

	s := w.status("train")
	require.Equal(t, commit, s.Revision)
	require.Len(t, s.Members, 3)
	require.Equal(t, []string{"ctl", "gpu-1", "gpu-2"}, []string{s.Members[0].Node, s.Members[1].Node, s.Members[2].Node})
	for _, m := range s.Members {
		require.Equal(t, plan.Running, m.State, m.Name)
		require.NotEmpty(t, m.Placed, "%s: reason of the assignment", m.Name)
	}
	require.Equal(t, "bare_metal", s.RuntimeBackend)
	require.Equal(t, "tenant_dedicated", s.OperatingMode)

	_, text = instance("train", 3)
	w.put(map[string]string{path: text})
	w.eventually("third worker", w.running("train", 3))
	require.Equal(t, "gpu-3", w.status("train").Members[3].Node)

	w.put(nil, path)
	w.eventually("gone", func() bool { return w.status("train") == nil })
	require.Empty(t, w.world.Remains(schema.InstanceKey("physics", "lab", "train")))
	require.Equal(t, []string{"requested", "running", "running", "deleting", "deleted"}, w.eventTypes())
	w.noEventTwice()
	require.NoError(t, d.stop())
}

func TestEmptyCommitCausesNoRuntimeCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	// Only the timer would observe again, after an hour.
	d := w.start(func(o *loop.Options) { o.Settings.Interval = time.Hour })
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	calls := w.world.TotalCalls()
	commit := w.put(map[string]string{"README.md": "nothing of Berth's\n"})
	w.eventually("decided", func() bool { return w.revision().Commit == commit })
	d.does(nobody) // units that the decision had woken were observed before
	d.does(nobody)
	require.Equal(t, calls, w.world.TotalCalls())
	require.NoError(t, d.stop())
}

func TestInvalidDocumentHoldsOnlyItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	w.eventually("running", w.phase("train", plan.PhaseRunning))

	other, otherText := instance("other", 1)
	commit := w.put(map[string]string{path: strings.Replace(text, "count: 1, gpus", "cuont: 2, gpus", 1), other: otherText})
	w.eventually("other instance runs", w.phase("other", plan.PhaseRunning))
	rev := w.revision()
	require.Equal(t, commit, rev.Commit)
	require.Len(t, rev.Held, 1)
	require.Equal(t, path, rev.Held[0].File)
	require.Contains(t, rev.Held[0].Message, "cuont")
	require.Len(t, w.status("train").Members, 2, "the version in force stays")

	inForce, err := w.git.Read(reconciler.BranchInForce, path)
	require.NoError(t, err)
	require.Equal(t, text, inForce)

	_, fixed := instance("train", 2)
	w.put(map[string]string{path: fixed})
	w.eventually("correction in force", w.running("train", 2))
	require.Empty(t, w.revision().Held)
}

// An empty tree, a rewritten history or an unreachable remote deletes no unit.
// Synchronization resumes after each.
func TestBrokenMainDeletesNothing(t *testing.T) {
	t.Parallel()
	path, text := instance("train", 1)
	running := func(t *testing.T) *world {
		w := newWorld(t)
		w.put(map[string]string{path: text})
		w.start()
		w.eventually("running", w.phase("train", plan.PhaseRunning))
		return w
	}
	t.Run("empty tree", func(t *testing.T) {
		t.Parallel()
		w := running(t)
		w.put(nil, "platform", "tenants")
		w.eventually("frozen", func() bool { return w.revision().Frozen != "" })
		w.latest.does(theEstate, train)
		w.latest.does(train)
		require.Equal(t, plan.PhaseRunning, w.status("train").Phase)
		require.NotEmpty(t, w.world.Remains(schema.InstanceKey("physics", "lab", "train")))
		// The restored tree ends the freeze.
		all := estateFiles()
		_, more := instance("train", 2)
		all[path] = more
		w.put(all)
		w.eventually("synchronization resumed", func() bool { return w.revision().Frozen == "" && w.running("train", 2)() })
	})
	t.Run("rewritten history", func(t *testing.T) {
		t.Parallel()
		w := running(t)
		first := w.git.Ref("refs/heads/main~1")
		w.git.MustCommit(t, "main", gittest.Commit{Message: "rewritten", Parent: first, Remove: []string{"tenants/physics"}})
		w.eventually("frozen", func() bool { return w.revision().Frozen != "" })
		w.latest.does(theEstate, train)
		w.latest.does(train)
		require.NotEmpty(t, w.world.Remains(schema.InstanceKey("physics", "lab", "train")))
	})
	t.Run("remote down, then back", func(t *testing.T) {
		t.Parallel()
		w := running(t)
		w.git.SetFaults(gittest.Faults{Down: true})
		// Berth repairs the units in force meanwhile.
		key := schema.InstanceKey("physics", "lab", "train")
		require.NoError(t, w.world.SetState(key, "worker-0", plan.Stopped))
		w.eventually("repaired while the remote is down", func() bool { return w.world.Calls("start") > 0 })
		_, more := instance("train", 2)
		w.git.SetFaults(gittest.Faults{})
		w.put(map[string]string{path: more})
		w.eventually("synchronization resumed", w.running("train", 2))
		w.noEventTwice()
	})
}

func TestUnknownPresenceIsNotAbsence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	w.world.SetReachable("ctl", false)
	w.eventually("unknown presence reported", func() bool {
		return slices.ContainsFunc(w.status("train").Conditions, func(c plan.Condition) bool {
			return c.Type == "Ready" && c.Status == "Unknown" && strings.Contains(c.Message, "ctl")
		})
	})
	require.Equal(t, plan.PhaseRunning, w.status("train").Phase)
	before := w.world.Fingerprint(schema.InstanceKey("physics", "lab", "train"))
	w.put(nil, path) // its deletion waits until the host can be asked
	w.eventually("deleting", w.phase("train", plan.PhaseDeleting))
	w.latest.does(train)
	w.latest.does(train)
	require.Equal(t, before, w.world.Fingerprint(schema.InstanceKey("physics", "lab", "train")))
	w.world.SetReachable("ctl", true)
	w.eventually("gone", func() bool { return w.status("train") == nil })
}

func TestSecondDaemonTakesLeadership(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.start()
	first.ready()
	w.start()
	w.eventually("second daemon has leadership", func() bool { return w.revision().Epoch >= 2 })
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	require.ErrorContains(t, first.end(), "another daemon leads")
	w.noEventTwice()
}

func TestPullRequestIsPlannedAndFollowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.start()
	path, text := instance("train", 2)
	head := w.git.MustCommit(t, "add-train", gittest.Commit{Message: "add", Files: map[string]string{path: text}})
	require.NoError(t, w.git.SetPull(7, head))
	pr := reconciler.PullRequest{Number: 7, Title: "add train", Author: "ada", Head: head, BaseBranch: "main", Open: true}
	w.forge.set(pr)
	d.Enqueue(reconciler.Item{Task: reconciler.TaskPull, Pull: 7})
	w.eventually("planned", func() bool { p, ok := w.forge.last(7); return ok && p.Head == head && len(p.Plans) == 1 })
	p, _ := w.forge.last(7)
	require.False(t, p.Blocked())
	require.Equal(t, plan.Create, p.Plans[0].Actions[0].Verb)
	require.Len(t, p.Plans[0].Actions, 3)
	reviewed := p.Plans[0].Digest

	commit, err := w.git.Merge("main", head, "merge add-train")
	require.NoError(t, err)
	pr.Open, pr.Merged, pr.MergeCommit = false, true, commit
	w.forge.set(pr)
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	require.Equal(t, reviewed, w.status("train").Digest, "the applied plan equals the reviewed plan")
	w.eventually("rollout reported", func() bool {
		w.forge.mu.Lock()
		defer w.forge.mu.Unlock()
		n := len(w.forge.follow)
		return n > 0 && w.forge.follow[n-1].Settled() && len(w.forge.follow[n-1].Units) == 1 &&
			w.forge.follow[n-1].Units[0].Phase == plan.PhaseRunning
	})
}

// Polling finds an approval without a webhook, and also its withdrawal.
func TestPollingFindsApproval(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(func(o *loop.Options) { o.Decide.Authority = &decide.Authority{Administrators: []string{"root"}} })
	path, text := instance("train", 1)
	head := w.git.MustCommit(t, "add-train", gittest.Commit{Message: "add", Files: map[string]string{path: text}})
	require.NoError(t, w.git.SetPull(7, head))
	updated := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	review := func(approvers ...string) {
		updated = updated.Add(time.Second)
		w.forge.mu.Lock()
		defer w.forge.mu.Unlock()
		w.forge.approvers = approvers
		w.forge.pulls = []reconciler.PullRequest{{Number: 7, Author: "eve", Head: head, BaseBranch: "main", Open: true, Updated: updated}}
	}
	blocked := func(want bool) func() bool {
		return func() bool { p, ok := w.forge.last(7); return ok && p.Blocked() == want }
	}
	review()
	w.eventually("check fails without approval", blocked(true))
	review("ada")
	w.eventually("ada may", blocked(false))
	review("eve", "ada")
	w.latest.passes(2, thePulls)
	w.latest.publishes(7)
	w.forge.mu.Lock()
	require.Len(t, w.forge.shown[7], 2, "an unchanged comment is not written again")
	w.forge.mu.Unlock()
	review()
	w.eventually("taken back", blocked(true))
}

// Commits that the forge does not know yet are awaited together: many take no longer
// than one.
func TestUnknownCommitsAreAwaitedConcurrently(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var later atomic.Int64
	w.start(func(o *loop.Options) {
		o.Decide.Authority, o.Settings.AuthorLag = &decide.Authority{Administrators: []string{"root"}}, time.Hour
		o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	w.eventually("begun", func() bool { return w.revision().Commit == w.git.Tip("main") })
	var commits []string
	for _, name := range []string{"one", "two", "three"} {
		path, text := instance(name, 1)
		commits = append(commits, w.git.MustCommit(t, "pushed", gittest.Commit{Message: name, Files: map[string]string{path: text}}))
	}
	asked := func() int {
		w.forge.mu.Lock()
		defer w.forge.mu.Unlock()
		return w.forge.asked[commits[0]]
	}
	require.NoError(t, w.git.SetRef("refs/heads/main", w.git.Tip("pushed")))
	w.eventually("awaited", func() bool { return asked() > 0 })
	require.NotEqual(t, w.git.Tip("main"), w.revision().Commit)
	later.Store(int64(time.Hour + time.Second))
	w.eventually("decided", func() bool { return w.revision().Commit == w.git.Tip("main") })
	require.Len(t, w.heldReasons(), 3)
}

// pullRefs are those of the test server.
func pullRefs() reconciler.PullRefs {
	return reconciler.PullRefs{Head: gittest.PullRef, Groups: gittest.GroupRefs}
}

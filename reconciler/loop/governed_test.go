package loop_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/decide"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/statusbranch"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
)

// signer is a user with a local checkout who signs every commit.
type signer struct {
	t         *testing.T
	dir, key  string
	publicKey string // as in a RoleBinding
}

func newSigner(t *testing.T, w *world) *signer {
	s := &signer{t: t, dir: filepath.Join(t.TempDir(), "desk")}
	s.key = filepath.Join(t.TempDir(), "key")
	s.run("", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", s.key)
	data, err := os.ReadFile(s.key + ".pub")
	require.NoError(t, err)
	s.publicKey = strings.TrimSpace(string(data))
	s.run("", "git", "clone", "-q", w.git.URL, s.dir)
	return s
}

func (s *signer) run(dir, name string, args ...string) {
	s.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=S", "GIT_AUTHOR_EMAIL=s@example.org",
		"GIT_COMMITTER_NAME=S", "GIT_COMMITTER_EMAIL=s@example.org",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=maintenance.auto", "GIT_CONFIG_VALUE_0=false")
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, string(out))
}

// push pushes a signed commit to main: path → content; "" deletes the file.
func (s *signer) push(message string, files map[string]string) {
	s.t.Helper()
	s.run(s.dir, "git", "fetch", "-q", "origin") // not pull, which takes twice as many processes
	s.run(s.dir, "git", "reset", "-q", "--hard", "origin/main")
	for path, data := range files {
		path = filepath.Join(s.dir, path)
		if data == "" {
			require.NoError(s.t, os.Remove(path))
			continue
		}
		require.NoError(s.t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(s.t, os.WriteFile(path, []byte(data), 0o644))
	}
	s.run(s.dir, "git", "add", "-A")
	s.run(s.dir, "git", "-c", "gpg.format=ssh", "-c", "user.signingkey="+s.key, "commit", "-q", "-S", "-m", message)
	s.run(s.dir, "git", "push", "-q", "origin", "HEAD:main")
}

// governed requires a permission for every change; root is administrator by key.
func governed(root *signer) tune {
	return func(o *loop.Options) {
		o.Forge, o.Settings.AuthorLag = nil, time.Millisecond
		o.Decide.Authority = &decide.Authority{Administrators: []string{"root"}, AdministratorKeys: []string{root.publicKey}}
	}
}

func roleBinding(members string) string {
	return "apiVersion: berth/v1\nkind: RoleBinding\nmetadata: {name: roles}\nspec:\n  members:\n" + members
}

func (w *world) heldReasons() map[string]schema.HeldReason {
	out := map[string]schema.HeldReason{}
	for _, h := range w.revision().Held {
		out[h.File] = h.Reason
	}
	return out
}

// audited reads the audit log and verifies it against its head.
func (w *world) audited() []audit.Record {
	w.t.Helper()
	repo, err := gitrepo.OpenLocal(w.git.Dir)
	require.NoError(w.t, err)
	defer repo.Close()
	tip := w.git.Tip(reconciler.BranchStatus)
	var out []audit.Record
	for line, err := range repo.Audit(w.t.Context(), tip, statusbranch.LogOrder{}) {
		require.NoError(w.t, err)
		out = append(out, line.Value)
	}
	return out
}

// Without a forge, the signature of a commit decides its author's permissions. An
// unsigned change is held, also after a loss of any local state of the daemon.
func TestSignedCommitsAreAuthority(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root, ana, eve := newSigner(t, w), newSigner(t, w), newSigner(t, w)
	d := w.start(governed(root))
	path, text := instance("train", 2)
	w.eventually("first commit decided", func() bool { return w.revision().Commit == w.git.Tip("main") })
	root.push("ana may", map[string]string{"tenants/physics/roles.yaml": roleBinding("    - {login: ana, role: tenant_admin, " +
		"signing_keys: [\"" + ana.publicKey + "\"]}\n")})
	w.eventually("change of tenant documents by the platform held", func() bool {
		return w.heldReasons()["tenants/physics/roles.yaml"] == schema.HeldUnauthorised
	})
	root.push("ana may\n\nBreak-Glass: physics has nobody yet",
		map[string]string{"tenants/physics/roles.yaml": roleBinding("    - {login: ana, role: tenant_admin, signing_keys: [\"" +
			ana.publicKey + "\"]}\n    # of physics\n")})
	w.eventually("break-glass access releases the change", func() bool { return len(w.heldReasons()) == 0 })

	eve.push("mine", map[string]string{path: text})
	w.eventually("unknown key held", func() bool { return w.heldReasons()[path] == schema.HeldUnauthorised })
	ana.push("ours", map[string]string{path: text + "# ours\n"})
	w.eventually("running", w.phase("train", plan.PhaseRunning))

	_, more := instance("train", 3)
	w.put(map[string]string{path: more}) // unsigned
	w.eventually("held", func() bool { return w.heldReasons()[path] == schema.HeldUnauthorised })
	w.eventually("condition reported", func() bool { return condition(w.status("train"), "Authorized") == "False" })
	require.Len(t, w.status("train").Members, 3)

	// The cache and the status branch are lost.
	require.NoError(t, d.stop())
	require.NoError(t, w.git.SetRef("refs/heads/"+reconciler.BranchStatus, ""))
	d = w.start(governed(root))
	w.eventually("held still", func() bool { return w.heldReasons()[path] == schema.HeldUnauthorised })
	w.put(map[string]string{"README.md": "nothing to do with it\n"})
	w.eventually("decided", func() bool { return w.revision().Commit == w.git.Tip("main") })
	require.Equal(t, map[string]schema.HeldReason{path: schema.HeldUnauthorised}, w.heldReasons())
	require.Len(t, w.status("train").Members, 3)

	// Without berth/in-force too, nothing is applied.
	require.NoError(t, d.stop())
	require.NoError(t, w.git.SetRef("refs/heads/"+reconciler.BranchInForce, ""))
	d = w.start(governed(root))
	w.eventually("frozen", func() bool { return strings.Contains(w.revision().Frozen, "repository.accept") })
	require.Len(t, w.status("train").Members, 3)
	require.NoError(t, d.stop())
	w.start(governed(root), func(o *loop.Options) { o.Accept = w.git.Tip("main") })
	w.eventually("operator accepts the estate", func() bool { return len(w.status("train").Members) == 4 })
}

// Every change is audited once with its author, the permission used and the outcome.
// Every action is audited too.
func TestEverythingIsAudited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := newSigner(t, w)
	w.start(governed(root))
	w.eventually("adopted", func() bool { return len(w.audited()) == 1 })
	require.Equal(t, "estate.adopted", w.audited()[0].Action)
	path, text := instance("train", 1)
	root.push("train\n\nBreak-Glass: nobody else is there", map[string]string{path: text})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	w.put(nil, path)
	w.eventually("held", func() bool { return len(w.heldReasons()) == 1 })
	type line struct{ action, permission, verdict, actor string }
	var got []line
	for _, r := range w.audited()[1:] {
		require.NotEmpty(t, r.CorrelationID)
		require.Equal(t, "physics", r.OrgID)
		require.Equal(t, "physics.lab", r.ProjectID)
		actor := r.Actor
		if strings.HasPrefix(r.Action, "document.") && actor != "" {
			require.True(t, r.BreakGlass)
			actor = "root"
		}
		got = append(got, line{r.Action, r.Permission, string(r.Verdict), actor})
	}
	require.Equal(t, line{"document.added", "apps.instance.create", "allowed", "root"}, got[0])
	require.Equal(t, line{"document.deleted", "apps.instance.delete", "denied", ""}, got[len(got)-1])
	require.Contains(t, got, line{"runtime.create", "", "allowed", "berth"})
	require.Contains(t, got, line{"runtime.join", "", "allowed", "berth"})
}

// A pause stops every host action but no observation, also when its document is
// invalid.
func TestPauseStopsEveryAction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	for name, pause := range map[string]string{
		"as it should be": "apiVersion: berth/v1\nkind: Pause\nmetadata: {name: pause}\nspec: {reason: maintenance}\n",
		"badly":           "kind: Pause\nreason: STOP\n",
	} {
		w.put(map[string]string{"platform/pause.yaml": pause})
		w.eventually(name+": decided", func() bool { return w.revision().Commit == w.git.Tip("main") })
		calls := w.world.Calls("join") + w.world.Calls("leave") + w.world.Calls("start")
		require.NoError(t, w.world.SetState(trainKey, "worker-0", plan.Stopped))
		w.eventually(name+": suspension reported", func() bool { return condition(w.status("train"), "Suspended") == "True" })
		require.Equal(t, calls, w.world.Calls("join")+w.world.Calls("leave")+w.world.Calls("start"), name)
		w.put(nil, "platform/pause.yaml")
		w.eventually(name+": resumed", func() bool { return w.world.Calls("join")+w.world.Calls("leave")+w.world.Calls("start") > calls })
		w.eventually(name+": well", func() bool { return condition(w.status("train"), "Ready") == "True" })
	}
}

func condition(s *plan.Status, typ plan.ConditionType) plan.ConditionStatus {
	if c := s.Condition(typ); c != nil {
		return c.Status
	}
	return ""
}

// After the grace period of a policy, a noncompliant instance is stopped. It does not
// stop earlier, and the stop is reported.
func TestNoncompliantInstanceStopsAfterGrace(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]string{
		"resource limit":          "max_gpus_per_instance: 0",
		"limit on assigned nodes": "allowed_skus: [elsewhere]",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			graceEnds(t, limit)
		})
	}
}

func graceEnds(t *testing.T, limit string) {
	w := newWorld(t)
	var day atomic.Int64
	begin, started := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), time.Now()
	w.start(func(o *loop.Options) {
		o.Now = func() time.Time { return begin.AddDate(0, 0, int(day.Load())).Add(time.Since(started)) }
	})
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	w.eventually("running", w.phase("train", plan.PhaseRunning))
	w.put(map[string]string{"tenants/physics/policy.yaml": "apiVersion: berth/v1\nkind: Policy\nmetadata: {name: policy}\nspec:\n  " +
		limit + "\n  noncompliant: {action: stop, grace_until: \"2026-03-03\"}\n"})
	w.eventually("decided", func() bool { return w.revision().Commit == w.git.Tip("main") })
	w.eventually("warned", func() bool {
		return strings.Contains(message(w.status("train"), "PolicyCompliant"), "goes on until 2026-03-03")
	})
	revision := w.status("train").Revision
	w.put(map[string]string{"README.md": "another change\n", "tenants/physics/projects/lab/broken.txt": "not yet\n"})
	w.eventually("decided", func() bool { return w.revision().Commit == w.git.Tip("main") })
	day.Store(1)
	w.latest.does(theEstate, train)
	w.latest.does(train)
	w.latest.written()
	require.Equal(t, plan.PhaseRunning, w.status("train").Phase)
	require.Zero(t, w.world.Calls("stop"))
	day.Store(2)
	w.eventually("stopped", w.phase("train", plan.PhaseStopped))
	w.eventually("stop reported", func() bool {
		return strings.Contains(message(w.status("train"), "Ready"), "its grace ended on 2026-03-03")
	})
	require.Equal(t, plan.ConditionFalse, condition(w.status("train"), "PolicyCompliant"))
	require.Contains(t, message(w.status("train"), "PolicyCompliant"), "tenants/physics/policy.yaml:5")
	require.Equal(t, revision, w.status("train").Revision, "a later commit is not the cause")
	fates := map[string]string{}
	w.eventually("audited", func() bool {
		for _, r := range w.audited() {
			if r.Key == trainKey && r.Source != "" {
				fates[r.Action] = r.Source
			}
		}
		return len(fates) == 3
	})
	const rule = "tenants/physics/policy.yaml:6"
	require.Equal(t, map[string]string{"policy.stopping": rule, "policy.stopped": rule, "runtime.stop": rule}, fates)
}

func message(s *plan.Status, typ plan.ConditionType) string {
	if c := s.Condition(typ); c != nil {
		return c.Message
	}
	return ""
}

// The event of an entitlement names its author (requirement A3).
func TestEntitlementEventNamesWhoChangedIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := newSigner(t, w)
	d := w.start(governed(root))
	d.ready()
	const file = "tenants/physics/projects/lab/entitlements/batch.yaml"
	root.push("entitlement\n\nBreak-Glass: nobody else is there",
		map[string]string{file: strings.Replace(estateFiles()[file], "{enabled: true}",
			"{enabled: true, policy_overrides: {max_instances_per_project: 3}}", 1)})
	type payload struct {
		UpdatedBy string `json:"updated_by"`
		Project   string `json:"project_id"`
		App       string `json:"app_slug"`
		Revision  string `json:"revision"`
	}
	commit := w.git.Tip("main")
	var reported []payload
	w.eventually("event published", func() bool {
		reported = nil
		for _, e := range w.events() {
			if e.EventType == "apps.entitlement.updated" {
				var p payload
				if json.Unmarshal(e.Payload, &p) == nil && p.Revision == commit {
					reported = append(reported, p)
				}
			}
		}
		return len(reported) == 1
	})
	require.Equal(t, "physics.lab batch", reported[0].Project+" "+reported[0].App)
	require.Equal(t, "root", reported[0].UpdatedBy)
}

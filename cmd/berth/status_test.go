package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/event"
)

// examplesFiles are the documents of an example, by path.
func exampleFiles(t *testing.T, name string) map[string]string {
	t.Helper()
	files := map[string]string{}
	dir := os.DirFS(filepath.Join(moduleRoot, "examples", name))
	require.NoError(t, fs.WalkDir(dir, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(dir, path)
		files[path] = string(text)
		return err
	}))
	return files
}

// recorded is a repository in which Berth decided main and recorded its observations.
func recorded(t *testing.T, files map[string]string, w reconciler.InForce, b reconciler.StatusBatch) *gittest.Server {
	t.Helper()
	s := gittest.New(t, files)
	repo, err := gitrepo.Open(t.Context(), gitrepo.Options{URL: s.URL, Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, repo.Close()) })
	tips, err := repo.Fetch(t.Context())
	require.NoError(t, err)
	w.Commit, w.CorrelationID, w.Epoch = tips.Main, "corr-1", 7
	inForce, err := repo.WriteInForce(t.Context(), "", w)
	require.NoError(t, err)
	b.Revision.Commit, b.Revision.InForce, b.Revision.Epoch, b.Revision.Held = tips.Main, inForce, 7, w.Held
	_, err = repo.WriteStatus(t.Context(), "", b)
	require.NoError(t, err)
	return s
}

// labUnits are statuses of the instances of examples/lab: one runs, the other
// failed and is tried again.
func labUnits() []plan.Status {
	condition := func(kind plan.ConditionType, status plan.ConditionStatus, reason plan.Reason, message string) plan.Condition {
		return plan.Condition{Type: kind, Status: status, Reason: reason, Message: message}
	}
	member := func(name, node string, state plan.State) plan.MemberStatus {
		return plan.MemberStatus{Member: plan.Member{Name: name, Role: name[:len(name)-2], Node: node}, State: state,
			Placed: "the best of 2 free nodes"}
	}
	train := schema.InstanceKey("physics", "lattice", "train")
	return []plan.Status{{
		Key: train, Phase: plan.PhaseRunning, EffectiveValues: plan.EffectiveValues{App: "slurm", RuntimeBackend: "slurm"},
		Conditions: []plan.Condition{condition("Authorized", "False", "Held", "nobody with apps.instance.update approved the change"),
			condition("Ready", "True", "Running", "")},
		Members:  []plan.MemberStatus{member("controller-0", "dev-lab-1", plan.Running), withGPUs(member("worker-0", "dev-gpu-1", plan.Running))},
		Observed: &plan.Observed{Key: train, Presence: plan.Present, Complete: true},
	}, {
		Key: schema.InstanceKey("biology", "genomes", "assembly"), Phase: plan.PhaseFailed,
		EffectiveValues: plan.EffectiveValues{App: "slurm", RuntimeBackend: "slurm"},
		Conditions:      []plan.Condition{condition("Ready", "False", "Failed", "join worker-0: dev-gpu-3: connection refused")},
		Members: []plan.MemberStatus{member("controller-0", "dev-lab-1", plan.Running),
			member("worker-0", "dev-gpu-3", plan.Partial)},
		LastApplied: plan.LastApplied{Retry: &plan.Retry{Attempts: 3, Next: time.Date(2026, 8, 1, 10, 0, 20, 0, time.UTC),
			Reason: "connection refused"}},
	}}
}

// campusShared are statuses of the shared runtime department of examples/campus: collider is
// attached and lends a worker, lattice has not accepted its terms.
func campusShared() reconciler.StatusBatch {
	department := schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "department"}
	attachment := func(name, phase string, status plan.ConditionStatus, reason plan.Reason, message string) plan.ThingStatus {
		return plan.ThingStatus{Key: schema.Key{Kind: schema.KindAttachment, Tenant: "physics", Parent: "department", Name: name},
			Phase:      phase,
			Conditions: []plan.Condition{{Type: "Ready", Status: status, Reason: reason, Message: message}}}
	}
	const why = "no Instance of physics.lattice names the shared runtime department"
	values := plan.EffectiveValues{App: "slurm", RuntimeBackend: "slurm", OperatingMode: "tenant_dedicated", ControlPlaneScope: "tenant"}
	ready := []plan.Condition{{Type: "Ready", Status: "True", Reason: "Running"}}
	names := &plan.Integration{SchedulerType: "slurm", Adapter: "runtimes/slurm", References: map[string]string{"node": "gpu-3"}}
	const overdue = "the rollback expired on 2026-11-23: ops renews or removes it (task 12)"
	queues := plan.ThingStatus{Key: schema.Key{Kind: schema.KindQueueMap, Name: "physics"}, Phase: schema.ModePassthrough,
		Conditions: []plan.Condition{
			{Type: "Ready", Status: "True", Reason: "InForce"},
			{Type: "RollbackExpired", Status: "True", Reason: "Expired", Message: overdue},
			{Type: "Stalled", Status: "True", Reason: "Expired", Message: overdue}}}
	return reconciler.StatusBatch{
		Units: []plan.Status{
			{Key: department, Phase: plan.PhaseRunning, EffectiveValues: values, Conditions: ready,
				Members: []plan.MemberStatus{
					{Member: plan.Member{Name: "controller-0", Role: "controller", Node: "head-1"}, State: plan.Running},
					{Member: plan.Member{Name: "worker-0", Role: "worker", Node: "gpu-3",
						Loan: &schema.Loan{ProjectID: "physics.collider", Until: "2027-03-01"}}, State: plan.Running, Placed: "lent",
						Note: "Slurm has 30 of its 32 CPUs", Integration: names},
				},
				Attachments: []plan.AttachmentStatus{
					{ProjectID: "physics.collider", Name: "collider", Phase: plan.AttachmentAttached, Reason: "Attached"},
					{ProjectID: "physics.lattice", Name: "lattice", Phase: plan.AttachmentRequested, Reason: "NotAccepted", Message: why},
				}},
			{Key: schema.InstanceKey("physics", "collider", "analysis"), Phase: plan.PhaseRunning, EffectiveValues: values,
				Conditions: ready},
		},
		Things: []plan.ThingStatus{attachment("collider", "attached", "True", "Attached", ""),
			attachment("lattice", "requested", "False", "NotAccepted", why), queues},
	}
}

// withGPUs gives a member two GPUs.
func withGPUs(m plan.MemberStatus) plan.MemberStatus {
	m.GPUs = []schema.GPU{{Type: "a100", Count: 2}}
	return m
}

// The scripts read estates as Berth recorded them: $LAB runs, fails and holds;
// $PAUSED is paused; $EMPTY has no document and is frozen; $FRESH was never decided;
// $SHARED has a shared runtime.
func TestStatusScripts(t *testing.T) {
	lab := exampleFiles(t, "lab")
	trainFile := "tenants/physics/projects/lattice/instances/train.yaml"
	held := []schema.Held{{Key: schema.InstanceKey("physics", "lattice", "train"), File: trainFile, Reason: "unauthorised",
		Message: "nobody with apps.instance.update\x1b[31m approved the change"},
		{Key: schema.InstanceKey("physics", "lattice", "sweep"), File: "tenants/physics/projects/lattice/instances/sweep.yaml",
			Reason: "denied", Message: "asks for 9 GPUs, at most 6 are allowed"},
		{Key: schema.InstanceKey("biology", "genomes", "assembly"), File: "tenants/biology/projects/genomes/instances/assembly.yaml",
			Reason: "invalid", Message: "spec.roles.worker.count: got -1"}}
	node := func(name, phase string, cs ...plan.Condition) plan.ThingStatus {
		return plan.ThingStatus{Key: schema.Key{Kind: schema.KindNode, Name: name}, Phase: phase, Conditions: cs,
			Detail: json.RawMessage(`{"answered_at":"2026-08-01T10:00:00Z","since":"2026-08-01T09:00:00Z",` +
				`"found":{"cpus":2,"memory_mib":3900,"gpus":2},"host":{"kernel":"6.12.0","boot_id":"b-1","helper_version":"v1","helper_protocol":3},"measured":{"load":0.25,"memory_available_mib":1200,` +
				`"disks":[{"path":"/","size_gib":100,"free_gib":7}],"clock_offset_ms":-120000}}`)}
	}
	train := schema.InstanceKey("physics", "lattice", "train")
	running := recorded(t, lab, reconciler.InForce{Held: held}, reconciler.StatusBatch{
		Units: labUnits(),
		Things: []plan.ThingStatus{node("dev-gpu-1", "ready", plan.Condition{Type: plan.ConditionReady, Status: plan.ConditionTrue}),
			node("dev-gpu-3", "lost", plan.Condition{Type: plan.ConditionReady, Status: plan.ConditionFalse,
				Reason: plan.ReasonHostAndSchedulerSilent, Message: "SSH: connection refused"})},
		Events: []plan.Event{{EventID: event.ID(event.InstanceRunning, train, "x", 1), EventType: string(event.InstanceRunning),
			OccurredAt: time.Date(2026, 8, 1, 10, 0, 0, 0, time.UTC), Version: "1", CorrelationID: "corr-1",
			Payload: []byte(`{"project_id":"physics.lattice","app_instance_id":"train","resource_name":"physics.lattice/train"}`)}},
	})
	decided := running.Tip("main")
	running.MustCommit(t, "main", gittest.Commit{Message: "not decided yet", Files: map[string]string{"README.md": "x\n"}})

	stopped := exampleFiles(t, "lab")
	stopped["platform/pause.yaml"] = "apiVersion: berth/v1\nkind: Pause\nmetadata: {name: pause}\nspec: {reason: power work in hall 2}\n"
	paused := recorded(t, stopped, reconciler.InForce{}, reconciler.StatusBatch{Units: labUnits()[:1]})
	empty := recorded(t, map[string]string{"README.md": "an estate\n"}, reconciler.InForce{},
		reconciler.StatusBatch{Revision: reconciler.Revision{Frozen: "main was rewritten"}})
	fresh := gittest.New(t, lab)
	shared := recorded(t, exampleFiles(t, "campus"), reconciler.InForce{}, campusShared())

	example, err := filepath.Abs(filepath.Join(moduleRoot, "examples/lab"))
	require.NoError(t, err)
	runScripts(t, "testdata/status", func(env *testscript.Env) error {
		for name, s := range map[string]*gittest.Server{"LAB": running, "PAUSED": paused, "EMPTY": empty, "FRESH": fresh,
			"SHARED": shared} {
			env.Setenv(name, s.Dir)
		}
		env.Setenv("DECIDED", decided[:12])
		env.Setenv("SHARED_DECIDED", shared.Tip("main")[:12])
		env.Setenv("EXAMPLE", example)
		return nil
	})
}

// The linker's stamp takes precedence over Go's build information.
func TestVersionOf(t *testing.T) {
	info := &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789012345678901234567890123456789"}, {Key: "vcs.time", Value: "2026-08-01T10:00:00Z"},
		{Key: "vcs.modified", Value: "true"},
	}}
	require.Contains(t, versionOf(info).text(),
		"berth unknown (commit 0123456789012345678901234567890123456789, modified, 2026-08-01T10:00:00Z, go")
	require.Contains(t, versionOf(nil).text(), "berth unknown (commit unknown, date unknown, go")
	buildVersion, buildCommit = "v1.2.0", "feed"
	t.Cleanup(func() { buildVersion, buildCommit = "", "" })
	require.Contains(t, versionOf(info).text(), "berth v1.2.0 (commit feed, ")
}

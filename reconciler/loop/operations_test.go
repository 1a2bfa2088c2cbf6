package loop_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler"
	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
)

// operation is a document of the project of train; fields are further lines of its spec.
func operation(name, operation, member string, fields ...string) (path, text string) {
	spec := []string{"instance: train", "operation: " + operation, "reason: a fan is loud"}
	if member != "" {
		spec = append(spec, "member: "+member)
	}
	return "tenants/physics/projects/lab/operations/" + name + ".yaml",
		"apiVersion: berth/v1\nkind: MemberOperation\nmetadata: {name: " + name +
			"}\nspec:\n  " + strings.Join(append(spec, fields...), "\n  ") + "\n"
}

// ask commits operations, each as name, operation and member.
func (w *world) ask(operations ...[3]string) string {
	files := map[string]string{}
	for _, o := range operations {
		path, text := operation(o[0], o[1], o[2])
		files[path] = text
	}
	return w.put(files)
}

func operationKey(name string) schema.Key {
	return schema.Key{Kind: schema.KindMemberOperation, Tenant: "physics", Project: "lab", Name: name}
}

// operated waits until an operation has a phase on berth/status.
func (w *world) operated(name string, phase plan.OperationPhase) *plan.ThingStatus {
	w.t.Helper()
	var s *plan.ThingStatus
	w.eventually(fmt.Sprintf("operation %s is %s", name, phase), func() bool {
		s = w.tree().Things[operationKey(name)]
		return s != nil && s.Phase == string(phase)
	})
	return s
}

func (w *world) trains(workers int) {
	w.t.Helper()
	path, text := instance("train", workers)
	w.put(map[string]string{path: text})
	w.eventually("train runs", w.running("train", workers))
}

func (w *world) drained(member string) string {
	reason, _ := w.world.Member(trainKey, member)
	return reason
}

// Requirements A7, D5: a document in Git is done once, and its status tells so.
func TestOperationInGitIsDoneOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.start(func(o *loop.Options) { o.Forge = nil })
	w.trains(2)

	commit := w.ask([3]string{"fan", "drain", "worker-0"})
	s := w.operated("fan", plan.OperationDone)
	require.Equal(t, commit, s.Revision)
	require.Equal(t, reconciler.CorrelationID(commit), s.CorrelationID)
	require.Contains(t, string(s.Detail), `"started_at"`)
	require.Contains(t, string(s.Detail), `"finished_at"`)
	require.Equal(t, "operation fan", w.drained("worker-0"))
	w.eventually("train runs again", w.running("train", 2))

	// A person resumes the member. The document stays, and is not done again, also by another daemon
	// and after another commit of the unit.
	require.NoError(t, w.world.SetDrained(trainKey, "worker-0", ""))
	d.stop()
	w.start(func(o *loop.Options) { o.Forge = nil })
	w.trains(3)
	require.Empty(t, w.drained("worker-0"))
	require.Equal(t, 1, w.world.Calls("drain"))

	// The file goes, and its status with it.
	path, _ := operation("fan", "", "")
	w.put(nil, path)
	w.eventually("the status is gone", func() bool { return w.tree().Things[operationKey("fan")] == nil })
	require.Equal(t, 1, w.world.Calls("drain"))
}

// Each verb has its effect, in the order of the names.
func TestEachOperationHasItsEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(func(o *loop.Options) { o.Forge = nil })
	w.trains(2)
	starts := w.world.Fingerprint(trainKey)

	w.ask([3]string{"a", "cordon", "worker-0"})
	w.operated("a", plan.OperationDone)
	require.Equal(t, "operation a", w.drained("worker-0"))
	w.ask([3]string{"b", "uncordon", "worker-0"})
	w.operated("b", plan.OperationDone)
	require.Empty(t, w.drained("worker-0"))
	require.Equal(t, starts, w.world.Fingerprint(trainKey))
	w.ask([3]string{"c", "restart", "worker-0"})
	w.operated("c", plan.OperationDone)
	require.Contains(t, w.world.Fingerprint(trainKey), "worker-0 on gpu-1 is running after 2 starts")
	path, text := operation("d", "label", "worker-1", "labels: {rack: r1}")
	w.put(map[string]string{path: text})
	w.operated("d", plan.OperationDone)
	_, labels := w.world.Member(trainKey, "worker-1")
	require.Equal(t, map[string]string{"rack": "r1"}, labels)
	w.ask([3]string{"e", "replace", "worker-0"})
	s := w.operated("e", plan.OperationDone)
	require.Contains(t, string(s.Detail), "worker-0 moved from gpu-1 to gpu-3")
	w.eventually("train runs", w.running("train", 2))
	require.Contains(t, w.world.Fingerprint(trainKey), "worker-0 on gpu-3 is running")
	require.Empty(t, w.drained("worker-0"))

	// The highest number leaves with the count; the operation says how its jobs end.
	p, train := instance("train", 1)
	path, text = operation("f", "remove", "worker-1", "on_jobs: {cancel_after_seconds: 1}")
	require.NoError(t, w.world.SetJobs(trainKey, plan.Jobs{Running: 2}))
	w.put(map[string]string{p: train, path: text})
	w.operated("f", plan.OperationDone)
	w.eventually("train runs", w.running("train", 1))
}

// A replacement that is asked for before its member joined is done once it has.
func TestReplacementWaitsForItsMember(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path, train := instance("train", 2)
	of, text := operation("early", "replace", "worker-0")
	w.put(map[string]string{path: train, of: text})
	w.start(func(o *loop.Options) { o.Forge = nil })
	s := w.operated("early", plan.OperationDone)
	require.Contains(t, string(s.Detail), "worker-0 moved from ")
	w.eventually("train runs", w.running("train", 2))
}

// Only drains with our mark are undone.
func TestResumeLeavesTheDrainOfAPerson(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(func(o *loop.Options) { o.Forge = nil })
	w.trains(1)
	require.NoError(t, w.world.SetDrained(trainKey, "worker-0", "bad DIMM"))
	w.ask([3]string{"back", "resume", "worker-0"})
	s := w.operated("back", plan.OperationFailed)
	require.Contains(t, string(s.Detail), "drained by a person (bad DIMM)")
	require.Equal(t, "bad DIMM", w.drained("worker-0"))
	w.eventually("a failed operation is no failure of its unit", w.running("train", 1))
}

// A drain waits for jobs and then ends; a suspended document is not done; one that cannot start
// expires after a day.
func TestOperationWaitsAndExpires(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	clock := newManualClock()
	d := w.start(func(o *loop.Options) { o.Forge, o.Now = nil, clock.Now })
	w.trains(1)
	look := func() { d.Enqueue(reconciler.Item{Task: reconciler.TaskUnit, Unit: trainKey}) }
	require.NoError(t, w.world.SetJobs(trainKey, plan.Jobs{Running: 1}))
	w.ask([3]string{"fan", "drain", "worker-0"})
	s := w.operated("fan", plan.OperationRunning)
	w.eventually("it says what it waits for", func() bool {
		s = w.tree().Things[operationKey("fan")]
		return strings.Contains(string(s.Detail), "jobs run on gpu-1")
	})
	require.NoError(t, w.world.SetJobs(trainKey, plan.Jobs{}))
	look()
	w.operated("fan", plan.OperationDone)

	path, text := operation("asleep", "restart", "worker-0")
	w.put(map[string]string{path: strings.Replace(text, "kind: MemberOperation", "kind: MemberOperation\nsuspend: true", 1)})
	w.world.SetReachable("gpu-1", false)
	w.ask([3]string{"late", "restart", "worker-0"})
	w.operated("late", plan.OperationRequested)
	clock.Set(clock.Now().Add(24*time.Hour - time.Minute))
	d.does(train)
	d.written()
	w.operated("late", plan.OperationRequested)
	clock.Set(clock.Now().Add(2 * time.Minute))
	d.does(train)
	d.written()
	s = w.tree().Things[operationKey("late")]
	require.Equal(t, string(plan.OperationExpired), s.Phase, "after a day")
	require.Contains(t, string(s.Detail), "cannot be reached")
	w.world.SetReachable("gpu-1", true)
	look()
	w.eventually("train runs", w.running("train", 1))
	require.Zero(t, w.world.Calls("restart"))
	require.Nil(t, w.tree().Things[operationKey("asleep")])
}

// Requirement E6: a retry request begins a new attempt of a unit that gave up.
func TestRetryOperationRestartsAFailedUnit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rt := newFaulty(w.world)
	rt.broken.Store(true)
	w.start(rt.use, func(o *loop.Options) { o.Forge, o.Settings.MaxAttempts = nil, 1 })
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	w.eventually("it gave up", func() bool {
		s := w.tree().Units.Get(trainKey)
		return s != nil && s.Retry != nil && s.Retry.Terminal
	})
	rt.broken.Store(false)
	w.ask([3]string{"again", "retry", ""})
	w.operated("again", plan.OperationDone)
	w.eventually("train runs", w.running("train", 1))
	w.eventually("the event is announced", func() bool {
		return slices.ContainsFunc(w.events(), func(e plan.Event) bool { return e.EventType == "berth.retry.triggered" })
	})
}

// Requirement E3: a unit that its host has lost is failed, and not made anew before an operation accepts the loss.
func TestLostUnitWaitsForAnOperation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.start(func(o *loop.Options) { o.Forge = nil })
	w.trains(1)
	w.eventually("it is known as made", func() bool { s := w.tree().Units.Get(trainKey); return s != nil && s.Made })
	require.NoError(t, w.world.Lose(trainKey))
	d.Enqueue(reconciler.Item{Task: reconciler.TaskUnit, Unit: trainKey})
	var s *plan.Status
	w.eventually("the loss is said", func() bool {
		s = w.tree().Units.Get(trainKey)
		return slices.ContainsFunc(s.Conditions,
			func(c plan.Condition) bool { return strings.Contains(c.Message, "the control host has lost") })
	})
	require.Equal(t, 1, w.world.Calls("create"))
	require.Equal(t, plan.PhaseFailed, s.Phase)
	require.Contains(t, s.FailureReason, "the control host has lost Instance physics.lab/train")

	w.ask([3]string{"anew", "accept_loss", ""})
	w.operated("anew", plan.OperationDone)
	w.eventually("train runs", w.running("train", 1))
	require.Equal(t, 2, w.world.Calls("create"))
}

// The audit log says which usage an operation gives up.
func TestAbandonedUsageIsAudited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(func(o *loop.Options) { o.Forge = nil })
	w.trains(1)
	w.ask([3]string{"dead-database", "abandon_usage", ""})
	w.operated("dead-database", plan.OperationDone)
	w.eventually("the audit record names the day", func() bool {
		return slices.ContainsFunc(w.audited(), func(r audit.Record) bool {
			return r.Action == "runtime.abandon_usage" &&
				strings.Contains(r.Reason, "usage of jobs since "+w.status("train").BegunOn+" that berth/status lacks is given up")
		})
	})
}

// The key of a request never stands for a document, nor the other way round.
func TestKeysAndDocumentsAreApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.start(func(o *loop.Options) { o.Forge = nil })
	w.trains(1)
	w.ask([3]string{"rest", "drain", "worker-0"})
	w.operated("rest", plan.OperationDone)
	require.NotEmpty(t, w.drained("worker-0"))
	o, err := d.RequestOperation(t.Context(), plan.OperationRequest{Unit: trainKey, ID: "rest", RequestedBy: "eve", CorrelationID: "api-1",
		Spec: schema.MemberOperationSpec{Member: "worker-0", Operation: schema.OpResume, Reason: "it rested"}})
	require.NoError(t, err)
	w.operated(o.Name, plan.OperationDone)
	require.Empty(t, w.drained("worker-0"), "it was done, and not only called done")
}

// An operation without a document enters the same path, is durable, and its id is done once.
func TestRequestedOperationIsDoneOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.start(func(o *loop.Options) { o.Forge = nil })
	w.trains(1)
	req := plan.OperationRequest{Unit: trainKey, ID: "4f1c", RequestedBy: "ada", CorrelationID: "api-1",
		Spec: schema.MemberOperationSpec{Member: "worker-0", Operation: schema.OpRestart, Reason: "it hangs"}}
	for range 3 {
		o, err := d.RequestOperation(t.Context(), req)
		require.NoError(t, err)
		w.operated(o.Name, plan.OperationDone)
	}
	d.stop()
	d = w.start(func(o *loop.Options) { o.Forge = nil })
	w.eventually("the state is known", func() bool { _, ok := d.View(); return ok })
	o, err := d.RequestOperation(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, plan.OperationDone, o.Phase)
	require.Equal(t, "ada", o.RequestedBy)
	require.Equal(t, 1, w.world.Calls("restart"))
	got, ok := d.Operation(trainKey, "4f1c")
	require.True(t, ok)
	require.Equal(t, o, got)

	other := req
	other.Spec.Operation = schema.OpDrain
	_, err = d.RequestOperation(t.Context(), other)
	require.ErrorContains(t, err, "use a new id")
	other.ID, other.Spec.Member = "5", "worker-7"
	_, err = d.RequestOperation(t.Context(), other)
	require.ErrorContains(t, err, "worker-7 does not exist")

	req.ID, req.Spec.Operation = "6", schema.OpReplace
	o, err = d.RequestOperation(t.Context(), req)
	require.NoError(t, err)
	w.operated(o.Name, plan.OperationDone)
	require.Contains(t, w.world.Fingerprint(trainKey), "worker-0 on gpu-2 is running")
}

// The plan of a pull request shows operations, with the node that a replaced member gets, and that
// plan is the one that is applied.
func TestReviewedOperationIsTheAppliedOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	w.run(2)
	w.eventually("train runs", w.running("train", 2))
	drain, text := operation("fan", "drain", "worker-1")
	move, text2 := operation("move", "replace", "worker-0")
	pr := w.shown(1, map[string]string{drain: text, move: text2})
	r := w.review(1)
	require.NotNil(t, r.Shown)
	u, _ := r.Shown.Unit(trainKey, "")
	require.NotNil(t, u)
	require.Equal(t, []string{"replace worker-0 on gpu-1 by operation move", "leave worker-0 on gpu-1", "configure on ctl",
		"join worker-0 on gpu-3", "drain worker-1 on gpu-2 by operation fan"},
		slices.DeleteFunc(slices.Clone(u.Steps), func(s string) bool { return strings.HasPrefix(s, " ") }))
	w.merge(pr)
	w.operated("fan", plan.OperationDone)
	s := w.operated("move", plan.OperationDone)
	require.Contains(t, string(s.Detail), "worker-0 moved from gpu-1 to gpu-3")
	w.eventually("train runs", w.running("train", 2))
	require.Nil(t, w.status("train").Review, "the plan was not held as stale")
}

// A replace with no other node is shown as blocked, and waits.
func TestReplaceWaitsForANode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(func(o *loop.Options) { o.Forge = nil })
	w.trains(4)
	w.ask([3]string{"move", "replace", "worker-0"})
	w.eventually("it says why it waits", func() bool {
		s := w.tree().Things[operationKey("move")]
		return s != nil && strings.Contains(string(s.Detail),
			"worker-0 stays on gpu-1, which an operation has it leave, as no other node fits")
	})
	require.Zero(t, w.world.Calls("replace"), "nothing is drained for nothing")
	w.put(map[string]string{"platform/nodes/gpu-5.yaml": node("gpu-5", 15, "worker",
		"gpus: [{type: a100, count: 2, devices: \"/dev/nvidia[0-1]\"}]")})
	w.operated("move", plan.OperationDone)
	w.eventually("train runs", w.running("train", 4))
	require.Contains(t, w.world.Fingerprint(trainKey), "worker-0 on gpu-5 is running")
}

// A service account operates members only if its scopes list that.
func TestServiceAccountOperatesByAllowListOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root, ci := newSigner(t, w), newSigner(t, w)
	w.start(governed(root))
	w.eventually("first commit decided", func() bool { return w.revision().Commit == w.git.Tip("main") })
	path, text := instance("train", 1)
	account := func(scopes string) string {
		return "apiVersion: berth/v1\nkind: ServiceAccount\nmetadata: {name: ci}\nspec:\n  display_name: CI\n  public_keys: [{id: one, " +
			"key: " + ci.publicKey + "}]\n  scopes: [" + scopes + "]\n  allowed_endpoints: []\n"
	}
	const project = "tenants/physics/projects/lab/"
	setUp := func(scopes string) map[string]string {
		return map[string]string{
			path: text, project + "service-accounts/ci.yaml": account(scopes),
			project + "roles.yaml": roleBinding("    - {service_account: ci, role: service_account}\n    - {login: ada, role: " +
				"project_admin} # " + scopes + "\n"),
		}
	}
	root.push("set up\n\nBreak-Glass: the lab has nobody yet", setUp("apps.instance.read"))
	w.eventually("train runs", w.running("train", 1))

	fan, drain := operation("fan", "drain", "worker-0")
	ci.push("drain", map[string]string{fan: drain})
	w.eventually("it is held", func() bool { return w.heldReasons()[fan] == schema.HeldUnauthorised })
	require.Zero(t, w.world.Calls("drain"))

	root.push("allow\n\nBreak-Glass: the lab has nobody yet", setUp("apps.instance.read, apps.instance.member.operate"))
	w.eventually("decided", func() bool { return w.revision().Commit == w.git.Tip("main") })
	ci.push("drain again", map[string]string{fan: drain + "# now\n"})
	s := w.operated("fan", plan.OperationDone)
	require.Contains(t, string(s.Detail), `"requested_by":"ServiceAccount physics.lab/ci"`)
	require.Equal(t, 1, w.world.Calls("drain"))
	w.eventually("the effect is audited", func() bool {
		return slices.ContainsFunc(w.audited(), func(r audit.Record) bool {
			return r.Action == "runtime.drain" && r.CorrelationID == s.CorrelationID &&
				strings.Contains(r.Reason, "operation fan of ServiceAccount physics.lab/ci")
		})
	})
}

// Requirement D5: the operations of a shared runtime stand below it, and their statuses too. With the
// runtime, its statuses go.
func TestOperationOnASharedRuntime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(func(o *loop.Options) { o.Forge = nil })
	w.put(operatorFiles(""))
	w.put(map[string]string{commonsPath: commonsText("  attached_project_ids: [physics.lab]\n")})
	w.eventually("running", func() bool { s := w.unit(commons); return s != nil && s.Phase == plan.PhaseRunning })
	const path = "tenants/physics/shared-runtimes/commons/operations/fan.yaml"
	w.put(map[string]string{path: "apiVersion: berth/v1\nkind: MemberOperation\nmetadata: {name: fan, uid: op-1}\nspec: {operation: " +
		"drain, member: worker-0, reason: a fan is loud}\n"})
	key := schema.Key{Kind: schema.KindMemberOperation, Tenant: "physics", Parent: "commons", Name: "fan"}
	w.eventually("it is done", func() bool { s := w.resource(key); return s != nil && s.Phase == "done" && s.UID == "op-1" })
	reason, _ := w.world.Member(commons, "worker-0")
	require.Equal(t, "operation fan", reason)
	require.Contains(t, w.files(), path)
	w.eventually("the event is announced", func() bool {
		return slices.ContainsFunc(w.events(), func(e plan.Event) bool {
			return e.EventType == "berth.operation.done" && strings.Contains(string(e.Payload), `"shared_runtime_id":"sr-77"`) &&
				strings.Contains(string(e.Payload), `"operation_id":"op-1"`)
		})
	})

	w.put(nil, commonsPath, path)
	w.eventually("the runtime is gone", func() bool { return w.unit(commons) == nil })
	w.eventually("its operation too", func() bool { return w.resource(key) == nil })
}

package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/loop"
	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/memory"
	"berth/schema"
	"berth/schema/usage"
)

const (
	commonsPath    = "tenants/physics/shared-runtimes/commons/runtime.yaml"
	attachmentPath = "tenants/physics/shared-runtimes/commons/attachments/lab.yaml"
	viewPath       = "tenants/physics/projects/lab/instances/yard.yaml"
	loanPath       = "tenants/physics/projects/lab/contributions/own.yaml"
)

// operatorFiles are the operator of the tenant's shared runtime.
func operatorFiles(more string) map[string]string {
	return map[string]string{"tenants/physics/service-accounts/crew.yaml": "apiVersion: berth/v1\nkind: ServiceAccount\nmetadata: {name: " +
		"crew}\n" + more + "spec: {display_name: Crew, public_keys: [], scopes: [shared_runtimes.member.operate], allowed_endpoints: []}\n"}
}

func commonsText(more string) string {
	return "apiVersion: berth/v1\nkind: SharedRuntime\nmetadata: {name: commons, uid: sr-77}\nspec:\n  app: batch\n  " +
		"operator_identity_ref: crew\n  version: v1\n  display_name: Commons\n  roles: {controller: {count: 1}, worker: {count: 1}}\n" +
		more
}

func attachmentText(more string) string {
	return "apiVersion: berth/v1\nkind: Attachment\nmetadata: {name: lab, uid: at-5}\nspec:\n  project_id: physics.lab\n  " +
		"policy_metadata: {queue: night}\n  billing_policy_ref: cheap\n" + more
}

func viewText(scope string) string {
	return "apiVersion: berth/v1\nkind: Instance\nmetadata: {name: yard}\nspec: {app: batch, version: v1, display_name: Yard, " +
		"control_plane_scope: " + scope + ", shared_runtime: commons}\n"
}

var commons = schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "commons"}

func (w *world) unit(key schema.Key) *plan.Status { return w.tree().Units.Get(key) }

// attachment returns phase and reason of an attachment to a shared runtime; "" if it has no status.
func (w *world) attachment(runtime schema.Key) string {
	s := w.resource(schema.Key{Kind: schema.KindAttachment, Tenant: runtime.Tenant, Parent: runtime.Name, Name: "lab"})
	if s == nil {
		return ""
	}
	i := slices.IndexFunc(s.Conditions, func(c plan.Condition) bool { return c.Type == "Ready" })
	return s.Phase + " " + string(s.Conditions[i].Reason)
}

// The life of a tenant's shared runtime and of an attachment (requirements D1, D2): the project is
// attached once it accepts the terms with an Instance, is detached when it withdraws that, and each
// of the nine events is announced once, with both ids.
func TestLifeOfSharedRuntimeAndAttachment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	w.put(operatorFiles(""))
	w.put(map[string]string{commonsPath: commonsText("  attached_project_ids: [physics.lab]\n")})
	running := func() bool { s := w.unit(commons); return s != nil && s.Phase == plan.PhaseRunning }
	w.eventually("running", running)
	require.Equal(t, []plan.AttachmentStatus{{ProjectID: "physics.lab", Phase: plan.AttachmentRequested, Reason: "WithoutTerms",
		Message: "no Attachment of SharedRuntime physics/commons states terms for physics.lab"}}, w.unit(commons).Attachments)
	require.Equal(t, "", w.attachment(commons))

	w.put(map[string]string{attachmentPath: attachmentText("")})
	w.eventually("requested", func() bool { return w.attachment(commons) == "requested NotAccepted" })
	w.put(map[string]string{viewPath: viewText("tenant")})
	w.eventually("attached", func() bool { return w.attachment(commons) == "attached Attached" })
	w.eventually("view running", w.phase("yard", plan.PhaseRunning))
	require.Empty(t, w.status("yard").Members)
	require.Equal(t, "physics.lab", w.unit(commons).Observed.Unit.Effective.Attachments[0].ProjectID)
	s := w.resource(schema.Key{Kind: schema.KindAttachment, Tenant: "physics", Parent: "commons", Name: "lab"})
	require.Contains(t, string(s.Detail), `"policy_metadata":{"queue":"night"}`)

	creations := w.world.Calls("create")
	control := w.unit(commons).Members[0].Node
	w.world.SetReachable(control, false)
	w.put(nil, viewPath)
	w.eventually("view gone", func() bool { return w.status("yard") == nil })
	w.eventually("detaching", func() bool { return w.attachment(commons) == "attached Detaching" })
	w.world.SetReachable(control, true)
	w.eventually("requested again", func() bool { return w.attachment(commons) == "requested NotAccepted" })
	require.Empty(t, w.unit(commons).Observed.Unit.Effective.Attachments)
	require.Equal(t, creations, w.world.Calls("create"))
	w.eventually("runtime goes on", running)

	w.put(nil, attachmentPath)
	w.eventually("attachment gone", func() bool { return w.attachment(commons) == "" })
	w.put(nil, commonsPath)
	w.eventually("runtime gone", func() bool { return w.unit(commons) == nil })
	w.noEventTwice()
	seen := map[string]int{}
	for _, e := range w.events() {
		if !strings.HasPrefix(e.EventType, "apps.shared_runtime.") {
			continue
		}
		seen[strings.TrimPrefix(e.EventType, "apps.shared_runtime.")]++
		var p map[string]string
		require.NoError(t, json.Unmarshal(e.Payload, &p))
		require.Equal(t, "sr-77", p["shared_runtime_id"])
		if !strings.Contains(e.EventType, ".attachment.") {
			require.Equal(t, "physics/crew", p["operator_service_account_id"])
		}
		if strings.Contains(e.EventType, ".attachment.") {
			require.Equal(t, []string{"at-5", "physics.lab", "cheap"},
				[]string{p["attachment_id"], p["project_id"], p["billing_policy_ref"]})
		}
	}
	require.Equal(t, map[string]int{"requested": 1, "running": 3, "deleting": 1, "deleted": 1,
		"attachment.requested": 2, "attachment.attached": 1, "attachment.detached": 1}, seen)
}

// An owner may end an attachment while the project still accepts it, and begin it again: the view of
// the project is announced as requested and running again, with events of their own.
func TestViewFollowsAnAttachmentThatEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	w.put(with(with(with(operatorFiles(""), commonsPath, commonsText("")), attachmentPath, attachmentText("")), viewPath,
		viewText("tenant")))
	w.eventually("attached", w.phase("yard", plan.PhaseRunning))
	for range 2 {
		w.put(nil, attachmentPath)
		w.eventually("attachment gone", func() bool { return w.attachment(commons) == "" })
		w.eventually("requested", w.phase("yard", plan.PhaseRequested))
		w.put(map[string]string{attachmentPath: attachmentText("")})
		w.eventually("attached again", w.phase("yard", plan.PhaseRunning))
	}
	w.noEventTwice()
	var told []string
	for _, e := range w.events() {
		if strings.Contains(string(e.Payload), "/yard\"") {
			told = append(told, strings.TrimPrefix(e.EventType, "apps.instance."))
		}
	}
	require.Equal(t, []string{"requested", "running", "requested", "running", "requested", "running"}, told)
}

// A platform's shared runtime serves a project of any tenant, and its tenant boundary is that of a
// shared service (requirement B5).
func TestPlatformSharedRuntimeAttachesProjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	key := schema.Key{Kind: schema.KindSharedRuntime, Name: "commons"}
	w.put(map[string]string{
		"platform/shared-runtimes/commons/runtime.yaml":         strings.Replace(commonsText(""), "  operator_identity_ref: crew\n", "", 1),
		"platform/shared-runtimes/commons/attachments/lab.yaml": attachmentText(""),
		viewPath: viewText("platform"),
	})
	w.eventually("attached", func() bool { return w.attachment(key) == "attached Attached" })
	w.eventually("view running", w.phase("yard", plan.PhaseRunning))
	u := w.unit(key).Observed.Unit.Effective
	require.Equal(t, []string{"platform_managed", "platform", "shared_service"},
		[]string{u.OperatingMode, u.ControlPlaneScope, u.TenantBoundaryMode})
	want := modes{"platform_managed", "platform", "bare_metal"}
	require.Equal(t, want, w.statusModes(viewPath))
	for event, got := range w.eventModes("yard") {
		require.Equal(t, want, got, event)
	}
}

// Effects on a shared runtime are made under its operator, with a credential for one application
// of a plan that the host's ledger and the audit log both name (requirement D3). A suspended
// operator changes nothing.
func TestOperatorOfSharedRuntimeActs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seen := &stamps{}
	w.start(func(o *loop.Options) {
		o.Runtimes = map[string]runtimes.Runtime{"bare_metal": stampNoting{memory.New(w.world), seen}}
	})
	w.put(with(operatorFiles("suspend: true\n"), commonsPath, commonsText("")))
	w.eventually("blocked", func() bool {
		s := w.unit(commons)
		return s != nil && strings.Contains(s.Condition("Ready").Message,
			"ServiceAccount physics/crew, which operates it, says suspend: true")
	})
	require.Zero(t, w.world.Calls("create"))
	w.put(operatorFiles(""))
	running := func() bool { s := w.unit(commons); return s != nil && s.Phase == plan.PhaseRunning }
	w.eventually("running", running)
	path, text := instance("train", 1)
	w.put(map[string]string{path: text})
	w.eventually("instance running", w.phase("train", plan.PhaseRunning))

	w.put(nil, "tenants/physics/service-accounts/crew.yaml", commonsPath)
	w.eventually("deleted without its operator", func() bool { return w.unit(commons) == nil })

	credentials := map[string]bool{}
	for _, s := range seen.all() {
		if s.key != commons {
			require.Equal(t, runtimes.Credential{}, s.Credential, "an instance that names no operator")
			continue
		}
		require.Equal(t, "physics/crew", s.Operator)
		require.WithinDuration(t, time.Now().Add(30*time.Minute), s.Expires, time.Minute)
		credentials[s.Credential.Credential] = true
	}
	require.NotContains(t, credentials, "")
	require.NotEmpty(t, credentials)
	audited := map[string]bool{}
	w.eventually("audited", func() bool {
		for _, r := range w.audited() {
			if r.Key == commons && strings.HasPrefix(r.Action, "runtime.") {
				require.Equal(t, "physics/crew", r.Operator)
				audited[r.Author.Credential] = true
			}
		}
		return maps.Equal(audited, credentials)
	})
}

// stampNoting is a runtime that notes the stamp of each action.
type stampNoting struct {
	runtimes.Runtime
	seen *stamps
}

func (s stampNoting) Apply(ctx context.Context, c runtimes.Change) error {
	s.seen.note(c.Action.Key, c.Stamp)
	return s.Runtime.Apply(ctx, c)
}

type stampOf struct {
	runtimes.Stamp
	key schema.Key
}

type stamps struct {
	mu   sync.Mutex
	list []stampOf
}

func (s *stamps) note(key schema.Key, stamp runtimes.Stamp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, stampOf{stamp, key})
}

func (s *stamps) all() []stampOf {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// with returns files with one more.
func with(files map[string]string, path, text string) map[string]string {
	out := maps.Clone(files)
	out[path] = text
	return out
}

// What jobs of a project used is on the status branch before the project is detached, and what
// others used before the runtime is deleted.
func TestUsageIsOnTheStatusBranchBeforeRemoval(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	w.put(operatorFiles(""))
	w.put(map[string]string{commonsPath: commonsText(""), attachmentPath: attachmentText(""), viewPath: viewText("tenant")})
	w.eventually("attached", func() bool { return w.attachment(commons) == "attached Attached" })
	ended := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)
	require.NoError(t, w.world.SetUsage(commons,
		usage.Job{Cluster: "c", JobID: 1, Submitted: ended.Add(-time.Hour), Started: ended.Add(-time.Minute), Ended: ended,
			User: "eve", ProjectID: "physics.lab"},
		usage.Job{Cluster: "c", JobID: 2, Submitted: ended.Add(-time.Hour), Started: ended.Add(-time.Minute), Ended: ended, User: "root"}))

	w.put(nil, viewPath)
	w.eventually("detached", func() bool { return len(w.unit(commons).Observed.Unit.Effective.Attachments) == 0 })
	require.Equal(t, []string{"physics.lab 1 physics/commons/lab cheap physics"}, w.usage())
	w.put(nil, attachmentPath)
	w.eventually("attachment gone", func() bool { return w.attachment(commons) == "" })
	w.put(nil, commonsPath)
	w.eventually("runtime gone", func() bool { return w.unit(commons) == nil })
	require.Equal(t, []string{" 2   physics", "physics.lab 1 physics/commons/lab cheap physics"}, w.usage(), "the first one only once")
}

// usage returns project, job, attachment, its rate card and owner of each record of usage, sorted.
func (w *world) usage() []string {
	w.t.Helper()
	files := w.files()
	var all []string
	for path, text := range files {
		if !strings.HasPrefix(path, "usage/2026-11-02/physics/") {
			continue
		}
		for line := range strings.Lines(text) {
			var r usage.Record
			require.NoError(w.t, json.Unmarshal([]byte(line), &r))
			all = append(all, fmt.Sprintf("%s %d %s %s %s", r.ProjectID, r.JobID, r.AttachmentID, r.BillingPolicyRef, r.OwnerID))
		}
	}
	slices.Sort(all)
	return all
}

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/reconciler/queueing"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/authority"
	"berth/schema/queue"
)

// queues is the queue of a runtime. It answers each call with one job or its error, and keeps the last call.
type queues struct {
	err   error
	at    runtimes.QueueScope
	s     queue.Submission
	ref   queue.Ref
	limit int
	calls int
	modes []string // of the maps of calls for a project

	operation plan.OperationRequest
	before    func() // each call
}

func (q *queues) called(at runtimes.QueueScope) {
	q.at = at
	q.calls++
	if at.Map != nil {
		q.modes = append(q.modes, at.Map.Spec.Mode)
	}
	if q.before != nil {
		q.before()
	}
}

func (q *queues) Submit(_ context.Context, at runtimes.QueueScope, s queue.Submission) (queue.Job, error) {
	q.called(at)
	q.s = s
	return oneJob(), q.err
}

func (q *queues) Jobs(_ context.Context, u *plan.Unit, s runtimes.Stamp) ([]queue.Job, error) {
	q.called(runtimes.QueueScope{Unit: u, Stamp: s})
	second, others := oneJob(), oneJob()
	second.JobID, second.State, second.User = "18", "PENDING", "bob"
	others.JobID, others.ProjectID = "19", "physics.collider"
	return []queue.Job{oneJob(), second, others}, q.err
}

func (q *queues) Job(_ context.Context, at runtimes.QueueScope, ref queue.Ref) (queue.Job, error) {
	q.called(at)
	q.ref = ref
	return oneJob(), q.err
}

func (q *queues) Cancel(_ context.Context, at runtimes.QueueScope, ref queue.Ref) (queue.Job, error) {
	q.called(at)
	q.ref = ref
	return oneJob(), q.err
}

func (q *queues) Output(_ context.Context, at runtimes.QueueScope, ref queue.Ref, limit int) (queue.Output, error) {
	q.called(at)
	q.ref, q.limit = ref, limit
	return queue.Output{Text: []byte("hello\n"), Truncated: true}, q.err
}

func (q *queues) Nodes(_ context.Context, u *plan.Unit, s runtimes.Stamp) ([]queue.Node, error) {
	q.called(runtimes.QueueScope{Unit: u, Stamp: s})
	return []queue.Node{{Member: "worker-0", Node: "gpu-1", State: []string{"IDLE"}, CPUs: 4}}, q.err
}

func (q *queues) Readiness(_ context.Context, at runtimes.QueueScope) (queue.Readiness, error) {
	q.called(at)
	seen := []queue.Evidence{{Precondition: "control plane reachable", Holds: true, Seen: "it answers a ping"}}
	return queue.Readiness{Adapter: "real-policy", ContractVersion: "v1", Preconditions: seen}, q.err
}

func (q *queues) RequestOperation(_ context.Context, r plan.OperationRequest) (plan.Operation, error) {
	q.called(runtimes.QueueScope{})
	q.operation = r
	return plan.Operation{Name: "request-1", ID: r.ID, Spec: r.Spec, Phase: plan.OperationRequested, Requested: now,
		CorrelationID: r.CorrelationID}, q.err
}

// service returns a service that has read nothing yet.
func (q *queues) service(v plan.View) *queueing.Service {
	return queueing.New(queueing.Options{
		View:   func() (plan.View, bool) { return v, true },
		Stamp:  func() (runtimes.Stamp, bool) { return runtimes.Stamp{Epoch: 1}, true },
		Queues: map[string]runtimes.Queue{"slurm": q}, Usage: q.usage,
	})
}

// running is a view whose instance train runs with these users.
func running(v plan.View, users ...schema.UnixUser) plan.View {
	train := *v.Units.Get(schema.InstanceKey("physics", "lattice", "train"))
	train.Observed = &plan.Observed{Presence: plan.Present, Unit: &plan.Unit{Effective: schema.EffectiveUnit{Key: train.Key, Users: users}}}
	v.Units = v.Units.With(&train)
	return v
}

func oneJob() queue.Job {
	return queue.Job{JobID: "17", Submitted: now, ProjectID: "physics.lattice", User: "anna", State: "RUNNING", IdempotencyKey: "k1",
		Durability: queue.Accepted,
		Resolution: &queue.Resolution{Adapter: "passthrough", ContractVersion: "v1", RequestedQueue: "gpu", ResolvedQueue: "gpu"},
		Run:        queue.Run{Started: now, Members: []string{"worker-0"}}}
}

const trainJobs = lattice + "/app-instances/train/queue/jobs"

// request sends a request with a body.
func (w *world) request(method, target, token, body string, headers ...string) *http.Response {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return w.send(r)
}

func queueWorld(t *testing.T) (*world, *queues, *[]audit.Record) {
	q, effects := &queues{}, &[]audit.Record{}
	v := running(campusView(t), schema.UnixUser{Name: "anna", UID: 20001})
	service := q.service(v)
	w := worldOf(t, v, []string{petra, anna, otto}, func(o *Options) {
		o.Live = func() Live { return Live{service, q, func(r audit.Record) { *effects = append(*effects, r) }} }
	})
	return w, q, effects
}

// Jobs are submitted, listed, read, cancelled, and their output and nodes read, each for the project
// of the path, and each effect is recorded before it happens (requirements B1, A12).
func TestQueueIsAskedForTheProjectOfThePath(t *testing.T) {
	w, q, effects := queueWorld(t)
	known := 0
	q.before = func() { known = len(*effects) }
	res := w.request("POST", trainJobs, personToken(anna), `{"script":"#!/bin/sh\ntrue\n","queue":"gpu","gpus":2}`, "Idempotency-Key", "k1",
		"X-Correlation-ID", "correlation-1")
	require.Equal(t, http.StatusCreated, res.StatusCode)
	require.Equal(t, 1, known, "recorded before the effect")
	var job queue.Job
	require.NoError(t, json.Unmarshal(body(t, res), &job))
	require.Equal(t, oneJob(), job)
	require.Equal(t, schema.InstanceKey("physics", "lattice", "train"), q.at.Unit.Effective.Key)
	require.Equal(t, "physics.lattice", q.at.ProjectID)
	require.Equal(t, []string{"correlation-1", "queue.submit"}, []string{q.at.Stamp.CorrelationID, q.at.Stamp.Verb})
	require.Equal(t, queue.Submission{ProjectID: "physics.lattice", User: schema.UnixUser{Name: "anna", UID: 20001},
		IdempotencyKey: "k1", CorrelationID: "correlation-1",
		Request: queue.Request{Script: "#!/bin/sh\ntrue\n", Queue: "gpu", GPUs: 2}}, q.s)
	r := (*effects)[0]
	require.Equal(t, []string{"queue.submit", anna, "scheduler.queue.submit", "physics.lattice", "correlation-1", "allowed"},
		[]string{r.Action, r.Actor, r.Permission, r.ProjectID, r.CorrelationID, string(r.Verdict)})

	var list struct{ Items []queue.Job }
	w.read(trainJobs+"?state=pending&user=bob", anna, &list)
	require.Len(t, list.Items, 1)
	require.Equal(t, "18", list.Items[0].JobID)
	w.read(trainJobs, anna, &list)
	require.Len(t, list.Items, 2, "and none of another project")
	w.read(trainJobs+"/17", anna, &job)
	require.Equal(t, oneJob(), job)
	w.read(trainJobs+"/20", anna, &job)
	require.Equal(t, queue.Ref{JobID: "20"}, q.ref, "the list lacks it")
	require.Len(t, *effects, 1, "a read reveals nothing that needs a record")

	res = w.request("DELETE", trainJobs+"/17?submitted_at=2026-11-24T10:00:00Z", personToken(anna), "")
	require.Equal(t, http.StatusAccepted, res.StatusCode)
	require.Equal(t, "2026-11-24 10:00:00 +0000 UTC", q.ref.Submitted.String())
	res = w.get(trainJobs+"/17/output?bytes=10", personToken(anna))
	require.Equal(t, []any{"hello\n", "true", 10}, []any{string(body(t, res)), res.Header.Get("X-Output-Truncated"), q.limit})
	require.Equal(t, []string{"queue.cancel", "queue.output"}, []string{(*effects)[1].Action, (*effects)[2].Action})
	var nodes struct{ Items []queue.Node }
	w.read(lattice+"/app-instances/train/nodes", anna, &nodes)
	require.Len(t, nodes.Items, 1)
	var ready queue.Readiness
	w.read(lattice+"/app-instances/train/queue/readiness", anna, &ready)
	require.Equal(t, []any{"everybody", false, "it answers a ping"}, []any{ready.QueueMap, ready.Serves, ready.Preconditions[0].Seen})
}

// Reads are answered from the last observation with its time. With live=true the unit is asked, and after the caller's own
// cancellation.
func TestReadsComeFromTheLastObservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, q, _ := queueWorld(t)
		type observed struct {
			ObservedAt time.Time `json:"observed_at"`
			AgeSeconds *int      `json:"age_seconds"`
		}
		paths := []string{trainJobs, trainJobs + "/17", lattice + "/app-instances/train/nodes"}
		read := func(query string) int {
			q.calls = 0
			for _, path := range paths {
				var got observed
				w.read(path+query, anna, &got)
				require.True(t, time.Now().Equal(got.ObservedAt), path)
				require.NotNil(t, got.AgeSeconds, path)
			}
			return q.calls
		}
		require.Equal(t, 2, read(""), "one question for jobs, and one for nodes")
		require.Zero(t, read(""))
		require.Zero(t, read("?live=false"))
		require.Equal(t, 3, read("?live=true"))
		require.Zero(t, read(""))
		require.Equal(t, http.StatusAccepted, w.request("DELETE", trainJobs+"/17", personToken(anna), "").StatusCode)
		require.Equal(t, 2, read(""))
		require.Zero(t, read(""))
		var made map[string]any
		res := w.request("POST", trainJobs, personToken(anna), `{"script":"#!/bin/sh"}`, "Idempotency-Key", "k")
		require.NoError(t, json.Unmarshal(body(t, res), &made))
		require.NotContains(t, made, "observed_at", "the answer is of its own moment")
	})
}

func TestQueueRefusesWhatItCannotTake(t *testing.T) {
	w, q, _ := queueWorld(t)
	const script = `{"script":"#!/bin/sh"}`
	for name, c := range map[string]struct {
		method, target, body string
		headers              []string
		want                 code
	}{
		"no key":             {"POST", trainJobs, script, nil, codeKey},
		"a key with a space": {"POST", trainJobs, script, []string{"Idempotency-Key", "a b"}, codeKey},
		"no JSON":            {"POST", trainJobs, "#!/bin/sh", []string{"Idempotency-Key", "k"}, codeBody},
		"unknown field":      {"POST", trainJobs, `{"script":"#!/bin/sh","user":"root"}`, []string{"Idempotency-Key", "k"}, codeBody},
		"two values":         {"POST", trainJobs, script + script, []string{"Idempotency-Key", "k"}, codeBody},
		"another type":       {"POST", trainJobs, script, []string{"Idempotency-Key", "k", "Content-Type", "text/plain"}, codeBody},
		"too large": {"POST", trainJobs, `{"script":"` + strings.Repeat("x", maxBody) + `"}`, []string{"Idempotency-Key", "k"},
			codeBody},
		"unknown parameter":   {"GET", trainJobs + "?all=1", "", nil, codeQuery},
		"neither now nor not": {"GET", trainJobs + "?live=1", "", nil, codeQuery},
		"live cancellation":   {"DELETE", trainJobs + "/17?live=true", "", nil, codeQuery},
		"no time":             {"DELETE", trainJobs + "/17?submitted_at=now", "", nil, codeQuery},
		"too many bytes":      {"GET", trainJobs + "/17/output?bytes=999999999", "", nil, codeQuery},
		"unknown instance":    {"GET", lattice + "/app-instances/nothing/queue/jobs", "", nil, codeNotFound},
		"unknown method":      {"PUT", trainJobs, script, nil, codeMethod},
	} {
		res := w.request(c.method, c.target, personToken(anna), c.body, c.headers...)
		require.Equal(t, c.want, codeOf(t, res), name)
		if c.want == codeMethod {
			require.Equal(t, "GET, HEAD, POST", res.Header.Get("Allow"))
		}
	}
	require.Zero(t, q.calls)
}

// Each class of error has one code, and no answer names a host (C3).
func TestQueueErrorsHaveCodes(t *testing.T) {
	w, q, _ := queueWorld(t)
	lost := &runtimes.OpError{Host: "ctl-7", Op: "run squeue", Message: "connect failure", Code: "exit"}
	for _, c := range []struct {
		err    error
		want   code
		status int
	}{
		{fmt.Errorf("%w: queue gpu", queue.ErrConfiguration), codeConfiguration, 422},
		{fmt.Errorf("%w: sbatch: too many", queue.ErrDenied), codeQueueDenied, 422},
		{fmt.Errorf("%w: %q", queue.ErrConflict, "k"), codeConflict, 409},
		{fmt.Errorf("%w: job 1", queue.ErrNotFound), codeNotFound, 404},
		{fmt.Errorf("%w: %w", queue.ErrUnavailable, lost), codeQueueUnavailable, 503},
		{runtimes.ErrStaleEpoch, codeQueueUnavailable, 503},
		{errors.New("host ctl-7 is odd"), codeInternal, 500},
	} {
		q.err = c.err
		res := w.request("POST", trainJobs, personToken(anna), `{"script":"#!/bin/sh"}`, "Idempotency-Key", "k")
		require.Equal(t, c.status, res.StatusCode, c.err)
		text := string(body(t, res))
		require.NotContains(t, text, "ctl-7")
		require.Contains(t, text, `"`+string(c.want)+`"`)
	}
	require.Contains(t, w.log.String(), "ctl-7", "the log has the cause")
	w.api.o.Live = func() Live { return Live{} }
	require.Equal(t, codeNotReady, codeOf(t, w.get(trainJobs, personToken(anna))))
}

// Nine roles in their own and another project and another tenant, with each scheduler key of a live path, in each
// mode of the map that serves them: a call that the table of permissions denies is answered with not found, and
// asks no scheduler (B1, A18). The mode changes no answer: nobody may do more or less in another one (C7).
func TestQueueMatrix(t *testing.T) {
	var first map[string]int
	for _, mode := range []string{schema.ModePassthrough, schema.ModeStubPolicy, schema.ModeRealPolicy} {
		asked := queueMatrix(t, mode)
		require.Len(t, asked, 17*3*9, mode)
		if first == nil {
			first = asked
		}
		require.Equal(t, first, asked, mode)
	}
}

// matrixWorld has each role at physics.lattice or above it, a map with this mode, and an instance that runs. It
// returns the token of each role.
func matrixWorld(t *testing.T, mode string) (w *world, q *queues, tokens map[string]string) {
	member := map[string]string{"platform": "", "tenant": "", "project": ""}
	var logins []string
	var users []schema.UnixUser
	for _, role := range authority.Roles() {
		if role == "service_account" {
			continue
		}
		user := schema.UnixUser{Name: fmt.Sprint("r", len(logins)), UID: 29000 + len(logins)}
		login := "r-" + strings.ReplaceAll(role, "_", "-")
		logins, users = append(logins, login), append(users, user)
		family, _, _ := strings.Cut(role, "_")
		account := ""
		if family != "platform" {
			account = fmt.Sprintf(", unix_user: {name: %s, uid: %d}", user.Name, user.UID)
		}
		member[family] += fmt.Sprintf("    - {login: %s, role: %s%s}\n", login, role, account)
	}
	const binding = "apiVersion: berth/v1\nkind: RoleBinding\nmetadata: {name: %s}\nspec:\n  members:\n"
	var scopes, endpoints []string
	for _, row := range authority.Table() {
		scopes = append(scopes, string(row.Permission))
	}
	for _, r := range routes() {
		if r.live != nil && !r.admin {
			endpoints = append(endpoints, r.endpoint())
		}
	}
	v := viewOf(t, with(campusFiles(t), map[string]string{
		"platform/queues/lattice.yaml": "apiVersion: berth/v1\nkind: QueueMap\nmetadata: {name: lattice}\nspec: {app: " +
			"slurm, applies_to: [physics.lattice], queues: [{queue: short, partition: main}], mode: " + mode + "}\n",
		"platform/roles/operators.yaml": fmt.Sprintf(binding, "operators") + member["platform"],
		"tenants/physics/roles.yaml":    fmt.Sprintf(binding, "roles") + member["tenant"],
		"tenants/physics/projects/lattice/roles.yaml": fmt.Sprintf(binding, "roles") + member["project"] +
			"    - {service_account: ci, role: service_account}\n",
		"tenants/physics/projects/lattice/service-accounts/ci.yaml": fmt.Sprintf(
			"apiVersion: berth/v1\nkind: ServiceAccount\nmetadata: {name: ci}\nspec:\n  display_name: x\n  public_keys: [{id: current, "+
				"key: %q}]\n  scopes: [%s]\n  allowed_endpoints: [%s]\n",
			authorised(t, testKey().Public()), strings.Join(scopes, ", "), quoted(endpoints)),
	}))
	v = running(v, users...)
	q = &queues{}
	w = worldOf(t, v, logins, func(o *Options) {
		o.Live = func() Live { return Live{Queues: q.service(v), Operations: q} } // no call is answered from the observation of another
	})
	tokens = map[string]string{"service_account": w.token("physics.lattice/ci")}
	for _, l := range logins {
		tokens[strings.ReplaceAll(strings.TrimPrefix(l, "r-"), "-", "_")] = personToken(l)
	}
	return w, q, tokens
}

// queueMatrix returns the status of the answer to each call.
func queueMatrix(t *testing.T, mode string) map[string]int {
	w, q, tokens := matrixWorld(t, mode)
	asked := map[string]int{}
	for _, r := range w.api.routes {
		if r.live == nil {
			continue
		}
		method, template, _ := strings.Cut(r.endpoint(), " ")
		for project, own := range map[string]bool{"physics.lattice": true, "physics.collider": false, "biology.genomes": false} {
			target := strings.NewReplacer("{project_id}", project, "{app_instance_id}", "train", "{job_id}", "17", "{node}",
				"worker-0").Replace(template)
			request := `{"script":"#!/bin/sh"}`
			if strings.Contains(template, "{node}") {
				request = `{"operation":"drain","reason":"a fan is loud"}`
			}
			for role, token := range tokens {
				family, _, _ := strings.Cut(role, "_")
				headers := []string{"Idempotency-Key", "k"}
				if r.admin {
					headers = append(headers, "X-Break-Glass", "the matrix")
				}
				q.modes, q.calls = nil, 0
				res := w.request(method, target, token, request, headers...)
				has := authority.RoleHas(role, r.permission)
				reached := false
				switch family {
				case "platform":
					reached = has && r.admin
				case "tenant":
					reached = has && strings.HasPrefix(project, "physics.")
				default:
					reached = has && own && !(r.admin && role == "service_account")
				}
				name := fmt.Sprint(method, " ", target, " as ", role)
				switch {
				case !reached:
					require.Zero(t, q.calls, name)
					require.Contains(t, []int{403, 404}, res.StatusCode, name)
				case own && role == "service_account" && r.permission == authority.QueueSubmit: // it has no Unix user
					require.Zero(t, q.calls, name)
					require.Equal(t, 422, res.StatusCode, name)
				case own:
					require.Equal(t, 1, q.calls, name)
					require.Less(t, res.StatusCode, 300, name)
				case !strings.Contains(template, "{app_instance_id}"): // the project has no unit that runs
					require.Zero(t, q.calls, name)
					require.Equal(t, 200, res.StatusCode, name)
				default: // no instance of that name there
					require.Equal(t, 404, res.StatusCode, name)
				}
				for _, got := range q.modes {
					require.Equal(t, mode, got, name)
				}
				asked[name] = res.StatusCode
			}
		}
	}
	return asked
}

// An operation on a node is taken once for a key, with who asked and why, and is read under
// member-operations (requirement A7). What is more than drain needs the key for members too.
func TestOperationsOnNodesAreTaken(t *testing.T) {
	w, q, effects := queueWorld(t)
	const drain = lattice + "/app-instances/train/nodes/worker-0/operations"
	res := w.request("POST", drain, personToken(anna),
		`{"operation":"drain","reason":"a fan is loud","on_jobs":{"cancel_after_seconds":60}}`, "Idempotency-Key", "k1", "X-Correlation-ID",
		"correlation-1")
	require.Equal(t, http.StatusAccepted, res.StatusCode)
	var got NodeOperation
	require.NoError(t, json.Unmarshal(body(t, res), &got))
	require.Equal(t, NodeOperation{"request-1", "drain", "worker-0", "a fan is loud", "requested", now, "correlation-1"}, got)
	require.Equal(t, plan.OperationRequest{Unit: schema.InstanceKey("physics", "lattice", "train"), ID: "k1", RequestedBy: anna,
		CorrelationID: "correlation-1",
		Spec: schema.MemberOperationSpec{Instance: "train", Member: "worker-0", Operation: "drain", Reason: "a fan is loud",
			OnJobs: &schema.OnJobs{CancelAfterSeconds: 60}}}, q.operation)
	require.Equal(t, []string{"node.operate", "scheduler.node.operate"}, []string{(*effects)[0].Action, (*effects)[0].Permission})

	q.calls = 0
	for name, c := range map[string]struct {
		target, body string
		want         code
	}{
		"unknown operation": {drain, `{"operation":"reboot","reason":"x"}`, codeOperation},
		"no reason":         {drain, `{"operation":"drain"}`, codeOperation},
		"no such member": {lattice + "/app-instances/train/nodes/worker-9/operations", `{"operation":"drain","reason":"x"}`,
			codeOperation},
		"name of a host": {lattice + "/app-instances/train/nodes/gpu-1/operations", `{"operation":"drain","reason":"x"}`, codeOperation},
		"no instance": {lattice + "/app-instances/nothing/nodes/worker-0/operations", `{"operation":"drain","reason":"x"}`,
			codeNotFound},
		"unknown field": {drain, `{"operation":"drain","reason":"x","command":"rm"}`, codeBody},
	} {
		require.Equal(t, c.want, codeOf(t, w.request("POST", c.target, personToken(anna), c.body, "Idempotency-Key", "k")), name)
	}
	require.Equal(t, codeKey, codeOf(t, w.request("POST", drain, personToken(anna), `{"operation":"drain","reason":"x"}`)))
	require.Zero(t, q.calls)
	// The platform reads the names of nodes, and may operate by them.
	for target, names := range map[string]bool{lattice: false, "/api/v1/admin/projects/physics.lattice": true} {
		headers := []string{"Idempotency-Key", "k2"}
		if names {
			headers = append(headers, "X-Break-Glass", "a fire in the rack")
		}
		who := map[bool]string{false: anna, true: otto}[names]
		require.Equal(t, names, strings.Contains(string(body(t,
			w.ask("GET", target+"/app-instances/train/nodes", personToken(who), headers...))), "gpu-1"), target)
	}
	train := w.view.Units.Get(schema.InstanceKey("physics", "lattice", "train"))
	i := slices.IndexFunc(train.Members, func(m plan.MemberStatus) bool { return !m.ControlPlane })
	node := train.Members[i]
	res = w.request("POST", "/api/v1/admin/projects/physics.lattice/app-instances/train/nodes/"+node.Node+"/operations", personToken(otto),
		`{"operation":"drain","reason":"a fire in the rack"}`, "Idempotency-Key", "k2", "X-Break-Glass", "a fire in the rack")
	require.Equal(t, http.StatusAccepted, res.StatusCode)
	require.Equal(t, node.Name, q.operation.Spec.Member)

	q.err = fmt.Errorf("request: %w", plan.ErrOperationID)
	require.Equal(t, codeConflict,
		codeOf(t, w.request("POST", drain, personToken(anna), `{"operation":"drain","reason":"x"}`, "Idempotency-Key", "k1")))
}

// An account that may operate nodes may drain them. To restart, replace, remove or retry a member
// it needs the permission for members too. Its refusal asks nothing of the unit, and is audited (requirements B1, B2).
func TestMemberOperationsNeedTheirPermissionToo(t *testing.T) {
	const account = "tenants/physics/projects/lattice/service-accounts/ops.yaml"
	const target = lattice + "/app-instances/train/nodes/worker-0/operations"
	view := func(scopes ...authority.Permission) plan.View {
		return viewOf(t, with(campusFiles(t), map[string]string{
			account: fmt.Sprintf("apiVersion: berth/v1\nkind: ServiceAccount\nmetadata: {name: ops}\nspec:\n  display_name: x\n  "+
				"public_keys: [{id: current, key: %q}]\n  scopes: %v\n  allowed_endpoints: [%q]\n",
				authorised(t, testKey().Public()), strings.ReplaceAll(fmt.Sprint(scopes), " ", ", "),
				"POST /api/v1/projects/{project_id}/app-instances/{app_instance_id}/nodes/{node}/operations"),
			"tenants/physics/projects/lattice/roles.yaml": campusFiles(t)["tenants/physics/projects/lattice/roles.yaml"] +
				"    - {service_account: ops, role: service_account}\n",
		}))
	}
	nodes, both := view(authority.NodeOperate), view(authority.NodeOperate, authority.MemberOperate)
	accepts := view(authority.NodeOperate, authority.LossAccept)
	ask := func(v plan.View, operation string) (*world, *queues, *http.Response) {
		q := &queues{}
		w := worldOf(t, v, nil, func(o *Options) { o.Live = func() Live { return Live{Operations: q} } })
		return w, q, w.request("POST", target, w.token("physics.lattice/ops"),
			fmt.Sprintf(`{"operation":%q,"reason":"it hangs"}`, operation), "Idempotency-Key", "k1")
	}
	for _, operation := range []string{schema.OpRestart, schema.OpReplace, schema.OpRemove, schema.OpRetry} {
		w, q, res := ask(nodes, operation)
		require.Equal(t, codePermission, codeOf(t, res), operation)
		require.Zero(t, q.calls, operation)
		require.Len(t, w.audited, 1, operation)
		r := w.audited[0]
		require.Equal(t, []any{"physics.lattice/ops", audit.Denied, string(authority.MemberOperate), "physics.lattice"},
			[]any{r.Actor, r.Verdict, r.Permission, r.ProjectID}, operation)
		require.Contains(t, r.File, "/nodes/{node}/operations", operation)
		require.Contains(t, r.Reason, "does not have apps.instance.member.operate in its scopes", operation)

		_, q, res = ask(both, operation)
		require.NotEqual(t, http.StatusForbidden, res.StatusCode, operation)
		require.Equal(t, res.StatusCode == http.StatusAccepted, q.calls == 1, operation)
	}
	_, _, res := ask(both, schema.OpAccept)
	require.Equal(t, codePermission, codeOf(t, res))
	_, _, res = ask(accepts, schema.OpAccept)
	require.NotEqual(t, http.StatusForbidden, res.StatusCode)
	accepts.Desired.Platform.Policies = map[string]*schema.Policy{"four-eyes": {Header: schema.Header{Key: schema.Key{Kind: schema.KindPolicy, Name: "four-eyes"}},
		Spec: schema.PolicySpec{RequireApproval: true}}}
	_, q, res := ask(accepts, schema.OpAccept)
	require.Equal(t, http.StatusForbidden, res.StatusCode, "a second person has to approve it, which needs a pull request")
	require.Zero(t, q.calls)
	w, q, res := ask(nodes, schema.OpDrain)
	require.Equal(t, http.StatusAccepted, res.StatusCode)
	require.Equal(t, 1, q.calls)
	require.Empty(t, w.audited)
}

package api

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"berth/reconciler/plan"
	"berth/runtimes/slurm"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/estate"
	"berth/schema/policy"
)

const campusDir = "../../examples/campus"

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// campusFiles is examples/campus, path → content.
func campusFiles(t testing.TB) map[string]string {
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(campusDir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(campusDir, path)
		files[filepath.ToSlash(rel)] = string(data)
		return err
	}))
	return files
}

// newLoader is shared: compiling the schema takes longer than most of the tests.
var newLoader = sync.OnceValues(func() (*estate.Loader, error) {
	return estate.New(estate.Options{Backends: map[string]string{"slurm": slurm.Backend{}.ConfigCUE()}})
})

// desired loads files, which are all valid.
func desired(t testing.TB, files map[string]string) *schema.Desired {
	loader, err := newLoader()
	require.NoError(t, err)
	res, err := loader.Load(context.Background(), estate.Files(files))
	require.NoError(t, err)
	for _, d := range res.Diagnostics {
		require.NotEqual(t, schema.SeverityError, d.Severity, d.String())
	}
	return res.Desired
}

// viewOf is a plan.View of files with some statuses.
func viewOf(t testing.TB, files map[string]string) plan.View {
	d := desired(t, files)
	train := schema.InstanceKey("physics", "lattice", "train")
	gone := schema.InstanceKey("physics", "lattice", "gone")
	department := schema.Key{Kind: schema.KindSharedRuntime, Tenant: "physics", Name: "department"}
	commons := schema.Key{Kind: schema.KindSharedRuntime, Name: "commons"}
	ready := []plan.Condition{{Type: "Ready", Status: "True", Reason: "Running", Revision: "aaaa"}}
	member := func(name, role, node string, control bool) plan.MemberStatus {
		return plan.MemberStatus{
			Member: plan.Member{Name: name, Role: role, ControlPlane: control, Node: node, Address: "10.0.0.7", SSHPort: 22,
				Region: "campus-north", SKU: "a100x4", CPUs: 64, MemoryMiB: 1024,
				GPUs: []schema.GPU{{Type: "a100", Count: 4, Devices: "/dev/nvidia[0-3]"}}},
			State: plan.Running, Placed: "first that fits",
			Integration: &plan.Integration{SchedulerType: "slurm", Adapter: "runtimes/slurm", References: map[string]string{"node": node}},
		}
	}
	lent := func(m plan.MemberStatus, project, until string) plan.MemberStatus {
		m.Loan = &schema.Loan{ProjectID: project, Until: until}
		return m
	}
	return plan.View{
		Main: strings.Repeat("a", 40), InForce: strings.Repeat("b", 40), Desired: d, Effective: policy.Evaluate(d),
		Held: []schema.Held{{Key: train, File: "tenants/physics/projects/lattice/instances/train.yaml", Reason: "denied",
			Message: "nobody with apps.instance.update agrees"}},
		Units: plan.Remember(
			&plan.Status{
				Key: train, Phase: plan.PhaseRunning,
				EffectiveValues: plan.EffectiveValues{App: "slurm", RuntimeBackend: "slurm", OperatingMode: "tenant_dedicated",
					ControlPlaneScope: "project"},
				Conditions: ready, LastApplied: plan.LastApplied{Revision: "aaaa", CorrelationID: "c0123456789"},
				RequestedBy: "ben-lattice", RuntimeState: json.RawMessage(`{"cluster":"physics-lattice-train"}`),
				Members: []plan.MemberStatus{member("controller-0", "controller", "head-1", true),
					member("worker-0", "worker", "gpu-1", false)},
			},
			&plan.Status{Key: gone, Phase: plan.PhaseDeleting,
				EffectiveValues: plan.EffectiveValues{App: "slurm", RuntimeBackend: "slurm", OperatingMode: "tenant_dedicated",
					ControlPlaneScope: "project"}, Conditions: ready},
			&plan.Status{Key: department, Phase: plan.PhaseRunning, EffectiveValues: plan.EffectiveValues{App: "slurm"}, Conditions: ready,
				Members: []plan.MemberStatus{member("controller-0", "controller", "head-1", true),
					lent(member("worker-0", "worker", "gpu-3", false), "physics.collider", "2027-03-01")},
				Attachments: []plan.AttachmentStatus{
					{ProjectID: "physics.collider", Name: "collider", Phase: plan.AttachmentAttached, Reason: "Attached"},
					{ProjectID: "physics.lattice", Name: "lattice", Phase: plan.AttachmentRequested, Reason: "NotAccepted",
						Message: "no Instance of physics.lattice names the shared runtime department"},
				}},
			&plan.Status{Key: commons, Phase: plan.PhaseRunning, EffectiveValues: plan.EffectiveValues{App: "slurm"}, Conditions: ready,
				Members: []plan.MemberStatus{member("worker-0", "worker", "gpu-5", false),
					lent(member("worker-1", "worker", "gpu-4", false), "biology.proteins", "")}},
		),
		Things: map[schema.Key]*plan.ThingStatus{
			{Kind: schema.KindArtifact, Tenant: "physics", Project: "lattice", Name: "solver"}: {Phase: "promoted", Conditions: ready,
				Revision: "aaaa"},
		},
	}
}

// world is an API over a plan.View, with a token for each person.
type world struct {
	t         testing.TB
	api       *API
	view      plan.View
	ready     bool
	now       time.Time
	key       ed25519.PrivateKey
	audited   []audit.Record
	unaudited error // what whoever keeps the records says
	log       bytes.Buffer
	doc       *document
}

// personToken is the token of a login.
func personToken(login string) string { return "token-of-" + login + "-that-is-long-enough" }

func newWorld(t testing.TB, files map[string]string, logins []string, change func(*Options)) *world {
	return worldOf(t, viewOf(t, files), logins, change)
}

// campusView is viewOf the campus with one more operation, made once.
func campusView(t testing.TB) plan.View {
	once.Do(func() {
		campus = viewOf(t, with(campusFiles(t),
			map[string]string{"tenants/physics/shared-runtimes/department/operations/rest.yaml": operationFile}))
	})
	return campus
}

const operationFile = "apiVersion: berth/v1\nkind: MemberOperation\nmetadata: {name: rest}\nspec: {operation: retry, reason: it hangs}\n"

var (
	once   sync.Once
	campus plan.View
)

func worldOf(t testing.TB, v plan.View, logins []string, change func(*Options)) *world {
	w := &world{t: t, view: v, ready: true, now: now, key: testKey(), doc: openDocument(t)}
	var people []Person
	for _, l := range logins {
		people = append(people, Person{l, sha256.Sum256([]byte(personToken(l)))})
	}
	o := Options{
		Estate: "campus", Source: func() (plan.View, bool) { return w.view, w.ready }, People: func() []Person { return people },
		Audit: func(r audit.Record) error { w.audited = append(w.audited, r); return w.unaudited }, Now: func() time.Time { return w.now },
		Log:          slog.New(slog.NewTextHandler(&w.log, nil)),
		PerPrincipal: Rate{1e9, 1e9}, PerTenant: Rate{1e9, 1e9}, PerAdmin: Rate{1e9, 1e9}, PerFailure: Rate{1e9, 1e9},
	}
	if change != nil {
		change(&o)
	}
	var err error
	w.api, err = New(o)
	require.NoError(t, err)
	return w
}

// testKey is the private half of the key that campusWithKey gives accounts.
func testKey() ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
}

func authorised(t testing.TB, key any) string {
	k, err := ssh.NewPublicKey(key)
	require.NoError(t, err)
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k)))
}

// ask sends a request and checks the answer against openapi.yaml.
func (w *world) ask(method, target, token string, headers ...string) *http.Response {
	r := httptest.NewRequest(method, target, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return w.send(r)
}

func (w *world) send(r *http.Request) *http.Response {
	rec := httptest.NewRecorder()
	w.api.ServeHTTP(rec, r)
	res := rec.Result()
	w.doc.check(w.t, r, res, rec.Body.Bytes())
	return res
}

func (w *world) get(target, token string, headers ...string) *http.Response {
	return w.ask(http.MethodGet, target, token, headers...)
}

// read reads a success as JSON.
func (w *world) read(target, login string, into any) {
	w.t.Helper()
	res := w.get(target, personToken(login))
	require.Equal(w.t, http.StatusOK, res.StatusCode, target)
	require.NoError(w.t, json.Unmarshal(body(w.t, res), into))
}

func body(t testing.TB, res *http.Response) []byte {
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return b
}

// codeOf is the code of an error answer, "" of a success.
func codeOf(t testing.TB, res *http.Response) code {
	if res.StatusCode < 400 {
		return ""
	}
	var e envelope
	require.NoError(t, json.Unmarshal(body(t, res), &e))
	require.Equal(t, res.Header.Get("X-Correlation-ID"), e.Error.CorrelationID)
	return e.Error.Code
}

// token makes a token of an account with the test key; change may alter it.
func (w *world) token(account string) string {
	name, err := ParseIssuer(account)
	require.NoError(w.t, err)
	tok, err := Mint(name, "current", w.key, "campus", 15*time.Minute, w.now)
	require.NoError(w.t, err)
	return tok
}

// document is openapi.yaml.
type document struct {
	doc    *openapi3.T
	router routers.Router
	held   sync.Map // responses that were compared with it already
}

func openDocument(t testing.TB) *document {
	openOnce.Do(func() { opened = readDocument(t) })
	return opened
}

var (
	openOnce sync.Once
	opened   *document
)

func readDocument(t testing.TB) *document {
	doc, err := openapi3.NewLoader().LoadFromData(openAPI)
	require.NoError(t, err)
	require.NoError(t, doc.Validate(context.Background()))
	openapi3filter.RegisterBodyDecoder(eventStream, openapi3filter.PlainBodyDecoder)
	router, err := legacy.NewRouter(doc)
	require.NoError(t, err)
	return &document{doc: doc, router: router}
}

// check compares a request and its answer with the document. A path or method that
// the document lacks must be answered by its Error.
func (d *document) check(t testing.TB, r *http.Request, res *http.Response, body []byte) {
	require.NotContains(t, res.Header.Get("Content-Type"), "html")
	require.Equal(t, "nosniff", res.Header.Get("X-Content-Type-Options"))
	require.NotEmpty(t, res.Header.Get("X-Correlation-ID"))
	if r.Method == http.MethodHead {
		r = r.Clone(r.Context())
		r.Method = http.MethodGet
	}
	route, params, err := d.router.FindRoute(r)
	if err != nil {
		require.GreaterOrEqual(t, res.StatusCode, 400)
		var v any
		require.NoError(t, json.Unmarshal(body, &v))
		require.NoError(t, d.doc.Components.Schemas["Error"].Value.VisitJSON(v, openapi3.EnableJSONSchema2020()), "%s %s", r.Method, r.URL)
		return
	}
	// Compiling a schema for each answer is what takes time: the same is held once.
	if _, again := d.held.LoadOrStore(fmt.Sprint(route.Path, r.URL.RawQuery, res.StatusCode, res.Header, string(body)), true); again {
		return
	}
	in := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true},
	}
	if res.StatusCode == http.StatusOK {
		require.NoError(t, openapi3filter.ValidateRequest(r.Context(), in), "%s %s", r.Method, r.URL)
	}
	require.NoError(t, openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: res.StatusCode, Header: res.Header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: in.Options,
	}), "%s %s: %d %s", r.Method, r.URL, res.StatusCode, body)
}

// with returns files with some of them replaced.
func with(files map[string]string, more map[string]string) map[string]string {
	out := maps.Clone(files)
	maps.Copy(out, more)
	return out
}

package api

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/authority"
)

var update = flag.Bool("update", false, "rewrite testdata")

// Petra owns physics, anna administers its project lattice, otto runs the
// platform: see examples/campus.
const (
	petra, anna, otto = "petra-phys", "anna-lattice", "otto-ops"
	boris             = "boris-bio" // owns biology
	lattice           = "/api/v1/projects/physics.lattice"
	department        = "/api/v1/orgs/physics/shared-app-runtimes/department"
)

func campusWorld(t testing.TB, change func(*Options)) *world {
	return worldOf(t, campusView(t), []string{petra, anna, otto}, change)
}

// fill replaces the parameters of a template by names of the campus.
func fill(template string) string {
	return strings.NewReplacer(
		"{project_id}", "physics.lattice", "{org_id}", "physics", "{app_slug}", "slurm", "{version}", "22-05", "{app_instance_id}", "train",
		"{member_id}", "worker-0", "{worker_id}", "worker-0", "{artifact_id}", "solver", "{shared_runtime_id}", "department",
		"{attachment_id}", "collider", "{node_id}", "gpu-1",
	).Replace(strings.ReplaceAll(strings.ReplaceAll(template, "/member-operations/{operation_id}", "/member-operations/drain-worker"),
		"/worker-operations/{operation_id}", "/worker-operations/rest"))
}

// Each route answers with the declarations of the campus and their status.
func TestEachRouteAnswers(t *testing.T) {
	w := campusWorld(t, nil)
	var out bytes.Buffer
	for _, r := range w.api.routes {
		if !r.reads() || r.admin {
			continue
		}
		target := fill(r.template)
		res := w.get(target, personToken(petra))
		fmt.Fprintf(&out, "-- GET %s --\n", target)
		require.Equal(t, http.StatusOK, res.StatusCode, target)
		require.NoError(t, json.Indent(&out, body(t, res), "", "  "))
	}
	const golden = "testdata/campus.golden"
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, out.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), out.String(),
		"if the campus itself changed: go test ./webhooks/api -run TestEachRouteAnswers -update, and look at the difference")
	for _, secret := range []string{"/dev/nvidia", "10.0.0.7", "credential"} {
		require.NotContains(t, out.String(), secret)
	}
}

func TestAllowedEndpointsAreRoutes(t *testing.T) {
	want := []authority.Endpoint{{Call: "GET " + openAPIPath}}
	for _, r := range routes() {
		if len(r.methods()) > 0 && !r.admin {
			want = append(want, authority.Endpoint{Call: r.endpoint(), Permission: r.permission})
		}
	}
	require.ElementsMatch(t, want, authority.Endpoints())
}

func TestRoutesAgreeWithOpenAPI(t *testing.T) {
	doc := openDocument(t).doc
	want := []string{"GET " + openAPIPath}
	for _, r := range routes() {
		if len(r.methods()) > 0 {
			want = append(want, r.endpoint())
			method, _, _ := strings.Cut(r.endpoint(), " ")
			op := doc.Paths.Value(r.template).GetOperation(method)
			require.NotNil(t, op, r.endpoint())
			require.Contains(t, op.Description, "`"+string(r.permission)+"`", r.endpoint())
			require.Equal(t, []string{string(r.family)}, op.Tags, r.endpoint())
		}
	}
	var got []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			got = append(got, method+" "+path)
		}
	}
	require.ElementsMatch(t, want, got)
	w := campusWorld(t, nil)
	res := w.get(openAPIPath, personToken(anna))
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, openAPI, body(t, res))
}

// paths are the GET paths of ACP and of TSR.
var paths = []string{
	"/api/v1/apps/catalog",
	"/api/v1/apps/catalog/{app_slug}/versions",
	"/api/v1/projects/{project_id}/apps/entitlements",
	"/api/v1/projects/{project_id}/app-instances",
	"/api/v1/projects/{project_id}/app-instances/{app_instance_id}",
	"/api/v1/apps/registry",
	"/api/v1/projects/{project_id}/app-artifacts",
	"/api/v1/projects/{project_id}/app-instances/{app_instance_id}/members",
	"/api/v1/projects/{project_id}/app-instances/{app_instance_id}/members/{member_id}",
	"/api/v1/projects/{project_id}/app-instances/{app_instance_id}/member-operations/{operation_id}",
	"/api/v1/orgs/{org_id}/shared-app-runtimes",
	"/api/v1/orgs/{org_id}/shared-app-runtimes/{shared_runtime_id}",
	"/api/v1/orgs/{org_id}/shared-app-runtimes/{shared_runtime_id}/attachments",
	"/api/v1/orgs/{org_id}/shared-app-runtimes/{shared_runtime_id}/attachments/{attachment_id}",
}

// tables are ACP's tables and TSR's lists of fields: the path of an example, and the
// names of its fields in the answer.
var tables = map[string]struct{ path, fields string }{
	"app_catalog":  {"/api/v1/apps/catalog", "id slug display_name category publisher status created_at updated_at"},
	"app_versions": {"/api/v1/apps/catalog/slurm/versions", "id app_id version runtime_backend manifest status created_at"},
	"project_app_entitlements": {lattice + "/apps/entitlements",
		"id org_id project_id app_id enabled policy_overrides updated_by_user_id created_at updated_at"},
	"app_instances": {lattice + "/app-instances/train",
		"id resource_name org_id project_id app_id app_version_id display_name operating_mode control_plane_scope tenant_boundary_mode " +
			"status requested_by_user_id operator_service_account_id config runtime_state failure_reason created_at updated_at"},
	"app_instances, deleted": {lattice + "/app-instances/past", "deleted_at"},
	"shared_runtime": {department,
		"id resource_name org_id app_slug app_version display_name operating_mode control_plane_scope runtime_backend status " +
			"operator_service_account_id placement_intent config created_at updated_at"},
	"shared_runtime_attachment": {department + "/attachments/collider",
		"id shared_runtime_id org_id project_id status contribution_policy submission_policy billing_policy_ref created_at updated_at"},
}

// notAnswered lists the fields that no answer has. Row A15 of the requirements table
// names each of them.
var notAnswered = []string{"project_app_entitlements.updated_by_user_id"}

func TestPathsOfACPAndTSRAnswer(t *testing.T) {
	w := campusWorld(t, nil)
	for _, path := range paths {
		res := w.get(fill(path), personToken(petra))
		require.Equal(t, http.StatusOK, res.StatusCode, path)
		require.Equal(t, "application/json", res.Header.Get("Content-Type"), path)
	}
}

// Each field of ACP's tables and TSR's lists has a value in the answer about a
// resource that has one. The list notAnswered names the exceptions.
func TestFieldsOfACPAndTSRHaveValues(t *testing.T) {
	v := campusView(t)
	v.Dates = func(string, string) (created, updated time.Time) { return now.Add(-time.Hour), now }
	failed := *v.Units.Get(schema.InstanceKey("physics", "lattice", "train"))
	failed.FailureReason = "create: no such device"
	v.Units = v.Units.With(&failed)
	v.Deleted = func(tenant, project, id string) (plan.DeletedInstance, bool) {
		return plan.DeletedInstance{Key: schema.InstanceKey(tenant, project, id), ID: id, DeletedAt: now}, id == "past"
	}
	w := worldOf(t, v, []string{petra}, nil)
	var missing []string
	for name, table := range tables {
		var got map[string]any
		w.read(table.path, petra, &got)
		if items, list := got["items"].([]any); list {
			got = items[len(items)-1].(map[string]any)
		}
		for _, field := range strings.Fields(table.fields) {
			if value, ok := got[field]; !ok || value == nil || value == "" {
				missing = append(missing, name+"."+field)
			}
		}
	}
	require.ElementsMatch(t, notAnswered, missing, "update notAnswered and row A15 of examples/requirements.md")
	text, err := os.ReadFile("../../examples/requirements.md")
	require.NoError(t, err)
	_, row, found := strings.Cut(string(text), "\n| A15 |")
	require.True(t, found)
	row, _, _ = strings.Cut(row, "\n")
	for _, field := range notAnswered {
		require.Contains(t, row, "`"+field+"`", "row A15 does not say that this field is not answered")
	}
}

func TestFieldsHaveTheDocumentsValues(t *testing.T) {
	files := with(campusFiles(t), map[string]string{
		"tenants/physics/projects/lattice/entitlements/slurm.yaml": "apiVersion: berth/v1\nkind: Entitlement\nmetadata: {name: slurm, " +
			"uid: ent-7}\nspec: {enabled: true}\n",
		"platform/catalog/slurm/app.yaml": "apiVersion: berth/v1\nkind: App\nmetadata: {name: slurm, uid: app-3}\nspec: {display_name: " +
			"Slurm, category: scheduler, publisher: SchedMD, status: active}\n",
	})
	for _, c := range []struct {
		files                     map[string]string
		entitlementID, appOfTrain string
	}{
		{campusFiles(t), "slurm", "slurm"},
		{files, "ent-7", "app-3"},
	} {
		w := newWorld(t, c.files, []string{anna}, nil)
		var i instance
		w.read(lattice+"/app-instances/train", anna, &i)
		require.Equal(t, "ben-lattice", i.RequestedBy, "who brought it, not whom the document names")
		require.Equal(t, c.appOfTrain, i.AppID)
		require.Equal(t, "22-05", i.AppVersionID)
		var e entitlement
		w.read(lattice+"/apps/entitlements/slurm", anna, &e)
		require.Equal(t, c.entitlementID, e.ID)
		require.Equal(t, c.appOfTrain, e.AppID)
		var versions struct{ Items []version }
		w.read("/api/v1/apps/catalog/slurm/versions", anna, &versions)
		require.Equal(t, i.AppVersionID, versions.Items[0].ID)
		require.Equal(t, c.appOfTrain, versions.Items[0].AppID)
		var apps struct{ Items []app }
		w.read("/api/v1/apps/catalog", anna, &apps)
		require.Equal(t, c.appOfTrain, apps.Items[1].ID)
	}
}

// An unknown time is absent.
func TestTimesComeFromCommits(t *testing.T) {
	v := campusView(t)
	came, changed := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC), time.Date(2026, 4, 2, 9, 30, 0, 0, time.UTC)
	v.Dates = func(path, blob string) (created, updated time.Time) {
		if path == "tenants/physics/projects/lattice/entitlements/slurm.yaml" && blob != "" {
			return came, changed
		}
		return created, updated
	}
	w := worldOf(t, v, []string{anna}, nil)
	var e entitlement
	require.NoError(t, json.Unmarshal(body(t, w.get(lattice+"/apps/entitlements/slurm", personToken(anna))), &e))
	require.Equal(t, came, e.CreatedAt)
	require.Equal(t, changed, e.UpdatedAt)
	require.NotContains(t, string(body(t, w.get(lattice+"/app-instances/train", personToken(anna)))), "created_at")
}

// Each error has the envelope, a code, and an id that is in the log.
func TestErrorsHaveTheEnvelope(t *testing.T) {
	w := campusWorld(t, nil)
	tok := personToken(anna)
	for name, c := range map[string]struct {
		method, target, token string
		headers               []string
		status                int
		code                  code
	}{
		"no token":               {"GET", lattice + "/app-instances", "", nil, 401, codeAuthRequired},
		"no token, unknown path": {"GET", "/api/v1/nope", "", nil, 401, codeAuthRequired},
		"another token":          {"GET", lattice + "/app-instances", "nonsense", nil, 401, codeAuthInvalid},
		"a huge token":           {"GET", lattice + "/app-instances", strings.Repeat("x", maxToken+1), nil, 401, codeAuthInvalid},
		"two tokens": {"GET", lattice + "/app-instances", tok, []string{"Authorization", "Bearer " + tok}, 401,
			codeAuthInvalid},
		"unknown path":            {"GET", "/api/v1/nope", tok, nil, 404, codeNotFound},
		"outside":                 {"GET", "/api/", tok, nil, 404, codeNotFound},
		"slash at the end":        {"GET", lattice + "/app-instances/", tok, nil, 404, codeNotFound},
		"encoded slash":           {"GET", "/api/v1/projects%2Fphysics.lattice/app-instances", tok, nil, 404, codeNotFound},
		"script in the path":      {"GET", lattice + "/app-instances/%3Cscript%3E", tok, nil, 404, codeNotFound},
		"dots in the path":        {"GET", lattice + "/app-instances/..", tok, nil, 404, codeNotFound},
		"no project id":           {"GET", "/api/v1/projects/physics/app-instances", tok, nil, 404, codeNotFound},
		"unknown project":         {"GET", "/api/v1/projects/physics.nope/app-instances", tok, nil, 404, codeNotFound},
		"another tenant's":        {"GET", "/api/v1/projects/biology.genomes/app-instances", tok, nil, 404, codeNotFound},
		"unknown instance":        {"GET", lattice + "/app-instances/nope", tok, nil, 404, codeNotFound},
		"members of none":         {"GET", lattice + "/app-instances/nope/members", tok, nil, 404, codeNotFound},
		"operations of none":      {"GET", lattice + "/app-instances/nope/member-operations", tok, nil, 404, codeNotFound},
		"unknown app":             {"GET", "/api/v1/apps/catalog/nope/versions", tok, nil, 404, codeNotFound},
		"a write":                 {"POST", lattice + "/app-instances", tok, nil, 405, codeWrite},
		"a write of one":          {"DELETE", lattice + "/app-instances/train", tok, nil, 405, codeWrite},
		"an unknown method":       {"BREW", lattice + "/app-instances", tok, nil, 405, codeWrite},
		"a write of the document": {"PUT", openAPIPath, tok, nil, 405, codeMethod},
		"another media type":      {"GET", lattice + "/app-instances", tok, []string{"Accept", "text/html"}, 406, codeAccept},
		"JSON not wanted": {"GET", lattice + "/app-instances", tok, []string{"Accept", "application/json;q=0, text/html"},
			406, codeAccept},
		"limit 0":           {"GET", lattice + "/app-instances?limit=0", tok, nil, 400, codeQuery},
		"limit 501":         {"GET", lattice + "/app-instances?limit=501", tok, nil, 400, codeQuery},
		"limit of words":    {"GET", lattice + "/app-instances?limit=many", tok, nil, 400, codeQuery},
		"limit twice":       {"GET", lattice + "/app-instances?limit=1&limit=2", tok, nil, 400, codeQuery},
		"unknown parameter": {"GET", lattice + "/app-instances?sort=name", tok, nil, 400, codeQuery},
		"broken query":      {"GET", lattice + "/app-instances?limit=%zz", tok, nil, 400, codeQuery},
		"query of one":      {"GET", lattice + "/app-instances/train?limit=1", tok, nil, 400, codeQuery},
		"made-up cursor":    {"GET", lattice + "/app-instances?cursor=dHJhaW4", tok, nil, 400, codeCursor},
		"empty cursor":      {"GET", lattice + "/app-instances?cursor=", tok, nil, 400, codeCursor},
		"endless query": {"GET", lattice + "/app-instances?cursor=" + strings.Repeat("x", maxURL), tok, nil, 414,
			codeTooLong},
		"another project's header": {"GET", lattice + "/app-instances", tok, []string{"X-Project-ID", "physics.collider"}, 400,
			codeProject},
		"no project's header": {"GET", lattice + "/app-instances", tok, []string{"X-Project-ID", "lattice"}, 400, codeProject},
		"another tenant's header": {"GET", department, personToken(petra), []string{"X-Project-ID", "biology.genomes"}, 400,
			codeProject},
		"two headers": {"GET", "/api/v1/apps/catalog", tok,
			[]string{"X-Project-ID", "physics.lattice", "X-Project-ID", "physics.collider"}, 400, codeProject},
		"catalog in another's project": {"GET", "/api/v1/apps/catalog", tok, []string{"X-Project-ID", "biology.genomes"}, 403,
			codePermission},
		"admin without a reason": {"GET", "/api/v1/admin/projects/physics.lattice/app-instances", personToken(otto), nil, 400,
			codeBreakGlass},
		"admin with a strange reason": {"GET", "/api/v1/admin/projects/physics.lattice/app-instances", personToken(otto),
			[]string{"X-Break-Glass", "a\x01b"}, 400, codeBreakGlass},
		"a reason where none is wanted": {"GET", lattice + "/app-instances", personToken(otto), []string{"X-Break-Glass", "incident 7"},
			400, codeMisplaced},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.log.Reset()
			res := w.ask(c.method, c.target, c.token, c.headers...)
			require.Equal(t, c.status, res.StatusCode)
			require.Equal(t, c.code, codeOf(t, res))
			require.Contains(t, w.log.String(), "correlation_id="+res.Header.Get("X-Correlation-ID"))
			require.Equal(t, "no-store", res.Header.Get("Cache-Control"))
			if c.status == 401 {
				require.NotEmpty(t, res.Header.Get("WWW-Authenticate"))
			}
		})
	}
}

func TestUnknownAndHiddenProjectsAnswerTheSame(t *testing.T) {
	w := campusWorld(t, nil)
	strip := func(target, name string) string {
		res := w.get(fmt.Sprintf(target, name), personToken(anna), "X-Correlation-ID", "the-same-one")
		said := string(body(t, res))
		require.Contains(t, said, name)
		return fmt.Sprint(res.StatusCode, res.Header, strings.ReplaceAll(said, name, "NAME"))
	}
	require.Equal(t, strip("/api/v1/projects/biology.%s/app-instances", "genomes"),
		strip("/api/v1/projects/biology.%s/app-instances", "botany"))
	require.Equal(t, strip("/api/v1/orgs/%s/shared-app-runtimes", "biology"), strip("/api/v1/orgs/%s/shared-app-runtimes", "chemistry"))
}

// Requirement A11.
func TestErrorsCarryTheIDsOfThePath(t *testing.T) {
	w := campusWorld(t, nil)
	for _, c := range []struct {
		method, path, details string
	}{
		{"GET", "/api/v1/projects/physics.lattice/app-instances/nothing",
			`{"org_id":"physics","project_id":"physics.lattice","app_instance_id":"nothing"}`},
		{"GET", "/api/v1/projects/physics.lattice/apps/entitlements/nothing",
			`{"org_id":"physics","project_id":"physics.lattice","app_slug":"nothing"}`},
		{"PUT", "/api/v1/projects/physics.lattice/apps/entitlements/slurm",
			`{"org_id":"physics","project_id":"physics.lattice","app_slug":"slurm","file":"tenants/physics/projects/lattice/entitlements/slurm.yaml"}`},
		{"GET", "/api/v1/orgs/chemistry/shared-app-runtimes/department", `{"org_id":"chemistry","shared_runtime_id":"department"}`},
		{"GET", "/api/v1/nothing", `{}`},
	} {
		res := w.ask(c.method, c.path, personToken(anna))
		var e struct {
			Error struct{ Details json.RawMessage }
		}
		require.NoError(t, json.Unmarshal(body(t, res), &e))
		require.JSONEq(t, c.details, string(e.Error.Details), c.path)
	}
	require.Contains(t, w.log.String(), "project_id=physics.lattice app_slug=slurm")

	// An anonymous caller learns nothing.
	res := w.ask("GET", "/api/v1/projects/physics.lattice/app-instances/nothing", "")
	require.Contains(t, string(body(t, res)), `"details":{}`)
}

func TestWriteAnswersNameTheFile(t *testing.T) {
	w := campusWorld(t, nil)
	for target, want := range map[string]string{
		"POST " + lattice + "/app-instances":                                   "tenants/physics/projects/lattice/instances/<name>.yaml",
		"DELETE " + lattice + "/app-instances/train":                           "tenants/physics/projects/lattice/instances/<name>.yaml",
		"PUT " + lattice + "/apps/entitlements/slurm":                          "tenants/physics/projects/lattice/entitlements/slurm.yaml",
		"POST " + lattice + "/app-instances/train/member-operations":           "tenants/physics/projects/lattice/operations/<name>.yaml",
		"POST " + lattice + "/app-artifacts/publish-intents":                   "tenants/physics/projects/lattice/artifacts/<name>.yaml",
		"POST " + lattice + "/app-artifacts/solver/promote":                    "tenants/physics/projects/lattice/artifacts/<name>.yaml",
		"POST " + lattice + "/app-artifacts/solver/retire":                     "tenants/physics/projects/lattice/artifacts/<name>.yaml",
		"POST /api/v1/admin/apps/catalog/slurm/versions/22-05/publish":         "platform/catalog/slurm/22-05.yaml",
		"GET /api/v1/admin/apps/catalog/slurm/versions/22-05/deprecate":        "platform/catalog/slurm/22-05.yaml",
		"POST /api/v1/orgs/physics/shared-app-runtimes":                        "tenants/physics/shared-runtimes/<name>/runtime.yaml",
		"POST /api/v1/orgs/physics/shared-app-runtimes/department/attachments": "tenants/physics/shared-runtimes/<name>/attachments/<name>.yaml",
	} {
		method, path, _ := strings.Cut(target, " ")
		res := w.ask(method, path, personToken(petra))
		require.Equal(t, http.StatusMethodNotAllowed, res.StatusCode, target)
		var e envelope
		require.NoError(t, json.Unmarshal(body(t, res), &e))
		require.Equal(t, codeWrite, e.Error.Code)
		require.Equal(t, want, e.Error.Details["file"], target)
		require.Len(t, res.Header.Values("Allow"), 1, "RFC 9110, 15.5.6: it is there, also where it is empty")
	}
}

func TestNotReadyBeforeTheFirstDecision(t *testing.T) {
	w := campusWorld(t, nil)
	w.ready = false
	res := w.get(lattice+"/app-instances", personToken(anna))
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	require.Equal(t, "5", res.Header.Get("Retry-After"))
	require.Equal(t, codeNotReady, codeOf(t, res))
}

// A request loads the view only if it has a valid person's token or may have an
// account's, and then once.
func TestRequestWithoutTokenLoadsNoState(t *testing.T) {
	asked := 0
	w := campusWorld(t, func(o *Options) {
		source := o.Source
		o.Source = func() (plan.View, bool) { asked++; return source() }
	})
	for token, want := range map[string]int{"": 0, "wrong": 0, "one.dot": 0, "a.b.c.d": 0, strings.Repeat("x", maxToken+1): 0, "a.b.c": 1,
		personToken(anna): 1, w.token("physics.lattice/ci"): 1} {
		for _, ready := range []bool{true, false} {
			asked, w.ready = 0, ready
			w.get(lattice+"/app-instances", token)
			require.Equal(t, want, asked, "%.20q", token)
		}
	}
	w.ready = false
	require.Equal(t, http.StatusUnauthorized, w.get(lattice+"/app-instances", "").StatusCode, "nor do they learn whether Berth is up")
}

func TestRemovedPersonTokenIsInvalidAtOnce(t *testing.T) {
	people := []Person{{anna, sha256.Sum256([]byte(personToken(anna)))}}
	w := campusWorld(t, func(o *Options) { o.People = func() []Person { return people } })
	get := func(token string) int { return w.get(lattice+"/app-instances", token).StatusCode }
	require.Equal(t, 200, get(personToken(anna)))
	people = []Person{{anna, sha256.Sum256([]byte("another token of hers, long enough"))}}
	require.Equal(t, 401, get(personToken(anna)), "rotated")
	require.Equal(t, 200, get("another token of hers, long enough"))
	people = nil
	require.Equal(t, 401, get("another token of hers, long enough"), "revoked")
}

// The cause is in the log alone.
func TestPanicFailsOneRequest(t *testing.T) {
	w := campusWorld(t, nil)
	w.view.Effective = nil // of this world's copy
	res := w.get(lattice+"/app-instances", personToken(anna))
	require.Equal(t, http.StatusInternalServerError, res.StatusCode)
	require.NotContains(t, string(body(t, res)), "nil pointer")
	require.Contains(t, w.log.String(), "nil pointer")
	require.Equal(t, http.StatusOK, w.get(lattice+"/app-artifacts", personToken(anna)).StatusCode)
}

// An unchanged answer is not sent again. An ETag is valid for one caller.
func TestETag(t *testing.T) {
	w := campusWorld(t, nil)
	first := w.get(lattice+"/app-instances", personToken(anna))
	etag := first.Header.Get("ETag")
	require.NotEmpty(t, etag)
	require.Equal(t, "private, no-cache", first.Header.Get("Cache-Control"))
	for _, header := range []string{etag, `"other", W/` + etag, "*"} {
		res := w.get(lattice+"/app-instances", personToken(anna), "If-None-Match", header)
		require.Equal(t, http.StatusNotModified, res.StatusCode)
		require.Empty(t, body(t, res))
	}
	require.NotEqual(t, etag, w.get(lattice+"/app-instances", personToken(petra)).Header.Get("ETag"), "another principal")
	require.NotEqual(t, etag, w.get(lattice+"/app-instances?limit=500", personToken(anna)).Header.Get("ETag"), "another query")

	train := schema.InstanceKey("physics", "lattice", "train")
	changed := *w.view.Units.Get(train)
	changed.Phase = "updating"
	w.view.Units = w.view.Units.With(&changed)
	require.Equal(t, http.StatusOK, w.get(lattice+"/app-instances", personToken(anna), "If-None-Match", etag).StatusCode,
		"a status changed")

	// A resource that the caller may no longer read is not "unchanged".
	w.view = viewOf(t, with(campusFiles(t),
		map[string]string{"tenants/physics/projects/lattice/roles.yaml": "apiVersion: berth/v1\nkind: RoleBinding\nmetadata: {name: " +
			"roles}\nspec: {members: []}\n"}))
	require.Equal(t, http.StatusNotFound, w.get(lattice+"/app-instances", personToken(anna), "If-None-Match", etag).StatusCode)
}

func TestHeadIsGetWithoutBody(t *testing.T) {
	w := campusWorld(t, nil)
	server := httptest.NewServer(w.api)
	defer server.Close()
	var lengths []int64
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		r, err := http.NewRequest(method, server.URL+lattice+"/app-instances", nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+personToken(anna))
		res, err := server.Client().Do(r)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, res.StatusCode)
		lengths = append(lengths, res.ContentLength)
		if method == http.MethodHead {
			require.Empty(t, body(t, res))
		}
		require.NoError(t, res.Body.Close())
	}
	require.Equal(t, lengths[0], lengths[1])
}

// A malformed one is replaced.
func TestCallersCorrelationIDIsKept(t *testing.T) {
	w := campusWorld(t, nil)
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, c := range []struct{ header, value, want string }{
		{"X-Correlation-ID", "incident-2026.11", "incident-2026.11"},
		{"Traceparent", "00-" + trace + "-00f067aa0ba902b7-01", trace},
		{"Traceparent", "00-" + noTrace + "-00f067aa0ba902b7-01", ""},
		{"X-Correlation-ID", "short", ""},
		{"X-Correlation-ID", reconciler.CorrelationID("c0ffee"), ""}, // of a change, which each caller can compute
		{"X-Correlation-ID", "a line\nand another", ""},
		{"X-Correlation-ID", strings.Repeat("x", 65), ""},
		{"X-Correlation-ID", `<script>alert(1)</script>`, ""},
	} {
		got := w.get("/api/v1/apps/catalog", personToken(anna), c.header, c.value).Header.Get("X-Correlation-ID")
		if c.want == "" {
			require.Regexp(t, `^r[0-9a-f]{20}$`, got)
		} else {
			require.Equal(t, c.want, got)
		}
	}
}

// Requirement A16.
func TestDisabledFamilyIsNotFound(t *testing.T) {
	for _, off := range Families() {
		w := campusWorld(t, func(o *Options) { o.Off = []Family{off} })
		for _, r := range w.api.routes {
			if !r.reads() || r.admin {
				continue
			}
			res := w.get(fill(r.template), personToken(petra))
			if r.family == off {
				require.Equal(t, http.StatusNotFound, res.StatusCode)
				require.Equal(t, codeFeature, codeOf(t, res))
			} else {
				require.Equal(t, http.StatusOK, res.StatusCode, r.template)
			}
		}
	}
	_, err := New(Options{Estate: "e", Source: func() (plan.View, bool) { return plan.View{}, false },
		Audit: campusWorld(t, nil).api.o.Audit, Log: campusWorld(t, nil).api.o.Log, Off: []Family{"catalogue"}})
	require.Error(t, err)
}

// Invalid tokens of one address neither fill the log nor keep out a valid token.
func TestRatesBoundCallersAndFailures(t *testing.T) {
	w := campusWorld(t, func(o *Options) { o.PerPrincipal, o.PerFailure = Rate{1, 2}, Rate{1, 2} })
	catalog := func(who string) int { return w.get("/api/v1/apps/catalog", personToken(who)).StatusCode }
	require.Equal(t, []int{200, 200, 429, 200}, []int{catalog(anna), catalog(anna), catalog(anna), catalog(petra)})
	w.now = w.now.Add(time.Second)
	require.Equal(t, []int{200, 429}, []int{catalog(anna), catalog(anna)})

	wrong := func(addr string) int {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/apps/catalog", nil)
		r.RemoteAddr = addr
		r.Header.Set("Authorization", "Bearer wrong")
		return w.send(r).StatusCode
	}
	w.log.Reset()
	require.Equal(t, []int{401, 401, 429, 429},
		[]int{wrong("[2001:db8::1]:1"), wrong("[2001:db8::2]:2"), wrong("[2001:db8::3]:3"), wrong("[2001:db8::4]:4")})
	require.Equal(t, 2, strings.Count(w.log.String(), "\n"), "beyond the bound nothing is logged")
	require.Equal(t, 401, wrong("192.0.2.1:1"), "another address")
	w.now = w.now.Add(time.Minute)
	require.Equal(t, 200, catalog(petra))
}

func TestLimiterMemoryIsBounded(t *testing.T) {
	l := newLimiter(Rate{1, 1})
	for i := range 3 * maxCallers {
		require.True(t, l.allow(fmt.Sprint(i), now))
	}
	require.LessOrEqual(t, len(l.now)+len(l.old), 2*maxCallers)
	require.False(t, l.allow(fmt.Sprint(3*maxCallers-1), now), "a recent caller is still known")
}

func TestBreakGlassNeedsAReasonAndIsAudited(t *testing.T) {
	w := campusWorld(t, nil)
	admin := "/api/v1/admin/projects/physics.lattice/app-instances/train"
	require.Equal(t, http.StatusNotFound, w.get(lattice+"/app-instances/train", personToken(otto)).StatusCode, "not without")
	require.Empty(t, w.audited)

	res := w.get(admin, personToken(otto), "X-Break-Glass", "incident 7", "X-Correlation-ID", "incident-7")
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Len(t, w.audited, 1)
	r := w.audited[0]
	require.Equal(t, "otto-ops api.read apps.instance.read allowed incident 7 true physics physics.lattice incident-7 token platform_ops",
		fmt.Sprint(r.Actor, " ", r.Action, " ", r.Permission, " ", r.Verdict, " ", r.Reason, " ", r.BreakGlass, " ", r.OrgID, " ",
			r.ProjectID, " ", r.CorrelationID, " ", r.Proof, " ", r.Rule))
	require.Equal(t, schema.InstanceKey("physics", "lattice", "train"), r.Key)
	require.Equal(t, w.view.Main, r.Commit)
	require.NotEmpty(t, r.RecordID)
	require.Contains(t, r.Source, "platform/roles/operators.yaml:")

	require.Equal(t, http.StatusNotFound,
		w.get("/api/v1/admin/projects/biology.genomes/app-instances", personToken(anna), "X-Break-Glass", "curious").StatusCode)
	require.Len(t, w.audited, 2)
	require.Equal(t, "denied", string(w.audited[1].Verdict))
	require.Equal(t, []string{"GET /api/v1/admin/projects/{project_id}/app-instances/{app_instance_id}",
		"GET /api/v1/admin/projects/{project_id}/app-instances"},
		[]string{w.audited[0].File, w.audited[1].File}, "what was read")
}

// A read that cannot be recorded is refused. A repeated read is recorded again.
func TestBreakGlassIsAnsweredAfterTheRecord(t *testing.T) {
	w := campusWorld(t, nil)
	get := func() *http.Response {
		return w.get("/api/v1/admin/projects/physics.lattice/app-instances/train", personToken(otto), "X-Break-Glass", "incident 7",
			"X-Correlation-ID", "incident-7")
	}
	require.Equal(t, http.StatusOK, get().StatusCode)
	require.Equal(t, http.StatusOK, get().StatusCode)
	require.NotEqual(t, w.audited[0].RecordID, w.audited[1].RecordID)
	w.unaudited = errors.New("no space left on device")
	res := get()
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	require.NotEmpty(t, res.Header.Get("Retry-After"))
	require.Equal(t, codeUnaudited, codeOf(t, res))
	require.Contains(t, w.log.String(), "no space left on device")
	res = w.get("/api/v1/admin/projects/biology.genomes/app-instances", personToken(anna), "X-Break-Glass", "curious")
	require.Equal(t, http.StatusNotFound, res.StatusCode, "what is denied shows nothing, recorded or not")
}

// Each id in an answer can be read as a path, for documents with a uid and
// without.
func TestIDsOfAnswersCanBeRead(t *testing.T) {
	files := campusFiles(t)
	for name, uid := range map[string]string{"tenants/physics/shared-runtimes/department/runtime.yaml": "sr-77",
		"platform/shared-runtimes/commons/runtime.yaml": "sr-78"} {
		require.Contains(t, files[name], "metadata:")
		files[name] = strings.Replace(files[name], "metadata:", "metadata:\n  uid: "+uid, 1)
	}
	for _, f := range []map[string]string{campusFiles(t), files} {
		w := newWorld(t, f, []string{petra, boris}, nil)
		for _, c := range []struct{ instance, org, who, owner string }{
			{"/api/v1/projects/physics.collider/app-instances/analysis", "physics", petra, "tenant"},
			{"/api/v1/projects/biology.proteins/app-instances/folding", "biology", boris, "platform"},
		} {
			var i, s struct {
				ID      string `json:"id"`
				Runtime string `json:"shared_runtime_id"`
				Owner   string
			}
			w.read(c.instance, c.who, &i)
			runtime := "/api/v1/orgs/" + c.org + "/shared-app-runtimes/" + i.Runtime
			w.read(runtime, c.who, &s)
			require.Equal(t, i.Runtime, s.ID)
			require.Equal(t, c.owner, s.Owner)
			var page struct {
				Items []struct {
					ID      string `json:"id"`
					Runtime string `json:"shared_runtime_id"`
				}
			}
			w.read(runtime+"/attachments", c.who, &page)
			require.NotEmpty(t, page.Items)
			for _, a := range page.Items {
				require.Equal(t, i.Runtime, a.Runtime)
				w.read(runtime+"/attachments/"+a.ID, c.who, &struct{}{})
			}
		}
	}
}

// A tenant reads its own attachments, and nothing of how the platform runs the
// runtime.
func TestPlatformRuntimeShowsTenantsTheirAttachments(t *testing.T) {
	const of = "/api/v1/orgs/%s/shared-app-runtimes"
	files := with(campusFiles(t), map[string]string{
		"tenants/physics/projects/lattice/entitlements/slurm.yaml": campusFiles(
			t,
		)["tenants/physics/projects/lattice/entitlements/slurm.yaml"],
		"platform/shared-runtimes/commons/attachments/lattice.yaml": strings.NewReplacer("biology.proteins", "physics.lattice",
			"name: proteins", "name: lattice").
			Replace(campusFiles(t)["platform/shared-runtimes/commons/attachments/proteins.yaml"]),
	})
	w := newWorld(t, files, []string{petra, boris, anna}, nil)
	for _, c := range []struct{ org, who, project, other string }{
		{"biology", boris, "biology.proteins", "lattice"}, {"physics", petra, "physics.lattice", "proteins"},
		{"physics", anna, "physics.lattice", "proteins"},
	} {
		base := fmt.Sprintf(of, c.org)
		var one map[string]any
		w.read(base+"/commons", c.who, &one)
		require.Equal(t, "platform", one["owner"])
		require.Empty(t, one["org_id"])
		require.Equal(t, []any{c.project}, one["attached_project_ids"])
		require.Empty(t, one["config"])
		require.NotContains(t, one, "placement_intent")
		var page struct{ Items []map[string]any }
		w.read(base+"/commons/attachments", c.who, &page)
		require.Len(t, page.Items, 1)
		require.Equal(t, c.project, page.Items[0]["project_id"])
		for _, worker := range w.ids(base+"/commons/workers", c.who) {
			require.Equal(t, "biology worker-1", c.org+" "+worker, "a tenant reads only the workers that its projects lend")
		}
		w.read(base+"/commons/worker-operations", c.who, &page)
		require.Empty(t, page.Items)
		require.Equal(t, http.StatusNotFound, w.get(base+"/commons/attachments/"+c.other, personToken(c.who)).StatusCode)
		w.read(base, c.who, &page)
		require.Contains(t, page.Items[len(page.Items)-1]["id"], "commons", "after the tenant's own")
	}
	require.Equal(t, http.StatusNotFound, campusWorld(t, nil).get(fmt.Sprintf(of, "physics")+"/commons", personToken(petra)).StatusCode,
		"nobody of it is attached")
}

func TestServiceAccountsAtAdminPathsAreAudited(t *testing.T) {
	for _, headers := range [][]string{nil, {"X-Break-Glass", "incident 7"}} {
		w := newWorld(t, accounts(t, map[string]crypto.Signer{"current": testKey()}, ""), nil, nil)
		res := w.get("/api/v1/admin"+strings.TrimPrefix(lattice, root)+"/app-instances", w.token("physics.lattice/ci"), headers...)
		require.Equal(t, http.StatusForbidden, res.StatusCode)
		require.Equal(t, codeEndpoint, codeOf(t, res))
		require.Len(t, w.audited, 1)
		r := w.audited[0]
		require.Equal(t, "physics.lattice/ci api.read denied endpoint.not_allowed apps.instance.read physics.lattice a service account "+
			"has no break-glass rights GET /api/v1/admin/projects/{project_id}/app-instances",
			fmt.Sprint(r.Actor, " ", r.Action, " ", r.Verdict, " ", r.Rule, " ", r.Permission, " ", r.ProjectID, " ", r.Reason, " ",
				r.File))
	}
}

// The first denial is recorded at once, those of the next minute as one record
// with their number. Each allowed use is recorded.
func TestDenialsAreRecordedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := campusWorld(t, func(o *Options) { o.PerAdmin, o.Now = Rate{}, time.Now })
		ask := func(who, path string) int {
			return w.get("/api/v1/admin/projects/"+path+"/app-instances", personToken(who), "X-Break-Glass", "curious").StatusCode
		}
		told := func() (out []audit.Record) {
			synctest.Wait()
			out, w.audited = w.audited, nil
			return out
		}
		for range 5 {
			require.Equal(t, 404, ask(anna, "biology.genomes"))
		}
		require.Equal(t, 429, ask(anna, "biology.genomes"))
		require.Equal(t, 404, ask(petra, "biology.genomes"), "another's are others")
		require.Equal(t, 200, w.get(lattice+"/app-instances", personToken(anna)).StatusCode, "nor does it cost the other paths")
		require.Len(t, told(), 2, "the first of each")

		for range 1000 { // a quarter of an hour and more, as often as it goes
			time.Sleep(time.Second)
			require.Equal(t, 404, ask(anna, "biology.genomes"))
		}
		time.Sleep(time.Minute)
		total, records := 0, told()
		require.InDelta(t, 1000/60, len(records), 2)
		for _, r := range records {
			var n int
			_, err := fmt.Sscanf(r.Reason, "%d requests denied within a minute; the last: curious", &n)
			require.NoError(t, err, r.Reason)
			require.Equal(t, anna+" denied biology", r.Actor+" "+string(r.Verdict)+" "+r.OrgID)
			require.Equal(t, r.ID(), r.RecordID)
			total += n
		}
		require.Equal(t, 4+1000, total, "none is left out")

		time.Sleep(2 * time.Minute)
		require.Empty(t, told())
		require.Empty(t, w.api.authoriser.denials.open, "a quiet caller is dropped")
		for range 3 {
			require.Equal(t, 200, ask(otto, "physics.lattice"))
		}
		require.Len(t, told(), 3)
	})
}

func TestNamesTakePrecedenceOverUIDs(t *testing.T) {
	const evil = "apiVersion: berth/v1\nkind: Instance\nmetadata: {name: other, uid: train}\nspec: {app: slurm, version: 22-05, " +
		"display_name: x, desired_state: stopped, roles: {worker: {count: 1}}}\n"
	w := newWorld(t, with(campusFiles(t), map[string]string{"tenants/physics/projects/lattice/instances/other.yaml": evil}), []string{anna},
		nil)
	for asked, want := range map[string]string{"train": "train", "0d9f2c6e-train": "train", "other": "other"} {
		var i instance
		require.NoError(t, json.Unmarshal(body(t, w.get(lattice+"/app-instances/"+asked, personToken(anna))), &i))
		require.Equal(t, want, i.Name, asked)
	}
}

// The pages of a list have each item once, in order, also if items are added and
// removed meanwhile.
func TestPagesAreComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,6}[a-z0-9])?`)
		names := rapid.SliceOfNDistinct(name, 0, 40, rapid.ID).Draw(t, "names")
		limit := rapid.IntRange(1, 12).Draw(t, "limit")
		stays := map[string]bool{}
		for _, n := range names {
			stays[n] = true
		}
		var seen []string
		query := map[string][]string{"limit": {fmt.Sprint(limit)}}
		for range 200 {
			l := listing{names: slices.Clone(names), at: func(n string) any { return n }}
			p, fail := l.cut("/list", query)
			if fail != nil {
				t.Fatal(fail)
			}
			if len(p.Items) > limit {
				t.Fatalf("%d items", len(p.Items))
			}
			for _, i := range p.Items {
				seen = append(seen, i.(string))
			}
			if p.NextCursor == "" {
				break
			}
			if _, fail := l.cut("/another", map[string][]string{"cursor": {p.NextCursor}}); fail == nil {
				t.Fatal("a cursor of another list was taken")
			}
			query["cursor"] = []string{p.NextCursor}
			if rapid.Bool().Draw(t, "changes") {
				gone := rapid.SampledFrom(names).Draw(t, "gone")
				delete(stays, gone)
				names = slices.DeleteFunc(names, func(n string) bool { return n == gone })
				if came := name.Draw(t, "came"); !slices.Contains(names, came) {
					names = append(names, came)
				}
			}
		}
		if !slices.IsSorted(seen) || len(slices.Compact(slices.Clone(seen))) != len(seen) {
			t.Fatalf("out of order or twice: %q", seen)
		}
		for n := range stays {
			if !slices.Contains(seen, n) {
				t.Fatalf("%s was there all the time and not seen in %q", n, seen)
			}
		}
	})
}

func FuzzCursor(f *testing.F) {
	f.Add("")
	f.Add("dHJhaW4")
	f.Add(cursor("/list", "train"))
	f.Fuzz(func(t *testing.T, s string) {
		if name, ok := readCursor("/list", s); ok && cursor("/list", name) != s {
			t.Fatalf("%q is taken for a cursor at %q", s, name)
		}
	})
}

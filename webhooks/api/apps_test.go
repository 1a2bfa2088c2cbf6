package api

import (
	"crypto"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"berth/schema/audit"
)

// requiring is the campus with an account ci that operates the instance train, and with
// the App of train that requires what the text says.
func requiring(t testing.TB, requires string) map[string]string {
	const app = "platform/catalog/slurm/app.yaml"
	files := accounts(t, map[string]crypto.Signer{"current": testKey()}, "")
	require.Contains(t, files["tenants/physics/projects/lattice/instances/train.yaml"], "operator_service_account: ci")
	files[ciFile] = strings.Replace(files[ciFile], "scopes: [apps.instance.read]",
		"scopes: [apps.instance.read, apps.instance.member.read]", 1)
	files[ciFile] = strings.Replace(files[ciFile], "app-instances\"]",
		"app-instances\", \"GET /api/v1/openapi.yaml\", \"GET /api/v1/apps/catalog\"]", 1)
	return with(files, map[string]string{app: files[app] + requires})
}

// Requirement B5: the App of the unit that an account operates bounds its permissions and
// its endpoints at the API. The answer names the App, and each refusal is audited.
func TestServiceAccountIsBoundByItsApp(t *testing.T) {
	const list = `"GET /api/v1/projects/{project_id}/app-instances"`
	for name, tc := range map[string]struct {
		requires string
		status   int
		code     code
		line     int // of the App, which the audit record names
		says     string
	}{
		"declares nothing": {"", 200, "", 0, ""},
		"requires it":      {"  requires: {permissions: [apps.instance.read], endpoints: [" + list + "]}\n", 200, "", 0, ""},
		"requires other actions": {"  requires: {permissions: [apps.instance.update]}\n", 403, codePermission, 13,
			"does not require apps.instance.read"},
		"requires no action":        {"  requires: {permissions: []}\n", 403, codePermission, 13, "does not require apps.instance.read"},
		"requires another endpoint": {"  requires: {endpoints: [GET /api/v1/apps/catalog]}\n", 403, codeEndpoint, 13, "app-instances"},
	} {
		w := newWorld(t, requiring(t, tc.requires), nil, nil)
		res := w.get(ciList, w.token("physics.lattice/ci"))
		require.Equal(t, tc.status, res.StatusCode, name)
		if tc.status == http.StatusOK {
			require.Empty(t, w.audited, name)
			continue
		}
		var e envelope
		require.NoError(t, json.Unmarshal(body(t, res), &e))
		require.Equal(t, tc.code, e.Error.Code, name)
		require.Contains(t, e.Error.Message, "operates units of the app slurm, which does not require ", name)
		require.Contains(t, e.Error.Message, "in platform/catalog/slurm/app.yaml", name)
		require.Len(t, w.audited, 1, name)
		r := w.audited[0]
		require.Equal(t, fmt.Sprintf("physics.lattice/ci api.read denied app_requires apps.instance.read physics.lattice "+
			"platform/catalog/slurm/app.yaml:%d GET /api/v1/projects/{project_id}/app-instances", tc.line),
			fmt.Sprint(r.Actor, " ", r.Action, " ", r.Verdict, " ", r.Rule, " ", r.Permission, " ", r.ProjectID, " ", r.Source, " ",
				r.File), name)
		require.Contains(t, r.Reason, tc.says, name)
	}
}

// Every refusal of a service account is audited, also outside admin paths. Those of one
// minute become one record, and a permitted call none.
func TestRefusedServiceAccountsAreAudited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := requiring(t, "")
		files[ciFile] = strings.Replace(files[ciFile], `"GET /api/v1/openapi.yaml"`, `"GET /api/v1/projects/{project_id}/app-artifacts"`, 1)
		w := newWorld(t, files, []string{anna}, func(o *Options) {
			keep := o.Audit
			o.Now, o.Refused = time.Now, func(r audit.Record) { _ = keep(r) }
			o.Audit = func(audit.Record) error { t.Error("no admin path was used"); return nil }
		})
		w.now = time.Now()
		for _, c := range []struct {
			target string
			status int
			says   string
		}{
			{ciList, 200, ""},
			{lattice + "/app-artifacts", 404,
				" physics.lattice ServiceAccount physics.lattice/ci does not have apps.artifact.read in its scopes"},
			{"/api/v1/projects/physics.collider/app-instances", 404,
				" physics.collider ServiceAccount physics.lattice/ci acts in physics.lattice only, not in physics.collider"},
			{"/api/v1/apps/catalog", 403, " physics.lattice ServiceAccount physics.lattice/ci lacks apps.catalog.read, which no service " +
				"account can have"},
			{"/api/v1/openapi.yaml", 403, "endpoint.not_allowed physics.lattice GET /api/v1/openapi.yaml is not in allowed_endpoints"},
			{lattice + "/app-instances/train", 403,
				"endpoint.not_allowed physics.lattice GET /api/v1/projects/{project_id}/app-instances/{app_instance_id} is not in " +
					"allowed_endpoints"},
		} {
			w.audited = nil
			for range 2 {
				require.Equal(t, c.status, w.get(c.target, w.token("physics.lattice/ci")).StatusCode, c.target)
			}
			synctest.Wait()
			if c.says == "" {
				require.Empty(t, w.audited, c.target)
				continue
			}
			require.Len(t, w.audited, 1, "%s: the first at once", c.target)
			r := w.audited[0]
			require.Equal(t, c.says, fmt.Sprint(r.Rule, " ", r.ProjectID, " ", r.Reason), c.target)
			time.Sleep(2*time.Minute + time.Second)
			synctest.Wait()
			require.Len(t, w.audited, 2, "%s: the second a minute later", c.target)
			w.now = time.Now()
		}
		w.audited = nil
		require.Equal(t, http.StatusNotFound, w.get("/api/v1/projects/biology.genomes/app-instances", personToken(anna)).StatusCode)
		require.Empty(t, w.audited, "a person's needs no record")
	})
}

// A tenant's own apps are shown to callers of that tenant and to users of the platform who admit them,
// with their owner and whether they are admitted (F9).
func TestCatalogShowsOwnAppsToTheirTenant(t *testing.T) {
	files := campusFiles(t)
	const own, boris = "tenants/physics/catalog/beamline/", "boris-bio"
	theirs := with(files, map[string]string{
		"tenants/biology/catalog/beamline/app.yaml": strings.Replace(files[own+"app.yaml"], "Department of Physics", "Biology", 1),
		"tenants/biology/catalog/beamline/v9.yaml": strings.Split(strings.Replace(files[own+"2026-1.yaml"], "name: 2026-1", "name: v9", 1),
			"    artifacts:")[0],
	})
	w := newWorld(t, theirs, []string{petra, boris, otto}, nil)
	for _, c := range []struct {
		who, path, want string
	}{
		{petra, "", "/notebook /slurm physics/beamline=true"},
		{boris, "", "/notebook /slurm biology/beamline=false"},
		{otto, "", "/notebook /slurm biology/beamline=false physics/beamline=true"},
		{petra, "/beamline/versions", "physics/2026-1=true"},
		{boris, "/beamline/versions", "biology/v9=false"},
		{otto, "/beamline/versions", "biology/v9=false physics/2026-1=true"},
		{petra, "/slurm/versions", "/22-05"},
	} {
		var list struct {
			Items []struct {
				ID string `json:"id"`
				owned
			}
		}
		w.read(root+"/apps/catalog"+c.path, c.who, &list)
		var got []string
		for _, i := range list.Items {
			name := i.OrgID + "/" + i.ID
			if i.Admitted != nil {
				name += fmt.Sprintf("=%t", *i.Admitted)
			}
			require.Equal(t, i.OrgID == "", i.Tier == "platform", name)
			got = append(got, name)
		}
		require.Equal(t, c.want, strings.Join(got, " "), "%s %s", c.who, c.path)
	}
	require.Equal(t, http.StatusNotFound,
		newWorld(t, files, []string{boris}, nil).get(root+"/apps/catalog/beamline/versions", personToken(boris)).StatusCode)

	// An instance names the app of its tenant.
	withUID := with(theirs, map[string]string{own +
		"app.yaml": strings.Replace(files[own+"app.yaml"], "name: beamline", "name: beamline\n  uid: beam-of-physics", 1)})
	w = newWorld(t, withUID, []string{petra}, nil)
	var one entitlement
	w.read(root+"/projects/physics.collider/apps/entitlements/beamline", petra, &one)
	require.Equal(t, "beam-of-physics", one.AppID)
}

package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
)

// queryWorld has twelve instances r00 to r11 beside train and sweep in physics.lattice:
// every third is stopped, each was created a day after the one before.
func queryWorld(t testing.TB) *world {
	files := campusFiles(t)
	text := files["tenants/physics/projects/lattice/instances/sweep.yaml"]
	for i := range 12 {
		name := fmt.Sprintf("r%02d", i)
		files["tenants/physics/projects/lattice/instances/"+name+".yaml"] = strings.NewReplacer("name: sweep", "name: "+name).Replace(text)
	}
	files["platform/catalog/slurm/old.yaml"] = strings.NewReplacer("name: 22-05", "name: old", "22.05.8", "21.08.1", "status: active",
		"status: deprecated").Replace(files["platform/catalog/slurm/22-05.yaml"])
	v := viewOf(t, files)
	for i := range 12 {
		s := plan.Status{Key: schema.InstanceKey("physics", "lattice", fmt.Sprintf("r%02d", i)), Phase: plan.PhaseRunning,
			EffectiveValues: plan.EffectiveValues{App: "slurm"}}
		if i%3 == 0 {
			s.Phase = plan.PhaseStopped
		}
		v.Units = v.Units.With(&s)
	}
	v.Dates = func(path, _ string) (created, updated time.Time) {
		var i int
		if _, err := fmt.Sscanf(path[strings.LastIndexByte(path, '/')+1:], "r%02d.yaml", &i); err != nil {
			return created, updated
		}
		created = now.AddDate(0, 0, i-20)
		return created, created
	}
	return worldOf(t, v, []string{anna, petra, otto, "carl-collider", "bella-bio", "boris-bio"}, nil)
}

// names reads all pages of a list.
func (w *world) names(target, login string, limit int) (out []string) {
	w.t.Helper()
	for next := ""; ; {
		var p struct {
			Items []struct {
				Name string `json:"name"`
				ID   string `json:"id"`
			} `json:"items"`
			Next string `json:"next_cursor"`
		}
		url := fmt.Sprintf("%s&limit=%d", target, limit)
		if next != "" {
			url += "&cursor=" + next
		}
		w.read(url, login, &p)
		require.LessOrEqual(w.t, len(p.Items), limit)
		for _, i := range p.Items {
			if i.Name == "" {
				i.Name = i.ID
			}
			out = append(out, i.Name)
		}
		if next = p.Next; next == "" {
			return out
		}
	}
}

// An existing instance takes precedence.
func TestDeletedInstanceIsReadByItsID(t *testing.T) {
	v := campusView(t)
	v.Deleted = func(tenant, project, id string) (plan.DeletedInstance, bool) {
		d := plan.DeletedInstance{
			Key: schema.InstanceKey(tenant, project, "past"), ID: "uid-7", App: "slurm", RuntimeBackend: "slurm",
			OperatingMode:     "tenant_dedicated",
			ControlPlaneScope: "project", RequestedBy: "ben-lattice", Revision: "aaaa", CorrelationID: "c0123456789", DeletedAt: now,
		}
		return d, tenant == "physics" && project == "lattice" && (id == "past" || id == "uid-7" || id == "train")
	}
	w := worldOf(t, v, []string{anna, "bella-bio"}, nil)
	for _, id := range []string{"past", "uid-7"} {
		var i instance
		w.read(lattice+"/app-instances/"+id, anna, &i)
		require.Equal(t, plan.PhaseDeleted, i.Status)
		require.Equal(t, now, i.DeletedAt)
		require.Equal(t, "uid-7", i.ID)
		require.Equal(t, "physics.lattice/past", i.ResourceName)
		require.Equal(t, "ben-lattice", i.RequestedBy)
		require.Equal(t, "deleted", i.DesiredState)
	}
	var train instance
	w.read(lattice+"/app-instances/train", anna, &train)
	require.Equal(t, plan.PhaseRunning, train.Status)
	require.NotContains(t, string(body(t, w.get(lattice+"/app-instances", personToken(anna)))), "past")
	for target, login := range map[string]string{lattice + "/app-instances/never": anna, lattice + "/app-instances/uid-7": "bella-bio",
		lattice + "/app-instances/uid-7/members": anna} {
		require.Equal(t, http.StatusNotFound, w.get(target, personToken(login)).StatusCode, target)
	}
}

// By project and status, newest first; by tenant and status; by app and status; in
// pages of any size (ACP's indexes).
func TestListsFilterAndOrder(t *testing.T) {
	w := queryWorld(t)
	for _, limit := range []int{1, 3, 500} {
		require.Equal(t, strings.Fields("r09 r06 r03 r00"), w.names(lattice+"/app-instances?status=stopped&order=newest", anna, limit))
		require.Equal(t, strings.Fields("r00 r03 r06 r09"), w.names(lattice+"/app-instances?status=stopped", anna, limit))
		require.Equal(t, strings.Fields("r11 r10 r08 r07 r05 r04 r02 r01 train"),
			w.names(lattice+"/app-instances?app=slurm&order=newest&status=running", anna, limit))
		require.Equal(t, strings.Fields("gone"), w.names(lattice+"/app-instances?status=deleting", anna, limit))
		require.Empty(t, w.names(lattice+"/app-instances?app=ray", anna, limit))
		require.Equal(t, strings.Fields("r00 r03 r06 r09"), w.names("/api/v1/orgs/physics/app-instances?status=stopped", petra, limit))
		require.Equal(t, strings.Fields("analysis sweep"), w.names("/api/v1/orgs/physics/app-instances?status=requested", petra, limit))
		require.Equal(t, strings.Fields("old"), w.names("/api/v1/apps/catalog/slurm/versions?status=deprecated", anna, limit))
		require.Equal(t, strings.Fields("22-05"), w.names("/api/v1/apps/catalog/slurm/versions?order=newest&status=active", anna, limit))
	}

	// A user with a role in one project only sees that project. A user without a role in the
	// tenant gets the answer for a missing tenant.
	require.Equal(t, strings.Fields("analysis"), w.names("/api/v1/orgs/physics/app-instances?status=requested", "carl-collider", 10))
	nobody := w.get("/api/v1/orgs/physics/app-instances?status=stopped", personToken("bella-bio"))
	nowhere := w.get("/api/v1/orgs/nowhere/app-instances?status=stopped", personToken("bella-bio"))
	require.Equal(t, http.StatusNotFound, nobody.StatusCode)
	require.Equal(t, http.StatusNotFound, nowhere.StatusCode)
	scrub := func(res *http.Response, org string) string {
		return strings.ReplaceAll(strings.ReplaceAll(string(body(t, res)), res.Header.Get("X-Correlation-ID"), "ID"), org, "ORG")
	}
	require.Equal(t, scrub(nobody, "physics"), scrub(nowhere, "nowhere"))

	var p struct {
		Next string `json:"next_cursor"`
	}
	w.read(lattice+"/app-instances?status=stopped&limit=1", anna, &p)
	for query, code := range map[string]code{
		"status=stuck":                    codeQuery,
		"status=stopped&status=running":   codeQuery,
		"order=oldest":                    codeQuery,
		"app=/":                           codeQuery,
		"region=lab":                      codeQuery,
		"status=running&cursor=" + p.Next: codeCursor,
		"status=stopped&order=newest&cursor=" + p.Next: codeCursor,
	} {
		res := w.get(lattice+"/app-instances?"+query, personToken(anna))
		require.Equal(t, http.StatusBadRequest, res.StatusCode, query)
		require.Contains(t, string(body(t, res)), code, query)
	}
}

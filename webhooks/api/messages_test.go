package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/estate"
)

// sayingWorld is the campus, with a project of physics attached to the platform's
// runtime; every message in it is what.
func sayingWorld(t *testing.T, what string) *world {
	campus := campusFiles(t)
	files := with(campus, map[string]string{
		"platform/shared-runtimes/commons/attachments/lattice.yaml": strings.NewReplacer("biology.proteins", "physics.lattice",
			"name: proteins", "name: lattice").
			Replace(campus["platform/shared-runtimes/commons/attachments/proteins.yaml"]),
		"tenants/physics/shared-runtimes/department/operations/rest.yaml": operationFile,
	})
	v := viewOf(t, files)
	loader, err := newLoader()
	require.NoError(t, err)
	res, err := loader.Load(context.Background(), estate.Files(files))
	require.NoError(t, err)
	says := []plan.Condition{{Type: "Ready", Status: "False", Reason: "Blocked", Message: what}}
	v.Held, v.Things = nil, map[schema.Key]*plan.ThingStatus{}
	var units []*plan.Status
	for path := range files {
		key := res.Key(path)
		if key.IsZero() {
			continue
		}
		v.Held = append(v.Held, schema.Held{Key: key, File: path, Reason: "needs", Message: what})
		switch key.Kind {
		case schema.KindInstance, schema.KindSharedRuntime:
			units = append(units, &plan.Status{
				Key: key, Phase: plan.PhaseFailed, EffectiveValues: plan.EffectiveValues{App: "slurm"},
				LastApplied: plan.LastApplied{FailureReason: what}, Conditions: says,
				Members: []plan.MemberStatus{{Member: plan.Member{Name: "worker-0", Role: "worker", Node: "gpu-1"}, Placed: what}},
			})
		default:
			v.Things[key] = &plan.ThingStatus{Key: key, Phase: "failed", Conditions: says}
		}
	}
	v.Units = plan.Remember(units...)
	return worldOf(t, v, []string{petra, anna, otto}, nil)
}

// Tenants read the reason, but no message and no SKU of the members.
func TestPlatformMessagesAreForPlatformUsers(t *testing.T) {
	const what = "the canary is in force and needs it unchanged"
	w := sayingWorld(t, what)
	const commons = "/orgs/physics/shared-app-runtimes/commons"
	for _, path := range []string{"/apps/catalog/slurm/versions", commons, commons + "/attachments", commons + "/attachments/lattice",
		commons + "/workers"} {
		said := string(body(t, w.get(root+path, personToken(petra))))
		require.NotContains(t, said, "canary", path)
		require.NotContains(t, said, "gpu-a100-2", path)
	}
	var apps struct{ Items []app }
	w.read(root+"/apps/catalog", petra, &apps)
	require.Len(t, apps.Items, 3)
	for _, a := range apps.Items {
		want := held{Reason: "needs"}
		if a.Tier == "tenant" { // her own
			want.Message = what
		}
		require.Equal(t, &want, a.Held, a.Slug)
	}
	require.Contains(t, string(body(t, w.get(root+"/apps/catalog", personToken(otto)))), what)
	glass := []string{"X-Break-Glass", "incident 7"}
	for _, path := range []string{commons, commons + "/attachments"} {
		require.Contains(t, string(body(t, w.get(admin+path, personToken(otto), glass...))), what, path)
		require.NotContains(t, string(body(t, w.get(admin+path, personToken(petra), glass...))), what,
			"the glass of a tenant shows the tenant's")
	}

	// The registry has sources of both.
	var page struct{ Items []source }
	w.read(root+"/apps/registry", petra, &page)
	for _, s := range page.Items {
		require.Equal(t, s.Tier == "tenant", s.Held.Message == what, s.ID)
	}
	// The tenant's own messages are shown.
	for _, path := range []string{lattice + "/app-instances/train", lattice + "/app-artifacts/solver", department} {
		var one struct {
			Held       held             `json:"held"`
			Conditions []plan.Condition `json:"conditions"`
		}
		res := w.get(path, personToken(petra))
		require.Equal(t, http.StatusOK, res.StatusCode)
		require.NoError(t, json.Unmarshal(body(t, res), &one))
		require.Equal(t, what, one.Held.Message, path)
		require.Equal(t, what, one.Conditions[0].Message, path)
	}
	for _, own := range []string{
		"tenants/physics/projects/collider/project.yaml is in force and needs it unchanged", "needs Instance physics.lattice/train",
		"no AppVersion slurm/22-05: it is not found",
		"https://registry.physics.example/solver: 404", "registry.physics.example/solver: 404",
		"worker-0 on gpu-1: a node in region lab is not allowed",
	} {
		w := sayingWorld(t, own)
		require.Contains(t, string(body(t, w.get(lattice+"/app-instances/train", personToken(petra)))),
			fmt.Sprintf(`"failure_reason":%q`, own))
	}
}

package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An instance of a scheduler, its members and operations are there for a service account with
// scheduler.instance.read beside apps.instance.read (document SPA).
func TestSchedulersNeedTheirPermissionToBeRead(t *testing.T) {
	var endpoints []string
	for _, r := range routes() {
		if r.reads() && !r.admin {
			endpoints = append(endpoints, r.endpoint())
		}
	}
	world := func(scopes string) *world {
		return newWorld(t, with(campusFiles(t), map[string]string{
			"tenants/physics/projects/lattice/roles.yaml": "apiVersion: berth/v1\nkind: RoleBinding\nmetadata: {name: roles}\nspec:\n  " +
				"members:\n    - {login: anna-lattice, role: project_viewer}\n    - {service_account: ci, role: service_account}\n",
			"tenants/physics/projects/lattice/service-accounts/ci.yaml": fmt.Sprintf(
				"apiVersion: berth/v1\nkind: ServiceAccount\nmetadata: {name: ci}\nspec:\n  display_name: x\n  public_keys: [{id: "+
					"current, key: %q}]\n  scopes: [%s]\n  allowed_endpoints: [%s]\n", authorised(t, testKey().Public()), scopes,
				quoted(endpoints)),
		}), []string{anna}, nil)
	}
	const all = "apps.instance.read, apps.instance.member.read"
	for scopes, sees := range map[string]bool{all: false, all + ", scheduler.instance.read": true} {
		w := world(scopes)
		token := w.token("physics.lattice/ci")
		list := body(t, w.get(lattice+"/app-instances", token))
		require.Equal(t, sees, strings.Contains(string(list), `"name":"train"`), scopes)
		for _, path := range []string{"", "/members", "/member-operations"} {
			res := w.get(lattice+"/app-instances/train"+path, token)
			require.Equal(t, map[bool]int{true: http.StatusOK, false: http.StatusNotFound}[sees], res.StatusCode, "%s %s", scopes, path)
		}
		require.Equal(t, http.StatusOK, w.get(lattice+"/app-instances/train", personToken(anna)).StatusCode, "each role of people has both")
	}
}

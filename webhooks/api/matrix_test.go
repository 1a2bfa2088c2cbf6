package api

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema/authority"
)

// Each of the nine roles at the campus's project physics.lattice or above it, on
// each path, in each place. The expected status comes from the table of
// permissions and the reach of a role's family, stated a second time here
// (requirements A9, A18, B2).
func TestMatrix(t *testing.T) {
	files := campusFiles(t)
	member := map[string]string{"platform": "", "tenant": "", "project": ""}
	var logins []string
	for _, role := range authority.Roles() {
		if role == "service_account" {
			continue
		}
		login := "r-" + strings.ReplaceAll(role, "_", "-")
		logins = append(logins, login)
		family, _, _ := strings.Cut(role, "_")
		member[family] += fmt.Sprintf("    - {login: %s, role: %s}\n", login, role)
	}
	const binding = "apiVersion: berth/v1\nkind: RoleBinding\nmetadata: {name: %s}\nspec:\n  members:\n"
	var scopes, endpoints []string
	for _, row := range authority.Table() {
		scopes = append(scopes, string(row.Permission))
	}
	for _, r := range routes() {
		if r.reads() && !r.admin {
			endpoints = append(endpoints, "GET "+r.template)
		}
	}
	operator := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, ed25519.SeedSize))
	account := func(name string, key ed25519.PrivateKey) string {
		return fmt.Sprintf("apiVersion: berth/v1\nkind: ServiceAccount\nmetadata: {name: %s}\nspec:\n  display_name: x\n  public_keys: "+
			"[{id: current, key: %q}]\n  scopes: [%s]\n  allowed_endpoints: [%s]\n",
			name, authorised(t, key.Public()), strings.Join(scopes, ", "), quoted(endpoints))
	}
	const bound = "    - {service_account: %s, role: service_account}\n"
	const rest = "tenants/physics/shared-runtimes/department/operations/rest.yaml"
	w := newWorld(t, with(files, map[string]string{
		"platform/roles/operators.yaml": fmt.Sprintf(binding, "operators") + member["platform"],
		"tenants/physics/roles.yaml": fmt.Sprintf(binding, "roles") + member["tenant"] + fmt.Sprintf(bound,
			"department"),
		"tenants/physics/projects/lattice/roles.yaml": fmt.Sprintf(binding, "roles") + member["project"] + fmt.Sprintf(bound,
			"ci"),
		"tenants/physics/projects/lattice/service-accounts/ci.yaml": account("ci", testKey()),
		"tenants/physics/service-accounts/department.yaml":          account("department", operator),
		rest: operationFile,
	}), append(logins, "r-stranger"), nil)

	type caller struct{ role, family, token string }
	callers := []caller{{"", "none", ""}, {"", "stranger", personToken("r-stranger")}}
	for _, l := range logins {
		role := strings.ReplaceAll(strings.TrimPrefix(l, "r-"), "-", "_")
		family, _, _ := strings.Cut(role, "_")
		callers = append(callers, caller{role, family, personToken(l)})
	}
	callers = append(callers, caller{"service_account", "account of the project", w.token("physics.lattice/ci")})
	w.key = operator
	callers = append(callers, caller{"service_account", "account of the tenant", w.token("physics/department")})

	places := []struct{ name, project, org string }{
		{"own", "physics.lattice", "physics"}, {"sibling", "physics.collider", "physics"},
		{"other tenant", "biology.genomes", "biology"}, {"nowhere", "physics.nothing", "nothing"},
	}
	asked, denied := 0, map[string]int{} // and recorded at once
	for _, r := range w.api.routes {
		if !r.reads() {
			continue
		}
		inProject, inOrg := strings.Contains(r.template, "{project_id}"), strings.Contains(r.template, "{org_id}")
		for _, place := range places {
			if !inProject && !inOrg && place.name != "own" || inOrg && place.name == "sibling" {
				continue
			}
			target := fill(strings.NewReplacer("{project_id}", place.project, "{org_id}", place.org).Replace(r.template))
			for _, c := range callers {
				headers := []string{"X-Correlation-ID", "the-matrix"}
				if r.admin {
					headers = append(headers, "X-Break-Glass", "the matrix")
				}
				want := expected(r, place.name, c.role, c.family, inProject, inOrg)
				if c.family == "account of the tenant" && strings.Contains(r.template, "{node_id}") && want == http.StatusOK {
					want = http.StatusNotFound // gpu-1 has a member of a project's instance
				}
				w.audited = nil
				res := w.get(target, c.token, headers...)
				if want == http.StatusOK && place.name != "own" && strings.Count(r.template, "{") > 1 {
					// Allowed, and nothing of that name there.
					require.Contains(t, []int{200, 404}, res.StatusCode)
				} else {
					require.Equal(t, want, res.StatusCode, "%s as %s (%s): %s", target, c.role, c.family, body(t, res))
				}
				switch {
				case r.admin && c.family != "none" && want == http.StatusOK:
					require.Len(t, w.audited, 1, "%s as %s", target, c.role)
				case r.admin && c.family != "none": // one of those that are recorded together
					require.LessOrEqual(t, len(w.audited), 1, "%s as %s", target, c.role)
					denied[c.role+c.family] += len(w.audited)
				case strings.HasPrefix(c.family, "account") && want != http.StatusOK: // as above
					require.LessOrEqual(t, len(w.audited), 1, "%s as %s", target, c.role)
				default:
					require.Empty(t, w.audited)
				}
				asked++
			}
		}
	}
	require.Greater(t, asked, 1000)
	require.Len(t, denied, len(callers)-1, "every caller with a token is denied something")
}

// expected is the status that a caller must get, stated independently of the code.
func expected(r *route, place, role, family string, inProject, inOrg bool) int {
	var cell authority.Cell = authority.Deny
	for _, row := range authority.Table() {
		if row.Permission == r.permission && role != "" {
			cell = row.Roles[role]
		}
	}
	has := cell != authority.Deny
	is := func(ok bool, otherwise int) int {
		if ok {
			return http.StatusOK
		}
		return otherwise
	}
	shared := strings.HasPrefix(string(r.permission), "shared_runtimes.")
	switch {
	case family == "none":
		return http.StatusUnauthorized
	case r.admin && strings.HasPrefix(family, "account"):
		return http.StatusForbidden
	case !inProject && !inOrg: // the catalog is for whoever has a role anywhere
		// A tenant's account reads the nodes of its shared runtimes.
		return is(has && (family != "account of the tenant" || shared || r.permission == authority.NodeRead), http.StatusForbidden)
	case place == "nowhere":
		return http.StatusNotFound
	}
	switch family {
	case "platform":
		return is(has && r.admin, http.StatusNotFound)
	case "tenant":
		return is(has && place != "other tenant", http.StatusNotFound)
	case "project":
		// Not what is the tenant's whole, and of its shared runtimes neither the terms nor the
		// workers of others; the admin paths show no part of anything.
		ofOthers := strings.Contains(r.template, "{attachment_id}") || strings.Contains(r.template, "{worker_id}") ||
			strings.Contains(r.template, "/worker-operations/")
		if inOrg && (r.admin || ofOthers) {
			return http.StatusNotFound
		}
		return is(has && place == "own", http.StatusNotFound)
	case "account of the project":
		return is(has && place == "own" && inProject, http.StatusNotFound)
	case "account of the tenant":
		return is(has && shared && place == "own" && inOrg, http.StatusNotFound)
	}
	return http.StatusNotFound
}

func quoted(ss []string) string {
	var out []string
	for _, s := range ss {
		out = append(out, fmt.Sprintf("%q", s))
	}
	return strings.Join(out, ", ")
}

func TestConsumersReadTheirOwnAttachment(t *testing.T) {
	w := campusWorld(t, nil)
	text := func(target, who string) string { return string(body(t, w.get(target, personToken(who)))) }
	require.Contains(t, text(department, petra), `"attached_project_ids":["physics.collider","physics.lattice"]`)
	require.Contains(t, text(department, anna), `"attached_project_ids":["physics.lattice"]`)
	require.Contains(t, text(department+"/attachments", petra), "physics.collider")
	require.NotContains(t, text(department+"/attachments", anna), "physics.collider")
	require.Contains(t, text("/api/v1/apps/registry", anna), "registry.physics.example")
	require.NotContains(t, text("/api/v1/apps/registry", otto), "registry.physics.example",
		"another's tenant is not theirs without breaking the glass")
}

// Where the path names no project (A18).
func TestProjectHeaderIsTheContext(t *testing.T) {
	w := campusWorld(t, nil)
	for _, c := range []struct {
		target, header string
		status         int
	}{
		{lattice + "/app-instances", "physics.lattice", 200},
		{"/api/v1/apps/catalog", "physics.lattice", 200},
		{"/api/v1/apps/catalog", "physics.collider", 403},
		{department, "physics.lattice", 200},
		{department, "physics.collider", 404},
		{lattice + "/app-instances", "physics.collider", 400},
	} {
		require.Equal(t, c.status, w.get(c.target, personToken(anna), "X-Project-ID", c.header).StatusCode, "%s in %s", c.target, c.header)
	}
}

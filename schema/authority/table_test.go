package authority_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
	"berth/schema/authority"
)

// acp is the action matrix as ACP prints it.
const acp = `
| Action | platform_superadmin | platform_ops | tenant_owner | tenant_admin | project_owner | project_admin | project_member | project_viewer | service_account |
| apps.catalog.read | allow | allow | allow | allow | allow | allow | allow | allow | deny |
| apps.versions.read | allow | allow | allow | allow | allow | allow | allow | allow | deny |
| apps.entitlement.read | allow | allow | allow | allow | allow | allow | deny | deny | deny |
| apps.entitlement.write | allow | allow | allow | allow | allow | allow | deny | deny | deny |
| apps.instance.read | allow | allow | allow | allow | allow | allow | allow | allow | allow (same project only) |
| apps.instance.create | allow | allow | allow | allow | allow | allow | allow | deny | allow (same project only) |
| apps.instance.delete | allow | allow | allow | allow | allow | allow | deny | deny | deny |
| apps.instance.member.read | allow | allow | allow | allow | allow | allow | allow | allow | allow (same project only) |
| apps.instance.member.operate | allow | allow | allow | allow | allow | allow | deny | deny | allow (same project only, explicit allowlist only) |
`

// lowest has, for each permission, the lowest role of each family with it (- none), and
// the cell of a service account. It is written from the text of the documents,
// independently of the table.
const lowest = `
apps.catalog.read              platform_ops        tenant_admin project_viewer deny
apps.versions.read             platform_ops        tenant_admin project_viewer deny
apps.entitlement.read          platform_ops        tenant_admin project_admin  deny
apps.entitlement.write         platform_ops        tenant_admin project_admin  deny
apps.instance.read             platform_ops        tenant_admin project_viewer own
apps.instance.create           platform_ops        tenant_admin project_member own
apps.instance.update           platform_ops        tenant_admin project_admin  listed
apps.instance.delete           platform_ops        tenant_admin project_admin  deny
apps.instance.member.read      platform_ops        tenant_admin project_viewer own
apps.instance.member.operate   platform_ops        tenant_admin project_admin  listed
scheduler.catalog.read         platform_ops        tenant_admin project_viewer deny
scheduler.instance.read        platform_ops        tenant_admin project_viewer own
scheduler.instance.create      platform_ops        tenant_admin project_member own
scheduler.instance.update      platform_ops        tenant_admin project_admin  listed
scheduler.instance.delete      platform_ops        tenant_admin project_admin  deny
scheduler.queue.submit         -                   tenant_admin project_member listed
scheduler.queue.read           platform_ops        tenant_admin project_viewer own
scheduler.queue.cancel         platform_ops        tenant_admin project_member listed
scheduler.node.read            platform_ops        tenant_admin project_viewer own
scheduler.node.operate         platform_ops        tenant_admin project_admin  listed
apps.artifact.read             platform_ops        tenant_admin project_viewer own
apps.artifact.publish          platform_ops        tenant_admin project_member listed
apps.artifact.promote          platform_ops        tenant_admin project_admin  deny
apps.artifact.deprecate        platform_ops        tenant_admin project_admin  deny
apps.artifact.retire           platform_ops        tenant_admin project_admin  deny
shared_runtimes.read           platform_ops        tenant_admin project_viewer own
shared_runtimes.create         platform_ops        tenant_admin -              deny
shared_runtimes.update         platform_ops        tenant_admin -              deny
shared_runtimes.delete         platform_ops        tenant_admin -              deny
shared_runtimes.attach         platform_ops        tenant_admin -              deny
shared_runtimes.detach         platform_ops        tenant_admin -              deny
shared_runtimes.member.operate platform_ops        tenant_admin -              listed
shared_runtimes.loss.accept    platform_ops        tenant_admin -              listed
apps.instance.loss.accept      platform_ops        tenant_admin project_admin  listed
contributions.write            platform_ops        tenant_admin project_admin  deny
apps.catalog.write             platform_ops        -            -              deny
apps.catalog.publish           platform_ops        -            -              deny
apps.catalog.deprecate         platform_ops        -            -              deny
apps.catalog.disable           platform_ops        -            -              deny
apps.catalog.admit             platform_ops        -            -              deny
nodes.write                    platform_ops        -            -              deny
sites.write                    platform_ops        -            -              deny
rates.write                    platform_ops        -            -              deny
queues.write                   platform_ops        -            -              deny
hooks.write                    platform_ops        -            -              deny
platform.pause                 platform_ops        -            -              deny
tenants.write                  platform_superadmin -            -              deny
projects.write                 platform_superadmin tenant_admin project_owner  deny
policy.write                   platform_superadmin tenant_admin -              deny
roles.write                    platform_superadmin tenant_admin project_owner  deny
service_accounts.write         platform_superadmin tenant_admin project_admin  deny
artifact_sources.write         platform_ops        tenant_admin -              deny
apps.catalog.propose           platform_ops        tenant_admin -              deny
deletions.acknowledge          platform_ops        tenant_admin -              deny
audit.read                     platform_ops        tenant_admin project_admin  deny
events.read                    platform_ops        tenant_admin project_viewer own
notes.write                    platform_ops        tenant_admin project_member deny
`

// oracle is lowest, parsed: roles with each permission (without the service account),
// and the account's cell.
type oracle struct {
	roles   []string
	account string
}

func oracles(t testing.TB) map[authority.Permission]oracle {
	families := [][]string{
		{"platform_superadmin", "platform_ops"},
		{"tenant_owner", "tenant_admin"},
		{"project_owner", "project_admin", "project_member", "project_viewer"},
	}
	all := map[authority.Permission]oracle{}
	for line := range strings.Lines(strings.TrimSpace(lowest)) {
		f := strings.Fields(line)
		require.Len(t, f, 5, line)
		o := oracle{account: f[4]}
		for i, family := range families {
			if at := slices.Index(family, f[i+1]); at >= 0 {
				o.roles = append(o.roles, family[:at+1]...)
			} else {
				require.Equal(t, "-", f[i+1], line)
			}
		}
		all[authority.Permission(f[0])] = o
	}
	return all
}

// The nine rows of ACP are in the table cell for cell.
func TestTableMatchesACPMatrix(t *testing.T) {
	table := map[authority.Permission]authority.Row{}
	for _, row := range authority.Table() {
		require.NotContains(t, table, row.Permission, "each permission stands once")
		table[row.Permission] = row
	}
	lines := strings.Split(strings.TrimSpace(acp), "\n")
	cells := func(line string) (cs []string) {
		for _, c := range strings.Split(strings.Trim(line, "|"), "|") {
			cs = append(cs, strings.TrimSpace(c))
		}
		return cs
	}
	roles := cells(lines[0])[1:]
	require.Equal(t, roles, authority.Roles())
	require.Len(t, lines, 10)
	for _, line := range lines[1:] {
		cs := cells(line)
		for i, role := range roles {
			require.EqualValues(t, cs[i+1], table[authority.Permission(cs[0])].Roles[role], "%s for %s", cs[0], role)
		}
	}
}

// Every row of the table matches the text of the documents and has a description.
// Within a family, each role has all permissions of the lower ones.
func TestTableMatchesDocuments(t *testing.T) {
	want := oracles(t)
	words := map[authority.Cell]string{authority.Deny: "deny", authority.SameProject: "own", authority.Listed: "listed"}
	require.Len(t, authority.Table(), len(want))
	for _, row := range authority.Table() {
		o, ok := want[row.Permission]
		require.True(t, ok, "%s is in no document", row.Permission)
		require.NotEmpty(t, row.Doc)
		require.Len(t, row.Roles, 9)
		for role, cell := range row.Roles {
			if role == "service_account" {
				require.Equal(t, o.account, words[cell], row.Permission)
			} else {
				require.Contains(t, []authority.Cell{authority.Allow, authority.Deny}, cell)
				require.Equal(t, slices.Contains(o.roles, role), cell == authority.Allow, "%s for %s", row.Permission, role)
			}
			require.Equal(t, cell != authority.Deny, authority.RoleHas(role, row.Permission))
		}
		// SPA: a scheduler is an app, so neither key bypasses the other.
		for _, same := range []string{"catalog.read", "instance.read", "instance.create", "instance.update", "instance.delete"} {
			if string(row.Permission) == "scheduler."+same {
				for role, cell := range row.Roles {
					require.Equal(t, cell != authority.Deny, authority.RoleHas(role, authority.Permission("apps."+same)))
				}
			}
		}
		// A user with permission to give an account its role or key has the account's permissions.
		if authority.RoleHas("service_account", row.Permission) {
			require.True(t, authority.RoleHas("tenant_admin", row.Permission))
			require.True(t, authority.RoleHas("project_admin", row.Permission) ||
				strings.HasPrefix(string(row.Permission), "shared_runtimes."))
		}
	}
	require.False(t, authority.RoleHas("project_owner", "no.such.key"))
	require.False(t, authority.RoleHas("root", authority.CatalogRead))
	require.False(t, authority.RoleHas("", authority.CatalogRead))
}

// The test covers every key × role × place of the role × requested place × kind of
// actor.
func TestDecisionMatrix(t *testing.T) {
	const key = "ssh-ed25519 AAAAanna"
	scopes := []authority.Scope{{}, {Tenant: "physics"}, {Tenant: "biology"}, {Tenant: "physics", Project: "lattice"},
		{Tenant: "physics", Project: "qcd"}, {Tenant: "biology", Project: "genomes"}, {Tenant: "nowhere"}, {Project: "lattice"}}
	kinds := map[string]authority.Actor{
		"author":          {Login: "anna", Proof: authority.ProofPullRequest},
		"in capitals":     {Login: "ANNA", Proof: authority.ProofPullRequest},
		"approver":        {Login: "mallory", Approvers: []string{"anna"}, Proof: authority.ProofPullRequest},
		"signer":          {Login: "anna", Proof: authority.ProofSignature, SigningKey: key},
		"token":           {Login: "anna", Proof: authority.ProofToken},
		"glass":           {Login: "anna", Proof: authority.ProofPullRequest, BreakGlass: "node on fire"},
		"glass, approver": {Login: "mallory", Approvers: []string{"anna"}, Proof: authority.ProofPullRequest, BreakGlass: "node on fire"},

		"nobody":        {},
		"unproved":      {Login: "anna", Approvers: []string{"anna"}},
		"somebody else": {Login: "mallory", Proof: authority.ProofPullRequest, BreakGlass: "x"},
		"other key":     {Login: "anna", Proof: authority.ProofSignature, SigningKey: "ssh-ed25519 AAAAmallory", BreakGlass: "x"},
		"no key":        {Login: "anna", Proof: authority.ProofSignature, BreakGlass: "x"},
		"approver, unforged": {Login: "mallory", Approvers: []string{"anna"}, Proof: authority.ProofSignature, SigningKey: key,
			BreakGlass: "x"},
		"account of no place": {ServiceAccount: schema.Key{Kind: schema.KindServiceAccount, Tenant: "physics", Project: "lattice",
			Name: "anna"}, Proof: authority.ProofToken},
	}
	never := []string{"nobody", "unproved", "somebody else", "other key", "no key", "approver, unforged", "account of no place"}
	checked := 0
	for permission, o := range oracles(t) {
		for _, role := range authority.Roles()[:8] {
			for _, place := range []string{"", "physics", "physics.lattice"} {
				member := members("anna " + role)[0]
				member.SigningKeys = []string{key}
				w := campus().bind(place, member)
				for _, scope := range scopes {
					platform := strings.HasPrefix(role, "platform_")
					reaches := platform && place == "" ||
						strings.HasPrefix(role, "tenant_") && place == "physics" && scope.Tenant == "physics" ||
						strings.HasPrefix(role, "project_") && place == "physics" && scope.Tenant == "physics" && scope.Project != "" ||
						strings.HasPrefix(role, "project_") && place == "physics.lattice" &&
							scope == authority.Scope{Tenant: "physics", Project: "lattice"}
					for kind, actor := range kinds {
						glass := platform && scope != authority.Scope{}
						want := reaches && slices.Contains(o.roles, role) && !slices.Contains(never, kind) &&
							(!glass || actor.BreakGlass != "" && kind != "glass, approver") // an approver gets no break-glass access
						d := authority.May(authority.Rules{Base: w.Desired}, actor, permission, scope)
						// With a hundred thousand cases, a message is built only on failure.
						if d.Allowed != want || d.BreakGlass != (want && glass) || d.Reason == "" ||
							want && (d.Role != role || !strings.EqualFold("anna", d.By) ||
								d.Source != w.binding(place).At("spec.members[0]")) {
							t.Fatalf("%s by %s as %s of %q in %s: want %t, is %+v", permission, kind, role, place, scope, want, d)
						}
						checked++
					}
				}
			}
		}
		for _, place := range []string{"physics", "physics.lattice"} {
			w := campus().bind(place, members("ci service_account")...)
			account := w.account(place, string(permission))
			for _, scope := range scopes {
				own := scope.String() == place
				if place == "physics" { // shared runtimes only
					own = own && (strings.HasPrefix(string(permission), "shared_runtimes.") ||
						strings.HasPrefix(string(permission), "scheduler."))
				}
				for call, listed := range map[string]bool{"": false, endpoint: true, "GET /api/v1/other": false} {
					want := own && (o.account == "own" && (call == "" || listed) || o.account == "listed" && listed)
					d := authority.May(authority.Rules{Base: w.Desired},
						authority.Actor{ServiceAccount: account, Login: "anna", Proof: authority.ProofToken, Endpoint: call}, permission,
						scope)
					require.Equal(t, want, d.Allowed, "%s by the account of %s in %s calling %q: %s", permission, place, scope, call,
						d.Reason)
					require.NotEmpty(t, d.Reason)
					checked++
				}
			}
		}
	}
	require.Equal(t, len(authority.Table())*(8*3*len(scopes)*len(kinds)+2*len(scopes)*3), checked)
}

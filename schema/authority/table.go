package authority

import (
	"iter"
	"slices"
)

// The permission keys. The table says what each allows, and to whom.
const (
	CatalogRead     Permission = "apps.catalog.read"
	VersionsRead    Permission = "apps.versions.read"
	EntitlementRead Permission = "apps.entitlement.read"
	EntitlementEdit Permission = "apps.entitlement.write"
	InstanceRead    Permission = "apps.instance.read"
	InstanceCreate  Permission = "apps.instance.create"
	InstanceUpdate  Permission = "apps.instance.update"
	InstanceDelete  Permission = "apps.instance.delete"
	MemberRead      Permission = "apps.instance.member.read"
	MemberOperate   Permission = "apps.instance.member.operate"
	LossAccept      Permission = "apps.instance.loss.accept"

	SchedulerCatalogRead    Permission = "scheduler.catalog.read"
	SchedulerInstanceRead   Permission = "scheduler.instance.read"
	SchedulerInstanceCreate Permission = "scheduler.instance.create"
	SchedulerInstanceUpdate Permission = "scheduler.instance.update"
	SchedulerInstanceDelete Permission = "scheduler.instance.delete"
	QueueSubmit             Permission = "scheduler.queue.submit"
	QueueRead               Permission = "scheduler.queue.read"
	QueueCancel             Permission = "scheduler.queue.cancel"
	NodeRead                Permission = "scheduler.node.read"
	NodeOperate             Permission = "scheduler.node.operate"

	ArtifactRead      Permission = "apps.artifact.read"
	ArtifactPublish   Permission = "apps.artifact.publish"
	ArtifactPromote   Permission = "apps.artifact.promote"
	ArtifactDeprecate Permission = "apps.artifact.deprecate"
	ArtifactRetire    Permission = "apps.artifact.retire"

	SharedRuntimeRead          Permission = "shared_runtimes.read"
	SharedRuntimeCreate        Permission = "shared_runtimes.create"
	SharedRuntimeUpdate        Permission = "shared_runtimes.update"
	SharedRuntimeDelete        Permission = "shared_runtimes.delete"
	SharedRuntimeAttach        Permission = "shared_runtimes.attach"
	SharedRuntimeDetach        Permission = "shared_runtimes.detach"
	SharedRuntimeMemberOperate Permission = "shared_runtimes.member.operate"
	SharedRuntimeLossAccept    Permission = "shared_runtimes.loss.accept"
	ContributionsWrite         Permission = "contributions.write"

	CatalogWrite     Permission = "apps.catalog.write"
	CatalogPublish   Permission = "apps.catalog.publish"
	CatalogDeprecate Permission = "apps.catalog.deprecate"
	CatalogDisable   Permission = "apps.catalog.disable"
	CatalogAdmit     Permission = "apps.catalog.admit"
	NodesWrite       Permission = "nodes.write"
	SitesWrite       Permission = "sites.write"
	RatesWrite       Permission = "rates.write"
	QueuesWrite      Permission = "queues.write"
	HooksWrite       Permission = "hooks.write"
	PlatformPause    Permission = "platform.pause"

	TenantsWrite         Permission = "tenants.write"
	ProjectsWrite        Permission = "projects.write"
	PolicyWrite          Permission = "policy.write"
	RolesWrite           Permission = "roles.write"
	ServiceAccountsWrite Permission = "service_accounts.write"
	ArtifactSourcesWrite Permission = "artifact_sources.write"
	CatalogPropose       Permission = "apps.catalog.propose"

	DeletionsAcknowledge Permission = "deletions.acknowledge"
	AuditRead            Permission = "audit.read"
	EventsRead           Permission = "events.read"
	NotesWrite           Permission = "notes.write"
)

// Cell is the right of a role to use a permission, as in the matrix of ACP.
type Cell string

// The cells. SameProject and Listed are for service accounts: they act in their own
// project (or, for a tenant's account, on the tenant's shared runtimes), within
// their scopes. With Listed, allowed_endpoints must also name the call at the API.
const (
	Allow       Cell = "allow"
	Deny        Cell = "deny"
	SameProject Cell = "allow (same project only)"
	Listed      Cell = "allow (same project only, explicit allowlist only)"
)

// Row is one permission of the table.
type Row struct {
	Permission Permission      `json:"permission"`
	Doc        string          `json:"doc"`   // what it allows, one line
	Roles      map[string]Cell `json:"roles"` // all nine
}

// Roles returns the nine roles in the order of ACP's matrix, which is also their rank.
// Within a family, a role has the permissions of all roles after it, and may give those
// roles.
func Roles() []string {
	return []string{
		"platform_superadmin", "platform_ops", "tenant_owner", "tenant_admin",
		"project_owner", "project_admin", "project_member", "project_viewer", "service_account",
	}
}

const (
	superadmin     = "platform_superadmin"
	tenantOwner    = "tenant_owner"
	projectOwner   = "project_owner"
	serviceAccount = "service_account"
)

// row is a line of the table. A cell is one letter: a for allow, - for deny, s for
// same project, l for listed, in the order of Roles.
type row struct {
	permission Permission
	cells      string
	doc        string
}

// rows yields the lines of the table.
func rows() iter.Seq[row] {
	return func(yield func(row) bool) {
		for _, of := range []func() []row{appRows, artifactRows, sharedRuntimeRows, platformRows, permissionRows} {
			for _, r := range of() {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// appRows are about instances and the work on them.
func appRows() []row {
	return []row{
		// The action matrix of ACP, cell for cell. Reading the status of a version
		// or catalogue entry needs some role in the project.
		{CatalogRead, "aaaaaaaa-", "see the apps there are"},
		{VersionsRead, "aaaaaaaa-", "see the versions of an app"},
		{EntitlementRead, "aaaaaa---", "see which apps a project may use, and within which limits"},
		{EntitlementEdit, "aaaaaa---", "let a project use an app, or not, and narrow the limits"},
		{InstanceRead, "aaaaaaaas", "see instances, their state and members"},
		{InstanceCreate, "aaaaaaa-s", "create instances"},
		{InstanceDelete, "aaaaaa---", "delete instances, and lift their deletion_protection"},
		{MemberRead, "aaaaaaaas", "see the members of an instance and the operations on them"},
		{MemberOperate, "aaaaaa--l", "drain, resume, restart, replace, remove or label a member; retry, hold or release an instance"},
		// Not in the matrix: the loss of the queue or of accounting becomes final, so a service account needs it by name.
		{LossAccept, "aaaaaa--l", "accept that an instance has lost its state, accounting, controller or usage"},
		// Not in the matrix: the change can stop an instance or take its nodes, like
		// an operation on members, so the same roles have it.
		{InstanceUpdate, "aaaaaa--l", "change, stop, start, suspend and upgrade instances"},

		// SPA names the keys and no roles. A scheduler is an app, so scheduler.*
		// follows apps.*; neither is a way round the other. Roles that may create
		// also submit and cancel work; platform roles have no account to submit as.
		// Roles that operate members operate nodes.
		{SchedulerCatalogRead, "aaaaaaaa-", "see the schedulers there are"},
		{SchedulerInstanceRead, "aaaaaaaas", "see scheduler instances"},
		{SchedulerInstanceCreate, "aaaaaaa-s", "create scheduler instances"},
		{SchedulerInstanceUpdate, "aaaaaa--l", "change scheduler instances"},
		{SchedulerInstanceDelete, "aaaaaa---", "delete scheduler instances"},
		{QueueSubmit, "--aaaaa-l", "submit jobs"},
		{QueueRead, "aaaaaaaas", "see queues and the jobs in them"},
		{QueueCancel, "aaaaaaa-l", "cancel jobs"},
		{NodeRead, "aaaaaaaas", "see the nodes of an instance"},
		{NodeOperate, "aaaaaa--l", "drain, resume, cordon, uncordon or label nodes of an instance"},
	}
}

// artifactRows are about artifacts.
func artifactRows() []row {
	return []row{
		// A pipeline or a member may publish. Roles that answer for the project
		// decide what others rely on or must stop using.
		{ArtifactRead, "aaaaaaaas", "see artifacts"},
		{ArtifactPublish, "aaaaaaa-l", "declare artifacts and register their digests"},
		{ArtifactPromote, "aaaaaa---", "promote artifacts, and change promoted ones"},
		{ArtifactDeprecate, "aaaaaa---", "deprecate artifacts, and take that back"},
		{ArtifactRetire, "aaaaaa---", "retire or delete artifacts, and take that back"},
	}
}

// sharedRuntimeRows are about shared runtimes.
func sharedRuntimeRows() []row {
	return []row{
		// TSR: the tenant decides on the runtime and its attachments (for a
		// platform-managed one, the platform); the project offers nodes. The
		// tenant's operator identity works on the members.
		{SharedRuntimeRead, "aaaaaaaas", "see shared runtimes and their attachments"},
		{SharedRuntimeCreate, "aaaa-----", "create shared runtimes"},
		{SharedRuntimeUpdate, "aaaa-----", "change, stop, start, suspend and upgrade shared runtimes"},
		{SharedRuntimeDelete, "aaaa-----", "delete shared runtimes, and lift their deletion_protection"},
		{SharedRuntimeAttach, "aaaa-----", "attach projects to a shared runtime, and change the terms"},
		{SharedRuntimeDetach, "aaaa-----", "detach projects from a shared runtime"},
		{SharedRuntimeMemberOperate, "aaaa----l", "operate the members of a shared runtime"},
		{SharedRuntimeLossAccept, "aaaa----l", "accept that a shared runtime has lost its state, accounting, controller or usage"},
		{ContributionsWrite, "aaaaaa---", "offer a project's nodes to a shared runtime, and take them back"},
	}
}

// platformRows are about the platform's offers to every tenant.
func platformRows() []row {
	return []row{
		// The platform alone decides about its offers to every tenant (ACP: the
		// catalogue is read-only for tenants; SPA: the platform chooses nodes).
		{CatalogWrite, "aa-------", "declare and change apps and versions"},
		{CatalogPublish, "aa-------", "make an app or version active, and change active ones"},
		{CatalogDeprecate, "aa-------", "deprecate an app or version, and take that back"},
		{CatalogDisable, "aa-------", "disable or delete an app or version, and take that back"},
		{CatalogAdmit, "aa-------", "admit a tenant's own app, narrow the admission and withdraw it"},
		{NodesWrite, "aa-------", "declare nodes, cordon and reserve them"},
		{SitesWrite, "aa-------", "declare sites"},
		{RatesWrite, "aa-------", "say what the use of runtimes costs"},
		{QueuesWrite, "aa-------", "say which queue becomes what"},
		{HooksWrite, "aa-------", "declare hook rules"},
		{PlatformPause, "aa-------", "stop every effect of Berth, and go on"},
	}
}

// permissionRows are about permissions, limits and records.
func permissionRows() []row {
	return []row{
		// Permissions and limits. platform_ops runs the platform and changes
		// neither. A project's limits are its entitlements; above it are the
		// policies of the tenant and the platform. A member who could write roles
		// would have every role.
		{TenantsWrite, "a--------", "found, change and delete tenants"},
		{ProjectsWrite, "a-aaa----", "create, suspend and delete projects of a tenant; change the account of one's own"},
		{PolicyWrite, "a-aa-----", "write the policy of the platform or the tenant"},
		{RolesWrite, "a-aaa----", "give and take roles up to one's own"},
		{ServiceAccountsWrite, "a-aaaa---", "declare service accounts, their keys and what they may"},
		{ArtifactSourcesWrite, "aaaa-----", "declare where artifacts may come from"},
		{CatalogPropose, "aaaa-----", "declare and change apps of a tenant's own and their versions, which the platform admits"},

		// A wipe of a tenant needs a role that answers for the tenant. Audit records
		// name people, so they need such a role too; events do not.
		{DeletionsAcknowledge, "aaaa-----", "let a commit delete more than the cap"},
		{AuditRead, "aaaaaa---", "read the audit record"},
		{EventsRead, "aaaaaaaas", "read the events"},

		// README.md and .gitkeep have no effect; still, only roles of the place may
		// write them.
		{NotesWrite, "aaaaaaa--", "write README.md beside the documents"},
	}
}

// Permissions returns the keys of the table, each once.
func Permissions() []Permission {
	var all []Permission
	for r := range rows() {
		all = append(all, r.permission)
	}
	return all
}

// Table returns every permission with the cells of the nine roles.
func Table() []Row {
	var t []Row
	for r := range rows() {
		cells := map[string]Cell{}
		for _, role := range Roles() {
			cells[role] = r.cell(role)
		}
		t = append(t, Row{Permission: r.permission, Doc: r.doc, Roles: cells})
	}
	return t
}

// RoleHas reports whether a role has a permission, under the conditions of its
// family and cell. No other function reads the table for that.
func RoleHas(role string, p Permission) bool { return find(p).cell(role) != Deny }

// find returns the row of p, or one without cells.
func find(p Permission) row {
	for r := range rows() {
		if r.permission == p {
			return r
		}
	}
	return row{}
}

func (r row) cell(role string) Cell {
	i := slices.Index(Roles(), role)
	if i < 0 || i >= len(r.cells) {
		return Deny
	}
	switch r.cells[i] {
	case 'a':
		return Allow
	case 's':
		return SameProject
	case 'l':
		return Listed
	}
	return Deny
}

// outranks reports whether role is other or higher: a user with role may give and
// remove other. "" is below every role, and an unknown role is above every role.
func outranks(role, other string) bool {
	i := rank(role)
	return other == "" || i >= 0 && i <= rank(other)
}

// rank counts from the highest role. A service account has the rank of project_admin,
// which has equal permissions, not the rank of its column.
func rank(role string) int {
	if role == serviceAccount {
		role = "project_admin"
	}
	return slices.Index(Roles(), role)
}

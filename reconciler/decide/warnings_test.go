package decide_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/estate"
)

// proposal returns the proposal of a change in an estate in which every unit runs.
func proposal(t *testing.T, base, over map[string]string) plan.Proposal {
	t.Helper()
	l := loader(t)
	repo := trees{"base": base, "head": change(base, over)}
	p, err := decide.New(decide.Options{Loader: l}).Proposal(t.Context(),
		decide.Input{Repo: repo, Base: "base", Head: "head", Memory: running(t, l, base), Today: "2026-01-01"})
	require.NoError(t, err)
	return p
}

func codesOf(t *testing.T, ds []schema.Diagnostic) (codes []string) {
	for _, d := range ds {
		require.Equal(t, schema.SeverityWarning, d.Severity, d)
		codes = append(codes, d.File+" "+d.Code)
	}
	return codes
}

// A change of nodes that removes the capacity of an instance gets a warning at the
// instance and is not held. An earlier warning is not repeated.
func TestCapacityWarningsInPullRequest(t *testing.T) {
	cordoned := map[string]string{}
	for _, name := range []string{"gpu-1", "gpu-2", "gpu-3"} {
		path := "platform/nodes/" + name + ".yaml"
		cordoned[path] = estateFiles(nil)[path] + "  cordoned: true\n"
	}
	p := proposal(t, estateFiles(nil), cordoned)
	require.Equal(t, []string{train + " capacity.cordoned"}, codesOf(t, p.Diagnostics))
	require.Empty(t, p.Held)
	require.False(t, p.Blocked())

	p = proposal(t, change(estateFiles(nil), cordoned),
		map[string]string{"tenants/physics/tenant.yaml": doc("Tenant", "physics", "spec:\n  display_name: New\n")})
	require.Empty(t, p.Diagnostics)
}

// An invalid node document suppresses findings about capacity.
func TestCapacityIsUnknownWithoutAllNodes(t *testing.T) {
	r, err := loader(t).Load(t.Context(), estate.Files(estateFiles(map[string]string{"platform/nodes/gpu-1.yaml": "nothing"})))
	require.NoError(t, err)
	require.False(t, r.AllNodes())
	r, err = loader(t).Load(t.Context(), estate.Files(estateFiles(nil)))
	require.NoError(t, err)
	require.True(t, r.AllNodes())
}

// A change that removes the last administrator of the platform or of a tenant gets
// a warning, whether it empties or deletes the role binding.
func TestRemovalOfLastAdministratorGetsWarning(t *testing.T) {
	const operators, owners = "platform/roles/operators.yaml", "tenants/physics/roles.yaml"
	roles := func(name, role string) string {
		return doc("RoleBinding", name, "spec:\n  members: [{login: olga, role: "+role+"}]\n")
	}
	base := estateFiles(map[string]string{operators: roles("operators", "platform_superadmin"), owners: roles("roles", "tenant_owner")})
	for name, c := range map[string]struct {
		over map[string]string
		want []string
	}{
		"deleted": {map[string]string{operators: "", owners: ""},
			[]string{operators + " ref.no-administrator", owners + " ref.no-administrator"}},
		"another role": {map[string]string{operators: roles("operators", "platform_ops"),
			owners: roles("roles", "project_viewer")}, []string{operators + " ref.no-administrator", owners + " ref.no-administrator"}},
		"moved": {map[string]string{operators: "",
			"platform/roles/people.yaml": roles("people", "platform_superadmin")}, nil},
		"another administrator remains": {map[string]string{owners: roles("roles", "tenant_admin")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, codesOf(t, proposal(t, base, c.over).Diagnostics))
		})
	}
}

// If a change makes two tenants claim one Unix user, the finding is at the touched
// file. The order of names and the document in force do not matter. The finding
// names no file of the other tenant.
func TestConflictIsReportedAtTheTouchedFile(t *testing.T) {
	claims := func(tenant, login string) map[string]string {
		return map[string]string{
			"tenants/" + tenant + "/tenant.yaml": doc("Tenant", tenant, "spec:\n  display_name: T\n"),
			"tenants/" + tenant + "/roles.yaml": doc("RoleBinding", "roles",
				"spec:\n  members: [{login: "+login+", role: tenant_owner, unix_user: {name: shared, uid: 30001}}]\n"),
		}
	}
	for _, c := range [][2]string{{"aaa", "zzz"}, {"zzz", "aaa"}} {
		for name, inForce := range map[string]map[string]string{"in force": change(estateFiles(nil), claims(c[0], "max")),
			"held": estateFiles(nil)} {
			l := loader(t)
			base := change(estateFiles(nil), claims(c[0], "max"))
			repo := trees{"in-force": inForce, "base": base, "head": change(base, claims(c[1], "eve"))}
			p, err := decide.New(decide.Options{Loader: l,
				Authority: &decide.Authority{Administrators: []string{"root"}}}).Proposal(t.Context(), decide.Input{
				Repo: repo, Base: "base", InForce: "in-force", Head: "head", Memory: running(t, l, inForce), Today: "2026-01-01",
				By: &authority.Actor{Login: "root", Proof: authority.ProofPullRequest, BreakGlass: "test"},
			})
			require.NoError(t, err)
			require.Len(t, p.Diagnostics, 1, "%s %v", name, c)
			require.Equal(t, "tenants/"+c[1]+"/roles.yaml", p.Diagnostics[0].File, "%s %v", name, c)
			require.Equal(t, "conflict.unix-user", p.Diagnostics[0].Code)
			shown, err := json.Marshal(p)
			require.NoError(t, err)
			require.NotContains(t, string(shown), "tenants/"+c[0]+"/", "%s %v", name, c)
		}
	}
}

// A change gets a warning for its first fields without effect and a
// count of the rest. Untouched documents get no warning.
func TestChangeWithoutEffectGetsWarning(t *testing.T) {
	site := func(name string) string {
		return doc("Site", name, "spec:\n  display_name: S\n  regions: ["+name+"]\n  contact: the operators\n")
	}
	base := estateFiles(map[string]string{"platform/sites/old.yaml": site("old")})
	over := map[string]string{}
	var want []string
	for i := range 12 {
		name := fmt.Sprintf("h%02d", i)
		path := "platform/sites/" + name + ".yaml"
		over[path] = site(name)
		if i < 10 {
			want = append(want, path+" kind.no-effect")
		}
	}
	p := proposal(t, base, over)
	require.False(t, p.Blocked())
	require.Len(t, p.Diagnostics, 11)
	var note []schema.Diagnostic
	p.Diagnostics = slices.DeleteFunc(p.Diagnostics, func(d schema.Diagnostic) bool {
		if d.Severity == schema.SeverityNote {
			note = append(note, d)
		}
		return d.Severity == schema.SeverityNote
	})
	require.Equal(t, want, codesOf(t, p.Diagnostics))
	require.Len(t, note, 1)
	require.Equal(t, "2 more documents or fields of this change have no effect yet; berth validate lists them", note[0].Message)
	require.Empty(t, proposal(t, base,
		map[string]string{"tenants/physics/tenant.yaml": doc("Tenant", "physics", "spec:\n  display_name: New\n")}).Diagnostics)
}

// The terms for a project that has not accepted them get a note, and a shared runtime is not deleted
// without its attachments, which an error names.
func TestFindingsOfAttachments(t *testing.T) {
	const shared = "tenants/physics/shared-runtimes/dept/"
	const terms, view = shared + "attachments/lhc.yaml", "tenants/physics/projects/lhc/instances/share.yaml"
	runtime := doc("SharedRuntime", "dept",
		"spec: {app: batch, version: v1, display_name: D, operator_identity_ref: crew, roles: {worker: {count: 0}}}\n")
	with := map[string]string{
		terms: doc("Attachment", "lhc", "spec: {project_id: physics.lhc}\n"),
		view: doc("Instance", "share",
			"spec: {app: batch, version: v1, display_name: S, control_plane_scope: tenant, shared_runtime: dept}\n"),
	}
	base := estateFiles(map[string]string{crewFile: crew, shared + "runtime.yaml": runtime})
	found := func(p plan.Proposal) (all []string) {
		for _, d := range p.Diagnostics {
			if d.Code == "attachment.not-accepted" || d.Code == decide.CodeAttached {
				all = append(all, fmt.Sprintf("%s %s:%d %s", d.Severity, d.File, d.Line, d.Message))
			}
		}
		return all
	}
	p := proposal(t, base, map[string]string{terms: with[terms]})
	require.Equal(t, []string{"note " + terms +
		":5 physics.lhc has not accepted these terms: it is attached when one of its Instances has shared_runtime: dept"}, found(p))
	require.False(t, p.Blocked())
	require.Empty(t, found(proposal(t, base, with)))
	require.Empty(t, found(proposal(t, change(base, with),
		map[string]string{rules: doc("Policy", "policy", "spec:\n  max_gpus_per_instance: 7\n")})), "the change does not touch it")

	base = change(base, with)
	p = proposal(t, base, map[string]string{shared + "runtime.yaml": ""})
	require.Equal(t, []string{"error " + shared + "runtime.yaml:1 SharedRuntime physics/dept still has attachments: physics.lhc"}, found(p))
	require.True(t, p.Blocked())
	require.Empty(t, found(proposal(t, base, map[string]string{shared + "runtime.yaml": "", terms: "", view: ""})))
}

// A day that a change sets and that is over is an error in a new document that has no effect then, and
// a warning elsewhere: a loan ends with the merge. A day that passed since stays unmentioned.
func TestPastDaysOfAChange(t *testing.T) {
	const runtime, attached, lends = "tenants/physics/shared-runtimes/all/runtime.yaml",
		"tenants/physics/shared-runtimes/all/attachments/lhc.yaml", "tenants/physics/policy.yaml"
	attachment := func(until string) string {
		return doc("Attachment", "lhc",
			"spec:\n  project_id: physics.lhc\n  contribution_policy: {allow: true, until: "+until+"}\n  submission_policy: {}\n")
	}
	policy := func(day string) string {
		return doc("Policy", "policy", "spec:\n  max_gpus_per_instance: 8\n  noncompliant: {action: stop, grace_until: "+day+"}\n")
	}
	base := estateFiles(map[string]string{
		"tenants/physics/service-accounts/ops.yaml": doc("ServiceAccount", "ops",
			"spec:\n  display_name: Ops\n  public_keys: []\n  scopes: [shared_runtimes.member.operate]\n  allowed_endpoints: []\n"),
		"tenants/physics/roles.yaml": doc("RoleBinding", "roles",
			"spec:\n  members: [{login: olga, role: tenant_owner}, {service_account: ops, role: service_account}]\n"),
		runtime: doc("SharedRuntime", "all",
			"spec:\n  app: batch\n  version: v1\n  display_name: All\n  operator_identity_ref: ops\n  roles:\n    worker: {count: 1}\n"),
		attached: attachment("2026-06-01"),
	})
	for name, c := range map[string]struct {
		over map[string]string
		want []string
	}{
		"a loan that ends with the merge": {map[string]string{attached: attachment("2026-01-01")},
			[]string{attached + " warning date.past"}},
		"a loan until tomorrow":         {map[string]string{attached: attachment("2026-01-02")}, nil},
		"a policy without time":         {map[string]string{lends: policy("2025-12-31")}, []string{lends + " warning date.past"}},
		"a policy for another lifetime": {map[string]string{lends: policy("2062-01-31")}, []string{lends + " warning date.far"}},
		"a policy for ten years":        {map[string]string{lends: policy("2036-01-01")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, d := range proposal(t, base, c.over).Diagnostics {
				if d.Code == "date.past" || d.Code == "date.far" {
					got = append(got, d.File+" "+string(d.Severity)+" "+d.Code)
				}
			}
			require.Equal(t, c.want, got)
		})
	}
	without := change(base, map[string]string{attached: ""})
	p := proposal(t, without, map[string]string{attached: attachment("2026-01-01")})
	require.True(t, slices.ContainsFunc(p.Diagnostics, func(d schema.Diagnostic) bool {
		return d.Code == "date.past" && d.Severity == schema.SeverityError
	}), "a new loan without effect")
	old := change(base, map[string]string{attached: attachment("2025-12-31")})
	p = proposal(t, old, map[string]string{attached: attachment("2025-12-31") + "  on_jobs: {wait: true}\n"})
	require.NotContains(t, fmt.Sprint(p.Diagnostics), "date.past", "the day was set before")
}

// A node that is reserved while members of other projects are on it gets a warning.
func TestReservationOfANodeInUse(t *testing.T) {
	const gpu = "platform/nodes/gpu-1.yaml"
	reserved := func(owner string) map[string]string {
		return map[string]string{gpu: estateFiles(nil)[gpu] + "  reserved_for: " + owner + "\n"}
	}
	base := estateFiles(map[string]string{"tenants/biology/tenant.yaml": doc("Tenant", "biology", "spec:\n  display_name: Biology\n")})
	require.Contains(t, codesOf(t, proposal(t, base, reserved("biology")).Diagnostics), gpu+" node.in-use")
	require.NotContains(t, codesOf(t, proposal(t, base, reserved("physics")).Diagnostics), gpu+" node.in-use")
	require.NotContains(t, codesOf(t, proposal(t, change(base, reserved("biology")), map[string]string{
		gpu: reserved("biology")[gpu] + "  topology: {rack: r1}\n",
	}).Diagnostics), gpu+" node.in-use", "it was reserved before")
}

// A change that replaces each administrator, gives a Unix user to another login or changes prices says so.
func TestChangesOfPeopleAndPricesAreTold(t *testing.T) {
	const operators, members, rates = "platform/roles/operators.yaml", "tenants/physics/projects/lhc/roles.yaml",
		"platform/rates/default.yaml"
	admin := func(login string) string {
		return doc("RoleBinding", "operators", "spec:\n  members: [{login: "+login+", role: platform_superadmin}]\n")
	}
	member := func(login string) string {
		return doc("RoleBinding", "roles",
			"spec:\n  members: [{login: "+login+", role: project_admin, unix_user: {name: anna, uid: 20001}}]\n")
	}
	card := func(price string) string {
		return doc("RateCard", "default", "spec: {currency: EUR, cpu_hour: 10000, gpu_hours: [{type: a100, price: "+price+"}]}\n")
	}
	base := estateFiles(map[string]string{operators: admin("olga"), members: member("anna"), rates: card("0.90 EUR")})
	for name, c := range map[string]struct {
		path, text, want string
	}{
		"another administrator":         {operators, admin("olgo"), "each administrator of the platform here is a new one"},
		"the same, in another spelling": {operators, admin("Olga"), ""},
		"another login":                 {members, member("ana"), "the Unix user anna, with its files and jobs, passes from anna to ana"},
		"another price":                 {rates, card("1.9 EUR"), "a100 0.90 EUR → 1.90 EUR"},
		"the same price":                {rates, card("900000"), ""},
		"another price of a queue": {rates, card("900000}], by: [{queue: long, qos: low, cpu_hour: 1 EUR"),
			"queue long and qos low: cpu_hour as for other jobs → 1.00 EUR"},
	} {
		t.Run(name, func(t *testing.T) {
			said := fmt.Sprint(proposal(t, base, map[string]string{c.path: c.text}).Diagnostics)
			if c.want == "" {
				require.NotContains(t, said, c.path)
			} else {
				require.Contains(t, said, c.want)
			}
		})
	}
}

// While a policy of the platform is invalid, its last valid version judges: nothing else is an error.
func TestInvalidPolicyDeniesNothingElse(t *testing.T) {
	const policy = "platform/policy/all.yaml"
	base := estateFiles(map[string]string{
		policy: doc("Policy", "all", "spec:\n  artifact_source_allowlist: [registry.example]\n"),
		"platform/artifact-sources/registry.yaml": doc("ArtifactSource", "registry",
			"spec: {type: oci, host: registry.example}\n"),
		"tenants/physics/artifact-sources/department.yaml": doc("ArtifactSource", "department",
			"spec: {type: oci, host: registry.example}\n"),
	})
	p := proposal(t, base, map[string]string{policy: doc("Policy", "all",
		"spec:\n  artifact_source_allowlist: [registry.example]\n  max_gpus_per_instance: eight\n")})
	require.Len(t, p.Diagnostics, 1, p.Diagnostics)
	require.Equal(t, policy, p.Diagnostics[0].File)
}

// Of two documents that clash, the one that the change brings has the finding, whichever comes first by path, and the
// message names the other.
func TestClashIsReportedWhereTheChangeBringsIt(t *testing.T) {
	node := estateFiles(nil)["platform/nodes/gpu-1.yaml"]
	for _, name := range []string{"aaa", "zzz"} {
		file := "platform/nodes/" + name + ".yaml"
		p := proposal(t, estateFiles(nil), map[string]string{file: strings.Replace(node, "name: gpu-1", "name: "+name, 1)})
		i := slices.IndexFunc(p.Diagnostics, func(d schema.Diagnostic) bool { return d.Code == "conflict.node-address" })
		require.GreaterOrEqual(t, i, 0, p.Diagnostics)
		require.Equal(t, file, p.Diagnostics[i].File)
		require.Contains(t, p.Diagnostics[i].Message, "the address of the node gpu-1, too (platform/nodes/gpu-1.yaml:")
		for _, d := range p.Diagnostics {
			require.Equal(t, file, d.File, d)
		}
	}
}

// A change of YAML outside the estate is noted, once; hidden directories are not the estate's.
func TestFilesOutsideTheEstateAreNoted(t *testing.T) {
	p := proposal(t, estateFiles(nil),
		map[string]string{"nodes/gpu-9.yaml": doc("Node", "gpu-9", "spec: {}\n"), "tenant/x.yml": "a: 1\n",
			".github/workflows/ci.yaml": "a: 1\n", "README.md": "x"})
	require.Len(t, p.Diagnostics, 1)
	require.Equal(t, "nodes/gpu-9.yaml:1:1: note: Berth reads documents below platform/ and tenants/ only, so this changes nothing: "+
		"nodes/gpu-9.yaml, tenant/x.yml [estate.outside]", p.Diagnostics[0].String())
	require.Empty(t, proposal(t, estateFiles(nil), map[string]string{".github/workflows/ci.yaml": "a: 1\n"}).Diagnostics)
}

// A change that adds a signing key of a person of another tenant, or of the platform, is an error, and the message does
// not name that person. A tenant without a role binding gets a warning.
func TestKeysOfOthersAndTenantsWithoutPeople(t *testing.T) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
	roles := func(name, login, role, keys string) string {
		return doc("RoleBinding", name, "spec:\n  members: [{login: "+login+", role: "+role+keys+"}]\n")
	}
	const owners = "tenants/physics/roles.yaml"
	base := estateFiles(map[string]string{"platform/roles/operators.yaml": roles("operators", "olga", "platform_superadmin",
		", signing_keys: ["+key+"]"), owners: roles("roles", "petra", "tenant_owner", "")})
	p := proposal(t, base, map[string]string{owners: roles("roles", "petra", "tenant_owner", ", signing_keys: ["+key+"]")})
	require.Len(t, p.Diagnostics, 1)
	require.Equal(t, owners+":6:63: error: spec.members[0].signing_keys[0]: is a key of somebody else, in another tenant or on the "+
		"platform: a key shows who signed, so each person has their own [conflict.key]", p.Diagnostics[0].String())
	require.True(t, p.Blocked())
	p = proposal(t, base, map[string]string{owners: roles("roles", "Olga", "tenant_owner", ", signing_keys: ["+key+"]")})
	require.NotContains(t, fmt.Sprint(p.Diagnostics), "conflict.key", "it is her own")

	const useless = ", signing_keys: [" + "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f" + "]"
	p = proposal(t, base, map[string]string{owners: roles("roles", "petra", "tenant_owner", useless)})
	require.Contains(t, fmt.Sprint(p.Diagnostics), "error: spec.members[0].signing_keys[0]: the key proves nothing")
	was := change(base, map[string]string{owners: roles("roles", "petra", "tenant_owner", useless)})
	p = proposal(t, was, map[string]string{owners: roles("roles", "petra", "tenant_owner", useless) + "\n"})
	require.Contains(t, fmt.Sprint(p.Diagnostics), "warning: spec.members[0].signing_keys[0]: the key proves nothing", "it was there")

	tenant := map[string]string{"tenants/chemistry/tenant.yaml": doc("Tenant", "chemistry", "spec:\n  display_name: C\n")}
	require.Equal(t, []string{"tenants/chemistry/tenant.yaml ref.no-administrator"}, codesOf(t, proposal(t, base, tenant).Diagnostics))
	tenant["tenants/chemistry/roles.yaml"] = roles("roles", "carla", "tenant_owner", "")
	require.Empty(t, proposal(t, base, tenant).Diagnostics)
}

// A change whose effect its fields do not show says it: who is served otherwise, whose key it was, and what too short a
// time does.
func TestEffectsBesideTheFieldsAreReported(t *testing.T) {
	const (
		everybody, lhc = "platform/queues/everybody.yaml", "platform/queues/lhc.yaml"
		operators      = "platform/roles/operators.yaml"
		registry       = "platform/artifact-sources/registry.yaml"
		runtime, terms = "tenants/physics/shared-runtimes/dept/runtime.yaml", "tenants/physics/shared-runtimes/dept/attachments/lhc.yaml"
		key            = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
	)
	queues := func(name, rest string) string {
		return doc("QueueMap", name, "spec: {app: batch, "+rest+"}\n")
	}
	roles := func(first, second string) string {
		return doc("RoleBinding", "operators", "spec:\n  members: [{login: olga, role: platform_superadmin"+first+"}, {login: otto, role: "+
			"platform_ops"+second+"}]\n")
	}
	source := func(list string) string {
		return doc("ArtifactSource", "registry", "spec: {type: oci, host: registry.example, credential: pull, repositories: ["+list+"]}\n")
	}
	shared := func(rest string) string {
		return doc("SharedRuntime", "dept",
			"spec: {app: batch, version: v1, display_name: D, operator_identity_ref: crew, roles: {worker: "+
				"{count: 0}}"+rest+"}\n")
	}
	const all, long = "queues: [{queue: short, partition: main}], fallback_queue: short", "queues: [{queue: short, partition: main}]"
	base := estateFiles(map[string]string{
		crewFile: crew, everybody: queues("everybody", all), operators: roles(", signing_keys: ["+key+"]", ""),
		registry: source("'{tenant}/{project}'"),
		runtime:  shared(", attached_project_ids: [physics.lhc]"), terms: doc("Attachment", "lhc", "spec: {project_id: physics.lhc}\n"),
		"platform/policy/all.yaml": doc("Policy", "all", "spec:\n  artifact_source_allowlist: [registry.example]\n"),
	})
	for name, c := range map[string]struct {
		path, text, want string
	}{
		"no fallback": {everybody, queues("everybody", long), "jobs for a queue that is not listed here go to short until the merge, " +
			"and are refused from then on"},
		"a time too short": {everybody, queues("everybody", "queues: [{queue: short, partition: main, max_walltime_minutes: 1}], "+
			"fallback_queue: short"), "spec.queues[0].max_walltime_minutes: a job may run 1 min at most"},
		"a time of two minutes": {everybody, queues("everybody", "queues: [{queue: short, partition: main, max_walltime_minutes: 2}], "+
			"fallback_queue: short"), ""},
		"a tenant's map": {lhc, queues("lhc", "applies_to: [physics], "+all),
			"the map lhc then maps the queues of batch for physics.lhc, in place of the map everybody"},
		"a grace too short": {train, estateFiles(nil)[train] + "  on_jobs: {cancel_after_seconds: 1}\n",
			"spec.on_jobs.cancel_after_seconds: jobs get 1 s until they are cancelled"},
		"a key that moves": {operators, roles("", ", signing_keys: ["+key+"]"),
			"the key is olga's until the merge: what it signs then counts as signed by otto"},
		"a key of two": {operators, roles(", signing_keys: ["+key+"]", ", signing_keys: ["+key+"]"),
			"olga has the same key: each person needs their own"},
		"a wider source": {registry, source("'{tenant}'"), "every project of a tenant may then declare artifacts from {tenant} and below " +
			"it, read with the secret pull; until now the source shares {tenant}/{project}"},
		"a narrower source": {registry, source("'{tenant}/{project}/images'"), ""},
		"an open source": {registry, source(""),
			"every project may then declare any artifact of registry.example, read without a secret"},
		"a shorter list": {runtime, shared(""), "physics.lhc stays attached by " + terms},
	} {
		t.Run(name, func(t *testing.T) {
			said := fmt.Sprint(proposal(t, base, map[string]string{c.path: c.text}).Diagnostics)
			if c.want == "" {
				require.NotContains(t, said, c.path)
			} else {
				require.Contains(t, said, c.want)
			}
		})
	}
}

// A project or tenant whose directory is renamed gets one sentence that says so; one that replaces another gets none.
func TestRenamedDirectoryIsReported(t *testing.T) {
	const project, tenant = "tenants/physics/projects/lhc/", "tenants/physics/"
	for old, is := range map[string]struct{ key, next string }{
		project: {"Project physics/lhc", "tenants/physics/projects/collider/"},
		tenant:  {"Tenant physics", "tenants/particles/"},
	} {
		renamed, replaced, n := map[string]string{}, map[string]string{}, 0
		for file, text := range estateFiles(nil) {
			if rest, below := strings.CutPrefix(file, old); below {
				renamed[file], renamed[is.next+rest] = "", text
				replaced[file], replaced[is.next+rest] = "", text+"# another one\n"
				n++
			}
		}
		require.Greater(t, n, 2, "files of %s", old)
		want := ":1:1: warning: this deletes " + is.key + " with all that runs there, as its directory is its name: move " +
			strings.TrimSuffix(is.next, "/") + " back"
		said := fmt.Sprint(proposal(t, estateFiles(nil), renamed).Diagnostics)
		require.Equal(t, 1, strings.Count(said, want), said)
		require.Equal(t, 1, strings.Count(said, "as its directory is its name"), said)
		require.NotContains(t, fmt.Sprint(proposal(t, estateFiles(nil), replaced).Diagnostics), "as its directory is its name")
	}
}

// A list that is there and empty is not shown as a missing one, and a changed uid is a changed field.
func TestEmptyListsAndUidsAreChangedFields(t *testing.T) {
	const policy = "platform/policy/all.yaml"
	base := estateFiles(map[string]string{policy: doc("Policy", "all", "spec:\n  allowed_regions: [campus]\n")})
	fields := func(text string) string {
		return fmt.Sprint(proposal(t, base, map[string]string{policy: text}).Documents[0].Fields)
	}
	require.Equal(t, "[{spec.allowed_regions [campus] []}]", fields(doc("Policy", "all", "spec:\n  allowed_regions: []\n")))
	require.Equal(t, "[{spec.allowed_regions [campus] }]", fields(doc("Policy", "all", "spec: {}\n")))
	require.Equal(t, "[{metadata.uid  other}]", fields(strings.Replace(base[policy], "name: all", "name: all\n  uid: other", 1)))
}

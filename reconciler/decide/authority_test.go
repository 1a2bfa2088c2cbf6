package decide_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
	"berth/schema"
	"berth/schema/authority"
	"berth/schema/estate"
)

func member(login, role string) string { return "    - {login: " + login + ", role: " + role + "}\n" }

func roles(name string, members ...string) string {
	return doc("RoleBinding", name, "spec:\n  members:\n"+strings.Join(members, ""))
}

const (
	projectRoles = "tenants/physics/projects/lhc/roles.yaml"
	tenantRoles  = "tenants/physics/roles.yaml"
	entitlement  = "tenants/physics/projects/lhc/entitlements/batch.yaml"
)

// governed is an estate with role bindings.
func governed(with map[string]string) map[string]string {
	files := map[string]string{
		"platform/roles/operators.yaml": roles("operators", member("olga", "platform_superadmin"), member("otto", "platform_ops")),
		tenantRoles:                     roles("roles", member("tina", "tenant_admin")),
		projectRoles: roles("roles", member("pia", "project_owner"), member("mel", "project_member"),
			member("vic", "project_viewer")),
	}
	maps.Copy(files, with)
	return estateFiles(files)
}

// story is a sequence of commits on main, decided one by one or together.
type story struct {
	t     *testing.T
	d     *decide.Decider
	main  map[string]string
	was   decide.Standing
	steps []decide.Step // not decided yet
	n     int
}

func tell(t *testing.T, with map[string]string) *story {
	t.Helper()
	return tellBy(t, loader(t), with)
}

func tellBy(t *testing.T, l *estate.Loader, with map[string]string) *story {
	t.Helper()
	s := &story{t: t, d: decide.New(decide.Options{Loader: l, Authority: &decide.Authority{Administrators: []string{"root"}}}),
		main: governed(with)}
	_, err := s.decide([]decide.Step{{Commit: "c0", Tree: estate.Files(s.main)}})
	require.NoError(t, err)
	return s
}

// commits adds a commit of a user: path → content; "" deletes the file.
func (s *story) commits(who string, with map[string]string, more ...func(*decide.Step)) {
	next := maps.Clone(s.main)
	for path, data := range with {
		if data == "" {
			delete(next, path)
		} else {
			next[path] = data
		}
	}
	touched, err := trees{"a": s.main, "b": next}.Diff(context.Background(), "a", "b")
	require.NoError(s.t, err)
	s.n++
	step := decide.Step{Commit: fmt.Sprint("c", s.n), Tree: estate.Files(next), Touched: touched}
	if who != "" {
		step.By = authority.Actor{Login: who, Proof: authority.ProofPullRequest}
	}
	for _, m := range more {
		m(&step)
	}
	s.main, s.steps = next, append(s.steps, step)
}

// decide decides some steps and brings the result into force.
func (s *story) decide(steps []decide.Step) (decide.Decision, error) {
	d, err := s.d.Commit(s.t.Context(), s.was, steps, "2026-01-31")
	if err != nil {
		return d, err
	}
	s.was = decide.Standing{Tree: inForceTree(s.t, steps[len(steps)-1].Tree, s.was.Tree, d.Replace), Permitted: d.Permitted}
	return d, nil
}

// together decides all undecided commits at once.
func (s *story) together() decide.Decision {
	s.t.Helper()
	d, err := s.decide(s.steps)
	require.NoError(s.t, err)
	s.steps = nil
	return d
}

// inForceTree is a tree with Replace over it, as in Git.
func inForceTree(t *testing.T, main, was schema.Snapshot, replace map[string]string) schema.Snapshot {
	t.Helper()
	files := contents(t, main)
	old := map[string]string{}
	if was != nil {
		old = contents(t, was)
	}
	for path, blob := range replace {
		delete(files, path)
		if blob != "" {
			require.Equal(t, blob, estate.BlobID([]byte(old[path])), path)
			files[path] = old[path]
		}
	}
	return estate.Files(files)
}

func contents(t *testing.T, s schema.Snapshot) map[string]string {
	t.Helper()
	out := map[string]string{}
	parts, err := s.Parts(t.Context())
	require.NoError(t, err)
	for _, p := range parts {
		files, err := s.Files(t.Context(), p)
		require.NoError(t, err)
		for _, f := range files {
			data, _, err := s.Read(t.Context(), f, 1<<20)
			require.NoError(t, err)
			out[f.Path] = string(data)
		}
	}
	return out
}

func reasons(held []schema.Held) map[string]schema.HeldReason {
	out := map[string]schema.HeldReason{}
	for _, h := range held {
		out[h.File] = h.Reason
	}
	return out
}

const eval = at + "eval.yaml"

// An unauthorized change is held, with the documents that need it, and delays no other
// change. It stays held until a user with the permission repeats it or it is reverted.
func TestUnauthorizedChangeIsHeld(t *testing.T) {
	s := tell(t, nil)
	s.commits("vic", map[string]string{train: instance("train", 4, 1)})
	d := s.together()
	require.Equal(t, map[string]schema.HeldReason{train: schema.HeldUnauthorised}, reasons(d.Held))
	require.Equal(t, 1, d.Effective.Unit(trainKey).Roles[1].Count)
	require.Contains(t, d.Held[0].Message, "vic")
	require.Len(t, d.Verdicts, 1)
	require.False(t, d.Verdicts[0].Authority[0].Allowed)
	require.Equal(t, "vic", d.Verdicts[0].By.Login)

	s.commits("mel", map[string]string{eval: instance("eval", 1, 1)})
	d = s.together()
	require.Equal(t, map[string]schema.HeldReason{train: schema.HeldUnauthorised}, reasons(d.Held))
	require.NotNil(t, d.Effective.Unit(evalKey))
	require.Len(t, d.Verdicts, 1, "a held change is reported once")

	// A later permission of vic does not release it.
	s.commits("pia", map[string]string{projectRoles: roles("roles", member("pia", "project_owner"), member("mel", "project_member"),
		member("vic", "project_admin"))})
	require.Equal(t, map[string]schema.HeldReason{train: schema.HeldUnauthorised}, reasons(s.together().Held))
	s.commits("mel", map[string]string{"README.md": "x"})
	require.Equal(t, map[string]schema.HeldReason{train: schema.HeldUnauthorised}, reasons(s.together().Held))

	s.commits("vic", map[string]string{train: instance("train", 3, 1)})
	d = s.together()
	require.Empty(t, d.Held)
	require.Equal(t, 3, d.Effective.Unit(trainKey).Roles[1].Count)
}

func TestRevertNeedsNoPermission(t *testing.T) {
	s := tell(t, nil)
	s.commits("vic", map[string]string{train: instance("train", 4, 1)})
	s.together()
	s.commits("", map[string]string{train: instance("train", 1, 1)})
	require.Empty(t, s.together().Held)
}

// A document that needs a held change is held with it, regardless of its author.
func TestDocumentWaitsForTheHeldChangeItNeeds(t *testing.T) {
	s := tell(t, nil)
	v2 := "platform/catalog/batch/v2.yaml"
	s.commits("tina", map[string]string{
		v2:   strings.ReplaceAll(strings.ReplaceAll(s.main["platform/catalog/batch/v1.yaml"], "name: v1", "name: v2"), `"1"`, `"2"`),
		eval: strings.ReplaceAll(instance("eval", 1, 1), "version: v1", "version: v2"),
	})
	d := s.together()
	require.Equal(t, map[string]schema.HeldReason{v2: schema.HeldUnauthorised, eval: schema.HeldNeeds}, reasons(d.Held))
	s.commits("olga", map[string]string{v2: s.main[v2] + "# looked at\n"})
	d = s.together()
	require.Empty(t, d.Held)
	require.NotNil(t, d.Effective.Unit(evalKey))
}

// A user without a proof of identity has no role.
func TestUnknownUsersHaveNoRole(t *testing.T) {
	for name, by := range map[string]authority.Actor{
		"nobody":            {},
		"a claim":           {Login: "pia"},
		"unknown":           {Login: "eve", Proof: authority.ProofPullRequest},
		"of another tenant": {Login: "olaf", Proof: authority.ProofPullRequest},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, map[string]string{
				"tenants/other/tenant.yaml": doc("Tenant", "other", "spec:\n  display_name: Other\n"),
				"tenants/other/roles.yaml":  roles("roles", member("olaf", "tenant_owner")),
			})
			s.commits("", map[string]string{train: "", eval: instance("eval", 1, 1),
				rules: doc("Policy", "policy", "spec:\n  max_gpus_per_instance: 7\n")},
				func(st *decide.Step) { st.By = by })
			d := s.together()
			require.Equal(t, map[string]schema.HeldReason{train: schema.HeldUnauthorised, eval: schema.HeldUnauthorised,
				rules: schema.HeldUnauthorised}, reasons(d.Held))
			require.NotNil(t, d.Effective.Unit(trainKey))
		})
	}
}

// Roles and policy are those in force before a commit: a permission that a change gives
// its author does not count for the change.
func TestRulesBeforeTheChangeApply(t *testing.T) {
	s := tell(t, nil)
	s.commits("mel", map[string]string{
		projectRoles: roles("roles", member("pia", "project_owner"), member("mel", "project_owner")),
		train:        "",
	})
	require.Equal(t, map[string]schema.HeldReason{projectRoles: schema.HeldUnauthorised, train: schema.HeldUnauthorised},
		reasons(s.together().Held))

	s = tell(t, nil)
	s.commits("tina", map[string]string{
		rules: doc("Policy", "policy", "spec:\n  max_gpus_per_instance: 16\n"),
		train: instance("train", 4, 3),
	})
	d := s.together()
	require.Equal(t, map[string]schema.HeldReason{train: schema.HeldDenied}, reasons(d.Held), "policy widened and used in one change")
	require.Contains(t, d.Held[0].Message, "before this change")
	s.commits("mel", map[string]string{"README.md": "later"})
	require.Empty(t, s.together().Held, "the policy is in force now")
}

// Commits have the same result decided one by one and together.
func TestCommitsAreDecidedOneByOne(t *testing.T) {
	commits := func(s *story, each func()) {
		s.commits("pia", map[string]string{projectRoles: roles("roles", member("pia", "project_owner"), member("new", "project_member"))})
		each()
		s.commits("new", map[string]string{eval: instance("eval", 1, 1)})
		each()
		s.commits("mel", map[string]string{train: instance("train", 3, 1)}) // no longer a member
		each()
		s.commits("tina", map[string]string{rules: "", "README.md": "x"})
		each()
	}
	a := tell(t, nil)
	var one decide.Decision
	var told []decide.Verdict
	commits(a, func() { one = a.together(); told = append(told, one.Verdicts...) })
	b := tell(t, nil)
	commits(b, func() {})
	two := b.together()
	require.Equal(t, one.Held, two.Held)
	require.Equal(t, one.Replace, two.Replace)
	require.Equal(t, one.Effective, two.Effective)
	require.Equal(t, told, two.Verdicts)
	require.Equal(t, map[string]schema.HeldReason{train: schema.HeldUnauthorised}, reasons(two.Held))
	require.NotNil(t, two.Effective.Unit(evalKey))
}

// A commit that must not be taken over is skipped if a later one repairs it.
func TestCommitThatEmptiesTheEstateIsSkipped(t *testing.T) {
	s := tell(t, nil)
	gone := map[string]string{}
	for path := range s.main {
		gone[path] = ""
	}
	full := maps.Clone(s.main)
	s.commits("root", gone)
	before := slices.Clone(s.steps)
	_, err := s.decide(before)
	require.ErrorIs(t, err, decide.ErrFrozen)
	full[eval] = instance("eval", 1, 1)
	s.commits("mel", full)
	d := s.together()
	require.Empty(t, d.Held)
	require.NotNil(t, d.Effective.Unit(evalKey))
	require.Equal(t, 2, d.Effective.Len())
}

func TestDeletionProtection(t *testing.T) {
	protected := instance("train", 1, 1) + "  deletion_protection: true\n"
	s := tell(t, map[string]string{train: protected})
	s.commits("pia", map[string]string{train: ""})
	d := s.together()
	require.Equal(t, map[string]schema.HeldReason{train: schema.HeldDenied}, reasons(d.Held))
	require.Contains(t, d.Held[0].Message, "deletion_protection")

	// The same holds for the deletion of its tenant tree.
	s.commits("tina", map[string]string{projectRoles: "", entitlement: "", "tenants/physics/projects/lhc/project.yaml": ""})
	d = s.together()
	require.NotNil(t, d.Effective.Unit(trainKey))
	require.Equal(t, schema.HeldDenied, reasons(d.Held)[train])
	require.Equal(t, schema.HeldNeeds, reasons(d.Held)[entitlement])

	// Without the protection, removed by an earlier change, it is deleted.
	s = tell(t, map[string]string{train: protected})
	s.commits("pia", map[string]string{train: instance("train", 1, 1)})
	require.Empty(t, s.together().Held)
	s.commits("pia", map[string]string{train: ""})
	d = s.together()
	require.Empty(t, d.Held)
	require.Nil(t, d.Effective.Unit(trainKey))
}

// many is a number of instances above the deletion limit, without anything running.
func many(n int) map[string]string {
	out := map[string]string{}
	for i := range n {
		name := fmt.Sprintf("i%02d", i)
		out[at+name+".yaml"] = instance(name, 0, 1)
	}
	return out
}

func without(files map[string]string) map[string]string {
	out := map[string]string{}
	for path := range files {
		out[path] = ""
	}
	return out
}

func ack(digest string) func(*decide.Step) {
	return func(s *decide.Step) { s.Acks = append(s.Acks, digest) }
}

// A merge deletes at most five documents or a tenth of a tenant's, unless a user with
// deletions.acknowledge acknowledges exactly these.
func TestLargeDeletionsAreAcknowledged(t *testing.T) {
	s := tell(t, many(12))
	s.commits("pia", without(many(5)))
	require.Empty(t, s.together().Held, "five deletions need no acknowledgement")

	s = tell(t, many(12))
	s.commits("pia", without(many(6)))
	d := s.together()
	require.Len(t, d.Held, 6)
	require.Equal(t, 13, d.Effective.Len())
	message := d.Held[0].Message
	digest := message[strings.LastIndexByte(message, ' ')+1:]
	require.Contains(t, message, decide.AckTrailer+": "+digest)
	require.Contains(t, message, "/berth ack-delete "+digest)

	s.commits("pia", map[string]string{"README.md": "1"}, ack(digest))
	require.Len(t, s.together().Held, 6, "a project owner lacks the permission")
	s.commits("tina", map[string]string{"README.md": "2"}, ack("0000000000000000"))
	require.Len(t, s.together().Held, 6, "another digest")
	s.commits("tina", map[string]string{"README.md": "3"}, ack(digest))
	d = s.together()
	require.Empty(t, d.Held)
	require.Equal(t, 7, d.Effective.Len())

	s.commits("pia", without(many(12)))
	require.Len(t, s.together().Held, 6, "an acknowledgement covers only the listed documents")

	// Small deletions, or one acknowledged deletion, come into force.
	s = tell(t, many(12))
	s.commits("tina", without(many(12)))
	probe := tell(t, many(12))
	probe.commits("tina", without(many(12)))
	message = probe.together().Held[0].Message
	ack(message[strings.LastIndexByte(message, ' ')+1:])(&s.steps[0])
	require.Empty(t, s.together().Held)
}

// Unauthorized deletions do not count for the limit of a merge.
func TestDeletionsAreCountedByTenant(t *testing.T) {
	s := tell(t, many(8))
	s.commits("vic", without(many(8)))
	require.Len(t, s.together().Held, 8)
	s.commits("pia", map[string]string{train: ""})
	d := s.together()
	require.Nil(t, d.Effective.Unit(trainKey))
	require.NotContains(t, reasons(d.Held), train)
}

// An instance is not deleted while a file of its tenant is invalid.
func TestMoveToInvalidFileDeletesNothing(t *testing.T) {
	s := tell(t, map[string]string{train: strings.Replace(instance("train", 1, 1), "  name: train\n", "  name: train\n  uid: u1\n", 1)})
	s.commits("pia", map[string]string{train: "",
		at + "renamed.yaml": "apiVersion: berth/v1\nkind: Instance\nmetadata: {name: renamed, uid: u1\n"})
	d := s.together()
	require.Equal(t, map[string]schema.HeldReason{train: schema.HeldBlocked, at + "renamed.yaml": schema.HeldInvalid}, reasons(d.Held))
	require.NotNil(t, d.Effective.Unit(trainKey))
}

// A move needs the permission at both places; without one of them the move is held.
func TestMoveNeedsThePermissionAtBothPlaces(t *testing.T) {
	other := "tenants/physics/projects/atlas/"
	s := tell(t, map[string]string{
		other + "project.yaml":            doc("Project", "atlas", "spec:\n  display_name: Atlas\n"),
		other + "entitlements/batch.yaml": doc("Entitlement", "batch", "spec:\n  enabled: true\n"),
		projectRoles:                      roles("roles", member("pia", "project_owner")),
		"tenants/physics/projects/lhc/service-accounts/ci.yaml": account("ci"),
	})
	from, to := "tenants/physics/projects/lhc/service-accounts/ci.yaml", other+"service-accounts/ci.yaml"
	s.commits("pia", map[string]string{from: "", to: account("ci")})
	d := s.together()
	require.Equal(t, map[string]schema.HeldReason{from: schema.HeldNeeds, to: schema.HeldUnauthorised}, reasons(d.Held))
	s.commits("tina", map[string]string{to: account("ci") + "# looked at\n"})
	require.Empty(t, s.together().Held)
}

func account(name string) string {
	return "apiVersion: berth/v1\nkind: ServiceAccount\nmetadata:\n  name: " + name +
		"\n  uid: sa-1\nspec:\n  display_name: CI\n  public_keys: []\n  scopes: []\n  allowed_endpoints: []\n"
}

// An approver never gets break-glass rights; only the author does.
func TestOnlyTheAuthorGetsBreakGlassAccess(t *testing.T) {
	breaking := func(login string, approvers ...string) func(*decide.Step) {
		return func(s *decide.Step) {
			s.By = authority.Actor{Login: login, Approvers: approvers, Proof: authority.ProofPullRequest, BreakGlass: "urgent"}
		}
	}
	s := tell(t, nil)
	s.commits("eve", map[string]string{train: ""}, breaking("eve", "olga"))
	d := s.together()
	require.NotNil(t, d.Desired.Instance(trainKey))
	require.Len(t, d.Held, 1)
	require.Contains(t, d.Held[0].Message, "a platform administrator makes the change in a pull request of their own")

	s = tell(t, nil)
	s.commits("olga", map[string]string{train: ""}, breaking("olga", "eve"))
	d = s.together()
	require.Nil(t, d.Desired.Instance(trainKey))
	require.Equal(t, "olga", d.Verdicts[0].Authority[0].By)
	require.True(t, d.Verdicts[0].Authority[0].BreakGlass)
}

// Without possible approvers, a user with write permission for the policy can remove
// require_approval in a separate change, and an administrator can sign.
func TestApprovalRuleCanBeRemovedWhereNobodyCanApprove(t *testing.T) {
	const rootKey, tinaKey = "ssh-ed25519 AAAAroot", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvLmebfXx702xqIA2iztALwf2MdpwQTlK+BqDRLspJR"
	const policyFile, tenantFile = "tenants/physics/policy.yaml", "tenants/physics/tenant.yaml"
	policy := doc("Policy", "policy", "spec:\n  require_approval: true\n")
	signed := func(login, key, reason string) func(*decide.Step) {
		return func(s *decide.Step) {
			s.By = authority.Actor{Login: login, Proof: authority.ProofSignature, SigningKey: key, BreakGlass: reason}
		}
	}
	begin := func(noForge bool, tenant string) *story {
		s := tell(t, map[string]string{
			policyFile: policy, tenantFile: tenant,
			tenantRoles: doc("RoleBinding", "roles",
				"spec:\n  members:\n    - {login: tina, role: tenant_owner, signing_keys: ["+tinaKey+
					"]}\n    - {login: tom, role: tenant_owner}\n"),
		})
		s.d = decide.New(decide.Options{Loader: loader(t),
			Authority: &decide.Authority{Administrators: []string{"root"}, AdministratorKeys: []string{rootKey}, NoForge: noForge}})
		return s
	}
	plain := doc("Tenant", "physics", "spec:\n  display_name: Physics\n")
	own := plain + "  repository: {url: 'https://git.example/physics.git', branch: main}\n"
	for name, s := range map[string]*story{"no forge": begin(true, plain), "repository": begin(false, own)} {
		s.commits("", map[string]string{policyFile: "", train: instance("train", 1, 2)}, signed("tina", tinaKey, ""))
		d := s.together()
		require.Nil(t, d.Desired.Tenants["physics"].Policy, name)
		require.Equal(t, map[string]schema.HeldReason{train: schema.HeldUnauthorised}, reasons(d.Held),
			"the rest is held under the rules before the change")
		s.commits("", map[string]string{train: instance("train", 1, 3)}, signed("tina", tinaKey, ""))
		require.Empty(t, s.together().Held)
	}
	// With a forge another user can approve, so a push does not end the rule.
	s := begin(false, plain)
	s.commits("", map[string]string{policyFile: ""}, signed("tina", tinaKey, ""))
	require.Len(t, s.together().Held, 1)

	s = begin(true, own)
	s.commits("", map[string]string{train: instance("train", 1, 2)}, signed("root", rootKey, "tina is away"))
	d := s.together()
	require.Empty(t, d.Held)
	require.True(t, d.Verdicts[0].Authority[0].BreakGlass)
	require.Contains(t, d.Verdicts[0].Authority[0].Reason,
		`without the approval that Policy physics/policy (tenants/physics/policy.yaml) requires; reason: "tina is away"`)
}

package decide_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/schema"
)

// scene is a story with one commit that is held completely or in part.
type scene struct {
	*story
	repo trees         // the trees before and after the commit, of main and in force
	held []schema.Held // by the commit
	dim  bool          // the tenant tree of main cannot be read
}

// holding decides a commit of the given user, and the commits after it.
func holding(t *testing.T, who string, over, change map[string]string, after ...map[string]string) *scene {
	t.Helper()
	s := &scene{story: tell(t, over), repo: trees{}}
	s.repo["parent"] = s.main
	s.commits(who, change)
	s.repo["commit"] = s.main
	s.held = s.together().Held
	for _, more := range after {
		s.commits("pia", more)
		s.together()
	}
	s.repo["main"], s.repo["force"] = s.main, contents(t, s.was.Tree)
	return s
}

func (s *scene) apply(by string, more ...func(*decide.Apply)) decide.Applied {
	s.t.Helper()
	touched, err := s.repo.Diff(s.t.Context(), "parent", "commit")
	require.NoError(s.t, err)
	a := decide.Apply{By: by, Commit: "commit", Touched: touched}
	for _, m := range more {
		m(&a)
	}
	var repo decide.Repo = s.repo
	if s.dim {
		repo = dimmed{s.repo}
	}
	out, err := s.d.Apply(s.t.Context(), decide.Input{
		Repo: repo, Base: "main", InForce: "force", Permitted: s.was.Permitted, Today: "2026-01-31", Memory: &plan.Memory{},
	}, a)
	require.NoError(s.t, err)
	return out
}

func author(login string) func(*decide.Apply) {
	return func(a *decide.Apply) { a.Author = login }
}

func taken(a decide.Applied) []string {
	var out []string
	for _, c := range a.Taken {
		out = append(out, c.Path)
	}
	return out
}

func TestApplyTakesDocumentsTheUserMayChange(t *testing.T) {
	t.Parallel()
	// A push by an unknown author changes one document of the project and one of the
	// tenant.
	s := holding(t, "", nil, map[string]string{train: instance("train", 2, 1),
		rules: doc("Policy", "policy", "spec:\n  max_gpus_per_instance: 4\n")})
	got := s.apply("vic")
	require.Empty(t, got.Taken)
	require.Empty(t, got.Digest)
	require.Equal(t, map[string]schema.HeldReason{train: schema.HeldUnauthorised, rules: schema.HeldUnauthorised}, reasons(got.Left))

	got = s.apply("pia")
	require.Equal(t, []string{train}, taken(got))
	require.Equal(t, map[string]schema.HeldReason{rules: schema.HeldUnauthorised}, reasons(got.Left))
	require.Contains(t, got.Left[0].Message, "pia lacks policy.write")
	require.Equal(t, map[string]schema.HeldReason{rules: schema.HeldUnauthorised}, reasons(got.Decision.Held))
	require.Len(t, got.Proposal.Plans, 1)
	require.Equal(t, trainKey, got.Proposal.Plans[0].Key)
	require.Equal(t, []plan.DocumentChange{{Key: trainKey, File: train, Change: "modified",
		Fields: []plan.Change{{Field: "spec.roles.worker.count", Before: "1", After: "2"}}}}, got.Proposal.Documents)
	require.Equal(t, "pia", got.Verdicts[0].By.Login)
	require.True(t, got.Verdicts[0].Authority[0].Allowed)

	// Another user takes other documents and gets another plan.
	all := s.apply("tina")
	require.Equal(t, []string{rules, train}, taken(all))
	require.Empty(t, all.Decision.Held)
	require.NotEqual(t, got.Digest, all.Digest)
	require.Equal(t, all.Digest, s.apply("tina").Digest, "the same command has the same result")
}

func TestApplyOverridesNeitherPolicyNorErrors(t *testing.T) {
	t.Parallel()
	other := at + "other.yaml"
	for name, c := range map[string]struct {
		change map[string]string
		reason schema.HeldReason
	}{
		"invalid":          {map[string]string{other: "kind: Instance\n"}, schema.HeldInvalid},
		"denied by policy": {map[string]string{other: instance("other", 8, 8)}, schema.HeldDenied},
		"waits for reference": {map[string]string{other: strings.Replace(instance("other", 1, 1), "app: batch", "app: nowhere", 1)},
			schema.HeldInvalid},
		"deletion protection": {map[string]string{train: ""}, schema.HeldDenied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			over := map[string]string{train: strings.Replace(instance("train", 1, 1), "spec:\n", "spec:\n  deletion_protection: true\n", 1)}
			s := holding(t, "", over, c.change)
			got := s.apply("tina")
			require.Empty(t, got.Taken)
			require.Empty(t, got.Digest)
			require.Len(t, got.Left, 1)
			require.NotEqual(t, schema.HeldUnauthorised, got.Left[0].Reason, got.Left[0].Message)
		})
	}
}

func TestApplyReleasesABlockedDeletion(t *testing.T) {
	t.Parallel()
	files := many(8)
	s := holding(t, "pia", files, without(files))
	require.Len(t, s.was.Permitted, 8, "the author has the permission, but the number is above the limit")
	require.Empty(t, s.apply("vic").Taken)
	require.Empty(t, s.apply("pia").Taken, "the user lacks deletions.acknowledge")
	require.Len(t, s.apply("tina").Taken, 8)

	// In a tenant tree with an invalid file no deletion is released.
	s = holding(t, "pia", files, without(files), map[string]string{at + "broken.yaml": "kind: [\n"})
	require.Empty(t, s.apply("tina").Taken)
	require.Len(t, s.apply("tina").Left, 8)

	// The deletion of a whole tenant needs an acknowledgement.
	gone := map[string]string{}
	for path := range governed(files) {
		if strings.HasPrefix(path, "tenants/physics/") {
			gone[path] = ""
		}
	}
	s = holding(t, "root", files, gone)
	whole := s.apply("root", func(a *decide.Apply) { a.BreakGlass = "they left" })
	require.Empty(t, whole.Taken)
	require.Contains(t, whole.Left[0].Message, "the tenant physics would be deleted as a whole")

	// The blocking file is fixed meanwhile.
	stray := at + "stray.yaml"
	s = holding(t, "pia", nil, map[string]string{train: "", stray: "kind: [\n"})
	require.Equal(t, schema.HeldBlocked, reasons(s.held)[train])
	require.Empty(t, s.apply("pia").Taken)
	s = holding(t, "pia", nil, map[string]string{train: "", stray: "kind: [\n"}, map[string]string{stray: ""})
	require.Empty(t, s.apply("vic").Taken, "the user needs the permission")
	require.Equal(t, []string{train}, taken(s.apply("pia")))

	// Nor in an unreadable tree.
	s = holding(t, "pia", files, without(files))
	s.repo["main"]["tenants/physics/NOTES.md"] = "not read before"
	s.dim = true
	got := s.apply("tina")
	require.Empty(t, got.Taken)
	require.Equal(t, schema.HeldUnreadable, got.Left[0].Reason)
}

// dimmed is a repository with an unreadable tenant physics on main.
type dimmed struct{ trees }

func (r dimmed) Snapshot(ctx context.Context, id string) (schema.Snapshot, error) {
	s, err := r.trees.Snapshot(ctx, id)
	if id != "main" {
		return s, err
	}
	return torn{s, "tenants/physics"}, err
}

func TestApplyOfReplacedVersionIsRefused(t *testing.T) {
	t.Parallel()
	s := holding(t, "", nil, map[string]string{train: instance("train", 2, 1), at + "eval.yaml": instance("eval", 0, 1)},
		map[string]string{train: instance("train", 3, 1)})
	got := s.apply("tina")
	require.Equal(t, []string{train}, got.Replaced)
	require.Equal(t, []string{at + "eval.yaml"}, taken(got))
}

func TestApplyNeedsApprovalRequiredByPolicy(t *testing.T) {
	t.Parallel()
	over := map[string]string{
		rules:        doc("Policy", "policy", "spec:\n  require_approval: true\n"),
		projectRoles: roles("roles", member("pia", "project_owner"), member("pau", "project_owner"), member("mel", "project_member")),
	}
	s := holding(t, "pia", over, map[string]string{train: instance("train", 2, 1)})
	require.Empty(t, s.apply("pia").Taken, "the author is unknown")
	require.Empty(t, s.apply("pia", author("pia")).Taken)
	require.Empty(t, s.apply("mel", author("pia")).Taken, "the user needs the permission")
	require.Equal(t, []string{train}, taken(s.apply("pau", author("pia"))))
	require.Equal(t, []string{train}, taken(s.apply("pia", author("vic"))), "the author needs none")
}

func TestApplyNeedsAReasonForBreakGlassAccess(t *testing.T) {
	t.Parallel()
	s := holding(t, "", nil, map[string]string{train: instance("train", 2, 1)})
	got := s.apply("olga")
	require.Empty(t, got.Taken)
	require.Contains(t, got.Left[0].Message, "break-glass access")
	got = s.apply("olga", func(a *decide.Apply) { a.BreakGlass = "the owner is away" })
	require.Equal(t, []string{train}, taken(got))
	require.True(t, got.Verdicts[0].Authority[0].BreakGlass)
}

// The command uses the roles and policy in force at that time.
func TestApplyUsesTheRolesInForceAtTheCommand(t *testing.T) {
	t.Parallel()
	change := map[string]string{train: instance("train", 2, 1)}
	s := holding(t, "", nil, change)
	require.Empty(t, s.apply("vic").Taken)
	s = holding(t, "", nil, change,
		map[string]string{projectRoles: roles("roles", member("pia", "project_owner"), member("vic", "project_owner"))})
	require.Equal(t, []string{train}, taken(s.apply("vic")))
}

// A document that waits for a reference stays held and unchanged, and the other
// documents come into force.
func TestApplyLeavesHeldDocumentsUnchanged(t *testing.T) {
	t.Parallel()
	eval := at + "eval.yaml"
	s := holding(t, "", nil, map[string]string{
		train: instance("train", 2, 1),
		eval:  strings.Replace(instance("eval", 0, 1), "app: batch", "app: nowhere", 1),
	})
	got := s.apply("tina")
	require.Equal(t, []string{train}, taken(got))
	require.Contains(t, reasons(got.Left), eval)
	require.NotContains(t, got.Permitted, eval, "a held document gets no permission")
}

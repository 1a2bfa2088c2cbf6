package decide_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
	"berth/schema"
	"berth/schema/estate"
)

// torn is a tree with an unreadable part.
type torn struct {
	schema.Snapshot
	part string
}

func (s torn) Parts(ctx context.Context) ([]schema.Part, error) {
	ps, err := s.Snapshot.Parts(ctx)
	for i := range ps {
		if ps[i].Name == s.part {
			ps[i].Hash += "torn"
		}
	}
	return ps, err
}

func (s torn) Files(ctx context.Context, p schema.Part) ([]schema.File, error) {
	if p.Name == s.part {
		return nil, errors.New("too many files")
	}
	return s.Snapshot.Files(ctx, p)
}

// An unreadable tenant tree changes no permission: neither a missing nor a granted
// one.
func TestUnreadablePartKeepsPermissions(t *testing.T) {
	s := tell(t, nil)
	wanting := strings.Replace(instance("eval", 1, 1), "version: v1", "version: v2", 1)
	s.commits("tina", map[string]string{eval: wanting})
	s.commits("vic", map[string]string{projectRoles: roles("roles", member("pia", "project_owner"), member("vic", "project_owner"))})
	d := s.together()
	require.Equal(t, map[string]schema.HeldReason{projectRoles: schema.HeldUnauthorised, eval: schema.HeldInvalid}, reasons(d.Held))
	require.Equal(t, map[string]string{eval: estate.BlobID([]byte(wanting))}, d.Permitted)

	s.commits("vic", map[string]string{"tenants/physics/junk": "x"}, func(st *decide.Step) { st.Tree = torn{st.Tree, "tenants/physics"} })
	d, err := s.d.Commit(t.Context(), s.was, s.steps, "2026-01-31")
	require.NoError(t, err)
	require.Equal(t, map[string]schema.HeldReason{"tenants/physics": schema.HeldUnreadable}, reasons(d.Held))
	s.steps, s.was.Permitted = nil, d.Permitted

	s.commits("olga", map[string]string{
		"tenants/physics/junk": "",
		"platform/catalog/batch/v2.yaml": strings.ReplaceAll(strings.ReplaceAll(s.main["platform/catalog/batch/v1.yaml"], "name: v1",
			"name: v2"), `"1"`, `"2"`),
	})
	d = s.together()
	require.Equal(t, map[string]schema.HeldReason{projectRoles: schema.HeldUnauthorised}, reasons(d.Held))
	require.NotNil(t, d.Effective.Unit(evalKey))
}

// A document held because its reference was deleted does not return with an
// unauthorized change.
func TestYieldingDocumentKeepsPermissions(t *testing.T) {
	op := "tenants/physics/projects/lhc/operations/op.yaml"
	operation := func(what string) string {
		return doc("MemberOperation", "op", "spec:\n  instance: train\n  member: worker-0\n  operation: "+what+"\n  reason: because\n")
	}
	s := tell(t, map[string]string{op: operation("drain")})
	s.commits("vic", map[string]string{op: operation("remove")})
	require.Equal(t, map[string]schema.HeldReason{op: schema.HeldUnauthorised}, reasons(s.together().Held))
	s.commits("pia", map[string]string{train: ""})
	d := s.together()
	require.Nil(t, d.Effective.Unit(trainKey))
	s.commits("pia", map[string]string{train: instance("train", 1, 1)})
	d = s.together()
	require.Equal(t, map[string]schema.HeldReason{op: schema.HeldUnauthorised}, reasons(d.Held))
	require.Empty(t, d.Desired.Tenants["physics"].Projects["lhc"].Operations)

	// An unchanged document returns by itself.
	s = tell(t, map[string]string{op: operation("drain")})
	s.commits("pia", map[string]string{train: ""})
	require.Equal(t, map[string]schema.HeldReason{op: schema.HeldNeeds}, reasons(s.together().Held))
	s.commits("pia", map[string]string{train: instance("train", 1, 1)})
	require.Empty(t, s.together().Held)
}

// A change that is too large to list has an unknown author below the directory it
// names.
func TestUnlistedChangeHasNoAuthor(t *testing.T) {
	eve := "platform/roles/eve.yaml"
	for name, touched := range map[string][]schema.PathChange{
		"a directory": {{Path: "platform/roles", From: "1", To: "2"}},
		"nothing":     nil,
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, nil)
			s.commits("vic", map[string]string{eve: roles("eve", member("eve", "platform_superadmin"))},
				func(st *decide.Step) { st.Touched = touched })
			require.Equal(t, map[string]schema.HeldReason{eve: schema.HeldUnauthorised}, reasons(s.together().Held))
			s.commits("mel", map[string]string{"README.md": "x"})
			require.Equal(t, map[string]schema.HeldReason{eve: schema.HeldUnauthorised}, reasons(s.together().Held))
		})
	}
}

// Another app under the same name is another instance, so a protected instance is not
// replaced.
func TestProtectedInstanceIsNotReplaced(t *testing.T) {
	protected := instance("train", 1, 1) + "  deletion_protection: true\n"
	s := tell(t, map[string]string{
		train:                             protected,
		"platform/catalog/other/app.yaml": doc("App", "other", "spec:\n  display_name: Batch\n  category: scheduler\n  publisher: us\n"),
		"platform/catalog/other/v1.yaml":  estateFiles(nil)["platform/catalog/batch/v1.yaml"],
		"tenants/physics/projects/lhc/entitlements/other.yaml": doc("Entitlement", "other", "spec:\n  enabled: true\n"),
	})
	s.commits("pia", map[string]string{train: strings.Replace(protected, "app: batch", "app: other", 1)})
	d := s.together()
	require.Equal(t, map[string]schema.HeldReason{train: schema.HeldDenied}, reasons(d.Held))
	require.Equal(t, "batch", d.Effective.Unit(trainKey).App)
}

// A last commit that freezes synchronization delays none of the commits before it.
func TestFrozenLastCommitDelaysNoOther(t *testing.T) {
	s := tell(t, nil)
	s.commits("mel", map[string]string{eval: instance("eval", 1, 1)})
	s.commits("vic", map[string]string{"README.md": "x"}, func(st *decide.Step) { st.Tree = torn{st.Tree, "platform"} })
	d, err := s.d.Commit(t.Context(), s.was, s.steps, "2026-01-31")
	require.NoError(t, err)
	require.ErrorIs(t, d.Frozen, decide.ErrFrozen)
	require.Equal(t, "c1", d.Commit)
	require.NotNil(t, d.Effective.Unit(evalKey))
}

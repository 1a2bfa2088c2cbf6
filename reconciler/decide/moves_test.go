package decide_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/authority"
)

// A uid is public: a copy of it in another tenant blocks no deletion before, after or
// together with it.
func TestCopiedUIDBlocksNoDeletion(t *testing.T) {
	people := with(inventory(), map[string]string{train: of(instance("train", 1, 1), "u1")})
	copied := map[string]string{chemAt + "copy.yaml": of(instance("copy", 1, 1), "u1")}
	for name, tells := range map[string]func(*story){
		"before": func(s *story) { s.commits("cleo", copied); s.commits("pia", map[string]string{train: ""}) },
		"after":  func(s *story) { s.commits("pia", map[string]string{train: ""}); s.commits("cleo", copied) },
		"with a deletion of hers": func(s *story) {
			s.commits("cleo", with(copied, map[string]string{train: ""}))
			s.commits("pia", map[string]string{train: people[train]})
			s.commits("pia", map[string]string{train: ""})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, people)
			tells(s)
			d := s.together()
			require.Empty(t, d.Held)
			require.Nil(t, d.Desired.Instance(trainKey))
			require.NotNil(t, d.Desired.Instance(schema.InstanceKey("chem", "lab", "copy")))
		})
	}
}

// A move to another tenant is a deletion and a creation, each with its own permission.
// The first finding of the check reports a half permitted move.
func TestMoveToOtherTenantIsDeletionAndCreation(t *testing.T) {
	const to = chemAt + "train.yaml"
	u1 := of(instance("train", 1, 1), "u1")
	move := map[string]string{train: "", to: u1}
	base := with(inventory(), map[string]string{train: u1})
	for name, c := range map[string]struct {
		by          string
		change      map[string]string
		gone, comes bool
		first       string
	}{
		"both permitted": {by: "olga", change: move, gone: true, comes: true},
		"creation not allowed": {by: "pia", change: move, gone: true,
			first: "deletes Instance physics.lhc/train and does not create Instance chem.lab/train: creates Instance chem.lab/train: pia " +
				"lacks apps.instance.create in chem.lab"},
		"deletion not allowed": {by: "cleo", change: move, comes: true,
			first: "creates Instance chem.lab/train and does not delete Instance physics.lhc/train: deletes Instance physics.lhc/train: " +
				"cleo lacks apps.instance.delete in physics.lhc"},
		"neither": {by: "eve", change: move},
		"creation not valid": {by: "olga",
			change: with(move, map[string]string{to: strings.Replace(u1, "version: v1", "version: v9", 1)}), gone: true,
			first: "deletes Instance physics.lhc/train and does not create Instance chem.lab/train: spec.version: "},
		"deletion is blocked": {by: "olga", change: with(move, map[string]string{at + "broken.yaml": broken}), comes: true,
			first: "creates Instance chem.lab/train and does not delete Instance physics.lhc/train: blocked deletion"},
		"without a uid no pair": {by: "pia", change: map[string]string{train: "", to: instance("train", 1, 1)}, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, base)
			inForce, main := contents(t, s.was.Tree), s.main
			s.commits(c.by, c.change, glass)
			repo := trees{"base": main, "in-force": inForce, "head": s.main}
			p, err := s.d.Proposal(t.Context(),
				decide.Input{Repo: repo, Base: "base", InForce: "in-force", Head: "head", Memory: running(t, loader(t), inForce),
					Today: "2026-01-31",
					By:    &authority.Actor{Login: c.by, Proof: authority.ProofPullRequest, BreakGlass: "it is asked for"}})
			require.NoError(t, err)
			var first string
			marked := 0
			for _, d := range p.Diagnostics {
				if d.Code == plan.CodePartialMove {
					require.Empty(t, first, "reported once")
					first = d.Message
				}
			}
			for _, doc := range p.Documents {
				if doc.Partial != nil {
					require.True(t, strings.HasPrefix(first, doc.Partial.String()), first)
					marked++
				}
			}
			require.Equal(t, first != "", marked == 1)
			require.True(t, first == c.first || c.first != "" && strings.HasPrefix(first, c.first), first)
			require.Equal(t, !c.gone || !c.comes, p.Blocked())
			for range 2 { // the result does not depend on earlier decisions
				d := s.together()
				require.Equal(t, c.gone, d.Desired.Instance(trainKey) == nil, "%v", d.Held)
				require.Equal(t, c.comes, d.Desired.Instance(schema.InstanceKey("chem", "lab", "train")) != nil, "%v", d.Held)
				s.commits("", map[string]string{"README.md": d.Commit})
			}
		})
	}
}

// A held move within a tenant deletes no document, regardless of later changes at its
// destination.
func TestHeldMoveDoesNotDelete(t *testing.T) {
	const moved = at + "learn.yaml"
	u1 := of(instance("learn", 1, 1), "u1")
	for name, then := range map[string]map[string]string{
		"nothing else":        {"README.md": "x"},
		"destination deleted": {moved: ""},
		"uid removed":         {moved: instance("learn", 1, 1)},
		"destination invalid": {moved: broken},
		"moved again":         {moved: "", at + "other.yaml": strings.ReplaceAll(u1, "learn", "other")},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, with(inventory(), map[string]string{train: of(instance("train", 1, 1), "u1")}))
			s.commits("pia", map[string]string{train: "", moved: u1})
			require.Equal(t, map[string]schema.HeldReason{train: schema.HeldDenied, moved: schema.HeldDenied}, reasons(s.together().Held))
			for range 2 {
				s.commits("pia", then)
				d := s.together()
				require.NotNil(t, d.Desired.Instance(trainKey), "%v", d.Held)
				require.Contains(t, reasons(d.Held), train)
			}
			// Moved back, the document is unchanged and can be deleted.
			s.commits("pia", map[string]string{train: of(instance("train", 1, 1), "u1"), moved: "", at + "other.yaml": ""})
			require.Empty(t, s.together().Held)
			s.commits("pia", map[string]string{train: ""})
			require.Nil(t, s.together().Desired.Instance(trainKey))
		})
	}
}

// A move to a place with a missing reference comes into force once the reference
// exists.
func TestMoveWaitsForAReference(t *testing.T) {
	const to = atlas + "service-accounts/ci.yaml"
	s := tell(t, map[string]string{ciFile: account("ci")})
	s.commits("tina", map[string]string{ciFile: "", to: account("ci")})
	require.Equal(t, map[string]schema.HeldReason{ciFile: schema.HeldNeeds, to: schema.HeldNeeds}, reasons(s.together().Held))
	s.commits("tina", map[string]string{atlas + "project.yaml": doc("Project", "atlas", "spec:\n  display_name: Atlas\n")})
	require.Empty(t, s.together().Held)
	require.NotContains(t, contents(t, s.was.Tree), ciFile)
	require.Contains(t, contents(t, s.was.Tree), to)
}

// A document is not deleted while policy denies its new place.
func TestMoveDeniedByPolicyDeletesNothing(t *testing.T) {
	const to = "tenants/physics/shared-runtimes/next/runtime.yaml"
	runtime := func(name string) string {
		return doc("SharedRuntime", name,
			"uid: s1\nspec:\n  app: batch\n  version: v1\n  display_name: D\n  operator_identity_ref: crew\n  roles:\n    worker:\n      "+
				"count: 0\n")
	}
	fix := func(s string) string { return strings.Replace(s, "\nuid: s1", "\n  uid: s1", 1) }
	s := tell(t, map[string]string{shared: fix(runtime("dept")), crewFile: crew})
	s.commits("tina", map[string]string{rules: doc("Policy", "policy",
		"spec:\n  max_gpus_per_instance: 8\n  hard_deny: {apps: [batch]}\n")})
	s.together()
	s.commits("tina", map[string]string{shared: "", to: fix(runtime("next"))})
	d := s.together()
	require.Contains(t, contents(t, s.was.Tree), shared, "%v", d.Held)
	require.NotContains(t, contents(t, s.was.Tree), to)
	require.Contains(t, reasons(d.Held), shared)
}

// A renamed tenant is a deleted tenant, which needs an acknowledgement, and a new one.
func TestRenamedTenantIsDeletedByAcknowledgement(t *testing.T) {
	s := tell(t, geo("geo"))
	s.commits("olga", with(without(geo("geo")), geo("geology")), glass)
	d := s.together()
	require.NotNil(t, quartzOf(d, "geo"))
	require.NotNil(t, quartzOf(d, "geology"))
	s.commits("olga", map[string]string{"README.md": "x"}, acksOf(d)...)
	d = s.together()
	require.Empty(t, d.Held)
	require.Nil(t, d.Desired.Tenants["geo"])
}

package decide_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
	"berth/schema"
	"berth/schema/estate"
)

const (
	limits = "platform/policy/campus.yaml"
	shared = "tenants/physics/shared-runtimes/dept/runtime.yaml"

	crewFile = "tenants/physics/service-accounts/crew.yaml" // the operator of shared
	crew     = "apiVersion: berth/v1\nkind: ServiceAccount\nmetadata: {name: crew}\nspec: {display_name: Crew, public_keys: [], scopes: " +
		"[shared_runtimes.member.operate], allowed_endpoints: []}\n"
	atlas  = "tenants/physics/projects/atlas/"
	ciFile = "tenants/physics/projects/lhc/service-accounts/ci.yaml"
	broken = "kind: [\n"
)

// glass requests break-glass access.
func glass(s *decide.Step) { s.By.BreakGlass = "it is asked for" }

// inventory has documents of most guarded kinds, and grants.
func inventory() map[string]string {
	return with(chem(4), map[string]string{
		"tenants/chem/roles.yaml": roles("roles", member("cleo", "tenant_owner")),
		limits:                    doc("Policy", "campus", "spec:\n  max_gpus_per_instance: 8\n"),
		crewFile:                  crew,
		shared: doc("SharedRuntime", "dept",
			"spec:\n  app: batch\n  version: v1\n  display_name: D\n  operator_identity_ref: crew\n  roles:\n    worker:\n      count: "+
				"0\n"),
		atlas + "project.yaml": doc("Project", "atlas", "spec:\n  display_name: Atlas\n"),
		ciFile:                 account("ci"),
	})
}

func heldAt(held []schema.Held, file string) schema.Held {
	for _, h := range held {
		if h.File == file {
			return h
		}
	}
	return schema.Held{}
}

// A deletion of a guarded kind is blocked while any file of its tree is invalid. It
// stays blocked through other merges.
func TestInvalidFileOfTheTreeBlocksDeletion(t *testing.T) {
	t.Parallel()
	const lhc = "tenants/physics/projects/lhc/"
	for name, c := range map[string]struct{ gone, failing, text string }{
		"renamed to another extension": {train, at + "train.yml", instance("train", 1, 1)},
		"upper case":                   {train, at + "Train.yaml", instance("train", 1, 1)},
		"a directory misspelt":         {train, lhc + "instance/train.yaml", instance("train", 1, 1)},
		"another name, and not in it":  {train, at + "learn.yaml", instance("train", 1, 1)},
		"an unknown field": {train, at + "learn.yaml",
			strings.Replace(instance("learn", 1, 1), "display_name", "display_nmae", 1)},
		"not YAML":            {train, at + "learn.yaml", "\xff\xfe"},
		"an unrelated stray":  {train, "tenants/physics/notes.txt", "buy milk\n"},
		"another project's":   {train, atlas + "instances/eval.yaml", broken},
		"the tenant's roles":  {train, tenantRoles, broken},
		"tenant.yaml":         {train, "tenants/physics/tenant.yaml", broken},
		"a tenant's policy":   {rules, "tenants/physics/policy.yml", doc("Policy", "policy", "spec: {}\n")},
		"a project":           {atlas + "project.yaml", at + "learn.yaml", broken},
		"a shared runtime":    {shared, at + "learn.yaml", broken},
		"a platform's policy": {limits, "platform/policy/Campus.yaml", doc("Policy", "campus", "spec: {}\n")},
		"a node":              {"platform/nodes/gpu-3.yaml", "platform/node/gpu-3.yaml", estateFiles(nil)["platform/nodes/gpu-3.yaml"]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := tell(t, inventory())
			before := s.main[c.failing]
			s.commits("olga", map[string]string{c.gone: "", c.failing: c.text}, glass)
			d := s.together()
			h := heldAt(d.Held, c.gone)
			require.Equal(t, schema.HeldBlocked, h.Reason)
			require.Contains(t, h.Message, c.failing)
			digest := h.Ack
			require.NotEmpty(t, digest)

			// No other merge releases the deletion, neither before nor after the fix.
			for _, fix := range []map[string]string{{"README.md": "1"}, {c.failing: before}, {"README.md": "2"}} {
				s.commits("olga", fix, glass)
				h = heldAt(s.together().Held, c.gone)
				require.Equal(t, schema.HeldBlocked, h.Reason)
				require.Contains(t, h.Message, "/berth apply")
				require.Contains(t, contents(t, s.was.Tree), c.gone)
			}
			require.Equal(t, digest, h.Ack, "the same documents have the same digest")
			s.commits("olga", map[string]string{"README.md": "3"}, glass, ack(digest))
			s.together()
			require.NotContains(t, contents(t, s.was.Tree), c.gone)
		})
	}
}

// An acknowledgement before the files are fixed deletes exactly the listed documents.
func TestAcknowledgedDeletionCoversExactlyTheListedDocuments(t *testing.T) {
	t.Parallel()
	s := tell(t, with(inventory(), many(2)))
	s.commits("pia", map[string]string{train: "", at + "broken.yaml": broken})
	digest := heldAt(s.together().Held, train).Ack
	s.commits("pia", map[string]string{at + "i00.yaml": ""})
	d := s.together()
	require.Equal(t, schema.HeldBlocked, reasons(d.Held)[train])
	require.NotEqual(t, heldAt(d.Held, train).Ack, heldAt(d.Held, at+"i00.yaml").Ack, "each merge has its own digest")

	s.commits("tina", map[string]string{"README.md": "1"}, ack(digest))
	require.NotNil(t, s.together().Desired.Instance(trainKey), "two documents are held by now")
	both := heldAt(s.together2(t), train).Ack
	s.commits("pia", map[string]string{"README.md": "2"}, ack(both))
	require.NotNil(t, s.together().Desired.Instance(trainKey), "a project owner lacks deletions.acknowledge")
	s.commits("tina", map[string]string{"README.md": "3"}, ack(both))
	d = s.together()
	require.Nil(t, d.Desired.Instance(trainKey))
	require.Equal(t, map[string]schema.HeldReason{at + "broken.yaml": schema.HeldInvalid}, reasons(d.Held))

	// The same with an acknowledgement in the merge itself.
	s = tell(t, inventory())
	s.commits("tina", map[string]string{train: "", at + "broken.yaml": broken}, ack(digest))
	require.Nil(t, s.together().Desired.Instance(trainKey))
}

// together2 decides a commit without any change of the estate.
func (s *story) together2(t *testing.T) []schema.Held {
	t.Helper()
	s.commits("", map[string]string{"NOTES": fmt.Sprint(s.n)})
	return s.together().Held
}

// Only invalid files of the same tree block a deletion. Permissions of their author,
// policy, references and other trees do not.
func TestOnlyInvalidFilesOfTheTreeBlockDeletion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		by     string
		beside map[string]string
	}{
		"another tenant's":          {"cleo", map[string]string{chemAt + "train.yml": instance("train", 1, 1)}},
		"another tenant's with uid": {"cleo", map[string]string{chemAt + "copy.yml": of(instance("train", 1, 1), "u1")}},
		"the platform's":            {"olga", map[string]string{"platform/train.yaml": instance("train", 1, 1)}},
		"outside of the estate":     {"olga", map[string]string{"archive/train.yaml": broken}},
		"without permission":        {"eve", map[string]string{at + "eval.yaml": instance("eval", 1, 1)}},
		"denied by policy":          {"pia", map[string]string{at + "eval.yaml": instance("eval", 8, 8)}},
		"waiting for a reference": {"pia",
			map[string]string{at + "eval.yaml": strings.Replace(instance("eval", 1, 1), "version: v1", "version: v9", 1)}},
		"a tenant's directory": {"olga", map[string]string{"tenants/Physics/notes.txt": broken}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := tell(t, with(inventory(), map[string]string{train: of(instance("train", 1, 1), "u1")}))
			s.commits(c.by, c.beside)
			s.commits("pia", map[string]string{train: ""})
			d := s.together()
			require.Nil(t, d.Desired.Instance(trainKey), "%v", d.Held)
			require.NotContains(t, reasons(d.Held), train)
		})
	}
}

// The deletion of a grant or of the pause needs its permission and is not blocked by
// invalid files.
func TestGrantIsDeletedBesideFailingFiles(t *testing.T) {
	t.Parallel()
	const pause = "platform/pause.yaml"
	s := tell(t, with(inventory(), map[string]string{
		pause: doc("Pause", "pause", "spec: {reason: an outage}\n"), "platform/nodes/Broken.yaml": "",
		atlas + "entitlements/batch.yaml": doc("Entitlement", "batch", "spec:\n  enabled: true\n"),
	}))
	s.commits("olga", map[string]string{"platform/broken.yaml": broken, at + "broken.yaml": broken}, glass)
	s.together()
	s.commits("tina", map[string]string{projectRoles: "", ciFile: "", atlas + "entitlements/batch.yaml": ""})
	s.commits("olga", map[string]string{pause: ""})
	d := s.together()
	require.Equal(t, map[string]schema.HeldReason{"platform/broken.yaml": schema.HeldInvalid, at + "broken.yaml": schema.HeldInvalid},
		reasons(d.Held))
	require.Empty(t, d.Paused())
	for _, path := range []string{projectRoles, ciFile, atlas + "entitlements/batch.yaml", pause} {
		require.NotContains(t, contents(t, s.was.Tree), path)
	}

	s = tell(t, inventory())
	s.commits("vic", map[string]string{projectRoles: ""})
	require.Equal(t, map[string]schema.HeldReason{projectRoles: schema.HeldUnauthorised}, reasons(s.together().Held))
}

// A deletion that waited for a reference comes into force by a command only.
func TestDeletionDoesNotComeWithAnotherMerge(t *testing.T) {
	t.Parallel()
	const quark = atlas + "instances/quark.yaml"
	s := tell(t, with(inventory(),
		map[string]string{atlas + "entitlements/batch.yaml": doc("Entitlement", "batch", "spec:\n  enabled: true\n"),
			quark: instance("quark", 0, 1)}))
	s.commits("tina", map[string]string{atlas + "project.yaml": ""})
	require.Equal(t, schema.HeldNeeds, reasons(s.together().Held)[atlas+"project.yaml"])
	s.commits("tina", map[string]string{quark: "", atlas + "entitlements/batch.yaml": ""})
	d := s.together()
	require.Equal(t, map[string]schema.HeldReason{atlas + "project.yaml": schema.HeldBlocked}, reasons(d.Held))
	s.commits("tina", map[string]string{"README.md": "1"}, ack(d.Held[0].Ack))
	require.Empty(t, s.together().Held)
	require.NotContains(t, contents(t, s.was.Tree), atlas+"project.yaml")
}

// Commits that are decided together remain separate merges.
func TestBlockedDeletionIsTheSameDecidedTogether(t *testing.T) {
	t.Parallel()
	for _, together := range []bool{false, true} {
		s := tell(t, inventory())
		s.commits("pia", map[string]string{train: "", at + "broken.yaml": broken})
		if !together {
			s.together()
		}
		s.commits("pia", map[string]string{at + "broken.yaml": ""})
		require.Equal(t, map[string]schema.HeldReason{train: schema.HeldBlocked}, reasons(s.together().Held))
	}
}

// geo is a small tenant with one instance that has a uid.
func geo(name string) map[string]string {
	at := "tenants/" + name + "/"
	return map[string]string{
		at + "tenant.yaml":                        doc("Tenant", name, "spec:\n  display_name: G\n"),
		at + "projects/p/project.yaml":            doc("Project", "p", "spec:\n  display_name: P\n"),
		at + "projects/p/entitlements/batch.yaml": doc("Entitlement", "batch", "spec:\n  enabled: true\n"),
		at + "projects/p/instances/quartz.yaml":   of(instance("quartz", 1, 1), "u-quartz"),
	}
}

func quartzOf(d decide.Decision, tenant string) *schema.Instance {
	return d.Desired.Instance(schema.InstanceKey(tenant, "p", "quartz"))
}

// acksOf returns acknowledgements for all deletions that accept one.
func acksOf(d decide.Decision) []func(*decide.Step) {
	all := []func(*decide.Step){glass}
	for _, h := range d.Held {
		if digest := h.Ack; digest != "" {
			all = append(all, ack(digest))
		}
	}
	return all
}

// The deletion of a whole tenant needs its own acknowledgement, regardless of its size
// and running instances.
func TestTenantIsDeletedByAcknowledgementOnly(t *testing.T) {
	t.Parallel()
	both := with(geo("geo"), geo("empty"))
	delete(both, "tenants/empty/projects/p/instances/quartz.yaml")
	s := tell(t, both)
	s.commits("olga", without(both), glass)
	d := s.together()
	require.Len(t, d.Held, len(both))
	digests := map[string]string{}
	for _, h := range d.Held {
		require.Equal(t, schema.HeldBlocked, h.Reason)
		require.Contains(t, h.Message, "as a whole")
		digests[h.File] = h.Ack
	}
	require.NotEqual(t, digests["tenants/geo/tenant.yaml"], digests["tenants/empty/tenant.yaml"])
	s.commits("olga", map[string]string{"README.md": "x"}, glass, ack(digests["tenants/geo/tenant.yaml"]))
	d = s.together()
	require.Nil(t, d.Desired.Tenants["geo"])
	require.NotNil(t, d.Desired.Tenants["empty"], "that one was not acknowledged")
}

// Without tenant.yaml no document of its tree is deleted, and a finding names the
// missing file.
func TestMissingTenantFileDeletesNothing(t *testing.T) {
	t.Parallel()
	s := tell(t, geo("geo"))
	gone := map[string]string{"tenants/geo/tenant.yaml": "", "tenants/geo/projects/p/instances/quartz.yaml": ""}
	s.commits("olga", gone, glass)
	d := s.together()
	require.NotNil(t, quartzOf(d, "geo"))
	require.Equal(t, schema.HeldBlocked, reasons(d.Held)["tenants/geo/tenant.yaml"])
	// A document that needs the tenant keeps it, despite an acknowledgement.
	s.commits("olga", map[string]string{"README.md": "x"}, acksOf(d)...)
	d = s.together()
	require.Nil(t, quartzOf(d, "geo"))
	require.NotNil(t, d.Desired.Tenants["geo"])
}

// An acknowledgement does not delete documents missing because of an unreadable tree
// or a missing platform.
func TestAcknowledgementDoesNotCoverUnreadableTree(t *testing.T) {
	t.Parallel()
	s := tell(t, geo("geo"))
	s.commits("olga", without(geo("geo")), glass)
	d := s.together()
	s.commits("olga", map[string]string{"README.md": "x"},
		append(acksOf(d), func(st *decide.Step) { st.Tree = torn{st.Tree, "tenants/physics"} })...)
	s.commits("olga", map[string]string{train: ""}, glass, func(st *decide.Step) { st.Tree = torn{st.Tree, "tenants/physics"} })
	d, err := s.d.Commit(t.Context(), s.was, s.steps, "2026-01-31")
	require.NoError(t, err)
	require.NotNil(t, d.Desired.Instance(trainKey))
	require.Nil(t, d.Desired.Tenants["geo"], "another tree can be read")

	s = tell(t, nil)
	gone := map[string]string{}
	for path := range s.main {
		if strings.HasPrefix(path, "platform/") {
			gone[path] = ""
		}
	}
	s.commits("root", gone)
	d = s.together()
	s.commits("root", map[string]string{"README.md": "x"}, acksOf(d)...)
	d = s.together()
	for path := range gone {
		require.Contains(t, contents(t, s.was.Tree), path)
		require.Empty(t, heldAt(d.Held, path).Ack)
	}
}

// A file blocks no deletion of its tree if only users without the permission changed it.
func TestFilesOfStrangersBlockNoDeletion(t *testing.T) {
	const junk = "tenants/physics/projects/lhc/junk.yaml"
	for name, files := range map[string]map[string]string{
		"in the tree of a tenant": {junk: "a: ["}, "an instance": {at + "eval.yaml": "a: ["},
		"the tenant itself": {"tenants/physics/tenant.yaml": ""}, "a damaged document": {entitlement: "a: ["},
	} {
		s := tell(t, with(chem(8), map[string]string{chemRoles: roles("roles", member("cleo", "project_owner"))}))
		s.commits("cleo", files)
		s.commits("pia", map[string]string{train: ""})
		d := s.together()
		require.Equal(t, map[string]schema.HeldReason{slices.Collect(maps.Keys(files))[0]: schema.HeldUnauthorised}, reasons(d.Held), name)
		require.Nil(t, d.Desired.Instance(trainKey), name)
	}
	s := tell(t, with(chem(8), map[string]string{chemRoles: roles("roles", member("cleo", "project_owner"))}))
	s.commits("cleo", map[string]string{"platform/nodes/junk.yml": "a: ["})
	s.commits("olga", map[string]string{"platform/nodes/gpu-3.yaml": ""})
	require.Equal(t, map[string]schema.HeldReason{"platform/nodes/junk.yml": schema.HeldUnauthorised}, reasons(s.together().Held),
		"in the tree of the platform")

	named := func(name string) string {
		return strings.Replace(instance(name, 1, 1), "metadata:\n", "metadata:\n  uid: u1\n", 1)
	}
	s = tell(t, with(chem(8), map[string]string{chemRoles: roles("roles", member("cleo", "project_owner")), train: named("train")}))
	s.commits("cleo", map[string]string{at + "other.yaml": named("other")})
	s.commits("pia", map[string]string{train: ""})
	d := s.together()
	require.Equal(t, map[string]schema.HeldReason{at + "other.yaml": schema.HeldUnauthorised}, reasons(d.Held),
		"a valid document with the uid of the deleted one")
	require.Nil(t, d.Desired.Instance(trainKey))
	var changed []string
	for _, v := range d.Verdicts {
		changed = append(changed, v.By.Login+" "+v.Document.Change+" "+v.Document.File)
	}
	require.ElementsMatch(t, []string{"cleo added " + at + "other.yaml", "pia deleted " + train}, changed)

	// A stranger's document with the uid takes nothing from a move, wherever its path sorts: the
	// account stays in force until its new place can be.
	for _, place := range []string{"aaa", "zzz"} {
		from, to := "tenants/physics/projects/lhc/service-accounts/ci.yaml", "tenants/physics/projects/atlas/service-accounts/ci.yaml"
		s = tell(t, with(chem(8), map[string]string{chemRoles: roles("roles", member("cleo", "project_owner")), from: account("ci")}))
		s.commits("cleo", map[string]string{"tenants/physics/projects/" + place + "/service-accounts/ci.yaml": account("ci")})
		s.commits("tina", map[string]string{from: "", to: account("ci")})
		held := reasons(s.together().Held)
		require.Equal(t, schema.HeldNeeds, held[from], "%s: %v", place, held)
		require.Contains(t, held, to, place)
	}

	s = tell(t, nil)
	s.commits("pia", map[string]string{train: "", junk: instance("train", 1, 1)})
	require.Equal(t, schema.HeldBlocked, reasons(s.together().Held)[train], "whoever deletes may have meant to move it")

	s = tell(t, with(chem(8), map[string]string{chemRoles: roles("roles", member("cleo", "project_owner"))}))
	s.commits("pia", map[string]string{at + "train2.yaml": broken})
	s.commits("cleo", map[string]string{at + "train2.yaml": broken + "# touched\n"})
	s.commits("pia", map[string]string{train: ""})
	require.Equal(t, schema.HeldBlocked, reasons(s.together().Held)[train],
		"a stranger who touches the new place does not release the deletion")
}

// Random histories of a tenant and its neighbour: a guarded document is deleted only
// in a step that deletes it, by a user with the permission, from a tree without an
// invalid file, save those that users without the permission put there earlier.
func TestDeletionRuleHoldsInAnyHistory(t *testing.T) {
	t.Parallel()
	deletionRuleHolds(t, 0, 10)
}

func deletionRuleHolds(t *testing.T, first, histories uint64) {
	base := with(inventory(), many(3))
	files := slices.Sorted(maps.Keys(governed(base)))
	files = slices.DeleteFunc(files, func(p string) bool {
		return !strings.HasPrefix(p, "tenants/physics/") || p == "tenants/physics/tenant.yaml"
	})
	deleted, blocked, l := 0, 0, loader(t)
	for seed := first; seed < first+histories; seed++ {
		r := rand.New(rand.NewPCG(seed, 5))
		s := tellBy(t, l, base)
		start := s.main
		for range 12 {
			was := contents(t, s.was.Tree)
			change := map[string]string{}
			for range 1 + r.IntN(3) {
				path := files[r.IntN(len(files))]
				switch r.IntN(12) {
				case 0, 1, 2, 3:
					change[path] = ""
				case 4:
					change[path] = broken
				case 5:
					change[at+"stray.yaml"] = broken
				case 6, 7:
					change[at+"stray.yaml"] = ""
				default:
					change[path] = start[path]
				}
			}
			change[chemAt+"noise.yaml"] = []string{"", broken}[r.IntN(2)]
			who := []string{"tina", "vic"}[r.IntN(2)]
			main := s.main
			s.commits(who, change)
			touched := s.steps[0].Touched
			d := s.together()
			now := contents(t, s.was.Tree)
			r2, err := l.Load(t.Context(), estate.Files(s.main))
			require.NoError(t, err)
			failing, _ := r2.Failing("tenants/physics")
			failing = slices.DeleteFunc(failing, func(path string) bool {
				now := slices.ContainsFunc(touched, func(c schema.PathChange) bool { return c.Path == path })
				return !now && reasons(d.Held)[path] == schema.HeldUnauthorised
			})
			for path := range was {
				key, _ := schema.KeyAt(path)
				if _, stays := now[path]; stays || !key.Kind.GuardsDeletion() || !strings.HasPrefix(path, "tenants/physics/") {
					continue
				}
				deleted++
				_, there := main[path]
				require.True(t, there && change[path] == "", "seed %d: %s deleted by another merge", seed, path)
				require.Equal(t, "tina", who, "seed %d: %s", seed, path)
				require.Empty(t, failing, "seed %d: %s deleted from an invalid tree", seed, path)
			}
			for _, h := range d.Held {
				if h.Reason == schema.HeldBlocked {
					blocked++
				}
			}
		}
	}
	t.Logf("%d deletions, %d blocked", deleted, blocked)
	require.Greater(t, deleted, int(histories)/10)
	require.Greater(t, blocked, int(histories))
}

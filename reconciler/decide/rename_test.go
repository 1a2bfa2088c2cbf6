package decide_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
	"berth/schema"
	"berth/schema/estate"
)

// geo is a small tenant with one instance, which has a uid.
func geo(name string) map[string]string {
	at := "tenants/" + name + "/"
	return map[string]string{
		at + "tenant.yaml":                        doc("Tenant", name, "spec:\n  display_name: G\n"),
		at + "projects/p/project.yaml":            doc("Project", "p", "spec:\n  display_name: P\n"),
		at + "projects/p/entitlements/batch.yaml": doc("Entitlement", "batch", "spec:\n  enabled: true\n"),
		at + "projects/p/instances/quartz.yaml":   of(instance("quartz", 1, 1), "u-quartz"),
	}
}

const quartz = "tenants/geo/projects/p/instances/quartz.yaml"

func quartzOf(d decide.Decision, tenant string) *schema.Instance {
	return d.Desired.Instance(schema.InstanceKey(tenant, "p", "quartz"))
}

func glass(s *decide.Step) { s.By.BreakGlass = "it is asked for" }

// A tenant that is renamed with its uids kept is neither deleted nor made anew,
// whatever is acknowledged and whatever comes later, until it is named back or
// the uid is taken away.
func TestARenamedTenantKeepsWhatRuns(t *testing.T) {
	renamed := with(without(geo("geo")), geo("geology"))
	for name, mend := range map[string]struct {
		change map[string]string
		old    bool
	}{
		"named back":         {with(without(geo("geology")), geo("geo")), true},
		"the uid taken away": {map[string]string{"tenants/geology/projects/p/instances/quartz.yaml": instance("quartz", 1, 1)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, geo("geo"))
			s.commits("olga", renamed, glass)
			var d decide.Decision
			for range 3 {
				d = s.together()
				require.NotNil(t, quartzOf(d, "geo"))
				require.Nil(t, quartzOf(d, "geology"))
				require.Equal(t, estate.HeldDenied, reasons(d.Held)[quartz])
				s.commits("olga", map[string]string{"README.md": d.Commit}, acksOf(d)...)
			}
			s.commits("olga", mend.change, glass)
			d = s.together()
			s.commits("olga", map[string]string{"README.md": "done"}, acksOf(d)...)
			d = s.together()
			require.Empty(t, d.Held)
			require.Equal(t, mend.old, quartzOf(d, "geo") != nil)
			require.Equal(t, mend.old, quartzOf(d, "geology") == nil)
			require.Empty(t, d.Moved)
		})
	}
}

// acksOf acknowledge all that waits for it.
func acksOf(d decide.Decision) []func(*decide.Step) {
	all := []func(*decide.Step){glass}
	for _, h := range d.Held {
		if digest := decide.AckOf(h); digest != "" {
			all = append(all, ack(digest))
		}
	}
	return all
}

// Who may not delete what runs does not have it deleted by spoiling where it went.
func TestAMoveIsRememberedWhileItsNewEndIsSpoilt(t *testing.T) {
	for path, text := range map[string]string{
		"tenants/geology/projects/p/instances/quartz.yaml": "what: is this\n",
		"tenants/geology/projects/p/project.yaml":          "what: is this\n",
		"tenants/geology/tenant.yaml":                      "what: is this\n",
	} {
		s := tell(t, geo("geo"))
		s.commits("olga", with(without(geo("geo")), geo("geology")), glass)
		s.commits("eve", map[string]string{path: text}, acksOf(s.together())...)
		for range 2 {
			d := s.together()
			require.NotNil(t, quartzOf(d, "geo"), path)
			s.commits("olga", map[string]string{"README.md": d.Commit}, acksOf(d)...)
		}
	}
}

// A uid is no secret: that another tenant's people copy it, before, after or with
// what they may not delete, stops no deletion.
func TestACopiedUIDStopsNoDeletion(t *testing.T) {
	people := with(chem(4), map[string]string{"tenants/chem/roles.yaml": roles("roles", member("eve", "tenant_owner")), train: of(instance("train", 1, 1), "u1")})
	copied := map[string]string{chemAt + "copy.yaml": of(instance("copy", 1, 1), "u1")}
	gone := map[string]string{train: ""}
	for name, tells := range map[string]func(*story){
		"before": func(s *story) { s.commits("eve", copied); s.commits("pia", gone) },
		"after, while it waits": func(s *story) {
			s.commits("pia", with(gone, map[string]string{at + "train.yml": "x"}))
			s.commits("eve", copied)
			s.commits("pia", map[string]string{at + "train.yml": ""})
		},
		"with a deletion of hers": func(s *story) {
			s.commits("eve", with(gone, copied))
			s.commits("pia", map[string]string{train: people[train]})
			s.commits("pia", gone)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t, people)
			tells(s)
			d := s.together()
			require.Nil(t, d.Desired.Instance(trainKey), "%v", d.Held)
			require.NotContains(t, reasons(d.Held), train)
		})
	}
}

// A move that is held is remembered while the other tenant cannot be read.
func TestARenamedTenantThatCannotBeRead(t *testing.T) {
	s := tell(t, geo("geo"))
	s.commits("olga", with(without(geo("geo")), geo("geology")), glass)
	d := s.together()
	s.commits("olga", map[string]string{"README.md": "x"}, append(acksOf(d), func(st *decide.Step) { st.Tree = torn{st.Tree, "tenants/geology"} })...)
	d, err := s.d.Commit(t.Context(), s.was, s.steps, "2026-01-31")
	require.NoError(t, err)
	require.NotNil(t, quartzOf(d, "geo"))
	require.NotEmpty(t, d.Moved)
}

// A tenant goes with what runs there only if just that is acknowledged, however
// small it is and however many go at once.
func TestATenantThatRunsSomethingGoesByAcknowledgementOnly(t *testing.T) {
	both := with(geo("geo"), geo("geophysics"))
	both["tenants/geophysics/projects/p/instances/quartz.yaml"] = instance("quartz", 1, 1)
	s := tell(t, both)
	s.commits("olga", without(both), glass)
	d := s.together()
	require.Len(t, d.Held, len(both))
	require.NotNil(t, quartzOf(d, "geo"))
	digests := map[string]string{}
	for _, h := range d.Held {
		require.Contains(t, h.Message, "and all that runs there")
		digests[h.File] = decide.AckOf(h)
	}
	require.NotEqual(t, digests[quartz], digests["tenants/geophysics/tenant.yaml"])
	s.commits("olga", map[string]string{"README.md": "x"}, glass, ack(digests[quartz]))
	d = s.together()
	require.Nil(t, d.Desired.Tenants["geo"])
	require.NotNil(t, quartzOf(d, "geophysics"), "that one was not")

	// One for which nothing runs is what its documents are.
	s = tell(t, chem(1))
	s.commits("olga", without(chem(1)), glass)
	require.Empty(t, s.together().Held)
}

// A tenant's uid makes no move of its renaming, as nothing of a tenant's can go to
// another's: what runs there goes by acknowledgement, and nobody's copy of the uid
// stops that.
func TestATenantsUIDIsOfItsNameOnly(t *testing.T) {
	uid := func(name string) map[string]string {
		at := "tenants/" + name + "/"
		return with(geo(name), map[string]string{
			at + "tenant.yaml":                      of(doc("Tenant", name, "spec:\n  display_name: G\n"), "u-geo"),
			at + "projects/p/instances/quartz.yaml": instance("quartz", 1, 1),
		})
	}
	t.Run("renamed", func(t *testing.T) {
		s := tell(t, uid("geo"))
		s.commits("olga", with(without(uid("geo")), uid("geology")), glass)
		d := s.together()
		require.NotNil(t, quartzOf(d, "geo"), "nobody acknowledged it")
		s.commits("olga", map[string]string{"README.md": "x"}, acksOf(d)...)
		d = s.together()
		require.Nil(t, quartzOf(d, "geo"), "%v", d.Held)
		require.NotNil(t, quartzOf(d, "geology"))
	})
	t.Run("copied", func(t *testing.T) {
		const evil = "tenants/evil/tenant.yaml"
		s := tell(t, uid("geo"))
		s.commits("eve", map[string]string{evil: of(doc("Tenant", "evil", "spec:\n  display_name: E\n"), "u-geo")})
		s.commits("olga", without(uid("geo")), glass)
		s.commits("olga", map[string]string{"README.md": "x"}, acksOf(s.together())...)
		d := s.together()
		require.Nil(t, d.Desired.Tenants["geo"])
		require.Equal(t, map[string]string{evil: estate.HeldUnauthorised}, reasons(d.Held))
	})
}

package decide_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
)

// chemTrain is where pia moves train to, which is not hers.
const chemTrain = chemAt + "train.yaml"

// twoTenants are physics, where pia may delete train, and chem, which is cleo's.
func twoTenants() map[string]string {
	return with(chem(4), map[string]string{train: of(instance("train", 1, 1), "u1"), "tenants/chem/roles.yaml": roles("roles", member("cleo", "tenant_owner"))})
}

// A move to another tenant that is held does not become a deletion by what
// somebody does who may not delete: only who may lifts it, or puts it back.
func TestAHeldMoveIsNoDeletionOfSomebodyElses(t *testing.T) {
	u1, edited := of(instance("train", 1, 1), "u1"), of(instance("train", 2, 1), "u1")
	move := map[string]string{train: "", chemTrain: u1}
	type by struct {
		who    string
		change map[string]string
	}
	ends := []struct {
		by    []by
		stays bool
	}{
		{[]by{{"pia", map[string]string{train: u1}}}, true},
		{[]by{{"pia", map[string]string{train: u1}}, {"pia", map[string]string{train: ""}}}, false},
		{[]by{{"", map[string]string{train: u1}}}, true},
		{[]by{{"pia", map[string]string{chemTrain: instance("train", 3, 1), chemAt + "learn.yaml": "", chemAt + "learn.yml": ""}}}, false},
	}
	for i, c := range []struct {
		name  string
		steps []by
	}{
		{"its new end deleted", []by{{"pia", move}, {"cleo", map[string]string{chemTrain: ""}}}},
		{"its new end deleted by a stranger", []by{{"pia", move}, {"eve", map[string]string{chemTrain: ""}}}},
		{"the uid taken away", []by{{"pia", move}, {"eve", map[string]string{chemTrain: instance("train", 1, 1)}}}},
		{"its new end moved on", []by{{"pia", move}, {"cleo", map[string]string{chemTrain: "", chemAt + "learn.yaml": of(instance("learn", 1, 1), "u1")}}}},
		{"moved on by who may delete", []by{{"pia", move}, {"pia", map[string]string{chemTrain: "", chemAt + "learn.yaml": of(instance("learn", 1, 1), "u1")}}}},
		{"misfiled there by who may delete", []by{{"pia", move}, {"pia", map[string]string{chemTrain: "", chemAt + "learn.yml": u1}}}},
		{"its old end edited and deleted", []by{{"pia", move}, {"eve", map[string]string{train: edited}}, {"eve", map[string]string{train: ""}}}},
		{"the same of who may do both ends", []by{{"olga", move}, {"eve", map[string]string{train: edited}}, {"eve", map[string]string{train: ""}}}},
		{"its old end spoilt and both deleted", []by{{"olga", move}, {"eve", map[string]string{train: "what: is this\n"}}, {"eve", map[string]string{train: "", chemTrain: ""}}}},
	} {
		for n, warm := range []bool{true, false} {
			t.Run(fmt.Sprint(c.name, ", one by one ", warm), func(t *testing.T) {
				s, end := tell(t, twoTenants()), ends[(i+n)%len(ends)]
				for _, step := range c.steps {
					s.commits(step.who, step.change, glass)
					if warm {
						require.NotNil(t, s.together().Desired.Instance(trainKey))
						require.NotContains(t, contents(t, s.was.Tree), chemTrain)
					}
				}
				for range 2 {
					s.commits("mel", map[string]string{"README.md": s.main["README.md"] + "x"})
					d := s.together()
					require.NotNil(t, d.Desired.Instance(trainKey), "%v", d.Held)
					require.Contains(t, reasons(d.Held), train)
				}
				var d decide.Decision
				for _, step := range end.by {
					s.commits(step.who, step.change)
					d = s.together()
				}
				require.Equal(t, end.stays, d.Desired.Instance(trainKey) != nil, "%v", d.Held)
				require.NotContains(t, reasons(d.Held), train)
				require.Empty(t, d.Moved)
			})
		}
	}
}

// What was moved back is as it was before: who wrote something wrong where it was
// has no more to do with it.
func TestAMoveThatWasTakenBackIsForgotten(t *testing.T) {
	for _, path := range []string{chemTrain, "tenants/chem/projects/lab/project.yaml", "tenants/chem/tenant.yaml"} {
		s := tell(t, twoTenants())
		s.commits("olga", map[string]string{train: "", chemTrain: of(instance("train", 1, 1), "u1")}, glass)
		s.commits("cleo", map[string]string{path: "what: is this\n"})
		require.NotNil(t, s.together().Desired.Instance(trainKey))
		s.commits("pia", map[string]string{train: of(instance("train", 1, 1), "u1")})
		require.Empty(t, s.together().Moved, path)
		s.commits("pia", map[string]string{train: of(instance("train", 2, 1), "u1")})
		d := s.together()
		require.NotContains(t, reasons(d.Held), train, path)
		require.Equal(t, 2, d.Desired.Instance(trainKey).Spec.Roles["worker"].Count)
		s.commits("pia", map[string]string{train: ""})
		d = s.together()
		require.Nil(t, d.Desired.Instance(trainKey), "%s: %v", path, d.Held)
		require.NotContains(t, reasons(d.Held), train, path)
	}
}

// A move to another tenant is one also while its new end is no valid document, or
// waits for another; it ends as others do.
func TestAMoveAbroadToWhatDoesNotStand(t *testing.T) {
	u1 := of(instance("train", 1, 1), "u1")
	const beam = "tenants/chem/projects/beam/"
	for name, c := range map[string]struct {
		to, text string
		base     map[string]string
	}{
		"not entitled":         {beam + "instances/train.yaml", u1, map[string]string{beam + "project.yaml": doc("Project", "beam", "spec:\n  display_name: B\n")}},
		"no project":           {beam + "instances/train.yaml", u1, nil},
		"no tenant":            {"tenants/new/projects/p/instances/train.yaml", u1, nil},
		"misfiled":             {chemAt + "train.yml", u1, nil},
		"misfiled and edited":  {chemAt + "Train.yaml", of(instance("train", 2, 1), "u1"), nil},
		"a typo":               {chemTrain, strings.Replace(u1, "spec", "sepc", 1), nil},
		"a directory misspelt": {"tenants/chem/project/lab/instances/train.yaml", u1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			moves := func() *story {
				s := tell(t, with(twoTenants(), c.base))
				s.commits("olga", map[string]string{train: "", c.to: c.text}, glass)
				for range 2 {
					d := s.together()
					require.NotNil(t, d.Desired.Instance(trainKey))
					require.Equal(t, map[string]string{train: c.to}, d.Moved)
					s.commits("cleo", map[string]string{"README.md": d.Commit}, acksOf(d)...)
				}
				return s
			}
			s := moves()
			s.commits("pia", map[string]string{train: u1})
			require.Empty(t, s.together().Moved)
			s = moves()
			s.commits("olga", map[string]string{c.to: ""}, glass)
			d := s.together()
			require.Nil(t, d.Desired.Instance(trainKey), "%v", d.Held)
			require.Empty(t, d.Moved)
		})
	}

	s := tell(t, with(twoTenants(), map[string]string{beam + "project.yaml": doc("Project", "beam", "spec:\n  display_name: B\n")}))
	s.commits("olga", map[string]string{train: "", beam + "instances/train.yaml": u1}, glass)
	s.together()
	s.commits("olga", map[string]string{beam + "instances/train.yaml": instance("train", 1, 1)}, glass)
	require.Nil(t, s.together().Desired.Instance(trainKey), "without the uid it is another, though it waits")

	// The whole tenant's directory, and nothing in it.
	s = tell(t, geo("geo"))
	s.commits("olga", moved(geo("geo"), "tenants/geo/", "tenants/geology/"), glass)
	for range 3 {
		d := s.together()
		require.NotNil(t, quartzOf(d, "geo"))
		s.commits("olga", map[string]string{"README.md": d.Commit}, acksOf(d)...)
	}
	s.commits("olga", geo("geology"), glass)
	d := s.together()
	require.NotNil(t, quartzOf(d, "geo"))
	require.Nil(t, quartzOf(d, "geology"))
}

// A copy that does not stand stops no deletion either.
func TestACopiedUIDThatDoesNotStandStopsNoDeletion(t *testing.T) {
	u1 := of(instance("train", 1, 1), "u1")
	for _, to := range []string{chemAt + "train.yml", "tenants/chem/projects/beam/instances/train.yaml"} {
		s := tell(t, twoTenants())
		s.commits("cleo", map[string]string{to: u1})
		s.commits("pia", map[string]string{train: ""})
		d := s.together()
		require.Nil(t, d.Desired.Instance(trainKey), "%v", d.Held)
	}
}

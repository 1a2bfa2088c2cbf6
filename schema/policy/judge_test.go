package policy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

// history is a changing estate. As the reader does, each step shares all unchanged
// values with the previous one.
type history struct {
	chooser
	d   *schema.Desired
	day int
}

func newHistory(c chooser) *history {
	h := &history{chooser: c, d: &schema.Desired{Platform: &schema.Platform{}, Tenants: map[string]*schema.TenantEstate{}}}
	h.platform()
	for _, name := range []string{"t", "u"} {
		h.tenant(name, func(*schema.TenantEstate) {})
	}
	return h
}

func (h *history) platform() {
	p, _ := h.estate()
	p.Nodes = map[string]*schema.Node{}
	h.d = &schema.Desired{Platform: p, Tenants: h.d.Tenants}
}

// tenant changes or creates a tenant.
func (h *history) tenant(name string, change func(*schema.TenantEstate)) {
	var next schema.TenantEstate
	if was := h.d.Tenants[name]; was != nil {
		next = *was
		next.Projects = maps.Clone(was.Projects)
	} else {
		_, t := h.estate()
		next = *t
		next.Name = name
		next.Projects = map[string]*schema.ProjectEstate{"p": h.made(name, "p"), "q": h.made(name, "q")}
	}
	change(&next)
	h.d = &schema.Desired{Platform: h.d.Platform, Tenants: maps.Clone(h.d.Tenants)}
	h.d.Tenants[name] = &next
}

// made returns a newly built project.
func (h *history) made(tenant, name string) *schema.ProjectEstate {
	_, t := h.estate()
	p := t.Projects["p"]
	p.Name = name
	for _, i := range p.Instances {
		i.Key.Tenant, i.Key.Project = tenant, name
	}
	return p
}

// project changes a project of a tenant by values from a newly built one.
func (h *history) project(tenant string, change func(p, from *schema.ProjectEstate)) {
	h.tenant(tenant, func(t *schema.TenantEstate) {
		name := slices.Sorted(maps.Keys(t.Projects))[h.chooser(len(t.Projects))]
		next := *t.Projects[name]
		change(&next, h.made(tenant, name))
		t.Projects[name] = &next
	})
}

// step makes a change and describes it.
func (h *history) step() string {
	name := []string{"t", "u"}[h.chooser(2)]
	_, fresh := h.estate()
	binding := &schema.RoleBinding{}
	if h.chooser(2) == 0 {
		binding.Spec.Members = []schema.RoleMember{{Login: "anna", Role: "project_member",
			UnixUser: &schema.UnixUser{Name: "anna", UID: 20001 + h.chooser(2)}}}
	}
	switch h.chooser(17) {
	case 0:
		h.platform()
		return "another platform"
	case 1:
		p := *h.d.Platform
		p.Nodes = map[string]*schema.Node{fmt.Sprint(h.chooser(9)): {}}
		h.d = &schema.Desired{Platform: &p, Tenants: h.d.Tenants}
		return "other nodes"
	case 2:
		h.day++
		return "a day"
	case 3:
		h.tenant(name, func(t *schema.TenantEstate) { t.Policy = fresh.Policy })
		return "a tenant's policy"
	case 4:
		h.tenant(name, func(t *schema.TenantEstate) { t.Roles = binding })
		return "a tenant's roles"
	case 5:
		source := &schema.ArtifactSource{Spec: schema.ArtifactSourceSpec{Type: schema.SourceFile}}
		source.Key = schema.Key{Kind: schema.KindArtifactSource, Tenant: name, Name: "own"}
		h.tenant(name, func(t *schema.TenantEstate) { t.ArtifactSources = map[string]*schema.ArtifactSource{"own": source} })
		return "a tenant's sources"
	case 6:
		h.project(name, func(p, _ *schema.ProjectEstate) { p.Roles = binding })
		return "a project's roles"
	case 7:
		h.project(name, func(p, from *schema.ProjectEstate) { p.Entitlements = from.Entitlements })
		return "entitlements"
	case 8:
		h.project(name, func(p, from *schema.ProjectEstate) { p.Instances = from.Instances })
		return "all instances of a project"
	case 9:
		h.tenant(name, func(*schema.TenantEstate) {})
		return "nothing of a tenant"
	case 10:
		h.d = &schema.Desired{Platform: h.d.Platform, Tenants: maps.Clone(h.d.Tenants)}
		delete(h.d.Tenants, name)
		return "a tenant goes"
	case 11:
		h.tenant(name, func(t *schema.TenantEstate) {
			if t.Projects["q"] == nil {
				t.Projects["q"] = h.made(name, "q")
			} else {
				delete(t.Projects, "q")
			}
		})
		return "a project comes or goes"
	case 13:
		h.tenant(name, func(t *schema.TenantEstate) {
			if t.Apps, t.Versions = nil, nil; h.chooser(2) == 0 {
				own(h.chooser, t, "two")
			}
		})
		return "a tenant's apps"
	case 14:
		p := *h.d.Platform
		other, _ := h.estate()
		p.Admissions = other.Admissions
		h.d = &schema.Desired{Platform: &p, Tenants: h.d.Tenants}
		return "admissions"
	case 12:
		h.project(name, func(p, _ *schema.ProjectEstate) {
			p.Artifacts = map[string]*schema.Artifact{"a": {Header: schema.Header{Key: schema.Key{Kind: schema.KindArtifact, Tenant: name,
				Name: "a"}},
				Spec: schema.ArtifactSpec{App: "one", Source: []string{"s", "own"}[h.chooser(2)]}}}
		})
		return "an artifact"
	}
	h.project(name, func(p, from *schema.ProjectEstate) {
		p.Instances = maps.Clone(p.Instances)
		i := []string{"i0", "i1", "i2"}[h.chooser(3)]
		if h.chooser(3) == 0 || from.Instances[i] == nil {
			delete(p.Instances, i)
		} else {
			p.Instances[i] = from.Instances[i]
		}
	})
	return "an instance"
}

// evaluated returns the result of an evaluation without memory.
func evaluated(d, before *schema.Desired, today string) *schema.Effective {
	grown := func(k schema.Key) bool {
		was := before.Instance(k)
		a, b := Used{}, Used{}
		if now := d.Instance(k); was != nil && now != nil {
			a, b = asked(was.Spec.Roles), asked(now.Spec.Roles)
		}
		return b.GPUs > a.GPUs || b.Nodes > a.Nodes
	}
	return Evaluate(d, At(today), Existing(func(k schema.Key) bool { return before.Instance(k) != nil }),
		func(o *options) { o.grown = grown })
}

// The result of a Judge equals an evaluation without memory, for any earlier calls
// and any state in force. Unchanged values stay the same pointers.
func TestJudgeMatchesEvaluate(t *testing.T) { judgeMatchesEvaluate(t, 0, 15) }

func judgeMatchesEvaluate(t *testing.T, first, histories uint64) {
	steps := map[string]int{}
	for seed := first; seed < first+histories; seed++ {
		r := rand.New(rand.NewPCG(seed, 7))
		h := newHistory(chooser(r.IntN))
		var j Judge
		before := []*schema.Desired{{}}
		for range 25 {
			what := h.step()
			steps[what]++
			was := before[len(before)-1-h.chooser(min(len(before), 3))]
			today := fmt.Sprintf("2027-01-%02d", 1+h.day)
			got := j.Evaluate(h.d, was, today)
			require.Equal(t, evaluated(h.d, was, today), got, "seed %d, %s", seed, what)
			require.Equal(t, evaluatePlatform(h.d.Platform), j.Platform(h.d.Platform, nil, today))

			settled := j.Evaluate(h.d, h.d, today)
			require.Equal(t, evaluated(h.d, h.d, today), settled)
			for name := range h.d.Tenants {
				require.Same(t, settled.Tenants[name], j.Evaluate(h.d, h.d, today).Tenants[name])
				require.Same(t, settled.Tenants[name], j.Tenant(h.d.Platform, h.d.Tenants[name], h.d.Tenants[name], today))
				for project, p := range settled.Tenants[name].Projects {
					for i, inst := range p.Units {
						if o := got.Tenants[name].Projects[project].Units[i]; o.DesiredState == inst.DesiredState {
							require.Same(t, o, inst, "that it exists makes no other value")
						}
					}
				}
			}
			before = append(before, h.d)
			require.LessOrEqual(t, len(j.rules), mostPlatforms)
			for _, all := range j.tenants.of {
				require.LessOrEqual(t, len(all), mostResults)
				for _, k := range all {
					require.Contains(t, j.rules, k.rules, "nothing is kept of rules that are gone")
				}
			}
		}
	}
	require.Len(t, steps, 16)
}

// One changed document leaves all unrelated values the same pointers, also in its
// own project.
func TestJudgeSharesUnchangedValues(t *testing.T) {
	h := newHistory(chooser(func(n int) int { return n - 1 }))
	var j Judge
	first := j.Evaluate(h.d, h.d, "2027-01-01")
	h.d.Platform.Nodes = map[string]*schema.Node{"n": {}}
	h.tenant("t", func(t *schema.TenantEstate) {
		p := *t.Projects["p"]
		p.Instances = maps.Clone(p.Instances)
		i := *p.Instances["i1"]
		i.Spec.DisplayName = "another"
		p.Instances["i1"] = &i
		t.Projects["p"] = &p
	})
	next := j.Evaluate(h.d, h.d, "2027-01-02")
	require.Same(t, first.Tenants["u"], next.Tenants["u"])
	require.Same(t, first.Tenants["t"].Projects["q"], next.Tenants["t"].Projects["q"])
	require.Greater(t, len(next.Tenants["t"].Projects["p"].Units), 2)
	for name, i := range next.Tenants["t"].Projects["p"].Units {
		require.Equal(t, name != "i1", i == first.Tenants["t"].Projects["p"].Units[name], name)
	}
	var keys []schema.Key
	for k := range schema.Differing(first, next) {
		keys = append(keys, k)
	}
	require.Equal(t, []schema.Key{next.Tenants["t"].Projects["p"].Units["i1"].Key}, keys)
	h.tenant("t", func(*schema.TenantEstate) {})
	require.Same(t, next.Tenants["t"], j.Evaluate(h.d, h.d, "2027-01-02").Tenants["t"], "a file that policy has nothing to do with")
}

// A Judge forgets deleted tenants, and serves several callers at once.
func TestJudgeForgetsDeletedTenants(t *testing.T) {
	h := newHistory(chooser(rand.New(rand.NewPCG(1, 1)).IntN))
	var j Judge
	for n := range 20 {
		name := fmt.Sprint("t", n)
		h.tenant(name, func(*schema.TenantEstate) {})
		one := &schema.Desired{Platform: h.d.Platform, Tenants: map[string]*schema.TenantEstate{name: h.d.Tenants[name]}}
		j.Evaluate(one, one, "")
		require.LessOrEqual(t, len(j.tenants.of), 2+mostResults)
	}
	want := Evaluate(h.d, Existing(func(schema.Key) bool { return true }))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for _, name := range slices.Sorted(maps.Keys(h.d.Tenants)) {
				if got := j.Tenant(h.d.Platform, h.d.Tenants[name], h.d.Tenants[name],
					""); len(got.Decisions()) != len(want.Tenants[name].Decisions()) {
					t.Errorf("another judgement of %s", name)
				}
			}
		})
	}
	all.Wait()
}

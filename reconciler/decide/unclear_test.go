package decide_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
	"berth/schema"
	"berth/schema/estate"
)

// limits is a policy of the platform's.
const limits = "platform/policy/campus.yaml"

func limit(name string) string { return doc("Policy", name, "spec:\n  max_gpus_per_instance: 8\n") }

// moved is a change that takes files away and puts them elsewhere.
func moved(files map[string]string, from, to string) map[string]string {
	out := map[string]string{}
	for path, text := range files {
		if strings.HasPrefix(path, from) {
			out[path], out[to+path[len(from):]] = "", text
		}
	}
	return out
}

// A mistake in a file's name or in a file that moves neither ends what runs nor
// lifts what restrains, neither in the commit that makes it nor later; mended,
// it is as it was meant.
func TestAMisfiledDocumentIsNotDeleted(t *testing.T) {
	const lhc = "tenants/physics/projects/lhc/"
	broken := strings.Replace(instance("train", 1, 1), "display_name", "display_nmae", 1)
	for name, c := range map[string]struct {
		change map[string]string
		kept   string // file in force that goes and must not
		by     string // "": says what file that is
	}{
		"another extension":              {moved(governed(nil), train, at+"train.yml"), train, at + "train.yml"},
		"upper case":                     {moved(governed(nil), train, at+"Train.yaml"), train, ""},
		"a directory misspelt":           {moved(governed(nil), train, lhc+"instance/train.yaml"), train, ""},
		"a directory too many":           {moved(governed(nil), train, at+"x/train.yaml"), train, ""},
		"a project in upper case":        {moved(governed(nil), lhc, "tenants/physics/projects/LHC/"), train, ""},
		"projects misspelt":              {moved(governed(nil), lhc, "tenants/physics/project/lhc/"), train, ""},
		"a tenant in upper case":         {moved(governed(nil), "tenants/physics/", "tenants/Physics/"), train, ""},
		"all tenants":                    {moved(governed(chem(1)), "tenants/physics/", "Tenants/physics/"), train, ""},
		"another name, and not in it":    {map[string]string{train: "", at + "learn.yaml": instance("train", 1, 1)}, train, at + "learn.yaml"},
		"misfiled and edited":            {map[string]string{train: "", at + "train.yml": broken}, train, at + "train.yml"},
		"misfiled, edited and renamed":   {map[string]string{train: "", "tenants/physics/learn.txt": broken}, train, ""},
		"what cannot be told":            {map[string]string{train: "", at + "learn.yaml": "\xff\xfe"}, train, at + "learn.yaml"},
		"a policy with a typo":           {map[string]string{limits: "", "platform/policy/limits.yaml": strings.Replace(limit("limits"), "spec", "sepc", 1)}, limits, ""},
		"a policy misfiled":              {map[string]string{limits: "", "platform/policy/Campus.yaml": limit("campus")}, limits, ""},
		"a tenant's policy":              {map[string]string{rules: "", "tenants/physics/policy.yml": governed(nil)[rules]}, rules, ""},
		"an entitlement":                 {map[string]string{extra: "", lhc + "entitlements/othr.yaml": "spec: {"}, extra, ""},
		"a node, by its name":            {moved(governed(nil), "platform/nodes/gpu-3.yaml", "platform/node/gpu-3.yaml"), "platform/nodes/gpu-3.yaml", ""},
		"a shared runtime by its folder": {map[string]string{shared: "", "tenants/physics/shared-runtimes/dept.yaml": department("dept") + "# edited\n"}, shared, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := tell(t, with(chem(1), map[string]string{limits: limit("campus"), extra: doc("Entitlement", "other", "spec:\n  enabled: false\n"),
				"platform/catalog/other/app.yaml": doc("App", "other", "spec:\n  display_name: Other\n  category: scheduler\n  publisher: us\n"), shared: department("dept")}))
			s.commits("olga", c.change, func(st *decide.Step) { st.By.BreakGlass = "it is asked for" })
			for _, when := range []string{"with the change", "later", "and later"} {
				d := s.together()
				require.Contains(t, contents(t, s.was.Tree), c.kept, when)
				require.NotNil(t, d.Desired.Instance(trainKey), when)
				for _, h := range d.Held {
					if h.File == c.kept {
						require.Equal(t, estate.HeldBlocked, h.Reason)
						require.Contains(t, h.Message, "mend")
						require.Contains(t, h.Message, c.by)
					}
				}
				s.commits("mel", map[string]string{"README.md": when})
			}
			mended := map[string]string{}
			for path := range c.change {
				mended[path] = governed(map[string]string{limits: limit("campus")})[path]
			}
			mended[c.kept] = ""
			s.commits("olga", mended, func(st *decide.Step) { st.By.BreakGlass = "it is asked for" })
			s.together()
			require.NotContains(t, contents(t, s.was.Tree), c.kept, "without the stray it may go")
		})
	}
}

const (
	extra  = "tenants/physics/projects/lhc/entitlements/other.yaml"
	shared = "tenants/physics/shared-runtimes/dept/runtime.yaml"
)

func department(name string) string {
	return doc("SharedRuntime", name, "spec:\n  app: batch\n  version: v1\n  display_name: D\n  roles:\n    worker:\n      count: 0\n")
}

// What lies around elsewhere, is of somebody else or is plainly another thing
// holds no deletion up.
func TestAStrayThatIsAnotherHoldsNothing(t *testing.T) {
	const atlas = "tenants/physics/projects/atlas/"
	for name, stray := range map[string]map[string]string{
		"another project's of the same name":       {atlas + "instances/train.yaml": "nonsense: true\n"},
		"another project's copy":                   {atlas + "instances/Train.yaml": instance("train", 1, 1)},
		"another tenant's":                         {chemAt + "train.yml": instance("train", 1, 1)},
		"one of the platform's":                    {"platform/train.yaml": instance("train", 1, 1)},
		"one that came before":                     {at + "notes.txt": "buy milk\n"},
		"one that is another instance":             {at + "eval.yml": instance("eval", 1, 1)},
		"one of another kind":                      {"tenants/physics/projects/lhc/artifacts/train.yaml": "kind: Artifact\n"},
		"one outside of the estate":                {"archive/train.yaml": instance("train", 1, 1)},
		"another tenant's with its uid":            {chemAt + "copy.yml": of(instance("train", 1, 1), "u1")},
		"another runtime's attachment of its name": {"tenants/physics/shared-runtimes/x/attachments/train.yaml": "kind: Attachment\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := tell(t, with(chem(1), map[string]string{train: of(instance("train", 1, 1), "u1"), atlas + "project.yaml": doc("Project", "atlas", "spec:\n  display_name: Atlas\n")}))
			s.commits("olga", stray, func(st *decide.Step) { st.By.BreakGlass = "it is asked for" })
			s.together()
			s.commits("pia", map[string]string{train: ""})
			d := s.together()
			require.Nil(t, d.Desired.Instance(trainKey), "%v", d.Held)
			require.NotContains(t, reasons(d.Held), train)
		})
	}
	s := tell(t, nil)
	s.commits("pia", map[string]string{train: "", at + "eval.yaml": strings.Replace(instance("eval", 1, 1), "spec", "sepc", 1)})
	require.Nil(t, s.together().Desired.Instance(trainKey), "a new one beside it is plainly another")
}

// Somebody who may delete, and may not put a stray there, deletes nothing by it
// either.
func TestAStrayOfSomebodyWithoutTheRightCounts(t *testing.T) {
	s := tell(t, map[string]string{projectRoles: roles("roles", member("ada", "project_admin"))})
	s.commits("ada", moved(s.main, train, at+"train.yml"))
	d := s.together()
	require.Equal(t, map[string]string{train: estate.HeldBlocked, at + "train.yml": estate.HeldUnauthorised}, reasons(d.Held))
}

// A part that cannot be read may be a tenant's that goes.
func TestATenantThatGoesToAPartThatCannotBeRead(t *testing.T) {
	s := tell(t, chem(1))
	s.commits("olga", moved(s.main, "tenants/physics/", "tenants/Physics/"), func(st *decide.Step) {
		st.By.BreakGlass, st.Tree = "it is asked for", torn{st.Tree, "tenants/Physics"}
	})
	d, err := s.d.Commit(t.Context(), s.was, s.steps, "2026-01-31")
	require.NoError(t, err)
	require.NotNil(t, d.Desired.Instance(schema.InstanceKey("physics", "lhc", "train")))
}

// What moves to where it waits for another is not deleted meanwhile, and goes to
// where it was meant to go once it waits no more.
func TestWhatMovedAndWaitsIsNotDeleted(t *testing.T) {
	const lhc, atlas = "tenants/physics/projects/lhc/", "tenants/physics/projects/atlas/"
	project := doc("Project", "atlas", "spec:\n  display_name: Atlas\n")
	for _, uid := range []string{"", "u1"} {
		text := instance("train", 1, 1)
		if uid != "" {
			text = of(text, uid)
		}
		for name, c := range map[string]struct {
			base, change, mend map[string]string
		}{
			"the project renamed, and not in it": {nil, moved(governed(map[string]string{train: text}), lhc, atlas), map[string]string{atlas + "project.yaml": project}},
			"to a project without entitlement":   {map[string]string{atlas + "project.yaml": project}, moved(map[string]string{train: text}, lhc, atlas), map[string]string{atlas + "entitlements/batch.yaml": governed(nil)[entitlement]}},
			"to no project":                      {nil, moved(map[string]string{train: text}, lhc, atlas), map[string]string{atlas + "project.yaml": project, atlas + "entitlements/batch.yaml": governed(nil)[entitlement]}},
		} {
			t.Run(name+" "+uid, func(t *testing.T) {
				s := tell(t, with(map[string]string{train: text}, c.base))
				s.commits("olga", c.change, glass)
				for _, when := range []string{"with the change", "later", "and later"} {
					d := s.together()
					require.NotNil(t, d.Desired.Instance(trainKey), when)
					require.Contains(t, contents(t, s.was.Tree), entitlement, when)
					for _, h := range d.Held {
						if h.File == train {
							require.Contains(t, h.Message, "mend")
							require.NotContains(t, h.Message, "no document may")
						}
					}
					s.commits("mel", map[string]string{"README.md": when})
				}
				s.commits("olga", c.mend, glass)
				d := s.together()
				there := d.Desired.Instance(schema.InstanceKey("physics", "atlas", "train"))
				require.Equal(t, uid == "", there != nil, "%v", d.Held)
				require.Equal(t, uid != "", d.Desired.Instance(trainKey) != nil, "what runs keeps its name with its uid")
			})
		}
	}

	// A new one that waits and is another holds nothing.
	s := tell(t, map[string]string{atlas + "project.yaml": project})
	s.commits("olga", map[string]string{train: "", atlas + "instances/train.yaml": instance("train", 2, 1)}, glass)
	d := s.together()
	require.Nil(t, d.Desired.Instance(trainKey), "%v", d.Held)
}

package decide_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/estate"
)

// trees is a repository of trees without history: a merge takes the head.
type trees map[string]map[string]string

func (r trees) Snapshot(_ context.Context, id string) (schema.Snapshot, error) {
	files, ok := r[id]
	if !ok {
		return nil, fmt.Errorf("no commit %s", id)
	}
	return estate.Files(files), nil
}

func (r trees) Diff(_ context.Context, from, to string) ([]schema.PathChange, error) {
	a, b := r[from], r[to]
	all := map[string]string{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	var out []schema.PathChange
	for _, path := range slices.Sorted(maps.Keys(all)) {
		x, inA := a[path]
		y, inB := b[path]
		if inA && inB && x == y {
			continue
		}
		c := schema.PathChange{Path: path}
		if inA {
			c.From = estate.BlobID([]byte(x))
		}
		if inB {
			c.To = estate.BlobID([]byte(y))
		}
		out = append(out, c)
	}
	return out, nil
}

func (r trees) Merge(_ context.Context, base, head string) (string, []string, error) {
	if head == "conflicting" {
		return "", []string{"tenants/physics/tenant.yaml"}, nil
	}
	if head == "lost" {
		return "", nil, errors.New("no such object")
	}
	return head, nil, nil
}

// loader returns a loader with an empty cache. To compile its definitions takes longer than
// to decide, so that all share them.
func loader(t *testing.T) *estate.Loader {
	t.Helper()
	l, err := compiled()
	require.NoError(t, err)
	return l.WithEmptyCache()
}

var compiled = sync.OnceValues(func() (*estate.Loader, error) {
	return estate.New(estate.Options{Backends: map[string]string{"bare_metal": "#Config: {...}\n#Parameters: {...}\n"}})
})

// commit decides one commit without any permission check.
func commit(t *testing.T, l *estate.Loader, main, previous schema.Snapshot) (decide.Decision, error) {
	t.Helper()
	var touched []schema.PathChange
	if previous != nil {
		var err error
		touched, err = trees{"a": contents(t, previous), "b": contents(t, main)}.Diff(t.Context(), "a", "b")
		require.NoError(t, err)
	}
	return decide.New(decide.Options{Loader: l}).Commit(t.Context(), decide.Standing{Tree: previous},
		[]decide.Step{{Commit: "c", Tree: main, Touched: touched}}, "2026-01-31")
}

func doc(kind, name, rest string) string {
	return "apiVersion: berth/v1\nkind: " + kind + "\nmetadata:\n  name: " + name + "\n" + rest
}

func node(role, rest string) string {
	return "spec:\n  address: " + rest + "\n  region: lab\n  sku: any\n  roles: [" + role +
		"]\n  capacity:\n    cpus: 4\n    memory_mib: 8000\n"
}

const gpus = "    gpus:\n      - type: a100\n        count: 4\n        devices: /dev/nvidia[0-3]\n"

func instance(name string, count, gpus int) string {
	return doc("Instance", name, fmt.Sprintf("spec:\n  app: batch\n  version: v1\n  display_name: %s\n  roles:\n    worker:\n      "+
		"count: %d\n      gpus:\n        count: %d\n", name, count, gpus))
}

const (
	at    = "tenants/physics/projects/lhc/instances/"
	train = at + "train.yaml"
	rules = "tenants/physics/policy.yaml"
)

// estate is a small estate with one instance, changed by with: path → content; ""
// deletes the file.
func estateFiles(with map[string]string) map[string]string {
	files := map[string]string{
		"platform/catalog/batch/app.yaml": doc("App", "batch",
			"spec:\n  display_name: Batch\n  category: scheduler\n  publisher: us\n  supports: {control_plane_scopes: [project, "+
				"tenant]}\n"),
		"platform/catalog/batch/v1.yaml": doc("AppVersion", "v1",
			"spec:\n  version: \"1\"\n  runtime_backend: bare_metal\n  status: active\n  manifest:\n    roles:\n"+
				"      controller:\n        node_role: controller\n        control_plane: true\n        shareable: true\n        min: "+
				"1\n        max: 1\n"+
				"      worker:\n        node_role: worker\n        gpus: true\n        min: 0\n        max: 8\n"),
		"platform/nodes/lab.yaml":                              doc("Node", "lab", node("controller", "10.0.0.1")),
		"platform/nodes/gpu-1.yaml":                            doc("Node", "gpu-1", node("worker", "10.0.0.2")+gpus),
		"platform/nodes/gpu-2.yaml":                            doc("Node", "gpu-2", node("worker", "10.0.0.3")+gpus),
		"platform/nodes/gpu-3.yaml":                            doc("Node", "gpu-3", node("worker", "10.0.0.4")+gpus),
		"tenants/physics/tenant.yaml":                          doc("Tenant", "physics", "spec:\n  display_name: Physics\n"),
		rules:                                                  doc("Policy", "policy", "spec:\n  max_gpus_per_instance: 8\n"),
		"tenants/physics/projects/lhc/project.yaml":            doc("Project", "lhc", "spec:\n  display_name: LHC\n"),
		"tenants/physics/projects/lhc/entitlements/batch.yaml": doc("Entitlement", "batch", "spec:\n  enabled: true\n"),
		train: instance("train", 1, 1),
	}
	for path, data := range with {
		if data == "" {
			delete(files, path)
		} else {
			files[path] = data
		}
	}
	return files
}

var (
	trainKey = schema.InstanceKey("physics", "lhc", "train")
	evalKey  = schema.InstanceKey("physics", "lhc", "eval")
)

// running returns the memory of an estate in which train runs as declared.
func running(t *testing.T, l *estate.Loader, files map[string]string) *plan.Memory {
	d, err := commit(t, l, estate.Files(files), nil)
	require.NoError(t, err)
	mem := plan.Memory{}
	for key, inst := range d.Effective.All() {
		unit := &plan.Unit{Effective: *inst, Members: plan.Place(d.Effective, mem).Members(key)}
		o := plan.Observed{Key: key, Presence: plan.Present, Complete: true, Unit: unit}
		for _, m := range unit.Members {
			o.Members = append(o.Members, plan.MemberState{Name: m.Name, Node: m.Node, State: plan.Running})
		}
		mem = mem.With(&plan.Status{Key: key, Phase: plan.PhaseRunning, Observed: &o})
	}
	return &mem
}

// words summarizes a proposal: documents, findings, held changes, plans.
func words(p plan.Proposal) []string {
	out := []string{}
	for _, c := range p.Conflicts {
		out = append(out, "conflict "+c)
	}
	for _, d := range p.Documents {
		out = append(out, strings.TrimSpace(d.Change+" "+d.Key.String()+" "+d.From))
	}
	for _, d := range p.Diagnostics {
		out = append(out, fmt.Sprintf("%s %s:%d", d.Code, d.File, d.Line))
	}
	for _, h := range p.Held {
		out = append(out, "held "+string(h.Reason)+" "+h.File)
	}
	for _, u := range p.Plans {
		line := u.Key.Name + ":"
		for _, a := range u.Actions {
			line += " " + strings.TrimSpace(string(a.Verb)+" "+a.Member)
		}
		for _, b := range u.Blocked {
			line += " blocked " + string(b.Code)
		}
		out = append(out, line)
	}
	return out
}

// chemAt is the directory of the second tenant's instances.
const chemAt = "tenants/chem/projects/lab/instances/"

// chem is a second tenant with a limit of GPUs for each instance.
func chem(gpus int) map[string]string {
	return map[string]string{
		"tenants/chem/tenant.yaml": doc("Tenant", "chem", "spec:\n  display_name: Chemistry\n"),
		"tenants/chem/policy.yaml": doc("Policy", "policy",
			fmt.Sprintf("spec:\n  max_gpus_per_instance: %d\n", gpus)),
		"tenants/chem/projects/lab/project.yaml":            doc("Project", "lab", "spec:\n  display_name: Lab\n"),
		"tenants/chem/projects/lab/entitlements/batch.yaml": doc("Entitlement", "batch", "spec:\n  enabled: true\n"),
	}
}

// with merges both maps.
func with(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

func TestProposal(t *testing.T) {
	uid := func(s string) string { return strings.Replace(s, "metadata:\n", "metadata:\n  uid: 3f2a\n", 1) }
	for _, c := range []struct {
		name       string
		base, with map[string]string // changes of the estate; with is applied over base
		head       string
		want       []string
		blocked    bool
	}{
		{name: "nothing", with: map[string]string{}, want: []string{}},
		{
			name: "a new instance", with: map[string]string{at + "eval.yaml": instance("eval", 1, 4)},
			want: []string{"added Instance physics.lhc/eval", "eval: create join worker-0"},
		}, {
			name: "a worker is added", with: map[string]string{train: instance("train", 2, 1)},
			want: []string{"modified Instance physics.lhc/train", "train: configure join worker-1"},
		}, {
			name: "an instance is deleted", with: map[string]string{train: ""},
			want: []string{"deleted Instance physics.lhc/train", "train: delete"},
		}, {
			name: "an invalid document holds only itself",
			with: map[string]string{train: strings.Replace(instance("train", 2, 1), "roles:", "rolles:", 1),
				at + "eval.yaml": instance("eval", 1, 1)},
			want: []string{"added Instance physics.lhc/eval", "modified Instance physics.lhc/train",
				"schema.unknown-field " + train + ":9", "held invalid " + train, "eval: create join worker-0"},
			blocked: true,
		}, {
			name: "a change gets findings in other files", with: map[string]string{"platform/catalog/batch/v1.yaml": ""},
			want: []string{"deleted AppVersion batch/v1",
				"ref.missing-version " + train + ":7", "held needs platform/catalog/batch/v1.yaml"},
			blocked: true,
		}, {
			name: "an error that was there before is not reported",
			base: map[string]string{"tenants/chem/tenant.yaml": "nonsense: true\n"},
			with: map[string]string{at + "eval.yaml": instance("eval", 1, 4)},
			want: []string{"added Instance physics.lhc/eval", "eval: create join worker-0"},
		}, {
			name: "a change denied by policy is held", with: map[string]string{at + "eval.yaml": instance("eval", 3, 4)},
			want: []string{"added Instance physics.lhc/eval", "policy.max_gpus_per_instance " + at + "eval.yaml:9",
				"held denied " + at + "eval.yaml"},
			blocked: true,
		}, {
			name: "a change denied by policy keeps the running version", with: map[string]string{train: instance("train", 3, 4)},
			want: []string{"modified Instance physics.lhc/train", "policy.max_gpus_per_instance " + train + ":9",
				"held denied " + train},
			blocked: true,
		}, {
			name: "a narrower policy stops no instance",
			base: map[string]string{train: instance("train", 2, 4)},
			with: map[string]string{rules: doc("Policy", "policy", "spec:\n  max_gpus_per_instance: 4\n")},
			want: []string{"modified Policy physics/policy", "policy.max_gpus_per_instance " + train + ":9",
				"train: blocked policy.denied"},
			blocked: true,
		}, {
			name: "without a uid a move is a deletion and a creation",
			with: map[string]string{train: "", at + "eval.yaml": instance("eval", 1, 1)},
			want: []string{"added Instance physics.lhc/eval", "deleted Instance physics.lhc/train", "eval: create join worker-0",
				"train: delete"},
		}, {
			name: "with a uid nothing is deleted",
			base: map[string]string{train: uid(instance("train", 1, 1))},
			with: map[string]string{train: "", at + "eval.yaml": uid(instance("eval", 1, 1))},
			want: []string{"moved Instance physics.lhc/eval " + train,
				"identity.moved " + at + "eval.yaml:4", "identity.moved " + train + ":1",
				"held denied " + at + "eval.yaml", "held denied " + train},
			blocked: true,
		}, {
			name: "a uid copied by another tenant blocks no deletion",
			base: with(chem(1), map[string]string{train: uid(instance("train", 1, 1)), chemAt + "copy.yaml": uid(instance("copy", 3, 4))}),
			with: map[string]string{train: ""},
			want: []string{"deleted Instance physics.lhc/train", "train: delete"},
		}, {
			name: "a copied uid with a missing reference blocks no deletion",
			base: with(chem(8), map[string]string{train: uid(instance("train", 1, 1)),
				chemAt + "copy.yaml": uid(strings.Replace(instance("copy", 1, 1), "v1", "v9", 1))}),
			with: map[string]string{train: ""},
			want: []string{"deleted Instance physics.lhc/train", "train: delete"},
		}, {
			name: "a copied uid in force lifts no deletion protection",
			base: with(chem(8), map[string]string{train: uid(instance("train", 1, 1)), chemAt + "copy.yaml": uid(instance("copy", 0, 0))}),
			with: map[string]string{train: "", at + "eval.yaml": uid(instance("eval", 1, 1))},
			want: []string{"moved Instance physics.lhc/eval " + train,
				"identity.moved " + at + "eval.yaml:4", "identity.moved " + train + ":1",
				"held denied " + at + "eval.yaml", "held denied " + train},
			blocked: true,
		}, {
			name: "a second destination lifts no deletion protection",
			base: map[string]string{train: uid(instance("train", 1, 1))},
			with: map[string]string{train: "", at + "eval.yaml": uid(instance("eval", 1, 1)),
				at + "test.yaml": uid(instance("test", 1, 1))},
			want: []string{"moved Instance physics.lhc/eval " + train, "added Instance physics.lhc/test",
				"identity.moved " + at + "eval.yaml:4", "conflict.uid " + at + "test.yaml:4", "identity.moved " + train + ":1",
				"held denied " + at + "eval.yaml", "held invalid " + at + "test.yaml", "held denied " + train},
			blocked: true,
		}, {
			name: "across tenants a uid makes no move",
			base: with(chem(8), map[string]string{train: uid(instance("train", 1, 1))}),
			with: map[string]string{train: "", chemAt + "train.yaml": uid(instance("train", 1, 1))},
			want: []string{"added Instance chem.lab/train", "deleted Instance physics.lhc/train", "train: create join worker-0",
				"train: delete"},
		}, {
			name: "across tenants, and the creation is held",
			base: with(chem(8), map[string]string{train: uid(instance("train", 1, 1))}),
			with: map[string]string{train: "",
				chemAt + "train.yaml": uid(strings.Replace(instance("train", 1, 1), "version: v1", "version: v9", 1))},
			want: []string{"added Instance chem.lab/train", "deleted Instance physics.lhc/train",
				"deletion.partial-move " + chemAt + "train.yaml:1", "ref.missing-version " + chemAt + "train.yaml:8",
				"held invalid " + chemAt + "train.yaml", "train: delete"},
			blocked: true,
		}, {
			name: "across tenants, and the deletion is held",
			base: with(chem(8), map[string]string{train: uid(instance("train", 1, 1)) + "  deletion_protection: true\n"}),
			with: map[string]string{train: "", chemAt + "train.yaml": uid(instance("train", 1, 1))},
			want: []string{"added Instance chem.lab/train", "deleted Instance physics.lhc/train",
				"deletion.partial-move " + train + ":1", "deletion.protected " + train + ":1", "held denied " + train,
				"train: create join worker-0"},
			blocked: true,
		}, {
			name: "other documents move by their uid",
			base: map[string]string{"platform/nodes/gpu-3.yaml": uid(doc("Node", "gpu-3", node("worker", "10.0.0.4")+gpus))},
			with: map[string]string{"platform/nodes/gpu-3.yaml": "",
				"platform/nodes/gpu-9.yaml": uid(doc("Node", "gpu-9", node("worker", "10.0.0.4")+gpus))},
			want: []string{"moved Node gpu-9 platform/nodes/gpu-3.yaml"},
		}, {
			name: "a deletion beside an invalid file of its tenant is blocked",
			base: with(chem(8), map[string]string{chemAt + "train.yaml": instance("train", 1, 1)}),
			with: map[string]string{train: "", chemAt + "train.yaml": "", at + "Train.yml": instance("train", 1, 1)},
			want: []string{"deleted Instance chem.lab/train", "deleted Instance physics.lhc/train",
				"path.extension " + at + "Train.yml:1", "deletion.blocked " + train + ":1",
				"held invalid " + at + "Train.yml", "held blocked " + train, "train: delete"},
			blocked: true,
		}, {
			name: "an empty tree would freeze the sync", head: "empty",
			want: []string{"estate.frozen platform/catalog/batch/app.yaml:1"}, blocked: true,
		}, {
			name: "a conflict", head: "conflicting",
			want: []string{"conflict tenants/physics/tenant.yaml"}, blocked: true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := estateFiles(c.base)
			all := maps.Clone(c.base)
			if all == nil {
				all = map[string]string{}
			}
			maps.Copy(all, c.with)
			repo := trees{"base": base, "head": estateFiles(all), "empty": {}, "README": {}}
			l := loader(t)
			in := decide.Input{Repo: repo, Base: "base", Head: "head", Memory: running(t, l, base)}
			if c.head != "" {
				in.Head = c.head
			}
			p, err := decide.New(decide.Options{Loader: l}).Proposal(t.Context(), in)
			require.NoError(t, err)
			require.Equal(t, c.want, words(p))
			require.Equal(t, c.blocked, p.Blocked())

			// The same change as another commit, and once its base is in force.
			repo["squashed"] = repo[in.Head]
			if in.Head == "head" {
				in.Head = "squashed"
				again, err := decide.New(decide.Options{Loader: l}).Proposal(t.Context(), in)
				require.NoError(t, err)
				require.Equal(t, p.Digest, again.Digest)
			}
		})
	}
}

// A commit has the effect that its proposal shows.
func TestCommitDoesWhatItsProposalShows(t *testing.T) {
	l := loader(t)
	base := estateFiles(nil)
	head := estateFiles(map[string]string{at + "eval.yaml": instance("eval", 1, 4), at + "huge.yaml": instance("huge", 8, 4),
		train: "broken: true\n"})
	mem := running(t, l, base)
	p, err := decide.New(decide.Options{Loader: l}).Proposal(t.Context(),
		decide.Input{Repo: trees{"base": base, "head": head}, Base: "base", Head: "head", Memory: mem})
	require.NoError(t, err)

	d, err := commit(t, l, estate.Files(head), estate.Files(base))
	require.NoError(t, err)
	require.Equal(t, p.Held, d.Held)
	require.Equal(t, map[string]string{train: estate.BlobID([]byte(base[train])), at + "huge.yaml": ""}, d.Replace)
	require.NotNil(t, d.Effective.Unit(trainKey), "the version in force is kept")
	require.Len(t, p.Plans, 1)
	placed := plan.Place(d.Effective, *mem)
	u := plan.Make(plan.Input{Key: evalKey, After: d.Effective.Unit(evalKey), Members: placed.Members(evalKey),
		Observed: plan.Observed{Key: evalKey, Presence: plan.Absent}})
	require.Equal(t, p.Plans[0].Digest, u.Digest, "the reviewed plan is the applied plan")

	// Decided again, as after a restart, the tree in force has the same meaning.
	inForce := maps.Clone(head)
	inForce[train] = base[train]
	delete(inForce, at+"huge.yaml")
	again, err := commit(t, l, estate.Files(inForce), estate.Files(inForce))
	require.NoError(t, err)
	require.Empty(t, again.Held)
	require.Equal(t, d.Effective, again.Effective)
}

// A held change that was released comes into force with the next merge and is shown
// with it.
func TestProposalShowsReleasedChanges(t *testing.T) {
	l := loader(t)
	inForce := estateFiles(nil)
	base := estateFiles(map[string]string{at + "eval.yaml": instance("eval", 1, 4)})
	words := maps.Clone(base)
	words["README.md"] = "words\n"
	other := maps.Clone(base)
	other[at+"eval.yaml"] = instance("eval", 2, 4)
	repo := trees{"in-force": inForce, "base": base, "words": words, "other": other}
	propose := func(head, inForce string) plan.Proposal {
		p, err := decide.New(decide.Options{Loader: l}).Proposal(t.Context(), decide.Input{
			Repo: repo, Base: "base", InForce: inForce,
			Permitted: map[string]string{at + "eval.yaml": estate.BlobID([]byte(base[at+"eval.yaml"]))}, Head: head,
			Memory: running(t, l, estateFiles(nil)), Today: "2026-01-01",
		})
		require.NoError(t, err)
		return p
	}
	p := propose("words", "in-force")
	require.Equal(t, []schema.Key{evalKey}, p.Released)
	require.Len(t, p.Plans, 1)
	require.Equal(t, evalKey, p.Plans[0].Key)
	require.False(t, p.Blocked())
	p = propose("other", "in-force")
	require.Empty(t, p.Released, "the change itself requests it")
	require.Len(t, p.Plans, 1)
	require.Empty(t, propose("words", "base").Plans)
}

func TestUnreadableChangeIsAnError(t *testing.T) {
	l := loader(t)
	repo := trees{"base": estateFiles(nil)}
	for _, in := range []decide.Input{{Base: "base", Head: "lost"}, {Base: "nowhere", Head: "base"},
		{Base: "base", InForce: "nowhere", Head: "base"}} {
		in.Repo = repo
		_, err := decide.New(decide.Options{Loader: l}).Proposal(t.Context(), in)
		require.Error(t, err)
	}
	_, err := commit(t, l, estate.Files(nil), estate.Files(estateFiles(nil)))
	require.ErrorIs(t, err, decide.ErrFrozen)
}

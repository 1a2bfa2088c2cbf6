package decide_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/estate"
)

// These tests use an estate of two tenants that share only a catalog and a host for
// control planes; each has its own nodes. Eve makes arbitrary changes below
// tenants/eve. Decisions and plans for mallow must not change.
func sharedEstate() map[string]string {
	role := func(name, rest string) string { return "      " + name + ": {node_role: " + name + ", " + rest + "}\n" }
	node := func(name, address, role, owner string) string {
		s := doc("Node", name, "spec:\n  address: "+address+"\n  region: lab\n  sku: any\n  roles: ["+role+
			"]\n  capacity: {cpus: 4, memory_mib: 8000, gpus: [{type: a100, count: 4, devices: \"/dev/nvidia[0-3]\"}]}\n")
		if owner != "" {
			s += "  reserved_for: " + owner + "\n"
		}
		return s
	}
	files := map[string]string{
		"platform/catalog/batch/app.yaml": doc("App", "batch",
			"spec: {display_name: Batch, category: scheduler, publisher: us, supports: {control_plane_scopes: [project, tenant]}}\n"),
		"platform/catalog/batch/v1.yaml": doc("AppVersion", "v1",
			"spec:\n  version: \"1\"\n  runtime_backend: bare_metal\n  manifest:\n    roles:\n"+
				role("controller", "control_plane: true, shareable: true, min: 1, max: 1")+role("worker", "gpus: true, max: 8")),
		"platform/policy/all.yaml":       doc("Policy", "all", "spec: {max_gpus_per_instance: 8, max_instances_per_project: 3}\n"),
		"platform/roles/operators.yaml":  doc("RoleBinding", "operators", "spec: {members: [{login: olga, role: platform_ops}]}\n"),
		"platform/nodes/head.yaml":       node("head", "10.0.0.1", "controller", ""),
		"platform/nodes/eve-1.yaml":      node("eve-1", "10.0.1.1", "worker", "eve"),
		"platform/nodes/eve-2.yaml":      node("eve-2", "10.0.1.2", "worker", "eve.p"),
		"platform/nodes/mallow-1.yaml":   node("mallow-1", "10.0.2.1", "worker", "mallow"),
		"platform/nodes/mallow-2.yaml":   node("mallow-2", "10.0.2.2", "worker", "mallow.p"),
		"platform/nodes/mallow-3.yaml":   node("mallow-3", "10.0.2.3", "worker", "mallow"),
		"platform/nodes/everybody.yaml":  node("everybody", "10.0.3.1", "other", ""),
		"platform/sites/lab.yaml":        doc("Site", "lab", "spec: {display_name: Lab, regions: [lab]}\n"),
		"platform/queues/everybody.yaml": doc("QueueMap", "everybody", "spec: {app: batch, queues: [{queue: short, partition: main}]}\n"),
	}
	for i, tenant := range []string{"eve", "mallow"} {
		at := "tenants/" + tenant + "/"
		maps.Copy(files, map[string]string{
			at + "tenant.yaml": doc("Tenant", tenant, "spec: {display_name: T}\n"),
			at + "policy.yaml": doc("Policy", "policy", "spec: {max_gpus_per_instance: 6}\n"),
			at + "roles.yaml":  doc("RoleBinding", "roles", "spec: {members: [{login: owner-"+tenant+", role: tenant_owner}]}\n"),
			at + "projects/p/roles.yaml": doc("RoleBinding", "roles", fmt.Sprintf(
				"spec: {members: [{login: user-%s, role: project_owner, unix_user: {name: %s, uid: %d}}]}\n", tenant, tenant, 20001+i)),
			at + "projects/p/project.yaml":            doc("Project", "p", "spec: {display_name: P}\n"),
			at + "projects/p/entitlements/batch.yaml": doc("Entitlement", "batch", "spec: {enabled: true}\n"),
			at + "projects/p/instances/train.yaml":    of(instance("train", 1, 1), "uid-train-"+tenant),
			at + "projects/p/instances/eval.yaml":     of(instance("eval", 0, 1), "uid-eval-"+tenant),
			at + "projects/p/operations/drain.yaml": doc("MemberOperation", "drain",
				"spec: {instance: train, operation: drain, member: worker-0, reason: a fan is loud}\n"),
		})
	}
	return files
}

// of adds a uid to a document.
func of(text, uid string) string {
	return strings.Replace(text, "metadata:\n", "metadata:\n  uid: "+uid+"\n", 1)
}

// edit is one change of a tree: path → content; "" deletes the file.
type edit map[string]string

func (e edit) to(files map[string]string) {
	for path, content := range e {
		if content == "" {
			delete(files, path)
		} else {
			files[path] = content
		}
	}
}

// mallows are the concurrent edits of mallow.
func mallows(base map[string]string) []edit {
	const at = "tenants/mallow/projects/p/"
	return []edit{
		{},
		{at + "instances/new.yaml": of(instance("new", 1, 1), "uid-new")},
		{at + "instances/train.yaml": of(instance("train", 2, 2), "uid-train-mallow")},
		{at + "instances/train.yaml": "nonsense"},
		{at + "instances/eval.yaml": ""},
		{at + "instances/eval.yaml": "", at + "instances/moved.yaml": of(instance("moved", 0, 1), "uid-eval-mallow")},
		{at + "instances/huge.yaml": instance("huge", 4, 4)},
		{at + "entitlements/batch.yaml": strings.Replace(base[at+"entitlements/batch.yaml"], "true", "false", 1)},
		{at + "roles.yaml": strings.Replace(base[at+"roles.yaml"], "project_owner", "project_viewer", 1)},
		{"tenants/mallow/policy.yaml": doc("Policy", "policy", "spec: {max_gpus_per_instance: 1}\n")},
		{"tenants/mallow/projects/q/project.yaml": doc("Project", "q", "spec: {display_name: Q}\n")},
		{at + "operations/drain.yaml": ""},
	}
}

// eves are the edits of eve: every base document damaged in each way, documents with
// names, uids, accounts and nodes of mallow, and paths outside its own tree.
func eves(base map[string]string) []edit {
	var all []edit
	spoil := []func(string) string{
		func(string) string { return "" },
		func(string) string { return "a: [" },
		func(string) string { return "\xff\xfe" },
		func(string) string { return "x: &a [*a]\n" },
		func(s string) string { return strings.Replace(s, "spec:", "sepc:", 1) },
		func(s string) string { return strings.Replace(s, "berth/v1", "berth/v2", 1) },
		func(s string) string { return s + "---\n" + s },
		func(s string) string { return s + "\u202e" },
		func(s string) string { return strings.Replace(s, "name: ", "name: x", 1) },
		func(s string) string { return strings.ReplaceAll(s, "eve", "mallow") },
		func(s string) string {
			return strings.Replace(s, "metadata:\n", "metadata:\n  uid: uid-eval-mallow\n", 1)
		},
		func(s string) string { return of(s, "uid-train-mallow") },
		func(s string) string { return strings.Repeat("#", 65_537) },
		func(s string) string { return "suspend: true\n" + s },
	}
	for _, path := range slices.Sorted(maps.Keys(base)) {
		own := strings.HasPrefix(path, "tenants/eve/")
		if own {
			for _, f := range spoil {
				all = append(all, edit{path: f(base[path])})
			}
			for _, to := range []string{strings.ToUpper(path), path + ".", path + "/x.yaml", strings.TrimSuffix(path, "yaml") + "yml",
				strings.Replace(path, "tenants/eve/", "tenants/eve/../mallow/", 1), strings.Replace(path, "/p/", "/q/", 1), path + "\n",
				"tenants/eve/" + path} {
				if strings.HasPrefix(to, "tenants/eve/") && to != path {
					all = append(all, edit{to: base[path]}, edit{path: "", to: base[path]})
				}
			}
			continue
		}
		// Documents of mallow and of the platform, in the place of eve.
		copied := "tenants/eve/" + path
		if rest, ok := strings.CutPrefix(path, "tenants/mallow/"); ok {
			copied = "tenants/eve/" + rest
			all = append(all, edit{"tenants/eve/../mallow/" + rest: "a: ["}, edit{"tenants/eve/tenants/mallow/" + rest: base[path]})
		}
		all = append(all, edit{copied: base[path]}, edit{copied: strings.ReplaceAll(base[path], "name: ", "name: x")})
	}
	const at = "tenants/eve/projects/p/"
	for _, count := range []int{0, 1, 2, 8, 9} {
		for _, gpus := range []int{0, 1, 4, 64, 65} {
			for _, name := range []string{"train", "eval", "new", "moved", "huge", "more"} {
				all = append(all, edit{at + "instances/" + name + ".yaml": of(instance(name, count, gpus), "uid-eves-"+name)})
			}
		}
	}
	for _, uid := range []string{"uid-train-mallow", "uid-eval-mallow", "mallow"} {
		all = append(all,
			edit{at + "instances/theirs.yaml": of(instance("theirs", 1, 1), uid)},
			edit{at + "instances/train.yaml": "", at + "instances/moved.yaml": of(instance("moved", 1, 1), uid)})
	}
	for _, node := range []string{"mallow-1", "mallow-2", "head", "everybody", "eve-1"} {
		all = append(all, edit{at + "contributions/" + node +
			".yaml": doc("Contribution", node, "spec: {shared_runtime: theirs, nodes: ["+node+"]}\n")},
			edit{"tenants/eve/nodes/" + node + ".yaml": base["platform/nodes/"+node+".yaml"]})
	}
	for _, who := range []struct {
		name string
		uid  int
	}{{"mallow", 20002}, {"mallow", 20077}, {"eve", 20002}, {"mallow", 20001}, {"root", 0}, {"daemon", 1}} {
		for _, login := range []string{"user-mallow", "user-eve", "other-mallow", "eve"} {
			all = append(all, edit{at + "roles.yaml": doc("RoleBinding", "roles", fmt.Sprintf(
				"spec: {members: [{login: %s, role: project_owner, unix_user: {name: %s, uid: %d}}]}\n", login, who.name, who.uid))})
		}
	}
	shared := "tenants/eve/shared-runtimes/"
	for _, project := range []string{"mallow.p", "eve.p", "mallow", "eve.q"} {
		all = append(all,
			edit{shared + "theirs/runtime.yaml": doc("SharedRuntime", "theirs",
				"spec: {app: batch, version: v1, display_name: S, operator_identity_ref: crew, attached_project_ids: ["+project+"]}\n"),
				strings.Replace(crewFile, "physics", "eve", 1): crew},
			edit{shared + "theirs/attachments/p.yaml": doc("Attachment", "p", "spec: {project_id: "+project+"}\n")},
			edit{at + "operations/" + strings.ReplaceAll(project, ".", "-") +
				".yaml": doc("MemberOperation", strings.ReplaceAll(project, ".", "-"),
				"spec: {instance: "+project+", operation: retry, reason: x}\n")})
	}
	all = append(all, edit{"tenants/eve/policy.yaml": doc("Policy", "policy",
		"spec: {max_gpus_per_instance: 0, max_instances_per_project: 0}\n")},
		edit{"tenants/eve/policy.yaml": doc("Policy", "policy", "spec: {hard_deny: {apps: [batch]}}\n")},
		edit{"tenants/eve/pause.yaml": doc("Pause", "pause", "spec: {reason: mine}\n")})
	gone := edit{}
	for path := range base {
		if strings.HasPrefix(path, "tenants/eve/") {
			gone[path] = ""
		}
	}
	return append(all, gone)
}

// world decides commits of the estate.
type world struct {
	decider *decide.Decider
	base    map[string]string
	tree    schema.Snapshot // base
	memory  plan.Memory
}

// decide decides a commit over previous, which is nil for the base.
func (w *world) decide(main, previous map[string]string) (decide.Decision, error) {
	was := w.tree
	if previous != nil {
		was = estate.Files(previous)
	} else {
		previous = w.base
	}
	touched, err := trees{"a": previous, "b": main}.Diff(context.Background(), "a", "b")
	if err != nil {
		return decide.Decision{}, err
	}
	return w.decider.Commit(context.Background(), decide.Standing{Tree: was},
		[]decide.Step{{Commit: "c", Tree: estate.Files(main), Touched: touched}}, "2026-01-31")
}

// inForce returns the tree in force after a decision about main and previous.
func inForce(d decide.Decision, main, previous map[string]string) map[string]string {
	now := maps.Clone(main)
	for path, blob := range d.Replace {
		delete(now, path)
		if blob != "" {
			now[path] = previous[path]
		}
	}
	return now
}

// view is mallow's complete part of a decision: declared and effective documents,
// policy decisions, held changes with reasons, assignments, and the inputs of each
// plan.
type view struct {
	Desired   *schema.TenantEstate
	Decisions []schema.Decision
	Out       []schema.Noncompliance
	Replace   map[string]string
	Held      []schema.Held
	Verdicts  []decide.Verdict
	Plans     []plan.Input
}

func (w *world) view(d decide.Decision) *view {
	v := &view{Desired: d.Desired.Tenants["mallow"], Replace: map[string]string{}}
	theirs := func(k schema.Key) bool {
		return k.Tenant == "mallow" || k.Kind == schema.KindTenant && k.Name == "mallow"
	}
	placed, keys := plan.Place(d.Effective, w.memory), map[schema.Key]bool{}
	for k := range d.Effective.All() {
		keys[k] = true
	}
	for k := range w.memory.All() {
		keys[k] = true
	}
	for _, k := range slices.SortedFunc(maps.Keys(keys), schema.Key.Compare) {
		if !theirs(k) {
			continue
		}
		in := plan.Input{Key: k, After: d.Effective.Unit(k), Members: placed.Members(k), Unplaced: placed.Unplaced(k),
			Denied: d.Effective.Denied(k), Observed: plan.Observed{Key: k, Presence: plan.Absent, Complete: true}}
		if s := w.memory.Get(k); s != nil {
			in.Observed = *s.Observed
		}
		v.Plans = append(v.Plans, in)
	}
	for _, x := range d.Effective.Decisions() {
		if theirs(x.Key) {
			v.Decisions = append(v.Decisions, x)
		}
	}
	for _, x := range d.Effective.Noncompliant() {
		if theirs(x.Key) {
			v.Out = append(v.Out, x)
		}
	}
	for path, blob := range d.Replace {
		if strings.HasPrefix(path, "tenants/mallow/") {
			v.Replace[path] = blob
		}
	}
	for _, x := range d.Held {
		if strings.HasPrefix(x.File, "tenants/mallow/") {
			v.Held = append(v.Held, x)
		}
	}
	for _, x := range d.Verdicts {
		if theirs(x.Document.Key) {
			v.Verdicts = append(v.Verdicts, x)
		}
	}
	return v
}

// bytes returns a view and its plans in the form shown to users.
func (v *view) bytes() string {
	plans := []plan.Plan{}
	for _, in := range v.Plans {
		plans = append(plans, plan.Make(in))
	}
	data, err := json.Marshal([]any{v, plans})
	if err != nil {
		panic(err)
	}
	return string(data)
}

// after returns mallow's view after first by eve, and then edits by both.
func (w *world) after(first, then []edit, mallow edit) (*view, error) {
	main := maps.Clone(w.base)
	for _, e := range first {
		e.to(main)
	}
	var previous map[string]string
	if len(first) > 0 {
		d, err := w.decide(main, previous)
		if err != nil {
			return nil, fmt.Errorf("the first commit: %w", err)
		}
		previous = inForce(d, main, w.base)
		main = maps.Clone(main)
	}
	for _, e := range then {
		e.to(main)
	}
	mallow.to(main)
	d, err := w.decide(main, previous)
	if err != nil {
		return nil, fmt.Errorf("the second commit: %w", err)
	}
	return w.view(d), nil
}

// No sequence of changes by one tenant changes a byte of the decisions and plans of
// another tenant.
//
// Two cases are excluded by design. Unix accounts: the first of two new claims wins,
// and an equal second claim shares it, so only eve adds claims here. Shared nodes: a
// document in force takes capacity from the other tenant, so each tenant has its own
// nodes here. TestHeldDocumentsTakeNoCapacity covers held and invalid documents.
func TestOneTenantNeverChangesAnother(t *testing.T) {
	t.Parallel()
	compareHistories(t, 1, 400)
}

// compareHistories decides the given number of random histories with edits of eve and
// mallow. It compares mallow's part with mallow alone.
func compareHistories(t *testing.T, seed uint64, cases int) {
	t.Helper()
	w := newWorld(t, sharedEstate())
	eves, mallows := eves(w.base), mallows(w.base)
	var alone []*view
	var written []string
	distinct := map[string]bool{}
	for _, m := range mallows {
		got, err := w.after(nil, nil, m)
		require.NoError(t, err)
		alone, written = append(alone, got), append(written, got.bytes())
		distinct[written[len(written)-1]] = true
	}
	require.Len(t, distinct, len(mallows), "every edit of mallow changes the view")

	defer debug.SetGCPercent(debug.SetGCPercent(300)) // otherwise a third of the time is garbage collection
	start, next, failed := time.Now(), atomic.Int64{}, atomic.Bool{}
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(cases) && !failed.Load(); n = next.Add(1) {
				r := rand.New(rand.NewPCG(seed, uint64(n)))
				draw := func(most int) (es []edit) {
					for range r.IntN(most + 1) {
						es = append(es, eves[r.IntN(len(eves))])
					}
					return es
				}
				var first []edit
				if r.IntN(4) == 0 {
					first = draw(2)
				}
				then, m := draw(3), r.IntN(len(mallows))
				got, err := w.after(first, then, mallows[m])
				// Equal values have equal bytes, so only some are encoded.
				same := err == nil && reflect.DeepEqual(alone[m], got) && (n%32 != 0 || written[m] == got.bytes())
				if !same {
					failed.Store(true)
					t.Errorf("case %d: eve did %q, then %q; mallow did %q: %v\n%s", n, first, then, mallows[m], err,
						difference(alone[m], got))
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d cases over %d edits of eve and %d of mallow in %s", cases, len(eves), len(mallows),
		time.Since(start).Round(time.Millisecond))
}

// difference returns the first difference of two views.
func difference(one, other *view) string {
	if one == nil || other == nil {
		return ""
	}
	a, b, i := one.bytes(), other.bytes(), 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	around := func(s string) string { return s[max(0, i-200):min(len(s), i+300)] }
	return "alone:  …" + around(a) + "\nbeside: …" + around(b)
}

// newWorld is an estate in force in which every unit with members runs.
func newWorld(t *testing.T, base map[string]string) *world {
	w := &world{decider: decide.New(decide.Options{Loader: loader(t)}), base: base, tree: estate.Files(base)}
	d, err := w.decide(base, nil)
	require.NoError(t, err)
	require.Empty(t, d.Held)
	placed := plan.Place(d.Effective, plan.Memory{})
	for key, inst := range d.Effective.All() {
		o := plan.Observed{Key: key, Presence: plan.Present, Complete: true,
			Unit: &plan.Unit{Effective: *inst, Members: placed.Members(key)}}
		for _, m := range o.Unit.Members {
			o.Members = append(o.Members, plan.MemberState{Name: m.Name, Node: m.Node, State: plan.Running})
		}
		w.memory = w.memory.With(&plan.Status{Key: key, Phase: plan.PhaseRunning, Observed: &o})
	}
	return w
}

// On shared nodes a document in force may take capacity from another tenant. A held
// document takes none.
func TestHeldDocumentsTakeNoCapacity(t *testing.T) {
	t.Parallel()
	heldDocumentsTakeNoCapacity(t, 2, 200)
}

func heldDocumentsTakeNoCapacity(t *testing.T, seed uint64, cases int) {
	base := sharedEstate()
	for path, text := range base {
		if strings.HasPrefix(path, "platform/nodes/") {
			i := strings.Index(text+"  reserved_for", "  reserved_for")
			base[path] = text[:i]
		}
	}
	w := newWorld(t, base)
	eves, mallows := eves(base), mallows(base)
	r := rand.New(rand.NewPCG(seed, 2))
	held := 0
	for n := range cases {
		done := []edit{mallows[r.IntN(len(mallows))]}
		for range 1 + r.IntN(3) {
			done = append(done, eves[r.IntN(len(eves))])
		}
		main := maps.Clone(base)
		for _, e := range done {
			e.to(main)
		}
		d, err := w.decide(main, nil)
		require.NoError(t, err)
		without := maps.Clone(main)
		for path, blob := range d.Replace {
			if !strings.HasPrefix(path, "tenants/eve/") {
				continue
			}
			held++
			delete(without, path)
			if blob != "" {
				without[path] = base[path]
			}
		}
		alone, err := w.decide(without, nil)
		require.NoError(t, err)
		if a, b := w.view(alone), w.view(d); a.bytes() != b.bytes() {
			t.Fatalf("case %d: eve and mallow did %q: %s", n, done, difference(a, b))
		}
	}
	require.Greater(t, held, cases)
}

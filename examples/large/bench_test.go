package large_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"berth/examples/large"
	"berth/reconciler/decide"
	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/estate"
	"berth/schema/parallel"
	"berth/schema/policy"
)

const today = "2026-01-31"

func loader(t testing.TB) *estate.Loader {
	definitions, err := os.ReadFile("../../runtimes/slurm/cluster/config.cue")
	require.NoError(t, err)
	l, err := estate.New(estate.Options{Backends: map[string]string{"slurm": string(definitions)}})
	require.NoError(t, err)
	return l
}

// settled is the memory of an estate whose placed members are all running and observed.
func settled(eff *schema.Effective) plan.Memory {
	var all []*plan.Status
	for key, members := range plan.Place(eff, plan.Memory{}).All() {
		o := plan.Observed{Key: key, Presence: plan.Present, Complete: true, Unit: &plan.Unit{Effective: *eff.Unit(key), Members: members}}
		st := &plan.Status{Key: key, Phase: plan.PhaseRunning, Observed: &o}
		for _, m := range members {
			st.Members = append(st.Members, plan.MemberStatus{Member: m, Placed: m.Reason})
			o.Members = append(o.Members, plan.MemberState{Name: m.Name, Node: m.Node, State: plan.Running})
		}
		all = append(all, st)
	}
	return plan.Remember(all...)
}

// world is a large estate in Git, loaded and decided.
type world struct {
	b         *testing.B
	server    *gittest.Server
	repo      *gitrepo.Repo
	files     map[string]string
	instances []string
	peer      string // a mirror that git itself keeps
	loader    *estate.Loader
	decider   *decide.Decider
	main      string
	memory    plan.Memory
	edits     int
}

func newWorld(b *testing.B, documents int) *world {
	w := &world{b: b, files: large.Estate(documents), loader: loader(b)}
	for path := range w.files {
		if strings.Contains(path, "/instances/") {
			w.instances = append(w.instances, path)
		}
	}
	slices.Sort(w.instances)
	w.server = gittest.New(b, w.files)
	var err error
	w.repo, err = gitrepo.Open(b.Context(), gitrepo.Options{URL: w.server.URL, Dir: b.TempDir()})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, w.repo.Close()) })
	w.peer = filepath.Join(b.TempDir(), "peer.git")
	w.git("clone", "--quiet", "--mirror", w.server.URL, w.peer)
	w.decider = decide.New(decide.Options{Loader: w.loader})
	w.main = w.fetch()
	return w
}

func (w *world) fetch() string {
	tips, err := w.repo.Fetch(w.b.Context())
	require.NoError(w.b, err)
	return tips.Main
}

func (w *world) snapshot(id string) schema.Snapshot {
	snap, err := w.repo.Snapshot(w.b.Context(), id)
	require.NoError(w.b, err)
	return snap
}

// edit commits another edit of some instances, all over the estate, and fetches it.
func (w *world) edit(count int) (changed map[string]string) {
	changed = map[string]string{}
	for i := range count {
		w.edits++
		path := w.instances[(w.edits*7919+i*len(w.instances)/count)%len(w.instances)]
		changed[path] = large.Change(w.files[path], w.edits)
	}
	w.server.MustCommit(w.b, "main", gittest.Commit{Message: "edit", Files: changed})
	return changed
}

// decide decides main over what was in force, and plans the units that changed.
func (w *world) decide(main string, changed map[string]string, step func(string)) {
	ctx := w.b.Context()
	was, now := w.snapshot(w.main), w.snapshot(main)
	wait := w.decider.Ahead(ctx, now) // as the loop does
	touched, err := w.repo.Diff(ctx, w.main, main)
	require.NoError(w.b, err)
	step("git")
	wait()
	d, err := w.decider.Commit(ctx, decide.Standing{Tree: was}, []decide.Step{{Commit: main, Tree: now, Touched: touched}}, today)
	require.NoError(w.b, err)
	require.Empty(w.b, d.Held)
	step("decide")
	placed := w.decider.Place(d.Effective, w.memory)
	step("place")
	paths := slices.Collect(maps.Keys(changed))
	_ = parallel.Each(len(paths), func(i int) error { // as the loop's workers do
		path := paths[i]
		key := schema.InstanceKey(strings.Split(path, "/")[1], strings.Split(path, "/")[3],
			strings.TrimSuffix(filepath.Base(path), ".yaml"))
		p := plan.Make(plan.Input{Key: key, After: d.Effective.Unit(key), Members: placed.Members(key),
			Observed: *w.memory.Get(key).Observed})
		assert.NotEmpty(w.b, p.Digest)
		return nil
	})
	step("make")
	w.main = main
}

// BenchmarkChange is how long a change takes from when it is fetched to when the
// units it concerns are planned, in estates of three sizes; the peers are
// loading everything, and what git takes to list or to compare the same trees.
// The time of the fetch before it, beside the time of git's fetch.
func BenchmarkChange(b *testing.B) {
	for _, documents := range []int{1_000, 10_000, 50_000} {
		w := newWorld(b, documents)
		ctx := b.Context()
		start := time.Now()
		r, err := w.loader.Load(ctx, w.snapshot(w.main))
		require.NoError(b, err)
		require.Empty(b, r.Diagnostics)
		everything := time.Since(start)
		w.memory = settled(policy.Evaluate(r.Desired))

		// Every part is another one, every document is known.
		known := map[string]string{"platform/README.md": "x\n"}
		for name := range r.Desired.Tenants {
			known["tenants/"+name+"/README.md"] = "x\n"
		}
		w.server.MustCommit(b, "main", gittest.Commit{Message: "read me", Files: known})
		next := w.snapshot(w.fetch())
		var cached []time.Duration
		for i := range 3 {
			start = time.Now()
			_, err = w.loader.Load(ctx, next)
			require.NoError(b, err)
			cached = append(cached, time.Since(start))
			for path := range known {
				known[path] = fmt.Sprintf("%d\n", i)
			}
			w.server.MustCommit(b, "main", gittest.Commit{Message: "read me", Files: known})
			next = w.snapshot(w.fetch())
		}
		w.main = w.fetch()
		w.decide(w.main, nil, func(string) {})
		for _, count := range []int{1, 100} {
			b.Run(fmt.Sprintf("%d_of_%d", count, documents), func(b *testing.B) {
				w.b = b
				spent := map[string][]time.Duration{}
				for b.Loop() {
					changed := w.edit(count)
					asked := time.Now()
					before, main := w.main, w.fetch()
					begin, last := time.Now(), time.Now()
					spent["fetch"] = append(spent["fetch"], begin.Sub(asked))
					w.decide(main, changed, func(name string) {
						spent[name] = append(spent[name], time.Since(last))
						last = time.Now()
					})
					spent["total"] = append(spent["total"], time.Since(begin))
					spent["git-fetch"] = append(spent["git-fetch"], w.git("--git-dir", w.peer, "fetch", "--quiet"))
					spent["git-diff"] = append(spent["git-diff"], w.git("--git-dir", w.server.Dir, "diff", "--name-only", before, main))
					spent["git-ls-tree"] = append(spent["git-ls-tree"], w.git("--git-dir", w.server.Dir, "ls-tree", "-r", main))
				}
				spent["everything"], spent["cached"] = []time.Duration{everything}, cached
				for name, ds := range spent {
					slices.Sort(ds)
					b.ReportMetric(float64(ds[len(ds)/2].Microseconds())/1000, name+"-ms")
				}
			})
		}
		w.memory, w.loader, w.decider = plan.Memory{}, nil, nil
	}
}

// git is how long a command of git's takes.
func (w *world) git(args ...string) time.Duration {
	start := time.Now()
	require.NoError(w.b, exec.CommandContext(w.b.Context(), "git", args...).Run())
	return time.Since(start)
}

// BenchmarkResident is the memory of a process that knows ten thousand
// instances: what was read, decided, placed and observed of them.
func BenchmarkResident(b *testing.B) {
	for b.Loop() {
		debug.FreeOSMemory()
		empty := resident(b)
		l := loader(b)
		d := decide.New(decide.Options{Loader: l})
		var desired *schema.Desired
		read, err := d.Commit(context.Background(), decide.Standing{},
			[]decide.Step{{Commit: "c", Tree: estate.Files(large.Estate(12_750))}}, today)
		require.NoError(b, err)
		desired = read.Desired
		mem := settled(read.Effective)
		placed := plan.Place(read.Effective, mem)
		debug.FreeOSMemory()
		b.ReportMetric(resident(b), "MiB")
		b.ReportMetric(resident(b)-empty, "MiB-more")
		b.ReportMetric(float64(len(maps.Collect(placed.All()))), "instances")
		require.NotEmpty(b, desired.Tenants)
		_, err = d.Read(context.Background(), estate.Files(nil), today) // the decider and its loader are in use until here
		_ = err
	}
}

// resident is the resident memory of this process, in MiB.
func resident(b *testing.B) float64 {
	data, err := os.ReadFile("/proc/self/statm")
	require.NoError(b, err)
	pages, err := strconv.Atoi(strings.Fields(string(data))[1])
	require.NoError(b, err)
	return float64(pages*os.Getpagesize()) / (1 << 20)
}

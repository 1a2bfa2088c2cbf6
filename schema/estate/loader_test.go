package estate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/schema"
)

// labLoader returns a Loader with an empty cache. Compiling the definitions costs more
// than most tests, so that all share one reader.
func labLoader(t testing.TB) *Loader {
	t.Helper()
	l, err := labDefinitions()
	require.NoError(t, err)
	return l.WithEmptyCache()
}

var labDefinitions = sync.OnceValues(func() (*Loader, error) {
	slurm, err := os.ReadFile("../../runtimes/slurm/cluster/config.cue")
	if err != nil {
		return nil, err
	}
	return New(Options{Backends: map[string]string{"slurm": string(slurm), "bare_metal": "#Config: {...}\n#Parameters: {...}"}})
})

// NewLabLoader is labLoader for the tests outside of the package.
func NewLabLoader(t testing.TB) *Loader { return labLoader(t) }

// counting counts the calls of a snapshot.
type counting struct {
	schema.Snapshot
	lists, reads *[]string
}

func (c counting) Files(ctx context.Context, p schema.Part) ([]schema.File, error) {
	*c.lists = append(*c.lists, p.Name)
	return c.Snapshot.Files(ctx, p)
}

func (c counting) Read(ctx context.Context, f schema.File, most int) ([]byte, bool, error) {
	*c.reads = append(*c.reads, f.Path)
	return c.Snapshot.Read(ctx, f, most)
}

// A reload lists one part, reads one file, and shares every other tenant.
func TestReloadReadsOnlyTheChange(t *testing.T) {
	l := labLoader(t)
	files := labTree(t)
	first, err := l.Load(context.Background(), Files(files))
	require.NoError(t, err)
	const changed = "tenants/physics/projects/lattice/instances/train.yaml"
	files[changed] = strings.Replace(files[changed], "Training", "Second", 1)
	var lists, reads []string
	second, err := l.Load(context.Background(), counting{Files(files), &lists, &reads})
	require.NoError(t, err)
	require.Equal(t, []string{"tenants/physics"}, lists)
	require.Equal(t, []string{changed}, reads)
	require.Same(t, first.Desired.Platform, second.Desired.Platform)
	require.Same(t, first.Desired.Tenants["biology"], second.Desired.Tenants["biology"])
	require.NotSame(t, first.Desired.Tenants["physics"], second.Desired.Tenants["physics"])

	// A new node leaves every tenant unchanged. A new version of an app in use makes
	// every tenant be judged again, and changes none.
	files["platform/nodes/dev-gpu-99.yaml"] = strings.NewReplacer("dev-gpu-3", "dev-gpu-99", "10.77.0.13",
		"10.77.0.99").Replace(files["platform/nodes/dev-gpu-3.yaml"])
	files["platform/catalog/slurm/23-11.yaml"] = strings.NewReplacer("name: 22-05", "name: 23-11", "22.05.8",
		"23.11.4").Replace(files["platform/catalog/slurm/22-05.yaml"])
	third, err := l.Load(context.Background(), Files(files))
	require.NoError(t, err)
	require.Empty(t, third.Diagnostics)
	for name, tenant := range second.Desired.Tenants {
		require.Same(t, tenant, third.Desired.Tenants[name])
	}
}

// Nodes reserved for one tenant cause no other tenant to be judged again.
func TestReservedNodesAffectOneTenant(t *testing.T) {
	l := labLoader(t)
	files := treeOf(t, "../../examples/campus")
	judged := func() map[string]int {
		r, err := l.Load(context.Background(), Files(files))
		require.NoError(t, err)
		require.Empty(t, r.Diagnostics)
		n := map[string]int{}
		for _, p := range r.trees {
			n[p.name] = len(p.kept.verdicts.kept)
		}
		return n
	}
	require.Equal(t, map[string]int{"platform": 1, "tenants/biology": 1, "tenants/physics": 1}, judged())
	node := "platform/nodes/gpu-6.yaml"
	files[node] = strings.NewReplacer("gpu-5", "gpu-6", "10.78.0.15", "10.78.0.16").Replace(files["platform/nodes/gpu-5.yaml"])
	require.Equal(t, map[string]int{"platform": 1, "tenants/biology": 1, "tenants/physics": 1}, judged(), "a node for everybody")
	files[node] = strings.Replace(files[node], "  roles:", "  reserved_for: physics.lattice\n  roles:", 1)
	require.Equal(t, map[string]int{"platform": 1, "tenants/biology": 1, "tenants/physics": 2}, judged(), "a node for physics")
	attachment := "platform/shared-runtimes/commons/attachments/proteins.yaml"
	files[attachment] = strings.Replace(files[attachment], "max_gpus: 2", "max_gpus: 1", 1)
	require.Equal(t, map[string]int{"platform": 1, "tenants/biology": 2, "tenants/physics": 2}, judged(), "an attachment of biology")
	files["platform/catalog/slurm/app.yaml"] = strings.Replace(files["platform/catalog/slurm/app.yaml"], "SchedMD", "us", 1)
	require.Equal(t, map[string]int{"platform": 1, "tenants/biology": 3, "tenants/physics": 3}, judged(), "what everybody uses")
}

// Concurrent loads give the same results as sequential ones.
func TestConcurrentLoads(t *testing.T) {
	l := labLoader(t)
	done := make(chan []schema.Diagnostic)
	for i := range 6 {
		go func() {
			files := labTree(t)
			if i%2 == 1 {
				files["tenants/physics/projects/lattice/instances/train.yaml"] = "x: 1\n"
			}
			r, err := l.Load(context.Background(), Files(files))
			if err != nil {
				done <- []schema.Diagnostic{{Message: err.Error()}}
				return
			}
			done <- r.Diagnostics
		}()
	}
	var counts []int
	for range 6 {
		counts = append(counts, len(<-done))
	}
	slices.Sort(counts)
	require.Equal(t, []int{0, 0, 0, 1, 1, 1}, counts)
}

func BenchmarkLoad(b *testing.B) {
	files := labTree(b)
	const tenants = 200
	for i := range tenants {
		name := fmt.Sprintf("t%d", i)
		for path, content := range labTree(b) {
			if rest, ok := strings.CutPrefix(path, "tenants/physics/"); ok {
				content = strings.NewReplacer("name: physics", "name: "+name, "name: anna\n", fmt.Sprintf("name: a%d\n", i), "name: ben\n",
					fmt.Sprintf("name: b%d\n", i),
					"20001", fmt.Sprint(30000+i), "20002", fmt.Sprint(40000+i)).Replace(content)
				files["tenants/"+name+"/"+rest] = content
			}
		}
	}
	snap := Files(files)
	changed := map[string]string{}
	for k, v := range files {
		changed[k] = v
	}
	b.Run("everything", func(b *testing.B) {
		for b.Loop() {
			r, err := labLoader(b).Load(context.Background(), snap)
			require.NoError(b, err)
			require.Empty(b, r.Diagnostics)
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(len(files)), "us/doc")
	})
	b.Run("one change", func(b *testing.B) {
		l := labLoader(b)
		_, err := l.Load(context.Background(), snap)
		require.NoError(b, err)
		const path = "tenants/t7/projects/lattice/instances/train.yaml"
		for i := 0; b.Loop(); i++ {
			changed[path] = strings.Replace(files[path], "Training cluster", fmt.Sprintf("Cluster %d", i), 1)
			b.StopTimer()
			next := Files(changed)
			b.StartTimer()
			_, err := l.Load(context.Background(), next)
			require.NoError(b, err)
		}
	})
}

// Reading any file of the largest size takes a bounded amount of memory, and
// little of it stays in use.
func TestHostileFilesTakeLittleMemory(t *testing.T) {
	head := "apiVersion: berth/v1\nkind: Instance\nmetadata: {name: train}\nspec:\n  app: slurm\n  version: 22-05\n  display_name: T\n"
	fill := func(start, each, end string, nodes int) string { // nodes: of each
		n := min((largestFile-len(start)-len(end))/len(each), (largestNodes-60)/nodes)
		return start + strings.Repeat(each, n) + end
	}
	nest := func(key string, depth int) string { return strings.Repeat("{"+key+": ", depth) }
	long, longest := strings.Repeat("k", 40_000), strings.Repeat("k", 128)
	for name, content := range map[string]string{
		"findings below a long key":     fill("? "+long+"\n: [", "~,", "]\n", 1),
		"values below a long key":       fill(head+"  config: {? "+long+" : [", "1,", "]}\n", 1),
		"findings below the longest":    fill(head+"  config: "+nest(longest, 1)+"[", "~,", "]}\n", 1),
		"values below the longest":      fill(head+"  config: "+nest(longest, 1)+"[", "{a: 1},", "]}\n", 3),
		"unknown fields in a deep list": fill(head+"  regions: "+nest("a", 20)+"[", "{a: 1},", "]"+strings.Repeat("}", 20)+"\n", 3),
		"unknown fields in members": fill("apiVersion: berth/v1\nkind: RoleBinding\nmetadata: {name: roles}\nspec: {members: [",
			"{x: 1},", "]}\n", 3),
	} {
		t.Run(name, func(t *testing.T) {
			require.LessOrEqual(t, len(content), largestFile)
			l := labLoader(t)
			files := labTree(t)
			_, err := l.Load(context.Background(), Files(files))
			require.NoError(t, err)
			const file = "tenants/physics/projects/lattice/instances/train.yaml"
			if strings.Contains(content, "RoleBinding") {
				files["tenants/physics/projects/lattice/roles.yaml"] = content
			} else {
				files[file] = content
			}
			snap := Files(files)
			kept := liveHeap()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, err := l.Load(context.Background(), snap)
			runtime.ReadMemStats(&after)
			require.NoError(t, err)
			require.NotEmpty(t, r.Diagnostics)
			require.NotEqual(t, "yaml.nodes", r.Diagnostics[0].Code, "the case shows something else")
			kept = liveHeap() - kept
			t.Logf("%s: %d KiB allocated, %d KiB kept, %d findings: %s", name, (after.TotalAlloc-before.TotalAlloc)>>10, kept>>10,
				len(r.Diagnostics), r.Diagnostics[0])
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(96<<20))
			require.Less(t, kept, int64(4<<20)) // a tree waiting for the definition of its config
			runtime.KeepAlive(l)
			runtime.KeepAlive(r)
		})
	}
}

// The changes of a tenant settle in a bounded number of rounds, for any chain of
// conflicts. A few conflicts are resolved one by one.
func TestOneTenantTakesFewRounds(t *testing.T) {
	l := labLoader(t)
	binding := func(user, uid int) string {
		return fmt.Sprintf("apiVersion: berth/v1\nkind: RoleBinding\nmetadata: {name: roles}\nspec: {members: [{login: u%d, role: "+
			"project_member, unix_user: {name: u%d, uid: %d}}]}\n", user, user, uid)
	}
	const train = "tenants/physics/projects/lattice/instances/train.yaml"
	path := func(i int) string { return fmt.Sprintf("tenants/chain/projects/p%d/roles.yaml", i) }
	for _, tc := range []struct{ length, rounds, held int }{{4, 5, 4}, {60, maxTurns + 1, 61}} {
		before := labTree(t)
		before["tenants/chain/tenant.yaml"] = "apiVersion: berth/v1\nkind: Tenant\nmetadata: {name: chain}\nspec: {display_name: Chain}\n"
		for i := range tc.length {
			before[fmt.Sprintf("tenants/chain/projects/p%d/project.yaml",
				i)] = fmt.Sprintf("apiVersion: berth/v1\nkind: Project\nmetadata: {name: p%d}\nspec: {display_name: P}\n", i)
			before[path(i)] = binding(i, 21000+i)
		}
		// Each person takes the uid of the next. The last one's claim fails, so the
		// version in force stays and conflicts with the one before, and so on.
		main := maps.Clone(before)
		for i := range tc.length {
			main[path(i)] = binding(i, 21001+i)
		}
		main[path(tc.length-1)] = "x\n"
		main["tenants/chain/policy.yaml"] = "apiVersion: berth/v1\nkind: Policy\nmetadata: {name: policy}\nspec: {max_gpus_per_instance: " +
			"3}\n"
		main[train] = strings.Replace(main[train], "Training", "Other", 1)
		f, err := l.InForceOf(context.Background(), Files(main), Files(before), nil)
		require.NoError(t, err)
		require.Equal(t, tc.rounds, f.rounds)
		require.Len(t, f.Held, tc.held)
		require.NotContains(t, f.Replace, train, "others have what they asked for")
		for i := range tc.length {
			require.Equal(t, BlobID([]byte(before[path(i)])), f.Replace[path(i)])
		}
	}
}

// failing is a snapshot with one unreadable file.
type failing struct {
	schema.Snapshot
	file string
}

func (f failing) Read(ctx context.Context, file schema.File, most int) ([]byte, bool, error) {
	if file.Path == f.file {
		return nil, false, errors.New("the disk has a hole")
	}
	return f.Snapshot.Read(ctx, file, most)
}

// The files read from a part stay cached if another file of it is unreadable.
func TestReadFilesStayCachedAfterFailure(t *testing.T) {
	l := labLoader(t)
	files := labTree(t)
	const hole = "tenants/physics/projects/lattice/instances/train.yaml"
	r, err := l.Load(context.Background(), failing{Files(files), hole})
	require.NoError(t, err)
	require.Equal(t, []string{"tenants/physics"}, r.Unreadable)
	var lists, reads []string
	r, err = l.Load(context.Background(), counting{Files(files), &lists, &reads})
	require.NoError(t, err)
	require.Empty(t, r.Unreadable)
	require.Equal(t, []string{"tenants/physics"}, lists)
	require.Equal(t, []string{hole}, reads)
}

func labTree(t testing.TB) map[string]string {
	t.Helper()
	return treeOf(t, "../../examples/lab")
}

func treeOf(t testing.TB, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		rel, _ := filepath.Rel(root, name)
		files[filepath.ToSlash(rel)] = string(data)
		return err
	}))
	return files
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The bounds of a file, as package load has them.
const (
	largestNodes = 8_000
	largestFile  = 64 << 10
)

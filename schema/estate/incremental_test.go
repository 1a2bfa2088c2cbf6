package estate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/examples/large"
	"berth/schema"
	"berth/schema/load"
)

// Findings about names that no node has follow the nodes, also in unchanged trees.
func TestFindingsFollowTheNodes(t *testing.T) {
	l, files := labLoader(t), large.Estate(1_000)
	files[large.Instance(1, 4, 5)] += "  regions: [nowhere]\n"
	change := func(prefix, was, is string) int {
		for path, content := range files {
			if strings.HasPrefix(path, prefix) {
				files[path] = strings.Replace(content, was, is, 1)
			}
		}
		now, err := l.Load(context.Background(), Files(files))
		require.NoError(t, err)
		want, err := l.WithEmptyCache().Load(context.Background(), Files(files))
		require.NoError(t, err)
		equalResults(t, want, now)
		return len(now.Diagnostics)
	}
	const nodes = "platform/nodes/gpu-"
	require.Equal(t, 1, change(nodes+"00001", "gpu-a100-4", "gpu-new"))
	require.Equal(t, 1, change(nodes+"00002", "gpu-a100-4", "gpu-newer"))
	require.Greater(t, change(nodes, "gpu-a100-4", "gpu-new"), 3)
	require.Equal(t, 1, change(nodes, "gpu-new", "gpu-a100-4"))
}

// Findings about names of nodes in a config follow the nodes, and no other tree is judged again.
func TestNamesInConfigsFollowTheNodes(t *testing.T) {
	slurm, err := os.ReadFile("../../runtimes/slurm/cluster/config.cue")
	require.NoError(t, err)
	l, err := New(Options{Backends: map[string]string{"slurm": string(slurm)}, Checks: map[string]schema.ConfigCheck{
		"slurm": func(_ *schema.AppVersion, config json.RawMessage) (facts schema.ConfigFacts) {
			if strings.Contains(string(config), "late-1") {
				facts.Names = append(facts.Names,
					schema.ConfigName{Path: "partitions[0].nodes.names[0]", Sort: schema.NodeName, Name: "late-1"})
			}
			return facts
		},
	}})
	require.NoError(t, err)
	files := large.Estate(1_000)
	files[large.Instance(1, 4, 5)] += "  config: {partitions: [{name: main, nodes: {names: [late-1]}}]}\n"
	load := func() []schema.Diagnostic {
		now, err := l.Load(t.Context(), Files(files))
		require.NoError(t, err)
		want, err := l.WithEmptyCache().Load(t.Context(), Files(files))
		require.NoError(t, err)
		equalResults(t, want, now)
		return now.Diagnostics
	}
	found := load()
	require.Len(t, found, 1)
	require.Equal(t, []string{"ref.no-node", "spec.config.partitions[0].nodes.names[0]"}, []string{found[0].Code, found[0].Path})
	node := "platform/nodes/gpu-00001.yaml"
	require.Contains(t, files, node)
	files["platform/nodes/late-1.yaml"] = strings.NewReplacer("gpu-00001", "late-1", "10.64.0.2", "10.99.0.2").Replace(files[node])
	require.Empty(t, load())
	delete(files, "platform/nodes/late-1.yaml")
	require.Len(t, load(), 1)

	// While its version is gone, nothing is known of the config.
	var version, text string
	for path := range files {
		if strings.HasPrefix(path, "platform/catalog/slurm/") && !strings.HasSuffix(path, "/app.yaml") {
			version, text = path, files[path]
		}
	}
	require.NotEmpty(t, version)
	delete(files, version)
	load()
	files[version] = text
	files["platform/nodes/late-1.yaml"] = strings.NewReplacer("gpu-00001", "late-1", "10.64.0.2", "10.99.0.2").Replace(files[node])
	require.Empty(t, load())
}

// warned is the campus with lasting warnings in the tenants' own documents and in those
// of their projects, one more than are displayed.
func warned(t testing.TB) map[string]string {
	files := treeOf(t, "../../examples/campus")
	many := make([]string, load.MaxFindings+5)
	for i := range many {
		many[i] = fmt.Sprintf("nowhere-%d", i)
	}
	for path, more := range map[string]string{
		"tenants/biology/policy.yaml":                               "  hard_deny: {apps: [nothing]}\n",
		"tenants/biology/projects/genomes/instances/assembly.yaml":  "  regions: [nowhere]\n",
		"tenants/physics/policy.yaml":                               "  allowed_skus: [none]\n",
		"tenants/physics/projects/collider/instances/analysis.yaml": "  regions: [nowhere]\n",
		"tenants/physics/projects/collider/entitlements/slurm.yaml": "  policy_overrides: {allowed_regions: [nowhere]}\n",
		"tenants/physics/projects/lattice/instances/sweep.yaml":     "  regions: [" + strings.Join(many, ", ") + "]\n",
		"tenants/physics/projects/lattice/service-accounts/ci.yaml": "    - GET /api/v1/nothing\n",
	} {
		require.Contains(t, files, path)
		files[path] += more
	}
	r, err := labLoader(t).Load(context.Background(), Files(files))
	require.NoError(t, err)
	require.Len(t, r.Diagnostics, 7+load.MaxFindings+1) // regions of analysis, on a shared runtime, have no effect either
	require.False(t, schema.HasErrors(r.Diagnostics))
	return files
}

// After the removal or change of any one document, the result equals that of a
// load without a cache.
func TestAnySingleDocumentChange(t *testing.T) { AnySingleDocumentChange(t, 4) }

// AnySingleDocumentChange changes one document of each so many.
func AnySingleDocumentChange(t *testing.T, each int) {
	ctx := context.Background()
	l := labLoader(t)
	files := warned(t)
	waiting := 0
	for n, path := range sortedKeys(files) {
		if n%each != 0 {
			continue
		}
		whole, err := l.Load(ctx, Files(files))
		require.NoError(t, err)
		require.Empty(t, whole.Needs)
		without := maps.Clone(files)
		delete(without, path)
		got, err := l.Load(ctx, Files(without))
		require.NoError(t, err)
		want, err := l.WithEmptyCache().Load(ctx, Files(without))
		require.NoError(t, err)
		equalResults(t, want, got)
		waiting += len(got.Needs)
		without[path] = files[path] + "# changed\n"
		_, err = l.Load(ctx, Files(files))
		require.NoError(t, err)
		got, err = l.Load(ctx, Files(without))
		require.NoError(t, err)
		want, err = l.WithEmptyCache().Load(ctx, Files(without))
		require.NoError(t, err)
		equalResults(t, want, got)
	}
	require.NotZero(t, waiting)
}

func equalResults(t require.TestingT, want, got *Result) {
	require.Equal(t, want.Diagnostics, got.Diagnostics)
	require.Equal(t, want.Needs, got.Needs)
	require.Equal(t, want.Desired, got.Desired)
	require.Equal(t, want.Unreadable, got.Unreadable)
	require.Equal(t, want.Len(), got.Len())
	for path, key := range want.Documents() {
		require.Equal(t, key, got.Key(path))
		require.Equal(t, want.Waits(path), got.Waits(path))
	}
	for _, s := range want.trees {
		for id := range s.names.ids {
			require.Equal(t, want.owner(s.name, id), got.owner(s.name, id))
		}
	}
	for _, s := range want.trees {
		says, _ := s.verdict.claims.read()
		for what := range says {
			require.Equal(t, want.userOf(what), got.userOf(what))
		}
	}
}

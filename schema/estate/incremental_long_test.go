//go:build long

package estate

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"berth/examples/large"
)

// work counts the work of a load.
type work struct {
	listed, read      []string
	trees             int // cache misses
	tenants, projects int // not shared with earlier loads
}

func workOf(before, after *Result, listed, read []string, trees int) work {
	w := work{listed: listed, read: read, trees: trees}
	for name, t := range after.Desired.Tenants {
		old := before.Desired.Tenants[name]
		if t == old {
			continue
		}
		w.tenants++
		for name, p := range t.Projects {
			if p != old.Projects[name] {
				w.projects++
			}
		}
	}
	return w
}

// changeCosts compares the costs of changes in estates to which warn adds so many
// warnings.
func changeCosts(t *testing.T, warn func(files map[string]string) int) {
	ctx := context.Background()
	const roles = "tenants/t001/projects/p3/roles.yaml"
	path := large.Instance(1, 3, 5)
	var costs [][]work
	for _, documents := range []int{1_000, 4_000} {
		l := labLoader(t)
		files := large.Estate(documents)
		warnings := warn(files)
		was := Files(files)
		before, err := l.Load(ctx, was)
		require.NoError(t, err)
		require.Len(t, before.Diagnostics, warnings)
		var cost []work
		for _, change := range []func(){
			func() { files[path] = large.Change(files[path], 1) },
			func() { files[roles] = strings.Replace(files[roles], "uid: 2", "uid: 3", 1) },
			func() { delete(files, path) },
		} {
			change()
			var listed, read []string
			misses := l.CacheStats().Misses
			now := counting{Files(files), &listed, &read}
			f, err := l.InForceOf(ctx, now, was, nil)
			require.NoError(t, err)
			require.Empty(t, f.Held)
			require.Same(t, f.Main, f.Result, "equal results are the same pointer")
			cost = append(cost, workOf(before, f.Result, listed, read, l.CacheStats().Misses-misses))
			was, before = now.Snapshot, f.Result
		}
		costs = append(costs, cost)
	}
	require.Equal(t, costs[0], costs[1])
	one := work{listed: []string{"tenants/t001"}, trees: 1, tenants: 1, projects: 1}
	edited, accounts := one, one
	edited.read, accounts.read = []string{path}, []string{roles}
	require.Equal(t, []work{edited, accounts, one}, costs[0])
}

// The cache of other trees never changes the result for a tree.
func CacheDoesNotChangeResults(t *testing.T) {
	ctx := context.Background()
	l := labLoader(t)
	campus := warned(t)
	paths := sortedKeys(campus)
	edits := []string{"display_name: ", "display_name: ", "uid: 2000", "login: ", "project_id: physics", "enabled: true", "metadata:\n",
		"reserved_for: ", "applies_to: [", "name: ", "sku: ", "region: "}
	rapid.Check(t, func(rt *rapid.T) {
		files := maps.Clone(campus)
		was := Files(files)
		for range rapid.IntRange(1, 5).Draw(rt, "trees") {
			for range rapid.IntRange(1, 3).Draw(rt, "changes") {
				path := rapid.SampledFrom(paths).Draw(rt, "path")
				switch rapid.IntRange(0, 4).Draw(rt, "what") {
				case 0:
					delete(files, path)
				case 1:
					files[path] = campus[path]
				case 2:
					other := rapid.SampledFrom(paths).Draw(rt, "other")
					files[path] = campus[other]
				default:
					edit := rapid.SampledFrom(edits).Draw(rt, "edit")
					to := edit + rapid.SampledFrom([]string{"1", "x", "physics.none", "  uid: one\n"}).Draw(rt, "to")
					files[path] = strings.Replace(files[path], edit, to, 1)
				}
				if files[path] == "" {
					delete(files, path)
				}
			}
			now := Files(files)
			got, err := l.Load(ctx, now)
			require.NoError(rt, err)
			want, err := l.WithEmptyCache().Load(ctx, now)
			require.NoError(rt, err)
			equalResults(rt, want, got)
			force, err := l.InForceOf(ctx, now, was, nil)
			again, err2 := l.WithEmptyCache().InForceOf(ctx, now, was, nil)
			require.Equal(rt, err2, err)
			if err != nil {
				continue
			}
			require.Equal(rt, again.Held, force.Held)
			require.Equal(rt, again.Replace, force.Replace)
			equalResults(rt, again.Result, force.Result)
			was = force.Snapshot
		}
	})
}

// One change costs the same in a small estate and in one four times as large: its
// document is read, its tree judged, and its project built. Warnings in other
// documents do not matter.
func TestLongReloadCostIsIndependentOfEstateSize(t *testing.T) {
	t.Run("clean", func(t *testing.T) { changeCosts(t, func(map[string]string) int { return 0 }) })
	t.Run("warned", func(t *testing.T) {
		changeCosts(t, func(files map[string]string) int {
			files["tenants/t001/policy.yaml"] += "  hard_deny: {apps: [nothing]}\n"
			files[large.Instance(1, 3, 6)] += "  regions: [nowhere]\n"
			files[large.Instance(1, 4, 5)] += "  regions: [nowhere]\n"
			return 3
		})
	})
}
